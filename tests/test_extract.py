"""Extraction: what an extractor is shown, where what it finds lands, and that it is found once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import branchmem as bm
import pytest
from branchmem import Memory, Message
from branchmem.errors import StepEnded, UnknownEvent
from branchmem.extract import (
    Extracted,
    ExtractionFailed,
    Found,
    InvalidExtraction,
    Shown,
    aextract,
    aextract_in,
    asummarise,
    extract,
    extract_in,
    mark_read,
)
from branchmem.session import Session
from extracting import Seen, counted, each, finding, talk
from sessions import Failed, attempt, failing

pytestmark = pytest.mark.usefixtures("without_disk")


def nothing(shown: Shown) -> list[Found]:
    pytest.fail(f"shown {[message.id for message in shown.messages]}, which was read already")


def texts(session: Session) -> set[str]:
    return {memory.text for memory in session.view().memories()}


# Where it lands


def test_what_is_found_comes_from_the_messages_that_are_cited_or_from_all_that_were_shown(session: Session) -> None:
    session.say("assistant", "At the harbour.", id="a1")

    out = extract(session, finding(Found("wants dinner", ("u1",), key="plan", kind="plan", importance=0.4), "harbour"))

    assert [memory.sources for memory in out.added] == [("u1",), ("a1", "u1")]
    assert (out.added[0].key, out.added[0].kind, out.added[0].importance) == ("plan", "plan", 0.4)
    assert (out.anchor, out.messages, out.refused, out.hidden) == ("a1", ("u1", "a1"), (), ())
    assert set(session.view()) == {memory.id for memory in out.added}


def test_who_is_slow_lands_on_the_branch_that_it_came_from(session: Session) -> None:
    session.say("user", "I live in Chengdu", id="u2")

    def slow(shown: Shown) -> list[Found]:
        session.edit("u2", "I live in Hangzhou", id="u2x")
        session.say("assistant", "Nice lake.")
        return each(shown)

    out = extract(session, slow)

    assert {memory.text for memory in out.added} == {"Where should I go for dinner?", "I live in Chengdu"}
    assert [memory.text for memory in session.view().memories()] == ["Where should I go for dinner?"]
    assert [memory.text for memory in session.store.at("u2").memories()][1:] == ["I live in Chengdu"]


def test_an_edited_branch_is_read_by_itself(session: Session) -> None:
    session.say("user", "I live in Chengdu", id="u2")
    extract(session, each)
    session.edit("u2", "I live in Hangzhou", id="u2x")
    seen = Seen()

    extract(session, seen)

    assert seen.messages == [["u1", "u2x"]]  # nothing above was read down to a place that this branch has
    assert texts(session) == {"Where should I go for dinner?", "I live in Hangzhou"}


def test_a_store_is_read_at_the_message_that_is_named(session: Session) -> None:
    session.say("assistant", "At the harbour.", id="a1")

    out = extract(session.store, each, anchor="u1")

    assert (out.anchor, out.messages) == ("u1", ("u1",))
    with pytest.raises(InvalidExtraction, match="a store stands nowhere"):
        extract(session.store, each)
    with pytest.raises(UnknownEvent):
        extract(session.store, each, anchor="nowhere")


# What is shown


def test_only_what_is_visible_is_shown(session: Session) -> None:
    store = session.store
    session.remember("likes fish", sources=["u1"])
    session.remember("a skill", sources=["u1"], kind="skill")
    session.say("user", "I live in Chengdu", id="u2")
    session.remember("lives in Chengdu", sources=["u2"])
    session.edit("u2", "I live in Hangzhou", id="u2x")
    seen = Seen()

    extract(session, seen)

    (shown,) = seen.shown
    assert ([memory.text for memory in shown.known], shown.anchor) == (["likes fish"], "u2x")
    assert seen.messages == [["u1", "u2x"]]
    extract(session, seen, since=store.tree.path("u1")[0], known=0)
    assert seen.shown[-1].known == ()


def test_what_frames_a_conversation_or_was_erased_is_not_shown(session: Session) -> None:
    session.say("system", "Be brief.")
    session.say("user", "my number is 42", id="u2")
    session.say("assistant", None)
    session.say("assistant", " \n")
    session.say("user", "hello", id="u3")
    session.store.erase(["u2"])
    seen = Seen()

    extract(session, seen)

    assert seen.messages == [["u1", "u3"]]


def test_a_session_sees_what_it_stands_beside(session: Session) -> None:
    store = session.store
    profile = store.session("profile")
    told = profile.say("user", "I am a vegetarian")
    profile.remember("vegetarian", sources=[told])
    both = store.session("chat", beside=["profile"])
    seen = Seen(finding(Found("wants a vegetarian dinner", ("u1",))))

    out = extract(both, seen)

    assert [memory.text for memory in seen.shown[0].known] == ["vegetarian"]
    assert out.hidden == ()


def test_a_long_path_is_shown_in_pieces(session: Session) -> None:
    talk(session, 3, text=lambda number: f"{number} " + "word " * 40)
    seen = Seen()

    out = extract(session, seen, window_tokens=100, tokens=lambda text: len(text.split()))

    assert seen.messages == [["u1", "q0", "a0"], ["q1", "a1"], ["q2", "a2"]]
    assert len(out.added) == 7


# Once


def test_what_was_read_is_not_read_again(session: Session) -> None:
    assert len(extract(session, each).added) == 1
    assert extract(session, nothing) == Extracted(session.head)
    session.say("user", "I live in Chengdu", id="u2")
    seen = Seen()
    extract(session, seen)
    assert seen.messages == [["u2"]]


def test_a_message_in_which_nothing_was_found_counts_as_read(session: Session) -> None:
    extract(session, finding())
    extract(session, nothing)
    extract(session.fork("other"), nothing)


def test_reading_the_same_again_adds_nothing(session: Session) -> None:
    root = session.store.tree.path("u1")[0]
    first = extract(session, finding("likes fish", Found("hungry", ("u1",), key="mood")))
    seq = session.store.seq

    again = extract(session, finding("likes fish", Found("hungry", ("u1",)), "likes fish"), since=root)

    assert (again.added, again.known, again.refused) == ((), first.added, ())
    assert session.store.seq == seq


def test_each_name_has_marks_of_its_own(session: Session) -> None:
    extract(session, each)
    seen = Seen()
    extract(session, seen, name="profile")
    extract(session, nothing, name="profile")
    assert seen.messages == [["u1"]]


def test_what_was_read_is_known_when_the_store_is_opened_again(path: Any) -> None:
    with bm.open(path) as store:
        session = store.session("chat")
        session.say("user", "hello", id="u1")
        extract(session, each)
    with bm.open(path) as store:
        extract(store.session("chat"), nothing)


def test_a_path_can_be_marked_as_read(session: Session) -> None:
    mark_read(session.store, "u1")
    extract(session, nothing)
    with pytest.raises(UnknownEvent):
        mark_read(session.store, "nowhere")


def test_what_another_has_read_meanwhile_is_read_once(session: Session) -> None:
    def beaten(shown: Shown) -> list[Found]:
        extract(session, finding("by the other"))
        return [Found("by me")]

    out = extract(session, beaten)

    assert (out.added, out.messages) == ((), ())
    assert [memory.text for memory in session.view().memories()] == ["by the other"]


def test_pieces_that_were_written_stay_where_a_later_one_fails(session: Session) -> None:
    talk(session, 2)

    def failing(shown: Shown) -> list[Found]:
        if shown.messages[0].id != "u1":
            raise OSError("the model is gone")
        return each(shown)

    with pytest.raises(OSError, match="is gone"):
        extract(session, failing, window_tokens=1)
    seen = Seen()
    extract(session, seen)

    assert seen.messages == [["q0", "a0", "q1", "a1"]]
    assert len(session.view()) == 5


# What is refused


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Found("x", ("u9",)), "cites message 'u9', which was not shown"),
        (Found("x", ("fish",)), "cites message 'fish', which was not shown"),
        (Found("x", ("u1",), ("hidden",)), "cites memory 'hidden', which was not shown"),
        (Found("x", ("u1",), (), supersedes=("hidden",)), "cites memory 'hidden', which was not shown"),
        (Found("x", (["u1"],)), "which was not shown"),  # type: ignore[arg-type]
        (Found("x", "u1"), "sources=['u1']"),  # type: ignore[arg-type]
        (Found("  "), "says nothing"),
        (Found(3), "says nothing"),  # type: ignore[arg-type]
        (Found("x", importance=2), "importance must lie in 0..1"),
        (Found("x", kind=""), "kind must be 1 to 256 bytes"),
    ],
)
def test_a_memory_that_cites_what_was_not_shown_or_is_none_is_refused_alone(
    session: Session, found: Found, why: str
) -> None:
    store = session.store
    store.append(
        [
            Message("u1x", store.tree.path("u1")[0], role="user", text="hi"),
            Memory("hidden", "hidden", sources=["u1x"]),
            Memory("fish", "likes fish", sources=["u1"]),
        ]
    )

    out = extract(session, finding(found, Found("fine", ("u1",), ("fish",), supersedes=("fish",))))

    assert [(refused.found, why in refused.why) for refused in out.refused] == [(found, True)]
    (added,) = out.added
    assert (added.text, added.derived_from, added.supersedes) == ("fine", ("fish",), ("fish",))
    assert out.to_dict()["refused"][0]["why"] == out.refused[0].why
    assert str(out) == "1 messages read, 1 memories added, 0 known, 1 refused, at u1"


@pytest.mark.parametrize("given", [None, "likes fish", [{"text": "likes fish"}], {"text": "x"}, 3])
def test_an_extractor_that_gives_no_list_of_found_is_reported(session: Session, given: Any) -> None:
    with pytest.raises(ExtractionFailed, match="nothing was remembered"):
        extract(session, lambda shown: given)
    assert len(session.view()) == 0
    assert len(extract(session, each).added) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"since": "nowhere"}, "since='nowhere': it does not lie on the path"),
        ({"window_tokens": 0}, "window_tokens=0"),
        ({"known": -1}, "known=-1"),
        ({"name": "a\0b"}, "marks have a name"),
        ({"tokens": 4}, "tokens=4"),
    ],
)
def test_what_cannot_be_asked_is_refused(session: Session, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidExtraction, match=says):
        extract(session, nothing, **options)


def test_what_was_erased_while_it_was_read_is_not_remembered(session: Session) -> None:
    def slow(shown: Shown) -> list[Found]:
        session.store.erase(["u1"], cascade=False)
        return each(shown)

    out = extract(session, slow)

    assert (out.added, [refused.why for refused in out.refused]) == ((), ["u1 was erased meanwhile"])


# In a step


def test_in_a_step_the_answer_is_read_too_and_all_is_written_with_it(session: Session) -> None:
    seen = Seen(lambda shown: [*each(shown), Found("all of it")])
    with session.step() as step:
        step.write("At the harbour.")
        out = extract_in(step, seen)
        assert len(session.view()) == 0

    assert seen.messages == [["u1", step.id]]
    assert seen.shown[0].anchor == step.id
    assert set(session.view()) == {memory.id for memory in out.added}
    assert [memory.sources for memory in out.added] == [(step.id, "u1"), (step.id,), (step.id, "u1")]
    extract(session, nothing)


def test_a_step_that_fails_has_read_nothing(session: Session) -> None:
    failed = session.step()
    with pytest.raises(Failed):
        attempt(failed, lambda: extract_in(failed, each) and failing()())
    assert len(failed.memories) == 3
    seen = Seen()

    with session.step() as step:
        step.write("In town.")
        extract_in(step, seen)

    assert seen.messages == [["u1", step.id]]
    assert texts(session) == {"Where should I go for dinner?", "In town."}


def test_what_a_failed_extraction_found_is_not_left_in_the_step(session: Session) -> None:
    talk(session, 1)

    def failing(shown: Shown) -> list[Found]:
        if shown.messages[0].id != "u1":
            raise OSError("the model is gone")
        return each(shown)

    with session.step() as step:
        step.write("Hello")
        with pytest.raises(OSError, match="is gone"):
            extract_in(step, failing, window_tokens=1)
        assert step.memories == ()
        assert len(extract_in(step, each).added) == 4


def test_regenerating_reads_the_question_again_for_the_other_answer(session: Session) -> None:
    for text in ("At the harbour.", "In town."):
        with session.step() as step:
            step.write(text)
            extract_in(step, each)
        assert texts(session) == {"Where should I go for dinner?", text}
        session.regenerate()


def test_in_a_step_that_is_over_nothing_is_extracted(session: Session) -> None:
    with session.step() as step:
        step.write("Hello")
    with pytest.raises(StepEnded):
        extract_in(step, each)


def test_what_a_step_cannot_remember_is_refused(session: Session) -> None:
    with session.step() as step:
        step.write("Hello")
        out = extract_in(step, finding(Found("x", ("u9",)), Found("x", ("u1",)), Found("x", ("u1",), key="k"), "x"))

    assert [refused.found.key for refused in out.refused] == [None, "k"]
    assert len(out.added) + len(out.known) == 2


# In event loops


async def slowly(shown: Shown) -> list[Found]:
    await asyncio.sleep(0)
    return each(shown)


@pytest.mark.parametrize("extractor", [each, slowly])
def test_the_twins_do_the_same(session: Session, extractor: Callable[[Shown], Any]) -> None:
    async def work() -> tuple[Extracted, Extracted]:
        first = await aextract(session, extractor)
        async with session.step() as step:
            step.write("At the harbour.")
            return first, await aextract_in(step, extractor)

    first, second = asyncio.run(work())

    assert ([memory.text for memory in first.added], first.messages) == (["Where should I go for dinner?"], ("u1",))
    assert [memory.text for memory in second.added] == ["At the harbour."]
    assert len(session.view()) == 2


def test_a_coroutine_is_made_where_it_is_awaited(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_thread(*args: object) -> None:
        raise AssertionError("who is cancelled there leaves a coroutine that nobody awaits")

    monkeypatch.setattr(asyncio, "to_thread", no_thread)

    assert len(asyncio.run(aextract(session, slowly)).added) == 1


def test_what_is_left_to_a_task_lands_where_the_session_stood(session: Session) -> None:
    async def work() -> tuple[Extracted, Memory | None]:
        reading = asyncio.create_task(aextract(session, slowly))
        summary = asyncio.create_task(asummarise(session, counted, threshold_tokens=0, keep_tokens=0))
        session.edit("u1", "Where should I go for lunch?")
        return await reading, await summary

    out, summary = asyncio.run(work())

    assert (out.anchor, texts(session)) == ("u1", set())
    assert summary is not None
    assert set(session.store.at("u1")) == {out.added[0].id, summary.id}


def test_who_is_cancelled_while_it_is_read_has_written_nothing(session: Session) -> None:
    async def work() -> None:
        reached = asyncio.Event()

        async def stuck(shown: Shown) -> list[Found]:
            reached.set()
            await asyncio.Event().wait()
            return each(shown)

        task: Awaitable[Extracted] = asyncio.create_task(aextract(session, stuck))
        await reached.wait()
        task.cancel()  # type: ignore[attr-defined]
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())

    assert len(session.view()) == 0
    assert len(extract(session, each).added) == 1
