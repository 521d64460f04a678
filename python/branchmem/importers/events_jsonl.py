"""branchmem's own events as lines of JSON, so that anyone can write events by hand.

One `to_dict()` a line, in the order of arrival.  What is written is read back
the same.  A line that cannot be read is skipped and counted, with the byte at
which it begins; an event is never rewritten: other content under a known id is
an EventConflict, before anything has been written.

Of what was erased only what stays is compared.  What a file erases goes to the log
before all else in it, and what the log has with other content after all else: by then
it is erased there, or refused.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from branchmem.errors import EventConflict, ImportFailed, InvalidEvent
from branchmem.events import TYPES, Erasure, Event, Message, conflict, event_from_dict
from branchmem.importers.files import Files
from branchmem.importers.forest import DIGEST_BYTES, circles, digest, numbers
from branchmem.importers.json_lines import objects, parsed
from branchmem.importers.records import NO_LEAF, IsErased, Report, Stored

EXPECTED: Final = 'branchmem events, one a line: {"type": "message", "id": "u1", "parent": null, "text": "…"}'

_NOWHERE: Final = -1


def dump(events: Iterable[Event]) -> Iterator[bytes]:
    """One line of UTF-8 an event, its line break included."""
    for event in events:
        yield json.dumps(event.to_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def looks_like(first: Iterable[bytes]) -> bool:
    """Whether an event is among the first lines; what has a `content` is a message of another tool."""
    return any(_is_event(form) for form in objects(first))


def _is_event(form: dict[str, Any]) -> bool:
    kind = form.get("type")
    return "id" in form and "content" not in form and isinstance(kind, str) and kind in TYPES


class Events:
    """The events of a file that the log lacks: erasures, then all others, each in their order.

    After them those that are known with other content, which the log judges once it has
    all else.  Only where they stand is held.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.erasures = _Places()
        self.others = _Places()
        self.doubtful = _Places()

    def __len__(self) -> int:
        return len(self.erasures) + len(self.others) + len(self.doubtful)

    def __iter__(self) -> Iterator[Event]:
        for place, form in chain(self.erasures, self.others, self.doubtful):
            event = _event_at(self._files, place)
            if event is None or _digest(event) != form:
                raise ImportFailed(self._files.shown(0), f"byte {place}", "what stood there when it was read first")
            yield event


class _Places:
    """Where lines begin, each with the digest of its event."""

    def __init__(self) -> None:
        self._places = array("q")
        self._digests = bytearray()

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for i, place in enumerate(self._places):
            yield place, bytes(self._digests[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES])

    def add(self, place: int, digest: bytes) -> None:
        self._places.append(place)
        self._digests += digest


def read(files: Files, *, stored: Stored, erased: IsErased, report: Report) -> Events:
    """The events of the one file that the log lacks; every line has been checked, and `report` is filled.

    Here nothing is synthetic: every message counts, and those without a parent
    are the conversations.

    Raises: ImportFailed where no line holds an event; EventConflict, but of a file with erasures only
    where more than content differs: of that the log is the judge.
    Cost: two parsings of the file; while it is checked some 70 bytes an event.
    """
    seen = _Seen()
    new = Events(files)
    refusal: EventConflict | None = None
    for place, line in files.lines(0):
        event = _event(line, place, report)
        if event is None:
            continue
        form = _digest(event)
        earlier = seen.digest(event.id)
        if earlier == form:
            report.duplicates += 1
            continue
        if earlier is None:
            held = stored(event.id)
        else:
            file = files.file(0)
            next_line = file.tell()
            held = _event_at(files, seen.place(event.id))
            file.seek(next_line)
        if held is None:
            (new.erasures if isinstance(event, Erasure) else new.others).add(place, form)
        elif held.skeleton() != event.skeleton():
            raise conflict(event.id, held.to_dict(), event.to_dict())
        elif held.body() != event.body():
            if erased(event.id):
                report.erased += 1
            else:
                refusal = refusal or conflict(event.id, held.to_dict(), event.to_dict())
                new.doubtful.add(place, form)
        if earlier is None:
            seen.add(event, place, form)
        else:
            report.duplicates += 1
    if not seen:
        raise ImportFailed(files.shown(0), "byte 0", EXPECTED)
    if refusal is not None and not seen.erasures:
        raise refusal
    report.added += len(new.erasures) + len(new.others)
    seen.count(stored, report)
    return new


