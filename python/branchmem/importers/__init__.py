"""Files of other tools, and our own, as events: read a file, then hand them on in batches.

An importer opens nothing but its file.  What the log holds already, and what of it
was erased, it asks of functions, `stored` and `erased`; what it finds new it gives to
another, `append`.  No import brings back what was erased.  No file is held whole: it
is read once to check it, so that a file that cannot be read writes nothing, and once
more as its events are handed on.  A kill between two batches leaves a valid prefix,
which the next import of the file completes.

    formats       the table of formats, and which of them a file is in: a new format is a line there
    files         the files of one import: a file, a folder, an archive that was unpacked
    archives      zip archives, unpacked with care
    entries       the conversations in a file of JSON, one by one
    json_lines    the lines of a file
    node_map      conversations that are a map or a list of nodes, as most exports have them
    records       what format modules and the linker say to each other
    forest        the records of one source, by their links
    linker        from records to events
    events_jsonl  branchmem's own events
    any other     a format, or a part of one that it begins with
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from types import TracebackType
from typing import Final

from branchmem.errors import ImportFailed
from branchmem.events import Event, Memory, Message
from branchmem.importers import events_jsonl, formats
from branchmem.importers.events_jsonl import dump
from branchmem.importers.files import opened
from branchmem.importers.formats import EVENTS, FORMATS
from branchmem.importers.linker import link
from branchmem.importers.records import BadLine, IsErased, Leaf, LeafChoice, Report, Source, Stored

#: A batch is full with so many events, or with so many characters of text.
BATCH: Final = 10_000
BATCH_CHARACTERS: Final = 4 << 20
__all__ = ["BATCH", "FORMATS", "BadLine", "Leaf", "LeafChoice", "Reading", "Report", "dump", "import_file", "read"]


class Reading:
    """A file that has been checked: the events that the log lacks, parents first, and what was counted.

    `total` is how many events there are, None where that is known only at the
    end; then `report` is complete, too.  Holds the file open until `close`, or
    until the last batch was taken; a context manager.
    """

    def __init__(
        self,
        format: str,
        events: Iterable[Event],
        total: int | None,
        report: Report,
        opened: ExitStack,
        handed: dict[str, Event] | None = None,
    ):
        """`handed` holds, by id, what of a batch was made and is not in the log yet; a source asks it of another's."""
        self.format = format
        self.total = total
        self.report = report
        self._events = iter(events)
        self._opened = opened
        self._handed = {} if handed is None else handed

    def batches(self, size: int = BATCH) -> Iterator[Sequence[Event]]:
        """The events in their order, `size` at a time or fewer where texts are long, once.

        Append each batch before the next is taken.
        """
        batch: list[Event] = []
        characters = 0
        for event in self._events:
            batch.append(event)
            self._handed[event.id] = event
            characters += len(event.text or "") if isinstance(event, Message | Memory) else 0
            if len(batch) >= size or characters >= BATCH_CHARACTERS:
                yield batch
                batch, characters = [], 0
                self._handed.clear()
        if batch:
            yield batch
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._opened.close()

    def __enter__(self) -> Reading:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(
    path: str | os.PathLike[str],
    *,
    stored: Stored,
    erased: IsErased,
    format: str = "auto",
    leaf: LeafChoice = "declared",
) -> Reading:
    """Read a file, a folder or a zip archive of exports, or a database, writing nothing.

    `stored` gives the event that bears an id, or None; `erased` says whether its content was erased, so that
    nothing is made of what the file still says there.  `format` is one of
    FORMATS, or "auto" to look into the file: its keys decide, never its name.
    `leaf="heuristic"` takes the newest message that one can stand on where a
    conversation names none.

    Raises: ImportFailed, of sessions with the first batch; EventConflict for our own events.
    Cost: what is held is one conversation, or 300 bytes a message of Claude Code
    and of our own events; never the file.
    """
    if format not in ("auto", *FORMATS):
        raise ValueError(f"format must be auto or one of {', '.join(FORMATS)}, not {format!r}")
    if leaf not in ("declared", "heuristic"):
        raise ValueError(f"leaf must be declared or heuristic, not {leaf!r}")
    name = os.fspath(path)
    report = Report()
    with ExitStack() as stack:
        handed: dict[str, Event] = {}

        def known(id: str) -> Event | None:
            return handed.get(id) or stored(id)

        if formats.is_url(name):
            tool, sources = formats.behind(name, format, report)
            linked = _linked(sources, known, erased, report, leaf)
            return Reading(tool, linked, None, report, stack.pop_all(), handed)
        if formats.shown(name) != name:
            raise ImportFailed(formats.shown(name), "its opening", f"a file that can be read, or {formats.A_URL}")
        files = stack.enter_context(opened(name))
        parts = formats.sorted_out(files, format, report)
        called = ", ".join(parts)
        own = parts.pop(EVENTS, None)
        if own is not None and (parts or len(own) > 1):
            raise ImportFailed(name, own.name(len(own) - 1), "our own events in one file, and nothing besides it")
        if own is not None:
            stack.callback(own.close)
            new = events_jsonl.read(own, stored=stored, erased=erased, report=report)
            return Reading(called, new, len(new), report, stack.pop_all())
        found = [formats.sources_of(tool, some, report) for tool, some in parts.items()]
        each = [_linked(sources, known, erased, report, leaf) for sources in found]
        if len(each) > 1:
            each = [_begun(events) for events in each]
        return Reading(called, chain(*each), None, report, stack.pop_all(), handed)
    raise AssertionError("nothing suppresses an exception here")


def import_file(
    path: str | os.PathLike[str],
    *,
    append: Callable[[Sequence[Event]], object],
    stored: Stored,
    erased: IsErased,
    format: str = "auto",
    leaf: LeafChoice = "declared",
    progress: Callable[[int, int | None], None] | None = None,
) -> Report:
    """Read a file and append what is new, up to 10,000 events at a time; `progress` hears how many, of how many.

        def stored(id):
            return store.log.get(id) if id in store.log else None

        report = import_file("conversations.json", append=store.append, stored=stored, erased=store.log.is_erased)

    Importing a file again, or a longer export later, appends only what is new.
    """
    done = 0
    with read(path, stored=stored, erased=erased, format=format, leaf=leaf) as reading:
        for batch in reading.batches():
            append(batch)
            done += len(batch)
            del batch
            if progress is not None:
                progress(done, reading.total)
    return reading.report


def _begun(events: Iterator[Event]) -> Iterator[Event]:
    """The same events, the first of them read: what a format cannot read at all is found before others are written."""
    return chain([*islice(events, 1)], events)


def _linked(
    sources: Iterable[Source], stored: Stored, erased: IsErased, report: Report, leaf: LeafChoice
) -> Iterator[Event]:
    for source in sources:
        yield from link(source, stored=stored, erased=erased, report=report, leaf=leaf)
