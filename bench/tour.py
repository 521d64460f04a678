"""The intervals that the array peers stand on: an Euler tour, and each memory's deepest source.

A message lies at or below another where its start falls into the other's
interval.  Plain Python, from the same parents and sources as the events; shares
no code with the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.shapes import ROOT, Work, depths


@dataclass(frozen=True, slots=True)
class Tour:
    """Message m covers the positions `start[m]` up to `start[m] + size[m]`, its own first.

    `deepest[i]` is the source that decides memory i, or None where its sources
    lie on no common path, so that no anchor shows it.
    """

    start: list[int]
    size: list[int]
    tree: list[int]
    deepest: list[int | None]

    @classmethod
    def of(cls, work: Work) -> Tour:
        """One pass up for the sizes, one down for the positions: O(messages + sources)."""
        parents = work.parents
        size = [1] * len(parents)
        for message in range(len(parents) - 1, -1, -1):
            if parents[message] != ROOT:
                size[parents[message]] += size[message]
        start: list[int] = []
        tree: list[int] = []
        free: list[int] = []  # of each message, where its next child goes
        free_root = 0
        for message, parent in enumerate(parents):
            if parent == ROOT:
                start.append(free_root)
                tree.append(message)
                free_root += size[message]
            else:
                start.append(free[parent])
                tree.append(tree[parent])
                free[parent] += size[message]
            free.append(start[message] + 1)
        depth = depths(parents)
        deepest = [_deepest(sources, start, size, depth) for sources in work.sources]
        return cls(start=start, size=size, tree=tree, deepest=deepest)


def _deepest(sources: Sequence[int], start: list[int], size: list[int], depth: list[int]) -> int | None:
    lowest = max(sources, key=depth.__getitem__)
    for source in sources:
        if not start[source] <= start[lowest] < start[source] + size[source]:
            return None
    return lowest
