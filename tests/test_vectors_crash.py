"""Killed while it embeds, at any moment: the store opens, and the next search is complete without a rebuild by hand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import branchmem as bm
import numpy as np
import pytest
from branchmem.events import Erasure
from branchmem.log.tables import Table
from branchmem.recall import vectors
from embedding import DIM, Words, fill, found, kept, place
from numpy.typing import NDArray

NOTES = {f"m{number}": f"note {number} about thing {number % 7}" for number in range(600)}
QUERY = "about note 333"


def killed_in_child(work: Callable[[], object]) -> bool:
    """Run `work` in a forked process; whether that was killed before its end."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def embed_all(path: Path, model: Words) -> None:
    with bm.open(path) as store:
        store.embed_with(model)
        store.embed_all()


class Dying(Words):
    """A model that kills its process at a text."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def __call__(self, texts: list[str], /) -> NDArray[np.float32]:
        if self.at in texts:
            die()
        return super().__call__(texts)


def expected() -> list[str]:
    with bm.open_temporary() as store:
        fill(store, NOTES)
        store.embed_with(Words())
        return found(store, QUERY, 20)


def test_killed_within_a_call_of_the_embedder(path: Path) -> None:
    with bm.open(path) as store:
        fill(store, NOTES)
    for at, there in (("m0", 0), ("m300", 256), ("m599", 512)):
        assert killed_in_child(partial(embed_all, path, Dying(NOTES[at])))
        assert len(kept(path)) == there
    model = Words()
    with bm.open(path, verify=True) as store:
        store.embed_with(model)
        assert found(store, QUERY, 20) == expected()
        assert store.check().ok
    assert sum(map(model.times, NOTES.values())) == 600 - 512


@pytest.mark.parametrize("number", [1, 2, 100, 257, 258, 400, 601])
def test_killed_within_a_commit(path: Path, number: int) -> None:
    """At the n-th value that is put: 257 in the first commit, with that of the sentence, then 256, then 88."""
    put, puts = Table.put, 0

    def put_or_die(table: Table, key: bytes, value: bytes) -> None:
        nonlocal puts
        puts += 1
        if puts == number:
            die()
        put(table, key, value)

    def work() -> None:
        pytest.MonkeyPatch().setattr(Table, "put", put_or_die)
        embed_all(path, Words())

    with bm.open(path) as store:
        fill(store, NOTES)
    assert killed_in_child(work)
    assert len(kept(path)) == (0 if number <= 257 else 256 if number <= 513 else 512)
    with bm.open(path, verify=True) as store:
        store.embed_with(Words())
        assert found(store, QUERY, 20) == expected()
    assert len(kept(path)) == 600


def test_killed_after_an_erasure_was_written_its_vectors_are_gone_or_all_is_there(path: Path) -> None:
    with bm.open(path) as store:
        fill(store, NOTES)
        store.embed_with(Words())
        store.embed_all()
        seqs = {place(store, id) for id in ("m1", "m2")}
    delete, deleted = Table.delete, 0

    def delete_or_die(table: Table, key: bytes) -> bool:
        nonlocal deleted
        deleted += 1
        if deleted == 2:
            die()
        return delete(table, key)

    def work() -> None:
        pytest.MonkeyPatch().setattr(Table, "delete", delete_or_die)
        with bm.open(path) as store:
            store.append([Erasure("e", ["m1", "m2"])])

    assert killed_in_child(work)
    assert kept(path).keys() >= seqs
    with bm.open(path) as store:
        assert not store.log.is_erased("m1")
        store.append([Erasure("e", ["m1", "m2"])])
    assert not kept(path).keys() & seqs


def test_killed_at_any_moment_while_others_look(path: Path) -> None:
    """A process embeds a few texts a commit, and is killed from outside when so many vectors are there."""
    with bm.open(path) as store:
        fill(store, NOTES)
    there = 0
    for least in (1, 100, 250, 400):
        pid = os.fork()
        if pid == 0:
            try:
                pytest.MonkeyPatch().setattr(vectors, "_BATCH", 8)
                embed_all(path, Words())
            finally:
                os._exit(0)
        ended = 0
        while len(kept(path)) < least and not ended:
            time.sleep(0.002)
            ended, _ = os.waitpid(pid, os.WNOHANG)
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        there = len(kept(path))
        assert least <= there <= 600
        assert all(row.shape == (DIM,) for row in kept(path).values())
    model = Words()
    with bm.open(path, verify=True) as store:
        store.embed_with(model)
        assert found(store, QUERY, 20) == expected()
        assert store.check().ok
    assert sum(map(model.times, NOTES.values())) <= 600 - there
    assert len(kept(path)) == 600
