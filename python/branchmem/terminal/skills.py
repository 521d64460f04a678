"""Skills in lines: which there are, what is wrong with the others, which of them were activated, and by what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from branchmem.terminal.lines import SHOWN, bullet, cell, counted, plain, some, wrapped

if TYPE_CHECKING:
    from branchmem.skills import Activation, Library, Skill

#: A name may take no more than this part of a line.
_PART: Final = 3


def library_lines(library: Library, *, width: int) -> Iterator[Text]:
    """Each skill with what it is for and what activates it; then what is wrong with files."""
    yield Text(counted(len(library), "skill", "skills"), "bold")
    yield from _named(((skill.name, _skill_texts(skill)) for skill in library), library.names, width)
    yield from problem_lines(library, width=width)


def activated_lines(activated: Sequence[Activation], library: Library, *, width: int) -> Iterator[Text]:
    """The activated skills, best first, and by what; then what is wrong with files."""
    verb = "is" if len(activated) == 1 else "are"
    yield Text(f"{len(activated)} of {counted(len(library), 'skill', 'skills')} {verb} activated", "bold")
    names = [each.name for each in activated]
    yield from _named(((each.name, _activation_texts(each)) for each in activated), names, width)
    yield from problem_lines(library, width=width)


def problem_lines(library: Library, *, width: int) -> Iterator[Text]:
    """What is wrong with files, the first of it; nothing where nothing is."""
    problems = library.problems
    if problems:
        yield Text(counted(len(problems), "problem", "problems"), "bold red")
    for problem in islice(problems, SHOWN):
        yield from bullet(plain(problem), width)
    if len(problems) > SHOWN:
        yield Text(f"  and {len(problems) - SHOWN:,} more: --json lists them", "dim")


def _skill_texts(skill: Skill) -> Iterator[Text]:
    yield Text(plain(skill.description))
    by = {"keywords": skill.trigger_keywords, "files": skill.glob_patterns, "tools": skill.tools_allowed}
    said = [f"{name} {some(map(plain, values))}" for name, values in by.items() if values]
    if said:
        yield Text("; ".join(said), "dim")


def _activation_texts(found: Activation) -> Iterator[Text]:
    found_by = [*map(plain, found.keywords), *map(plain, found.paths)]
    yield Text(f"by {found.by}{f': {some(found_by)}' if found_by else ''}")
    parts = f"semantic {found.semantic:.2f}, keyword {found.keyword:.2f}, glob {found.glob:.2f}"
    yield Text(f"{found.score:.2f}: {parts}, importance {found.skill.importance:.2f}", "dim")


def _named(texts: Iterable[tuple[str, Iterator[Text]]], names: Iterable[str], width: int) -> Iterator[Text]:
    """Names at the left and beside each its texts, wrapped to the width."""
    console = Console(width=width)
    cells = min(max((cell_len(plain(name)) for name in names), default=0), width // _PART)
    room = width - cells - 4
    for name, beside in texts:
        head = Text.assemble("  ", (cell(plain(name), cells), "cyan"), "  ")
        for text in beside:
            for line in wrapped(text, console, room):
                yield head.append_text(line)
                head = Text(" " * (cells + 4))
