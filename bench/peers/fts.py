"""The peer of SQLite for words: FTS5 and a filter on the row, as a good application would write it.

In memory, warm, one segment, the text not kept twice; what an anchor sees stands in a table of its own, made
before.  The plus before `rowid` keeps the planner from asking the full text once for
every visible row, which is tens of times slower.  Its scores use the statistics of all rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

_FILTERED: Final = "FROM memory WHERE memory MATCH ?1 AND +rowid IN (SELECT ordinal FROM {shown})"
_EACH: Final = (
    "FROM memory WHERE memory MATCH ?1 AND EXISTS (SELECT 1 FROM {shown} WHERE {shown}.ordinal = memory.rowid)"
)

#: The same question in two forms, of which the quicker counts.  (`ORDER BY rank` scores what is hidden, too.)
QUERIES: Final = {
    "IN, bm25": f"SELECT rowid {_FILTERED} ORDER BY bm25(memory) LIMIT ?2",
    "EXISTS, bm25": f"SELECT rowid {_EACH} ORDER BY bm25(memory) LIMIT ?2",
}
UNICODE: Final = "unicode61 remove_diacritics 0"
TRIGRAM: Final = "trigram"


class Fts:
    """One row a memory by ordinal, and one table of ordinals for each anchor."""

    def __init__(self, texts: Iterable[str], tokenizer: str = UNICODE) -> None:
        """Raises: sqlite3.OperationalError, where this SQLite has no FTS5 or no such tokenizer."""
        self.tokenizer = tokenizer.partition(" ")[0]
        self._db = sqlite3.connect(":memory:", cached_statements=1_000)
        self._db.execute(f"CREATE VIRTUAL TABLE memory USING fts5(text, content='', tokenize='{tokenizer}')")
        with self._db:
            self._db.executemany("INSERT INTO memory (rowid, text) VALUES (?, ?)", enumerate(texts))
            self._db.execute("INSERT INTO memory (memory) VALUES ('optimize')")

    def show(self, anchor: int, ordinals: Sequence[int]) -> None:
        """Keep what this anchor sees."""
        with self._db:
            self._db.execute(f"CREATE TABLE {_table(anchor)} (ordinal INTEGER PRIMARY KEY)")
            self._db.executemany(f"INSERT INTO {_table(anchor)} VALUES (?)", ((each,) for each in ordinals))

    def best(self, query: str, anchor: int, match: str, k: int) -> list[tuple[int]]:
        """The ordinals of the best rows, by the score of FTS5; `query` is one of QUERIES."""
        return self._db.execute(QUERIES[query].format(shown=_table(anchor)), (match, k)).fetchall()

    def matching(self, query: str, anchor: int, match: str) -> set[int]:
        """All visible rows that match."""
        return {ordinal for (ordinal,) in self.best(query, anchor, match, -1)}

    def driven_by_words(self, query: str, anchor: int) -> bool:
        """Whether the plan goes through the matches and looks each up, not the other way round."""
        plan = f"EXPLAIN QUERY PLAN {QUERIES[query].format(shown=_table(anchor))}"
        first: str = self._db.execute(plan, ("a", 1)).fetchall()[0][-1]
        return first.startswith("SCAN memory VIRTUAL TABLE INDEX") and first.partition(":")[2].startswith("M")

    def close(self) -> None:
        """Let the database go."""
        self._db.close()


def any_of(tokens: Iterable[str]) -> str:
    """The expression that matches a row with any of these."""
    return " OR ".join(f'"{token}"' for token in tokens)


def _table(anchor: int) -> str:
    return f"seen_{anchor}"
