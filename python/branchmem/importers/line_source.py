"""Lines that hold messages, none or several: what formats of lines share, and how a message is found again.

A line that cannot be read is counted with the byte at which it begins, and passed
over; an end of a file that cannot be read yet is nothing, since the next import
finds it whole.  What a piece says is for the format to read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from branchmem.errors import ImportFailed
from branchmem.importers import json_lines
from branchmem.importers.files import Files, number_of, offset_of
from branchmem.importers.records import Content, Leaf, Record, Report, Source, repaired


class LineSource(Source):
    """The lines of several files, each with the pieces of it that become messages.

    Cost: 12 bytes a message, and the line that was asked for last.
    Raises: ImportFailed where no line holds a message, where a file cannot be read,
    and where it changed between two readings.
    """

    def __init__(self, files: Files, report: Report, expected: str) -> None:
        self.path = files.path
        self.leaves: dict[str, Leaf] = {}
        self.files = files
        self.report = report
        self._expected = expected
        self._lines = array("q")
        self._positions = array("i")
        self._again: tuple[int, Sequence[Content]] = (-1, ())

    def pieces(self, number: int, form: dict[str, Any]) -> Sequence[Content]:
        """What the pieces of a line in this file say, in their order."""
        raise NotImplementedError

    def records_of(self, number: int) -> Iterator[Record]:
        """The records of a file, whose `place` is what `place` gave."""
        raise NotImplementedError

    def parsed(self, line: bytes) -> dict[str, Any]:
        """The object on a line; ValueError says why there is none."""
        return json_lines.parsed(line)

    def records(self) -> Iterator[Record]:
        """All records, file by file; a file without any is counted."""
        empty = 0
        for number in range(len(self.files)):
            before = len(self._lines)
            yield from self.records_of(number)
            if len(self._lines) == before:
                empty += 1
                self.report.unknown_types += 1
        if empty == len(self.files):
            raise ImportFailed(self.path, "its lines", self._expected)

    def content(self, place: int) -> Content:
        """What a piece says."""
        line, position = self._lines[place], self._positions[place]
        if self._again[0] != line:
            try:
                form = self.parsed(self.files.line(line))
            except ValueError:
                raise self._changed(line) from None
            self._again = line, self.pieces(number_of(line), form)
        if position >= len(self._again[1]):
            raise self._changed(line)
        return self._again[1][position]

    def forms(self, number: int, *, count: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects in a file, each with its line; what is none is counted unless another reading counts it."""
        name = self.files.name(number)
        for at, line in self.files.lines(number):
            if not line.strip():
                continue
            try:
                yield at, self.parsed(line)
            except ValueError as error:
                if count and (line.endswith(b"\n") or len(line) > json_lines.LONGEST_LINE):
                    self.report.bad_line(offset_of(at), f"{name}: {error}" if name else str(error))

    def place(self, line: int, position: int = 0) -> int:
        """A place for the piece at a position of a line."""
        self._lines.append(line)
        self._positions.append(position)
        return len(self._lines) - 1

    def _changed(self, line: int) -> ImportFailed:
        where = f"{self.files.name(number_of(line))} byte {offset_of(line)}".lstrip()
        return ImportFailed(self.path, where, "the line that stood there when the import began")


def named(value: object) -> str | None:
    """A string that can name something, None for whatever cannot."""
    return repaired(value)[0] if isinstance(value, str) and value else None
