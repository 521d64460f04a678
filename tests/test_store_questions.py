"""What a store is asked with: ids, ordinals, anchors, limits, and what only looks like them."""

from __future__ import annotations

import logging
import threading
from functools import partial
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from chats import MOVING as CHAT


def test_a_hidden_memory_is_a_key_error_that_says_why() -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        with pytest.raises(KeyError, match="parts from the path at chat"):
            store.at("u1-edit")["home"]
        with pytest.raises(bm.MemoryHidden, match="no memory nothing"):
            store.at("u1").get("nothing")


def test_anchors_of_a_wrong_type_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with bm.open_temporary() as store:
        store.append(CHAT)
        for anchor in (5, b"u1", ["u1", None], [5]):
            with pytest.raises(TypeError, match="an anchor is"):
                store.at(anchor)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a policy is"):
            store.at("u1", policy="strict")  # type: ignore[arg-type]
        assert store.at("\ud800").problems is bm.Reason.UNKNOWN_ANCHOR
        assert "\ud800" not in store.at("u1")
        assert 5 not in store.at("u1")


def test_pairs_take_ids_or_ordinals_and_refuse_the_rest() -> None:
    import numpy as np

    with bm.open_temporary() as store:
        store.append(CHAT)
        assert store.visible(["home", "none"], ["u1", "u1"]).tolist() == [True, False]
        assert store.visible(np.array([0, 0]), store.message_ordinals(["u1", "u1-edit"])).tolist() == [True, False]
        assert store.visible([0], [1]).tolist() == [True]
        assert store.visible([], []).tolist() == []
        assert store.visible(np.array(["home"]), np.array(["u1"], object)).tolist() == [True]
        for unfit in ([0.9], [True], [2**70], [[0]]):
            with pytest.raises(TypeError, match="flat array of integers"):
                store.visible(unfit, [1])  # type: ignore[arg-type]
        assert store.memory_ordinals(["home"]).tolist() == [0]
        for ordinals in ([1], [-1]):
            with pytest.raises(bm.UnknownEvent, match="memory with ordinal"):
                store.visible(np.array(ordinals), np.array([0]))
        with pytest.raises(ValueError, match="pairwise"):
            store.visible(["home"], ["u1", "u1"])
        with pytest.raises(TypeError, match="list of ids"):
            store.visible("home", ["u1"])
        with pytest.raises(TypeError, match="integers"):
            store.visible(np.array([0.5]), np.array([0]))
        with pytest.raises(bm.UnknownEvent, match="no memory none"):
            store.memory_ordinals(["home", "none"])


def test_bitmaps_take_what_at_takes() -> None:
    with bm.open_temporary() as store:
        store.append([*CHAT, bm.Message("other", None), bm.Memory("both", "", sources=["u1", "other"])])
        rows = store.bitmaps(["u1", ["u1", "other"], None, "none"])
        assert rows.tolist() == [[1], [3], [0], [0]]
        with pytest.raises(bm.AmbiguousAnchor, match="u1 and u1-edit"):
            store.bitmaps([["u1", "u1-edit"]])
        assert store.bitmaps([]).shape == (0, 1)


def test_names_that_are_no_text_are_those_of_nothing() -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        for ask in (store.tree.parent, store.tree.children, store.tree.path, store.tree.leaves):
            with pytest.raises(bm.UnknownEvent, match="no message"):
                ask("\ud800")
        assert store.at("u1").memories(kind="\ud800") == []
        assert store.at("u1").memories(key="\ud800") == []
        assert "\ud800" not in store.log
        with pytest.raises(bm.UnknownEvent) as raised:
            store.log.get("\ud800")
        assert str(raised.value).encode().startswith(b"no event \\ud800 in the log")
        with pytest.raises(TypeError):
            store.tree.parent(5)  # type: ignore[arg-type]


def test_a_limit_is_a_number_of_memories() -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        assert store.at("u1").memories(limit=0) == []
        assert len(store.at("u1").memories(limit=9)) == 1
        assert len(store.at("u1").memories(limit=2**70)) == 1
        for limit in (-1, -(2**70), 0.5, "1"):
            with pytest.raises(ValueError, match="limit is a number"):
                store.at("u1").memories(limit=limit)  # type: ignore[arg-type]


def test_what_a_held_view_explains_is_the_log_as_others_made_it(path: Path) -> None:
    with bm.open(path) as store, bm.open(path) as other, bm.open(path, auto_refresh=False) as still:
        store.append(CHAT)
        still.refresh()
        views = {name: log.at("u1") for name, log in (("seeing", store), ("still", still))}
        other.erase(["home"], id="gone")

        for name, reasons in (("seeing", bm.Reason.ERASED), ("still", bm.Reason(0))):
            assert (name, views[name].explain("home").reasons) == (name, reasons)
            assert (name, views[name].reasons().tolist()) == (name, [reasons])
        with pytest.raises(bm.MemoryHidden, match="erased"):
            views["seeing"]["home"]
        assert (views["seeing"].explain("home").seq, views["still"].explain("home").seq) == (store.seq, len(CHAT))
        assert views["seeing"].ids() == ["home"]

        other.append([bm.Memory("new", "", sources=["u1"])])
        with pytest.raises(bm.MemoryHidden, match="new is hidden here: it became visible after seq"):
            views["seeing"]["new"]
        assert (views["seeing"].reasons().size, views["seeing"].mask().size) == (2, 1)

        other.retract(["home"], at="u1", scope="everywhere")
        known = views["seeing"]
    assert (known.explain("home").reasons, known.reasons().tolist()) == (bm.Reason.ERASED, [bm.Reason.ERASED, 0])


def test_a_view_that_is_asked_inside_a_snapshot_waits_for_nobody(path: Path) -> None:
    with bm.open(path) as store, bm.open(path) as other:
        store.append(CHAT)
        view = store.at("u1")
        held, done = threading.Event(), threading.Event()

        def folding() -> None:
            with store._folding:
                held.set()
                done.wait(60)

        writer = threading.Thread(target=folding)
        writer.start()
        held.wait(60)
        other.erase(["home"])
        seen = store.snapshot(lambda reader: (view.explain("home").visible, view.reasons().tolist()), tables=())
        done.set()
        writer.join()

        assert seen == (True, [0])
        assert not view.explain("home").visible


def test_an_engine_without_a_file_says_that_it_cannot_search() -> None:
    engine = bm.Engine()
    engine.add(CHAT)
    view: Any = engine.at("u1")
    for ask in (partial(view.search, "x"), partial(view.nearest, [1.0]), partial(view.nearest, [1.0], 3)):
        with pytest.raises(bm.InvalidSearch, match="an engine without a file keeps no content"):
            ask()


def test_anchors_that_can_be_read_once_are_named_in_the_error() -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        with pytest.raises(bm.AmbiguousAnchor, match="u1 and u1-edit"):
            store.bitmaps([iter(["u1", "u1-edit"])])
        with pytest.raises(bm.AmbiguousAnchor, match="u1 and u1-edit"):
            store.at(iter(["u1", "u1-edit"]))


def test_a_hidden_memory_stays_a_key_error_where_anchors_have_come_to_clash() -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        view = store.at(["u1", "later"])
        store.append([bm.Message("later", "u1")])
        with pytest.raises(bm.AmbiguousAnchor):
            view.explain("home")
        with pytest.raises(bm.MemoryHidden, match="since the view was made"):
            view["nothing"]
