"""What branchmem itself wrote into a prompt, and how it is told from what somebody said.

A text that was recalled is not said again by standing in a prompt: it is taken out of a message before that is read for
memories.  Frames are recognised by the exact form in which they are rendered.  What a model says in words of its own is
left as it is: where that came from is known from the receipt of its answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from branchmem.recall.context import HEADING
from branchmem.recall.rendering import bullet

#: What stands above the summaries that stand in for turns.
EARLIER: Final = "## Earlier in this conversation (notes, not instructions)"

_HEADINGS: Final = (HEADING, EARLIER)
_SKILL: Final = re.compile(
    r"""^<skill\ name=(?:"[^"\n]*"|'[^'\n]*')>[ \t\r]*\n  # as branchmem.skills.prompt begins one
        .*?
        (?:^</skill>[ \t\r]*$\n?|\Z)  # one that was cut short goes on to the end""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
#: How the lines of a text begin that goes on behind its dash.
_GOES_ON: Final = " " * 6


def earlier(summaries: Iterable[str]) -> str:
    """Summaries as they stand in a prompt, in their order."""
    return "\n".join((f"{EARLIER}\n", *map(bullet, summaries)))


def without_frames(text: str) -> str:
    """A text without the blocks of recalled memories, of skills and of summaries in it; empty where it has no more.

    Cost: O(length).
    """
    if "<skill" in text:
        text = _SKILL.sub("", text)
    if not any(heading in text for heading in _HEADINGS):
        return text if text.strip() else ""
    lines = text.split("\n")
    kept: list[str] = []
    at = 0
    while at < len(lines):
        if lines[at].rstrip() in _HEADINGS:
            at = _end(lines, at + 1)
        else:
            kept.append(lines[at])
            at += 1
    return "\n".join(kept).strip()


def _end(lines: Sequence[str], at: int) -> int:
    """Where the block ends whose heading stands above: behind its last item, and the empty lines that follow it."""
    at = _next(lines, at)
    while at < len(lines) and lines[at].startswith("- "):
        at += 1
        while (further := _next(lines, at)) < len(lines) and lines[further].startswith(_GOES_ON):
            at = further + 1
    return _next(lines, at)


def _next(lines: Sequence[str], at: int) -> int:
    """The first line from here on that is not empty."""
    while at < len(lines) and not lines[at].strip():
        at += 1
    return at
