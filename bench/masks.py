"""Views as one bit a memory: at one anchor, at many, where little is visible and where much is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pyroaring import BitMap

from bench import shapes
from bench.machine import has_avx512
from bench.peers import duck
from bench.peers.duck import Column, Duck
from bench.peers.graphs import NAMES, Graph
from bench.peers.roaring import Subsets, Unions
from bench.peers.sqlite import Recursive, TourIntervals
from bench.peers.tree_slice import TreeSlice
from bench.rows import Peer, Row, measure
from bench.timing import Runner
from bench.workbench import Loaded, Workbench

NUMPY: Final = "numpy intervals + packbits"
SQLITE: Final = "SQLite, deepest source"
FEW: Final = 3  # anchors that are asked of who takes milliseconds for one, however little is visible


@dataclass(frozen=True, slots=True)
class _MaskPeer:
    """A peer that answers for one message; no goal: for information.  `few`: asked at a few anchors."""

    name: str
    answers: Sequence[Callable[[int], object]]
    goal: float | None = None
    few: bool = False


def p1(bench: Workbench) -> list[Row]:
    """Masks where little is visible: one anchor a call, and many in one."""
    loaded = bench.load("chats", bench.size.base)
    with ExitStack() as stack:
        recursive = stack.enter_context(closing(Recursive(loaded.work, loaded.tour)))
        ranges = stack.enter_context(closing(TourIntervals(loaded.tour)))
        ducks = stack.enter_context(closing(Duck(loaded.work, loaded.tour)))
        peers, batched = _mask_peers(loaded, recursive, ranges), _ducks(bench, loaded, ducks)
        return [
            *_mask(bench, "P1", loaded, numpy_goal=25, peers=peers, batched=batched),
            *_masks(bench, loaded, recursive, ranges),
        ]


def p2(bench: Workbench) -> list[Row]:
    """The mask of one anchor where there are ten times as many memories."""
    return _mask(bench, "P2", bench.load("chats", bench.size.large), numpy_goal=100)


def p3(bench: Workbench) -> list[Row]:
    """The mask of one anchor where nearly a third is visible."""
    return _mask(bench, "P3", bench.load("dense", bench.size.base), numpy_goal=3 if has_avx512() else 2)


def _mask(
    bench: Workbench,
    name: str,
    loaded: Loaded,
    *,
    numpy_goal: float,
    peers: Sequence[_MaskPeer] = (),
    batched: Sequence[Peer] = (),
) -> list[Row]:
    """`store.at(a).bitmap()` at random anchors, by id; `batched` answer many anchors at once, and were checked."""
    anchors = shapes.anchors(loaded.work, bench.size.anchors)
    ids = [loaded.work.message_ids[anchor] for anchor in anchors]
    index = dict(zip(ids, anchors, strict=True))
    intervals, at = loaded.intervals, loaded.store.at
    peers = [
        _MaskPeer(NUMPY, [intervals.bitmap, intervals.bitmap_wrapped], numpy_goal),
        _MaskPeer("numpy, the anchor's tree only", [TreeSlice(loaded.tour).bitmap]),
        *peers,
    ]
    for turn, (id, anchor) in enumerate(index.items()):
        shown = set(at(id).ordinals().tolist())
        bench.check(f"{name} ordinals", shown, set(_ordinals(at(id).bitmap())))
        for peer in peers:
            for answer in peer.answers if turn < FEW or not peer.few else ():
                bench.check(f"{name} {peer.name}, {answer.__qualname__}", shown, set(_ordinals(answer(anchor))))

    def ours() -> None:
        for id in ids:
            at(id).bitmap()

    def theirs(peer: _MaskPeer, answer: Callable[[int], object]) -> Runner:
        asked = ids[:FEW] if peer.few else ids

        def run() -> None:
            for id in asked:
                answer(index[id])

        return Runner(f"{peer.name}, {answer.__qualname__}", run, len(asked))

    return measure(
        name,
        "store.at(a).bitmap()",
        loaded.work.name,
        Runner("ours", ours, len(ids)),
        [*(Peer(peer.name, [theirs(peer, answer) for answer in peer.answers], peer.goal) for peer in peers), *batched],
        rounds=bench.size.rounds,
    )


def _mask_peers(loaded: Loaded, recursive: Recursive, ranges: TourIntervals) -> list[_MaskPeer]:
    """The peers whose time follows what is visible, so that they take seconds where that is much; and slow ones."""
    work, tour = loaded.work, loaded.tour
    graphs = [Graph(name, work) for name in NAMES]
    return [
        _MaskPeer(SQLITE, [recursive.ordinals, recursive.bitmap], 150),
        _MaskPeer("SQLite, tour kept in a table", [ranges.ordinals]),
        _MaskPeer("Python parent walk", [loaded.walk.ordinals, loaded.walk.bitmap]),
        _MaskPeer("pyroaring, union along the path", [Unions(work, tour).union]),
        _MaskPeer("pyroaring, subset a memory", [Subsets(work).ordinals], few=True),
        *(
            _MaskPeer(f"{graph.name}, subset a memory", [graph.ordinals, graph.ordinals_from_the_path], few=True)
            for graph in graphs
        ),
    ]


def _ducks(bench: Workbench, loaded: Loaded, ducks: Duck) -> list[Peer]:
    """DuckDB at many anchors a query, found right."""
    anchors = shapes.anchors(loaded.work, duck.BATCH)
    shown = [sorted(loaded.walk.ordinals(anchor)) for anchor in anchors]
    pairs = [(row, ordinal) for row, ordinals in enumerate(shown) for ordinal in ordinals]

    def runner(answer: Callable[[Sequence[int]], tuple[Column, Column]]) -> Runner:
        rows, ordinals = answer(anchors)
        found = sorted(zip(rows.tolist(), ordinals.tolist(), strict=True))
        bench.check(f"P1 {answer.__qualname__}", pairs, found)
        return Runner(answer.__qualname__, lambda: answer(anchors), len(anchors))

    each = f"{duck.BATCH} a query"
    return [
        Peer(f"DuckDB, deepest source, {each}", [runner(ducks.recursive)]),
        Peer(f"DuckDB, tour kept in a table, {each}", [runner(ducks.range), runner(ducks.range_in_tree)]),
    ]


def _ordinals(answer: Any) -> Iterable[int]:
    """The memories in a peer's answer, be it packed bits, a Roaring bitmap, SQL rows or a list."""
    if isinstance(answer, list):
        return (each[0] if isinstance(each, tuple) else each for each in answer)
    if isinstance(answer, BitMap):
        return answer
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
