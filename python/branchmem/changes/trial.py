"""What events would change: the log as it is and as it would be, in two engines made for the question.

The answer is the engine's own, so it is exact; the engine of the store and its counters are left
alone, and nothing is written.  Skeletons only: contents decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from branchmem.changes.receipts import Elsewhere
from branchmem.eventlog import skeletons as skeletons_of
from branchmem.questions import Questions
from branchmem.verdict import Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from branchmem import _core

_PAGE: Final = 10_000
#: What the bitmaps of one round of leaves may take, before and after each.
_BITMAP_BYTES: Final = 8 << 20


class Trial:
    """Two engines: `before` has what the given one has, `after` has the events as well.

    Cost: replays the log twice, some microseconds an event, and holds both engines, some 300 bytes an event.
    """

    def __init__(self, engine: _core.Engine, skeletons: Sequence[bytes]) -> None:
        self.before, self.after = Questions(), Questions()
        trials = (self.before._engine, self.after._engine)
        end = engine.seq
        for trial in trials:
            trial.reserve(end + len(skeletons))
        for start in range(0, end, _PAGE):
            # Both number the ids alike, since they have taken in the same: one's blocks are the other's.
            blocks = trials[0].encode(list(skeletons_of(engine, start, min(start + _PAGE, end))))
            for trial in trials:
                trial.fold(blocks)
        after = self.after._engine
        new, *_ = after.plan(skeletons)
        after.fold(after.encode([skeletons[at] for at in new]))

    def at(self, anchors: Sequence[str]) -> Seen:
        """The effect on the view at some anchors."""
        seen = Seen(self.before, anchors)
        seen.again(self.after)
        return seen

    def elsewhere(self, anchors: Iterable[str]) -> Elsewhere:
        """What changes at every leaf that is none of the anchors.

        Cost: two bitmaps a leaf, some leaves at a time: memory does not grow with their number.
        """
        import numpy as np

        skipped = frozenset(anchors)
        leaves = [leaf for leaf in self.before.tree.leaves() if leaf not in skipped]
        ids = self.after.memory_ids
        row_bytes = max(1, (len(ids) + 7) // 8)
        rows = max(1, _BITMAP_BYTES // row_bytes)
        hidden, shown = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
        changed = 0
        for start in range(0, len(leaves), rows):
            some = leaves[start : start + rows]
            before, after = self.before.bitmaps(some), self.after.bitmaps(some)
            before = np.pad(before, ((0, 0), (0, after.shape[1] - before.shape[1])))
            changed += int((before != after).any(axis=1).sum())
            _tally(hidden, before & ~after)
            _tally(shown, after & ~before)
        return Elsewhere(len(leaves), changed, _counts(ids, hidden), _counts(ids, shown))


class Seen:
    """A view before a change, to be compared with the same view after it.  Not counted."""

    def __init__(self, questions: Questions, anchors: Sequence[str]) -> None:
        self.anchors = tuple(anchors)
        self.hidden: tuple[str, ...] = ()
        self.shown: tuple[str, ...] = ()
        self._before = questions.at(self.anchors, count=False).ordinals() if anchors else None

    def again(self, questions: Questions) -> None:
        """Look once more: `hidden` is what has gone meanwhile, `shown` what has come, in order of arrival.

        Cost: both views.
        """
        if self._before is None:
            return
        import numpy as np

        self._after = questions.at(self.anchors, count=False)
        after, ids = self._after.ordinals(), questions.memory_ids
        self.hidden = tuple(ids[at] for at in np.setdiff1d(self._before, after, assume_unique=True).tolist())
        self.shown = tuple(ids[at] for at in np.setdiff1d(after, self._before, assume_unique=True).tolist())

    def hiding(self, memories: Iterable[str]) -> list[Verdict]:
        """The verdicts on those of the memories that are hidden as seen again."""
        if self._before is None:
            return []
        return [verdict for verdict in map(self._after.explain, memories) if not verdict.visible]


def _tally(counts: NDArray[np.int64], bitmaps: NDArray[np.uint8]) -> None:
    """Add to the count of each memory in how many rows its bit is set.  O(bytes, then bits that are set in any row)."""
    import numpy as np

    places = np.flatnonzero(bitmaps.any(axis=0))
    columns = bitmaps.take(places, axis=1)  # indexing would transpose them, and unpacking be ten times as slow
    bits = np.unpackbits(columns, axis=1, bitorder="little").sum(axis=0)
    memories = (places[:, None] * 8 + np.arange(8)).reshape(-1)
    inside = memories < counts.size
    counts[memories[inside]] += bits[inside].astype(np.int64)


def _counts(ids: Sequence[str], counts: NDArray[np.int64]) -> dict[str, int]:
    return {ids[at]: int(counts[at]) for at in counts.nonzero()[0].tolist()}
