"""What goes: stores of a pool that are deleted, a pool that is closed, and what a fork inherits of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.errors import Error, StoreLocked
from branchmem.log import place
from logs import in_child
from pools import Holder, descriptors, held, told, until, waiting


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pool"


# Listing and deleting


def test_owners_are_listed_in_pages_and_strangers_are_not(folder: Path) -> None:
    owners = {f"owner {number}" for number in range(40)}
    with bm.Pool(folder, max_open=4) as pool:
        for owner in owners:
            told(pool, owner)
        for stranger in ("00/stranger.bmem", "zz/alice.bmem", "00/alice.txt", "alice.bmem"):
            (folder / stranger).parent.mkdir(exist_ok=True)
            (folder / stranger).touch()
        everybody = list(pool.owners())
        assert set(everybody) == owners
        assert len(everybody) == len(owners)
        pages: list[list[str]] = [list(pool.owners(limit=7))]
        while page := list(pool.owners(after=pages[-1][-1], limit=7)):
            pool.delete(pages[-1][-1])  # the next page does not hang on the last of this one
            pages.append(page)
        assert [owner for page in pages for owner in page] == everybody
        assert list(pool.owners(limit=0)) == []
        with pytest.raises(bm.InvalidOwner):
            pool.owners(after="")


def test_a_deleted_store_is_gone_with_all_that_lay_beside_it(folder: Path) -> None:
    with bm.Pool(folder) as pool:
        told(pool, "alice", "m")
        told(pool, "bob", "m")
        assert pool.delete("alice")
        assert not pool.delete("alice")
        assert not pool.delete("nobody")
        assert list(pool.owners()) == ["bob"]
        assert list(Path(pool.path("alice")).parent.glob("alice*")) == []
        told(pool, "alice", "another")
        assert held(pool, "alice") == ["another"]


def test_what_a_cut_short_deletion_left_is_removed_by_the_next(folder: Path) -> None:
    with bm.Pool(folder) as pool:
        told(pool, "alice", "m")
        path = Path(pool.path("alice"))
    with bm.Pool(folder) as pool:
        path.unlink()
        assert list(path.parent.iterdir()) != []
        assert not pool.delete("alice")
        assert list(path.parent.iterdir()) == []


def test_a_store_in_use_is_not_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.02)
    with bm.Pool(folder) as pool:
        with pool.open("alice") as store:
            store.append([bm.Message("m", None)])
            with pytest.raises(bm.StoreLocked, match="leased"):
                pool.delete("alice")
        with bm.Pool(folder) as other, other.open("alice"), pytest.raises(bm.StoreLocked):
            pool.delete("alice")
        assert held(pool, "alice") == ["m"]
        told(pool, "bob", "m")
        with bm.open(pool.path("bob")) as elsewhere:
            assert in_child(lambda: bm.delete(elsewhere.path)).startswith("StoreLocked")
        assert set(pool.owners()) == {"alice", "bob"}


def test_a_store_without_a_pool_is_deleted_in_the_same_way(path: Path) -> None:
    with bm.open(path) as store:
        assert not store.closed
        with pytest.raises(StoreLocked, match="it is held, in this process or in another"):
            bm.delete(path)
    assert store.closed
    path.with_name("alice.bmem-draft").touch()
    assert bm.delete(path)
    assert list(path.parent.iterdir()) == []
    assert not bm.delete(path)
    assert not bm.delete(path / "no folder" / "alice.bmem")
    path.symlink_to("elsewhere")
    with pytest.raises(Error, match="symbolic link"):
        bm.delete(path)


def test_who_asks_during_a_deletion_gets_an_empty_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted = bm.delete
    started, go = threading.Event(), threading.Event()

    def slowly(path: Any) -> bool:
        started.set()
        go.wait()
        return deleted(path)

    with bm.Pool(folder, max_open=1) as pool:
        told(pool, "alice", "m")
        monkeypatch.setattr(bm, "delete", slowly)
        deleting = threading.Thread(target=pool.delete, args=("alice",))
        deleting.start()
        started.wait()
        holder = Holder(pool, "alice")
        until(waiting(pool, 1))
        with pytest.raises(bm.StoreLocked):
            pool.delete("alice")
        go.set()
        until(holder.has.is_set)
        holder.end()
        deleting.join()
        assert held(pool, "alice") == []
        assert pool.stats().open == 1


# The end


def test_a_closed_pool_refuses_and_so_does_what_it_leased(folder: Path) -> None:
    pool = bm.Pool(folder, max_open=1)
    with pool.open("alice") as store:
        waits = Holder(pool, "bob")
        until(waiting(pool, 1))
        pool.close()
        with pytest.raises(bm.StoreClosed, match="the pool is closed"):
            waits.end()
        with pytest.raises(bm.StoreClosed):
            store.append([bm.Message("m", None)])
    pool.close()
    for use in (lambda: pool.open("alice").__enter__(), pool.owners, lambda: pool.delete("alice")):
        with pytest.raises(bm.StoreClosed, match="the pool is closed"):
            use()
    assert pool.stats().open == 0


def test_a_store_that_is_being_opened_while_the_pool_is_closed_is_closed_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = bm.open
    stores: list[bm.Store] = []
    started, go = threading.Event(), threading.Event()

    def slowly(path: Any, *, create: bool) -> bm.Store:
        started.set()
        go.wait()
        stores.append(opened(path, create=create))
        return stores[-1]

    monkeypatch.setattr(bm, "open", slowly)
    pool = bm.Pool(folder)
    holder = Holder(pool, "alice")
    started.wait()
    pool.close()
    go.set()
    with pytest.raises(bm.StoreClosed, match="the pool is closed"):
        holder.end()
    assert stores[0].closed


def test_a_pool_that_is_closed_while_it_makes_room_counts_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = bm.Pool(folder, max_memory=0)
    with pool.open("alice") as store:
        closed = store.close

        def close() -> None:
            pool.close()
            closed()

        monkeypatch.setattr(store, "close", close)
    assert store.closed
    assert (pool.stats().open, pool.stats().memory_bytes) == (0, 0)


def test_a_pool_leaves_no_descriptor_behind(folder: Path) -> None:
    before = descriptors()
    with bm.Pool(folder, max_open=3) as pool:
        for number in range(10):
            told(pool, f"o{number}", "m")
        assert descriptors() <= before + 3 * 5
    assert descriptors() == before


def test_a_fork_may_not_use_the_pool_and_does_no_harm_to_it(folder: Path) -> None:
    with bm.Pool(folder) as pool, pool.open("alice") as store:
        store.append([bm.Message("m", None)])

        def child() -> str:
            said = []
            for use in (lambda: held(pool, "alice"), pool.owners, lambda: pool.delete("alice"), pool.stats):
                try:
                    use()
                    said.append("used")
                except bm.StoreForked:
                    said.append("refused")
            pool.close()
            with bm.Pool(folder) as own:
                told(own, "alice", "child")
            return " ".join(said)

        with pool._seats._lock:  # as when a thread of the parent held it at that moment
            assert in_child(child) == "refused refused refused refused"
        assert held(pool, "alice") == ["m", "child"]


def test_a_lease_that_ends_in_the_child_of_a_fork_ends_quietly(folder: Path) -> None:
    with bm.Pool(folder, max_open=1) as pool:
        lease = pool.open("alice")
        lease.__enter__()
        assert in_child(lambda: lease.__exit__()) == "None"
        assert pool.stats().pinned == 1
        lease.__exit__()
        told(pool, "bob", "m")
