"""One store in many processes: whoever is killed, whoever writes at once, nothing is lost and nothing is twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from itertools import chain, count
from pathlib import Path
from queue import Empty
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem.events import Event
from branchmem.reference import Reference
from figures import Figure, Quote

SEED = 20260404
PROCESSES = 4
POOL = 12_000


# Killed while they write


def told(round: int, number: int) -> list[Event]:
    """What the writer of a round appends as its batch of that number: one to five events, some of them large."""
    size = (number % 7) * 3000
    return [bm.Message(f"r{round}-{number}-{at}", None, text="x" * size) for at in range(1 + number % 5)]


def write_until_killed(path: Path, round: int, acknowledge: int) -> None:
    with bm.open(path) as store:
        for number in count():
            store.append(told(round, number))
            os.write(acknowledge, number.to_bytes(8, "big"))
            if number % 6 == 5:
                store.compact()


@pytest.mark.soak
def test_a_writer_that_is_killed_loses_nothing_acknowledged(path: Path, figure: Figure, quote: Quote) -> None:
    chance = Random(SEED)
    stored: list[Event] = []
    acknowledged = 0
    rounds = figure(50, 1_000)
    for round in range(rounds):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            write_until_killed(path, round, writing)
        os.close(writing)
        with open(reading, "rb", buffering=0) as said:
            heard = b"".join(said.read(8) for _ in range(chance.randint(1, 12)))
            time.sleep(chance.random() * 0.004)
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            assert os.WTERMSIG(status) == signal.SIGKILL
            heard += said.read()
        with bm.open(path, create=False, verify=round % 10 == 0) as store:
            new = list(store.log.events(len(stored)))
            batches = next(
                number for number in count() if len(new) <= sum(len(told(round, at)) for at in range(number))
            )
            assert new == list(chain(*(told(round, at) for at in range(batches)))), f"seed {SEED}, round {round}"
            assert batches >= len(heard) // 8, f"seed {SEED}, round {round}"
            stored += new
            acknowledged += len(heard) // 8
            if round % 50 == 49:
                assert list(store.log.events()) == stored
                assert store.check().ok
    quote(f"{rounds:,} writers killed: of {acknowledged:,} acknowledged batches 0 lost, 0 damaged")


# One reads while another writes


def grow(path: Path, done: Any) -> None:
    with bm.open(path) as store:
        for number in range(40):
            store.append([bm.Message(f"large{number}", "root", text="x" * 1_000_000)])
    done.set()


def test_a_view_is_read_while_another_process_lets_the_map_grow(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    done = context.Event()
    with bm.open(path) as store:
        store.append([bm.Message("root", None), bm.Memory("first", "the first", sources=["root"])])
        view = store.at("root")
        mapped = store._log._file.map_bytes
        writer = context.Process(target=grow, args=(path, done))
        writer.start()
        seen = store.seq
        while not done.is_set() and writer.is_alive():
            assert view["first"].text == "the first"
            assert list(store.at("root")) == ["first"]
            assert seen <= store.seq
            seen = store.seq
        writer.join()
        assert writer.exitcode == 0
        assert store.refresh() + store.seq >= 42
        assert store._log._file.map_bytes > mapped
        assert store.log.get("large39") == bm.Message("large39", "root", text="x" * 1_000_000)


# Four write and read at once


def offered(number: int) -> Event:
    """The event of that number, the same in every process; a third are memories, and parents may come later."""
    chance = Random(number)
    if number % 3 == 2:
        sources = {f"m{near(chance, number)}" for _ in range(chance.choice((1, 1, 2)))}
        return bm.Memory(f"k{number}", f"memory {number}", sources=sources)
    parent = None if number < 3 or chance.random() < 0.02 else f"m{near(chance, number)}"
    return bm.Message(f"m{number}", parent, text=f"text {number} " * chance.choice((1, 5, 50)))


def near(chance: Random, number: int) -> int:
    """The number of a message before `number`."""
    other = max(number - chance.randint(1, 30), 0)
    return other - 1 if other % 3 == 2 else other


def take_part(path: Path, who: int, seconds: float, together: Any, answers: Any) -> None:
    """Append what the others append too, look, open anew, and in the end tell what was seen."""
    chance = Random(f"{SEED} {who}")
    store = bm.open(path)
    own: set[str] = set()
    added = position = last_seq = looks = 0
    together.wait()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = max(position - chance.randint(0, 60), 0)
        batch = [offered(number) for number in range(start, min(start + chance.choice((1, 5, 20, 80)), POOL))]
        position = position + len(batch) // 2 if position < POOL else chance.randrange(POOL)
        chance.shuffle(batch)
        appended = store.append(batch)
        assert appended.added + appended.duplicates == len(batch)
        assert appended.seq >= last_seq + appended.added
        added, last_seq = added + appended.added, appended.seq
        own.update(event.id for event in batch)
        match chance.randrange(6):
            case 0:
                assert store.refresh() >= 0
                assert store.seq >= last_seq
            case 1:
                assert [id for id in chance.sample(sorted(own), min(len(own), 20)) if id not in store.log] == []
            case 2 if batch:
                event = chance.choice(batch)
                assert store.log.get(event.id) == event
                store.at(event.id, min_seq=appended.seq)
            case 3 if store.seq < 1500 or chance.random() < 0.02:
                agree(store, chance)
                looks += 1
            case 4:
                store.close()
                store = bm.open(path)
                assert store.seq >= last_seq
    together.wait()
    store.refresh()
    lost = [id for id in own if id not in store.log]
    answers.put((who, added, looks, lost, store.seq, store.digest()))
    store.close()


def agree(store: bm.Store, chance: Random, anchors: int = 5) -> None:
    """The store and the reference see the same from some messages, after the same events."""
    with bm.open(store.path, readonly=True, auto_refresh=False) as still:
        events = list(still.log.events())
        right = Reference()
        right.add(events)
        for id in chance.sample(list(still.message_ids), min(anchors, len(still.message_ids))):
            assert sorted(still.at(id)) == sorted(right.at(id)), f"seed {SEED}, at {id}"


@pytest.mark.soak
def test_four_processes_write_and_read_one_store(path: Path, figure: Figure, quote: Quote) -> None:
    seconds = figure(10, 300)
    context = multiprocessing.get_context("spawn")
    together, answers = context.Barrier(PROCESSES), context.Queue()
    parts = [
        context.Process(target=take_part, args=(path, who, seconds, together, answers)) for who in range(PROCESSES)
    ]
    for part in parts:
        part.start()
    said: list[tuple[int, int, int, list[str], int, str]] = []
    while len(said) < PROCESSES and (any(part.is_alive() for part in parts) or not answers.empty()):
        try:
            said.append(answers.get(timeout=1))
        except Empty:
            if any(part.exitcode for part in parts):
                together.abort()
    for part in parts:
        part.join()

    assert [part.exitcode for part in parts] == [0] * PROCESSES, f"seed {SEED}"
    with bm.open(path, create=False, verify=True) as store:
        ids = [event.id for event in store.log.events()]
        assert len(ids) == len(set(ids)) == store.seq
        assert [lost for _, _, _, lost, _, _ in said] == [[]] * PROCESSES
        assert sum(added for _, added, *_ in said) == store.seq
        assert {(seq, digest) for *_, seq, digest in said} == {(store.seq, store.digest())}
        assert all(store.log.get(id) == offered(int(id[1:])) for id in ids)
        assert store.check().ok
        agree(store, Random(SEED), anchors=30)
        with bm.open_temporary() as fresh:
            fresh.append(store.log.events())
            assert fresh.digest() == store.digest()
    looks = sum(looks for _, _, looks, *_ in said)
    quote(
        f"{PROCESSES} processes, {seconds} s: {len(ids):,} events, one digest, {looks} looks agree with the reference"
    )
