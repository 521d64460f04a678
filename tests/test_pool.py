"""A pool: a store that is leased stays open, the others go when room is wanted, and who waits is served in turn."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.errors import Error
from pools import Holder, held, told, until, waiting

FEW_DESCRIPTORS = """
import contextlib, resource, sys
import branchmem as bm

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
with bm.Pool(sys.argv[1], max_open=256) as pool:
    most = pool.stats().max_open
    with contextlib.ExitStack() as leases:
        for number in range(most):
            leases.enter_context(pool.open(f"o{number}"))
        print(pool.stats().pinned, "leased, ", end="")
    for number in range(2 * most):
        with pool.open(f"o{number}") as store:
            store.append([bm.Message("m", None)])
    print(pool.stats().open, "open")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pool"


# Leases


def test_each_owner_has_a_store_of_his_own(folder: Path) -> None:
    with bm.Pool(folder) as pool:
        for owner in ("alice", "Alice", "bob"):
            told(pool, owner, owner)
    with bm.Pool(folder) as pool:
        assert [held(pool, owner) for owner in ("alice", "Alice", "bob")] == [["alice"], ["Alice"], ["bob"]]
        path = Path(pool.path("alice"))
    assert (path.parent.parent, path.name) == (folder, "alice.bmem")
    with bm.open(path) as store:
        assert "alice" in store.log
    assert [entry.stat().st_mode & 0o777 for entry in (folder, path.parent, path)] == [0o700, 0o700, 0o600]


def test_leases_on_one_owner_share_a_store_also_inside_each_other(folder: Path) -> None:
    with bm.Pool(folder, max_open=1) as pool:
        lease = pool.open("alice")
        with lease as one, pool.open("alice") as other, lease as again:
            assert one is other is again
            assert pool.stats().pinned == 1
        assert pool.stats().pinned == 0
        with pool.open("alice") as later:
            assert later is one
        assert (pool.stats().opened, pool.stats().hits) == (1, 3)


def test_nothing_is_opened_before_a_lease_is_entered(folder: Path) -> None:
    with bm.Pool(folder) as pool:
        pool.open("alice")
        assert pool.stats().open == 0
        assert list(pool.owners()) == []


def test_an_owner_without_a_store_is_told_apart_on_demand(folder: Path) -> None:
    with bm.Pool(folder) as pool:
        for _ in range(2):
            with pytest.raises(bm.StoreMissing), pool.open("alice", create=False):
                pass
            told(pool, "bob")
        assert list(pool.owners()) == ["bob"]
        assert pool.stats().open == 1


def test_a_store_closed_in_a_lease_is_opened_anew_for_the_next(folder: Path) -> None:
    with bm.Pool(folder, max_open=1) as pool:
        with pool.open("alice") as store:
            store.close()
            with pool.open("alice", timeout=0) as nested:
                assert nested is not store
        told(pool, "alice", "m")
        with pool.open("alice") as store:
            store.close()
        assert held(pool, "alice") == ["m"]
        assert pool.stats().open == 1


def test_a_store_that_cannot_be_opened_keeps_no_room(folder: Path) -> None:
    with bm.Pool(folder, max_open=1) as pool:
        told(pool, "alice", "m")
        told(pool, "bob", "m")
        path = Path(pool.path("alice"))
        whole = path.read_bytes()
        path.write_bytes(b"damaged")
        for _ in range(2):
            with pytest.raises(bm.StoreDamaged), pool.open("alice"):
                pass
        assert held(pool, "bob") == ["m"]
        path.write_bytes(whole)
        assert held(pool, "alice") == ["m"]


# Room


def test_the_least_recently_used_store_is_closed_for_another(folder: Path) -> None:
    with bm.Pool(folder, max_open=2) as pool:
        with pool.open("a") as a, pool.open("b") as b:
            pass
        with pool.open("a"):
            pass
        with pool.open("c") as c:
            assert [store.closed for store in (a, b, c)] == [False, True, False]
        assert (pool.stats().open, pool.stats().opened, pool.stats().evicted) == (2, 3, 1)


def test_a_store_that_was_closed_for_another_takes_no_more_memory(folder: Path) -> None:
    with bm.Pool(folder, max_open=1) as pool:
        with pool.open("a") as store:
            gone = weakref.ref(store)
        del store
        with pool.open("b"):
            gc.collect()
            assert gone() is None


def test_a_leased_store_is_never_closed_for_another(folder: Path) -> None:
    with bm.Pool(folder, max_open=2) as pool, pool.open("a") as a:
        for number in range(5):
            told(pool, f"b{number}", "m")
            assert not a.closed
            assert pool.stats().open <= 2


def test_where_all_are_leased_a_lease_waits_and_says_so_in_the_end(folder: Path) -> None:
    with bm.Pool(folder, max_open=2) as pool, pool.open("a"), pool.open("b"):
        with (
            pytest.raises(bm.PoolBusy, match=r"all 2 that may be open are leased: .*max_open") as raised,
            pool.open("c", timeout=0.01),
        ):
            pass
        assert (raised.value.owner, raised.value.max_open, raised.value.seconds) == ("c", 2, 0.01)
        with pool.open("a", timeout=0):  # what is open is there at once
            pass
        assert (pool.stats().waiting, pool.stats().waits, pool.stats().open) == (0, 1, 2)


