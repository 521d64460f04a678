"""Blocks and bodies on disk: exact bytes, back and forth, and nothing else passes.

Golden files, in `golden/`: `events.json` lists the events by seq (with
`"erased": true` where the body was erased), `block-1.bin` and `block-7.bin` hold
their skeletons, `body-<seq>.bin` their bodies.  Logs on disk hold these bytes:
when a golden test fails, the code is wrong.
"""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any
from zlib import crc32

import msgpack
import pytest
from branchmem.codec import Interner, decode_block, decode_body, encode_block, encode_body
from branchmem.events import LEGACY, Erasure, Event, Memory, Message, Retraction, event_from_bytes, event_from_dict

GOLDEN = Path(__file__).parent / "golden"
BLOCKS = (1, 7)


def golden_events() -> dict[int, tuple[Event, bool]]:
    listed = json.loads((GOLDEN / "events.json").read_text(encoding="utf-8"))
    return {entry["seq"]: (event_from_dict(entry["event"]), entry.get("erased", False)) for entry in listed}


def golden_block(first: int) -> tuple[list[bytes], bytes]:
    """The skeletons of a golden block, and its bytes."""
    events = golden_events()
    last = min((seq for seq in BLOCKS if seq > first), default=len(events) + 1)
    skeletons = [events[seq][0].skeleton() for seq in range(first, last)]
    return skeletons, (GOLDEN / f"block-{first}.bin").read_bytes()


def a_block(*events: Event, interner: Interner | None = None) -> bytes:
    return encode_block(1, [event.skeleton() for event in events], interner or Interner())


def sealed(records: Iterable[Any], *, first_seq: int = 1, interned: int = 0, count: int | None = None) -> bytes:
    """A block with a true checksum around records that may be anything."""
    parts = [record if isinstance(record, bytes) else msgpack.packb(record) for record in records]
    payload = b"".join(parts)
    head = struct.pack("<B3xIQ", 1, len(parts) if count is None else count, interned)
    return head + struct.pack("<I", crc32(struct.pack("<Q", first_seq) + head + payload)) + payload


def test_golden_events_cover_every_field_of_every_type() -> None:
    seen: dict[type[Event], set[str]] = {}
    for event, _ in golden_events().values():
        seen.setdefault(type(event), {"parent"} if event.type == "message" else set()).update(event.to_dict())
    assert len(seen) == 5
    for cls, names in seen.items():
        assert names == {field.name for field in fields(cls)} | {"type"}  # type: ignore[arg-type]  # a dataclass each


def test_golden_blocks_decode_to_their_events_and_encode_to_their_bytes() -> None:
    reading, writing = Interner(), Interner()
    for first in BLOCKS:
        skeletons, data = golden_block(first)
        assert decode_block(first, data, reading) == skeletons
        assert encode_block(first, skeletons, writing) == data
    assert reading.ids == writing.ids
    assert reading.numbers == {id: number for number, id in enumerate(reading.ids)}


def test_golden_bodies_decode_to_their_events_and_encode_to_their_bytes() -> None:
    for seq, (event, erased) in golden_events().items():
        record = (GOLDEN / f"body-{seq}.bin").read_bytes()
        body = None if erased else event.body()
        assert decode_body(seq, record) == body
        assert encode_body(seq, body) == record
        if body is not None:
            assert event_from_bytes(event.skeleton(), body) == event


def test_a_block_keeps_its_bytes() -> None:
    assert a_block(Message("a", None), Memory("m", "text", sources=["a", "b"])).hex() == (
        "010000000200000000000000000000004d4d152e"  # version, count, interned, checksum
        "9400a16101c0"  # [0, "a", PARENT, nil]
        "9401a16d029200a162"  # [1, "m", SOURCES, [0, "b"]]
    )


def test_a_body_keeps_its_bytes() -> None:
    assert encode_body(1, b"\x90").hex() == "01000000f3258d1f90"
    assert encode_body(1, None).hex() == "0101000052870e59"


def test_an_id_is_a_number_from_its_second_mention_on() -> None:
    interner = Interner()
    first = a_block(Message("child", "parent"), Message("parent", None), interner=interner)
    assert interner.ids == ["child", "parent"]
    second = encode_block(3, [Message("late", "child").skeleton()], interner)
    assert b"child" in first
    assert b"child" not in second


