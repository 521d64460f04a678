"""What a bundle says of itself: exact bytes, back and forth, and nothing else passes."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgpack
import pytest
from branchmem.bundle.manifest import Base, Counts, Frame, Manifest
from bundle_files import BEFORE, BUNDLE, CREATED, FIELDS, ORIGIN, Packed, key, stated
from figures import Figure
from hypothesis import given, settings
from hypothesis import strategies as st

SEED = 20260301

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECONDS = (CREATED - EPOCH) // timedelta(microseconds=1)
ONE = Packed(b"frame", 24, 3)

FULL = Manifest(
    id=BUNDLE,
    issuer=key().public,
    origin=ORIGIN,
    number=7,
    seq=300,
    base=Base(5, BEFORE),
    created=CREATED,
    expires=CREATED + timedelta(days=30),
    recipient=key(2).fingerprint,
    counts=Counts(2, 1, 0, 0, 0, 1),
    refs={"main": "u1", "try/é": "u2"},
    digest="ab" * 32,
    frames=(Frame(5, 24, 3, bytes(range(32))),),
)

#: A field of a manifest, what stands there, and whether that may be.
VALUES: list[tuple[str, Any, bool]] = [
    ("format", 0, False),
    ("format", 2, False),
    ("format", True, False),
    ("id", BEFORE, True),
    ("id", BUNDLE.upper(), False),
    ("id", "bundle", False),
    ("id", BUNDLE + "\n", False),
    ("id", BUNDLE.encode(), False),
    ("id", None, False),
    ("issuer", b"\xff" * 32, True),
    ("issuer", b"\xff" * 31, False),
    ("issuer", b"\xff" * 33, False),
    ("issuer", "f" * 32, False),
    ("origin", b"\0" * 16, True),
    ("origin", b"\0" * 15, False),
    ("origin", ORIGIN, False),
    ("number", 1, True),
    ("number", 2**63 - 1, True),
    ("number", 2**63, False),
    ("number", 0, False),
    ("number", -1, False),
    ("number", 7.0, False),
    ("number", True, False),
    ("number", [7], False),
    ("seq", 0, True),
    ("seq", 2**63 - 1, True),
    ("seq", -1, False),
    ("seq", 2**64 - 1, False),
    ("base_number", 5, False),
    ("base_id", BEFORE, False),
    ("created", 0, True),
    ("created", -62_135_596_800_000_000, True),
    ("created", -62_135_596_800_000_001, False),
    ("created", 253_402_300_799_999_999, True),
    ("created", 253_402_300_800_000_000, False),
    ("created", 2**63, False),
    ("created", None, False),
    ("expires", MICROSECONDS + 1, True),
    ("expires", MICROSECONDS, False),
    ("expires", 0, False),
    ("recipient", key().fingerprint, True),
    ("recipient", key().public, False),
    ("recipient", "bm-" + "A" * 32, False),
    ("recipient", "", False),
    ("messages", 2, False),
    ("messages", -3, False),
    ("memories", 2**63, False),
    ("erased", 3, True),
    ("erased", 4, False),
    ("erased", -1, False),
    ("refs", {"main": "u1"}, True),
    ("refs", {"日本": "x" * 256}, True),
    ("refs", {"main": "x" * 257}, False),
    ("refs", {"main": ""}, False),
    ("refs", {"": "u1"}, False),
    ("refs", {"x" * 256: "u1"}, True),
    ("refs", {"x" * 257: "u1"}, False),
    ("refs", {"a\nb": "u1"}, False),
    ("refs", {"\x1b[2J": "u1"}, False),
    ("refs", {" main": "u1"}, False),
    ("refs", {"main": None}, False),
    ("refs", {"main": ["u1"]}, False),
    ("refs", {1: "u1"}, False),
    ("refs", {b"main": "u1"}, False),
    ("refs", {"b": "u1", "a": "u1"}, False),
    ("refs", {f"{at:05}": "u" for at in range(1 << 16)}, True),
    ("refs", {f"{at:05}": "u" for at in range((1 << 16) + 1)}, False),
    ("refs", ["main", "u1"], False),
    ("refs", None, False),
    ("digest", b"\0" * 32, True),
    ("digest", b"\0" * 31, False),
    ("digest", "00" * 32, False),
    ("table", b"", False),
    ("table", b"\0" * 43, False),
    ("table", b"\0" * 44, False),
    ("table", None, False),
    ("table", [], False),
]


def taken(data: bytes) -> bool:
    """Whether these are the bytes of a manifest; AssertionError where they are read as those of another."""
    try:
        manifest = Manifest.from_bytes(data)
    except ValueError:
        return False
    assert manifest.to_bytes() == data
    return True


def test_a_manifest_keeps_its_bytes() -> None:
    pieces = (
        "dc001401",  # 20 fields, format 1
        "d924" + BUNDLE.encode().hex(),  # id
        "c4208a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c",  # issuer
        "c4100123456789abcdef0123456789abcdef07cd012c",  # origin, number, seq
        "05d924" + BEFORE.encode().hex(),  # base
        "cf00064bf5a0fac440cf00064e5120380440",  # created, expires
        "d923" + key(2).fingerprint.encode().hex() + "020100000001",  # recipient, counts
        "82a46d61696ea27531a67472792fc3a9a27532",  # refs
        "c420" + "ab" * 32,  # digest
        "c42c050000001800000003000000" + bytes(range(32)).hex(),  # frames
    )
    assert FULL.to_bytes().hex() == "".join(pieces)


def test_a_manifest_is_read_as_it_was_written() -> None:
    least = Manifest.from_bytes(stated())

    assert Manifest.from_bytes(FULL.to_bytes()) == FULL
    assert (least.base, least.expires, least.recipient, least.digest) == (None,) * 4
    assert (least.frames, least.counts.events, dict(least.refs)) == ((), 0, {})
    assert least.to_bytes() == stated()
    with pytest.raises(TypeError):
        least.refs["main"] = "u9"  # type: ignore[index]


def test_the_form_for_json_says_all_but_the_frames() -> None:
    form = FULL.to_dict()

    assert json.loads(json.dumps(form)) == form
    assert form["fingerprint"] == FULL.fingerprint == key().fingerprint
    assert form["base"] == {"number": 5, "id": BEFORE}
    assert form["created"] == "2026-03-01T12:30:00.123456+00:00"
    assert (form["frames"], form["bytes"], form["raw_bytes"]) == (1, 5, 24)
    assert Manifest.from_bytes(stated()).to_dict()["expires"] is None


def test_times_are_the_same_in_every_zone() -> None:
    here = {"created": CREATED.astimezone(timezone(timedelta(hours=8))), "expires": None}
    there = {"created": CREATED, "expires": None}
    values = {slot: getattr(FULL, slot) for slot in FULL.__slots__}

    assert Manifest(**{**values, **here}).to_bytes() == Manifest(**{**values, **there}).to_bytes()
    with pytest.raises(ValueError, match="without an offset"):
        Manifest(**{**values, "created": CREATED.replace(tzinfo=None), "expires": None}).to_bytes()


@pytest.mark.parametrize(("name", "value", "may_be"), VALUES, ids=lambda value: repr(value)[:40])
def test_a_field_takes_what_it_may_hold(name: str, value: Any, may_be: bool) -> None:
    assert taken(stated([ONE], **{name: value})) is may_be


def test_a_base_is_an_earlier_bundle() -> None:
    assert taken(stated(base_number=6, base_id=BEFORE))
    for number, id in ((7, BEFORE), (8, BEFORE), (0, BEFORE), (6, "x"), (6, ""), (6, None), (None, BEFORE)):
        assert not taken(stated(base_number=number, base_id=id)), (number, id)


@pytest.mark.parametrize(
    "frame",
    [
        *(Packed(b"", 24, 3), Packed(b"x", 14, 3), Packed(b"x", 24, 0), Packed(b"x", 0, 0)),
        *(Packed(b"x", 101, 3), Packed(b"x" * 100_000, (8 << 20) + 1, 3)),
    ],
)
def test_a_frame_that_cannot_be_is_refused(frame: Packed) -> None:
    assert not taken(stated([frame]))
    assert taken(stated([Packed(b"x", 15, 3)]))
    assert taken(stated([Packed(b"x", 100, 20)]))
    assert taken(stated([Packed(b"x" * 100_000, 8 << 20, 3)]))


def test_other_forms_of_the_same_manifest_are_refused() -> None:
    data, values = stated([ONE]), msgpack.unpackb(stated([ONE]))
    assert taken(msgpack.packb(values))
    others = {
        "a byte follows": data + b"\xc0",
        "the last byte is missing": data[:-1],
        "a long list": b"\xdd\0\0\0\x14" + data[3:],
        "a field less": msgpack.packb(values[:-1]),
        "a field more": msgpack.packb([*values, None]),
        "a map": msgpack.packb(dict(zip(FIELDS, values, strict=True))),
        "a list in a list": msgpack.packb([values]),
        "a long number": data[:3] + b"\xcc\x01" + data[4:],
        "a signed number": data[:3] + b"\xd0\x01" + data[4:],
        "a long string": data.replace(b"\xd9\x24", b"\xda\0\x24", 1),
        "long bytes": data.replace(b"\xc4\x20", b"\xc5\0\x20", 1),
        "a name twice": data.replace(b"\x80\xc0\xc4", b"\x82\xa1a\xa1u\xa1a\xa1u\xc0\xc4"),
        "text that is no UTF-8": data.replace(b"\x80\xc0\xc4", b"\x81\xa1\xff\xa1u\xc0\xc4"),
        "a time as an extension": data.replace(b"\xcf", b"\xd7\xff"),
        "nothing": b"",
    }
    for what, other in others.items():
        assert other != data, what
        assert not taken(other), what


@pytest.mark.soak
def test_whatever_is_done_to_a_manifest_it_is_refused_or_another_manifest(figure: Figure) -> None:
    whole = [FULL.to_bytes(), stated([ONE])]
    for data in whole:
        for at, byte in enumerate(data):
            for mask in (0x01, 0x02, 0x10, 0x20, 0x80, 0xFF):
                taken(data[:at] + bytes([byte ^ mask]) + data[at + 1 :])
    source = random.Random(SEED)
    for number in range(figure(20_000, 2_000_000)):
        changed = bytearray(source.choice(whole))
        for _ in range(source.randrange(1, 6)):
            at = source.randrange(len(changed))
            changed[at : at + source.choice((0, 1, 1, 4))] = source.randbytes(source.choice((0, 1, 1, 4)))
        try:
            taken(bytes(changed))
        except BaseException as error:
            raise AssertionError(f"manifest {number} of seed {SEED}: {changed.hex()}") from error


TIMES = st.datetimes(timezones=st.just(UTC))
NAMES = st.text("abé日/-.", min_size=1, max_size=9)
NUMBERS = st.integers(1, 2**63 - 1)
FRAMES = st.builds(
    lambda more, raw, sha256: Frame(-(-raw // 100) + more, raw, raw // 5, sha256),
    st.integers(0, 2**31),
    st.integers(5, 8 << 20),
    st.binary(min_size=32, max_size=32),
)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    number, created = draw(NUMBERS), draw(TIMES)
    frames = tuple(draw(st.lists(FRAMES, max_size=4, unique_by=lambda frame: frame.sha256)))
    events = sum(frame.events for frame in frames)
    messages = draw(st.integers(0, events))
    return Manifest(
        id=str(draw(st.uuids())),
        issuer=key(draw(st.integers(0, 255))).public,
        origin=draw(st.binary(min_size=16, max_size=16)).hex(),
        number=number,
        seq=draw(st.integers(0, 2**63 - 1)),
        base=draw(st.none() | st.builds(Base, st.integers(1, number - 1), st.uuids().map(str))) if number > 1 else None,
        created=created,
        expires=draw(st.none() | TIMES.filter(lambda time: time > created)),
        recipient=draw(st.none() | st.integers(0, 255).map(lambda seed: key(seed).fingerprint)),
        counts=Counts(messages, 0, events - messages, 0, 0, draw(st.integers(0, messages))),
        refs=draw(st.dictionaries(NAMES, NAMES, max_size=5)),
        digest=draw(st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex)),
        frames=frames,
    )


@given(manifests())
@settings(max_examples=200, deadline=None)
def test_every_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
