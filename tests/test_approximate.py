"""Neighbours through a graph: exact where a view shows little, nearly so elsewhere, and nothing hidden."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import branchmem as bm
import numpy as np
import pytest
from branchmem.errors import ExtraMissing
from branchmem.events import Erasure
from branchmem.recall import approximate, vectors
from branchmem.recall.index import index_of
from branchmem.recall.vectors import Space
from embedding import Words
from figures import Quote
from numpy.typing import NDArray

SEED = 20260811
DIM = 32
#: How many memories hang on each message of a path: what a view shows grows from a small share to all.
STEPS = {"u1": 20, "u2": 260, "u3": 620, "u4": 2_100}
COUNT = sum(STEPS.values())


class Points:
    """A model that knows its texts by number: "n 17" is the seventeenth of a cloud of points."""

    name = "points"

    def __init__(self, count: int) -> None:
        chance = np.random.default_rng(SEED)
        centres = chance.standard_normal((40, DIM))
        self.rows = (centres[chance.integers(0, 40, count)] + 0.5 * chance.standard_normal((count, DIM))).astype("f4")

    def __call__(self, texts: list[str], /) -> NDArray[np.float32]:
        """The vectors of some texts; of others than these the last one."""
        numbers = [int(text.partition(" ")[2]) if text.startswith("n ") else -1 for text in texts]
        return np.array([self.rows[number % len(self.rows)] for number in numbers])


@pytest.fixture(scope="module", autouse=True)
def _faiss() -> None:
    pytest.importorskip("faiss").omp_set_num_threads(1)


@pytest.fixture(scope="module")
def cloud() -> Iterator[tuple[bm.Store, Points]]:
    """A store on one path, searched approximately."""
    model = Points(COUNT)
    with bm.open_temporary() as store:
        fill(store)
        store.embed_with(model, approximate=True)
        store.embed_all()
        yield store, model


def fill(store: bm.Store) -> None:
    above, number = None, 0
    for message, count in STEPS.items():
        store.append([bm.Message(message, above)])
        store.append([bm.Memory(f"m{at}", f"n {at}", sources=[message]) for at in range(number, number + count)])
        above, number = message, number + count


def queries(count: int = 20) -> NDArray[np.float32]:
    chance = np.random.default_rng(SEED + 1)
    rows = Points(COUNT).rows
    near = rows[chance.integers(0, len(rows), count)] + 0.3 * chance.standard_normal((count, DIM))
    return near.astype(np.float32)


def space(store: bm.Store, model: Any) -> Space:
    return vectors.space_of(store, index_of(store), model)


def exact(store: bm.Store, model: Any, anchor: str, vector: NDArray[np.float32], k: int) -> list[tuple[str, float]]:
    view = store.at(anchor)
    found = vectors.prepare(store, index_of(store), model, view).nearest(view, vector, k)
    assert found is not None
    return found


def through_graph(store: bm.Store, model: Any, anchor: str, vector: Any, k: int) -> list[tuple[str, float]] | None:
    index = index_of(store)
    return approximate.nearest(store, index, model, index.current(), store.at(anchor), vector, k)


@pytest.mark.parametrize("anchor", ["u1", "u2"])
def test_where_little_is_visible_the_answer_is_the_exact_one(cloud: tuple[bm.Store, Points], anchor: str) -> None:
    store, model = cloud
    for vector in queries(5):
        assert through_graph(store, model, anchor, vector, 10) is None
        assert store.at(anchor).nearest(vector, 10) == exact(store, model, anchor, vector, 10)
        by_meaning = store.at(anchor).search("n 7", 10, by="vector")
        assert by_meaning.ids == store.at(anchor).search("n 7", 10, by="vector", embedder=another(model)).ids


def another(model: Points) -> Any:
    """The same model under a name for which there is no graph."""
    return bm.embedders.named("exactly", model)


def test_recall_where_more_is_visible(cloud: tuple[bm.Store, Points], quote: Quote) -> None:
    store, model = cloud
    said = []
    for anchor in ("u3", "u4"):
        shown = set(store.at(anchor).ids())
        hits, asked = 0, queries(40)
        for vector in asked:
            near = store.at(anchor).nearest(vector, 10)
            expected = exact(store, model, anchor, vector, 10)
            assert len(near) == 10
            assert {id for id, _ in near} <= shown
            assert through_graph(store, model, anchor, vector, 10) == near, "the graph was not asked"
            hits += len(dict(near).keys() & dict(expected).keys())
            scores = dict(expected)
            assert all(score == scores.get(id, score) for id, score in near)
        recall = hits / (10 * len(asked))
        assert recall >= 0.99, f"{anchor}: recall@10 = {recall}, seed {SEED}"
        said.append(f"{recall:.3f} with {len(shown) / COUNT:.0%} visible")
    quote(f"approximate: recall@10 {', '.join(said)} of {COUNT:,} vectors")


def test_a_fused_search_ranks_as_the_exact_one_does(cloud: tuple[bm.Store, Points]) -> None:
    store, model = cloud
    for number in (3, 777, 2_999):
        query = f"n {number}"
        through = store.at("u4").search(query, 10)
        plain = store.at("u4").search(query, 10, embedder=another(model))
        assert [(hit.id, hit.score, hit.ranks) for hit in through] == [
            (hit.id, hit.score, hit.ranks) for hit in plain
        ], f"seed {SEED}"
        assert through.rankers == ("lexical", "vector")
        assert [hit.scores["vector"] for hit in through if "vector" in hit.scores] == pytest.approx(
            [hit.scores["vector"] for hit in plain if "vector" in hit.scores], abs=1e-6
        )


def test_where_too_few_are_nominated_all_are_compared(cloud: tuple[bm.Store, Points]) -> None:
    store, model = cloud
    index, view = index_of(store), store.at("u4")
    asked: dict[str, Any] = {"vectors": vectors.prepare(store, index, model, view), "vector": queries(1)[0]}

    def found(near: Any) -> list[tuple[str, float]]:
        ranked, _ = index.current().search(view, None, 10, near=near, **asked)
        return [(one.id, one.score) for one in ranked]

    shown = view.ordinals()
    assert found(shown[:5]) == found(None) != []
    within = {store.memory_ids[at] for at in shown[:500]}
    assert {id for id, _ in found(shown[:500])} <= within
    assert found(shown[:500]) != found(None)
    assert view.search("n 3", 10, kind="no such kind").ids == []


def test_what_came_after_the_graph_was_made_is_found_at_once() -> None:
    model = Points(COUNT + 50)
    with bm.open_temporary() as store:
        fill(store)
        store.embed_with(model, approximate=True)
        store.at("u4").nearest(queries(1)[0])
        made = space(store, model).graph
        assert made is not None
        later = range(COUNT, COUNT + 50)
        store.append([bm.Memory(f"m{at}", f"n {at}", sources=["u4"]) for at in later])
        for at in later:
            assert store.at("u4").nearest(model.rows[at], 1)[0][0] == f"m{at}"
        assert space(store, model).graph is made
        assert len(made) == COUNT


def test_a_graph_takes_in_what_came_later_once_that_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "_LATER_LEAST", 10)
    monkeypatch.setattr(approximate, "_LATER_SHARE", 0.0)
    model = Points(1_100)
    with bm.open_temporary() as store:
        store.append([bm.Message("u", None), *(bm.Memory(f"m{at}", f"n {at}", sources=["u"]) for at in range(1_000))])
        store.embed_with(model, approximate=True)
        store.at("u").nearest(model.rows[0])
        store.append([bm.Memory(f"m{at}", f"n {at}", sources=["u"]) for at in range(1_000, 1_100)])
        assert store.at("u").nearest(model.rows[1_050], 1)[0][0] == "m1050"
        graph = space(store, model).graph
        assert graph is not None
        assert len(graph) == 1_100


def test_what_is_erased_is_gone_from_the_graph() -> None:
    model = Points(COUNT)
    with bm.open_temporary() as store:
        fill(store)
        store.embed_with(model, approximate=True)
        view = store.at("u4")
        assert view.nearest(model.rows[2_900], 1)[0][0] == "m2900"
        before = space(store, model).graph
        store.append([Erasure("e", ["m2900"])])
        for shown in (view, store.at("u4")):
            assert "m2900" not in dict(shown.nearest(model.rows[2_900], 10))
            assert "m2900" not in shown.search("n 2900", 10).ids
        after = space(store, model).graph
        assert after is not None
        assert after is not before
        assert len(after) == COUNT - 1


def test_a_small_store_has_no_graph() -> None:
    model = Words()
    with bm.open_temporary() as store:
        store.append([bm.Message("u", None), *(bm.Memory(f"m{at}", f"n {at}", sources=["u"]) for at in range(500))])
        store.embed_with(model, approximate=True)
        assert store.at("u").nearest(model.vector("n 33"), 1)[0][0] == "m33"
        assert space(store, model).graph is None


def test_faded_memories_are_left_out() -> None:
    late = datetime(2100, 1, 1, tzinfo=UTC)
    with bm.open_temporary() as old:
        model = Points(1_500)
        made = datetime(2026, 1, 1, tzinfo=UTC)
        old.append([bm.Message("u", None)])
        old.append(
            [bm.Memory(f"m{at}", f"n {at}", sources=["u"], created=made if at % 2 else None) for at in range(1_500)]
        )
        old.embed_with(model, approximate=True)
        hits = old.at("u").search("n 33", 10, now=late)
        assert hits.faded == 750
        assert all(int(id[1:]) % 2 == 0 for id in hits.ids)
        assert len(hits) == 10


def test_without_the_package_it_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with bm.open_temporary() as store:
        with pytest.raises(ExtraMissing, match=r"pip install 'branchmem\[faiss\]'"):
            store.embed_with(Words(), approximate=True)
        assert store.embedder is None
