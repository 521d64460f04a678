"""Vectors: made once a text, and kept under the name of their model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import branchmem as bm
import lmdb
import numpy as np
import pytest
from branchmem.appending import vector_key
from branchmem.embedders import embed
from branchmem.errors import (
    BadEmbedding,
    DimensionMismatch,
    EmbedderMismatch,
    InvalidEmbedder,
    InvalidSearch,
    StoreDamaged,
    TooManyEmbedders,
)
from branchmem.log import Writer
from branchmem.log.tables import MAX_VECTOR_TABLES
from branchmem.recall.vectors import CANARY
from embedding import DIM, DRINKS, Words, another, fill, found, kept, many, place
from logs import in_child

# Made once


def test_each_text_is_embedded_once_whatever_is_searched_and_however_often_the_store_opens(path: Path) -> None:
    model = Words()
    for _ in range(2):
        with bm.open(path) as store:
            fill(store, DRINKS)
            store.embed_with(model)
            assert found(store, "green tea", 1) == ["tea"]
            assert found(store, "black coffee", 1) == ["coffee"]
    assert [model.times(text) for text in DRINKS.values()] == [1, 1, 1, 1]


def test_what_a_view_hides_is_not_embedded() -> None:
    model = Words()
    with bm.open_temporary() as store:
        fill(store, DRINKS)
        fill(store, {"secret": "a text of another conversation"}, at="other")
        store.embed_with(model)

        assert sorted(found(store, "text of another conversation", 9)) == sorted(DRINKS)
        assert model.times("a text of another conversation") == 0


def test_a_memory_is_found_by_meaning_as_soon_as_it_is_appended() -> None:
    model = Words()
    with bm.open_temporary() as store:
        fill(store, DRINKS)
        store.embed_with(model)
        assert found(store, "lives in Chengdu", 1) != ["home"]
        store.append([bm.Memory("home", "the user lives in Chengdu", sources=["u"])])
        assert found(store, "lives in Chengdu", 1) == ["home"]
        assert model.times(DRINKS["tea"]) == 1


def test_embed_all_embeds_what_is_lacking_and_tells_how_far_it_is() -> None:
    model, told = Words(), list[tuple[int, int]]()
    with bm.open_temporary() as store:
        with pytest.raises(InvalidSearch, match="embed_with"):
            store.embed_all()
        fill(store, many(600))
        fill(store, {"other": "of another conversation"}, at="v")
        store.embed_with(model)

        assert store.embed_all(lambda done, of: told.append((done, of))) == 601
        assert told == [(256, 601), (512, 601), (601, 601)]
        assert store.embed_all() == 0
        assert len(kept(store.path)) == 601
        assert model.times("of another conversation") == 1


def test_threads_that_search_at_once_embed_each_text_once() -> None:
    model, answers = Words(), list[list[str]]()
    with bm.open_temporary() as store:
        fill(store, many(600))
        store.embed_with(model)
        threads = [threading.Thread(target=lambda: answers.append(found(store, "about note 33"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answer[0] for answer in answers] == ["m33"] * 8
        assert max(model.times(text) for text in many(600).values()) == 1


def test_vectors_that_another_process_made_are_used(path: Path) -> None:
    def embed_there() -> int:
        with bm.open(path) as store:
            store.embed_with(Words())
            return store.embed_all()

    model = Words()
    with bm.open(path) as store:
        fill(store, DRINKS)
        store.embed_with(model)
        assert in_child(embed_there) == "4"
        assert found(store, "green tea", 1) == ["tea"]
        assert model.asked == [CANARY, "green tea"]


def test_an_embedder_of_one_call_does_not_become_that_of_the_store() -> None:
    with bm.open_temporary() as store:
        fill(store, DRINKS)
        assert found(store, "green tea", 1, embedder=Words()) == ["tea"]
        assert store.embedder is None
        hits = store.at("u").search("tea")
        assert (hits.rankers, hits.note) == (("lexical",), "lexical only: no embedder")


def test_an_embedder_under_a_given_name_keeps_its_vectors_there() -> None:
    with bm.open_temporary() as store:
        fill(store, DRINKS)
        store.embed_with(lambda texts: Words()(texts), name="mine")
        assert found(store, "green tea", 1) == ["tea"]
        assert len(kept(store.path, "mine")) == 4
        with pytest.raises(InvalidEmbedder, match=r"embedders\.named"):
            store.embed_with(lambda texts: Words()(texts))


# Two models never mix


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("readonly", [False, True])
def test_two_models_under_one_name_are_refused(path: Path, *, reopened: bool, readonly: bool) -> None:
    with bm.open(path) as store:
        fill(store, DRINKS)
        if reopened:
            found(store, "tea", embedder=Words())
    with bm.open(path, readonly=readonly) as store:
        if not reopened:
            found(store, "tea", embedder=Words())
        before = kept(path)
        with pytest.raises(EmbedderMismatch, match=r"'words' is not the model .* branchmem.embedders.named") as refused:
            found(store, "tea", embedder=Words(salt="another"))
        assert (refused.value.embedder, refused.value.similarity < 0.9) == ("words", True)
        with pytest.raises(DimensionMismatch, match="have 32 dimensions, this one has 48") as wider:
            found(store, "tea", embedder=Words(dim=48))
        assert (wider.value.embedder, wider.value.known, wider.value.given) == ("words", 32, 48)
        assert found(store, "green tea", 1, embedder=Words()) == ["tea"]
        assert found(store, "green tea", 1, embedder=another("else", Words(salt="another"))) == ["tea"]
        assert kept(path).keys() == before.keys()


def test_two_processes_do_not_mix_models_under_one_name(path: Path) -> None:
    def embed_there() -> int:
        with bm.open(path) as store:
            store.embed_with(Words())
            return store.embed_all()

    class Late(Words):
        """Another process comes first, after this one looked whether the name is taken."""

        def __call__(self, texts: list[str], /) -> Any:
            if texts[0] in DRINKS.values():
                assert in_child(embed_there) == "4"
            return super().__call__(texts)

    with bm.open(path) as store:
        fill(store, DRINKS)
        with pytest.raises(EmbedderMismatch):
            found(store, "tea", embedder=Late(salt="another"))
    rows = kept(path)
    assert len(rows) == 4
    assert any(np.allclose(row, unit(Words().vector(DRINKS["tea"]))) for row in rows.values())


def test_vectors_that_came_of_another_model_since_the_first_search_are_refused(path: Path) -> None:
    with bm.open(path) as store, bm.open(path) as elsewhere:
        fill(store, {})
        store.embed_with(Words())
        assert found(store, "green tea", 1) == []

        fill(elsewhere, DRINKS)
        elsewhere.embed_with(Words(salt="another"))
        assert len(found(elsewhere, "green tea", 1)) == 1
        with pytest.raises(EmbedderMismatch):
            found(store, "green tea", 1)
        store.embed_with(Words(salt="another"))
        assert found(store, "green tea", 1) == found(elsewhere, "green tea", 1)


def test_a_query_of_another_dimension_is_refused() -> None:
    with bm.open_temporary() as store:
        fill(store, DRINKS)
        model = bm.embedders.named("words", Words(), query=Words(dim=48))
        with pytest.raises(DimensionMismatch):
            found(store, "tea", embedder=model)
        with pytest.raises(DimensionMismatch):
            store.at("u").nearest(np.ones(48, np.float32), embedder=Words())


def test_a_query_of_numbers_beyond_a_float_is_refused() -> None:
    with bm.open_temporary() as store:
        fill(store, DRINKS)
        vector: Any = [10**400] * 64
        with pytest.raises(InvalidSearch, match="vector="):
            store.at("u").nearest(vector, embedder=Words())


def test_a_file_keeps_the_vectors_of_sixteen_models() -> None:
    with bm.open_temporary() as store:
        fill(store, DRINKS)
        for number in range(MAX_VECTOR_TABLES):
            found(store, "tea", embedder=Words(f"model-{number}"))
        with pytest.raises(TooManyEmbedders, match="model-0, model-1") as refused:
            found(store, "tea", embedder=Words("one-more"))
        assert (refused.value.embedder, len(refused.value.names)) == ("one-more", MAX_VECTOR_TABLES)
        assert found(store, "green tea", 1, embedder=Words("model-3")) == ["tea"]
        store.refs.create("main", "u")
        assert store.check().ok


# What an embedder does wrong


def test_what_was_done_stays_where_an_embedder_fails_half_way() -> None:
    model = Words()
    with bm.open_temporary() as store:
        fill(store, many(600))
        store.embed_with(model)
        model.fails_at = many(600)["m300"]
        with pytest.raises(ConnectionError, match="away"):
            store.embed_all()
        assert len(kept(store.path)) == 256
        model.fails_at = None
        assert store.embed_all() == 344
        assert max(model.times(text) for text in many(600).values()) == 1


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (lambda rows: rows[:-1], r"the shape \(3, 32\) for 4 texts"),
        (lambda rows: rows[0], r"the shape \(32,\)"),
        (lambda rows: rows[:, :0], r"the shape \(4, 0\)"),
        (lambda rows: np.where(rows == rows[1, 1], np.nan, rows), "NaN"),
        (lambda rows: np.where(rows == rows[1, 1], np.inf, rows), "NaN, or a number beyond"),
        (lambda rows: rows.astype(np.float64) * 1e300, "beyond what float32 can hold"),
        (lambda rows: rows.astype(str), "ndarray of <U"),
        (lambda rows: rows > 0, "ndarray of bool"),
        (lambda rows: rows.astype(complex), "complex"),
        (lambda rows: [list(rows[0]), list(rows[1])[1:], *map(list, rows[2:])], "list of no one shape"),
        (lambda rows: None, "NoneType of object"),
    ],
)
def test_what_is_no_vector_a_text_is_refused_and_not_kept(output: Callable[[Any], Any], why: str) -> None:
    model = Words()

    def bad(texts: list[str]) -> Any:
        rows = model(texts)
        return output(rows) if len(texts) == 4 else rows

    with bm.open_temporary() as store:
        fill(store, DRINKS)
        store.embed_with(bad, name="words")
        with pytest.raises(BadEmbedding, match=why) as refused:
            store.embed_all()
        assert refused.value.embedder == "words"
        assert kept(store.path) == {}


@pytest.mark.parametrize("kind", [np.float16, np.float64, list])
def test_other_numbers_are_taken_as_float32(kind: Any) -> None:
    def model(texts: list[str]) -> Any:
        rows = Words()(texts)
        return rows.tolist() if kind is list else rows.astype(kind)

    with bm.open_temporary() as store:
        fill(store, DRINKS)
        store.embed_with(model, name="words")
        assert found(store, "green tea", 1) == ["tea"]


def test_a_text_without_a_vector_has_the_cosine_0() -> None:
    with bm.open_temporary() as store:
        fill(store, {**DRINKS, "empty": ""})
        hits = store.at("u").search("green tea", 9, by="vector", embedder=Words())
        assert hits.ids == [*hits.ids]
        assert {hit.id: hit.score for hit in hits}["empty"] == 0


# On disk


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def test_vectors_keep_their_bytes(path: Path) -> None:
    with bm.open(path) as store:
        fill(store, DRINKS)
        found(store, "tea", embedder=Words())
        seq = place(store, "tea")
    env = lmdb.Environment(str(path), subdir=False, max_dbs=32, lib_version=0)
    with env.begin() as txn:
        table = env.open_db(b"vectors:words", txn=txn, create=False)
        records = dict(txn.cursor(table))
    env.close()
    assert len(records) == 1 + len(DRINKS)
    expected = unit(Words().vector(DRINKS["tea"]).astype(np.float64)).astype("<f4").tobytes()
    assert records[b"v" + seq.to_bytes(8, "big")][4:] == expected
    assert len(records[b"meta"][4:]) == 4 * DIM
    assert np.allclose(np.frombuffer(records[b"meta"][4:], "<f4"), unit(Words().vector(CANARY)), atol=1e-6)


def test_a_readonly_store_is_searched_by_meaning_and_its_file_stays_as_it_is(path: Path) -> None:
    with bm.open(path) as store:
        fill(store, DRINKS)
    before, model = path.read_bytes(), Words()
    with bm.open(path, readonly=True) as store:
        store.embed_with(model)
        assert [found(store, "green tea", 1) for _ in range(2)] == [["tea"], ["tea"]]
        assert store.embed_all() == 0
        assert model.times(DRINKS["tea"]) == 1
    assert path.read_bytes() == before


def test_inside_a_transaction_vectors_are_kept_in_memory_alone() -> None:
    with bm.open_temporary() as store:
        fill(store, DRINKS)
        store.embed_with(Words())
        _, inside = store.transact(lambda writer: ((), found(store, "green tea", 1)), tables=[])
        assert inside == ["tea"]
        assert kept(store.path) == {}


def test_a_vector_whose_bytes_were_changed_is_damage(path: Path) -> None:
    with bm.open(path) as store:
        fill(store, DRINKS)
        found(store, "tea", embedder=Words())
        seq = place(store, "tea")

    def cut(writer: Writer) -> tuple[tuple[()], None]:
        writer.table("vectors:words").put(vector_key(seq), b"\0" * 4 * (DIM - 1))
        return (), None

    with bm.open(path) as store:
        store.transact(cut, tables=["vectors:words"])
        with pytest.raises(StoreDamaged, match="a vector of embedder words has 124 bytes"):
            found(store, "tea", embedder=Words())


def test_copies_carry_vectors_along(path: Path, tmp_path: Path) -> None:
    with bm.open(path) as store:
        fill(store, DRINKS)
        found(store, "tea", embedder=Words())
        store.compact()
        copy = store.backup(tmp_path / "copy.bmem")
        assert found(store, "green tea", 1, embedder=Words()) == ["tea"]
    model = Words()
    with bm.open(copy, verify=True) as store:
        assert found(store, "green tea", 1, embedder=model) == ["tea"]
        assert store.check().ok
    assert model.asked == [CANARY, "green tea"]


def test_a_log_that_was_searched_by_meaning_has_the_digest_of_one_that_was_not(path: Path) -> None:
    with bm.open(path) as store, bm.open_temporary() as plain:
        for each in (store, plain):
            fill(each, DRINKS)
        found(store, "tea", embedder=Words())
        assert store.digest() == plain.digest()


def test_embed_asks_nothing_for_no_text() -> None:
    model = Words()
    assert embed(model, [], 7).shape == (0, 7)
    assert model.asked == []
