"""The comparison stays alive: it runs, finds the answers equal, and prints every row.  No times are asserted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from shutil import which

import branchmem as bm
import pytest
from branchmem.events import Restoration, Retraction

from bench import shapes
from bench.changed import CHANGES

TOP = Path(__file__).parents[1]
QUESTIONS = {"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "R", "S", "T2", "B", "V", "L", "I"}
PEERS = {
    "numpy",
    "SQLite",
    "DuckDB",
    "networkx",
    "rustworkx",
    "pyroaring",
    "Python",
    "plain",
    "bare",
    "ourselves",
    "store",
    "200",
}
needs_cargo = pytest.mark.skipif(which("cargo") is None, reason="cargo builds the program that answers P5 and P6")


def python(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    environment = os.environ | ({} if path is None else {"PATH": path})
    return subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, timeout=600, check=False)


def compared(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    return python("-m", "bench.compare", "--size", "tiny", *arguments, path=path)


@needs_cargo
def test_the_comparison_checks_answers_and_prints_every_row() -> None:
    run = compared("--json")

    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["answers_found_equal"] > 1_000, f"seed {report['seed']}"
    assert report["left_out"] == []
    assert {row["name"] for row in report["rows"]} == QUESTIONS
    assert {re.split(r"\W", row["peer"])[0] for row in report["rows"]} >= PEERS
    for row in report["rows"]:
        assert row["ours"] > 0
        assert row["theirs"] > 0
        assert row["unit"] in ("µs", "bytes")
        assert (row["met"] is None) == (row["goal"] is None)
    assert {"cpu", "cores", "python", "numpy", "numpy_threads", "sqlite", "duckdb", "disk"} <= report["machine"].keys()
    assert {work["work"] for work in report["works"]} >= {"chats/500", "dense/500", "chats/2k"}


@needs_cargo
def test_the_topology_is_measured_on_every_shape_of_the_goals() -> None:
    run = compared("--json", "--rows", "P5,P6")

    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)["rows"]
    with_goal = {row["work"] for row in rows if row["name"] == "P5" and row["goal"]}
    assert with_goal == {
        f"{shape}/2k" for shape in ("chain", "random", "chats-of-100", "chats-of-2k", "regenerated", "dead-ends")
    }
    assert {row["work"] for row in rows if row["name"] == "P6"} == {"regenerated/2k", "dead-ends/2k"}


def test_the_comparison_prints_the_rows_asked_for_as_a_table() -> None:
    run = compared("--rows", "P4")

    assert run.returncode == 0, run.stderr
    assert "numpy intervals" in run.stdout
    assert "Python sets, path cached" in run.stdout
    assert "P1" not in run.stdout.partition("answers found equal")[2]


def test_memory_is_a_row_in_bytes_and_never_in_microseconds() -> None:
    run = compared("--json", "--rows", "P7")

    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)["rows"]
    assert {row["unit"] for row in rows if "open(" in row["question"]} == {"µs"}
    assert {row["unit"] for row in rows if "memory" in row["question"]} <= {"bytes"}


def test_a_changed_work_is_held_against_the_specification_and_against_itself_unchanged() -> None:
    run = compared("--json", "--rows", "R,S")

    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    rows = report["rows"]
    assert {work["work"] for work in report["works"]} == {
        "retracted/500",
        "retracted-dense/500",
        "hot-key/500",
        "versions/500",
        "versions-on-siblings/500",
        "versions-on-a-path/500",
        "rivals/500",
    }
    assert all(work["visible"] < work["visible_unchanged"] for work in report["works"]), f"seed {report['seed']}"
    limits = {(row["question"], round(row["goal"], 3)) for row in rows if row["name"] == "R" and row["goal"]}
    assert limits == {("store.at(a).bitmap()", 0.333), ("len(store.at(a))", 0.333), ("memory in view", 0.333)}
    assert {row["goal"] for row in rows if row["name"] == "S" and "same path" in row["question"]} == {0.5}


def test_without_cargo_the_rows_of_the_topology_are_left_out_and_the_report_says_so(tmp_path: Path) -> None:
    run = compared("--json", "--rows", "P5,P6", path=str(tmp_path))

    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["rows"] == []
    assert all("cargo is not in PATH" in what for what in report["left_out"])
    assert report["left_out"]


def test_a_row_that_does_not_exist_is_wrong_usage() -> None:
    run = compared("--rows", "P77")

    assert run.returncode == 2
    assert "P77" in run.stderr


@pytest.mark.parametrize(
    ("row", "module", "peer", "wrong"),
    [
        ("P1", "intervals", "Intervals.bitmap", "lambda self, message: ~right(self, message)"),
        ("P1", "duck", "Duck.recursive", "lambda self, messages: right(self, [0, *messages[1:]])"),
        ("P4", "graphs", "Graph.decide", "lambda *asked: [not yes for yes in right(*asked)]"),
        ("P7", "fold", "Fold.take_in", "lambda self, records: right(self, list(records)[1:])"),
        ("R", "marking", "Marking.ordinals", "lambda self, message: right(self, message)[1:]"),
        ("S", "marking", "Marking.ordinals", "lambda self, message: right(self, message)[1:]"),
        ("P8", "sqlite_log", "SqliteLog.append", "lambda self, events: right(self, events[1:])"),
        ("V", "scan", "Scan.pick", "lambda *asked: [each[::-1] for each in right(*asked)]"),
        ("V", "scan", "Scan.take", "lambda self, shown, vector, k: right(self, shown, -vector, k)"),
        ("L", "bm25", "Bm25.best", "lambda *asked: [(at, score + 1e-4) for at, score in right(*asked)]"),
        ("L", "fts", "Fts.matching", "lambda *asked: {*right(*asked), -1}"),
        ("I", "bm25", "Bm25.best", "lambda *asked: right(*asked)[1:]"),
    ],
)
def test_answers_that_differ_stop_the_comparison(row: str, module: str, peer: str, wrong: str) -> None:
    program = f"""
