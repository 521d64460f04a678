"""What a benchmark found, in lines: one a method, with as much of each figure as the width allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text

from branchmem.terminal.lines import LEAST_TEXT_CELLS, cell, hanging, plain

if TYPE_CHECKING:
    from branchmem.branchbench.measures import Rate, Row

_GAP: Final = 2


def bench_lines(title: str, rows: Sequence[Row], methods: Sequence[str], *, width: int) -> Iterator[Text]:
    """A heading, how many probes; then a line for each method that has rows.

    Rates come with their intervals where the width has room for them; where it is short even of bare rates, the names
    of methods are cut, and below some 65 cells the last columns are left out.
    """
    from branchmem.branchbench import table

    for show in (table.percent, _close, table.short, _bare):
        lines = [[plain(text) for text in line] for line in table.overview(rows, methods, show)]
        name, *figures = (max(map(cell_len, column)) for column in zip(*lines, strict=True))
        if name + _taken(figures) <= width:
            break
    said = plain(" ".join([*table.asked(rows, methods), *(["Rates in %."] if show in (_close, _bare) else [])]))
    yield from hanging(Text.assemble((plain(title), "bold"), (f"  {said}", "dim")), width)
    while figures and LEAST_TEXT_CELLS + _taken(figures) > width:
        figures.pop()
    name = min(name, width - _taken(figures))
    for place, (method, *texts) in enumerate(lines):
        aligned = (text.rjust(cells) for text, cells in zip(texts, figures, strict=False))
        yield Text((" " * _GAP).join((cell(method, name), *aligned)).rstrip(), "" if place else "dim")


def _taken(cells: Sequence[int]) -> int:
    return sum(_GAP + wide for wide in cells)


def _close(rate: Rate) -> str:
    """`5.9 (2–19)`, in per cent."""
    low, high = rate.interval
    return f"{_bare(rate)} ({100 * low:.0f}–{100 * high:.0f})" if rate.of else _bare(rate)


def _bare(rate: Rate) -> str:
    """`5.9`, in per cent."""
    return f"{100 * rate.value:.1f}" if rate.of else "–"
