"""Leases in an event loop: it never waits, needs none of the threads that it lends, and what is given up is gone."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from pools import Holder, until, waiting


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[bm.Pool]:
    with bm.Pool(tmp_path / "pool", max_open=1) as made:
        yield made


class Held:
    """Holds every opening of a store until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started, self.go = threading.Event(), threading.Event()
        self._open = bm.open
        monkeypatch.setattr(bm, "open", self._slowly)

    def _slowly(self, *path: Any, **options: Any) -> bm.Store:
        self.started.set()
        assert self.go.wait(30)
        return self._open(*path, **options)


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run in an event loop of its own; the threads of pools must have ended soon after."""
    out = asyncio.run(work())
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "branchmem-pool"])
    return out


async def soon(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


async def told(pool: bm.Pool, owner: str, *ids: str) -> None:
    async with pool.open(owner) as store:
        await store.aappend([bm.Message(id, None) for id in ids])


def test_a_lease_in_an_event_loop_is_a_lease(pool: bm.Pool) -> None:
    async def work() -> None:
        await told(pool, "alice", "m")
        lease = pool.open("alice")
        async with lease as one, lease as again, pool.open("alice") as other:
            assert one is again is other
            assert "m" in one.log
        assert pool.stats().pinned == 0
        await told(pool, "bob", "n")
        with pytest.raises(bm.StoreMissing):
            async with pool.open("carol", create=False):
                pass

    run(work)
    assert set(pool.owners()) == {"alice", "bob"}
    assert (pool.stats().opened, pool.stats().hits) == (2, 3)


def test_many_tasks_share_little_room(pool: bm.Pool) -> None:
    async def work() -> None:
        await asyncio.gather(*(told(pool, f"o{at % 7}", f"m{at}") for at in range(200)))

    run(work)
    for number in range(7):
        with pool.open(f"o{number}") as store:
            assert {event.id for event in store.log.events()} == {f"m{at}" for at in range(number, 200, 7)}
    assert pool.stats().open == 1


def test_the_event_loop_goes_on_while_a_store_is_opened(pool: bm.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)

    async def work() -> None:
        task = asyncio.create_task(told(pool, "alice", "m"))
        ticks = 0
        while not (held.started.is_set() and ticks >= 100):
            await asyncio.sleep(0)
            ticks += 1
        assert not task.done()
        held.go.set()
        await task

    run(work)


def test_leases_need_none_of_the_threads_that_a_loop_lends(pool: bm.Pool) -> None:
    """These may all be waiting for the very leases that end only when others are opened."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        busy = threading.Event()
        lent = ThreadPoolExecutor(1)
        loop.set_default_executor(lent)
        blocked = loop.run_in_executor(None, busy.wait)
        await told(pool, "alice", "m")
        waits = [asyncio.create_task(told(pool, owner, "m")) for owner in ("bob", "carol", "bob", "alice")]
        await asyncio.gather(*waits)
        busy.set()
        await blocked

    run(work)


def test_who_waits_too_long_is_told(pool: bm.Pool) -> None:
    async def work() -> None:
        async with pool.open("alice"):
            with pytest.raises(bm.PoolBusy, match="all 1 that may be open"):
                async with pool.open("bob", timeout=0.01):
                    pass
        await told(pool, "bob", "m")

    run(work)


def test_threads_and_tasks_wait_in_one_queue(pool: bm.Pool) -> None:
    async def work() -> None:
        first = Holder(pool, "a")
        await soon(first.has.is_set)
        task = asyncio.create_task(told(pool, "b", "m"))
        await soon(waiting(pool, 1))
        last = Holder(pool, "c")
        await soon(waiting(pool, 2))
        await asyncio.to_thread(first.end)
        await task
        await soon(last.has.is_set)
        await asyncio.to_thread(last.end)

    run(work)


