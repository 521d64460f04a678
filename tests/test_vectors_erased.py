"""What is erased has no vector any more: in the same commit, of every model, in the file and in its copies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.events import Erasure
from branchmem.recall.index import index_of
from branchmem.recall.vectors import space_of
from embedding import DRINKS, Words, fill, found, kept, many, place
from logs import in_child


def test_what_is_erased_loses_its_vectors_of_every_model_in_the_same_commit(path: Path) -> None:
    models = [Words("one"), Words("two", salt="two")]
    with bm.open(path) as store:
        fill(store, DRINKS)
        for model in models:
            found(store, "tea", embedder=model)
        gone, left = place(store, "tea"), {place(store, id) for id in DRINKS if id != "tea"}
        store.append([Erasure("e", ["tea"])])

        for model in models:
            assert kept(path, model.name).keys() == left
            assert "tea" not in found(store, "green tea", 9, embedder=model)
            assert model.times(DRINKS["tea"]) == 1
        assert gone not in left


def test_erasing_a_message_takes_the_vectors_of_all_that_came_from_it() -> None:
    with bm.open_temporary() as store:
        fill(store, DRINKS)
        store.append([bm.Memory("derived", "a summary", derived_from=["tea"])])
        store.embed_with(Words())
        assert store.embed_all() == 5
        store.append([Erasure("e", ["u"])])
        assert kept(store.path) == {}


def test_erased_vectors_are_nowhere_in_the_file_after_it_is_compacted(path: Path, tmp_path: Path) -> None:
    models = [Words("one"), Words("wide", dim=1_500, salt="w")]
    erased, left = [f"m{number}" for number in range(0, 300, 3)], ["m1", "m299"]
    with bm.open(path) as store:
        fill(store, many(300))
        for model in models:
            store.embed_with(model)
            store.embed_all()
        tables = [kept(path, model.name) for model in models]
        parts = {
            (id, model.name): table[place(store, id)].tobytes()[40:80]
            for id in (*erased, *left)
            for model, table in zip(models, tables, strict=True)
        }

        def holding(file: Path) -> set[tuple[str, str]]:
            held = file.read_bytes()
            return {row for row, part in parts.items() if part in held}

        assert holding(path) == set(parts)
        store.append([Erasure("e", erased)])
        assert all(len(kept(path, model.name)) == 200 for model in models)
        copy = Path(store.backup(tmp_path / "copy.bmem"))
        store.compact()
        assert holding(path) == holding(copy) == {row for row in parts if row[0] in left}


def test_a_process_that_never_saw_a_model_erases_its_vectors_too(path: Path) -> None:
    def embed_there() -> int:
        with bm.open(path) as store:
            store.embed_with(Words())
            return store.embed_all()

    with bm.open(path) as store:
        fill(store, DRINKS)
        assert in_child(embed_there) == "4"
        store.append([Erasure("e", ["tea"])])
        assert len(kept(path)) == 3


def test_a_table_that_is_made_just_before_a_commit_is_emptied_by_it(path: Path) -> None:
    """Another process makes the table between the last look at the file and the transaction."""
    embed_there = """
import sys, branchmem, embedding
with branchmem.open(sys.argv[1]) as store:
    store.embed_with(embedding.Words())
    sys.exit(store.embed_all() != 4)
"""
    with bm.open(path) as store:
        fill(store, DRINKS)
        file = store._log._file
        know, tables = file.know, list(file.tables)

        def late(*args: Any, **options: Any) -> None:
            know(*args, **options)
            file.know = know  # type: ignore[method-assign]
            subprocess.run([sys.executable, "-c", embed_there, path], cwd=Path(__file__).parent, check=True)
            assert list(file.tables) == tables

        file.know = late  # type: ignore[method-assign]
        store.append([Erasure("e", ["tea", "cat"])])
        assert len(kept(path)) == 2


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_is_erased_while_it_is_embedded_is_not_kept(path: Path, *, elsewhere: bool) -> None:
    def erase_there() -> None:
        with bm.open(path) as store:
            store.append([Erasure("e", ["tea"])])

    with bm.open(path) as store:
        fill(store, DRINKS)

        def slow(texts: list[str]) -> Any:
            if DRINKS["tea"] in texts:
                if elsewhere:
                    assert in_child(erase_there) == "None"
                else:
                    store.append([Erasure("e", ["tea"])])
            return Words()(texts)

        store.embed_with(slow, name="words")
        assert sorted(store.at("u").search("green tea", 9, by="vector").ids) == ["cat", "coffee", "train"]
        assert kept(path).keys() == {place(store, id) for id in ("coffee", "train", "cat")}
        assert "tea" not in space_of(store, index_of(store), store.embedder or slow).vectors.rows()[0]
