"""A bundle from a pinned key joins the log: all of it or nothing, once, in order, and never what was erased."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import Memory, Message
from branchmem.bundle import BundleFile, import_bundle
from branchmem.canonical import new_id
from branchmem.errors import (
    BadAnchor,
    BundleRefused,
    EventConflict,
    InvalidRef,
    MergeConflict,
    StoreReadOnly,
    UnknownRef,
)
from branchmem.events import Erasure, Event
from bundle_files import records, written
from travels import ALICE, BOB, CHAT, EVE, counted, opened


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[bm.Store]]:
    """Alice's store with the conversation and a ref, and Bob's, which trusts her key."""
    with opened(tmp_path, "alice", "bob") as stores:
        alice, bob = stores
        alice.append(CHAT)
        alice.refs.create("main", "u2")
        bob.pins.pin(ALICE.public, "alice")
        yield stores


def sent(tmp_path: Path, events: list[Event], bare: list[Event] | None = None, **fields: Any) -> Path:
    """A bundle of these events, by Alice."""
    path = tmp_path / f"{new_id()}.bundle"
    stated = {"by": ALICE, "id": new_id(), "refs": {}, **fields}
    written(path, records(events, bare or []), **stated)
    return path


# Joining


def test_what_a_pinned_key_signed_joins_the_log_with_its_refs(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    path = tmp_path / "all"
    alice.export_bundle(path, key=ALICE)
    told: list[tuple[int, int | None]] = []
    preview = bob.preview_bundle(path)
    assert (bob.seq, dict(bob.refs)) == (0, {})

    done = bob.import_bundle(path, progress=lambda *args: told.append(args))

    assert bob.digest() == alice.digest()
    assert dict(bob.refs) == {"main": "u2"}
    assert counted(done) == {"imported": len(CHAT), "duplicates": 0, "held": 0, "refused": 0}
    assert (done.pinned, done.issuer, done.dry_run) == ("alice", ALICE.public, False)
    assert {**preview.to_dict(), "dry_run": False} == done.to_dict()
    assert told[-1][0] == told[0][1] == 2 * len(CHAT)
    assert [move.why for move in bob.refs.log("main")] == ["import"]
    assert bob.check().ok


def test_importing_again_changes_nothing(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    path = tmp_path / "all"
    alice.export_bundle(path, key=ALICE)
    bob.import_bundle(path)
    digest, seq = bob.digest(), bob.seq

    again = bob.import_bundle(path)

    assert counted(again) == {"imported": 0, "duplicates": len(CHAT), "held": 0, "refused": 0}
    assert (bob.digest(), bob.seq, len(bob.refs.log("main"))) == (digest, seq, 1)
    assert [ref.how for ref in again.refs] == ["unchanged"]


def test_bundles_since_each_other_bring_a_log_up_to_date(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    previous = None
    for number in range(4):
        alice.append([Message(f"n{number}", "u2"), Memory(f"k{number}", "told", sources=[f"n{number}"])])
        alice.refs.move("main", f"n{number}") if number < 1 else None
        path = tmp_path / str(number)
        alice.export_bundle(path, key=ALICE, since=previous)
        done = bob.import_bundle(path)
        assert done.imported == (2 if previous else len(CHAT) + 2)
        assert bob.digest() == alice.digest()
        previous = path


def test_a_bundle_that_goes_on_from_one_that_was_not_imported_is_refused(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    alice.export_bundle(tmp_path / "1", key=ALICE)
    alice.append([Message("n", "u2")])
    alice.export_bundle(tmp_path / "2", key=ALICE, since=tmp_path / "1")

    with pytest.raises(BundleRefused, match="import that first"):
        bob.import_bundle(tmp_path / "2")
    assert bob.seq == 0
    bob.import_bundle(tmp_path / "1")
    bob.import_bundle(tmp_path / "2")
    assert bob.digest() == alice.digest()


def test_an_older_bundle_of_the_same_log_is_refused(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    for number in (1, 2):
        alice.append([Message(f"n{number}", "u2")])
        alice.export_bundle(tmp_path / str(number), key=ALICE)
    bob.import_bundle(tmp_path / "2")
    before = bob.digest()

    with BundleFile.open(tmp_path / "2") as second:
        latest = second.manifest
    refusal = f"number {latest.number} of the same log, {latest.id}, was imported before: ask for a new one"
    with pytest.raises(BundleRefused, match=refusal):
        bob.import_bundle(tmp_path / "1")
    twin = sent(tmp_path, [Message("other", None)], number=latest.number, origin=latest.origin)
    with pytest.raises(BundleRefused, match=f"its number is {latest.number}, and {refusal}"):
        bob.import_bundle(twin)
    bob.import_bundle(tmp_path / "2")
    assert bob.digest() == before
    with opened(tmp_path, "bob") as (again,), pytest.raises(BundleRefused):
        again.import_bundle(tmp_path / "1")


def test_a_bundle_that_was_only_previewed_or_failed_does_not_count(pair: list[bm.Store], tmp_path: Path) -> None:
    _, bob = pair
    bob.append([Message("there", None, text="ours")])
    newer = sent(tmp_path, [Message("there", None, text="theirs")], number=9)
    older = sent(tmp_path, [Message("here", None)], number=8)
    for attempt in (bob.preview_bundle, bob.import_bundle):
        with pytest.raises(EventConflict):
            attempt(newer)

    assert bob.import_bundle(older).imported == 1


def test_refs_are_mapped_by_name(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    alice.export_bundle(tmp_path / "bundle", key=ALICE)
    for unfit in ("main", ["main"]):
        with pytest.raises(TypeError, match="refs maps refs of the bundle to refs here"):
            bob.import_bundle(tmp_path / "bundle", refs=unfit)  # type: ignore[arg-type]
    assert bob.seq == 0


def test_an_expired_bundle_and_one_for_somebody_else_are_refused(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    end = datetime(2030, 1, 1, tzinfo=UTC)
    alice.export_bundle(tmp_path / "late", key=ALICE, expires=end)
    alice.export_bundle(tmp_path / "for bob", key=ALICE, recipient=BOB.public)

    with pytest.raises(BundleRefused, match="expired"):
        import_bundle(bob, tmp_path / "late", now=lambda: end)
    for key in (None, EVE):
        with pytest.raises(BundleRefused, match=f"it is for the key {BOB.fingerprint}"):
            bob.import_bundle(tmp_path / "for bob", key=key)
    assert bob.seq == 0
    assert import_bundle(bob, tmp_path / "late", now=lambda: datetime(2029, 1, 1, tzinfo=UTC)).imported == len(CHAT)
    assert bob.import_bundle(tmp_path / "for bob", key=BOB).duplicates == len(CHAT)


def test_a_store_that_is_only_read_can_preview(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, _ = pair
    alice.export_bundle(tmp_path / "all", key=ALICE)
    with bm.open(tmp_path / "bob.bmem", readonly=True) as bob:
        assert bob.preview_bundle(tmp_path / "all").imported == len(CHAT)
        with pytest.raises(StoreReadOnly):
            bob.import_bundle(tmp_path / "all")


# All or nothing


@pytest.mark.parametrize(
    "other",
    [
        Message("u1", "chat", role="user", text="I live in Paris"),
        Message("u1", "u2", role="user", text="I live in Chengdu"),
        Memory("u1", "not a message"),
        Erasure("gone", ["u2"]),
    ],
    ids=["other text", "another parent", "another type", "another erasure"],
)
def test_one_id_with_other_content_refuses_the_whole_bundle(pair: list[bm.Store], tmp_path: Path, other: Event) -> None:
    _, bob = pair
    bob.append(CHAT)
    before = bob.digest()
    fillers: list[Event] = [Message(f"filler{number}", None) for number in range(40)]

    with pytest.raises(EventConflict) as refused:
        bob.import_bundle(sent(tmp_path, [*fillers, other]))

    assert refused.value.id == other.id
    assert bob.digest() == before


def test_content_that_is_missing_without_an_erasure_refuses_the_bundle(pair: list[bm.Store], tmp_path: Path) -> None:
    _, bob = pair
    with pytest.raises(BundleRefused, match="event k has no content, and no erasure says why"):
        bob.import_bundle(sent(tmp_path, [Erasure("e", ["m"])], [Message("m", None), Memory("k", "", sources=["n"])]))
    assert bob.seq == 0


@pytest.mark.parametrize("here", [True, False], ids=["erased here", "erased there"])
def test_content_that_is_missing_is_taken_where_an_erasure_says_why(
    pair: list[bm.Store], tmp_path: Path, here: bool
) -> None:
    """By name, and at any remove: what was drawn from what was erased, through what came without content, too."""
    _, bob = pair
    erasure = Erasure("e", ["m"])
    bare: list[Event] = [
        Message("m", None),
        Memory("k1", "", sources=["m"]),
        Memory("k2", "", derived_from=["k1"]),
        Memory("k3", "", adopts="k2"),
    ]
    if here:
        bob.append([erasure])
    bob.import_bundle(sent(tmp_path, [] if here else [erasure], bare))

    assert bob.seq == 5
    assert all(bob.log.is_erased(event.id) for event in bare)
    assert bob.check().ok


def test_a_bundle_that_was_cut_or_changed_applies_nothing(pair: list[bm.Store], tmp_path: Path) -> None:
    _, bob = pair
    path = sent(tmp_path, [Message(f"m{number}", None, text="x" * 50) for number in range(30)])
    with BundleFile.open(path) as bundle:
        ends = [len(b"branchmem bundle"), *(frame.size for frame in bundle.manifest.frames)]
    data = bytearray(path.read_bytes())
    data[sum(ends) - 3] ^= 1
    path.write_bytes(data)

    with pytest.raises(BundleRefused):
        bob.import_bundle(path)
    assert bob.seq == 0


def test_a_ref_at_what_nobody_has_refuses_the_bundle(pair: list[bm.Store], tmp_path: Path) -> None:
    _, bob = pair
    events: list[Event] = [Message("m", None), Memory("k", "", sources=["m"])]
    for head in ("k", "nowhere", "m" * 40, "m" * 256):
        with pytest.raises(BundleRefused, match=f"its ref main stands at {head}, which is no message"):
            bob.import_bundle(sent(tmp_path, events, refs={"main": head}))
    assert (bob.seq, len(bob.refs)) == (0, 0)
    bob.append([Message("x" * 256, None), Message("y" * 31, None)])
    bob.import_bundle(sent(tmp_path, events, refs={"main": "m", "long": "x" * 256, "other": "y" * 31}, number=8))
    assert len(bob.refs) == 3


@pytest.mark.parametrize("length", [1, 31, 32, 255, 256])
def test_ids_of_any_length_are_found_in_a_bundle(pair: list[bm.Store], tmp_path: Path, length: int) -> None:
    _, bob = pair
    id = "é" * (length // 2) + "x" * (length % 2)
    bob.import_bundle(sent(tmp_path, [Message(id, None)], refs={"main": id}))
    assert bob.refs["main"] == id


# Erasure


def test_an_erasure_here_beats_content_there(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    bob.append([Erasure("mine", ["u1"])])
    alice.export_bundle(tmp_path / "all", key=ALICE)
    bob.import_bundle(tmp_path / "all")

    assert {id for id in (*bob.message_ids, *bob.memory_ids) if bob.log.is_erased(id)} == {
        "u3",
        "pay",
        "u1",
        "home",
        "flat",
    }
    assert bob.log.get("home") == Memory("home", "", sources=["u1"], key="home_city")
    assert bob.import_bundle(tmp_path / "all").duplicates == len(CHAT)


def test_an_erasure_there_takes_content_here(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    bob.append([event for event in CHAT if event.id in ("chat", "u1", "home", "u2", "u3", "pay")])
    assert not bob.log.is_erased("u3")
    alice.export_bundle(tmp_path / "all", key=ALICE)

    assert counted(bob.import_bundle(tmp_path / "all"))["duplicates"] == 6
    assert bob.digest() == alice.digest()
    assert bob.log.is_erased("pay")


# Refs


def diverged(alice: bm.Store, bob: bm.Store, tmp_path: Path) -> Path:
    """A bundle of Alice's branch, after Bob went another way and both said something about one thing."""
    alice.export_bundle(tmp_path / "before", key=ALICE)
    bob.import_bundle(tmp_path / "before")
    alice.append(
        [Message("a", "u2"), Memory("theirs", "Paris", sources=["a"], key="city"), Memory("plain", "x", sources=["a"])]
    )
    alice.refs.move("main", "a")
    bob.append([Message("b", "u2"), Memory("ours", "Rome", sources=["b"], key="city")])
    bob.refs.move("main", "b")
    path = tmp_path / "after"
    alice.export_bundle(path, key=ALICE, since=tmp_path / "before")
    return path


