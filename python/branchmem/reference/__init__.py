"""The specification as a program: what a view shows, found by climbing the trees.

A memory is visible at an anchor when every one of its effective sources lies on
the anchor's path.  The engine must answer exactly as this package does; where
they differ, this package is right.

Slow on purpose and short on purpose: every answer is worked out from the set of
events, and what is kept between two questions is thrown away by the next event.
Nothing recurses, nothing is compiled.  Not for several threads at once.

The rule stands here as a whole.  Beside it: `view` counts and hands out what the
rule lets through, `facts` hands out what was told, which needs no rule.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from branchmem.errors import AmbiguousAnchor, InvalidEventType, StoreBehind, UnknownEvent
from branchmem.events import LEGACY, Event, Memory, Message, conflict, refuse_later
from branchmem.reference.facts import ReferenceLog, ReferenceTree
from branchmem.reference.view import ReferenceView
from branchmem.verdict import STRICT, Appended, Policy, Reason

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = Sequence[str] | NDArray[np.integer[Any]]

Anchor = str | Iterable[str] | None
Faults = dict[Reason, tuple[str, ...]]


class Stand(NamedTuple):
    """Where a view stands: the anchors it cannot use, for each tree its anchor and path, sources judged so far."""

    seq: int
    problems: Faults
    paths: Mapping[str, tuple[str, frozenset[str]]]
    judged: dict[str, Reason | None]


class Reference:
    """A log in memory that answers as the rule says: the plain twin of Engine and Store.

    Unlike the engine it keeps bodies, so it compares whole events and has a digest.
    """

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}
        self._messages: dict[str, Message] = {}
        self._memories: dict[str, Memory] = {}
        self._hidden: Counter[Reason] = Counter()
        self._admitted: Counter[int] = Counter()
        self._unlisted = 0
        self._forget()

    def _forget(self) -> None:
        self._places: dict[str, tuple[str, int] | None] = {}
        self._derivations: dict[str, tuple[list[str], bool]] = {}
        self._lasting: dict[str, tuple[Faults, list[tuple[str, str]]]] = {}

    def add(self, events: Iterable[Event]) -> Appended:
        """Take in a batch: all of it or, where one event is refused, nothing.  Repeats are no-ops.

        Raises: EventConflict for an id that has other content already; InvalidEvent
        for what is no event, or one that this version does not support yet.
        """
        batch: dict[str, Event] = {}
        duplicates = 0
        for event in events:
            if not isinstance(event, Event):
                raise InvalidEventType(f"{event!r:.80} is no event: make a Message or a Memory of it", event)
            refuse_later(event)
            known = batch.get(event.id) or self._events.get(event.id)
            if known is None:
                batch[event.id] = event
            elif known == event:
                duplicates += 1
            else:
                raise conflict(event.id, known.to_dict(), event.to_dict())
        self._events |= batch
        self._messages |= {id: event for id, event in batch.items() if isinstance(event, Message)}
        self._memories |= {id: event for id, event in batch.items() if isinstance(event, Memory)}
        self._forget()
        return Appended(len(batch), duplicates, self.seq)

    append = add

    @property
    def seq(self) -> int:
        """How many events the log has."""
        return len(self._events)

    @property
    def log(self) -> ReferenceLog:
        """The events themselves."""
        return ReferenceLog(self._events)

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
        """SHA-256 (hex) over skeleton and body of each event, sorted by id."""
        parts = (part for id in sorted(self._events) for part in (self._events[id].skeleton(), self._events[id].body()))
        return hashlib.sha256(b"".join(parts)).hexdigest()

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
        reasons = [self._reasons(memory, self._stand((anchor,))) for memory, anchor in pairs]
        shown = [not self._hiding(policy, bits) for bits in reasons]
        self._count_bulk(policy, reasons, left_out=shown.count(False))
        return np.array(shown, bool)

    def bitmaps(self, anchors: Iterable[Anchor], *, policy: Policy = STRICT) -> NDArray[np.uint8]:
        """One bitmap an anchor, (n, ceil(memories / 8)), little-endian bits."""
        import numpy as np

        views = [self.at(anchor, policy=policy) for anchor in anchors]
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

    def _upstream(self, id: str) -> set[str]:
        """What a memory derives from at any remove, here or not; itself only where it does so."""
        reached: set[str] = set()
        waiting = [id]
        while waiting:
            memory = self._memories.get(waiting.pop())
            for upstream in memory.derived_from if memory else ():
                if upstream not in reached:
                    reached.add(upstream)
                    waiting.append(upstream)
        return reached

    def _derivation(self, id: str) -> tuple[list[str], bool]:
        """The effective sources of a memory, and whether it derives from itself."""
        if id not in self._derivations:
            upstream = self._upstream(id)
            memories = (self._memories[one] for one in upstream | {id} if one in self._memories)
            self._derivations[id] = sorted({source for memory in memories for source in memory.sources}), id in upstream
        return self._derivations[id]

    def _lasts(self, id: str) -> tuple[Faults, list[tuple[str, str]]]:
        """What hides a memory at every anchor (bits 5 to 10), and its other sources, each with its root."""
        if id in self._lasting:
            return self._lasting[id]
        upstream = self._upstream(id)
        here = sorted((upstream | {id}) & self._memories.keys())
        faults: dict[Reason, list[str]] = {
            Reason.NO_SOURCES: [one for one in here if not self._derivation(one)[0]],
            Reason.MISSING_UPSTREAM: sorted(upstream - self._memories.keys()),
            Reason.UPSTREAM_CYCLE: [one for one in here if self._derivation(one)[1]],
            Reason.MISSING_SOURCE: [],
            Reason.LEGACY_SOURCE: [],
            Reason.DETACHED_SOURCE: [],
        }
        placed = []
        for source in self._derivation(id)[0]:
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
        return max((place[1] for place in map(self._place, self._derivation(id)[0]) if place), default=-1)

    def _stand(self, anchors: tuple[str, ...]) -> Stand:
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
        return Stand(self.seq, {reason: tuple(sorted(ids)) for reason, ids in problems.items()}, paths, {})

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

    def _faults(self, id: str, stand: Stand) -> Faults:
        """Every reason that hides a memory where a view stands, with the ids at fault: the rule."""
        lasting, placed = self._lasts(id) if id in self._memories else ({Reason.UNKNOWN_MEMORY: (id,)}, [])
        if not stand.paths:
            return lasting | stand.problems
        against: dict[Reason, list[str]] = {}
        for source, root in placed:
            if reason := self._judge(source, root, stand):
                against.setdefault(reason, []).append(source)
        problems = stand.problems if Reason.OTHER_TREE in against else {}
        return lasting | problems | {reason: tuple(sources) for reason, sources in against.items()}

    def _reasons(self, id: str, stand: Stand) -> int:
        return sum(self._faults(id, stand))

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
