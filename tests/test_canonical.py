"""Events: one canonical form each, refused beyond the limits, lossless in both forms."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from types import MappingProxyType
from typing import Any

import msgpack
import pytest
from branchmem.canonical import MAX_META_BYTES, MAX_REFERENCES, MAX_TEXT_BYTES, new_id
from branchmem.errors import InvalidEvent
from branchmem.events import (
    LEGACY,
    Erasure,
    Event,
    Memory,
    Message,
    Restoration,
    Retraction,
    event_from_bytes,
    event_from_dict,
)
from hypothesis import given, settings
from hypothesis import strategies as st

NOON = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2)))

ids = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
id_lists = st.lists(ids, max_size=5)
some_ids = st.lists(ids, min_size=1, max_size=5)
texts = st.text(st.characters(codec="utf-8"), max_size=30)
scopes = st.sampled_from(["branch", "tree", "everywhere"])
zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.none() | st.datetimes(timezones=zones)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
metas = st.dictionaries(
    texts,
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)),
    max_size=3,
)
parents = st.none() | st.just(LEGACY) | ids

messages = st.builds(Message, ids, parents, role=st.none() | ids, text=st.none() | texts, created=times, meta=metas)
memories = st.builds(
    Memory,
    ids,
    texts,
    sources=id_lists,
    derived_from=id_lists,
    supersedes=id_lists,
    adopts=st.none() | ids,
    kind=ids | st.just("fact"),
    key=st.none() | ids,
    importance=st.floats(0, 1),
    created=times,
    meta=metas,
)
retractions = st.builds(
    Retraction,
    ids,
    ids,
    scope=scopes,
    memories=some_ids,
    sources=id_lists,
    keys=id_lists,
    standing=st.booleans(),
    reason=st.none() | texts,
    created=times,
)
restorations = st.builds(Restoration, ids, ids, scope=scopes, retraction=ids, created=times)
erasures = st.builds(Erasure, ids, some_ids, cascade=st.booleans(), created=times)
events = st.one_of(messages, memories, retractions, restorations, erasures)


def same(left: Event, right: Event) -> bool:
    """Equal, and equal in every field."""
    return left == right and type(left) is type(right) and left.to_dict() == right.to_dict()


@settings(max_examples=250, derandomize=True, deadline=None)
@given(events)
def test_an_event_comes_back_from_both_forms(event: Event) -> None:
    assert same(event_from_bytes(event.skeleton(), event.body()), event)
    assert same(event_from_dict(json.loads(json.dumps(event.to_dict()))), event)
    assert same(pickle.loads(pickle.dumps(event)), event)
    assert same(copy.deepcopy(event), event)
    assert hash(event_from_dict(event.to_dict())) == hash(event)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(events, st.sampled_from(["skeleton", "body"]), st.data())
def test_only_canonical_bytes_pass(event: Event, part: str, data: st.DataObject) -> None:
    parts = {"skeleton": event.skeleton(), "body": event.body()}
    place = data.draw(st.integers(0, len(parts[part]) - 1))
    changed = bytearray(parts[part])
    changed[place] ^= data.draw(st.integers(1, 255))
    parts[part] = bytes(changed)
    try:
        other = event_from_bytes(parts["skeleton"], parts["body"])
    except InvalidEvent:
        return
    assert other != event
    assert (other.skeleton(), other.body()) == (parts["skeleton"], parts["body"])


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_are_an_event_or_an_invalid_event(skeleton: bytes, body: bytes) -> None:
    try:
        event = event_from_bytes(skeleton, body)
    except InvalidEvent:
        return
    assert (event.skeleton(), event.body()) == (skeleton, body)


@pytest.mark.parametrize(
    ("event", "skeleton", "body"),
    [
        (Message("u", None), [0, "u", 1, None], []),
        (Message("u", LEGACY), [0, "u"], []),
        (
            Message("u", "p", role="user", text="hi", created=NOON, meta={"b": 1, "a": [1.0]}),
            [0, "u", 1, "p"],
            [32, "user", 33, "hi", 35, [1714557600123456, 120], 36, {"a": [1.0], "b": 1}],
        ),
        (Memory("m", "t"), [1, "m"], [33, "t"]),
        (
            Memory(
                "m",
                "t",
                sources=["b", "a", "b"],
                derived_from=["c"],
                supersedes=["d"],
                adopts="e",
                kind="k",
                key="y",
                importance=0,
            ),
            [1, "m", 2, ["a", "b"], 3, ["c"], 4, ["d"], 5, "e", 6, "k", 7, "y"],
            [33, "t", 34, 0.0],
        ),
        (
            Retraction("r", "u", scope="tree", memories=["m"], sources=["s"], keys=["k"], standing=True, reason="no"),
            [2, "r", 2, ["s"], 8, "u", 9, 1, 10, ["m"], 11, ["k"], 12, True],
            [37, "no"],
        ),
        (Restoration("b", "u", scope="everywhere", retraction="r"), [3, "b", 8, "u", 9, 2, 13, "r"], []),
        (Erasure("e", ["u"], cascade=False), [4, "e", 14, ["u"], 15, False], []),
    ],
    ids=lambda value: value.type if hasattr(value, "type") else "",
)
def test_canonical_bytes_are_tags_and_values_without_defaults(
    event: Event, skeleton: list[Any], body: list[Any]
) -> None:
    assert event.skeleton() == msgpack.packb(skeleton)
    assert event.body() == msgpack.packb(body)


def test_defaults_left_out_make_the_same_event() -> None:
    assert Memory("m", "t", kind="fact", importance=1, sources=(), meta={}) == Memory("m", "t")
    assert Memory("m", "t", importance=-0.0).body() == Memory("m", "t", importance=0).body()
    assert Message("u", None, text="") != Message("u", None)
    assert Message("u", None) != Message("u", LEGACY)


def test_int_float_and_bool_are_three_things() -> None:
    forms = [Message("u", None, meta={"n": value}) for value in (1, 1.0, True)]
    assert len({event.body() for event in forms}) == 3
    assert forms[0] != forms[1] != forms[2]


def test_ids_sort_by_their_bytes_and_are_not_normalised() -> None:
    given = ["é", "e\u0301", "z", "\U0001f600", "\uffff", "A"]
    stored = Memory("m", "t", sources=given).sources
    assert list(stored) == sorted(given, key=str.encode)
    assert len(stored) == 6


def test_one_instant_in_two_offsets_is_two_events() -> None:
    there = NOON.astimezone(UTC)
    assert there == NOON
    assert Message("u", None, created=there) != Message("u", None, created=NOON)
    assert Message("u", None, created=NOON).to_dict()["created"] == "2024-05-01T12:00:00.123456+02:00"


@pytest.mark.parametrize(
    "created",
    [
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=-12))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
)
def test_the_first_and_the_last_moment_come_back(created: datetime) -> None:
    event = Message("u", None, created=created)
    assert same(event_from_bytes(event.skeleton(), event.body()), event)
    assert same(event_from_dict(event.to_dict()), event)


def test_the_limits_themselves_are_valid() -> None:
    assert Message("é" * 128, None, text="x" * MAX_TEXT_BYTES).text is not None
    assert len(Memory("m", "", sources=map(str, range(MAX_REFERENCES)), adopts="a").sources) == MAX_REFERENCES
    nested: Any = {}
    for _ in range(31):
        nested = {"k": nested}
    event = Message("u", None, meta=nested)
    assert event_from_bytes(event.skeleton(), event.body()) == event
    room = MAX_META_BYTES - len(msgpack.packb({"k": "x" * (1 << 16)})) + (1 << 16)
    assert Message("u", None, meta={"k": "x" * room}).meta
    with pytest.raises(InvalidEvent, match="meta has"):
        Message("u", None, meta={"k": "x" * (room + 1)})


def nested_beyond_the_limit() -> Any:
    nested: Any = {}
    for _ in range(32):
        nested = {"k": nested}
    return nested


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Message("", None), "1 to 256 bytes"),
        (lambda: Message("é" * 129, None), "not 258"),
        (lambda: Message("\ud800", None), "lone surrogate"),
        (lambda: Message("u", ""), "parent must be 1 to 256"),
        (lambda: Message("u", None, role=""), "role"),
        (lambda: Message("u", None, text="é" * (MAX_TEXT_BYTES // 2 + 1)), "text has"),
        (lambda: Message("u", None, created=datetime(2024, 1, 1)), "no offset"),
        (lambda: Message("u", None, created=NOON.replace(tzinfo=timezone(timedelta(seconds=30)))), "whole number"),
        (lambda: Message("u", None, meta={"k": math.nan}), "no word for"),
        (lambda: Message("u", None, meta={"k": -math.inf}), "no word for"),
        (lambda: Message("u", None, meta={"k": 2**64}), "64 bits"),
        (lambda: Message("u", None, meta={"k": -(2**63) - 1}), "64 bits"),
        (lambda: Message("u", None, meta={"k": "\udfff"}), "lone surrogate"),
        (lambda: Message("u", None, meta={"\udfff": 1}), "lone surrogate"),
        (lambda: Message("u", None, meta=nested_beyond_the_limit()), "nested deeper"),
        (lambda: Memory("m", "t", importance=1.01), "0..1"),
        (lambda: Memory("m", "t", importance=math.nan), "0..1"),
        (lambda: Memory("m", "t", sources=map(str, range(4096)), derived_from=["d"]), "4097 ids"),
        (lambda: Memory("m", "t", kind=""), "kind"),
        (lambda: Memory("m", "t", sources=[""]), "each of sources"),
        (lambda: Retraction("r", "u", scope="branch"), "takes nothing back"),
        (lambda: Retraction("r", "u", scope="all", keys=["k"]), "branch, tree, everywhere"),  # type: ignore[arg-type]
        (lambda: Erasure("e", []), "names no target"),
    ],
)
def test_beyond_the_limits_is_an_invalid_event(make: Callable[[], Event], why: str) -> None:
    with pytest.raises(InvalidEvent, match=why) as caught:
        make()
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Memory("m", "t", sources="u1"), r"sources=\['u1'\]"),
        (lambda: Erasure("e", "u1"), r"targets=\['u1'\]"),
        (lambda: Memory("m", "t", sources={"u1": 1}), "a list of ids"),
        (lambda: Memory("m", "t", sources=[1]), "must be a string"),  # type: ignore[list-item]
        (lambda: Message(7, None), "id must be a string"),  # type: ignore[arg-type]
        (lambda: Message("u", 7), "parent must be a string"),  # type: ignore[arg-type]
        (lambda: Memory("m", None), "text must be a string"),  # type: ignore[arg-type]
        (lambda: Memory("m", "t", importance=True), "a number"),
        (lambda: Memory("m", "t", importance="1"), "a number"),  # type: ignore[arg-type]
        (lambda: Erasure("e", ["u"], cascade=1), "True or False"),  # type: ignore[arg-type]
        (lambda: Message("u", None, created="2024-01-01"), "a datetime"),  # type: ignore[arg-type]
        (lambda: Message("u", None, meta=[1]), "a mapping"),  # type: ignore[arg-type]
        (lambda: Message("u", None, meta={1: 1}), "strings"),  # type: ignore[dict-item]
        (lambda: Message("u", None, meta={"k": {1, 2}}), "what JSON takes"),
        (lambda: Message("u", None, meta={"k": b"x"}), "what JSON takes"),
    ],
)
def test_a_wrong_type_is_a_type_error_too(make: Callable[[], Event], why: str) -> None:
    with pytest.raises(TypeError, match=why) as caught:
        make()
    assert isinstance(caught.value, InvalidEvent)


def test_a_string_enumeration_stands_for_its_value() -> None:
    class Name(str, Enum):  # noqa: UP042  # of which str() is not the value
        USER = "user"

    event = Message(Name.USER, None, role=Name.USER, text=Name.USER, meta={Name.USER: Name.USER})
    assert event == Message("user", None, role="user", text="user", meta={"user": "user"})
    assert type(event.id) is str


def test_an_event_never_changes() -> None:
    inner = {"list": [1, {"k": 1}]}
    event = Message("u", None, meta=inner)
    inner["list"].append(2)
    assert event.to_dict()["meta"] == {"list": [1, {"k": 1}]}
    with pytest.raises(TypeError):
        event.meta["new"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        event.meta["list"][1]["k"] = 2
    with pytest.raises(AttributeError):
        event.text = "new"  # type: ignore[misc]
    assert isinstance(event.meta, MappingProxyType)


def test_the_dict_form_leaves_out_defaults() -> None:
    assert Message("u", None).to_dict() == {"type": "message", "id": "u", "parent": None}
    assert Message("u", LEGACY).to_dict() == {"type": "message", "id": "u"}
    assert Memory("m", "t").to_dict() == {"type": "memory", "id": "m", "text": "t"}
    full: dict[str, Any] = {
        "type": "memory",
        "id": "m",
        "text": "t",
        "sources": [],
        "kind": "fact",
        "key": None,
        "importance": 1,
        "meta": {},
    }
    assert event_from_dict(full) == Memory("m", "t")


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"type": "note", "id": "x"}, "type must be one of"),
        ({"id": "x"}, "type must be one of"),
        ({"type": ["message"], "id": "x"}, "type must be one of"),
        ([], "must be a mapping"),
        ({"type": "message"}, "a message needs id"),
        ({"type": "memory", "id": "m"}, "a memory needs text"),
        ({"type": "retraction", "id": "r", "at": "u", "keys": ["k"]}, "a retraction needs scope"),
        ({"type": "message", "id": "x", "colour": 1}, "no field 'colour'"),
        ({"type": "message", "id": "x", "sources": []}, "no field 'sources'"),
        ({"type": "message", "id": "x", "created": "yesterday"}, "ISO 8601"),
        ({"type": "message", "id": "x", "created": 5}, "ISO 8601"),
        ({"type": "message", "id": "x", "created": "2024-01-01T00:00:00"}, "no offset"),
        ({"type": "memory", "id": "m", "text": "t", "sources": "u1"}, "write sources="),
        ({"type": "memory", "id": "m", "text": "t", "sources": None}, "a list of ids"),
        ({"type": "message", "id": "x", 5: 1}, "no field 5"),
    ],
)
def test_a_dict_that_is_no_event_is_refused(form: Any, why: str) -> None:
    with pytest.raises(InvalidEvent, match=why):
        event_from_dict(form)


def test_new_ids_are_uuids_of_version_7_in_order_of_time() -> None:
    made = [new_id() for _ in range(100)]
    assert len(set(made)) == 100
    assert all(id[14] == "7" and id[19] in "89ab" and len(id) == 36 for id in made)
    stamps = [id[:13] for id in made]
    assert stamps == sorted(stamps)
