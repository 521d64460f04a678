"""branchmem's own events as lines of JSON, so that anyone can write events by hand.

One `to_dict()` a line, in the order of arrival.  What is written is read back
the same.  A line that cannot be read is skipped and counted, with the byte at
which it begins; an event is never rewritten: other content under a known id is
an EventConflict, before anything has been written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from branchmem.errors import ImportFailed, InvalidEvent
from branchmem.events import TYPES, Event, Legacy, Message, conflict, event_from_dict, refuse_later
from branchmem.importers.linker import NO_LEAF, Report, Stored, circles, tally

EXPECTED: Final = 'branchmem events, one a line: {"type": "message", "id": "u1", "parent": null, "text": "…"}'

_BOM: Final = b"\xef\xbb\xbf"
_LINES_LOOKED_AT: Final = 100


def dump(events: Iterable[Event]) -> Iterator[bytes]:
    """One line of UTF-8 an event, its line break included."""
    for event in events:
        yield json.dumps(event.to_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def looks_like(lines: Iterable[bytes]) -> bool:
    """Whether an event is among the first lines."""
    for line in islice(lines, _LINES_LOOKED_AT):
        try:
            form = _form(line)
        except ValueError:
            continue
        if "id" in form and isinstance(form.get("type"), str) and form["type"] in TYPES:
            return True
    return False


def read(path: str, lines: Iterable[bytes], *, stored: Stored, report: Report) -> list[Event]:
    """The events in `lines` that the log lacks, in their order; `report` is filled.

    `lines` end at line breaks and nowhere else, as those of a binary file do.
    Here nothing is synthetic: every message counts, and those without a parent
    are the conversations.

    Raises: ImportFailed where no line holds an event; EventConflict; InvalidEvent
    for events that this version does not act upon.
    """
    found: dict[str, Event] = {}
    new: list[Event] = []
    offset = 0
    for line in lines:
        start, offset = offset, offset + len(line)
        event = _event(line, start, report)
        if event is None:
            continue
        refuse_later(event)
        earlier = found.get(event.id)
        held = earlier or stored(event.id)
        if held is not None and held != event:
            raise conflict(event.id, held.to_dict(), event.to_dict())
        found[event.id] = event
        report.duplicates += earlier is not None
        if held is None:
            new.append(event)
    if not found:
        raise ImportFailed(path, "byte 0", EXPECTED)
    report.added += len(new)
    _count(found, stored, report)
    return new


def _event(line: bytes, offset: int, report: Report) -> Event | None:
    if not line.strip():
        return None
    try:
        form = _form(line)
        if isinstance(form.get("type"), str) and form["type"] not in TYPES:
            report.unknown_types += 1
            return None
        return event_from_dict(form)
    except InvalidEvent as error:
        report.bad_line(offset, error.why)
    except ValueError as error:
        report.bad_line(offset, str(error))
    return None


def _form(line: bytes) -> dict[str, Any]:
    """The object on a line; ValueError says why there is none."""
    try:
        form = json.loads(line.removeprefix(_BOM).decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(form, dict):
        raise ValueError("not a JSON object")
    return form


def _count(found: dict[str, Event], stored: Stored, report: Report) -> None:
    parents = {id: event.parent for id, event in found.items() if isinstance(event, Message)}
    roots = {id: NO_LEAF for id, parent in parents.items() if parent is None or isinstance(parent, Legacy)}
    tally(parents, roots, report)
    report.conversations += len(roots)
    report.current.update(roots)
    place = {id: i for i, id in enumerate(parents)}
    above = [place.get(parent, -1) if isinstance(parent, str) else -1 for parent in parents.values()]
    report.cycles += sum(1 for _ in circles(above))
    report.dangling += sum(
        isinstance(parent, str) and parent not in parents and not isinstance(stored(parent), Message)
        for parent in parents.values()
    )
