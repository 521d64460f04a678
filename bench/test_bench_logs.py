"""What taking events in costs on each shape: into an engine, durably into a store, and again when it is opened.

Charts are named as in `test_bench_views.py`.  All three must be linear on every
shape, or a label moves.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import branchmem as bm
from pytest_benchmark.fixture import BenchmarkFixture

from bench.charts import ENGINES, chart, on_every_shape, on_every_store, work_of
from bench.shapes import Work
from bench.workbench import BATCH

ROUNDS = 3


def pedantic(benchmark: BenchmarkFixture, run: Any, setup: Any = None) -> Any:
    return benchmark.pedantic(run, setup=setup, rounds=ROUNDS)  # type: ignore[no-untyped-call]  # it ships no types


def batches(work: Work) -> list[list[bm.Message | bm.Memory]]:
    events = work.events()
    return list(iter(lambda: list(islice(events, BATCH)), []))


def is_whole(store: Any, work: Work) -> bool:
    return list(store.message_ids) == work.message_ids and list(store.memory_ids) == work.memory_ids


@on_every_shape
def test_bench_add(benchmark: BenchmarkFixture, name: str, shape: str, count: int) -> None:
    """All events of a work in one batch."""
    work = work_of(shape, count)
    events = list(work.events())
    chart(benchmark, "add", work, name)

    def add() -> Any:
        engine = ENGINES[name]()
        engine.add(events)
        return engine

    assert is_whole(pedantic(benchmark, add), work)


@on_every_store
def test_bench_append(benchmark: BenchmarkFixture, tmp_path: Path, shape: str, count: int) -> None:
    """All events in durable batches of 10,000, into a store that is empty."""
    work = work_of(shape, count)
    written = batches(work)
    stores: list[bm.Store] = []
    chart(benchmark, "append", work, "store")

    def empty() -> None:
        stores.append(bm.open(tmp_path / f"{len(stores)}.bmem"))

    def append() -> None:
        for batch in written:
            stores[-1].append(batch)

    pedantic(benchmark, append, setup=empty)
    assert all(is_whole(store, work) for store in stores)
    for store in stores:
        store.close()


@on_every_store
def test_bench_open(benchmark: BenchmarkFixture, tmp_path: Path, shape: str, count: int) -> None:
    """Replaying a store that is there."""
    work, path = work_of(shape, count), tmp_path / "opened.bmem"
    with bm.open(path) as store:
        for batch in batches(work):
            store.append(batch)
    with bm.open(path) as store:
        assert is_whole(store, work)
    chart(benchmark, "open", work, "store")
    pedantic(benchmark, lambda: bm.open(path).close())
