"""Single decisions: is this memory visible there, one by one or pairwise, counted in either case."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import branchmem as bm
import numpy as np

from bench import shapes
from bench.peers import roaring
from bench.peers.graphs import NAMES, Graph
from bench.peers.intervals import PairScratch
from bench.peers.sets import DeepestInPath, Sets
from bench.rows import Peer, Row, measure
from bench.timing import Runner
from bench.workbench import Loaded, Workbench

FEW: Final = 5  # anchors, and memories at each, that are asked of who takes half a millisecond for one


def p4(bench: Workbench) -> list[Row]:
    """Single decisions: a million pairs in one call, and `in` one by one, counted in either case."""
    return [
        *_pairs(bench, bench.load("chats", bench.size.base), goal=2),
        *_pairs(bench, bench.load("chats", bench.size.large), goal=1.1),
        *_membership(bench, bench.load("chats", bench.size.base), goal=1.5),
    ]


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

    def theirs(name: str, decide: Callable[[Any, Sequence[str]], list[bool]], masks: Sequence[object]) -> Runner:
        asked = [(mask, ids) for mask, (_, _, ids) in zip(masks, views, strict=True)]
        return _deciding(bench, name, decide, asked, answers)

    ready = [roaring.mask(view.roaring()) for _, view, _ in views]
    by_sets = [theirs("subset", sets.subset, paths), theirs("superset", sets.superset, paths)]
    peers = [
        Peer("Python sets, path cached", by_sets, goal),
        Peer("Python, deepest source in path", [theirs("deepest", deepest.decide, paths)]),
        Peer("pyroaring, mask ready", [theirs("roaring", roaring.Masks(loaded.work.memory_ids).decide, ready)]),
    ]
    few = [(anchor, ids[:FEW]) for anchor, _, ids in views[:FEW]]
    for name in NAMES:
        graph = _deciding(bench, name, Graph(name, loaded.work).decide, few, [answer[:FEW] for answer in answers])
        peers.append(Peer(f"{name}, has_path", [graph]))
    mine = Runner("ours", ours, operations)
    return measure("P4", "memory in view", loaded.work.name, mine, peers, rounds=bench.size.rounds)


def _deciding(
    bench: Workbench,
    name: str,
    decide: Callable[[Any, Sequence[str]], list[bool]],
    asked: Sequence[tuple[Any, Sequence[str]]],
    answers: Sequence[list[bool]],
) -> Runner:
    """A peer that decides for the memories of each mask, found right first."""
    for (mask, ids), answer in zip(asked, answers, strict=False):
        bench.check(f"P4 {name}", answer, decide(mask, ids))

    def run() -> None:
        for mask, ids in asked:
            decide(mask, ids)

    return Runner(name, run, sum(len(ids) for _, ids in asked))


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