def test_a_lease_that_is_cancelled_while_it_waits_takes_no_room(pool: bm.Pool) -> None:
    async def work() -> None:
        async with pool.open("a"):
            waits = [asyncio.create_task(told(pool, owner, "m")) for owner in ("b", "b", "c")]
            await soon(waiting(pool, 3))
            waits[0].cancel()
            waits[2].cancel()
            await soon(waiting(pool, 1))
        done = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(answer) for answer in done] == [asyncio.CancelledError, type(None), asyncio.CancelledError]

    run(work)
    assert pool.stats().pinned == 0
    assert set(pool.owners()) == {"a", "b"}


def test_a_lease_that_is_cancelled_as_it_gets_room_passes_it_on(pool: bm.Pool) -> None:
    async def work() -> None:
        async with pool.open("a"):
            waits = [asyncio.create_task(told(pool, owner, "m")) for owner in "bc"]
            await soon(waiting(pool, 2))
        waits[0].cancel()  # it was given the room by now, and does not know yet
        done = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(answer) for answer in done] == [asyncio.CancelledError, type(None)]

    run(work)
    assert set(pool.owners()) == {"a", "c"}


def test_a_lease_that_is_cancelled_while_its_store_is_opened_is_given_up(
    pool: bm.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)

    async def work() -> None:
        task = asyncio.create_task(told(pool, "alice", "m"))
        await soon(held.started.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held.go.set()
        await told(pool, "bob", "m")

    run(work)
    assert (pool.stats().pinned, pool.stats().open, pool.stats().evicted) == (0, 1, 1)


def test_a_loop_that_is_closed_while_it_waits_keeps_nobody_out(pool: bm.Pool) -> None:
    gone = asyncio.new_event_loop()
    with pool.open("a"):
        lost = [gone.create_task(told(pool, owner, "m")) for owner in "bcb"]
        while pool.stats().waiting < 3:
            gone.run_until_complete(asyncio.sleep(0.001))
        gone.close()
        last = Holder(pool, "d")
        until(waiting(pool, 4))
    until(last.has.is_set)
    last.end()
    assert pool.stats().waiting == 0
    for task in lost:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # its loop is gone; that is the point
    with pool.open("b") as store:
        del lost, task
        gc.collect()  # now the tasks give up their leases, which they never had
        with pool.open("b") as same:
            assert same is store
        assert (pool.stats().open, pool.stats().pinned) == (1, 1)


def test_a_loop_that_is_closed_while_a_store_is_opened_for_it_holds_no_lease(
    pool: bm.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    gone = asyncio.new_event_loop()
    task = gone.create_task(told(pool, "a", "m"))
    while not held.started.is_set():
        gone.run_until_complete(asyncio.sleep(0.001))
    gone.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # its loop is gone; that is the point
    del task
    held.go.set()
    until(lambda: pool.stats().opened)
    until(lambda: gc.collect() >= 0 and not pool.stats().pinned)
    with pool.open("b"):
        assert pool.stats().open == 1


def test_a_lease_given_up_as_the_pool_is_closed_leaves_nothing_open(pool: bm.Pool) -> None:
    async def work() -> bm.Store:
        with pool.open("a") as store:
            task = asyncio.create_task(told(pool, "b", "m"))
            await soon(waiting(pool, 1))
        task.cancel()  # it was told to close the store of a, and does not know yet
        pool.close()
        with pytest.raises(asyncio.CancelledError):
            await task
        return store

    store = run(work)
    assert store.closed


def test_a_thread_that_cannot_be_started_takes_no_room(pool: bm.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def work() -> None:
        with monkeypatch.context() as few:
            few.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start"):
                async with pool.open("alice"):
                    pass
        await told(pool, "bob", "m")

    run(work)
    assert (list(pool.owners()), pool.stats().open) == (["bob"], 1)


def test_a_pool_that_is_closed_refuses_who_waits(pool: bm.Pool) -> None:
    async def work() -> None:
        async with pool.open("a"):
            task = asyncio.create_task(told(pool, "b", "m"))
            await soon(waiting(pool, 1))
            pool.close()
            with pytest.raises(bm.StoreClosed, match="the pool is closed"):
                await task
        with pytest.raises(bm.StoreClosed, match="the pool is closed"):
            await told(pool, "a", "m")

    run(work)
