"""What a store, its file or a pool of stores cannot do as it is."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from branchmem.errors.base import Error, short


class StoreError(Error):
    """A store cannot do what was asked; `path` names its file."""

    remedy = "check the file"

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def explanation(self) -> str:
        return f"{self.path}: {self.why or self.remedy}"


class StoreBehind(Error):
    """The log on disk has not reached the position that was asked for."""

    def __init__(self, seq: int, min_seq: int) -> None:
        super().__init__(seq, min_seq)
        self.seq = seq
        self.min_seq = min_seq

    def explanation(self) -> str:
        return (
            f"the log stands at seq {self.seq}, not yet at {self.min_seq}: "
            "wait for the writer, or check which store is open"
        )


class StoreDamaged(StoreError):
    """The file is not whole; trust nothing from `seq` on (None: the file as such)."""

    def __init__(self, path: str, why: str, seq: int | None = None) -> None:
        Error.__init__(self, path, why, seq)
        self.path = path
        self.why = why
        self.seq = seq

    def explanation(self) -> str:
        where = "" if self.seq is None else f" at seq {self.seq}"
        return f"{self.path} is damaged{where}: {self.why}; restore a backup, or save what is proven: branchmem salvage"


class StoreLocked(StoreError):
    """The store is held; `holders` are the ids of the other processes that do, as far as the system tells."""

    remedy = "it is held, in this process or in another: close it there first"

    def __init__(self, path: str, why: str = "", holders: Iterable[int] = ()) -> None:
        holders = tuple(holders)
        Error.__init__(self, path, why, holders)
        self.path = path
        self.why = why
        self.holders = holders


class StoreReadOnly(StoreError):
    """The store was opened for reading, or its medium takes no writes."""

    remedy = "the store is open for reading only: open it with readonly=False on a writable medium"


class StoreFull(StoreError):
    """No room is left; what was acknowledged is intact."""

    remedy = "no room is left on the disk: free some and append again, nothing of this batch was written"


class StoreForked(StoreError):
    """The store was opened before a fork and is used in the child."""

    remedy = "the store was opened before this process was forked: call branchmem.open in the child"


class StoreClosed(StoreError, ValueError):
    """The store was closed."""

    remedy = "the store is closed: open it again with branchmem.open"


class StoreMissing(StoreError, FileNotFoundError):
    """There is no store at this path, and none was to be made."""

    remedy = "there is no store here: check the path; appending or importing makes one"

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(path, why)
        self.errno = errno.ENOENT  # OSError takes the first argument for it


class StoreExists(StoreError, FileExistsError):
    """There is something at this path already; it was left alone."""

    remedy = "there is something at this path already, which was left alone: name a new file"

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(path, why)
        self.errno = errno.EEXIST  # OSError takes the first argument for it


class StoreOnNetwork(StoreError):
    """The path lies on a network file system, where a memory map is not safe."""

    remedy = "a store cannot live on a network file system: keep it on a local disk"


class FormatTooNew(StoreError):
    """The file was written by a later branchmem."""

    remedy = "the store was written by a later version: upgrade branchmem"


class InvalidOwner(Error, ValueError):
    """An owner that no file can be named after; `owner` is at fault."""

    def __init__(self, owner: object, why: str) -> None:
        super().__init__(owner, why)
        self.owner = owner
        self.why = why

    def explanation(self) -> str:
        return f"{short(self.owner)} cannot be the owner of a store: {self.why}"


class PoolBusy(Error):
    """No store of the pool came free in time: `max_open` of them are leased, or wait to be opened."""

    def __init__(self, folder: str, owner: str, max_open: int, seconds: float) -> None:
        super().__init__(folder, owner, max_open, seconds)
        self.folder = folder
        self.owner = owner
        self.max_open = max_open
        self.seconds = seconds

    def explanation(self) -> str:
        return (
            f"{self.folder}: no room for the store of {short(self.owner)} in {self.seconds:g} s, as all "
            f"{self.max_open} that may be open are leased: end leases sooner, wait longer (timeout=), "
            "or allow more of them (max_open=)"
        )
