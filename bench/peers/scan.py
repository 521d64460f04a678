"""The peer of numpy for vectors: one matrix product, then the best by `argpartition`.

What a good engineer would write: rows of length 1 in one float32 matrix by ordinal, what is visible at
hand as ordinals and as a mask, temporaries allocated once.  With the threads that numpy's BLAS takes by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Places = npt.NDArray[np.intp]
#: Ordinals and cosines, best first.
Nearest = tuple[Places, Vectors]


@dataclass(frozen=True, slots=True)
class Shown:
    """What one anchor sees, as each variant likes it best."""

    ordinals: Places
    hidden: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, mask: npt.NDArray[np.bool_]) -> Shown:
        """From one bool a memory."""
        return cls(np.flatnonzero(mask), ~mask)


class Scan:
    """Exact nearest rows: those that are visible gathered first, or all of them and a mask afterwards."""

    def __init__(self, rows: Vectors) -> None:
        self._rows = rows
        self._gathered = np.empty_like(rows)
        self._scores = np.empty(len(rows), dtype=np.float32)

    def gather(self, shown: Shown, vector: Vectors, k: int) -> Nearest:
        """Visible rows by a fancy index, then the product."""
        return _best(self._rows[shown.ordinals] @ vector, shown.ordinals, k)

    def take(self, shown: Shown, vector: Vectors, k: int) -> Nearest:
        """Visible rows into memory allocated before, without a check of the bounds."""
        count = len(shown.ordinals)
        rows, scores = self._gathered[:count], self._scores[:count]
        self._rows.take(shown.ordinals, axis=0, out=rows, mode="clip")
        return _best(np.matmul(rows, vector, out=scores), shown.ordinals, k)

    def mask(self, shown: Shown, vector: Vectors, k: int) -> Nearest:
        """All rows; hidden scores set below every other."""
        np.matmul(self._rows, vector, out=self._scores)
        self._scores[shown.hidden] = -np.inf
        return _best(self._scores, None, min(k, len(shown.ordinals)))

    def pick(self, shown: Shown, vector: Vectors, k: int) -> Nearest:
        """All rows; the scores of what is visible picked out."""
        np.matmul(self._rows, vector, out=self._scores)
        return _best(self._scores[shown.ordinals], shown.ordinals, k)


def _best(scores: Vectors, ordinals: Places | None, k: int) -> Nearest:
    top = np.argpartition(scores, -k)[-k:] if k < len(scores) else np.arange(len(scores))
    top = top[np.argsort(-scores[top])]
    return top if ordinals is None else ordinals[top], scores[top]
