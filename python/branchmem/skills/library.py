"""The skills of some folders, each once, and what is wrong with the files that are not among them.

A folder holds flat files, `*.md`, and folders of Agent Skills, which have a `SKILL.md`; these may lie deeper, and what
else they hold is their own.  A folder with a `SKILL.md` of its own is one skill.  Names that begin with a dot are left
out.  A bad file never keeps the others from being read: it is a problem of the library.  The same files give the same
library, in whatever order a file system lists them.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from branchmem.errors import InvalidSkill, SkillsMissing, UnknownSkill
from branchmem.skills import activation, parsing
from branchmem.skills.activation import MOST, Activation
from branchmem.skills.skill import AGENT_SKILL, FIELDS, Skill

#: How deep below a given folder an Agent Skill may lie.
MAX_DEPTH: Final = 8


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file, or with the memory of this id, and where."""

    path: str
    #: Counted from 1; None where it is not a matter of one line.
    line: int | None
    why: str
    #: Whether there is no skill of it for that reason.
    skipped: bool = True

    def __str__(self) -> str:
        at = "" if self.line is None else f":{self.line}"
        return f"{self.path}{at}: {self.why}{'; skipped' if self.skipped else ''}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"path": self.path, "line": self.line, "why": self.why, "skipped": self.skipped}


@dataclass(frozen=True, slots=True)
class Library:
    """Skills by name, each name once, in any case; and problems, in the order of the files."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __post_init__(self) -> None:
        ordered = sorted(self.skills, key=lambda skill: (same_name(skill.name), skill.name))
        for one, other in pairwise(ordered):
            if same_name(one.name) == same_name(other.name):
                raise InvalidSkill("name", f"{other.name} is that of two skills")
        object.__setattr__(self, "skills", tuple(ordered))
        object.__setattr__(self, "problems", tuple(self.problems))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the skills, sorted."""
        return tuple(skill.name for skill in self.skills)

    def activate(
        self, message: str, paths: Iterable[str | os.PathLike[str]] = (), *, most: int = MOST
    ) -> list[Activation]:
        """The skills that a message, and the paths of the files that are worked on, call up; best first.

        The rule stands in `branchmem.skills.activation`.
        Raises: TypeError for a path where a list of paths belongs.
        Cost: one search among the skills, and each keyword looked for in the message.
        """
        return activation.activate(self.skills, message, paths, most=most)

    def __len__(self) -> int:
        return len(self.skills)

    def __iter__(self) -> Iterator[Skill]:
        return iter(self.skills)

    def __getitem__(self, name: str) -> Skill:
        """The skill of this name, in any case.  Raises: UnknownSkill, a KeyError."""
        for skill in self.skills:
            if same_name(skill.name) == same_name(name):
                return skill
        raise UnknownSkill(name, self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(same_name(skill.name) == same_name(name) for skill in self.skills)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "skills": [skill.to_dict() for skill in self.skills],
            "problems": [problem.to_dict() for problem in self.problems],
        }


def load(*folders: str | os.PathLike[str]) -> Library:
    """The skills of these folders, or in these files.

    Of two skills with one name the first stays, by the order of the folders, then of the paths; the other is a problem.
    A folder that was read already, by a link or because it is given twice, is not read again.
    Raises: SkillsMissing for a folder that is not there; ExtraMissing.
    Cost: reads every file once, 256 KiB of it at most; nothing is kept open or watched.
    """
    parsing.require_yaml()
    found = _Found()
    for folder in map(Path, folders):
        if not folder.exists():
            raise SkillsMissing(str(folder))
        found.add(folder)
    return Library(tuple(found.skills.values()), tuple(found.problems))


class _Found:
    """What was found so far."""

    def __init__(self) -> None:
        self.skills: dict[str, Skill] = {}
        self.problems: list[Problem] = []
        self._seen: dict[tuple[int, int], Path] = {}

    def add(self, path: Path) -> None:
        """Take in a folder, or a file, that was given."""
        if not path.is_dir():
            self._read(path)
        elif _identity(path) not in self._seen:
            self._walk(path, 0)

    def _walk(self, folder: Path, depth: int) -> None:
        identity = _identity(folder)
        if identity in self._seen:
            self._problem(folder, None, f"leads to {self._seen[identity]}, which was read already")
            return
        self._seen[identity] = folder
        if os.path.lexists(folder / AGENT_SKILL):
            self._read(folder / AGENT_SKILL)
            return
        for path in sorted(folder.iterdir()):
            if path.name.startswith("."):
                continue
            try:
                is_folder = path.is_dir()
                if is_folder and depth == MAX_DEPTH:
                    self._problem(path, None, f"lies deeper than {MAX_DEPTH} folders: load it by itself")
                elif is_folder:
                    self._walk(path, depth + 1)
                elif depth == 0 and path.suffix.lower() == ".md":
                    self._read(path)
            except OSError as error:
                self._problem(path, None, error.strerror or str(error))

    def _read(self, path: Path) -> None:
        try:
            skill, lines = parsing.read(path)
        except InvalidSkill as error:
            self._problem(path, error.line, f"{error.field}: {error.why}")
            return
        except OSError as error:
            self._problem(path, None, error.strerror or str(error))
            return
        first = self.skills.setdefault(same_name(skill.name), skill)
        if first is not skill:
            if first.path is not None and not first.path.samefile(path):
                self._problem(path, lines.get("name", 1), f"name: {skill.name} is that of {first.path} already")
            return
        for field in (field for field in lines if field not in FIELDS):
            self._problem(path, lines[field], f"{field}: is no field of a skill, and not read", skipped=False)

    def _problem(self, path: Path, line: int | None, why: str, *, skipped: bool = True) -> None:
        self.problems.append(Problem(str(path), line, why, skipped))


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def same_name(name: str) -> str:
    """What the names have in common that are one but for case."""
    return unicodedata.normalize("NFKC", name).casefold()
