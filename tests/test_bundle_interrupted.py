"""A trusted bundle that is stopped on its way, or raced by another: what is left is sound, told, and goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import branchmem as bm
import pytest
from branchmem import Memory, Message
from branchmem.bundle import Base, BundleFile
from branchmem.canonical import new_id
from branchmem.errors import BundleRefused, EventConflict, MergeConflict
from branchmem.events import Erasure, Event, Retraction
from bundle_files import ORIGIN, records, written
from travels import ALICE, CHAT, ids, opened

MANY: list[Event] = [Message(f"m{number}", None, text="x" * 50) for number in range(30)]


@pytest.fixture
def bob(tmp_path: Path) -> Iterator[bm.Store]:
    """A store that trusts Alice's key, and commits a few events at a time."""
    with opened(tmp_path, "bob") as (store,), patch("branchmem.bundle.joining._BATCH", 5):
        store.pins.pin(ALICE.public, "alice")
        yield store


def sent(tmp_path: Path, events: list[Event], bare: list[Event] | None = None, **fields: Any) -> Path:
    """A bundle of these events, by Alice, what lost its content first."""
    path = tmp_path / f"{new_id()}.bundle"
    written(
        path, [*records([], bare or []), *records(events, [])], **{"by": ALICE, "id": new_id(), "refs": {}, **fields}
    )
    return path


def when(half: Callable[[], object]) -> Callable[[int, int | None], None]:
    """Do something once, when some of the bundle has been taken in, and not all."""
    todo = [half]

    def progress(done: int, total: int | None) -> None:
        if todo and total is not None and done > total // 2:
            todo.pop()()

    return progress


@pytest.mark.parametrize("commits", range(4))
def test_who_is_killed_on_the_way_imports_again(tmp_path: Path, commits: int) -> None:
    with opened(tmp_path, "alice") as (alice,):
        for number in range(40):
            above = None if number == 0 else f"m{number - 1}"
            alice.append(
                [Message(f"m{number}", above, text="x" * 90), Memory(f"k{number}", "", sources=[f"m{number}"])]
            )
        alice.append([Erasure("e", ["m7"])])
        alice.refs.create("main", "m39")
        with patch("branchmem.bundle.frames.FRAME_BYTES", 500):
            alice.export_bundle(tmp_path / "all", key=ALICE)
        digest = alice.digest()
    with opened(tmp_path, "bob") as (bob,):
        bob.pins.pin(ALICE.public, "alice")

    def killing(done: int, total: int | None) -> None:
        nonlocal commits
        if total is not None and done > total // 2:
            if not commits:
                os.kill(os.getpid(), signal.SIGKILL)
            commits -= 1

    pid = os.fork()
    if pid == 0:
        with patch("branchmem.bundle.joining._BATCH", 15):
            bm.open(tmp_path / "bob.bmem").import_bundle(tmp_path / "all", progress=killing)
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])

    with opened(tmp_path, "bob") as (bob,):
        assert (0 < bob.seq <= 81, len(bob.refs)) == (True, 0)
        assert set(bob.log._fresh().event_ids(0, bob.seq)) <= set(ids(tmp_path / "all"))
        assert bob.log.is_erased("m7") or "m7" not in bob.log
        done = bob.import_bundle(tmp_path / "all")
        assert bob.digest() == digest
        assert (done.imported + done.duplicates, bob.refs["main"]) == (81, "m39")
        assert bob.check().ok


def test_what_was_taken_back_is_not_shown_half_way(bob: bm.Store, tmp_path: Path) -> None:
    talk = [Message("chat", None), Message("u1", "chat", text="I am ill")]
    bob.append(talk)
    with opened(tmp_path, "alice") as (alice,), patch("branchmem.bundle.frames.FRAME_BYTES", 200):
        alice.append([*talk, Memory("ill", "The user is ill", sources=["u1"]), *MANY])
        alice.retract(["ill"], at="u1", scope="everywhere")
        alice.export_bundle(tmp_path / "all", key=ALICE)

    def stop() -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        bob.import_bundle(tmp_path / "all", progress=when(stop))

    assert ("ill" in bob.log, len(bob.log) < 34, bob.at("u1").ids()) == (True, True, [])


