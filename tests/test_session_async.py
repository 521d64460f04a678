"""Sessions in event loops: the same verbs, the same step, and what a cancelled task leaves: all of its work or none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import branchmem as bm
import pytest
from branchmem import Message
from branchmem.errors import BadMove, NoStep, RefMoved, StepEnded, StepOpen
from branchmem.session import Session, Step, current_step

T = TypeVar("T")


class Gate:
    """Holds every commit of a store, until it is opened."""

    def __init__(self, store: bm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        write = store._log.write

        def held(*work: Any, **then: Any) -> Any:
            self.reached.set()
            assert self.open.wait(10)
            return write(*work, **then)

        monkeypatch.setattr(store._log, "write", held)

    async def is_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 10)


@pytest.fixture
def gate(session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(session.store, monkeypatch)
    yield gate
    gate.open.set()


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 30))


def test_every_verb_has_a_twin_that_does_the_same(session: Session) -> None:
    async def work() -> None:
        said = await session.asay("user", "really", id="u2", meta={"n": 1})
        assert (said.id, said.parent, said.meta) == ("u2", "u1", {"n": 1})
        memory = await session.aremember("likes fish", sources=[said], key="food", importance=0.5)
        assert (memory.key, memory.importance) == ("food", 0.5)
        assert await session.aremember("likes fish", sources=[said], key="food") == memory
        await session.asay("assistant", "Yes")
        assert await session.aregenerate() == "u2"
        edited = await session.aedit(said, "not really")
        assert (edited.parent, edited.role) == ("u1", "user")
        assert await session.aswitch("u2") == "u2"
        assert await session.arewind("u1") == "u1" == session.head
        assert (await session.afork("try")).head == "u1"
        with pytest.raises(BadMove):
            await session.arewind("u2")
        with pytest.raises(NoStep):
            await session.aremember("likes cod")

    run(work())


def test_a_step_is_entered_with_async_with(session: Session) -> None:
    async def tool() -> None:
        current_step().remember("likes fish")
        await session.aremember("likes cod")
        await asyncio.to_thread(session.remember, "likes eel")

    async def work() -> Step:
        async with session.step() as step:
            step.write("To the harbour")
            await asyncio.gather(tool(), asyncio.create_task(tool()))
            assert len(step.view()) == 3
            with pytest.raises(StepOpen):
                await session.asay("user", "x")
        with pytest.raises(NoStep):
            current_step()
        return step

    step = run(work())
    assert session.head == step.id
    assert sorted(memory.text for memory in session.view().memories()) == ["likes cod", "likes eel", "likes fish"]


def test_steps_of_two_tasks_do_not_meet(session: Session) -> None:
    other = session.fork("other")

    async def attempt(of: Session, text: str) -> str:
        async with of.step() as step:
            await asyncio.sleep(0)
            assert current_step() is step
            await of.aremember(text)
            await asyncio.sleep(0)
            return step.id

    async def work() -> list[str]:
        return list(await asyncio.gather(attempt(session, "fish"), attempt(other, "cod")))

    assert run(work()) == [session.head, other.head]
    assert [memory.text for memory in session.view().memories()] == ["fish"]
    assert [memory.text for memory in other.view().memories()] == ["cod"]


def test_of_parallel_steps_on_one_ref_one_moves_it_and_none_is_lost(session: Session) -> None:
    async def attempt(number: int, begun: asyncio.Barrier) -> str | RefMoved:
        try:
            async with session.step() as step:
                await begun.wait()
                await session.aremember(f"attempt {number}")
        except RefMoved as moved:
            return moved
        return step.id

    async def work() -> list[str | RefMoved]:
        begun = asyncio.Barrier(5)
        return list(await asyncio.gather(*(attempt(number, begun) for number in range(5))))

    answers = run(work())

    (won,) = (answer for answer in answers if isinstance(answer, str))
    lost = [answer for answer in answers if isinstance(answer, RefMoved)]
    assert session.head == won
    assert {(one.expected, one.found) for one in lost} == {("u1", won)}
    assert set(session.store.tree.children("u1")) == {won, *(one.kept for one in lost)}
    for id in session.store.tree.children("u1"):
        assert len(session.store.at(id)) == 1
    assert len(session.store.memory_ids) == 5


@pytest.mark.parametrize("on_cancel", ["drop", "keep"])
def test_a_cancelled_task_leaves_what_its_step_says(session: Session, on_cancel: Any) -> None:
    steps: list[Step] = []

    async def attempt() -> None:
        async with session.step(on_cancel=on_cancel) as step:
            steps.append(step)
            step.write("half an ans")
            step.remember("likes fish")
            await asyncio.sleep(60)

    async def work() -> None:
        task = asyncio.create_task(attempt())
        while not steps or not steps[0].memories:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())

    (step,) = steps
    kept = on_cancel == "keep"
    assert (session.head, step.cancelled, step.id in session.store.log) == ("u1", True, kept)
    assert len(session.store.memory_ids) == kept
    assert set(session.view()) == set()
    if kept:
        message = session.store.log.get(step.id)
        assert isinstance(message, Message)
        assert (message.text, message.meta) == ("half an ans", {"cancelled": True})
        assert len(session.store.at(step.id)) == 1


@pytest.mark.parametrize("on_cancel", ["drop", "keep"])
def test_who_is_cancelled_before_the_commit_begins_is_cancelled(session: Session, gate: Gate, on_cancel: Any) -> None:
    async def attempt() -> None:
        async with session.step(on_cancel=on_cancel) as step:
            step.write("a whole answer")

    async def work() -> None:
        task = asyncio.create_task(attempt())
        await gate.is_reached()
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()  # else what comes next would find a ref that still moves
        task.cancel()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())

    assert session.head == "u1"
    assert len(session.store.tree.children("u1")) == (on_cancel == "keep")


def test_a_cancelled_verb_is_done_whole_when_it_ends(session: Session, gate: Gate) -> None:
    async def work() -> None:
        task = asyncio.create_task(session.asay("user", "more", id="u2"))
        await gate.is_reached()
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.head == "u2"

    run(work())


def test_a_loop_that_is_stopped_waits_for_what_is_being_written(session: Session, gate: Gate) -> None:
    """It cancels every task, as `asyncio.run` does when it is interrupted."""
    heads: list[str] = []

    async def say() -> None:
        try:
            await session.asay("user", "more", id="u2")
        finally:
            heads.append(session.head)

    async def work() -> None:
        task = asyncio.create_task(say())
        await gate.is_reached()
        for one in asyncio.all_tasks() - {asyncio.current_task()}:
            one.cancel()
        await asyncio.sleep(0.01)
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())

    assert heads == ["u2"]


def test_a_time_limit_ends_a_step_as_any_cancellation_does(session: Session) -> None:
    async def work() -> None:
        async with asyncio.timeout(0.01), session.step() as step:
            step.write("half an ans")
            await asyncio.sleep(60)

    before = session.store.seq
    with pytest.raises(TimeoutError):
        run(work())
    assert (session.store.seq, session.head) == (before, "u1")


def test_a_task_that_outlives_its_step_is_told_what_to_do(session: Session) -> None:
    async def late(ended: asyncio.Event) -> None:
        await ended.wait()
        await session.aremember("late")

    async def work() -> None:
        ended = asyncio.Event()
        async with session.step() as step:
            task = asyncio.create_task(late(ended))
        ended.set()
        with pytest.raises(StepEnded, match=f"sources=\\['{step.id}'\\]"):
            await task

    run(work())


def test_an_executor_does_not_know_the_step(session: Session) -> None:
    async def work() -> None:
        async with session.step():
            with pytest.raises(NoStep, match=r"contextvars\.copy_context"):
                await asyncio.get_running_loop().run_in_executor(None, session.remember, "likes fish")

    run(work())
