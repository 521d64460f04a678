"""Where a Mem0 stands: what is visible there, and how what it remembers and deletes becomes events.

At messages of the log an event is written at once; in a step, with the step.  Which memory gets which sources is
decided elsewhere (`errand`); what is visible is the view's answer alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from branchmem import Memory, MemoryHidden, Message, Reason, Step, StepView, Store, View
from branchmem.adapters.mem0.payloads import payload_in
from branchmem.errors.mem0 import DeleteInStep

#: What two payloads may differ in and still be that of one memory.
_TIMES = frozenset({"created_at", "updated_at", "text_lemmatized", "attributed_to"})


class Place(Protocol):
    """A place in the tree where a Mem0 stands."""

    @property
    def store(self) -> Store:
        """The store whose views decide."""

    @property
    def source(self) -> str:
        """The message that what is remembered here comes from."""

    @property
    def above(self) -> str:
        """The lowest message of the log that is on the path here."""

    def view(self) -> View | StepView:
        """What is visible here now."""

    def name(self, memories: Sequence[Memory]) -> dict[str, str]:
        """Under which id a memory will stand, where it is not its own: said before its row is written."""

    def write(self, memories: Sequence[Memory]) -> dict[str, str]:
        """Write the events, once the rows are there, and say which memory was known already under which id."""

    def retract(self, memories: Sequence[str]) -> None:
        """Take memories back, from here on."""


@dataclass(frozen=True, slots=True)
class AtMessages:
    """At messages of the log, one a tree: what is written belongs to the first of them."""

    store: Store
    anchors: tuple[str, ...]

    @property
    def source(self) -> str:
        return self.anchors[0]

    @property
    def above(self) -> str:
        return self.anchors[0]

    def view(self) -> View:
        return self.store.at(self.anchors)

    def name(self, memories: Sequence[Memory]) -> dict[str, str]:
        view = self.view()
        return {memory.id: first for memory in memories if (first := _same(self.store, view, memory)) is not None}

    def write(self, memories: Sequence[Memory]) -> dict[str, str]:
        """In one transaction: what was replaced meanwhile is replaced where it stands now, what was said, is said once.

        Cost: one commit.
        """

        def plan(_: object) -> tuple[list[Memory], dict[str, str]]:
            return _sorted_out(self.store, self.view(), memories)  # of this transaction: what others wrote is in it

        return self.store.transact(plan, tables=())[1]

    def retract(self, memories: Sequence[str]) -> None:
        """Cost: one commit and two views, for all of them."""
        if memories:
            self.store.retract(memories, at=self.source, scope="branch")


@dataclass(frozen=True, slots=True)
class InStep:
    """In an open step: what is remembered is written with the step's message, or never."""

    step: Step

    @property
    def store(self) -> Store:
        return self.step.session.store

    @property
    def source(self) -> str:
        return self.step.id

    @property
    def above(self) -> str:
        return self.step.base

    def view(self) -> StepView:
        return self.step.view()

    def name(self, memories: Sequence[Memory]) -> dict[str, str]:
        view, own = self.view(), self._own(memories)
        return {one.id: first for one in own if (first := _same(self.store, view, one, self.step.memories)) is not None}

    def write(self, memories: Sequence[Memory]) -> dict[str, str]:
        """Raises: StepEnded."""
        with self.step._opened("memory.add in the step") as part:
            new, known = _sorted_out(self.store, self.view(), self._own(memories), self.step.memories)
            for memory in new:
                part.add(memory)
        return known

    def _own(self, memories: Sequence[Memory]) -> list[Memory]:
        """With the step's message among their sources, as all that it remembers."""
        return [replace(memory, sources=(*memory.sources, self.step.id)) for memory in memories]

    def retract(self, memories: Sequence[str]) -> None:
        """Raises: DeleteInStep: its message, from which on it would hold, is not in the log yet."""
        raise DeleteInStep(self.step.id, memories)


def current(view: View | StepView, id: str) -> str | None:
    """The memory that stands for `id` in a view: itself, or the visible one that replaced it; None where neither is.

    Of several that replaced it, the one whose deepest source is the deepest.
    """
    if view.filter([id]):
        return id
    verdict = view.explain(id)
    if verdict.reasons != Reason.SUPERSEDED:
        return None
    newer = view.filter(verdict.culprits.get(Reason.SUPERSEDED, ()))
    if len(newer) < 2:
        return newer[0] if newer else None
    return [memory.id for memory in view.memories() if memory.id in newer][-1]


def shown(view: View | StepView, id: str) -> Memory | None:
    """A memory that a view shows; None where it was erased since the view was made."""
    try:
        return view.get(id)
    except MemoryHidden:
        return None


def path_from(store: Store, message: str) -> Iterable[Message]:
    """Yield the messages of a path from the lowest upwards, as far as the log has them."""
    at: Any = message
    while isinstance(at, str) and at in store.log:
        found = store.log.get(at)
        if not isinstance(found, Message):
            return
        yield found
        at = found.parent


def _on_top(view: View | StepView, memory: Memory) -> Memory:
    """A new version, where what it replaces was replaced by another meanwhile: the version of that one.

    Raises: MemoryHidden where what it replaces was taken back meanwhile.
    """
    for old in memory.supersedes:
        newer = current(view, old)
        if newer is None:
            raise MemoryHidden(old, str(view.explain(old)))
        if newer != old:
            over = view.get(newer)
            memory = replace(
                memory,
                supersedes=(*(id for id in memory.supersedes if id != old), newer),
                sources=(*memory.sources, *over.sources),
                derived_from=(*memory.derived_from, *over.derived_from),
            )
    return memory


def _sorted_out(
    store: Store, view: View | StepView, memories: Sequence[Memory], step: Sequence[Memory] = ()
) -> tuple[list[Memory], dict[str, str]]:
    """What is new of some memories, each on top of what it replaces by now, and which others are known under which id.

    `step` is what an open step remembers so far.  Raises: MemoryHidden.
    """
    known: dict[str, str] = {}
    new: list[Memory] = []
    for memory in memories:
        memory = _on_top(view, memory)
        first = next((one.id for one in new if _alike(one, memory)), None) or _same(store, view, memory, step)
        if first is None:
            new.append(memory)
        else:
            known[memory.id] = first
    return new, known


def _same(store: Store, view: View | StepView, memory: Memory, step: Sequence[Memory] = ()) -> str | None:
    """The visible memory of the log, or of an open step, that says the same of the same messages."""
    if not memory.sources:
        return None
    rarest = min((store.memories_from(source) for source in memory.sources), key=len)
    found = (shown(view, id) for id in view.filter((*rarest, *(one.id for one in step))))
    return next((one.id for one in found if one is not None and _alike(one, memory)), None)


def _alike(first: Memory, memory: Memory) -> bool:
    return (
        first.text == memory.text
        and first.sources == memory.sources
        and first.supersedes == memory.supersedes
        and _scope(first) == _scope(memory)
    )


def _scope(memory: Memory) -> dict[str, Any]:
    return {name: value for name, value in (payload_in(memory) or {}).items() if name not in _TIMES}
