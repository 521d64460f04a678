"""Mem0's vector store as it looks from a place: the rows of visible memories, and no other.

The rows of all branches lie in one collection.  The view decides which of them are there; more are asked for until
enough of them are.  A row is only a way to find its memory: what is told of it is what the log says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import signature
from typing import Any, Final
from uuid import uuid4

from branchmem import Memory
from branchmem.adapters.mem0.errand import Errand
from branchmem.adapters.mem0.payloads import MARK, Row, collection_of, memory_id, memory_of, payload_of, row_id
from branchmem.adapters.mem0.place import current, shown

#: How many times more rows are asked for where too few of them were visible.
_MORE: Final = 4
_PAGE: Final = 1000

Embed = Callable[[str], Sequence[float]]


class Rows:
    """What Mem0 calls its `vector_store`, during one errand.

    What it does not have raises AttributeError, so that nothing passes by the view.
    """

    def __init__(self, inner: Any, collection: str, errand: Errand, embed: Embed) -> None:
        self._inner = inner
        self._collection = collection
        self._errand = errand
        self._embed = embed

    def search(
        self, query: str, vectors: Sequence[float], top_k: int = 5, filters: Any = None, *, limit: int | None = None
    ) -> list[Row]:
        """The visible rows nearest to a vector, best first: as many as there are, up to the number asked for."""

        def fetch(count: int) -> Any:
            return self._inner.search(
                query=query, vectors=vectors, filters=filters, **asking(self._inner.search, count)
            )

        return enough(fetch, self._keep, top_k if limit is None else limit) or []

    def search_batch(
        self, queries: Sequence[str], vectors_list: Sequence[Sequence[float]], top_k: int = 1, filters: Any = None
    ) -> Sequence[Sequence[Row]]:
        """As `search`, for each query."""
        return [self.search(*pair, top_k, filters) for pair in zip(queries, vectors_list, strict=True)]

    def keyword_search(self, query: str, top_k: int = 5, filters: Any = None) -> list[Row] | None:
        """The visible rows that have words of a query; None where the vector store has no such search."""
        if not hasattr(self._inner, "keyword_search"):
            return None

        def fetch(count: int) -> Any:
            return self._inner.keyword_search(query=query, top_k=count, filters=filters)

        return enough(fetch, self._keep, top_k)

    def list(
        self, filters: Any = None, top_k: int | None = 100, *, limit: int | None = None
    ) -> Sequence[Sequence[Row]]:
        """The visible rows that fit, in a list of their own, as Mem0's stores give them."""
        wanted = top_k if limit is None else limit

        def fetch(count: int) -> Any:
            return listed(self._inner.list(filters=filters, **asking(self._inner.list, count)))

        return [enough(fetch, self._keep, wanted) or []]

    def get(self, vector_id: str) -> Row | None:
        """The row of a memory, or of the version that stands for it here; None where it is hidden."""
        view = self._errand.place.view()
        id = current(view, self._errand.name(str(vector_id)))
        memory = None if id is None else shown(view, id)
        return None if memory is None else Row(memory.id, payload_of(memory))

    def insert(self, vectors: Sequence[Any], payloads: Any = None, ids: Any = None) -> None:
        """Remember what the payloads say; what was said of the same messages already keeps its first id."""
        errand, given = self._errand, list(zip(ids, vectors, payloads, strict=True))
        with errand.kept(ids):
            derived = errand.derived_from
            memories = [
                memory_of(str(id), payload, self._collection, sources=errand.sources, derived_from=derived)
                for id, _, payload in given
            ]
            self._write(memories, [vector for _, vector, _ in given], [payload for _, _, payload in given])

    def update(self, vector_id: str, vector: Any = None, payload: Any = None) -> None:
        """Write a new version of a memory, which replaces it from here on.

        Its sources are those of the old one, and those of this errand.
        """
        errand = self._errand
        with errand.kept([vector_id]):
            view = errand.place.view()
            id = current(view, errand.name(str(vector_id)))
            if id is None:
                raise KeyError(vector_id)
            old = view.get(id)
            payload = {**payload_of(old), **(payload or {})}
            new = memory_of(
                str(uuid4()),
                payload,
                self._collection,
                sources=errand.sources,
                derived_from=errand.derived_from,
                replaces=old,
            )
            self._write([new], [self._embed(new.text) if vector is None else vector], [payload])
            errand.renamed[str(vector_id)] = errand.name(new.id)

    def delete(self, vector_id: str) -> None:
        """Take a memory back from here on, with the versions that it replaced.  Its row stays, for the others."""
        errand = self._errand
        with errand.kept([vector_id]):
            id = current(errand.place.view(), errand.name(str(vector_id)))
            if id is not None:
                errand.place.retract([id])

    def take_back(self, owner: Mapping[str, object]) -> None:
        """Take back all visible memories of an owner, from here on: those without a row, too."""
        place = self._errand.place
        ours = [one for one in place.view().memories() if collection_of(one) == self._collection]
        if taken := [one.id for one in ours if _belongs(payload_of(one), owner)]:
            place.retract(taken)

    def _write(self, memories: Sequence[Memory], vectors: Sequence[Any], payloads: Sequence[Any]) -> None:
        """Rows first, then events: a row without an event is hidden, an event without a row could not be found."""
        errand, inner = self._errand, self._inner
        errand.renamed.update(errand.place.name(memories))
        rows: dict[str, tuple[Any, dict[str, Any]]] = {}
        for memory, vector, payload in zip(memories, vectors, payloads, strict=True):
            id = errand.name(memory.id)
            if id == memory.id or inner.get(vector_id=row_id(id)) is None:
                rows[id] = (vector, {**payload, MARK: id})
        if rows:
            inner.insert(
                vectors=[vector for vector, _ in rows.values()],
                payloads=[payload for _, payload in rows.values()],
                ids=[row_id(id) for id in rows],
            )
        written = [memory for memory in memories if memory.id in rows]
        try:
            known = errand.place.write(written) if written else {}
        except Exception:
            for id in rows:
                if id not in errand.place.store.log:
                    with suppress(Exception):  # what was raised first is told, and the row is hidden anyway
                        inner.delete(vector_id=row_id(id))
            raise
        errand.renamed.update(known)
        for id in known:
            inner.delete(vector_id=row_id(id))

    def _keep(self, rows: Iterable[Any]) -> Sequence[Row]:
        """The rows of visible memories, each once, in their order."""
        view = self._errand.place.view()
        found: dict[str, Any] = {}
        for row in rows:
            found.setdefault(memory_id(row), row)
        memories = (shown(view, id) for id in view.filter(found))
        return [Row(one.id, payload_of(one), getattr(found[one.id], "score", None)) for one in memories if one]


