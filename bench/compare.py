"""The comparison: `python -m bench.compare`, a table of ours against each peer.

What it times it first finds equal; where an answer differs it stops with exit
status 1 and no figure.  A goal that is missed is a row that says so, not a failure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import shapes
from bench.machine import machine
from bench.questions import QUESTIONS
from bench.rows import MICROSECONDS, Row
from bench.workbench import SIZES, Unequal, workbench


def compare(size: str, names: Sequence[str]) -> dict[str, Any]:
    """Run these questions at this size: the JSON-ready report.  Raises Unequal."""
    rows: list[Row] = []
    with workbench(SIZES[size]) as bench:
        for name in names:
            rows += QUESTIONS[name](bench)
        return {
            "command": f"python -m bench.compare --size {size} --rows {','.join(names)}",
            "machine": machine(),
            "seed": shapes.SEED,
            "works": bench.descriptions(),
            "answers_found_equal": bench.checked,
            "left_out": bench.left_out,
            "rows": [row.to_dict() for row in rows],
        }


def show(report: dict[str, Any], console: Console) -> None:
    """The report as a table for people."""
    console.print(report["command"])
    console.print(", ".join(f"{key} {value}" for key, value in report["machine"].items()), soft_wrap=True)
    for work in report["works"]:
        console.print(", ".join(f"{key} {value}" for key, value in work.items()), soft_wrap=True)
    console.print(f"seed {report['seed']}, {report['answers_found_equal']:,} answers found equal before timing")
    for what in report["left_out"]:
        console.print(f"left out: {what}", soft_wrap=True)
    table = Table(show_edge=False)
    for heading in ("", "question", "work", "peer"):
        table.add_column(heading)
    for heading in ("ours", "theirs", "ratio", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    for row in report["rows"]:
        goal = "" if row["goal"] is None else f"≥ {row['goal']:.3g}x"
        met = {None: "", True: "yes", False: "NO"}[row["met"]]
        table.add_row(
            *(row[key] for key in ("name", "question", "work", "peer")),
            _figure(row["ours"], row["unit"]),
            _figure(row["theirs"], row["unit"]),
            f"{row['ratio']:.2f}x" if row["ratio"] >= 0.1 else f"{row['ratio']:.2g}x",
            goal,
            met,
        )
    console.print(table)


def _figure(value: float, unit: str) -> str:
    if unit == MICROSECONDS:
        return _duration(value)
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def _duration(us: float) -> str:
    if us < 1:
        return f"{us * 1e3:.2f} ns" if us < 0.1 else f"{us * 1e3:.0f} ns"
    if us < 100:
        return f"{us:.2f} µs"
    return f"{us:,.0f} µs" if us < 100_000 else f"{us / 1e3:,.0f} ms"


def _names(text: str) -> list[str]:
    names = [name.strip().upper() for name in text.split(",")]
    for name in names:
        if name not in QUESTIONS:
            raise argparse.ArgumentTypeError(f"there is no row {name}: it has {', '.join(QUESTIONS)}")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--size", choices=list(SIZES), default="small", help="full is what the goals speak of")
    parser.add_argument("--rows", type=_names, default=list(QUESTIONS), help="as in P1,P4; all by default")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    chosen = parser.parse_args(arguments)
    try:
        report = compare(chosen.size, chosen.rows)
    except Unequal as error:
        print(f"bench.compare: {error}", file=sys.stderr)
        return 1
    if chosen.json:
        print(json.dumps(report, indent=2))
    else:
        console = Console()
        show(report, Console(width=max(console.width, 150)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
