"""A file that is only ever added to, by several processes at once, and that a killed one cannot spoil.

Whoever writes holds an exclusive lock (`flock`) on the file, whoever reads a shared one: a piece that is not whole
was left by a process that was killed, and not by one that is about to write the rest.  Such a piece can only be the
last; readers drop it with a warning, the next writer cuts it off.
"""

from __future__ import annotations

import fcntl
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Journal:
    """Pieces of bytes at `path`: lines, or, where `piece_bytes` is given, pieces of that many bytes each."""

    def __init__(self, path: Path, piece_bytes: int | None = None) -> None:
        self.path = path
        self._piece_bytes = piece_bytes

    def append(self, pieces: bytes) -> None:
        """Add one or more whole pieces.  They are in the file when this returns, whatever becomes of the process."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as fd:
            size = os.fstat(fd).st_size
            if size and self._whole(os.pread(fd, 1, size - 1), size) < size:
                os.ftruncate(fd, self._whole(_from(fd, 0), size))
            left = memoryview(pieces)
            while left:
                left = left[os.write(fd, left) :]

    def since(self, start: int) -> tuple[bytes, int]:
        """The whole pieces from byte `start` on, and where they end; none where there is no file yet."""
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return b"", 0
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            found = _from(fd, start)
        finally:
            os.close(fd)
        whole = self._whole(found, len(found))
        if whole < len(found):
            lost = len(found) - whole
            warnings.warn(f"{self.path}: half a record at its end is dropped ({lost} bytes)", stacklevel=3)
        return found[:whole], start + whole

    def emptied(self, into: Callable[[bytes], None]) -> None:
        """Give all whole pieces to `into`, which keeps them elsewhere, then empty the file; nobody writes meanwhile."""
        with self._locked() as fd:
            found = _from(fd, 0)
            into(found[: self._whole(found, len(found))])
            os.ftruncate(fd, 0)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)

    def _whole(self, end: bytes, size: int) -> int:
        """How many of `size` bytes are whole pieces, by the bytes that stand at their end."""
        if self._piece_bytes is not None:
            return size - size % self._piece_bytes
        return size - len(end) + end.rfind(b"\n") + 1


def put(path: Path, content: bytes) -> None:
    """Put a file in its place, or in that of another: whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _from(fd: int, start: int) -> bytes:
    """The bytes of a file from `start` on."""
    pieces = []
    while piece := os.pread(fd, 1 << 24, start):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)
