"""Many owners, few open, eight threads: each owner's store holds what was written for it, and nothing else."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import branchmem as bm
import pytest
from figures import Figure, Quote
from pools import descriptors

OPEN = 64
THREADS = 8


class Client:
    """Reads and writes at random, and notes what it was told was written."""

    def __init__(self, pool: bm.Pool, name: int, owners: list[str], steps: int, seed: int) -> None:
        self.pool = pool
        self.name = name
        self.owners = owners
        self.chance = random.Random(f"{seed} {name}")
        self.steps = steps
        self.wrote: dict[str, list[str]] = {owner: [] for owner in owners}
        self.most_open = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            for step in self._steps():
                self._visit(*step)
        except BaseException as error:
            self.failed = error

    def _steps(self) -> Iterator[tuple[int, str]]:
        """Each owner is met once by some client, and often by many; a few are met much more often than the others."""
        for step, owner in enumerate(self.owners[self.name :: THREADS]):
            yield step, owner
        for step in range(len(self.owners), self.steps):
            few = self.chance.random() < 0.3
            yield step, self.chance.choice(self.owners[:50] if few else self.owners)

    def _visit(self, step: int, owner: str) -> None:
        with self.pool.open(owner) as store:
            assert store.path == self.pool.path(owner)
            for id in self.wrote[owner]:
                assert id in store.log, f"{owner} lost {id}"
            if step < len(self.owners) or self.chance.random() < 0.4:
                id = f"{owner}/{self.name}/{step}"
                assert store.append([bm.Message(id, None, text=owner)]).added == 1
                self.wrote[owner].append(id)
            if self.chance.random() < 0.05:
                with self.pool.open(owner) as same:
                    assert same is store
        self.most_open = max(self.most_open, self.pool.stats().open)


def copy_empty_stores(pool: bm.Pool, owners: list[str]) -> None:
    """Give owners an empty store each without waiting for the disk, which takes its time over making one."""
    with pool.open(owners[0]):
        pass
    empty = Path(pool.path(owners[0])).read_bytes()
    for owner in owners[1:]:
        path = Path(pool.path(owner))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(empty)


@pytest.mark.soak
def test_no_owner_meets_what_belongs_to_another(tmp_path: Path, figure: Figure, quote: Quote) -> None:
    seed = 11
    count = figure(2_000, 20_000)
    owners = [f"Owner {number}" for number in range(count)]
    before = descriptors()
    with bm.Pool(tmp_path, max_open=OPEN) as pool:
        copy_empty_stores(pool, owners[200:])
        clients = [Client(pool, name, owners, count + count // 4, seed) for name in range(THREADS)]
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = pool.stats()
    assert [client.failed for client in clients] == [None] * THREADS, f"seed {seed}"
    assert max(client.most_open for client in clients) == stats.open == OPEN, f"seed {seed}"
    assert stats.pinned == stats.waiting == 0
    assert descriptors() == before

    with bm.Pool(tmp_path, max_open=OPEN) as pool:
        assert sorted(pool.owners()) == sorted(owners)
        for owner in owners:
            with pool.open(owner, create=False) as store:
                events = list(store.log.events())
            wanted = sorted(id for client in clients for id in client.wrote[owner])
            assert sorted(event.id for event in events) == wanted, f"{owner}, seed {seed}"
            assert {event.to_dict()["text"] for event in events} == {owner}, f"{owner}, seed {seed}"
    assert descriptors() == before
    appends = sum(len(ids) for client in clients for ids in client.wrote.values())
    quote(
        f"pool: {count:,} owners, {OPEN} open, {THREADS} threads: {stats.opened:,} openings, {stats.evicted:,} closed "
        f"for another, {stats.hits:,} found open, {appends:,} appends"
    )
