"""The command line: what it refuses, in one line and with an exit status, and what it leaves alone."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import branchmem as bm
import pytest
from commands import KEYS, Run

READING = [
    *("export", "trees", "tree x", "view x", "explain m --at x", "check", "stats", "derive"),
    *("search x --at y", "recall x --at y", "why x --at y", "decay"),
    *("backup b.bmem", "compact", "salvage b.bmem"),
]


# Files that are left alone


@pytest.mark.parametrize("command", READING)
def test_reading_makes_no_store(run: Run, command: str) -> None:
    refused = run(*command.split())

    assert (refused.status, refused.out) == (1, "")
    assert refused.err.count("\n") == 1
    assert "there is no store here" in refused.err
    assert os.listdir() == []


@pytest.mark.parametrize("command", [name for name in KEYS if name.split()[0] != "derive"])
def test_reading_changes_no_file(forked: Run, command: str) -> None:
    before = {name: Path(name).read_bytes() for name in os.listdir() if not name.endswith("-lock")}

    assert forked(*command.split()).status == 0

    assert {name: Path(name).read_bytes() for name in os.listdir() if not name.endswith("-lock")} == before


def test_an_export_overwrites_nothing_and_least_of_all_the_store(forked: Run) -> None:
    before = Path("a.bmem").read_bytes()

    refused = forked("export", "a.bmem")

    assert (refused.status, refused.out) == (1, "")
    assert refused.err == "branchmem: a.bmem: File exists\n"
    assert Path("a.bmem").read_bytes() == before


def test_a_backup_overwrites_nothing(forked: Run) -> None:
    Path("taken").write_text("mine")

    for taken in ("taken", "a.bmem"):
        refused = forked("backup", taken)

        assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
        assert "name a new file" in refused.err
    assert Path("taken").read_text() == "mine"


def test_compacting_a_store_in_use_names_who_has_it(forked: Run) -> None:
    words = [sys.executable, "-c", "import branchmem as bm; bm.open('a.bmem'); print(flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        refused = forked("compact")
        process.stdin.close()

    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert f"process {process.pid} " in refused.err
    assert forked("compact").status == 0


# Errors in one line


@pytest.mark.parametrize(
    "command",
    [
        "nonsense",
        "view --policy lax",
        "view --nonsense",
        "view --limit few",
        f"view --limit {10**20}",
        "import",
        "import missing.json",
        "tree",
    ],
)
def test_wrong_usage_is_one_line_and_2(forked: Run, command: str) -> None:
    refused = forked(*command.split())

    assert (refused.status, refused.out) == (2, "")
    assert refused.err.startswith("branchmem: ")
    assert refused.err.count("\n") == 1


def test_without_a_store_the_command_says_how_to_name_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRANCHMEM_STORE")

    refused = run("trees")

    assert refused.status == 2
    assert "--store" in refused.err
    assert "BRANCHMEM_STORE" in refused.err


def test_what_is_no_export_is_refused_in_one_line(run: Run) -> None:
    Path("other.json").write_text('{"a": 1}')

    refused = run("import", "other.json")

    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith("branchmem: other.json: at ")
    assert refused.err.count("\n") == 1


def test_a_tree_of_no_message_is_refused_before_anything_is_drawn(forked: Run) -> None:
    for command in ("tree nope", "tree nope --json", "tree home"):
        refused = forked(*command.split())

        assert (refused.status, refused.out) == (1, "")
        assert refused.err.startswith(f"branchmem: no message {command.split()[1]} in the log")


def test_a_file_that_is_no_store_is_refused_in_one_line(run: Run) -> None:
    Path("a.bmem").write_text("not a store")

    refused = run("stats")

    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert "a.bmem" in refused.err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, None),
        (MemoryError(), 1, "branchmem: out of memory\n"),
        (PermissionError(13, "Permission denied", "x"), 1, "branchmem: x: Permission denied\n"),
        (RuntimeError("a\nb\x1b[2J"), 1, "branchmem: RuntimeError: a b\ufffd[2J (BRANCHMEM_TRACEBACK=1 shows where)\n"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"), 1, None),
        (RecursionError("deep"), 1, None),
    ],
)
def test_an_error_is_one_line_and_never_a_traceback(
    forked: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, said: str | None
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(bm, "open", fail)

    failed = forked("stats")

    assert failed.status == status
    assert failed.err.count("\n") <= 1
    assert said in (None, failed.err)


@pytest.mark.parametrize("command", ["export", "export --json", "tree chat"])
def test_who_stops_reading_stops_the_command_silently(tmp_path: Path, command: str) -> None:
    with bm.open(tmp_path / "a.bmem") as store:
        store.append([bm.Message("chat", None), *(bm.Message(f"m{n}", "chat", text="x" * 100) for n in range(5000))])
    words = [sys.executable, "-m", "branchmem.cli", *command.split(), "--store", str(tmp_path / "a.bmem")]

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(10)
        process.stdout.close()
        said = process.stderr.read()

    assert (process.returncode, said) == (1, b"")


@pytest.mark.parametrize("command", ["erase nope", "worktree delete nope"])
def test_where_nobody_can_be_asked_an_erasure_needs_a_yes(forked: Run, command: str) -> None:
    words = shlex.join([sys.executable, "-m", "branchmem.cli", *command.split()])

    refused = subprocess.run(["sh", "-c", f"{words} <&-"], capture_output=True, check=False)

    assert refused.returncode == 2
    assert refused.stderr.startswith(b"branchmem: Invalid value for --yes: ")


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_stream_stops_no_command(tmp_path: Path, closed: str) -> None:
    with bm.open(tmp_path / "a.bmem") as store:
        store.session("main")
    command = f"{sys.executable} -m branchmem.cli fork trial --from main --store {tmp_path / 'a.bmem'} {closed}"

    ran = subprocess.run(["sh", "-c", command], capture_output=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, b"")
    with bm.open(tmp_path / "a.bmem") as store:
        assert set(store.refs) == {"main", "trial"}
