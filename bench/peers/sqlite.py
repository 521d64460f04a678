"""The peers of SQLite: what a good application would do, on each memory's deepest source.

In memory, warm, the statement prepared (the module keeps it), integers for
ids, covering indexes, the order of the join pinned.  Never analysed: after
ANALYZE the planner builds a Bloom filter in every query, thirty times slower.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from bench.shapes import ROOT, Work
from bench.tour import Tour

Rows = list[tuple[int]]


class Recursive:
    """A recursive query up the path, joined with the memories that hang on it.

    Needs nothing but parents: it stays right whatever is appended.
    """

    _PATH = """
        WITH RECURSIVE path(id) AS (
            SELECT ?1 UNION ALL SELECT message.parent FROM path CROSS JOIN message ON message.id = path.id
        )
        SELECT memory.ordinal FROM path CROSS JOIN memory ON memory.deepest = path.id
    """
    _PATHS = """
        WITH RECURSIVE path(row, id) AS (
            SELECT row, id FROM anchor
            UNION ALL SELECT path.row, message.parent FROM path CROSS JOIN message ON message.id = path.id
        )
        SELECT path.row, memory.ordinal FROM path CROSS JOIN memory ON memory.deepest = path.id
    """

    def __init__(self, work: Work, tour: Tour) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, parent INTEGER)")
        self._db.execute(
            "CREATE TABLE memory (deepest INTEGER, ordinal INTEGER, PRIMARY KEY (deepest, ordinal)) WITHOUT ROWID"
        )
        self._db.execute("CREATE TEMP TABLE anchor (row INTEGER PRIMARY KEY, id INTEGER)")
        above = ((message, None if parent == ROOT else parent) for message, parent in enumerate(work.parents))
        self._db.executemany("INSERT INTO message VALUES (?, ?)", above)
        shown = ((message, memory) for memory, message in enumerate(tour.deepest) if message is not None)
        self._db.executemany("INSERT INTO memory VALUES (?, ?)", shown)
        self._db.commit()
        self._bytes = (len(tour.deepest) + 7) // 8

    def ordinals(self, message: int) -> Rows:
        """The visible memories, one row each, in no order."""
        return self._db.execute(self._PATH, (message,)).fetchall()

    def bitmap(self, message: int) -> bytes:
        """The same as one bit a memory."""
        return _packed(self.ordinals(message), self._bytes)

    def ordinals_each(self, messages: Sequence[int]) -> list[Rows]:
        """Many anchors, one query each."""
        return [self.ordinals(message) for message in messages]

    def ordinals_joined(self, messages: Sequence[int]) -> list[tuple[int, int]]:
        """Many anchors in one query: rows of anchor's index and memory."""
        self._db.execute("DELETE FROM anchor")
        self._db.executemany("INSERT INTO anchor VALUES (?, ?)", enumerate(messages))
        return self._db.execute(self._PATHS).fetchall()

    def close(self) -> None:
        """Let the database go."""
        self._db.close()


class TourIntervals:
    """An Euler tour kept in a table: one range of an index a query.

    The quickest SQL there is, for data at rest: a message that arrives moves the
    intervals of half its tree.
    """

    _RANGE = "SELECT ordinal FROM memory WHERE tree = ?1 AND start <= ?2 AND stop > ?2"

    def __init__(self, tour: Tour) -> None:
        self._tour = tour
        self._db = sqlite3.connect(":memory:")
        self._db.execute(
            "CREATE TABLE memory (tree INTEGER, start INTEGER, stop INTEGER, ordinal INTEGER,"
            " PRIMARY KEY (tree, start, stop, ordinal)) WITHOUT ROWID"
        )
        self._db.executemany(
            "INSERT INTO memory VALUES (?, ?, ?, ?)",
            (
                (tour.tree[at], tour.start[at], tour.start[at] + tour.size[at], memory)
                for memory, at in enumerate(tour.deepest)
                if at is not None
            ),
        )
        self._db.commit()

    def ordinals(self, message: int) -> Rows:
        """The visible memories, one row each."""
        return self._db.execute(self._RANGE, (self._tour.tree[message], self._tour.start[message])).fetchall()

    def ordinals_each(self, messages: Sequence[int]) -> list[Rows]:
        """Many anchors, one query each."""
        return [self.ordinals(message) for message in messages]

    def close(self) -> None:
        """Let the database go."""
        self._db.close()


def _packed(rows: Rows, size: int) -> bytes:
    bits = bytearray(size)
    for (ordinal,) in rows:
        bits[ordinal >> 3] |= 1 << (ordinal & 7)
    return bytes(bits)
