"""What it costs to be searchable: batches that are searched as they come, and the first search of a store.

`python -m bench.indexing STORE ANCHOR QUERY` makes one search in a process of its own, and prints the
anonymous memory that it added to what the open store held.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Final

import branchmem as bm

from bench import texts
from bench.ingest import FreshLog
from bench.opening import anonymous_bytes
from bench.peers.bm25 import Bm25
from bench.peers.fts import Fts
from bench.rows import BYTES, Peer, Row, measure
from bench.search import check_hits
from bench.shapes import size_name
from bench.timing import Runner, race
from bench.tips import Tips, tips
from bench.workbench import BATCH, Unequal, Workbench

TOP: Final = Path(__file__).parents[1]
BATCHES: Final = (1_000, 10_000)
GOAL: Final = 0.5
SHARE: Final = 0.01
EACH: Final = 10  # memories from a message, where only memories count
CHECKED: Final = 50
FTS: Final = "SQLite FTS5, the same texts"
TEXTS: Final = "the texts alone"


def i(bench: Workbench) -> list[Row]:
    """Appending with the index kept up to date; making it at the first search; what it holds."""
    rows = []
    for each, what in ((1, "messages and memories"), (EACH, f"{EACH} memories a message")):
        rows += _appended(bench, tips(SHARE, bench.size.base // 2, each=each), what)
    small = _first_search(bench, bench.size.base)
    return [*rows, *small, *_first_search(bench, bench.size.large, small[0])]


def _appended(bench: Workbench, log: Tips, what: str) -> list[Row]:
    """Batches with a search after each, so that the index takes it in, against the same batches alone."""
    written = texts.english(len(log.work.sources))
    events = list(log.events(written, texts.english(len(log.work.parents), name="said")))
    plain = Bm25(map(str.split, written), [len(text.split()) for text in written], log.work.memory_ids)
    query = texts.word(0)
    first = log.work.message_ids[0]

    def search(store: bm.Store, batch: Sequence[bm.Message | bm.Memory]) -> None:
        store.at(first).search(query, 1)

    rows = []
    for size in BATCHES:
        batches = [events[start : start + size] for start in range(0, len(events), size)]
        with tempfile.TemporaryDirectory(prefix="branchmem-bench-") as name:
            folder = Path(name)
            with (
                closing(FreshLog("ours", folder / "ours", bm.open)) as ours,
                closing(FreshLog("append", folder / "alone", bm.open)) as alone,
            ):
                rows += measure(
                    "I",
                    f"append({size_name(size)} events), then a search, each; {what}",
                    log.work.name,
                    ours.runner(batches, search),
                    [Peer("store.append alone", [alone.runner(batches)], GOAL)],
                    rounds=min(2, bench.size.rounds),
                )
                _check(bench, log, ours.log, plain)
    return rows


def _check(bench: Workbench, log: Tips, store: bm.Store, plain: Bm25) -> None:
    """All that was appended is found, by the scores of the textbook."""
    for number, query in enumerate(texts.english_queries(CHECKED)):
        view = store.at(log.ids[number % len(log.ids)])
        best = plain.best(plain.seen(view.mask()), query.split(), 10)
        check_hits(bench, f"I {query}", view.search(query), best, log.work.memory_ids)


def _first_search(bench: Workbench, count: int, smaller: Row | None = None) -> list[Row]:
    """The first search of a store that was opened for it, a memory; and the memory that it takes.

    Against FTS5, or against ourselves on a smaller log.
    """
    log = tips(SHARE, count, each=EACH)
    written = texts.english(len(log.work.sources))
    with tempfile.TemporaryDirectory(prefix="branchmem-bench-") as folder:
        path = Path(folder, "searched.bmem")
        with bm.open(path) as store:
            events = log.events(written)
            while batch := list(islice(events, BATCH)):
                store.append(batch)
            bench.describe(**log.description(store))
        anchor, query = log.ids[0], texts.word(0)
        with closing(_Reopened(path, anchor, query)) as reopened:
            ours = Runner("ours", reopened.search, len(written), before=reopened.open)
            question = "the first search, each memory"
            if smaller is None:
                theirs = Runner("FTS5", lambda: Fts(written).close(), len(written))
                rows = measure("I", question, log.work.name, ours, [Peer(FTS, [theirs])], rounds=3)
            else:
                peer = f"ourselves at {smaller.work}"
                took = race([ours], rounds=1)[ours.name]
                rows = [Row("I", question, log.work.name, peer, peer, took, smaller.ours, None)]
        if anonymous_bytes() is None:
            bench.leave_out("I, memory: this system does not say how much is anonymous")
            return rows
        held = max(_held(path, anchor, query) / len(written), 0.1)
    size = fmean(len(text) for text in written)
    row = Row("I", "memory of the index, a memory", log.work.name, TEXTS, TEXTS, held, size, None, BYTES)
    return [*rows, row]


class _Reopened:
    """A store that is opened anew for each pass, so that its first search finds no index."""

    def __init__(self, path: Path, anchor: str, query: str) -> None:
        self._path, self._anchor, self._query = path, anchor, query
        self._store = bm.open(path)

    def open(self) -> None:
        """Close the store of the pass before, and open another."""
        self.close()
        self._store = bm.open(self._path)

    def search(self) -> None:
        """One search of what one anchor shows."""
        self._store.at(self._anchor).search(self._query)

    def close(self) -> None:
        """Close the store of the last pass."""
        self._store.close()


def _held(path: Path, anchor: str, query: str) -> float:
    """Bytes that the first search adds to what a process of its own holds."""
    command = [sys.executable, "-m", "bench.indexing", str(path), anchor, query]
    run = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    if run.returncode:
        raise Unequal(f"bench.indexing: {run.stderr.strip()}")
    return float(json.loads(run.stdout)["held"])


def main(arguments: Sequence[str]) -> int:
    """Print the bytes that two searches added, of which the first makes the index."""
    path, anchor, query = arguments
    with bm.open_temporary() as store:  # what the modules of search take for themselves is not charged
        store.append([bm.Message("m", None), bm.Memory("a", "one text", sources=["m"])])
        store.at("m").search("text")
    with bm.open(path, readonly=True) as store:
        before = anonymous_bytes() or 0
        store.at(anchor).search(query)
        store.at(anchor).search(query)
        print(json.dumps({"held": (anonymous_bytes() or 0) - before}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
