"""The questions of the comparison, by the name of their goal: what is asked, of whom, on what work.

Each takes a workbench, finds the answers of ours and of every peer equal, and
only then times them.  A further goal is a further function in `QUESTIONS`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import branchmem as bm
import numpy as np

from bench import shapes
from bench.machine import has_avx512
from bench.peers.intervals import PairScratch
from bench.peers.sets import DeepestInPath, Sets
from bench.peers.sqlite import Recursive, TourIntervals
from bench.peers.tree_slice import TreeSlice
from bench.rows import Peer, Row, measure
from bench.timing import Runner
from bench.workbench import Loaded, Workbench

NUMPY: Final = "numpy intervals + packbits"
SQLITE: Final = "SQLite, deepest source"


@dataclass(frozen=True, slots=True)
class _MaskPeer:
    """A peer that answers for one message; no goal: for information."""

    name: str
    answers: Sequence[Callable[[int], object]]
    goal: float | None = None


def p1(bench: Workbench) -> list[Row]:
    """Masks where little is visible: one anchor a call, and many in one."""
    loaded = bench.load("chats", bench.size.base)
    with closing(Recursive(loaded.work, loaded.tour)) as recursive, closing(TourIntervals(loaded.tour)) as ranges:
        return [
            *_mask(bench, "P1", loaded, numpy_goal=25, peers=_mask_peers(loaded, recursive, ranges)),
            *_masks(bench, loaded, recursive, ranges),
        ]


def p2(bench: Workbench) -> list[Row]:
    """The mask of one anchor where there are ten times as many memories."""
    return _mask(bench, "P2", bench.load("chats", bench.size.large), numpy_goal=100)


def p3(bench: Workbench) -> list[Row]:
    """The mask of one anchor where nearly a third is visible."""
    return _mask(bench, "P3", bench.load("dense", bench.size.base), numpy_goal=3 if has_avx512() else 2)


def p4(bench: Workbench) -> list[Row]:
    """Single decisions: a million pairs in one call, and `in` one by one, counted in either case."""
    return [
        *_pairs(bench, bench.load("chats", bench.size.base), goal=2),
        *_pairs(bench, bench.load("chats", bench.size.large), goal=1.1),
        *_membership(bench, bench.load("chats", bench.size.base), goal=1.5),
    ]


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


QUESTIONS: Final[dict[str, Callable[[Workbench], list[Row]]]] = {"P1": p1, "P2": p2, "P3": p3, "P4": p4, "P9": p9}


def _mask(
    bench: Workbench,
    name: str,
    loaded: Loaded,
    *,
    numpy_goal: float,
    peers: Sequence[_MaskPeer] = (),
) -> list[Row]:
    """`store.at(a).bitmap()` at random anchors, by id."""
    anchors = shapes.anchors(loaded.work, bench.size.anchors)
    ids = [loaded.work.message_ids[anchor] for anchor in anchors]
    index = dict(zip(ids, anchors, strict=True))
    intervals, at = loaded.intervals, loaded.store.at
    peers = [
        _MaskPeer(NUMPY, [intervals.bitmap, intervals.bitmap_wrapped], numpy_goal),
        _MaskPeer("numpy, the anchor's tree only", [TreeSlice(loaded.tour).bitmap]),
        *peers,
    ]
    for id, anchor in index.items():
        shown = set(at(id).ordinals().tolist())
        bench.check(f"{name} ordinals", shown, set(_ordinals(at(id).bitmap())))
        for peer in peers:
            for answer in peer.answers:
                bench.check(f"{name} {answer.__qualname__}", shown, set(_ordinals(answer(anchor))))

    def ours() -> None:
        for id in ids:
            at(id).bitmap()

    def theirs(answer: Callable[[int], object]) -> Runner:
        def run() -> None:
            for id in ids:
                answer(index[id])

        return Runner(answer.__qualname__, run, len(ids))

    return measure(
        name,
        "store.at(a).bitmap()",
        loaded.work.name,
        Runner("ours", ours, len(ids)),
        [Peer(peer.name, [theirs(answer) for answer in peer.answers], peer.goal) for peer in peers],
        rounds=bench.size.rounds,
    )


def _mask_peers(loaded: Loaded, recursive: Recursive, ranges: TourIntervals) -> list[_MaskPeer]:
    """The peers whose time follows what is visible, so that they take seconds where that is much."""
    return [
        _MaskPeer(SQLITE, [recursive.ordinals, recursive.bitmap], 150),
        _MaskPeer("SQLite, tour kept in a table", [ranges.ordinals]),
        _MaskPeer("Python parent walk", [loaded.walk.ordinals, loaded.walk.bitmap]),
    ]


def _ordinals(answer: Any) -> Iterable[int]:
    """The memories in a peer's answer, be it packed bits, SQL rows or a list."""
    if isinstance(answer, list):
        return (each[0] if isinstance(each, tuple) else each for each in answer)
    bits = np.unpackbits(np.frombuffer(answer, dtype=np.uint8), bitorder="little")
    shown: list[int] = np.flatnonzero(bits).tolist()
    return shown


