"""Where chance comes from in the Long part: one text as the seed, and the same draws on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Draws that depend on the seed and on how many came before, not on the version of Python.

    Of `random` it uses only `Random.random`, whose sequence Python promises to keep.
    """

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self._random.random() * n)

    def between(self, least: int, most: int) -> int:
        """A whole number from `least` to `most`, both included."""
        return least + self.below(most - least + 1)

    def happens(self, chance: float) -> bool:
        """Yes, with this chance of 0..1."""
        return self._random.random() < chance

    def pick(self, of: Sequence[T]) -> T:
        """One of several."""
        return of[self.below(len(of))]

    def shuffled(self, of: Sequence[T]) -> list[T]:
        """All of them, in an order of chance."""
        left = list(of)
        return [left.pop(self.below(len(left))) for _ in range(len(left))]
