"""The pieces of a bundle: records of events, one after the other, compressed by themselves.

A record is the canonical skeleton of an event, and behind it its canonical body, or nil where
its content was erased.  A frame is unpacked only where its header says what the manifest says: one
zstd frame, of so many bytes, without a dictionary, with a small window.  So no frame takes more memory
than the limit, whatever it claims.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

from branchmem.bundle.manifest import MAX_RATIO, MAX_RAW_BYTES, Counts, Frame
from branchmem.extra import extra

#: A frame is closed when its records have so many bytes; one event has less than 4 MiB.
FRAME_BYTES: Final = 1 << 20
MAX_WINDOW_BYTES: Final = MAX_RAW_BYTES
LEVEL: Final = 3

_NIL: Final = b"\xc0"
_MAGIC: Final = (0xFD2FB528).to_bytes(4, "little")
_BLOCK_BYTES: Final = 128 << 10


def packed(records: Iterable[bytes], events: int) -> tuple[Frame, bytes]:
    """The frame of these records, and its bytes."""
    with extra("zstandard", wanted="bundles", name="bundles"):
        import zstandard
    payload = b"".join(records)
    data = zstandard.ZstdCompressor(
        level=LEVEL, write_content_size=True, write_checksum=False, write_dict_id=False
    ).compress(payload)
    if len(payload) > MAX_RATIO * len(data):
        data = _stored(payload)
    return Frame(len(data), len(payload), events, hashlib.sha256(data).digest()), data


def unpacked(frame: Frame, data: bytes) -> bytes:
    """The records of a frame, from its bytes.

    Raises: ValueError with a reason where they are not what the manifest says.
    Cost: allocates the raw bytes that the manifest states, and a window.
    """
    if len(data) != frame.size:
        raise ValueError(f"{len(data)} bytes are left of {frame.size}")
    if hashlib.sha256(data).digest() != frame.sha256:
        raise ValueError("its hash is not that of the manifest")
    with extra("zstandard", wanted="bundles", name="bundles"):
        import zstandard
    if not data.startswith(_MAGIC):
        raise ValueError("it is no zstd frame")
    try:
        header = zstandard.get_frame_parameters(data)
        if header.content_size != frame.raw or frame.raw > MAX_RAW_BYTES:
            raise ValueError(f"its header says {header.content_size} bytes, the manifest {frame.raw}")
        if header.window_size > MAX_WINDOW_BYTES:
            raise ValueError(f"a window of {header.window_size} bytes, more than {MAX_WINDOW_BYTES}")
        if header.dict_id:
            raise ValueError("it needs a dictionary")
        payload = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompress(
            data, max_output_size=frame.raw, read_across_frames=False, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise ValueError(f"{error}") from None
    if len(payload) != frame.raw:
        raise ValueError(f"it holds {len(payload)} bytes, the manifest says {frame.raw}")
    return payload


def _stored(payload: bytes) -> bytes:
    """A zstd frame that holds `payload` as it is, for what would be packed into less than a bundle may.

    Source: RFC 8878, sections 3.1.1.1 and 3.1.1.2: one segment, its size in 4 bytes, raw blocks.
    """
    starts = range(0, len(payload), _BLOCK_BYTES)
    parts = [_MAGIC, b"\xa0", len(payload).to_bytes(4, "little")]
    for start in starts:
        block = payload[start : start + _BLOCK_BYTES]
        parts += ((len(block) << 3 | (start == starts[-1])).to_bytes(3, "little"), block)
    return b"".join(parts)


class Packing:
    """Puts records together into frames, and counts them."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0
        self._counts = [0] * len(Counts._fields)
        self.frames: list[Frame] = []

    @property
    def counts(self) -> Counts:
        """Of all records so far."""
        return Counts(*self._counts)

    def pack(self, records: Iterable[tuple[bytes, bytes | None]]) -> Iterator[bytes]:
        """Take in records: canonical skeleton, and body or None; yield the bytes of each frame that is full."""
        parts, counts = self._parts, self._counts
        erased = len(counts) - 1
        for skeleton, body in records:
            counts[skeleton[1]] += 1
            if body is None:
                body = _NIL
                counts[erased] += 1
            parts += (skeleton, body)
            self._bytes += len(skeleton) + len(body)
            if self._bytes >= FRAME_BYTES:
                yield self._frame()

    def rest(self) -> Iterator[bytes]:
        """Yield the bytes of the last frame, where records wait for it."""
        if self._parts:
            yield self._frame()

    def _frame(self) -> bytes:
        frame, data = packed(self._parts, len(self._parts) // 2)
        self._parts.clear()
        self._bytes = 0
        self.frames.append(frame)
        return data
