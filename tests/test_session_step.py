"""One attempt at an answer: what it writes at its end, what it leaves when it fails, and who knows that it is open."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import branchmem as bm
import pytest
from branchmem import Memory
from branchmem.errors import NoStep, RefMoved, StepEnded
from branchmem.session import Session
from sessions import Failed, attempt, failing, message

# A step that ends well


def test_a_step_writes_message_and_memories_at_once(session: Session) -> None:
    before = session.store.seq
    with session.step(meta={"model": "m"}) as step:
        for part in ("To the ", "harbour"):
            step.write(part)
        memory = step.remember("The user looks for dinner", sources=["u1"], key="dinner")
        assert session.store.seq == before
        assert memory.id not in session.view()

    answer = message(session, step.id)
    assert (answer.parent, answer.role, answer.text, answer.meta) == (
        "u1",
        "assistant",
        "To the harbour",
        {"model": "m"},
    )
    assert memory.sources == tuple(sorted(["u1", step.id]))
    assert session.head == step.id
    assert session.view()[memory.id] == memory
    assert session.store.seq == before + 2
    assert [move.why for move in session.store.refs.log("chat")][-1] == "step"
    assert (step.base, step.text, step.memories, step.is_over, step.cancelled) == (
        "u1",
        "To the harbour",
        (memory,),
        True,
        False,
    )


def test_a_step_that_wrote_nothing_has_no_text(session: Session) -> None:
    with session.step(role="tool") as step:
        pass

    assert (message(session, step.id).text, message(session, step.id).role) == (None, "tool")


def test_the_same_twice_in_a_step_is_one_memory(session: Session) -> None:
    with session.step() as step:
        first = step.remember("likes fish")

        assert step.remember("likes fish", sources=[step.id], importance=0.1) is first
        assert session.remember("likes fish") is first
        assert step.remember("likes fish", kind="summary") is not first
        with pytest.raises(bm.EventConflict, match="another key"):
            step.remember("likes fish", key="food")
    assert len(step.memories) == 2


def test_a_step_may_derive_from_its_own_memories_and_replace_them(session: Session) -> None:
    older = session.remember("likes fish", sources=["u1"])
    with session.step() as step:
        newer = step.remember("likes cod", supersedes=[older])
        newest = step.remember("likes cod on Fridays", supersedes=[newer.id], derived_from=[older])
        assert set(step.view()) == {newest.id}
    assert set(session.view()) == {newest.id}


def test_a_receipt_says_which_memories_the_answer_was_written_with(session: Session) -> None:
    fish, cod = (session.remember(text, sources=["u1"]) for text in ("likes fish", "likes cod"))
    with session.step() as step:
        own = step.remember("asked for dinner")
        step.recalled = [fish, cod.id, fish.id, own]
        assert step.recalled == tuple(sorted([fish.id, cod.id, own.id]))
        with pytest.raises(bm.UnknownEvent, match="no memory nothing"):
            step.recalled = ["nothing"]
        with pytest.raises(bm.UnknownEvent, match="no memory u1"):
            step.recalled = ["u1"]
        with pytest.raises(bm.InvalidEvent, match=r"recalled=\["):
            step.recalled = fish.id
        with pytest.raises(bm.InvalidEvent, match="each of recalled must be a string"):
            step.recalled = [1]  # type: ignore[list-item]
    with session.step() as with_all:
        with_all.recalled = session.view()
    with session.step() as with_none:
        with_none.recalled = []
    with session.step() as without:
        pass

    assert message(session, step.id).meta == {"recalled": tuple(sorted([fish.id, cod.id, own.id]))}
    assert message(session, with_all.id).meta["recalled"] == tuple(sorted([fish.id, cod.id, own.id]))
    assert message(session, with_none.id).meta == {"recalled": ()}
    assert message(session, without.id).meta == {}


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"meta": {"recalled": []}}, bm.InvalidEvent, "meta has recalled, which a step writes itself"),
        ({"meta": {"cancelled": True}}, bm.InvalidEvent, "meta has cancelled"),
        ({"meta": 1}, bm.InvalidEvent, "meta must be a mapping"),
        ({"role": ""}, bm.InvalidEvent, "role must be"),
        ({"on_cancel": "maybe"}, ValueError, 'on_cancel is "drop" or "keep"'),
    ],
)
def test_what_its_message_cannot_bear_is_refused_before_the_answer_is_made(
    session: Session, wrong: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        session.step(**wrong)


def test_what_cannot_be_written_is_refused_at_once(session: Session) -> None:
    with session.step() as step:
        for text in (b"bytes", "\ud800", "x" * (1 << 20) + "x"):
            with pytest.raises(bm.InvalidEvent):
                step.write(text)  # type: ignore[arg-type]
        step.write("x" * (1 << 20))
        with pytest.raises(bm.InvalidEvent, match="more than 1048576 bytes"):
            step.write("x")
        with pytest.raises(bm.UnknownEvent):
            step.remember("x", sources=["nothing"])
        with pytest.raises(bm.InvalidEvent):
            step.remember("x", importance=2)
    assert len(message(session, step.id).text or "") == 1 << 20


def test_a_receipt_that_its_message_cannot_hold_is_refused_at_once(session: Session) -> None:
    session.store.append([Memory(f"{number:0250}", "x", sources=["u1"]) for number in range(4200)])
    with session.step() as step:
        step.recalled = ["0" * 250]
        with pytest.raises(bm.InvalidEvent, match="meta has"):
            step.recalled = session.view()
    assert message(session, step.id).meta == {"recalled": ("0" * 250,)}


# A step that does not


@pytest.mark.parametrize("error", [Failed, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_step_that_fails_leaves_nothing_behind(session: Session, error: type[BaseException]) -> None:
    before = session.store.digest()
    step = session.step()
    with pytest.raises(error):
        attempt(step, failing(error))
    assert session.store.digest() == before
    assert session.head == "u1"
    assert (step.is_over, step.cancelled, len(step.memories)) == (True, True, 1)


@pytest.mark.parametrize("error", [Failed, KeyboardInterrupt])
def test_a_failed_step_can_be_kept_where_its_successor_does_not_see_it(
    session: Session, error: type[BaseException]
) -> None:
    step = session.step(on_cancel="keep", meta={"model": "m"})
    with pytest.raises(error):
        attempt(step, failing(error))

    kept, (rejected,) = message(session, step.id), step.memories
    assert (kept.parent, kept.text) == ("u1", "half an ans")
    assert kept.meta == {"model": "m", "cancelled": True}
    assert session.head == "u1"
    with session.step() as successor:
        assert successor.base == "u1"
        assert rejected.id not in successor.view()
    assert rejected.id not in session.view()
    session.switch(step.id)
    assert rejected.id in session.view()


@pytest.mark.parametrize("on_cancel", ["drop", "keep"])
def test_a_step_that_is_cancelled_ends_without_an_exception(session: Session, on_cancel: Any) -> None:
    def cancel() -> None:
        step.recalled = []
        step.cancel()
        late: list[Callable[[], object]] = [lambda: step.write("wer"), lambda: step.remember("x"), step.view]
        for use in late:
            with pytest.raises(StepEnded, match=f"after step {step.id} was cancelled"):
                use()

    step = session.step(on_cancel=on_cancel)
    attempt(step, cancel)

    assert step.cancelled
    assert session.head == "u1"
    assert (step.id in session.store.log) == (on_cancel == "keep")
    if on_cancel == "keep":
        assert message(session, step.id).meta == {"recalled": (), "cancelled": True}


def test_a_step_that_was_regenerated_leaves_nothing_that_its_successor_sees(session: Session) -> None:
    with session.step() as first:
        rejected = first.remember("hates fish")
    session.regenerate()

    with session.step() as second:
        assert set(second.view()) == set()
        kept = second.remember("likes fish")
    assert set(session.view()) == {kept.id}
    assert session.store.tree.siblings(second.id)[0] == [first.id, second.id]
    assert rejected.id in session.store.log


def test_an_ended_step_refuses_what_comes_late(session: Session) -> None:
    with session.step() as step:
        pass
    late: list[Callable[[], object]] = [
        lambda: step.write("x"),
        lambda: step.remember("x"),
        lambda: setattr(step, "recalled", []),
        lambda: step.view(),
        lambda: step.__enter__(),
    ]
    for use in late:
        with pytest.raises(StepEnded, match=f"end of step {step.id}: begin another step") as raised:
            use()
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    step.cancel()
    assert not step.cancelled
    assert session.remember("late", sources=[step.id]).id in session.view()


def test_a_step_must_be_entered(session: Session) -> None:
    step = session.step()

    with pytest.raises(NoStep, match=r"step\.write needs a step: with session\.step"):
        step.write("x")
    with pytest.raises(NoStep, match=r"step\.remember"):
        step.remember("x")
    with pytest.raises(NoStep, match=r"step\.base needs a step"):
        _ = step.base
    assert (step.text, step.memories, step.recalled) == ("", (), ())


def test_a_step_that_cannot_be_written_says_so_and_keeps_what_it_had(session: Session) -> None:
    step = session.step()
    with pytest.raises(bm.StoreClosed):
        attempt(step, session.store.close)
    assert (step.text, len(step.memories), step.is_over) == ("half an ans", 1, True)


def test_the_error_of_a_step_is_not_lost_where_it_cannot_be_kept(session: Session) -> None:
    def fail() -> None:
        session.store.close()
        raise Failed

    step = session.step(on_cancel="keep")
    with pytest.raises(Failed) as raised:
        attempt(step, fail)
    assert [note for note in raised.value.__notes__ if f"nothing of step {step.id} was kept" in note]


def test_a_step_that_drops_what_it_had_needs_no_store(session: Session) -> None:
    def fail() -> None:
        session.store.close()
        raise Failed

    with pytest.raises(Failed) as raised:
        attempt(session.step(), fail)
    assert not hasattr(raised.value, "__notes__")


def test_a_ref_that_moved_meanwhile_loses_nothing(session: Session) -> None:
    step = session.step()
    with pytest.raises(RefMoved, match="a branch of its own") as raised:
        attempt(step, lambda: session.store.refs.move("chat", session.store.tree.roots()[0]))
    assert (raised.value.kept, raised.value.expected) == (step.id, "u1")
    assert raised.value.found == session.head == session.store.tree.roots()[0]
    assert message(session, step.id).parent == "u1"
    session.switch(step.id)
    assert step.memories[0].id in session.view()


def test_a_ref_that_was_deleted_meanwhile_loses_nothing(session: Session) -> None:
    step = session.step()
    with pytest.raises(RefMoved, match="is gone") as raised:
        attempt(step, lambda: session.store.refs.delete("chat"))
    assert raised.value.kept == step.id
    assert "chat" not in session.store.refs
    assert step.memories[0].id in session.store.at(step.id)


def test_a_cancelled_step_does_not_mind_where_the_ref_went(session: Session) -> None:
    def leave() -> None:
        session.store.refs.delete("chat")
        step.cancel()

    step = session.step(on_cancel="keep")
    attempt(step, leave)

    assert message(session, step.id).parent == "u1"
    assert "chat" not in session.store.refs
