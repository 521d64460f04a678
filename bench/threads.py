"""Views from two threads: how much more is answered than by one, on a machine with two cores.

Theirs is one thread that does the same work.  What releases the interpreter
must gain; what holds it, since it takes a microsecond, cannot, and is shown for
information.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final

import numpy as np

from bench import shapes
from bench.rows import Peer, Row, measure
from bench.timing import Runner
from bench.workbench import Loaded, Workbench

THREADS: Final = 2
GOAL: Final = 1.7
REPEATS: Final = 4  # of the work, for each thread, so that handing it over is not what is measured


def t2(bench: Workbench) -> list[Row]:
    """The same work by two threads and by one."""
    chats, dense = bench.load("chats", bench.size.base), bench.load("dense", bench.size.base)
    rows = []
    with ThreadPoolExecutor(THREADS) as pool:
        rows += _threaded(bench, chats, "store.bitmaps(1,000 anchors)", _bitmaps(bench, chats), GOAL, pool)
        rows += _threaded(bench, chats, "store.visible(1M pairs)", _visible(bench, chats), GOAL, pool)
        rows += _threaded(bench, dense, "store.at(a).bitmap()", _views(bench, dense), GOAL, pool)
        rows += _threaded(bench, chats, "store.at(a).bitmap(), holds the GIL", _views(bench, chats), None, pool)
    return rows


def _bitmaps(bench: Workbench, loaded: Loaded) -> Callable[[], Any]:
    ids = _ids(loaded, bench.size.rows)
    return lambda: loaded.store.bitmaps(ids)


def _visible(bench: Workbench, loaded: Loaded) -> Callable[[], Any]:
    generator = np.random.default_rng(shapes.SEED)
    count = len(loaded.work.memory_ids)
    memories = generator.integers(count, size=bench.size.pairs, dtype=np.uint32)
    messages = generator.integers(count, size=bench.size.pairs, dtype=np.uint32)
    return lambda: loaded.store.visible(memories, messages)


def _views(bench: Workbench, loaded: Loaded) -> Callable[[], Any]:
    ids, at = _ids(loaded, bench.size.anchors) * 4, loaded.store.at
    return lambda: [at(id).bitmap() for id in ids]


def _ids(loaded: Loaded, count: int) -> list[str]:
    return [loaded.work.message_ids[anchor] for anchor in shapes.anchors(loaded.work, count)]


def _threaded(
    bench: Workbench,
    loaded: Loaded,
    question: str,
    answer: Callable[[], object],
    goal: float | None,
    pool: ThreadPoolExecutor,
) -> list[Row]:
    alone = np.asarray(answer()).tolist()
    for future in [pool.submit(answer) for _ in range(THREADS)]:
        bench.check(f"T2 {question}", alone, np.asarray(future.result()).tolist())
    part = partial(_repeat, answer)
    one = Runner("one thread", lambda: [part() for _ in range(THREADS)], THREADS * REPEATS)
    two = Runner("two threads", lambda: wait([pool.submit(part) for _ in range(THREADS)]), THREADS * REPEATS)
    peer = Peer("ourselves, one thread", [one], goal)
    return measure("T2", f"2 threads: {question}", loaded.work.name, two, [peer], rounds=bench.size.rounds)


def _repeat(answer: Callable[[], object]) -> None:
    for _ in range(REPEATS):
        answer()
