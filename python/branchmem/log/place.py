"""Where a log may lie, and the guard file beside it.

A memory map is safe on a local disk only, and the locks of a file hang on its
name: so no network file systems, no links.  All who have a log open hold its
guard file shared; who makes or replaces the log holds it alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Final

from branchmem.errors import StoreError, StoreLocked, StoreMissing, StoreOnNetwork

MODE: Final = 0o600  # conversations are private
NOT_PERMITTED: Final = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))
MAX_READERS: Final = 1024

PATIENCE_SECONDS = 5.0
LOCKS = "/proc/locks"  # where Linux tells who holds what

_LOCK_BYTES: Final = MAX_READERS * 64 + 4096  # a cache line a reader, and the header

_NETWORK_FILE_SYSTEMS: Final = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fhgfs", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "orangefs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf"),
        *("fuse.ceph", "fuse.cephfs", "fuse.davfs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs"),
        *("fuse.lustre", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    )
)


def placed(path: str) -> str:
    """`path` below the true name of its folder, which must be there and local."""
    folder = os.path.realpath(os.path.dirname(path))
    if not os.path.isdir(folder):
        raise StoreMissing(path, f"there is no folder {folder}: make it first")
    kind = _file_system(folder)
    if kind in _NETWORK_FILE_SYSTEMS:
        raise StoreOnNetwork(path, f"{folder} lies on a network file system ({kind}): {StoreOnNetwork.remedy}")
    return os.path.join(folder, os.path.basename(path))


def _mounts() -> str:
    with suppress(FileNotFoundError), open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        return table.read()
    return ""


@lru_cache(maxsize=1)
def _mount_points(table: str) -> list[tuple[str, str]]:
    """The folder and the type of the file system of each mount; kept, since many stores meet the same table."""
    points = []
    for line in table.splitlines():
        place, _, source = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place.split(" ")[4])
        points.append((point, source.split(" ")[0]))
    return points


def _file_system(folder: str) -> str:
    """The type of the file system that `folder` lies on; empty where the system does not say."""
    longest, kind = "", ""
    for point, source in _mount_points(_mounts()):
        covers = folder == point or folder.startswith(point.rstrip("/") + "/")
        if covers and len(point) >= len(longest):
            longest, kind = point, source
    return kind


def found(path: str) -> os.stat_result | None:
    """What lies at `path`, None for nothing; only a plain file with one name will do."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise StoreError(path, "it is a symbolic link: open the file that it points to")
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(path, "it is a folder or a device: name the file itself")
    if status.st_nlink > 1:
        raise StoreError(path, "it has several names (hard links), each with locks of its own: copy it instead")
    return status


class Patience:
    """How long to wait for processes that hold a guard."""

    def __init__(self) -> None:
        self._end = time.monotonic() + PATIENCE_SECONDS

    def wait(self, path: str) -> None:
        """Wait for a moment.  Raises: StoreLocked, with the holders, once this has taken too long."""
        if time.monotonic() > self._end:
            guard = _guard(path)
            try:
                raise locked(path, guard)
            finally:
                os.close(guard)
        time.sleep(0.005)


def guarded(path: str, operation: int) -> int:
    """A descriptor that holds the guard file, shared or alone; StoreLocked where others hold it too long."""
    patience = Patience()
    while (fd := guarded_now(path, operation)) is None:
        patience.wait(path)
    return fd


def guarded_now(path: str, operation: int) -> int | None:
    """As `guarded`, and None at once where others hold the guard or are about to remove it."""
    fd = _guard(path)
    try:
        if _locked(fd, operation) and _is_at(fd, path + "-guard"):
            return fd
    except BaseException:
        unguarded(fd)
        raise
    unguarded(fd)
    return None


def unguarded(fd: int) -> None:
    """Let go of a guard, also where a process that was forked meanwhile has inherited the descriptor."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


@contextmanager
def alone(path: str, guard: int, file: int) -> Iterator[None]:
    """Hold alone, for a while, the guard that this process holds shared.

    A lock is let go of before it is held in another way, so who wants this locks the log
    itself first, open as `file`: nobody else can replace it in between.
    Raises: StoreLocked at once where another process has the log open.
    """
    if not _is_at(guard, path + "-guard"):
        raise StoreLocked(path, "its guard file was removed: close it in all processes first")
    if not _locked(file, fcntl.LOCK_EX):
        raise locked(path, file)
    try:
        if not _locked(guard, fcntl.LOCK_EX):
            raise locked(path, guard)
        yield
    finally:
        fcntl.flock(guard, fcntl.LOCK_SH)
        fcntl.flock(file, fcntl.LOCK_UN)


def locked(path: str, fd: int) -> StoreLocked:
    """The refusal of a lock on the file open as `fd`, with the processes that stand in the way."""
    pids = holders(fd)
    if not pids:
        return StoreLocked(path)
    named = f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"
    return StoreLocked(path, f"{named} held it open or at work: close it there, or wait, and try again", pids)


def holders(fd: int) -> tuple[int, ...]:
    """The other processes that hold a lock on the file open as `fd`; none where the system does not tell.

    Linux tells, as far as it shows a process to this one.
    """
    status = os.fstat(fd)
    inode = f":{status.st_ino}"
    exactly = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}{inode}"
    pids: dict[str, set[int]] = {}
    with suppress(OSError), open(LOCKS, encoding="ascii", errors="replace") as table:
        for line in table:
            match line.split():
                case [_, "FLOCK", _, _, pid, place, *_] if place.endswith(inode) and int(pid) > 0:
                    pids.setdefault(place, set()).add(int(pid))
    # Some file systems (btrfs, overlays) are told under another device.
    named = pids.get(exactly) or set().union(*pids.values())
    return tuple(sorted(named - {os.getpid()}))


def _guard(path: str) -> int:
    name = path + "-guard"
    try:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    except OSError as error:
        if error.errno not in NOT_PERMITTED or not os.path.exists(name):
            raise
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _locked(fd: int, operation: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
        return True
    return False


def _is_at(fd: int, path: str) -> bool:
    """Whether `path` is the name of the file open as `fd`."""
    try:
        return identity(os.stat(path)) == identity(os.fstat(fd))
    except FileNotFoundError:
        return False


def reserve_lock(path: str) -> None:
    """Give the lock file its blocks on the disk: LMDB maps it, and writing to a map without room kills the process.

    Only while this process has no environment on it: closing a descriptor lets go of the locks of them all.
    """
    try:
        fd = os.open(path + "-lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    except OSError as error:
        if error.errno in NOT_PERMITTED:
            return  # LMDB says whether it can do without
        raise
    try:
        if os.fstat(fd).st_blocks * 512 < _LOCK_BYTES and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, _LOCK_BYTES)
    finally:
        os.close(fd)


def frozen(path: str) -> bool:
    """Whether nobody can write here, so that a reader needs no lock: a read-only medium, or no room for the lock."""
    folder = os.path.dirname(path)
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return True
    return not os.path.exists(path + "-lock") and not os.access(folder, os.W_OK)


def identity(status: os.stat_result) -> tuple[int, int]:
    """What makes two names the same file."""
    return status.st_dev, status.st_ino
