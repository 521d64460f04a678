"""Every error of branchmem has a name to catch it by, says what was wrong in one line, and survives pickling."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import branchmem as bm
import pytest
from branchmem import errors
from branchmem.errors import agent, branchbench, extract, langgraph, mcp_server, mem0

#: An argument of each type that an error takes, as its annotation is written.
GIVEN: dict[str, Any] = {
    "str": "Chengdu",
    "str | None": "Chengdu",
    "int": 7,
    "int | None": 7,
    "float": 0.25,
    "bool": True,
    "object": ("Chengdu", 7),
    "Iterable[str]": ["Chengdu", "Hangzhou"],
    "tuple[str, ...]": ("Chengdu", "Hangzhou"),
    "Iterable[object]": ["Chengdu", 7],
    "Iterable[int]": [7, 8],
    "Mapping[str, Iterable[str]]": {"Chengdu": ["Hangzhou", "Xi'an"]},
}
#: What users are promised to catch from the package itself.
PROMISED = {
    *("Error", "EventConflict", "InvalidEvent", "AmbiguousAnchor", "UnknownEvent", "BadAnchor", "StoreBehind"),
    *("StoreDamaged", "StoreLocked", "StoreReadOnly", "StoreFull", "StoreForked", "StoreOnNetwork", "FormatTooNew"),
    *("ImportFailed", "MergeConflict", "BundleRefused", "DimensionMismatch", "EmbedderMismatch"),
}
#: What stores, views, sessions and steps raise about recall: nobody should need to know the room.
OF_RECALL = {name for name in errors.__all__ if getattr(errors, name).__module__ == "branchmem.errors.recall"}


def made(kind: type[bm.Error]) -> bm.Error:
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    return kind(*(GIVEN[parameter.annotation] for parameter in parameters if parameter.annotation in GIVEN))


#: What only users of one room meet: these keep to their module.
OF_ONE_ROOM = [
    kind
    for room in (agent, branchbench, extract, langgraph, mcp_server, mem0)
    for kind in vars(room).values()
    if inspect.isclass(kind) and kind.__module__ == room.__name__
]


@pytest.mark.parametrize("kind", [*(getattr(errors, name) for name in sorted(errors.__all__)), *OF_ONE_ROOM])
def test_an_error_says_so_in_one_line_and_survives_pickling(kind: type[bm.Error]) -> None:
    error = made(kind)

    again = pickle.loads(pickle.dumps(error))

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert "\n" not in str(error)
    assert isinstance(error, bm.Error)


@pytest.mark.parametrize("name", sorted(OF_RECALL))
def test_what_is_at_fault_in_a_search_is_an_attribute_and_in_the_text(name: str) -> None:
    error = made(getattr(errors, name))

    assert vars(error)
    assert "Chengdu" in str(error)


def test_what_users_are_promised_to_catch_is_a_public_name() -> None:
    assert {name for name in PROMISED if getattr(bm, name) is not getattr(errors, name)} == set()
    assert set(bm.__all__) >= PROMISED


def test_whatever_a_search_refuses_is_a_public_name() -> None:
    assert {"InvalidSearch", "InvalidFilter", "Undecided"} <= OF_RECALL <= set(bm.__all__)


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    assert "<int>" in str(bm.InvalidSearch("k", 10**5000, "it is too large"))
