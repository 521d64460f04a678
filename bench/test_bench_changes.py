"""What a question costs where much is taken back or replaced: one bit a memory, one memory, many pairs, taking in.

Charts are named as in `test_bench_views.py`, with the kind of changes for the shape.
"""

from __future__ import annotations

from functools import cache
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import shapes
from bench.changed import CHANGES, ChangedWork
from bench.charts import ENGINES
from bench.peers.marking import Marking

on_every_kind = pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        pytest.param(name, kind, count, id=f"{kind}/{shapes.size_name(count)}-{name}")
        for kind in CHANGES
        for name, counts in (("reference", (200, 1_000)), ("engine", (200, 1_000, 100_000)))
        for count in counts
    ],
)


@cache
def changed_work(kind: str, count: int) -> ChangedWork:
    """The work of a kind, made once."""
    return CHANGES[kind](count)


@cache
def filled(name: str, kind: str, count: int) -> Any:
    """An engine, or the reference, that holds it."""
    engine = ENGINES[name]()
    engine.add(changed_work(kind, count).events())
    return engine


def chart(benchmark: BenchmarkFixture, question: str, changed: ChangedWork, name: str) -> None:
    """Put a benchmark on its chart, `question/kind/size`."""
    benchmark.group = f"{question}/{changed.name}"
    benchmark.name = f"{benchmark.group} {name}"


def shown_by_marks(changed: ChangedWork, count: int = 10) -> dict[str, set[int]]:
    """At a few anchors, the ordinals that plain Python finds."""
    marking = Marking(changed)
    anchors = shapes.anchors(changed.work, count)
    return {changed.work.message_ids[anchor]: set(marking.ordinals(anchor)) for anchor in anchors}


@on_every_kind
def test_bench_bitmap(benchmark: BenchmarkFixture, name: str, kind: str, count: int) -> None:
    """Must follow what hangs on the path; if it follows the number of retractions or of versions, filing is gone."""
    changed, engine = changed_work(kind, count), filled(name, kind, count)
    shown = shown_by_marks(changed)
    for anchor, ordinals in shown.items():
        bits = np.unpackbits(np.frombuffer(engine.at(anchor).bitmap(), np.uint8), bitorder="little")
        assert set(np.flatnonzero(bits).tolist()) == ordinals, f"{changed.name} at {anchor}, seed {shapes.SEED}"
    chart(benchmark, "bitmap", changed, name)
    anchors = cycle(shown)
    benchmark(lambda: engine.at(next(anchors)).bitmap())


@on_every_kind
def test_bench_contains(benchmark: BenchmarkFixture, name: str, kind: str, count: int) -> None:
    """Must not depend on the kind; if it does, a view looks for covers again that it had found."""
    changed, engine = changed_work(kind, count), filled(name, kind, count)
    (anchor, ordinals), *_ = shown_by_marks(changed, 1).items()
    view = engine.at(anchor)
    ids = {changed.work.memory_ids[memory]: memory for memory in range(0, count, max(1, count // 100))}
    assert {id: id in view for id in ids} == {id: memory in ordinals for id, memory in ids.items()}
    chart(benchmark, "contains", changed, name)
    asked = cycle(ids)
    benchmark(lambda: next(asked) in view)


@on_every_kind
def test_bench_visible(benchmark: BenchmarkFixture, name: str, kind: str, count: int) -> None:
    """A thousand pairs a call, of ten anchors and any memories."""
    changed, engine = changed_work(kind, count), filled(name, kind, count)
    marking = Marking(changed)
    generator = np.random.default_rng(shapes.SEED)
    anchors = np.repeat(np.array(shapes.anchors(changed.work, 10), np.uint32), 100)
    memories = generator.integers(count, size=1_000, dtype=np.uint32)
    shown = {anchor: set(marking.ordinals(anchor)) for anchor in set(anchors.tolist())}
    expected = [memory in shown[anchor] for memory, anchor in zip(memories.tolist(), anchors.tolist(), strict=True)]
    assert engine.visible(memories, anchors).tolist() == expected, f"seed {shapes.SEED}"
    chart(benchmark, "visible", changed, name)
    benchmark(engine.visible, memories, anchors)


@on_every_kind
def test_bench_add(benchmark: BenchmarkFixture, name: str, kind: str, count: int) -> None:
    """All events of a work in one batch; must be linear, also where one key is retracted all the time."""
    changed = changed_work(kind, count)
    events = list(changed.events())
    chart(benchmark, "add", changed, name)

    def add() -> Any:
        engine = ENGINES[name]()
        engine.add(events)
        return engine

    added = benchmark.pedantic(add, rounds=3)  # type: ignore[no-untyped-call]  # it ships no types
    assert added.seq == len(events)
