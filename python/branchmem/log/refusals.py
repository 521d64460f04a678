"""What LMDB and the system refuse, in the words of `branchmem.errors`."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import lmdb

from branchmem.errors import Error, StoreDamaged, StoreError, StoreForked, StoreFull, StoreLocked, StoreReadOnly
from branchmem.log.place import MAX_READERS, NOT_PERMITTED

_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
    lmdb.CursorFullError,
    lmdb.PageFullError,
)
_LEAST_ROOM: Final = 1 << 20
_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))
_NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


@contextmanager
def typed_errors(path: str, readonly: bool) -> Iterator[None]:
    try:
        yield
    except Error:
        raise
    except (lmdb.Error, OSError) as error:
        raise typed(error, path, readonly) from error


def typed(error: lmdb.Error | OSError, path: str, readonly: bool) -> StoreError:
    code = error.errno if isinstance(error, OSError) else getattr(error, "code", 0)
    why = str(error)
    if isinstance(error, _DAMAGE):
        return StoreDamaged(path, why)
    if code in _NO_ROOM or isinstance(error, lmdb.DiskError) or (code == errno.EIO and _is_full(path)):
        return StoreFull(path)
    if code in NOT_PERMITTED or isinstance(error, lmdb.ReadonlyError):
        if readonly:
            return StoreError(path, f"no permission to read it, or to use its lock file: {why}")
        return StoreReadOnly(path, f"no permission to write here ({why}): open it with readonly=True")
    if code in _NO_DESCRIPTOR:
        return StoreError(path, f"{why}: close stores that are not needed, or raise the limit (ulimit -n)")
    if isinstance(error, lmdb.ReadersFullError):
        return StoreLocked(path, f"{MAX_READERS} transactions read it at once: let some of them end")
    if isinstance(error, lmdb.LockError):
        return StoreLocked(path)
    if "already open in this process" in why:
        return StoreForked(
            path,
            "this process has the file open already, outside branchmem or from before a fork that came "
            "in the middle of a transaction: start the process without fork",
        )
    if "closed/deleted/dropped" in why:
        return StoreError(path, "an interrupt or an error cut short what moved its map: close it and open it again")
    return StoreError(path, why)


def _is_full(path: str) -> bool:
    """Whether a write was cut short for lack of room, which LMDB reports as EIO."""
    try:
        room, size = os.statvfs(os.path.dirname(path)), os.path.getsize(path)
    except OSError:  # it is a copy that is not there yet, or the disk is gone
        return False
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return room.f_bavail * room.f_frsize < _LEAST_ROOM or 0 <= limit < size + _LEAST_ROOM
