"""Why a memory is hidden, and which reasons a policy lets through.

The bits are those of the rule and never move: counters, bitmaps of reasons and
the engine share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from types import MappingProxyType
from typing import NamedTuple

from branchmem.errors import AmbiguousAnchor


class Appended(NamedTuple):
    """What one batch did: events new to the log, events it had already, its position after them."""

    added: int
    duplicates: int
    seq: int


class Reason(IntFlag):
    """One bit a reason; the primary reason of a verdict is its lowest bit."""

    NO_ANCHOR = 1 << 0
    UNKNOWN_ANCHOR = 1 << 1
    DETACHED_ANCHOR = 1 << 2
    UNKNOWN_MEMORY = 1 << 3
    ERASED = 1 << 4
    NO_SOURCES = 1 << 5
    MISSING_UPSTREAM = 1 << 6
    UPSTREAM_CYCLE = 1 << 7
    MISSING_SOURCE = 1 << 8
    LEGACY_SOURCE = 1 << 9
    DETACHED_SOURCE = 1 << 10
    OTHER_TREE = 1 << 11
    SIBLING = 1 << 12
    FUTURE = 1 << 13
    RETRACTED = 1 << 14
    SUPERSEDED = 1 << 15

    @property
    def primary(self) -> Reason | None:
        """The lowest bit set, or None where there is no reason."""
        return Reason(self & -self) if self else None

    def names(self) -> tuple[str, ...]:
        """The names of the bits set, lowest first."""
        return tuple(str(reason.name) for reason in Reason if reason in self)


_NOTHING = Reason(0)


@dataclass(frozen=True, slots=True)
class Policy:
    """The set of reasons that are let through.  UNKNOWN_MEMORY never is."""

    admit: Reason = _NOTHING

    def __post_init__(self) -> None:
        if isinstance(self.admit, bool) or not isinstance(self.admit, int):
            raise TypeError(f"a policy takes reasons, Policy(admit=Reason.NO_SOURCES | …), not {self.admit!r}")
        if not 0 <= self.admit < 1 << 16:
            raise ValueError(f"a policy takes reasons of Reason, bits 0 to 15, not {int(self.admit)}")
        object.__setattr__(self, "admit", Reason(self.admit))

    def admits(self, reasons: Reason) -> bool:
        """Whether a memory with these reasons is visible under the policy."""
        return not reasons & ~(self.admit & ~Reason.UNKNOWN_MEMORY)


STRICT = Policy()
COMPAT = Policy(
    Reason.NO_ANCHOR
    | Reason.NO_SOURCES
    | Reason.MISSING_UPSTREAM
    | Reason.MISSING_SOURCE
    | Reason.LEGACY_SOURCE
    | Reason.DETACHED_SOURCE
)


class Placed(NamedTuple):
    """Where a retraction stands, and the restorations that lift it elsewhere, by id, each as (id, at, scope)."""

    at: str
    scope: str
    lifted: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one view says of one memory, and the ids at fault for each reason.

    `culprits` maps each single reason to ids in byte order; `parted` maps each
    source on a sibling to the message of the path where its branch parts;
    `retractions` maps each retraction at fault to its place.
    `superseded_upstream` are the memories that it derives from, at any remove,
    and that are superseded here, in byte order: a warning, no reason.
    `seq` is the position of the log that the verdict speaks of.
    """

    id: str
    visible: bool
    reasons: Reason
    culprits: Mapping[Reason, tuple[str, ...]]
    seq: int
    parted: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    retractions: Mapping[str, Placed] = field(default_factory=lambda: MappingProxyType({}))
    superseded_upstream: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join(self.sentences())

    def sentences(self, named: Callable[[str], str] = str) -> list[str]:
        """What is at fault, lowest reason first, then the warnings; `named` gives each id the form it is read in."""
        said = [text for reason in Reason if reason in self.reasons for text in self._texts(reason, named)]
        if not said:
            said = ["every source lies on the path of the anchor"]
        elif self.visible:
            said[0] = f"let through by the policy: {said[0]}"
        return said + [f"warning: upstream memory {named(id)} is superseded here" for id in self.superseded_upstream]

    def _texts(self, reason: Reason, named: Callable[[str], str]) -> Iterator[str]:
        if reason is Reason.NO_ANCHOR:
            yield "the view has no anchor"
        for id in self.culprits.get(reason, ()):
            if reason is Reason.SIBLING:
                parted = named(self.parted[id])
                yield f"source {named(id)} is on a sibling branch that parts from the path at {parted}"
            elif reason is Reason.RETRACTED:
                placed = self.retractions[id]
                yield f"retraction {named(id)} (scope {placed.scope}, at {named(placed.at)}) is in effect here"
                for restoration, at, scope in placed.lifted:
                    yield f"restoration {named(restoration)} (scope {scope}, at {named(at)}) lifts it elsewhere"
            else:
                yield _TEXTS[reason].format(id=named(id))


_TEXTS = {
    Reason.UNKNOWN_ANCHOR: "anchor {id} is not a message of the log",
    Reason.DETACHED_ANCHOR: "anchor {id} is not attached: a message above it is missing, or parents run in a circle",
    Reason.UNKNOWN_MEMORY: "there is no memory {id} in the log",
    Reason.ERASED: "the content of {id} has been erased",
    Reason.NO_SOURCES: "memory {id} has no source",
    Reason.MISSING_UPSTREAM: "memory {id}, which it derives from or adopts, is not in the log",
    Reason.UPSTREAM_CYCLE: "memory {id} derives from or adopts itself in a circle",
    Reason.MISSING_SOURCE: "source {id} is not a message of the log",
    Reason.LEGACY_SOURCE: "source {id} is a legacy message: what stands above it was never recorded",
    Reason.DETACHED_SOURCE: "source {id} is not attached: a message above it is missing, or parents run in a circle",
    Reason.OTHER_TREE: "source {id} lies in a tree that the view has no usable anchor in",
    Reason.FUTURE: "source {id} lies below the anchor",
    Reason.SUPERSEDED: "memory {id} replaces it here",
}


def verdict_from_parts(
    id: str,
    visible: bool,
    reasons: int,
    blamed: Iterable[tuple[int, str]],
    parted: Mapping[str, str],
    seq: int,
    retractions: Mapping[str, tuple[str, str, Iterable[tuple[str, str, str]]]] = MappingProxyType({}),
    superseded_upstream: Iterable[str] = (),
) -> Verdict:
    """The verdict of which someone knows the parts: each reason with one id at fault, in any order.

    `retractions` maps each retraction at fault to its `at`, its scope and its restorations as (id, at, scope).
    """
    culprits: dict[Reason, set[str]] = {reason: set() for reason in Reason if reason & reasons}
    for reason, culprit in blamed:
        culprits[Reason(reason)].add(culprit)
    by_reason = {reason: tuple(sorted(ids)) for reason, ids in culprits.items()}
    placed = {id: Placed(at, scope, tuple(sorted(lifted))) for id, (at, scope, lifted) in sorted(retractions.items())}
    return Verdict(
        id,
        visible,
        Reason(reasons),
        MappingProxyType(by_reason),
        seq,
        MappingProxyType(dict(sorted(parted.items()))),
        MappingProxyType(placed),
        tuple(sorted(superseded_upstream)),
    )


def why_hidden(explain: Callable[[], Verdict], seq: int) -> str:
    """What hides a memory in a view made at `seq`; `explain` speaks of the log as it is now."""
    try:
        verdict = explain()
    except AmbiguousAnchor as error:
        return f"since the view was made, {error}"
    return f"it became visible after seq {seq}" if verdict.visible else str(verdict)
