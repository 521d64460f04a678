"""Files of other tools, and our own, as events: read a file, then hand them on in batches.

An importer opens nothing but its file.  What the log holds already it asks of
a function, `stored`; what it finds new it gives to another, `append`.  A file
is read whole before anything is written, so that a file that cannot be read
writes nothing; a kill between two batches leaves a valid prefix, which the next
import of the file completes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from branchmem.errors import ImportFailed
from branchmem.events import Event
from branchmem.importers import chatgpt, events_jsonl
from branchmem.importers.events_jsonl import dump
from branchmem.importers.linker import BadLine, Leaf, LeafChoice, Report, Stored, link

FORMATS: Final = ("chatgpt", "events")
BATCH: Final = 10_000

__all__ = ["BATCH", "FORMATS", "BadLine", "Leaf", "LeafChoice", "Reading", "Report", "dump", "import_file", "read"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A file that has been read: the events that the log lacks, parents first, and what was counted."""

    format: str
    events: Sequence[Event]
    report: Report

    def batches(self, size: int = BATCH) -> Iterator[Sequence[Event]]:
        """The events in their order, `size` at a time; each batch may be appended by itself."""
        for start in range(0, len(self.events), size):
            yield self.events[start : start + size]


def read(
    path: str | os.PathLike[str], *, stored: Stored, format: str = "auto", leaf: LeafChoice = "declared"
) -> Reading:
    """Read one file, writing nothing.

    `stored` gives the event that bears an id, or None.  `format` is one of
    FORMATS, or "auto" to look into the file.  `leaf="heuristic"` takes the newest
    message that one can stand on where a conversation names none.

    Raises: ImportFailed; for our own events EventConflict and InvalidEvent.
    """
    if format not in ("auto", *FORMATS):
        raise ValueError(f"format must be auto or one of {', '.join(FORMATS)}, not {format!r}")
    if leaf not in ("declared", "heuristic"):
        raise ValueError(f"leaf must be declared or heuristic, not {leaf!r}")
    name = os.fspath(path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ImportFailed(name, "its opening", f"a file that can be read ({error.strerror})") from error
    if format == "auto":
        format = "events" if events_jsonl.looks_like(io.BytesIO(content)) else "chatgpt"
    report = Report()
    if format == "events":
        return Reading(format, events_jsonl.read(name, io.BytesIO(content), stored=stored, report=report), report)
    records, leaves = chatgpt.records(name, chatgpt.parse(name, content), report)
    return Reading(format, link(records, leaves, stored=stored, report=report, leaf=leaf), report)


def import_file(
    path: str | os.PathLike[str],
    *,
    append: Callable[[Sequence[Event]], object],
    stored: Stored,
    format: str = "auto",
    leaf: LeafChoice = "declared",
    progress: Callable[[int, int | None], None] | None = None,
) -> Report:
    """Read one file and append what is new, 10,000 events at a time; `progress` hears how many of how many.

        def stored(id):
            return store.log.get(id) if id in store.log else None

        report = import_file("conversations.json", append=store.append, stored=stored)

    Importing a file again, or a longer export later, appends only what is new.
    """
    reading = read(path, stored=stored, format=format, leaf=leaf)
    done = 0
    for batch in reading.batches():
        append(batch)
        done += len(batch)
        if progress is not None:
            progress(done, len(reading.events))
    return reading.report
