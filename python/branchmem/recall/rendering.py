"""How a text that somebody else wrote stands among lines of ours: as data, which cannot pass for the frame.

Only the frame begins at the left edge.  What a memory says stands behind a dash, its further lines are indented so far
that none is a heading, and no character of it breaks a line or moves the cursor.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from branchmem.skills.prompt import inner

#: What stands for a text without a character that can be seen.
NO_TEXT: Final = "(no text)"

# Four more than an item's text: to Markdown such a line is no heading, no item and no fence.
_INDENT: Final = " " * 6
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_ELLIPSIS: Final = "…"


def lines(text: str) -> list[str]:
    """The lines of a text without controls, and without empty ones at its ends; at least one."""
    found = [_CONTROLS.sub("\ufffd", line).rstrip() for line in text.splitlines()]
    while found and not found[-1]:
        found.pop()
    while found and not found[0]:
        found.pop(0)
    return found or [NO_TEXT]


def bullet(text: str, created: datetime | None = None) -> str:
    """A text behind a dash, and before it the day on which it was kept, where that is known."""
    first, *rest = lines(inner(text))
    day = "" if created is None else f"{created.date().isoformat()}: "
    return "\n".join((f"- {day}{first.lstrip()}", *(_INDENT + line if line else "" for line in rest)))


def line(text: str, chars: int, around: int = 0) -> str:
    """At most so many characters of a text, on one line; those around a place of it, where it has more."""
    start = max(0, min(around - chars // 2, len(text) - chars))
    # a window is cut before white space is joined, so that a text of a megabyte costs no more than what is shown
    shown = " ".join("\n".join(lines(text[start : start + chars])).split())
    before, after = start > 0, start + chars < len(text)
    return f"{_ELLIPSIS * before}{shown}{_ELLIPSIS * after}"
