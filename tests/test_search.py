"""Search under a view: what is visible is ranked and nothing else, and what a search holds keeps up with its log."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import numpy as np
import pytest
from branchmem._core import rank_texts
from branchmem.errors import DimensionMismatch, InvalidDecay, InvalidSearch, StoreClosed
from branchmem.events import Erasure, Retraction
from branchmem.recall import Hits, search
from branchmem.recall.index import index_of
from branchmem.reference.ranking import bm25
from searching import SIGNS

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def said(id: str, text: str, at: str = "u1", **fields: Any) -> bm.Memory:
    return bm.Memory(id, text, sources=[at], **fields)


@pytest.fixture
def store() -> Iterator[bm.Store]:
    """A conversation with two branches below `u1`."""
    with bm.open_temporary() as store:
        store.append([bm.Message("chat", None), bm.Message("u1", "chat")])
        store.append([bm.Message("left", "u1"), bm.Message("right", "u1")])
        yield store


def answer(hits: Hits) -> Any:
    return [(hit.id, hit.ids, hit.score, dict(hit.ranks), dict(hit.scores)) for hit in hits], hits.faded


# What is found


def test_the_best_text_comes_first_with_its_rank_its_score_and_why_it_is_visible(store: bm.Store) -> None:
    store.append([said("a", "green tea in the morning, tea at night"), said("b", "tea"), said("c", "coffee")])
    hits = store.at("u1").search("Tea?")

    assert hits.ids == ["b", "a"]
    assert hits[0].scores == {"lexical": hits[0].score}
    assert [hit.ranks for hit in hits] == [{"lexical": 1}, {"lexical": 2}]
    assert hits[0].text == "tea"
    assert hits[0].memory == store.log.get("b")
    assert hits[0].why == "every source lies on the path of the anchor"
    assert hits[0].verdict.visible
    assert (hits.query, hits.rankers, hits.faded) == ("Tea?", ("lexical",), 0)


def test_hits_are_a_sequence_and_json(store: bm.Store) -> None:
    store.append([said("a", "tea"), said("b", "green tea", key="drink")])
    view = store.at("u1")
    hits = view.search("tea")

    assert (len(hits), hits[-1].id, [hit.id for hit in hits[:1]]) == (2, "b", ["a"])
    assert hits == view.search("tea")
    assert hits != view.search("green")
    assert repr(hits) == "<Hits 2 for 'tea' by lexical; lexical only: no embedder>"
    form = json.loads(json.dumps(hits.to_dict()))
    assert form["hits"][1]["memory"] == {
        "type": "memory", "id": "b", "text": "green tea", "sources": ["u1"], "key": "drink"
    }  # fmt: skip
    assert form["hits"][1]["ids"] == ["b"]
    assert form["note"] == "lexical only: no embedder"


def test_equal_texts_are_one_hit_that_lists_its_memories(store: bm.Store) -> None:
    store.append([said("c", "likes tea"), said("a", "likes tea", "left"), said("b", "likes tea", "right")])
    store.append([said("d", "likes  tea", "left")])
    (both, other) = store.at("left").search("tea")

    assert (both.id, both.ids, [memory.id for memory in both.memories]) == ("a", ("a", "c"), ["a", "c"])
    assert (other.id, other.ranks) == ("d", {"lexical": 2})
    assert [hit.ids for hit in store.at("chat").search("tea")] == []


def test_at_most_so_many_hits_come(store: bm.Store) -> None:
    store.append(said(f"m{number:02}", f"tea number {number:02}") for number in range(30))
    view = store.at("u1")

    assert view.search("tea", 0).ids == []
    assert view.search("tea", 3).ids == ["m00", "m01", "m02"]
    assert len(view.search("tea")) == 10
    assert len(view.search("tea", 10_000)) == 30
    assert view.search("").ids == view.search(" ,.! ").ids == view.search("nothing").ids == []


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"query": None}, "query"),
        ({"query": b"tea"}, "query"),
        ({"query": "\ud800"}, "query"),
        ({"k": -1}, "k"),
        ({"k": 2.0}, "k"),
        ({"k": True}, "k"),
        ({"by": "meaning"}, "by"),
        ({"by": "vector"}, "by"),
    ],
)
def test_a_search_that_says_nothing_sensible_is_refused(store: bm.Store, options: Any, name: str) -> None:
    with pytest.raises(InvalidSearch) as refused:
        search(store, store.at("u1"), **{"query": "tea"} | options)

    assert (refused.value.name, refused.value.value) == (name, options[name])
    assert isinstance(refused.value, ValueError)


def test_a_view_without_a_file_behind_it_cannot_be_searched() -> None:
    engine = bm.Engine()
    engine.add([bm.Message("u1", None), said("a", "tea")])

    with pytest.raises(InvalidSearch, match="keeps no content"):
        engine.at("u1").search("tea")


def test_texts_are_ranked_among_themselves() -> None:
    texts = ["docker and containers", "deploy with docker", "写代码 容器", ""]

    assert rank_texts(texts, "docker 容器") == pytest.approx(
        [bm25(dict(enumerate(texts)), "docker 容器").get(at, 0.0) for at in range(4)]  # type: ignore[arg-type, call-overload]
    )
    assert rank_texts([], "docker") == []


# What is hidden


def test_what_is_hidden_changes_no_score(store: bm.Store) -> None:
    store.append(
        [said("a", "green tea"), said("b", "black tea and tea"), said("c", "a dog"), said("d", "喝茶", "left")]
    )
    view = store.at("left")
    before = [answer(view.search(query)) for query in ("tea", "green dog", "茶")]
    assert len(before[0][0]) == 2

    store.append(said(f"hidden {at}", "green tea, tea 喝茶 " * (at % 5), "right") for at in range(40))
    store.append([bm.Memory("nowhere", "tea tea tea", sources=["missing"])])
    for of in (view, store.at("left")):
        assert [answer(of.search(query)) for query in ("tea", "green dog", "茶")] == before
    store.append([Retraction("r", "right", scope="branch", memories=["a", "hidden 1"])])
    store.append([Erasure("e", ["hidden 2", "right"])])
    assert [answer(store.at("left").search(query)) for query in ("tea", "green dog", "茶")] == before
    assert "a" not in store.at("right").search("tea").ids


def test_a_view_is_searched_as_it_was_made(store: bm.Store) -> None:
    store.append([said("a", "green tea")])
    early = store.at("u1")
    before = answer(early.search("tea"))
    store.append([said("b", "tea")])

    assert answer(early.search("tea")) == before
    assert store.at("u1").search("tea").ids == ["b", "a"]


def test_what_a_policy_lets_through_is_ranked(store: bm.Store) -> None:
    store.append([said("a", "tea"), bm.Memory("b", "more tea")])

    assert store.at("u1").search("tea").ids == ["a"]
    assert store.at("u1", policy=bm.COMPAT).search("tea").ids == ["a", "b"]
    assert store.at(None).search("tea").ids == []
    assert store.at(None, policy=bm.COMPAT).search("tea").ids == ["a", "b"]


# Keeping up


def test_opening_a_store_and_appending_read_nothing_for_searches(path: Path) -> None:
    with bm.open(path) as store:
        store.append([bm.Message("u1", None), said("a", "tea")])
        assert store._index is None
    with bm.open(path) as store:
        assert store.at("u1").ids() == ["a"]
        assert store._index is None
        assert store.at("u1").search("tea").ids == ["a"]
        assert len(index_of(store).current()) == 1


def test_a_memory_is_found_when_append_returns_in_any_order_of_arrival(store: bm.Store) -> None:
    shown: set[str] = set()
    for number in range(60):
        late = f"late {number}"
        store.append([said(f"m{number}", f"tea {number}"), said(f"waits {number}", f"tea {number}+", late)])
        shown |= {f"m{number}"}
        assert set(store.at("u1").search("tea", 1000).ids) == shown
        store.append([bm.Message(late, "u1")])
        assert set(store.at(late).search("tea", 1000).ids) == shown | {f"waits {number}"}
    assert len(index_of(store).current()) == 120


def test_more_than_a_page_is_taken_in(store: bm.Store) -> None:
    store.append(said(f"m{number}", f"word{number} and more") for number in range(2500))

    assert store.at("u1").search("word0").ids == ["m0"]
    assert store.at("u1").search("word2499").ids == ["m2499"]
    assert len(index_of(store).current()) == 2500


def test_what_is_erased_is_gone_from_memory_when_append_returns(store: bm.Store) -> None:
    store.append([said("a", "tea", meta={"x": 1}), said("b", "tea"), said("c", "green tea", "left")])
    store.append([bm.Memory("d", "from a: tea", sources=["u1"], derived_from=["a"])])
    assert store.at("left").search("tea").ids == ["a", "c", "d"]
    index, held = index_of(store), index_of(store).current()
    store.append([Erasure("e", ["a"])])

    assert held.forget_erased() == 0  # nothing is left to drop
    kept = held.effective(np.arange(4, dtype=np.uint32), index.decay.fading(NOW))
    assert list(np.isnan(kept)) == [True, False, False, True]
    assert [hit.ids for hit in store.at("left").search("tea")] == [("b",), ("c",)]
    store.append([said("f", "more tea")])
    assert [hit.ids for hit in store.at("u1").search("tea")] == [("b",), ("f",)]


def test_what_is_erased_before_it_is_read_never_comes_in(store: bm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The erasure is appended between the reading of the bodies and their way into the index."""
    store.append([said("a", "tea"), said("b", "tea")])
    read = store._log.read

    def and_then_erased(work: Any, **options: Any) -> Any:
        out = read(work, **options)
        if isinstance(out, tuple):
            assert None not in out[0]
            monkeypatch.undo()
            store.append([Erasure("e", ["a"])])
        return out

    index = index_of(store)
    monkeypatch.setattr(store._log, "read", and_then_erased)
    assert len(index.current()) == 2

    assert index.current().forget_erased() == 0
    kept = index.current().effective(np.arange(2, dtype=np.uint32), index.decay.fading(NOW))
    assert list(np.isnan(kept)) == [True, False]


