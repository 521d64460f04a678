"""Functions as tools: described by their types, called with what fits them, and with nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Annotated, Any, Literal

import branchmem as bm
import pytest
from branchmem.agent import Tool
from branchmem.chat import Call
from branchmem.errors.agent import InvalidTool, ToolRefused


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Foreign(Enum):
    THING = object()


def order(
    what: Annotated[str, "the dish"],
    step: bm.Step,
    count: int = 1,
    size: Size = Size.SMALL,
    sauces: list[str] | None = None,
    prices: dict[str, float] | None = None,
    how: Literal["here", "away"] = "here",
    more: Any = None,
) -> dict[str, Any]:
    """Order a dish.

    It is cooked at once.
    """
    return {"what": what, "count": count}


def called(function: Callable[..., Any], **given: Any) -> dict[str, Any]:
    with bm.open_temporary() as store, store.session("chat").step() as step:
        return Tool.of(function).arguments(Call("c", "f", json.dumps(given)), step)


def test_a_function_is_described_by_its_docstring_and_its_types() -> None:
    assert Tool.of(order).wire == {
        "type": "function",
        "function": {
            "name": "order",
            "description": "Order a dish.\n\nIt is cooked at once.",
            "parameters": {
                "type": "object",
                "properties": {
                    "what": {"type": "string", "description": "the dish"},
                    "count": {"type": "integer"},
                    "size": {"enum": ["small", "large"]},
                    "sauces": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
                    "prices": {
                        "anyOf": [{"type": "object", "additionalProperties": {"type": "number"}}, {"type": "null"}]
                    },
                    "how": {"enum": ["here", "away"]},
                    "more": {},
                },
                "required": ["what"],
                "additionalProperties": False,
            },
        },
    }


def test_arguments_come_as_the_function_takes_them() -> None:
    given = called(order, what="soup", count=2, size="large", sauces=["soy"], prices={"soup": 3}, how="away", more=[1])
    step = given.pop("step")
    assert isinstance(step, bm.Step)
    assert given == {
        "what": "soup",
        "count": 2,
        "size": Size.LARGE,
        "sauces": ["soy"],
        "prices": {"soup": 3.0},
        "how": "away",
        "more": [1],
    }
    assert isinstance(given["prices"]["soup"], float)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "missing what"),
        ({"what": "soup", "step": "mine"}, "unknown step"),
        ({"what": None}, "what does not fit"),
        ({"what": "soup", "count": True}, "count does not fit"),
        ({"what": "soup", "count": 1.5}, "count does not fit"),
        ({"what": "soup", "size": "huge"}, "size does not fit"),
        ({"what": "soup", "sauces": "soy"}, "sauces does not fit"),
        ({"what": "soup", "sauces": ["soy", 4]}, "sauces does not fit"),
        ({"what": "soup", "prices": {"soup": "much"}}, "prices does not fit"),
        ({"what": "soup", "how": "there"}, "how does not fit"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ToolRefused, match=why):
        called(order, **given)


def untyped(what) -> None:  # type: ignore[no-untyped-def]
    pass


def starred(*what: str) -> None:
    pass


def positional(what: str, /) -> None:
    pass


def foreign(what: bytes) -> None:
    pass


def pair(what: tuple[int, str]) -> None:
    pass


def foreign_choice(what: Literal[b"raw"]) -> None:
    pass


def foreign_enum(what: Foreign) -> None:
    pass


@pytest.mark.parametrize(
    "function", [untyped, starred, positional, foreign, pair, foreign_choice, foreign_enum, lambda: None, 4]
)
def test_a_function_that_no_json_describes_is_refused(function: Any) -> None:
    with pytest.raises(InvalidTool):
        Tool.of(function)


def test_lists_of_any_kind_come_as_what_was_asked_for() -> None:
    def f(a: tuple[int, ...], b: Sequence[str], c: list[Any], d: dict[str, Any], e: int | str | None) -> None: ...

    f.__annotations__ = {"a": tuple[int, ...], "b": Sequence[str], "c": list, "d": dict, "e": int | str | None}
    assert called(f, a=[1, 2], b=["x"], c=[1, "y"], d={"z": 0}, e="x") == {
        "a": (1, 2),
        "b": ["x"],
        "c": [1, "y"],
        "d": {"z": 0},
        "e": "x",
    }


def test_a_result_is_text_or_json() -> None:
    tool = Tool.of(order)
    assert tool.text("soup, hot") == "soup, hot"
    assert tool.text({"what": "汤", "count": 2}) == '{"what": "汤", "count": 2}'
    assert tool.text(None) == "null"
    with pytest.raises(InvalidTool, match="returned a object, which is no JSON"):
        tool.text(object())