def test_an_error_leaves_the_interner_untouched() -> None:
    interner = Interner()
    good = a_block(Message("a", None), interner=interner)
    bad = sealed([[0, "b", 1, 0], [0, "c", 1, 99]], first_seq=2, interned=1)
    with pytest.raises(ValueError, match="id number 99"):
        decode_block(2, bad, interner)
    with pytest.raises(ValueError, match="not the skeleton"):
        encode_block(2, [Message("b", None).skeleton(), msgpack.packb([0, "c", 1])], interner)
    with pytest.raises(ValueError, match="follows on 0 ids"):
        decode_block(1, good, interner)
    assert (interner.ids, interner.numbers) == (["a"], {"a": 0})


def test_a_block_holds_one_to_a_thousand_events() -> None:
    skeletons = [Message(f"m{number}", None).skeleton() for number in range(1001)]
    assert len(decode_block(1, encode_block(1, skeletons[:1000], Interner()), Interner())) == 1000
    for many in ([], skeletons):
        with pytest.raises(ValueError, match="1 to 1000 events"):
            encode_block(1, many, Interner())
    for count in (0, 1001):
        with pytest.raises(ValueError, match="a block of"):
            decode_block(1, sealed([[0, "a", 1, None]] * count), Interner())


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([[0, "a", 1, None], [0, "a", 1, None]], "spelt out again"),
        ([[0, "a", 1, "a"]], "spelt out again"),
        ([[0, "a", 1, 1]], "id number 1 of 1"),
        ([[0, "a", 1, -1]], "id number -1"),
        ([[0, "a", 1, True]], "a number or a string"),
        ([[0, "a", 1, 1.0]], "a number or a string"),
        ([[0, "", 1, None]], "1 to 256 bytes"),
        ([[0, "x" * 257, 1, None]], "exceeds max_str_len"),
        ([[0, 0, 1, None]], "id number 0 of 0"),
        ([[0, None]], "a number or a string"),
        ([[9, "a"]], "no event type"),
        ([[True, "a", 1, None]], "no event type"),
        ([[0]], "not the skeleton"),
        ([[0, "a", 1]], "not the skeleton"),
        ([{"a": 1}], "max_map_len"),
        ([7], "not the skeleton"),
        ([[0, "a", True, None]], "a tag is a number"),
        ([[0, "a", [1], None]], "a tag is a number"),
        ([[0, "a", 99, None]], "unknown tag"),
        ([[0, "a", 32, "user"]], "not canonical"),
        ([[0, "a", 1, None, 1, None]], "not canonical"),
        ([[1, "m", 2, []]], "not canonical"),
        ([[1, "m", 2, "s"]], "a list of ids"),
        ([[1, "m", 2, ["t", "s"]]], "not canonical"),
        ([[1, "m", 2, ["s", 1]]], "not canonical"),
        ([[1, "m", 6, "fact"]], "not canonical"),
        ([[1, "m", 7, "k", 6, "profile"]], "not canonical"),
        ([[1, "m", 5, None]], "not canonical"),
        ([[2, "r", 8, "u", 9, 3, 10, ["m"]]], "no scope"),
        ([[2, "r", 8, "u", 9, 0]], "takes nothing back"),
        ([[2, "r", 8, "u", 9, 0, 10, ["m"], 12, False]], "not canonical"),
        ([[2, "r", 8, "u", 9, 0, 10, ["m"], 12, 1]], "True or False"),
        ([[3, "r", 8, "u", 9, 0]], "retraction"),
        ([[4, "e", 14, []]], "names no target"),
        ([[4, "e", 14, ["t"], 15, True]], "not canonical"),
        ([b"\x94\x00\xd9\x01a\x01\xc0"], "bytes are not canonical"),
        ([b"\x94\xcc\x00\xa1a\x01\xc0"], "bytes are not canonical"),
        ([b"\xdc\x00\x04\x00\xa1a\x01\xc0"], "bytes are not canonical"),
        ([b"\x94\x00\xc4\x01a\x01\xc0"], "max_bin_len"),
        ([b"\x94\x00\xd4\x01a\x01\xc0"], "max_ext_len"),
        ([b"\x94\x00\xa1\xff\x01\xc0"], "utf-8"),
        ([b"\x94\x00\xa1a\x01\xc0\xc0"], "bytes follow"),
        ([b"\x94\x00\xa1a\x01"], "No more data"),
        ([b"\xdd\xff\xff\xff\xff"], "max_array_len"),
        ([b"\x91" * 2000], "event 1"),
    ],
)
def test_a_block_that_is_not_canonical_is_refused(records: list[Any], why: str) -> None:
    interner = Interner()
    with pytest.raises(ValueError, match=why):
        decode_block(1, sealed(records), interner)
    assert interner.ids == []


