"""The stores of many owners, each in a file of its own, some of them open at a time.

A lease pins a store while it is used; what nobody uses stays open until its room is wanted.  What a
store holds, and who may see what in it, is none of the pool's business.

names  which file an owner has
lease  a store in use, for threads and event loops
seats  who may open a store, who waits, which store is closed to make room
"""

from __future__ import annotations

import errno
import logging
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, SupportsIndex

import branchmem as bm
from branchmem.errors import StoreClosed, StoreError, StoreForked, StoreFull, StoreLocked, StoreMissing
from branchmem.pool.lease import Lease, in_thread
from branchmem.pool.names import END, owner_of, place_of
from branchmem.pool.seats import Asker, Seats

__all__ = ["Lease", "Pool", "PoolStats"]

#: What an open store takes: the file three times (LMDB, LMDB synchronous, its watched pages), its lock, its guard.
_DESCRIPTORS: Final = 5
_MODE: Final = 0o700  # conversations are private
_SUBFOLDER: Final = re.compile(r"[0-9a-f]{2}")
_LOGGER = logging.getLogger("branchmem")


@dataclass(frozen=True, slots=True)
class PoolStats:
    """What a pool holds now, and what it did since it was made."""

    #: Stores that are open, or being opened or closed; never more than `max_open`.
    open: int
    #: Open stores that somebody leases.
    pinned: int
    #: Leases that wait: for room, or for a store to be opened.
    waiting: int
    #: What the open stores hold in memory, about; see `Store.memory_bytes`.
    memory_bytes: int
    #: How many may be open at a time: as asked for, or less where the limit of descriptors is low.
    max_open: int
    #: Leases that found their store open.
    hits: int
    #: Leases that had to wait.
    waits: int
    #: How often a store was opened.
    opened: int
    #: How often a store was closed to make room.
    evicted: int


