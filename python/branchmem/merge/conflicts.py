"""Which memories cannot both stand after a merge, and who wins.

Two are in conflict where both would be live, say different things, and share a key or replace the
same memory, neither replacing the other.  Conflicts that share a memory are decided together: who
loses to nobody stays, and what stays supersedes all that lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from branchmem.events import Memory

Strategy = Literal["fail", "ours", "theirs", "newer", "both"]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two memories that would both be live at the merge and differ: `ours` on the target, `theirs` to be taken over."""

    #: What both replace, or what was remembered of their key where the branches part; None where there is no such, or
    #: the target never knew it.
    base: Memory | None
    ours: Memory
    theirs: Memory
    #: What they are about: the key that they share, or the id of a memory that both replace.
    about: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form, with the content of all three."""
        return {
            "about": self.about,
            "base": None if self.base is None else self.base.to_dict(),
            "ours": self.ours.to_dict(),
            "theirs": self.theirs.to_dict(),
        }

    def __str__(self) -> str:
        base = "" if self.base is None else f", of {self.base.id}"
        return f"{self.about}: ours {self.ours.id}, theirs {self.theirs.id}{base}"


class Decision(NamedTuple):
    """Conflicts that hang together, decided: each of `winners` supersedes all `losers`."""

    winners: tuple[str, ...]
    losers: tuple[str, ...]


def decide(conflicts: Sequence[Conflict], strategy: Strategy) -> tuple[list[Decision], list[Conflict]]:
    """What the strategy makes of conflicts, and those that it leaves open."""
    if strategy == "both":
        return [], []
    decisions, undecided = [], []
    for group in _groups(conflicts):
        lost: set[str] = set()
        unclear = []
        for conflict in group:
            loser = _LOSER[strategy](conflict)
            if loser is None:
                unclear.append(conflict)
            else:
                lost.add(loser.id)
        if unclear:
            undecided += unclear
        else:
            all_ids = {one.id for conflict in group for one in (conflict.ours, conflict.theirs)}
            decisions.append(Decision(tuple(sorted(all_ids - lost)), tuple(sorted(lost))))
    return decisions, undecided


def _older(conflict: Conflict) -> Memory | None:
    """The one that was made earlier; None where that is not known."""
    ours, theirs = conflict.ours.created, conflict.theirs.created
    if ours is None or theirs is None or ours == theirs:
        return None
    return conflict.ours if ours < theirs else conflict.theirs


_LOSER: Mapping[str, Callable[[Conflict], Memory | None]] = {
    "fail": lambda conflict: None,
    "ours": lambda conflict: conflict.theirs,
    "theirs": lambda conflict: conflict.ours,
    "newer": _older,
}


def _groups(conflicts: Iterable[Conflict]) -> list[list[Conflict]]:
    """Conflicts that share a memory, directly or over others, together."""
    group_of: dict[str, list[Conflict]] = {}
    for conflict in conflicts:
        ids = (conflict.ours.id, conflict.theirs.id)
        known = {id(group): group for group in map(group_of.get, ids) if group is not None}
        groups = sorted(known.values(), key=len, reverse=True)
        joined = groups[0] if groups else []
        for other in groups[1:]:
            joined += other
            for one in other:
                group_of[one.ours.id] = group_of[one.theirs.id] = joined
        joined.append(conflict)
        for memory in ids:
            group_of[memory] = joined
    return list({id(group): group for group in group_of.values()}.values())
