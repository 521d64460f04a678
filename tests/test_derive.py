"""Notes without a model: windows along each branch, shared where branches share them, the same every time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from branchmem.derive import derive, leading_sentence
from branchmem.events import LEGACY, Memory, Message
from figures import Figure


class Forest:
    """Messages that are all attached, with what `derive` reads of a store."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self.messages = {message.id: message for message in messages}
        self.below: dict[object, list[str]] = {}
        for message in self.messages.values():
            parent = None if message.parent is LEGACY else message.parent
            self.below.setdefault(parent, []).append(message.id)
        self.log = SimpleNamespace(get=self.messages.__getitem__)
        self.tree = SimpleNamespace(roots=lambda: self.below.get(None, []), children=lambda id: self.below.get(id, []))


def said(id: str, parent: str | None, text: str | None = None) -> Message:
    return Message(id, parent, role="user", text=f"{id} says so. And more." if text is None else text)


def chain(*ids: str, below: str | None = None) -> list[Message]:
    return [said(id, above) for above, id in zip([below, *ids], ids, strict=False)]


def sources(notes: Iterable[Memory]) -> list[tuple[str, ...]]:
    return sorted(note.sources for note in notes)


def test_every_nth_message_of_a_branch_gives_a_note_of_the_n_up_to_it() -> None:
    notes = list(derive(Forest(chain("a", "b", "c", "d", "e")), every=2))

    assert [note.sources for note in notes] == [("a", "b"), ("c", "d")]
    assert notes[0].text == "a says so.\nb says so."
    assert {note.kind for note in notes} == {"summary"}


def test_branches_share_the_windows_of_their_common_path_and_have_the_rest_for_themselves() -> None:
    forest = Forest([*chain("a", "b", "c"), *chain("d1", "e1", below="c"), *chain("d2", "e2", below="c")])

    assert sources(derive(forest, every=2)) == [("a", "b"), ("c", "d1"), ("c", "d2")]
    assert sources(derive(forest, every=4)) == [("a", "b", "c", "d1"), ("a", "b", "c", "d2")]
    assert sources(derive(forest, every=3)) == [("a", "b", "c")]


def test_messages_without_text_hold_no_place_in_a_window() -> None:
    forest = Forest(
        [
            Message("root", None, role="thread"),
            said("a", "root"),
            said("blank", "a", " \n\t"),
            said("empty", "blank", ""),
            said("b", "empty"),
        ]
    )

    assert sources(derive(forest, every=2)) == [("a", "b")]


def test_every_tree_counts_for_itself_and_a_legacy_one_too() -> None:
    forest = Forest([*chain("a", "b"), Message("x", LEGACY, text="X."), said("y", "x")])

    assert sources(derive(forest, every=2)) == [("a", "b"), ("x", "y")]


def test_the_same_messages_give_the_same_notes_and_more_messages_only_more() -> None:
    some = list(derive(Forest(chain("a", "b", "c")), every=2))
    more = list(derive(Forest(chain("a", "b", "c", "d")), every=2))

    assert some == list(derive(Forest(reversed(chain("a", "b", "c"))), every=2))
    assert more[: len(some)] == some
    hashed = hashlib.sha256(b'["leading sentences", 2, ["a", "b"]]').hexdigest()
    assert [note.id for note in some] == [f"note:{hashed[:32]}"]


def test_the_id_depends_on_n_and_the_sources_and_on_nothing_else() -> None:
    def ids(every: int, *messages: Message) -> set[str]:
        return {note.id for note in derive(Forest(messages), every=every)}

    stamped = Message("a", None, text="Otherwise.", created=datetime(2026, 1, 1, tzinfo=UTC))
    assert ids(1, said("a", None)) == ids(1, stamped)
    assert len(ids(1, *chain("a", "b")) | ids(2, *chain("a", "b"))) == 3


@pytest.mark.parametrize("every", [0, -1, 1001])
def test_a_window_holds_from_1_to_1000_messages(every: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 1000"):
        derive(Forest([]), every=every)


def test_the_longest_note_is_within_the_limits() -> None:
    forest = Forest(said(f"m{i}", f"m{i - 1}" if i else None, "𒀀" * 500) for i in range(1000))

    (note,) = derive(forest, every=1000)

    assert len(note.sources) == 1000


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("I'm moving. Soon.", "I'm moving."),
        ("Really?! Yes.", "Really?!"),
        ('He said "go." Then left.', 'He said "go."'),
        ("Version 3.5 is out. Get it.", "Version 3.5 is out."),
        ("1. Stir the pot. 2. Wait.", "1. Stir the pot."),
        ("no end at all", "no end at all"),
        ("\n\n  # Heading\nText.", "# Heading"),
        ("我要搬到成都。下周就走。", "我要搬到成都。"),
        ("「行くよ。」と言った。", "「行くよ。」"),
        ("本当？はい。", "本当？"),
        ("…", "…"),
        (" \n\t", ""),
        ("", ""),
        ("x" * 241, "x" * 239 + "…"),
        ("word " * 100, ("word " * 47).strip() + "…"),
    ],
)
def test_the_leading_sentence(text: str, sentence: str) -> None:
    assert leading_sentence(text) == sentence


def test_a_note_is_visible_where_all_its_messages_are(store: Any) -> None:
    store.append([*chain("a", "b"), *chain("c1", "d1", below="b"), *chain("c2", "d2", below="b")])

    store.append(derive(store, every=2))

    shared, one, two = (note for note in derive(store, every=2))
    assert (one.sources, two.sources) == (("c1", "d1"), ("c2", "d2"))
    assert set(store.at("d1")) == {shared.id, one.id}
    assert set(store.at("d2")) == {shared.id, two.id}
    assert set(store.at("c1")) == {shared.id}
    assert store.append(derive(store, every=2)).added == 0


@pytest.mark.soak
@pytest.mark.parametrize("shape", ["chain", "fan"])
def test_no_shape_of_a_long_conversation_takes_more_than_seconds(shape: str, figure: Figure) -> None:
    n = figure(20_000, 100_000)
    deepest = {"chain": n, "fan": 2}[shape]
    forest = Forest(said(f"m{i}", f"m{min(i - 1, deepest)}" if i else None) for i in range(n))

    notes = list(derive(forest, every=4))

    # The fan has 4 messages on each branch, 3 of them shared: one note a leaf.
    assert len(notes) == {"chain": n // 4, "fan": n - 3}[shape]
    assert {len(note.sources) for note in notes} == {4}
