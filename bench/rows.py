"""A row of the table: one question, ours and a peer's figure, their ratio, the goal, whether it is met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.timing import Runner, race

MICROSECONDS: Final = "µs"
BYTES: Final = "bytes"


@dataclass(frozen=True, slots=True)
class Peer:
    """An opponent by its variants, of which the quickest counts; no goal: for information."""

    name: str
    variants: Sequence[Runner]
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """What ours and theirs cost an operation, in `unit`; `goal` is the least ratio of theirs to ours."""

    name: str
    question: str
    work: str
    peer: str
    variant: str
    ours: float
    theirs: float
    goal: float | None
    unit: str = MICROSECONDS

    @property
    def ratio(self) -> float:
        """How many times less ours costs."""
        return self.theirs / self.ours

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        return None if self.goal is None else self.ratio >= self.goal

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "name": self.name,
            "question": self.question,
            "work": self.work,
            "peer": self.peer,
            "variant": self.variant,
            "ours": round(self.ours, 4),
            "theirs": round(self.theirs, 4),
            "unit": self.unit,
            "ratio": round(self.ratio, 6),
            "goal": self.goal,
            "met": self.met,
        }


def measure(name: str, question: str, work: str, ours: Runner, peers: Sequence[Peer], *, rounds: int) -> list[Row]:
    """Race ours against every variant of every peer; one row a peer, by its quickest variant."""
    times = race([ours, *(variant for peer in peers for variant in peer.variants)], rounds=rounds)
    rows = []
    for peer in peers:
        quickest = min((variant.name for variant in peer.variants), key=times.__getitem__)
        rows.append(Row(name, question, work, peer.name, quickest, times[ours.name], times[quickest], peer.goal))
    return rows
