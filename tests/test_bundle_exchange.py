"""Three stores that trust each other exchange bundles at random: told before, done once, and one log in the end."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Literal
from unittest.mock import patch

import branchmem as bm
import pytest
from branchmem import Memory, Message
from branchmem.bundle import STRATEGIES
from branchmem.errors import BundleRefused, MergeConflict
from branchmem.events import Erasure, Event, Restoration, Retraction
from bundle_files import key
from figures import Figure, Quote
from travels import opened, swift_folder

pytestmark = pytest.mark.usefixtures("quiet")

SEED = "x"
NAMES = "abc"
SIGNERS = [key(number + 1) for number in range(3)]
KEYS = ("city", "job", "pet")
SCOPES: list[Literal["branch", "tree", "everywhere"]] = ["branch", "tree", "everywhere"]
TABLES = ("refs", "reflog", "pins", "held")
#: Exchanges of everything until nothing is new.
ROUNDS = 8


def everything(store: bm.Store) -> tuple[str, dict[str, dict[bytes, bytes]]]:
    """The digest, and all local state."""
    tables = store.snapshot(lambda reader: {name: dict(reader.table(name).items()) for name in TABLES}, tables=TABLES)
    return store.digest(), tables


def lived(chance: Random, store: bm.Store, name: str) -> None:
    """Something is said, remembered, replaced, taken back, restored or erased; a ref is made or moves back."""
    ref = chance.choice(list(store.refs))
    head = store.refs[ref]
    messages, memories = list(store.message_ids), list(store.memory_ids)
    events: list[Event] = []
    for id in (f"{name}.{number}" for number in range(chance.randrange(1, 4))):
        match chance.randrange(12):
            case 0 | 1 | 2 | 3:
                events.append(Message(id, head, role="user", text=id))
                head = id
                messages.append(id)
            case 4 | 5 | 6 | 7:
                day = datetime(2026, 1, 1 + chance.randrange(20), tzinfo=UTC)
                events.append(
                    Memory(
                        id,
                        chance.choice(("tea", "coffee", id)),
                        sources=[head],
                        key=chance.choice((None, None, *KEYS)),
                        supersedes=chance.sample(memories, min(len(memories), chance.choice((0, 0, 1)))),
                        derived_from=chance.sample(memories, min(len(memories), chance.choice((0, 0, 0, 1)))),
                        created=chance.choice((None, day, day)),
                    )
                )
                memories.append(id)
            case 8:
                named = chance.sample(memories, min(2, len(memories)))
                at, scope = chance.choice(messages), chance.choice(SCOPES)
                events.append(Retraction(id, at, scope=scope, memories=named, keys=KEYS[:1]))
            case 9:
                for known in list(store.log.events(type="retraction"))[:1]:
                    events.append(Restoration(id, chance.choice(messages), scope="everywhere", retraction=known.id))
            case 10 if chance.random() < 0.4:
                events.append(Erasure(id, [chance.choice(messages + memories)], cascade=chance.random() < 0.6))
            case _:
                head = chance.choice(store.tree.path(store.refs[ref]))
    store.append(events)
    if store.refs[ref] != head:
        store.refs.move(ref, head)
    if chance.random() < 0.1 and len(store.refs) < 4:
        store.refs.create(f"ref {name}", chance.choice(list(store.message_ids)))


def taken_in(store: bm.Store, path: Path, strategy: str, case: str, total: Counter[str]) -> None:
    """Import a bundle; what was told before is done, to the letter, and doing it again does nothing."""
    before = everything(store)
    expected: Any
    try:
        expected = store.import_bundle(path, strategy=strategy, dry_run=True).to_dict()
    except BundleRefused as refused:
        expected = str(refused)
    assert everything(store) == before, case
    try:
        done = store.import_bundle(path, strategy=strategy)
    except BundleRefused as refused:
        told = str(refused)
        assert (told, everything(store)) == (expected, before), case
        total["refused"] += 1
        return
    except MergeConflict:
        assert "conflict" in {ref["how"] for ref in expected["refs"]}, case
        assert everything(store) == before, case
        total["conflicts"] += 1
        return
    assert {**done.to_dict(), "dry_run": True} == expected, case
    assert {ref.name: ref.after for ref in done.refs}.items() <= dict(store.refs).items(), case
    after = everything(store)
    for again in STRATEGIES:
        assert store.import_bundle(path, strategy=again).imported == 0, case
        assert everything(store) == after, f"{case}, again with {again}"
    total["imports"] += 1
    total["merges"] += sum(ref.how == "merged" for ref in done.refs)


@pytest.mark.soak
def test_three_stores_that_exchange_bundles_in_any_order_become_one_log(figure: Figure, quote: Quote) -> None:
    total = Counter[str]()
    for number in range(figure(20, 300)):
        case = f"{SEED}{number}"
        chance = Random(case)
        with (
            swift_folder() as folder,
            opened(folder, *NAMES) as stores,
            patch("os.fsync"),
            patch("branchmem.bundle.joining._BATCH", chance.choice((3, 10_000))),
            patch("branchmem.bundle.frames.FRAME_BYTES", chance.choice((200, 1 << 20))),
        ):
            exchanged(chance, stores, folder, case, total)
            for at in range(ROUNDS):
                before = {store.digest() for store in stores}
                for which, sender in enumerate(stores):
                    path = folder / f"last {at} {which}"
                    sender.export_bundle(path, key=SIGNERS[which])
                    for receiver in stores[:which] + stores[which + 1 :]:
                        taken_in(receiver, path, "both", f"seed {case}, round {at}", total)
                if before == {store.digest() for store in stores}:
                    break
            assert len({store.digest() for store in stores}) == 1, case
            erased = [{id for id in store.message_ids if store.log.is_erased(id)} for store in stores]
            assert erased[0] == erased[1] == erased[2], case
            assert all(store.check().ok for store in stores), case
    assert min(total["imports"], total["merges"], total["refused"]) > 10
    quote(
        f"bundles: {total['imports']:,} imported between three stores in any order, with {total['merges']:,} merges "
        f"and {total['refused']:,} refused for their order: previews exact, each done once, one digest in the end"
    )


def exchanged(chance: Random, stores: list[bm.Store], folder: Path, case: str, total: Counter[str]) -> None:
    """Stores that live on, export all, a ref or what is new, and import what the others sent, some of it too late."""
    for store in stores:
        for signer in SIGNERS:
            store.pins.pin(signer.public, signer.fingerprint)
    for store in stores[: chance.choice((1, 3))]:
        store.append([Message("chat", None, role="thread"), Memory("base", "tea", sources=["chat"], key="city")])
        store.refs.create("main", "chat")
    sent: list[tuple[int, Path]] = []
    for step in range(chance.randrange(10, 50)):
        which = chance.randrange(3)
        store, act = stores[which], chance.random()
        if len(store.refs) and act < 0.45:
            lived(chance, store, f"{NAMES[which]}{step}")
        elif len(store.refs) and act < 0.7:
            mine = [path for sender, path in sent if sender == which]
            refs = chance.sample(list(store.refs), 1) if chance.random() < 0.4 else None
            since = chance.choice(mine[-3:]) if mine and chance.random() < 0.6 else None
            store.export_bundle(folder / str(step), key=SIGNERS[which], refs=refs, since=since)
            sent.append((which, folder / str(step)))
        elif sent:
            sender, path = chance.choice(sent[-6:])
            if sender != which:
                taken_in(store, path, chance.choice(list(STRATEGIES)), f"seed {case}, step {step}", total)
