"""Remembering with a look at what is there: who decides, where that holds, and who decides at one time."""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import Memory
from branchmem.errors import (
    InvalidEvent,
    InvalidResolution,
    InvalidSearch,
    NoStep,
    StepEnded,
    StoreReadOnly,
    Undecided,
    UnknownEvent,
)
from branchmem.events import Retraction
from branchmem.recall import Conflict, Remembered
from branchmem.recall.conflicts import Resolution
from branchmem.session import Session, Step
from branchmem.worktree import PROFILE, Worktree
from deciding import COMPASS, PLACES, Place, kept, shown
from repositories import Repository

PROCESSES = 3
EACH = 6


# Where it holds.


def test_what_is_superseded_stays_current_where_the_new_one_was_never_made(session: Session) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home")
    side = session.fork("side")
    session.say("user", "I moved", id="u2")

    new = session.remember_checked("Lives in Oslo", sources=["u2"], key="home", resolve="supersede").memory

    assert session.view().current("home") == new
    assert side.view().current("home") == old
    session.rewind("u1")
    assert session.view().current("home") == old
    session.switch("u2")
    assert session.view().current("home") == new


def test_what_a_rejected_answer_superseded_is_current_again(session: Session) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home")
    with session.step() as step:
        new = step.remember_checked("Lives in Oslo", key="home", resolve="supersede").memory
    attempt = session.head

    session.regenerate()
    assert session.view().current("home") == old
    with session.step() as step:
        said = step.remember_checked("Lives in Nice", key="home", resolve="supersede")
    assert kept(said) == [(old.id, "key", "superseded")]

    session.switch(attempt)
    assert session.view().current("home") == new


def test_a_step_that_fails_leaves_all_as_it_was(session: Session) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home")
    before = session.store.digest()

    with suppress(ZeroDivisionError), session.step() as step:
        step.remember_checked("Lives in Oslo", key="home", resolve="supersede")
        raise ZeroDivisionError

    assert session.store.digest() == before
    assert session.view().current("home") == old


def test_where_the_new_one_is_taken_back_the_old_one_is_current(session: Session) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home")
    new = session.remember_checked("Lives in Oslo", sources=["u1"], key="home", resolve="supersede").memory

    session.store.append([Retraction("r1", "u1", scope="branch", memories=[new.id])])

    assert session.view().current("home") == old


# Who decides.


@PLACES
def test_who_decides_sees_the_new_one_and_all_conflicts(session: Session, place: Any) -> None:
    by_key = session.remember("Lives in Rome @0", sources=["u1"], key="home")
    alike = session.remember("Lives in Bergen @70", sources=["u1"])
    asked: list[tuple[Memory, Sequence[Conflict]]] = []

    def decide(new: Memory, conflicts: Sequence[Conflict]) -> dict[str, Resolution]:
        asked.append((new, conflicts))
        return {alike.id: "supersede"}

    with place(session) as remember:
        said = remember("Lives in Oslo @80", key="home", kind="guess", resolve=decide, embedder=COMPASS)

    ((new, conflicts),) = asked
    assert (new.text, new.key, new.kind) == ("Lives in Oslo @80", "home", "guess")
    assert [(one.memory, one.by, one.done) for one in conflicts] == [(by_key, "key", None), (alike, "similarity", None)]
    assert kept(said) == [(by_key.id, "key", "kept"), (alike.id, "similarity", "superseded")]
    assert shown(session) == {"Lives in Rome @0", "Lives in Oslo @80"}


def test_who_decides_is_not_asked_where_nothing_is_in_conflict(session: Session) -> None:
    def decide(new: Memory, conflicts: Sequence[Conflict]) -> Resolution:
        raise AssertionError

    assert session.remember_checked("Lives in Rome", sources=["u1"], key="home", resolve=decide).done == "added"
    assert session.remember_checked("Lives in Rome", sources=["u1"], key="home", resolve=decide).done == "known"


def test_keeping_one_keeps_all_and_nothing_is_written(session: Session) -> None:
    one, two = (session.remember(f"Lives in {town}", sources=["u1"], key="home") for town in ("Rome", "Oslo"))
    before = session.store.digest()

    said = session.remember_checked(
        "Lives in Nice",
        sources=["u1"],
        key="home",
        resolve=lambda new, conflicts: {one.id: "supersede", two.id: "keep_existing"},
    )

    assert (said.done, said.memory) == ("kept_existing", two)
    assert sorted(kept(said)) == sorted([(one.id, "key", "kept"), (two.id, "key", "kept_existing")])
    assert session.store.digest() == before


@PLACES
@pytest.mark.parametrize(
    "answer", ["replace", None, {"elsewhere": "supersede"}, ["supersede"], {"u1": "keep_both"}], ids=repr
)
def test_an_answer_that_means_nothing_is_refused(session: Session, place: Any, answer: Any) -> None:
    session.remember("Lives in Rome", sources=["u1"], key="home")
    before = shown(session)

    with place(session) as remember, pytest.raises(InvalidResolution, match="nothing was remembered"):
        remember("Lives in Oslo", key="home", resolve=lambda new, conflicts: answer)

    assert shown(session) == before


