"""A changed work in two stores: whole, and with nothing taken back and nothing replaced.

Both hold the same messages and memories with the same sources, so what they differ in
is what the changes cost.  Both are first found right against plain Python.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final

import branchmem as bm
import numpy as np
import numpy.typing as npt
from branchmem.reference import Reference

from bench import shapes
from bench.changed import CHANGES, ChangedWork
from bench.peers.marking import Marking
from bench.rows import Peer, Row, measure
from bench.timing import Runner
from bench.workbench import Workbench, filled

Ordinals = npt.NDArray[np.uint32]

MARKING: Final = "Python, sets and marks"
WITHOUT: Final = "the same, unchanged"
CHECKED: Final = 50  # anchors at which plain Python is asked
FEW: Final = 10  # anchors at which plain Python is timed


class Beside:
    """The two stores, and the plain peer of each."""

    def __init__(self, changed: ChangedWork) -> None:
        self.changed = changed
        self.unchanged = changed.without()
        self.store = filled(changed.events())
        self.bare = filled(self.unchanged.events())

    @cached_property
    def marking(self) -> Marking:
        """Plain Python on the changed work."""
        return Marking(self.changed)

    @cached_property
    def bare_marking(self) -> Marking:
        """Plain Python on the unchanged one."""
        return Marking(self.unchanged)

    def check(self, bench: Workbench, name: str, anchors: Sequence[int]) -> None:
        """Hold sets, counts and single decisions of both against plain Python."""
        rng = random.Random(shapes.SEED)
        work = self.changed.work
        for store, marking in ((self.store, self.marking), (self.bare, self.bare_marking)):
            for anchor in list(dict.fromkeys(anchors))[:CHECKED]:
                view, shown = store.at(work.message_ids[anchor]), set(marking.ordinals(anchor))
                what = f"{name} {self.changed.name}"
                bench.check(what, set(view.ordinals().tolist()), shown)
                bits = np.unpackbits(np.frombuffer(view.bitmap(), np.uint8), bitorder="little")
                bench.check(what, set(np.flatnonzero(bits).tolist()), shown)
                bench.check(what, len(view), len(shown))
                asked = self._candidates(anchor, rng)
                bench.check(what, [work.memory_ids[at] in view for at in asked], [at in shown for at in asked])
                places = np.array(asked, np.uint32), np.full(len(asked), anchor, np.uint32)
                bench.check(what, store.visible(*places).tolist(), [at in shown for at in asked])

    def describe(self, bench: Workbench, anchors: Sequence[int]) -> None:
        """Say what was measured, for the head of the table."""
        changed, ids = self.changed, [self.changed.work.message_ids[anchor] for anchor in anchors]
        shown = [sum(len(store.at(id)) for id in ids) / len(ids) for store in (self.bare, self.store)]
        bench.describe(
            work=changed.name,
            memories=len(changed.work.memory_ids),
            retractions=len(changed.takings),
            restorations=sum(len(taking.lifts) for taking in changed.takings),
            replacing=len(changed.replaces),
            visible_unchanged=round(shown[0], 1),
            visible=round(shown[1], 1),
        )

    def masks(self, bench: Workbench, name: str, anchors: Sequence[int], goal: float | None = None) -> list[Row]:
        """`store.at(a).bitmap()` and `len(store.at(a))`, whole against unchanged."""
        ids = [self.changed.work.message_ids[anchor] for anchor in anchors]

        def bitmaps(store: bm.Store) -> Runner:
            def run() -> None:
                at = store.at
                for id in ids:
                    at(id).bitmap()

            return self._runner(store, run, len(ids))

        def counts(store: bm.Store) -> Runner:
            def run() -> None:
                at = store.at
                for id in ids:
                    len(at(id))

            return self._runner(store, run, len(ids))

        def by_marks() -> None:
            for anchor in anchors[:FEW]:
                self.marking.ordinals(anchor)

        plain = Peer(MARKING, [Runner("marking", by_marks, len(anchors[:FEW]))])
        asked = {"store.at(a).bitmap()": (bitmaps, [plain]), "len(store.at(a))": (counts, [])}
        rows = []
        for question, (runner, peers) in asked.items():
            rows += self._race(bench, name, question, runner, goal, peers)
        return rows

    def decisions(self, bench: Workbench, name: str, anchors: Sequence[int], goal: float | None = None) -> list[Row]:
        """`memory in view`, for candidates of which half are shown by their sources, views at hand."""
        rng = random.Random(shapes.SEED)
        work = self.changed.work
        asked = [
            (work.message_ids[at], [work.memory_ids[memory] for memory in self._candidates(at, rng)]) for at in anchors
        ]

        def runner(store: bm.Store) -> Runner:
            views = [(store.at(id), memories) for id, memories in asked]

            def run() -> None:
                for view, memories in views:
                    [id in view for id in memories]

            return self._runner(store, run, sum(len(memories) for _, memories in asked))

        return self._race(bench, name, "memory in view", runner, goal)

    def pairs(self, bench: Workbench, name: str, anchors: Sequence[int], count: int) -> list[Row]:
        """`store.visible(pairs)`: any pairs, and pairs at these anchors of which half are shown by their sources."""
        generator = np.random.default_rng(shapes.SEED)
        rng = random.Random(shapes.SEED)
        work = self.changed.work
        at_anchors = [(memory, anchor) for anchor in anchors for memory in self._candidates(anchor, rng)]
        chosen = generator.choice(np.array(at_anchors, np.uint32), size=count)
        asked = {
            "any": (
                generator.integers(len(work.memory_ids), size=count, dtype=np.uint32),
                generator.integers(len(work.message_ids), size=count, dtype=np.uint32),
            ),
            "half shown": (chosen[:, 0].copy(), chosen[:, 1].copy()),
        }
        rows = []
        for which, pairs in asked.items():

            def runner(store: bm.Store, pairs: tuple[Ordinals, Ordinals] = pairs) -> Runner:
                return self._runner(store, lambda: store.visible(*pairs), count)

            rows += self._race(bench, name, f"store.visible({shapes.size_name(count)} pairs, {which}), each", runner)
        return rows

    def _runner(self, store: bm.Store, run: Callable[[], object], operations: int) -> Runner:
        return Runner("ours" if store is self.store else "unchanged", run, operations)

    def _race(
        self,
        bench: Workbench,
        name: str,
        question: str,
        runner: Callable[[bm.Store], Runner],
        goal: float | None = None,
        peers: Sequence[Peer] = (),
    ) -> list[Row]:
        against = [Peer(WITHOUT, [runner(self.bare)], goal), *peers]
        return measure(name, question, self.changed.name, runner(self.store), against, rounds=bench.size.rounds)

    def _candidates(self, anchor: int, rng: random.Random) -> list[int]:
        shown = self.bare_marking.ordinals(anchor) or [0]
        candidates = rng.choices(shown, k=100) + rng.choices(range(len(self.changed.work.memory_ids)), k=100)
        rng.shuffle(candidates)
        return candidates


@contextmanager
def beside(changed: ChangedWork) -> Iterator[Beside]:
    """The two stores, closed at the end."""
    both = Beside(changed)
    try:
        yield both
    finally:
        both.store.close()
        both.bare.close()


def check_against_reference(bench: Workbench, name: str, kind: str) -> None:
    """Hold an engine, the plain peer and the specification against each other, on a small log of the same kind."""
    changed = CHANGES[kind](bench.size.specified)
    engine, reference, marking = bm.Engine(), Reference(), Marking(changed)
    for answers in (engine, reference):
        answers.add(changed.events())
    for anchor in shapes.anchors(changed.work, FEW):
        id = changed.work.message_ids[anchor]
        shown = sorted(marking.ordinals(anchor))
        bench.check(f"{name} {changed.name}, the reference", reference.at(id).ordinals().tolist(), shown)
        bench.check(f"{name} {changed.name}, the engine", engine.at(id).ordinals().tolist(), shown)
        bench.check(
            f"{name} {changed.name}, reasons", engine.at(id).reasons().tolist(), reference.at(id).reasons().tolist()
        )
