"""The bytes of a file that no record fills: LMDB leaves in them what stood there before.

They lie between the pointers and the nodes of a page, behind a node of odd length, behind
the last byte of a value that has pages of its own, and behind what a meta page says.  LMDB
copies them along, so that a copy without free pages may still hold what was erased.  Engine
0.9 on 64 bits; the file must have no free pages, and nobody else may write to it.
"""

from __future__ import annotations

import os

from branchmem.log.pages import META_BYTES
from branchmem.log.trees import Trees


def blank(fd: int, page_bytes: int) -> None:
    """Overwrite them with zeros.  Cost: reads all pages but those of large values, and looks at every record."""
    for number in (0, 1):
        _clear(fd, number * page_bytes + META_BYTES, (number + 1) * page_bytes)
    trees = Trees(fd, page_bytes)
    number = 2
    while number < trees.pages:
        page = trees.page(number)
        if page is None:  # where a large value begins: its other pages may look like anything
            number += trees.extent(number)
            continue
        for start, end in trees.unfilled(number, page):
            _clear(fd, start, end)
        number += 1


def _clear(fd: int, start: int, end: int) -> None:
    if start < end and os.pread(fd, end - start, start).strip(b"\0"):
        os.pwrite(fd, bytes(end - start), start)
