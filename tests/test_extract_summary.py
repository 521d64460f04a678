"""The summary of a session: what it comes from, when it is refreshed, and that each branch has one."""

from __future__ import annotations

import asyncio
from typing import Any

import branchmem as bm
import pytest
from branchmem import Memory, Session
from branchmem.errors import UnknownEvent
from branchmem.extract import ExtractionFailed, InvalidExtraction, Passage, asummarise, extract, summarise, summary_of
from extracting import counted, each, talk, visible_to_both

pytestmark = pytest.mark.usefixtures("without_disk")


def refresh(session: Session, **options: Any) -> Memory | None:
    return summarise(session, counted, **{"threshold_tokens": 0, "keep_tokens": 0, **options})


def words(text: str) -> int:
    return len(text.split())


def test_it_comes_from_what_it_summarises_and_derives_from_the_one_before(session: Session) -> None:
    first = refresh(session)
    session.say("assistant", "At the harbour.", id="a1")
    second = refresh(session)

    assert first is not None
    assert second is not None
    assert (first.sources, first.derived_from, first.supersedes, first.kind) == (("u1",), (), (), "summary")
    assert (second.sources, second.derived_from, second.supersedes) == (("a1",), (first.id,), (first.id,))
    assert visible_to_both(session.store, "a1") == {"u1 | a1"}
    assert visible_to_both(session.store, "u1") == {"u1"}
    assert summary_of(session) == second
    assert summary_of(session.store, anchor="u1") == first


def test_it_is_refreshed_past_a_threshold_and_leaves_the_last_messages_out(session: Session) -> None:
    talk(session, 1)  # six words, and two each
    assert refresh(session, threshold_tokens=8, keep_tokens=2, tokens=words) is None
    assert summary_of(session) is None
    talk(session, 1, start=1)

    made = refresh(session, threshold_tokens=8, keep_tokens=2, tokens=words)

    assert made is not None
    assert made.sources == ("a0", "q0", "q1", "u1")
    assert refresh(session, threshold_tokens=8, keep_tokens=2, tokens=words) is None


def test_each_branch_has_one_that_goes_on_from_the_common_path(session: Session) -> None:
    refresh(session)
    other = session.fork("other")
    session.say("assistant", "At the harbour.", id="a1")
    other.say("assistant", "In town.", id="b1")
    refresh(session)
    refresh(other)
    other.say("user", "Which town?", id="b2")
    refresh(other)

    for anchor, says in (("u1", "u1"), ("a1", "u1 | a1"), ("b1", "u1 | b1"), ("b2", "u1 | b1 | b2")):
        assert visible_to_both(session.store, anchor) == {says}


def test_one_that_is_made_above_others_is_the_one_that_their_branches_go_on_from(session: Session) -> None:
    talk(session, 2)
    refresh(session)
    session.fork("other").edit("q1", "otherwise", id="b1")
    other = session.store.session("other")
    refresh(other)
    above = session.fork("above")
    above.rewind("a0")

    refresh(above)

    for anchor in ("a0", "q1", "a1", "b1"):
        assert visible_to_both(session.store, anchor) == {"u1,q0,a0"}
    refresh(session)
    assert visible_to_both(session.store, "a1") == {"u1,q0,a0 | q1,a1"}
    assert visible_to_both(session.store, "b1") == {"u1,q0,a0"}


def test_one_that_leaves_the_last_messages_out_is_the_only_one_on_the_common_path(session: Session) -> None:
    talk(session, 1)
    other = session.fork("other")
    other.edit("a0", "another answer", id="b0")
    refresh(session)

    refresh(other, keep_tokens=2, tokens=words)

    assert visible_to_both(session.store, "b0") == {"u1,q0"}
    assert visible_to_both(session.store, "a0") == {"u1,q0"}


def test_who_is_slow_summarises_the_branch_that_it_came_from(session: Session) -> None:
    session.say("user", "I live in Chengdu", id="u2")

    def slow(passage: Passage) -> str:
        session.edit("u2", "I live in Hangzhou", id="u2x")
        return counted(passage)

    summarise(session, slow, threshold_tokens=0, keep_tokens=0)

    assert summary_of(session) is None
    assert summary_of(session.store, anchor="u2") is not None


def test_a_long_path_is_summarised_in_pieces_each_from_the_one_before(session: Session) -> None:
    talk(session, 2)

    made = refresh(session, window_tokens=4, tokens=words)

    assert made is not None
    assert made.text == "u1 | q0,a0 | q1,a1"
    assert visible_to_both(session.store, session.head) == {made.text}


def test_where_it_is_taken_back_the_one_before_is_current_again(session: Session) -> None:
    first = refresh(session)
    session.say("assistant", "At the harbour.", id="a1")
    second = refresh(session)
    assert second is not None
    session.store.retract(memories=[second.id], at="a1", scope="branch", revert=True)

    assert summary_of(session) == first
    assert refresh(session) is not None
    assert visible_to_both(session.store, "a1") == {"u1 | a1"}