def test_lists_are_sorted_by_id_and_not_by_number() -> None:
    events = (Message("z", None), Message("a", None), Memory("m", "", sources=["a", "z", "k"]))
    assert decode_block(1, a_block(*events), Interner())[2] == events[2].skeleton()
    with pytest.raises(ValueError, match="not canonical"):
        decode_block(1, sealed([[0, "z", 1, None], [0, "a", 1, None], [1, "m", 2, [0, 1]]]), Interner())


def test_every_flipped_bit_of_a_block_is_noticed() -> None:
    _, data = golden_block(1)
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(ValueError, match=r"checksum|version|ids"):
            decode_block(1, bytes(flipped), Interner())


def test_a_block_that_is_cut_moved_or_prolonged_is_refused() -> None:
    skeletons, data = golden_block(1)
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"checksum|a block of \d+ bytes"):
            decode_block(1, data[:length], Interner())
    for first_seq, other in ((2, data), (1, data + b"\0")):
        with pytest.raises(ValueError, match="checksum"):
            decode_block(first_seq, other, Interner())
    with pytest.raises(ValueError, match="block of version 2"):
        decode_block(1, b"\x02" + data[1:], Interner())
    assert decode_block(1, data, Interner()) == skeletons


def test_padding_of_a_header_is_zero() -> None:
    head = b"\x01\x00\x07\x00" + struct.pack("<IQ", 1, 0)
    payload = Message("a", None).skeleton()
    data = head + struct.pack("<I", crc32(struct.pack("<Q", 1) + head + payload)) + payload
    with pytest.raises(ValueError, match="not canonical"):
        decode_block(1, data, Interner())


def test_every_flipped_bit_of_a_body_is_noticed() -> None:
    for record in (encode_body(3, Memory("m", "text").body()), encode_body(3, None)):
        for place in range(len(record) * 8):
            flipped = bytearray(record)
            flipped[place // 8] ^= 1 << place % 8
            with pytest.raises(ValueError, match=r"checksum|version"):
                decode_body(3, bytes(flipped))
        for length in range(len(record)):
            with pytest.raises(ValueError, match=r"checksum|bytes"):
                decode_body(3, record[:length])
        with pytest.raises(ValueError, match="checksum"):
            decode_body(4, record)


def test_an_erased_body_holds_nothing() -> None:
    head = b"\x01\x01\x00\x00"
    record = head + struct.pack("<I", crc32(struct.pack("<Q", 1) + head + b"secret")) + b"secret"
    with pytest.raises(ValueError, match="state 1 with 6 bytes"):
        decode_body(1, record)
    head = b"\x01\x02\x00\x00"
    with pytest.raises(ValueError, match="state 2 with 0 bytes"):
        decode_body(1, head + struct.pack("<I", crc32(struct.pack("<Q", 1) + head)))


def test_random_logs_come_back_block_by_block() -> None:
    seed = 20260101
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(30):
        names = [chance.choice(("", "é", "日", "𝄞")) + str(number) for number in range(chance.randint(1, 30))]
        writing, reading = Interner(), Interner()
        first = 1
        for _ in range(chance.randint(1, 6)):
            skeletons = [a_random_event(chance, names).skeleton() for _ in range(chance.randint(1, 12))]
            data = encode_block(first, skeletons, writing)
            assert decode_block(first, data, reading) == skeletons
            first += len(skeletons)
        assert writing.ids == reading.ids


def a_random_event(chance: random.Random, names: list[str]) -> Event:
    def some(least: int = 0) -> list[str]:
        return chance.choices(names, k=chance.randint(least, 5))

    id, other = chance.choice(names), chance.choice(names)
    match chance.randrange(4):
        case 0:
            return Message(id, chance.choice((None, LEGACY, other)))
        case 1:
            return Memory(id, "", sources=some(), derived_from=some(), supersedes=some(), adopts=other, key=other)
        case 2:
            return Retraction(id, other, scope="tree", memories=some(1), sources=some(), keys=some(), standing=True)
        case _:
            return Erasure(id, some(1), cascade=chance.random() < 0.5)


def test_hostile_nesting_costs_little_memory() -> None:
    data = sealed([b"\xdc\x10\x00" * 300_000], count=1)
    tracemalloc.start()
    with pytest.raises(ValueError, match="event 1"):
        decode_block(1, data, Interner())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (64 << 20) + 8 * len(data)
