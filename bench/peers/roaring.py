"""The peers of Roaring bitmaps: sets of ordinals, packed.

Needs pyroaring, which only the benchmark does.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap, FrozenBitMap

from bench.shapes import ROOT, Work
from bench.tour import Tour


def mask(portable: bytes) -> BitMap:
    """The mask that `view.roaring()` wrote."""
    return BitMap.deserialize(portable)


class Masks:
    """Ordinals by memory id, to be looked up in a mask."""

    def __init__(self, memory_ids: Sequence[str]) -> None:
        self.ordinal = {id: ordinal for ordinal, id in enumerate(memory_ids)}

    def decide(self, mask: BitMap, memories: Sequence[str]) -> list[bool]:
        """One decision a memory."""
        ordinal = self.ordinal
        return [ordinal[memory] in mask for memory in memories]


class Subsets:
    """A bitmap of sources a memory, tested against the bitmap of a path."""

    def __init__(self, work: Work) -> None:
        self._parents = work.parents
        self._sources = [FrozenBitMap(sources) for sources in work.sources]

    def ordinals(self, message: int) -> list[int]:
        """The memories whose sources the path covers."""
        path = FrozenBitMap(_path(self._parents, message))
        return [memory for memory, sources in enumerate(self._sources) if sources <= path]


class Unions:
    """A bitmap of memories a message, those whose deepest source it is: what is visible is their union on a path."""

    def __init__(self, work: Work, tour: Tour) -> None:
        self._parents = work.parents
        self._hanging: list[BitMap | None] = [None] * len(work.parents)
        for memory, message in enumerate(tour.deepest):
            if message is not None:
                hanging = self._hanging[message] or BitMap()
                hanging.add(memory)
                self._hanging[message] = hanging

    def union(self, message: int) -> BitMap:
        """The visible memories as a bitmap."""
        hanging = self._hanging
        return BitMap.union(*(shown for at in _path(self._parents, message) if (shown := hanging[at]) is not None))


def _path(parents: Sequence[int], message: int) -> list[int]:
    path = []
    while message != ROOT:
        path.append(message)
        message = parents[message]
    return path