@pytest.mark.parametrize("commits", range(1, 7))
def test_what_lost_its_content_never_looks_as_if_it_had_none(bob: bm.Store, tmp_path: Path, commits: int) -> None:
    """What explains it comes last: a chain of what came from each other, the wrong way round, then the erasure."""
    chain: list[Event] = [Memory(f"k{number}", "", derived_from=[f"k{number + 1}"]) for number in range(12)]
    path = sent(tmp_path, [*MANY[:11], Erasure("e", ["m0"])], [*chain, Memory("k12", "", sources=["m0"])])
    left = commits

    def stop(done: int, total: int | None) -> None:
        nonlocal left
        left -= done > 25
        if not left:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        bob.import_bundle(path, progress=stop)
    assert all(map(bob.log.is_erased, bob.memory_ids)), f"after {commits} commits"
    assert len(bob.log) < 25 or commits > 2

    bob.import_bundle(path)
    assert [len(bob.log), *map(bob.log.is_erased, bob.memory_ids)] == [25, *[True] * 13]


# Raced by another


def test_an_older_bundle_that_is_overtaken_stops_and_says_what_it_left(bob: bm.Store, tmp_path: Path) -> None:
    older, newer = sent(tmp_path, MANY, number=5), sent(tmp_path, [Message("six", None)], number=6)

    with pytest.raises(
        BundleRefused, match=r"number 6 .* 6 of its events had been taken in by then, and stay$"
    ) as refused:
        bob.import_bundle(older, progress=when(lambda: bob.import_bundle(newer)))

    assert (refused.value.applied, len(bob.log)) == (6, 7)
    assert bob.import_bundle(newer).duplicates == 1


def test_who_is_unpinned_while_a_bundle_joins_is_trusted_no_longer(bob: bm.Store, tmp_path: Path) -> None:
    path = sent(tmp_path, MANY)
    with pytest.raises(BundleRefused, match="unpinned meanwhile") as refused:
        bob.import_bundle(path, progress=when(lambda: bob.pins.unpin("alice")))
    assert (refused.value.applied, len(bob.log)) == (6, 6)


def test_a_file_that_is_changed_after_it_was_checked_stops_and_says_what_it_left(bob: bm.Store, tmp_path: Path) -> None:
    path = sent(tmp_path, MANY)
    with BundleFile.open(path) as bundle:
        end = 16 + sum(frame.size for frame in bundle.manifest.frames)

    def change() -> None:
        data = bytearray(path.read_bytes())
        data[end - 1] ^= 1
        path.write_bytes(data)

    with pytest.raises(
        BundleRefused, match=r"its hash is not that .* of its events had been taken in by then"
    ) as refused:
        bob.import_bundle(path, progress=when(change))
    assert 0 < refused.value.applied == len(bob.log) < len(MANY)


def test_what_another_wrote_under_an_id_of_the_bundle_stops_it_and_is_told(bob: bm.Store, tmp_path: Path) -> None:
    path = sent(tmp_path, MANY)
    with pytest.raises(
        BundleRefused, match=r"event m29 is already there .* 24 of its events had been taken"
    ) as refused:
        bob.import_bundle(path, progress=when(lambda: bob.append([Message("m29", None, text="ours")])))
    assert isinstance(refused.value.__cause__, EventConflict)
    assert len(bob.log) == 25


