"""What the tests of the pool share: work in threads, and what a pool has open."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import branchmem as bm
from branchmem.pool.lease import in_thread

PATIENCE_SECONDS = 30


def until(holds: Callable[[], object]) -> None:
    """Wait for what another thread is about to do."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.001)


def waiting(pool: bm.Pool, count: int) -> Callable[[], bool]:
    return lambda: pool.stats().waiting == count


class Holder:
    """Leases a store in a thread of its own, from `start` to `end`."""

    def __init__(self, pool: bm.Pool, owner: str, timeout: float | None = PATIENCE_SECONDS) -> None:
        self.pool = pool
        self.owner = owner
        self.timeout = timeout
        self.has = threading.Event()
        self._end = threading.Event()
        self._done: Future[None] = in_thread(self._hold)

    def _hold(self) -> None:
        with self.pool.open(self.owner, timeout=self.timeout):
            self.has.set()
            assert self._end.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        """Leave, and raise what the thread met."""
        self._end.set()
        self._done.result(PATIENCE_SECONDS)


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd" if os.path.exists("/proc/self/fd") else "/dev/fd"))


def told(pool: bm.Pool, owner: str, *ids: str) -> None:
    with pool.open(owner) as store:
        store.append([bm.Message(id, None) for id in ids])


def held(pool: bm.Pool, owner: str) -> list[str]:
    with pool.open(owner, create=False) as store:
        return [event.id for event in store.log.events()]
