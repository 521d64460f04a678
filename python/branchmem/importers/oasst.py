"""OpenAssistant exports: lines that are message trees, threads, or single messages, in any order.

    a line with                     holds
    `message_id`                    a message, and below it what is in its `replies`
    `message_tree_id`, `prompt`     a prompt, and below it what is in its `replies`
    `thread_id`, `thread`           messages that each continue the one before

`parent_id` is the parent; only where a message names none, the one that it stands
below is.  A message is the same wherever it stands, so that its id is
`oasst:<message_id>`, and its conversation `oasst:tree:<message_id of the prompt>`.
Prompters are users.  A message that was deleted keeps its place and its text, and
is marked `deleted`.  Labels, reviews and emojis change from export to export and
stay out; `rank` orders siblings.  No export says where anybody stands.

A message without a `message_id` is counted; what is in its replies hangs below
nothing known, so that it stays hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from branchmem.importers import deep_json, json_lines
from branchmem.importers.files import Files
from branchmem.importers.line_source import LineSource, named
from branchmem.importers.records import Content, Record, Report, Source, event_id, iso_time

TOOL: Final = "oasst"
EXPECTED: Final = (
    "OpenAssistant messages, lines of JSON that each have a `message_id`, `message_tree_id` or `thread_id`"
)

# Stands for a parent that cannot be read, in ids of messages that do not exist.
_UNREADABLE: Final = "?"
_UNRANKED: Final = 1 << 62
# With fewer replies in each other a line is not too deep for the parser of the standard library.
_DEEP: Final = 100
_ROLES: Final = {"prompter": "user", "assistant": "assistant"}


class _Node(NamedTuple):
    """A message as it stands on a line; `astray` where its parent cannot be read, or is not the one above it."""

    id: str
    parent: str | None
    astray: bool
    form: dict[str, Any]


def looks_like(lines: Sequence[bytes]) -> bool:
    """Whether a message, a tree or a thread is among the first lines."""
    for line in lines:
        forms = [*json_lines.objects([line])]
        if any(map(_is_told, forms)) or (not forms and b'"message_tree_id"' in line and b'"replies"' in line):
            return True
    return False


def _is_told(form: dict[str, Any]) -> bool:
    if named(form.get("message_id")) is not None:
        return "text" in form and "role" in form
    if named(form.get("message_tree_id")) is not None:
        return isinstance(form.get("prompt"), dict)
    return named(form.get("thread_id")) is not None and isinstance(form.get("thread"), list)


def sources(files: Files, report: Report) -> Iterator[Source]:
    """All files as one source, since a message of one may continue one of another."""
    yield _Messages(files, report)


class _Messages(LineSource):
    """The messages of several files."""

    def __init__(self, files: Files, report: Report) -> None:
        super().__init__(files, report, EXPECTED)
        # by message the parent that it names; filled where single messages are met, whose top another line holds
        self._above: dict[str, str] = {}

    def records(self) -> Iterator[Record]:
        if any(self._has_scattered(number) for number in range(len(self.files))):
            for number in range(len(self.files)):
                for _, form in self.forms(number, count=False):
                    for node in _nodes(form, Report()):
                        if node.parent is not None:
                            self._above.setdefault(node.id, node.parent)
        yield from super().records()

    def records_of(self, number: int) -> Iterator[Record]:
        for line, form in self.forms(number):
            nodes = _nodes(form, self.report)
            tops: dict[str, str] = {}
            for position, node in enumerate(nodes):
                above = node.parent
                top = node.id if above is None else tops.get(above, above)
                tops[node.id] = top
                content, known = _said(node.form)
                self.report.unknown_types += not known or node.astray
                rank = node.form.get("rank")
                yield Record(
                    conversation=event_id(TOOL, "tree", self._top(top)),
                    id=event_id(TOOL, node.id),
                    parent=None if above is None else event_id(TOOL, above),
                    order=rank if type(rank) is int and abs(rank) < _UNRANKED else _UNRANKED,
                    role=content.role,
                    text=content.text,
                    created=content.created,
                    usable=not node.astray,
                    meta=content.meta,
                    place=self.place(line, position),
                )

    def pieces(self, number: int, form: dict[str, Any]) -> Sequence[Content]:
        return [_said(node.form)[0] for node in _nodes(form, Report())]

    def parsed(self, line: bytes) -> dict[str, Any]:
        try:
            return json_lines.parsed(line)
        except ValueError:
            if len(line) > json_lines.LONGEST_LINE or line.count(b'"replies"') < _DEEP:
                raise
            try:
                form = deep_json.loads(line.removeprefix(json_lines.BOM).decode())
            except ValueError:
                form = None
            if not isinstance(form, dict):
                raise
            return form

    def _has_scattered(self, number: int) -> bool:
        """Whether a file holds a message that names a parent outside of its line."""
        for _, form in self.forms(number, count=False):
            nodes = _nodes(form, Report())
            if nodes and nodes[0].parent is not None:
                return True
        return False

    def _top(self, id: str) -> str:
        """The message at which climbing from one ends, be it here or only named; one of them where it does not end."""
        above = self._above
        way: list[str] = []
        seen: set[str] = set()
        while id in above and id not in seen:
            seen.add(id)
            way.append(id)
            id = above[id]
        if id in seen:
            del above[id]
        above.update((each, id) for each in way if each != id)
        return id


def _nodes(form: dict[str, Any], report: Report) -> list[_Node]:
    """The messages of a line, each after the one that it stands below; what is none is counted."""
    found: list[_Node] = []
    waiting: list[tuple[Any, str | None]] = []
    if "message_id" in form:
        waiting.append((form, None))
    elif "message_tree_id" in form:
        waiting.append((form.get("prompt"), None))
    elif isinstance(form.get("thread"), list):
        above: str | None = None
        for each in form["thread"]:
            node = _node(each, above, report)
            if node is not None:
                found.append(node)
            above = f"{_UNREADABLE}:{above}" if node is None else node.id
        return found
    else:
        report.unknown_types += 1
    while waiting:
        each, above = waiting.pop()
        node = _node(each, above, report)
        if node is not None:
            found.append(node)
        replies = each.get("replies") if isinstance(each, dict) else None
        if isinstance(replies, list):
            below = f"{_UNREADABLE}:{above}" if node is None else node.id
            waiting.extend((reply, below) for reply in reversed(replies))
    return found


def _node(form: Any, above: str | None, report: Report) -> _Node | None:
    id = named(form.get("message_id")) if isinstance(form, dict) else None
    if id is None:
        report.unknown_types += 1
        return None
    own = form.get("parent_id")
    if own is None:
        return _Node(id, above, False, form)
    parent = named(own)
    if parent is None:
        return _Node(id, f"{_UNREADABLE}:{id}", True, form)
    return _Node(id, parent, above not in (None, parent), form)


def _said(form: dict[str, Any]) -> tuple[Content, bool]:
    """What a message says, and whether all of it could be read."""
    text, role = form.get("text"), named(form.get("role"))
    known = isinstance(text, str) and role in _ROLES
    role = _ROLES.get(role, role) if role is not None else None
    meta = {"deleted": True} if form.get("deleted") is True else {}
    return Content(role, text if isinstance(text, str) else "", iso_time(form.get("created_date")), meta), known
