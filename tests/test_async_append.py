"""Appending from an event loop: callers share commits, the loop never waits for the disk, each gets his own answer."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.coalesce import MAX_EVENTS
from branchmem.events import Event
from logs import in_child


class Gate:
    """Holds every commit of a store until it is opened, and counts commits."""

    def __init__(self, store: bm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.reached = threading.Event()
        self.commits = 0
        self._open = threading.Event()
        self._write = store._log.write
        monkeypatch.setattr(store._log, "write", self._held)

    def _held(self, *work: Any, **then: Any) -> Any:
        self.reached.set()
        assert self._open.wait(30), "nobody opened the gate"
        self.commits += 1
        return self._write(*work, **then)

    def open(self) -> None:
        self._open.set()

    async def queued(self, count: int) -> None:
        """Wait until one commit is held and so many batches wait for the next."""
        while not (self.reached.is_set() and len(self.store._coalescer._waiting) == count):
            await asyncio.sleep(0.001)


@pytest.fixture
def store(path: Path) -> Iterator[bm.Store]:
    with bm.open(path) as opened:
        yield opened


@pytest.fixture
def gate(store: bm.Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(store, monkeypatch)
    yield gate
    gate.open()


def message(id: str, text: str = "") -> list[Event]:
    return [bm.Message(id, None, text=text)]


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run in an event loop of its own; the threads that wrote must have ended soon after."""
    out = asyncio.run(work())
    for thread in threading.enumerate():
        if thread.name == "branchmem-append":
            thread.join(10)
            assert not thread.is_alive()
    return out


async def first(store: bm.Store, gate: Gate, batch: list[Event]) -> asyncio.Task[bm.Appended]:
    """Append a batch whose commit is held: what comes now shares the next one."""
    task = asyncio.create_task(store.aappend(batch))
    await gate.queued(0)
    return task


def test_a_thousand_callers_share_a_few_commits(store: bm.Store, gate: Gate) -> None:
    async def work() -> list[bm.Appended]:
        head = await first(store, gate, message("m0"))
        rest = [asyncio.create_task(store.aappend(message(f"m{at}"))) for at in range(1, 1000)]
        await gate.queued(999)
        gate.open()
        return list(await asyncio.gather(head, *rest))

    answers = run(work)

    assert answers == [bm.Appended(1, 0, at + 1) for at in range(1000)]
    assert gate.commits == 2
    with bm.open_temporary() as serial:
        serial.append([event for at in range(1000) for event in message(f"m{at}")])
        assert store.digest() == serial.digest()


