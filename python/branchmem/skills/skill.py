"""A skill: its name, when to use it, how it is done; and what its fields may hold.

A skill that exists is sound: whoever makes one, of a file, of a memory or by hand, gets InvalidSkill with the field at
fault.
Names and lengths that only folders of Agent Skills must keep to stand apart, in `require_agent_skill`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from branchmem import canonical
from branchmem.canonical import NO_META, thaw
from branchmem.errors import InvalidEvent, InvalidSkill
from branchmem.skills import globs

#: The file that makes a folder an Agent Skill.
AGENT_SKILL: Final = "SKILL.md"
MAX_NAME_CHARS: Final = 64
MAX_DESCRIPTION_CHARS: Final = 1024
MAX_COMPATIBILITY_CHARS: Final = 500

_LISTS: Final = ("glob_patterns", "trigger_keywords", "tools_allowed", "tags")
# Commas and white space stand between tools, but not inside of what a tool is allowed: Bash(git add:*)
_TOOL: Final = re.compile(r"(?:[^\s,(]|\([^()]*\)|\()+")


@dataclass(frozen=True, slots=True)
class Skill:
    """What an agent knows how to do.  Equal by what it says, wherever it was read."""

    name: str
    #: What it does and when to use it.
    description: str
    #: How it is done, in Markdown.
    body: str = ""
    #: Paths of the files that it is about: `branchmem.skills.globs`.
    glob_patterns: tuple[str, ...] = ()
    #: Words that ask for it: `branchmem.skills.keywords`.
    trigger_keywords: tuple[str, ...] = ()
    #: Names of tools that may be used for it; empty where nothing is said about tools.
    tools_allowed: tuple[str, ...] = ()
    #: From 0 to 1.
    importance: float = 1.0
    tags: tuple[str, ...] = ()
    license: str | None = None
    #: What it needs to be used.
    compatibility: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: NO_META, hash=False)
    #: The file that it was read from.
    path: Path | None = field(default=None, compare=False)
    #: The id of the memory that it was read from.
    memory: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "name": _name(self.name),
            "description": _text(self.description, "description"),
            "body": _text(self.body, "body", empty=True),
            "metadata": _metadata(self.metadata),
            "importance": _importance(self.importance),
        }
        for name in _LISTS:
            checked[name] = _listed(getattr(self, name), name)
        for name in ("license", "compatibility"):
            value = getattr(self, name)
            checked[name] = None if value is None else _text(value, name)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        for glob in self.glob_patterns:
            try:
                globs.compiled(glob)
            except ValueError as error:
                raise InvalidSkill("glob_patterns", f"{glob!r:.60} {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return Skill, tuple(thaw(getattr(self, slot.name)) for slot in fields(self))

    @property
    def text(self) -> str:
        """The description, and the body below it."""
        return f"{self.description}\n\n{self.body}" if self.body else self.description

    @property
    def folder(self) -> Path | None:
        """The folder of an Agent Skill, where what its body names is kept; None for any other."""
        return self.path.parent if self.path is not None and self.path.name == AGENT_SKILL else None

    def front_matter(self) -> dict[str, Any]:
        """What a file says of it above its body, by the names of the fields; those at their default are left out."""
        return {name: value for name, value in self.to_dict().items() if name in FIELDS}

    def to_dict(self) -> dict[str, Any]:
        """All of it, JSON-ready; fields at their default are left out."""
        out = {slot.name: getattr(self, slot.name) for slot in fields(self)}
        out["path"] = None if self.path is None else str(self.path)
        defaults = {slot.name: slot.default for slot in fields(self)} | {"metadata": NO_META}
        return {name: thaw(value) for name, value in out.items() if value != defaults[name]}

    @classmethod
    def from_front_matter(cls, given: Mapping[str, object], body: str) -> Skill:
        """The skill that front matter and a body describe; what is None there, or no field of a skill, is as if absent.

        `allowed-tools` is what Agent Skills call `tools_allowed`: a list, or a text with the names one after the other.
        Raises: InvalidSkill.
        """
        said = {name: value for name, value in given.items() if name in FIELDS and value is not None}
        if "allowed-tools" in said:
            if "tools_allowed" in said:
                raise InvalidSkill("allowed-tools", "is the same as tools_allowed: give one of them")
            tools = said.pop("allowed-tools")
            said["tools_allowed"] = tuple(_TOOL.findall(tools)) if isinstance(tools, str) else tools
        for name in ("name", "description"):
            if name not in said:
                raise InvalidSkill(name, "is missing")
        return cls(**said, body=body)  # type: ignore[arg-type]  # it checks them itself


#: The fields that front matter may have.
FIELDS: Final = {slot.name for slot in fields(Skill)} - {"body", "path", "memory"} | {"allowed-tools"}


def require_agent_skill(skill: Skill, folder: str) -> None:
    """Refuse what a folder of this name must not hold as an Agent Skill.

    Raises: InvalidSkill.
    Source: the specification of Agent Skills, agentskills.io.
    """
    name = unicodedata.normalize("NFKC", skill.name)
    if not all(char.isalnum() or char == "-" for char in name) or name != name.lower():
        raise InvalidSkill("name", f"{skill.name} may have lower case letters, digits and hyphens only")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        raise InvalidSkill("name", f"{skill.name} may have single hyphens only, between letters or digits")
    if name != unicodedata.normalize("NFKC", folder):
        raise InvalidSkill("name", f"{skill.name} is not that of its folder, {folder}: rename one of them")
    for field_, most in (("description", MAX_DESCRIPTION_CHARS), ("compatibility", MAX_COMPATIBILITY_CHARS)):
        chars = len(getattr(skill, field_) or "")
        if chars > most:
            raise InvalidSkill(field_, f"has {chars} characters, more than {most}: say the rest in the body")


def _text(value: object, name: str, *, empty: bool = False) -> str:
    if not isinstance(value, str):
        raise InvalidSkill(name, f"must be text, not {value!r:.60}: put it in quotes")
    text = value.strip() if name != "body" else value.strip("\n").rstrip()
    if not text and not empty:
        raise InvalidSkill(name, "is empty")
    try:
        canonical.text(text, name)
    except InvalidEvent as error:
        raise InvalidSkill(name, str(error).removeprefix(f"{name} ")) from None
    return text


def _name(value: object) -> str:
    name = _text(value, "name")
    if len(name) > MAX_NAME_CHARS:
        raise InvalidSkill("name", f"has {len(name)} characters, more than {MAX_NAME_CHARS}")
    if not name.isprintable():
        raise InvalidSkill("name", f"{name!r} has a character that cannot be printed")
    return name


def _listed(value: object, name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidSkill(name, f"is a list: write [{value!r:.60}]")
    if not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping)):
        raise InvalidSkill(name, f"is a list of texts, not {value!r:.60}")
    return tuple(dict.fromkeys(_text(part, name) for part in value))


def _importance(value: object) -> float:
    try:
        return canonical.importance(value)
    except InvalidEvent as error:
        raise InvalidSkill("importance", str(error).removeprefix("importance ")) from None


def _metadata(value: object) -> Mapping[str, Any]:
    try:
        return canonical.meta(value)
    except InvalidEvent as error:
        raise InvalidSkill("metadata", str(error).replace("meta", "it", 1)) from None
