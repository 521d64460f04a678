"""What the search of an open store holds in memory: words, vectors, last uses; and how these keep up with the log.

Nothing of it is kept on disk, and nothing is read before the first search: a search catches up with the log before it
ranks.  What an append erases is gone from here when the append returns.  What may be ranked, and how, is not decided
here.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from branchmem import _core
from branchmem.eventlog import body_of
from branchmem.recall import access
from branchmem.recall.decay import Decay, checked

if TYPE_CHECKING:
    from branchmem import Store
    from branchmem.embedders import Embedder
    from branchmem.log import Reader
    from branchmem.recall.vectors import Space

#: So many memories are read in one snapshot.
_PAGE: Final = 1000
#: What the words and fields of a memory take, of a dozen words; a number of a vector with its code; and such a number
#: in a graph, with the links of its node.
_MEMORY_BYTES: Final = 200
_NUMBER_BYTES: Final = 5
_NODE_BYTES: Final = 6


class Index:
    """What one open store is searched with.  Safe under threads."""

    def __init__(self, store: Store) -> None:
        # the store holds the index: held strongly in turn, neither would go before the collector comes
        self._store_ref = weakref.ref(store)
        self._words: _core.SearchIndex | None = None
        self._vectors: dict[tuple[str, int], _core.Vectors] = {}
        #: What is known about the embedders that were used, by name.
        self.spaces: dict[str, Space] = {}
        self._reading = threading.Lock()
        self._changing = threading.Lock()
        self._changes = 0
        self._uses_as_of = -1
        self._last_use = 0
        #: What texts are embedded with, unless a call names another.
        self.embedder: Embedder | None = None
        #: Whether vectors are searched approximately where that pays.
        self.approximate = False
        self._decay = Decay()

    @property
    def decay(self) -> Decay:
        """How memories fade, unless a call says otherwise: `Decay()` until it is set.  Raises: InvalidDecay."""
        return self._decay

    @decay.setter
    def decay(self, decay: Decay) -> None:
        self._decay = checked(decay)

    @property
    def memory_bytes(self) -> int:
        """About how much memory all of it takes: an estimate from the numbers of memories and vectors."""
        words = 0 if self._words is None else len(self._words)
        numbers = sum(len(vectors) * vectors.dim for vectors in list(self._vectors.values()))
        nodes = sum(len(space.graph) * space.vectors.dim for space in list(self.spaces.values()) if space.graph)
        return _MEMORY_BYTES * words + _NUMBER_BYTES * numbers + _NODE_BYTES * nodes

    def current(self) -> _core.SearchIndex:
        """The words, fields and last uses of all memories of the log as it is now.

        Raises: StoreClosed and the other errors of a store.
        Cost: what was appended since the last search; the first time, reads all memories.
        """
        store = self._store
        engine = store._fresh()
        words = self._made(engine)
        wanted, changes = engine.memory_count(), self._changes  # as of now, however much comes meanwhile
        at_work = store._log.is_at_work
        while len(words) < wanted or self._uses_as_of < changes:
            # at work on the file, it does not wait: who has the turn may wait until this thread is done with that
            with nullcontext() if at_work else self._reading:
                self._catch_up(store, engine, words)
            if at_work and len(words) >= wanted:  # its snapshot may lack uses: they are asked for again
                break
        return words

    def vectors(self, name: str, dim: int) -> _core.Vectors:
        """The vectors of the embedder with this name, of this dimension: one for all its searches."""
        with self._changing:
            found = self._vectors.get((name, dim))
            if found is None:
                found = self._vectors[name, dim] = _core.Vectors(self._store._engine, dim)
            return found

    def forget(self, name: str) -> None:
        """Let go of what is known about the embedder with this name, and of its vectors in memory."""
        with self._changing:
            self.spaces.pop(name, None)
            self._vectors = {key: vectors for key, vectors in self._vectors.items() if key[0] != name}

    def take_in(self, first: int, bodies: list[bytes | None]) -> None:
        """Take in memories that the store has just appended, the ordinal of the first and their bodies.

        Where the index is behind, the next search reads them.  Must not wait for a reader, as `log_changed`.
        """
        with self._changing:
            if self._words is not None and len(self._words) == first:
                self._words.add(bodies)

    def log_changed(self) -> None:
        """Drop what is erased by now.  The store calls this after whatever it takes in, before its caller is answered.

        Must not wait for a reader: who appends keeps the map where it is.
        """
        self._changes += 1
        if self._store._engine.has_erasures():
            with self._changing:
                if self._words is not None:
                    self._words.forget_erased()
                if sum(vectors.forget_erased() for vectors in self._vectors.values()):
                    for space in list(self.spaces.values()):
                        space.graph = None

    @property
    def _store(self) -> Store:
        store = self._store_ref()
        if store is None:
            raise ReferenceError("the store of this index is gone: keep it while it is searched")
        return store

    def _made(self, engine: _core.Engine) -> _core.SearchIndex:
        with self._changing:
            if self._words is None:
                self._words = _core.SearchIndex(engine, os.urandom(32))
            return self._words

    def _catch_up(self, store: Store, engine: _core.Engine, words: _core.SearchIndex) -> None:
        """Take in the next memories, unless another thread does so meanwhile, and the uses since the last time."""
        changes, seen = self._changes, self._last_use
        with self._changing:
            start, missing = len(words), words.behind(_PAGE)

        def read(reader: Reader) -> tuple[list[bytes | None], int, list[tuple[str, int]]]:
            return [body_of(engine, reader, id, seq) for id, seq in missing], *access.newer(reader, seen)

        bodies, newest, uses = store._log.read(read, tables=access.TABLES)
        with self._changing:
            if len(words) == start:
                if engine.has_erasures():  # what was erased after it was read must not come in after `log_changed`
                    erased = [engine.is_erased(id) for id, _ in missing]
                    bodies = [None if gone else body for gone, body in zip(erased, bodies, strict=True)]
                words.add(bodies)
        known = [(id, at) for id, at in uses if engine.is_memory(id)]
        words.use([id for id, _ in known], [at for _, at in known])
        if store._log.is_at_work:  # its snapshot may be older than the last change, and is not durable where it writes
            return
        if len(known) == len(uses):  # else the file is ahead of the engine: what it brings is asked for again
            self._last_use = max(self._last_use, newest)
        self._uses_as_of = max(self._uses_as_of, changes)


def index_of(store: Store) -> Index:
    """What an open store is searched with: one for all its views, made at the first call."""
    found = store._index
    return vars(store).setdefault("_index", Index(store)) if found is None else found
