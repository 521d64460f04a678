"""Several processes and threads on one ref: nothing is lost, and who did not move the ref is told."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import branchmem as bm
import pytest
from branchmem.errors import RefMoved
from branchmem.session import Step, current_step
from logs import in_child

PROCESSES = 4
EACH = 12


def together(work: Callable[[int], str]) -> list[str]:
    """What each of several processes says that does this work at one time."""
    readers = []
    for name in range(PROCESSES):
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                said = work(name)
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writing, said.encode())
            os._exit(0)
        os.close(writing)
        readers.append(reading)
    answers = []
    for reading in readers:
        with open(reading, encoding="utf-8") as answer:
            answers.append(answer.read())
        os.wait()
    return answers


def attempt(step: Step, then: Callable[[], object]) -> None:
    with step:
        step.remember("likes fish")
        then()


def start(path: Path) -> str:
    with bm.open(path) as store:
        return store.session("chat").say("user", "hello").id


def test_what_many_processes_say_stands_in_one_line(path: Path) -> None:
    start(path)

    def work(name: int) -> str:
        with bm.open(path) as store:
            session = store.session("chat")
            for number in range(EACH):
                session.say("user", f"{name}.{number}")
        return "done"

    said = together(work)

    assert said == ["done"] * PROCESSES
    with bm.open(path) as store:
        session = store.session("chat")
        texts = [
            event.text for event in map(store.log.get, store.tree.path(session.head)) if isinstance(event, bm.Message)
        ]
        assert sorted(texts[2:], key=str) == sorted(
            f"{name}.{number}" for name in range(PROCESSES) for number in range(EACH)
        )
        for name in range(PROCESSES):
            assert [text for text in texts[2:] if str(text).startswith(f"{name}.")] == [
                f"{name}.{number}" for number in range(EACH)
            ]
        assert len(store.tree.leaves()) == 1


def test_of_steps_in_many_processes_nothing_is_lost(path: Path) -> None:
    start(path)

    def work(name: int) -> str:
        moved = []
        with bm.open(path) as store:
            session = store.session("chat")
            for number in range(EACH):
                try:
                    with session.step() as step:
                        session.remember(f"{name}.{number}")
                        step.write(f"{name}.{number}")
                except RefMoved as error:
                    moved.append(str(error.kept))
        return " ".join(moved)

    lost = " ".join(together(work)).split()

    with bm.open(path) as store:
        memories = [event for event in store.log.events(type="memory") if isinstance(event, bm.Memory)]
        assert sorted(memory.text for memory in memories) == sorted(
            f"{name}.{number}" for name in range(PROCESSES) for number in range(EACH)
        )
        line = store.tree.path(store.refs["chat"])[2:]
        assert len(line) + len(lost) == PROCESSES * EACH
        assert set(line).isdisjoint(lost)
        for memory in memories:
            (source,) = memory.sources
            assert memory.id in store.at(source)
            assert (memory.id in store.at_ref("chat")) == (source in line)


def test_a_memory_that_many_remember_is_one(path: Path) -> None:
    said = start(path)

    def work(name: int) -> str:
        with bm.open(path) as store:
            session = store.session("chat")
            return " ".join(session.remember(f"fact {number}", sources=[said]).id for number in range(EACH))

    answers = together(work)

    assert len(set(answers)) == 1
    with bm.open(path) as store:
        assert list(store.memory_ids) == sorted(answers[0].split(), key=answers[0].index)


def test_a_ref_that_another_process_moves_under_a_step_is_noticed(path: Path) -> None:
    said = start(path)

    def move() -> str:
        with bm.open(path) as other:
            return other.session("chat").edit(said, "hi").id

    with bm.open(path) as store:
        session = store.session("chat")
        step = session.step()
        with pytest.raises(RefMoved) as raised:
            attempt(step, lambda: in_child(move))
        assert raised.value.kept == step.id
        assert session.head == raised.value.found
        assert step.memories[0].id not in session.view()
        assert step.memories[0].id in store.at(step.id)


def test_a_session_may_be_used_from_many_threads(path: Path) -> None:
    start(path)
    with bm.open(path) as store:
        session = store.session("chat")

        def work(name: int) -> None:
            for number in range(EACH):
                said = session.say("user", f"{name}.{number}")
                session.remember("said", sources=[said])

        threads = [threading.Thread(target=work, args=(name,)) for name in range(PROCESSES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.tree.path(session.head)) == 2 + PROCESSES * EACH
        assert len(session.view()) == PROCESSES * EACH


def test_the_child_of_a_fork_is_told_to_open_the_store_itself(path: Path) -> None:
    with bm.open(path) as store:
        session = store.session("chat")
        assert in_child(lambda: session.head).startswith("StoreForked")
        assert in_child(lambda: session.say("user", "x")).startswith("StoreForked")
        with session.step() as step:
            assert in_child(lambda: step.write("x")).startswith("StoreForked")
            assert in_child(lambda: step.remember("x")).startswith("StoreForked")
            assert in_child(lambda: session.remember("x")).startswith("NoStep")
            assert in_child(current_step).startswith("NoStep")


def test_the_child_of_a_fork_does_not_wait_for_a_thread_that_it_lacks(path: Path) -> None:
    with bm.open(path) as store, store.session("chat").step() as step:

        def leave() -> str:
            step.cancel()
            step.__exit__(ValueError, ValueError(), None)
            return step.text

        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with step._lock:
                held.set()
                done.wait(10)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(10)
        try:
            for work, said in ((lambda: step.write("x"), "StoreForked"), (lambda: step.view(), "StoreForked")):
                assert in_child(work, seconds=10).startswith(said)
            assert in_child(leave, seconds=10) == ""
        finally:
            done.set()
            thread.join()
