"""From neutral records to events: the linker that all formats share.

A format module turns its file into records; the linker finds the parents,
gives every conversation a root of its own, and says which events the log does
not have yet.  Its one rule: every record becomes a message, nothing is
repaired silently, everything is counted.  Where an ancestor is uncertain the
message stays detached, so that what came from it stays hidden.

It opens no store: `stored` answers from an id to the event that bears it, or
None.  It never recurses: a chain of a million records is a chain like others.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from branchmem.errors import InvalidEvent
from branchmem.events import Event, Legacy, Message

Stored = Callable[[str], Event | None]
LeafSource = Literal["declared", "last_line", "heuristic", "none"]
LeafChoice = Literal["declared", "heuristic"]

# Part of how ids are formed, for good: another number would give known messages new ids.
LONGEST_ID_BYTES: Final = 256
SHOWN_BAD_LINES: Final = 20

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Record:
    """One node of a file, in the words of no format; ids are event ids.

    `parent` is the parent that the node names, None where it names none.
    `logical_parent` is what it follows by other evidence: taken where `parent`
    is None, it is known, and it closes no circle.  `order` ranks siblings;
    equal ranks keep the order of the file.  `usable` says that one could stand
    here: the node has a role and says what it continues.
    """

    conversation: str
    id: str
    parent: str | None
    logical_parent: str | None = None
    order: int = 0
    role: str | None = None
    text: str | None = None
    created: datetime | None = None
    usable: bool = True


class Leaf(NamedTuple):
    """Where a conversation stands, and who says so."""

    leaf: str | None
    leaf_source: LeafSource


NO_LEAF: Final = Leaf(None, "none")


class BadLine(NamedTuple):
    """A line that could not be read: the byte at which it begins, and why."""

    offset: int
    why: str


@dataclass(slots=True)
class Report:
    """What a file holds, counted.

    messages       messages that the file holds, the synthetic roots left out
    added          events that the log did not have, the synthetic roots left out
    conversations  roots that messages hang under
    forks          messages with more than one child
    leaves         messages without children
    roots          messages directly under the root of a conversation
    dangling       messages whose parent is neither in the file nor in the log
    cycles         circles of parents met
    duplicates     copies that stand for a message counted already, or for a stored one better linked
    edited         messages whose id is taken by other content: stored, or earlier in the file
    bad_lines      lines that could not be read; `bad` shows the first of them
    unknown_types  entries without messages, nodes not quite readable, content of no known type
    replaced       lone surrogates that became U+FFFD
    too_long       texts over the limit, left out
    """

    messages: int = 0
    added: int = 0
    conversations: int = 0
    forks: int = 0
    leaves: int = 0
    roots: int = 0
    dangling: int = 0
    cycles: int = 0
    duplicates: int = 0
    edited: int = 0
    bad_lines: int = 0
    unknown_types: int = 0
    replaced: int = 0
    too_long: int = 0
    current: dict[str, Leaf] = field(default_factory=dict)
    bad: list[BadLine] = field(default_factory=list)

    def counters(self) -> dict[str, int]:
        """The counters by name."""
        return {name: getattr(self, name) for name in _COUNTERS}

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form: the counters, a leaf for each conversation (by its root), the bad lines shown."""
        return {
            **self.counters(),
            "current": {root: leaf._asdict() for root, leaf in self.current.items()},
            "bad": [line._asdict() for line in self.bad],
        }

    def bad_line(self, offset: int, why: str) -> None:
        """Count a line that could not be read."""
        self.bad_lines += 1
        if len(self.bad) < SHOWN_BAD_LINES:
            self.bad.append(BadLine(offset, why))


_COUNTERS: Final = tuple(slot.name for slot in fields(Report) if slot.type == "int")


def repaired(text: str) -> tuple[str, int]:
    """`text` with U+FFFD for each lone surrogate, and how many there were."""
    return (text, 0) if text.isascii() else _SURROGATES.subn("\ufffd", text)


def event_id(*parts: str) -> str:
    """The parts joined by colons; over 256 bytes, `~` and the SHA-256 of the whole."""
    whole = repaired(":".join(parts))[0].encode()
    if len(whole) <= LONGEST_ID_BYTES:
        return whole.decode()
    return "~" + hashlib.sha256(whole).hexdigest()


