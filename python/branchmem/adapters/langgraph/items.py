"""Items of a `BaseStore` as memories, and memories and pending rows as items.

The text of a memory is the value of the item, as JSON; its meta says under which namespace and key, when the item was
first put, how long it lives, and, where it is indexed, its vectors, which are erased with it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from branchmem import Memory
from branchmem.adapters.langgraph.pending import Row
from branchmem.errors.langgraph import InvalidTTL, UnfitItem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Namespace = tuple[str, ...]

#: What lives longer lives for ever: a thousand years, in minutes.
_FOR_EVER: Final = 1000 * 365 * 24 * 60.0


@dataclass(frozen=True, slots=True)
class Found:
    """An item that is seen."""

    namespace: Namespace
    key: str
    text: str
    created: datetime
    updated: datetime
    #: How long it lives after it was put or used last, None for ever.
    ttl: timedelta | None
    meta: Mapping[str, Any]
    #: The memory that it is; None while it is pending.
    memory: str | None

    @property
    def value(self) -> dict[str, Any]:
        """Its value, a new object each time."""
        value: dict[str, Any] = json.loads(self.text)
        return value

    def vectors(self) -> NDArray[np.float32]:
        """Its vectors: float32 (n, dims), none where it is not indexed."""
        import numpy as np

        rows = [np.frombuffer(base64.b64decode(text), "<f4") for text in self.meta.get("vectors", ())]
        return np.array(rows, np.float32) if rows else np.empty((0, 0), np.float32)


def from_memory(memory: Memory) -> Found:
    """The item that a memory is a version of."""
    return _found(memory.meta, memory.text, memory.created or datetime.min, memory.id)


def from_row(row: Row, before: Found | None) -> Found:
    """The item that a row puts, which was `before` where it was there already."""
    meta = row.meta if before is None else {**row.meta, "created": before.created.isoformat()}
    return _found(meta, row.text or "", row.created, None)


def meta_of(
    namespace: Namespace, key: str, created: datetime, ttl: float | None, vectors: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """The meta of an item that is put; `ttl` in minutes.  Raises: InvalidTTL."""
    import numpy as np

    meta: dict[str, Any] = {"namespace": list(namespace), "key": key, "created": created.isoformat()}
    minutes = None if ttl is None else _minutes(namespace, key, ttl)
    if minutes is not None:
        meta["ttl"] = minutes
    if vectors:
        meta["vectors"] = [base64.b64encode(np.asarray(row, "<f4").tobytes()).decode() for row in vectors]
    return meta


def text_of(namespace: Namespace, key: str, value: Mapping[str, Any]) -> str:
    """The value of an item as JSON.  Raises: UnfitItem."""
    if not isinstance(value, Mapping):
        raise UnfitItem(namespace, key, f"but {type(value).__name__}")
    try:
        return json.dumps(dict(value), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnfitItem(namespace, key, str(error)) from None


def _minutes(namespace: Namespace, key: str, ttl: object) -> float | None:
    try:
        minutes = float(ttl)  # type: ignore[arg-type]  # what is no number is refused
    except (TypeError, ValueError):
        raise InvalidTTL(namespace, key, ttl) from None
    if math.isnan(minutes):
        raise InvalidTTL(namespace, key, ttl)
    return None if minutes > _FOR_EVER else max(minutes, 0.0)


def _found(meta: Mapping[str, Any], text: str, updated: datetime, memory: str | None) -> Found:
    ttl = meta.get("ttl")
    return Found(
        namespace=tuple(meta["namespace"]),
        key=meta["key"],
        text=text,
        created=datetime.fromisoformat(meta["created"]),
        updated=updated,
        ttl=None if ttl is None else timedelta(minutes=ttl),
        meta=meta,
        memory=memory,
    )
