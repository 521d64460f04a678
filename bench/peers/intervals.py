"""The peer of numpy: one interval a memory, all memories compared at once.

What a good engineer would write: contiguous uint32 arrays of the deepest
source's interval in the Euler tour, temporaries allocated once, one bit a
memory.  The tour must be rebuilt whenever a message arrives; that is not timed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bench.tour import Tour

Bits = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]


class Intervals:
    """Answers from `start <= position < end`, or from one wrapped comparison, whichever is quicker."""

    def __init__(self, tour: Tour) -> None:
        count = len(tour.deepest)
        self.position = np.array(tour.start, dtype=np.uint32)
        self.start = np.zeros(count, dtype=np.uint32)
        self.end = np.zeros(count, dtype=np.uint32)
        for memory, message in enumerate(tour.deepest):
            if message is not None:
                self.start[memory] = tour.start[message]
                self.end[memory] = tour.start[message] + tour.size[message]
        self.size = self.end - self.start
        # Start in the low half and size in the high one: a pair costs one fetch from memory instead of two.
        self.packed = self.start.astype(np.uint64) | self.size.astype(np.uint64) << np.uint64(32)
        self._begun = np.empty(count, dtype=np.bool_)
        self._inside = np.empty(count, dtype=np.bool_)
        self._distance = np.empty(count, dtype=np.uint32)

    def bitmap(self, message: int) -> Bits:
        """What the message sees, by two comparisons a memory."""
        position = self.position[message]
        np.less_equal(self.start, position, out=self._begun)
        np.less(position, self.end, out=self._inside)
        np.logical_and(self._begun, self._inside, out=self._inside)
        return np.packbits(self._inside, bitorder="little")

    def bitmap_wrapped(self, message: int) -> Bits:
        """The same by one comparison: `position - start` wraps to a huge number left of the start."""
        np.subtract(self.position[message], self.start, out=self._distance)
        np.less(self._distance, self.size, out=self._inside)
        return np.packbits(self._inside, bitorder="little")

    def bitmaps(self, messages: Sequence[int], out: Bits) -> Bits:
        """One row a message, into rows allocated before."""
        for row, message in enumerate(messages):
            out[row] = self.bitmap(message)
        return out

    def bitmaps_wrapped(self, messages: Sequence[int], out: Bits) -> Bits:
        """One row a message by `bitmap_wrapped`."""
        for row, message in enumerate(messages):
            out[row] = self.bitmap_wrapped(message)
        return out

    def bitmaps_blocked(self, messages: Sequence[int], out: Bits, block: int = 8) -> Bits:
        """Several rows at once: fewer calls, larger temporaries."""
        positions = self.position[np.asarray(messages)]
        for row in range(0, len(messages), block):
            distance = positions[row : row + block, None] - self.start
            out[row : row + block] = np.packbits(distance < self.size, axis=1, bitorder="little")
        return out

    def visible(self, memories: Places, messages: Places) -> Flags:
        """One decision a pair, by two comparisons."""
        positions = self.position[messages]
        flags: Flags = np.logical_and(self.start[memories] <= positions, positions < self.end[memories])
        return flags

    def visible_wrapped(self, memories: Places, messages: Places) -> Flags:
        """One decision a pair, by one comparison."""
        distance = self.position.take(messages)
        distance -= self.start.take(memories)
        flags: Flags = np.less(distance, self.size.take(memories))
        return flags

    def visible_packed(self, memories: Places, messages: Places) -> Flags:
        """One decision a pair, with start and size fetched together."""
        halves = self.packed.take(memories).view(np.uint32)
        distance = self.position.take(messages)
        distance -= halves[0::2]
        return np.less(distance, halves[1::2])


class PairScratch:
    """The same decisions with every temporary allocated before, for `count` pairs."""

    def __init__(self, intervals: Intervals, count: int) -> None:
        self._of = intervals
        self._position = np.empty(count, dtype=np.uint32)
        self._packed = np.empty(count, dtype=np.uint64)
        self._start = np.empty(count, dtype=np.uint32)
        self._size = np.empty(count, dtype=np.uint32)
        self._flags = np.empty(count, dtype=np.bool_)

    def visible(self, memories: Places, messages: Places) -> Flags:
        """By one comparison; `clip` spares the check of the bounds."""
        self._of.position.take(messages, out=self._position, mode="clip")
        self._of.start.take(memories, out=self._start, mode="clip")
        self._of.size.take(memories, out=self._size, mode="clip")
        np.subtract(self._position, self._start, out=self._position)
        return np.less(self._position, self._size, out=self._flags)

    def visible_packed(self, memories: Places, messages: Places) -> Flags:
        """With start and size fetched together."""
        self._of.position.take(messages, out=self._position, mode="clip")
        self._of.packed.take(memories, out=self._packed, mode="clip")
        halves = self._packed.view(np.uint32)
        np.subtract(self._position, halves[0::2], out=self._position)
        return np.less(self._position, halves[1::2], out=self._flags)
