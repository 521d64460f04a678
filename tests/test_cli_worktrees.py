"""The command line: memory that follows the git branch of a folder."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import branchmem as bm
import pytest
from branchmem.worktree import Worktree
from commands import Ran, Run
from rich.cells import cell_len

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

SECRET = "spaces"


def git(*words: str) -> None:
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    subprocess.run(["git", *identity, *words], check=True, capture_output=True)


def remember(*texts: str, kind: str = "project", key: str | None = None) -> None:
    """On the branch that is checked out, at a message of its own."""
    with bm.open("a.bmem") as store, Worktree(store).session().step() as step:
        step.write("noted")
        for text in texts:
            step.remember(text, kind=kind, key=key)


@pytest.fixture
def repo(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A repository with branches main and try, and a memory of each; main is checked out."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("BRANCHMEM_PROJECT", raising=False)
    os.mkdir("repo")
    monkeypatch.chdir("repo")
    git("init", "-b", "main", ".")
    git("commit", "--allow-empty", "-m", "first")
    remember("The project uses tabs", key="indent")
    git("switch", "-c", "try")
    remember("Tests take a minute")
    git("switch", "main")
    return run


@pytest.fixture
def rivals(repo: Run) -> Run:
    """The same; both branches say what they think of indentation."""
    git("switch", "try")
    remember(SECRET, key="indent")
    git("switch", "main")
    remember("The project uses two tabs", key="indent")
    return repo


def one_line(ran: Ran, status: int = 1) -> str:
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1)
    return ran.err


def seen(run: Run, branch: str) -> set[str]:
    ref = run("worktree", "status", "--json").json["ref"].rpartition("/")[0] + "/" + branch
    return {memory["text"] for memory in run("view", "--ref", ref, "--json").json["memories"]}


def test_the_status_names_the_ref_of_the_branch_and_where_it_stands(repo: Run) -> None:
    form = repo("worktree", "status", "--json").json
    said = repo("worktree", "status").out

    assert form["ref"].endswith("/main")
    assert (form["branches"], form["gone"], form["start"]) == (["main", "try"], [], None)
    assert said.splitlines()[0] == f"{form['ref']} (branch)"
    assert f"stands at     …{form['head'][-8:]}\n" in said
    assert repo("refs", "--json").json["refs"][form["ref"]] == form["head"]


def test_the_status_of_a_branch_without_memory_says_where_it_would_start_and_makes_nothing(repo: Run) -> None:
    git("switch", "-c", "new")
    before = Path("a.bmem").read_bytes()

    form = repo("worktree", "status", "--json").json
    said = repo("worktree", "status").out

    assert (form["head"], form["start"]["branches"]) == (None, ["main"])
    assert "would start   at …" in said
    assert ", on main at commit " in said
    assert Path("a.bmem").read_bytes() == before


def test_another_folder_and_another_name_of_the_project_can_be_given(repo: Run) -> None:
    os.makedirs("sub/elsewhere")
    here = repo("worktree", "status", "--json").json

    assert repo("worktree", "status", "--dir", "sub", "--json").json == here
    named = repo("worktree", "status", "--project", "mine", "--json").json
    assert (named["ref"], named["head"]) == ("mine/main", None)


def test_branches_are_compared_by_the_names_that_git_has_for_them(repo: Run) -> None:
    said = repo("worktree", "diff", "try").out

    assert said.startswith("try and main part at …")
    assert "try, 1 message on: 1 memory of its own" in said
    assert "Tests take a minute" in said
    assert len(repo("worktree", "diff", "main", "try", "--json").json["only_b"]) == 1


def test_a_branch_is_merged_into_that_of_the_folder_or_another(repo: Run) -> None:
    tried = repo("worktree", "merge", "try", "--dry-run", "--json").json
    assert (tried["dry_run"], tried["fast_forward"]) == (True, True)
    assert "Tests take a minute" not in seen(repo, "main")

    assert repo("worktree", "merge", "try").status == 0

    assert "Tests take a minute" in seen(repo, "main")
    git("switch", "-c", "elsewhere")
    again = repo("worktree", "merge", "try", "--into", "main")
    assert again.out.splitlines()[0].endswith("there is nothing to take over")


def test_a_conflict_of_branches_is_shown_and_refused_unless_a_strategy_decides(rivals: Run) -> None:
    for tried in ((), ("--dry-run",)):
        refused = rivals("worktree", "merge", "try", *tried)

        assert (refused.status, refused.err.count("\n")) == (1, 1)
        assert refused.out.startswith("conflict 1 about indent\n")
        assert "nothing was written" in refused.err

    assert rivals("worktree", "merge", "try", "--strategy", "theirs").status == 0
    # what both branches show stands on both sides, and is not decided
    assert seen(rivals, "main") == {SECRET, "Tests take a minute", "The project uses tabs"}


# Deleting


def test_deleting_a_branch_erases_what_only_it_saw(rivals: Run) -> None:
    tried = rivals("worktree", "delete", "try", "--dry-run", "--json").json
    said = rivals("worktree", "delete", "try", "--dry-run").out

    done = rivals("worktree", "delete", "try", "--yes", "--json").json

    assert (tried["dry_run"], done["dry_run"]) == (True, False)
    assert tried["memories"] == done["memories"]
    assert len(done["memories"]) == 2
    assert f"{done['ref']} would be deleted; it stood at " in said
    assert "contents      4, in free pages until compact" in said
    assert SECRET not in said + rivals("export").out
    assert rivals("worktree", "status", "--json").json["branches"] == ["main"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_on_a_terminal_deleting_shows_what_goes_and_asks(
    rivals: Run, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))

    asked = rivals("worktree", "delete", "try")

    assert asked.status == status
    assert "would be deleted" in asked.err
    assert (SECRET in rivals("export").out) == bool(status)
    assert status == 0 or asked.err.endswith("branchmem: nothing was deleted\n")


def test_deleting_that_nobody_can_be_asked_about_is_wrong_usage(rivals: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))

    refused = one_line(rivals("worktree", "delete", "try"), 2)

    assert "--dry-run" in refused
    assert SECRET in rivals("export").out


# What every command keeps to

TRIED = ["status", "diff try", "merge try --dry-run", "delete try --dry-run"]


@pytest.mark.parametrize("command", TRIED)
def test_what_is_only_tried_changes_no_file(repo: Run, command: str) -> None:
    before = Path("a.bmem").read_bytes()

    ran = repo("worktree", *command.split())

    assert (ran.status, ran.err) == (0, "")
    assert Path("a.bmem").read_bytes() == before


@pytest.mark.parametrize("command", [*TRIED, "merge try", "delete try --yes"])
def test_no_command_on_worktrees_makes_a_store(repo: Run, command: str) -> None:
    assert "there is no store here" in one_line(repo("worktree", *command.split(), "--store", "new.bmem"))
    assert not Path("new.bmem").exists()


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("diff", 2, "A"),
        ("diff nowhere", 1, "/nowhere"),
        ("merge nowhere", 1, "/nowhere"),
        ("merge try --strategy mine", 2, "mine"),
        ("delete nowhere --yes", 1, "/nowhere"),
        ("delete main --yes", 1, "switch it to another branch"),
        ("status --dir missing", 1, "missing"),
        ("status --project a/b", 1, "slash"),
    ],
)
def test_what_is_wrong_is_one_line(repo: Run, command: str, status: int, said: str) -> None:
    assert said in one_line(repo("worktree", *command.split()), status)


def test_a_repository_that_git_does_not_answer_for_is_an_error_and_no_other_branch(repo: Run) -> None:
    Path(".git/HEAD").write_text("nonsense\n")

    one_line(repo("worktree", "status"))


def test_lines_about_worktrees_fit_80_columns(repo: Run) -> None:
    long = "a-long-name/" * 12 + "end"
    git("switch", "-c", long)
    remember("All lines are short")

    said = [repo("worktree", "status").out]
    git("switch", "main")
    for command in ("status", f"diff {long}", f"merge {long} --dry-run", f"delete {long} --dry-run"):
        ran = repo("worktree", *command.split())

        assert (ran.status, ran.err) == (0, "")
        said.append(ran.out)

    assert [line for lines in said for line in lines.splitlines() if cell_len(line) > 80] == []