import sys
from bench import compare
from bench.peers.{module} import {peer.partition(".")[0]}

right = {peer}
{peer} = {wrong}
sys.exit(compare.main(["--size", "tiny", "--rows", "{row}"]))
"""
    run = python("-c", program)

    assert run.returncode == 1, run.stderr
    assert "differ" in run.stderr
    assert run.stdout == ""


def test_every_chart_checks_its_answers() -> None:
    run = python(
        "-m", "pytest", "bench", "-p", "no:cacheprovider", "--benchmark-disable", "--smallest=200", "--largest=200"
    )

    assert run.returncode == 0, run.stdout[-2_000:]


@pytest.mark.parametrize("shape", sorted(shapes.SHAPES))
def test_a_shape_is_the_same_for_the_same_seed_and_grows_downwards(shape: str) -> None:
    work = shapes.work(shape, 600)

    assert work == shapes.work(shape, 600)
    assert all(parent < message for message, parent in enumerate(work.parents))
    assert len(list(work.events())) == 1_200


@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_changes_are_the_same_for_the_same_seed_and_name_what_came_before(kind: str) -> None:
    changed = CHANGES[kind](600)

    assert list(changed.events()) == list(CHANGES[kind](600).events()), f"seed {shapes.SEED}"
    known: set[str] = set()
    for event in changed.events():
        if isinstance(event, bm.Memory):
            assert known.issuperset((*event.sources, *event.derived_from, *event.supersedes))
        elif isinstance(event, Retraction):
            assert event.at in known
            assert known.issuperset(event.sources)
        elif isinstance(event, Restoration):
            assert {event.at, event.retraction} <= known
        known.add(event.id)
    assert changed.takings or changed.replaces


def test_retractions_have_the_scopes_of_the_goal() -> None:
    scopes = Counter(taking.scope for taking in CHANGES["retracted"](20_000).takings)

    assert scopes.total() == 2_000
    shares = {scope: round(100 * count / scopes.total()) for scope, count in scopes.items()}
    assert abs(shares["branch"] - 80) < 4, f"{shares}, seed {shapes.SEED}"
    assert abs(shares["tree"] - 15) < 4, f"{shares}, seed {shapes.SEED}"
    assert abs(shares["everywhere"] - 5) < 3, f"{shares}, seed {shapes.SEED}"


def test_adversaries_are_a_half_and_a_third_as_deep_as_a_chain() -> None:
    deepest = {
        shape: max(shapes.depths(shapes.work(shape, 600).parents)) + 1
        for shape in ("chain", "star", "caterpillar", "regenerated", "dead-ends")
    }

    assert deepest == {"chain": 600, "star": 2, "caterpillar": 301, "regenerated": 301, "dead-ends": 202}
