"""Opening a store that is there: how long it takes, and what it then holds in memory.

`python -m bench.opening PATH` opens a store, or with `--fold` runs the peer's
fold, in a process of its own, and prints what it holds as JSON.  What counts is
anonymous memory: pages of the file that the system caches are not.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import branchmem as bm
from branchmem.log import Log

from bench import shapes
from bench.peers.fold import Fold, fold
from bench.rows import BYTES, Peer, Row, measure
from bench.timing import Runner
from bench.workbench import Loaded, Unequal, Workbench

TOP: Final = Path(__file__).parents[1]
LIMIT_BYTES: Final = 150
LOOKS: Final = 200


def p7(bench: Workbench) -> list[Row]:
    """Opening, against a plain fold over the same blocks; and its memory, against a limit."""
    rows = []
    for size in (bench.size.base, bench.size.large):
        loaded = bench.load("chats", size)
        with tempfile.TemporaryDirectory(prefix="branchmem-bench-") as folder:
            path = str(Path(folder, "opened.bmem"))
            shutil.copyfile(loaded.store.path, path)
            rows += _opened(bench, loaded, path)
            rows += _memory(bench, loaded, path)
    return rows


def _opened(bench: Workbench, loaded: Loaded, path: str) -> list[Row]:
    blocks = blocks_of(path)
    _check(bench, loaded, path, fold(blocks))
    events = loaded.store.seq
    return measure(
        "P7",
        "bm.open(path), each event",
        loaded.work.name,
        Runner("ours", lambda: bm.open(path).close(), events),
        [Peer("plain Python fold", [Runner("fold", lambda: fold(blocks), events)], goal=4)],
        rounds=min(3, bench.size.rounds),
    )


def blocks_of(path: str) -> list[bytes]:
    """The blocks of a log, in order."""
    with Log.open(path, readonly=True) as log:
        return log.read(lambda reader: [block for _, block in reader.blocks(-1)])


def _check(bench: Workbench, loaded: Loaded, path: str, folded: Fold) -> None:
    """The fold and the opened store hold the messages, parents, memories and sources of the work."""
    work, names = loaded.work, list(folded.numbers)
    parents = [None if parent == shapes.ROOT else work.message_ids[parent] for parent in work.parents]
    sources = [sorted(work.message_ids[source] for source in sources) for sources in work.sources]
    bench.check("P7 messages", work.message_ids, [names[number] for number in folded.messages])
    bench.check("P7 memories", work.memory_ids, [names[number] for number in folded.memories])
    bench.check("P7 parents", parents, [None if number < 0 else names[number] for number in folded.parents])
    bench.check("P7 sources", sources, [sorted(names[number] for number in each) for each in folded.sources])
    rng = random.Random(shapes.SEED)
    with bm.open(path) as store:
        bench.check("P7 messages opened", work.message_ids, list(store.message_ids))
        bench.check("P7 memories opened", work.memory_ids, list(store.memory_ids))
        for _ in range(LOOKS):
            message, memory = rng.randrange(len(parents)), rng.randrange(len(sources))
            bench.check("P7 a parent opened", parents[message], store.tree.parent(work.message_ids[message]))
            event = store.log.get(work.memory_ids[memory])
            bench.check("P7 sources opened", sources[memory], sorted(getattr(event, "sources", ())))


def _memory(bench: Workbench, loaded: Loaded, path: str) -> list[Row]:
    """Bytes of anonymous memory an event, of a fresh process that opened the store."""
    if anonymous_bytes() is None:
        bench.leave_out("P7, memory: this system does not say how much is anonymous")
        return []
    ours, theirs = held("--anchors", str(bench.size.anchors), path), held("--fold", path)
    opened, asked = ("memory after opening, an event", "memory after broad questions, an event")

    def row(question: str, peer: str, ours: float, theirs: float, goal: float | None) -> Row:
        return Row("P7", question, loaded.work.name, peer, peer, max(ours, 0.1), theirs, goal, BYTES)

    limit = f"{LIMIT_BYTES} bytes"
    return [
        row(opened, limit, ours["opened"], LIMIT_BYTES, 1),
        row(opened, "plain Python fold", ours["opened"], theirs["opened"], None),
        row(asked, limit, ours["asked"], LIMIT_BYTES, 1),
    ]


def held(*arguments: str) -> dict[str, float]:
    """What a process of its own says about itself."""
    command = [sys.executable, "-m", "bench.opening", *arguments]
    run = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    if run.returncode:
        raise Unequal(f"bench.opening: {run.stderr.strip()}")
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def anonymous_bytes() -> int | None:
    """What this process holds that no file backs; None where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = (line.split() for line in status.read_text(encoding="ascii").splitlines())
    return next((int(words[1]) * 1024 for words in lines if words and words[0] == "RssAnon:"), None)


def ask_broadly(store: bm.Store, anchors: Sequence[str]) -> None:
    """The questions that make an engine prepare what it can: many masks, and a million decisions."""
    import numpy as np

    generator = np.random.default_rng(shapes.SEED)
    pairs = min(1_000_000, len(store.memory_ids) * 10)
    store.visible(
        generator.integers(len(store.memory_ids), size=pairs, dtype=np.uint32),
        generator.integers(len(store.message_ids), size=pairs, dtype=np.uint32),
    )
    store.bitmaps(anchors[:10])
    for anchor in anchors:
        store.at(anchor).bitmap()
    store.at(anchors[0]).ordinals()


def main(arguments: Sequence[str]) -> int:
    """Print the bytes an event that opening, and then broad questions, added to this process."""
    import numpy as np

    np.random.default_rng(0).integers(9, size=9)  # what numpy takes for itself is not charged
    *options, path = arguments
    before = anonymous_bytes() or 0
    report: dict[str, Any] = {}
    if "--fold" in options:
        folded = fold(blocks_of(path))
        events = len(folded.parents) + len(folded.sources)
        report["opened"] = ((anonymous_bytes() or 0) - before) / events
    else:
        with bm.open(path) as store:
            report["opened"] = ((anonymous_bytes() or 0) - before) / store.seq
            count = len(store.message_ids)
            rng = random.Random(shapes.SEED)
            ask_broadly(store, [store.message_ids[rng.randrange(count)] for _ in range(int(options[1]))])
            report["asked"] = ((anonymous_bytes() or 0) - before) / store.seq
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
