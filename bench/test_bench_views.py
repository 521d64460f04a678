"""What a question costs on each shape: one bit a memory, one memory, many pairs, one message above another.

A chart is one question on one work, `question/shape/size`; the reference is on
the charts of 1,000 memories.  Run `pytest bench`, or `pytest bench --largest 1000`
for the small charts alone; figures compare within one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle
from typing import Any

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from bench import shapes
from bench.charts import chart, filled, on_every_shape, work_of
from bench.peers.walk import Walk
from bench.shapes import ROOT, Work
from bench.tour import Tour


def anchors_of(work: Work) -> list[str]:
    """Ten anchors to go round, each checked against climbing to the root."""
    return [work.message_ids[anchor] for anchor in shapes.anchors(work, 10)]


def seen_by_climbing(work: Work) -> list[bytes]:
    walk = Walk(work, Tour.of(work))
    return [walk.bitmap(anchor) for anchor in shapes.anchors(work, 10)]


def is_above(work: Work, a: int, b: int) -> bool:
    while b not in (a, ROOT):
        b = work.parents[b]
    return a == b


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
    memories = range(0, count, max(1, count // 100))
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
def test_bench_is_ancestor(benchmark: BenchmarkFixture, name: str, shape: str, count: int) -> None:
    """Must be alike on all shapes but for a factor of two; if dead ends cost more, checks climb chains."""
    work, engine = work_of(shape, count), filled(name, shape, count)
    pairs = list(zip(shapes.anchors(work, 200)[::2], shapes.anchors(work, 200)[1::2], strict=True))
    tree = engine.tree
    for a, b in pairs[:20]:
        assert tree.is_ancestor(work.message_ids[a], work.message_ids[b]) == is_above(work, a, b), f"{a} above {b}"
    ids = [(work.message_ids[a], work.message_ids[b]) for a, b in pairs]
    chart(benchmark, "is_ancestor", work, name)
    benchmark(each_in_turn(lambda pair: tree.is_ancestor(*pair), ids))
