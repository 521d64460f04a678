"""Copies of a log: durable, compared with what they were made from, and never there by halves.

A copy is written to a draft beside its place, without free pages and with zeros where no
record is, so that nothing that was erased goes along.  It is synced, walked in plain Python,
compared record by record with the snapshot that it was made from, and only then moved to its
place.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

import lmdb

from branchmem.errors import StoreDamaged, StoreExists, StoreFull
from branchmem.log.blanks import blank
from branchmem.log.pages import sound_page_bytes, verify_pages
from branchmem.log.place import MODE, guarded, placed, unguarded
from branchmem.log.refusals import typed_errors

MAX_DATABASES: Final = 32

_DRAFT: Final = "-draft"
_BESIDE_A_DRAFT: Final = ("", "-lock", "-guard", _DRAFT, _DRAFT + "-lock")


@contextmanager
def drafted(path: str) -> Iterator[str]:
    """A name for a file that takes the place of `path`, durably, when the work on it has ended well.

    The guard of `path` must be held alone: then a draft that is there already was left by a process that died.
    """
    draft = path + _DRAFT
    discard_draft(path)
    try:
        yield draft
        sync(draft)
        os.rename(draft, path)
    finally:
        discard_draft(path)
    sync(os.path.dirname(path))


@contextmanager
def made_anew(path: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """The full name of a log to be made at `path`, and the name of the draft that becomes it when the work ended well.

    Raises: StoreExists where something lies there; the errors of a store, about the new one.
    """
    target = os.path.abspath(os.fsdecode(path))
    with typed_errors(target, False):
        target = placed(target)
        _refuse_what_is_there(target)
        guard = guarded(target, fcntl.LOCK_EX)
        try:
            _refuse_what_is_there(target)
            with drafted(target) as draft:
                yield target, draft
        finally:
            with suppress(FileNotFoundError):
                os.unlink(target + "-guard")  # nobody has it open yet, and who waits for it looks again
            unguarded(guard)


def _refuse_what_is_there(path: str) -> None:
    if os.path.lexists(path):
        raise StoreExists(path)


def discard_draft(path: str) -> None:
    """Remove what a process that died left of a draft.  The guard of `path` must be held, or nobody works on it."""
    for end in _BESIDE_A_DRAFT:
        with suppress(FileNotFoundError):
            os.unlink(path + _DRAFT + end)


def sync(path: str) -> None:
    """Make a file durable, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def copy(env: lmdb.Environment, txn: lmdb.Transaction[bytes], draft: str) -> None:
    """Write the snapshot of `txn` to the new file `draft`, and make sure that it is the same, record by record.

    Raises: StoreFull; StoreDamaged where the copy is not sound or not the same; nothing was replaced then.
    Cost: reads everything twice, and walks the copy in plain Python: about 2 s for 100 MB.
    """
    target = draft.removesuffix(_DRAFT)
    try:
        with typed_errors(target, False):
            _copy(env, txn, draft)
    except StoreFull:
        raise StoreFull(target, "no room is left for the copy: free some, the store itself is as it was") from None


def _copy(env: lmdb.Environment, txn: lmdb.Transaction[bytes], draft: str) -> None:
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    try:
        env.copyfd(fd, compact=True, txn=txn)
        page_bytes = sound_page_bytes(draft, fd)
        blank(fd, page_bytes)
        os.fsync(fd)
        verify_pages(draft, fd, page_bytes)
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    twin = lmdb.Environment(
        os.fsencode(draft), map_size=size, subdir=False, readonly=True, lock=False, max_dbs=MAX_DATABASES, lib_version=0
    )
    with closing(twin), twin.begin(buffers=True) as same:
        if _digest(twin, same) != _digest(env, txn):
            raise StoreDamaged(draft, "the copy does not hold the same records; the original was left as it is")


def _digest(env: lmdb.Environment, txn: lmdb.Transaction[Any]) -> bytes:
    """SHA-256 over all records of all databases, in order."""
    import hashlib

    digest = hashlib.sha256()
    with txn.cursor(env.open_db(None, txn=txn)) as databases:
        names = [bytes(name) for name in databases.iternext(values=False)]
    for name in names:
        digest.update(_sized(name))
        with txn.cursor(env.open_db(name, txn=txn, create=False)) as cursor:
            for key, value in cursor:
                digest.update(_sized(key))
                digest.update(_sized(value))
    return digest.digest()


def _sized(part: bytes) -> bytes:
    """`part` after its length, so that what is hashed one after the other cannot be parted in another way."""
    return len(part).to_bytes(8, "little") + part