def _masks(bench: Workbench, loaded: Loaded, recursive: Recursive, ranges: TourIntervals) -> list[Row]:
    """`store.bitmaps(anchors)`: many anchors, one call."""
    anchors = shapes.anchors(loaded.work, bench.size.rows)
    ids = [loaded.work.message_ids[anchor] for anchor in anchors]
    store, intervals = loaded.store, loaded.intervals
    ours = store.bitmaps(ids)
    out = np.empty_like(ours)
    packed = (intervals.bitmaps, intervals.bitmaps_wrapped, intervals.bitmaps_blocked)
    for answer in packed:
        bench.check(f"P1 {answer.__qualname__}", ours.tobytes(), answer(anchors, out).tobytes())
    shown = [sorted(_ordinals(row)) for row in ours]
    for listed in (recursive.ordinals_each, ranges.ordinals_each):
        bench.check(f"P1 {listed.__qualname__}", shown, [sorted(_ordinals(rows)) for rows in listed(anchors)])
    pairs = [(row, ordinal) for row, ordinals in enumerate(shown) for ordinal in ordinals]
    bench.check("P1 Recursive.ordinals_joined", pairs, sorted(recursive.ordinals_joined(anchors)))

    def runner(answer: Callable[..., object], *arguments: object) -> Runner:
        return Runner(answer.__qualname__, lambda: answer(*arguments), len(ids))

    by_rows = [runner(recursive.ordinals_each, anchors), runner(recursive.ordinals_joined, anchors)]
    return measure(
        "P1",
        f"store.bitmaps({len(ids):,} anchors), each",
        loaded.work.name,
        runner(store.bitmaps, ids),
        [
            Peer(NUMPY, [runner(answer, anchors, out) for answer in packed], 40),
            Peer(SQLITE, by_rows, 250),
            Peer("SQLite, tour kept in a table", [runner(ranges.ordinals_each, anchors)]),
        ],
        rounds=bench.size.rounds,
    )


