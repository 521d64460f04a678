"""Durable ingest: the same event objects into a store and into SQLite, on one disk, in batches of one size.

A batch is durable before the next begins.  Events are what a chat leaves: roles,
texts of a few sentences, times, now and then meta.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import branchmem as bm

from bench import shapes
from bench.peers.sqlite_log import SETTINGS, Event, SqliteLog
from bench.rows import Peer, Row, measure
from bench.shapes import Work
from bench.timing import Runner
from bench.workbench import Workbench

BATCHES: Final = {10_000: 2, 1_000: 1}  # events a batch, and the goal
SENTENCES: Final = (1, 6)
META_SHARE: Final = 0.1
BEGUN: Final = datetime(2024, 6, 7, 9, tzinfo=UTC)

_TEXT: Final = """the train to Hangzhou leaves at nine and I would rather take the slow one because my sister
lives near that station; could you book two seats, by the window, and remind me on Friday?"""


def p8(bench: Workbench) -> list[Row]:
    """Appending the same events, in batches of 10,000 and of 1,000."""
    work = bench.load("chats", bench.size.base).work
    events = list(written(work))
    return [row for size, goal in BATCHES.items() for row in _ingested(bench, work, events, size, goal)]


def written(work: Work) -> Iterator[Event]:
    """The events of a work as an application would have them, with content."""
    rng = random.Random(f"{shapes.SEED} content")
    words = _TEXT.split()
    for at, event in enumerate(work.events()):
        created = BEGUN + timedelta(seconds=7 * at, microseconds=rng.randrange(1_000_000))
        meta = {"model": "small-3", "tokens": rng.randrange(400)} if rng.random() < META_SHARE else {}
        text = " ".join(rng.choice(words) for _ in range(10 * rng.randint(*SENTENCES)))
        if isinstance(event, bm.Message):
            role = rng.choice(("user", "assistant"))
            yield bm.Message(event.id, event.parent, role=role, text=text, created=created, meta=meta)
        else:
            yield bm.Memory(event.id, text, sources=event.sources, created=created, meta=meta)


@dataclass
class FreshLog:
    """A log that is begun anew for each pass, in a folder of its own."""

    name: str
    folder: Path
    start: Callable[[str], Any]
    log: Any = None

    def begin(self) -> None:
        """Leave the log of the pass before, and make an empty one."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.log = self.start(str(self.folder / "log"))

    def close(self) -> None:
        """Leave the log of the last pass."""
        if self.log is not None:
            self.log.close()
            self.log = None

    def runner(
        self, batches: Sequence[Sequence[Event]], after: Callable[[Any, Sequence[Event]], object] | None = None
    ) -> Runner:
        """Append these; `after` each batch do something more with the log and the batch."""

        def run() -> None:
            append = self.log.append
            for batch in batches:
                append(batch)
                if after is not None:
                    after(self.log, batch)

        return Runner(self.name, run, sum(map(len, batches)), before=self.begin)


def _ingested(bench: Workbench, work: Work, events: list[Event], size: int, goal: float) -> list[Row]:
    batches = [events[first : first + size] for first in range(0, len(events), size)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="branchmem-bench-")))
        ours = FreshLog("ours", folder / "ours", bm.open)
        theirs = [
            FreshLog(name, folder / name, partial(SqliteLog, settings=settings)) for name, settings in SETTINGS.items()
        ]
        for log in (ours, *theirs):
            stack.callback(log.close)
        question = f"store.append({shapes.size_name(size)} events), each"
        rows = measure(
            "P8",
            question,
            work.name,
            ours.runner(batches),
            [Peer("SQLite, WAL, FULL, unique id", [log.runner(batches) for log in theirs], goal)],
            rounds=min(3, bench.size.rounds),
        )
        bench.check("P8 ours", events, list(ours.log.log.events()))
        for log in theirs:
            bench.check(f"P8 SQLite {log.name}", events, list(log.log.events()))
    return rows
