"""The README does what it says: its Python runs, its commands print what is printed there."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import branchmem
import pytest

HERE = Path(__file__).parent.parent
PAGES = ("README.md", "CONTRIBUTING.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    return [text for name, text in BLOCK.findall((HERE / page).read_text("utf-8")) if name == language]


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder but for the export that the README speaks of; lines of 80 cells, no colour."""
    export = Path(branchmem.__file__).parent / "demo_data" / "librechat_chatgpt-tree.json"
    shutil.copy(export, tmp_path / "conversations.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "BRANCHMEM_STORE"):
        monkeypatch.delenv(name, raising=False)


class Noted(ast.NodeTransformer):
    """Turns each expression that stands alone into a call of `_noted(line, value)`."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        line = ast.Constant(node.lineno)
        call = ast.Call(ast.Name("_noted", ast.Load()), [line, node.value], [])
        return ast.copy_location(ast.Expr(call), node)


def answers(block: str) -> Iterator[tuple[str, str]]:
    """Run Python; yield each comment beside an expression with what the expression gave or printed."""
    said: dict[int, str] = {}
    out = io.StringIO()

    def noted(line: int, value: object) -> None:
        printed = out.getvalue().strip()
        out.seek(out.truncate(0))
        said[line] = printed if value is None else repr(value)

    tree = ast.fix_missing_locations(Noted().visit(ast.parse(block)))
    names: dict[str, Any] = {"_noted": noted}
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "README.md", "exec"), names)
    for number, line in enumerate(block.splitlines(), 1):
        comment = line.partition("  # ")[2].strip()
        if comment and number in said:
            yield comment, said[number]


def test_python_in_the_readme_answers_as_its_comments_say() -> None:
    found = [answer for block in blocks("README.md", "python") for answer in answers(block)]

    assert len(found) >= 4
    assert [(comment, answer) for comment, answer in found if not comment.startswith(answer)] == []


def transcript(block: str) -> Iterator[tuple[str, str]]:
    """Each command after a `$`, and what is printed below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def test_commands_in_the_readme_print_what_it_shows() -> None:
    environment = dict(os.environ)
    ran = 0
    for block in blocks("README.md", "console"):
        for command, expected in transcript(block):
            words = shlex.split(command)
            if words[0] == "export":
                name, _, value = words[1].partition("=")
                environment[name] = value
                continue
            assert words[0] == "branchmem", command
            run = [sys.executable, "-m", "branchmem.cli", *words[1:]]
            done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
            printed = "".join(line.rstrip() + "\n" for line in (done.stdout + done.stderr).splitlines())
            assert printed == expected, command
            ran += 1
    assert ran >= 6


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_that_are_named_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (HERE / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (HERE / page).read_text("utf-8"), re.MULTILINE))

    assert named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    text = (HERE / page).read_text("utf-8")
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)\)", text)
    quoted = re.findall(r"`((?:python|rust|tests|bench)/[\w/.]+\.\w+)`", text)

    assert [name for name in linked + quoted if not (HERE / name).exists()] == []
