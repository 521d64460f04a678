"""The differential suite: does the engine answer as the reference does?

Random logs of all event types arrive in shuffled order, in random batches, some
events twice.  Every verdict is compared by its flags, at every message and at
several anchors at once, under strict, compat and a policy drawn at random; and so
are explanations, each way to ask for a whole view, views that are older than the
log, and what was counted.  What differs is shrunk to a small case.

`forests` makes the logs, `answers` asks, `shrinking` leaves out what is not needed.
Prints nothing: a run is a Report.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Final

import branchmem as bm
from branchmem.reference import Reference
from branchmem.selftest.answers import Question, Told, answer, close, questions, tell, verdicts
from branchmem.selftest.forests import Batches, arrivals, forest
from branchmem.selftest.shrinking import shrunk

# A broken engine fails everywhere: a few small cases say more than all of them.
MAX_CASES: Final = 3
# One tree in so many is told to a store: it costs a file and a transaction a batch.
_TREES_PER_STORE: Final = 20
# A run that wants more than its trees gave goes on, up to so many times as many.
_PATIENCE: Final = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One question that the two answer differently, on as few events as were found; JSON-ready.

    The engine takes in `batches` one after the other; `engine` and `reference`
    are the answers at `anchors` under a policy that lets `admit` through, of a
    view made after the first `after` batches (None: after all of them).
    """

    question: str
    anchors: list[str]
    admit: list[str]
    after: int | None
    engine: Any
    reference: Any
    batches: list[list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run compared: `decisions` are verdicts compared by flags, `mismatches` answers that differ.

    `reasons` says how many of the verdicts had each reason; `lacking` names what the run
    was to meet more often than it did.
    """

    trees: int
    decisions: int
    mismatches: int
    seed: int
    reasons: Mapping[str, int] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return asdict(self)


def run(
    trees: int = 100,
    seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    min_decisions: int = 0,
    min_each_reason: int = 0,
    engine: Callable[[], Any] | None = None,
) -> Report:
    """Compare engine and reference on `trees` random logs, each called a tree here.

    Goes on past `trees`, up to four times as many, until `min_decisions` verdicts have been compared and
    each reason has been met `min_each_reason` times.  `progress` is called with the trees done and asked for
    after each; `engine` makes what is tested: `branchmem.Engine`, and a store for one tree in twenty, unless
    something else is named.  The logger `branchmem` is silent meanwhile.
    Cost: about 100 ms a tree, most of it spent by the reference.
    """
    seed = secrets.randbits(32) if seed is None else seed
    done = decisions = mismatches = 0
    met: Counter[bm.Reason] = Counter()
    cases: list[Case] = []

    def lacking() -> tuple[str, ...]:
        few = tuple(str(reason.name) for reason in bm.Reason if met[reason] < min_each_reason)
        return ("decisions", *few) if decisions < min_decisions else few

    with _silence():
        while done < trees or (lacking() and done < trees * _PATIENCE):
            random = Random(f"{seed} {done}")
            on_disk = engine is None and done % _TREES_PER_STORE == 0
            make = engine or (bm.open_temporary if on_disk else bm.Engine)
            events = forest(random)
            batches = arrivals(random, events)
            compared, differing = _compare(make, batches, questions(random, events, len(batches), content=on_disk))
            decisions += len(compared)
            for flags, n in Counter(compared).items():
                met.update(dict.fromkeys(bm.Reason(flags), n))
            mismatches += len(differing)
            if differing and len(cases) < MAX_CASES:
                cases.append(_case(make, batches, min(differing, key=lambda question: question.ask != "flags")))
            done += 1
            if progress:
                progress(done, max(done, trees))
    reasons = {str(reason.name): met[reason] for reason in bm.Reason}
    return Report(done, decisions, mismatches, seed, reasons, lacking(), tuple(cases))


def _compare(make: Callable[[], Any], batches: Batches, asked: Sequence[Question]) -> tuple[list[int], list[Question]]:
    """The verdicts compared, each by its flags, and which questions were answered differently."""
    compared: list[int] = []
    differing = []
    with _both(make, batches, asked) as (ours, right):
        for question in asked:
            expected = answer(right, question)
            compared += verdicts(question, expected)
            if answer(ours, question) != expected:
                differing.append(question)
    return compared, differing


@contextmanager
def _both(make: Callable[[], Any], batches: Batches, asked: Sequence[Question]) -> Iterator[tuple[Told, Told]]:
    """What is tested and a reference, told the same."""
    ours = tell(make, batches, asked, pester=True)
    try:
        yield ours, tell(Reference, batches, asked)
    finally:
        close(ours.log)


def _case(make: Callable[[], Any], batches: Batches, question: Question) -> Case:
    batches, question = shrunk(batches, question, lambda fewer, asked: bool(_compare(make, fewer, [asked])[1]))
    with _both(make, batches, [question]) as told:
        ours, right = (answer(one, question) for one in told)
    forms = [[event.to_dict() for event in batch] for batch in batches]
    admit = list(question.policy.admit.names())
    return Case(question.ask, list(question.anchors), admit, question.after, ours, right, forms)


@contextmanager
def _silence() -> Iterator[None]:
    logger = logging.getLogger("branchmem")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