def enough(fetch: Callable[[int], Any], keep: Callable[[Any], Sequence[Row]], wanted: int | None) -> list[Row] | None:
    """The first `wanted` kept of what `fetch` gives, or all where it gives no more; None where it gives None.

    A vector store that gives fewer rows than it was asked for has no more.
    Cost: as many rows as hide the ones that are wanted, in a few calls, each for four times more.
    """
    if wanted is not None and wanted <= 0:
        return []
    count = _PAGE if wanted is None else wanted
    while True:
        rows = fetch(count)
        if rows is None:
            return None
        kept = keep(rows)
        if len(rows) < count or (wanted is not None and len(kept) >= wanted):
            return list(kept[:wanted])
        count *= _MORE


def _belongs(payload: Mapping[str, object], owner: Mapping[str, object]) -> bool:
    """Whether a payload names an owner, whose ids Mem0 makes into trimmed strings."""
    return all(str(payload.get(name)).strip() == str(id).strip() for name, id in owner.items())


def asking(method: Any, count: int) -> dict[str, int]:
    """The argument that asks a method of a vector store for so many rows, which Mem0 1 calls `limit`."""
    return {"limit" if "limit" in signature(method).parameters else "top_k": count}


def listed(answer: Any) -> list[Any]:
    """The rows in what a vector store's `list` gives: in a list, in a list of lists, or beside a mark for the next."""
    if isinstance(answer, (list, tuple)) and answer and isinstance(answer[0], (list, tuple)):
        return list(answer[0])
    return list(answer or ())


def everything(inner: Any, filters: Any = None) -> list[Any]:
    """All rows of a vector store that fit."""
    found: list[Any] | None = enough(
        lambda count: listed(inner.list(filters=filters, **asking(inner.list, count))), list, None
    )
    return found or []
