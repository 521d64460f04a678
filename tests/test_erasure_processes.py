"""Erasures among processes that write, read, are killed and run out of room.

Content is gone for all of them or for none, and nobody takes what is gone for damage.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from pathlib import Path
from random import Random
from typing import NoReturn

import branchmem as bm
import pytest
from branchmem.events import Erasure, Event
from branchmem.reference import Reference
from figures import Figure, Quote
from logs import in_child

SEED = 20260408
WRITERS = 3
MESSAGES = 400
#: What lies beside a store that is open.
ENDS = ("", "-guard", "-lock")

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


# Cut short


def told(turn: int, number: int) -> list[Event]:
    """A message and what came from it, the last of it through a memory that comes after the erasure."""
    name = f"{turn}_{number}"
    size = Random(f"{SEED} {name}").choice((1, 30, 900))
    return [
        bm.Message(f"u{name}", None, text=f"<u{name}>" * size),
        bm.Memory(f"k{name}", f"<k{name}>" * size, sources=[f"u{name}"]),
        bm.Memory(f"l{name}", f"<l{name}>", derived_from=[f"between{name}"]),
    ]


def erase_until_killed(path: Path, turn: int, said: int) -> NoReturn:
    try:
        with bm.open(path) as store:
            for number in range(1_000):
                store.append(told(turn, number))
                store.append([Erasure(f"e{turn}_{number}", [f"u{turn}_{number}"])])
                store.append([bm.Memory(f"between{turn}_{number}", "", derived_from=[f"k{turn}_{number}"])])
                os.write(said, number.to_bytes(8))
                if number % 4 == 3:
                    store.compact()
    finally:
        os._exit(1)


@pytest.mark.soak
def test_a_kill_leaves_an_erasure_without_content_or_neither(path: Path, figure: Figure, quote: Quote) -> None:
    chance = Random(SEED)
    turns, erased = figure(12, 1_000), 0
    for turn in range(turns):
        case = f"seed {SEED}, turn {turn}"
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            erase_until_killed(path, turn, writing)
        os.close(writing)
        with open(reading, "rb", buffering=0) as said:
            acknowledged = sum(len(said.read(8)) for _ in range(chance.randint(1, 8)))
            time.sleep(chance.random() * 0.02)
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            assert os.WTERMSIG(status) == signal.SIGKILL
            acknowledged += len(said.read())
        gone: set[str] = set()
        with bm.open(path, create=False, verify=True) as store:
            assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name + end for end in ENDS], case
            for number in range(acknowledged // 8 + 2):
                name = f"{turn}_{number}"
                is_erased, is_linked = f"e{name}" in store.log, f"between{name}" in store.log
                assert is_erased or number >= acknowledged // 8, case
                for event, expected in zip(told(turn, number), (is_erased, is_erased, is_linked), strict=True):
                    assert store.log.is_erased(event.id) == expected, case
                    assert not expected or store.log.get(event.id) != event, case
                    assert expected or event.id not in store.log or store.log.get(event.id) == event, case
                    gone |= {event.id} if expected else set()
            assert store.check().ok, case
            store.compact()
        assert gone.isdisjoint(id.decode() for id in re.findall(rb"<(\w+)>", path.read_bytes())), case
        erased += len(gone)
    quote(f"{turns:,} processes killed while they erased: of {erased:,} erased contents 0 left")


def test_a_full_disk_in_the_middle_of_an_erasure_leaves_all_as_it_was(path: Path) -> None:
    batch = [*(bm.Memory(f"n{at}", "<n>" * 9_000, sources=[f"u{at}"]) for at in range(9)), Erasure("e", ["u0"])]

    def fill() -> str:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with bm.open(path) as store:
            store.append(CONVERSATION)
            digest = store.digest()
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50_000, -1))
            with pytest.raises(bm.StoreFull):
                store.append(batch)
            assert (store.digest(), store.erasures()) == (digest, [])
            assert store.log.get("u0") == CONVERSATION[1]
            assert store.check().ok
            resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
            store.append(batch)
            store.compact()
        with bm.open(path, verify=True) as store, bm.open_temporary() as expected:
            expected.append([*CONVERSATION, *batch])
            assert store.digest() == expected.digest()
            return f"{store.log.is_erased('n0')} {[path.read_bytes().count(said) for said in (b'<u0>', b'<k0>')]}"

    assert in_child(fill) == "True [0, 0]"
