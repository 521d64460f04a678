"""A conversation as a map from keys to nodes, which ChatGPT and Open WebUI export, or as a list of them.

The key is the identity of a node, whatever its `id` says, and one field of it
names the parent.  A list of children ranks siblings, and gives a parent only to
a node that has no field for one.  What a node says is for the format to read.

A node whose parent cannot be read hangs below a parent that does not exist: it
is kept, and nothing below it is shown until an export says better.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from branchmem.canonical import NO_META
from branchmem.importers.entries import Entry, Repeated, Span, by_conversation, read_again
from branchmem.importers.files import Files
from branchmem.importers.records import Content, Leaf, LeafSource, Record, Report, Source, event_id, repaired

# Stands for a parent that cannot be read, in ids of messages that do not exist.
_UNREADABLE: Final = "?"
#: Where `keyed` finds links in a value.
PARENT: Final = "parent"
CHILDREN: Final = "children"
_UNRANKED: Final = 1 << 62
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Node:
    """One node of a conversation, read.

    `unlinked` where it has no field for a parent, `astray` where what stands there
    cannot be read, `suggested` where a list of children gives the parent.
    """

    key: str
    parent: str | None = None
    suggested: str | None = None
    unlinked: bool = False
    astray: bool = False
    order: int = _UNRANKED
    role: str | None = None
    text: str | None = None
    created: datetime | None = None
    readable: bool = True
    meta: Mapping[str, Any] = field(default_factory=lambda: NO_META)


class Chat(NamedTuple):
    """The nodes of an entry in the order of the file, and the key of the node where it stands."""

    nodes: Sequence[Node]
    leaf: str | None = None
    leaf_source: LeafSource = "declared"


class Export(NamedTuple):
    """What tells the exports of one tool from those of another.

    `looks_like` says whether an entry has messages, `ids` what may name its
    conversation, best first, and `chat` reads it.
    """

    tool: str
    expected: str
    looks_like: Callable[[Any], bool]
    ids: Callable[[dict[str, Any]], Iterable[object]]
    chat: Callable[[dict[str, Any], Report], Chat]


class Conversation(Source):
    """The entries of a file that tell of one conversation; of several leaves the last one counts."""

    def __init__(
        self,
        files: Files,
        spans: Sequence[Span],
        tool: str,
        name: str,
        chat: Callable[[Any, Report], Chat],
        report: Report,
    ) -> None:
        self.path = files.path
        self.leaves: dict[str, Leaf] = {}
        self._files = files
        self._spans = spans
        self._tool = tool
        self._name = name
        self._chat = chat
        self._report = report
        self._nodes: list[Node] = []

    def records(self) -> Iterator[Record]:
        root = self._id()
        for span in self._spans:
            entry = read_again(self._files.shown(span.number), self._files.file(span.number), span)
            chat = self._chat(entry, self._report)
            for node in chat.nodes:
                yield self._record(root, node, len(self._nodes))
                self._nodes.append(node)
            if chat.leaf is not None:
                self.leaves[root] = Leaf(self._id(chat.leaf), chat.leaf_source)

    def content(self, place: int) -> Content:
        node = self._nodes[place]
        return Content(node.role, node.text, node.created, node.meta)

    def _record(self, root: str, node: Node, place: int) -> Record:
        parent = f"{_UNREADABLE}:{node.key}" if node.astray else node.parent
        return Record(
            conversation=root,
            id=self._id(node.key),
            parent=None if parent is None else self._id(parent),
            logical_parent=None if node.suggested is None else self._id(node.suggested),
            order=node.order,
            role=node.role,
            text=node.text,
            created=node.created,
            meta=node.meta,
            usable=not node.unlinked and not node.astray,
            place=place,
        )

    def _id(self, *key: str) -> str:
        return event_id(self._tool, self._name, *key)


def conversations(files: Files, found: Iterable[Entry], export: Export, report: Report) -> Iterator[Source]:
    """The conversations of some files, once all entries have been found; each let go of when it is given out.

    What cannot be read is counted in `report.unknown_types`.  Raises: ImportFailed.
    """

    def name(entry: Any) -> str | None:
        if not export.looks_like(entry):
            return None
        return _named(export.ids(entry), lambda: export.chat(entry, Report()).nodes, report)

    spans = by_conversation(files.path, found, export.expected, name, report)
    return (Conversation(files, spans.pop(name), export.tool, name, export.chat, report) for name in list(spans))


def nodes(
    mapping: Mapping[str, Any],
    say: Callable[[Node, dict[str, Any]], None],
    report: Report,
    *,
    parent: str,
    children: str,
) -> list[Node]:
    """The nodes of a map in the order of the file; each that is not quite readable is counted once.

    `parent` and `children` are the fields for links; `say` reads into a node what its value says.
    """
    pairs = mapping.pairs if isinstance(mapping, Repeated) else mapping.items()
    found: list[Node] = []
    ranks: dict[tuple[str, str], int] = {}
    for key, value in pairs:
        whole, count = repaired(key)
        report.replaced += count
        node = Node(whole)
        if isinstance(value, dict):
            _read_parent(node, value, parent)
            _rank_children(node, value.get(children), ranks)
            say(node, value)
        else:
            node.unlinked, node.astray, node.readable = True, True, False
        found.append(node)
    _suggest_parents(found, ranks)
    for node in found:
        above = node.suggested if node.parent is None else node.parent
        if above is not None:
            node.order = ranks.get((above, node.key), _UNRANKED)
        report.unknown_types += not node.readable
    return found


def keyed(
    listed: Iterable[tuple[object, Any]], say: Callable[[Node, dict[str, Any]], None], report: Report
) -> list[Node]:
    """The nodes of a list, each an id and its value, in the order of the list.

    Links stand under `parent` and `children`.  What has no id goes by `?` and its position, which no id of a tool
    is, and is counted, as is what is no object: it is left out.
    """
    pairs: list[tuple[str, Any]] = []
    nameless: set[str] = set()
    for position, (id, value) in enumerate(listed):
        if not isinstance(value, dict):
            report.unknown_types += 1
            continue
        key = id if isinstance(id, str) and id else f"{_UNREADABLE}{position}"
        if key is not id:
            nameless.add(key)
        pairs.append((key, value))

    def say_it(node: Node, value: dict[str, Any]) -> None:
        node.readable = node.readable and node.key not in nameless
        say(node, value)

    return nodes(Repeated(pairs), say_it, report, parent=PARENT, children=CHILDREN)


def _named(given: Iterable[object], nodes: Callable[[], Iterable[Node]], report: Report) -> str:
    """The name of a conversation: the first id that is given, else that which its top nodes give it."""
    for id in given:
        if isinstance(id, str) and id:
            whole, count = repaired(id)
            report.replaced += count
            return whole
    found = list(nodes())
    keys = {node.key for node in found}
    return named_after(node for node in found if node.suggested is None and node.parent not in keys)


def named_after(tops: Iterable[Node]) -> str:
    """The name of a conversation that these nodes begin: `~` and a hash of their key, role and text, by key."""
    form = json.dumps(sorted([node.key, node.role or "", node.text or ""] for node in tops))
    return "~" + hashlib.sha256(form.encode()).hexdigest()[:16]


def joined(value: Any) -> tuple[str, bool]:
    """A string as it is, a list of parts a line each; and whether all of it could be read."""
    if value is None or isinstance(value, str):
        return value or "", True
    if not isinstance(value, list):
        return "", False
    texts = [part.get("text") if isinstance(part, dict) else part for part in value]
    known = all(part is None or isinstance(part, (str, dict)) for part in value)
    return "\n".join(text for text in texts if isinstance(text, str) and text), known


def time(value: Any) -> datetime | None:
    """Seconds since 1970 as a time; None for whatever is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return _EPOCH + timedelta(seconds=value)
    except (OverflowError, ValueError):  # beyond the calendar, or not a number
        return None


