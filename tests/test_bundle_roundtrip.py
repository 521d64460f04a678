"""There and back: memory that others worked on comes home, and what was erased comes back in no order of anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

import branchmem as bm
import pytest
from branchmem import Memory, Message, _core
from branchmem.codec import as_it_stays
from branchmem.events import Erasure, Event, Retraction
from bundle_files import key
from figures import Figure, Quote
from travels import ALICE, BOB, counted, opened, payloads, swift_folder

SEED = 20_260_403


# Hand-over


def talked(store: bm.Store, ref: str, name: str) -> None:
    """One turn on a ref, and what was remembered of it."""
    store.append(
        [
            Message(f"{name}-u", store.refs[ref], role="user", text=f"{name} says something"),
            Memory(f"{name}-k", f"what {name} said", sources=[f"{name}-u"], key=name),
        ]
    )
    store.refs.move(ref, f"{name}-u")


def texts(store: bm.Store, ref: str) -> set[str]:
    return {memory.text for memory in store.at_ref(ref).memories()}


@pytest.mark.parametrize("moved_on", [False, True], ids=["stood still", "moved on"])
def test_memory_that_was_handed_over_comes_back(tmp_path: Path, moved_on: bool) -> None:
    with opened(tmp_path, "alice", "bob") as (alice, bob):
        alice.pins.pin(BOB.public, "bob")
        bob.pins.pin(ALICE.public, "alice")
        alice.append([Message("chat", None, role="thread")])
        alice.refs.create("main", "chat")
        talked(alice, "main", "first")
        alice.export_bundle(tmp_path / "there", key=ALICE, refs=["main"], recipient=BOB.public)
        bob.import_bundle(tmp_path / "there", key=BOB)
        talked(bob, "main", "bob")
        if moved_on:
            talked(alice, "main", "meanwhile")
        bob.export_bundle(tmp_path / "back", key=BOB, refs=["main"])
        expected = alice.preview_bundle(tmp_path / "back")

        done = alice.import_bundle(tmp_path / "back")

        assert counted(done) == {"imported": 2, "duplicates": 3, "held": 0, "refused": 0}
        assert {**expected.to_dict(), "dry_run": False} == done.to_dict()
        assert texts(alice, "main") == {
            "what first said",
            "what bob said",
            *(["what meanwhile said"] if moved_on else []),
        }
        (ref,) = done.refs
        if moved_on:
            assert (ref.how, set(done.adopted), ref.before) == ("merged", {"bob-k"}, "meanwhile-u")
            assert alice.tree.parent(alice.refs["main"]) == "meanwhile-u"
        else:
            assert (ref.how, done.adopted, alice.refs["main"]) == ("fast-forward", {}, "bob-u")
            assert alice.digest() == bob.digest()
        digest, moves = alice.digest(), len(alice.refs.log("main"))
        alice.import_bundle(tmp_path / "back")
        assert (alice.digest(), len(alice.refs.log("main"))) == (digest, moves)


def test_two_stores_that_keep_sending_each_other_what_is_new_converge(tmp_path: Path) -> None:
    """Each imports what the other sent since last time; when both are quiet, one more exchange makes them one."""
    with opened(tmp_path, "alice", "bob") as (alice, bob):
        sides = [(alice, ALICE, bob), (bob, BOB, alice)]
        alice.pins.pin(BOB.public, "bob")
        bob.pins.pin(ALICE.public, "alice")
        alice.append([Message("chat", None, role="thread")])
        alice.refs.create("main", "chat")
        last: dict[bm.Store, Path | None] = {alice: None, bob: None}
        for turn in range(8):
            sender, signer, receiver = sides[turn % 2]
            if turn < 5:
                for store, _, _ in sides if turn else sides[:1]:
                    talked(store, "main", f"{signer.fingerprint[:6]}{turn}{'a' if store is alice else 'b'}")
            path = tmp_path / f"{turn}"
            sender.export_bundle(path, key=signer, since=last[sender])
            receiver.import_bundle(path, strategy="both")
            last[sender] = path

        assert alice.digest() == bob.digest()
        assert texts(alice, "main") == texts(bob, "main")
        assert len(texts(alice, "main")) == 9


# Nothing brings back what was erased (R7)


def marked(id: str) -> str:
    """A text that bears its id again and again."""
    return f"<{id}:secret>" * 3


def found(*held: bytes) -> set[str]:
    """The ids whose content is somewhere in these bytes."""
    return {id.decode() for each in held for id in re.findall(rb"<(\w+):secret", each)}


def in_files(store: bm.Store) -> set[str]:
    """The ids whose content is in the file of a store, after a rewrite."""
    store.compact()
    path = Path(store.path)
    return found(*(entry.read_bytes() for entry in path.parent.iterdir() if entry.name.startswith(path.name)))


def a_log(chance: Random) -> list[Event]:
    """Conversations, memories in chains, a retraction, and erasures, some of what never comes."""
    messages, memories = [f"u{number}" for number in range(12)], [f"k{number}" for number in range(12)]
    events: list[Event] = []
    for at, id in enumerate(messages):
        above = chance.choice(messages[:at]) if at and chance.random() < 0.9 else None
        events.append(Message(id, above, role="user", text=marked(id)))
    for at, id in enumerate(memories):
        events.append(
            Memory(
                id,
                marked(id),
                sources=chance.sample(messages, chance.choice((0, 1, 1, 2))),
                derived_from=chance.sample(memories[:at], min(at, chance.choice((0, 0, 1, 2)))),
                adopts=chance.choice(memories[:at]) if at and chance.random() < 0.1 else None,
                supersedes=chance.sample(memories[:at], min(at, chance.choice((0, 0, 1)))),
            )
        )
    events.append(Retraction("r", messages[3], scope="branch", memories=memories[:2]))
    for number in range(3):
        targets = chance.sample([*messages, *memories, "absent"], chance.choice((1, 2)))
        events.append(Erasure(f"e{number}", targets, cascade=chance.random() < 0.7))
    return events


def lived(chance: Random, store: bm.Store, folder: Path) -> list[Path]:
    """A store that is told its log in some order, and the bundles that it sent now and then, each by another key."""
    told = a_log(chance)
    chance.shuffle(told)
    sent: list[Path] = []
    while told:
        size = chance.randrange(1, 12)
        batch, told = told[:size], told[size:]
        store.append(batch)
        heads = [event.id for event in batch if isinstance(event, Message)]
        for id in heads[:1]:
            store.refs.create(f"ref {len(sent)}", id)
        path = folder / f"bundle{len(sent)}"
        refs = chance.sample(list(store.refs), 1) if len(store.refs) and chance.random() < 0.4 else None
        store.export_bundle(path, key=key(10 + len(sent)), refs=refs)
        sent.append(path)
    return sent


def may_be_held(erasures: list[Erasure], sent: list[Path]) -> set[str]:
    """The ids of contents of which a stranger to these bundles cannot know that they are erased."""
    open_to_all = set()
    for path in sent:
        skeletons, _ = _core.split_records(payloads(path))
        engine = bm.Engine()
        engine.add([*erasures, *map(as_it_stays, skeletons)])
        open_to_all |= {id for id in (*engine.message_ids, *engine.memory_ids) if not engine._engine.is_erased(id)}
    return open_to_all


@pytest.mark.soak
def test_no_bundle_brings_back_what_was_erased(figure: Figure, quote: Quote) -> None:
    orders, erased_of_all = figure(100, 1_000), 0
    for number in range(orders):
        case = f"seed {SEED}, order {number}"
        chance = Random(case)
        with (
            swift_folder() as folder,
            opened(folder, "from", "trusting", "strange") as (origin, trusting, strange),
            patch("os.fsync"),
        ):
            sent = lived(chance, origin, folder)
            origin.export_bundle(folder / "last", key=ALICE)
            erased = {id for id in (*origin.message_ids, *origin.memory_ids) if origin.log.is_erased(id)}
            assert not found(payloads(folder / "last")) & erased, case
            trusting.pins.pin(ALICE.public, "last")
            for at in range(len(sent)):
                trusting.pins.pin(key(10 + at).public, f"key {at}")
            steps: list[Callable[[], object]] = [
                partial(trusting.import_bundle, folder / "last", refs={}),
                *(partial(trusting.import_bundle, path, refs={}) for path in sent),
                partial(trusting.append, origin.erasures()),
                *(partial(strange.import_bundle, path) for path in sent),
                partial(strange.append, origin.erasures()),
            ]
            steps += chance.sample(steps, 4)
            chance.shuffle(steps)
            for step in steps:
                step()
            assert trusting.digest() == origin.digest(), case
            kept = {event.id for event in origin.log.events() if event.id[0] in "uk"} - erased
            assert in_files(trusting) == kept, case
            assert in_files(strange) <= may_be_held(origin.erasures(), sent), case
            trusting.export_bundle(folder / "onward", key=BOB)
            assert found(payloads(folder / "onward")) == kept, case
            assert trusting.check().ok, case
            erased_of_all += len(erased)
    assert erased_of_all > 3 * orders
    quote(
        f"bundles: {erased_of_all:,} erased contents found 0 times in files and bundles made later, "
        f"after imports of old bundles in {orders:,} orders"
    )
