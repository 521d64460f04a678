"""Who knows that a step is open: what is called in it, other threads, generators, and other steps."""

from __future__ import annotations

import contextvars
import gc
import pickle
import threading
import weakref
from collections.abc import Generator, Iterator

import pytest
from branchmem import Memory
from branchmem.errors import NoStep, StepEnded, StepOpen
from branchmem.session import Session, Step, current_step
from sessions import Failed, attempt


def test_the_current_step_is_known_without_being_passed(session: Session) -> None:
    def tool() -> Memory:
        assert current_step() is outer
        return session.store.session("chat").remember("likes fish")

    with pytest.raises(NoStep, match="needs a step"):
        current_step()
    with session.step() as outer:
        memory = tool()
    with pytest.raises(NoStep):
        current_step()
    assert outer.memories == (memory,)


def test_sources_that_name_the_open_step_go_with_it(session: Session) -> None:
    def remember() -> None:
        session.remember("likes cod", sources=[step.id])
        raise Failed

    step = session.step()
    with pytest.raises(Failed):
        attempt(step, remember)
    assert [memory.text for memory in step.memories] == ["likes fish", "likes cod"]
    assert list(session.store.memory_ids) == []


def test_other_sources_are_written_at_once(session: Session) -> None:
    def remember() -> None:
        session.remember("likes fish", sources=["u1"])
        raise Failed

    with pytest.raises(Failed):
        attempt(session.step(), remember)
    assert [memory.text for memory in session.view().memories()] == ["likes fish"]


def test_a_thread_does_not_know_the_step_and_is_told_how(session: Session) -> None:
    said: list[object] = []

    def work() -> None:
        try:
            said.append(session.remember("likes fish"))
        except NoStep as error:
            said.append(str(error))

    with session.step() as step:
        copied = contextvars.copy_context()
        for target in (work, lambda: copied.run(work), lambda: said.append(step.remember("likes cod"))):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    told, *remembered = said
    assert "start it with contextvars.copy_context().run, or pass the step to it" in str(told)
    assert tuple(remembered) == step.memories


def test_a_thread_that_outlives_its_step_is_told_what_to_do(session: Session) -> None:
    with session.step() as step:
        context = contextvars.copy_context()

    with pytest.raises(StepEnded, match=f"sources=\\['{step.id}'\\]"):
        context.run(lambda: session.remember("late"))
    with pytest.raises(StepEnded):
        context.run(current_step)


def test_a_step_of_this_session_inside_another_is_refused(session: Session) -> None:
    with session.step() as step:
        with (
            pytest.raises(StepOpen, match=f"another step would move ref 'chat' while step {step.id} is open") as raised,
            session.step(),
        ):
            pytest.fail("entered")
        assert current_step() is step
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert session.head == step.id


@pytest.mark.parametrize("verb", ["say", "edit", "regenerate", "rewind", "switch"])
def test_who_would_move_the_ref_under_his_own_step_is_stopped(session: Session, verb: str) -> None:
    arguments = {"say": ("user", "x"), "edit": ("u1", "x"), "rewind": ("u1",), "switch": ("u1",)}
    with session.step() as step, pytest.raises(StepOpen, match=f"session.{verb} would move ref 'chat'"):
        getattr(session, verb)(*arguments.get(verb, ()))
    assert session.head == step.id


def test_steps_of_other_sessions_stack(session: Session) -> None:
    with session.step() as outer:
        fork = session.fork("try")
        with fork.step() as inner:
            assert current_step() is inner
            tried = fork.remember("likes cod")
            asked = session.remember("likes fish")
            assert asked.id not in inner.view()
        assert current_step() is outer
        assert tried.id not in outer.view()
    assert (outer.memories, inner.memories) == ((asked,), (tried,))
    assert set(session.view()) == {asked.id}
    assert set(fork.view()) == {tried.id}
    assert outer.base == inner.base == "u1"


def test_a_stream_that_is_abandoned_leaves_nothing(session: Session) -> None:
    def stream() -> Generator[str]:
        with session.step() as step:
            for part in ("To ", "the ", "harbour"):
                step.write(part)
                step.remember(f"said {part}")
                yield part

    before = session.store.seq
    abandoned = stream()
    assert next(abandoned) == "To "
    abandoned.close()
    assert (session.store.seq, session.head) == (before, "u1")
    assert "".join(stream()) == "To the harbour"
    assert session.store.seq == before + 4


def test_a_stream_may_be_read_in_changing_contexts(session: Session) -> None:
    def stream() -> Iterator[str]:
        with session.step() as step:
            yield step.id
            step.remember("likes fish")

    parts = stream()
    id = contextvars.copy_context().run(next, parts)
    with pytest.raises(NoStep):
        current_step()
    assert contextvars.copy_context().run(list, parts) == []
    assert session.head == id
    assert len(session.view()) == 1


def test_streams_that_were_abandoned_are_not_held_on_to(session: Session) -> None:
    """One that is closed in another context leaves its step in that of its reader, for good."""

    def stream() -> Generator[Step]:
        with session.step() as step:
            yield step

    def read() -> list[bool]:
        ended = []
        for _ in range(3):
            parts = stream()
            ended.append(weakref.ref(next(parts)))
            contextvars.copy_context().run(parts.close)
            with pytest.raises(StepEnded):
                current_step()
        gc.collect()
        return [step() is None for step in ended]

    assert contextvars.copy_context().run(read) == [True, True, False]


def test_of_streams_read_in_turns_each_session_knows_its_own_step(session: Session) -> None:
    def stream(of: Session, text: str) -> Iterator[Memory]:
        with of.step():
            yield of.remember(f"{text} 1")
            yield of.remember(f"{text} 2")

    fork = session.fork("try")
    streams = stream(session, "fish"), stream(fork, "cod")
    turns = contextvars.copy_context().run(lambda: list(zip(*streams, strict=True)))
    assert session.view().ids() == [ours.id for ours, _ in turns]
    assert fork.view().ids() == [theirs.id for _, theirs in turns]


def test_many_threads_write_to_one_step(session: Session) -> None:
    with session.step() as step:

        def work(name: str) -> None:
            for number in range(50):
                step.write(name)
                step.remember(f"{name}{number}")
                step.remember(f"shared {number}")
                len(step.view())

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(step.view()) == 250
    assert sorted(step.text) == sorted("abcd" * 50)
    assert len(session.view()) == 250
