"""The files of one import, each known by its number, and what stands in them, found again by its place.

An import is given one file, a folder, or an archive, which is unpacked into a
folder first.  In a folder every file whose name ends as exports do counts, however
deep it lies, and so do the archives in it; what a file is, its keys say.  What macOS
writes beside files, under names that begin with `._`, is passed over.  Files come
in the order of their names.  Links are not followed, so that a folder never leads
out of itself; nothing else in it is opened.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import PurePath
from typing import IO, Final, NamedTuple

from branchmem.errors import ImportFailed
from branchmem.importers import archives, json_lines
from branchmem.importers.records import repaired

#: How the names of files end that are looked at in a folder: JSON, lines of JSON, databases.
JSON: Final = (".json",)
LINES: Final = (".jsonl", ".ndjson")
DATABASES: Final = (".sqlite", ".sqlite3", ".db")
SUFFIXES: Final = (*JSON, *LINES, *DATABASES)
_BESIDE: Final = "._"
# A place is the number of a file above these bits and a byte of it below.
_OFFSET_BITS: Final = 40
_CHUNK: Final = 1 << 20


def offset_of(place: int) -> int:
    """The byte of its file at which what stands at `place` begins."""
    return place & ((1 << _OFFSET_BITS) - 1)


def number_of(place: int) -> int:
    """The number of the file that `place` lies in."""
    return place >> _OFFSET_BITS


class Member(NamedTuple):
    """A file: where it lies, its name below the folder or archive that was given, and what people call it."""

    path: str
    name: str
    shown: str


class Files:
    """Files in their order, or the one that is open already.

    `path` is what was given.  Raises: ImportFailed for what cannot be read, whenever it is.
    """

    def __init__(self, path: str, members: Sequence[Member], file: IO[bytes] | None = None) -> None:
        self.path = path
        self._members = members
        self._file = file
        self._again: tuple[int, IO[bytes]] | None = None

    def __del__(self) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._members)

    @property
    def are_many(self) -> bool:
        """Whether a folder or an archive was given, however many files are in it."""
        return self._file is None

    def only(self, numbers: Iterable[int]) -> Files:
        """Some of them, in this order, numbered anew."""
        return Files(self.path, [self._members[number] for number in numbers], self._file)

    def name(self, number: int) -> str:
        """The name of a file below the folder, for people; empty where a file was given."""
        return "" if self._file is not None else repaired(self._members[number].name)[0]

    def shown(self, number: int) -> str:
        """What an error calls a file: its path, that of its archive before it."""
        return repaired(self._members[number].shown)[0]

    def on_disk(self, number: int) -> str:
        """Where a file lies, for whoever has to open it by its path."""
        return self._members[number].path

    def lines(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The lines of a file, each with its place.  Two may be under way, where the later one ends first."""
        with self.reading(number) as file:
            for offset, line in json_lines.lines(file):
                yield number << _OFFSET_BITS | offset, line

    def line(self, place: int) -> bytes:
        """The line at a place, empty beyond the end.  The file stays open until another one is asked for."""
        number = number_of(place)
        file = self.file(number)
        with self._telling(number):
            return next(json_lines.lines(file, offset_of(place)), (0, b""))[1]

    def has(self, number: int, wanted: bytes) -> bool:
        """Whether these bytes stand anywhere in a file.  Reads it whole, a mebibyte at a time."""
        with self.reading(number) as file:
            file.seek(0)
            end = b""
            while chunk := file.read(_CHUNK):
                if wanted in end + chunk:
                    return True
                end = chunk[-len(wanted) :]
        return False

    def file(self, number: int) -> IO[bytes]:
        """A file to look things up in; it stays open until another one is asked for."""
        if self._file is not None:
            return self._file
        if self._again is None or self._again[0] != number:
            self.close()
            self._again = number, self._opened(number)
        return self._again[1]

    @contextmanager
    def reading(self, number: int) -> Iterator[IO[bytes]]:
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

    def close(self) -> None:
        """Let go of the file that was looked into last; it is opened again where it is asked for."""
        if self._again is not None:
            self._again[1].close()
            self._again = None

    def _opened(self, number: int) -> IO[bytes]:
        with self._telling(number):
            return open(self._members[number].path, "rb")

    @contextmanager
    def _telling(self, number: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            expected = f"a file that can be read ({error.strerror})"
            raise ImportFailed(self.shown(number), "its reading", expected) from error


@contextmanager
def opened(path: str) -> Iterator[Files]:
    """The files at a path.  What was unpacked or copied on the way lies in a temporary folder until the end.

    A copy on disk is made of what can be read only once, such as a pipe.
    """
    with ExitStack() as stack:
        if os.path.isdir(path):
            yield Files(path, _below(path, stack))
            return
        try:
            file: IO[bytes] = stack.enter_context(open(path, "rb"))
            if not file.seekable():
                copy = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(file, copy)
                file = copy
        except (OSError, ValueError) as error:  # a path may not hold a NUL
            why = error.strerror if isinstance(error, OSError) else error
            raise ImportFailed(path, "its opening", f"a file that can be read ({why})") from error
        if archives.is_archive(file):
            yield Files(path, _unpacked(path, "", file, stack))
        else:
            yield Files(path, [Member(path, os.path.basename(path), path)], file)


def _below(folder: str, stack: ExitStack) -> list[Member]:
    """Every file of an export in a folder, in the folders in it, and in the archives there, by name."""
    found: list[Member] = []
    folders = [folder]
    while folders:
        at = folders.pop()
        try:
            with os.scandir(at) as entries:
                for entry in entries:
                    name = os.path.relpath(entry.path, folder)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        continue
                    elif _is_named(entry.name, (archives.SUFFIX,)):
                        with open(entry.path, "rb") as file:
                            found += _unpacked(entry.path, name, file, stack)
                    elif _is_named(entry.name, SUFFIXES):
                        found.append(Member(entry.path, name, entry.path))
        except OSError as error:
            raise ImportFailed(at, "its opening", f"a folder that can be read ({error.strerror})") from error
    return sorted(found, key=lambda member: PurePath(member.name).parts)


def _unpacked(path: str, name: str, file: IO[bytes], stack: ExitStack) -> list[Member]:
    """The files of an export in an archive, by name."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="branchmem-"))
    found = [
        Member(place, f"{name}/{member}" if name else member, f"{path}/{member}")
        for member, place in archives.unpack(path, file, folder, lambda member: _is_named(member, SUFFIXES))
    ]
    return sorted(found, key=lambda member: PurePath(member.name).parts)


def _is_named(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether the name of a file ends so, and is its own: not that of what macOS keeps of one."""
    return name.lower().endswith(suffixes) and not name.rpartition("/")[2].startswith(_BESIDE)