def link(
    records: Iterable[Record],
    leaves: Mapping[str, Leaf],
    *,
    stored: Stored,
    report: Report,
    leaf: LeafChoice = "declared",
) -> list[Event]:
    """The events that the log lacks, parents first and detached ones last; `report` is filled.

    A record whose id is taken by other content becomes a sibling version,
    `<id>~<8 hex digits>`, and what the file has below it hangs below that.
    A leaf that nobody could stand on is none, unless `leaf` asks for the newest.

    Cost: O(records), one or two questions to `stored` a record.
    """
    nodes = _nodes(records, report)
    newest = {nodes[i].id: i for i in sorted(range(len(nodes)), key=lambda i: nodes[i].last)}
    above = _above(nodes, newest, stored)
    report.cycles += _open_circles(nodes, above)
    below = _below(nodes, above)

    new: dict[str, Message] = {}
    names = [""] * len(nodes)
    parents: dict[str, str | Legacy | None] = {}

    def held(id: str) -> Event | None:
        return new.get(id) or stored(id)

    def settle(starts: Iterable[int], top: str | None) -> None:
        for i in _walk(starts, below):
            node = nodes[i]
            parent = names[above[i]] if above[i] >= 0 else top or node.parent
            message = Message(node.id, parent, role=node.role, text=node.text, created=node.created)
            event = _settled(message, new, held, report, first=node.first, linked=node.linked)
            names[i], parents[event.id] = event.id, event.parent

    tops, elsewhere, dangling, circled = _starts(nodes, above, newest, stored)
    report.dangling += len(dangling)
    roots = {}
    for conversation, starts in tops.items():
        root = Message(conversation, None, role="thread")
        roots[conversation] = _settled(root, new, held, report, first=True, linked=True).id
        settle(starts, roots[conversation])
    settle([*elsewhere, *dangling, *circled], None)

    report.conversations += len(roots)
    report.added += len(new) - len(new.keys() & roots.values())
    tally(parents, set(roots.values()), report)
    heuristic = {}
    if leaf == "heuristic":
        known: dict[str, bool] = {}
        for i in _newest_standing(nodes, above):
            if nodes[i].conversation not in heuristic and _attached(names[i], held, known):
                heuristic[nodes[i].conversation] = Leaf(names[i], "heuristic")
    for conversation, root_id in roots.items():
        declared = leaves.get(conversation, NO_LEAF)
        at = -1 if declared.leaf is None else newest.get(declared.leaf, -1)
        if at >= 0 and nodes[at].usable:
            report.current[root_id] = Leaf(names[at], declared.leaf_source)
        else:
            report.current[root_id] = heuristic.get(conversation, NO_LEAF)
    return list(new.values())


def tally(parents: Mapping[str, str | Legacy | None], roots: Collection[str], report: Report) -> None:
    """Count messages, forks, leaves and roots of the messages in `parents` (id to parent)."""
    children = Counter(parent for parent in parents.values() if parent in parents)
    report.messages += len(parents)
    report.forks += sum(count > 1 for count in children.values())
    report.leaves += len(parents) - len(children)
    report.roots += sum(parent in roots for parent in parents.values())


def circles(above: Sequence[int]) -> Iterator[list[int]]:
    """The circles of a forest that went wrong: `above[i]` is the parent of i, or negative.  O(n)."""
    seen = [0] * len(above)
    for start in range(len(above)):
        i = start
        while i >= 0 and not seen[i]:
            seen[i] = start + 1
            i = above[i]
        if i >= 0 and seen[i] == start + 1:
            circle = [i]
            while (i := above[i]) != circle[0]:
                circle.append(i)
            yield circle


@dataclass(slots=True)
class _Node:
    """One content that a file has under an id: the copies that do not differ, taken together.

    `linked` where it names a parent or a logical one, though that may be dropped;
    `logical` where it names only a logical one; `first` where no earlier content
    of the file has the id; `last` is the position of the last copy.
    """

    id: str
    conversation: str
    parent: str | None
    linked: bool
    logical: bool
    order: int
    role: str | None
    text: str | None
    created: datetime | None
    first: bool
    last: int = 0
    usable: bool = False


def _nodes(records: Iterable[Record], report: Report) -> list[_Node]:
    """The distinct contents of the file, each where it first stands.

    Of copies that differ in their link alone, the linked one wins, whatever the order.
    """
    nodes: list[_Node] = []
    ids: set[str] = set()
    copies: dict[tuple[object, ...], dict[str | None, _Node]] = {}
    for position, record in enumerate(records):
        content = _content(record, report)
        parent = record.logical_parent if record.parent is None else record.parent
        logical = record.parent is None and parent is not None
        same = copies.setdefault((record.id, *content), {})
        if parent is None and same:
            node = next(iter(same.values()))
            report.duplicates += 1
        elif parent in same:
            node = same[parent]
            node.logical = node.logical and logical
            report.duplicates += 1
        elif None in same:
            node = same[parent] = same.pop(None)
            node.conversation, node.parent = record.conversation, parent
            node.linked, node.logical, node.order = True, logical, record.order
            report.duplicates += 1
        else:
            first = record.id not in ids
            ids.add(record.id)
            linked = parent is not None
            node = _Node(record.id, record.conversation, parent, linked, logical, record.order, *content, first=first)
            same[parent] = node
            nodes.append(node)
        node.last = position
        node.usable = node.usable or (record.usable and node.role is not None)
    return nodes


