"""Erased content is gone from the files, and no order of backups, replays, imports and rewrites brings it back."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import branchmem as bm
import lmdb
import pytest
from branchmem import importers
from branchmem.events import Erasure, Event, Retraction
from branchmem.log.blanks import blank
from branchmem.reference import Reference
from exports import stored_in
from figures import Figure, Quote
from lmdb.verify import verify

SEED = 20260405
PAGE = 4096

#: How long contents are: within a page, nearly a page, on pages of their own.
SIZES = (1, 3, 20, 90, 150, 400, 2_000)


def marked(id: str, chance: Random) -> str:
    """A text that bears its id in every dozen bytes."""
    return f"<{id}:secret>" * chance.choice(SIZES)


def found(files: dict[str, bytes]) -> set[str]:
    """The ids whose content is somewhere in these files."""
    return {id.decode() for held in files.values() for id in re.findall(rb"<(\w+):secret", held)}


def beside(path: Path) -> dict[str, bytes]:
    """The file of a store and all that lies beside it."""
    return {entry.name: entry.read_bytes() for entry in path.parent.iterdir() if entry.name.startswith(path.name)}


# What LMDB leaves where no record is


def one_key(number: int) -> tuple[bytes, bytes]:
    """A database and a key in it: of 8 bytes, or of one to as many as LMDB takes."""
    if number % 3:
        return b"bodies", number.to_bytes(8, "big")
    return b"others", (b"%d-" % number * 256)[: 511 - number % 300] if number % 2 else b"%d" % number


@pytest.mark.parametrize("turn", range(6))
def test_a_copy_without_free_pages_holds_nothing_but_records(turn: int, tmp_path: Path) -> None:
    chance = Random(f"{SEED} {turn}")
    path, draft = tmp_path / "a.mdb", tmp_path / "b.mdb"
    records: dict[bytes, dict[bytes, bytes]] = {b"bodies": {}, b"others": {}}
    with lmdb.open(str(path), subdir=False, max_dbs=2, lib_version=0, map_size=1 << 27) as env:
        databases = {name: env.open_db(name) for name in records}
        for commit in range(140):
            with env.begin(write=True) as txn:
                for place in chance.sample(range(600), 12):
                    name, key = one_key(place)
                    value = marked(f"x{commit}_{place}", chance).encode()[: chance.choice((0, 1, 2_000, 4_080, 20_000))]
                    match chance.random() if commit < 100 else 1:
                        case share if share < 0.1:
                            txn.delete(key, db=databases[name])
                            records[name].pop(key, None)
                            continue
                        case 1:
                            value = b"erased"[: chance.randrange(7)]
                    txn.put(key, value, db=databases[name])
                    records[name][key] = value
        kept = found({"": b"\0".join(value for each in records.values() for value in each.values())})
        with draft.open("w+b") as out:
            env.copyfd(out.fileno(), compact=True)
            raw = draft.read_bytes()
            blank(out.fileno(), PAGE)

    assert found({"": path.read_bytes()}) - kept
    assert found({"": raw}) - kept, f"seed {SEED}, turn {turn}: LMDB leaves nothing that could be found"
    assert found({"": draft.read_bytes()}) == kept, f"seed {SEED}, turn {turn}"
    assert list(verify(str(draft), subdir=False)) == []  # type: ignore[no-untyped-call]
    with (
        lmdb.open(str(draft), subdir=False, max_dbs=2, lib_version=0, readonly=True, lock=False) as env,
        env.begin() as txn,
    ):
        for name, expected in records.items():
            assert dict(txn.cursor(env.open_db(name, txn=txn, create=False))) == expected


def test_a_compacted_store_and_a_backup_hold_nothing_that_was_erased(path: Path, tmp_path: Path) -> None:
    chance = Random(SEED)
    with bm.open(path) as store:
        store.append([bm.Message("chat", None, role="thread")])
        for number in range(300):
            said, told = (marked(f"{kind}{number}", chance) for kind in "ut")
            source = bm.Message(f"u{number}", "chat", role=f"<r{number}:secret>", text=said, meta={"told": told})
            store.append([source, bm.Memory(f"k{number}", marked(f"k{number}", chance), sources=[source.id])])
        for first in range(0, 300, 30):
            store.append([Erasure(f"e{first}", [f"u{number}" for number in range(first, first + 20)])])
        kept = {f"{kind}{number}" for kind in "utrk" for number in range(300) if number % 30 >= 20}

        assert found(beside(path)) > kept
        store.backup(tmp_path / "copy.bmem")
        assert found(beside(tmp_path / "copy.bmem")) == kept
        digest = store.digest()
        store.compact()
        assert found(beside(path)) == kept
        assert store.digest() == digest
        assert store.check().erased == 400
    assert found(beside(path)) == kept


# Nothing brings it back (R7)


class History(NamedTuple):
    """What was kept of a store along its way, and what it is at its end."""

    events: list[Event]
    backups: list[Path]
    exports: list[Path]
    erasures: list[Erasure]
    digest: str
    erased: frozenset[str]


def a_log(chance: Random) -> list[Event]:
    """Conversations, memories in chains, a retraction, and erasures, some of what never comes."""
    messages = [f"u{number}" for number in range(14)]
    memories = [f"k{number}" for number in range(14)]
    events: list[Event] = []
    for at, id in enumerate(messages):
        above = chance.choice(messages[:at]) if at and chance.random() < 0.9 else None
        text = None if chance.random() < 0.1 else marked(id, chance)
        when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=at)
        events.append(bm.Message(id, above, role="user", text=text, created=when, meta={"is": f"<{id}:secret>"}))
    for at, id in enumerate(memories):
        events.append(
            bm.Memory(
                id,
                marked(id, chance),
                sources=chance.sample(messages, chance.choice((0, 1, 1, 2))),
                derived_from=chance.sample(memories[:at], min(at, chance.choice((0, 0, 1, 2)))),
                adopts=chance.choice(memories[:at]) if at and chance.random() < 0.1 else None,
                supersedes=chance.sample(memories[:at], min(at, chance.choice((0, 0, 1)))),
                meta={"of": [f"<{id}:secret>"]} if chance.random() < 0.5 else {},
            )
        )
    events.append(Retraction("r", messages[3], scope="branch", memories=memories[:2]))
    for number in range(3):
        targets = chance.sample([*messages, *memories, "absent"], chance.choice((1, 2)))
        events.append(Erasure(f"e{number}", targets, cascade=chance.random() < 0.7))
    return events


def export(store: bm.Store, path: Path) -> Path:
    path.write_bytes(b"".join(importers.dump(store.log.events())))
    return path


def lived(chance: Random, folder: Path) -> History:
    """A store that is told its log in some order, and backed up and exported now and then."""
    folder.mkdir()
    events = a_log(chance)
    erasures = [event for event in events if isinstance(event, Erasure)]
    told = [event for event in events if not isinstance(event, Erasure)]
    chance.shuffle(told)
    early = told[: chance.randrange(1, len(told))]
    late = [*told[len(early) :], *erasures]
    chance.shuffle(late)
    backups, exports = [], []
    with bm.open(folder / "store.bmem") as store:
        store.append(early)
        for number in range(4):
            backups.append(Path(store.backup(folder / f"backup{number}.bmem")))
            exports.append(export(store, folder / f"export{number}.jsonl"))
            share = late[number::4]
            cut = chance.randrange(len(share) + 1)
            store.append(share[:cut])
            store.append(share[cut:])
        exports.append(export(store, folder / "export4.jsonl"))
        return History(events, backups, exports, store.erasures(), store.digest(), erased_of(events))


def erased_of(events: list[Event]) -> frozenset[str]:
    reference = Reference()
    reference.add(events)
    return frozenset(event.id for event in events if reference.is_erased(event.id))


def steps(chance: Random, history: History, store: bm.Store) -> list[Callable[[], object]]:
    """What may be done with a store that was restored: all of it, in some order, some of it twice."""

    def take(file: Path) -> object:
        return importers.import_file(
            file, append=store.append, stored=stored_in(store), erased=store.log.is_erased, format="events"
        )

    shuffled = chance.sample(history.events, len(history.events))
    cut = chance.randrange(len(shuffled))
    replays: list[list[Event]] = (
        [[*history.erasures]] if chance.random() < 0.5 else [[erasure] for erasure in history.erasures]
    )
    todo: list[Callable[[], object]] = [
        *(partial(store.append, batch) for batch in (*replays, shuffled[:cut], shuffled[cut:])),
        *(partial(take, file) for file in chance.sample(history.exports, 3)),
        store.compact,
    ]
    todo += chance.sample(todo, 2)
    return chance.sample(todo, len(todo))


@pytest.mark.soak
def test_nothing_brings_erased_content_back(tmp_path: Path, figure: Figure, quote: Quote) -> None:
    orders, bytes_searched, contents = figure(100, 1_000), 0, 0
    history: History | None = None
    for number in range(orders):
        chance = Random(f"{SEED} {number}")
        case = f"seed {SEED}, order {number}"
        if number % 4 == 0 or history is None:
            shutil.rmtree(tmp_path / "lived", ignore_errors=True)
            history = lived(Random(f"{SEED} lived {number}"), tmp_path / "lived")
        folder = tmp_path / "restored"
        folder.mkdir()
        path = folder / "store.bmem"
        if chance.random() < 0.8:
            shutil.copy(chance.choice(history.backups), path)
        with bm.open(path) as store:
            for step in steps(chance, history, store):
                step()
            assert store.digest() == history.digest, case
            store.compact()
            store.backup(folder / "later.bmem")
            export(store, folder / "later.jsonl")
            report = store.check()
            assert (report.ok, report.erased) == (True, len(history.erased)), case
            files = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
        assert {"store.bmem", "store.bmem-lock", "store.bmem-guard", "later.bmem", "later.jsonl"} <= files.keys()
        seen = found(files)
        kept = {event.id for event in history.events if event.id not in history.erased}
        assert not seen & history.erased, f"{case}: {sorted(seen & history.erased)} is there again"
        assert seen == {id for id in kept if id[0] in "uk"}, case
        bytes_searched += sum(map(len, files.values()))
        contents += len(history.erased)
        shutil.rmtree(folder)
    assert contents > 4 * orders
    quote(
        f"erasure: {contents:,} erased contents found 0 times in {bytes_searched / 1e6:,.0f} MB of files, "
        f"after backups, replays, imports and rewrites in {orders:,} orders"
    )
