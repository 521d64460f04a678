"""Whether what is remembered elsewhere costs anything: the same output at a hundred times the size."""

from __future__ import annotations

from collections.abc import Sequence

import branchmem as bm

from bench import shapes
from bench.rows import Peer, Row, measure
from bench.timing import Runner
from bench.workbench import Loaded, Workbench


def p9(bench: Workbench) -> list[Row]:
    """The same output from a hundred times as many memories: theirs is ourselves on the small work."""
    small, large = bench.load("chats", bench.size.tenth), bench.load("chats", bench.size.large)
    sample = shapes.anchors(small.work, 10 * bench.size.anchors)
    shown = sorted(len(small.walk.ordinals(anchor)) for anchor in sample)[len(sample) // 2]
    runs = [_same_output(bench, loaded, shown) for loaded in (small, large)]
    rows = []
    for of_small, of_large in zip(*runs, strict=True):
        ours = Runner(f"{of_large.name}, large", of_large.run, of_large.operations)
        question = f"{of_small.name}, {shown} visible"
        peer = Peer(f"ourselves at {small.work.name}", [of_small], goal=0.5)
        rows += measure("P9", question, large.work.name, ours, [peer], rounds=bench.size.rounds)
    return rows


def _same_output(bench: Workbench, loaded: Loaded, shown: int) -> list[Runner]:
    """`at`, `at().ordinals()` and `in` at the few anchors whose view comes nearest to so many memories.

    Few, and `in` asks only for what they show, ten times over, so that what it costs to fetch from
    more memory than the processor caches, which is alike for every peer, does not decide.
    """
    sample = sorted(set(shapes.anchors(loaded.work, 10 * bench.size.anchors)))
    sample.sort(key=lambda anchor: abs(len(loaded.walk.ordinals(anchor)) - shown))
    anchors = sample[: max(1, bench.size.anchors // 10)]
    ids = [loaded.work.message_ids[anchor] for anchor in anchors]
    at = loaded.store.at
    visible = [sorted(loaded.walk.ordinals(anchor)) for anchor in anchors]
    for id, ordinals in zip(ids, visible, strict=True):
        bench.check(f"P9 {loaded.work.name}", at(id).ordinals().tolist(), ordinals)
    asked = [[loaded.work.memory_ids[memory] for memory in ordinals] for ordinals in visible]
    return views_and_members(loaded.store, ids, asked, repeats=10)


def views_and_members(
    store: bm.Store, ids: Sequence[str], asked: Sequence[Sequence[str]], *, repeats: int = 1
) -> list[Runner]:
    """`at`, `at().ordinals()`, and `in` of the memories `asked` for at each anchor, so many times over."""
    at = store.at
    views = [(at(id), memories) for id, memories in zip(ids, asked, strict=True)]

    def stand() -> None:
        for id in ids:
            at(id)

    def listed() -> None:
        for id in ids:
            at(id).ordinals()

    def contained() -> None:
        for view, memories in views:
            for _ in range(repeats):
                [id in view for id in memories]

    return [
        Runner("store.at(a)", stand, len(ids)),
        Runner("store.at(a).ordinals()", listed, len(ids)),
        Runner("memory in view", contained, repeats * sum(map(len, asked))),
    ]
