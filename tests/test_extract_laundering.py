"""What was taken back does not return by way of a message that says it: asked of the engine and of the reference."""

from __future__ import annotations

import branchmem as bm
import pytest
from branchmem import Message, Reason
from branchmem.extract import Found, Shown, extract, extract_in, summarise
from branchmem.reference import Reference
from branchmem.session import Session, Step
from extracting import Seen, counted, each, finding, visible_to_both

pytestmark = pytest.mark.usefixtures("without_disk")


@pytest.fixture
def answered(session: Session) -> tuple[Session, str, Step]:
    """The user likes fish, `m` says so, and an answer repeats it that was written with `m`."""
    memory = session.remember("likes fish", sources=["u1"])
    with session.step() as step:
        assert memory.id in step.recall("fish").ids
        step.write("Since you like fish, the harbour.")
    return session, memory.id, step


def take_back(session: Session, memory: str) -> None:
    session.say("user", "Forget about the fish", id="u2")
    session.store.retract(memories=[memory], at="u2", scope="branch")


def test_what_is_extracted_from_an_answer_derives_from_its_receipt(answered: tuple[Session, str, Step]) -> None:
    session, memory, step = answered

    out = extract(session, finding(Found("eats fish", (step.id,)), "fond of fish", Found("wants dinner", ("u1",))))

    assert [added.derived_from for added in out.added] == [(memory,), (memory,), ()]


@pytest.mark.parametrize("before", [False, True], ids=["extracted before", "extracted after"])
def test_a_fact_that_was_taken_back_does_not_return_by_an_answer_that_repeated_it(
    answered: tuple[Session, str, Step], before: bool
) -> None:
    session, memory, step = answered
    found = finding(Found("eats fish", (step.id,)), "fond of fish")
    if not before:
        take_back(session, memory)
    out = extract(session, found)
    if before:
        take_back(session, memory)

    assert visible_to_both(session.store, session.head) == set()
    assert len(out.added) == 2
    assert out.hidden == (() if before else tuple(added.id for added in out.added))
    reference = Reference()
    reference.append(session.store.log.events())
    for added in out.added:
        for log in (session.store, reference):
            verdict = log.at(session.head).explain(added.id)
            assert (verdict.reasons, len(verdict.culprits[Reason.RETRACTED])) == (Reason.RETRACTED, 1)
    # where it was not taken back, it stands
    assert visible_to_both(session.store, step.id) >= {"likes fish"}


def test_all_that_is_said_between_two_messages_of_the_user_is_one_answer(
    answered: tuple[Session, str, Step],
) -> None:
    session, memory, step = answered
    session.say("tool", "The harbour has fish.", id="t1")
    session.say("assistant", "It has.", id="a2")
    session.say("user", "Good", id="u3")
    session.say("assistant", "Enjoy.", id="a3")

    out = extract(session, each)

    assert {added.sources: added.derived_from for added in out.added} == {
        ("u1",): (),
        (step.id,): (memory,),
        ("t1",): (memory,),
        ("a2",): (memory,),
        ("u3",): (),
        ("a3",): (),
    }


def test_with_the_memory_what_was_extracted_comes_back(answered: tuple[Session, str, Step]) -> None:
    session, memory, step = answered
    take_back(session, memory)
    extract(session, finding(Found("eats fish", (step.id,))))
    (retraction,) = session.store.log.events(type="retraction")

    session.store.restore(retraction.id, at=session.head, scope="branch")

    assert visible_to_both(session.store, session.head) == {"likes fish", "eats fish"}


def test_narrower_sources_do_not_derive_from_the_answer(answered: tuple[Session, str, Step]) -> None:
    session, memory, _ = answered
    session.say("user", "And I live in Chengdu", id="u3")
    out = extract(session, finding(Found("lives in Chengdu", ("u3",))))
    take_back(session, memory)

    assert out.added[0].derived_from == ()
    assert visible_to_both(session.store, session.head) == {"lives in Chengdu"}


def test_in_a_step_the_receipt_is_that_of_the_step(session: Session) -> None:
    memory = session.remember("likes fish", sources=["u1"])
    with session.step() as step:
        step.recall("fish")
        step.write("Since you like fish, the harbour.")
        out = extract_in(step, finding(Found("eats fish", (step.id,)), "fond of fish", Found("hungry", ("u1",))))
    take_back(session, memory.id)

    assert [added.derived_from for added in out.added] == [(memory.id,), (memory.id,), ()]
    assert visible_to_both(session.store, session.head) == {"hungry"}