def test_where_a_fact_of_it_is_taken_back_it_is_made_anew_without(session: Session) -> None:
    session.say("user", "I live in Chengdu", id="u2")
    first = refresh(session, window_tokens=1)
    session.say("user", "and like trains", id="u3")
    assert refresh(session) is not None
    home = session.remember("lives in Chengdu", sources=["u2"])  # after the summaries, which do not derive from it
    session.store.retract(memories=[home.id], at="u3", scope="branch")

    stale = summary_of(session)
    made = refresh(session, threshold_tokens=1000)

    assert first is not None
    assert made is not None
    assert (stale, made.text) == (session.store.at("u1")[next(iter(session.store.at("u1")))], "u1 | u3")
    assert visible_to_both(session.store, "u3") == {"u1 | u3"}
    assert refresh(session) is None


def test_an_answer_that_was_written_with_an_old_summary_is_not_gone_on_from(session: Session) -> None:
    old = refresh(session)
    assert old is not None
    session.say("assistant", "You want dinner", id="a1", meta={"recalled": [old.id]})
    fact = session.remember("wants dinner", sources=["u1"])  # after the summary, which says so too
    session.say("user", "forget it", id="u2")
    session.store.retract(memories=[fact.id], at="u2", scope="branch")

    made = refresh(session)
    out = extract(session, each)

    assert made is not None
    assert (made.text, made.derived_from) == ("u2", ())
    assert [added.sources for added in out.added if added.id not in out.hidden] == [("u2",)]
    assert out.left_out == (f"a1 was written with summary {old.id}, which says what was taken back since",)


def test_it_is_hidden_where_a_fact_that_was_known_of_its_messages_is_taken_back(session: Session) -> None:
    fact = session.remember("wants dinner", sources=["u1"])
    made = refresh(session)
    assert made is not None
    assert made.derived_from == (fact.id,)
    session.say("user", "forget it", id="u2")
    session.store.retract(memories=[fact.id], at="u2", scope="branch")

    assert visible_to_both(session.store, "u2") == set()
    assert visible_to_both(session.store, "u1") == {"wants dinner", "u1"}


def test_an_erased_summary_is_made_anew(session: Session) -> None:
    first = refresh(session)
    assert first is not None
    session.store.erase([first.id])

    assert summary_of(session) is None
    assert refresh(session) is not None
    assert visible_to_both(session.store, "u1") == {"u1"}


def test_summaries_of_other_trees_are_left_alone(session: Session) -> None:
    profile = session.store.session("profile")
    profile.say("user", "I am a vegetarian", id="p1")
    refresh(profile)
    both = session.store.session("chat", beside=["profile"])

    made = refresh(both)

    assert made is not None
    assert (made.text, made.supersedes) == ("u1", ())
    assert len(both.view().memories(kind="summary")) == 2


def test_two_that_replicas_made_become_one(session: Session) -> None:
    refresh(session)
    session.store.append([Memory("theirs", "theirs", sources=["u1"], kind="summary", key="session_summary")])
    session.say("assistant", "At the harbour.", id="a1")

    made = refresh(session)

    assert made is not None
    assert len(made.supersedes) == 2
    assert visible_to_both(session.store, "a1") == {made.text}


def test_where_the_subject_was_forgotten_a_summary_begins_below(session: Session) -> None:
    refresh(session)
    session.say("user", "Forget all that", id="u2")
    session.store.retract(keys=["session_summary"], at="u2", scope="branch")
    assert refresh(session) is None
    session.say("user", "I live in Chengdu", id="u3")

    refresh(session)

    assert visible_to_both(session.store, "u3") == {"u3"}


@pytest.mark.parametrize("given", [None, "", " \n", 3])
def test_a_summariser_that_gives_no_text_is_reported(session: Session, given: Any) -> None:
    with pytest.raises(ExtractionFailed, match="no text"):
        summarise(session, lambda passage: given, threshold_tokens=0, keep_tokens=0)
    assert len(session.view()) == 0


def test_what_changes_each_time_is_given_up(session: Session) -> None:
    (root, _) = session.store.tree.path("u1")

    def beaten(passage: Passage) -> str:
        session.remember(f"by another, after {passage.before}", sources=[root], kind="summary", key="session_summary")
        return "mine"

    with pytest.raises(ExtractionFailed, match=r"changed each time that it was made \(asked 5 times\)"):
        summarise(session, beaten, threshold_tokens=0, keep_tokens=0)
    assert len(session.view()) == 5


def test_what_cannot_be_asked_is_refused(session: Session) -> None:
    with pytest.raises(InvalidExtraction, match="keep_tokens=-1"):
        refresh(session, keep_tokens=-1)
    with pytest.raises(UnknownEvent):
        summarise(session, counted, anchor="nowhere")


def test_the_twin_does_the_same(session: Session) -> None:
    async def slowly(passage: Passage) -> str:
        await asyncio.sleep(0)
        return counted(passage)

    async def work() -> list[bm.Memory | None]:
        return [await asummarise(session, way, threshold_tokens=0, keep_tokens=0) for way in (slowly, counted)]

    first, second = asyncio.run(work())

    assert first is not None
    assert (first.text, second) == ("u1", None)
