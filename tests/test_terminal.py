"""What reaches a terminal: nothing out of a file raw, every answer on odd terminals, lines that fit."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import terminal
from branchmem.terminal import lines as made
from commands import Run
from rich.cells import cell_len

HOSTILE = "\x1b]0;owned\x07\x1b[31m[bold]red[/bold]\x9b1m\u202egnp\u2028 end"


def subprocess_run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "branchmem.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


def hostile_store(path: str) -> None:
    with bm.open(path) as store:
        store.append(
            [
                bm.Message(f"r{HOSTILE}", None, role=HOSTILE, text=HOSTILE),
                bm.Memory(f"m{HOSTILE}", f"{HOSTILE}\n{HOSTILE}", sources=["s" + HOSTILE], kind=HOSTILE, key=HOSTILE),
            ]
        )


def hostile_skills(folder: str) -> None:
    name = HOSTILE.replace("/", "")
    Path(folder).mkdir()
    Path(folder, f"{name}.md").write_text(f"---\nname: red\ndescription: {json.dumps(HOSTILE)}\n---\n{HOSTILE}")
    Path(folder, f"bad{name}.md").write_text(f"---\nname: {json.dumps(HOSTILE)}\n---\n{HOSTILE}")


@pytest.mark.parametrize(
    "command",
    [
        *("trees", "tree", "view", "explain", "export", "check", "stats", "import", "error"),
        *("search", "recall", "why", "decay", "skills"),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_nothing_out_of_a_file_acts_on_the_terminal(run: Run, command: str, form: list[str]) -> None:
    hostile_store("a.bmem")
    hostile_skills("skills")
    Path("bad.jsonl").write_text('{"type": "message", "id": "u", "parent": null}\n{"type": "message", "\x9b": 1}\n')
    words = {
        "tree": ["tree", f"r{HOSTILE}"],
        "view": ["view", f"r{HOSTILE}", "--policy", "compat"],
        "explain": ["explain", f"m{HOSTILE}", "--at", f"r{HOSTILE}"],
        "search": ["search", "red", "--at", f"r{HOSTILE}", "--policy", "compat"],
        "recall": ["recall", "red", "--at", f"r{HOSTILE}", "--policy", "compat"],
        "why": ["why", "red", "--at", f"r{HOSTILE}"],
        "skills": ["skills", "skills", "--message", "red"],
        "import": ["import", "bad.jsonl"],
        "error": ["view", f"…{HOSTILE}?"],
    }.get(command, [command])

    ran = run(*words, *form)

    printed = (ran.out + ran.err).replace("\n", "")
    assert printed
    assert [letter for letter in printed if not letter.isprintable()] == []
    assert "[bold]" in printed or command not in ("trees", "tree", "view", "export", "search", "recall", "why")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_odd_terminals_get_every_answer(tmp_path: Path, encoding: str) -> None:
    with bm.open(tmp_path / "a.bmem") as store:
        store.append([bm.Message("根", None, text="搬到成都 🚆")])
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "BRANCHMEM_STORE": str(tmp_path / "a.bmem")}

    drawn = subprocess_run("tree", "根", env=environment, encoding=encoding)
    form = subprocess_run("tree", "根", "--json", env=environment, encoding=encoding)

    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert json.loads(form.stdout)["messages"][0]["text"] == "搬到成都 🚆"


def test_a_terminal_wider_than_any_gets_every_answer(tmp_path: Path) -> None:
    with bm.open(tmp_path / "a.bmem") as store:
        store.append([bm.Message("root", None, text="hello")])
    environment = {**os.environ, "COLUMNS": "9" * 20, "BRANCHMEM_STORE": str(tmp_path / "a.bmem")}

    drawn = subprocess_run("tree", "root", env=environment)

    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert "hello" in drawn.stdout


def test_there_is_a_progress_bar_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "branchmem.cli", "selftest", "--trees", "3", "--json"]
    main, terminal = pty.openpty()

    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=terminal, timeout=60, check=True)
    os.close(terminal)
    shown = os.read(main, 100_000)
    os.close(main)

    assert json.loads(done.stdout)["mismatches"] == 0
    assert b"comparing" in shown
    assert subprocess_run("selftest", "--trees", "3", "--json").stderr == ""


def drawn(*messages: bm.Message, width: int = 60) -> list[str]:
    with bm.open_temporary() as store:
        store.append(messages)
        return [str(line) for line in terminal.tree_lines(store, messages[0].id, width=width)]


def test_wide_characters_keep_the_columns_of_a_tree() -> None:
    lines = drawn(
        bm.Message("根", None, role="thread"),
        bm.Message("u1", "根", role="user", text="我要搬到成都去住，因为那里的火锅很好吃，天气也不错，朋友也多"),
        bm.Message("u2", "u1", role="assistant", text="a " * 100),
    )

    assert [cell_len(line) for line in lines] == [52, 52, 52]
    assert [line.split()[-1] for line in lines] == ["根", "u1", "u2"]


@pytest.mark.parametrize("width", range(1, 14))
def test_a_terminal_of_a_few_cells_gets_every_letter(width: int) -> None:
    said = "搬到成都 today"

    for lines in (made.bullet(said, width), made.hanging(said, width), made.rows([("", said)], width)):
        assert "".join(str(line).strip(" -") for line in lines).replace(" ", "") == said.replace(" ", "")


def test_a_tree_is_indented_by_the_logarithm_of_its_size_at_most() -> None:
    names = [f"{n}" for n in range(127)]
    balanced = [bm.Message(name, names[(n - 1) // 2] if n else None) for n, name in enumerate(names)]

    lines = drawn(*balanced)

    assert len(lines) == 127
    assert max(line.count("│") + line.count("├") for line in lines) == 6


@pytest.mark.parametrize(
    ("id", "shown"),
    [("u1", "u1"), ("0123456789", "0123456789"), ("0123456789a", "…3456789a"), ("a\x1b[0m", "a\ufffd[0m"), ("", "")],
)
def test_a_long_id_is_shown_by_its_end(id: str, shown: str) -> None:
    assert terminal.short(id) == shown


def test_json_for_a_terminal_means_what_it_meant() -> None:
    text = "".join(map(chr, [*range(32), *range(126, 161), 0x2028, 0x202E, 0x2066, 0xD800, 0x1F682]))

    line = terminal.escaped(json.dumps(text, ensure_ascii=False))

    assert json.loads(line) == text
    assert [letter for letter in line if not letter.isprintable() and letter != "\xa0"] == []