class Pool:
    """Many owners, one file each below `folder`, which is made if absent.  Safe under threads, processes, event loops.

    At most `max_open` stores are open at a time; the least recently used are closed for others.  Where all
    are leased, `open` waits.  `max_memory` (bytes) bounds what is kept for later, not what is in use: while
    the open stores are estimated to hold more (`Store.memory_bytes`), unused ones are closed.

    An open store takes 5 descriptors: a limit of 1,024 (`ulimit -n`) leaves room for 179 stores, as an eighth
    is left to the program.  Where `max_open` does not fit, less are open; a warning and `stats()` say so.

    `on_open` is called with each store that the pool has opened, before anybody has it, in the thread that
    opened it; where it raises, the lease fails with that.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        max_open: int = 256,
        max_memory: int = 1 << 30,
        *,
        on_open: Callable[[bm.Store], object] | None = None,
    ) -> None:
        if not isinstance(max_open, SupportsIndex) or max_open < 1:
            raise ValueError(
                f"max_open must be a number of at least 1, not {max_open!r}: a lease needs a store to be open"
            )
        if max_memory < 0:
            raise ValueError(f"max_memory must be a number of bytes, not {max_memory}")
        self.folder = os.path.abspath(os.fsdecode(folder))
        self._on_open = on_open
        self._process = os.getpid()
        self._seats = Seats(_fitting(max_open), max_memory)
        _make(self.folder)

    def open(self, owner: str, *, create: bool = True, timeout: float | None = 30.0) -> Lease:
        """A lease on the store of `owner`: `with pool.open(owner) as store:`, or `async with`.

        Leases on one owner share one Store.  It may be closed for another once no lease is left: keep the
        lease as long as the store is used.  The store is made if absent, unless not `create` (StoreMissing).
        Raises: InvalidOwner; on entering PoolBusy, where no room came free within `timeout` seconds (None:
        waits for ever), StoreClosed after `close`, and what opening a store raises.
        Cost: where it is open, some microseconds; else opening it, which replays its skeletons.
        """
        return Lease(self, owner, self.path(owner), create, timeout)

    def path(self, owner: str) -> str:
        """Where the store of an owner is, or would be: `folder/<2 hex>/<escaped owner>.bmem`.  Raises: InvalidOwner."""
        return os.path.join(self.folder, *place_of(owner))

    def owners(self, after: str | None = None, limit: int | None = None) -> Iterator[str]:
        """The owners that have a store, at most `limit`, and those behind `after` only, which need not exist any more.

        In the order of their files: stable, and scattered.  The last of a page is the `after` of the next.
        Reads one of 256 subfolders at a time.
        """
        self._check()
        if limit is not None and (not isinstance(limit, SupportsIndex) or limit < 0):
            raise ValueError(f"limit is a number of owners, 0 or more, or None, not {limit!r:.80}")
        owners = self._owners(place_of(after) if after is not None else ("", ""))
        return islice(owners, None if limit is None else min(limit, sys.maxsize))

    def delete(self, owner: str) -> bool:
        """Delete the store of an owner for good, with all that lies beside it; False where there was none.

        Raises: StoreLocked while it is leased here, or open in another process.
        """
        path = self.path(owner)
        self._check()
        seized = self._seats.seize(owner)
        if seized is None:
            raise StoreLocked(path, "it is leased, or being opened, in this pool: end its leases first")
        seat, store = seized
        try:
            if store is not None:
                store.close()
            return bm.delete(path)
        finally:
            self._seats.release(seat, was_open=store is not None)

    def stats(self) -> PoolStats:
        """What is open, and how often it was there when it was wanted."""
        self._check_process()
        seats = self._seats
        count, pinned, waiting = seats.count()
        return PoolStats(
            open=count,
            pinned=pinned,
            waiting=waiting,
            memory_bytes=seats.memory_bytes,
            max_open=seats.max_open,
            hits=seats.hits,
            waits=seats.waits,
            opened=seats.opened,
            evicted=seats.evicted,
        )

    def close(self) -> None:
        """Close every store, also those that are leased, which refuse from then on (StoreClosed).  Twice is once."""
        if self._process != os.getpid():
            return  # the stores are the parent's
        with ExitStack() as all_of_them:
            for store in self._seats.close():
                all_of_them.callback(store.close)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Pool {self.folder}: {self._seats.open} of {self._seats.max_open} open>"

    def _check(self) -> None:
        self._check_process()
        if self._seats.closed:
            raise self._closed()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise StoreForked(
                self.folder, "the pool was made before this process was forked: make one of its own in the child"
            )

    def _closed(self) -> StoreClosed:
        return StoreClosed(self.folder, "the pool is closed: make another one")

    def _owners(self, after: tuple[str, str]) -> Iterator[str]:
        for subfolder in filter(_SUBFOLDER.fullmatch, _listed(self.folder)):
            path = os.path.join(self.folder, subfolder)
            if subfolder >= after[0] and os.path.isdir(path):
                for file in _listed(path):
                    if file.endswith(END) and (subfolder, file) > after:
                        owner = owner_of(subfolder, file)
                        if owner is not None:
                            yield owner

    def _ask(self, owner: str, wake: Callable[[], bool]) -> Asker:
        self._check()
        return self._seats.ask(owner, wake)

    def _open(self, asker: Asker, path: str, create: bool) -> None:
        """Do what an asker was told to do: make room, open the store."""
        try:
            if asker.first is not None:
                asker.first.close()
                asker.first = None  # else the lease would keep what it held in memory
            subfolder = os.path.dirname(path)
            if create:
                _make(subfolder)
            elif not os.path.isdir(subfolder):
                raise StoreMissing(path)
            store = bm.open(path, create=create)
            if self._on_open is not None:
                self._tell(store, self._on_open)
        except BaseException:
            self._seats.failed(asker)
            raise
        if not self._seats.fill(asker, store):
            store.close()
            raise self._closed()
        self._sweep(self._seats.surplus())

    @staticmethod
    def _tell(store: bm.Store, on_open: Callable[[bm.Store], object]) -> None:
        try:
            on_open(store)
        except BaseException:
            store.close()
            raise

    def _leave(self, asker: Asker) -> None:
        """A lease ends, or is not waited for any longer."""
        if self._process == os.getpid():  # in the child of a fork nothing is held
            self._seats.leave(asker)
            self._sweep(self._seats.surplus())

    def _leave_soon(self, asker: Asker) -> None:
        """As `_leave`, for an event loop: what is to be closed is closed by a thread."""
        if self._process == os.getpid():
            self._seats.leave(asker)
            if stores := self._seats.surplus():
                try:
                    in_thread(partial(self._sweep, stores))
                except RuntimeError:  # no thread is to be had
                    self._sweep(stores)

    def _sweep(self, stores: list[bm.Store]) -> None:
        """Close what the books say is too much."""
        for store in stores:
            try:
                store.close()
            finally:
                self._seats.freed()


def _fitting(max_open: int) -> int:
    """How many of `max_open` stores fit the limit of descriptors, of which an eighth is left to others."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return max_open
    fitting = max(1, (limit - limit // 8) // _DESCRIPTORS)
    if fitting < max_open:
        _LOGGER.warning(
            "max_open=%d stores do not fit the limit of %d descriptors: at most %d will be open; "
            "raise the limit (ulimit -n, resource.setrlimit) before the pool is made",
            max_open,
            limit,
            fitting,
        )
    return min(max_open, fitting)


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise StoreError(folder, f"the folder cannot be listed: {error}") from error


def _make(folder: str) -> None:
    """Make a folder, and its name durable, unless it is there."""
    if os.path.isdir(folder):
        return
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, _MODE)
        above = os.open(os.path.dirname(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(above)
        finally:
            os.close(above)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(folder) from error
        raise StoreError(folder, f"the folder of the pool cannot be made: {error}") from error
    if not os.path.isdir(folder):
        raise StoreError(folder, "the folder of the pool cannot be made: a file has its name")
