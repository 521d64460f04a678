"""How memories fade that nobody uses: a function of time, and never a rewrite.

    effective = importance · 2^(−hours since the last use / half-life)

The last use is the later of when a memory was created and when it was last used; one that has neither has not begun to
fade, and a time that is still to come counts as now.  A memory is *faded* where this lies below the floor: search
leaves it out, no view does, and it comes back when it is used.  Nothing here writes, so that asking again gives the
same answer.  When memories were used is kept in `access`; what is ranked is decided in `search`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from branchmem.canonical import from_microseconds, microseconds
from branchmem.canonical import now as now_
from branchmem.errors import InvalidDecay, InvalidTime

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from branchmem import Memory, StepView, Store, View

__all__ = ["Decay", "Fading", "Report", "checked", "moment", "report"]

#: Now, in microseconds since 1970; half-life in microseconds (inf: never) and floor; the same by kind.
Fading = tuple[int, tuple[float, float], Mapping[str, tuple[float, float]]]

_HOUR_MICROSECONDS: Final = 3_600_000_000.0
#: A memory that kept no more than this part of its importance is fading.
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class Decay:
    """How fast memories fade, and below what they are left out of search; `kinds` says it for some kinds otherwise.

        bm.Decay(half_life_hours=720, kinds={"profile": bm.Decay(math.inf, 0.0)})

    Half of the importance is left after `half_life_hours` without use; `math.inf` is never.  `floor` lies in 0..1.
    Raises: InvalidDecay.
    """

    half_life_hours: float = 168.0
    floor: float = 0.05
    kinds: Mapping[str, Decay] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    def __post_init__(self) -> None:
        hours = _number("half_life_hours", self.half_life_hours)
        if not hours > 0:
            raise InvalidDecay("half_life_hours", hours, "a half-life is more than 0 hours; math.inf is never")
        floor = _number("floor", self.floor)
        if not 0 <= floor <= 1:
            raise InvalidDecay("floor", floor, "importance lies in 0..1, and so does its floor")
        if not isinstance(self.kinds, Mapping):
            raise InvalidDecay("kinds", self.kinds, 'it maps kinds to settings: {"profile": Decay(math.inf, 0.0)}')
        for kind, settings in self.kinds.items():
            if not isinstance(kind, str):
                raise InvalidDecay("kinds", kind, "a kind is a string")
            if not isinstance(settings, Decay) or settings.kinds:
                raise InvalidDecay(f"kinds[{kind!r:.80}]", settings, "it is a Decay, without kinds of its own")
        object.__setattr__(self, "half_life_hours", hours)
        object.__setattr__(self, "floor", floor + 0.0)
        object.__setattr__(self, "kinds", MappingProxyType(dict(self.kinds)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Decay, (self.half_life_hours, self.floor, dict(self.kinds))

    def of(self, kind: str) -> Decay:
        """The settings of a kind."""
        return self.kinds.get(kind, self)

    def effective(self, memory: Memory, *, used: datetime | None = None, now: datetime | None = None) -> float:
        """What is left of the importance of a memory that was last used at `used`, if ever; `now` is the present.

        Raises: InvalidTime.
        """
        settings, at = self.of(memory.kind), moment(now, "now")
        times = [microseconds(memory.created)] if memory.created else []
        if used is not None:
            times.append(moment(used, "used"))
        unused = max(at - max(times, default=at), 0)
        return memory.importance * math.exp2(-(unused / (settings.half_life_hours * _HOUR_MICROSECONDS)))

    def is_faded(self, memory: Memory, *, used: datetime | None = None, now: datetime | None = None) -> bool:
        """Whether that lies below the floor."""
        return self.effective(memory, used=used, now=now) < self.of(memory.kind).floor

    def fading(self, now: datetime | None = None) -> Fading:
        """The same in the form that ranking takes.  Raises: InvalidTime."""
        by_kind = {kind: settings._numbers() for kind, settings in self.kinds.items()}
        return moment(now, "now"), self._numbers(), by_kind

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form; a half-life of None is never."""
        hours = None if math.isinf(self.half_life_hours) else self.half_life_hours
        form: dict[str, Any] = {"half_life_hours": hours, "floor": self.floor}
        if self.kinds:
            form["kinds"] = {kind: settings.to_dict() for kind, settings in sorted(self.kinds.items())}
        return form

    def _numbers(self) -> tuple[float, float]:
        return self.half_life_hours * _HOUR_MICROSECONDS, self.floor


