"""The specification as a program: what a view shows, found by climbing the trees.

A memory is visible at an anchor when every one of its effective sources lies on
the anchor's path, no retraction in effect there covers it, no memory that is live
there replaces it, and its content has not been erased.  The engine must answer exactly as this package does; where
they differ, this package is right.

Slow on purpose and short on purpose: every answer is worked out from the set of
events, and what is kept between two questions is thrown away by the next event.
Nothing recurses, nothing is compiled.  Not for several threads at once.

The rule stands here as a whole.  Beside it: `links` follows what memories refer to,
`retractions` says which retractions cover what and where they are in effect,
`erasures` what is erased and what stays of it; `view` counts and hands out what the
rule lets through, `ranking` says which of that fits a query best, `facts` hands out what was told, which needs no rule.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from branchmem.errors import AmbiguousAnchor, InvalidEventType, StoreBehind, UnknownEvent
from branchmem.events import LEGACY, Erasure, Event, Memory, Message, conflict
from branchmem.reference.erasures import as_kept, erased_ids
from branchmem.reference.facts import ReferenceLog, ReferenceTree
from branchmem.reference.links import Links
from branchmem.reference.retractions import Retractions
from branchmem.reference.view import ReferenceView, listed
from branchmem.verdict import STRICT, Appended, Policy, Reason

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = Sequence[str] | NDArray[np.integer[Any]]

Anchor = str | Iterable[str] | None
Faults = dict[Reason, tuple[str, ...]]
#: For the root of each tree with a usable anchor: that anchor, and the path to it.
Paths = Mapping[str, tuple[str, frozenset[str]]]


class Stand(NamedTuple):
    """Where a view stands, and what follows from it in the log as it was at `seq`.

    The anchors it cannot use, its paths, the retractions in effect; and, kept when
    found: what sources have against it, the faults of memories but SUPERSEDED, and
    by policy what is superseded, each with the live memories that replace it.
    """

    seq: int
    problems: Faults
    paths: Paths
    in_effect: frozenset[str]
    judged: dict[str, Reason | None]
    faults: dict[str, Faults]
    superseded: dict[Policy, Mapping[str, tuple[str, ...]]]


class Reference:
    """A log in memory that answers as the rule says: the plain twin of Engine and Store.

    Unlike the engine it keeps bodies, until they are erased, so it compares whole events and has a digest.
    """

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}
        self._messages: dict[str, Message] = {}
        self._memories: dict[str, Memory] = {}
        self._erased: set[str] = set()
        self._hidden: Counter[Reason] = Counter()
        self._admitted: Counter[int] = Counter()
        self._unlisted = 0
        self._forget(Links(self._memories))

    def _forget(self, links: Links) -> None:
        self._links = links
        self._retractions = Retractions(self, self._events.values())
        self._places: dict[str, tuple[str, int] | None] = {}
        self._lasting: dict[str, tuple[Faults, list[tuple[str, str]]]] = {}
        self._stands: dict[tuple[str, ...], Stand] = {}

    def add(self, events: Iterable[Event]) -> Appended:
        """Take in a batch: all of it or, where one event is refused, nothing.  Repeats are no-ops.

        What is erased, by this batch or before it, is kept and compared without content.
        Raises: EventConflict for an id that has other content already; InvalidEvent for what is no event.
        """
        new: dict[str, Event] = {}
        again: list[Event] = []
        for event in events:
            if not isinstance(event, Event):
                raise InvalidEventType(f"{event!r:.80} is no event: make a Message or a Memory of it", event)
            if event.id in new or event.id in self._events:
                again.append(event)
            else:
                new[event.id] = event
        links = Links(self._memories | {id: event for id, event in new.items() if isinstance(event, Memory)})
        erasures = [event for event in (self._events | new).values() if isinstance(event, Erasure)]
        erased = erased_ids(links, erasures)
        for event in again:
            stored = as_kept(new.get(event.id) or self._events[event.id], erased)
            given = as_kept(event, erased)
            if stored != given:
                raise conflict(event.id, stored.to_dict(), given.to_dict())
        changed = new | {id: self._events[id] for id in erased & self._events.keys()}
        kept = {id: as_kept(event, erased) for id, event in changed.items()}
        self._events |= kept
        self._messages |= {id: event for id, event in kept.items() if isinstance(event, Message)}
        self._memories |= {id: event for id, event in kept.items() if isinstance(event, Memory)}
        self._erased = erased & (self._messages.keys() | self._memories.keys())
        self._forget(links)
        return Appended(len(new), len(again), self.seq)

    append = add

    @property
    def seq(self) -> int:
        """How many events the log has."""
        return len(self._events)

    @property
    def log(self) -> ReferenceLog:
        """The events themselves."""
        return ReferenceLog(self, self._events)

    @property
    def tree(self) -> ReferenceTree:
        """The forest of messages."""
        return ReferenceTree(self, self._messages)

    @property
    def memory_ids(self) -> Sequence[str]:
        """The id of each memory ordinal."""
        return list(self._memories)

    @property
    def message_ids(self) -> Sequence[str]:
        """The id of each message ordinal."""
        return list(self._messages)

    def memory_ordinals(self, ids: Iterable[str]) -> NDArray[np.uint32]:
        """The ordinal of each memory, (n,).  Raises: UnknownEvent."""
        return _ordinals(self._memories, ids, "memory")

    def message_ordinals(self, ids: Iterable[str]) -> NDArray[np.uint32]:
        """The ordinal of each message, (n,).  Raises: UnknownEvent."""
        return _ordinals(self._messages, ids, "message")

    def digest(self) -> str:
        """SHA-256 (hex) over skeleton and body of each event, sorted by id; "erased" stands for a body that is."""
        state = hashlib.sha256()
        for id, event in sorted(self._events.items()):
            state.update(event.skeleton() + (b"erased" if id in self._erased else event.body()))
        return state.hexdigest()

    def is_erased(self, id: str) -> bool:
        """Whether the content of a message or memory of the log has been erased."""
        return id in self._erased

    def unplaced(self) -> list[str]:
        """The retractions and restorations of scope branch or tree whose place cannot be judged, sorted."""
        return self._retractions.unplaced()

    def supersession_circles(self) -> list[list[str]]:
        """Memories that replace each other in circles: each circle of two or more, sorted by id."""
        return self._links.circles_of_replacement()

    def unshowable(self) -> dict[str, Reason]:
        """The memories that no set of anchors can show in strict, with the reasons that stay."""
        stay = {}
        for id in self._memories:
            lasting, placed = self._lasts(id)
            reasons = Reason(sum(lasting))
            if any(
                one[1] == other[1] and not self._is_one_way(one[0], other[0]) for one, other in combinations(placed, 2)
            ):
                reasons |= Reason.SIBLING
            if any(self._retractions.lasts(one, self._links.sources(id)) for one in self._retractions.covering(id)):
                reasons |= Reason.RETRACTED
            if reasons:
                stay[id] = reasons
        return stay

    def _is_one_way(self, one: str, other: str) -> bool:
        """Whether one of two messages lies on the path of the other."""
        return one in self._climb(other) or other in self._climb(one)

    def at(
        self, anchor: Anchor, *, policy: Policy = STRICT, min_seq: int | None = None, count: bool = True
    ) -> ReferenceView:
        """The view at an anchor, at several (one a tree), or at none.

        Raises: AmbiguousAnchor; StoreBehind where the log has not reached `min_seq`.
        """
        if min_seq is not None and self.seq < min_seq:
            raise StoreBehind(self.seq, min_seq)
        return ReferenceView(self, _anchors(anchor), policy, count)

    def visible(self, memories: Ids, anchors: Ids, *, policy: Policy = STRICT) -> NDArray[np.bool_]:
        """Whether memory i is visible at anchor i, (n,).  Takes ids or ordinals."""
        import numpy as np

        pairs = zip(
            _named(memories, self.memory_ids, "memory"), _named(anchors, self.message_ids, "message"), strict=True
        )
        reasons = [self._reasons(memory, self._stand((anchor,)), policy) for memory, anchor in pairs]
        shown = [not self._hiding(policy, bits) for bits in reasons]
        self._count_bulk(policy, reasons, left_out=shown.count(False))
        return np.array(shown, bool)

    def bitmaps(self, anchors: Iterable[Anchor], *, policy: Policy = STRICT) -> NDArray[np.uint8]:
        """One bitmap an anchor, (n, ceil(memories / 8)), little-endian bits."""
        import numpy as np

        views = [self.at(anchor, policy=policy) for anchor in listed(anchors)]
        rows = [view.bitmap() for view in views]
        return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), (len(self._memories) + 7) // 8)

    def counters(self) -> dict[str, Any]:
        """Verdicts handed out so far: `hidden` and `admitted` by reason, and `unlisted`."""
        admitted = {reason: sum(n for reasons, n in self._admitted.items() if reasons & reason) for reason in Reason}
        return {
            "hidden": dict(self._hidden),
            "admitted": {reason: n for reason, n in admitted.items() if n},
            "unlisted": self._unlisted,
        }

    def _climb(self, id: str) -> Iterator[str]:
        """A message and what is known above it, deepest first; in a circle, each once."""
        met = set()
        while id in self._messages and id not in met:
            yield id
            met.add(id)
            parent = self._messages[id].parent
            if not isinstance(parent, str):
                return
            id = parent

    def _place(self, id: str) -> tuple[str, int] | None:
        """The root of a message and its depth (a root has 1); None where it is not attached."""
        if id not in self._places:
            climbed = list(self._climb(id))
            attached = climbed and not isinstance(self._messages[climbed[-1]].parent, str)
            self._places[id] = (climbed[-1], len(climbed)) if attached else None
        return self._places[id]

    def _lasts(self, id: str) -> tuple[Faults, list[tuple[str, str]]]:
        """What hides a memory at every anchor (bits 4 to 10), and its other sources, each with its root."""
        if id in self._lasting:
            return self._lasting[id]
        links = self._links
        derived_from = (links.derived_from(id) | {id}) & self._memories.keys()
        upstream = links.upstream(id)
        faults: dict[Reason, list[str]] = {
            Reason.ERASED: [id] if id in self._erased else [],
            Reason.NO_SOURCES: sorted(one for one in derived_from if not links.sources(one)),
            Reason.MISSING_UPSTREAM: sorted(upstream - self._memories.keys()),
            Reason.UPSTREAM_CYCLE: sorted(one for one in upstream | {id} if one in links.upstream(one)),
            Reason.MISSING_SOURCE: [],
            Reason.LEGACY_SOURCE: [],
            Reason.DETACHED_SOURCE: [],
        }
        placed = []
        for source in sorted(links.sources(id)):
            place = self._place(source)
            if source not in self._messages:
                faults[Reason.MISSING_SOURCE].append(source)
            elif self._messages[source].parent is LEGACY:
                faults[Reason.LEGACY_SOURCE].append(source)
            elif place is None:
                faults[Reason.DETACHED_SOURCE].append(source)
            else:
                placed.append((source, place[0]))
        self._lasting[id] = {reason: tuple(ids) for reason, ids in faults.items() if ids}, placed
        return self._lasting[id]

    def _depth(self, id: str) -> int:
        """The depth of the deepest attached source of a memory; -1 where it has none."""
        return max((place[1] for place in map(self._place, self._links.sources(id)) if place), default=-1)

    def _stand(self, anchors: tuple[str, ...]) -> Stand:
        """Where a view at these anchors stands.  Raises: AmbiguousAnchor."""
        if anchors in self._stands:
            return self._stands[anchors]
        problems: dict[Reason, list[str]] = {} if anchors else {Reason.NO_ANCHOR: []}
        paths: dict[str, tuple[str, frozenset[str]]] = {}
        for anchor in anchors:
            place = self._place(anchor)
            if anchor not in self._messages:
                problems.setdefault(Reason.UNKNOWN_ANCHOR, []).append(anchor)
            elif place is None:
                problems.setdefault(Reason.DETACHED_ANCHOR, []).append(anchor)
            elif place[0] in paths:
                raise AmbiguousAnchor(paths[place[0]][0], anchor, place[0])
            else:
                paths[place[0]] = anchor, frozenset(self._climb(anchor))
        stand = self._standing({reason: tuple(sorted(ids)) for reason, ids in problems.items()}, paths)
        self._stands[anchors] = stand
        return stand

    def _standing(self, problems: Faults, paths: Paths) -> Stand:
        """The same in the log as it is now, for anchors that have been found before."""
        return Stand(self.seq, problems, paths, self._retractions.in_effect(bool(problems), paths), {}, {}, {})

    def _parting(self, message: str, path: frozenset[str]) -> str:
        """The deepest message of `path` at or above `message`, which lies in the same tree."""
        return next(above for above in self._climb(message) if above in path)

    def _judge(self, source: str, root: str, stand: Stand) -> Reason | None:
        """What a source in the tree of `root` has against the view: bits 11 to 13."""
        if source not in stand.judged:
            anchor, path = stand.paths.get(root, (None, frozenset()))
            if anchor is None:
                reason = Reason.OTHER_TREE
            elif source in path:
                reason = None
            else:
                reason = Reason.FUTURE if self._parting(source, path) == anchor else Reason.SIBLING
            stand.judged[source] = reason
        return stand.judged[source]

    def _unreplaced(self, id: str, stand: Stand) -> Faults:
        """Every reason but SUPERSEDED that hides a memory where a view stands, with the ids at fault."""
        if id not in self._memories:
            return {Reason.UNKNOWN_MEMORY: (id,)} | ({} if stand.paths else stand.problems)
        if id not in stand.faults:
            lasting, placed = self._lasts(id)
            against: dict[Reason, list[str]] = {}
            for source, root in placed if stand.paths else ():
                if reason := self._judge(source, root, stand):
                    against.setdefault(reason, []).append(source)
            problems = stand.problems if Reason.OTHER_TREE in against or not stand.paths else {}
            retracted = [one for one in self._retractions.covering(id) if one in stand.in_effect]
            if retracted:
                against[Reason.RETRACTED] = retracted
            stand.faults[id] = lasting | problems | {reason: tuple(ids) for reason, ids in against.items()}
        return stand.faults[id]

    def _superseded(self, stand: Stand, policy: Policy) -> Mapping[str, tuple[str, ...]]:
        """The memories that are superseded where a view stands, each with the live memories that replace it."""
        if policy not in stand.superseded:
            replacing = self._links.replacing()
            live = {
                new
                for new in set[str]().union(*replacing.values())
                if not self._hiding(policy, sum(self._unreplaced(new, stand)))
            }
            stand.superseded[policy] = {old: tuple(sorted(new & live)) for old, new in replacing.items() if new & live}
        return stand.superseded[policy]

    def _faults(self, id: str, stand: Stand, policy: Policy) -> Faults:
        """Every reason that hides a memory in a view of this policy, with the ids at fault: the rule."""
        replacing = self._superseded(stand, policy).get(id)
        faults = self._unreplaced(id, stand)
        return faults | {Reason.SUPERSEDED: replacing} if replacing else faults

    def _reasons(self, id: str, stand: Stand, policy: Policy) -> int:
        return sum(self._faults(id, stand, policy))

    @staticmethod
    def _hiding(policy: Policy, reasons: int) -> int:
        """The reasons that a policy does not let through: none where the memory is visible."""
        return int(reasons) & (~int(policy.admit) | int(Reason.UNKNOWN_MEMORY))

    def _count_one(self, policy: Policy, reasons: int, shown: bool) -> None:
        """Count one verdict; where the reasons say otherwise, a hidden one as unlisted, a visible one not."""
        primary = Reason(self._hiding(policy, reasons)).primary
        if shown or primary is None:
            self._count_bulk(policy, [int(reasons)] if shown else [], left_out=not shown)
        else:
            self._hidden[primary] += 1

    def _count_bulk(self, policy: Policy, returned: Iterable[int], left_out: int) -> None:
        self._admitted.update(reasons for reasons in returned if not self._hiding(policy, reasons))
        self._unlisted += left_out


def _anchors(anchor: Anchor) -> tuple[str, ...]:
    given = () if anchor is None else (anchor,) if isinstance(anchor, str) else tuple(anchor)
    if not all(isinstance(id, str) for id in given):
        raise TypeError(f"an anchor is an id, a list of ids (one a tree) or None, not {anchor!r:.80}")
    return tuple(dict.fromkeys(given))


def _named(given: Ids, ids: Sequence[str], wanted: str) -> list[str]:
    given = listed(given)
    for item in given:
        if not isinstance(item, str) and not 0 <= item < len(ids):
            raise UnknownEvent(str(item), f"{wanted} with ordinal")
    return [item if isinstance(item, str) else ids[item] for item in given]


def _ordinals(ids: Iterable[str], asked: Iterable[str], wanted: str) -> NDArray[np.uint32]:
    import numpy as np

    ordinals = {id: ordinal for ordinal, id in enumerate(ids)}
    asked = list(asked)
    for id in asked:
        if id not in ordinals:
            raise UnknownEvent(id, wanted)
    return np.array([ordinals[id] for id in asked], np.uint32)
