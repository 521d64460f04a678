"""The command line: `branchmem bench`, from the data to a table, a results folder, and what it says of wrong usage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from branchmem.branchbench import manifest, models, repeat, setting
from branchmem.branchbench.methods import METHODS
from branchmem.branchbench.models import weights
from branchmem.branchbench.models.chat import Chat, Reply, Request
from branchmem.branchbench.report import read
from branchmem.branchbench.run import TimeIsUp
from commands import Ran, Run

SAMPLE = ("--part", "classic", "--split", "dev", "--jobs", "1")
#: What needs no package from outside, so that a sample of it says whether the rest of the way is sound.
OWN = ("--method", "full history", "--method", "current branch", "--method", "oracle")
NAME = f"{Path(weights.FILE).stem} sha256:{weights.SHA256[:16]}, a stand-in"


class Parrot:
    """A model that says the first line of what it is asked; `moody`, it says how many it was asked before."""

    name = NAME

    def __init__(self, *, moody: bool = False) -> None:
        self.moody = moody
        self.asked = 0

    def ask(self, request: Request) -> Reply:
        self.asked += 1
        line = request.turns[-1].content.splitlines()[1]
        return Reply(f"{line} {self.asked}" if self.moody else line, 10, 5, 2.0)


Answering = Callable[[Chat], None]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Answering:
    """Who answers as the model that is named; what it says is kept in a folder of the test's own."""
    made = setting.Setting

    def in_folder(**asked: object) -> setting.Setting:
        return made(**{**asked, "cache": tmp_path / "cache"})  # type: ignore[arg-type]

    def answers(chat: Chat) -> None:
        monkeypatch.setattr(setting, "Setting", in_folder)
        for room in (models, setting, repeat):
            monkeypatch.setattr(room, "chat_named", lambda name: chat)

    return answers


def timeless(ran: Ran) -> list[dict[str, Any]]:
    """The figures but for their times."""
    return [{name: value for name, value in figures.items() if name != "seconds"} for figures in ran.json["figures"]]


def test_every_method_that_needs_no_model_is_in_the_table(run: Run) -> None:
    ran = run("bench", *SAMPLE, "--json")

    assert (ran.status, ran.err) == (0, "")
    found = {figures["method"]: figures for figures in ran.json["figures"]}
    assert list(found) == [name for name, method in METHODS.items() if not method.needs_chat]
    assert {name: found[name]["exposure"]["hits"] for name in found if name.startswith("branchmem")} == {
        "branchmem facts": 0,
        "branchmem summaries": 0,
        "branchmem": 0,
    }
    assert found["full history"]["exposure"]["hits"] == found["vector memory"]["exposure"]["of"] == 44
    assert found["oracle"]["starved"]["hits"] == 0


def test_a_table_says_what_it_left_out(run: Run) -> None:
    ran = run("bench", *SAMPLE, "--language", "en", *OWN)
    whole = run("bench", *SAMPLE, "--language", "en", *("--skip", "Mem0, scripted", "--skip", "LangGraph store"))

    assert (ran.status, ran.err) == (0, "")
    assert "29 probes, 22 of them leak probes" in ran.out
    assert "full history" in ran.out
    assert "not asked" not in ran.out
    assert "not asked, since they need a language model (--model): Mem0; Mem0, current branch" in whole.out


def test_two_processes_find_what_one_does(run: Run) -> None:
    asked = ("bench", *SAMPLE[:4], *OWN, "--language", "zh", "--json")
    one, two = (timeless(run(*asked, "--jobs", str(jobs))) for jobs in (1, 2))

    assert one == two


def test_results_are_written_whole_and_recounted(run: Run, tmp_path: Path) -> None:
    ran = run("bench", *SAMPLE, *OWN, "--out", str(tmp_path / "results"), "--json")
    again = run("bench", "--recount", str(tmp_path / "results"), "--json")

    rows, config = read(tmp_path / "results")
    assert len(rows) == 3 * 58
    assert config["model"] == "extractive"
    assert set(config["data"]) == {"classic.dev.jsonl"}
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        *("answers.jsonl.zst", "config.json", "plot.png", "plot.svg", "table.md")
    }
    assert again.json == ran.json


def test_a_run_out_of_time_goes_on_where_it_stood(run: Run, answering: Answering, tmp_path: Path) -> None:
    class Tired(Parrot):
        def ask(self, request: Request) -> Reply:
            if self.asked == 7:
                raise TimeIsUp
            return super().ask(request)

    tired, rested = Tired(), Parrot()
    asked = ("bench", "--model", "local", *SAMPLE, *OWN)

    answering(tired)
    first = run(*asked)
    answering(rested)
    second = run(*asked, "--json")
    third = run(*asked, "--kept", "--json")

    assert first.status == 1
    assert "the time is up; 0 of 20 scenarios are done: the same command goes on from there" in first.err
    assert second.status == 0
    calls = (tmp_path / "cache" / "calls.jsonl").read_text().splitlines()
    assert len(calls) == tired.asked + rested.asked
    assert timeless(third) == timeless(second)


