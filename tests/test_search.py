"""Search under a view: what is visible is ranked, by words, by meaning or by both, and nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import numpy as np
import pytest
from branchmem._core import rank_texts
from branchmem.errors import DimensionMismatch, InvalidDecay, InvalidSearch
from branchmem.events import Erasure, Retraction
from branchmem.recall import Hits, search
from branchmem.recall.index import index_of
from branchmem.reference.ranking import bm25
from searching import FORK, NOW, SIGNS, said


@pytest.fixture
def store() -> Iterator[bm.Store]:
    """A conversation with two branches below `u1`."""
    with bm.open_temporary() as store:
        store.append(FORK)
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
    assert hits != view.search("tea", by="lexical")  # which misses no embedder
    assert hits != list(hits)
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

    odd = (np.ones(64, complex), ["1"] * 64, np.array(["1"] * 64, object), np.array([None] * 64))
    for vector in ("tea", np.zeros((2, 64), np.float32), [math.nan] * 64, [["a"]], None, *odd):
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


def test_what_searches_keep_counts_in_the_memory_of_a_store(store: bm.Store) -> None:
    store.append(said(f"m{number}", f"tea number {number}") for number in range(100))
    before = store.memory_bytes
    store.at("u1").search("tea")
    words = store.memory_bytes - before
    store.embed_with(lambda texts: [[1.0] * 32 for _ in texts], name="ones")
    store.at("u1").search("tea")
    vectors = store.memory_bytes - before - words

    assert words >= 100 * 100
    assert vectors >= 100 * 32 * 4
