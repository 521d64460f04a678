"""Mem0 on a tree of messages: a Mem0 that stands at an anchor sees the memories of that path, and no others.

Mem0's `Memory` and `AsyncMemory` keep their methods.  They are filtered underneath, at the vector store, the entity
store and the database, since what Mem0 compares and what it shows its model is decided there.  Memories are
events of a store: an update is a new version, a delete is a retraction, both from the anchor on.  What a view shows is
the store's answer; Mem0 ranks what it is given.  Not covered is the graph store of Mem0 1.

stores    the vector stores of a Mem0, safe under threads
place     where a Mem0 stands: what is visible there, and how events are written
errand    one call: what Mem0 is shown, which sources its memories get
payloads  a row and a memory, each from the other
rows      the vector store as it looks from a place
entities  the entity store as it looks from a place
history   earlier messages, and what became of a memory, from the log
bound     Mem0's own class, at a place
upkeep    rows that Mem0 wrote alone, rows that are missing, rows that must go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from branchmem import Message, Step, Store
from branchmem.adapters.mem0 import upkeep
from branchmem.adapters.mem0.bound import Footing, bound
from branchmem.adapters.mem0.place import AtMessages, InStep, Place
from branchmem.adapters.mem0.upkeep import Imported, Reconciled
from branchmem.errors.mem0 import NotCovered, SourceElsewhere

__all__ = ["BranchMem", "Imported", "Reconciled"]

Anchor = str | Message | Step | Iterable[str | Message]


class BranchMem:
    """Mem0's memories of one owner on the branches of a store.  Safe under threads.

        mem = BranchMem(Memory.from_config(config), store)
        mem.at(session.head).add(messages, user_id="alice")

    Write through it alone: what Mem0 adds by itself is hidden until it is imported, and what it changes in place is
    served as the log has it.
    """

    def __init__(self, memory: Any, store: Store) -> None:
        """Take a `Memory` or `AsyncMemory` of Mem0, and the store of the owner whose memories are asked for.

        Raises: NotCovered for a Mem0 that is bound already, has a graph store, or keeps its vectors elsewhere.
        """
        if not hasattr(memory, "vector_store"):
            raise NotCovered(f"a {type(memory).__name__}", "give BranchMem a Memory or AsyncMemory")
        if isinstance(getattr(memory, "_footing", None), Footing):
            raise NotCovered("a bound Memory", "give BranchMem the Memory that it was made from")
        if getattr(memory, "enable_graph", False):
            raise NotCovered("the graph store", "configure Mem0 without graph_store")
        self.memory = memory
        self.store = store
        #: The id of the message that imported memories hang under.
        self.root = f"mem0:{memory.collection_name}"

    def at(self, anchor: Anchor, *, sources: Iterable[str | Message] | None = None) -> Any:
        """The Mem0 at an anchor: a message, several (one a tree), or an open step.

        What is added belongs to the first of several.  Its sources are `sources`, where they are named; else all that
        Mem0 is shown: the anchor, the messages that are added, and up to ten before them on the path.
        In a step nothing can be deleted (DeleteInStep).
        Raises: BadAnchor; AmbiguousAnchor; SourceElsewhere where a source is not on the path.
        Cost: no commit; each call of Mem0 asks the view anew.
        """
        place = self._place(anchor)
        named = None if sources is None else self._checked(place, sources)
        return bound(Footing(self.memory, place, named))

    def import_rows(self, filters: Mapping[str, Any]) -> Imported:
        """Take in what Mem0 remembered alone, below `root`: to be seen, stand there too, `at([anchor, mem.root])`.

        `filters` are Mem0's own and name the owner of the store, `{"user_id": "alice"}`; all rows without any.
        Again, it adds nothing but what came since; one batch.  With an AsyncMemory too, it is called without await.
        Raises: EventConflict where the id of the root is taken by another event.
        """
        return upkeep.import_rows(self.memory, self.store, self.root, filters)

    def reconcile(self, filters: Mapping[str, Any]) -> Reconciled:
        """Mend what a crash, a restored backup, a merge, a bundle or an erasure left apart: `upkeep.reconcile`.

        `filters` are those of `import_rows`: where one collection holds the rows of several stores, what belongs to
        another one is not astray.
        """
        return upkeep.reconcile(self.memory, self.store, filters)

    def discard_astray(self, filters: Mapping[str, Any]) -> tuple[str, ...]:
        """Delete rows of this owner whose memory is not in the log, while nobody adds and no step is open; their ids.

        Raises: ValueError without filters, which would take the rows of other stores.
        """
        if not filters:
            raise ValueError('filters is empty: name the owner of this store, {"user_id": …}')
        return upkeep.discard_astray(self.memory, self.store, filters)

    def __repr__(self) -> str:
        return f"<BranchMem {self.memory.collection_name} of {self.store.path}>"

    def _place(self, anchor: Anchor) -> Place:
        if isinstance(anchor, Step):
            anchor.view().raise_for_problems()
            return InStep(anchor)
        given = [anchor] if isinstance(anchor, (str, Message)) else list(anchor)
        place = AtMessages(self.store, tuple(dict.fromkeys(map(_id, given))))
        place.view().raise_for_problems()
        return place

    def _checked(self, place: Place, sources: Iterable[str | Message]) -> tuple[str, ...]:
        if isinstance(sources, (str, Message)):
            raise TypeError(f"sources is a list: write sources=[{_id(sources)!r:.80}]")
        named = tuple(dict.fromkeys(map(_id, sources)))
        if not named:
            raise ValueError("sources is empty, so that nothing added would be visible: name messages, or leave it out")
        anchors = place.view().anchors
        tree = self.store.tree
        for source in named:
            at = [place.above if anchor == place.source else anchor for anchor in anchors]
            if source != place.source and not any(tree.is_ancestor(source, anchor) for anchor in at):
                raise SourceElsewhere(source, anchors)
        return named


def _id(message: str | Message) -> str:
    return message.id if isinstance(message, Message) else message
