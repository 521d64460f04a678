"""Mem0's entity store as it looks from a place: entities of visible memories, linked to these alone.

An entity raises the rank of the memories that it is linked to.  Links are only ever added: whether one is there is
decided by the view, as for memories, so that what one branch deletes stays linked on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import Any, Final

from branchmem.adapters.mem0.errand import Errand
from branchmem.adapters.mem0.payloads import Row
from branchmem.adapters.mem0.rows import asking, enough, listed

LINKS: Final = "linked_memory_ids"


class Entities:
    """What Mem0 calls its `entity_store`, during one errand.  `inner` is made when it is needed first."""

    def __init__(self, inner: Callable[[], Any], errand: Errand, lock: RLock) -> None:
        self._made = inner
        self._errand = errand
        self._lock = lock

    def search(self, query: str, vectors: Sequence[float], top_k: int = 5, filters: Any = None) -> list[Row]:
        """The entities nearest to a vector that a visible memory is linked to."""
        inner = self._inner()

        def fetch(count: int) -> Any:
            return inner.search(query=query, vectors=vectors, filters=filters, **asking(inner.search, count))

        return enough(fetch, self._keep, top_k) or []

    def search_batch(
        self, queries: Sequence[str], vectors_list: Sequence[Sequence[float]], top_k: int = 1, filters: Any = None
    ) -> Sequence[Sequence[Row]]:
        """As `search`, for each query."""
        return [self.search(*pair, top_k, filters) for pair in zip(queries, vectors_list, strict=True)]

    def list(self, filters: Any = None, top_k: int = 100) -> Sequence[Sequence[Row]]:
        """The entities that a visible memory is linked to."""
        inner = self._inner()

        def fetch(count: int) -> Any:
            return listed(inner.list(filters=filters, **asking(inner.list, count)))

        return [enough(fetch, self._keep, top_k) or []]

    def insert(self, vectors: Sequence[Any], payloads: Any = None, ids: Any = None) -> None:
        """Add entities, linked to memories by the ids that these have by now."""
        named = [{**payload, LINKS: sorted(self._named(payload))} for payload in payloads]
        self._inner().insert(vectors=vectors, payloads=named, ids=ids)

    def update(self, vector_id: Any, vector: Any = None, payload: Any = None) -> None:
        """Add the links of a payload to those that an entity has, be they seen here or not."""
        inner = self._inner()
        with self._lock:
            row = inner.get(vector_id=vector_id)
            if row is None:
                return
            links = _links(row)
            added = self._named(payload or {}).difference(links)
            if added:
                inner.update(vector_id=vector_id, vector=None, payload={**row.payload, LINKS: [*links, *sorted(added)]})

    def delete(self, vector_id: Any) -> None:
        """Nothing: an entity is gone from here as soon as no visible memory is linked to it."""

    def _inner(self) -> Any:
        return self._made()

    def _named(self, payload: dict[str, Any]) -> set[str]:
        return {self._errand.name(str(id)) for id in payload.get(LINKS) or ()}

    def _keep(self, rows: Iterable[Any]) -> Sequence[Row]:
        view = self._errand.place.view()
        kept = []
        for row in rows:
            links = view.filter(_links(row))
            if links:
                kept.append(Row(row.id, {**row.payload, LINKS: links}, getattr(row, "score", None)))
        return kept


def _links(row: Any) -> list[str]:
    links = (row.payload or {}).get(LINKS)
    return [str(id) for id in links] if isinstance(links, (list, tuple)) else []
