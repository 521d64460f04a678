"""What a plan may ask: an engine with or without a file behind it, and the content of memories.

The log of a store is such a world, and so is a trial engine that holds what a bundle would bring.
What is visible, the engine is asked; what a memory stands for and what it replaces is read here, from
skeletons alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from branchmem.events import Memory, skeleton_fields

if TYPE_CHECKING:
    from branchmem import Store, View
    from branchmem.questions import Questions


class Said(NamedTuple):
    """What makes two memories say the same."""

    kind: str
    key: str | None
    text: str


class World:
    """A log as one plan sees it: nothing of it changes meanwhile, so what was read once is kept.

    `questions` is a Store, an Engine, or any other `Questions`; `content` gives the memory of an id in it.
    `extra` are memories that would be appended before what is planned; the engine need not know them.
    `beside` are messages of other trees, on which every view stands as well.
    """

    def __init__(
        self,
        questions: Questions,
        content: Callable[[str], Memory],
        extra: Iterable[Memory] = (),
        beside: Iterable[str] = (),
    ) -> None:
        self._questions = questions
        self._content = content
        self._beside = tuple(beside)
        self._memories = {memory.id: memory for memory in extra}
        self._fields = {id: skeleton_fields(memory.skeleton()) for id, memory in self._memories.items()}
        self._reach: dict[str, frozenset[str]] = {}

    @classmethod
    def of(cls, store: Store, extra: Iterable[Memory] = (), beside: Iterable[str] = ()) -> World:
        """The world of a store's log."""

        def content(id: str) -> Memory:
            event = store.log.get(id)
            assert isinstance(event, Memory), id
            return event

        return cls(store, content, extra, beside)

    def at(self, head: str) -> View:
        """The strict view at a message; not counted.

        Raises: BadAnchor where it is not attached; AmbiguousAnchor where a message beside lies in its tree.
        """
        view = self._questions.at((head, *self._beside), count=False)
        view.raise_for_problems()
        return view

    def path(self, head: str) -> list[str]:
        """A message and all its ancestors, root first."""
        return self._questions.tree.path(head)

    def is_ancestor(self, a: str, b: str) -> bool:
        """Whether `a` is `b` or stands above it."""
        return self._questions.tree.is_ancestor(a, b)

    def common_ancestor(self, a: str, b: str) -> str | None:
        """The deepest message at or above both; None in two trees."""
        return self._questions.tree.common_ancestor(a, b)

    def memory(self, id: str) -> Memory:
        """A memory with its content, visible or not."""
        if id not in self._memories:
            self._memories[id] = self._content(id)
        return self._memories[id]

    def said(self, id: str) -> Said:
        """What a memory says."""
        memory = self.memory(id)
        return Said(memory.kind, memory.key, memory.text)

    def fields(self, id: str) -> Mapping[str, Any]:
        """The fields of a memory's skeleton; none for what is no memory here."""
        if id not in self._fields:
            found = self._questions.skeleton(id)
            self._fields[id] = found if found.get("type") == "memory" else {}
        return self._fields[id]

    def takes_back(self, retraction: str, key: str, head: str) -> bool:
        """Whether a retraction that is in effect at a message covers what is said of a key below it."""
        fields = self._questions.skeleton(retraction)
        if key not in fields.get("keys", ()):
            return False
        at = fields["at"]
        return bool(fields.get("standing")) or not self._is_message(at) or not self.is_ancestor(at, head)

    def adopts(self, id: str) -> str | None:
        """The memory that this one takes over."""
        return self.fields(id).get("adopts")

    def supersedes(self, id: str) -> frozenset[str]:
        """What a memory names as replaced."""
        return frozenset(self.fields(id).get("supersedes", ()))

    def lineage(self, id: str) -> list[str]:
        """The memory, what it adopts, what that adopts, and so on."""
        chain = {id: None}
        while (id := self.adopts(id) or id) not in chain:
            chain[id] = None
        return list(chain)

    def reach(self, id: str) -> frozenset[str]:
        """All that a memory replaces wherever it is live, over any number of steps.  O(answer)."""
        if id not in self._reach:
            found: set[str] = set()
            waiting = [id]
            while waiting:
                new = self.supersedes(waiting.pop()) - found
                found |= new
                waiting += new
            self._reach[id] = frozenset(found - {id})
        return self._reach[id]

    def replaced(self, id: str) -> frozenset[str]:
        """What a memory replaces beside the memories that it is a copy of."""
        return self.reach(id).difference(self.lineage(id))

    def nearest(self, id: str, among: Set[str]) -> str | None:
        """What a memory replaces over the fewest steps, of these; the first by id of several, None of none."""
        level, seen = self.supersedes(id), {id}
        while level:
            if found := level & among:
                return min(found)
            seen |= level
            level = frozenset(other for one in level for other in self.supersedes(one)) - seen
        return None

    def decided(self, id: str) -> frozenset[str]:
        """What an adopting memory replaces of its own accord: not its original, nor copies of what that replaced."""
        original = self.adopts(id)
        if original is None:
            return frozenset()
        behind = self.reach(original) | {original}
        return frozenset(
            other for other in self.supersedes(id) if other not in behind and behind.isdisjoint(self.lineage(other))
        )

    def copied(self, id: str) -> list[str]:
        """The memory and those that it is a mere copy of: whatever replaces one of them, replaces it.

        One that says something else, or that decided something, is no mere copy.
        """
        chain = [id]
        while (original := self.adopts(chain[-1])) is not None and original not in chain:
            if not self.fields(original) or self.said(original) != self.said(chain[-1]) or self.decided(chain[-1]):
                break
            chain.append(original)
        return chain

    def from_messages(self, head_path: Iterable[str]) -> list[str]:
        """The memories that name one of these messages as a source, visible or not.  O(messages and answer)."""
        return list(dict.fromkeys(id for message in head_path for id in self._questions.memories_from(message)))

    def effective_sources(self, id: str) -> frozenset[str] | None:
        """The messages that a memory depends on; None where a memory that it derives from is not here."""
        sources: set[str] = set()
        seen = {id}
        waiting = [id]
        while waiting:
            fields = self.fields(waiting.pop())
            if not fields:
                return None
            sources.update(fields.get("sources", ()))
            new = set(fields.get("derived_from", ())) - seen
            seen |= new
            waiting += new
        return frozenset(sources)

    def restates(self, id: str) -> str | None:
        """The memory that this one adopts, where that says the same and stands on the same way: a copy in place."""
        original = self.adopts(id)
        if original is None or not self.fields(original):
            return None
        above, own = self.effective_sources(original), self.fields(id).get("sources", ())
        if not above or not all(map(self._is_message, (*above, *own))):
            return None
        if not all(any(self.is_ancestor(source, below) for below in own) for source in above):
            return None
        return original if self.said(original) == self.said(id) else None

    def _is_message(self, id: str) -> bool:
        return self._questions.skeleton(id).get("type") == "message"
