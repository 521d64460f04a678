"""One search under a view: its arguments checked, what it needs brought up to date, the ranking made into hits.

The view is taken first, and only what it shows is ranked, with statistics of that alone.  A step's view is ranked with
the step's own memories, which the log does not have yet.  How texts are ranked and fused is compiled
(`_core.SearchIndex`).
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from branchmem import StepView, Store
from branchmem.embedders import Embedder, embed, embed_query, name_of
from branchmem.errors import DimensionMismatch, InvalidSearch
from branchmem.recall import approximate, filters
from branchmem.recall.decay import checked
from branchmem.recall.hits import LEXICAL, VECTOR, Contents, Hits, each
from branchmem.recall.index import Index, index_of
from branchmem.recall.vectors import prepare, unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from branchmem import Memory, View
    from branchmem.recall.decay import Decay
    from branchmem.verdict import Verdict

Ranker = Literal["lexical", "vector"]

_NO_EMBEDDER: Final = "lexical only: no embedder"


@dataclass(frozen=True, slots=True)
class Shown:
    """What is ranked: memories of the log, and those that a step has alone; and how what is found is read."""

    log: View | NDArray[np.uint32]
    """A view, or the ordinals of what one shows."""
    read: Callable[[list[str]], list[Memory]]
    explain: Callable[[str], Verdict]
    own: Sequence[Memory] = ()


def search(
    store: Store,
    view: View | StepView,
    query: str,
    k: int = 10,
    *,
    kind: object = None,
    key: object = None,
    created: object = None,
    importance: object = None,
    meta: Mapping[str, object] | None = None,
    by: Ranker | None = None,
    embedder: Embedder | None = None,
    include_faded: bool = False,
    decay: Decay | None = None,
    now: datetime | None = None,
) -> Hits:
    """The visible memories that fit a query, best first: at most `k` distinct texts.

    Ranked are words (BM25, with the statistics of what the view shows alone; characters and their pairs for Chinese,
    Japanese and Korean) and, where there is an embedder, meaning (cosine); with both, ranks are fused (reciprocal
    ranks, k = 60).  `by` asks for one of them.  Equal texts are one hit.

    `kind`, `key`, `created`, `importance` and `meta` leave out what does not fit: each is a value, or a mapping of
    operators, `$eq $ne $gt $gte $lt $lte $in`; `meta` maps fields to these.  What has faded (`decay`, by default that
    of the store, as of `now`) is left out and counted, unless `include_faded`.  Neither changes any score.

    Units: scores compare within one search: BM25, the cosine, or, fused, the sum of 1 / (60 + rank).
    Raises: InvalidSearch; InvalidFilter; DimensionMismatch, EmbedderMismatch, BadEmbedding about the embedder; the
    errors of a store, which must be open.
    Cost: catches up with the log; then the memories that have a word of the query, and with an embedder one vector each
    that the view shows.
    Source: Robertson & Zaragoza, The Probabilistic Relevance Framework, 2009; Cormack, Clarke & Buettcher, SIGIR 2009.
    """
    conditions = filters.compiled(kind=kind, key=key, created=created, importance=importance, meta=meta)
    _check(query, k, by)
    shown = shown_by(store, view)
    index = index_of(store)
    embedder = index.embedder if embedder is None else embedder
    if by == VECTOR and embedder is None:
        raise InvalidSearch("by", by, "there is no embedder: store.embed_with(embedder), or pass embedder=")
    rankers = (by,) if by else (LEXICAL,) if embedder is None else (LEXICAL, VECTOR)
    fading = None if include_faded else (index.decay if decay is None else checked(decay)).fading(now)
    words = index.current()
    text = query if LEXICAL in rankers else None
    if embedder is None or VECTOR not in rankers:
        ranked, faded = words.search(shown.log, text, k, conditions=conditions, fading=fading, own=fields(shown.own))
    else:
        vectors = prepare(store, index, embedder, shown.log)
        vector = embed_query(embedder, query, vectors.dim)
        ranked, faded = words.search(
            shown.log,
            text,
            k,
            conditions=conditions,
            fading=fading,
            vectors=vectors,
            vector=vector,
            near=_near(store, index, embedder, view, k, vector),
            own=fields(shown.own),
            own_vectors=_rows(embedder, shown.own, vectors.dim),
        )
    return Hits(
        ranked,
        Contents(ranked, shown.read, shown.explain),
        query=query,
        rankers=rankers,
        faded=faded,
        note=_NO_EMBEDDER if by is None and embedder is None else None,
    )


def nearest(
    store: Store, view: View | StepView, vector: NDArray[np.float32], k: int = 10, *, embedder: Embedder | None = None
) -> list[tuple[str, float]]:
    """The visible memories nearest to a vector, best first: at most `k` ids, each with its cosine.

    Each memory stands by itself, whatever others say the same; none is left out as faded.  `vector` is (dim,), of any
    length.
    Raises: InvalidSearch, also without an embedder, whose vectors these are; as `search`.
    Cost: one vector each that the view shows; those that have none yet are embedded.
    """
    _check_k(k)
    shown = shown_by(store, view)
    index = index_of(store)
    embedder = index.embedder if embedder is None else embedder
    if embedder is None:
        raise InvalidSearch("embedder", None, "whose vectors are meant? store.embed_with(embedder), or pass embedder=")
    words = index.current()
    vectors = prepare(store, index, embedder, shown.log)
    asked = _checked_vector(embedder, vector, vectors.dim)
    if embedder is index.embedder and not index.approximate:
        store._nearby = vectors
        if embedder is not index.embedder or index.approximate:  # another thread has just said what else to embed with
            store._nearby = None
    found = None
    if not isinstance(view, StepView):
        if index.approximate:
            found = approximate.nearest(store, index, embedder, words, view, asked, k)
        found = found or vectors.nearest(view, asked, k)
    if found is None:  # a step's view, or the file is ahead and has no content any more for what is shown
        ranked, _ = words.search(
            shown.log,
            None,
            k,
            vectors=vectors,
            vector=asked,
            own=fields(shown.own),
            own_vectors=_rows(embedder, shown.own, vectors.dim),
        )
        found = each(ranked, k)
    return found


def cosines_of(
    store: Store, memories: Sequence[Memory], vector: NDArray[np.float32], embedder: Embedder
) -> dict[str, float]:
    """The cosine of each of some memories with a vector, by id.  Of the log those whose vectors were prepared.

    Cost: what a step has alone is embedded.
    """
    import numpy as np

    if not memories:
        return {}
    index = index_of(store)
    logged = [memory.id for memory in memories if store._engine.is_memory(memory.id)]
    own = [memory for memory in memories if memory.id not in set(logged)]
    vectors = prepare(store, index, embedder, np.sort(store.memory_ordinals(logged)))
    found = dict(zip(logged, vectors.cosines(logged, vector), strict=True))
    rows = _rows(embedder, own, vectors.dim)
    if rows is not None:
        cosines = unit(rows) @ unit(vector[None, :])[0]
        found |= {memory.id: float(cosine) for memory, cosine in zip(own, cosines, strict=True)}
    return {id: cosine for id, cosine in found.items() if cosine is not None}


def _near(
    store: Store, index: Index, embedder: Embedder, view: View | StepView, k: int, vector: NDArray[np.float32]
) -> NDArray[np.uint32] | None:
    """What the graph nominates, where the store was told to ask one."""
    if not index.approximate or isinstance(view, StepView):
        return None
    return approximate.near(store, index, embedder, view, k, vector)


def shown_by(store: Store, view: View | StepView) -> Shown:
    """What a view shows.  Raises: InvalidSearch where there is no file behind it to read from."""
    if not isinstance(store, Store):
        raise InvalidSearch("view", view, "an engine without a file keeps no content: search a view of a store")
    if isinstance(view, StepView):
        return view._shown()
    return Shown(view, lambda ids: store._memories(ids, view), view.explain)


def _check(query: object, k: object, by: object) -> None:
    """Raises: InvalidSearch."""
    if not isinstance(query, str):
        raise InvalidSearch("query", query, "write what is looked for, as a string")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise InvalidSearch("query", query, "it has a lone surrogate, which is no text") from None
    _check_k(k)
    if by not in (None, LEXICAL, VECTOR):
        raise InvalidSearch("by", by, 'write "lexical", "vector", or nothing for all that there are')


def _check_k(k: object) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= sys.maxsize:
        raise InvalidSearch("k", k, "a number of hits is a whole number, from 0 to sys.maxsize")


def _checked_vector(embedder: Embedder, vector: object, dim: int) -> NDArray[np.float32]:
    """Raises: InvalidSearch; DimensionMismatch."""
    import numpy as np

    try:
        with np.errstate(over="ignore"):
            given = np.asarray(vector)
            kind = given.dtype.kind  # texts, times and complex numbers would be made numbers without a word
            if kind in "cSUmM" or (kind == "O" and not all(isinstance(one, numbers.Real) for one in given.flat)):
                raise TypeError(given.dtype)
            asked = given.astype(np.float32, copy=False)
    except (TypeError, ValueError, OverflowError):
        raise InvalidSearch("vector", vector, "a vector is a flat array of numbers") from None
    if asked.ndim != 1 or not np.isfinite(asked).all():
        raise InvalidSearch("vector", vector, "a vector is a flat array of finite numbers")
    if len(asked) != dim:
        raise DimensionMismatch(name_of(embedder), dim, len(asked))
    return np.ascontiguousarray(asked)


def fields(own: Sequence[Memory]) -> list[tuple[str, str, str | None, bytes]]:
    """Memories that the log does not have, in the form that ranking takes."""
    return [(memory.id, memory.kind, memory.key, memory.body()) for memory in own]


def _rows(embedder: Embedder, own: Sequence[Memory], dim: int) -> NDArray[np.float32] | None:
    return embed(embedder, [memory.text for memory in own], dim) if own else None
