"""Which memories a search may rank: conditions on their fields, checked before anything is read.

A condition is a value, for equality, or a mapping of operators that must all hold.  What cannot be meant is refused,
and nothing is guessed: an unknown operator, a list that may mean one value or several, a type that the field never
has.  A memory whose value is of another type than that of the condition does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from branchmem.canonical import MAX_META_DEPTH, meta, microseconds, pack, thaw
from branchmem.errors import Error, InvalidFilter

#: Field, path within meta, operator, value: None, bool, int, float, str; for "created" microseconds since 1970; a list
#: of these for "$in"; for other values of meta their canonical bytes.
Condition = tuple[str, tuple[str, ...], str, object]

OPERATORS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in")
_ORDERS: Final = frozenset({"$gt", "$gte", "$lt", "$lte"})


def compiled(
    *,
    kind: object = None,
    key: object = None,
    created: object = None,
    importance: object = None,
    meta: Mapping[str, object] | None = None,
) -> list[Condition]:
    """The conditions that all must hold, in the form of the compiled ranker; None is no condition.

    `kind` and `key` are compared with strings, `importance` with numbers, `created` with aware datetimes as instants.
    `meta` maps fields to conditions, or to mappings of fields inside of them; there None is a value, as is `{"$eq":
    None}` everywhere: the field is absent or null.
    Raises: InvalidFilter.
    """
    found: list[Condition] = []
    for field, given, value_of in (
        ("kind", kind, _name),
        ("key", key, _name),
        ("created", created, _time),
        ("importance", importance, _number),
    ):
        if given is not None:
            found += _conditions(field, given, value_of)
    if meta is not None:
        if not isinstance(meta, Mapping):
            raise InvalidFilter("meta", meta, 'write a mapping of fields to conditions: meta={"tag": "x"}')
        if _is_of_operators("meta", meta):
            raise InvalidFilter("meta", meta, 'an operator compares a field: write meta={"tag": {"$eq": "x"}}')
        found += _within_meta(meta, ())
    return found


def _within_meta(fields: Mapping[str, object], path: tuple[str, ...]) -> Iterator[Condition]:
    for name, given in fields.items():
        inner = (*path, _text(".".join(("meta", *path)), name))
        field = ".".join(("meta", *inner))
        if len(inner) > MAX_META_DEPTH:
            raise InvalidFilter(field, given, f"meta is never nested deeper than {MAX_META_DEPTH}")
        if isinstance(given, Mapping) and not _is_of_operators(field, given):
            yield from _within_meta(given, inner)
        else:
            for _, _, operator, value in _conditions(field, given, _json):
                yield "meta", inner, operator, value


def _conditions(field: str, given: object, value_of: Callable[[str, object], object]) -> Iterator[Condition]:
    if not isinstance(given, Mapping):
        if isinstance(given, (list, tuple, set, frozenset)):
            raise InvalidFilter(field, given, 'for any of these write {"$in": [...]}, for a list {"$eq": [...]}')
        yield field, (), "$eq", value_of(field, given)
        return
    if not _is_of_operators(field, given):
        raise InvalidFilter(field, given, f"write a value, or a mapping of operators: {', '.join(OPERATORS)}")
    for operator, value in given.items():
        if operator not in OPERATORS:
            raise InvalidFilter(field, operator, f"there is no such operator: use {', '.join(OPERATORS)}")
        if operator == "$in":
            if not isinstance(value, (list, tuple, set, frozenset)):
                raise InvalidFilter(field, value, '$in takes a list: write {"$in": [...]}')
            yield field, (), operator, [None if one is None else value_of(field, one) for one in value]
            continue
        if operator in _ORDERS and (value is None or isinstance(value, (bool, Mapping, list, tuple))):
            raise InvalidFilter(field, value, f"{operator} compares numbers, strings or times; this has no order")
        yield field, (), operator, None if value is None else value_of(field, value)


def _is_of_operators(field: str, given: Mapping[Any, object]) -> bool:
    """Whether these are operators, not fields.  Raises: InvalidFilter where they are both, or nothing."""
    if not given:
        raise InvalidFilter(field, dict(given), "there is nothing to compare with: leave the condition out")
    marked = [isinstance(name, str) and name.startswith("$") for name in given]
    if any(marked) and not all(marked):
        raise InvalidFilter(field, dict(given), "operators and fields are mixed: write one mapping for each")
    return all(marked)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidFilter(field, value, "write a string")
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidFilter(field, value, "it has a lone surrogate, which is no text") from None
    return text


def _name(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidFilter(field, value, f"a {field} is a string: write one, or a mapping of operators")
    return _text(field, value)


def _time(field: str, value: object) -> int:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidFilter(field, value, "write an aware datetime: datetime(2025, 3, 1, tzinfo=UTC)")
    return microseconds(value)


def _number(field: str, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidFilter(field, value, "write a number, or a mapping of operators")
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            raise InvalidFilter(field, value, "an integer beyond 64 bits is in no memory")
        return int(value)
    if math.isnan(value):
        raise InvalidFilter(field, value, "nothing equals it, nothing is more or less: write a number")
    return float(value)


def _json(field: str, value: object) -> object:
    """A value of meta: null, bool, number and string as they are, lists and maps as their canonical bytes."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(field, value)
    if isinstance(value, (int, float)):
        return _number(field, value)
    try:
        (frozen,) = meta({"": value}).values()
    except Error as error:
        raise InvalidFilter(field, value, str(error)) from None
    return pack(thaw(frozen))
