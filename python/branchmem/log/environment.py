"""The one LMDB environment that a file has in a process, however many logs stand on it.

The map moves only while no transaction of this process lives: transactions pass
a gate side by side, whoever grows, follows or replaces the map passes it alone.
After a fork the child lets go of everything and touches nothing that the parent
still uses.  LMDB runs as engine 0.9, always synchronous, never writing through
the map, and without its lock only where nobody can write.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakSet

import lmdb

from branchmem.errors import StoreClosed, StoreDamaged, StoreError, StoreMissing
from branchmem.log.copies import MAX_DATABASES, copy, discard_draft, drafted
from branchmem.log.gate import Gate
from branchmem.log.marker import log_id, mark
from branchmem.log.pages import LAST_PAGE_WORD, TXNID_WORD, sound_page_bytes, verify_pages
from branchmem.log.place import (
    MAX_READERS,
    MODE,
    NOT_PERMITTED,
    Patience,
    alone,
    found,
    frozen,
    guarded_now,
    identity,
    placed,
    reserve_lock,
    unguarded,
)
from branchmem.log.tables import is_table, require_room

GONE: Final = (
    "the file was moved, removed or replaced while it was open, and nothing was written: close it and open it again"
)
MAP_BYTES = 16 << 20
MAX_GROWTH_BYTES = 1 << 30

_DRAFT_MAP_BYTES: Final = 1 << 20


class Compacted(NamedTuple):
    """What a compacting rewrite made of a file: its size before and after, in bytes."""

    bytes_before: int
    bytes_after: int


class _Follower(Protocol):
    """Who looks at the mapped meta pages by itself, and is told when they have moved."""

    def moved(self) -> None: ...


class File:
    """The one environment of a file in this process, shared by all logs that stand on it."""

    env: lmdb.Environment
    log_id: bytes
    skeletons: Any
    bodies: Any
    tables: dict[str, Any]

    def __init__(self, path: str, fd: int, page_bytes: int, *, readonly: bool) -> None:
        self.path = path
        self.which = identity(os.fstat(fd))
        self.readonly = readonly
        self.users = 0
        self.forked = False
        self.gate = Gate()
        self.writing = threading.Lock()
        self._naming = threading.Lock()
        self.here = threading.local()
        self.followers: WeakSet[_Follower] = WeakSet()
        self._page_bytes = page_bytes
        self._map = mmap.mmap(fd, 2 * page_bytes, access=mmap.ACCESS_READ)
        self.words = memoryview(self._map).cast("Q")
        self._guard: int | None = None
        try:
            try:
                self._share_guard()
            except OSError as error:
                if not readonly or error.errno not in NOT_PERMITTED:
                    raise
            if not readonly and self._guard is not None:
                discard_draft(path)
            self._attach(_rounded(os.fstat(fd).st_size))
        except BaseException:
            self._release()
            raise

    def _share_guard(self) -> None:
        self._guard = guarded_now(self.path, fcntl.LOCK_SH)
        if self._guard is None or _replaced(self.path, self.which):
            raise _AtWork

    def watch(self, txnid: int) -> tuple[int, int]:
        """The word of the mapped meta pages that the next commit after `txnid` changes, and what it holds until then.

        Commit n writes meta page n mod 2; the page that is next holds n - 1.
        """
        page = (txnid + 1) % 2
        return page * self._page_bytes // 8 + TXNID_WORD, max(txnid - 1, 0)

    @property
    def gone(self) -> bool:
        """Whether another file, or none, has its name: what is written to it now is lost.  Cost: one system call."""
        return _replaced(self.path, self.which)

    def unknown(self, txn: lmdb.Transaction[bytes]) -> list[str]:
        """The tables that the file has in this transaction and this process did not open yet."""
        with txn.cursor() as keys:
            names = (key.decode(errors="replace") for key in keys.iternext(values=False))
            return [name for name in names if name not in self.tables and is_table(name)]

    def know(self, tables: Iterable[str], *, create: bool) -> None:
        """Open the tables that this file has, or make those that it lacks.  Not inside a transaction of this thread.

        Raises: TooManyEmbedders.
        """
        unknown = [name.encode() for name in tables if name not in self.tables]
        if not unknown:
            return
        with self._naming:
            if not create:  # to open one takes a write transaction, so only what is there
                with self.env.begin() as txn, txn.cursor() as names:
                    unknown = [name for name in unknown if names.set_key(name)]
            if self.readonly:
                self.tables.update((name.decode(), self.env.open_db(name, create=False)) for name in unknown)
            elif unknown:  # open_db by itself would wait for another writer with the interpreter in hand
                with self.env.begin(write=True) as txn:
                    require_room(txn, self.path, unknown)
                    opened = {name.decode(): self.env.open_db(name, txn=txn, create=create) for name in unknown}
                self.tables.update(opened)

    def grow(self, seen: int) -> None:
        """Make the map larger, unless another thread already did since it had `seen` bytes."""
        with self.gate.alone():
            if self.users and self.map_bytes == seen:
                self.env.reader_check()  # who died while reading keeps pages from being used again
                self._resize(min(2 * seen, seen + MAX_GROWTH_BYTES))

    def follow(self) -> None:
        """Make the map as large as what another process committed."""
        with self.gate.alone():
            if not self.users:
                return
            last_page = max(self.words[LAST_PAGE_WORD], self.words[self._page_bytes // 8 + LAST_PAGE_WORD])
            self._resize(max(self.map_bytes, _rounded((last_page + 1) * self._page_bytes)))

    def reopen(self, seen: lmdb.Environment) -> None:
        """Replace an environment that a failed write of its meta page has made useless."""
        with self.gate.alone():
            if self.users and self.env is seen:
                self.env.close()
                self._attach(self.map_bytes)

    def revive(self) -> None:
        """Open the environment again where an interrupt came between closing and opening it."""
        with suppress(lmdb.Error):
            self.env.info()
            return
        with self.gate.alone():
            self._attach(self.map_bytes)
            for follower in list(self.followers):
                follower.moved()

    def make_writable(self) -> None:
        """Replace an environment that was opened for reading only."""
        if getattr(self.here, "reader", None) is not None:
            raise RuntimeError(f"{self.path}: opened for writing inside work on the same file")
        with self.gate.alone():
            if self._guard is None:  # it could not be made where nobody could write
                self._share_guard()
            self.env.close()
            self.readonly = False
            try:
                self._attach(self.map_bytes)
            except BaseException:
                self.readonly = True
                self._attach(self.map_bytes)
                raise

    def compact(self) -> Compacted:
        """Put a copy without free pages in the place of the file; all logs of this process go on upon the copy.

        Other threads read meanwhile and wait with their writes.
        """
        with self.writing, self._kept(), ExitStack() as open_until_done:
            file = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            open_until_done.callback(os.close, file)
            if identity(os.fstat(file)) != self.which or self._guard is None:
                raise StoreError(self.path, GONE)
            bytes_before = os.fstat(file).st_size
            with alone(self.path, self._guard, file):
                self.follow()
                twin = None
                try:
                    with drafted(self.path) as draft:
                        with self.gate, self.env.begin() as txn:
                            copy(self.env, txn, draft)
                        twin = os.open(draft, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                        open_until_done.callback(os.close, twin)
                        open_until_done.callback(fcntl.flock, twin, fcntl.LOCK_UN)  # the map keeps it open
                        fcntl.flock(twin, fcntl.LOCK_EX)  # takes over from `file`, until the guard is shared again
                        _opening.acquire()
                        open_until_done.callback(_opening.release)
                finally:  # also where an error or an interrupt came after the old file had gone
                    if twin is not None and not _replaced(self.path, identity(os.fstat(twin))):
                        self._stand_on(twin)
            return Compacted(bytes_before, os.path.getsize(self.path))

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Not closed meanwhile, whoever lets go of it."""
        with _opening:
            if not self.users:
                raise StoreClosed(self.path)
            self.users += 1
        try:
            yield
        finally:
            with _opening:
                self.leave()

    def _stand_on(self, fd: int) -> None:
        """Go over to the file that took the place of this one and is open as `fd`."""
        with self.gate.alone():
            self.env.close()
            del _files[self.which]
            self.which = identity(os.fstat(fd))
            _files[self.which] = self
            self._map = mmap.mmap(fd, 2 * self._page_bytes, access=mmap.ACCESS_READ)
            self.words = memoryview(self._map).cast("Q")
            with suppress(FileNotFoundError):
                os.unlink(self.path + "-lock")  # it speaks of the transactions of the old file
            self._attach(_rounded(os.fstat(fd).st_size))
            for follower in list(self.followers):
                follower.moved()

    def leave(self) -> None:
        """One log less; the last one closes the file."""
        self.users -= 1
        if self.users or self.forked:
            return
        with self.gate.alone():
            del _files[self.which]
            self.env.close()
            self._release()

    def disown(self) -> None:
        """In the child of a fork: touch nothing that the parent still uses."""
        self.forked = True
        used = self.gate.inside or self.gate.shut
        self.gate.open_anew()
        self._release()
        if used:
            inherit(self)  # ending its transactions here would end them in the parent too
        else:
            self.env.close()

    def _attach(self, map_bytes: int) -> None:
        locked = not (self.readonly and frozen(self.path))
        if locked:
            reserve_lock(self.path)
        env = lmdb.Environment(
            os.fsencode(self.path),
            map_size=map_bytes,
            subdir=False,
            readonly=self.readonly,
            create=False,
            mode=MODE,
            max_readers=MAX_READERS,
            max_dbs=MAX_DATABASES,
            lock=locked,
            lib_version=0,
        )
        try:
            if env.lib_version()[:2] != (0, 9):
                raise StoreError(self.path, f"this lmdb runs engine {env.lib_version()}: install one with engine 0.9")
            self.log_id = log_id(self.path, env)
            self.skeletons = env.open_db(b"skeletons", create=False)
            self.bodies = env.open_db(b"bodies", create=False)
            self.env, self.tables = env, {}
            with env.begin() as txn:
                there = self.unknown(txn)
            self.know(there, create=False)
            if locked:
                env.reader_check()
            self.map_bytes = env.info()["map_size"]
        except lmdb.NotFoundError:
            env.close()
            raise StoreDamaged(self.path, "a database of it is missing") from None
        except BaseException:
            env.close()
            raise

    def _resize(self, map_bytes: int) -> None:
        try:
            self.env.set_mapsize(map_bytes)
        except lmdb.Error:
            self.env.close()
            self._attach(self.map_bytes)
            raise
        self.map_bytes = map_bytes

    def _release(self) -> None:
        self.words.release()
        self._map.close()
        if self._guard is not None:
            if self.forked:
                os.close(self._guard)  # the lock is the parent's
            else:
                unguarded(self._guard)
            self._guard = None


