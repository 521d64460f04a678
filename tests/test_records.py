"""Events as they travel: what the engine takes apart is what plain Python accepts, to the byte."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from branchmem import Memory, Message, canonical
from branchmem._core import BlockError, check_records, split_records
from branchmem.errors import InvalidEvent
from branchmem.events import Erasure, Event, Restoration, Retraction, event_from_bytes

NIL = b"\xc0"
DAY = 24 * 60
YEAR_1, YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000

EVENTS: list[Event] = [
    Message("root", None),
    Message("legacy", event_from_bytes(b"\x92\x00\xa1x", b"\x90").parent),  # type: ignore[attr-defined]
    Message("u", "root", role="user", text="x" * 300, meta={"a": [1, -1, 2**64 - 1, -(2**63), 0.5, None, True, {}]}),
    Memory("m", "", sources=["u", "v"], derived_from=["n"], supersedes=["o"], adopts="p", key="k", importance=0.25),
    Retraction("r", "u", scope="tree", memories=["m"], keys=["k"], standing=True, reason="wrong"),
    Restoration("s", "u", scope="everywhere", retraction="r"),
    Erasure("e", ["u", "m"], cascade=False),
]

#: A tag of a body, values at the limits of what it takes, and whether it takes them.
VALUES: list[tuple[int, Any, bool]] = [
    (32, "r" * 256, True),
    (32, "r" * 257, False),
    (32, "", False),
    (33, "", True),
    (33, "t" * (1 << 20), True),
    (33, "t" * (1 << 20) + "t", False),
    (33, b"text", False),
    (34, 0.0, True),
    (34, 0.5, True),
    (34, 1.0, False),
    (34, -0.0, False),
    (34, 1, False),
    (34, float("nan"), False),
    (35, [0, 0], True),
    (35, [0, DAY - 1], True),
    (35, [0, DAY], False),
    (35, [0, 1 - DAY], True),
    (35, [0, -DAY], False),
    (35, [YEAR_1, 0], True),
    (35, [YEAR_1 - 1, 0], False),
    (35, [YEAR_1 - 60_000_000, 1], True),
    (35, [YEAR_1, -1], False),
    (35, [YEAR_10000 - 1, 0], True),
    (35, [YEAR_10000, 0], False),
    (35, [YEAR_10000, -1], True),
    (35, [2**63, 0], False),
    (35, [-(2**63), 0], False),
    (35, [0, 2**63], False),
    (35, [0], False),
    (35, [0.0, 0], False),
    (36, {}, False),
    (36, {"a": {}}, True),
    (36, {"a": float("inf")}, False),
    (36, {"a": -0.0}, True),
    (36, {"a": b""}, False),
    (36, {"b": 1, "a": 1}, False),
    (36, {"": "", "a": [], "é": {"": None}, "日": False}, True),
    (36, {"a": "x" * ((1 << 20) - 8)}, True),
    (36, {"a": "x" * ((1 << 20) - 7)}, False),
    (36, {f"{at:05}": at for at in range(70_000)}, True),
    (36, {"a": list(range(70_000))}, True),
    (36, [1], False),
    (37, "reason", False),
]


def taken_apart(skeleton: bytes, body: bytes) -> bool:
    """Whether both readers take these bytes as the parts of one event; AssertionError where they differ."""
    try:
        event = event_from_bytes(skeleton, body)
    except InvalidEvent:
        with pytest.raises(BlockError):
            split_records(skeleton + body)
        with pytest.raises(BlockError):
            check_records(skeleton + body, 0)
        return False
    assert split_records(skeleton + body) == ([skeleton], [body]), event
    return True


def test_records_are_taken_apart_as_they_were_put_together() -> None:
    skeletons = [event.skeleton() for event in EVENTS]
    bodies: list[bytes | None] = [event.body() for event in EVENTS]
    bodies[2] = bodies[3] = None
    payload = b"".join(a + (NIL if b is None else b) for a, b in zip(skeletons, bodies, strict=True))

    counts, erased, hashes, apart = check_records(payload, 7)

    assert split_records(payload) == (skeletons, bodies)
    assert counts == [3, 1, 1, 1, 1]
    assert erased == 2
    assert len(set(struct.unpack(f"<{len(EVENTS)}Q", hashes))) == len(EVENTS)
    assert apart == [skeletons[2], skeletons[3], skeletons[6]]
    assert check_records(payload, 7)[2] == hashes != check_records(payload, 8)[2]
    assert split_records(b"") == ([], [])


def test_only_messages_and_memories_travel_without_their_content() -> None:
    for event in EVENTS:
        if event.type in ("message", "memory"):
            assert split_records(event.skeleton() + NIL) == ([event.skeleton()], [None])
        else:
            with pytest.raises(BlockError):
                split_records(event.skeleton() + NIL)


@pytest.mark.parametrize(("tag", "value", "taken"), VALUES, ids=lambda value: repr(value)[:40])
def test_a_body_takes_what_its_fields_take(tag: int, value: object, taken: bool) -> None:
    of_a_memory = tag in (33, 34)
    skeleton = (EVENTS[3] if of_a_memory else EVENTS[2]).skeleton()
    text = [33, ""] if tag == 34 else []

    assert taken_apart(skeleton, msgpack.packb([*text, tag, value])) is taken


@pytest.mark.parametrize("levels", [1, 31, 32, 33, 100])
def test_meta_is_nested_as_deep_as_the_format_says(levels: int) -> None:
    lists: Any = None
    maps: Any = None
    for _ in range(levels - 1):
        lists = [lists]
        maps = {"": maps}

    for value in (lists, maps):
        assert taken_apart(EVENTS[2].skeleton(), canonical.pack((36, {"a": value}))) is (levels <= 32)


def test_other_forms_of_the_same_values_are_refused() -> None:
    skeleton = EVENTS[2].skeleton()
    assert taken_apart(skeleton, b"\x92\x24\x81\xa1a\x01")
    for other in (
        b"\x92\xcc\x24\x81\xa1a\x01",
        b"\xdc\x00\x02\x24\x81\xa1a\x01",
        b"\x92\x24\xde\x00\x01\xa1a\x01",
        b"\x92\x24\x81\xd9\x01a\x01",
        b"\x92\x24\x81\xa1a\xd0\x01",
        b"\x92\x24\x81\xa1a\xd1\xff\x80",
        b"\x92\x24\x81\xa1a\xd0\xe0",
        b"\x92\x24\x81\xa1a\xca\x3f\x00\x00\x00",
        b"\x92\x24\x81\xa1a\xdc\x00\x01\x01",
        b"\x92\x24\x81\xa1a\x01\x90",
        b"\x94\x24\x81\xa1a\x01\x20\xa1r",
    ):
        assert not taken_apart(skeleton, other), other.hex()
