"""The verbs of a store about searching what its views show: each calls the room that owns it.

What a search needs beside the log is local: vectors and last uses lie in tables of the file, words in memory.  None of
it is part of what the log says, and none of it makes anything visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from branchmem.branches import Branches

if TYPE_CHECKING:
    from branchmem.embedders import Embedder
    from branchmem.events import Memory
    from branchmem.questions import Anchor
    from branchmem.recall.decay import Decay
    from branchmem.recall.index import Index
    from branchmem.recall.why import Why


class Searches(Branches):
    """Embedding, fading, uses, and why something is remembered.  Searching itself is asked of a view."""

    #: What is kept in memory for searches, from the first one on.
    _index: Index | None = None

    @property
    def embedder(self) -> Embedder | None:
        """What texts are embedded with, unless a call names another; None: searches are lexical."""
        from branchmem.recall.index import index_of

        return index_of(self._store).embedder

    def embed_with(self, embedder: Embedder | None, *, name: str | None = None, approximate: bool = False) -> None:
        """Search by meaning as well, from now on and as long as this store is open; None: lexically alone.

        `embedder` takes a list of n texts to float32 (n, dim).  Its vectors are kept in the file under its name, so
        that each text is embedded once; another model needs another name.  Nothing is embedded before a search or
        `embed_all` asks.  `approximate` finds neighbours through a graph (FAISS) where a view shows a good part of
        the store: sooner, without a promise to find all, and what is hidden may then influence what is found.
        Raises: InvalidEmbedder where it has no name and none is given, or is no callable; ExtraMissing.
        """
        from branchmem.recall.vectors import embed_with

        embed_with(self._store, embedder, name=name, approximate=approximate)

    def embed_all(self, progress: Callable[[int, int], object] | None = None) -> int:
        """Embed every memory that has no vector of the store's embedder yet, and say how many that were.

        Searches embed what they need by themselves; this does it beforehand.  `progress` is told how many are done,
        and of how many.
        Raises: InvalidSearch without an embedder; DimensionMismatch; EmbedderMismatch; BadEmbedding; StoreFull.
        Cost: calls the embedder for 256 texts at a time, one commit each; who is killed goes on where that was.
        """
        from branchmem.recall.vectors import embed_all

        return embed_all(self._store, progress)

    @property
    def decay(self) -> Decay:
        """How memories fade that nobody uses, for searches of this open store: `Decay()` unless it is set."""
        from branchmem.recall.index import index_of

        return index_of(self._store).decay

    @decay.setter
    def decay(self, decay: Decay) -> None:
        from branchmem.recall.index import index_of

        index_of(self._store).decay = decay

    def used(self, memories: Iterable[str | Memory], *, at: datetime | None = None) -> int:
        """Note that memories were used, now or at a time: they begin to fade anew.  How many were noted.

        An earlier use than is known changes nothing.  Events stay as they are.
        Raises: UnknownEvent for what is no memory of the log: nothing is noted then; InvalidTime; StoreReadOnly.
        Cost: one commit.
        """
        from branchmem.recall.access import used

        return used(self._store, memories, at=at)

    def last_used(self, memories: Iterable[str | Memory]) -> dict[str, datetime]:
        """When memories, given as such or by their ids, were last used; one that never was is not there."""
        from branchmem.recall.access import last_used

        return last_used(self._store, memories)

    def why(self, text: str, *, at: Anchor = None) -> Why:
        """Every memory that contains a text, with its verdict; every message on the path that does; every answer that
        was written with such a memory in context.

        `at` is a ref, a message, or a list of them; None judges without an anchor.  Case and forms of letters do
        not matter.  What was erased is not found.
        Raises: InvalidSearch for a text that is nothing but space; UnknownRef for what is neither a ref nor a message;
        AmbiguousName; AmbiguousAnchor.
        Cost: reads the whole log.
        """
        from branchmem.recall.why import why

        return why(self._store, text, at=at)
