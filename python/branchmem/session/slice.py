"""What decides about the memories of a step that is still open: these and a part of the log, in an engine of their own.

Whether a memory is visible follows from what it derives from and adopts, at any remove; from the paths of the
sources and the anchors; and from the retractions, restorations and erasures that name any of it.  All of that is taken
from the log as it is, so that a slice only grows, and what it says of these memories is what the store would say.  What
else is visible there is known to the view of the head, and left out.  Where an event of the log names the message or a
memory of the step before its end, that view is no help, and the whole log decides.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from branchmem.canonical import NO_META
from branchmem.errors import MemoryHidden, UnknownEvent
from branchmem.eventlog import skeletons
from branchmem.events import Memory, Message, skeleton_fields
from branchmem.questions import Questions
from branchmem.verdict import Policy, Reason, Verdict

if TYPE_CHECKING:
    from branchmem import Store, _core

#: Retractions come before the restorations that name them.
_CHANGES: Final = ("retraction", "restoration", "erasure")
_PAGE: Final = 10_000


class Slice:
    """The message and the memories that a step will write, and what they need of the log.  Safe under threads.

    Their ids were made up when the log was at `since`.
    """

    def __init__(self, store: Store, message: Message, since: int) -> None:
        self.store = store
        self.lock = threading.RLock()
        self.message = message
        self.memories: dict[str, Memory] = {}
        self._trial = _Trial(store, self.memories, warns=False)
        self._scanned = since
        self._is_named = False
        self._taken = {message.id}
        self._new = [message.skeleton()]
        self._unfollowed: list[Memory] = []
        # ids of memories and of their sources: only what names one of them, or a key, can cover or erase
        self._names: set[str] = set()
        self._keys: set[str] = set()
        self._absent_messages: set[str] = set()
        self._absent_memories: set[str] = set()
        self._changes: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in _CHANGES}

    def add(self, memory: Memory) -> None:
        """Take in a memory of the step."""
        with self.lock:
            self.memories[memory.id] = memory
            self._unfollowed.append(memory)

    def is_named(self) -> bool:
        """Whether an event of the log names the message or a memory of the step.

        Cost: what came into the log since this was last asked; what came before the step cannot know their ids.
        """
        with self.lock:
            engine = self.store._fresh()
            end = engine.seq
            if not self._is_named:
                names = [id.encode() for id in (self.message.id, *self.memories)]
                came = skeletons(engine, self._scanned, end)
                self._is_named = any(name in skeleton for skeleton in came for name in names)
            self._scanned = end
            return self._is_named

    def at(self, anchors: Sequence[str], policy: Policy) -> _core.View:
        """What the step will see of its own memories, in the log as it is now; not counted.

        Cost: what has come to matter since this was last asked, and a look at every retraction of the log.
        """
        with self.lock:
            self._grow(anchors)
            return self._trial.at(anchors, policy=policy, count=False)

    def explain(self, id: str, anchors: Sequence[str], head: _core.View, policy: Policy) -> Verdict:
        """What will be said of any memory, in the log as it is now; `head` is the view that lacks the step."""
        with self.lock:
            self._grow(anchors)
            for own in list(self.memories):
                self._take_versions(own)
            self._take_memories([id])
            for memory in (id, *self.reached(id, "derived_from")):
                if memory not in self.memories:
                    for newer in head._explain(memory).culprits.get(Reason.SUPERSEDED, ()):
                        self._take_versions(newer)
            return self.at(anchors, policy).explain(id)

    def whole(self) -> Questions:
        """The whole log with the step, in an engine that warns of problems.  Cost: replays the log."""
        with self.lock:
            engine = self.store._fresh()
            end = engine.seq
            trial = _Trial(self.store, dict(self.memories), warns=True)
            trial._engine.reserve(end + 1 + len(self.memories))
            for start in range(0, end, _PAGE):
                trial.take(list(skeletons(engine, start, min(start + _PAGE, end))))
            trial.take([event.skeleton() for event in (self.message, *self.memories.values())])
            return trial

    def content(self, id: str, view: _core.View) -> Memory:
        """A memory of the step, which the view shows.  Raises: MemoryHidden where it was erased meanwhile."""
        with self.lock:
            self._grow(())
            return self._trial._memory(view, id, visible=True)

    def links(self, id: str) -> Mapping[str, Any]:
        """The skeleton of a memory of the step or of the log; nothing where there is no such memory."""
        own = self.memories.get(id)
        fields = self.store.skeleton(id) if own is None else skeleton_fields(own.skeleton())
        return fields if fields.get("type") == Memory.type else {}

    def reached(self, id: str, link: str) -> set[str]:
        """The ids that a memory reaches over one link, at any remove, here or not; itself only where it does so."""
        reached: set[str] = set()
        waiting = [id]
        while waiting:
            new = set(self.links(waiting.pop()).get(link, ())) - reached
            reached |= new
            waiting += new
        return reached

    def _grow(self, anchors: Iterable[str]) -> None:
        """Take in what has come to matter: new memories of the step, what was absent, what covers or erases."""
        for id in (*anchors, self.message.parent, *_emptied(self._absent_messages)):
            if isinstance(id, str):
                self._take_path(id)
        self._take_memories(_emptied(self._absent_memories))
        for memory in self._unfollowed:
            self._names.add(memory.id)
            self._taken.add(memory.id)
            self._new.append(memory.skeleton())
            self._take_memories(self._follow(self.links(memory.id)))
        self._unfollowed.clear()
        self._take_changes()
        self._trial.take(self._new)
        self._new.clear()

    def _take_changes(self) -> None:
        engine = self.store._fresh()
        for kind, known in self._changes.items():
            for id in engine.ids_of(kind):
                if id not in known:
                    known[id] = self.store.skeleton(id)
                if id not in self._taken and self._matters(known[id]):
                    self._take(id)
                    if "at" in known[id]:
                        self._take_path(known[id]["at"])

    def _matters(self, change: Mapping[str, Any]) -> bool:
        if "retraction" in change:
            return change["retraction"] in self._taken
        named = (*change.get("memories", ()), *change.get("sources", ()), *change.get("targets", ()))
        return not (self._names.isdisjoint(named) and self._keys.isdisjoint(change.get("keys", ())))

    def _take_versions(self, id: str) -> None:
        """Take a memory and all that it replaces, so that it is seen to do so."""
        self._take_memories([id, *self.reached(id, "supersedes")])

    def _take_memories(self, ids: Iterable[str]) -> None:
        """Take memories with all upstream of them, and the paths of their sources."""
        waiting = list(ids)
        while waiting:
            id = waiting.pop()
            self._names.add(id)
            if id in self._taken:
                continue
            links = self.links(id)
            if links:
                self._take(id)
                waiting += self._follow(links)
            else:
                self._absent_memories.add(id)

    def _follow(self, links: Mapping[str, Any]) -> list[str]:
        """Take the paths of the sources of a memory; what it derives from and adopts."""
        if "key" in links:
            self._keys.add(links["key"])
        for source in links.get("sources", ()):
            self._names.add(source)
            self._take_path(source)
        adopted = [links["adopts"]] if "adopts" in links else []
        return [*links.get("derived_from", ()), *adopted]

    def _take_path(self, id: str) -> None:
        """Take a message and all above it that is known."""
        engine = self.store._fresh()
        while id not in self._taken:
            if not engine.is_message(id):
                self._absent_messages.add(id)
                return
            self._take(id)
            parent = engine.parent(id)
            if not isinstance(parent, str):
                return
            id = parent

    def _take(self, id: str) -> None:
        found = self.store._fresh().skeleton(id)
        if found is None:
            raise UnknownEvent(id)
        self._taken.add(id)
        self._new.append(found[1])


class _Trial(Questions):
    """An engine with a step in it.  What it shows is read from the store, or is the step's own."""

    def __init__(self, store: Store, own: Mapping[str, Memory], *, warns: bool) -> None:
        super().__init__()
        self._store = store
        self._own = own
        self._warns = warns

    def take(self, skeletons: Sequence[bytes]) -> None:
        new, *_ = self._engine.plan(skeletons)
        self._engine.fold(self._engine.encode([skeletons[at] for at in new]))

    def _warn(self, problems: Reason, anchors: tuple[str, ...]) -> None:
        if self._warns:
            super()._warn(problems, anchors)

    def _memory(self, view: _core.View, id: str, visible: bool) -> Memory:
        if not visible:
            raise MemoryHidden(id, str(view._explain(id)))
        own, log = self._own.get(id), self._store.log
        written = own is None or id in log
        memory = log.get(id) if written else own
        is_erased = self._engine.is_erased(id) or (written and log.is_erased(id))
        if not isinstance(memory, Memory) or (is_erased and Reason.ERASED not in view.policy.admit):
            raise MemoryHidden(id, "its content was erased after the view was made")
        return replace(memory, text="", importance=1.0, created=None, meta=NO_META) if is_erased else memory

    def _memories(self, ids: list[str], view: _core.View) -> list[Memory]:
        return [self._memory(view, id, visible=True) for id in ids]


def _emptied(ids: set[str]) -> list[str]:
    """What a set held, which is empty then."""
    held = list(ids)
    ids.clear()
    return held
