"""The peer of durable ingest: a SQLite file that keeps events, as a good application would write it.

WAL and `synchronous=FULL`, so that a batch survives power loss once its
transaction ends, as ours does.  One row an event, its id unique, ids in columns,
lists and meta as JSON: what an application needs to read the event back.  It
refuses an id that is there; it does not compare contents, and prepares nothing
for the question what is visible.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import branchmem as bm

Event = bm.Message | bm.Memory
Value = str | float | None

_TABLE: Final = """
    CREATE TABLE event (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL,
        parent TEXT, role TEXT, text TEXT, sources TEXT, kind TEXT, key TEXT, importance REAL, created TEXT, meta TEXT
    )
"""
_INSERT: Final = """
    INSERT INTO event (id, type, parent, role, text, sources, kind, key, importance, created, meta)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_READ: Final = """
    SELECT id, type, parent, role, text, sources, kind, key, importance, created, meta FROM event ORDER BY seq
"""

#: What is set beside WAL and FULL, by variant.  Random ids are spread over the whole index: a cache that
#: holds it, and checkpoints that wait, are the first things to reach for.
SETTINGS: Final[dict[str, Sequence[str]]] = {
    "as it comes": (),
    "large cache": ("cache_size = -262144", "mmap_size = 1073741824", "wal_autocheckpoint = 20000"),
}


class SqliteLog:
    """Events in a file of SQLite; each batch is one transaction."""

    def __init__(self, path: str, settings: Sequence[str] = ()) -> None:
        self._db = sqlite3.connect(path)
        for setting in ("journal_mode = WAL", "synchronous = FULL", *settings):
            self._db.execute(f"PRAGMA {setting}").fetchall()
        self._db.execute(_TABLE)
        self._db.commit()

    def append(self, events: Sequence[Event]) -> None:
        """One batch, durable when this returns."""
        with self._db:
            self._db.executemany(_INSERT, map(_row, events))

    def events(self) -> Iterator[Event]:
        """All events, read back."""
        return map(_event, self._db.execute(_READ))

    def close(self) -> None:
        """Let the file go."""
        self._db.close()


def _row(event: Event) -> tuple[Value, ...]:
    created = None if event.created is None else event.created.isoformat(timespec="microseconds")
    meta = json.dumps(dict(event.meta)) if event.meta else None
    if isinstance(event, bm.Message):
        parent = event.parent if isinstance(event.parent, str) else None
        return event.id, "message", parent, event.role, event.text, None, None, None, None, created, meta
    sources = json.dumps(event.sources)
    return (
        event.id, "memory", None, None, event.text, sources, event.kind, event.key, event.importance, created, meta,
    )  # fmt: skip


def _event(row: tuple[Any, ...]) -> Event:
    id, type, parent, role, text, sources, kind, key, importance, created, meta = row
    shared: dict[str, Any] = {
        "created": None if created is None else datetime.fromisoformat(created),
        "meta": {} if meta is None else json.loads(meta),
    }
    if type == "message":
        return bm.Message(id, parent, role=role, text=text, **shared)
    return bm.Memory(id, text, sources=json.loads(sources), kind=kind, key=key, importance=importance, **shared)
