"""The peer of plain lists: climb from the anchor and gather what hangs on each message."""

from __future__ import annotations

from bench.shapes import ROOT, Work
from bench.tour import Tour


class Walk:
    """For each message, the memories whose deepest source it is."""

    def __init__(self, work: Work, tour: Tour) -> None:
        self._parents = work.parents
        self._hanging: list[list[int]] = [[] for _ in work.parents]
        for memory, message in enumerate(tour.deepest):
            if message is not None:
                self._hanging[message].append(memory)
        self._bytes = (len(tour.deepest) + 7) // 8

    def ordinals(self, message: int) -> list[int]:
        """The visible memories, deepest first."""
        shown: list[int] = []
        while message != ROOT:
            shown += self._hanging[message]
            message = self._parents[message]
        return shown

    def bitmap(self, message: int) -> bytes:
        """The same as one bit a memory."""
        bits = bytearray(self._bytes)
        for ordinal in self.ordinals(message):
            bits[ordinal >> 3] |= 1 << (ordinal & 7)
        return bytes(bits)