@dataclass(frozen=True, slots=True)
class Report:
    """How much of what was looked at fades, at one time.

    *Fading* is what kept `fading_below` of its importance or less, and is not below the floor: search still finds it.
    """

    scanned: int
    """The memories that were looked at; those whose content was erased are none of them."""
    fading_ids: tuple[str, ...]
    """Sorted, like `faded_ids`."""
    faded_ids: tuple[str, ...]
    """Those below the floor: search leaves them out."""
    now: datetime
    decay: Decay
    fading_below: float

    @property
    def fading(self) -> int:
        """How many are fading."""
        return len(self.fading_ids)

    @property
    def below_floor(self) -> int:
        """How many have faded."""
        return len(self.faded_ids)

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "scanned": self.scanned,
            "fading": self.fading,
            "below_floor": self.below_floor,
            "fading_ids": list(self.fading_ids),
            "below_floor_ids": list(self.faded_ids),
            "now": self.now.isoformat(timespec="microseconds"),
            "decay": self.decay.to_dict(),
            "fading_below": self.fading_below,
        }

    def __str__(self) -> str:
        return f"{self.scanned:,} scanned, {self.fading:,} fading, {self.below_floor:,} below the floor"


def report(
    store: Store,
    view: View | StepView | None = None,
    *,
    decay: Decay | None = None,
    now: datetime | None = None,
    fading_below: float = _HALF,
) -> Report:
    """How the memories that a view shows fade; without a view, all of the log, visible or not.

    `decay` is that of the store, and `now` the present, unless given; with both given, the answer is the same however
    often it is asked for, until something is used or appended.
    Raises: InvalidTime; InvalidDecay for `fading_below` outside of 0..1.
    Cost: what is shown; the first time, the search index; with settings for kinds, a look at each skeleton.
    """
    import numpy as np

    from branchmem.recall.index import index_of

    part = _number("fading_below", fading_below)
    if not 0 <= part <= 1:
        raise InvalidDecay("fading_below", part, "it is a part of the importance, from 0 to 1")
    settings = store.decay if decay is None else checked(decay)
    at = from_microseconds(moment(now, "now"))
    index = index_of(store).current()
    ids, shown, own = _looked_at(store, view)
    left = index.effective(shown, settings.fading(at))
    whole = index.effective(shown, Decay(math.inf, 0.0).fading(at))
    if own:
        left = np.append(left, [settings.effective(memory, now=at) for memory in own])
        whole = np.append(whole, [memory.importance for memory in own])
        ids += [memory.id for memory in own]
    floor = _floors(store, settings, ids, own)
    faded = left < floor
    fading = (left <= whole * part) & (left < whole) & ~faded
    return Report(
        scanned=int(np.count_nonzero(~np.isnan(whole))),
        fading_ids=tuple(sorted(ids[place] for place in fading.nonzero()[0])),
        faded_ids=tuple(sorted(ids[place] for place in faded.nonzero()[0])),
        now=at,
        decay=settings,
        fading_below=part,
    )


def checked(decay: object) -> Decay:
    """The settings that are given.  Raises: InvalidDecay where they are none."""
    if not isinstance(decay, Decay):
        raise InvalidDecay("decay", decay, "write branchmem.Decay(half_life_hours=168.0, floor=0.05)")
    return decay


def moment(value: datetime | None, name: str) -> int:
    """Microseconds since 1970 of an aware time; of the present for None.  Raises: InvalidTime, about `name`."""
    if value is None:
        return microseconds(now_())
    if not isinstance(value, datetime):
        raise InvalidTime(name, value, "it is a datetime, or None for now")
    if value.utcoffset() is None:
        raise InvalidTime(name, value, "it has no offset: use an aware datetime, datetime.now(UTC)")
    return microseconds(value)


def _looked_at(
    store: Store, view: View | StepView | None
) -> tuple[list[str], View | NDArray[np.uint32], Sequence[Memory]]:
    """The ids of what is looked at, and how the index is asked for it; the memories that a step has alone."""
    import numpy as np

    from branchmem._core import View
    from branchmem.recall.search import shown_by

    if view is None:
        ids = list(store.memory_ids)
        return ids, np.arange(len(ids), dtype=np.uint32), ()
    shown = shown_by(store, view)
    if isinstance(shown.log, View):
        return shown.log.ids(), shown.log, shown.own
    all_ids = store.memory_ids
    return [all_ids[ordinal] for ordinal in shown.log.tolist()], shown.log, shown.own


def _floors(store: Store, settings: Decay, ids: Sequence[str], own: Sequence[Memory]) -> float | NDArray[np.float64]:
    """The floor of each memory: of all, where no kind has its own."""
    import numpy as np

    if not settings.kinds:
        return settings.floor
    kinds = {memory.id: memory.kind for memory in own}
    of = (settings.of(kinds.get(id) or store.skeleton(id).get("kind", "fact")) for id in ids)
    return np.fromiter((one.floor for one in of), np.float64, len(ids))


def _number(name: str, value: object) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)
    except OverflowError:
        raise InvalidDecay(name, value, "it is beyond what a float can hold") from None
    if math.isnan(number):
        raise InvalidDecay(name, value, "it must be a number")
    return number
