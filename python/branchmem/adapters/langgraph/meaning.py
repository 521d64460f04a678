"""Items by meaning: which texts of a value are embedded, and how near an item is to a query.

As LangGraph's own stores do it: a vector for each path that is indexed, embedded when the item is put; an item is as
near as the nearest of its vectors; items without any come last.  Only what a view shows is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langgraph.store.base import IndexConfig, PutOp, SearchOp, ensure_embeddings, get_text_at_path, tokenize_path

from branchmem.adapters.langgraph.items import Found
from branchmem.errors import BadEmbedding, DimensionMismatch, InvalidSearch

#: The vectors of each put, and that of each query.
Vectors = tuple[list[list[list[float]]], dict[str, list[float]]]


class Meaning:
    """How a store embeds, from LangGraph's index configuration: `dims`, `embed`, `fields`.

    Raises: BadEmbedding for what is not one row of finite numbers a text; DimensionMismatch.
    """

    def __init__(self, index: IndexConfig) -> None:
        embed = index.get("embed")
        if embed is None:
            raise InvalidSearch("index", dict(index), "it needs embed: a function from texts to vectors, or Embeddings")
        self._embeddings = ensure_embeddings(embed)
        self._dims = index.get("dims")
        self._fields = list(index.get("fields") or ["$"])

    def vectors(self, puts: Sequence[PutOp], searches: Sequence[SearchOp]) -> Vectors:
        """The vectors of what is put, and of what is searched for."""
        texts, queries = self._texts(puts), _queries(searches)
        rows = self._embeddings.embed_documents(_flat(texts)) if _flat(texts) else []
        return self._split(texts, rows), {
            query: self._checked([query], [self._embeddings.embed_query(query)])[0] for query in queries
        }

    async def avectors(self, puts: Sequence[PutOp], searches: Sequence[SearchOp]) -> Vectors:
        """As `vectors`, by the asynchronous side of the embedder."""
        texts, queries = self._texts(puts), _queries(searches)
        rows = await self._embeddings.aembed_documents(_flat(texts)) if _flat(texts) else []
        return self._split(texts, rows), {
            query: self._checked([query], [await self._embeddings.aembed_query(query)])[0] for query in queries
        }

    def _texts(self, puts: Sequence[PutOp]) -> list[list[str]]:
        return [self._texts_of(op.value, op.index) for op in puts]

    def _texts_of(self, value: Mapping[str, Any] | None, index: Literal[False] | list[str] | None) -> list[str]:
        if value is None or index is False:
            return []
        fields = self._fields if index is None else index
        paths = [field if field == "$" else tokenize_path(field) for field in fields]
        return [text for path in paths for text in get_text_at_path(dict(value), path)]

    def _split(self, texts: Sequence[Sequence[str]], given: Any) -> list[list[list[float]]]:
        waiting = iter(self._checked(_flat(texts), given))
        return [[next(waiting) for _ in each] for each in texts]

    def _checked(self, texts: list[str], given: Any) -> list[list[float]]:
        import numpy as np

        if not texts:
            return []
        try:
            with np.errstate(over="ignore"):
                rows = np.asarray(given, np.float32)
        except (TypeError, ValueError):
            raise BadEmbedding("index", f"it gave {type(given).__name__} for {len(texts)} texts") from None
        if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1]:
            raise BadEmbedding("index", f"it gave the shape {rows.shape} for {len(texts)} texts")
        if self._dims is not None and rows.shape[1] != self._dims:
            raise DimensionMismatch("index", self._dims, rows.shape[1])
        if not np.isfinite(rows).all():
            raise BadEmbedding("index", "it gave NaN, or a number beyond what float32 can hold")
        checked: list[list[float]] = rows.tolist()
        return checked


def nearest(found: Sequence[Found], query: Sequence[float]) -> list[tuple[Found, float | None]]:
    """Items by the cosine of the nearest of their vectors, best first; those without vectors last, without one."""
    scored: list[tuple[Found, float | None]] = [(item, _cosine(item, query)) for item in found]
    return sorted(scored, key=lambda pair: (pair[1] is None, -(pair[1] or 0.0)))


def _cosine(item: Found, query: Sequence[float]) -> float | None:
    import numpy as np

    rows = item.vectors().astype(np.float64)
    if not rows.size:
        return None
    asked = np.asarray(query, np.float64)
    if rows.shape[1] != asked.size:
        raise DimensionMismatch("index", rows.shape[1], asked.size)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(asked)
    return float(np.max(rows @ asked / np.where(lengths > 0, lengths, 1)))


def _queries(searches: Sequence[SearchOp]) -> list[str]:
    return list(dict.fromkeys(op.query for op in searches if op.query))


def _flat(texts: Sequence[Sequence[str]]) -> list[str]:
    return [text for each in texts for text in each]
