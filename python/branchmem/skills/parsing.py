"""One Markdown file with front matter as a skill, or the line that is wrong.

Front matter is YAML between two lines of `---`, at the top.  Of YAML it takes what a form needs: one mapping of text,
numbers and lists.  Aliases are refused, so that nothing can grow while it is read; so are tags, and a field that is
given twice.  PyYAML, with its safe loader, is imported when the first text is read.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from branchmem.errors import InvalidSkill
from branchmem.extra import extra
from branchmem.skills.skill import AGENT_SKILL, FIELDS, Skill, require_agent_skill

if TYPE_CHECKING:
    import yaml

MAX_FILE_BYTES: Final = 256 << 10
MAX_FRONT_CHARS: Final = 16 << 10
MAX_DEPTH: Final = 16

_WHOLE: Final = "front matter"
_RULE: Final = "---"
#: The first line of front matter, in a file whose lines are counted from 1.
_FIRST: Final = 2

_TAG: Final = "tag:yaml.org,2002:"
_NUMBERS: Final = {_TAG + "int", _TAG + "float"}
_PLAIN: Final = {_TAG + name for name in ("str", "null", "bool", "seq", "map")} | _NUMBERS


class Parsed(NamedTuple):
    """What stands in a file: a skill, and the line of each field, counted from 1, be it one of a skill or not."""

    skill: Skill
    lines: dict[str, int]


class _Front(NamedTuple):
    given: dict[str, object]
    lines: dict[str, int]
    body: str


class _Unquoted:
    """A scalar that YAML takes for something else than text or a number: shown as it is written."""

    def __init__(self, written: str) -> None:
        self._written = written

    def __repr__(self) -> str:
        return self._written


def require_yaml() -> None:
    """Raises: ExtraMissing where PyYAML is not installed."""
    with extra("yaml", wanted="skills", name="skills", package="PyYAML"):
        import yaml  # noqa: F401


def parse(text: str, *, name: str | None = None) -> Skill:
    """The skill that a Markdown text with front matter describes; `name` is for one that does not say its own.

    Raises: InvalidSkill, with the line; ExtraMissing.
    """
    require_yaml()
    return _parsed(_front_of(text), name, None).skill


def read(path: Path) -> Parsed:
    """The skill in a file: in SKILL.md an Agent Skill, in any other one that is named as it says, or else as the file.

    Raises: InvalidSkill, with the line; OSError; ExtraMissing.
    Cost: reads at most 256 KiB.
    """
    require_yaml()
    front = _front_of(_text_of(path))
    if path.name == AGENT_SKILL:
        found = _parsed(front, None, path.resolve().parent.name)
    else:
        found = _parsed(front, path.stem, None)
    return found._replace(skill=replace(found.skill, path=path))


def _parsed(front: _Front, name: str | None, folder: str | None) -> Parsed:
    """The skill that is described; `name` where it does not say its own, `folder` where an Agent Skill is wanted."""
    given = dict(front.given)
    if given.get("name") is None:
        given["name"] = name
    try:
        skill = Skill.from_front_matter(given, front.body)
        if folder is not None:
            require_agent_skill(skill, folder)
    except InvalidSkill as error:
        raise InvalidSkill(error.field, error.why, front.lines.get(error.field, 1)) from None
    return Parsed(skill, front.lines)


def _text_of(path: Path) -> str:
    # Without O_NONBLOCK, a pipe that nobody writes to would hold the reader.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InvalidSkill("file", "is no regular file")
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InvalidSkill("file", f"has more than {MAX_FILE_BYTES >> 10} KiB: move parts of it to files that it names")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSkill("file", "is not UTF-8", data.count(b"\n", 0, error.start) + 1) from None


def _front_of(text: str) -> _Front:
    """The fields and the body of a text.  Raises: InvalidSkill."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _RULE:
        raise InvalidSkill(_WHOLE, f"is missing: the first line must be {_RULE}, and below it its description", 1)
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == _RULE), None)
    if end is None:
        raise InvalidSkill(_WHOLE, f"has no end: a line of {_RULE} must follow it", 1)
    front = "\n".join(lines[1:end])
    if len(front) > MAX_FRONT_CHARS:
        raise InvalidSkill(_WHOLE, f"has more than {MAX_FRONT_CHARS >> 10} thousand characters", 1)
    given: dict[str, object] = {}
    at: dict[str, int] = {}
    for key, node in _pairs(_composed(front), _WHOLE):
        line = _line(node[0])
        if key in at:
            raise InvalidSkill(key, f"is given twice, first in line {at[key]}", line)
        at[key] = line
        if key in FIELDS:
            given[key] = _value(node[1], key)
    return _Front(given, at, "\n".join(lines[end + 1 :]))


def _composed(front: str) -> yaml.Node | None:
    """The nodes of front matter, None for an empty one.  Raises: InvalidSkill."""
    import yaml

    depth = 0
    try:
        for event in yaml.parse(front, Loader=yaml.SafeLoader):
            line = _line(event)
            if isinstance(event, yaml.AliasEvent):
                raise InvalidSkill(_WHOLE, f"has an alias, *{event.anchor}: write out what it stands for", line)
            tag = getattr(event, "tag", None)
            if tag not in (None, "!") and tag not in _PLAIN:
                raise InvalidSkill(_WHOLE, f"has a tag, {tag}: it takes text, numbers and lists", line)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise InvalidSkill(_WHOLE, f"is nested deeper than {MAX_DEPTH}", line)
        return yaml.compose(front, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = f"is not YAML: {error.problem or error.context}"
        if "mapping values" in why:
            why += " (a text with a colon in it needs quotes)"
        raise InvalidSkill(_WHOLE, why, 1 if mark is None else mark.line + _FIRST) from None
    except yaml.reader.ReaderError as error:
        raise InvalidSkill(
            _WHOLE, "has a character that YAML does not take", front.count("\n", 0, error.position) + _FIRST
        ) from None


def _pairs(node: yaml.Node | None, field: str) -> list[tuple[str, tuple[yaml.Node, yaml.Node]]]:
    import yaml

    if node is None:
        return []
    if not isinstance(node, yaml.MappingNode):
        raise InvalidSkill(field, "must be made of lines like `description: …`", _line(node))
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InvalidSkill(field, "has a name that is no text", _line(key))
    return [(key.value, (key, value)) for key, value in node.value]


def _value(node: yaml.Node, field: str) -> object:
    """What a field says; in `metadata`, whose values are texts, every scalar is one.  Raises: InvalidSkill."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return [_value(part, field) for part in node.value]
    if isinstance(node, yaml.MappingNode):
        pairs = _pairs(node, field)
        out: dict[str, Any] = {key: _value(value, field) for key, (_, value) in pairs}
        if len(out) < len(pairs):
            raise InvalidSkill(field, "names something twice", _line(node))
        return out
    written = str(node.value)
    if node.tag == _TAG + "str" or (field == "metadata" and node.tag != _TAG + "null"):
        return written
    if node.tag in _NUMBERS:
        try:
            number = yaml.SafeLoader("").construct_object(node)
            float(number)  # one beyond that could not even be shown
        except (ValueError, IndexError, OverflowError):  # `!!int ""` has no first digit
            return _Unquoted(written)
        return number
    return None if node.tag == _TAG + "null" else _Unquoted(written)


def _line(node: yaml.Node | yaml.Event) -> int:
    """Counted from 1, in the file."""
    return 1 if node.start_mark is None else int(node.start_mark.line) + _FIRST
