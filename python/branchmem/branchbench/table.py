"""The tables of a run, in Markdown: by part, by language, without what is contested, and by operation.

Every rate stands with Wilson's 95 % interval.  Nothing is weighted and nothing is averaged over groups: each line
counts the rows that it is about.  A method without rows has no line, but is named; so is one that was asked less than
the others, since its figures are about other probes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from branchmem.branchbench.measures import Figures, Rate, Row, figures
from branchmem.branchbench.scenario import OPERATIONS, Language, Part

PARTS: Final[Mapping[Part, str]] = MappingProxyType({"classic": "Classic", "long": "Long"})
LANGUAGES: Final[Mapping[Language, str]] = MappingProxyType({"zh": "Chinese", "en": "English"})

#: The columns after the method's name, and what they count.
MEASURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "exposure": "of the leak probes, those where a forbidden word stands in the supplied context",
        "leak": "of the leak probes, those where the answer states a forbidden word",
        "negated": "of the leak probes, those where the answer has a forbidden word only to deny it (no leak)",
        "correct": "of all probes, those where the answer states an accepted word and nothing is leaked",
        "starved": "of all probes, those where no accepted word stands in the supplied context",
        "tokens": "size of a supplied context, mean over the probes",
        "ms": "time for a context, mean over the probes: a share of taking the conversation in, and finding; "
        "the method's own model calls included, the answer not, nor embedding, whose vectors are kept for all",
    }
)
_BY_OPERATION: Final[Mapping[str, Callable[[Figures], Rate]]] = MappingProxyType(
    {
        "exposure": lambda found: found.exposure,
        "leak": lambda found: found.leak,
        "negated": lambda found: found.negated,
        "correct": lambda found: found.correct,
        "starved": lambda found: found.starved,
    }
)


def markdown(rows: Sequence[Row], methods: Sequence[str]) -> str:
    """All tables of each part that has rows; `methods` says in which order.  Ends with a line break."""
    pieces: list[str] = []
    for part, title in PARTS.items():
        here = [row for row in rows if row.part == part]
        if here:
            pieces += [f"## {title}", *_measured(here, methods), *_by_language(here, methods, title)]
            pieces += [*_uncontested(here, methods, title), *_by_operation(here, methods, title)]
    return "\n\n".join(pieces or ["No probe was asked."]) + "\n"


def legend(methods: Mapping[str, str]) -> str:
    """What the columns count, and what the methods do; `methods` has a line for each.  Ends with a line break."""
    measures = [f"- *{name}*: {text}" for name, text in MEASURES.items()]
    described = [f"- **{escaped(name)}**: {escaped(line)}" for name, line in methods.items()]
    lines = [
        "## Measures",
        "",
        *measures,
        "",
        "`5.9 % (1.6–19.1)` is a rate with Wilson's 95 % interval, as if probes were independent; several are of one "
        "conversation. – is a rate of no probes. A leak probe has forbidden words; the others are controls.",
        "",
        "## Methods",
        "",
        *described,
    ]
    return "\n".join(lines) + "\n"


def percent(rate: Rate) -> str:
    """`5.9 % (1.6–19.1)`, or a dash where nothing was counted."""
    if not rate.of:
        return "–"
    low, high = rate.interval
    return f"{short(rate)} ({100 * low:.1f}–{100 * high:.1f})"


def short(rate: Rate) -> str:
    """`5.9 %`, or a dash where nothing was counted."""
    return f"{100 * rate.value:.1f} %" if rate.of else "–"


def overview(
    rows: Sequence[Row], methods: Iterable[str], show: Callable[[Rate], str] = percent
) -> list[tuple[str, ...]]:
    """The cells of a table of these rows, a line for each method that has some, below a head."""
    return [("method", *MEASURES), *((method, *_cells(figures(mine), show)) for method, mine in _found(rows, methods))]


def asked(rows: Sequence[Row], methods: Iterable[str]) -> list[str]:
    """How many probes these rows are about, and which methods were asked none or not all of them; a sentence each."""
    probes = {(row.scenario, row.probe): row.leak_probe for row in rows}
    counts = {method: len(mine) for method, mine in _found(rows, methods)}
    absent = [method for method in methods if method not in counts]
    fewer = [f"{method} {count:,}" for method, count in counts.items() if count < len(probes)]
    sentences = [f"{len(probes):,} probes, {sum(probes.values()):,} of them leak probes."]
    if absent:
        sentences.append(f"Not run: {'; '.join(absent)}.")
    if fewer:
        sentences.append(f"Asked fewer, so not to be compared: {'; '.join(fewer)}.")
    return sentences


def escaped(text: str) -> str:
    """A text as one cell or line of Markdown: one line, nothing in it ends the cell or is taken for a tag."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _found(rows: Sequence[Row], methods: Iterable[str]) -> list[tuple[str, list[Row]]]:
    found: dict[str, list[Row]] = {method: [] for method in methods}
    for row in rows:
        if row.method in found:
            found[row.method].append(row)
    return [(method, mine) for method, mine in found.items() if mine]