def _content(record: Record, report: Report) -> tuple[str | None, str | None, datetime | None]:
    role, text, created = record.role, record.text, record.created
    if role is not None:
        role, count = repaired(role)
        report.replaced += count
    if text is not None:
        text, count = repaired(text)
        report.replaced += count
    if not _fits(role=role, text=text, created=created):
        if not _fits(role=role):
            role = None
            report.unknown_types += 1
        if not _fits(text=text):
            text = None
            report.too_long += 1
        if not _fits(created=created):
            created = None
    return role, text, created


def _fits(**content: Any) -> bool:
    """Whether a message may hold this content."""
    try:
        Message("~", None, **content)
    except InvalidEvent:
        return False
    return True


def _above(nodes: Sequence[_Node], newest: Mapping[str, int], stored: Stored) -> list[int]:
    """For each node the index of its parent, -1 where the file has none.  A logical parent nobody knows is none."""
    above = []
    for node in nodes:
        at = -1 if node.parent is None else newest.get(node.parent, -1)
        if at < 0 and node.logical and node.parent is not None and not isinstance(stored(node.parent), Message):
            node.parent = None
        above.append(at)
    return above


def _open_circles(nodes: Sequence[_Node], above: list[int]) -> int:
    """Make every circle a chain that can be walked, and return how many there were.

    A link to a logical parent is dropped.  Where there is none, the node that
    comes last in the file keeps the parent it names, under its plain id.
    """
    found = list(circles(above))
    for circle in found:
        logical = [i for i in circle if nodes[i].logical]
        last = max(logical or circle, key=lambda i: nodes[i].last)
        above[last] = -1
        if logical:
            nodes[last].parent = None
    return len(found)


def _below(nodes: Sequence[_Node], above: Sequence[int]) -> list[list[int]]:
    below: list[list[int]] = [[] for _ in nodes]
    for i in sorted(range(len(nodes)), key=lambda i: nodes[i].order):
        if above[i] >= 0:
            below[above[i]].append(i)
    return below


def _starts(
    nodes: Sequence[_Node], above: Sequence[int], newest: Mapping[str, int], stored: Stored
) -> tuple[dict[str, list[int]], list[int], list[int], list[int]]:
    """Where walks begin: tops by conversation, below stored messages, below missing ones, in circles."""
    tops: dict[str, list[int]] = {}
    elsewhere: list[int] = []
    dangling: list[int] = []
    circled: list[int] = []
    for i, node in enumerate(nodes):
        starts = tops.setdefault(node.conversation, [])
        if above[i] >= 0:
            continue
        if node.parent is None:
            starts.append(i)
        elif node.parent in newest:
            circled.append(i)
        elif isinstance(stored(node.parent), Message):
            elsewhere.append(i)
        else:
            dangling.append(i)
    return tops, elsewhere, dangling, circled


def _walk(starts: Iterable[int], below: Sequence[Sequence[int]]) -> Iterator[int]:
    """All nodes at and below `starts`, each after the one above it, branch by branch."""
    stack = list(starts)[::-1]
    while stack:
        i = stack.pop()
        yield i
        stack.extend(reversed(below[i]))


def _settled(
    message: Message, new: dict[str, Message], held: Stored, report: Report, *, first: bool, linked: bool
) -> Message:
    """The event that stands for `message`: held already, or put into `new`; a version where its id is taken.

    An unlinked copy of a stored message is a duplicate of it.
    """
    plain = message.id
    while True:
        event = held(message.id)
        if event is None and (first or message.id != plain):
            new[message.id] = message
            return message
        if isinstance(event, Message):
            if event == message:
                return event
            if message.id == plain and not linked and event.body() == message.body():
                report.duplicates += 1
                return event
        report.edited += message.id == plain
        digest = hashlib.sha256(message.skeleton() + message.body()).hexdigest()
        name = event_id(f"{message.id}~{digest[:8]}")
        message = Message(name, message.parent, role=message.role, text=message.text, created=message.created)


def _newest_standing(nodes: Sequence[_Node], above: Sequence[int]) -> Iterator[int]:
    """The nodes that are usable and have nothing usable below them, the newest first."""
    inner = {above[i] for i, node in enumerate(nodes) if node.usable}
    found = (i for i, node in enumerate(nodes) if node.usable and i not in inner)
    return iter(sorted(found, key=lambda i: (_seconds(nodes[i].created), nodes[i].last), reverse=True))


def _seconds(created: datetime | None) -> float:
    return float("-inf") if created is None else created.timestamp()


def _attached(id: str, held: Stored, known: dict[str, bool]) -> bool:
    """Whether the parents of a message lead to a root; `known` remembers those on the way."""
    way: list[str] = []
    at: str | Legacy | None = id
    while isinstance(at, str) and at not in known:
        known[at] = False  # met again before the way ends, it is a circle
        way.append(at)
        event = held(at)
        if not isinstance(event, Message):
            return False
        at = event.parent
    answer = known[at] if isinstance(at, str) else True
    known.update(dict.fromkeys(way, answer))
    return answer
