"""Remembering with a look at what is there: what is found to be in conflict, and what is known already."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import branchmem as bm
import pytest
from branchmem import Memory
from branchmem.errors import (
    EventConflict,
)
from branchmem.recall import access
from branchmem.recall.conflicts import Resolution
from branchmem.session import Session
from deciding import COMPASS, PLACES, Compass, kept, shown, supersede

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


# What is found, and what becomes of it.


@PLACES
def test_where_nothing_is_in_conflict_it_is_remembered(session: Session, place: Any) -> None:
    with place(session) as remember:
        said = remember("Lives in Rome", key="home", importance=0.5, meta={"n": 1}, created=NOON)

    assert (said.done, said.conflicts) == ("added", ())
    assert session.view()[said.memory.id] == said.memory
    assert (said.memory.key, said.memory.importance, said.memory.meta, said.memory.created) == (
        "home",
        0.5,
        {"n": 1},
        NOON,
    )


OLD: dict[str, tuple[str, dict[str, Any]]] = {
    "key": ("Lives in Rome @0", {"key": "home"}),
    "text": ("Lives in Oslo @80", {"key": "town"}),
    "similarity": ("Lives in Bergen @70", {}),
}


@PLACES
@pytest.mark.parametrize("by", OLD)
@pytest.mark.parametrize("asks", [False, True], ids=["word", "callable"])
@pytest.mark.parametrize("word", get_args(Resolution))
def test_every_resolution_of_every_conflict(
    session: Session, place: Any, by: str, asks: bool, word: Resolution
) -> None:
    text, fields = OLD[by]
    new = "Lives in Oslo @80"
    old = session.remember(text, sources=["u1"], **fields)
    decides = asks or by != "similarity"

    with place(session) as remember:
        resolve = (lambda new, conflicts: word) if asks else word
        said = remember(new, key="home", resolve=resolve, embedder=COMPASS)

    after = {memory.id for memory in session.view().memories()}
    done = {"supersede": "superseded", "keep_both": "kept", "keep_existing": "kept_existing"}[word]
    assert kept(said) == [(old.id, by, done if decides else "kept")]
    if word == "keep_existing" and decides:
        assert (said.done, said.memory, after) == ("kept_existing", old, {old.id})
    elif word == "supersede" and decides:
        assert (said.done, said.memory.supersedes, after) == ("superseded", (old.id,), {said.memory.id})
    else:
        assert (said.done, said.memory.supersedes) == ("kept_both", ())
        assert after == {old.id, said.memory.id}


@PLACES
def test_similarity_proposes_and_never_decides(session: Session, place: Any) -> None:
    near = session.remember("Drinks tea @10", sources=["u1"], key="drink")
    nearer = session.remember("Drinks green tea @20", sources=["u1"])
    session.remember("Plays chess @80", sources=["u1"])

    with place(session) as remember:
        said = remember("Drinks black tea @30", resolve="supersede", embedder=COMPASS)

    assert kept(said) == [(nearer.id, "similarity", "kept"), (near.id, "similarity", "kept")]
    assert [conflict.similarity for conflict in said.conflicts] == pytest.approx(
        [math.cos(math.radians(10)), math.cos(math.radians(20))], abs=1e-6
    )
    assert len(shown(session)) == 4


@PLACES
def test_what_has_the_key_is_compared_too_however_unlike_it_is(session: Session, place: Any) -> None:
    old = session.remember("Lives in Rome @0", sources=["u1"], key="home")

    with place(session) as remember:
        said = remember("Lives in Oslo @60", key="home", resolve="supersede", embedder=COMPASS)

    (conflict,) = said.conflicts
    assert (conflict.memory, conflict.by) == (old, "key")
    assert conflict.similarity == pytest.approx(0.5, abs=1e-6)


def test_only_the_new_text_is_embedded_once_the_others_were(session: Session) -> None:
    compass = Compass()
    texts = [f"Lives in {n} @{n}" for n in range(90)]
    session.store.append([Memory(f"m{n}", text, sources=["u1"], key="home") for n, text in enumerate(texts)])
    session.store.embed_with(compass)
    session.store.embed_all()
    compass.texts.clear()

    said = session.remember_checked("Lives elsewhere @90", sources=["u1"], key="home")

    assert compass.texts == ["Lives elsewhere @90"]
    similarity = {one.memory.text: one.similarity for one in said.conflicts}
    assert similarity == {text: pytest.approx(math.sin(math.radians(n)), abs=1e-6) for n, text in enumerate(texts)}


@pytest.mark.parametrize(("threshold", "found"), [(0.98, 1), (0.9, 2), (-1, 3)])
def test_the_threshold_says_what_is_similar(session: Session, threshold: float, found: int) -> None:
    for degrees in (10, 20, 170):
        session.remember(f"fact @{degrees}", sources=["u1"])

    said = session.remember_checked("a fact @0", sources=["u1"], threshold=threshold, embedder=COMPASS)

    assert len(said.conflicts) == found


def test_all_that_is_similar_is_found(session: Session) -> None:
    session.store.append([Memory(f"m{n}", f"fact {n} @{n}", sources=["u1"]) for n in range(40)])

    said = session.remember_checked("a fact @0", sources=["u1"], embedder=COMPASS)

    assert [conflict.memory.text for conflict in said.conflicts] == [f"fact {n} @{n}" for n in range(37)]


def test_the_embedder_of_the_store_is_used_and_its_lack_is_said(session: Session) -> None:
    session.remember("Drinks tea @10", sources=["u1"])

    said = session.remember_checked("Drinks green tea @20", sources=["u1"])
    assert (said.done, said.note) == ("added", "by key and text only: no embedder")

    session.store.embed_with(COMPASS)
    said = session.remember_checked("Drinks black tea @30", sources=["u1"])
    assert (said.done, said.note, len(said.conflicts)) == ("kept_both", None, 2)


def test_conflicts_come_by_key_then_by_text_then_by_similarity(session: Session) -> None:
    alike = session.remember("Lives in Bergen @70", sources=["u1"])
    equal = session.remember("Lives in Oslo @80", sources=["u1"], key="town")
    session.say("user", "I moved", id="u2")
    later = session.remember("Lives in Nice @0", sources=["u2"], key="home")
    first = session.remember("Lives in Rome @0", sources=["u1"], key="home")

    said = session.remember_checked("Lives in Oslo @80", key="home", sources=["u2"], embedder=COMPASS)

    assert [conflict.memory for conflict in said.conflicts] == [first, later, equal, alike]
    assert [conflict.by for conflict in said.conflicts] == ["key", "key", "text", "similarity"]


@pytest.mark.parametrize("text", ["", "👍", "?!", "成都", "成", "fish", "fish fish fish", "a" * 5000])
def test_equal_texts_are_found_whatever_they_say(session: Session, text: str) -> None:
    session.store.append([Memory(f"m{n}", f"{text} fish 成都 {n}", sources=["u1"]) for n in range(40)])
    one = session.remember(text, sources=["u1"], key="one")
    two = session.remember(text, sources=["u1"], key="two", kind="guess")

    said = session.remember_checked(text, sources=["u1"], kind="other")

    assert sorted(kept(said)) == sorted([(one.id, "text", "kept"), (two.id, "text", "kept")])


def test_only_what_is_in_conflict_is_read(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    store, read = session.store, list[str]()
    store.append([Memory(f"m{n}", f"Lives in Rome since {n}", sources=["u1"]) for n in range(200)])
    store.append([Memory("same", "Lives in Rome", sources=["u1"]), Memory("key", "Rome", sources=["u1"], key="home")])
    memories = store._memories

    def noting(ids: list[str], view: bm.View) -> list[Memory]:
        read.extend(ids)
        return memories(ids, view)

    monkeypatch.setattr(store, "_memories", noting)

    said = session.remember_checked("Lives in Rome", sources=["u1"], key="home", kind="guess")

    assert len(said.conflicts) == 2
    assert set(read) == {"same", "key"}


def test_what_has_faded_is_in_conflict_all_the_same(session: Session) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home", created=NOON - timedelta(days=9999))

    said = session.remember_checked("Lives in Oslo", sources=["u1"], key="home", resolve="supersede")

    assert kept(said) == [(old.id, "key", "superseded")]


def test_an_own_memory_of_the_step_is_replaced_like_any(session: Session) -> None:
    with session.step() as step:
        first = step.remember_checked("Lives in Rome", key="home").memory
        said = step.remember_checked("Lives in Oslo", key="home", resolve="supersede")
        assert kept(said) == [(first.id, "key", "superseded")]
        assert shown(step) == {"Lives in Oslo"}

    assert shown(session) == {"Lives in Oslo"}


def test_own_memories_of_a_step_are_compared_by_text_and_meaning(session: Session) -> None:
    with session.step() as step:
        near = step.remember("Drinks tea @10")
        equal = step.remember("Drinks tea @20", key="drink")

        said = step.remember_checked("Drinks tea @20", kind="guess", embedder=COMPASS)

    assert kept(said) == [(equal.id, "text", "kept"), (near.id, "similarity", "kept")]


def test_a_session_in_its_step_remembers_there(session: Session) -> None:
    with session.step() as step:
        step.remember("Lives in Rome", key="home")
        said = session.remember_checked("Lives in Oslo", key="home", resolve="supersede")

        assert said.memory in step.memories
        assert said.memory.sources == (step.id,)
        assert [conflict.done for conflict in said.conflicts] == ["superseded"]


def test_the_profile_beside_is_looked_at_too(session: Session) -> None:
    profile = session.store.session("profile")
    note = profile.say("user", "I live in Rome")
    old = profile.remember("Lives in Rome", sources=[note], key="home")
    beside = session.store.session("chat", beside=["profile"])

    assert session.remember_checked("Lives in Nice", sources=["u1"], key="home").done == "added"
    said = beside.remember_checked("Lives in Oslo", sources=["u1"], key="home", resolve="supersede")

    assert old.id in [conflict.memory.id for conflict in said.conflicts]
    assert shown(beside) == {"Lives in Oslo"}
    assert shown(profile) == {"Lives in Rome"}


# What is known.


@PLACES
def test_what_is_known_is_not_written_again(session: Session, place: Any) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home")
    rival = session.remember("Lives in Oslo", sources=["u1"], key="home")
    session.say("user", "Still in Rome", id="u2")
    before = session.store.seq

    with place(session) as remember:
        said = remember("Lives in Rome", key="home", resolve="supersede")

    assert (said.memory, said.done, kept(said)) == (old, "known", [(rival.id, "key", "kept")])
    assert session.store.seq == before + 1  # the message


@pytest.mark.parametrize("fields", [{"kind": "guess"}, {"key": "town"}, {"key": None}], ids=repr)
def test_another_kind_or_key_is_another_memory(session: Session, fields: dict[str, Any]) -> None:
    session.remember("Lives in Rome", sources=["u1"], key="home")
    session.say("user", "I live in Rome", id="u2")

    said = session.remember_checked("Lives in Rome", sources=["u2"], **{"key": "home", **fields})

    assert said.done == "kept_both"


def test_what_is_to_replace_something_is_known_only_where_it_does(session: Session) -> None:
    other = session.remember("Lives somewhere", sources=["u1"])
    session.remember("Lives in Rome", sources=["u1"], key="home")
    session.say("user", "In Rome, not somewhere", id="u2")

    for done in ("kept_both", "known"):
        said = session.remember_checked("Lives in Rome", sources=["u2"], key="home", supersedes=[other])

        assert said.done == done
        assert said.memory.supersedes == (other.id,)


def test_an_old_message_that_is_read_again_overturns_nothing(session: Session) -> None:
    old = session.remember_checked("Lives in Rome", sources=["u1"], key="home", resolve="supersede").memory
    session.say("user", "I moved to Oslo", id="u2")
    new = session.remember_checked("Lives in Oslo", sources=["u2"], key="home", resolve="supersede").memory

    again = session.remember_checked("Lives in Rome", sources=["u1"], key="home", resolve="supersede")

    assert (again.memory, again.done, kept(again)) == (old, "known", [(new.id, "key", "kept")])
    assert shown(session) == {"Lives in Oslo"}


def test_the_first_that_is_about_something_else_is_a_conflict_of_events(session: Session) -> None:
    session.remember("Lives in Rome", sources=["u1"], key="home")
    session.store.retract(keys=["home"], at="u1", scope="branch")

    with pytest.raises(EventConflict):
        session.remember_checked("Lives in Rome", sources=["u1"], key="town")


def test_what_is_restated_counts_as_used(session: Session) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home", created=NOON - timedelta(days=99))
    rival = session.remember("Lives in Oslo", sources=["u1"], key="town", created=NOON - timedelta(days=99))

    session.remember_checked("Lives in Rome", sources=["u1"], key="home", created=NOON)
    assert session.view().search("lives", now=NOON).ids == [old.id]

    session.remember_checked("Lives in Bergen", sources=["u1"], key="town", created=NOON, resolve="keep_existing")
    assert set(session.view().search("lives", now=NOON).ids) == {old.id, rival.id}


def test_what_is_restated_in_a_step_counts_as_used_where_that_ends_well(session: Session) -> None:
    old = session.remember("Lives in Rome", sources=["u1"], key="home", created=NOON - timedelta(days=99))

    with suppress(ZeroDivisionError), session.step(created=NOON) as step:
        assert step.remember_checked("Lives in Rome", key="home").done == "known"
        raise ZeroDivisionError
    assert access.last_used(session.store, [old.id]) == {}

    with session.step(created=NOON) as step:
        step.remember_checked("Lives in Rome", key="home")
    assert access.last_used(session.store, [old.id]) == {old.id: NOON}


# Hidden memories.


@PLACES
def test_what_is_hidden_here_is_no_candidate(session: Session, place: Any) -> None:
    store = session.store
    session.say("user", "I live in Oslo", id="u2")
    session.remember("Lives in Oslo @80", sources=["u2"], key="home")
    session.edit("u2", "I live in Rome", id="u3")
    taken_back = session.remember("Lives in Oslo @80", sources=["u3"], key="home")
    store.retract([taken_back.id], at="u3", scope="branch")
    replaced = session.remember("Lives in Oslo @81", sources=["u3"], key="home")
    newer = session.remember("Plays chess @0", sources=["u3"], supersedes=[replaced])

    with place(session) as remember:
        said = remember("Lives in Oslo @80", sources=["u1"], key="home", resolve="supersede", embedder=COMPASS)

    assert (said.done, said.conflicts) == ("added", ())
    assert shown(session) == {said.memory.text, newer.text}


@pytest.mark.parametrize("asks", [False, True], ids=["word", "callable"])
def test_hidden_memories_change_nothing_that_is_found(asks: bool) -> None:
    def said(hidden: int) -> list[tuple[str, str, float | None, str | None]]:
        with bm.open_temporary() as store:
            session = store.session("chat")
            session.say("user", "hello", id="u1")
            session.remember("Lives in Rome @10", sources=["u1"], key="home")
            session.remember("Lives in Oslo @30", sources=["u1"])
            session.say("user", "one", id="u2")
            keys = [None, "home", "town"]
            texts = [f"Lives in Oslo @{number}" for number in range(hidden)]
            store.append([Memory(f"m{n}", text, sources=["u2"], key=keys[n % 3]) for n, text in enumerate(texts)])
            session.edit("u2", "two", id="u3")
            new = session.remember_checked(
                "Lives in Oslo @30",
                sources=["u3"],
                key="home",
                resolve=supersede if asks else "supersede",
                embedder=COMPASS,
            )
            return [(one.memory.text, one.by, one.similarity, one.done) for one in new.conflicts]

    assert said(0) == said(60)
    assert len(said(0)) == 2
