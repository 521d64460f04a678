"""BM25 as the textbook has it, in numpy: statistics and ranking over what is visible, and nothing else.

k1 = 1.2, b = 0.75, idf = ln(1 + (N - df + 0.5) / (df + 0.5)) (Robertson & Zaragoza, 2009).
It is the reference of lexical search here, and what a good engineer would write without an engine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

K1: Final = 1.2
B: Final = 0.75

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one anchor sees: one bool a memory, how many, and the average length of their texts."""

    mask: Flags
    count: int
    average: float


class Bm25:
    """Postings by token: the ordinals that have it, and how often."""

    def __init__(self, texts: Iterable[Sequence[str]], lengths: Sequence[int], ids: Sequence[str]) -> None:
        """`texts`: the tokens of each, in order of ordinals; what counts as its length may be less."""
        found: dict[str, tuple[list[int], list[int]]] = {}
        for ordinal, tokens in enumerate(texts):
            for token, times in Counter(tokens).items():
                ordinals, often = found.setdefault(token, ([], []))
                ordinals.append(ordinal)
                often.append(times)
        self._postings = {
            token: (np.array(ordinals, dtype=np.intp), np.array(often, dtype=np.float64))
            for token, (ordinals, often) in found.items()
        }
        self._lengths = np.array(lengths, dtype=np.float64)
        self._ids = ids

    def seen(self, mask: Flags) -> Seen:
        """What must be known of a view before it is asked."""
        count = int(mask.sum())
        return Seen(mask, count, float(self._lengths[mask].sum() / count))

    def matching(self, seen: Seen, tokens: Sequence[str]) -> set[int]:
        """The visible memories that have any of the tokens."""
        shown = (ordinals[seen.mask[ordinals]] for ordinals, _ in map(self._of, tokens))
        return {ordinal for ordinals in shown for ordinal in ordinals.tolist()}

    def best(self, seen: Seen, tokens: Sequence[str], k: int) -> list[tuple[int, float]]:
        """Ordinals and scores above 0, best first, those of one score by id."""
        scores = np.zeros(len(self._lengths))
        for token in dict.fromkeys(tokens):
            ordinals, often = self._of(token)
            shown = seen.mask[ordinals]
            ordinals, often = ordinals[shown], often[shown]
            rare = math.log(1 + (seen.count - len(ordinals) + 0.5) / (len(ordinals) + 0.5))
            long = K1 * (1 - B + B * self._lengths[ordinals] / seen.average)
            scores[ordinals] += rare * often * (K1 + 1) / (often + long)
        return self._ranked(scores, k)

    def _of(self, token: str) -> tuple[Places, Scores]:
        return self._postings.get(token, (np.empty(0, dtype=np.intp), np.empty(0)))

    def _ranked(self, scores: Scores, k: int) -> list[tuple[int, float]]:
        found = np.flatnonzero(scores)
        if len(found) > k:
            least = np.partition(scores[found], -k)[-k]
            found = found[scores[found] >= least]
        ranked = sorted((-float(scores[ordinal]), self._ids[ordinal], ordinal) for ordinal in found.tolist())
        return [(ordinal, -score) for score, _, ordinal in ranked[:k]]