def test_in_a_step_so_is_what_was_said_on_the_way_to_its_answer(session: Session) -> None:
    memory = session.remember("likes fish", sources=["u1"])
    session.say("assistant", "I look for fish.", id="t1")
    with session.step() as step:
        step.recall("fish")
        step.write("The harbour.")
        out = extract_in(step, finding(Found("wants fish", ("t1",)), Found("dines out", ("u1",))))

    assert [added.derived_from for added in out.added] == [(memory.id,), ()]


def test_a_message_that_is_read_again_does_not_say_what_was_taken_back_of_it(session: Session) -> None:
    memory = session.remember("likes fish", sources=["u1"])
    take_back(session, memory.id)

    out = extract(session, finding(Found("is fond of fish", ("u1",)), Found("forgets", ("u2",))))

    assert [added.derived_from for added in out.added] == [(memory.id,), ()]
    assert visible_to_both(session.store, session.head) == {"forgets"}
    session.store.session("chat").rewind("u1")
    assert visible_to_both(session.store, "u1") == {"likes fish", "is fond of fish"}


def test_nor_what_was_erased_of_it(session: Session) -> None:
    memory = session.remember("likes fish", sources=["u1"])
    session.store.erase([memory.id])

    session.say("user", "I live in Chengdu", id="u2")
    seen = Seen(finding("all of it"))

    out = extract(session, seen)

    assert (seen.messages, out.left_out) == ([["u2"]], (f"u1 says what was erased in memory {memory.id}",))
    assert [added.sources for added in out.added] == [("u2",)]


def test_what_is_erased_while_it_is_read_refuses_what_is_found(session: Session) -> None:
    memory = session.remember("likes fish", sources=["u1"])

    def slow(shown: Shown) -> list[Found]:
        session.store.erase([memory.id])
        return [Found("is fond of fish", ("u1",))]

    out = extract(session, slow)

    assert (out.added, [refused.why for refused in out.refused]) == (
        (),
        [f"u1 says what was erased in memory {memory.id}"],
    )


def test_what_is_taken_back_while_it_is_read_covers_what_is_found(answered: tuple[Session, str, Step]) -> None:
    session, memory, step = answered

    def slow(shown: Shown) -> list[Found]:
        take_back(session, memory)
        return [Found("eats fish", (step.id,)), Found("is fond of fish", ("u1",))]

    out = extract(session, slow)

    assert visible_to_both(session.store, session.head) == set()
    assert out.hidden == ()  # at the anchor, above where it was taken back, it stands
    assert visible_to_both(session.store, step.id) == {"likes fish", "eats fish", "is fond of fish"}


def test_what_was_taken_back_on_one_branch_is_found_again_on_others_only(session: Session) -> None:
    memory = session.remember("likes fish", sources=["u1"])
    other = session.fork("other")
    take_back(session, memory.id)
    other.say("user", "Fish again", id="v2")

    extract(other, finding(Found("is fond of fish", ("u1",))))

    assert visible_to_both(session.store, "v2") == {"likes fish", "is fond of fish"}
    assert visible_to_both(session.store, "u2") == set()


def test_a_memory_from_elsewhere_that_was_taken_back_hides_nothing_here(session: Session) -> None:
    store = session.store
    store.append([bm.Message("u1x", store.tree.path("u1")[0], role="user"), bm.Message("u2", "u1", role="user")])
    store.append([bm.Memory("both", "likes fish", sources=["u1", "u1x"])])
    store.retract(memories=["both"], at="u1x", scope="branch")

    out = extract(session, finding(Found("hungry", ("u1",))))

    assert (out.added[0].derived_from, out.hidden, out.left_out) == ((), (), ())


def test_what_a_sibling_says_again_is_not_seen_where_it_was_taken_back(session: Session) -> None:
    with session.step() as step:
        fish = step.remember("likes fish", sources=["u1"])
    take_back(session, fish.id)
    forgotten = session.head
    at_the_question = extract(session, finding("fond of fish"), anchor="u1", name="at the question")
    session.switch("u1")
    session.say("assistant", "Where to?", id="a2")
    out = extract(session, finding(Found("fond of fish", ("u1",))))

    assert (at_the_question.added, len(at_the_question.left_out)) == ((), 1)
    assert out.added[0].sources == ("a2", "u1")
    assert visible_to_both(session.store, "a2") == {"fond of fish"}
    assert visible_to_both(session.store, forgotten) == set()


