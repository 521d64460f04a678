"""Erasures while several processes write and read: content is gone for all of them, and nobody takes it for damage."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import branchmem as bm
from branchmem.events import Erasure, Event
from branchmem.reference import Reference

SEED = 20260408
WRITERS = 3
MESSAGES = 400

CONVERSATION: list[Event] = [
    bm.Message("chat", None),
    *(bm.Message(f"u{at}", f"u{at // 2}" if at else "chat", text=f"<u{at}>") for at in range(MESSAGES)),
    *(bm.Memory(f"k{at}", f"<k{at}>", sources=[f"u{at}"]) for at in range(MESSAGES)),
    *(bm.Memory(f"l{at}", f"<l{at}>", derived_from=[f"k{at}", f"k{at // 2}"]) for at in range(MESSAGES)),
]
ERASURES = [Erasure(f"e{at}", [f"u{at}", f"l{at + 1}"], cascade=at % 4 == 0) for at in range(0, MESSAGES, 3)]


def write(path: Path, number: int) -> None:
    """Append all there is, in an order of one's own, a few events at a time."""
    chance = Random(f"{SEED} {number}")
    events = chance.sample([*CONVERSATION, *ERASURES], len(CONVERSATION) + len(ERASURES))
    with bm.open(path) as store:
        while events:
            batch = [events.pop() for _ in range(min(len(events), chance.randint(1, 6)))]
            store.append(batch)


def test_writers_and_readers_agree_on_what_is_erased(path: Path) -> None:
    bm.open(path).close()
    running = set()
    for number in range(WRITERS):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                write(path, number)
                status = 0
            finally:
                os._exit(status)
        running.add(pid)
    looks = 0
    with bm.open(path) as store:
        while running:
            for pid in list(running):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    running.discard(pid)
                    assert status == 0, f"seed {SEED}"
            view = store.at("chat", policy=bm.Policy(bm.Reason.FUTURE | bm.Reason.SIBLING))
            meanwhile = []
            try:
                assert all(memory.text for memory in view.memories())
            except bm.MemoryHidden as error:
                meanwhile.append(error.id)
            assert all(map(store.log.is_erased, meanwhile))
            gone = {id for id in store.memory_ids if store.log.is_erased(id)}
            assert not any(event.text for event in store.log.events(type="memory") if event.id in gone)  # type: ignore[attr-defined]
            assert store.check().ok
            assert len(store.digest()) == 64
            looks += 1

        reference = Reference()
        reference.add([*CONVERSATION, *ERASURES])
        assert looks > 1
        assert store.digest() == reference.digest()
        assert sorted(erasure.id for erasure in store.erasures()) == sorted(erasure.id for erasure in ERASURES)
        store.compact()
        held = path.read_bytes()
        kept = {event.id for event in CONVERSATION if not reference.is_erased(event.id)} - {"chat"}
        assert {id for event in CONVERSATION if f"<{(id := event.id)}>".encode() in held} == kept
