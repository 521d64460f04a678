"""A store of millions: it is written, opened by a fresh process, and asked.

`python -m bench.scale --messages 10_000_000 --memories 2_000_000` prints how long
opening and answering take and what an event costs in memory and on disk, after
the answers were found equal to climbing an array of parents.  An answer that
differs is exit status 1.  A store of that size takes about 2 GB of disk, 3 GB of
memory while it is written, and some minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import branchmem as bm
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from bench.machine import file_system, machine
from bench.opening import LIMIT_BYTES, anonymous_bytes
from bench.shapes import BRANCHING, FORKS, GAP, MEAN_STEPS_BACK, ROOT, SEED, SOURCES, TREE, climb, size_name
from bench.workbench import BATCH, Unequal

TOP: Final = Path(__file__).parents[1]
ANCHORS: Final = 200
CHECKED: Final = 50  # anchors whose masks are held against climbing
CANDIDATES: Final = 50  # memories that a view is asked for in one go
APPENDS: Final = 20

Places = npt.NDArray[np.int32]
_T = TypeVar("_T")


@dataclass(slots=True)
class Chats:
    """Chats that are made while they are read: what is kept of them are numbers.

    `sources` holds those of all memories in one row, `ends[i]` is where those of memory i end.
    """

    messages: int
    memories: int
    parents: array[int] = field(default_factory=lambda: array("i"))
    sources: array[int] = field(default_factory=lambda: array("i"))
    ends: array[int] = field(default_factory=lambda: array("q"))

    def events(self) -> Iterator[bm.Message | bm.Memory]:
        """Trees of about 500 messages, interleaved at random; memories follow their latest source."""
        rng = random.Random(f"{SEED} {self.messages}")
        latest = [ROOT] * max(1, self.messages // TREE)
        left = latest.copy()  # of each tree, the message that the latest branch turned away from
        for message in range(self.messages):
            tree = rng.randrange(len(latest))
            parent = latest[tree]
            if parent != ROOT and rng.random() < BRANCHING:
                left[tree] = parent
                parent = climb(self.parents, parent, _steps_back(rng))
            self.parents.append(parent)
            latest[tree] = message
            above = None if parent == ROOT else message_id(parent)
            text = f"turn {message} of a chat that goes on for a while"
            yield bm.Message(message_id(message), above, role=("user", "assistant")[message % 2], text=text)
            while len(self.ends) < (message + 1) * self.memories // self.messages:
                yield self._memory(message, left[tree], rng)

    def _memory(self, message: int, beside: int, rng: random.Random) -> bm.Memory:
        sources = [message]
        for _ in range(rng.randint(*SOURCES) - 1):
            sources.append(climb(self.parents, sources[-1], rng.randint(*GAP)))
        if beside != ROOT and rng.random() < FORKS:
            sources.append(beside)
        memory = len(self.ends)
        self.sources.extend(sources)
        self.ends.append(len(self.sources))
        text = f"note {memory}: something that was said and is worth keeping"
        return bm.Memory(memory_id(memory), text, sources={message_id(source) for source in sources})


def message_id(message: int) -> str:
    """36 characters that look like a UUID."""
    return _id(b"message %d" % message)


def memory_id(memory: int) -> str:
    """The same for a memory."""
    return _id(b"memory %d" % memory)


def _id(name: bytes) -> str:
    digits = hashlib.blake2b(name, digest_size=16).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _steps_back(rng: random.Random) -> int:
    return 1 + int(math.log(1 - rng.random()) / math.log(1 - 1 / MEAN_STEPS_BACK))


def write(folder: Path, messages: int, memories: int) -> dict[str, float]:
    """Write the store and beside it the numbers that it is checked by."""
    chats = Chats(messages, memories)
    events = chats.events()
    appending = 0.0
    with bm.open(folder / "scale.bmem") as store:
        while batch := list(islice(events, BATCH)):
            start = time.perf_counter()
            store.append(batch)
            appending += time.perf_counter() - start
    for name in ("parents", "sources", "ends"):
        np.save(folder / f"{name}.npy", np.asarray(getattr(chats, name)))
    size = (folder / "scale.bmem").stat().st_size
    count = messages + memories
    return {"append_us_an_event": appending / count * 1e6, "disk_bytes_an_event": size / count, "disk_gb": size / 1e9}


class Climbing:
    """What is visible by climbing the parents: every source on the path of the anchor."""

    def __init__(self, folder: Path) -> None:
        self._parents: Places = np.load(folder / "parents.npy", mmap_mode="r")
        self._sources: Places = np.load(folder / "sources.npy", mmap_mode="r")
        ends = np.load(folder / "ends.npy")
        self._begins = np.concatenate(([0], ends[:-1])) if len(ends) else ends
        self._on_path = np.zeros(len(self._parents), np.bool_)

    def visible(self, anchor: int) -> npt.NDArray[np.bool_]:
        """One bool a memory."""
        path = []
        while anchor != ROOT:
            path.append(anchor)
            anchor = int(self._parents[anchor])
        self._on_path[path] = True
        flags: npt.NDArray[np.bool_] = np.logical_and.reduceat(self._on_path[self._sources], self._begins)
        self._on_path[path] = False
        return flags


def ask(folder: Path) -> dict[str, Any]:
    """Open the store in this process, measure, and hold its answers against climbing.  Raises: Unequal."""
    before = anonymous_bytes() or 0
    start = time.perf_counter()
    with bm.open(folder / "scale.bmem") as store:
        opening = time.perf_counter() - start
        events = store.seq
        opened = (anonymous_bytes() or 0) - before
        messages, memories = len(store.message_ids), len(store.memory_ids)
        rng = random.Random(SEED)
        anchors = [rng.randrange(messages) for _ in range(ANCHORS)]
        start = time.perf_counter()
        store.bitmaps([message_id(anchor) for anchor in anchors[:10]])
        broad = time.perf_counter() - start
        asked = (anonymous_bytes() or 0) - before
        checked = _checked(store, Climbing(folder), anchors[:CHECKED], memories)
        return {
            "events": events,
            "open_seconds": opening,
            "open_us_an_event": opening / events * 1e6,
            "bytes_an_event_opened": opened / events,
            "bytes_an_event_asked": asked / events,
            "first_broad_question_ms": broad * 1e3,
            "answers_found_equal": checked,
            **_timed(store, [message_id(anchor) for anchor in anchors], memories, rng),
        }


def _checked(store: bm.Store, climbing: Climbing, anchors: Sequence[int], memories: int) -> int:
    """How many answers were found equal at these anchors."""
    generator = np.random.default_rng(SEED)
    some = generator.integers(memories, size=min(memories, 10_000), dtype=np.uint32)
    checked = 0
    for anchor in anchors:
        expected = climbing.visible(anchor)
        view = store.at(message_id(anchor))
        mask = np.packbits(expected, bitorder="little").tobytes()
        ordinals = np.flatnonzero(expected)
        few = [*ordinals[:100].tolist(), *some[:100].tolist()]
        pairs = store.visible(some, np.full(len(some), anchor, np.uint32))
        answers = {
            "bitmap": bytes(view.bitmap()) == mask,
            "bitmaps": store.bitmaps([message_id(anchor)]).tobytes() == mask,
            "ordinals": np.array_equal(view.ordinals(), ordinals),
            "in": all((memory_id(memory) in view) == expected[memory] for memory in few),
            "visible": np.array_equal(pairs, expected[some]),
        }
        wrong = [name for name, equal in answers.items() if not equal]
        if wrong:
            raise Unequal(f"at message {anchor}, seed {SEED}: {', '.join(wrong)} differ from climbing")
        checked += len(answers)
    return checked


def _timed(store: bm.Store, ids: Sequence[str], memories: int, rng: random.Random) -> dict[str, float]:
    """Median microseconds of one question each, and of one durable append."""
    at = store.at
    candidates = [[memory_id(rng.randrange(memories)) for _ in range(CANDIDATES)] for _ in ids]
    asked = list(zip(map(at, ids), candidates, strict=True))
    new = [bm.Message(bm.new_id(), id, role="user", text="and then?") for id in ids[:APPENDS]]
    return {
        "bitmap_us": _median_us(lambda id: at(id).bitmap(), ids),
        "ordinals_us": _median_us(lambda id: at(id).ordinals(), ids),
        "in_us": _median_us(lambda pair: [id in pair[0] for id in pair[1]], asked) / CANDIDATES,
        "append_one_us": _median_us(lambda message: store.append([message]), new),
    }


def _median_us(question: Callable[[_T], object], asked: Iterable[_T]) -> float:
    times = []
    for each in asked:
        start = time.perf_counter_ns()
        question(each)
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1e3


def measured(messages: int, memories: int, folder: Path) -> dict[str, Any]:
    """Write in this process, ask in a fresh one: the JSON-ready report.  Raises: Unequal."""
    written = write(folder, messages, memories)
    command = [sys.executable, "-m", "bench.scale", "--ask", str(folder)]
    run = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    if run.returncode:
        raise Unequal(run.stderr.strip())
    answers = json.loads(run.stdout)
    return {
        "command": f"python -m bench.scale --messages {messages} --memories {memories}",
        "machine": machine() | {"disk": file_system(str(folder))},
        "messages": messages,
        "memories": memories,
        "seed": SEED,
        **written,
        **answers,
        "limit_bytes_an_event": LIMIT_BYTES,
        "within": max(answers["bytes_an_event_opened"], answers["bytes_an_event_asked"]) <= LIMIT_BYTES,
    }


def show(report: dict[str, Any], console: Console) -> None:
    """The report as a table for people."""
    console.print(report["command"])
    console.print(", ".join(f"{key} {value}" for key, value in report["machine"].items()), soft_wrap=True)
    title = f"{size_name(report['messages'])} messages, {size_name(report['memories'])} memories"
    table = Table("figure", title=title, show_edge=False)
    table.add_column("", justify="right")
    for name, value in report.items():
        if isinstance(value, float):
            table.add_row(name.replace("_", " "), f"{value:,.2f}")
    table.add_row("answers found equal", f"{report['answers_found_equal']:,}")
    table.add_row(f"within {report['limit_bytes_an_event']} bytes an event", "yes" if report["within"] else "NO")
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--memories", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.ask:
            print(json.dumps(ask(chosen.ask)))
            return 0
        with tempfile.TemporaryDirectory(prefix="branchmem-scale-", dir=chosen.folder) as folder:
            report = measured(chosen.messages, chosen.memories, Path(folder))
    except Unequal as error:
        print(f"bench.scale: {error}", file=sys.stderr)
        return 1
    if chosen.json:
        print(json.dumps(report, indent=2))
    else:
        show(report, Console())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
