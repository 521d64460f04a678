"""What views cost where much was taken back: the same anchors in two stores, with retractions and without.

Ten thousand retractions on two hundred trees and a hundred thousand memories, at most
three times what the same view costs without them.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import branchmem as bm
from branchmem.events import Event

from bench import shapes
from bench.beside import WITHOUT, Beside, beside, check_against_reference
from bench.changed import CHANGES, ChangedWork
from bench.opening import LIMIT_BYTES, anonymous_bytes, held
from bench.rows import BYTES, Peer, Row, measure
from bench.timing import Runner
from bench.workbench import Workbench

LIMIT: Final = 1 / 3  # least ratio of the unchanged view to the whole one


def r(bench: Workbench) -> list[Row]:
    """Views with retractions against views without; where much is visible; a key retracted all the time; taking in."""
    check_against_reference(bench, "R", "retracted-of-100")
    rows = []
    with beside(CHANGES["retracted"](bench.size.base)) as both:
        anchors = shapes.anchors(both.changed.work, bench.size.anchors)
        both.check(bench, "R", anchors)
        both.describe(bench, anchors)
        rows += both.masks(bench, "R", anchors, LIMIT)
        rows += both.decisions(bench, "R", anchors, LIMIT)
        rows += both.pairs(bench, "R", anchors, bench.size.pairs)
        rows += _opened(bench, both)
    rows += _taken_in(bench, both.changed)
    with beside(CHANGES["retracted-dense"](bench.size.base)) as both:
        anchors = shapes.anchors(both.changed.work, max(1, bench.size.anchors // 4))
        both.check(bench, "R", anchors[:5])
        both.describe(bench, anchors)
        rows += both.masks(bench, "R", anchors)
    with beside(CHANGES["hot-key"](bench.size.base)) as both:
        anchors = _of_first_tree(both.changed, bench.size.anchors // 4)
        both.check(bench, "R", anchors)
        both.describe(bench, anchors)
        rows += both.masks(bench, "R", anchors)
        rows += both.decisions(bench, "R", anchors)
    return rows


def _of_first_tree(changed: ChangedWork, count: int) -> list[int]:
    own = [message for message, tree in enumerate(changed.tour.tree) if tree == 0]
    return random.Random(shapes.SEED).choices(own, k=max(1, count))


def _taken_in(bench: Workbench, changed: ChangedWork) -> list[Row]:
    """`engine.add` of all retractions at once after everything else, against as many memories after the others."""
    retractions: list[Event] = [changed.retraction(taking) for taking in changed.takings]
    events = list(changed.without().events())
    last = {*changed.work.memory_ids[-len(retractions) :]}
    engine = bm.Engine()

    def runner(name: str, before: Sequence[Event], added: Sequence[Event]) -> Runner:
        def begin() -> None:
            nonlocal engine
            engine = bm.Engine()
            engine.add(before)

        return Runner(name, lambda: engine.add(added), len(added), before=begin)

    others = [event for event in events if event.id not in last]
    memories = [event for event in events if event.id in last]
    return measure(
        "R",
        f"engine.add({shapes.size_name(len(retractions))} retractions), each",
        changed.name,
        runner("ours", events, retractions),
        [Peer("ourselves, as many memories", [runner("memories", others, memories)])],
        rounds=1,
    )


def _opened(bench: Workbench, both: Beside) -> list[Row]:
    """Opening, an event, and the anonymous memory of a process that opened the store and asked broad questions."""
    name = both.changed.name
    with tempfile.TemporaryDirectory(prefix="branchmem-bench-") as folder:
        paths = [str(Path(folder, f"{which}.bmem")) for which in ("whole", "unchanged")]
        for store, path in zip((both.store, both.bare), paths, strict=True):
            shutil.copyfile(store.path, path)
        whole, bare = paths
        rows = measure(
            "R",
            "bm.open(path), each event",
            name,
            Runner("ours", lambda: bm.open(whole).close(), both.store.seq),
            [Peer(WITHOUT, [Runner("unchanged", lambda: bm.open(bare).close(), both.bare.seq)])],
            rounds=min(3, bench.size.rounds),
        )
        if anonymous_bytes() is None:
            bench.leave_out("R, memory: this system does not say how much is anonymous")
            return rows
        ours, theirs = (held("--anchors", str(bench.size.anchors), path) for path in paths)
    for when, question in (("opened", "memory after opening"), ("asked", "memory after broad questions")):
        for peer, bytes_each in ((WITHOUT, theirs[when]), (f"{LIMIT_BYTES} bytes", LIMIT_BYTES)):
            sizes = max(ours[when], 0.1), max(bytes_each, 0.1)
            rows.append(Row("R", f"{question}, an event", name, peer, peer, *sizes, None, BYTES))
    return rows
