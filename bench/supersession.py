"""Whether a view in which versions replace each other costs what hangs on its path, and no more.

Versions within trees, as conversations leave them; one on every branch of a prompt
regenerated again and again; all of them on one path.  Each against the same log
without the links, and against ourselves where a tenth of the memories are there.
"""

from __future__ import annotations

import random
from contextlib import closing
from typing import Final

import branchmem as bm

from bench import shapes
from bench.beside import Beside, beside, check_against_reference
from bench.changed import CHANGES, ChangedWork
from bench.growth import views_and_members
from bench.rows import Peer, Row, measure
from bench.timing import Runner
from bench.workbench import Workbench, filled

KINDS: Final = ("versions", "versions-on-siblings", "rivals", "versions-on-a-path")
CHECKED: Final = 10  # anchors; each shows up to half of all memories in the last kind
ASKED: Final = 200  # memories of a view that are asked for


def s(bench: Workbench) -> list[Row]:
    """The same views with links and without; the same path and output where there are ten times as many memories."""
    rows = []
    for kind in KINDS:
        check_against_reference(bench, "S", kind)
        with beside(CHANGES[kind](bench.size.base)) as both:
            part = _tenth(both.changed, bench)
            anchors = random.Random(shapes.SEED).choices(part, k=max(1, bench.size.anchors // 4))
            both.check(bench, "S", anchors[:CHECKED])
            both.describe(bench, anchors)
            rows += both.masks(bench, "S", anchors)
            rows += both.decisions(bench, "S", anchors)
            rows += both.pairs(bench, "S", anchors[:CHECKED], bench.size.rows)
            rows += _grown(bench, both, part, anchors[:CHECKED])
    return rows


def _tenth(changed: ChangedWork, bench: Workbench) -> list[int]:
    """Every tenth tree with all its messages, or of a single tree the first tenth."""
    tree = changed.tour.tree
    roots = sorted(set(tree))
    if len(roots) == 1:
        return list(range(bench.size.tenth))
    chosen = set(roots[::10])
    return [message for message in range(len(tree)) if tree[message] in chosen]


def _grown(bench: Workbench, both: Beside, part: list[int], anchors: list[int]) -> list[Row]:
    """The same path and output, in the whole and in the part alone: theirs is ourselves on the part."""
    small = both.changed.among(part)
    ids = [both.changed.work.message_ids[anchor] for anchor in anchors]
    with closing(filled(small.events())) as store:
        for id in ids:
            bench.check(f"S {both.changed.name} in a part", sorted(store.at(id)), sorted(both.store.at(id)))
        runs = [_asked(each, ids) for each in (both.store, store)]
        rows = []
        for large, alone in zip(*runs, strict=True):
            ours = Runner(f"{large.name}, whole", large.run, large.operations)
            peer = Peer(f"ourselves with {shapes.size_name(bench.size.tenth)} memories", [alone], goal=0.5)
            question = f"{large.name}, same path and output"
            rows += measure("S", question, both.changed.name, ours, [peer], rounds=bench.size.rounds)
    return rows


def _asked(store: bm.Store, ids: list[str]) -> list[Runner]:
    """`at`, `at().ordinals()` and `in` of what is visible and of what is replaced there."""
    admitted = bm.Policy(admit=bm.Reason.SUPERSEDED)
    return views_and_members(store, ids, [sorted(store.at(id, policy=admitted))[:ASKED] for id in ids])
