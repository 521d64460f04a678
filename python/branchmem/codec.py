"""How events lie on disk: blocks of skeletons and records of bodies, version 1.

A block holds the skeletons of one batch.  In it an id that the log mentioned
before is a number, in order of first mention, and a new id is its string.
Each block and each body carries a checksum that covers its place in the log
too, so that nothing can be moved.  Logs on disk hold these bytes: they never
change, a new field is a new version.

Only canonical bytes pass: what decodes encodes to the same bytes again.  Plain
and exact; the engine has a fast twin.  Errors are ValueError with a reason:
only the caller knows the path.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

import msgpack

from branchmem.canonical import MAX_ID_BYTES, MAX_REFERENCES, Tag, is_deeper, pack, unpack
from branchmem.events import Event, Memory, event_from_bytes

VERSION: Final = 1
MAX_BLOCK_EVENTS: Final = 1000

_BLOCK = struct.Struct("<B3xIQI")  # version, count, ids interned before, checksum
_BODY = struct.Struct("<BB2xI")  # version, state, checksum
_BODY_PLACE = struct.Struct("<QBB2x")  # seq, version, state: what the checksum covers before the content
_SEQ = struct.Struct("<Q")
_CONTENT, _ERASED = 0, 1
_NO_FLAGS: Final = b"\0\0"

_ID_TAGS: Final = frozenset((Tag.PARENT, Tag.ADOPTS, Tag.AT, Tag.RETRACTION))
_IDS_TAGS: Final = frozenset((Tag.SOURCES, Tag.DERIVED_FROM, Tag.SUPERSEDES, Tag.MEMORIES, Tag.TARGETS))

_NO_CONTENT = pack(())
_NO_MEMORY_CONTENT = pack((Tag.TEXT, ""))


class Interner:
    """The ids of a log in order of first mention, and the number of each."""

    __slots__ = ("ids", "numbers")

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.numbers: dict[str, int] = {}

    def reference(self, id: object) -> int | str:
        """What stands for `id` on disk: its number, or itself at its first mention."""
        if not isinstance(id, str):
            raise ValueError(f"an id is a string, not {id!r:.80}")
        number = self.numbers.get(id)
        if number is not None:
            return number
        self.numbers[id] = len(self.ids)
        self.ids.append(id)
        return id

    def id(self, reference: object) -> str:
        """The id that `reference` stands for; a string must be a first mention."""
        if type(reference) is int:
            if not 0 <= reference < len(self.ids):
                raise ValueError(f"id number {reference} of {len(self.ids)}")
            return self.ids[reference]
        if not isinstance(reference, str):
            raise ValueError(f"an id is a number or a string, not {reference!r:.80}")
        if not reference:
            raise ValueError(f"an id takes 1 to {MAX_ID_BYTES} bytes")
        if reference in self.numbers:
            raise ValueError(f"id {reference!r:.80} is spelt out again")
        self.numbers[reference] = len(self.ids)
        self.ids.append(reference)
        return reference

    def forget(self, keep: int) -> None:
        """Take back all mentions but the first `keep`."""
        for id in self.ids[keep:]:
            self.numbers.pop(id, None)
        del self.ids[keep:]


def encode_block(first_seq: int, skeletons: Sequence[bytes], interner: Interner) -> bytes:
    """The block of `skeletons` (canonical, ids as strings), 1 to 1,000 of them.

    Takes their ids into `interner`, or leaves it untouched on error.
    """
    if not 1 <= len(skeletons) <= MAX_BLOCK_EVENTS:
        raise ValueError(f"a block holds 1 to {MAX_BLOCK_EVENTS} events, not {len(skeletons)}")
    before = len(interner.ids)
    try:
        payload = b"".join(pack(_each_id(unpack(skeleton), interner.reference)) for skeleton in skeletons)
    except BaseException:
        interner.forget(before)
        raise
    unsigned = _BLOCK.pack(VERSION, len(skeletons), before, 0)
    return _BLOCK.pack(VERSION, len(skeletons), before, _block_sum(first_seq, unsigned, payload)) + payload


def decode_block(first_seq: int, data: bytes, interner: Interner) -> list[bytes]:
    """The skeletons of a block, ids as strings, each that of a valid event.

    Takes their ids into `interner`, or leaves it untouched on error.
    """
    before = len(interner.ids)
    count, payload = _opened_block(first_seq, data, before)
    try:
        skeletons = [skeleton for skeleton in _skeletons(first_seq, count, payload, interner) if skeleton is not None]
        interner.forget(before)
        if encode_block(first_seq, skeletons, interner) != data:
            raise ValueError("its bytes are not canonical")
    except BaseException:
        interner.forget(before)
        raise
    return skeletons


def decode_block_after_gap(first_seq: int, data: bytes, interner: Interner) -> list[bytes | None]:
    """As `decode_block`, where blocks before it may be lost; None for an event that refers to an id of a lost one.

    The block says how many ids came before it: those that are missing stand in `interner` as empty strings.
    """
    known = len(interner.ids)
    count, payload = _opened_block(first_seq, data, None)
    before = _BLOCK.unpack_from(data)[2]
    if before < known:
        raise ValueError(f"the block follows on {before} ids, but {known} came before it")
    interner.ids.extend([""] * (before - known))
    try:
        return list(_skeletons(first_seq, count, payload, interner))
    except BaseException:
        interner.forget(known)
        raise


def encode_body(seq: int, body: bytes | None) -> bytes:
    """The record of a canonical body; None stands for one that was erased."""
    state, payload = (_ERASED, b"") if body is None else (_CONTENT, body)
    return _BODY.pack(VERSION, state, crc32(payload, crc32(_BODY_PLACE.pack(seq, VERSION, state)))) + payload


def decode_body(seq: int, record: bytes) -> bytes | None:
    """The canonical body in a record; None where it was erased."""
    if len(record) < _BODY.size:
        raise ValueError(f"a body record of {len(record)} bytes")
    version, state, checksum = _BODY.unpack_from(record)
    if version != VERSION:
        raise ValueError(f"a body record of version {version}, not {VERSION}")
    body = record[_BODY.size :]
    if crc32(body, crc32(_BODY_PLACE.pack(seq, version, state))) != checksum or record[2:4] != _NO_FLAGS:
        raise ValueError("the checksum of its body does not match")
    if state == _CONTENT:
        return body
    if state != _ERASED or body:
        raise ValueError(f"a body record of state {state} with {len(body)} bytes")
    return None


def as_it_stays(skeleton: bytes) -> Event:
    """The event with this canonical skeleton and without content: what stays of one that was erased."""
    return event_from_bytes(skeleton, _NO_MEMORY_CONTENT if unpack(skeleton)[0] == Memory.code else _NO_CONTENT)


def _opened_block(first_seq: int, data: bytes, interned: int | None) -> tuple[int, bytes]:
    if len(data) < _BLOCK.size:
        raise ValueError(f"a block of {len(data)} bytes")
    version, count, before, checksum = _BLOCK.unpack_from(data)
    payload = data[_BLOCK.size :]
    if version != VERSION:
        raise ValueError(f"a block of version {version}, not {VERSION}")
    if checksum != _block_sum(first_seq, data, payload):
        raise ValueError("the checksum of its block does not match")
    if not 1 <= count <= MAX_BLOCK_EVENTS:
        raise ValueError(f"a block of {count} events")
    if interned is not None and before != interned:
        raise ValueError(f"the block follows on {before} ids, but {interned} came before it")
    return count, payload


def _block_sum(first_seq: int, header: bytes, payload: bytes) -> int:
    return crc32(payload, crc32(header[:16], crc32(_SEQ.pack(first_seq))))


def _skeletons(first_seq: int, count: int, payload: bytes, interner: Interner) -> Iterator[bytes | None]:
    """The skeletons of a block, None for one that refers to an id which `interner` holds as an empty string."""
    records = msgpack.Unpacker(
        raw=False,
        strict_map_key=True,
        max_buffer_size=max(len(payload), 1),
        max_array_len=MAX_REFERENCES,
        max_str_len=MAX_ID_BYTES,
        max_map_len=0,
        max_bin_len=0,
        max_ext_len=0,
    )
    records.feed(payload)
    for seq in range(first_seq, first_seq + count):
        try:
            record = records.unpack()
            if is_deeper([record], 3):
                raise ValueError("nested deeper than a list of ids")
            record = _each_id(record, interner.id)
            if any("" in value if isinstance(value, list) else value == "" for value in record):
                yield None
                continue
            skeleton = pack(record)
            as_it_stays(skeleton)
        except (msgpack.UnpackException, ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"event {seq} of the block: {error}") from None
        yield skeleton
    if records.tell() != len(payload):
        raise ValueError(f"{len(payload) - records.tell()} bytes follow the last event of the block")


def _each_id(record: object, exchange: Callable[[object], Any]) -> list[Any]:
    """`record` with each id exchanged, in the order of mention: its own, then by field."""
    if not isinstance(record, list) or len(record) < 2 or len(record) % 2:
        raise ValueError("not the skeleton of an event")
    out = [record[0], exchange(record[1])]
    for tag, value in zip(record[2::2], record[3::2], strict=True):
        if type(tag) is not int:
            raise ValueError(f"a tag is a number, not {tag!r:.80}")
        out.append(tag)
        if tag in _IDS_TAGS:
            if not isinstance(value, list):
                raise ValueError(f"field {tag} is a list of ids, not {value!r:.80}")
            out.append([exchange(part) for part in value])
        elif tag in _ID_TAGS and value is not None:
            out.append(exchange(value))
        else:
            out.append(value)
    return out