class _Numbers:
    """Ids as numbers in the order in which they come: digests, and an open table.  Some 30 bytes an id."""

    def __init__(self) -> None:
        self._keys = bytearray()
        self._table = numbers(1 << 10, -1)

    def __len__(self) -> int:
        return len(self._keys) // DIGEST_BYTES

    def find(self, id: str) -> int:
        """The number of an id, -1 where it has none."""
        return self._table[self._slot(digest(id.encode()))]

    def of(self, id: str) -> int:
        """The number of an id, which gets the next one where it has none."""
        key = digest(id.encode())
        slot = self._slot(key)
        number = self._table[slot]
        if number < 0:
            number = self._table[slot] = len(self)
            self._keys += key
            if 2 * len(self) > len(self._table):
                self._grow()
        return number

    def _slot(self, key: bytes) -> int:
        """Where the number of a key stands, or would stand."""
        mask = len(self._table) - 1
        slot = hash(key) & mask
        while (number := self._table[slot]) >= 0 and not self._keys.startswith(key, number * DIGEST_BYTES):
            slot = slot + 1 & mask
        return slot

    def _grow(self) -> None:
        self._table = numbers(2 * len(self._table), -1)
        for number in range(len(self)):
            key = bytes(self._keys[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES])
            self._table[self._slot(key)] = number


class _Seen:
    """The events of a file and the parents that they name, in columns by the number of their id."""

    def __init__(self) -> None:
        self._numbers = _Numbers()
        self._digests = bytearray()
        self._places = array("q")
        self._parents = array("i")
        self._is_message = bytearray()
        self.erasures = False
        # the ids of parents that have not come yet, and of the messages without one
        self._awaited: dict[int, str] = {}
        self._roots: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._places) - self._places.count(_NOWHERE)

    def digest(self, id: str) -> bytes | None:
        """The digest of the event that bears an id."""
        at = self._numbers.find(id)
        if at < 0 or self._places[at] == _NOWHERE:
            return None
        return bytes(self._digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES])

    def place(self, id: str) -> int:
        """Where the line of an event begins."""
        return self._places[self._numbers.find(id)]

    def add(self, event: Event, place: int, digest: bytes) -> None:
        """Take in an event that has not come yet."""
        at = self._numbered(event.id)
        self._places[at] = place
        self._digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES] = digest
        self._awaited.pop(at, None)
        self.erasures |= isinstance(event, Erasure)
        if isinstance(event, Message):
            self._is_message[at] = 1
            if isinstance(event.parent, str):
                parent = self._parents[at] = self._numbered(event.parent)
                if self._places[parent] == _NOWHERE:
                    self._awaited[parent] = event.parent
            else:
                self._roots[at] = event.id

    def count(self, stored: Stored, report: Report) -> None:
        """Count the messages, and where they begin, branch and end."""
        children = numbers(len(self._places), 0)
        gone = {at for at, id in self._awaited.items() if not isinstance(stored(id), Message)}
        above = numbers(len(self._places), -1)
        for at, parent in enumerate(self._parents):
            if parent < 0:
                continue
            report.roots += parent in self._roots
            if self._is_message[parent]:
                above[at] = parent
                children[parent] += 1
            else:
                report.dangling += parent in gone or self._places[parent] != _NOWHERE
        report.messages += self._is_message.count(1)
        report.conversations += len(self._roots)
        report.current.update(dict.fromkeys(self._roots.values(), NO_LEAF))
        report.forks += sum(count > 1 for count in children)
        report.leaves += self._is_message.count(1) - sum(count > 0 for count in children)
        report.cycles += sum(1 for _ in circles(above))

    def _numbered(self, id: str) -> int:
        at = self._numbers.of(id)
        if at == len(self._places):
            self._places.append(_NOWHERE)
            self._parents.append(-1)
            self._digests += bytes(DIGEST_BYTES)
            self._is_message.append(0)
        return at


def _digest(event: Event) -> bytes:
    return digest(event.skeleton() + event.body())


def _event_at(files: Files, place: int) -> Event | None:
    return _event(files.line(place), place, Report())


def _event(line: bytes, offset: int, report: Report) -> Event | None:
    if not line.strip():
        return None
    try:
        form = parsed(line)
        if isinstance(form.get("type"), str) and form["type"] not in TYPES:
            report.unknown_types += 1
            return None
        return event_from_dict(form)
    except InvalidEvent as error:
        report.bad_line(offset, error.why)
    except ValueError as error:
        report.bad_line(offset, str(error))
    return None