def test_a_conflict_that_another_wrote_meanwhile_is_told_with_what_was_left(bob: bm.Store, tmp_path: Path) -> None:
    bob.append([Message("r", None), Message("ours", "r")])
    bob.refs.create("main", "ours")
    events = [*MANY, Message("r", None), Message("theirs", "r"), Memory("k", "Paris", sources=["theirs"], key="city")]
    path = sent(tmp_path, events, refs={"main": "theirs"})
    rival = Memory("l", "Rome", sources=["ours"], key="city")

    with pytest.raises(
        BundleRefused, match=r"in conflict on main .* again with a strategy; 33 of its events had been taken"
    ) as refused:
        bob.import_bundle(path, progress=when(lambda: bob.append([rival])))

    assert isinstance(refused.value.__cause__, MergeConflict)
    assert bob.refs["main"] == "ours"
    assert bob.import_bundle(path, strategy="remote").duplicates == 33


def test_a_store_that_does_not_refresh_checks_against_the_newest_state(tmp_path: Path) -> None:
    path = sent(tmp_path, [*MANY, Message("q", None, text="theirs")])
    with (
        bm.open(tmp_path / "b.bmem", auto_refresh=False) as stale,
        bm.open(tmp_path / "b.bmem") as other,
        patch("branchmem.bundle.joining._BATCH", 5),
    ):
        stale.pins.pin(ALICE.public, "alice")
        other.append([Message("q", None, text="ours")])
        with pytest.raises(EventConflict):
            stale.import_bundle(path)
        assert len(other.log) == 1


# What goes on from what


def test_a_bundle_of_some_refs_does_not_stand_for_an_earlier_one_of_everything(tmp_path: Path) -> None:
    """Else what only the earlier one held would be missing, a retraction for example, and nobody would see it."""
    with opened(tmp_path, "alice", "bob") as (alice, bob):
        bob.pins.pin(ALICE.public, "alice")
        alice.append([*CHAT, Message("z", None), Retraction("r", "u1", scope="tree", memories=["home"])])
        alice.refs.create("main", "u2")
        alice.refs.create("other", "z")
        alice.export_bundle(tmp_path / "all", key=ALICE)
        alice.export_bundle(tmp_path / "some", key=ALICE, refs=["other"])
        alice.append([Message("u5", "u2")])
        alice.refs.move("main", "u5")
        alice.export_bundle(tmp_path / "more", key=ALICE, since=tmp_path / "all")
        alice.export_bundle(tmp_path / "whole", key=ALICE)
        last = bob.import_bundle(tmp_path / "some").bundle

        with pytest.raises(BundleRefused, match=f"ask for one that goes on from {last}, or holds all of the log"):
            bob.import_bundle(tmp_path / "more")

        assert "u5" not in bob.log
        bob.import_bundle(tmp_path / "whole")
        assert bob.digest() == alice.digest()


def test_a_later_bundle_of_everything_stands_for_the_earlier_ones(tmp_path: Path) -> None:
    with opened(tmp_path, "alice", "bob") as (alice, bob):
        bob.pins.pin(ALICE.public, "alice")
        for name, since in (("1", None), ("2", None), ("3", "1"), ("4", "2"), ("5", "4")):
            alice.append([Message(f"n{name}", None)])
            alice.export_bundle(tmp_path / name, key=ALICE, since=None if since is None else tmp_path / since)
        for name in ("2", "3", "4", "5"):
            bob.import_bundle(tmp_path / name)
            assert len(bob.log) == int(name)
        assert bob.digest() == alice.digest()


def test_what_was_not_imported_to_its_end_is_not_gone_on_from(bob: bm.Store, tmp_path: Path) -> None:
    first = sent(tmp_path, MANY, number=1, seq=30)
    with BundleFile.open(first) as bundle:
        base = Base(1, bundle.manifest.id)
    second = sent(tmp_path, [Message("more", None)], number=2, seq=31, base=base, origin=ORIGIN)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bob.import_bundle(first, progress=when(stop))
    with pytest.raises(BundleRefused, match="import that first"):
        bob.import_bundle(second)
    bob.import_bundle(first)
    assert bob.import_bundle(second).imported == 1