def test_an_answer_for_each_is_checked_word_by_word(session: Session) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home")

    with pytest.raises(InvalidResolution, match="'forget'") as refused:
        session.remember_checked(
            "Lives in Oslo",
            sources=["u1"],
            key="home",
            resolve=lambda new, conflicts: {old.id: "forget"},  # type: ignore[dict-item]
        )

    assert refused.value.value == "forget"


@pytest.mark.parametrize("word", ["merge", "", None, 1, ["supersede"]], ids=repr)
def test_a_word_that_is_no_resolution_is_refused_at_once(session: Session, word: Any) -> None:
    with pytest.raises(InvalidResolution, match="'supersede', 'keep_both', 'keep_existing'"):
        session.remember_checked("Lives in Rome", sources=["u1"], resolve=word)


def test_to_ask_takes_somebody_who_decides(session: Session) -> None:
    with pytest.raises(InvalidResolution, match="resolve=decide"):
        session.remember_checked("Lives in Rome", sources=["u1"], resolve="ask")  # type: ignore[arg-type]


@pytest.mark.parametrize("threshold", [1.1, -2, math.nan, "0.8", True, None], ids=repr)
def test_a_threshold_that_is_no_cosine_is_refused(session: Session, threshold: Any) -> None:
    with pytest.raises(InvalidSearch, match="threshold="):
        session.remember_checked("Lives in Rome", sources=["u1"], threshold=threshold)


def test_what_the_decision_raises_goes_on_and_nothing_is_written(session: Session) -> None:
    session.remember("Lives in Rome", sources=["u1"], key="home")
    before = session.store.digest()

    def decide(new: Memory, conflicts: Sequence[Conflict]) -> Resolution:
        raise TimeoutError("the model did not answer")

    with pytest.raises(TimeoutError):
        session.remember_checked("Lives in Oslo", sources=["u1"], key="home", resolve=decide)

    assert session.store.digest() == before


def test_who_decides_may_use_the_store(session: Session) -> None:
    session.remember("Lives in Rome", sources=["u1"], key="home")

    def decide(new: Memory, conflicts: Sequence[Conflict]) -> Resolution:
        session.say("assistant", "Rome or Oslo?")
        session.say("user", "Oslo")
        return "supersede"

    assert session.remember_checked("Lives in Oslo", sources=["u1"], key="home", resolve=decide).done == "superseded"
    assert shown(session) == {"Lives in Oslo"}


# What is refused as by `remember`.


def test_what_remember_refuses_is_refused(session: Session) -> None:
    with pytest.raises(NoStep):
        session.remember_checked("Lives in Rome")
    with pytest.raises(UnknownEvent):
        session.remember_checked("Lives in Rome", sources=["nobody"])
    with pytest.raises(InvalidEvent):
        session.remember_checked("Lives in Rome", sources=["u1"], importance=7)
    with session.step() as step:
        pass
    with pytest.raises(StepEnded):
        step.remember_checked("Lives in Rome")


def test_a_store_that_is_read_only_refuses(path: Path) -> None:
    with bm.open(path) as store:
        store.session("chat").say("user", "hello", id="u1")

    with bm.open(path, readonly=True) as store:
        session = store.session("chat", create=False)
        with pytest.raises(StoreReadOnly):
            session.remember_checked("Lives in Rome", sources=["u1"], key="home")


# At one time.


@PLACES
def test_who_decided_on_what_has_changed_decides_again(session: Session, place: Any) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home")
    asked: list[list[str]] = []

    def decide(new: Memory, conflicts: Sequence[Conflict]) -> Resolution:
        asked.append([one.memory.text for one in conflicts])
        if len(asked) == 1:
            session.store.append([Memory("m2", "Lives in Nice", sources=["u1"], key="home", supersedes=[old.id])])
        return "supersede"

    with place(session) as remember:
        said = remember("Lives in Oslo", key="home", resolve=decide)

    assert asked == [["Lives in Rome"], ["Lives in Nice"]]
    assert said.memory.supersedes == ("m2",)
    assert shown(session) == {"Lives in Oslo"}


@PLACES
def test_who_never_comes_to_decide_is_told(session: Session, place: Any) -> None:
    session.remember("Lives in Rome", sources=["u1"], key="home")
    asked: list[int] = []

    def decide(new: Memory, conflicts: Sequence[Conflict]) -> Resolution:
        asked.append(len(conflicts))
        session.store.append([Memory(f"m{len(asked)}", "Lives in Nice", sources=["u1"], key="home")])
        return "supersede"

    with place(session) as remember, pytest.raises(Undecided, match="5 times") as refused:
        remember("Lives in Oslo", key="home", resolve=decide)

    assert refused.value.key == "home"
    assert asked == [1, 2, 3, 4, 5]
    assert shown(session) == {"Lives in Rome", "Lives in Nice"}


