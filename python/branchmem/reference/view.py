"""What is visible at some anchors: it asks the rule of every memory, keeps the set, and counts what it hands out."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, SupportsIndex, TypeVar

from branchmem.errors import BadAnchor, MemoryHidden
from branchmem.events import Memory
from branchmem.reference.ranking import DECAY, Decay, Found, Vector, bm25, cosine, fits, is_faded, rank
from branchmem.verdict import Placed, Policy, Reason, Verdict, why_hidden

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from branchmem.reference import Reference, Stand

_T = TypeVar("_T")

NEVER: Final[Mapping[str, datetime]] = MappingProxyType({})

_LOGGER = logging.getLogger("branchmem")


def listed(values: Iterable[_T]) -> list[_T]:
    """What is to be answered one by one; a string is none of that."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"a list of ids is needed: write [{values!r:.80}]")
    return list(values)


class ReferenceView:
    """What is visible at some anchors, as of the moment it was made.

    The set it shows never changes.  `explain`, `reasons` and the order of `memories`
    speak of the log as it is now.  Whole answers count what the view let through when
    it was made; other answers count a memory as it is now, at the anchors as found then.
    """

    def __init__(self, reference: Reference, anchors: tuple[str, ...], policy: Policy, count: bool) -> None:
        self.anchors = anchors
        self.policy = policy
        self.seq = reference.seq
        self._reference = reference
        self._counted = count
        self._stand = self._found = reference._stand(anchors)
        self._all = list(reference._memories)
        reasons = {id: reference._reasons(id, self._stand, policy) for id in self._all}
        self._shown = {id: bits for id, bits in reasons.items() if not reference._hiding(policy, bits)}
        self.problems = Reason(sum(self._stand.problems))
        if self.problems:
            _LOGGER.warning("%r", self)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._is_shown(id)

    def __len__(self) -> int:
        return len(self._shown)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids())

    def __getitem__(self, id: str) -> Memory:
        """The memory `id`.  Raises: MemoryHidden, a KeyError, where it is hidden, unknown or erased meanwhile."""
        if self._is_shown(id):
            return self._content(id)
        raise MemoryHidden(id, why_hidden(lambda: self._verdict(id), self.seq))

    get = __getitem__

    def __repr__(self) -> str:
        where = ", ".join(self.anchors) or "no anchor"
        problems = "".join(f", {name}" for name in self.problems.names())
        return f"<ReferenceView at {where}: {len(self)} of {len(self._all)} memories visible{problems}>"

    def ids(self) -> list[str]:
        """The ids of what is visible, by ordinal."""
        self._count_bulk(self._shown.values(), len(self._all) - len(self))
        return list(self._shown)

    def memories(self, *, kind: str | None = None, key: str | None = None, limit: int | None = None) -> list[Memory]:
        """What is visible, in path order: by the depth of the deepest source, then by id.

        The depth of a message counts the messages from the root of its tree to it.  Only
        attached sources have one; a memory without any comes first, with depth -1.
        Raises: MemoryHidden, where one of them was erased meanwhile.
        """
        if limit is not None and (not isinstance(limit, SupportsIndex) or limit < 0):
            raise ValueError("limit is a number of memories, 0 or more, or None")
        shown = [self._reference._memories[id] for id in self._shown]
        asked = [memory for memory in shown if kind in (None, memory.kind) and key in (None, memory.key)]
        found = sorted(asked, key=lambda memory: (self._reference._depth(memory.id), memory.id))[:limit]
        self._count_bulk((self._reasons_now(memory.id) for memory in found), len(self._all) - len(self))
        return [self._content(memory.id) for memory in found]

    def current(self, key: str) -> Memory | list[Memory] | None:
        """The visible memory with this key; several as a list in path order; None where there is none."""
        if not isinstance(key, str):
            raise TypeError(f"a key is a text, not {key!r:.80}")
        found = self.memories(key=key)
        return found if len(found) > 1 else found[0] if found else None

    def filter(self, ids: Iterable[str]) -> list[str]:
        """Those of `ids` that are visible, in their order."""
        given = listed(ids)
        if not all(isinstance(id, str) for id in given):
            raise TypeError("a list of ids is needed")
        found = [id for id in given if id in self._shown]
        self._count_bulk((self._reasons_now(id) for id in found), len(given) - len(found))
        return found

    def explain(self, id: str) -> Verdict:
        """Visible or hidden as the log is now, all reasons, and the ids at fault."""
        verdict = self._verdict(id)
        if self._counted:
            self._reference._count_one(self.policy, verdict.reasons, verdict.visible)
        return verdict

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        now: datetime,
        by: Literal["lexical", "vector"] | None = None,
        vectors: Mapping[str, Vector] | None = None,
        vector: Vector | None = None,
        include_faded: bool = False,
        decay: Decay = DECAY,
        used: Mapping[str, datetime] = NEVER,
        **conditions: object,
    ) -> list[Found]:
        """The `k` distinct texts that fit a query best: by words; by `vectors`, one for all that is shown; or by both.

        Conditions are those on `kind`, `key`, `created`, `importance` and `meta`; `used` says when memories were last
        used.  Statistics are those of all that is shown: what does not fit or has faded is only left out.
        """
        self._count_bulk(self._shown.values(), len(self._all) - len(self))
        shown = {memory.id: memory.text for memory in self._readable()}
        texts = {memory.id: memory.text for memory in self._readable() if fits(memory, conditions)}
        if not include_faded:
            for id in self.faded(now=now, decay=decay, used=used, **conditions):
                del texts[id]
        lists = {}
        if by != "vector":
            lists["lexical"] = {id: score for id, score in bm25(shown, query).items() if id in texts}
        if by != "lexical" and vectors is not None and vector is not None:
            lists["vector"] = {id: cosine(vectors[id], vector) for id in texts}
        return rank(lists, texts, k)

    def faded(
        self,
        *,
        now: datetime,
        decay: Decay = DECAY,
        used: Mapping[str, datetime] = NEVER,
        **conditions: object,
    ) -> list[str]:
        """What is shown and fits the conditions, but has faded: the ids by ordinal.  Not counted."""
        fitting = [memory for memory in self._readable() if fits(memory, conditions)]
        return [memory.id for memory in fitting if is_faded(memory, used.get(memory.id), now, decay)]

    def nearest(self, vector: Vector, k: int = 10, *, vectors: Mapping[str, Vector]) -> list[tuple[str, float]]:
        """The `k` memories nearest to a vector, each by itself, with their cosines."""
        self._count_bulk(self._shown.values(), len(self._all) - len(self))
        cosines = {memory.id: cosine(vectors[memory.id], vector) for memory in self._readable()}
        return sorted(cosines.items(), key=lambda pair: (-pair[1], pair[0]))[:k]

    def raise_for_problems(self) -> None:
        """Raises: BadAnchor, where the view has problems."""
        if self.problems:
            at_fault = [id for ids in self._stand.problems.values() for id in ids]
            raise BadAnchor(", ".join(self.problems.names()), at_fault)

    def bitmap(self) -> bytes:
        """One bit a memory, little-endian, ceil(memories / 8) bytes."""
        import numpy as np

        return np.packbits(self.mask(), bitorder="little").tobytes()

    def mask(self) -> NDArray[np.bool_]:
        """Whether each memory is visible, (memories,)."""
        import numpy as np

        shown = frozenset(self.ids())
        return np.array([id in shown for id in self._all], bool)

    def ordinals(self) -> NDArray[np.uint32]:
        """The ordinals of what is visible, ascending."""
        import numpy as np

        return np.flatnonzero(self.mask()).astype(np.uint32)

    def roaring(self) -> bytes:
        """The ordinals in the portable format of Roaring bitmaps: up to 4,096 of a container listed, more as bits."""
        import numpy as np

        highs, lows = np.divmod(self.ordinals(), 1 << 16)
        listed = {high: lows[highs == high] for high in np.unique(highs).tolist()}
        head, data = struct.pack("<II", 12346, len(listed)), b""
        offsets = b""
        for high, low in listed.items():
            head += struct.pack("<HH", high, len(low) - 1)
            offsets += struct.pack("<I", 8 + 8 * len(listed) + len(data))
            bits = np.zeros(1 << 16, bool)
            bits[low] = True
            data += low.astype("<u2").tobytes() if len(low) <= 4096 else np.packbits(bits, bitorder="little").tobytes()
        return head + offsets + data

    def reasons(self) -> NDArray[np.uint16]:
        """The reasons of every memory that the log has now under the view's policy, (memories,).  Not counted."""
        import numpy as np

        stand = self._stand_now()
        reasons = [self._reference._reasons(id, stand, self.policy) for id in self._reference._memories]
        return np.array(reasons, np.uint16)

    def _readable(self) -> list[Memory]:
        """What is shown and has content still, by ordinal."""
        return [self._reference._memories[id] for id in self._shown if not self._reference.is_erased(id)]

    def _stand_now(self) -> Stand:
        """Raises: AmbiguousAnchor, where anchors that could not be used now lie in one tree."""
        return self._reference._stand(self.anchors)

    def _verdict(self, id: str) -> Verdict:
        reference, stand = self._reference, self._stand_now()
        faults = reference._faults(id, stand, self.policy)
        reasons = Reason(sum(faults))
        placed = reference._lasts(id)[1] if Reason.SIBLING in faults else ()
        parted = {
            source: reference._parting(source, stand.paths[root][1])
            for source, root in placed
            if source in faults[Reason.SIBLING]
        }
        superseded = reference._links.derived_from(id) & reference._superseded(stand, self.policy).keys() - {id}
        return Verdict(
            id,
            not reference._hiding(self.policy, reasons),
            reasons,
            MappingProxyType(faults),
            stand.seq,
            MappingProxyType(parted),
            MappingProxyType({one: self._placed(one) for one in faults.get(Reason.RETRACTED, ())}),
            tuple(sorted(superseded)),
        )

    def _placed(self, id: str) -> Placed:
        retractions = self._reference._retractions
        lifted = tuple((one.id, one.at, one.scope) for one in retractions.lifting(id))
        return Placed(retractions[id].at, retractions[id].scope, lifted)

    def _content(self, id: str) -> Memory:
        """What is shown of a memory.  Raises: MemoryHidden, where it was erased after the view was made."""
        if self._reference.is_erased(id) and Reason.ERASED not in self.policy.admit:
            raise MemoryHidden(id, "its content was erased after the view was made")
        return self._reference._memories[id]

    def _reasons_now(self, id: str) -> int:
        """The reasons in the log as it is now, at the anchors as found when the view was made."""
        if self._found.seq != self._reference.seq:
            self._found = self._reference._standing(self._stand.problems, self._stand.paths)
        return self._reference._reasons(id, self._found, self.policy)

    def _is_shown(self, id: str) -> bool:
        shown = id in self._shown
        if self._counted:
            self._reference._count_one(self.policy, self._reasons_now(id), shown)
        return shown

    def _count_bulk(self, returned: Iterable[int], left_out: int) -> None:
        if self._counted:
            self._reference._count_bulk(self.policy, returned, left_out)
