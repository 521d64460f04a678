"""Whether a file is sound enough to be mapped: LMDB itself would die of some that are not.

Reads two pages in plain Python, and on demand the whole file.  A writer may
commit while this looks; what a commit upset is looked at again.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections import deque
from typing import Final, NamedTuple

from lmdb.verify import verify

from branchmem.errors import StoreDamaged, StoreLocked
from branchmem.log.trees import NO_ROOT, Trees

TXNID_WORD: Final = 18  # in words of 8 bytes from the start of a meta page
LAST_PAGE_WORD: Final = 17

_LOOKS: Final = 10
_WALKS: Final = 3
_LMDB_MAGIC: Final = 0xBEEFC0DE
_LMDB_VERSION: Final = 1
_META_PAGE: Final = 0x08
_TREE_PAGES: Final = (0x01, 0x02)
_INTEGER_KEYS: Final = 0x08
_MAX_DEPTH: Final = 32
_MAX_PAGES: Final = 1 << 48
_PAGE_HEAD = struct.Struct("=Q2xH")
_META = struct.Struct("=Q2xH4xIIQQIHH4QQIHH4QQQQ")  # of engine 0.9 on 64 bits, as `_Meta` names it
META_BYTES: Final = _META.size


class _Meta(NamedTuple):
    """What a meta page says, in the order of its bytes."""

    page: int
    flags: int
    magic: int
    version: int
    address: int
    map_bytes: int
    page_bytes: int
    free_flags: int
    free_depth: int
    free_branches: int
    free_leaves: int
    free_overflows: int
    free_entries: int
    free_root: int
    main_pad: int
    main_flags: int
    main_depth: int
    main_branches: int
    main_leaves: int
    main_overflows: int
    main_entries: int
    main_root: int
    last_page: int
    txnid: int


class Snapshot(NamedTuple):
    """A state of the file that one of its meta pages tells of."""

    txnid: int
    main_root: int


def sound_page_bytes(path: str, fd: int) -> int:
    """The page size of a file whose meta pages are sound.  Looks again where a commit may have passed."""
    for _ in range(_LOOKS):
        try:
            newest = _newest_meta(fd)
        except ValueError as error:
            why = str(error)
            time.sleep(0.001)
            continue
        return newest.page_bytes
    raise StoreDamaged(path, why)


def metas(fd: int) -> tuple[int, list[Snapshot]]:
    """The page size, and what those meta pages say that are sound by themselves, the newest first."""
    sizes = [1 << power for power in range(8, 16)]
    head = os.pread(fd, _META.size, 0)
    first = _Meta(*_META.unpack(head)) if len(head) == _META.size else None
    if first is not None and first.page_bytes in sizes and _plausible(first, 0, first.page_bytes):
        sizes = [first.page_bytes]
    sound = []
    for page_bytes in sizes:
        for number in (0, 1):
            held = os.pread(fd, _META.size, number * page_bytes)
            meta = _Meta(*_META.unpack(held)) if len(held) == _META.size else None
            if meta is not None and meta.page_bytes == page_bytes and _plausible(meta, number, page_bytes):
                sound.append(meta)
    sound.sort(key=lambda meta: meta.txnid, reverse=True)
    page_bytes = sound[0].page_bytes if sound else mmap.PAGESIZE
    return page_bytes, [Snapshot(meta.txnid, meta.main_root) for meta in sound]


def _newest_meta(fd: int) -> _Meta:
    head = os.pread(fd, _META.size, 0)
    if not head:
        raise ValueError("it is empty")
    if len(head) < _META.size:
        raise ValueError(f"it has {len(head)} bytes, too few for an LMDB file")
    first = _Meta(*_META.unpack(head))
    if first.magic != _LMDB_MAGIC:
        raise ValueError("it is no LMDB file, or its first page is overwritten")
    if first.version != _LMDB_VERSION:
        raise ValueError(f"it is an LMDB file of data version {first.version}, not {_LMDB_VERSION}")
    page_bytes = first.page_bytes
    if page_bytes.bit_count() != 1 or not 256 <= page_bytes <= 0x8000:
        raise ValueError(f"it claims pages of {page_bytes} bytes")
    both = os.pread(fd, 2 * page_bytes, 0)
    if len(both) < 2 * page_bytes:
        raise ValueError(f"it is cut off after {len(both)} bytes")
    metas = [_Meta(*_META.unpack_from(both, number * page_bytes)) for number in (0, 1)]
    for number, meta in enumerate(metas):
        if not _plausible(meta, number, page_bytes):
            raise ValueError(f"meta page {number} is overwritten")
    older, newest = sorted(metas, key=lambda meta: meta.txnid)
    if (newest.txnid and newest.txnid != older.txnid + 1) or newest.last_page < older.last_page:
        raise ValueError("its meta pages do not follow on each other")
    size, promised = os.fstat(fd).st_size, (newest.last_page + 1) * page_bytes
    if size < promised and not _holds_all(fd, newest):
        raise ValueError(f"it is cut off: {size} bytes of {promised}")
    for root in (newest.free_root, newest.main_root):
        page = os.pread(fd, _PAGE_HEAD.size, root * page_bytes) if root != NO_ROOT else b""
        if page and (len(page) < _PAGE_HEAD.size or not _is_tree_page(page, root)):
            raise ValueError(f"page {root}, the root of a tree, is overwritten")
    return newest


def _holds_all(fd: int, meta: _Meta) -> bool:
    """Whether what a file lacks at its end are free pages alone: LMDB does not write what is freed at once again."""
    trees = Trees(fd, meta.page_bytes)
    free: set[int] = set()
    for node in trees.nodes(meta.free_root):
        numbers = trees.value(node) or b""
        free.update(number for (number,) in struct.iter_unpack("=Q", numbers[8 : len(numbers) // 8 * 8]))
    for database in trees.databases(meta.main_root).values():
        deque(trees.nodes(database.root), maxlen=0)
    lacking = meta.last_page + 1 - trees.pages
    listed = sum(trees.pages <= number <= meta.last_page for number in free)
    return lacking == listed and trees.end <= trees.pages and not trees.bad


def _plausible(meta: _Meta, number: int, page_bytes: int) -> bool:
    return (
        meta.page == number
        and meta.flags == _META_PAGE
        and (meta.magic, meta.version, meta.page_bytes) == (_LMDB_MAGIC, _LMDB_VERSION, page_bytes)
        and (meta.txnid == 0 or meta.txnid % 2 == number)
        and meta.free_flags & _INTEGER_KEYS != 0
        and meta.main_flags == 0
        and max(meta.free_depth, meta.main_depth) <= _MAX_DEPTH
        and 1 <= meta.last_page < _MAX_PAGES
        and all(root == NO_ROOT or 2 <= root <= meta.last_page for root in (meta.free_root, meta.main_root))
    )


def _is_tree_page(page: bytes, number: int) -> bool:
    stored, flags = _PAGE_HEAD.unpack(page)
    return bool(stored == number and flags in _TREE_PAGES)


def verify_pages(path: str, fd: int, page_bytes: int) -> None:
    """Walk the whole file in plain Python, about 100 MB a second.  What a commit upset is walked again.

    Raises: StoreDamaged, with the first finding.
    """
    for _ in range(_WALKS):
        before = os.pread(fd, 2 * page_bytes, 0)
        try:
            findings = verify(path, subdir=False)  # type: ignore[no-untyped-call]
        except Exception as error:  # whatever stops the walk is a finding
            findings = [str(error) or type(error).__name__]
        if not findings:
            return
        if os.pread(fd, 2 * page_bytes, 0) == before:
            raise StoreDamaged(path, f"{findings[0]} ({len(findings)} such findings)")
    raise StoreLocked(path, "other processes write to it all the time: verify it when they rest")