def test_one_that_was_taken_back_here_as_well_is_not_found_again(session: Session) -> None:
    store = session.store
    store.append([bm.Message("u1x", store.tree.path("u1")[0], role="user")])
    store.append([bm.Memory("both", "likes fish", sources=["u1", "u1x"])])
    store.retract(memories=["both"], at="u1x", scope="everywhere")

    out = extract(session, finding(Found("is fond of fish", ("u1",))))

    assert (out.added, out.left_out) == ((), ("u1 says what was taken back in memory both",))


def test_a_known_memory_that_is_built_on_takes_what_is_found_with_it(session: Session) -> None:
    memory = session.remember("likes fish", sources=["u1"])
    session.say("user", "Any harbour will do", id="u3")
    extract(session, finding(Found("likes fish at any harbour", ("u3",), (memory.id,))))
    take_back(session, memory.id)

    assert visible_to_both(session.store, session.head) == set()


def test_an_answer_with_a_receipt_that_cannot_be_read_is_not_read(session: Session) -> None:
    session.say("assistant", "Fish.", id="a1", meta={"recalled": "likes fish"})

    out = extract(session, each)

    assert [added.sources for added in out.added] == [("u1",)]
    assert "the receipt of a1 is no list" in out.left_out[0]


def test_a_receipt_of_what_is_not_here_hides_until_that_comes(session: Session) -> None:
    session.say("assistant", "Fish.", id="a1", meta={"recalled": ["elsewhere"]})
    out = extract(session, finding(Found("eats fish", ("a1",))))

    assert out.hidden == (out.added[0].id,)
    session.store.append([bm.Memory("elsewhere", "likes fish", sources=["u1"])])
    assert visible_to_both(session.store, "a1") == {"likes fish", "eats fish"}


@pytest.mark.parametrize("before", [False, True], ids=["summarised before", "summarised after"])
def test_nor_does_it_return_by_way_of_a_summary(answered: tuple[Session, str, Step], before: bool) -> None:
    session, memory, step = answered

    def refresh() -> None:
        summarise(session, counted, threshold_tokens=0, keep_tokens=0)

    if before:
        refresh()
    take_back(session, memory)
    hidden = visible_to_both(session.store, session.head)
    refresh()

    assert hidden == set()
    assert visible_to_both(session.store, session.head) == {"u2"}  # neither the answer nor what was said of it
    assert visible_to_both(session.store, step.id) == {"likes fish", *([f"u1,{step.id}"] if before else [])}


def test_a_correction_of_a_message_is_not_summarised_away(session: Session) -> None:
    session.say("user", "I live in Chengdu", id="u2")
    session.say("user", "No, in Hangzhou", id="u3")
    session.store.retract(sources=["u2"], at="u3", scope="branch")

    summarise(session, counted, threshold_tokens=0, keep_tokens=0)

    assert visible_to_both(session.store, "u3") == {"u1,u3"}


def test_messages_that_were_only_recalled_text_are_no_source(session: Session) -> None:
    memory = session.remember("likes fish", sources=["u1"])
    recalled = session.view().recall("fish").text
    session.say("user", recalled, id="u4")
    session.say("user", f"{recalled}\n\nAnd I live in Chengdu", id="u3")

    out = extract(session, each)

    assert {added.text: added.sources for added in out.added} == {
        "Where should I go for dinner?": ("u1",),
        "And I live in Chengdu": ("u3",),
    }
    assert isinstance(session.store.log.get("u3"), Message)
    take_back(session, memory.id)
    assert "likes fish" not in "".join(visible_to_both(session.store, session.head))


def test_what_follows_an_answer_that_was_erased_with_its_receipt_is_not_read(
    answered: tuple[Session, str, Step],
) -> None:
    session, memory, step = answered
    session.say("assistant", "As you like fish, the harbour.", id="a2")
    session.store.erase([step.id])
    take_back(session, memory)

    out = extract(session, each)
    summarise(session, counted, threshold_tokens=0, keep_tokens=0)

    assert [added.sources for added in out.added if added.id not in out.hidden] == [("u2",)]
    assert out.left_out == ("a2 follows what was erased, so nobody knows what it was written with",)
    assert visible_to_both(session.store, session.head) == {"Forget about the fish", "u2"}


def test_what_is_found_twice_and_derives_from_more_is_not_passed_over_in_silence(session: Session) -> None:
    memory = session.remember("likes fish", sources=["u1"])
    twice = [Found("wants the harbour", ("u1",)), Found("wants the harbour", ("u1",), (memory.id,))]

    out = extract(session, finding(*twice))

    assert [added.derived_from for added in out.added] == [()]
    assert [refused.found for refused in out.refused] == twice[1:]