def _pairs(bench: Workbench, loaded: Loaded, *, goal: float) -> list[Row]:
    """`store.visible(memories, anchors)` on arrays of ordinals, random pairs."""
    count = bench.size.pairs
    generator = np.random.default_rng(shapes.SEED)
    memories = generator.integers(len(loaded.work.memory_ids), size=count, dtype=np.uint32)
    messages = generator.integers(len(loaded.work.message_ids), size=count, dtype=np.uint32)
    # Numpy fetches quickest by indices of its own width; ours takes what `ordinals()` gives.
    memory_places, message_places = memories.astype(np.intp), messages.astype(np.intp)
    store, intervals = loaded.store, loaded.intervals
    scratch = PairScratch(intervals, count)
    left_out = store.counters().get("unlisted", 0)
    ours = store.visible(memories, messages)
    bench.check("P4 pairs, counted", store.counters().get("unlisted", 0) - left_out, int(np.count_nonzero(~ours)))
    plain = (intervals.visible, intervals.visible_wrapped)
    # Half the fetches by packing; no bounds checked, and an answer that the next question overwrites.
    tuned = (intervals.visible_packed, scratch.visible, scratch.visible_packed)
    for peer in (*plain, *tuned):
        bench.check(f"P4 {peer.__qualname__}", ours.tobytes(), peer(memory_places, message_places).tobytes())

    def theirs(answer: Callable[[Any, Any], object]) -> Runner:
        return Runner(answer.__qualname__, lambda: answer(memory_places, message_places), count)

    mine = Runner("ours", lambda: store.visible(memories, messages), count)
    peers = [
        Peer("numpy intervals", [theirs(answer) for answer in plain], goal),
        Peer("numpy, packed, into old arrays", [theirs(answer) for answer in tuned]),
    ]
    question = f"store.visible({shapes.size_name(count)} pairs), each"
    return measure("P4", question, loaded.work.name, mine, peers, rounds=bench.size.rounds)


def _membership(bench: Workbench, loaded: Loaded, *, goal: float) -> list[Row]:
    """`memory in view` for candidates of which half are visible, view and path at hand."""
    views = _views(loaded, shapes.anchors(loaded.work, bench.size.anchors))
    operations = sum(len(ids) for _, _, ids in views)
    sets, deepest = Sets(loaded.work), DeepestInPath(loaded.work, loaded.tour.deepest)
    paths = [sets.path(anchor) for anchor, _, _ in views]
    hidden = _hidden(loaded)
    answers = [[id in view for id in ids] for _, view, ids in views]
    bench.check("P4 in, counted", _hidden(loaded) - hidden, sum(row.count(False) for row in answers))

    def ours() -> None:
        for _, view, ids in views:
            [id in view for id in ids]

    def theirs(decide: Callable[[Any, Sequence[str]], list[bool]], masks: Sequence[object]) -> Runner:
        for mask, answer, (_, _, ids) in zip(masks, answers, views, strict=True):
            bench.check(f"P4 {decide.__qualname__}", answer, decide(mask, ids))

        def run() -> None:
            for mask, (_, _, ids) in zip(masks, views, strict=True):
                decide(mask, ids)

        return Runner(decide.__qualname__, run, operations)

    peers = [
        Peer("Python sets, path cached", [theirs(sets.subset, paths), theirs(sets.superset, paths)], goal),
        Peer("Python, deepest source in path", [theirs(deepest.decide, paths)]),
    ]
    if find_spec("pyroaring"):
        from bench.peers import roaring

        masks = [roaring.mask(view.roaring()) for _, view, _ in views]
        peers.append(Peer("pyroaring, mask ready", [theirs(roaring.Masks(loaded.work.memory_ids).decide, masks)]))
    mine = Runner("ours", ours, operations)
    return measure("P4", "memory in view", loaded.work.name, mine, peers, rounds=bench.size.rounds)


def _hidden(loaded: Loaded) -> int:
    """How many decisions the store has counted as hidden."""
    return sum(loaded.store.counters().get("hidden", {}).values())


def _views(loaded: Loaded, anchors: Sequence[int]) -> list[tuple[int, bm.View, list[str]]]:
    """A view and 200 candidates an anchor: half of them visible, half of them any, shuffled."""
    rng = random.Random(shapes.SEED)
    ids = loaded.work.memory_ids
    views = []
    for anchor in anchors:
        shown = loaded.walk.ordinals(anchor) or [0]
        candidates = rng.choices(shown, k=100) + rng.choices(range(len(ids)), k=100)
        rng.shuffle(candidates)
        views.append((anchor, loaded.store.at(loaded.work.message_ids[anchor]), [ids[memory] for memory in candidates]))
    return views


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
    repeats = 10
    views = [
        (at(id), [loaded.work.memory_ids[memory] for memory in ordinals])
        for id, ordinals in zip(ids, visible, strict=True)
    ]

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
        Runner("memory in view", contained, repeats * sum(map(len, visible))),
    ]
