"""The nearest vectors under a view, against numpy: gather what is visible, or read all and mask.

Asked at anchors that show one share of all memories; one anchor again and again, and many in turn, so
that rows come out of the cache, and do not.  Nothing is timed that is not exact: recall is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import branchmem as bm
import numpy as np

from bench import shapes
from bench.peers.scan import Nearest, Scan, Shown, Vectors
from bench.rows import Row
from bench.timing import Runner, race
from bench.tips import Tips, tips
from bench.workbench import Workbench, filled

K: Final = 10
CLOSE: Final = 1e-5
ALIKE: Final = 1e-6  # cosines that are no further apart are one: float32 does not tell them apart
DIMENSIONS: Final = 256
TOPICS: Final = 200
WEIGHTS: Final = (0.70**0.5, 0.12**0.5, 0.18**0.5)  # of what all vectors have in common, of the topic, of its own
NOISE: Final = 0.5  # of a query beside the vector of a memory, by length
#: Questions a pass, by the share that is visible: an answer takes microseconds, or milliseconds.
ASKED: Final = {0.001: 300, 0.01: 100, 0.1: 20, 0.5: 6}
FEW: Final = 4  # questions a pass for who reads all rows, however little is visible
CHECKED: Final = 20  # questions whose answers are held against the exact cosines
GATHER: Final = "numpy gather + matmul + argpartition"
SCAN: Final = "numpy full scan, masked"


def v(bench: Workbench) -> list[Row]:
    """The ten nearest of 256 dimensions, at anchors that show from a thousandth to a half of all memories."""
    rows = []
    for share, asked in ASKED.items():
        log = tips(share, bench.size.base)
        questions = _Questions(len(log.work.sources), asked)
        with closing(filled(log.events(questions.remembered))) as store:
            bench.describe(**log.description(store))
            store.embed_with(questions.embedder)
            store.embed_all()
            rows += _asked(bench, _At(log, store, questions, [0] * asked), "one anchor")
            turns = [turn % len(log.tips) for turn in range(asked)]
            rows += _asked(bench, _At(log, store, questions, turns), f"{len(set(turns))} anchors in turn")
    return rows


class _Known:
    """An embedder that knows the vectors of its texts beforehand, and one vector for all other texts."""

    name = "known-beforehand"

    def __init__(self, known: Iterable[tuple[str, Vectors]]) -> None:
        self._known = dict(known)
        self._other = next(iter(self._known.values()))

    def __call__(self, texts: list[str]) -> Vectors:
        return np.stack([self._known.get(text, self._other) for text in texts])


class _Questions:
    """Vectors of memories as embedders give them, each the length 1, and queries near some of them.

    Two of them have a cosine of 0.70 in the mean, two about one topic 0.82: what tells the best from the rest is
    little, as with models of the E5 family.
    """

    def __init__(self, memories: int, count: int) -> None:
        generator = np.random.default_rng([shapes.SEED, memories, count])

        def directions(number: int) -> Vectors:
            return _unit(generator.standard_normal((number, DIMENSIONS), dtype=np.float32))

        common, topics = directions(1), directions(TOPICS)[generator.integers(TOPICS, size=memories)]
        of_common, of_topic, of_own = map(np.float32, WEIGHTS)
        self.rows = _unit(of_common * common + of_topic * topics + of_own * directions(memories))
        near = self.rows[generator.integers(memories, size=count)]
        self.vectors = _unit(near + np.float32(NOISE) * directions(count))
        self.remembered = [f"memory {ordinal}" for ordinal in range(memories)]
        self.texts = [f"query {number}" for number in range(count)]

    @cached_property
    def embedder(self) -> _Known:
        """Gives these vectors for these texts."""
        rows = (*zip(self.remembered, self.rows, strict=True), *zip(self.texts, self.vectors, strict=True))
        return _Known(rows)


def _unit(rows: Vectors) -> Vectors:
    scaled: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


@dataclass(frozen=True)
class _At:
    """Questions, each at a tip; views are made before they are asked, as what numpy needs of them is."""

    log: Tips
    store: bm.Store
    questions: _Questions
    tips: Sequence[int]

    @cached_property
    def views(self) -> list[bm.View]:
        """The view of each question."""
        views = {tip: self.store.at(self.log.ids[tip]) for tip in set(self.tips)}
        return [views[tip] for tip in self.tips]

    @cached_property
    def shown(self) -> list[Shown]:
        """What numpy needs of each of them."""
        shown = {id(view): Shown.of(view.mask()) for view in self.views}
        return [shown[id(view)] for view in self.views]


def _asked(bench: Workbench, at: _At, where: str) -> list[Row]:
    """`view.nearest` with goals, and `view.search(by="vector")` for information."""
    scan = Scan(at.questions.rows)
    _check(bench, at, [scan.gather, scan.take, scan.mask, scan.pick])

    def nearest() -> None:
        for view, vector in zip(at.views, at.questions.vectors, strict=True):
            view.nearest(vector, K)

    def search() -> None:
        for view, text in zip(at.views, at.questions.texts, strict=True):
            view.search(text, K, by="vector")

    def theirs(answer: Callable[[Shown, Vectors, int], Nearest], count: int) -> Runner:
        asked = list(zip(at.shown, at.questions.vectors, strict=True))[:count]

        def run() -> None:
            for shown, vector in asked:
                answer(shown, vector, K)

        return Runner(answer.__qualname__, run, len(asked))

    gathering = [theirs(answer, len(at.tips)) for answer in (scan.gather, scan.take)]
    scanning = [theirs(answer, FEW) for answer in (scan.mask, scan.pick)]
    runners = [Runner("nearest", nearest, len(at.tips)), Runner("search", search, len(at.tips)), *gathering, *scanning]
    times = race(runners, rounds=min(5, bench.size.rounds))

    def row(question: str, ours: str, peer: str, variants: Sequence[Runner], goal: float | None) -> Row:
        quickest = min((runner.name for runner in variants), key=times.__getitem__)
        question = f"{question}, {at.log.share} visible, {where}"
        return Row("V", question, at.log.work.name, peer, quickest, times[ours], times[quickest], goal)

    return [
        row(f"view.nearest(vector, {K})", "nearest", GATHER, gathering, 2),
        row(f"view.nearest(vector, {K})", "nearest", SCAN, scanning, 1),
        row('view.search(text, by="vector")', "search", GATHER, gathering, None),
    ]


def _check(bench: Workbench, at: _At, answers: Sequence[Callable[[Shown, Vectors, int], Nearest]]) -> None:
    """Ours and every variant give the ten nearest by exact cosines."""
    places = {id: ordinal for ordinal, id in enumerate(at.log.work.memory_ids)}
    for turn in range(0, len(at.tips), max(1, len(at.tips) // CHECKED)):
        view, shown, vector = at.views[turn], at.shown[turn], at.questions.vectors[turn]
        cosines = at.questions.rows[shown.ordinals].astype(np.float64) @ vector.astype(np.float64)
        exact = dict(zip(shown.ordinals.tolist(), cosines.tolist(), strict=True))
        found = {f"numpy, {answer.__qualname__}": _pairs(answer(shown, vector, K)) for answer in answers}
        found["view.nearest"] = [(places[id], cosine) for id, cosine in view.nearest(vector, K)]
        hits = view.search(at.questions.texts[turn], K, by="vector")
        found["view.search"] = [(places[hit.id], hit.score) for hit in hits]
        for what, nearest in found.items():
            bench.check(f"V {what}", _faults(exact, nearest), [])


def _faults(exact: dict[int, float], nearest: Sequence[tuple[int, float]]) -> list[str]:
    """What is wrong with these ordinals and cosines; recall is 1 where nothing is."""
    best = sorted(exact.values(), reverse=True)[:K]
    ordinals, cosines = [ordinal for ordinal, _ in nearest], [cosine for _, cosine in nearest]
    claims = {
        "as many as there are": len(set(ordinals)) == len(ordinals) == len(best),
        "visible": exact.keys() >= set(ordinals),
        "the nearest": all(exact.get(ordinal, -1) >= best[-1] - ALIKE for ordinal in ordinals),
        "their cosines": all(abs(exact.get(ordinal, -1) - cosine) <= CLOSE for ordinal, cosine in nearest),
        "best first": cosines == sorted(cosines, reverse=True),
    }
    return [claim for claim, holds in claims.items() if not holds]


def _pairs(nearest: Nearest) -> list[tuple[int, float]]:
    ordinals, cosines = nearest
    return list(zip(ordinals.tolist(), cosines.tolist(), strict=True))
