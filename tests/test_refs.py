"""Refs: named anchors.  Moving one writes no event, each move can be undone, and what is visible is the view there."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import branchmem as bm
import pytest
from branchmem.errors import InvalidRef, RefExists, RefMoved, UnknownRef
from branchmem.refs import MAX_REF_BYTES
from logs import in_child

EVENTS = [
    bm.Message("chat", None),
    bm.Message("a", "chat"),
    bm.Message("b", "a"),
    bm.Message("other", "chat"),
    bm.Memory("of-a", "a", sources=["a"]),
    bm.Memory("of-other", "other", sources=["other"]),
    bm.Memory("of-both", "a and other", sources=["other"], derived_from=["of-a"]),
    bm.Memory("on-a", "more of a", derived_from=["of-a"]),
    bm.Memory("of-nothing", "from nowhere"),
    bm.Memory("of-missing", "from what is not here", sources=["a", "gone"]),
    bm.Memory("round", "about itself", sources=["a"], derived_from=["round"]),
    bm.Message("profile", None),
    bm.Memory("of-two", "a and the profile", sources=["a", "profile"]),
    bm.Memory("from-both", "a and other", derived_from=["of-a", "of-other"]),
]


@pytest.fixture
def store(path: Path) -> Iterator[bm.Store]:
    with bm.open(path) as store:
        store.append(EVENTS)
        yield store


def test_a_ref_names_the_message_where_it_was_moved_last(store: bm.Store) -> None:
    digest = store.digest()
    assert store.refs.create("main", "a").after == "a"
    move = store.refs.move("main", "other")

    assert (move.name, move.number, move.before, move.after, move.why) == ("main", 2, "a", "other", "move")
    assert store.refs["main"] == "other"
    assert dict(store.refs.items()) == dict(store.refs) == {"main": "other"}
    assert "main" in store.refs
    assert "side" not in store.refs
    assert store.refs.get("side") is None
    assert (store.seq, store.digest()) == (len(EVENTS), digest)


def test_what_is_visible_at_refs_is_the_view_at_their_messages(store: bm.Store) -> None:
    store.refs.create("main", "b")
    store.refs.create("profile", "profile")

    assert store.at_ref("main").ids() == store.at("b").ids() == ["of-a", "on-a"]
    assert store.at_ref("main", "profile").ids() == store.at(["b", "profile"]).ids() == ["of-a", "on-a", "of-two"]
    store.refs.create("side", "other")
    with pytest.raises(bm.AmbiguousAnchor):
        store.at_ref("main", "side")


def test_refs_outlive_the_process_and_are_shared_by_all(path: Path, store: bm.Store) -> None:
    def move() -> None:
        with bm.open(path) as other:
            other.refs.create("main", "a")

    assert in_child(move) == "None"
    assert store.refs["main"] == "a"
    with bm.open(path, readonly=True) as reader:
        assert reader.refs["main"] == "a"
        with pytest.raises(bm.StoreReadOnly):
            reader.refs.move("main", "b")


def test_any_move_can_be_undone_also_that_a_ref_was_deleted(store: bm.Store) -> None:
    store.refs.create("main", "a")
    store.refs.move("main", "b")
    store.refs.move("main", "other")

    assert store.refs.undo("main", 3).after == "b"
    assert store.refs.undo("main", 2).after == "a"
    assert store.refs.delete("main").after is None
    assert "main" not in store.refs
    assert store.refs.undo("main").after == "a"
    assert store.refs.undo("main", 1).after is None
    assert store.refs.undo("main").after == "a"
    assert [(move.number, move.why, move.after) for move in store.refs.log("main")] == [
        (1, "create", "a"),
        (2, "move", "b"),
        (3, "move", "other"),
        (4, "undo", "b"),
        (5, "undo", "a"),
        (6, "delete", None),
        (7, "undo", "a"),
        (8, "undo", None),
        (9, "undo", "a"),
    ]
    with pytest.raises(UnknownRef, match="there is no ref 'never'"):
        store.refs.undo("never")


def test_the_log_of_one_ref_holds_its_moves_alone(store: bm.Store) -> None:
    for name in ("a", "ab", "a b", "a\u00e9"):
        store.refs.create(name, "a")

    assert [move.name for move in store.refs.log("a")] == ["a"]
    assert sorted(move.name for move in store.refs.log()) == sorted(["a", "ab", "a b", "a\u00e9"])
    assert str(store.refs.log("a")[0]) == "a@1 create: nothing → a"
    assert store.refs.log("a")[0].to_dict()["created"].endswith("+00:00")


def test_a_move_that_expects_another_place_is_refused(store: bm.Store) -> None:
    store.refs.create("main", "a")

    with pytest.raises(RefMoved, match=r"stands at a, no longer at b") as refused:
        store.refs.move("main", "other", expected="b")
    assert (refused.value.name, refused.value.expected, refused.value.found) == ("main", "b", "a")
    with pytest.raises(RefMoved):
        store.refs.delete("main", expected="b")
    assert store.refs["main"] == "a"
    assert store.refs.move("main", "b", expected="a").after == "b"


def test_what_is_not_there_is_refused_and_nothing_is_noted(store: bm.Store) -> None:
    store.refs.create("main", "a")
    with pytest.raises(RefExists, match="'main' is there already, at a"):
        store.refs.create("main", "b")
    with pytest.raises(bm.UnknownEvent, match="no message nowhere"):
        store.refs.create("side", "nowhere")
    with pytest.raises(bm.UnknownEvent, match="no message of-a"):
        store.refs.move("main", "of-a")
    for act in (store.refs.__getitem__, store.refs.delete, store.refs.undo, store.refs.log, store.at_ref):
        with pytest.raises(UnknownRef, match="'side'"):
            act("side")
    with pytest.raises(UnknownRef, match="move 7 in the log of ref 'main'"):
        store.refs.undo("main", 7)
    with pytest.raises(UnknownRef):
        store.at_ref("main", "side")
    assert [move.number for move in store.refs.log()] == [1]


@pytest.mark.parametrize(
    "name", ["", " a", "a ", "a\nb", "a\0b", "\x7f", "\u2028", "\udc80", "x" * (MAX_REF_BYTES + 1), "é" * 129]
)
def test_a_name_is_printable_and_short(store: bm.Store, name: str) -> None:
    for act in (lambda: store.refs.create(name, "a"), lambda: store.refs.undo(name), lambda: store.refs.log(name)):
        with pytest.raises(InvalidRef) as refused:
            act()
        assert refused.value.name == name
        str(refused.value)


def test_what_is_no_name_is_in_no_refs(store: bm.Store) -> None:
    store.refs.create("main", "a")
    assert [name in store.refs for name in ("main", "a", "a\nb", "\udc80", "", 5, None)] == [True, *[False] * 6]


def test_only_deleting_lets_a_ref_stand_nowhere(store: bm.Store) -> None:
    store.refs.create("main", "a")
    with pytest.raises(TypeError):
        store.refs.move("main", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.refs.create("side", None)  # type: ignore[arg-type]
    assert [str(move) for move in store.refs.log()] == ["main@1 create: nothing → a"]


def test_what_was_listed_is_of_one_moment(store: bm.Store) -> None:
    store.refs.create("main", "a")
    store.refs.create("side", "b")
    items, values = store.refs.items(), store.refs.values()
    store.refs.delete("side")
    assert dict(items) == {"main": "a", "side": "b"}
    assert list(values) == ["a", "b"]


def test_names_may_be_long_and_in_any_script(store: bm.Store) -> None:
    for name in ("x" * MAX_REF_BYTES, "feature/login", "main", "日本", "a b", "@{-1}", "..", "-"):
        assert store.refs.create(name, "a").name == name
        assert store.refs[name] == "a"
        assert store.refs.undo(name).after is None


def test_a_name_is_a_string(store: bm.Store) -> None:
    with pytest.raises(TypeError, match="string for a name, not 5"):
        store.refs.create(5, "a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"write \['main'\]"):
        store.refs.heads("main")


def test_what_no_ref_leads_to_is_listed_and_nothing_of_it_is_lost(store: bm.Store) -> None:
    everything = store.unreachable()
    assert everything.messages == ("chat", "a", "b", "other", "profile")
    assert len(everything.memories) == len(store.memory_ids)

    store.refs.create("main", "a")
    store.refs.create("profile", "profile")
    left = store.unreachable()
    assert left.messages == ("b", "other")
    assert left.memories == ("of-other", "of-both", "of-nothing", "of-missing", "round", "from-both")
    assert str(left) == "2 messages and 6 memories that no ref leads to"

    store.refs.create("side", "other")
    assert store.unreachable().messages == ("b",)
    assert str(store.unreachable()) == "1 message and 3 memories that no ref leads to"
    assert store.unreachable().memories == ("of-nothing", "of-missing", "round")
    store.refs.delete("main")
    assert store.unreachable().messages == ("a", "b")
    assert "of-a" in store.at("a")


def test_a_ref_at_a_detached_message_has_a_view_with_problems(path: Path) -> None:
    with bm.open(path) as store:
        store.append([bm.Message("late", "not here yet"), bm.Memory("m", "late", sources=["late"])])
        store.refs.create("main", "late")
        assert store.at_ref("main").problems == bm.Reason.DETACHED_ANCHOR
        assert store.unreachable().messages == ()


MOVES = """
import sys, branchmem as bm
with bm.open(sys.argv[1]) as store:
    for at in range(20):
        store.refs.move("main", ("a", "b", "other")[at % 3])
"""


def test_threads_and_processes_lose_no_move(path: Path, store: bm.Store) -> None:
    store.refs.create("main", "a")

    def move() -> None:
        for at in range(20):
            store.refs.move("main", ("other", "b")[at % 2])

    others = [subprocess.Popen([sys.executable, "-c", MOVES, str(path)]) for _ in range(2)]
    threads = [threading.Thread(target=move) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait() for other in others] == [0, 0]

    moves = store.refs.log("main")
    assert [move.number for move in moves] == list(range(1, 82))
    assert all(earlier.after == later.before for earlier, later in pairwise(moves))


def test_an_erased_message_keeps_its_refs(store: bm.Store) -> None:
    store.refs.create("main", "a")
    store.erase(["a"])

    assert store.refs["main"] == "a"
    assert store.at_ref("main").ids() == []
