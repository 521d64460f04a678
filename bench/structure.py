"""The topology alone, below Python: what an append and an ancestor check cost, by the program in `rust/bench`.

The program finds labels given once and answers equal, and times in turns; here
it is built, run, and its figures become rows.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import Any, Final

from bench import shapes
from bench.rows import Row
from bench.workbench import Unequal, Workbench

TOP: Final = Path(__file__).parents[1]
PROGRAM: Final = ("--release", "--quiet", "--package", "branchmem-bench")
TABLE: Final = ("chain", "random", "chats-of-100", "chats-of-2k", "regenerated", "dead-ends")
CHATS: Final = ("chats-of-100", "chats-of-2k")
ADVERSARIES: Final = ("regenerated", "dead-ends")

# Each pass takes its memory from the system, as a store that grows does, and none of a pass before.
# For glibc's allocator; another one ignores it.
_FRESH_MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(1 << 17), "MALLOC_TRIM_THRESHOLD_": str(1 << 17)}


def p5(bench: Workbench) -> list[Row]:
    """Appending with no query between, on every shape, against a bare twin of chain labels."""
    rows = []
    for shape in _answers(bench, "append"):
        goal = 0.5 if shape["shape"] in TABLE else None
        ours, twin = shape["ours_ns"] / 1e3, shape["twin_ns"] / 1e3
        rows.append(Row("P5", "topology: append", _work(bench, shape), "bare chain labels", "twin", ours, twin, goal))
    return rows


def p6(bench: Workbench) -> list[Row]:
    """Ancestor checks on adversaries, the tour fresh, against the same checks on chats."""
    checks = {shape["shape"]: shape for shape in _answers(bench, "check")}
    if not checks:
        return []
    chats = min(CHATS, key=lambda name: checks[name]["tour_ns"])
    rows = []
    for name in ADVERSARIES:
        work, shape = _work(bench, checks[name]), checks[name]
        tour, other, twin = (ns / 1e3 for ns in (shape["tour_ns"], checks[chats]["tour_ns"], shape["twin_ns"]))
        question = "topology: ancestor check"
        rows.append(Row("P6", question, work, f"the same on {chats}", "tour", tour, other, 0.5))
        rows.append(Row("P6", question, work, "bare chain labels", "twin", tour, twin, None))
    return rows


def _work(bench: Workbench, shape: Mapping[str, Any]) -> str:
    return f"{shape['shape']}/{shapes.size_name(bench.size.large)}"


def _answers(bench: Workbench, question: str) -> list[dict[str, Any]]:
    """What the program says of every shape; nothing, and a note, where it cannot be built."""
    cargo = which("cargo")
    if cargo is None:
        bench.leave_out(f"{question} of the topology: cargo is not in PATH")
        return []
    subprocess.run([cargo, "build", *PROGRAM], cwd=TOP, check=True)
    rounds = min(3, bench.size.rounds)
    asked = [question, "--events", str(bench.size.large), "--rounds", str(rounds)]
    run = subprocess.run(
        [cargo, "run", *PROGRAM, "--", *asked],
        cwd=TOP,
        env=os.environ | _FRESH_MEMORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise Unequal(f"rust/bench {question}: {run.stderr.strip()}")
    answers: list[dict[str, Any]] = json.loads(run.stdout)["shapes"]
    bench.checked += sum(shape["found_equal"] for shape in answers)
    return answers
