"""The comparison stays alive: it runs, finds the answers equal, and prints every row.  No times are asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import shapes

TOP = Path(__file__).parents[1]
QUESTIONS = {"P1", "P2", "P3", "P4", "P9"}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=120, check=False)


def compared(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "bench.compare", "--size", "tiny", *arguments)


def test_the_comparison_checks_answers_and_prints_every_row() -> None:
    run = compared("--json")

    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["answers_found_equal"] > 100, f"seed {report['seed']}"
    assert {row["name"] for row in report["rows"]} == QUESTIONS
    for row in report["rows"]:
        assert row["ours_us"] > 0
        assert row["theirs_us"] > 0
        assert (row["met"] is None) == (row["goal"] is None)
    assert {"cpu", "cores", "python", "numpy", "sqlite"} <= report["machine"].keys()
    assert {work["work"] for work in report["works"]} >= {"chats/500", "dense/500", "chats/2k"}


def test_the_comparison_prints_the_rows_asked_for_as_a_table() -> None:
    run = compared("--rows", "P4")

    assert run.returncode == 0, run.stderr
    assert "numpy intervals" in run.stdout
    assert "Python sets, path cached" in run.stdout
    assert "P1" not in run.stdout.partition("answers found equal")[2]


def test_a_row_that_does_not_exist_is_wrong_usage() -> None:
    run = compared("--rows", "P77")

    assert run.returncode == 2
    assert "P77" in run.stderr


def test_answers_that_differ_stop_the_comparison() -> None:
    wrong = """
import sys
from bench import compare
from bench.peers.intervals import Intervals

right = Intervals.bitmap
Intervals.bitmap = lambda self, message: ~right(self, message)
sys.exit(compare.main(["--size", "tiny", "--rows", "P1"]))
"""
    run = python("-c", wrong)

    assert run.returncode == 1
    assert "differ" in run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize("shape", sorted(shapes.SHAPES))
def test_a_shape_is_the_same_for_the_same_seed_and_grows_downwards(shape: str) -> None:
    work = shapes.work(shape, 600)

    assert work == shapes.work(shape, 600)
    assert all(parent < message for message, parent in enumerate(work.parents))
    assert len(list(work.events())) == 1_200