def _read_parent(node: Node, value: dict[str, Any], name: str) -> None:
    parent = value.get(name)
    if name not in value:
        node.unlinked = True
    elif isinstance(parent, str):
        node.parent = repaired(parent)[0]
    elif type(parent) is int:
        node.parent, node.readable = str(parent), False
    elif parent is not None:
        node.astray, node.readable = True, False


def _rank_children(node: Node, children: Any, ranks: dict[tuple[str, str], int]) -> None:
    if isinstance(children, list):
        for rank, child in enumerate(children):
            if isinstance(child, str):
                ranks.setdefault((node.key, repaired(child)[0]), rank)
            else:
                node.readable = False
    elif children is not None:
        node.readable = False


def _suggest_parents(nodes: Iterable[Node], ranks: Iterable[tuple[str, str]]) -> None:
    """Give each node without a field for its parent the one other node that lists it as a child.

    Listed by nobody it is a root; listed by several, its parent cannot be known.
    Either way of being listed is a fault of the file, and counted as such.
    """
    unlinked = {node.key: node for node in nodes if node.unlinked}
    if not unlinked:
        return
    listers: dict[str, list[str]] = {}
    for lister, child in ranks:
        if child in unlinked and lister != child:
            listers.setdefault(child, []).append(lister)
    for key, found in listers.items():
        node = unlinked[key]
        node.readable = False
        node.astray = len(found) > 1
        node.suggested = None if node.astray else found[0]
