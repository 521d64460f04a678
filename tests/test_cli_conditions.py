"""The command line: what a memory must be like, as people type it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
import typer
from branchmem.cli.conditions import conditions


def meta(*given: str) -> object:
    return conditions(None, None, list(given), None, None).get("meta")


def created(since: str | None = None, until: str | None = None) -> object:
    return conditions(None, None, None, since, until).get("created")


def test_what_is_not_asked_for_is_no_condition() -> None:
    assert conditions(None, None, None, None, None) == conditions([], [], [], None, None) == {}


def test_a_kind_is_that_one_and_several_are_one_of_them() -> None:
    assert conditions(["fact"], None, None, None, None) == {"kind": {"$eq": "fact"}}
    assert conditions(None, ["a", "b"], None, None, None) == {"key": {"$in": ["a", "b"]}}


@pytest.mark.parametrize(
    ("typed", "condition"),
    [
        ("tag=x", {"tag": {"$eq": "x"}}),
        ("version>=16", {"version": {"$gte": 16}}),
        ("version>1.5", {"version": {"$gt": 1.5}}),
        ("version<2", {"version": {"$lt": 2}}),
        ("version<=2", {"version": {"$lte": 2}}),
        ("done!=true", {"done": {"$ne": True}}),
        ("by=null", {"by": {"$eq": None}}),
        ('version="16"', {"version": {"$eq": "16"}}),
        ("tags=[1, 2]", {"tags": {"$eq": [1, 2]}}),
        ("equation=a=b", {"equation": {"$eq": "a=b"}}),
        ("arrow==>", {"arrow": {"$eq": "=>"}}),
        ("empty=", {"empty": {"$eq": ""}}),
        ("share=NaN", {"share": {"$eq": "NaN"}}),
        ("城市=成都", {"城市": {"$eq": "成都"}}),
        ('{"by": {"name": "ada"}}', {"by": {"name": "ada"}}),
        ('{"tag": "x", "version": {"$in": [15, 16]}}', {"tag": {"$eq": "x"}, "version": {"$in": [15, 16]}}),
    ],
)
def test_a_condition_is_a_field_an_operator_and_a_value_or_json(typed: str, condition: object) -> None:
    assert meta(typed) == condition


def test_conditions_hold_together() -> None:
    assert meta("version>=15", "version<17", '{"tag": {"$ne": "x"}}') == {
        "version": {"$gte": 15, "$lt": 17},
        "tag": {"$ne": "x"},
    }


@pytest.mark.parametrize(
    "typed",
    [
        *(["tag"], ["=x"], [""], ["{"], ["{}}"], ['{"a": NaN}'], ["[" * 9]),
        *(["a=1", "a=2"], ["a>1", '{"a": {"b": 1}}'], ['{"a": {"b": 1}}', '{"a": {"c": 1}}']),
    ],
)
def test_what_cannot_be_read_is_wrong_usage(typed: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        meta(*typed)


def test_a_day_counts_whole_and_times_are_utc_unless_they_say_otherwise() -> None:
    assert created("2026-01-31") == {"$gte": datetime(2026, 1, 31, tzinfo=UTC)}
    assert created(until="2026-01-31") == {"$lt": datetime(2026, 2, 1, tzinfo=UTC)}
    assert created("2026-01-31T12:00", "2026-01-31 13:00:00.5") == {
        "$gte": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "$lte": datetime(2026, 1, 31, 13, 0, 0, 500_000, tzinfo=UTC),
    }
    noon = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=1)))
    assert created("2026-01-31T12:00:00+01:00") == {"$gte": noon}


@pytest.mark.parametrize("typed", ["yesterday", "", "2026-02-30", "12:00"])
def test_what_is_no_time_is_wrong_usage(typed: str) -> None:
    with pytest.raises(typer.BadParameter):
        created(since=typed)
    with pytest.raises(typer.BadParameter):
        created(until=typed)


def test_the_last_of_all_days_has_no_next_one() -> None:
    with pytest.raises(typer.BadParameter):
        created(until="9999-12-31")
