"""Branches in lines: where refs stand and how they moved, what two branches have each, what a merge took over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text

import branchmem as bm
from branchmem.terminal.answers import label, memory_lines, message
from branchmem.terminal.lines import (
    ID_CELLS,
    LEAST_TEXT_CELLS,
    SHOWN,
    TIME,
    cell,
    counted,
    first,
    hanging,
    moved_rows,
    plain,
    rows,
    short,
    some,
)

if TYPE_CHECKING:
    from branchmem.merge import Conflict, Difference, Merged
    from branchmem.refs import Move, Unreachable

WHY_CELLS: Final = 9


def ref_rows(store: bm.Store, heads: Mapping[str, str], *, width: int) -> Iterator[Text]:
    """One ref a line: its name, the message where it stands, how that begins."""
    most = width - ID_CELLS - 4 - LEAST_TEXT_CELLS
    names = min(max((cell_len(plain(name)) for name in heads), default=0), most)
    for name, head in heads.items():
        said = message(store, head)
        text = said.text or ("(erased)" if store.log.is_erased(head) else said.role or "")
        yield Text.assemble(
            (cell(plain(name), names), "bold"),
            "  ",
            (cell(short(head), ID_CELLS), "cyan"),
            "  ",
            (cell(plain(text), width - names - ID_CELLS - 4).rstrip(), "dim"),
        )


def move_lines(move: Move, *, width: int) -> Iterator[Text]:
    """What was done to a ref, and where it stands now."""
    if move.after is not None:
        return stands_lines(move.name, move.after, move.before, width=width)
    stood = f" is deleted; it stood at {short(move.before)}" if move.before is not None else " was deleted before"
    return hanging(Text.assemble((plain(move.name), "bold"), stood), width)


def stands_lines(name: str, head: str, before: str | None = None, *, width: int) -> Iterator[Text]:
    """Where a ref stands, and where it stood before."""
    stood = f", before at {short(before)}" if before else ""
    return hanging(Text.assemble((plain(name), "bold"), " stands at ", (short(head), "cyan"), stood), width)


def move_rows(moves: Iterable[Move], *, width: int) -> Iterator[Text]:
    """One move a line, under the name of its ref: its number, what was done, from where to where, when (UTC)."""
    name = None
    for move in moves:
        if move.name != name:
            name = move.name
            yield Text(cell(plain(name), width).rstrip(), "bold")
        before, after = (short(id) if id else "nothing" for id in (move.before, move.after))
        row = Text.assemble(
            f"{move.number:>5}  {cell(plain(move.why), WHY_CELLS)}  ",
            f"{cell(before, ID_CELLS)} → ",
            (cell(after, ID_CELLS), "cyan"),
            (f"  {move.created.strftime(TIME)}", "dim"),
        )
        row.truncate(width)
        yield row


def unreachable_lines(found: Unreachable) -> Iterator[Text]:
    """How much no ref leads to, then the first of it."""
    yield Text(str(found), "bold")
    yield from first("messages", map(short, found.messages))
    yield from first("memories", map(short, found.memories))


def difference_lines(store: bm.Store, found: Difference, names: tuple[str, str], *, width: int) -> Iterator[Text]:
    """Where two branches part and how far each went on, then what may be remembered at one of them only."""
    first, second = map(plain, names)
    part = f"part at {short(found.ancestor)}" if found.ancestor else "lie in two trees"
    yield from hanging(f"{first} and {second} {part}", width)
    yield Text(f"{_memories(len(found.both))} at both", "dim")
    sides = ((first, found.a, found.messages_a, found.only_a), (second, found.b, found.messages_b, found.only_b))
    for name, anchor, messages, only in sides:
        on = f"{name}, {counted(len(messages), 'message', 'messages')} on: {_memories(len(only))} of its own"
        yield Text()
        yield from hanging(Text(on, "bold yellow"), width)
        view = store.at(anchor)
        yield from memory_lines((view[id] for id in only), width=width)


def merged_lines(receipt: Merged, *, width: int) -> Iterator[Text]:
    """Where a ref stands that took something over, and row by row what; conflicts that are left, in full."""
    into, before, after = plain(receipt.into), short(receipt.before), short(receipt.after)
    if receipt.before == receipt.after:
        said = Text.assemble((into, "bold"), f" stays at {before}: there is nothing to take over")
    else:
        stands = "would stand" if receipt.dry_run else "stands"
        how = ", fast forward" if receipt.fast_forward else ""
        said = Text.assemble((into, "bold"), f" {stands} at ", (after, "cyan"), f", before at {before}{how}")
    yield from hanging(said, width)
    yield from rows(_merged_rows(receipt), width)
    decided = {id for each in receipt.resolved for id in (each.winner, *each.losers)}
    rivals = (conflict for conflict in receipt.conflicts if conflict.theirs.id not in decided)
    yield from conflict_lines(rivals, width=width)


def _merged_rows(receipt: Merged) -> Iterator[tuple[str, str]]:
    if receipt.adopted:
        yield "adopts", some(f"{short(id)} as {short(by)}" for id, by in receipt.adopted.items())
    for each in receipt.resolved:
        losers = some(map(short, each.losers))
        yield "resolves", f"{short(each.winner)} wins over {losers}, as {short(each.memory)}"
    skipped: dict[str, list[str]] = {}
    for id, why in receipt.skipped.items():
        skipped.setdefault(why, []).append(short(id))
    yield from _first_rows("leaves out", [f"{some(ids)}: {plain(why)}" for why, ids in skipped.items()])
    if receipt.taken_back:
        yield "taken back", f"{some(map(short, receipt.taken_back))}: there, but not here, since no merge takes back"
    if receipt.hidden or receipt.shown:
        moved = {"hides": map(short, receipt.hidden), "shows": map(short, receipt.shown)}
        yield from moved_rows("there", moved)
    born = (f"{short(id)}: {some(map(plain, why))}" for id, why in receipt.born_hidden.items())
    yield from _first_rows("born hidden", list(born))


def _first_rows(label: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """A row for each of the first texts, and how many more there are."""
    for text in texts[:SHOWN]:
        yield label, text
    if len(texts) > SHOWN:
        yield "", f"and {len(texts) - SHOWN:,} more: --json lists them"


def conflict_lines(conflicts: Iterable[Conflict], *, width: int) -> Iterator[Text]:
    """The first conflicts, each with what both sides go back to, ours and theirs, in full."""
    left = iter(conflicts)
    for number, conflict in enumerate(islice(left, SHOWN), 1):
        title = Text.assemble((f"conflict {number}", "bold red"), f" about {plain(conflict.about)}")
        yield from hanging(title, width)
        yield from rows(_sides(conflict), width)
    more = sum(1 for _ in left)
    if more:
        yield Text(f"and {more:,} more conflicts: --json lists them", "dim")


def _sides(conflict: Conflict) -> Iterator[tuple[str, str]]:
    for side, memory in (("base", conflict.base), ("ours", conflict.ours), ("theirs", conflict.theirs)):
        if memory is None:
            yield side, "none"
            continue
        yield side, f"{short(memory.id)}  {label(memory)}"
        for line in memory.text.splitlines():
            yield "", plain(line)


def _memories(count: int) -> str:
    return counted(count, "memory", "memories")