def test_a_ref_that_is_behind_moves_on_and_one_that_is_ahead_stays(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    alice.refs.create("back", "u1")
    alice.export_bundle(tmp_path / "1", key=ALICE)
    bob.import_bundle(tmp_path / "1")
    bob.refs.move("back", "u2")
    alice.append([Message("n1", "u2"), Message("n2", "n1")])
    alice.refs.move("main", "n2")
    alice.export_bundle(tmp_path / "2", key=ALICE, since=tmp_path / "1")
    done = bob.import_bundle(tmp_path / "2")

    assert dict(bob.refs) == {"main": "n2", "back": "u2"}
    assert {ref.name: ref.how for ref in done.refs} == {"main": "fast-forward", "back": "unchanged"}
    assert done.adopted == {}


def test_a_ref_moves_on_over_messages_that_only_the_log_has(pair: list[bm.Store], tmp_path: Path) -> None:
    """What lies between was imported before, or lacked the parent that comes now."""
    _, bob = pair
    bob.append([Message("r", None), Message("x", "r"), Message("y", "x"), Message("far", "gap"), Message("end", "far")])
    bob.refs.create("main", "r")
    bob.refs.create("other", "y")
    path = sent(tmp_path, [Message("z", "y"), Message("gap", "z")], refs={"main": "z", "other": "end"})
    done = bob.import_bundle(path)

    assert {ref.name: ref.how for ref in done.refs} == {"main": "fast-forward", "other": "fast-forward"}
    assert dict(bob.refs) == {"main": "z", "other": "end"}


def test_refs_come_under_names_of_ones_own_or_not_at_all(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    alice.refs.create("edit", "u1-edit")
    alice.export_bundle(tmp_path / "all", key=ALICE)
    for names, error in (
        ({"nowhere": "x"}, UnknownRef),
        ({"main": ""}, InvalidRef),
        ({"main": "same", "edit": "same"}, BundleRefused),
    ):
        with pytest.raises(error):
            bob.import_bundle(tmp_path / "all", refs=names)
    assert bob.seq == 0

    assert bob.import_bundle(tmp_path / "all", refs={}).refs == ()
    assert (bob.seq, dict(bob.refs)) == (len(CHAT), {})
    bob.import_bundle(tmp_path / "all", refs={"main": "alice/main"})
    assert dict(bob.refs) == {"alice/main": "u2"}


def test_a_ref_that_went_two_ways_is_merged_unless_both_say_something_of_one_thing(
    pair: list[bm.Store], tmp_path: Path
) -> None:
    alice, bob = pair
    path = diverged(alice, bob, tmp_path)
    before = bob.digest()
    preview = bob.preview_bundle(path)

    with pytest.raises(MergeConflict) as refused:
        bob.import_bundle(path)

    assert (bob.digest(), bob.refs["main"]) == (before, "b")
    (conflict,) = refused.value.conflicts
    assert preview.conflicts == refused.value.conflicts
    assert (conflict.ours.id, conflict.theirs.id, conflict.about) == ("ours", "theirs", "city")  # type: ignore[attr-defined]
    assert [ref.how for ref in preview.refs] == ["conflict"]


@pytest.mark.parametrize(
    ("strategy", "city"), [("local", {"Rome"}), ("remote", {"Paris"}), ("both", {"Rome", "Paris"})]
)
def test_a_strategy_decides_what_a_ref_that_went_two_ways_says(
    pair: list[bm.Store], tmp_path: Path, strategy: str, city: set[str]
) -> None:
    alice, bob = pair
    path = diverged(alice, bob, tmp_path)
    preview = bob.import_bundle(path, strategy=strategy, dry_run=True)
    done = bob.import_bundle(path, strategy=strategy)

    view = bob.at_ref("main")
    assert {memory.text for memory in view.memories(key="city")} == city
    assert {memory.text for memory in view.memories()} >= {"x"}
    assert len(done.conflicts) == 1
    assert len(done.resolved) == (0 if strategy == "both" else 1)
    assert {**preview.to_dict(), "dry_run": False} == done.to_dict()
    assert [ref.how for ref in done.refs] == ["merged"]
    digest = bob.digest()
    again = bob.import_bundle(path, strategy=strategy)
    assert bob.digest() == digest
    assert (again.adopted, [ref.how for ref in again.refs]) == ({}, ["unchanged"])


def test_newer_decides_by_time_and_leaves_what_has_none(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    path = diverged(alice, bob, tmp_path)
    with pytest.raises(MergeConflict):
        bob.import_bundle(path, strategy="newer")
    with pytest.raises(ValueError, match="fail, local, remote, newer, both, not 'ours'"):
        bob.import_bundle(path, strategy="ours")


def test_a_ref_that_cannot_be_stood_on_is_not_merged(pair: list[bm.Store], tmp_path: Path) -> None:
    _, bob = pair
    bob.append([Message("r", None)])
    bob.refs.create("main", "r")
    path = sent(tmp_path, [Message("loose", "not here")], refs={"main": "loose"})
    with pytest.raises(BadAnchor):
        bob.import_bundle(path)
    assert bob.seq == 1


def test_the_receipt_says_in_four_lines_what_was_done(pair: list[bm.Store], tmp_path: Path) -> None:
    alice, bob = pair
    done = bob.import_bundle(diverged(alice, bob, tmp_path), strategy="local")
    lines = str(done).splitlines()

    assert len(lines) == 4
    assert re.search(r", made 20\d\d-.*\+00:00, signed by alice, bm-[0-9a-f]{32}$", lines[0])
    assert lines[1] == "events: 3 imported, 0 here already, 0 held outside of the log; refused: none"
    assert lines[2] == f"refs: main merged to {bob.refs['main']}; 1 memory adopted"
    assert lines[3] == "1 conflict, 1 resolved"
