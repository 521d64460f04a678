"""A bundle read by whoever trusts it: unpack each frame, and make plain values of its bytes."""

from __future__ import annotations

from typing import Any, Final

import msgpack
import zstandard
from branchmem.bundle.file import HEAD
from branchmem.bundle.manifest import Manifest

_LARGE: Final = 1 << 30


def decode(path: str, manifest: Manifest) -> list[Any]:
    """The first value of the last frame; every other was decoded and let go of.

    The manifest tells how long each frame is.
    """
    last: list[Any] = []
    unpack = zstandard.ZstdDecompressor().decompress
    with open(path, "rb") as file:
        file.seek(len(HEAD))
        for frame in manifest.frames:
            last = values(unpack(file.read(frame.size)))
    return last[:1]


def values(payload: bytes) -> list[Any]:
    """Skeleton, body, skeleton, body …, as lists."""
    unpacker = msgpack.Unpacker(raw=False, max_buffer_size=_LARGE)
    unpacker.feed(payload)
    return list(unpacker)
