"""What memories refer to, at any remove: effective sources, what they derive from or adopt, what they replace.

A link is followed through the memories of the log and ends at any other id, here or
not.  What decides visibility, and where, is left to the rooms that ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from branchmem.events import Memory


class Links:
    """The links of a set of memories, followed when somebody asks and kept: another set has links of its own."""

    def __init__(self, memories: Mapping[str, Memory]) -> None:
        self.memories = memories
        self._derived_from: dict[str, frozenset[str]] = {}
        self._upstream: dict[str, frozenset[str]] = {}
        self._sources: dict[str, frozenset[str]] = {}
        self._replacing: dict[str, frozenset[str]] | None = None

    def derived_from(self, id: str) -> frozenset[str]:
        """What a memory derives from at any remove, here or not; itself only where it does so."""
        if id not in self._derived_from:
            self._derived_from[id] = self._reached(id, lambda memory: memory.derived_from)
        return self._derived_from[id]

    def upstream(self, id: str) -> frozenset[str]:
        """What a memory derives from or adopts at any remove, here or not; itself only where it does so."""
        if id not in self._upstream:
            self._upstream[id] = self._reached(id, _taken_over)
        return self._upstream[id]

    def sources(self, id: str) -> frozenset[str]:
        """The effective sources of a memory, here or not.  What it adopts adds none."""
        if id not in self._sources:
            memories = (self.memories[one] for one in self.derived_from(id) | {id} if one in self.memories)
            self._sources[id] = frozenset(source for memory in memories for source in memory.sources)
        return self._sources[id]

    def drawn_from(self, sources: Set[str]) -> set[str]:
        """The memories with one of these ids among their effective sources, whatever bears it."""
        return {id for id in self.memories if not sources.isdisjoint(self.sources(id))}

    def covered(self, named: Set[str]) -> set[str]:
        """The memories that are named, and all downstream of what is named, whatever bears a name, or nothing."""
        return {id for id in self.memories if id in named or not named.isdisjoint(self.upstream(id))}

    def replacing(self) -> Mapping[str, frozenset[str]]:
        """For each memory that others replace, all that do so, over any number of steps.  None replaces itself."""
        if self._replacing is None:
            replacing: dict[str, set[str]] = {}
            for id, memory in self.memories.items():
                for old in self._reached(id, lambda memory: memory.supersedes) if memory.supersedes else ():
                    if old != id and old in self.memories:
                        replacing.setdefault(old, set()).add(id)
            self._replacing = {old: frozenset(new) for old, new in replacing.items()}
        return self._replacing

    def circles_of_replacement(self) -> list[list[str]]:
        """The groups of two or more memories that all replace each other, each sorted by id; groups by their first."""
        replacing = self.replacing()
        groups = {frozenset({id} | {new for new in replacing[id] if id in replacing.get(new, ())}) for id in replacing}
        return sorted(sorted(group) for group in groups if len(group) > 1)

    def _reached(self, id: str, links: Callable[[Memory], Iterable[str]]) -> frozenset[str]:
        reached: set[str] = set()
        waiting = [id]
        while waiting:
            memory = self.memories.get(waiting.pop())
            new = set(links(memory) if memory else ()) - reached
            reached |= new
            waiting += new
        return frozenset(reached)


def _taken_over(memory: Memory) -> Iterable[str]:
    return memory.derived_from if memory.adopts is None else (*memory.derived_from, memory.adopts)
