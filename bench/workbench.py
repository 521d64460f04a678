"""What a run needs once and uses often: works, stores that hold them, intervals, and the check of answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final

import branchmem as bm
from branchmem.events import Event

from bench import shapes
from bench.peers.intervals import Intervals
from bench.peers.walk import Walk
from bench.shapes import Work
from bench.tour import Tour

BATCH: Final = 10_000


class Unequal(AssertionError):
    """Ours and a peer's answer differ: no figure of this run means anything."""


def filled(events: Iterator[Event]) -> bm.Store:
    """A temporary store that holds these, in batches as they come."""
    store = bm.open_temporary()
    while batch := list(islice(events, BATCH)):
        store.append(batch)
    return store


class Loaded:
    """A work in a temporary store, and the peers that many rows share."""

    def __init__(self, shape: str, count: int) -> None:
        self.work: Work = shapes.work(shape, count)
        start = time.perf_counter()
        self.store = filled(self.work.events())
        self.seconds = time.perf_counter() - start
        if list(self.store.memory_ids) != self.work.memory_ids or list(self.store.message_ids) != self.work.message_ids:
            raise Unequal(f"{self.work.name}: ordinals are not the order of arrival")

    @cached_property
    def tour(self) -> Tour:
        """The Euler tour that the peers stand on."""
        return Tour.of(self.work)

    @cached_property
    def intervals(self) -> Intervals:
        """The peer of numpy."""
        return Intervals(self.tour)

    @cached_property
    def walk(self) -> Walk:
        """The peer that climbs: plain enough to choose the work by."""
        return Walk(self.work, self.tour)

    def description(self) -> dict[str, Any]:
        """What was measured, for the head of the table."""
        depth = shapes.depths(self.work.parents)
        latest: dict[int, int] = {}
        branching = 0
        for message, parent in enumerate(self.work.parents):
            tree = self.tour.tree[message]
            branching += parent not in (shapes.ROOT, latest.get(tree))
            latest[tree] = message
        sample = shapes.anchors(self.work, 500)
        count = len(depth)
        return {
            "work": self.work.name,
            "messages": count,
            "trees": self.work.parents.count(shapes.ROOT),
            "mean_depth": round(sum(depth) / count, 1),
            "branching": round(branching / count, 4),
            "memories": count,
            "mean_sources": round(sum(map(len, self.work.sources)) / count, 2),
            "forked": round(self.tour.deepest.count(None) / count, 4),
            "visible": round(sum(len(self.walk.ordinals(at)) for at in sample) / len(sample) / count, 5),
            "loaded_seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is: the numbers of memories, of those the reference answers for, of answers, of rounds."""

    tenth: int
    base: int
    large: int
    specified: int
    anchors: int
    rows: int
    pairs: int
    rounds: int


SIZES: Final = {
    "tiny": Size(tenth=200, base=500, large=2_000, specified=200, anchors=10, rows=10, pairs=1_000, rounds=1),
    "small": Size(
        tenth=1_000, base=10_000, large=100_000, specified=400, anchors=100, rows=100, pairs=100_000, rounds=3
    ),
    "full": Size(
        tenth=10_000, base=100_000, large=1_000_000, specified=1_000, anchors=200, rows=1_000, pairs=1_000_000, rounds=7
    ),
}


class Workbench:
    """What one run loads, each when a row first asks for it, the count of answers found equal, and what is left out."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.checked = 0
        self.left_out: list[str] = []
        self._loaded: dict[tuple[str, int], Loaded] = {}
        self._described: list[dict[str, Any]] = []

    def load(self, shape: str, count: int) -> Loaded:
        """The work of this shape and size, in a store."""
        key = shape, count
        if key not in self._loaded:
            self._loaded[key] = Loaded(shape, count)
        return self._loaded[key]

    def check(self, what: str, ours: object, theirs: object) -> None:
        """Count an equal pair of answers; Unequal where they differ."""
        if ours != theirs:
            raise Unequal(f"{what}: ours and the peer's answer differ")
        self.checked += 1

    def leave_out(self, what: str) -> None:
        """Say what cannot be measured here, and why."""
        self.left_out.append(what)

    def describe(self, **what: Any) -> None:
        """Put a work that is not kept loaded at the head of the table."""
        self._described.append(what)

    def descriptions(self) -> list[dict[str, Any]]:
        """Of everything loaded or described so far."""
        return [*(loaded.description() for loaded in self._loaded.values()), *self._described]

    def close(self) -> None:
        """Close every store."""
        for loaded in self._loaded.values():
            loaded.store.close()


@contextmanager
def workbench(size: Size) -> Iterator[Workbench]:
    """A workbench whose stores are closed at the end."""
    bench = Workbench(size)
    try:
        yield bench
    finally:
        bench.close()
