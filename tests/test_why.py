"""Who said something, what remembers it, and which answers were written with that: of the whole log, with verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from unicodedata import normalize

import branchmem as bm
import pytest
from branchmem import Memory, Message, Reason
from branchmem.errors import AmbiguousAnchor, AmbiguousName, InvalidSearch, UnknownRef
from branchmem.events import Erasure, Event, Retraction
from branchmem.recall.rendering import line
from branchmem.session import Session

DAY = datetime(2026, 3, 1, 9, tzinfo=UTC)

#: The conversation of the README, and an answer on each branch.
MOVING: list[Event] = [
    Message("chat", None, role="thread"),
    Message("u1", "chat", role="user", text="I'm moving to Chengdu", created=DAY),
    Memory("home", "The user is moving to Chengdu", sources=["u1"], created=DAY),
    Message("a1", "u1", role="assistant", text="Take the night train.", meta={"recalled": ["home"]}),
    Message("u1-edit", "chat", role="user", text="I'm moving to Hangzhou"),
    Memory("home-edit", "The user is moving to Hangzhou", sources=["u1-edit"]),
    Message("a1-edit", "u1-edit", role="assistant", text="See the lake.", meta={"recalled": ["home-edit"]}),
]


@pytest.fixture
def moving() -> Iterator[bm.Store]:
    with bm.open_temporary() as store:
        store.append(MOVING)
        store.refs.create("main", "a1")
        store.refs.create("edited", "a1-edit")
        yield store


# The story


def test_a_text_is_followed_from_the_message_to_the_answer(moving: bm.Store) -> None:
    why = moving.why("Chengdu", at="main")

    assert [(memory.id, verdict.visible) for memory, verdict in why.memories] == [("home", True)]
    assert [message.id for message in why.messages] == ["u1"]
    assert [(answer.message.id, answer.memories, answer.on_path) for answer in why.answers] == [("a1", ("home",), True)]
    assert why.anchors == ("a1",)


def test_on_the_other_branch_the_memory_is_found_with_what_hides_it(moving: bm.Store) -> None:
    why = moving.why("Chengdu", at="edited")

    ((memory, verdict),) = why.memories
    assert (memory.id, verdict.visible, verdict.reasons) == ("home", False, Reason.SIBLING)
    assert str(verdict) == "source u1 is on a sibling branch that parts from the path at chat"
    assert why.messages == ()
    assert [(answer.message.id, answer.on_path) for answer in why.answers] == [("a1", False)]


def test_it_reads_well(moving: bm.Store) -> None:
    assert str(moving.why("Chengdu", at="main")) == (
        "“Chengdu” at a1: 1 memory (1 visible here), 1 message on the path, 1 answer written with such a memory\n"
        "Memories that say so:\n"
        "- 2026-03-01: The user is moving to Chengdu\n"
        "  home is visible here: every source lies on the path of the anchor\n"
        "Messages on the path that say so:\n"
        "- 2026-03-01: user: I'm moving to Chengdu\n"
        "  u1\n"
        "Answers that were written with such a memory:\n"
        "- assistant: Take the night train.\n"
        "  a1, with home, on the path"
    )
    assert str(moving.why("Paris", at="main")) == "“Paris” at a1: nothing says so"
    assert str(moving.why("Paris")) == "“Paris”: nothing says so"


def test_its_form_is_ready_for_json(moving: bm.Store) -> None:
    form = json.loads(json.dumps(moving.why("moving", at=["edited"]).to_dict()))

    assert (form["text"], form["anchors"]) == ("moving", ["a1-edit"])
    assert [(each["memory"]["id"], each["visible"], each["reasons"]) for each in form["memories"]] == [
        ("home-edit", True, []),
        ("home", False, ["SIBLING"]),
    ]
    assert form["memories"][1]["culprits"] == {"SIBLING": ["u1"]}
    assert [message["id"] for message in form["messages"]] == ["u1-edit"]
    assert form["answers"] == [
        {"message": MOVING[6].to_dict(), "memories": ["home-edit"], "on_path": True},
        {"message": MOVING[3].to_dict(), "memories": ["home"], "on_path": False},
    ]


def test_a_sessions_receipts_are_found(session: Session) -> None:
    memory = session.remember("likes dinner at the harbour", sources=["u1"])
    with session.step() as step:
        step.recalled = [memory]
        step.write("Try the pier.")
    session.say("user", "And tomorrow?")

    why = session.store.why("HARBOUR", at="chat")

    assert [(answer.message.id, answer.on_path) for answer in why.answers] == [(step.id, True)]
    assert [message.id for message in session.store.why("dinner", at="chat").messages] == ["u1"]


def test_an_answer_that_was_cut_short_says_so(session: Session) -> None:
    memory = session.remember("likes dinner at the harbour", sources=["u1"])
    with session.step(on_cancel="keep") as step:
        step.recalled = [memory]
        step.write("Try the")
        step.cancel()

    assert str(session.store.why("harbour", at="chat")).endswith(
        f"{step.id}, with {memory.id}, off the path, cut short"
    )


# Where


def test_a_place_is_a_ref_a_message_or_several_of_them(moving: bm.Store) -> None:
    moving.append([Message("other", None), Message("o1", "other", text="Chengdu again")])

    by_message = moving.why("Chengdu", at="a1")
    assert by_message == moving.why("Chengdu", at="main") == moving.why("Chengdu", at=["a1", "main"])
    both = moving.why("Chengdu", at=["o1", "main"])
    assert (both.anchors, [message.id for message in both.messages]) == (("o1", "a1"), ["o1", "u1"])


def test_without_a_place_there_is_no_path(moving: bm.Store) -> None:
    why = moving.why("Chengdu")

    assert (why.anchors, why.messages) == ((), ())
    assert [verdict.reasons & Reason.NO_ANCHOR for _, verdict in why.memories] == [Reason.NO_ANCHOR]
    assert [(answer.message.id, answer.on_path) for answer in why.answers] == [("a1", False)]
    assert "path" not in str(why)


def test_a_place_that_is_none_is_refused(moving: bm.Store) -> None:
    moving.refs.create("u1", "a1-edit")

    with pytest.raises(UnknownRef, match="nowhere"):
        moving.why("Chengdu", at="nowhere")
    with pytest.raises(UnknownRef, match="home"):
        moving.why("Chengdu", at="home")
    with pytest.raises(AmbiguousName):
        moving.why("Chengdu", at="u1")
    with pytest.raises(AmbiguousAnchor):
        moving.why("Chengdu", at=["main", "edited"])


@pytest.mark.parametrize("text", ["", "  \n", "\u3000"])
def test_what_every_text_contains_is_not_asked_for(moving: bm.Store, text: str) -> None:
    with pytest.raises(InvalidSearch, match="ask for a word"):
        moving.why(text)


def test_below_a_missing_message_the_path_begins_there(moving: bm.Store) -> None:
    moving.append([Message("lost", "nowhere", text="Chengdu was nice"), Message("below", "lost")])

    why = moving.why("Chengdu", at="below")

    assert [message.id for message in why.messages] == ["lost"]
    assert [bool(verdict.reasons & Reason.DETACHED_ANCHOR) for _, verdict in why.memories] == [True]


# What contains it


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Moving to ＣＨＥＮＧＤＵ", "chengdu"),
        ("moving to chengdu", "ＣＨＥＮＧＤＵ"),
        ("In der Hauptstraße", "HAUPTSTRASSE"),
        ("HAUPTSTRASSE", "Hauptstraße"),
        ("Cafe\u0301 de Flore", "CAFÉ"),
        ("Café de Flore", "cafe\u0301"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("ﬁne weather", "FINE"),
        ("At the ℌarbour", "harbour"),
        ("ｶﾞﾗｽ", "ガラス"),
        ("\u1e9e\u0345", "\u1e9e\u0345"),
    ],
)
def test_case_width_and_composition_do_not_matter(text: str, asked: str) -> None:
    with bm.open_temporary() as store:
        store.append([Message("u", None, text=text), Memory("m", text, sources=["u"])])
        why = store.why(asked, at="u")

    assert ([memory.id for memory, _ in why.memories], [message.id for message in why.messages]) == (["m"], ["u"])


def test_an_accent_is_no_plain_letter() -> None:
    with bm.open_temporary() as store:
        store.append([Message("u", None, text="Cafe\u0301")])

        assert store.why("cafe", at="u").messages == ()


def test_every_memory_is_found_whatever_hides_it() -> None:
    events: list[Event] = [
        Message("root", None),
        Message("u", "root"),
        Message("later", "u"),
        Message("side", "root"),
        Memory("shown", "about tea", sources=["u"]),
        Memory("future", "about tea", sources=["later"]),
        Memory("sibling", "about tea", sources=["side"]),
        Memory("none", "about tea"),
        Memory("missing", "about tea", sources=["absent"]),
        Memory("back", "about tea", sources=["u"]),
        Memory("old", "about tea", sources=["u"]),
        Memory("new", "about coffee", sources=["u"], supersedes=["old"]),
        Memory("upstream", "about tea", derived_from=["absent"]),
        Retraction("r", "u", scope="branch", memories=["back"]),
    ]
    with bm.open_temporary() as store:
        store.append(events)
        why = store.why("tea", at="u")
        explained = {memory.id: store.at("u").explain(memory.id) for memory, _ in why.memories}

    found = {memory.id: verdict for memory, verdict in why.memories}
    assert found == explained
    assert {id: verdict.reasons for id, verdict in found.items()} == {
        "shown": Reason(0),
        "future": Reason.FUTURE,
        "sibling": Reason.SIBLING,
        "none": Reason.NO_SOURCES,
        "missing": Reason.MISSING_SOURCE,
        "back": Reason.RETRACTED,
        "old": Reason.SUPERSEDED,
        "upstream": Reason.MISSING_UPSTREAM | Reason.NO_SOURCES,
    }
    assert why.memories[0].memory.id == "shown"


@pytest.mark.parametrize("cascade", [True, False])
def test_erased_content_is_not_found(moving: bm.Store, cascade: bool) -> None:
    moving.append([Erasure("gone", ["u1"], cascade=cascade)])

    why = moving.why("Chengdu", at="main")

    assert why.messages == ()
    assert [memory.id for memory, _ in why.memories] == ([] if cascade else ["home"])
    assert [answer.message.id for answer in why.answers] == ([] if cascade else ["a1"])


def test_an_erased_answer_has_no_receipt(moving: bm.Store) -> None:
    moving.append([Erasure("gone", ["a1"])])

    assert moving.why("Chengdu", at="main").answers == ()


@pytest.mark.parametrize("receipt", ["home", 7, None, {"home": 1}, [7, ["home"], {"id": "home"}], ["absent"], []])
def test_a_receipt_of_another_form_names_nothing(moving: bm.Store, receipt: object) -> None:
    moving.append([Message("a2", "a1", meta={"recalled": receipt})])

    assert [answer.message.id for answer in moving.why("Chengdu", at="a2").answers] == ["a1"]


# How it answers


@pytest.mark.parametrize("seed", range(5))
def test_replicas_answer_alike(seed: int) -> None:
    events = [*MOVING, *(Memory(f"m{number}", "Chengdu", sources=["u1"]) for number in range(9))]
    events += [Message(f"a{number}", "u1", meta={"recalled": ["home", f"m{number}"]}) for number in range(5, 9)]
    random = Random(seed)
    texts = set()
    for _ in range(3):
        random.shuffle(events)
        with bm.open_temporary() as store:
            store.append(events)
            texts.add(str(store.why("chengdu", at="a7")))

    assert len(texts) == 1, seed


def test_a_long_text_is_shown_where_it_says_so() -> None:
    with bm.open_temporary() as store:
        store.append([Message("u", None, text="x " * 9000 + "in Chengdu\n\x1b[2J" + "y " * 9000)])
        said = str(store.why("chengdu", at="u")).split("\n")[2]

    assert "in Chengdu \ufffd[2J" in said
    assert said.startswith("- …")
    assert len(said) < 120


@pytest.mark.parametrize(
    "before", [normalize("NFD", "한국어 ") * 60, "ﬃ" * 200], ids=["shorter folded", "longer folded"]
)
def test_a_long_text_is_shown_where_it_says_so_whatever_folding_makes_of_it(before: str) -> None:
    with bm.open_temporary() as store:
        store.append([Message("u", None, text=f"{before} Chengdu {'and ' * 100}")])
        said = str(store.why("chengdu", at="u")).split("\n")[2]

    assert "Chengdu" in said
    assert len(said) < 120


@pytest.mark.parametrize(
    ("around", "shown"),
    [
        (0, "abcd…"),
        (2, "abcd…"),
        (3, "…bcde…"),
        (5, "…defg…"),
        (7, "…fghi…"),
        (8, "…ghij"),
        (9, "…ghij"),
        (99, "…ghij"),
    ],
)
def test_of_a_long_line_is_shown_what_stands_around_a_place(around: int, shown: str) -> None:
    assert line("abcdefghij", 4, around) == shown
    assert line("abcd", 4, around) == "abcd"


def test_it_counts_no_verdict_and_writes_nothing(path: Path) -> None:
    with bm.open(path) as store:
        store.append(MOVING)
    with bm.open(path, readonly=True) as store:
        before = store.counters()
        assert len(store.why("moving", at="a1").memories) == 2

        assert store.counters() == before