def test_room_is_given_in_order_of_arrival(folder: Path) -> None:
    with bm.Pool(folder, max_open=1) as pool:
        holders = [Holder(pool, "a")]
        holders[0].has.wait()
        for number, owner in enumerate("bcdb", 1):
            holders.append(Holder(pool, owner))
            until(waiting(pool, number))
        a, b, c, d, again = holders
        a.end()
        until(b.has.is_set)
        until(again.has.is_set)  # who waits for the same store gets it too
        assert [c.has.is_set(), d.has.is_set()] == [False, False]
        b.end()
        assert not c.has.is_set()
        again.end()
        until(c.has.is_set)
        c.end()
        d.end()
        assert pool.stats().waits == 4


def test_who_gives_up_waiting_is_passed_over(folder: Path) -> None:
    with bm.Pool(folder, max_open=1) as pool:
        a = Holder(pool, "a")
        a.has.wait()
        for _ in range(2):
            with pytest.raises(bm.PoolBusy), pool.open("b", timeout=0.01):
                pass
        c = Holder(pool, "c")
        until(waiting(pool, 1))
        a.end()
        until(c.has.is_set)
        c.end()
        told(pool, "b", "m")


def test_who_waits_for_a_store_that_fails_tries_himself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = bm.open
    tries: list[bool] = []
    go = threading.Event()

    def once_damaged(path: Any, *, create: bool) -> bm.Store:
        tries.append(create)
        if len(tries) == 1:
            go.wait()
            raise bm.StoreDamaged(path, "as told")
        return opened(path, create=create)

    monkeypatch.setattr(bm, "open", once_damaged)
    with bm.Pool(folder, max_open=1) as pool:
        first = Holder(pool, "a")
        until(lambda: tries)
        others = [Holder(pool, "a") for _ in range(3)]
        until(waiting(pool, 3))
        go.set()
        with pytest.raises(bm.StoreDamaged):
            first.end()
        for other in others:
            until(other.has.is_set)
            other.end()
        assert len(tries) == 2


def test_unused_stores_are_closed_while_all_hold_too_much(folder: Path) -> None:
    with bm.Pool(folder) as pool:
        told(pool, "a", *(f"m{at}" for at in range(1000)))
        small = pool.stats().memory_bytes
    assert small >= 1000 * 100
    with bm.Pool(folder, max_memory=2 * small) as pool:
        for number in range(5):
            told(pool, f"b{number}", "m")
        assert 1 <= pool.stats().open < 5
        assert pool.stats().memory_bytes <= 2 * small
        assert pool.stats().evicted == 5 - pool.stats().open
        with pool.open("b0"), pool.open("b1"), pool.open("b2"), pool.open("b3"):
            assert pool.stats().pinned == 4  # what is in use is not bounded
        assert pool.stats().memory_bytes <= 2 * small
    with bm.Pool(folder, max_memory=0) as pool:
        told(pool, "a", "one more")
        assert (pool.stats().open, pool.stats().memory_bytes) == (0, 0)


def test_no_more_are_open_than_the_limit_of_descriptors_bears(folder: Path) -> None:
    # In a process of its own, as a fork would have whatever this one has open.
    opened = subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS, str(folder)], capture_output=True, text=True, timeout=60
    )
    assert (opened.stdout, opened.returncode) == ("22 leased, 22 open\n", 0), opened.stderr


def test_it_is_said_where_less_fit_than_were_asked_for(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with bm.Pool(folder, max_open=8):
        assert caplog.messages == []
    with bm.Pool(folder, max_open=1 << 30) as pool:
        assert 1 <= pool.stats().max_open < 1 << 30
        assert "ulimit -n" in caplog.text


@pytest.mark.soak
def test_more_stores_can_be_open_than_a_process_has_keys_for_its_threads(
    folder: Path, figure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has 1,024 keys; an engine that took one a file would fail here."""
    import resource

    count = figure(60, 1_100)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 1 << 16, hard))
    try:
        with bm.Pool(folder, max_open=count, max_memory=1 << 40) as pool:
            if pool.stats().max_open < count:
                pytest.skip("the limit of descriptors is too low here")
            leases = [pool.open(f"o{number}") for number in range(count)]
            stores = [lease.__enter__() for lease in leases]
            for number, store in enumerate(stores):
                store.append([bm.Message(f"m{number}", None)])
            assert pool.stats().pinned == count
            assert all([event.id for event in store.log.events()] == [f"m{at}"] for at, store in enumerate(stores))
            for lease in leases:
                lease.__exit__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("wrong", [{"max_open": 0}, {"max_open": 1.5}, {"max_memory": -1}])
def test_a_pool_without_room_is_refused(folder: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        bm.Pool(folder, **wrong)
    assert not folder.exists()


@pytest.mark.parametrize("limit", [-1, "1", 0.5])
def test_a_limit_of_owners_is_a_number_of_them(folder: Path, limit: Any) -> None:
    with bm.Pool(folder) as pool:
        assert list(pool.owners(limit=2**70)) == []
        with pytest.raises(ValueError, match="limit is a number of owners"):
            pool.owners(limit=limit)


@pytest.mark.parametrize("name", ["file", "file/pool", "no folder/pool"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Error, match="folder of the pool cannot be made"):
        bm.Pool(tmp_path / name)
