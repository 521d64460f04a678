"""Tables of local state beside the log: bytes to bytes, sorted by key, never part of what a log says.

Refs, pinned keys and the like live here, and the vectors of each embedder in a table of its own.  A table is
made by the first transaction that writes to it; until then it is empty.  Each value stands behind a checksum over
its key and itself.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from zlib import crc32

import lmdb

from branchmem.errors import StoreDamaged, TooManyEmbedders

#: When memories were last used.
ACCESS: Final = "access"
TABLES: Final = ("refs", "reflog", "pending", "pins", "held", "extracted", ACCESS)
#: The tables that keep the vectors of an embedder begin so, and go on with its name.
VECTORS: Final = "vectors:"
#: LMDB has room for so many of them beside all others.
MAX_VECTOR_TABLES: Final = 16

_VECTORS: Final = re.compile(VECTORS + "[A-Za-z0-9_.:/-]{1,64}", re.ASCII)
_SUM: Final = struct.Struct("<I")


def is_table(name: str) -> bool:
    """Whether a database of a file is a table of local state."""
    return name in TABLES or _VECTORS.fullmatch(name) is not None


def require_room(txn: lmdb.Transaction[bytes], path: str, wanted: Iterable[bytes]) -> None:
    """Refuse to make one table of vectors more than a file has room for.  Raises: TooManyEmbedders."""
    with txn.cursor() as keys:
        there = {key for key in keys.iternext(values=False) if key.startswith(VECTORS.encode())}
    for name in wanted:
        if name.startswith(VECTORS.encode()) and name not in there:
            if len(there) >= MAX_VECTOR_TABLES:
                names = (key.decode().removeprefix(VECTORS) for key in sorted(there))
                raise TooManyEmbedders(path, name.decode().removeprefix(VECTORS), names)
            there.add(name)


class Table:
    """One table, within a transaction."""

    def __init__(
        self, txn: lmdb.Transaction[bytes], handle: Any, path: str, name: str, has_written: Callable[[], None]
    ) -> None:
        self._txn = txn
        self._handle = handle
        self._path = path
        self._name = name
        self._has_written = has_written

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None where there is none.  Raises: StoreDamaged."""
        if self._handle is None:
            return None
        record = self._txn.get(key, db=self._handle)
        return None if record is None else self._value(key, record)

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin so, in order, each with its value."""
        if self._handle is None:
            return
        with self._txn.cursor(self._handle) as cursor:
            found = cursor.set_range(prefix) if prefix else cursor.first()
            while found and cursor.key().startswith(prefix):
                yield cursor.key(), self._value(cursor.key(), cursor.value())
                found = cursor.next()

    def last(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """The last of the keys that begin so and go on, with its value.  `prefix` must not end with 0xff."""
        if self._handle is None:
            return None
        beyond = prefix[:-1] + bytes([prefix[-1] + 1])
        with self._txn.cursor(self._handle) as cursor:
            found = cursor.prev() if cursor.set_range(beyond) else cursor.last()
            if found and cursor.key().startswith(prefix):
                return cursor.key(), self._value(cursor.key(), cursor.value())
        return None

    def put(self, key: bytes, value: bytes) -> None:
        """Give a key a value."""
        self._has_written()
        self._txn.put(key, _SUM.pack(_checksum(key, value)) + value, db=self._handle)

    def delete(self, key: bytes) -> bool:
        """Remove a key; whether it was there."""
        deleted = self._txn.delete(key, db=self._handle)
        if deleted:
            self._has_written()
        return deleted

    def _value(self, key: bytes, record: bytes) -> bytes:
        value = record[_SUM.size :]
        if len(record) < _SUM.size or _SUM.unpack_from(record) != (_checksum(key, value),):
            raise StoreDamaged(self._path, f"the checksum of {key!r:.80} in the table {self._name} does not match")
        return value


def _checksum(key: bytes, value: bytes) -> int:
    return crc32(value, crc32(key))
