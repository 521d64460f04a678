"""Four processes on one store: each remembers on a fork of its own, and the forks are merged one by one."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem.errors import MergeConflict
from figures import Figure, Quote

SEED = 20261130
PROCESSES = 4
#: What every fork has an opinion of, one of its own; what all find out alike; and what they knew before.
DISPUTED = ("home", "job")
KNOWN = 5


def in_processes(work: Callable[..., None], path: Path, *more: Any) -> None:
    """Do the work of each process, all at one time."""
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(PROCESSES)
    workers = [context.Process(target=work, args=(path, who, together, *more)) for who in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES


def remember(path: Path, who: int, together: Any, steps: int) -> None:
    """On a fork of its own: messages, what only this one found out, what all did, an update, and two opinions."""
    random = Random(f"{SEED} {who}")
    with bm.open(path) as store:
        ref = f"fork{who}"
        together.wait()
        store.refs.create(ref, store.refs["main"])
        for step in range(steps):
            head = store.refs[ref]
            message = f"{ref}.{step}"
            memories = [bm.Memory(f"{message} own", f"{ref} found {step}", sources=[message])]
            if random.random() < 0.5:
                memories.append(bm.Memory(f"{message} common", f"common {step % 3}", sources=[message]))
            if step == who:
                memories.append(
                    bm.Memory(f"{ref} news", f"news of {who}", sources=[message], supersedes=[f"known{who}"])
                )
            if step == 0:
                memories += [
                    bm.Memory(f"{ref} {key}", f"{ref} on {key}", sources=[message], key=key) for key in DISPUTED
                ]
            store.append([bm.Message(message, head), *memories])
            store.refs.move(ref, message, expected=head)


def a_conversation(path: Path) -> None:
    with bm.open(path) as store:
        store.append([bm.Message("chat", None)])
        store.append([bm.Memory(f"known{number}", f"known {number}", sources=["chat"]) for number in range(KNOWN)])
        store.refs.create("main", "chat")


@pytest.mark.soak
def test_four_forks_merged_one_by_one_lose_nothing_and_tell_nothing_twice(
    path: Path, figure: Figure, quote: Quote
) -> None:
    steps = figure(25, 400)
    a_conversation(path)
    in_processes(remember, path, steps)

    with bm.open(path) as store:
        forks = [f"fork{who}" for who in range(PROCESSES)]
        told = {fork: {memory.text for memory in store.at_ref(fork).memories()} for fork in forks}
        store.append([bm.Message("main.1", "chat")])
        store.refs.move("main", "main.1")
        conflicts: list[Any] = []
        for fork in forks:
            try:
                store.merge(fork, into="main")
            except MergeConflict as refused:
                conflicts += refused.conflicts
                store.merge(fork, into="main", strategy="both")

        met = Counter((one.about, *sorted((one.ours.text, one.theirs.text))) for one in conflicts)
        pairs = {(key, f"{a} on {key}", f"{b} on {key}") for key in DISPUTED for a, b in combinations(forks, 2)}
        assert met == Counter(pairs), f"seed {SEED}"

        texts = Counter(memory.text for memory in store.at_ref("main").memories())
        replaced = {f"known {who}" for who in range(PROCESSES)}
        assert texts == Counter(set().union(*told.values()) - replaced), f"seed {SEED}"
        before = store.seq
        for fork in forks:
            assert store.merge(fork, into="main").message is None
        assert store.seq == before
        quote(
            f"swarm: {PROCESSES} processes told {texts.total():,} things, {len(pairs)} conflicts, nothing lost or twice"
        )


def merge_own(path: Path, who: int, together: Any) -> None:
    """Merge the own fork into main while the others do the same."""
    with bm.open(path) as store:
        together.wait()
        for _ in range(3):
            store.merge(f"fork{who}", into="main", strategy="both")


def merge_all(path: Path, who: int, together: Any) -> None:
    """Merge every fork into main while the others do the same."""
    with bm.open(path) as store:
        together.wait()
        for fork in Random(f"{SEED} {who}").sample(range(PROCESSES), PROCESSES):
            store.merge(f"fork{fork}", into="main", strategy="both")


@pytest.mark.parametrize("work", [merge_own, merge_all])
def test_four_processes_that_merge_into_one_ref_at_once_merge_one_after_the_other(path: Path, work: Any) -> None:
    a_conversation(path)
    in_processes(remember, path, 6)
    with bm.open(path) as store:
        forks = [f"fork{who}" for who in range(PROCESSES)]
        told = {text.text for fork in forks for text in store.at_ref(fork).memories()}
        store.append([bm.Message("main.1", "chat")])
        store.refs.move("main", "main.1")

    in_processes(work, path)

    with bm.open(path) as store:
        texts = Counter(memory.text for memory in store.at_ref("main").memories())
        assert texts == Counter(told - {f"known {who}" for who in range(PROCESSES)}), f"seed {SEED}"
        moves = [move for move in store.refs.log("main") if move.why == "merge"]
        assert [move.before for move in moves[1:]] == [move.after for move in moves[:-1]]
        assert len(moves) == PROCESSES
        assert len(store.tree.path(store.refs["main"])) == 2 + PROCESSES
