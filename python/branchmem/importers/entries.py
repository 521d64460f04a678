"""The entries of an export in JSON, one by one, of a file that is never held whole.

An export is a list of entries, an object with a list of them under
`conversations`, or one entry.  Every byte is read and checked before the first
entry is used; where entries stand is remembered, and each is read again when its
turn comes.  An entry is held whole, up to 256 MiB of it.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final, NamedTuple

from branchmem.errors import ImportFailed
from branchmem.importers import deep_json
from branchmem.importers.records import Report, repaired

WRAPPER: Final = "conversations"
LONGEST_ENTRY: Final = 1 << 28
CHUNK: Final = 1 << 20

# What grows beyond this many characters grows less, so that little is read in vain.
_LARGE: Final = 1 << 22
# How far before the end of what has been read an error may stand that more reading would mend.
_CUT: Final = 16
_TOO_LONG: Final = f"with no entry of more than {LONGEST_ENTRY:,} bytes"
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SHOWN_KEYS: Final = 8


class Span(NamedTuple):
    """Where an entry stands in its file, in bytes, a checksum of them, and the number of the file."""

    start: int
    end: int
    checksum: int
    number: int = 0


class Entry(NamedTuple):
    """An entry as it was found; `whole` where it is all that the file holds."""

    span: Span
    value: Any
    whole: bool


class Repeated(dict[str, Any]):
    """A JSON object in which a key stands more than once: a dict of the last values, `pairs` of all."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def entries_of(path: str, file: IO[bytes], expected: str) -> Iterator[Entry]:
    """The entries of an open file, in its order.

    Raises: ImportFailed, which names the byte at fault; at the end of the file at
    the latest, so that a file is sound when all its entries have been taken.
    """
    text = _Text(path, file, expected)
    text.skip()
    if text.next() == "[":
        yield from _list(text)
    elif text.next() == "{":
        yield from _object(text)
    else:
        span, value = text.value()
        yield Entry(span, value, whole=True)
    text.skip()
    if text.next():
        raise text.failure("in JSON (extra data)")


def by_conversation(
    path: str, found: Iterable[Entry], expected: str, conversation: Callable[[Any], str | None], report: Report
) -> dict[str, list[Span]]:
    """Where the entries of each conversation stand, in the order of the file.

    `conversation` names that of an entry, None where the entry has no messages:
    it counts in `report.unknown_types`.  Raises: ImportFailed where none has any.
    """
    spans: dict[str, list[Span]] = {}
    first: Entry | None = None
    for entry in found:
        name = conversation(entry.value)
        if name is not None:
            spans.setdefault(name, []).append(entry.span)
        else:
            report.unknown_types += 1
            first = first or entry
        del entry  # what it holds need not wait for the next one
    if not spans:
        raise unknown_shape(path, first, expected)
    return spans


def unknown_shape(path: str, first: Entry | None, expected: str) -> ImportFailed:
    """The error for a file whose entries, of which this is the first, are not what was expected."""
    value = None if first is None else first.value
    if first is not None and first.whole and not isinstance(value, dict):
        return ImportFailed(path, "the top level", f"{expected}: a list of them, one, or an object with `{WRAPPER}`")
    place = "the top level" if first is not None and first.whole else "entry 0"
    keys = ""
    if isinstance(value, dict) and value:
        keys = f", not {', '.join(f'{key!r:.40}' for key in [*value][:_SHOWN_KEYS])}"
    return ImportFailed(path, place, f"{expected}{repaired(keys)[0]}")


def read_again(path: str, file: IO[bytes], span: Span) -> Any:
    """The entry that stands there; objects that repeat a key are `Repeated`, unless it is nested very deeply."""
    file.seek(span.start)
    data = file.read(span.end - span.start)
    if zlib.crc32(data) != span.checksum:
        raise ImportFailed(path, f"byte {span.start}", "what stood there when it was read first")
    try:
        return json.loads(data.decode(), object_pairs_hook=_pairs)
    except RecursionError:
        return deep_json.loads(data.decode())


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    return made if len(made) == len(pairs) else Repeated(pairs)


def _list(text: _Text) -> Iterator[Entry]:
    text.step()
    text.skip()
    if text.next() == "]":
        text.step()
        return
    while True:
        span, value = text.value()
        yield Entry(span, value, whole=False)
        del value
        text.skip()
        if text.next() == "]":
            text.step()
            return
        text.expect(",")
        text.skip()


