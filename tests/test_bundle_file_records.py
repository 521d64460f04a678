"""The records of a frame: the engine and plain Python accept and refuse the same bytes, and find the same in them."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgpack
import pytest
from branchmem._core import BlockError, check_records, split_records
from branchmem.events import Erasure, Event, Memory, Message, event_from_bytes
from bundle_files import BARE, EVENTS, NIL, Record, payload_of, records
from figures import Figure, Quote
from hostile import Context, Hostile
from oddly import Writer

SEED = 20260302


class Found(NamedTuple):
    """What records are: by type, without content, their ids, and the skeletons that are told apart."""

    records: list[Record]
    counts: list[int]
    erased: int
    ids: list[str]
    apart: list[bytes]


def plainly(payload: bytes) -> Found:
    """Read records in plain Python.  Raises: ValueError."""
    found = Found([], [0] * 5, 0, [], [])
    values = msgpack.Unpacker(None, raw=False, max_buffer_size=len(payload) or 1)
    values.feed(payload)
    erased = 0
    while (start := values.tell()) < len(payload):
        try:
            values.skip()
            middle = values.tell()
            values.skip()
        except (msgpack.UnpackException, ValueError) as error:
            raise ValueError(str(error)) from None
        skeleton, body = payload[start:middle], payload[middle : values.tell()]
        event = _without_content(skeleton) if body == NIL else event_from_bytes(skeleton, body)
        erased += body == NIL
        found.records.append((skeleton, None if body == NIL else body))
        found.counts[event.code] += 1
        found.ids.append(event.id)
        if body == NIL or isinstance(event, Erasure):
            found.apart.append(skeleton)
    return found._replace(erased=erased)


def _without_content(skeleton: bytes) -> Event:
    event = event_from_bytes(skeleton, b"\x92\x21\xa0" if skeleton[1:2] == b"\x01" else b"\x90")
    if not isinstance(event, (Message, Memory)):
        raise ValueError("only messages and memories lose their content")
    return event


def agree(payload: bytes) -> bool:
    """Whether both read these bytes as records; AssertionError where they differ."""
    try:
        found = plainly(payload)
    except ValueError:
        for read in (split_records, lambda payload: check_records(payload, 1)):
            with pytest.raises(BlockError):
                read(payload)
        return False
    assert split_records(payload) == ([skeleton for skeleton, _ in found.records], [body for _, body in found.records])
    counts, erased, hashes, apart = check_records(payload, 1)
    assert (counts, erased, apart) == (found.counts, found.erased, found.apart)
    each = [hashes[at : at + 8] for at in range(0, len(hashes), 8)]
    assert len(each) == len(found.ids)
    assert len(set(each)) == len(set(found.ids)), "an id has two hashes, or two ids one"
    return True


def test_sound_records_are_read_by_both() -> None:
    assert agree(payload_of(records()))
    assert agree(payload_of(records() * 3))
    assert agree(b"")
    found = plainly(payload_of(records()))
    assert found.counts == [4, 3, 1, 1, 1]
    assert (found.erased, found.ids) == (2, [event.id for event in (*EVENTS, *BARE)])
    assert found.apart == [event.skeleton() for event in (EVENTS[0], *BARE)]


def test_every_change_of_one_byte_is_read_alike() -> None:
    payload = payload_of(records())
    accepted = 0
    for at, byte in enumerate(payload):
        for mask in (*(1 << bit for bit in range(8)), 0xFF):
            accepted += agree(payload[:at] + bytes([byte ^ mask]) + payload[at + 1 :])
        assert not agree(payload[:at]) or payload[:at] in _beginnings(), f"the first {at} bytes"
    assert 100 < accepted < 6 * len(payload)  # letters of ids and texts may change


def _beginnings() -> list[bytes]:
    """The payloads of the first records, of none to all."""
    return [payload_of(records()[:count]) for count in range(len(records()) + 1)]


@pytest.mark.soak
def test_hostile_records_are_read_alike(figure: Figure, quote: Quote) -> None:
    inputs, accepted = figure(5_000, 2_000_000), 0
    context = Context.of(0)
    source = random.Random(SEED)
    for number in range(inputs):
        chance = Hostile(SEED, number, context)
        plain, pieces = Writer(chance, 0, None).array, []
        for _ in range(chance.one_of((1, 1, 2, 3, 5))):
            record = chance.record()
            content = chance.content(record[0])
            skeleton, body = plain(record), plain(content)
            if chance.once_in(6):
                skeleton, _ = chance.spelled(record, True)
            if chance.once_in(6):
                body, _ = chance.spelled(content, True, start=0)
            pieces += [skeleton, NIL if chance.once_in(5) else body]
        payload = bytearray(b"".join(pieces))
        if chance.once_in(3):
            chance.touch(payload)
        if chance.once_in(50):
            source.shuffle(pieces)
            payload = bytearray(b"".join(pieces))
        try:
            accepted += agree(bytes(payload))
        except BaseException as error:
            raise AssertionError(f"records {number} of seed {SEED}: {payload.hex()}") from error
    assert 0.2 < accepted / inputs < 0.8
    quote(f"records: {inputs:,} payloads, {accepted:,} of them accepted; both readers agree")


def test_a_message_is_not_the_same_as_a_memory_of_its_id() -> None:
    message, memory = Message("a", None), Memory("a", "")
    assert agree(payload_of([(message.skeleton(), None), (memory.skeleton(), memory.body())]))