def test_kept_calls_are_asked_again_word_for_word(run: Run, answering: Answering, tmp_path: Path) -> None:
    asked = ("bench", "--model", "local", *SAMPLE, "--method", "oracle")
    answering(Parrot())
    run(*asked)

    same = run(*asked, "--repeat", "5", "--out", str(tmp_path / "results"))
    answering(Parrot(moody=True))
    other = run(*asked, "--repeat", "5", "--json")

    assert (same.status, same.out) == (0, "5 of 5 calls were answered word for word as before\n")
    form = json.loads((tmp_path / "results" / "repeated.json").read_text())
    assert (form["model"], [call["same"] for call in form["calls"]]) == (NAME, [True] * 5)
    assert (other.status, other.json["same"], other.json["of"]) == (1, 0, 5)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--method", "telepathy"), "telepathy"),
        (("--skip", "telepathy"), "telepathy"),
        (("--method", "oracle", "--skip", "oracle"), "no method is left"),
        (("--extraction", "model"), "the extractive answerer reads no facts"),
        (("--repeat", "5"), "the extractive answerer has no calls for --repeat"),
        (("--kept",), "the extractive answerer has no calls for --kept"),
        (("--minutes", "0"), "the extractive answerer has no calls for --minutes"),
        (("--long", "5"), "the classic part has none of its probes"),
        (("--out", ""), "it is empty"),
        (("--recount", ""), "it is empty"),
        (("--repeat", "5", "--model", "x", "--kept"), "--kept: it has no use beside --repeat"),
        (("--recount", "nowhere"), "--part: it has no use beside --recount"),
        (("--method", "Mem0"), "Mem0 asks a language model to extract: name one with --model"),
        (("--method", "Mem0"), "method Mem0, scenario classic-"),
        (("--model", ""), "it is empty"),
    ],
)
def test_what_cannot_be_run_is_one_line(run: Run, words: tuple[str, ...], told: str) -> None:
    ran = run("bench", *SAMPLE, *words)

    assert ran.status in (1, 2)
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


def test_results_of_other_data_are_not_recounted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(rows: object, methods: object, title: str, path: Path) -> None:
        for suffix in (".svg", ".png"):
            path.with_suffix(suffix).touch()

    monkeypatch.setattr("branchmem.branchbench.plot.draw", drawn)
    results = tmp_path / "results"
    run("bench", *SAMPLE, "--method", "oracle", "--language", "en", "--out", str(results))
    config = json.loads((results / "config.json").read_text())
    config["data"]["classic.dev.jsonl"] = "0" * 64
    (results / "config.json").write_text(json.dumps(config))
    ran = run("bench", "--recount", str(results))

    assert (ran.status, ran.out) == (1, "")
    assert f"classic.dev.jsonl was {'0' * 64} at the run" in ran.err
    assert json.loads((results / "config.json").read_text()) == config


def test_what_cannot_be_written_is_told_before_the_model_is_asked(
    run: Run, answering: Answering, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    parrot = Parrot()
    answering(parrot)

    ran = run("bench", "--model", "local", *SAMPLE, *OWN, "--out", str(tmp_path / "file"))

    assert (ran.status, parrot.asked) == (1, 0)
    assert "file: no results can be written there (File exists): name another folder" in ran.err


def test_missing_packages_are_told_together_with_who_needs_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("branchmem.branchbench.methods.find_spec", lambda module: None)

    ran = run("bench", *SAMPLE)
    without = run("bench", *SAMPLE, "--language", "en", *OWN)

    assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    for told in ("mem0, for Mem0, scripted; Mem0, scripted, current branch", "langgraph, for LangGraph store"):
        assert told in ran.err
    assert "pip install 'branchmem[branchbench]', or leave them out: --skip 'Mem0, scripted' --skip" in ran.err
    assert without.status == 0


def test_an_interrupted_run_says_how_to_go_on(run: Run, answering: Answering) -> None:
    class Interrupted(Parrot):
        def ask(self, request: Request) -> Reply:
            raise KeyboardInterrupt

    answering(Interrupted())
    ran = run("bench", "--model", "local", *SAMPLE, *OWN)

    assert (ran.status, ran.out) == (130, "")
    assert ran.err == "branchmem: interrupted; 0 of 20 scenarios are done: the same command goes on from there\n"


def test_a_model_of_which_nothing_is_kept_is_refused(run: Run, answering: Answering) -> None:
    answering(Parrot())

    ran = run("bench", "--model", "local", *SAMPLE, *OWN, "--kept")

    assert ran.status == 1
    assert "no calls are kept in" in ran.err


def test_what_is_kept_is_packed_and_found_again(
    run: Run, answering: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(Parrot())
    asked = ("bench", "--model", "local", *SAMPLE, "--method", "oracle")
    first = run(*asked)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(manifest, "data_folder", lambda: tmp_path / "data")
        ran = run("bench", "--pack", "--json")
        refused = run("bench", "--pack", "--model", "local")

    assert (first.status, ran.status) == (0, 0)
    assert ran.json["bytes"]["calls.jsonl.zst"] == (tmp_path / "cache" / "calls.jsonl.zst").stat().st_size > 1000
    assert run(*asked, "--kept").out == first.out
    assert refused.status == 2
