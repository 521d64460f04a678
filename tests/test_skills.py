"""What a file says is what its skill is; what is wrong with one is told with its line, and spoils no other."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from branchmem import skills
from branchmem.errors import ExtraMissing, InvalidSkill, SkillsMissing, UnknownSkill
from branchmem.skills import Library, Problem, Skill, parsing
from branchmem.skills.library import MAX_DEPTH

SAMPLES = Path(__file__).parent / "samples" / "skills"
DESCRIBED = "description: Build containers"

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file, and the folders above it, below an empty folder."""

    def write(name: str, said: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(said if isinstance(said, bytes) else said.encode())
        return path

    return write


def of(*lines: str, body: str = "Do it.") -> str:
    return "\n".join(("---", *lines, "---", "", body, ""))


def refused(text: str) -> InvalidSkill:
    with pytest.raises(InvalidSkill) as caught:
        skills.parse(text, name="docker")
    return caught.value


def only(problems: Iterable[Problem]) -> Problem:
    (problem,) = problems
    return problem


def test_the_samples_are_read_as_they_say() -> None:
    library = skills.load(SAMPLES)

    assert library.problems == ()
    assert library.names == ("docker", "pdf-forms", "python-tests", "数据库")
    assert library["docker"] == Skill(
        "docker",
        "Build, run and debug containers",
        "# Containers\n\nPin the base image. Never build as root. `docker logs` comes before guesses.",
        glob_patterns=("Dockerfile", "**/docker-compose.{yml,yaml}"),
        trigger_keywords=("docker", "container", "containers"),
        tools_allowed=("shell", "read_file"),
        importance=0.8,
        tags=("deployment",),
    )
    assert library["docker"].path == SAMPLES / "docker.md"


def test_an_agent_skill_is_read_with_its_tools_license_and_metadata() -> None:
    skill = skills.load(SAMPLES)["pdf-forms"]

    assert skill.description == "Fill in PDF forms and extract what was filled in. Use when somebody works with a PDF."
    assert skill.tools_allowed == ("Bash(python:*)", "Bash(git add:*)", "Read")
    assert (skill.license, skill.compatibility) == ("Apache-2.0", "Requires Python and pypdf")
    assert dict(skill.metadata) == {"author": "example", "reviewed": "2026-01-05", "version": "1.0"}
    assert skill.folder == SAMPLES / "pdf-forms"
    assert skills.load(SAMPLES / "pdf-forms")["pdf-forms"] == skill
    assert skills.load(SAMPLES / "pdf-forms" / "SKILL.md")["pdf-forms"] == skill


@pytest.mark.parametrize(
    "tools", ["[Bash(git add:*), Read]", "Bash(git add:*) Read", "Bash(git add:*), Read", '"Bash(git add:*)  Read"']
)
def test_allowed_tools_are_a_list_or_one_text(tools: str) -> None:
    assert skills.parse(of(DESCRIBED, f"allowed-tools: {tools}"), name="git").tools_allowed == (
        "Bash(git add:*)",
        "Read",
    )


def test_line_ends_and_a_byte_order_mark_change_nothing() -> None:
    text = of(DESCRIBED, "tags: [a, b]", body="One.\n\nTwo.")

    assert skills.parse("\ufeff" + text.replace("\n", "\r\n"), name="a") == skills.parse(text, name="a")


def test_what_is_left_empty_is_as_if_absent() -> None:
    assert skills.parse(of(DESCRIBED, "tags:", "license: ~"), name="a") == Skill("a", "Build containers", "Do it.")


def test_a_body_may_have_rules_of_its_own() -> None:
    assert skills.parse(of(DESCRIBED, body="One.\n\n---\n\nTwo."), name="a").body == "One.\n\n---\n\nTwo."


@pytest.mark.parametrize(
    ("lines", "line", "said"),
    [
        (["tags: [a]"], 1, "description: is missing"),
        (["tags: [a]", "description: ''"], 3, "description: is empty"),
        (["description: 12"], 2, "description: must be text, not 12"),
        (["description: 2026-01-05"], 2, "description: must be text, not 2026-01-05"),
        (["description: yes"], 2, "description: must be text, not yes"),
        (["description: [a]"], 2, "description: must be text, not ['a']"),
        (['description: "\\ud800"'], 2, "description: has a lone surrogate"),
        ([DESCRIBED, "tags: deployment"], 3, "tags: is a list: write ['deployment']"),
        ([DESCRIBED, "tags: {a: b}"], 3, "tags: is a list of texts, not {'a': 'b'}"),
        ([DESCRIBED, "", "trigger_keywords:", "  - docker", "  - 404"], 4, "trigger_keywords: must be text, not 404"),
        ([DESCRIBED, "glob_patterns: ['!*.py']"], 3, "glob_patterns: '!*.py' would take a pattern back"),
        ([DESCRIBED, f"glob_patterns: ['{'{a,b}' * 8}']"], 3, "is short for more than 64 patterns"),
        ([DESCRIBED, f"glob_patterns: ['{'*' * 257}']"], 3, "has more than 256 characters"),
        ([DESCRIBED, "glob_patterns: ['/']"], 3, "names no file"),
        ([DESCRIBED, "importance: high"], 3, "importance: must be a number from 0 to 1, not 'high'"),
        ([DESCRIBED, "importance: true"], 3, "importance: must be a number from 0 to 1, not true"),
        ([DESCRIBED, "importance: 1.5"], 3, "importance: must lie in 0..1, not 1.5"),
        ([DESCRIBED, "importance: .nan"], 3, "importance: must lie in 0..1, not nan"),
        ([DESCRIBED, f"importance: {'9' * 5000}"], 3, "importance: must be a number"),
        ([DESCRIBED, f"importance: {'1:' * 4000}1"], 3, "importance: must be a number"),
        ([DESCRIBED, f"importance: {'1:' * 200}1.0"], 3, "importance: must be a number"),
        ([DESCRIBED, 'importance: !!int ""'], 3, "importance: must be a number"),
        ([DESCRIBED, "tags: [!!float _]"], 3, "tags: must be text, not _"),
        ([DESCRIBED, "metadata: [a]"], 3, "metadata: it must be a mapping"),
        ([DESCRIBED, "metadata: {a: 1, a: 2}"], 3, "metadata: names something twice"),
        ([DESCRIBED, "tags: [a]", "description: again"], 4, "description: is given twice, first in line 2"),
        ([DESCRIBED, "tools_allowed: [a]", "allowed-tools: a"], 4, "allowed-tools: is the same as tools_allowed"),
        ([DESCRIBED, f"name: {'a' * 65}"], 3, "name: has 65 characters, more than 64"),
        ([DESCRIBED, 'name: "a\\nb"'], 3, "name: 'a\\nb' has a character that cannot be printed"),
        (["description: Use when: always"], 2, "a text with a colon in it needs quotes"),
        ([DESCRIBED, "tags: [a"], 3, "front matter: is not YAML"),
        ([DESCRIBED, "\ttags: [a]"], 3, "front matter: is not YAML"),
        ([DESCRIBED, "tags: [\x07]"], 3, "front matter: has a character that YAML does not take"),
        (["- a", "- b"], 2, "front matter: must be made of lines like `description: …`"),
        (["Build containers"], 2, "front matter: must be made of lines like"),
        (["? [a, b]", ": c"], 2, "front matter: has a name that is no text"),
        ([DESCRIBED, "...", "tags: [a]"], 4, "front matter: is not YAML"),
        ([DESCRIBED, "author: !!python/object/apply:os.getcwd []"], 3, "front matter: has a tag"),
        ([DESCRIBED, "tags: !!set {a, b}"], 3, "front matter: has a tag"),
        ([DESCRIBED, f"author: {'[' * 40}{']' * 40}"], 3, "front matter: is nested deeper than 16"),
        ([DESCRIBED, f"author: {'a' * (17 << 10)}"], 1, "front matter: has more than 16 thousand characters"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(lines: list[str], line: int, said: str) -> None:
    error = refused(of(*lines))

    assert (error.line, str(error)) == (line, f"line {line}: {error.field}: {error.why}")
    assert said in str(error)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "front matter: is missing"),
        ("# Docker\n", "front matter: is missing"),
        ("\n" + of(DESCRIBED), "front matter: is missing"),
        ("---\ndescription: a\n", "front matter: has no end"),
        ("---\n---\n", "description: is missing"),
    ],
)
def test_a_file_without_front_matter_is_none_of_a_skill(text: str, said: str) -> None:
    error = refused(text)

    assert (error.line, said in str(error)) == (1, True)


@pytest.mark.parametrize(
    "bomb",
    [
        ["tags: &a [x, x]", "metadata: {a: *a}"],
        ["a: &a [x]", *(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in pairwise("abcdefghi"))],
        ["tags: &a [*a]"],
        ["base: &base {tags: [a]}", "<<: *base"],
    ],
    ids=["alias", "a billion laughs", "a circle", "a merge"],
)
def test_aliases_are_refused_before_they_grow(bomb: list[str]) -> None:
    error = refused(of(DESCRIBED, *bomb))

    assert error.field == "front matter"
    assert "has an alias, *" in error.why


def test_a_bad_file_is_a_problem_and_the_others_are_read(write: Write, tmp_path: Path) -> None:
    write("good.md", of(DESCRIBED))
    write("README.md", "# Skills\n")
    write("latin.md", of(DESCRIBED, body="one\ncaf\xe9").encode("latin-1"))
    write("large.md", of(DESCRIBED, body="a" * parsing.MAX_FILE_BYTES))
    write("wrong.md", of(DESCRIBED, "importance: 2"))
    write("notes.txt", "no Markdown")
    write(".hidden.md", "# left out\n")

    library = skills.load(tmp_path)

    assert library.names == ("good",)
    assert [(Path(one.path).name, one.line, one.skipped) for one in library.problems] == [
        ("README.md", 1, True),
        ("large.md", None, True),
        ("latin.md", 6, True),
        ("wrong.md", 3, True),
    ]
    assert str(library.problems[3]) == f"{tmp_path}/wrong.md:3: importance: must lie in 0..1, not 2; skipped"


def test_what_cannot_be_read_is_a_problem_and_nobody_waits_for_it(write: Write, tmp_path: Path) -> None:
    write("good.md", of(DESCRIBED))
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle.md").symlink_to("circle.md")
    (tmp_path / "folder.md").mkdir()

    library = skills.load(tmp_path)

    assert library.names == ("good",)
    assert [Path(one.path).name for one in library.problems] == ["circle.md", "gone.md", "pipe.md"]


def test_a_circle_of_links_ends(write: Write, tmp_path: Path) -> None:
    write("group/docker/SKILL.md", of("name: docker", DESCRIBED))
    (tmp_path / "group" / "up").symlink_to(tmp_path)
    (tmp_path / "group" / "z").symlink_to(tmp_path / "group" / "docker")

    library = skills.load(tmp_path)

    assert library.names == ("docker",)
    assert [str(one) for one in library.problems] == [
        f"{tmp_path}/group/up: leads to {tmp_path}, which was read already; skipped",
        f"{tmp_path}/group/z: leads to {tmp_path}/group/docker, which was read already; skipped",
    ]


def test_agent_skills_may_lie_deeper_and_flat_files_may_not(write: Write, tmp_path: Path) -> None:
    write("web/front/css/SKILL.md", of("name: css", DESCRIBED))
    write("web/notes.md", "no skill, and not looked at")
    write("/".join("abcdefgh") + "/deep/SKILL.md", of("name: deep", DESCRIBED))
    assert len("abcdefgh") == MAX_DEPTH

    library = skills.load(tmp_path)

    assert library.names == ("css",)
    assert "lies deeper than 8 folders" in only(library.problems).why


@pytest.mark.parametrize(
    ("folder", "lines", "line", "said"),
    [
        ("docker", ["name: podman"], 2, "podman is not that of its folder, docker"),
        ("Docker", ["name: Docker"], 2, "lower case letters, digits and hyphens only"),
        ("doc_ker", ["name: doc_ker"], 2, "lower case letters, digits and hyphens only"),
        ("-docker", ["name: -docker"], 2, "single hyphens only"),
        ("docker-", ["name: docker-"], 2, "single hyphens only"),
        ("doc--ker", ["name: doc--ker"], 2, "single hyphens only"),
        ("docker", [], 1, "name: is missing"),
        (
            "docker",
            ["name: docker", f"compatibility: {'a' * 501}"],
            3,
            "compatibility: has 501 characters, more than 500",
        ),
    ],
)
def test_agent_skills_keep_to_their_specification(
    write: Write, tmp_path: Path, folder: str, lines: list[str], line: int, said: str
) -> None:
    write(f"{folder}/SKILL.md", of(*lines, DESCRIBED))

    problem = only(skills.load(tmp_path).problems)

    assert (problem.line, said in problem.why) == (line, True), problem


def test_the_description_of_an_agent_skill_is_short_and_that_of_a_flat_file_as_it_is(
    write: Write, tmp_path: Path
) -> None:
    write("long/SKILL.md", of("name: long", f"description: {'a' * 1025}"))
    write("flat.md", of(f"description: {'a' * 1025}"))

    library = skills.load(tmp_path)

    assert library.names == ("flat",)
    assert only(library.problems).line == 3


def test_agent_skills_may_have_names_in_any_script(write: Write, tmp_path: Path) -> None:
    write("数据库/SKILL.md", of("name: 数据库", DESCRIBED))

    assert skills.load(tmp_path).names == ("数据库",)


def test_of_two_skills_with_one_name_the_first_stays(write: Write, tmp_path: Path) -> None:
    write("a.md", of("name: docker", "description: one"))
    write("b.md", of("description: two", "name: Docker"))
    write("docker/SKILL.md", of("name: docker", "description: three"))

    library = skills.load(tmp_path)

    assert [skill.description for skill in library] == ["one"]
    assert [(Path(one.path).name, one.line) for one in library.problems] == [("b.md", 3), ("SKILL.md", 2)]
    assert only(library.problems[:1]).why == f"name: Docker is that of {tmp_path}/a.md already"


def test_a_field_that_is_none_of_a_skill_is_told_and_the_skill_is_read(write: Write, tmp_path: Path) -> None:
    write("docker.md", of(DESCRIBED, "trigger_keyword: [docker]"))

    library = skills.load(tmp_path)

    assert library.names == ("docker",)
    assert library.problems == (
        Problem(f"{tmp_path}/docker.md", 3, "trigger_keyword: is no field of a skill, and not read", skipped=False),
    )
    assert "skipped" not in str(library.problems[0])


def test_loading_a_folder_twice_is_loading_it_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(SAMPLES)

    assert skills.load(SAMPLES, SAMPLES, tmp_path / "link") == skills.load(SAMPLES)
    assert skills.load(SAMPLES / "docker.md", SAMPLES).problems == ()


def test_the_order_in_which_files_are_listed_changes_nothing(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("c", "a", "b"):
        write(f"{name}.md", of("name: same" if name != "b" else "name: other", f"description: {name}"))
    first = skills.load(tmp_path)
    listed = list(tmp_path.iterdir())
    monkeypatch.setattr(Path, "iterdir", lambda self: reversed(listed))

    assert skills.load(tmp_path) == first
    assert first["same"].description == "a"


def test_earlier_folders_come_first(write: Write, tmp_path: Path) -> None:
    write("mine/docker.md", of("description: mine"))
    write("theirs/docker.md", of("description: theirs"))

    assert skills.load(tmp_path / "mine", tmp_path / "theirs")["docker"].description == "mine"
    assert skills.load(tmp_path / "theirs", tmp_path / "mine")["docker"].description == "theirs"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SkillsMissing, match="nowhere"):
        skills.load(tmp_path / "nowhere")


def test_a_library_knows_its_skills_by_name_in_any_case() -> None:
    library = skills.load(SAMPLES)

    assert "DOCKER" in library
    assert library["Docker"].name == "docker"
    assert "podman" not in library
    with pytest.raises(UnknownSkill, match="docker, pdf-forms"):
        library["podman"]


def test_a_skill_made_by_hand_is_checked_as_one_from_a_file() -> None:
    with pytest.raises(InvalidSkill, match="tags: is a list"):
        Skill("docker", "Build containers", tags="deployment")  # type: ignore[arg-type]
    with pytest.raises(InvalidSkill, match="metadata: it holds nan"):
        Skill("docker", "Build containers", metadata={"a": float("nan")})
    with pytest.raises(InvalidSkill, match="is that of two skills"):
        Library((Skill("docker", "one"), Skill("Docker", "two")))


def test_skills_and_errors_survive_pickling() -> None:
    skill = skills.load(SAMPLES)["docker"]

    assert pickle.loads(pickle.dumps(skill)) == skill
    assert hash(pickle.loads(pickle.dumps(skill))) == hash(skill)
    assert str(pickle.loads(pickle.dumps(InvalidSkill("name", "is missing", 2)))) == "line 2: name: is missing"
    assert pickle.loads(pickle.dumps(UnknownSkill("a", ["b"]))).names == ("b",)


def test_what_a_skill_says_is_what_its_front_matter_says() -> None:
    for skill in skills.load(SAMPLES):
        assert Skill.from_front_matter(skill.front_matter(), skill.body) == skill


def test_without_pyyaml_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(ExtraMissing, match=r"skills need the package PyYAML.*pip install 'branchmem\[skills\]'"):
        skills.load(SAMPLES)
    with pytest.raises(ExtraMissing):
        skills.parse(of(DESCRIBED))


def test_importing_skills_loads_neither_yaml_nor_numpy() -> None:
    asked = "import sys, branchmem.skills; print(*{'numpy', 'yaml'} & sys.modules.keys())"

    loaded = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)

    assert loaded.stdout.split() == []