def test_a_commit_takes_no_more_than_so_many_events(store: bm.Store, gate: Gate) -> None:
    async def work() -> None:
        head = await first(store, gate, message("m"))
        half = [bm.Message(f"a{at}", None) for at in range(MAX_EVENTS // 2)]
        rest = [asyncio.create_task(store.aappend(half)) for _ in range(3)]
        await gate.queued(3)
        gate.open()
        answers = await asyncio.gather(head, *rest)
        assert [answer.added for answer in answers] == [1, MAX_EVENTS // 2, 0, 0]

    run(work)
    assert gate.commits == 3


def test_the_event_loop_goes_on_while_the_disk_is_slow(store: bm.Store, gate: Gate) -> None:
    async def work() -> int:
        task = asyncio.create_task(store.aappend(message("m")))
        ticks = 0
        while not (gate.reached.is_set() and ticks >= 100):
            await asyncio.sleep(0)
            ticks += 1
        assert not task.done()
        gate.open()
        return (await task).added

    assert run(work) == 1


def test_a_caller_alone_gets_what_append_gives(store: bm.Store) -> None:
    async def work() -> None:
        assert await store.aappend(message("m", "a")) == bm.Appended(1, 0, 1)
        assert await store.aappend([*message("m", "a"), *message("n"), *message("n")]) == bm.Appended(1, 2, 2)
        assert await store.aappend([]) == bm.Appended(0, 0, 2)
        with pytest.raises(bm.EventConflict, match="another text") as raised:
            await store.aappend(message("m", "b"))
        assert (raised.value.id, raised.value.stored, raised.value.given) == ("m", "a", "b")
        with pytest.raises(bm.InvalidEvent, match="a list of events"):
            await store.aappend(message("m")[0])  # type: ignore[arg-type]

    run(work)


def test_who_is_refused_does_not_harm_the_others(store: bm.Store, gate: Gate) -> None:
    async def work() -> list[Any]:
        head = await first(store, gate, message("m", "a"))
        batches = [
            [*message("x"), *message("m", "b")],  # clashes with what is stored by then
            message("m", "a"),
            [*message("x"), *message("y", "one")],
            [*message("z"), *message("y", "two")],  # clashes with the batch before it
            [*message("z"), *message("y", "one")],
            [*message("w", "one"), *message("w", "two")],  # clashes with itself
            message("w", "two"),
        ]
        rest = [asyncio.create_task(store.aappend(batch)) for batch in batches]
        await gate.queued(len(batches))
        gate.open()
        return list(await asyncio.gather(head, *rest, return_exceptions=True))

    _, *answers = run(work)

    assert [getattr(answer, "id", answer) for answer in answers] == [
        "m",
        bm.Appended(0, 1, 1),
        bm.Appended(2, 0, 3),
        "y",
        bm.Appended(1, 1, 4),
        "w",
        bm.Appended(1, 0, 5),
    ]
    assert gate.commits == 2
    assert [event.id for event in store.log.events()] == ["m", "x", "y", "z", "w"]


def test_what_shares_a_commit_is_answered_as_if_it_came_one_after_the_other(
    store: bm.Store, gate: Gate, tmp_path: Path
) -> None:
    seed = 20
    chance = random.Random(seed)
    batches: list[list[Event]] = [
        [
            bm.Message(f"m{chance.randrange(60)}", chance.choice([None, None, None, "p"]), text=chance.choice("aaab"))
            for _ in range(chance.randrange(4))
        ]
        for _ in range(100)
    ]

    async def work() -> list[Any]:
        head = await first(store, gate, batches[0])
        rest = [asyncio.create_task(store.aappend(batch)) for batch in batches[1:]]
        await gate.queued(len(rest))
        gate.open()
        return list(await asyncio.gather(head, *rest, return_exceptions=True))

    together = run(work)

    def told(answer: object) -> object:
        return answer if isinstance(answer, bm.Appended) else type(answer)

    serial: list[object] = []
    with bm.open(tmp_path / "serial.bmem") as other:
        for batch in batches:
            try:
                serial.append(other.append(batch))
            except bm.EventConflict as refused:
                serial.append(refused)
        assert list(map(told, together)) == list(map(told, serial)), f"seed {seed}"
        assert list(store.log.events()) == list(other.log.events()), f"seed {seed}"
    assert bm.EventConflict in map(type, serial), f"seed {seed}"


def test_what_fails_the_commit_reaches_every_caller_in_it(store: bm.Store, gate: Gate) -> None:
    def full(*work: Any, **then: Any) -> Any:
        raise bm.StoreFull(store.path)

    async def work() -> list[Any]:
        head = await first(store, gate, message("m"))
        rest = [asyncio.create_task(store.aappend(message(f"n{at}"))) for at in range(3)]
        await gate.queued(3)
        gate._write = full
        gate.open()
        return list(await asyncio.gather(head, *rest, return_exceptions=True))

    refusals = run(work)

    assert [type(refusal) for refusal in refusals] == [bm.StoreFull] * 4
    assert len(set(map(id, refusals))) == 4
    assert all(refusal.path == store.path for refusal in refusals)


def test_an_error_that_cannot_be_copied_keeps_nobody_waiting(store: bm.Store, gate: Gate) -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    def fail(*work: Any, **then: Any) -> Any:
        raise Odd(1, 2)

    async def work() -> None:
        gate._write = fail
        gate.open()
        with pytest.raises(Odd, match="1 and 2"):
            await asyncio.wait_for(store.aappend(message("m")), 10)

    run(work)


def test_who_is_cancelled_leaves_all_of_his_batch_or_nothing(store: bm.Store, gate: Gate) -> None:
    async def work() -> None:
        begun = await first(store, gate, [*message("a1"), *message("a2")])
        waiting = asyncio.create_task(store.aappend([*message("b1"), *message("b2")]))
        other = asyncio.create_task(store.aappend(message("c")))
        await gate.queued(2)
        begun.cancel()
        waiting.cancel()
        for task in (begun, waiting):
            with pytest.raises(asyncio.CancelledError):
                await task
        gate.open()
        assert await other == bm.Appended(1, 0, 3)

    run(work)
    assert [event.id for event in store.log.events()] == ["a1", "a2", "c"]


def test_closing_answers_everybody_who_waits(store: bm.Store, gate: Gate, path: Path) -> None:
    async def work() -> list[Any]:
        head = await first(store, gate, message("a"))
        rest = [asyncio.create_task(store.aappend(message(id))) for id in "bcd"]
        await gate.queued(3)
        store.close()
        gate.open()
        answers = list(await asyncio.gather(head, *rest, return_exceptions=True))
        with pytest.raises(bm.StoreClosed):
            await store.aappend(message("e"))
        return answers

    answers = run(work)

    assert {type(answer) for answer in answers} == {bm.StoreClosed}
    with bm.open(path) as again:
        assert again.seq == 0


def test_several_event_loops_append_to_one_store(store: bm.Store) -> None:
    async def many(name: str) -> int:
        answers = await asyncio.gather(*(store.aappend(message(f"{name}{at}")) for at in range(100)))
        return sum(answer.added for answer in answers)

    added: list[int] = []
    threads = [threading.Thread(target=lambda name=name: added.append(asyncio.run(many(name)))) for name in "abcd"]
    for thread in threads:
        thread.start()
    store.append(message("and one more"))
    for thread in threads:
        thread.join()

    assert added == [100] * 4
    assert sorted(event.id for event in store.log.events()) == sorted(
        ["and one more", *(f"{name}{at}" for name in "abcd" for at in range(100))]
    )


def test_a_loop_that_was_closed_meanwhile_keeps_nobody_waiting(store: bm.Store, gate: Gate) -> None:
    gone = asyncio.new_event_loop()
    lost = gone.create_task(store.aappend(message("a")))
    while not gate.reached.is_set():
        gone.run_until_complete(asyncio.sleep(0.001))
    gone.close()

    async def work() -> bm.Appended:
        task = asyncio.create_task(store.aappend(message("b")))
        await gate.queued(1)
        gate.open()
        return await task

    assert run(work) == bm.Appended(1, 0, 2)
    lost._log_destroy_pending = False  # type: ignore[attr-defined]  # its loop is gone; that is the point


def test_a_thread_that_cannot_be_started_leaves_nobody_waiting(
    store: bm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def work() -> bm.Appended:
        with monkeypatch.context() as few:
            few.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError):
                await store.aappend(message("a"))
        return await store.aappend(message("b"))

    assert run(work) == bm.Appended(1, 0, 1)


def test_a_fork_may_not_append(store: bm.Store) -> None:
    with store._coalescer._lock:  # as when a thread of the parent held it at that moment
        said = in_child(lambda: asyncio.run(store.aappend(message("a"))))

    assert said.startswith("StoreForked")
