"""What a view costs on each shape: standing at an anchor, one bit a memory, one memory, many pairs.

A chart is one question on one work, `question/shape/size`; the reference is on
the charts of 1,000 memories.  Run `pytest bench`; figures compare within one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import cycle
from typing import Any

import branchmem as bm
import numpy as np
import pytest
from branchmem.reference import Reference
from pytest_benchmark.fixture import BenchmarkFixture

from bench import shapes
from bench.peers.walk import Walk
from bench.shapes import Work
from bench.tour import Tour

ENGINES: dict[str, Callable[[], Any]] = {"engine": bm.Engine, "reference": Reference}
CASES = [
    pytest.param(name, shape, count, id=f"{shape}/{shapes.size_name(count)}-{name}")
    for name, counts in (("reference", (1_000,)), ("engine", (1_000, 100_000)))
    for shape in shapes.SHAPES
    for count in counts
]
on_every_shape = pytest.mark.parametrize(("name", "shape", "count"), CASES)


@cache
def work_of(shape: str, count: int) -> Work:
    return shapes.work(shape, count)


@cache
def filled(name: str, shape: str, count: int) -> Any:
    engine = ENGINES[name]()
    engine.add(work_of(shape, count).events())
    return engine


def anchors_of(work: Work) -> list[str]:
    """Ten anchors to go round, each checked against climbing to the root."""
    return [work.message_ids[anchor] for anchor in shapes.anchors(work, 10)]


def seen_by_climbing(work: Work) -> list[bytes]:
    walk = Walk(work, Tour.of(work))
    return [walk.bitmap(anchor) for anchor in shapes.anchors(work, 10)]


def chart(benchmark: BenchmarkFixture, question: str, work: Work, name: str) -> None:
    benchmark.group = f"{question}/{work.name}"
    benchmark.name = f"{benchmark.group} {name}"


def each_in_turn(question: Callable[[Any], object], arguments: Iterable[Any]) -> Callable[[], object]:
    endless = cycle(arguments)
    return lambda: question(next(endless))


@on_every_shape
def test_bench_bitmap(benchmark: BenchmarkFixture, name: str, shape: str, count: int) -> None:
    """Must follow what is visible; if chats grow with their number of memories, the sparse walk is gone."""
    work, engine = work_of(shape, count), filled(name, shape, count)
    anchors = anchors_of(work)
    assert [bytes(engine.at(anchor).bitmap()) for anchor in anchors] == seen_by_climbing(work)
    chart(benchmark, "bitmap", work, name)
    benchmark(each_in_turn(lambda anchor: engine.at(anchor).bitmap(), anchors))


@on_every_shape
def test_bench_contains(benchmark: BenchmarkFixture, name: str, shape: str, count: int) -> None:
    """Must be alike on all shapes; if deep ones cost more, a check climbs again."""
    work, engine = work_of(shape, count), filled(name, shape, count)
    view = engine.at(anchors_of(work)[0])
    bits = np.unpackbits(np.frombuffer(seen_by_climbing(work)[0], dtype=np.uint8), bitorder="little")
    memories = range(0, count, count // 100)
    assert [work.memory_ids[memory] in view for memory in memories] == [bool(bits[memory]) for memory in memories]
    chart(benchmark, "contains", work, name)
    benchmark(each_in_turn(lambda id: id in view, [work.memory_ids[memory] for memory in memories]))


@on_every_shape
def test_bench_visible(benchmark: BenchmarkFixture, name: str, shape: str, count: int) -> None:
    """A thousand pairs a call: what a pair costs once the call itself is paid for."""
    work, engine = work_of(shape, count), filled(name, shape, count)
    generator = np.random.default_rng(shapes.SEED)
    memories = generator.integers(count, size=1_000, dtype=np.uint32)
    anchors = generator.integers(count, size=1_000, dtype=np.uint32)
    flags = engine.visible(memories, anchors)
    walk = Walk(work, Tour.of(work))
    for memory, anchor, flag in list(zip(memories.tolist(), anchors.tolist(), flags.tolist(), strict=True))[:100]:
        assert flag == (memory in walk.ordinals(anchor)), f"memory {memory} at {anchor}, seed {shapes.SEED}"
    chart(benchmark, "visible", work, name)
    benchmark(engine.visible, memories, anchors)


@on_every_shape
def test_bench_add(benchmark: BenchmarkFixture, name: str, shape: str, count: int) -> None:
    """All events of a work in one batch: linear on every shape, or a label moves."""
    work = work_of(shape, count)
    events = list(work.events())
    chart(benchmark, "add", work, name)

    def add() -> Any:
        engine = ENGINES[name]()
        engine.add(events)
        return engine

    engine = benchmark.pedantic(add, rounds=3)  # type: ignore[no-untyped-call]  # pytest-benchmark leaves it bare
    assert len(engine.memory_ids) == len(engine.message_ids) == count
