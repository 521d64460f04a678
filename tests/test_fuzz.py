"""Hostile bytes by the thousand: the engine and plain Python accept and refuse the same ones.

What once was read differently, or raised what nobody expects, stands here in
its smallest form.
"""

from __future__ import annotations

from typing import Any

import pytest
from branchmem import codec
from branchmem.errors import InvalidEvent
from branchmem.events import event_from_bytes
from figures import Figure, Quote
from fuzz import MAKE, SEED, SHARES, Blocks, check, check_on_all_cores, shown, skeletons_agree
from hostile import Context, Hostile
from oddly import sealed

DEEP = b"\x91" * 1000 + b"\xc0"
TOO_DEEP_RECORDS = {
    "a parent": b"\x94\x00\xa1a\x01" + DEEP,
    "an id": b"\x92\x00" + DEEP,
    "a type": b"\x92" + DEEP + b"\xa1a",
    "a tag": b"\x94\x00\xa1a" + DEEP + b"\xc0",
    "a source": b"\x94\x01\xa1a\x02\x91" + DEEP,
    "a key": b"\x94\x01\xa1a\x07" + DEEP,
}
LACKING = {
    "a retraction without scope": b"\x96\x02\xa1r\x08\xa1u\x0a\x91\xa1m",
    "a restoration without retraction": b"\x96\x03\xa1r\x08\xa1u\x09\x00",
    "a restoration without place": b"\x96\x03\xa1r\x09\x00\x0d\xa1r",
}


@pytest.mark.soak
def test_both_readers_accept_and_refuse_the_same_bytes(figure: Figure, quote: Quote) -> None:
    inputs = figure(20_000, 1_000_000)

    found = check_on_all_cores(inputs, SEED)

    for kind, share in SHARES.items():
        assert found[kind] == inputs // share
        accepted = found[f"{kind} accepted"] / found[kind]
        assert 0.1 < accepted < 0.6, f"{kind} of seed {SEED} are too harmless, or too spoilt"
    quote(shown(found))


@pytest.mark.parametrize("record", [*TOO_DEEP_RECORDS.values(), *LACKING.values()], ids=[*TOO_DEEP_RECORDS, *LACKING])
def test_what_once_raised_another_error_is_refused_by_both(record: bytes) -> None:
    after_nothing = Blocks(Context.of(0))

    assert not after_nothing.agree(sealed(record, 1, 0, 0))
    assert not skeletons_agree(record, after_nothing.engine)
    with pytest.raises(ValueError, match="event 0 of the block"):
        codec.decode_block(0, sealed(record, 1, 0, 0), codec.Interner())


@pytest.mark.parametrize("tag", [32, 33, 35, 36], ids=["role", "text", "created", "meta"])
def test_a_body_that_is_nested_too_deep_is_no_event(tag: int) -> None:
    with pytest.raises(InvalidEvent, match="nested deeper than 32"):
        event_from_bytes(b"\x92\x00\xa1a", bytes([0x92, tag]) + DEEP)


def test_meta_as_deep_as_it_may_be_is_read() -> None:
    def nested(depth: int) -> bytes:
        return b"\x92\x24" + b"\x81\xa1a" * depth + b"\xc0"

    assert event_from_bytes(b"\x92\x00\xa1a", nested(32)).body() == nested(32)
    with pytest.raises(InvalidEvent, match="nested deeper than 32"):
        event_from_bytes(b"\x92\x00\xa1a", nested(33))


@pytest.mark.parametrize("kind", MAKE)
def test_an_input_follows_from_its_seed_and_number(kind: str) -> None:
    made = [MAKE[kind](SEED, number)[0] for number in range(50)]

    assert made == [MAKE[kind](SEED, number)[0] for number in range(50)]
    assert len(set(made)) > 45


def test_what_nothing_was_done_to_is_valid() -> None:
    for number in range(300):
        context = Context.of((0, 3, 300)[number % 3])
        data, sound = Hostile(SEED, number, context).block()
        if sound:
            assert Blocks(context).agree(data), f"block {number} of seed {SEED}"


def test_a_reader_that_accepts_more_than_the_other_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = codec.decode_block

    def lenient(first_seq: int, data: bytes, interner: codec.Interner) -> list[bytes]:
        try:
            return strict(first_seq, data, interner)
        except ValueError as why:
            if "not canonical" in str(why):
                return []
            raise

    monkeypatch.setattr(codec, "decode_block", lenient)

    with pytest.raises(
        AssertionError, match=rf"blocks \d+ of seed {SEED}: AssertionError only the decoder accepts it: 01"
    ):
        check("blocks", SEED, 1, 499)


def test_a_reader_that_refuses_more_than_the_other_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = codec.decode_block

    def timid(first_seq: int, data: bytes, interner: codec.Interner) -> list[bytes]:
        if b"summary" in data:
            raise ValueError("no summaries")
        return strict(first_seq, data, interner)

    monkeypatch.setattr(codec, "decode_block", timid)

    with pytest.raises(AssertionError, match="only the engine accepts it"):
        check("blocks", SEED, 1, 499)


def test_an_error_that_nobody_expects_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(skeleton: bytes, body: bytes) -> Any:
        raise KeyError(skeleton)

    monkeypatch.setattr("fuzz.event_from_bytes", careless)

    with pytest.raises(AssertionError, match=rf"bodies 1 of seed {SEED}: KeyError"):
        check("bodies", SEED, 1, 2)
