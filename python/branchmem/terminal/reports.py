"""What upkeep found, in lines: a summary, then the first of what is damaged, missing or odd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from branchmem.terminal.lines import first, plain, short, some

if TYPE_CHECKING:
    from branchmem.check import Check
    from branchmem.salvage import Salvage


def check_lines(report: Check) -> Iterator[Text]:
    """The summary of a check, then the first of what it found, kind by kind."""
    yield Text(plain(report), "bold" if report.ok else "bold red")
    yield from first("damage", report.damage)
    yield from first("parent not in the log", (f"{short(id)} below {short(up)}" for id, up in report.orphans.items()))
    yield from first("parents in a circle", (some(map(short, circle), " → ") for circle in report.circles))
    dangling = (f"{short(id)} from {some(map(short, ids))}" for id, ids in report.dangling.items())
    yield from first("events that refer to what is not in the log", dangling)
    yield from first("retractions and restorations whose place cannot be judged", map(short, report.unplaced))
    replacing = (some(map(short, circle), " ↔ ") for circle in report.supersession_circles)
    yield from first("memories that replace each other", replacing)
    yield from first("roots that look like edits of one prompt", map(short, report.prompts))
    unshowable = (f"{short(id)} {', '.join(reasons.names())}" for id, reasons in report.unshowable.items())
    yield from first("memories that no anchor can show", unshowable)


def salvage_lines(report: Salvage) -> Iterator[Text]:
    """The summary of a salvage, then the first of what is lost, kind by kind."""
    yield Text(plain(report), "bold" if report.ok else "bold red")
    yield from first("what is wrong with the file", report.damage)
    yield from first("lost blocks, by position", (f"{start} to {end - 1}" for start, end in report.lost))
    bodiless = (f"seq {seq}: {short(id)}" for id, seq in report.bodiless.items())
    yield from first("events whose content is lost", bodiless)
    yield from first("events that name an id of a lost block", (f"seq {seq}" for seq in report.unnamed))
    if report.loose:
        yield Text(f"{report.loose:,} of these events stood on pages that belong to no tree any more", "bold red")
    if report.lost and report.new:
        yield Text(
            "A lost block may have held retractions and erasures: what they hid may show in the new store.", "bold red"
        )