def _object(text: _Text) -> Iterator[Entry]:
    """One entry, or those under `conversations`, where that is a list."""
    start, wraps = text.byte, False
    pairs: list[tuple[str, Any]] = []
    text.begin()
    text.step()
    text.skip()
    while text.next() != "}":
        if text.next() != '"':
            raise text.failure("in JSON (Expecting property name enclosed in double quotes)")
        _, key = text.value()
        text.skip()
        text.expect(":")
        text.skip()
        if key == WRAPPER and text.next() == "[":
            wraps = True
            yield from _list(text)
        else:
            pairs.append((key, text.value()[1]))
        if not wraps and text.byte - start > LONGEST_ENTRY:
            raise text.failure(_TOO_LONG)
        text.skip()
        if text.next() == ",":
            text.step()
            text.skip()
            if text.next() == "}":
                raise text.failure("in JSON (Expecting property name enclosed in double quotes)")
        elif text.next() != "}":
            raise text.failure("in JSON (Expecting ',' delimiter)")
    text.step()
    if not wraps:
        yield Entry(Span(start, text.byte, text.checksum), dict(pairs), whole=True)


class _Text:
    """A file of JSON, as the part of its text that is being read.

    `byte` is where in the file the next character stands.  `checksum` is that of
    what was read since `begin`.
    """

    def __init__(self, path: str, file: IO[bytes], expected: str) -> None:
        self._path = path
        self._file = file
        self._expected = expected
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False
        self.checksum = 0
        file.seek(0)
        mark = file.read(4)
        self.byte = self._decoded = 3 if mark.startswith(codecs.BOM_UTF8) else 0
        file.seek(self.byte)
        self.skip()
        if not self.next():
            raise ImportFailed(path, "byte 0", f"{expected}, not an empty file")

    def next(self) -> str:
        """The next character, which stays; none at the end."""
        while self._at == len(self._text) and self._read():
            pass
        return self._text[self._at : self._at + 1]

    def step(self) -> None:
        """Pass the next character."""
        self._pass(self._at + 1)

    def expect(self, mark: str) -> None:
        """Pass a mark; ImportFailed where something else stands."""
        if self.next() != mark:
            raise self.failure(f"in JSON (Expecting {mark!r} delimiter)")
        self.step()

    def skip(self) -> None:
        """Pass white space."""
        while self.next() and (space := _SPACE.match(self._text, self._at)) and space.end() > self._at:
            self._pass(space.end())

    def begin(self) -> None:
        """Begin a checksum at the next character."""
        self.checksum = 0

    def value(self) -> tuple[Span, Any]:
        """Pass the value that begins at the next character; what has been read grows until it stands whole."""
        decode: Callable[[str, int], tuple[Any, int]] = _DECODER.raw_decode
        while True:
            try:
                value, end = decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.pos + _CUT > len(self._text) or error.msg.startswith("Unterminated string")
                if not (cut and self._read()):
                    raise self.failure(f"in JSON ({error.msg})", error.pos) from None
            except RecursionError:
                decode = deep_json.decoded
            except ValueError as error:  # a number of thousands of digits
                raise self.failure(f"in JSON ({error})") from None
            else:
                # A number might go on.
                if isinstance(value, dict | list | str) or end + _CUT <= len(self._text) or not self._read():
                    break
        start, raw = self.byte, self._text[self._at : end].encode()
        self._pass(end, raw)
        return Span(start, self.byte, zlib.crc32(raw)), value

    def failure(self, expected: str, at: int | None = None) -> ImportFailed:
        """The error that names the next byte, or that of a position in what has been read."""
        ahead = 0 if at is None else len(self._text[self._at : at].encode())
        return ImportFailed(self._path, f"byte {self.byte + ahead}", f"{self._expected}, {expected}")

    def _pass(self, end: int, raw: bytes | None = None) -> None:
        raw = self._text[self._at : end].encode() if raw is None else raw
        self.checksum = zlib.crc32(raw, self.checksum)
        self.byte += len(raw)
        self._at = end

    def _read(self) -> bool:
        """Read on, as much again as is being read or more; say whether there was more."""
        kept = self._text[self._at :]
        if self._ended:
            return False
        if len(kept) > LONGEST_ENTRY:
            raise self.failure(_TOO_LONG)
        chunk = self._file.read(max(CHUNK, len(kept) if len(kept) > _LARGE else 3 * len(kept)))
        self._ended = not chunk
        pending = len(self._decoder.getstate()[0])
        try:
            more = self._decoder.decode(chunk, final=self._ended)
        except UnicodeDecodeError as error:
            place = self._decoded - pending + error.start
            raise ImportFailed(self._path, f"byte {place}", f"{self._expected}, in UTF-8") from None
        self._decoded += len(chunk)
        self._text, self._at = kept + more, 0
        return True


_DECODER: Final = json.JSONDecoder()