@PLACES
def test_what_others_remember_about_other_keys_does_not_matter(session: Session, place: Any) -> None:
    session.remember("Lives in Rome", sources=["u1"], key="home")
    asked: list[int] = []

    def decide(new: Memory, conflicts: Sequence[Conflict]) -> Resolution:
        asked.append(len(conflicts))
        session.store.append([Memory("m2", "Plays chess", sources=["u1"], key="game")])
        return "supersede"

    with place(session) as remember:
        remember("Lives in Oslo", key="home", resolve=decide)

    assert asked == [1]


@pytest.mark.parametrize("in_step", [False, True], ids=["session", "step"])
def test_threads_that_decide_at_one_time_leave_one_memory(session: Session, in_step: bool) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home")
    both = threading.Barrier(2, timeout=10)
    said: list[Remembered] = []

    def work(place: Place, name: str) -> None:
        waited = False

        def decide(new: Memory, conflicts: Sequence[Conflict]) -> Resolution:
            nonlocal waited
            if not waited:
                waited = True
                both.wait()
            return "supersede"

        options: dict[str, Any] = {} if isinstance(place, Step) else {"sources": ["u1"]}
        said.append(place.remember_checked(f"Lives in {name}", key="home", resolve=decide, **options))

    def run(place: Place) -> None:
        threads = [threading.Thread(target=work, args=(place, name)) for name in ("Oslo", "Nice")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    if in_step:
        with session.step() as step:
            run(step)
    else:
        run(session)

    first, second = sorted(said, key=lambda one: one.memory.supersedes != (old.id,))
    assert first.memory.supersedes == (old.id,)
    assert second.memory.supersedes == (first.memory.id,)
    assert session.view().current("home") == second.memory


def test_processes_that_decide_at_one_time_leave_one_memory(path: Path) -> None:
    with bm.open(path) as store:
        store.session("chat").say("user", "hello", id="u1")

    readers = []
    for name in range(PROCESSES):
        reading, writing = os.pipe()
        if os.fork() == 0:
            done: list[Any] = []
            try:
                with bm.open(path) as store:
                    session = store.session("chat")
                    for number in range(EACH):
                        text = f"Lives in {name}.{number}"
                        with suppress(Undecided):
                            said = session.remember_checked(text, sources=["u1"], key="home", resolve="supersede")
                            done.append([said.memory.id, list(said.memory.supersedes)])
            except BaseException as error:
                done = [repr(error)]
            os.write(writing, json.dumps(done).encode())
            os._exit(0)
        os.close(writing)
        readers.append(reading)
    written: dict[str, list[str]] = {}
    for reading in readers:
        with open(reading, encoding="utf-8") as answer:
            written.update(json.load(answer))
        os.wait()

    with bm.open(path) as store:
        session = store.session("chat")
        last = session.view().current("home")
        assert isinstance(last, Memory)
        assert len(session.view()) == 1
        chain, above = [last.id], written[last.id]
        while above:
            (before,) = above
            chain.append(before)
            above = written[before]
        assert sorted(chain) == sorted(written)


# Elsewhere.


def test_a_loop_does_not_wait_for_it(session: Session) -> None:
    session.remember("Lives in Rome", sources=["u1"], key="home")

    async def work() -> Remembered:
        async with session.step():
            return await session.aremember_checked("Lives in Oslo", key="home", resolve="supersede")

    assert asyncio.run(work()).done == "superseded"
    assert shown(session) == {"Lives in Oslo"}


def test_what_is_about_the_user_is_replaced_in_the_profile(shop: Repository) -> None:
    with bm.open_temporary() as store:
        session = Worktree(store, shop.folder, global_kinds=["profile"]).session()
        old = session.remember_checked("Likes tabs", kind="profile", key="indent").memory

        said = session.remember_checked("Likes spaces", kind="profile", key="indent", resolve="supersede")
        with session.step() as step:
            again = step.remember_checked("Likes two spaces", kind="profile", key="indent", resolve="supersede")

        assert kept(said) == [(old.id, "key", "superseded")]
        assert kept(again) == [(said.memory.id, "key", "superseded")]
        assert [memory.text for memory in store.at_ref(PROFILE).memories()] == ["Likes two spaces"]
        assert session.remember_checked("Likes two spaces", kind="profile", key="indent").done == "known"


def test_the_answer_can_be_printed_and_written_as_json(session: Session) -> None:
    old = session.remember("Lives in Rome @0", sources=["u1"], key="home")

    said = session.remember_checked(
        "Lives in Oslo @60", sources=["u1"], key="home", resolve="supersede", embedder=COMPASS
    )

    new = said.memory
    assert str(said) == f"{new.id} superseded; {old.id} (by key, cosine 0.50): superseded"
    assert json.loads(json.dumps(said.to_dict())) == {
        "memory": new.to_dict(),
        "conflicts": [
            {"memory": old.to_dict(), "by": "key", "similarity": pytest.approx(0.5), "done": "superseded"},
        ],
        "done": "superseded",
        "note": None,
    }
