"""What is wrong with a skill, or with the place where one is looked for."""

from __future__ import annotations

from branchmem.errors.base import Error, UnknownName, short


class InvalidSkill(Error, ValueError):
    """A field of a skill, or the file that it stands in, cannot be used: `why`.  `line` is counted from 1."""

    def __init__(self, field: str, why: str, line: int | None = None) -> None:
        super().__init__(field, why, line)
        self.field = field
        self.why = why
        self.line = line

    def explanation(self) -> str:
        at = "" if self.line is None else f"line {self.line}: "
        return f"{at}{self.field}: {self.why}"


class UnknownSkill(UnknownName, KeyError):
    """No skill of a library has this name; `names` are those that it has."""

    def explanation(self) -> str:
        here = ", ".join(self.names) or "none at all"
        return f"no skill {short(self.name)} in this library, which has {here}: look at its problems"


class SkillsMissing(Error, LookupError):
    """There is neither a folder of skills nor a file of one at `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def explanation(self) -> str:
        return f"no folder and no file at {self.path}: name the folder that holds the skills"
