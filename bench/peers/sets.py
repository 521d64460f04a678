"""The peer of plain sets: the path of an anchor cached as a set, each memory's sources as another.

What one writes first: a memory is visible where its sources are a subset of the path.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.shapes import ROOT, Work


class Sets:
    """Sources by memory id, in the two forms that a subset test takes."""

    def __init__(self, work: Work) -> None:
        self._parents = work.parents
        self._ids = work.message_ids
        named = [[work.message_ids[source] for source in sources] for sources in work.sources]
        self.frozen = dict(zip(work.memory_ids, map(frozenset, named), strict=True))
        self.listed = dict(zip(work.memory_ids, map(tuple, named), strict=True))

    def path(self, message: int) -> set[str]:
        """The ids of the message and all above it: what the peer caches an anchor."""
        path = set()
        while message != ROOT:
            path.add(self._ids[message])
            message = self._parents[message]
        return path

    def subset(self, path: set[str], memories: Sequence[str]) -> list[bool]:
        """One decision a memory: its set of sources against the path."""
        sources = self.frozen
        return [sources[memory] <= path for memory in memories]

    def superset(self, path: set[str], memories: Sequence[str]) -> list[bool]:
        """The same from the path's side, over a tuple of sources."""
        sources = self.listed
        covers = path.issuperset
        return [covers(sources[memory]) for memory in memories]


class DeepestInPath:
    """The same reduced by hand to each memory's deepest source: one look-up in the path."""

    def __init__(self, work: Work, deepest: Sequence[int | None]) -> None:
        ids = work.message_ids
        named = (None if message is None else ids[message] for message in deepest)
        self.deepest = dict(zip(work.memory_ids, named, strict=True))

    def decide(self, path: set[str], memories: Sequence[str]) -> list[bool]:
        """One decision a memory."""
        deepest = self.deepest
        return [deepest[memory] in path for memory in memories]
