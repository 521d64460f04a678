"""Zip archives of exports: what is in one that exports are made of, unpacked into a folder of ours.

An archive is read as what a stranger made.  Members lie in the folder under names
of ours, so that no name leads out of it; those that no export is made of, such as
pictures, stay where they are.  What is encrypted, broken or far larger than the
archive is refused with the name of the member, before anything is imported.
"""

from __future__ import annotations

import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Final

from branchmem.errors import ImportFailed

SUFFIX: Final = ".zip"
#: So much may be unpacked of any archive, and of a large one so many times its own size.
ALWAYS_UNPACKED: Final = 1 << 28
MOST_TIMES: Final = 100
MOST_MEMBERS: Final = 100_000

_MARKS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_ENCRYPTED: Final = 1
# What SQLite has not yet taken into the database beside it, or would take back, and finds by its name.
_LOGS: Final = ("-wal", "-journal")
_CHUNK: Final = 1 << 20
_BROKEN: Final = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    IndexError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


def is_archive(file: IO[bytes]) -> bool:
    """Whether an open file begins as a zip archive does; it stands at its beginning afterwards."""
    file.seek(0)
    mark = file.read(4)
    file.seek(0)
    return mark in _MARKS


def unpack(path: str, file: IO[bytes], folder: str, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Unpack the members whose names are wanted: the name of each, and where it lies now.

    Raises: ImportFailed, which names the archive and the member at fault.
    Cost: as much disk as the members need; of memory a mebibyte, and some 600 bytes a member.
    """
    file.seek(0, os.SEEK_END)
    left = max(ALWAYS_UNPACKED, MOST_TIMES * file.tell())
    most = f"members of no more than {left:,} bytes in all: unpack it yourself if you trust it, and import the folder"
    seen: set[str] = set()
    try:
        archive = zipfile.ZipFile(file)
    except (*_BROKEN, OSError) as error:
        raise ImportFailed(path, "its list of members", f"a zip archive that is whole ({error})") from error
    with archive:
        for info in archive.infolist():
            place = f"the member {info.filename!r:.200}"
            if info.is_dir():
                continue
            if info.flag_bits & _ENCRYPTED:
                raise ImportFailed(path, place, "no password: unpack it and import the folder")
            if info.file_size and _is_log(info.filename, is_wanted):
                raise ImportFailed(path, place, "a database without a log of changes: unpack it and import the folder")
            try:
                with archive.open(info) as member:
                    if not is_wanted(info.filename):
                        continue
                    if info.filename in seen:
                        raise ImportFailed(path, place, "one member of this name")
                    seen.add(info.filename)
                    if len(seen) > MOST_MEMBERS:
                        raise ImportFailed(path, place, f"no more than {MOST_MEMBERS:,} files of exports in it")
                    to = os.path.join(folder, f"{len(seen)}{os.path.splitext(info.filename)[1].lower()}")
                    with open(to, "xb") as out:
                        while chunk := member.read(_CHUNK):
                            left -= len(chunk)
                            if left < 0:
                                raise ImportFailed(path, place, most)
                            out.write(chunk)
            except (*_BROKEN, OSError) as error:
                raise ImportFailed(path, place, f"a member that can be unpacked ({error})") from error
            yield info.filename, to


def _is_log(name: str, is_wanted: Callable[[str], bool]) -> bool:
    """Whether a member is what SQLite keeps beside a database that is wanted."""
    return any(name.lower().endswith(log) and is_wanted(name[: -len(log)]) for log in _LOGS)
