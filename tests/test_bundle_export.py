"""What travels in a bundle: all of a log, what some refs need, or what is new; never what was erased."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import branchmem as bm
import pytest
from branchmem import Memory, Message, Reason
from branchmem.bundle import BundleFile, export_bundle, exporting
from branchmem.bundle.selection import needed
from branchmem.errors import (
    BundleNotWritten,
    BundleRefused,
    InvalidKey,
    InvalidTime,
    StoreExists,
    StoreReadOnly,
    UnknownRef,
)
from branchmem.events import Erasure, Event, Restoration, Retraction
from branchmem.selftest.forests import forest
from figures import Figure, Quote
from travels import ALICE, BOB, CHAT, bare_ids, ids, opened, payloads

pytestmark = pytest.mark.usefixtures("quiet")

SEED = 20_260_401
#: What a selection is exact for: strict, and whatever lets through only what hides by other events.
POLICIES = (
    bm.STRICT,
    bm.Policy(Reason.ERASED),
    bm.Policy(Reason.RETRACTED),
    bm.Policy(Reason.SUPERSEDED),
    bm.Policy(Reason.ERASED | Reason.RETRACTED | Reason.SUPERSEDED),
)


@pytest.fixture
def alice(tmp_path: Path) -> Iterator[bm.Store]:
    """A store with the conversation, and refs on both of its branches."""
    with opened(tmp_path, "alice") as (store,):
        store.append(CHAT)
        store.refs.create("main", "u3")
        store.refs.create("edit", "u1-edit")
        yield store


# What refs need


def selected(events: list[Event], heads: list[str]) -> tuple[bm.Engine, bm.Engine]:
    """An engine that holds the events, and one that holds only what views at these heads need."""
    whole, part = bm.Engine(), bm.Engine()
    whole.add(events)
    taken = needed(whole, heads)
    kept = {id for id, travels in zip(whole._engine.event_ids(0, whole.seq), taken, strict=True) if travels}
    part.add([event for event in events if event.id in kept])
    return whole, part


def visible(engine: bm.Engine, anchors: list[str], policy: bm.Policy) -> set[str]:
    return set(engine.at(anchors, policy=policy, count=False).ids())


def stands(engine: bm.Engine, chance: Random) -> list[list[str]]:
    """Each message, and some together, one a tree and all attached or all not."""
    messages = list(engine.message_ids)
    some = [[id] for id in messages]
    for size in (2, 2, 2, 3, 3, 4):
        several = chance.sample(messages, min(size, len(messages)))
        with suppress(bm.AmbiguousAnchor):
            if not engine.at(several, count=False).problems:
                some.append(several)
    return some


@pytest.mark.soak
def test_views_at_every_message_that_travels_are_those_of_the_whole_log(figure: Figure, quote: Quote) -> None:
    logs, views, shown, kept, events_of_all = figure(600, 40_000), 0, 0, 0, 0
    for number in range(logs):
        case = f"seed {SEED}, log {number}"
        chance = Random(f"{SEED} {number}")
        events = forest(chance)
        messages = [event.id for event in events if isinstance(event, Message)]
        heads = chance.sample(messages, chance.choice((1, 1, 1, 2, 3)))
        whole, part = selected(events, heads)
        assert set(heads) <= set(part.message_ids), case
        for anchors in stands(part, chance):
            for policy in POLICIES:
                expected = visible(whole, anchors, policy)
                assert visible(part, anchors, policy) == expected, f"{case}: heads {heads}, at {anchors}, {policy}"
                views, shown = views + 1, shown + len(expected)
        for id in (*part.message_ids, *part.memory_ids):
            assert part._engine.is_erased(id) == whole._engine.is_erased(id), f"{case}: {id}"
        kept, events_of_all = kept + part.seq, events_of_all + whole.seq
    assert shown > views / 4
    assert kept < events_of_all / 2
    quote(
        f"bundles: {views:,} views at what {logs:,} selections brought show what the whole logs show, "
        f"{shown:,} memories, with {kept / events_of_all:.0%} of the events"
    )


@pytest.mark.parametrize("seed", range(40))
def test_compat_agrees_where_nothing_is_adopted_and_no_version_stands_between_two(seed: int) -> None:
    chance = Random(f"{SEED} compat {seed}")
    messages = [Message("r0", None), Message("r1", None)]
    for number in range(20):
        messages.append(Message(f"m{number}", chance.choice(messages).id))
    parents = {message.id: message.parent for message in messages}
    memories: list[Memory] = []
    for number in range(15):
        path = [chance.choice(messages).id]
        while isinstance(above := parents[path[-1]], str):
            path.append(above)
        old = chance.sample(memories[:7], 1) if number >= 7 else []
        memories.append(
            Memory(
                f"k{number}",
                "",
                sources=chance.sample(path, min(2, len(path))),
                supersedes=[one.id for one in old] if chance.random() < 0.4 else [],
            )
        )
    undoing = [
        Retraction(f"t{number}", chance.choice(messages).id, scope="tree", memories=[f"k{number}"])
        for number in range(3)
    ]
    whole, part = selected([*messages, *memories, *undoing], [chance.choice(messages).id])

    for anchors in stands(part, chance):
        assert visible(part, anchors, bm.COMPAT) == visible(whole, anchors, bm.COMPAT), f"seed {seed}, at {anchors}"


A_FORK = [Message("r", None), Message("a", "r"), Message("b", "r")]


@pytest.mark.parametrize(
    ("why", "more", "travels"),
    [
        ("its path", [], {"r", "a"}),
        ("a sibling's memory stays", [Memory("k", "", sources=["b"])], {"r", "a"}),
        ("what has no source stays", [Memory("k", "")], {"r", "a"}),
        (
            "an adoption brings its original",
            [Memory("o", "", sources=["b"]), Memory("k", "", sources=["a"], adopts="o")],
            {"r", "a", "o", "k"},
        ),
        (
            "what stands between two versions comes along",
            [
                Memory("k1", "", sources=["r"]),
                Memory("k2", "", sources=["b"], supersedes=["k1"]),
                Memory("k3", "", sources=["a"], supersedes=["k2"]),
            ],
            {"r", "a", "k1", "k2", "k3"},
        ),
        (
            "a version that nothing here builds on stays",
            [Memory("k1", "", sources=["r"]), Memory("k2", "", sources=["b"], supersedes=["k1"])],
            {"r", "a", "k1"},
        ),
        ("a retraction on the sibling stays", [Retraction("t", "b", scope="branch", memories=["x"])], {"r", "a"}),
        (
            "one of the tree brings its place",
            [Retraction("t", "b", scope="tree", memories=["x"])],
            {"r", "a", "b", "t"},
        ),
        ("one of everywhere comes alone", [Retraction("t", "b", scope="everywhere", memories=["x"])], {"r", "a", "t"}),
        ("one without a place is in effect", [Retraction("t", "?", scope="branch", memories=["x"])], {"r", "a", "t"}),
        (
            "a restoration goes with its retraction",
            [
                Retraction("t", "a", scope="branch", memories=["x"]),
                Restoration("u", "a", scope="branch", retraction="t"),
                Restoration("v", "b", scope="branch", retraction="t"),
                Restoration("w", "a", scope="branch", retraction="another"),
            ],
            {"r", "a", "t", "u"},
        ),
        (
            "what an adopted memory was stated on decides about its key",
            [
                Memory("o", "", sources=["b"], key="k"),
                Memory("k", "", sources=["a"], adopts="o"),
                Retraction("t", "r", scope="everywhere", keys=["k"]),
            ],
            {"r", "a", "b", "o", "k", "t"},
        ),
        ("every erasure", [Erasure("e", ["b"])], {"r", "a", "e"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_views_at_a_ref_need(why: str, more: list[Event], travels: set[str]) -> None:
    whole, part = selected([*A_FORK, *more], ["a"])

    assert set(part._engine.event_ids(0, part.seq)) == travels, why
    assert whole.seq == 3 + len(more)


# A bundle of it


def test_a_bundle_of_everything_holds_the_log_with_what_takes_away_first(alice: bm.Store, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    made = alice.export_bundle(tmp_path / "all", key=ALICE, progress=lambda *args: told.append(args))

    assert ids(tmp_path / "all") == ["gone", "hush", *(event.id for event in CHAT if event.id not in ("gone", "hush"))]
    assert bare_ids(tmp_path / "all") == {"u3", "pay"}
    manifest = made.manifest
    assert manifest.counts == (5, 5, 1, 0, 1, 2)
    assert (manifest.seq, manifest.base) == (len(CHAT), None)
    assert manifest.refs == {"main": "u3", "edit": "u1-edit"}
    assert manifest.digest == alice.digest()
    assert (manifest.issuer, manifest.recipient, manifest.expires) == (ALICE.public, None, None)
    assert told[-1] == (len(CHAT), len(CHAT))


def test_a_bundle_of_a_ref_holds_what_it_needs(alice: bm.Store, tmp_path: Path) -> None:
    made = alice.export_bundle(tmp_path / "edit", key=ALICE, refs=["edit"])

    assert ids(tmp_path / "edit") == ["gone", "chat", "u1-edit", "home-edit"]
    assert made.manifest.refs == {"edit": "u1-edit"}
    with opened(tmp_path, "part") as (part,):
        part.append([event for event in CHAT if event.id in ids(tmp_path / "edit")])
        assert made.manifest.digest == part.digest()


def test_a_bundle_since_another_holds_what_is_new(alice: bm.Store, tmp_path: Path) -> None:
    first = alice.export_bundle(tmp_path / "1", key=ALICE)
    alice.append([Message("u4", "u2"), Memory("new", "", sources=["u4"]), Erasure("later", ["u1"])])
    second = alice.export_bundle(tmp_path / "2", key=ALICE, since=tmp_path / "1")
    alice.append([Message("u5", "u4")])
    third = alice.export_bundle(tmp_path / "3", key=ALICE, since=tmp_path / "2")

    assert ids(tmp_path / "2") == ["later", "u4", "new"]
    assert ids(tmp_path / "3") == ["u5"]
    assert second.manifest.base == (first.manifest.number, first.id)
    assert third.manifest.base == (second.manifest.number, second.id)
    assert (second.manifest.digest, third.manifest.seq) == (None, len(CHAT) + 4)


def test_a_bundle_of_a_ref_since_one_of_another_ref_holds_what_that_left_out(alice: bm.Store, tmp_path: Path) -> None:
    alice.export_bundle(tmp_path / "edit", key=ALICE, refs=["edit"])
    alice.export_bundle(tmp_path / "main", key=ALICE, refs=["main"], since=tmp_path / "edit")
    alice.export_bundle(tmp_path / "rest", key=ALICE, since=tmp_path / "edit")

    assert ids(tmp_path / "main") == ["hush", "u1", "home", "u2", "flat", "moved", "u3", "pay"]
    assert set(ids(tmp_path / "rest")) == {event.id for event in CHAT} - set(ids(tmp_path / "edit"))


def test_a_bundle_that_another_store_made_is_gone_on_from_by_what_it_holds(alice: bm.Store, tmp_path: Path) -> None:
    """A copy of a store is the same log, which may have gone another way since."""
    alice.backup(tmp_path / "copy.bmem")
    alice.append([Message("here", "u2")])
    with opened(tmp_path, "copy") as (copy,):
        copy.append([Message("there", "u2")])
        copy.export_bundle(tmp_path / "there", key=ALICE)
    alice.export_bundle(tmp_path / "here", key=ALICE, since=tmp_path / "there")

    assert ids(tmp_path / "here") == ["here"]


def test_only_an_earlier_bundle_of_this_log_by_this_key_is_gone_on_from(alice: bm.Store, tmp_path: Path) -> None:
    with opened(tmp_path, "bob") as (bob,):
        bob.export_bundle(tmp_path / "bob", key=ALICE)
    alice.export_bundle(tmp_path / "other key", key=BOB)

    for name, why in (("bob", "it is of log"), ("other key", "it was signed by"), ("absent", "cannot be read")):
        with pytest.raises(BundleRefused, match=why):
            alice.export_bundle(tmp_path / "new", key=ALICE, since=tmp_path / name)
    assert not (tmp_path / "new").exists()


def test_erased_content_does_not_travel(alice: bm.Store, tmp_path: Path) -> None:
    alice.append([Erasure("more", ["u1"])])
    alice.export_bundle(tmp_path / "all", key=ALICE)
    alice.export_bundle(tmp_path / "main", key=ALICE, refs=["main"])

    assert bare_ids(tmp_path / "all") == {"u3", "pay", "u1", "home", "flat"}
    for name in ("all", "main"):
        held = payloads(tmp_path / name)
        assert b"Chengdu" not in held
        assert b"salary" not in held
        assert b"Hangzhou now" in held


def test_what_is_erased_while_a_bundle_is_written_is_not_in_it(alice: bm.Store, tmp_path: Path) -> None:
    waiting = [Erasure("first", ["u1"]), Erasure("second", ["u2"])]

    def meanwhile(done: int, total: int | None) -> None:
        if waiting and done == total:
            thread = threading.Thread(target=alice.append, args=([waiting.pop()],))
            thread.start()
            thread.join()

    made = alice.export_bundle(tmp_path / "all", key=ALICE, progress=meanwhile)

    assert not waiting
    assert bare_ids(tmp_path / "all") == {"u3", "pay", "u1", "home", "flat", "u2", "moved"}
    assert made.manifest.digest == alice.digest()
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name.startswith("all")) == ["all"]


def test_what_turns_out_to_be_erased_while_a_bundle_is_written_comes_with_what_explains_it(
    alice: bm.Store, tmp_path: Path
) -> None:
    """No erasure is new, but what links a memory to one that was erased before."""
    alice.append([Memory("far", "a copy of it", derived_from=["between"])])
    link = [Memory("between", "", derived_from=["pay"])]
    write = exporting._write

    def written(*arguments: Any) -> str | None:
        if link:
            alice.append([link.pop()])
        return write(*arguments)

    with patch("branchmem.bundle.exporting._write", side_effect=written):
        made = alice.export_bundle(tmp_path / "all", key=ALICE)

    assert bare_ids(tmp_path / "all") == {"u3", "pay", "between", "far"}
    assert made.manifest.digest == alice.digest()
    with opened(tmp_path, "other") as (other,):
        other.pins.pin(ALICE.public, "alice")
        other.import_bundle(tmp_path / "all")
        assert other.digest() == alice.digest()


def test_what_is_wanted_is_refused_by_name(alice: bm.Store, tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"something")
    new = tmp_path / "new"

    with pytest.raises(StoreExists):
        alice.export_bundle(tmp_path / "there", key=ALICE)
    with pytest.raises(UnknownRef, match="nowhere"):
        alice.export_bundle(new, key=ALICE, refs=["main", "nowhere"])
    with pytest.raises(BundleNotWritten, match="no ref is named"):
        alice.export_bundle(new, key=ALICE, refs=[])
    with pytest.raises(TypeError, match=r"\['main'\]"):
        alice.export_bundle(new, key=ALICE, refs="main")
    for unfit in (datetime(2099, 1, 1), date(2099, 1, 1), "2099-01-01T00:00:00Z"):
        with pytest.raises(InvalidTime, match="expires"):
            alice.export_bundle(new, key=ALICE, expires=unfit)  # type: ignore[arg-type]
    with pytest.raises(InvalidKey):
        alice.export_bundle(new, key=ALICE, recipient="bob")
    with bm.open(tmp_path / "alice.bmem", readonly=True) as reading, pytest.raises(StoreReadOnly):
        reading.export_bundle(new, key=ALICE)
    assert (tmp_path / "there").read_bytes() == b"something"
    assert not new.exists()


def test_a_bundle_names_its_recipient_and_its_end(alice: bm.Store, tmp_path: Path) -> None:
    end, now = datetime(2030, 1, 1, tzinfo=UTC), datetime(2029, 1, 1, tzinfo=UTC)
    made = export_bundle(alice, tmp_path / "a", key=ALICE, recipient=BOB.public, expires=end, now=lambda: now)
    again = alice.export_bundle(tmp_path / "b", key=ALICE, recipient=BOB.fingerprint, expires=end)

    assert made.manifest.recipient == again.manifest.recipient == BOB.fingerprint
    assert (made.manifest.expires, made.manifest.created) == (end, now)
    with BundleFile.open(tmp_path / "a") as bundle:
        bundle.admit(end - timedelta(microseconds=1), BOB)
        for when, whose, why in ((end, BOB, "expired"), (now, ALICE, "is for the key"), (now, None, "is for the key")):
            with pytest.raises(BundleRefused, match=why):
                bundle.admit(when, whose)


def test_numbers_rise_also_after_a_backup_was_restored(alice: bm.Store, tmp_path: Path) -> None:
    made = [alice.export_bundle(tmp_path / "0", key=ALICE)]
    alice.backup(tmp_path / "restored.bmem")
    made += [alice.export_bundle(tmp_path / str(at), key=ALICE) for at in (1, 2)]
    alice.close()
    with opened(tmp_path, "alice", "restored") as (again, restored):
        made.append(again.export_bundle(tmp_path / "3", key=BOB))
        made.append(restored.export_bundle(tmp_path / "4", key=ALICE))

    numbers = [each.manifest.number for each in made]
    assert numbers == sorted(set(numbers))
    assert made[4].manifest.origin == made[0].manifest.origin


def test_an_empty_store_has_a_bundle_too(tmp_path: Path) -> None:
    with opened(tmp_path, "empty", "other") as (empty, other):
        made = empty.export_bundle(tmp_path / "nothing", key=ALICE)
        other.pins.pin(ALICE.public, "alice")

        assert (made.events, made.manifest.digest) == (0, empty.digest())
        assert other.import_bundle(tmp_path / "nothing").imported == 0


def test_the_receipt_says_in_four_lines_what_travels(alice: bm.Store, tmp_path: Path) -> None:
    alice.export_bundle(tmp_path / "1", key=ALICE)
    alice.append([Message("u4", "u2")])
    end = datetime(2030, 1, 1, tzinfo=UTC)
    made = alice.export_bundle(tmp_path / "2", key=ALICE, since=tmp_path / "1", recipient=BOB.fingerprint, expires=end)
    lines = str(made).splitlines()

    assert len(lines) == 4
    with BundleFile.open(tmp_path / "1") as first:
        assert lines[0].endswith(f"+00:00, going on from bundle {first.manifest.id}")
    assert f"of log {made.manifest.origin}, made 20" in lines[0]
    assert lines[1] == "events: 1 message, 0 memories, 0 that take back, restore or erase"
    assert lines[2] == "refs: edit at u1-edit, main at u3"
    assert lines[3] == f"signed by {ALICE.fingerprint}, for {BOB.fingerprint}, until 2030-01-01 00:00:00+00:00"
    told: dict[str, Any] = made.to_dict()
    assert (told["path"], told["id"], told["number"]) == (made.path, made.id, made.manifest.number)
