"""What a verb changed, or would change, in lines: ids and counts, no content."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

import branchmem as bm
from branchmem.terminal.lines import moved_rows, plain, rows, short, some


def change_lines(receipt: bm.Change | bm.Erased, *, width: int) -> Iterator[Text]:
    """What a verb wrote or would write, and row by row what that changes; ids and counts, no content."""
    form = receipt.to_dict()
    verb = "there already:" if form["known"] else "would write" if form["dry_run"] else "wrote"
    for event in form["events"]:
        place = f" at {short(event['at'])}, scope {event['scope']}" if "at" in event else ""
        yield Text.assemble(f"{verb} {event['type']} ", (short(event["id"]), "cyan"), place)
    yield from rows(_change_rows(receipt), width)


def _change_rows(receipt: bm.Change | bm.Erased) -> Iterator[tuple[str, str]]:
    """Label and text of each row; a row that has nothing to say is left out."""
    if isinstance(receipt, bm.Erased):
        for label, ids in (
            ("messages", receipt.messages),
            ("memories", receipt.memories),
            ("derived", receipt.derived),
            ("gone before", receipt.already),
            ("not here yet", receipt.absent),
        ):
            if ids:
                yield label, some(map(short, ids))
        yield "contents", f"{receipt.bodies:,}, {receipt.remains}"
        keys = f"; keys {some(map(plain, receipt.keys))}" if receipt.keys else ""
        yield "still there", f"{len(receipt.ids):,} ids{keys}"
    if receipt.anchors:
        first, *others = receipt.anchors
        yield from moved_rows(
            f"at {short(first)}" if not others else f"at {len(receipt.anchors)} anchors",
            {"hides": map(short, receipt.hidden), "shows": map(short, receipt.shown)},
        )
    if isinstance(receipt, bm.Change):
        for id, by in receipt.born_covered.items():
            yield "born covered", f"{short(id)}, by {some(map(short, by))}"
        for id, why in receipt.born_hidden.items():
            if id not in receipt.born_covered:
                yield "born hidden", f"{short(id)}: {some(map(plain, why))}"
        if receipt.unplaced:
            stands = "stands cannot be judged: a retraction then holds everywhere, a restoration nowhere"
            yield "no place", f"where {some(map(short, receipt.unplaced))} {stands}"
    if receipt.elsewhere is not None:
        yield "elsewhere", receipt.elsewhere.summary()
        for verb, moved in (("hides", receipt.elsewhere.hidden), ("shows", receipt.elsewhere.shown)):
            if moved:
                yield "", f"{verb} {some(f'{short(id)} at {leaves:,}' for id, leaves in moved.items())}"
