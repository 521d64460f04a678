"""The command line: which skills there are in a folder, and which of them a message or a file activates."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import branchmem as bm
import pytest
from commands import Run
from rich.cells import cell_len

pytestmark = pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="needs branchmem[skills]")

DOCKER = """---
description: Build, run and debug containers
glob_patterns: [Dockerfile]
trigger_keywords: [docker, containers]
tools_allowed: [shell]
---
Pin the base image:

    FROM debian:stable
\tRUN true
"""


@pytest.fixture
def folder(run: Run) -> Path:
    """Two skills, and a file that is none."""
    folder = Path("skills")
    (folder / "review").mkdir(parents=True)
    (folder / "docker.md").write_text(DOCKER)
    (folder / "review" / "SKILL.md").write_text("---\nname: review\ndescription: Review a change\n---\nRead it.\n")
    (folder / "bad.md").write_text("---\nname: bad\ndescription: [\n---\n")
    return folder


def test_skills_are_listed_with_what_is_wrong_in_a_line_and_need_no_store(run: Run, folder: Path) -> None:
    listed = run("skills", "skills")

    assert (listed.status, listed.err) == (0, "")
    assert listed.out.startswith(
        "2 skills\n"
        "  docker  Build, run and debug containers\n"
        "          keywords docker, containers; files Dockerfile; tools shell\n"
        "  review  Review a change\n"
        "1 problem\n"
        "  - skills/bad.md:"
    )
    form = run("skills", "skills", "--json").json
    assert form.keys() == {"folder", "skills", "problems", "activated"}
    assert ([skill["name"] for skill in form["skills"]], form["activated"]) == (["docker", "review"], None)
    assert [problem["path"] for problem in form["problems"]] == ["skills/bad.md"]
    assert [path.name for path in Path().iterdir()] == ["skills"]


@pytest.mark.parametrize(
    ("words", "by", "found"),
    [
        (["--message", "The containers do not start"], "combined", "containers"),
        (["--path", "services/shop/Dockerfile"], "glob", "services/shop/Dockerfile"),
        (["--message", "Go on.", "--path", "README.md", "--path", "Dockerfile"], "glob", "Dockerfile"),
    ],
)
def test_a_message_or_a_file_activates_skills_and_it_is_said_by_what(
    run: Run, folder: Path, words: list[str], by: str, found: str
) -> None:
    (activated,) = run("skills", "skills", *words, "--json").json["activated"]
    printed = run("skills", "skills", *words).out

    assert (activated["name"], activated["by"], [*activated["keywords"], *activated["paths"]]) == (
        "docker",
        by,
        [found],
    )
    assert printed.startswith(f"1 of 2 skills is activated\n  docker  by {by}: {found}\n")


def test_what_activates_nothing_says_so(run: Run, folder: Path) -> None:
    assert run("skills", "skills", "--message", "Hello").out.startswith("0 of 2 skills are activated\n")
    assert run("skills", "skills", "--message", "", "--json").json["activated"] == []


def test_a_folder_that_is_not_there_is_refused_in_one_line(run: Run) -> None:
    for words in (["skills", "nowhere"], ["recall", "x", "--at", "u1", "--skills", "nowhere"]):
        refused = run(*words)

        assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
        assert "nowhere" in refused.err
    assert list(Path().iterdir()) == []


def test_a_prompt_has_the_skills_as_they_are_written(forked: Run, folder: Path) -> None:
    ran = forked("recall", "Do the containers run in Chengdu?", "--at", "u1", "--skills", "skills")

    assert "\nPin the base image:\n\n    FROM debian:stable\n\tRUN true\n" in ran.out
    assert "The user is moving to Chengdu" in ran.out
    assert ran.err.startswith("1 skill and 1 memory at u1: ")
    assert "  skills        docker (combined)\n" in ran.err
    assert "1 problem\n  - skills/bad.md:" in ran.err
    by_path = forked("recall", "Go on.", "--at", "u1", "--skills", "skills", "--path", "Dockerfile", "--json").json
    assert [skill["name"] for skill in by_path["skills"]] == ["docker"]
    assert [problem["path"] for problem in by_path["problems"]] == ["skills/bad.md"]


def test_a_prompt_says_what_is_wrong_where_no_skill_is_sound(forked: Run, folder: Path) -> None:
    (folder / "docker.md").unlink()
    (folder / "review" / "SKILL.md").unlink()

    assert "1 problem\n" in forked("recall", "x", "--at", "u1", "--skills", "skills").err
    form = forked("recall", "x", "--at", "u1", "--skills", "skills", "--json").json
    assert (form["skills"], len(form["problems"])) == ([], 1)


def test_without_a_folder_the_skills_of_the_branch_are_taken(forked: Run, folder: Path) -> None:
    from branchmem import skills

    with bm.open("a.bmem") as store:
        skills.remember(store, skills.load(folder), sources=["u1"])

    def names(at: str) -> list[str]:
        form = forked("recall", "Do the containers run?", "--at", at, "--json").json
        return [skill["name"] for skill in form["skills"]]

    assert (names("u1"), names("u1-edit")) == (["docker"], [])


def test_every_line_of_many_long_skills_fits_80_columns(run: Run) -> None:
    Path("skills").mkdir()
    for number in range(12):
        front = (
            f"description: {'Build containers 容器 ' * 20}\nglob_patterns: ['{'部署' * 40}*']\ntrigger_keywords: [容器]"
        )
        Path("skills", f"{'技能' * 25}{number}.md").write_text(f"---\n{front}\n---\nx\n")
        Path("skills", f"bad{'坏' * 30}{number}.md").write_text("no front matter")

    listed = run("skills", "skills").out.splitlines()

    assert listed[0] == "12 skills"
    assert "  and 2 more: --json lists them" in listed
    activated = run("skills", "skills", "--message", "容器").out.splitlines()
    assert [line for line in listed + activated if cell_len(line) > 80] == []
