"""Neighbours through a graph (FAISS, HNSW), for stores of a million vectors: sooner than by reading every vector.

The view decides what may be found: the graph is asked with its bitmap as selector, and whatever it nominates is
compared exactly.  Where a view shows less than a tenth of the vectors, where filters or fading take too many of the
nominated away, and for a step's view, the exact scan answers.

The one ranker that what is hidden may influence: the ways through the graph lead over hidden memories, so that which
of the visible ones are found may depend on them.  Scores do not, and nothing hidden is ever found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from branchmem.extra import extra
from branchmem.recall.hits import each
from branchmem.recall.vectors import space_of, unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from branchmem import Store, View, _core
    from branchmem.embedders import Embedder
    from branchmem.recall.index import Index
    from branchmem.recall.vectors import Space

#: A smaller share that is visible is scanned: filtered search in a graph loses neighbours there.
LEAST_SHARE: Final = 0.1
#: Fewer vectors are scanned in less time than a graph needs.
LEAST_VECTORS: Final = 1_000

#: Links of a node on each level; twice as many on the lowest.
_LINKS: Final = 32
_BUILD_WIDTH: Final = 80
_LEAST_SEARCH_WIDTH: Final = 64
#: So many times what is wanted is nominated.
_WIDER: Final = 2
#: The graph takes in what came later once it is so much: until then that is scanned.
_LATER_SHARE: Final = 0.02
_LATER_LEAST: Final = 1_000

#: So many texts a ranker nominates at least, and so many times as many as are wanted.
_LEAST_DEPTH: Final = 100
_DEPTH: Final = 10


class Graph:
    """The vectors of one embedder as nodes of a graph, as they were when it was made or last grew."""

    def __init__(self, dim: int) -> None:
        faiss = require_faiss()
        self._faiss = faiss
        self._nodes = faiss.IndexHNSWFlat(dim, _LINKS, faiss.METRIC_INNER_PRODUCT)
        self._nodes.hnsw.efConstruction = _BUILD_WIDTH
        self._ordinals: Any = None
        self._place: Any = None

    def __len__(self) -> int:
        return int(self._nodes.ntotal)

    def grow(self, ordinals: NDArray[np.uint32], rows: NDArray[np.float32]) -> None:
        """Take in the vectors that are not in it yet.  Cost: about a millisecond each, on all cores."""
        import numpy as np

        size = int(ordinals.max(initial=0)) + 1
        place = np.full(max(size, 0 if self._place is None else len(self._place)), -1, np.int64)
        if self._place is not None:
            place[: len(self._place)] = self._place
        new = place[ordinals] < 0
        place[ordinals[new]] = len(self) + np.arange(int(new.sum()))
        known = self._ordinals
        self._nodes.add(np.ascontiguousarray(rows[new]))
        self._ordinals = ordinals[new] if known is None else np.concatenate([known, ordinals[new]])
        self._place = place

    def nominate(self, shown: NDArray[np.uint32], vector: NDArray[np.float32], count: int) -> NDArray[np.uint32]:
        """Ordinals of about the `count` nearest of those shown, and of all of them that are not in the graph yet."""
        import numpy as np

        within = np.full(len(shown), -1, np.int64)
        known = shown < len(self._place)
        within[known] = self._place[shown[known]]
        places, later = within[within >= 0], shown[within < 0]
        if not len(places):
            return later
        bits = np.zeros(len(self), bool)
        bits[places] = True
        selector = self._faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
        width = max(_LEAST_SEARCH_WIDTH, count * len(self) // len(places))
        parameters = self._faiss.SearchParametersHNSW(sel=selector, efSearch=min(width, len(self)))
        _, found = self._nodes.search(vector[None, :], min(count, len(places)), params=parameters)
        near = found[0][found[0] >= 0]
        return np.sort(np.concatenate([self._ordinals[near], later])).astype(np.uint32)


def require_faiss() -> Any:
    """FAISS, which is an extra.  Raises: ExtraMissing."""
    with extra("faiss", wanted="approximate searches", name="faiss", package="faiss-cpu"):
        import faiss
    return faiss


def near(
    store: Store, index: Index, embedder: Embedder, view: View, k: int, vector: NDArray[np.float32]
) -> NDArray[np.uint32] | None:
    """Ordinals of what the graph takes for nearest among what a view shows, for a search; None: compare all.

    The vectors of all that the view shows must have been prepared.
    Cost: the first time builds the graph, and anew after something in it was erased; then some hundred vectors.
    """
    space = space_of(store, index, embedder)
    return _nominated(store, space, view, vector, _WIDER * max(_LEAST_DEPTH, _DEPTH * k))


def nearest(
    store: Store,
    index: Index,
    embedder: Embedder,
    words: _core.SearchIndex,
    view: View,
    vector: NDArray[np.float32],
    k: int,
) -> list[tuple[str, float]] | None:
    """As `Vectors.nearest`, through the graph; None: scan all.  Cost: as `search`."""
    space = space_of(store, index, embedder)
    near = _nominated(store, space, view, vector, max(_LEAST_DEPTH, _WIDER * k))
    if near is None:
        return None
    ranked, _ = words.search(near, None, k, vectors=space.vectors, vector=vector)
    return each(ranked, k)


def _nominated(
    store: Store, space: Space, view: View, vector: NDArray[np.float32], count: int
) -> NDArray[np.uint32] | None:
    """Ordinals with about the `count` nearest that a view shows among them; None where all of it is to be scanned."""
    shown, known = view.ordinals(), len(space.vectors)
    if known < LEAST_VECTORS or len(shown) < LEAST_SHARE * known or len(shown) <= _WIDER * count:
        return None
    with space.graphing:
        return _current(store, space).nominate(shown, unit(vector[None, :])[0], count)


def _current(store: Store, space: Space) -> Graph:
    """The graph, of all vectors but some that came of late."""
    vectors = space.vectors
    if len(vectors) < space.put:  # some were erased: the graph would keep them
        space.put, space.graph = len(vectors), None
    graph = space.graph
    if graph is None or len(vectors) - len(graph) > max(_LATER_LEAST, _LATER_SHARE * len(vectors)):
        graph = graph or Graph(vectors.dim)
        ids, rows = vectors.rows()
        graph.grow(store._engine.memory_ordinals(ids), rows)
        space.graph = graph
    return graph
