"""What a view promises beside the rule: snapshots, counters, content, bitmaps; and the tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import branchmem as bm
import pytest
from branchmem import COMPAT, LEGACY, Message, Policy, Reason
from chats import CHAT, FLAWED, OTHER, fact, listed, shown

# Snapshots


def test_a_view_keeps_what_it_shows_and_explain_speaks_of_now(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "u1"), fact("waits", "late"), fact("side", "u1x")])
    view = engine.at("a1")
    bitmap = bytes(view.bitmap())
    engine.add([fact("new", "u1"), Message("late", None)])

    assert (shown(view), len(view), view.seq) == ({"m"}, 1, 11)
    assert (bytes(view.bitmap()), view.mask().tolist(), view.ordinals().tolist()) == (bitmap, [True, False, False], [0])
    assert view.filter(["new", "m"]) == ["m"]
    assert "new" not in view
    assert (view.explain("new").visible, view.explain("new").seq) == (True, 13)
    assert view.explain("waits").reasons == Reason.OTHER_TREE
    assert view.reasons().tolist() == [0, Reason.OTHER_TREE, Reason.SIBLING, 0]


@pytest.mark.parametrize("one", ["m", "mm", "nothing"])
def test_a_text_is_no_list_of_ids(engine: Any, one: str) -> None:
    engine.add([*CHAT, fact("m", "u1")])
    for ask in (engine.at("u1").filter, engine.bitmaps):
        with pytest.raises(TypeError, match="a list of ids is needed"):
            ask(one)
    for pair in ((one, ["u1"]), (["m"], one)):
        with pytest.raises(TypeError, match="a list of ids is needed"):
            engine.visible(*pair)


@pytest.mark.parametrize("unfit", [bytearray(b"m"), ["m", 7], [None]])
def test_what_is_no_id_is_not_filtered(engine: Any, unfit: Any) -> None:
    engine.add([*CHAT, fact("m", "u1")])
    with pytest.raises(TypeError, match="a list of ids is needed"):
        engine.at("u1").filter(unfit)


def test_a_view_whose_anchor_arrives_later_stays_empty(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "u1")])
    view = engine.at("later")
    engine.add([Message("later", "u1")])

    assert (shown(view), view.problems) == (set(), Reason.UNKNOWN_ANCHOR)
    assert view.explain("m").visible
    assert shown(engine.at("later")) == {"m"}


def test_a_stale_view_counts_a_memory_as_it_is_now_and_a_whole_answer_as_it_was(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "u1"), fact("waits", "late", "gone"), fact("side", "u1x")])
    strict, compat = engine.at("a1"), engine.at("a1", policy=COMPAT)
    engine.add([Message("late", "a1"), fact("new", "u1")])

    assert "side" not in strict  # hidden then and now
    assert "new" not in strict  # hidden then, visible now
    assert "waits" not in strict  # hidden then and now, though for one reason more
    assert "waits" in compat  # visible then, hidden now
    assert compat.filter(["waits", "m", "side"]) == ["waits", "m"]
    assert engine.counters() == {
        "hidden": {Reason.SIBLING: 1, Reason.MISSING_SOURCE: 1},
        "admitted": {},
        "unlisted": 2,
    }
    assert shown(compat) == {"m", "waits"}
    assert engine.counters()["admitted"] == {Reason.MISSING_SOURCE: 1}


def test_a_stale_view_counts_at_the_anchors_as_it_found_them(engine: Any) -> None:
    engine.add([fact("m", "r"), Message("x", "r"), Message("y", "r")])
    view = engine.at(["x", "y"])
    engine.add([Message("r", None)])

    assert "m" not in view
    assert engine.counters() == {"hidden": {Reason.DETACHED_ANCHOR: 1}, "admitted": {}, "unlisted": 0}
    with pytest.raises(bm.AmbiguousAnchor):
        view.explain("m")
    with pytest.raises(bm.AmbiguousAnchor):
        view.reasons()


# Counters


@pytest.mark.parametrize("ask", [lambda view, id: id in view, lambda view, id: view.explain(id)], ids=["in", "explain"])
def test_a_verdict_counts_its_primary_reason_or_each_let_through(engine: Any, ask: Callable[[Any, str], Any]) -> None:
    engine.add([*FLAWED, fact("two flaws", "gone", "old")])
    ask(engine.at("a1"), "home")
    assert engine.counters() == listed()

    ask(engine.at("a1"), "two flaws")
    assert engine.counters() == {"hidden": {Reason.MISSING_SOURCE: 1}, "admitted": {}, "unlisted": 0}
    ask(engine.at("a1", policy=Policy(admit=Reason.MISSING_SOURCE)), "two flaws")
    assert engine.counters()["hidden"] == {Reason.MISSING_SOURCE: 1, Reason.LEGACY_SOURCE: 1}
    ask(engine.at("a1", policy=COMPAT), "two flaws")
    ask(engine.at("a1"), "nothing")
    assert engine.counters() == {
        "hidden": {Reason.MISSING_SOURCE: 1, Reason.LEGACY_SOURCE: 1, Reason.UNKNOWN_MEMORY: 1},
        "admitted": {Reason.MISSING_SOURCE: 1, Reason.LEGACY_SOURCE: 1},
        "unlisted": 0,
    }


WHOLE = {
    "ids": lambda view: view.ids(),
    "iteration": list,
    "bitmap": lambda view: view.bitmap(),
    "mask": lambda view: view.mask(),
    "ordinals": lambda view: view.ordinals(),
    "roaring": lambda view: view.roaring(),
}


@pytest.mark.parametrize("ask", WHOLE.values(), ids=WHOLE.keys())
def test_a_whole_view_counts_what_it_lets_through_and_how_much_it_leaves_out(engine: Any, ask: Any) -> None:
    engine.add(FLAWED)
    ask(engine.at("a1x", policy=COMPAT))

    admitted = {Reason.NO_SOURCES: 1, Reason.LEGACY_SOURCE: 1, Reason.DETACHED_SOURCE: 1}
    assert engine.counters() == listed(admitted, unlisted=6)


def test_bulk_answers_count_each_pair(engine: Any) -> None:
    engine.add(FLAWED)
    engine.visible(["home", "legacy source", "edit"], ["a1", "a1", "a1"], policy=COMPAT)
    assert engine.counters() == listed({Reason.LEGACY_SOURCE: 1}, unlisted=1)

    engine.bitmaps(["a1", "a1x"])
    assert engine.counters() == listed({Reason.LEGACY_SOURCE: 1}, unlisted=1 + 9 + 9)


def test_a_filter_counts_the_ids_it_was_given(engine: Any) -> None:
    engine.add(FLAWED)
    view = engine.at("a1", policy=COMPAT)

    assert view.filter(["no source", "edit", "home", "nothing", "no source"]) == ["no source", "home", "no source"]
    assert engine.counters() == listed({Reason.NO_SOURCES: 2}, unlisted=2)


def test_looking_at_a_view_as_such_counts_nothing(engine: Any) -> None:
    engine.add(FLAWED)
    view = engine.at("a1", policy=COMPAT)
    quiet = engine.at("a1", policy=COMPAT, count=False)

    assert (len(view), len(view.reasons())) == (6, 10)
    assert "6 of 10" in repr(view)
    assert "edit" not in quiet
    assert quiet.filter(["edit"]) == []
    assert not quiet.explain("edit").visible
    assert (len(quiet.ids()), quiet.mask().sum(), len(quiet.ordinals()), len(quiet.bitmap())) == (6, 6, 6, 2)
    assert engine.counters() == listed()


def test_reading_content_counts_like_any_other_verdict(store: Any) -> None:
    store.append(FLAWED)
    view = store.at("a1", policy=COMPAT)

    view["no source"]
    view.get("legacy source")
    with pytest.raises(KeyError):
        view["edit"]
    with pytest.raises(KeyError):
        view.get("nothing")
    admitted = {Reason.NO_SOURCES: 1, Reason.LEGACY_SOURCE: 1}
    hidden = {Reason.SIBLING: 1, Reason.UNKNOWN_MEMORY: 1}
    assert store.counters() == {"hidden": hidden, "admitted": admitted, "unlisted": 0}
    view.memories(limit=1)
    assert store.counters()["unlisted"] == 4


# Content


def test_a_view_hands_out_memories_and_says_why_not(store: Any) -> None:
    home = fact("home", "u1", key="city", importance=0.5)
    store.append([*CHAT, home, fact("edit", "u1x")])
    view = store.at("a1")

    assert view["home"] == view.get("home") == home
    with pytest.raises(bm.Error, match="edit is hidden here: source u1x is on a sibling branch") as raised:
        view["edit"]
    assert isinstance(raised.value, KeyError)
    with pytest.raises(KeyError, match="there is no memory nothing"):
        view["nothing"]


def test_memories_come_in_path_order(store: Any) -> None:
    store.append([*CHAT, Message("l", LEGACY), *OTHER])
    store.append([fact("deep", "a2"), fact("b", "u1"), fact("a", "c", "u1"), fact("root", "c"), fact("bare")])
    store.append([fact("top", derived_from=["deep"], kind="summary", key="k"), fact("legacy", "l")])
    view = store.at("a2", policy=COMPAT)

    assert [memory.id for memory in view.memories()] == ["bare", "legacy", "root", "a", "b", "deep", "top"]
    assert [memory.id for memory in view.memories(limit=2)] == ["bare", "legacy"]
    assert [memory.id for memory in view.memories(kind="summary")] == ["top"]
    assert [memory.id for memory in view.memories(key="k")] == ["top"]
    assert [memory.id for memory in view.memories(kind="fact", key="k")] == []


# Ordinals and bitmaps


def test_every_form_of_a_view_says_the_same(engine: Any) -> None:
    engine.add([*CHAT, *(fact(f"m{number}", CHAT[number % 8].id) for number in range(19))])
    view = engine.at("a2")
    mask = view.mask().tolist()

    assert mask == [id in engine.at("a2") for id in engine.memory_ids]
    assert view.ordinals().tolist() == [ordinal for ordinal, shown in enumerate(mask) if shown]
    assert [engine.memory_ids[ordinal] for ordinal in view.ordinals()] == list(view.ids()) == list(view)
    bits = int.from_bytes(bytes(view.bitmap()), "little")
    assert len(bytes(view.bitmap())) == 3
    assert [bool(bits >> ordinal & 1) for ordinal in range(19)] == mask
    forms = (view.mask(), view.ordinals(), view.reasons())
    assert [str(array.dtype) for array in forms] == ["bool", "uint32", "uint16"]


def test_bulk_answers_are_those_of_single_views(engine: Any) -> None:
    engine.add([*CHAT, *(fact(f"m{number}", CHAT[number % 8].id) for number in range(19))])
    anchors = [message.id for message in CHAT]
    rows = engine.bitmaps(anchors)

    assert (rows.shape, str(rows.dtype)) == ((8, 3), "uint8")
    assert [row.tobytes() for row in rows] == [bytes(engine.at(anchor).bitmap()) for anchor in anchors]
    memories = list(engine.memory_ids)[:8]
    by_id = engine.visible(memories, anchors)
    assert by_id.tolist() == [memory in engine.at(anchor) for memory, anchor in zip(memories, anchors, strict=True)]
    ordinals = engine.memory_ordinals(memories), engine.message_ordinals(anchors)
    assert engine.visible(*ordinals).tolist() == by_id.tolist()
    assert engine.bitmaps([]).shape == (0, 3)


def test_a_pair_with_what_is_not_here_is_not_visible(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "u1")])

    assert engine.visible(["m", "m", "x"], ["u1", "nope", "u1"]).tolist() == [True, False, False]
    assert engine.visible([], []).tolist() == []


def test_ordinals_count_arrivals_of_one_type(engine: Any) -> None:
    engine.add([Message("b", None), fact("y", "b")])
    engine.add([fact("x", "b"), Message("b", None), Message("a", "b")])

    assert (list(engine.memory_ids), list(engine.message_ids)) == (["y", "x"], ["b", "a"])
    assert (len(engine.memory_ids), engine.memory_ids[1]) == (2, "x")
    assert engine.memory_ordinals(["x", "y", "x"]).tolist() == [1, 0, 1]
    assert engine.message_ordinals(["a"]).tolist() == [1]
    with pytest.raises(bm.UnknownEvent):
        engine.memory_ordinals(["b"])
    with pytest.raises(bm.UnknownEvent):
        engine.message_ordinals(["x"])


# The tree


def test_the_tree_is_what_was_told(engine: Any) -> None:
    engine.add([*CHAT, Message("l", LEGACY), *OTHER])
    tree = engine.tree

    assert (tree.parent("a1"), tree.parent("c"), tree.parent("l")) == ("u1", None, LEGACY)
    assert (list(tree.children("u2")), list(tree.children("a2"))) == (["a2", "a2x"], [])
    same, index = tree.siblings("u1x")
    assert (list(same), index) == (["u1", "u1x"], 1)
    assert list(tree.siblings("d")[0]) == list(tree.siblings("l")[0]) == list(tree.roots()) == ["c", "l", "d"]
    assert list(tree.path("u2")) == ["c", "u1", "a1", "u2"]
    assert [tree.depth(id) for id in ("u2", "c", "l")] == [3, 0, 0]
    assert list(tree.leaves()) == ["a2", "a2x", "a1x", "l", "v2"]
    assert list(tree.leaves("u1")) == ["a2", "a2x"]
    assert (tree.latest_leaf("c"), tree.latest_leaf("u1"), tree.latest_leaf("a2")) == ("a1x", "a2x", "a2")
    assert [tree.is_ancestor(*pair) for pair in (("u1", "a2"), ("a2", "a2"), ("a2", "u1"))] == [True, True, False]
    assert (tree.common_ancestor("a2", "a2x"), tree.common_ancestor("a2", "u1x")) == ("u2", "c")
    assert (tree.common_ancestor("u1", "a2"), tree.common_ancestor("u1", "v1")) == ("u1", None)


@pytest.mark.parametrize("question", ["parent", "children", "siblings", "path", "depth", "leaves", "latest_leaf"])
def test_the_tree_knows_only_messages(engine: Any, question: str) -> None:
    engine.add([*CHAT, fact("m", "u1"), Message("lost", "nowhere")])

    for unknown in ("m", "nothing", "nowhere"):
        with pytest.raises(bm.UnknownEvent):
            getattr(engine.tree, question)(unknown)
    for pair in (("u1", "m"), ("nothing", "u1")):
        with pytest.raises(bm.UnknownEvent):
            engine.tree.is_ancestor(*pair)
        with pytest.raises(bm.UnknownEvent):
            engine.tree.common_ancestor(*pair)


def test_the_tree_says_what_is_missing_above(engine: Any) -> None:
    engine.add([Message("lost", "nowhere"), Message("below", "lost"), Message("x", "y"), Message("y", "x")])
    tree = engine.tree

    with pytest.raises(bm.UnknownEvent, match="nowhere"):
        tree.path("below")
    assert [tree.depth(id) for id in ("lost", "below", "x")] == [None, None, None]
    with pytest.raises(bm.UnknownEvent, match="circle"):
        tree.path("x")
    assert list(tree.children("lost")) == ["below"]
    assert tree.is_ancestor("lost", "below")
    assert not tree.is_ancestor("below", "lost")
    assert (list(tree.roots()), list(tree.leaves()), list(tree.leaves("lost"))) == ([], [], ["below"])
