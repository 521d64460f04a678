"""The vectors of memories, an embedder each: made once a text, kept in the file, loaded as views ask for them.

The file keeps those of each embedder in a table under its name.  With them it keeps the vector of one fixed sentence:
whoever uses the name later must give the same one, so that two models never mix.  A vector goes with the commit that
erases its memory; what is embedded meanwhile is not written.  All can be made anew from the log, so that whoever is
killed leaves less work, never damage.  How vectors are compared is decided elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from branchmem import Memory
from branchmem.appending import vector_key
from branchmem.embedders import embed, name_of, named
from branchmem.errors import DimensionMismatch, EmbedderMismatch, InvalidSearch, StoreDamaged
from branchmem.eventlog import body_of, skeleton_of
from branchmem.events import event_from_bytes
from branchmem.log.tables import VECTORS
from branchmem.recall.index import Index, index_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from branchmem import Store, View, _core
    from branchmem.embedders import Embedder
    from branchmem.log import Reader, Writer
    from branchmem.recall.approximate import Graph

    Shown = View | NDArray[np.uint32]
    #: Memories by id, each with its position in the log.
    Places = Sequence[tuple[str, int]]

#: In the table `vectors:<name>`: b"meta" → the vector of this sentence; b"v" + position in the log, 8 bytes → that of
#: the memory there.  Float32, little-endian, of length 1, or zeros.
CANARY: Final = "The user moved to Hangzhou in spring and drinks green tea: 用户春天搬到了杭州，爱喝绿茶。"
_CANARY_KEY: Final = b"meta"
#: Two vectors of the sentence that are less alike come from two models; the same one rounds in its own ways.
_LEAST_COSINE: Final = 0.99

#: So many texts are embedded in one call, and their vectors written in one commit.
_BATCH: Final = 256
#: So many vectors are loaded in one snapshot.
_PAGE: Final = 1_000

#: What is told how many are done, and of how many.
Progress = Callable[[int, int], object]


@dataclass(eq=False)
class Space:
    """The vectors under one name, as one open store has them in memory."""

    name: str
    embedder: Embedder
    #: The vector of the fixed sentence: (dim,), of length 1 or 0.
    canary: NDArray[np.float32]
    vectors: _core.Vectors
    #: Held by whoever embeds, unless it is at work on the file: then others may wait for it.
    embedding: threading.RLock = field(default_factory=threading.RLock)
    #: How many vectors there are, if none was erased.
    put: int = 0
    #: Held by whoever makes or grows the graph.
    graphing: threading.Lock = field(default_factory=threading.Lock)
    #: What finds neighbours sooner, where the store was told to look so.
    graph: Graph | None = None

    @property
    def table(self) -> str:
        """The name of its table in the file."""
        return VECTORS + self.name


def embed_with(store: Store, embedder: Embedder | None, *, name: str | None = None, approximate: bool = False) -> None:
    """What the searches of an open store embed with from now on; None: nothing.

    Raises: InvalidEmbedder; ExtraMissing where `approximate` and FAISS is not installed.
    """
    if embedder is not None:
        embedder = named(name, embedder) if name is not None else embedder
        name_of(embedder)
        if approximate:
            from branchmem.recall.approximate import require_faiss

            require_faiss()
    index = index_of(store)
    index.embedder, index.approximate = embedder, approximate and embedder is not None
    store._nearby = None


def embed_all(store: Store, progress: Progress | None = None) -> int:
    """Embed every memory that has no vector of the store's embedder yet, and say how many that were.

    Raises: InvalidSearch without an embedder; as `prepare`.
    """
    import numpy as np

    index = index_of(store)
    if index.embedder is None:
        raise InvalidSearch("embedder", None, "there is none: store.embed_with(embedder) first")
    space = space_of(store, index, index.embedder)
    return _complete(store, space, np.arange(store._fresh().memory_count(), dtype=np.uint32), progress)


def prepare(store: Store, index: Index, embedder: Embedder, shown: Shown) -> _core.Vectors:
    """The vectors of an embedder, one for each of these memories that has content; a view or ordinals say which.

    Those that the file lacks are embedded and written, 256 in a commit.  Where the store is open for reading only, or
    this thread is inside of a transaction, they are kept in memory alone.
    Raises: DimensionMismatch, EmbedderMismatch where the name is another model's; BadEmbedding; TooManyEmbedders;
    what the embedder raises: what was done by then stays done; the errors of a store.
    Cost: nothing where all are in memory; some microseconds each that the file has; the embedder for the rest.
    """
    space = space_of(store, index, embedder)
    _complete(store, space, shown, None)
    return space.vectors


def space_of(store: Store, index: Index, embedder: Embedder) -> Space:
    """The vectors under the name of an embedder, once it is certain that they are of this model.

    Raises: DimensionMismatch; EmbedderMismatch; InvalidEmbedder; BadEmbedding.
    Cost: for an embedder that was not seen under this name before, one sentence.
    """
    name = name_of(embedder)
    known = index.spaces.get(name)
    if known is not None and known.embedder is embedder:
        return known
    canary = unit(embed(embedder, [CANARY]))[0]
    kept = store.snapshot(lambda reader: reader.table(VECTORS + name).get(_CANARY_KEY), tables=[VECTORS + name])
    if kept is not None:
        _refuse_another(name, _row(store.path, name, kept), canary)
        if known is not None and not _is_same(known.canary, canary):  # that one was used before the file had any
            index.forget(name)
            known = None
    if known is None:
        known = index.spaces.setdefault(name, Space(name, embedder, canary, index.vectors(name, len(canary))))
    _refuse_another(name, known.canary, canary)  # where nothing is kept; and another thread may have come first
    known.embedder = embedder
    return known


def _is_same(known: NDArray[np.float32], given: NDArray[np.float32]) -> bool:
    """Whether two vectors of the sentence are of one model."""
    return len(known) == len(given) and _cosine(known, given) >= _LEAST_COSINE


def _cosine(known: NDArray[np.float32], given: NDArray[np.float32]) -> float:
    return float(known @ given) if known.any() or given.any() else 1.0


def _refuse_another(name: str, known: NDArray[np.float32], given: NDArray[np.float32]) -> None:
    """Raises: DimensionMismatch, EmbedderMismatch where two vectors of the sentence are of two models."""
    if len(known) != len(given):
        raise DimensionMismatch(name, len(known), len(given))
    if not _is_same(known, given):
        raise EmbedderMismatch(name, _cosine(known, given))


def _complete(store: Store, space: Space, shown: Shown, progress: Progress | None) -> int:
    """Load or make what these memories lack; how many were embedded."""
    if not space.vectors.missing(shown):
        return 0
    if store._log.is_at_work:  # who holds the lock may wait until this thread is done
        return _embed(store, space, _load(store, space, space.vectors.missing(shown)), progress, keep=False)
    with space.embedding:
        missing = _load(store, space, space.vectors.missing(shown))
        return _embed(store, space, missing, progress, keep=not store._log.readonly)


def _load(store: Store, space: Space, missing: Places) -> Places:
    """Load the vectors that the file has, and say what it lacks.

    Raises: DimensionMismatch, EmbedderMismatch where they are of a model that another process gave the name meanwhile.
    """
    import numpy as np

    lacking: list[tuple[str, int]] = []
    for start in range(0, len(missing), _PAGE):
        page = missing[start : start + _PAGE]
        kept, *values = store.snapshot(partial(_values, space.table, page), tables=[space.table])
        if kept is not None:
            _refuse_another(space.name, _row(store.path, space.name, kept), space.canary)
        there = [place for place, value in zip(page, values, strict=True) if value is not None]
        lacking += (place for place, value in zip(page, values, strict=True) if value is None)
        if there:
            rows = [_row(store.path, space.name, value, len(space.canary)) for value in values if value is not None]
            _put(space, [id for id, _ in there], np.array(rows))
    return lacking


def _values(table: str, page: Places, reader: Reader) -> list[bytes | None]:
    """The vector of the sentence, and those of these memories."""
    kept = reader.table(table)
    return [kept.get(_CANARY_KEY), *(kept.get(vector_key(seq)) for _, seq in page)]


def _embed(store: Store, space: Space, missing: Places, progress: Progress | None, *, keep: bool) -> int:
    """Embed memories, a batch after the other, and, unless not `keep`, write each when it is done."""
    done = 0
    for start in range(0, len(missing), _BATCH):
        batch = missing[start : start + _BATCH]
        texts = store._log.read(partial(_texts, store._engine, batch))
        there = [place for place, text in zip(batch, texts, strict=True) if text is not None]
        rows = unit(embed(space.embedder, [text for text in texts if text is not None], len(space.canary)))
        if keep and there:
            store.transact(partial(_write, store._engine, space, there, rows), tables=[space.table])
        if there:
            _put(space, [id for id, _ in there], rows)
        done += len(there)
        if progress is not None:
            progress(min(start + _BATCH, len(missing)), len(missing))
    return done


def _texts(engine: _core.Engine, batch: Places, reader: Reader) -> list[str | None]:
    """The text of each memory, None where it was erased."""
    bodies = [body_of(engine, reader, id, seq) for id, seq in batch]
    return [
        None if body is None else cast(Memory, event_from_bytes(skeleton_of(engine, id)[1], body)).text
        for (id, _), body in zip(batch, bodies, strict=True)
    ]


def _write(
    engine: _core.Engine, space: Space, places: Places, rows: NDArray[np.float32], writer: Writer
) -> tuple[tuple[()], None]:
    """Write vectors, but of what was erased since it was read; before the first, the vector of the sentence."""
    table = writer.table(space.table)
    kept = table.get(_CANARY_KEY)
    if kept is None:
        table.put(_CANARY_KEY, _bytes(space.canary))
    else:
        _refuse_another(space.name, _row(writer.path, space.name, kept), space.canary)
    erases = engine.has_erasures()
    for (id, seq), row in zip(places, rows, strict=True):
        if not (erases and engine.is_erased(id)):
            table.put(vector_key(seq), _bytes(row))
    return (), None


def _put(space: Space, ids: list[str], rows: NDArray[np.float32]) -> None:
    """Take vectors in, but of what was erased since its text was read."""
    space.vectors.put(ids, rows)
    space.put += len(ids)


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length 1; zeros stay zeros."""
    import numpy as np

    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.ascontiguousarray(wide / np.where(lengths > 0, lengths, 1), np.float32)


def _bytes(row: NDArray[np.float32]) -> bytes:
    return row.astype("<f4").tobytes()


def _row(path: str, name: str, value: bytes, dim: int | None = None) -> NDArray[np.float32]:
    """The vector in a value of the table.  Raises: StoreDamaged."""
    import numpy as np

    if not value or len(value) % 4 or (dim is not None and len(value) != 4 * dim):
        raise StoreDamaged(path, f"a vector of embedder {name} has {len(value)} bytes")
    return np.frombuffer(value, "<f4").astype(np.float32)
