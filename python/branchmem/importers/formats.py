"""Which formats there are, and which of them a file is in: a table, and a look into the file.

A new format is a module and its name in one of the three tables here; nothing else
knows it.  The keys say what a file is, never its name, and the order of a table decides
nothing: what several formats know is passed over.  What each module has to offer is said by
`OfEntries`, `OfLines` and `OfDatabases`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, Protocol

from branchmem.errors import ImportFailed
from branchmem.importers import (
    assistant_ui,
    chatgpt,
    claude_ai,
    claude_code,
    codex,
    events_jsonl,
    langgraph_checkpoints,
    langgraph_databases,
    librechat,
    oasst,
    open_webui,
    sillytavern,
)
from branchmem.importers.entries import Entry, entries_of, unknown_shape
from branchmem.importers.files import DATABASES, JSON, LINES, Files
from branchmem.importers.json_lines import first_lines
from branchmem.importers.records import Report, Source


class Format(Protocol):
    """What every module of a format has: its name, and what errors say that a file of it should be."""

    @property
    def TOOL(self) -> str: ...  # noqa: N802 — a constant of the module

    @property
    def EXPECTED(self) -> str: ...  # noqa: N802


class OfEntries(Format, Protocol):
    """A format of files of JSON that hold a list of conversations, or one; see `entries`."""

    def looks_like(self, entry: Any, /) -> bool:
        """Whether an entry is a conversation with messages."""
        ...

    def sources(self, files: Files, found: Iterable[Entry], report: Report, /) -> Iterator[Source]:
        """The conversations in these files, once all their entries have been found and checked."""
        ...


class OfLines(Format, Protocol):
    """A format of files of lines of JSON."""

    def looks_like(self, lines: Sequence[bytes], /) -> bool:
        """Whether the first lines of a file are of this format."""
        ...

    def sources(self, files: Files, report: Report, /) -> Iterator[Source]:
        """What is in these files: one, or all of a folder or archive, together, since they may continue each other.

        `files.path` is what was given, for errors; `files.lines(number)` gives each line with its place, and
        `files.line(place)` one of them again.
        """
        ...


class OfDatabases(Format, Protocol):
    """A format of databases: files, or what stands behind a URL."""

    @property
    def MARK(self) -> bytes:  # noqa: N802
        """What stands somewhere in every file of it, so that other databases in a folder are told from it."""
        ...

    def looks_like(self, path: str, first: bytes, /) -> bool:
        """Whether a file that begins with these 16 bytes, or a URL, of which none are known, may be of this format."""
        ...

    def sources(self, path: str, report: Report, /) -> Iterator[Source]:
        """What is in the database at a path or URL, which is never written."""
        ...


# The tables: a new format is its module in one of them.
OF_ENTRIES: Final[tuple[OfEntries, ...]] = (
    assistant_ui,
    chatgpt,
    claude_ai,
    librechat,
    open_webui,
)
OF_LINES: Final[tuple[OfLines, ...]] = (
    claude_code,
    codex,
    oasst,
    sillytavern,
)
OF_DATABASES: Final[tuple[OfDatabases, ...]] = (langgraph_checkpoints,)

#: Our own events, which need no linking.
EVENTS: Final = "events"
_LINKED: Final[tuple[Format, ...]] = (*OF_ENTRIES, *OF_LINES, *OF_DATABASES)
_BY_NAME: Final = {each.TOOL: each for each in _LINKED}
FORMATS: Final = tuple(sorted((EVENTS, *_BY_NAME)))
EXPECTED: Final = "; or ".join((*(each.EXPECTED for each in _LINKED), events_jsonl.EXPECTED.partition(":")[0]))
_FIRST_BYTES: Final = 16


#: What errors say of a path that looks like a URL of something else.
A_URL: Final = f"a URL that begins with {langgraph_databases.SCHEMES[0]}"


def is_url(path: str) -> bool:
    """Whether this names no file but a database behind a URL."""
    return "://" in path and any(each.looks_like(path, b"") for each in OF_DATABASES)


def shown(path: str) -> str:
    """What people are told of a path or URL: never a password."""
    return path if os.path.exists(path) else langgraph_databases.shown(path)


def behind(url: str, format: str, report: Report) -> tuple[str, Iterator[Source]]:
    """The name of the format that a database behind a URL is read in, and what is in it."""
    for each in OF_DATABASES:
        if format in ("auto", each.TOOL) and each.looks_like(url, b""):
            return each.TOOL, _with_messages(each, shown(url), each.sources(url, report), report)
    raise ImportFailed(shown(url), "its opening", expected_of(format))


def sorted_out(files: Files, format: str, report: Report) -> dict[str, Files]:
    """The files of each format: all of the one that is given, or each of that which "auto" finds in it.

    Raises: ImportFailed where no file is left, and for JSON that is broken.
    """
    if not files.are_many:
        one = looked_into(files, 0) if format == "auto" else format
        if isinstance(one, ImportFailed):
            raise one
        return {one: files}
    if format == "auto":
        found = _found_in(files, report)
    else:
        numbers = [n for n in range(len(files)) if files.name(n).lower().endswith(_suffixes(format))]
        found = {format: numbers} if numbers else {}
    if not found:
        raise ImportFailed(files.path, "its files", EXPECTED if format == "auto" else expected_of(format))
    return {name: files.only(numbers) for name, numbers in found.items()}


def _found_in(files: Files, report: Report) -> dict[str, list[int]]:
    """The numbers of the files of each format in a folder or archive.

    A file without a format is counted in `report.unknown_types`, one of JSON only beside exports in JSON: lines of
    JSON often have others beside them, whole or not.  Raises: ImportFailed for JSON that is broken.
    """
    found: dict[str, list[int]] = {}
    broken: ImportFailed | None = None
    unknown = {True: 0, False: 0}
    for number in range(len(files)):
        is_json = files.name(number).lower().endswith(JSON)
        try:
            name = looked_into(files, number)
        except ImportFailed as failure:
            name = failure
            broken = broken or (failure if is_json else None)
        if isinstance(name, str):
            found.setdefault(name, []).append(number)
        else:
            unknown[is_json] += 1
    has_entries = not found.keys().isdisjoint(each.TOOL for each in OF_ENTRIES)
    if broken is not None and (has_entries or not found):
        raise broken
    report.unknown_types += unknown[False] + (unknown[True] if has_entries else 0)
    return found


def expected_of(format: str) -> str:
    """What errors say that a file of this format should be."""
    return events_jsonl.EXPECTED if format == EVENTS else _BY_NAME[format].EXPECTED


def looked_into(files: Files, number: int) -> str | ImportFailed:
    """The name of the format of a file, by its keys; of a sound one in none of the formats, the error that says so.

    The first line, or else entry, that only one format knows decides.

    Raises: ImportFailed for JSON that is broken.
    """
    with files.reading(number) as file:
        file.seek(0)
        first = file.read(_FIRST_BYTES)
        for database in OF_DATABASES:
            if database.looks_like(files.on_disk(number), first) and _is_marked(files, number, database.MARK):
                return database.TOOL
        several: list[str] = []
        for line in first_lines(file):
            names = [each.TOOL for each in OF_LINES if each.looks_like([line])]
            names += [EVENTS] if events_jsonl.looks_like([line]) else []
            if len(names) == 1:
                return names[0]
            several = several or names
        head: Entry | None = None
        for entry in () if several else entries_of(files.shown(number), file, EXPECTED):
            names = [tool.TOOL for tool in OF_ENTRIES if tool.looks_like(entry.value)]
            if len(names) == 1:
                return names[0]
            several = several or names
            head = head or entry
    if several:
        return ImportFailed(
            files.shown(number), "its keys", f"one format, not {' and '.join(sorted(several))}: say which"
        )
    return unknown_shape(files.shown(number), head, EXPECTED)


def _is_marked(files: Files, number: int, mark: bytes) -> bool:
    """Whether a database in a folder has a mark, or may have it in a log of changes; what is given alone has it."""
    logged = f"{files.on_disk(number)}-wal"
    return not files.are_many or files.has(number, mark) or os.path.exists(logged)


def sources_of(format: str, files: Files, report: Report) -> Iterator[Source]:
    """What is in files of a format that needs linking; entries are checked before this returns."""
    for entries in OF_ENTRIES:
        if format == entries.TOOL:
            return entries.sources(files, _entries(files, entries.EXPECTED), report)
    for lines in OF_LINES:
        if format == lines.TOOL:
            return lines.sources(files, report)
    return chain.from_iterable(
        _of_databases(database, files, report) for database in OF_DATABASES if format == database.TOOL
    )


def _of_databases(database: OfDatabases, files: Files, report: Report) -> Iterator[Source]:
    """What is in some databases, each of which is checked before the first of them is used."""
    found = [_of_database(database, files, number, report) for number in range(len(files))]
    begun = [chain([*islice(each, 1)], each) for each in found]
    return _with_messages(database, files.path, chain.from_iterable(begun), report)


def _with_messages(database: OfDatabases, path: str, sources: Iterable[Source], report: Report) -> Iterator[Source]:
    """The same sources.  Raises: ImportFailed at the end, where none of them had a message."""
    yield from sources
    if not report.messages:
        raise ImportFailed(path, "its rows", f"{database.EXPECTED} that hold `messages`")


def _of_database(database: OfDatabases, files: Files, number: int, report: Report) -> Iterator[Source]:
    """What is in a database, which errors call by the name that people know it by."""
    path = files.on_disk(number)
    try:
        for source in database.sources(path, report):
            source.path = files.shown(number)
            yield source
    except ImportFailed as error:
        shown = files.shown(number) if error.path == path else error.path
        raise ImportFailed(shown, error.place, error.expected) from error


def _suffixes(format: str) -> tuple[str, ...]:
    """How the names of files end that are taken for this format in a folder, where it is said to be of it."""
    if format in {each.TOOL for each in OF_ENTRIES}:
        return JSON
    return DATABASES if format in {each.TOOL for each in OF_DATABASES} else LINES


def _entries(files: Files, expected: str) -> Iterator[Entry]:
    for number in range(len(files)):
        with files.reading(number) as file:
            for entry in entries_of(files.shown(number), file, expected):
                yield entry._replace(span=entry.span._replace(number=number))
                del entry
