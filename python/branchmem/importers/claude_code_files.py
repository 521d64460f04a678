"""Which files a Claude Code session is made of, and the lines in them, each found again by its place.

A path is one transcript or a folder of them.  In a folder every `.jsonl` file
counts, however deep it lies: sessions stand at the top, what their agents did in
`agent-*.jsonl` beside them or in `<session>/subagents/`.  Files come in the order
of their names, those of agents after all others.  Links are not followed, so
that a folder never leads out of itself; nothing else in it is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import IO, Final

from branchmem.errors import ImportFailed
from branchmem.importers import json_lines
from branchmem.importers.records import repaired

SUFFIX: Final = ".jsonl"
# A place is the number of a file above these bits and a byte of it below.
_OFFSET_BITS: Final = 40
_CHUNK: Final = 1 << 20


def offset_of(place: int) -> int:
    """The byte of its file at which the line at `place` begins."""
    return place & ((1 << _OFFSET_BITS) - 1)


def number_of(place: int) -> int:
    """The number of the file that `place` lies in."""
    return place >> _OFFSET_BITS


class Files:
    """The transcripts in a folder, in their order, or the one that is open already; each is known by its number.

    Raises: ImportFailed for what cannot be read, whenever it is.
    """

    def __init__(self, path: str, file: IO[bytes] | None = None) -> None:
        self._path = path
        self._file = file
        self._paths = _transcripts_below(path) if file is None else [path]
        self._again: tuple[int, IO[bytes]] | None = None

    def __del__(self) -> None:
        if self._again is not None:
            self._again[1].close()

    def __len__(self) -> int:
        return len(self._paths)

    def name(self, number: int) -> str:
        """The name of a file below the folder, for people; empty where there is no folder."""
        return repaired(os.path.relpath(self._paths[number], self._path))[0] if self._file is None else ""

    def lines(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The lines of a file, each with its place.  Two may be under way, where the later one ends first."""
        with self._reading(number) as file:
            for offset, line in json_lines.lines(file):
                yield number << _OFFSET_BITS | offset, line

    def line(self, place: int) -> bytes:
        """The line at a place, empty beyond the end.  The file stays open until another one is asked for."""
        number = number_of(place)
        file = self._file
        if file is None:
            if self._again is None or self._again[0] != number:
                if self._again is not None:
                    self._again[1].close()
                self._again = number, self._opened(number)
            file = self._again[1]
        with self._telling(number):
            return next(json_lines.lines(file, offset_of(place)), (0, b""))[1]

    def has(self, number: int, wanted: bytes) -> bool:
        """Whether these bytes stand anywhere in a file.  Reads it whole, a mebibyte at a time."""
        with self._reading(number) as file:
            file.seek(0)
            end = b""
            while chunk := file.read(_CHUNK):
                if wanted in end + chunk:
                    return True
                end = chunk[-len(wanted) :]
        return False

    @contextmanager
    def _reading(self, number: int) -> Iterator[IO[bytes]]:
        """A file to be read from its beginning; one that was open already is left where it stood."""
        with self._telling(number):
            if self._file is None:
                with self._opened(number) as file:
                    yield file
            else:
                at = self._file.tell()
                try:
                    yield self._file
                finally:
                    self._file.seek(at)

    def _opened(self, number: int) -> IO[bytes]:
        with self._telling(number):
            return open(self._paths[number], "rb")

    @contextmanager
    def _telling(self, number: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = self._paths[number]
            raise ImportFailed(path, "its reading", f"a file that can be read ({error.strerror})") from error


def _transcripts_below(folder: str) -> list[str]:
    """Every `.jsonl` file in a folder and the folders in it, in the order in which they are read."""
    found: list[str] = []
    folders = [folder]
    while folders:
        at = folders.pop()
        try:
            with os.scandir(at) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                        found.append(entry.path)
        except OSError as error:
            raise ImportFailed(at, "its opening", f"a folder that can be read ({error.strerror})") from error

    def rank(path: str) -> tuple[bool, tuple[str, ...]]:
        parts = PurePath(os.path.relpath(path, folder)).parts
        return parts[-1].startswith("agent-") or "subagents" in parts[:-1], parts

    return sorted(found, key=rank)
