"""Files of other tools, and our own, as events: read a file, then hand them on in batches.

An importer opens nothing but its file.  What the log holds already, and what of it
was erased, it asks of functions, `stored` and `erased`; what it finds new it gives to
another, `append`.  No import brings back what was erased.  No file is held whole: it
is read once to check it, so that a file that cannot be read writes nothing, and once
more as its events are handed on.  A kill between two batches leaves a valid prefix,
which the next import of the file completes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from types import TracebackType
from typing import IO, Final

from branchmem.errors import ImportFailed
from branchmem.events import Event, Memory, Message
from branchmem.importers import chatgpt, claude_code, events_jsonl, open_webui
from branchmem.importers.entries import Entry, entries_of, unknown_shape
from branchmem.importers.events_jsonl import dump
from branchmem.importers.json_lines import first_lines
from branchmem.importers.linker import link
from branchmem.importers.records import BadLine, IsErased, Leaf, LeafChoice, Report, Source, Stored

FORMATS: Final = ("chatgpt", "claude-code", "events", "open-webui")
#: A batch is full with so many events, or with so many characters of text.
BATCH: Final = 10_000
BATCH_CHARACTERS: Final = 4 << 20
EXPECTED: Final = "; or ".join(
    (chatgpt.EXPECTED, open_webui.EXPECTED, claude_code.EXPECTED, events_jsonl.EXPECTED.partition(":")[0])
)

__all__ = ["BATCH", "FORMATS", "BadLine", "Leaf", "LeafChoice", "Reading", "Report", "dump", "import_file", "read"]


class Reading:
    """A file that has been checked: the events that the log lacks, parents first, and what was counted.

    `total` is how many events there are, None where that is known only at the
    end; then `report` is complete, too.  Holds the file open until `close`, or
    until the last batch was taken; a context manager.
    """

    def __init__(self, format: str, events: Iterable[Event], total: int | None, report: Report, opened: ExitStack):
        self.format = format
        self.total = total
        self.report = report
        self._events = iter(events)
        self._opened = opened

    def batches(self, size: int = BATCH) -> Iterator[Sequence[Event]]:
        """The events in their order, `size` at a time or fewer where texts are long, once.

        Append each batch before the next is taken.
        """
        batch: list[Event] = []
        characters = 0
        for event in self._events:
            batch.append(event)
            characters += len(event.text or "") if isinstance(event, Message | Memory) else 0
            if len(batch) >= size or characters >= BATCH_CHARACTERS:
                yield batch
                batch, characters = [], 0
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
    """Read a file, or a folder of Claude Code sessions, writing nothing.

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
        file = None if os.path.isdir(name) else stack.enter_context(_opened(name))
        found: Iterable[Entry] | None = None
        if format == "auto":
            format, found = _looked_into(name, file)
        events: Iterable[Event]
        total = None
        if format == "claude-code":
            events = _linked(claude_code.sources(name, report, file), stored, erased, report, leaf)
        elif file is None:
            raise ImportFailed(name, "its opening", "a file: only sessions of Claude Code may be a folder")
        elif format == "events":
            events = new = events_jsonl.read(name, file, stored=stored, erased=erased, report=report)
            total = len(new)
        else:
            tool = chatgpt if format == "chatgpt" else open_webui
            found = entries_of(name, file, tool.EXPECTED) if found is None else found
            events = _linked(tool.sources(name, file, found, report), stored, erased, report, leaf)
        return Reading(format, events, total, report, stack.pop_all())
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


def _linked(
    sources: Iterable[Source], stored: Stored, erased: IsErased, report: Report, leaf: LeafChoice
) -> Iterator[Event]:
    for source in sources:
        yield from link(source, stored=stored, erased=erased, report=report, leaf=leaf)


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    """The file, open; a copy on disk of what can be read only once, such as a pipe."""
    with ExitStack() as stack:
        try:
            file: IO[bytes] = stack.enter_context(open(name, "rb"))
            if not file.seekable():
                copy = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(file, copy)
                file = copy
        except OSError as error:
            raise ImportFailed(name, "its opening", f"a file that can be read ({error.strerror})") from error
        yield file


def _looked_into(name: str, file: IO[bytes] | None) -> tuple[str, Iterable[Entry] | None]:
    """The format of a file by its keys, and the entries of an export, of which some have been read."""
    if file is None:
        return "claude-code", None
    lines = first_lines(file)
    if events_jsonl.looks_like(lines):
        return "events", None
    if claude_code.looks_like(lines):
        return "claude-code", None
    read: list[Entry] = []
    rest = entries_of(name, file, EXPECTED)
    for entry in rest:
        for tool in (chatgpt, open_webui):
            if tool.looks_like(entry.value):
                return tool.TOOL, chain(read, [entry], rest)
        read.append(entry._replace(value=None) if read else entry)
    raise unknown_shape(name, read[0] if read else None, EXPECTED)
