"""Which items a search or a listing of namespaces asks for, as LangGraph reads its filters and conditions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from langgraph.store.base import ListNamespacesOp, MatchCondition

from branchmem.adapters.langgraph.items import Namespace
from branchmem.errors import InvalidFilter

_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether a value has all that a filter wants: values to be equal, or operators.

    Raises: InvalidFilter for an operator that there is none.
    """
    return all(_is_as(value.get(field), condition) for field, condition in (wanted or {}).items())


def namespaces(known: Iterable[Namespace], op: ListNamespacesOp) -> list[Namespace]:
    """The namespaces that fit all conditions, cut at `max_depth`, each once, sorted, and of these one page."""
    found = {
        namespace[: op.max_depth]
        for namespace in known
        if all(_matches(condition, namespace) for condition in op.match_conditions or ())
    }
    return sorted(found)[op.offset : op.offset + op.limit]


def _is_as(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_holds(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, Mapping) and all(_is_as(value.get(name), part) for name, part in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return isinstance(value, (list, tuple)) and len(value) == len(wanted) and all(map(_is_as, value, wanted))
    return bool(value == wanted)


def _holds(value: Any, name: str, operand: Any) -> bool:
    if name == "$eq":
        return bool(value == operand)
    if name == "$ne":
        return bool(value != operand)
    if name not in _ORDERS:
        raise InvalidFilter("filter", name, f"the operators are $eq $ne {' '.join(_ORDERS)}")
    if _is_number(value) and _is_number(operand):  # as they are: a whole number may be too large for a float
        return _ORDERS[name](value, operand)
    try:
        return _ORDERS[name](float(value), float(operand))
    except (TypeError, ValueError, OverflowError):
        # texts, such as times, are ordered as texts; what is neither stands in no order
        return isinstance(value, str) and isinstance(operand, str) and _ORDERS[name](value, operand)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    if condition.match_type == "prefix":
        part = namespace[: len(path)]
    elif condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    else:
        raise InvalidFilter("match_type", condition.match_type, 'write "prefix" or "suffix"')
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