_opening = threading.RLock()
_files: dict[tuple[int, int], File] = {}
_inherited: list[object] = []


def opening() -> AbstractContextManager[Any]:
    """Held by whoever opens or closes a file in this process."""
    return _opening


def inherit(owned: object) -> None:
    """Keep, untouched, what belongs to the parent of this process: ending it here would end it there."""
    _inherited.append(owned)


def _disown_all() -> None:
    global _opening
    _opening = threading.RLock()
    for file in _files.values():
        file.disown()
    _files.clear()


os.register_at_fork(after_in_child=_disown_all)


def join(path: str, *, readonly: bool, create: bool, verify: bool) -> File:
    """The file at `path`, made if it may be, with one user more.

    Who waits for the guard keeps no other thread from opening and closing files.
    """
    path = placed(path)
    patience = Patience()
    while True:
        with _opening, suppress(_AtWork):
            if found(path) is None:
                if readonly or not create:
                    raise StoreMissing(path)
                _create(path)
            return _opened(path, readonly=readonly, verify=verify)
        patience.wait(path)


class _AtWork(Exception):
    """Another process is making, replacing or deleting the file: look again."""


def _create(path: str) -> None:
    """Make an empty log under another name and move it to `path`, which is never there by halves."""
    guard = guarded_now(path, fcntl.LOCK_EX)
    if guard is None:
        raise _AtWork
    try:
        if found(path) is not None:
            return
        with drafted(path) as draft:
            reserve_lock(draft)
            env = lmdb.Environment(
                os.fsencode(draft),
                map_size=_DRAFT_MAP_BYTES,
                subdir=False,
                mode=MODE,
                max_dbs=MAX_DATABASES,
                lib_version=0,
            )
            with closing(env), env.begin(write=True) as txn:
                mark(env, txn)
                for name in (b"skeletons", b"bodies"):
                    env.open_db(name, txn=txn)
    finally:
        unguarded(guard)


def _replaced(path: str, which: tuple[int, int]) -> bool:
    try:
        return identity(os.stat(path)) != which
    except FileNotFoundError:
        return True


def _opened(path: str, *, readonly: bool, verify: bool) -> File:
    """The file at `path` with one user more, after its meta pages were found sound."""
    try:
        fd = os.open(path, (os.O_RDONLY if readonly else os.O_RDWR) | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _AtWork from None
    try:
        page_bytes = sound_page_bytes(path, fd)
        if verify:
            verify_pages(path, fd, page_bytes)
        which = identity(os.fstat(fd))
        file = _files.get(which)
        if file is None:
            file = _files[which] = File(path, fd, page_bytes, readonly=readonly)
        else:
            file.revive()
            if file.readonly and not readonly:
                file.make_writable()
        file.users += 1
        return file
    finally:
        os.close(fd)


def _rounded(size: int) -> int:
    """`size` up to the next multiple of the smallest map."""
    return -(-size // MAP_BYTES) * MAP_BYTES


def key(seq: int) -> bytes:
    return seq.to_bytes(8, "big")
