"""Conditions on a search: what they leave out, and what cannot be meant."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Any

import branchmem as bm
import pytest
from branchmem.errors import InvalidFilter
from branchmem.reference.ranking import fits

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CHINA = timezone(timedelta(hours=8))


class Kind(StrEnum):
    TASTE = "taste"


class Level(IntEnum):
    HIGH = 3


MEMORIES = [
    bm.Memory("plain", "tea", sources=["u1"]),
    bm.Memory("green", "tea", sources=["u1"], kind="taste", key="drink", importance=0.5, created=NOON),
    bm.Memory(
        "full",
        "tea",
        sources=["u1"],
        key="home",
        importance=0.25,
        created=NOON + timedelta(hours=1),
        meta={"level": 3, "tags": ["a", "b"], "place": {"city": "成都", "floor": 2.5}, "open": True, "none": None},
    ),
    bm.Memory("other", "tea", sources=["u1"], kind="taste", meta={"level": 2.5, "tags": [], "place": {}, "open": "x"}),
]


@pytest.fixture(scope="module")
def view() -> Iterator[bm.View]:
    with bm.open_temporary() as store:
        store.append([bm.Message("u1", None), *MEMORIES])
        yield store.at("u1")


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, "full green other plain"),
        ({"kind": "taste"}, "green other"),
        ({"kind": Kind.TASTE}, "green other"),
        ({"kind": {"$ne": "taste"}}, "full plain"),
        ({"kind": {"$in": ["taste", "fact"]}}, "full green other plain"),
        ({"kind": {"$in": []}}, ""),
        ({"kind": {"$gt": "fact"}}, "green other"),
        ({"key": "drink"}, "green"),
        ({"key": {"$eq": None}}, "other plain"),
        ({"key": {"$ne": None}}, "full green"),
        ({"key": {"$in": {"home", None}}}, "full other plain"),
        ({"key": {"$gte": "drink", "$lt": "home"}}, "green"),
        ({"importance": 1}, "other plain"),
        ({"importance": {"$lt": 0.5}}, "full"),
        ({"importance": {"$lte": math.inf}}, "full green other plain"),
        ({"created": NOON}, "green"),
        ({"created": NOON.astimezone(CHINA)}, "green"),
        ({"created": {"$gt": NOON}}, "full"),
        ({"created": {"$gte": NOON, "$lt": NOON + timedelta(microseconds=1)}}, "green"),
        ({"created": {"$eq": None}}, "other plain"),
        ({"created": {"$ne": NOON}}, "full other plain"),
        ({"meta": {"level": 3}}, "full"),
        ({"meta": {"level": 3.0}}, "full"),
        ({"meta": {"level": Level.HIGH}}, "full"),
        ({"meta": {"level": {"$gte": 2, "$lte": 3}}}, "full other"),
        ({"meta": {"level": {"$gt": "2"}}}, ""),
        ({"meta": {"level": None}}, "green plain"),
        ({"meta": {"none": None}}, "full green other plain"),
        ({"meta": {"none": {"$ne": None}}}, ""),
        ({"meta": {"open": True}}, "full"),
        ({"meta": {"open": {"$ne": True}}}, "green other plain"),
        ({"meta": {"open": 1}}, ""),
        ({"meta": {"tags": {"$eq": ["a", "b"]}}}, "full"),
        ({"meta": {"tags": {"$in": [[], ["b", "a"]]}}}, "other"),
        ({"meta": {"place": {"city": "成都"}}}, "full"),
        ({"meta": {"place": {"city": {"$in": ["杭州", "成都"]}, "floor": {"$gt": 2}}}}, "full"),
        ({"meta": {"place": {"$eq": {"floor": 2.5, "city": "成都"}}}}, "full"),
        ({"meta": {"place": {"$eq": {}}}}, "other"),
        ({"meta": {"place": {"city": {"street": "x"}}}}, ""),
        ({"kind": "fact", "meta": {"level": 3}, "key": "home"}, "full"),
        ({"kind": "taste", "meta": {"level": 3}}, ""),
    ],
)
def test_a_condition_leaves_out_what_does_not_fit(view: bm.View, conditions: dict[str, Any], expected: str) -> None:
    found = view.search("tea", now=NOON, **conditions)

    assert [id for hit in found for id in hit.ids] == expected.split()
    assert expected.split() == sorted(memory.id for memory in MEMORIES if fits(memory, conditions))


@pytest.mark.parametrize(
    ("conditions", "field", "says"),
    [
        ({"kind": {"$regex": "t.*"}}, "kind", "$eq, $ne, $gt, $gte, $lt, $lte, $in"),
        ({"meta": {"level": {"$nin": [1]}}}, "meta.level", "$eq, $ne, $gt, $gte, $lt, $lte, $in"),
        ({"meta": {"place": {"city": {"$not": 1}}}}, "meta.place.city", "no such operator"),
        ({"kind": ["fact", "taste"]}, "kind", '{"$in": [...]}'),
        ({"meta": {"tags": ["a"]}}, "meta.tags", '{"$in": [...]}'),
        ({"kind": {"$in": "fact"}}, "kind", '{"$in": [...]}'),
        ({"kind": {}}, "kind", "nothing to compare with"),
        ({"meta": {}}, "meta", "nothing to compare with"),
        ({"meta": {"place": {}}}, "meta.place", "nothing to compare with"),
        ({"meta": {"place": {"$eq": 1, "city": 2}}}, "meta.place", "mixed"),
        ({"meta": {"$eq": {"level": 3}}}, "meta", "an operator compares a field"),
        ({"meta": "level"}, "meta", "mapping of fields"),
        ({"meta": {3: 1}}, "meta", "write a string"),
        ({"kind": 3}, "kind", "a kind is a string"),
        ({"kind": {"city": 1}}, "kind", "mapping of operators"),
        ({"key": {"$gt": 3}}, "key", "a key is a string"),
        ({"key": "\ud800"}, "key", "lone surrogate"),
        ({"created": "2026-03-01"}, "created", "aware datetime"),
        ({"created": datetime(2026, 3, 1)}, "created", "aware datetime"),
        ({"created": {"$gt": None}}, "created", "has no order"),
        ({"importance": True}, "importance", "write a number"),
        ({"importance": "high"}, "importance", "write a number"),
        ({"importance": {"$gt": math.nan}}, "importance", "write a number"),
        ({"meta": {"level": 1 << 64}}, "meta.level", "64 bits"),
        ({"meta": {"level": {"$lt": True}}}, "meta.level", "has no order"),
        ({"meta": {"level": {"$lt": [1]}}}, "meta.level", "has no order"),
        ({"meta": {"when": NOON}}, "meta.when", "JSON"),
        ({"meta": {"a": {"$eq": [NOON]}}}, "meta.a", "JSON"),
    ],
)
def test_what_cannot_be_meant_is_refused(view: bm.View, conditions: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        view.search("tea", **conditions)

    assert refused.value.field == field
    assert says in str(refused.value)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, bm.Error)


def test_conditions_on_meta_go_as_deep_as_meta_does(view: bm.View) -> None:
    deep: dict[str, Any] = {"x": 1}
    for _ in range(31):
        deep = {"x": deep}
    assert view.search("tea", meta=deep).ids == []
    with pytest.raises(InvalidFilter, match="nested deeper than 32"):
        view.search("tea", meta={"x": deep})


def test_conditions_change_no_score(view: bm.View) -> None:
    (alone,) = view.search("tea", kind="taste", now=NOON)
    (among,) = view.search("tea", now=NOON)
    assert alone.score == among.score
    assert (alone.ids, among.ids) == (("green", "other"), ("full", "green", "other", "plain"))
