"""Recalling in a session and in a step: with the skills of the branch, kept as a receipt, and noted as used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import Message
from branchmem.canonical import microseconds
from branchmem.errors import EventConflict, StepEnded
from branchmem.recall import Remembered, access
from branchmem.recall.context import HEADING
from branchmem.session import OnCancel, Session, Step
from branchmem.skills import Library, Skill, prompt, visible
from branchmem.skills import remember as remember_skills
from recalling import NOON, bullets, chain, opened, said
from sessions import Failed, failing, message


def recalling(step: Step, then: Callable[[], object]) -> None:
    """A step that recalls something, and what happens then."""
    with step:
        assert step.recall("tea").ids
        then()


def uses(store: bm.Store) -> dict[str, int]:
    """When each memory was last used, in microseconds since 1970."""
    return dict(store.snapshot(lambda reader: access.newer(reader, 0), tables=access.TABLES)[1])


# Skills

DOCKER = Skill("docker", "Run and build containers", "Use compose.", trigger_keywords=("docker", "container", "image"))
BREW = Skill("brewing", "Brew tea", "Boil water first.", trigger_keywords=("tea", "brew"))


def test_skills_that_are_called_up_stand_first_by_name() -> None:
    with opened(*chain(1), said(1, "the container of tea is empty", at="m0")) as store:
        message = "build an image, run the container with docker, and brew tea"
        assert [activation.name for activation in Library((DOCKER, BREW)).activate(message)] == ["docker", "brewing"]
        recalled = store.at("m0").recall(message, skills=[DOCKER, BREW])

    assert [activation.name for activation in recalled.skills] == ["brewing", "docker"]
    assert recalled.text == f"{prompt([BREW, DOCKER])}\n\n{HEADING}\n\n- the container of tea is empty"
    assert [skill["name"] for skill in recalled.to_dict()["skills"]] == ["brewing", "docker"]


def test_a_skill_that_does_not_fit_leaves_room_for_what_does() -> None:
    long = Skill("brewing", "Brew tea", "Boil water first. " * 300, trigger_keywords=("tea", "brew"))
    with opened(*chain(1), said(1, "likes tea", at="m0")) as store:
        recalled = store.at("m0").recall("brew tea in a docker container", skills=[DOCKER, long], budget=100)

    assert ([activation.name for activation in recalled.skills], recalled.skills_left_out) == (["docker"], ("brewing",))
    assert recalled.ids == ("k1",)
    assert recalled.tokens <= 100


def test_a_file_that_is_worked_on_calls_up_its_skill() -> None:
    files = Skill("files", "Write container files", glob_patterns=("**/Dockerfile",))
    with opened(*chain(1)) as store:
        view = store.at("m0")

        assert view.recall("add a line", skills=[files], paths=["app/Dockerfile"]).text == prompt([files])
        assert view.recall("add a line", skills=[files]).text == ""


def test_skills_of_a_branch_are_called_up_there_alone_and_are_no_notes(session: Session) -> None:
    session.remember("likes tea", sources=["u1"])
    fork = session.fork("fork")
    fork.say("user", "Teach it to brew", id="taught")
    remember_skills(fork, [BREW], sources=["taught"])

    recalled = fork.recall("brew tea")
    assert recalled.text == f"{prompt([BREW])}\n\n{HEADING}\n\n{bullets(recalled)[0]}"
    assert bullets(recalled)[0].endswith("likes tea")
    assert fork.recall("brew tea", skills=()).skills == ()
    assert session.recall("brew tea").skills == ()
    assert [memory.kind for hit in fork.recall("brew", kind="skill").memories for memory in hit.memories] == ["skill"]


def test_skills_of_another_store_are_in_no_receipt_and_count_as_used_by_nobody(session: Session) -> None:
    session.remember("likes tea", sources=["u1"])
    with bm.open_temporary() as team:
        remember_skills(team.session("team"), [BREW])
        elsewhere = visible(team.at_ref("team"))

    recalled = session.recall("brew tea", skills=elsewhere)
    assert recalled.text.startswith(prompt([BREW]))
    assert (recalled.ids, list(uses(session.store))) == (recalled.memories[0].ids, [recalled.memories[0].id])
    with session.fork("try").step() as step:
        step.recall("brew tea", skills=elsewhere)
    assert step.recalled == recalled.ids


@pytest.mark.parametrize("unread", ["skills/", ["skills/brew.md"], [BREW, None]])
def test_skills_must_be_read_already(session: Session, unread: Any) -> None:
    with pytest.raises(TypeError, match=r"branchmem\.skills\.load"):
        session.recall("brew", skills=unread)


def test_skills_that_the_view_hides_are_in_no_text_whoever_hands_them_in(session: Session) -> None:
    fork = session.fork("fork")
    fork.say("user", "Teach it to brew", id="taught")
    (tied,) = remember_skills(fork, [BREW], sources=["taught"]).memories
    read = visible(fork.view())
    assert session.recall("brew", skills=read).text == ""

    fork.store.retract([tied.id], at="taught", scope="branch")
    assert fork.recall("brew", skills=read).text == ""
    assert fork.recall("brew in docker", skills=[*read, DOCKER]).text == prompt([DOCKER])
    with fork.step() as step:
        assert step.recall("brew", skills=read).text == ""


def test_a_skill_of_the_branch_counts_as_used_where_no_note_is_found(session: Session) -> None:
    (tied,) = remember_skills(session, [BREW]).memories

    assert session.recall("brew").ids == (tied.id,)
    assert list(uses(session.store)) == [tied.id]


@pytest.mark.parametrize("path", ["skills", Path("skills")])
def test_a_folder_is_no_library(session: Session, path: Any) -> None:
    with pytest.raises(TypeError, match=r"skills\.load\('skills'\)"):
        session.recall("brew", skills=path)


# Sessions and steps


def test_a_session_notes_what_went_into_the_text_as_used(session: Session) -> None:
    tea, rain = (session.remember(text, sources=["u1"], created=NOON) for text in ("likes tea", "likes rain"))
    long = session.remember("tea " + "and a story " * 500, sources=["u1"], created=NOON)
    seq = session.store.seq

    recalled = session.recall("tea?", now=NOON + timedelta(hours=2), budget=100)

    assert (recalled.ids, recalled.left_out) == ((tea.id,), (long.id,))
    assert uses(session.store) == {tea.id: microseconds(NOON + timedelta(hours=2))}
    assert session.store.seq == seq

    session.recall("rain?", used=False)
    assert rain.id not in uses(session.store)


def test_what_was_used_fades_anew(session: Session) -> None:
    memory = session.remember("likes tea", sources=["u1"], created=NOON)
    month, later = NOON + timedelta(days=60), NOON + timedelta(days=61)
    faded = session.recall("tea", now=month)
    assert (faded.ids, faded.faded) == ((), 1)

    assert session.recall("tea", now=month, include_faded=True).ids == (memory.id,)
    assert session.recall("tea", now=later).ids == (memory.id,)


def test_what_an_answer_was_written_with_fades_anew(session: Session) -> None:
    memory = session.remember("likes tea", sources=["u1"], created=NOON)
    month, later = NOON + timedelta(days=60), NOON + timedelta(days=61)
    with session.step(created=month) as step:
        step.recall("tea", include_faded=True)

    assert session.recall("tea", now=later, used=False).ids == (memory.id,)


def test_a_session_on_a_store_for_reading_recalls_and_notes_nothing(path: Path) -> None:
    with bm.open(path) as store:
        session = store.session("chat")
        session.say("user", "hello", id="u1")
        session.remember("likes tea", sources=["u1"])
    with bm.open(path, readonly=True) as store:
        assert bullets(store.session("chat").recall("tea")) != []
        assert uses(store) == {}


def test_a_coroutine_recalls_as_well(session: Session) -> None:
    memory = session.remember("likes tea", sources=["u1"])

    assert asyncio.run(session.arecall("tea?", budget=200)).ids == (memory.id,)
    assert uses(session.store).keys() == {memory.id}


def test_a_coroutine_recalls_and_remembers_in_its_step(session: Session) -> None:
    memory = session.remember("likes tea", sources=["u1"])

    async def work() -> tuple[Step, Remembered]:
        async with session.step() as step:
            await asyncio.gather(step.arecall("tea?"), step.arecall("likes"))
            return step, await step.aremember_checked("likes rain")

    step, checked = asyncio.run(work())
    assert (step.recalled, checked.done, step.memories) == ((memory.id,), "added", (checked.memory,))


def test_a_step_keeps_a_receipt_of_all_that_it_recalls(session: Session) -> None:
    tea, rain, same = (session.remember(text, sources=["u1"], kind=kind) for text, kind in TEXTS)
    with session.step() as step:
        own = step.remember("tea is what they asked for")
        assert set(step.recall("tea").ids) == {tea.id, same.id, own.id}
        step.recall("rain")
        assert set(step.recalled) == {tea.id, same.id, own.id, rain.id}
        assert uses(session.store) == {}

    assert message(session, step.id).meta["recalled"] == tuple(sorted([tea.id, same.id, own.id, rain.id]))
    written = message(session, step.id).created
    assert written is not None
    assert uses(session.store) == dict.fromkeys(step.recalled, microseconds(written))


TEXTS = (("likes tea", "fact"), ("likes rain", "fact"), ("likes tea", "summary"))


def test_a_step_that_recalled_nothing_says_so(session: Session) -> None:
    with session.step() as step:
        assert step.recall("tea").text == ""
    with session.step() as silent:
        pass

    assert message(session, step.id).meta["recalled"] == ()
    assert "recalled" not in message(session, silent.id).meta
    assert uses(session.store) == {}


@pytest.mark.parametrize("on_cancel", ["drop", "keep"])
def test_a_step_that_fails_used_nothing(session: Session, on_cancel: OnCancel) -> None:
    session.remember("likes tea", sources=["u1"])
    with pytest.raises(Failed):
        recalling(session.step(on_cancel=on_cancel), failing())

    assert uses(session.store) == {}


def test_uses_are_written_with_the_message_or_not_at_all(session: Session) -> None:
    session.remember("likes tea", sources=["u1"])
    step = session.step()
    with pytest.raises(EventConflict):
        recalling(step, lambda: session.store.append([Message(step.id, None, text="somebody else was here")]))

    assert uses(session.store) == {}


def test_a_step_recalls_only_while_it_is_open(session: Session) -> None:
    with session.step() as step:
        pass
    with pytest.raises(StepEnded):
        step.recall("tea")


def test_a_retried_step_does_not_recall_what_the_rejected_one_remembered(session: Session) -> None:
    with session.step() as first:
        first.remember("likes tea at the harbour")
    session.regenerate()
    with session.step() as second:
        assert second.recall("tea").text == ""


def test_a_view_notes_no_use() -> None:
    with opened(*chain(1), said(1, "tea", at="m0")) as store:
        assert store.at("m0").recall("tea").ids == ("k1",)
        assert uses(store) == {}
