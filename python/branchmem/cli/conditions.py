"""What a memory must be like to be found, as people type it: `field>=value`, a JSON filter, days and times.

Typed words become the conditions that the library takes; what they mean and whether they are sound is decided there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Final

import typer

Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Only of this kind, or of one of several.")]
Keys = Annotated[list[str] | None, typer.Option("--key", help="Only with this key, or one of several.")]
Meta = Annotated[
    list[str] | None,
    typer.Option(
        "--meta",
        metavar="FIELD=VALUE",
        help="Only where it holds of the meta; also with != > >= < <=, or a filter as JSON.",
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only what was created then or later: a day, or a time.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only what was created by then; a day counts whole.")
]

_OPERATORS: Final = {"=": "$eq", "!=": "$ne", ">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_CONDITION: Final = re.compile(r"([^=!<>]+)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)


def conditions(
    kinds: Sequence[str] | None,
    keys: Sequence[str] | None,
    meta: Sequence[str] | None,
    since: str | None,
    until: str | None,
) -> dict[str, Any]:
    """The filters of a search, by the names of its arguments; none for what was not asked for.

    Raises: BadParameter for what cannot be read.
    """
    found = {"kind": _one_of(kinds), "key": _one_of(keys), "meta": _fields(meta or ()), "created": _times(since, until)}
    return {name: condition for name, condition in found.items() if condition}


def _one_of(values: Sequence[str] | None) -> object:
    if not values:
        return None
    return {"$eq": values[0]} if len(values) == 1 else {"$in": list(values)}


def _fields(given: Sequence[str]) -> dict[str, object]:
    """All the conditions on meta together: each of them must hold."""
    found: dict[str, object] = {}
    for text in given:
        for field, condition in (_filter(text) if text.lstrip().startswith("{") else _condition(text)).items():
            found[field] = _both(found[field], condition, field) if field in found else condition
    return found


def _condition(text: str) -> dict[str, object]:
    matched = _CONDITION.fullmatch(text)
    if matched is None:
        raise typer.BadParameter(f"{text}: write FIELD=VALUE, with = != > >= < or <=", param_hint="--meta")
    field, operator, value = matched.groups()
    return {field: {_OPERATORS[operator]: _value(value)}}


def _value(text: str) -> object:
    """A value as JSON spells it: numbers, true, false, null, "16"; anything else is the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _filter(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{text:.80} is no JSON: {error}", param_hint="--meta") from None
    return {field: value if isinstance(value, dict) else {"$eq": value} for field, value in found.items()}


def _both(one: object, other: object, field: str) -> object:
    """Two conditions on one field, where they are operators that differ."""
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    if one.keys() & other.keys() or not all(name.startswith("$") for name in one | other):
        raise typer.BadParameter(f"{field} is asked for twice: say both in one filter as JSON", param_hint="--meta")
    return one | other


def _times(since: str | None, until: str | None) -> dict[str, object]:
    found: dict[str, object] = {}
    if since is not None:
        found["$gte"] = _moment(since, "--since")[0]
    if until is not None:
        moment, is_day = _moment(until, "--until")
        try:
            found["$lt" if is_day else "$lte"] = moment + timedelta(days=is_day)
        except OverflowError:
            raise typer.BadParameter(f"{until} has no next day: leave it out", param_hint="--until") from None
    return found


def _moment(text: str, option: str) -> tuple[datetime, bool]:
    """The time, or where that is a day its beginning, and whether it is a day; in UTC unless it says otherwise."""
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC), True
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        form = "write 2026-01-31, or 2026-01-31T12:00:00+01:00"
        raise typer.BadParameter(f"{text} is no day and no time: {form}", param_hint=option) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)), False
