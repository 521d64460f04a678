"""When memories were last used: local state beside the log, one time a memory, never an event.

A use is noted under a number that only grows, and takes away the one of the use before it; so whoever knows all up to
some number reads what came since, and the table holds two entries a memory, however often it was used.  The later use
wins, in whatever order they are noted: nothing goes back in time.  What follows from a use is decided in `decay`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

from branchmem import Memory, UnknownEvent
from branchmem.canonical import from_microseconds, pack, unpack
from branchmem.log.tables import ACCESS
from branchmem.recall.decay import moment

if TYPE_CHECKING:
    from branchmem import Store
    from branchmem.log import Reader, Table, Writer

#: What a transaction that notes or reads uses must be given:
#: b"i" + id → the number and the time of its last use, in microseconds since 1970; b"n" + number → id.
TABLES: Final = (ACCESS,)

_ID: Final = b"i"
_NUMBER: Final = b"n"
_NUMBER_BYTES: Final = 8


def used(store: Store, memories: Iterable[str | Memory], *, at: datetime | None = None) -> int:
    """Note that memories, given as such or by their ids, were used at a time, now by default.

    How many of them were not known to have been used then or later.  No event is written, and no view changes.
    Raises: UnknownEvent for what is no memory of the log, and nothing is noted; InvalidTime; StoreReadOnly and the
    other errors of a store.
    Cost: one commit.
    """
    ids = _ids(memories)
    when = moment(at, "at")

    def plan(writer: Writer) -> tuple[tuple[()], int]:
        engine = store._fresh()
        for id in ids:
            if not (isinstance(id, str) and engine.is_memory(id)):
                raise UnknownEvent(id, Memory.type)
        return (), mark(writer, ids, when)

    return store.transact(plan, tables=TABLES)[1]


def mark(writer: Writer, ids: Iterable[str], at: int) -> int:
    """The same inside a transaction, at a time in microseconds since 1970; what the ids name is not checked."""
    table = writer.table(ACCESS)
    newest, count = _newest(writer), 0
    for id in dict.fromkeys(ids):
        before = _last_use(table, id.encode())
        if before is not None and before[1] >= at:
            continue
        newest, count = newest + 1, count + 1
        table.put(_NUMBER + newest.to_bytes(_NUMBER_BYTES, "big"), id.encode())
        table.put(_ID + id.encode(), pack((newest, at)))
        if before is not None:
            table.delete(_NUMBER + before[0].to_bytes(_NUMBER_BYTES, "big"))
    return count


def newer(reader: Reader, number: int) -> tuple[int, list[tuple[str, int]]]:
    """The memories that were used since a number was the newest, each with its last use, in microseconds; and the
    number that is the newest now.  0 asks for all.

    Cost: the uses since then; of all, the memories that were ever used.
    """
    table, newest = reader.table(ACCESS), _newest(reader)
    if number:
        numbers = (_NUMBER + each.to_bytes(_NUMBER_BYTES, "big") for each in range(number + 1, newest + 1))
        found = [id for id in map(table.get, numbers) if id is not None]
    else:
        found = [id for _, id in table.items(_NUMBER)]
    uses = ((id, _last_use(table, id)) for id in found)
    return newest, [(id.decode(), use[1]) for id, use in uses if use is not None]


def last_used(store: Store, memories: Iterable[str | Memory]) -> dict[str, datetime]:
    """When each of these memories was last used, of one moment; what never was, or is no memory, is left out."""
    engine = store._fresh()
    ids = [id for id in _ids(memories) if isinstance(id, str) and engine.is_memory(id)]

    def read(reader: Reader) -> dict[str, datetime]:
        table = reader.table(ACCESS)
        uses = ((id, _last_use(table, id.encode())) for id in ids)
        return {id: from_microseconds(use[1]) for id, use in uses if use is not None}

    return store.snapshot(read, tables=TABLES)


def _ids(memories: Iterable[str | Memory]) -> list[str]:
    if isinstance(memories, (str, bytes, Memory)):
        raise TypeError(f"a list of memories is needed: write [{memories!r:.80}]")
    return [memory.id if isinstance(memory, Memory) else memory for memory in memories]


def _newest(reader: Reader) -> int:
    last = reader.table(ACCESS).last(_NUMBER)
    return int.from_bytes(last[0].removeprefix(_NUMBER), "big") if last else 0


def _last_use(table: Table, id: bytes) -> tuple[int, int] | None:
    """The number and the time of the last use of a memory."""
    value = table.get(_ID + id)
    if value is None:
        return None
    number, at = unpack(value)
    return number, at
