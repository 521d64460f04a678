"""Whether a file is sound enough to be mapped: LMDB itself would die of some that are not.

Reads two pages in plain Python, and on demand the whole file.  A writer may
commit while this looks; what a commit upset is looked at again.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Final, NamedTuple

from lmdb.verify import verify

from branchmem.errors import StoreDamaged, StoreLocked

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
_NO_ROOT: Final = (1 << 64) - 1
_PAGE_HEAD = struct.Struct("=Q2xH")
_META = struct.Struct("=Q2xH4xIIQQIHH4QQIHH4QQQQ")  # of engine 0.9 on 64 bits, as `_Meta` names it


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


def sound_page_bytes(path: str, fd: int) -> int:
    """The page size of a file whose meta pages are sound.  Looks again where a commit may have passed."""
    for _ in range(_LOOKS):
        try:
            return _newest_meta(fd).page_bytes
        except ValueError as error:
            why = str(error)
            time.sleep(0.001)
    raise StoreDamaged(path, why)


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
    size = os.fstat(fd).st_size
    if size < (newest.last_page + 1) * page_bytes:
        raise ValueError(f"it is cut off: {size} bytes of {(newest.last_page + 1) * page_bytes}")
    for root in (newest.free_root, newest.main_root):
        page = os.pread(fd, _PAGE_HEAD.size, root * page_bytes) if root != _NO_ROOT else b""
        if page and (len(page) < _PAGE_HEAD.size or not _is_tree_page(page, root)):
            raise ValueError(f"page {root}, the root of a tree, is overwritten")
    return newest


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
        and all(root == _NO_ROOT or 2 <= root <= meta.last_page for root in (meta.free_root, meta.main_root))
    )


def _is_tree_page(page: bytes, number: int) -> bool:
    stored, flags = _PAGE_HEAD.unpack(page)
    return bool(stored == number and flags in _TREE_PAGES)


def verify_pages(path: str, fd: int, page_bytes: int) -> None:
    """Walk the whole file in plain Python.  What a commit during the walk upset is walked again."""
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
