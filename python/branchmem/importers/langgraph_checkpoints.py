"""LangGraph checkpoints: the database that a checkpointer of LangGraph writes, in SQLite or Postgres.

A checkpoint holds the whole list of messages of its moment, the channel
`messages`, and names the checkpoint that it follows, `parent_checkpoint_id`.
Nothing else links them: neither step nor time, and writes that are pending say
nothing about what came of them.  Each list is compared with that of the
checkpoint before:

    an entry that is new at the end    follows the last entry that is still there
    an entry that says something else  is another version, beside the old one; what comes after it follows it anew
    an entry that was put in between   stands where what comes after it stood, and that follows it anew
    an entry that is gone              is counted, and stays where it was; so does what was said after it

So a history that is shortened stays one path, while an answer that was removed
from the end is left aside.  A message is known by what it follows, the id that
LangGraph gave it, and what it says: an id alone stands for many messages.  Where
the checkpoint before is not there, the list itself is the whole path; where
checkpoints follow each other in a circle, it hangs below what does not exist.
One that cannot be read is counted and passed over.

A thread and each of its namespaces, the subgraphs, is a conversation.  It stands
at the end of the list of its newest checkpoint, which is where LangGraph goes on.
A thread kept by a DeltaChannel has no whole lists: it is counted and left out.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from branchmem.errors import ImportFailed
from branchmem.importers import langgraph_databases
from branchmem.importers.forest import circles
from branchmem.importers.langgraph_databases import Database, Row
from branchmem.importers.langgraph_values import Said, State, Unreadable, has_parts_only, mark, said
from branchmem.importers.records import Content, Leaf, Record, Report, Source, event_id

TOOL: Final = "langgraph"
EXPECTED: Final = langgraph_databases.EXPECTED
#: A column of the tables that are looked for.
MARK: Final = b"checkpoint_ns"

# Stands for what a circle of checkpoints hangs below, in ids of messages that do not exist.
_UNREADABLE: Final = "?"
# A place is the number of a checkpoint above these bits and an entry of its list below.
_ENTRY_BITS: Final = 32
_HASH_DIGITS: Final = 32


def looks_like(path: str, first: bytes) -> bool:
    """Whether this is a file of SQLite, or the URL of a Postgres server."""
    return first == langgraph_databases.MAGIC or path.startswith(langgraph_databases.SCHEMES)


def sources(path: str, report: Report) -> Iterator[Source]:
    """The threads of the database at a path or URL, by name, once every row of it has been read.

    Raises: ImportFailed; ExtraMissing for Postgres without psycopg.
    """
    name = langgraph_databases.shown(path)
    with langgraph_databases.opened(path) as database:
        threads = _threads(name, database, report)
        report.unknown_types += not threads
        for thread, namespace in sorted(threads):
            source = Thread(name, database, threads.pop((thread, namespace)), report)
            yield source
            report.unknown_types += not source.has_messages


def _threads(name: str, database: Database, report: Report) -> dict[tuple[str, str], list[Row]]:
    """The checkpoints of each thread and namespace that has whole lists of messages.  Raises: ImportFailed."""
    threads: dict[tuple[str, str], list[Row]] = {}
    in_parts: dict[tuple[str, str], None] = {}
    for number, row in enumerate(database.rows()):
        if row is None:
            report.bad_line(number, "a checkpoint without an id that can be read")
            continue
        threads.setdefault((row.thread, row.namespace), []).append(row._replace(metadata=None))
        if has_parts_only(row.metadata):
            in_parts[row.thread, row.namespace] = None
    for key in in_parts:
        del threads[key]
        report.unknown_types += 1
        report.bad_line(0, f"thread {key[0]!r:.80} {key[1]!r:.80}: kept in parts, by a DeltaChannel")
    if in_parts and not threads:
        raise ImportFailed(name, "its threads", "checkpoints with whole lists of messages, kept by no DeltaChannel")
    return threads


class Node(NamedTuple):
    """A message of a thread: what tells it from the others of a list, what it says, its id, and that of its parent."""

    key: str
    digest: str
    id: str
    parent: str


class Thread(Source):
    """The checkpoints of one thread in one namespace."""

    def __init__(self, path: str, database: Database, rows: list[Row], report: Report) -> None:
        self.path = path
        self.leaves: dict[str, Leaf] = {}
        self.has_messages = False
        self._database = database
        self._rows = sorted(rows, key=lambda row: row.id)
        self._report = report
        # colons are written otherwise, so that no thread is called as a namespace of another one
        names = [name.replace("%", "%25").replace(":", "%3A") for name in (rows[0].thread, rows[0].namespace)]
        self._root = event_id(TOOL, *filter(None, names))
        self._given: set[str] = set()
        self._read: dict[bytes, Said] = {}
        self._last: tuple[int, State] | None = None

    def records(self) -> Iterator[Record]:
        above, starts = self._links()
        below: dict[int, list[int]] = {}
        for number, before in enumerate(above):
            if before >= 0:
                below.setdefault(before, []).append(number)
        waiting: list[tuple[int, Sequence[Node], str]] = [(start, (), starts[start]) for start in sorted(starts)[::-1]]
        while waiting:
            number, nodes, top = waiting.pop()
            state = self._state(number)
            if state is not None:
                told = self._told(state)
                nodes = self._continued(nodes, told, top)
                self.has_messages = self.has_messages or state.entries is not None
                for at, node in enumerate(nodes):
                    if node.id not in self._given:
                        self._given.add(node.id)
                        yield self._record(node, told[at], number << _ENTRY_BITS | at, state.taken)
                if number == len(self._rows) - 1 and nodes:
                    self.leaves[self._root] = Leaf(nodes[-1].id, "last_line")
            waiting += [(child, nodes, top) for child in reversed(below.get(number, ()))]
        self._read.clear()

    def content(self, place: int) -> Content:
        number, at = place >> _ENTRY_BITS, place & ((1 << _ENTRY_BITS) - 1)
        if self._last is None or self._last[0] != number:
            try:
                self._last = number, self._database.state(self._rows[number])
            except Unreadable as error:
                raise ImportFailed(self.path, f"checkpoint {self._rows[number].id}", str(error)) from None
        state = self._last[1]
        if state.entries is None or at >= len(state.entries):
            raise ImportFailed(self.path, f"checkpoint {self._rows[number].id}", "the list that stood there")
        return self._content(said(state.entries[at]), state.taken)

    def _links(self) -> tuple[array[int], dict[int, str]]:
        """The number of the checkpoint before each; and below what the first message stands of those without one."""
        numbers = {row.id: number for number, row in enumerate(self._rows)}
        above = array("i", (-1 if row.parent is None else numbers.get(row.parent, -1) for row in self._rows))
        starts = {number: self._root for number, parent in enumerate(above) if parent < 0}
        for circle in list(circles(above)):
            last = max(circle)
            above[last] = -1
            starts[last] = event_id(self._root, _UNREADABLE, self._rows[last].id)
            self._report.cycles += 1
        return above, starts

    def _state(self, number: int) -> State | None:
        """What a checkpoint says; None, and counted, where that cannot be read."""
        try:
            return self._database.state(self._rows[number])
        except Unreadable as error:
            row = self._rows[number]
            self._report.bad_line(number, f"checkpoint {row.id:.80} of thread {row.thread:.80}: expected {error}")
            return None

    def _told(self, state: State) -> list[Said]:
        told = []
        for entry in state.entries or ():
            bytes_of = mark(entry)
            known = None if bytes_of is None else self._read.get(bytes_of)
            if known is None:
                known = said(entry)
                if bytes_of is not None:
                    self._read[bytes_of] = known
            told.append(known)
        return told

    def _continued(self, before: Sequence[Node], told: Sequence[Said], top: str) -> list[Node]:
        """The messages of a list, compared with those of the one before it."""
        kept = 0
        while kept < min(len(before), len(told)) and _is_same(before[kept], told[kept]):
            kept += 1
        nodes = list(before[:kept])
        places: dict[str, list[int]] = {}
        for at in range(kept, len(before)):
            places.setdefault(before[at].key, []).append(at)
        found = kept
        anew = False
        for at in range(kept, len(told)):
            each, above = told[at], nodes[-1].id if nodes else top
            place = _next(places, each.key, found)
            if place is not None and not anew and _is_same(before[place], each):
                nodes.append(before[place])
            else:
                if not anew:
                    still = (_next(places, later.key, found) for later in told[at:])
                    stood = next((before[there] for there in still if there is not None), None)
                    above = above if stood is None else stood.parent
                    anew = True
                self._report.edited += place is not None and before[place].digest != each.digest
                nodes.append(Node(each.key, each.digest, self._id(above, each), above))
            if place is not None:
                self._report.vanished += place - found
                found = place + 1
        self._report.vanished += len(before) - found
        return nodes

    def _id(self, above: str, each: Said) -> str:
        form = json.dumps([above, each.id, each.digest]).encode()
        return event_id(self._root, hashlib.sha256(form).hexdigest()[:_HASH_DIGITS])

    def _record(self, node: Node, each: Said, place: int, taken: datetime | None) -> Record:
        self._report.unknown_types += not each.readable
        content = self._content(each, taken)
        return Record(
            conversation=self._root,
            id=node.id,
            parent=None if node.parent == self._root else node.parent,
            role=content.role,
            text=content.text,
            created=content.created,
            meta=content.meta,
            place=place,
            # the first checkpoint that has it gives its time, and may be gone the next time
            copied=True,
        )

    def _content(self, each: Said, taken: datetime | None) -> Content:
        meta: dict[str, Any] = {} if each.id is None else {"id": each.id}
        return Content(each.role, each.text, taken, meta)


def _is_same(node: Node, each: Said) -> bool:
    return node.key == each.key and node.digest == each.digest


def _next(places: dict[str, list[int]], key: str, start: int) -> int | None:
    """The first of the places of a key that is not before `start`."""
    known = places.get(key, [])
    at = bisect_left(known, start)
    return known[at] if at < len(known) else None
