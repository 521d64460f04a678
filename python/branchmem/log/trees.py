"""The trees of an LMDB file, walked in plain Python: what hangs in them, and which pages are not what they should be.

Trusts nothing that it reads: a page that is damaged is noted and passed over, a
page is entered once, and nothing is read beyond the end of the file.  Engine 0.9
on 64 bits, without duplicate keys, as branchmem uses it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_HEAD = struct.Struct("=Q2xHHH")  # page number, flags, end of the pointers, start of the nodes
_NODE = struct.Struct("=HHHH")  # size or page below: low, middle, flags or high; size of the key
_DATABASE = struct.Struct("=IHHQQQQQ")  # pad, flags, depth, branch, leaf and overflow pages, entries, root
_OVERFLOW_HEAD = struct.Struct("=Q2xHI")  # page number, flags, pages

_BRANCH: Final = 0x01
_LEAF: Final = 0x02
_OVERFLOW: Final = 0x04
_ELSEWHERE: Final = 0x01
_DATABASE_NODE: Final = 0x02
_MAX_DEPTH: Final = 32
NO_ROOT: Final = (1 << 64) - 1


class Node(NamedTuple):
    """A record of a leaf, and where its value of `size` bytes stands: at byte `at`, or on pages from `first` on."""

    key: bytes
    flags: int
    size: int
    at: int
    first: int


class Database(NamedTuple):
    """A named database as its record in the main tree says."""

    entries: int
    root: int


class Trees:
    """The pages of one file.  `bad` notes what was passed over; `end` lies behind every page that was met."""

    def __init__(self, fd: int, page_bytes: int) -> None:
        self._fd = fd
        self._page_bytes = page_bytes
        self.pages = os.fstat(fd).st_size // page_bytes
        self.bad: list[str] = []
        self.end = 0

    def databases(self, root: int) -> dict[bytes, Database]:
        """The named databases of the main tree at `root`."""
        found = {}
        for node in self.nodes(root):
            if node.flags == _DATABASE_NODE and node.size == _DATABASE.size:
                *_, entries, below = _DATABASE.unpack(self.value(node) or bytes(_DATABASE.size))
                found[node.key] = Database(entries, below)
        return found

    def nodes(self, root: int) -> Iterator[Node]:
        """All records below the page `root` that can be read, in order."""
        waiting = [(root, 0)] if root != NO_ROOT else []
        entered = set()
        while waiting:
            number, depth = waiting.pop()
            page = self.page(number)
            if page is None or number in entered or depth > _MAX_DEPTH:
                self.bad.append(f"page {number} cannot be read as part of a tree")
                continue
            entered.add(number)
            _, flags, lower, _ = _HEAD.unpack_from(page)
            if flags == _BRANCH:
                waiting.extend((child, depth + 1) for child in reversed([*self._below(page, lower)]))
            else:
                yield from self.records(number, page)

    def loose(self) -> Iterator[Node]:
        """All records of all pages that look like leaves, whether they hang in a tree or not."""
        for number in range(2, self.pages):
            page = self.page(number)
            if page is not None:
                yield from self.records(number, page)

    def value(self, node: Node) -> bytes | None:
        """The value of a record, None where its pages cannot be read."""
        if not node.first:
            held = os.pread(self._fd, node.size, node.at)
            return held if len(held) == node.size else None
        size = _OVERFLOW_HEAD.size + node.size
        fits = node.first + self._needed(node.size) <= self.pages
        held = os.pread(self._fd, size, node.first * self._page_bytes) if fits else b""
        if len(held) < size or _OVERFLOW_HEAD.unpack_from(held)[:2] != (node.first, _OVERFLOW):
            return None
        return held[_OVERFLOW_HEAD.size :]

    def page(self, number: int) -> bytes | None:
        """A page of a tree, branch or leaf; None for what is none, or lies beyond the end."""
        self.end = max(self.end, number + 1)
        if not 2 <= number < self.pages:
            return None
        page = os.pread(self._fd, self._page_bytes, number * self._page_bytes)
        if len(page) < self._page_bytes:
            return None
        stored, flags, lower, upper = _HEAD.unpack_from(page)
        sound = stored == number and flags in (_BRANCH, _LEAF) and _HEAD.size <= lower <= upper <= self._page_bytes
        return page if sound and lower % 2 == 0 else None

    def unfilled(self, number: int, page: bytes) -> Iterator[tuple[int, int]]:
        """From where to where in the file nothing fills a page of a tree, or the pages of its large values.

        What is blank in the page itself is left out.
        """
        start = number * self._page_bytes
        _, flags, lower, upper = _HEAD.unpack_from(page)
        if page.count(0, lower, upper) < upper - lower:
            yield start + lower, start + upper
        for at in self._pointers(page, lower):
            low, high, place, key_size = _NODE.unpack_from(page, at)
            end = at + _NODE.size + key_size
            if flags == _LEAF:
                size = low | high << 16
                if place & _ELSEWHERE:
                    first = int.from_bytes(page[end : end + 8], "little")
                    value = first * self._page_bytes + _OVERFLOW_HEAD.size
                    yield value + size, (first + self.extent(first)) * self._page_bytes
                    size = 8
                end += size
            if end % 2 and end < len(page) and page[end]:  # nodes begin at even bytes
                yield start + end, start + end + 1

    def extent(self, number: int) -> int:
        """How many pages the large value takes that begins on a page, as that says; 1 where none begins there."""
        head = os.pread(self._fd, _OVERFLOW_HEAD.size, number * self._page_bytes)
        stored, flags, pages = _OVERFLOW_HEAD.unpack(head) if len(head) == _OVERFLOW_HEAD.size else (0, 0, 0)
        known = (stored, flags) == (number, _OVERFLOW) and 0 < pages <= self.pages - number
        return pages if known else 1

    def _below(self, page: bytes, lower: int) -> Iterator[int]:
        for at in self._pointers(page, lower):
            low, middle, high, _ = _NODE.unpack_from(page, at)
            yield low | middle << 16 | high << 32

    def records(self, number: int, page: bytes) -> Iterator[Node]:
        """The records of a page that is a leaf; none of a branch."""
        _, flags, lower, _ = _HEAD.unpack_from(page)
        for at in self._pointers(page, lower) if flags == _LEAF else ():
            low, high, flags, key_size = _NODE.unpack_from(page, at)
            size, start = low | high << 16, at + _NODE.size + key_size
            key = page[at + _NODE.size : start]
            held = 8 if flags & _ELSEWHERE else size
            if start + held > len(page):
                self.bad.append(f"a record of page {number} does not fit into it")
                continue
            first = int.from_bytes(page[start : start + 8], "little") if flags & _ELSEWHERE else 0
            if first:
                self.end = max(self.end, first + self._needed(size))
            yield Node(key, flags, size, number * self._page_bytes + start, first)

    def _pointers(self, page: bytes, lower: int) -> Iterator[int]:
        for (at,) in struct.iter_unpack("=H", page[_HEAD.size : lower]):
            if at + _NODE.size <= len(page):
                yield at
            else:
                self.bad.append("a pointer leads out of its page")

    def _needed(self, size: int) -> int:
        """How many pages a value of that size takes."""
        return -(-(_OVERFLOW_HEAD.size + size) // self._page_bytes)
