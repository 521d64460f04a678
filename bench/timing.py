"""Who is quicker, measured side by side: every round gives every runner the same short while.

Rounds are interleaved, so that a busy moment of the machine falls on all alike,
and begin with another runner each time.  A runner makes passes for a while, at
least three, or one where a pass takes half a second; its figure is the median
over the rounds of the best pass of a round.  Where questions differ in what they
cost, each is timed by itself, once a round.  The collector of cycles is off
meanwhile.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

WHILE_NS: Final = 20_000_000
PASSES: Final = 3
LONG_NS: Final = 500_000_000


@dataclass(frozen=True, slots=True)
class Runner:
    """One way to answer the whole work once: `run()` makes `operations` answers of one kind.

    `before()` makes ready for one pass and is not timed.
    """

    name: str
    run: Callable[[], object]
    operations: int
    before: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class Asker:
    """One way to answer questions that differ in what they cost: `ask(n)` answers the n-th of `questions`."""

    name: str
    ask: Callable[[int], object]
    questions: int


def race(runners: Sequence[Runner], *, rounds: int) -> Mapping[str, float]:
    """Microseconds an operation of each runner.  One untimed pass each warms caches first."""
    for runner in runners:
        _elapsed(runner)
    best: dict[str, list[float]] = {runner.name: [] for runner in runners}
    with _collector_off():
        for turn in range(rounds):
            first = turn % len(runners)
            for runner in (*runners[first:], *runners[:first]):
                best[runner.name].append(_best_pass(runner))
    return {runner.name: statistics.median(best[runner.name]) / 1e3 / runner.operations for runner in runners}


def race_each(askers: Sequence[Asker], *, rounds: int) -> Mapping[str, list[float]]:
    """Microseconds for each question of each asker, best of the rounds.  One untimed pass each warms caches first."""
    for asker in askers:
        _times(asker)
    passes: dict[str, list[list[int]]] = {asker.name: [] for asker in askers}
    with _collector_off():
        for turn in range(rounds):
            first = turn % len(askers)
            for asker in (*askers[first:], *askers[:first]):
                passes[asker.name].append(_times(asker))
    return {name: [min(times) / 1e3 for times in zip(*each, strict=True)] for name, each in passes.items()}


def _times(asker: Asker) -> list[int]:
    ask, clock = asker.ask, time.perf_counter_ns
    times = []
    for question in range(asker.questions):
        start = clock()
        ask(question)
        times.append(clock() - start)
    return times


def _best_pass(runner: Runner) -> int:
    passes = [_elapsed(runner)]
    while passes[0] < LONG_NS and (len(passes) < PASSES or sum(passes) < WHILE_NS):
        passes.append(_elapsed(runner))
    return min(passes)


def _elapsed(runner: Runner) -> int:
    if runner.before is not None:
        runner.before()
    run = runner.run
    start = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - start


@contextmanager
def _collector_off() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
