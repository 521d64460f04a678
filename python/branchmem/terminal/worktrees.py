"""Worktrees in lines: which ref a folder has, and what deleting the memory of a branch takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rich.text import Text

from branchmem.terminal.lines import hanging, plain, rows, short, some

if TYPE_CHECKING:
    from branchmem.worktree import Deleted, Start, Status

#: So many digits of a commit are enough to tell it from others.
COMMIT_CELLS: Final = 12


def status_lines(found: Status, *, width: int) -> Iterator[Text]:
    """The ref of a folder, where it stands or would start, and the other branches of its project."""
    yield from hanging(Text.assemble((plain(found.ref), "bold"), f" ({plain(found.state)})"), width)
    yield from rows(_status_rows(found), width)


def _status_rows(found: Status) -> Iterator[tuple[str, str]]:
    if found.head is not None:
        yield "stands at", short(found.head)
    if found.start is not None:
        yield "would start", _start(found.start)
    if found.commit is not None:
        yield "commit", plain(found.commit)[:COMMIT_CELLS]
    if found.branches:
        yield "branches", some(map(plain, found.branches))
    if found.gone:
        yield "kept", f"{some(map(plain, found.gone))}: git has them no more, worktree delete erases what they saw"


def _start(start: Start) -> str:
    where = f"at {'the root of the project' if start.message is None else short(start.message)}"
    if not start.branches:
        return where
    origins = " and ".join(map(plain, start.branches))
    if start.renamed:
        return f"{where}, as {origins} was renamed"
    return f"{where}, on {origins} at commit {plain(start.base or '')[:COMMIT_CELLS]}"


def deleted_lines(receipt: Deleted, *, width: int) -> Iterator[Text]:
    """Which ref goes, and what is erased with it; ids and counts, no content."""
    goes = "would be deleted" if receipt.dry_run else "is deleted"
    stood = f" {goes}; it stood at {short(receipt.head)}"
    yield from hanging(Text.assemble((plain(receipt.ref), "bold"), stood), width)
    yield from rows(_deleted_rows(receipt), width)


def _deleted_rows(receipt: Deleted) -> Iterator[tuple[str, str]]:
    seen = receipt.seen
    for label, ids in (("messages", seen.messages), ("memories", seen.memories)):
        yield label, some(map(short, ids)) or "none"
    yield "contents", f"{len(seen.messages) + len(seen.memories):,}, in free pages until compact"
    if seen.adopted:
        yield "stays", f"{some(map(short, seen.adopted))}, taken over elsewhere"
