"""What every line is made of: safe texts, short ids, cells of a width, lists that are cut.

Texts and ids come out of files that others wrote, so nothing but printable characters of them
reaches the terminal, and nothing is read as markup.  Widths are counted in cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

ELLIPSIS: Final = "…"
ID_CELLS: Final = 10
TAIL: Final = 8
LEAST_TEXT_CELLS: Final = 12
SHOWN: Final = 10
LABEL_CELLS: Final = 14
#: How a time is written, in UTC.
TIME: Final = "%Y-%m-%d %H:%M:%SZ"

# Controls but those that JSON escapes by itself, marks that turn the direction of a text, lone surrogates.
ACTED_UPON: Final = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNPRINTABLE: Final = re.compile(f"[\x00-\x1f{ACTED_UPON}]")


def plain(text: object) -> str:
    """One line of printable characters: white space runs become a space, what is unprintable U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", " ".join(str(text).split()))


def printable(line: str) -> str:
    """A line with its spaces and tabs as they are; what is unprintable U+FFFD."""
    return "\t".join(_UNPRINTABLE.sub("\ufffd", part) for part in line.split("\t"))


def short(id: str) -> str:
    """An id of up to ten characters as it is, of a longer one its end: `…86a6f880`."""
    return plain(id if len(id) <= ID_CELLS else ELLIPSIS + id[-TAIL:])


def cell(text: str, cells: int) -> str:
    """`text` in exactly that many cells; what is cut off leaves an ellipsis."""
    return set_cell_size(text, cells) if cell_len(text) <= cells else set_cell_size(text, cells - 1) + ELLIPSIS


def wrapped(text: str | Text, console: Console, cells: int) -> list[Text]:
    """`text` in lines of at most that many cells, or of `LEAST_TEXT_CELLS` where that is less; at least one."""
    room = max(cells, LEAST_TEXT_CELLS)
    lines = list((Text(text) if isinstance(text, str) else text).wrap(console, room)) or [Text()]
    for line in lines:
        line.rstrip()
    return lines


def bullet(text: str, width: int) -> Iterator[Text]:
    """A sentence behind a dash, wrapped to the width."""
    for number, line in enumerate(wrapped(text, Console(width=width), width - 4)):
        yield Text("    " if number else "  - ").append_text(line)


def hanging(text: str | Text, width: int) -> Iterator[Text]:
    """A text from the left edge, wrapped to the width; what does not fit into the first line is indented."""
    for number, line in enumerate(wrapped(text, Console(width=width), width - 2)):
        yield Text("  " if number else "").append_text(line)


def counted(count: int, one: str, many: str) -> str:
    """A number with what it counts."""
    return f"{count:,} {one if count == 1 else many}"


def some(texts: Iterable[str], between: str = ", ") -> str:
    """The first of some texts, and how many more there are."""
    listed = list(texts)
    more = f" and {len(listed) - SHOWN:,} more" if len(listed) > SHOWN else ""
    return between.join(listed[:SHOWN]) + more


def first(title: str, found: Iterable[str]) -> Iterator[Text]:
    """A title and the first of what was found, a line each; nothing where nothing was."""
    lines = iter(found)
    for number, line in enumerate(islice(lines, SHOWN)):
        if not number:
            yield Text(title, "dim")
        yield Text(f"  {plain(line)}")
    more = sum(1 for _ in lines)
    if more:
        yield Text(f"  and {more:,} more: --json lists them", "dim")


def heading(title: str) -> Text:
    """A title, with an empty line before it."""
    return Text.assemble("\n", (title, "bold yellow"))


def count_lines(title: str, counts: Mapping[str, int]) -> Iterator[Text]:
    """A heading, and each number that is not nought with its name; nothing where all are."""
    counted = {name: count for name, count in counts.items() if count}
    if counted:
        yield Text(plain(title), "dim")
    for name, count in counted.items():
        yield Text.assemble(f"  {count:>9,}  ", plain(name))


def rows(labelled: Iterable[tuple[str, str]], width: int) -> Iterator[Text]:
    """Labels at the left and beside each its text, wrapped to the width; the label stands once."""
    console = Console(width=width)
    for label, text in labelled:
        for line in wrapped(text, console, width - LABEL_CELLS - 2):
            yield Text.assemble("  ", (cell(label, LABEL_CELLS), "dim"), line)
            label = ""


def moved_rows(label: str, moved: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """What goes and what comes, a row each, the label at the first; or that nothing changes."""
    said = [f"{verb} {some(listed)}" for verb, texts in moved.items() if (listed := list(texts))]
    for text in said or ["nothing changes"]:
        yield label, text
        label = ""
