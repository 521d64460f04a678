"""Lines of JSON in a file that is never held whole.

Lines end at the byte `\\n` and nowhere else: U+2028 and the like are content.
A line without end does not fill the memory; what a line says is for the format
modules to judge.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

BOM: Final = b"\xef\xbb\xbf"
# An event at its limits, every character escaped, takes a quarter of it.
LONGEST_LINE: Final = 1 << 26
_LINES_LOOKED_AT: Final = 100
_BYTES_LOOKED_AT: Final = 1 << 24


def lines(file: IO[bytes], start: int = 0) -> Iterator[tuple[int, bytes]]:
    """The byte at which each line begins, and the line, from `start` on.

    A line over 64 MiB comes cut to that and one byte more: `parsed` refuses it.
    """
    file.seek(start)
    offset = start
    while line := file.readline(LONGEST_LINE + 1):
        yield offset, line
        offset += len(line)
        while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE + 1)
            offset += len(line)


def first_lines(file: IO[bytes]) -> list[bytes]:
    """The first lines, for a look at what a file may be: those that stand whole in its first bytes."""
    file.seek(0)
    found: list[bytes] = []
    left = _BYTES_LOOKED_AT
    while left > 0 and len(found) < _LINES_LOOKED_AT and (line := file.readline(left)):
        left -= len(line)
        if left > 0 or line.endswith(b"\n"):
            found.append(line)
    return found


def parsed(line: bytes) -> dict[str, Any]:
    """The object on a line; ValueError says why there is none."""
    if len(line) > LONGEST_LINE:
        raise ValueError(f"longer than {LONGEST_LINE} bytes")
    text = line.removeprefix(BOM).strip()
    if not text.startswith(b"{"):
        raise ValueError("not a JSON object")
    try:
        form: dict[str, Any] = json.loads(text.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return form


def objects(some: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The objects on those lines that hold one."""
    for line in some:
        try:
            yield parsed(line)
        except ValueError:
            continue
