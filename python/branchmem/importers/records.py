"""What format modules and the linker say to each other: records, sources, and the report.

A format module turns a file into sources, each a part of the file that can be
linked by itself.  The linker reads a source twice: once all records, to find
their places in the tree; once more, by place, the content of those that the log
lacks.  What stands here knows no format and no tree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Protocol

from branchmem.canonical import NO_META
from branchmem.events import Event, Memory

#: From an id to the event that bears it in the log, or None; whether the log has it without the content that it had.
Stored = Callable[[str], Event | None]
IsErased = Callable[[str], bool]
LeafSource = Literal["declared", "last_line", "heuristic", "none"]
LeafChoice = Literal["declared", "heuristic"]

# Part of how ids are formed, for good: another number would give known messages new ids.
LONGEST_ID_BYTES: Final = 256
SHOWN_BAD_LINES: Final = 20
#: Marks, in its meta, a message that was taken to follow the one before it since its file has no links.
ASSUMED_LINEAR: Final = "assumed_linear"

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Record:
    """One node of a file, in the words of no format; ids are event ids.

    `parent` is the parent that the node names, None where it names none.
    `logical_parent` is what it follows by other evidence: taken where `parent`
    is None, it is known, and it closes no circle.  `order` ranks siblings;
    equal ranks keep the order of the file.  `usable` says that one could stand
    here: the node has a role and says what it continues.  `place` is where its
    source finds the content again.  Records with the same `turn` are one turn of
    their conversation, between which no fork is counted; None is a turn by itself.
    One that is `copied` was written anew, perhaps with another time and another
    link: it is a copy of whatever has its id, its role and its text.
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
    meta: Mapping[str, Any] = field(default_factory=lambda: NO_META)
    place: int = 0
    turn: str | None = None
    copied: bool = False


class Content(NamedTuple):
    """What a record says, without its links."""

    role: str | None = None
    text: str | None = None
    created: datetime | None = None
    meta: Mapping[str, Any] = NO_META


class Leaf(NamedTuple):
    """Where a conversation stands, and who says so."""

    leaf: str | None
    leaf_source: LeafSource


NO_LEAF: Final = Leaf(None, "none")


class Linked(Protocol):
    """A source whose messages have their names and parents."""

    def name(self, record_id: str) -> str | None:
        """The id of the event that the last record of this id became; None where there is no such record."""

    def above(self, event_id: str) -> str | None:
        """The parent of a message of the file or of the log; None for a root, a legacy message, and whatever is none.

        Climbing can meet a circle.
        """

    def is_root(self, event_id: str) -> bool:
        """Whether this is a message without a parent, so that nothing stands above it."""


class Source:
    """A part of a file that can be linked by itself: what it names stands in it, or in the log, or nowhere.

    It counts what it cannot read in the report that its format module was given,
    and raises ImportFailed from `records` where there is nothing to import.
    """

    #: The file, for errors.
    path: str
    #: The leaf that a conversation declares, by its root (`Record.conversation`): a record id, and who says so.
    #: Complete once `records` is exhausted.
    leaves: Mapping[str, Leaf]

    def records(self) -> Iterator[Record]:
        """All records in the order of the file.  Asked for once."""
        raise NotImplementedError

    def content(self, place: int) -> Content:
        """What the record at this place says: the same as when it was read first.  Asked in any order."""
        raise NotImplementedError

    def memories(self, linked: Linked) -> Iterator[Memory]:
        """The memories that the file itself holds, each after those it derives from.  Most formats have none."""
        return iter(())


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
    forks          messages with more than one child; records of one turn count as one
    leaves         messages without children
    roots          messages directly under the root of a conversation
    dangling       messages whose parent is neither in the file nor in the log
    cycles         circles of parents met
    duplicates     copies that stand for a message counted already, or for a stored one better linked
    erased         records and events whose content was erased in the log and stays so, whatever they say
    edited         messages whose id is taken by other content: stored, or earlier in the file
    vanished       messages that a later state of their conversation no longer lists; they are imported all the same
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
    erased: int = 0
    edited: int = 0
    vanished: int = 0
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


def iso_time(value: object) -> datetime | None:
    """A time in ISO 8601 with its offset; None for whatever is none."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return None if time is None or time.utcoffset() is None else time


def event_id(*parts: str) -> str:
    """The parts joined by colons; over 256 bytes, `~` and the SHA-256 of the whole."""
    whole = repaired(":".join(parts))[0].encode()
    if len(whole) <= LONGEST_ID_BYTES:
        return whole.decode()
    return "~" + hashlib.sha256(whole).hexdigest()
