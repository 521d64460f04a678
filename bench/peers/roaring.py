"""The peer of Roaring bitmaps: the view's own mask, handed over, asked one memory at a time.

Needs pyroaring, which only the benchmark does; without it the row is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap


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
