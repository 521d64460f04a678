"""What a search holds keeps up with its log: whoever appends or erases, in this process or another, in any thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import branchmem as bm
import numpy as np
import pytest
from branchmem.errors import StoreClosed
from branchmem.eventlog import body_of
from branchmem.events import Erasure
from branchmem.recall.index import index_of
from searching import FORK, NOW, said


@pytest.fixture
def store() -> Iterator[bm.Store]:
    """A conversation with two branches below `u1`."""
    with bm.open_temporary() as store:
        store.append(FORK)
        yield store


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


def test_what_this_store_appends_is_not_read_again(store: bm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def body_and_more(engine: Any, reader: Any, id: str, seq: int) -> bytes | None:
        read.append(id)
        return body_of(engine, reader, id, seq)

    monkeypatch.setattr("branchmem.recall.index.body_of", body_and_more)
    store.append([said("a", "green tea")])
    assert store.at("u1").search("tea").ids == ["a"]
    store.append([said("b", "black tea"), bm.Message("more", "u1"), said("c", "tea", at="more")])
    assert store.at("more").search("tea").ids == ["c", "a", "b"]

    assert read == ["a"]


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
