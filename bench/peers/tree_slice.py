"""The peer of numpy, refined: only the memories of the anchor's tree are compared.

Memories sorted by where their interval starts, so that those of one tree are a
slice.  Few would write it, and it needs the sort kept as memories arrive; it
stands here to show how much of the lead over plain intervals is owed to scanning less.
"""

from __future__ import annotations

import numpy as np

from bench.peers.intervals import Bits
from bench.tour import Tour


class TreeSlice:
    """One slice of sorted intervals a tree."""

    def __init__(self, tour: Tour) -> None:
        shown = [(tour.start[at], tour.size[at], memory) for memory, at in enumerate(tour.deepest) if at is not None]
        shown.sort()
        self.start = np.array([start for start, _, _ in shown], dtype=np.uint32)
        self.size = np.array([size for _, size, _ in shown], dtype=np.uint32)
        self.memory = np.array([memory for _, _, memory in shown], dtype=np.intp)
        self.position = np.array(tour.start, dtype=np.uint32)
        roots = np.array(tour.tree, dtype=np.intp)
        self.first = np.searchsorted(self.start, self.position[roots]).tolist()
        self._mask = np.zeros(len(tour.deepest), dtype=np.bool_)

    def bitmap(self, message: int) -> Bits:
        """The slice from the tree's first memory up to the anchor's position, then one bit a memory."""
        position = self.position[message]
        first = self.first[message]
        last = int(np.searchsorted(self.start, position, side="right"))
        shown = self.memory[first:last][position - self.start[first:last] < self.size[first:last]]
        self._mask[shown] = True
        bits = np.packbits(self._mask, bitorder="little")
        self._mask[shown] = False
        return bits
