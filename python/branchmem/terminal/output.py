"""How answers reach a terminal: lines as they are, one JSON document, a question, a bar.

Lines go out one at a time, without markup and without wrapping; where standard output knows no colour,
as plain text.  What they say was decided elsewhere.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from branchmem.terminal.lines import ACTED_UPON

_WIDEST: Final = 10_000
_UNESCAPED: Final = re.compile(f"[{ACTED_UPON}]")


def width() -> int:
    """Cells of a line of the terminal, 10,000 at most; 80 where there is none."""
    return min(Console().width, _WIDEST)


def say(*lines: str | Text) -> None:
    """Print lines as they are: no markup, no wrapping."""
    show(lines)


def show(lines: Iterable[str | Text], *, out: TextIO | None = None) -> None:
    """Print lines as they are, each as it comes; to standard output unless told otherwise."""
    out = out or sys.stdout
    console = Console(file=out, highlight=False, markup=False, emoji=False)
    for line in lines:
        if console.color_system is None:
            out.write(f"{line}\n")
        else:
            console.print(line, soft_wrap=True)


def agreed(question: str) -> bool:
    """Ask on standard error; whether the answer on standard input is yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = ""
    try:
        answer = sys.stdin.readline()
    finally:
        if not answer.endswith("\n"):  # what is said next would stand on the line of the question
            print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")


def say_json(**document: Any) -> None:
    """Print the one JSON document of a command; ASCII where standard output has no more."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write(escaped(json.dumps(document, ensure_ascii=not utf8)) + "\n")


def escaped(text: str) -> str:
    """The same JSON, without characters that a terminal would act upon."""
    return _UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on standard error while that is a terminal: call it with how many are done, of how many."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
