"""A bundle as a file that is written: once, streamed, and there as a whole or not at all.

Frames come first, so that writing needs no second look at them, then what was counted meanwhile, signed.
All of it goes to a draft beside the path, which takes its place, durably, when it is finished; what is
at the path already is never touched.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final

from branchmem.bundle.file import FOOT, HEAD, MAGIC
from branchmem.bundle.frames import Packing
from branchmem.bundle.keys import Key
from branchmem.bundle.manifest import SIGNED, Base, Manifest
from branchmem.errors import BundleNotWritten, Error, StoreExists, StoreFull, StoreLocked
from branchmem.log.copies import sync

MODE: Final = 0o600  # conversations are private

_DRAFT: Final = "-draft"
_PLAIN: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_NO_LINKS: Final = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS))


class BundleWriter:
    """Writes a new bundle: `with BundleWriter(path) as writer: writer.write(records); writer.finish(key, …)`.

    Without `finish`, or with an error before it, nothing is at `path` afterwards.  Who is killed meanwhile leaves
    `path`-draft, which the next writer to `path` removes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises: StoreExists where something lies at `path`; StoreLocked; BundleNotWritten."""
        self.path = os.path.abspath(os.fsdecode(path))
        self._packing = Packing()
        self._draft = self.path + _DRAFT
        self._is_draft = True
        with _typed(self.path):
            _refuse_what_is_there(self.path)
            self._file = os.fdopen(_made(self._draft, self.path), "wb")
        self._put(HEAD)

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Add events: canonical skeleton, and canonical body or None for content that was erased.  Streams.

        Erasures come first, then retractions, then the rest in the order of the log.  May be called again and again.
        Raises: StoreFull; BundleNotWritten; ExtraMissing.
        """
        for data in self._packing.pack(records):
            self._put(data)

    def finish(
        self,
        key: Key,
        *,
        id: str,
        origin: str,
        number: int,
        seq: int,
        created: datetime,
        refs: Mapping[str, str],
        base: Base | None = None,
        expires: datetime | None = None,
        recipient: str | None = None,
        digest: str | None = None,
    ) -> Manifest:
        """Sign the bundle and put it in its place, durably.  The fields are those of `Manifest`.

        Raises: BundleNotWritten for what no manifest states; StoreExists; StoreFull; ExtraMissing.
        """
        for data in self._packing.rest():
            self._put(data)
        manifest = Manifest(
            id=id,
            issuer=key.public,
            origin=origin,
            number=number,
            seq=seq,
            base=base,
            created=created,
            expires=expires,
            recipient=recipient,
            counts=self._packing.counts,
            refs=dict(refs),
            digest=digest,
            frames=tuple(self._packing.frames),
        )
        try:
            data = manifest.to_bytes()
            stated = Manifest.from_bytes(data)  # what can be read again
        except ValueError as error:
            raise BundleNotWritten(self.path, str(error)) from None
        self._put(data + key.sign(SIGNED + data) + FOOT.pack(len(data), MAGIC))
        self._put_in_place()
        return stated

    def close(self) -> None:
        """Let go of the file; what was not finished is removed."""
        if self._is_draft:
            self._is_draft = False
            with suppress(FileNotFoundError):
                os.unlink(self._draft)
        with suppress(OSError):  # what could not be written was told already, or nobody needs it
            self._file.close()

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _put(self, data: bytes) -> None:
        with _typed(self.path):
            self._file.write(data)

    def _put_in_place(self) -> None:
        with _typed(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            try:
                os.link(self._draft, self.path)  # unlike a rename, it takes the place of nothing
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                _refuse_what_is_there(self.path)
                os.rename(self._draft, self.path)
                self._is_draft = False
            self.close()
            sync(os.path.realpath(os.path.dirname(self.path)))


def _made(draft: str, path: str) -> int:
    """A descriptor of the new file `draft`, locked; one that was left by a process that died is removed first.

    Raises: StoreLocked where somebody writes to it; OSError.
    """
    while True:
        try:
            fd, is_new = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, MODE), True
        except FileExistsError:
            try:
                fd, is_new = os.open(draft, os.O_RDONLY | os.O_NONBLOCK | _PLAIN), False
            except FileNotFoundError:
                continue
        try:
            is_held = _locked(fd, draft, path)
            if is_held and not is_new:
                os.unlink(draft)
        except BaseException:
            os.close(fd)
            raise
        if is_held and is_new:
            return fd
        os.close(fd)


def _locked(fd: int, draft: str, path: str) -> bool:
    """Lock a draft; whether it still has its name: else it was put in its place, or removed, meanwhile.

    Raises: StoreLocked; OSError.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreLocked(path, "somebody else is writing a bundle to this path: let it end, or name another") from None
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(draft))
    except FileNotFoundError:
        return False


def _refuse_what_is_there(path: str) -> None:
    if os.path.lexists(path):
        raise StoreExists(path)


@contextmanager
def _typed(path: str) -> Iterator[None]:
    """Say in words of ours why nothing can be written.  Raises: StoreExists; StoreFull; BundleNotWritten."""
    try:
        yield
    except Error:
        raise
    except FileExistsError:
        raise StoreExists(path) from None
    except (OSError, ValueError) as error:
        if getattr(error, "errno", 0) in _NO_ROOM:
            raise StoreFull(path, "no room is left for the bundle, nothing was written: free some") from None
        raise BundleNotWritten(path, f"it cannot be written: {error}") from None
