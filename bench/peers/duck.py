"""The peers of DuckDB: many anchors a query, since one costs it a millisecond whatever it asks.

In memory, all its threads, answers fetched as arrays.  Anchors are written to a
small table before each query, which is timed with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import duckdb
import numpy as np
import numpy.typing as npt

from bench.shapes import ROOT, Work
from bench.tour import Tour

BATCH: Final = 50
Column = npt.NDArray[np.int32]


class Duck:
    """Messages and memories as tables, with and without a tour."""

    _RECURSIVE = """
        WITH RECURSIVE path(row, id) AS (
            SELECT row, id FROM anchor
            UNION ALL SELECT path.row, message.parent FROM path JOIN message ON message.id = path.id
            WHERE message.parent IS NOT NULL
        )
        SELECT path.row, memory.ordinal FROM path JOIN memory ON memory.deepest = path.id
    """
    _RANGE = "SELECT row, ordinal FROM anchor JOIN memory ON start <= position AND position < stop"
    _RANGE_IN_TREE = f"{_RANGE} AND memory.tree = anchor.tree"

    def __init__(self, work: Work, tour: Tour) -> None:
        self._db = duckdb.connect(":memory:")
        self._start, self._tree = np.array(tour.start, np.int32), np.array(tour.tree, np.int32)
        parent = np.array(work.parents, np.int32)
        message = {"id": np.arange(len(parent), dtype=np.int32), "parent": np.ma.masked_equal(parent, ROOT)}
        shown = [(memory, at) for memory, at in enumerate(tour.deepest) if at is not None]
        ordinal, deepest = np.array(shown, np.int32).reshape(-1, 2).T.copy()
        start, tree = self._start[deepest], self._tree[deepest]
        stop = start + np.array(tour.size, np.int32)[deepest]
        memory = {"ordinal": ordinal, "deepest": deepest, "start": start, "stop": stop, "tree": tree}
        self._fill("message", message)
        self._fill("memory", memory)
        self._fill("anchor", self._anchors([]))

    def recursive(self, messages: Sequence[int]) -> tuple[Column, Column]:
        """By a recursive query up the paths: needs nothing but parents."""
        return self._answers(self._RECURSIVE, messages)

    def range(self, messages: Sequence[int]) -> tuple[Column, Column]:
        """By a join on the intervals of a tour."""
        return self._answers(self._RANGE, messages)

    def range_in_tree(self, messages: Sequence[int]) -> tuple[Column, Column]:
        """The same, with memories joined to anchors of their tree first."""
        return self._answers(self._RANGE_IN_TREE, messages)

    def close(self) -> None:
        """Let the database go."""
        self._db.close()

    def _answers(self, query: str, messages: Sequence[int]) -> tuple[Column, Column]:
        """Places of anchors among those asked, and the memories visible there: two columns, in no order."""
        self._db.execute("DELETE FROM anchor")
        asked = self._anchors(messages)
        self._db.register("asked", asked)
        self._db.execute("INSERT INTO anchor SELECT * FROM asked")
        found = self._db.execute(query).fetchnumpy()
        return found["row"], found["ordinal"]

    def _anchors(self, messages: Sequence[int]) -> dict[str, Column]:
        ids = np.array(messages, np.int32)
        row = np.arange(len(ids), dtype=np.int32)
        return {"row": row, "id": ids, "tree": self._tree[ids], "position": self._start[ids]}

    def _fill(self, table: str, columns: dict[str, Column]) -> None:
        self._db.register("columns", columns)
        self._db.execute(f"CREATE TABLE {table} AS SELECT * FROM columns")
        self._db.unregister("columns")