def _measured(rows: Sequence[Row], methods: Sequence[str]) -> list[str]:
    return [escaped(" ".join(asked(rows, methods))), _table(overview(rows, methods))]


def _by_language(rows: Sequence[Row], methods: Sequence[str], title: str) -> list[str]:
    """Nothing where all rows are in one language, but the name of it: the table would be the same again."""
    spoken = {name: [row for row in rows if row.language == language] for language, name in LANGUAGES.items()}
    met = {name: mine for name, mine in spoken.items() if mine}
    if len(met) == 1:
        return [f"All probes are in {next(iter(met))}."]
    pieces: list[str] = []
    for name, mine in met.items():
        pieces += [f"### {title}, {name}", *_measured(mine, methods)]
    return pieces


def _uncontested(rows: Sequence[Row], methods: Sequence[str], title: str) -> list[str]:
    head = f"### {title}, without contested probes"
    kept = [row for row in rows if not row.contested]
    if len(kept) == len(rows):
        return [head, "No probe is contested: the table is that of all probes."]
    why = (
        "Left out are probes that some reader could call unfair: what must not be said stands lawfully on the current "
        "path (corrections, retractions), or there is another reason, which the probe names."
    )
    return [head, why, *(_measured(kept, methods) if kept else ["Every probe is contested."])]


def _by_operation(rows: Sequence[Row], methods: Sequence[str], title: str) -> list[str]:
    met = {row.operation for row in rows}
    operations = [*(name for name in OPERATIONS if name in met), *sorted(met.difference(OPERATIONS))]
    grouped = [
        (method, [figures([row for row in mine if row.operation == name]) for name in operations])
        for method, mine in _found(rows, methods)
    ]
    pieces: list[str] = []
    for measure, rate in _BY_OPERATION.items():
        lines = [(method, *(_of(rate(found)) for found in groups)) for method, groups in grouped]
        pieces += [f"### {title}, {measure} by operation", _table([("method", *operations), *lines])]
    return pieces


def _of(rate: Rate) -> str:
    if not rate.of:
        return "–"
    low, high = rate.interval
    return f"{100 * rate.value:.0f} % of {rate.of:,} ({100 * low:.0f}–{100 * high:.0f})"


def _cells(found: Figures, show: Callable[[Rate], str]) -> tuple[str, ...]:
    rates = (found.exposure, found.leak, found.negated, found.correct, found.starved)
    return (*map(show, rates), _number(found.tokens, 0), _number(1000 * found.seconds, 1))


def _number(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = lines
    rule = ["---", *("---:" for _ in head[1:])]
    cells = [[escaped(cell) for cell in line] for line in (head, *body)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (cells[0], rule, *cells[1:]))
