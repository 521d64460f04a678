"""How files of JSON lines are packed for those who publish them and those who recount: with zstd, and its checksum.

What the lines say, and what is refused where they cannot be had, is left to whoever keeps them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from branchmem.extra import extra


def packed(lines: bytes, level: int) -> bytes:
    """The same bytes for the same lines and level, by one version of zstd.  Raises: ExtraMissing."""
    with _needed():
        import zstandard
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(lines)


def unpacked(content: bytes) -> bytes:
    """The lines again.  Raises: ValueError where they are cut off, changed, or something else; ExtraMissing."""
    with _needed():
        import zstandard
    try:
        return zstandard.ZstdDecompressor().decompress(content)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def _needed() -> AbstractContextManager[None]:
    return extra("zstandard", wanted="packed calls and results", name="branchbench")