def test_a_hit_that_was_erased_since_hides_its_content_and_no_other(store: bm.Store) -> None:
    store.append([said("a", "tea"), said("b", "green tea")])
    early = store.at("u1").search("tea")
    late = store.at("u1").search("tea")
    assert early[0].text == "tea"  # all of them are read now
    store.append([Erasure("e", ["a"])])

    with pytest.raises(bm.MemoryHidden, match="erased after"):
        _ = late[0].text
    assert late[1].text == "green tea"
    assert early[0].text == "tea"
    assert not late[0].verdict.visible


def test_the_content_of_all_hits_is_read_at_once(store: bm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append([said(f"m{number}", f"tea {number % 7}") for number in range(20)])
    hits = store.at("u1").search("tea")
    read, asked = store._memories, list[list[str]]()

    def noted(ids: list[str], view: bm.View) -> list[bm.Memory]:
        asked.append(ids)
        return read(ids, view)

    monkeypatch.setattr(store, "_memories", noted)
    assert sorted(memory.text for hit in hits for memory in hit.memories) == sorted(
        f"tea {number % 7}" for number in range(20)
    )
    assert [len(ids) for ids in asked] == [20]


def test_what_others_append_and_erase_is_seen(path: Path) -> None:
    with bm.open(path) as one, bm.open(path) as other:
        one.append([bm.Message("u1", None), said("a", "tea")])
        assert one.at("u1").search("tea").ids == ["a"]
        held = index_of(one).current()
        other.append([said("b", "green tea"), Erasure("e", ["a"])])
        assert one.at("u1").search("tea").ids == ["b"]
        assert held.forget_erased() == 0
        other.append([Erasure("e2", ["b"])])
        one.refresh()
        assert held.forget_erased() == 0


def test_a_store_that_does_not_refresh_finds_what_it_knows(path: Path) -> None:
    with bm.open(path) as other, bm.open(path, auto_refresh=False) as store:
        other.append([bm.Message("u1", None), said("a", "tea"), said("b", "green tea")])
        store.refresh()
        other.append([said("c", "tea tea"), Erasure("e", ["b"])])
        other.used(["c"])
        hits = store.at("u1").search("tea")
        assert hits.ids == ["a"]  # what the file has no content of any more is not ranked
        store.refresh()
        assert store.at("u1").search("tea").ids == ["c", "a"]


def test_another_process_appends_and_this_one_finds_it(path: Path) -> None:
    told = "import sys, branchmem as bm\nwith bm.open(sys.argv[1]) as store: store.append([{}])\n"
    with bm.open(path) as store:
        store.append([bm.Message("u1", None), said("a", "tea")])
        assert store.at("u1").search("tea").ids == ["a"]
        event = "bm.Memory('b', 'green tea', sources=['u1'])"
        subprocess.run([sys.executable, "-c", told.format(event), path], check=True)
        assert store.at("u1").search("tea").ids == ["a", "b"]
        subprocess.run([sys.executable, "-c", told.format("bm.events.Erasure('e', ['a'])"), path], check=True)
        assert store.at("u1").search("tea").ids == ["b"]


def test_a_store_for_reading_is_searched(path: Path) -> None:
    with bm.open(path) as store:
        store.append([bm.Message("u1", None), said("a", "tea")])
        store.used(["a"])
    before = path.read_bytes()
    with bm.open(path, readonly=True) as store:
        assert store.at("u1").search("tea").ids == ["a"]
    assert path.read_bytes() == before


def test_a_closed_store_is_not_searched(store: bm.Store) -> None:
    store.append([said("a", "tea")])
    view = store.at("u1")
    hits = view.search("tea")
    store.close()

    with pytest.raises(StoreClosed):
        view.search("tea")
    with pytest.raises(StoreClosed):
        _ = hits[0].text


def test_a_transaction_can_search_what_is_written_before_it(store: bm.Store) -> None:
    store.append([said("a", "tea")])

    def plan(writer: object) -> tuple[list[bm.Memory], list[str]]:
        found = store.at("u1").search("tea").ids
        return [said("b", f"after {found}: tea")], found

    assert store.transact(plan, tables=())[1] == ["a"]
    assert store.at("u1").search("tea").ids == ["a", "b"]


# Threads


def in_threads(*works: Any) -> None:
    """Run these at one time; what the first of them raised."""
    raised: list[BaseException] = []

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=[work], daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "threads wait for each other"
    if raised:
        raise raised[0]


def test_two_threads_search_while_a_third_appends(store: bm.Store) -> None:
    done = threading.Event()
    seen = [0, 0]

    def append() -> None:
        try:
            for number in range(60):
                store.append(said(f"m{number}-{at}", f"tea {at} {number}", "left") for at in range(10))
                if number % 10 == 9:
                    store.append([Erasure(f"e{number}", [f"m{number - 1}-{at}" for at in range(5)])])
        finally:
            done.set()

    def look(thread: int) -> None:
        while not done.is_set():
            before = store.at("left")
            found = {id for hit in store.at("left").search("tea", 10_000) for id in hit.ids}
            after = store.at("left")
            erased = set(before.ids()) - set(after.ids())
            assert set(before.ids()) - erased <= found <= set(before.ids()) | set(after.ids())
            seen[thread] = max(seen[thread], len(found))

    in_threads(append, lambda: look(0), lambda: look(1))
    found = {id for hit in store.at("left").search("tea", 10_000) for id in hit.ids}
    assert len(found) == 600 - 30
    assert found == set(store.at("left").ids())
    assert len(index_of(store).current()) == 600


def test_threads_that_search_first_at_one_time_take_each_memory_in_once(store: bm.Store) -> None:
    store.append(said(f"m{number}", f"tea {number}") for number in range(3000))
    view = store.at("u1")
    counts: list[int] = []

    in_threads(*[lambda: counts.append(len(view.search("tea", 10_000)))] * 4)

    assert counts == [3000] * 4
    assert len(index_of(store).current()) == 3000


def test_a_search_inside_a_transaction_waits_for_no_reader(store: bm.Store) -> None:
    """One that reads for the index may have to wait until the transaction is over."""
    store.append([said("a", "tea")])
    index = index_of(store)
    held, found = threading.Event(), threading.Event()

    def read() -> None:
        with index._reading:
            held.set()
            assert found.wait(10)

    def plan(writer: object) -> tuple[tuple[()], list[str]]:
        ids = store.at("u1").search("tea").ids
        found.set()
        return (), ids

    def transact() -> None:
        assert held.wait(10)
        assert store.transact(plan, tables=())[1] == ["a"]

    in_threads(read, transact)


def test_what_a_transaction_took_in_meanwhile_is_not_taken_in_twice(
    store: bm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([said("a", "tea"), said("b", "green tea")])
    index, read = index_of(store), store._log.read

    def plan(writer: object) -> tuple[tuple[()], int]:
        return (), len(index.current())

    def and_then_taken_in(work: Any, **options: Any) -> Any:
        out = read(work, **options)
        if isinstance(out, tuple):
            monkeypatch.undo()
            assert store.transact(plan, tables=())[1] == 2
        return out

    monkeypatch.setattr(store._log, "read", and_then_taken_in)
    assert len(index.current()) == 2
    assert store.at("u1").search("green").ids == ["b"]


# By meaning


@pytest.fixture
def embedded(store: bm.Store) -> bm.Store:
    store.append([said("a", "green tea"), said("b", "tea"), said("c", "coffee", "left"), said("d", "a dog", "right")])
    store.embed_with(SIGNS)
    return store


def test_both_rankers_are_fused_and_each_hit_says_what_both_said(embedded: bm.Store) -> None:
    hits = embedded.at("left").search("tea")
    words, meaning = (embedded.at("left").search("tea", by=by) for by in ("lexical", "vector"))

    assert (hits.rankers, words.rankers, meaning.rankers) == (("lexical", "vector"), ("lexical",), ("vector",))
    assert [hits.note, words.note, meaning.note] == [None, None, None]
    assert (words.ids, set(meaning.ids)) == (["b", "a"], {"a", "b", "c"})
    assert hits.ids[0] == "b"
    for hit in hits:
        assert hit.score == pytest.approx(math.fsum(1 / (60 + rank) for rank in hit.ranks.values()))
        by = {"lexical": words, "vector": meaning}
        assert hit.scores == {name: by[name][rank - 1].score for name, rank in hit.ranks.items()}


def test_a_search_can_bring_its_own_embedder(store: bm.Store) -> None:
    store.append([said("a", "green tea"), said("b", "coffee")])
    view = store.at("u1")

    assert view.search("tea", by="vector", embedder=SIGNS).rankers == ("vector",)
    assert view.search("tea", embedder=SIGNS).rankers == ("lexical", "vector")
    assert store.embedder is None
    assert view.search("tea").note == "lexical only: no embedder"


def test_what_is_hidden_changes_no_cosine(embedded: bm.Store) -> None:
    view = embedded.at("left")
    vector = np.array(SIGNS.row("tea"), np.float32)
    before = answer(view.search("green tea")), view.nearest(vector)
    assert len(before[1]) == 3
    embedded.append(said(f"hidden {at}", "green tea " * at, "right") for at in range(20))

    assert (answer(view.search("green tea")), view.nearest(vector)) == before
    after = embedded.at("left")
    assert (answer(after.search("green tea")), after.nearest(vector)) == before


def test_nearest_gives_each_memory_by_itself(embedded: bm.Store) -> None:
    embedded.append([said("b2", "tea")])
    view = embedded.at("u1")
    found = view.nearest(np.array(SIGNS.row("tea"), np.float32))

    assert [id for id, _ in found] == ["b", "b2", "a"]
    assert [cosine for _, cosine in found[:2]] == pytest.approx([1, 1])
    assert view.nearest(SIGNS.row("tea"), 1) == found[:1]  # type: ignore[arg-type]  # what numpy makes a vector of
    assert view.nearest(np.array(SIGNS.row("tea")), 0) == []


def test_a_vector_that_is_none_is_refused(embedded: bm.Store) -> None:
    view = embedded.at("u1")

    for vector in ("tea", np.zeros((2, 64), np.float32), [math.nan] * 64, [["a"]], None):
        with pytest.raises(InvalidSearch, match="flat array"):
            view.nearest(vector)  # type: ignore[arg-type]
    with pytest.raises(DimensionMismatch):
        view.nearest(np.zeros(3, np.float32))
    embedded.embed_with(None)
    with pytest.raises(InvalidSearch, match="embed_with"):
        view.nearest(np.zeros(64, np.float32))


def test_vectors_of_what_is_erased_are_gone_from_memory_when_append_returns(embedded: bm.Store) -> None:
    view = embedded.at("u1")
    assert len(view.search("tea", by="vector")) == 2
    held = index_of(embedded).vectors(SIGNS.name, SIGNS.dim)
    count = len(held)
    embedded.append([Erasure("e", ["a"])])

    assert (len(held), "a" in held.rows()[0]) == (count - 1, False)
    assert embedded.at("u1").search("tea", by="vector").ids == ["b"]
    assert view.search("tea", by="vector").ids == ["b"]
    assert [id for id, _ in view.nearest(np.array(SIGNS.row("tea"), np.float32))] == ["b"]


def test_vectors_are_asked_for_put_and_dropped_while_others_append(store: bm.Store) -> None:
    """No two of these may wait for each other, in whatever order they take what they need."""
    store.append(said(f"m{number}", f"tea {number}") for number in range(2_000))
    view, words = store.at("u1"), index_of(store).current()
    vectors = index_of(store).vectors("random", 64)
    ids, rows = view.ids(), np.random.default_rng(5).normal(size=(2_000, 64)).astype(np.float32)
    vectors.put(ids, rows)
    rounds = range(400)

    def near() -> None:
        assert all(len(vectors.nearest(view, rows[at], 3) or ()) == 3 for at in rounds)

    def search() -> None:
        assert all(len(words.search(view, "tea", 3, vectors=vectors, vector=rows[at])[0]) == 3 for at in rounds)

    def look() -> None:
        assert all(vectors.missing(view) == [] for _ in rounds)
        assert len(vectors.rows()[0]) == 2_000

    def put() -> None:
        for _ in rounds:
            vectors.put(ids[:50], rows[:50])
            assert vectors.forget_erased() == words.forget_erased() == 0

    def append() -> None:
        for at in rounds:
            store.append([bm.Message(f"x{at}", "u1")])

    in_threads(near, search, look, put, put, append)


# Fading


def test_what_has_faded_is_left_out_and_counted_until_it_is_used(store: bm.Store) -> None:
    old = datetime(2025, 1, 1, tzinfo=UTC)
    store.append([said("old", "green tea", created=old), said("new", "tea", created=NOW), said("timeless", "my tea")])
    view = store.at("u1")
    hits = view.search("tea", now=NOW)

    assert (hits.ids, hits.faded) == (["new", "timeless"], 1)
    everything = view.search("tea", now=NOW, include_faded=True)
    assert (everything.ids, everything.faded) == (["new", "old", "timeless"], 0)
    assert [hit.score for hit in hits] == [hit.score for hit in everything if hit.id != "old"]
    never = bm.Decay(math.inf, 0.0)
    assert view.search("tea", now=NOW, decay=never) == everything
    store.used(["old"], at=NOW)
    assert view.search("tea", now=NOW) == everything
    assert view.search("tea", now=datetime(2027, 1, 1, tzinfo=UTC)).ids == ["timeless"]
    store.decay = never
    assert view.search("tea", now=datetime(2027, 1, 1, tzinfo=UTC)).ids == ["new", "old", "timeless"]


def test_uses_that_others_note_are_seen(path: Path) -> None:
    old = datetime(2025, 1, 1, tzinfo=UTC)
    with bm.open(path) as one, bm.open(path) as other:
        one.append([bm.Message("u1", None), said("a", "tea", created=old)])
        view = one.at("u1")
        assert view.search("tea", now=NOW).ids == []
        other.used(["a"], at=NOW)
        assert view.search("tea", now=NOW).ids == ["a"]


def test_settings_of_fading_are_checked(store: bm.Store) -> None:
    assert store.decay == bm.Decay()
    with pytest.raises(InvalidDecay):
        store.decay = 168.0  # type: ignore[assignment]
    with pytest.raises(InvalidDecay):
        store.at("u1").search("tea", decay=168.0)  # type: ignore[arg-type]
    assert store.decay == bm.Decay()
