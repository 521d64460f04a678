"""What a step sees: the view at the head, and on top of it the memories of the step that is still open.

It is the view that the step's message will have, before that is written.  As of the moment it was made, the
step's later memories are not in it.  No bitmaps: what is not in the log has no ordinal yet.
"""

from __future__ import annotations

import operator
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from branchmem.errors import MemoryHidden, UnknownEvent
from branchmem.events import Memory
from branchmem.questions import listed
from branchmem.verdict import STRICT, Policy, Reason, Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from branchmem import View
    from branchmem.embedders import Embedder
    from branchmem.recall import Decay, Hits, Recalled
    from branchmem.recall.search import Shown
    from branchmem.session.slice import Slice


class StepView:
    """What is visible at the message of a step, and at the heads beside.

    What it hands out of the log is counted as a view counts it; the step's own memories and explanations are not.
    """

    def __init__(self, part: Slice, beside: Sequence[str], policy: Policy) -> None:
        store = part.store
        self._part = part
        self.anchors = (part.message.id, *dict.fromkeys(beside))
        self.policy = policy
        self.seq = store.seq
        #: The step's own memories that are visible, in the order in which they came.
        self._own: list[str] = []
        #: What its own memories replace among those that the head shows.
        self._replaced: frozenset[str] = frozenset()
        #: The whole log with the step, where the view at the head is no help.
        self._whole = part.whole() if self._needs_whole() else None
        if self._whole is not None:
            self._base = self._whole.at(self.anchors, policy=policy)
            return
        head = (str(part.message.parent), *beside)
        self._base = store.at(head, policy=policy)
        if part.memories or head[0] in beside:
            self._own = part.at(self.anchors, policy).filter(part.memories)
            # an own one that another replaces need not be followed: the other one reaches whatever it does
            replaced = {old for own in self._own for old in part.reached(own, "supersedes")} - part.memories.keys()
            if replaced and Reason.SUPERSEDED not in policy.admit:
                self._replaced = frozenset(store.at(head, policy=policy, count=False).filter(replaced))

    @property
    def problems(self) -> Reason:
        """What is wrong with the anchors: bits 0 to 2, or nothing."""
        return self._base.problems

    def raise_for_problems(self) -> None:
        """Raises: BadAnchor, where the view has problems."""
        self._base.raise_for_problems()

    def __contains__(self, id: object) -> bool:
        return id in self._own or (id in self._base and id not in self._replaced)

    def __len__(self) -> int:
        return len(self._base) - len(self._replaced) + len(self._own)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids())

    def __repr__(self) -> str:
        problems = "".join(f", {name}" for name in self.problems.names())
        return f"<StepView at {', '.join(self.anchors)}: {len(self)} memories visible{problems}>"

    def ids(self) -> list[str]:
        """The ids of what is visible: those of the log by ordinal, then the step's own in their order."""
        return [*(id for id in self._base.ids() if id not in self._replaced), *self._own]

    def filter(self, ids: Iterable[str]) -> list[str]:
        """Those of `ids` that are visible, in their order."""
        given = listed(ids)
        shown = {*self._own, *self._base.filter(given)} - self._replaced
        return [id for id in given if id in shown]

    def __getitem__(self, id: str) -> Memory:
        """The memory.  Raises: MemoryHidden, a KeyError that says why it is hidden, unknown or erased meanwhile."""
        if id in self._own:
            return self._part.content(id, self._base)
        try:
            if id not in self._replaced:
                return self._base[id]
        except MemoryHidden as hidden:
            verdict = self.explain(id)
            raise (hidden if verdict.visible else MemoryHidden(id, str(verdict))) from None
        raise MemoryHidden(id, str(self.explain(id)))

    get = __getitem__

    def memories(self, *, kind: str | None = None, key: str | None = None, limit: int | None = None) -> list[Memory]:
        """What is visible, in path order: depth of the deepest source, then id.

        Cost: as that of a view; each own memory is put in its place by looking up where some others stand.
        """
        limit = _at_most(limit)
        more = None if limit is None else limit + len(self._replaced)
        found = [one for one in self._base.memories(kind=kind, key=key, limit=more) if one.id not in self._replaced]
        for id in self._own:
            own = self._part.memories[id]
            if kind in (None, own.kind) and key in (None, own.key):
                memory = self._part.content(id, self._base)
                found.insert(bisect_left(found, self._order(memory), key=self._order), memory)
        return found[:limit]

    def current(self, key: str) -> Memory | list[Memory] | None:
        """The visible memory about a key; a list, in path order, where several rival; None where there is none."""
        if not isinstance(key, str):
            raise TypeError(f"a key is a text, not {key!r:.80}")
        found = self.memories(key=key)
        return found if len(found) > 1 else found[0] if found else None

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        kind: object = None,
        key: object = None,
        created: object = None,
        importance: object = None,
        meta: Mapping[str, object] | None = None,
        by: Literal["lexical", "vector"] | None = None,
        embedder: Embedder | None = None,
        include_faded: bool = False,
        decay: Decay | None = None,
        now: datetime | None = None,
    ) -> Hits:
        """The visible memories that fit a query, best first, the step's own among them: `branchmem.recall.search`.

        Cost: as that of a view; own memories are read, and embedded, anew each time.
        """
        from branchmem.recall import search

        return search(
            self._part.store,
            self,
            query,
            k,
            kind=kind,
            key=key,
            created=created,
            importance=importance,
            meta=meta,
            by=by,
            embedder=embedder,
            include_faded=include_faded,
            decay=decay,
            now=now,
        )

    def nearest(
        self, vector: NDArray[np.float32], k: int = 10, *, embedder: Embedder | None = None
    ) -> list[tuple[str, float]]:
        """The visible memories nearest to a vector, the step's own among them: `branchmem.recall.nearest`."""
        from branchmem.recall import nearest

        return nearest(self._part.store, self, vector, k, embedder=embedder)

    def recall(self, message: str, **options: Any) -> Recalled:
        """What of the visible memories belongs into a prompt: `branchmem.recall.recall`.  Writes nothing."""
        from branchmem.recall import recall

        return recall(self._part.store, self, message, **options)

    def explain(self, id: str) -> Verdict:
        """All reasons, and the ids at fault, as the log and the step are now.

        Cost: all that the memory derives from, and the memories that replace any of it.
        """
        store = self._part.store
        if store.skeleton(self._part.message.id):
            return store.at(self.anchors, policy=self.policy, count=False).explain(id)
        if self._needs_whole():
            verdict = self._part.whole().at(self.anchors, policy=self.policy, count=False).explain(id)
        else:
            verdict = self._part.explain(id, self.anchors, self._base, self.policy)
        return replace(verdict, seq=store.seq)

    def _shown(self) -> Shown:
        """What is ranked here: what the log has of it, and the step's own memories that have content by now."""
        import numpy as np

        from branchmem.recall.search import Shown

        part, own = self._part, self._own
        engine = part.store._fresh()
        log: View | NDArray[np.uint32] = self._base
        if self._whole is not None:
            ids = self._base.ids()
            is_erased = self._whole._engine.is_erased  # with the step, more may be
            log = np.sort(engine.memory_ordinals([id for id in ids if engine.is_memory(id) and not is_erased(id)]))
            own = [id for id in ids if not engine.is_memory(id)]
        elif self._replaced:
            log = np.setdiff1d(self._base.ordinals(), engine.memory_ordinals(list(self._replaced)))
        strict = part.at((), STRICT)
        contents = []
        for id in own:
            with suppress(MemoryHidden):
                contents.append(part.content(id, strict))
        return Shown(log, self._read, self.explain, contents)

    def _read(self, ids: list[str]) -> list[Memory]:
        """Memories that this shows.  Raises: MemoryHidden for one that was erased meanwhile."""
        owner = self._part.store if self._whole is None else self._whole
        found = [self._part.content(id, self._base) for id in ids if id in self._own]
        return found + owner._memories([id for id in ids if id not in self._own], self._base)

    def _needs_whole(self) -> bool:
        """Whether the view at the head does not tell what the log shows at the step's message.

        A source below the head is FUTURE there, and SIBLING at that message.
        """
        alike = (Reason.FUTURE in self.policy.admit) == (Reason.SIBLING in self.policy.admit)
        return not alike or self._part.is_named()

    def _order(self, memory: Memory) -> tuple[int, str]:
        """Where a memory that is visible stands in path order: the messages above its deepest source, and its id."""
        part = self._part
        engine = (self._whole or part.store)._fresh()
        if self._whole is not None or memory.id not in part.memories:
            return engine.depths_of_memories([memory.id])[0], memory.id
        logged: set[str] = set()
        own, waiting, deepest = {memory.id}, [memory], -1
        while waiting:
            links = waiting.pop()
            deepest = max([deepest, *map(self._depth, links.sources)])
            logged.update(id for id in links.derived_from if engine.is_memory(id))
            new = [part.memories[id] for id in links.derived_from if id in part.memories and id not in own]
            own.update(one.id for one in new)
            waiting += new
        return max([deepest, *engine.depths_of_memories(list(logged))]), memory.id

    def _depth(self, source: str) -> int:
        """The messages above a source, -1 where it is not attached."""
        tree, message = self._part.store.tree, self._part.message
        is_own = source == message.id
        try:
            depth = tree.depth(str(message.parent) if is_own else source)
        except UnknownEvent:
            return -1
        return -1 if depth is None else depth + is_own


def _at_most(limit: int | None) -> int | None:
    """A limit of memories as Python's own number, sys.maxsize at most; None for none.  Raises: ValueError."""
    if limit is None:
        return None
    try:
        number = operator.index(limit)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"limit is a number of memories, 0 or more, or None, not {limit!r:.80}")
    return min(number, sys.maxsize)
