"""What many small stores cost: opening one, asking and closing it, and what a lease saves of that.

And what a thousand appends of one event cost, together and one after the other.  A chart is one
question on one work, `question/shape/size`.  Run `pytest bench`; figures compare within one run.
What waits for the disk hangs on the disk more than on anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path

import branchmem as bm
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import shapes

OWNERS = [f"o{number}" for number in range(100)]
CALLERS = 1_000


def chart(benchmark: BenchmarkFixture, question: str, name: str) -> None:
    benchmark.group = question
    benchmark.name = f"{question} {name}"


@pytest.fixture(scope="module")
def work() -> shapes.Work:
    """A hundred events: fifty messages, fifty memories."""
    return shapes.work("chats", 50)


@pytest.fixture
def folder(tmp_path: Path, work: shapes.Work) -> Path:
    """A pool of a hundred owners with the same small store each."""
    with bm.Pool(tmp_path) as pool:
        with pool.open(OWNERS[0]) as store:
            store.append(work.events())
        filled = Path(pool.path(OWNERS[0])).read_bytes()
        for owner in OWNERS[1:]:
            path = Path(pool.path(owner))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(filled)
    return tmp_path


def asked(store: bm.Store, work: shapes.Work) -> int:
    return len(store.at(work.message_ids[-1]))


def leases(pool: bm.Pool, work: shapes.Work) -> Callable[[], int]:
    """Ask the stores of all owners in turn."""
    owners = cycle(OWNERS)

    def lease() -> int:
        with pool.open(next(owners)) as store:
            return asked(store, work)

    return lease


def test_bench_open(benchmark: BenchmarkFixture, folder: Path, work: shapes.Work) -> None:
    """At most 2 ms, most of it LMDB's and the system's; if it grows with the folder, something is read too often."""
    chart(benchmark, f"open, ask, close/{work.name}", "store")
    with bm.Pool(folder) as pool:
        paths = cycle(map(pool.path, OWNERS))

    def opened() -> int:
        with bm.open(next(paths)) as store:
            return asked(store, work)

    assert opened() > 0
    benchmark(opened)


def test_bench_lease_hit(benchmark: BenchmarkFixture, folder: Path, work: shapes.Work) -> None:
    """Microseconds: the store is there."""
    chart(benchmark, f"lease/{work.name}", "open already")
    with bm.Pool(folder, max_open=len(OWNERS)) as pool:
        lease = leases(pool, work)
        for _ in OWNERS:
            assert lease() > 0
        benchmark(lease)
        assert pool.stats().opened == len(OWNERS)


def test_bench_lease_miss(benchmark: BenchmarkFixture, folder: Path, work: shapes.Work) -> None:
    """What opening costs, and closing another; the pool itself must add next to nothing."""
    chart(benchmark, f"lease/{work.name}", "another closed for it")
    with bm.Pool(folder, max_open=10) as pool:
        lease = leases(pool, work)
        for _ in OWNERS:
            assert lease() > 0
        benchmark(lease)
        assert pool.stats().hits == 0


@pytest.fixture
def batches() -> Iterator[list[bm.Message]]:
    return ([bm.Message(f"m{number}", None, text="I'm moving to Chengdu")] for number in count())


def test_bench_append_together(
    benchmark: BenchmarkFixture, tmp_path: Path, batches: Iterator[list[bm.Message]]
) -> None:
    """A thousand callers share a commit or two: at least ten times as quick as one after the other."""
    chart(benchmark, f"append/one event/{shapes.size_name(CALLERS)}", "together")
    with bm.open(tmp_path / "store.bmem") as store, asyncio.Runner() as runner:

        async def together() -> int:
            answers = await asyncio.gather(*(store.aappend(next(batches)) for _ in range(CALLERS)))
            return sum(answer.added for answer in answers)

        added = benchmark.pedantic(lambda: runner.run(together()), rounds=5)  # type: ignore[no-untyped-call]
        assert added == CALLERS


def test_bench_append_one_by_one(
    benchmark: BenchmarkFixture, tmp_path: Path, batches: Iterator[list[bm.Message]]
) -> None:
    """A thousand commits, each waiting for the disk."""
    chart(benchmark, f"append/one event/{shapes.size_name(CALLERS)}", "one by one")
    with bm.open(tmp_path / "store.bmem") as store:

        def one_by_one() -> int:
            return sum(store.append(next(batches)).added for _ in range(CALLERS))

        added = benchmark.pedantic(one_by_one, rounds=2)  # type: ignore[no-untyped-call]
        assert added == CALLERS
