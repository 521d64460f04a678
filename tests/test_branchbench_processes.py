"""The processes of a run end with it, however it ends; and what is nobody's work is nobody's time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
from branchmem.branchbench.methods.method import Method, Vectors
from branchmem.branchbench.models.embedding import Embedding, VectorCache
from branchmem.branchbench.run import Bench, rows
from branchmem.branchbench.scenario import Scenario
from branchmem.embedders import named
from branchmem.errors.branchbench import CacheRefused, ProcessLost
from dialogues import fit
from remembering import tools

SCENARIOS: Final = [fit("en", f"number {number}") for number in range(20)]


class Mute:
    name = "mute"

    def answer(self, *asked: object) -> str:
        return ""


def bench() -> Bench:
    return Bench(tools(), Mute())


class Slow(Method):
    """Says that it is at work, and takes its time."""

    name = "slow"
    line = "a moment a scenario"

    def feed(self) -> None:
        print("at work", flush=True)
        time.sleep(0.1)

    def context(self, anchor: str, question: str) -> list[str]:
        return []


class Killed(Slow):
    def feed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


SCRIPT: Final = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}]
from test_branchbench_processes import SCENARIOS, Slow, bench, rows
if __name__ == "__main__":
    try:
        list(rows(SCENARIOS, [Slow], bench, 2))
    except KeyboardInterrupt:
        sys.exit(130)
"""


def ended_by(sent: signal.Signals, *, to_all: bool, script: Path) -> tuple[int, str, str]:
    """Status, output and errors of a run that got a signal while its processes were at work, once all have ended."""
    script.write_text(SCRIPT)
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # what a shell runs in its background does not
    with subprocess.Popen([sys.executable, str(script)], start_new_session=True, preexec_fn=hears, **pipes) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "at work\n"
        (os.killpg if to_all else os.kill)(run.pid, sent)
        try:
            out, err = run.communicate(timeout=20)  # the pipes are open for as long as a process of the run is there
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            raise
        return run.returncode, out, err


def test_an_interrupted_run_ends_its_processes_without_a_word_of_theirs(tmp_path: Path) -> None:
    status, out, err = ended_by(signal.SIGINT, to_all=True, script=tmp_path / "run.py")

    assert (status, err) == (130, "")
    assert out.count("at work") < len(SCENARIOS) - 5


def test_the_processes_of_a_run_that_was_killed_end_too(tmp_path: Path) -> None:
    status, _, err = ended_by(signal.SIGKILL, to_all=False, script=tmp_path / "run.py")

    assert status == -signal.SIGKILL
    assert "Traceback" not in err


def test_a_process_that_was_killed_is_told_with_a_way_out() -> None:
    with pytest.raises(ProcessLost, match=r"one of 2 processes was killed.*fewer --jobs"):
        list(rows(SCENARIOS, [Killed], bench, 2))


def refused() -> Bench:
    raise CacheRefused("calls.jsonl", "line 1 is no call of a model")


def test_what_a_process_cannot_be_made_of_is_told_as_in_a_run_of_one(capfd: pytest.CaptureFixture[str]) -> None:
    for jobs in (1, 2):
        with pytest.raises(CacheRefused, match="line 1 is no call of a model"):
            list(rows(SCENARIOS, [Slow], refused, jobs))

    assert capfd.readouterr() == ("", "")


@dataclass
class Clock:
    """A clock that stands still but for what is said to take time."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_loading_packages_and_embedding_texts_anew_is_no_methods_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock()
    for room in ("run", "models.embedding"):
        monkeypatch.setattr(f"branchmem.branchbench.{room}.time", SimpleNamespace(perf_counter=clock.perf_counter))

    def embed(texts: list[str]) -> Vectors:
        clock.now += 8.0 * len(texts)
        return np.ones((len(texts), 2), np.float32)

    embedding = Embedding(VectorCache(tmp_path, 2), lambda: named("made-up", embed), "made-up")

    class Searching(Method):
        name = "searching"
        line = "embeds, and takes a second for all else"

        @classmethod
        def load(cls) -> None:
            clock.now += 64.0

        def feed(self) -> None:
            self.tools.embed(["one", "two"])

        def context(self, anchor: str, question: str) -> list[str]:
            self.tools.embed_query(question)
            clock.now += 1.0
            return []

    scenario: Scenario = replace(SCENARIOS[0], probes=SCENARIOS[0].probes[:1])
    given = replace(tools(), embed=embedding.texts, embed_query=embedding.query)
    first, second = (
        list(Bench(given, Mute(), embedding=embedding).rows(scenario, [kind]))
        for kind in (Searching, type("Again", (Searching,), {"name": "again"}))
    )

    assert [row.seconds for row in (*first, *second)] == [1.0, 1.0]
    assert embedding.seconds == 24.0
