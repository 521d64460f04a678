"""What stores have answered so far, and how they stand: summed by the name under which each is watched.

What is counted never goes back: it stays in the sum when its store is closed, or gone.  Reads no file, changes
nothing, and never fails because of one store.  How the numbers leave the process is no business of this module.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import branchmem as bm
from branchmem.errors import Error

if TYPE_CHECKING:
    from branchmem import _core

#: How many events may come after a detached message before it is counted: its parent is not just late.
DETACHED_AFTER: Final = 1000


@dataclass(frozen=True, slots=True)
class Family:
    """One metric.  `read` takes an engine and `detached_after`, and gives values by reason, or one under ""."""

    name: str
    unit: str
    text: str
    #: Whether it only grows: a counter.
    grows: bool
    by_reason: bool
    read: Callable[[_core.Engine, int], Mapping[str, int]]


def _hidden(engine: _core.Engine, _: int) -> Mapping[str, int]:
    return _by_reason(engine.counters()["hidden"], tuple(bm.Reason))


def _admitted(engine: _core.Engine, _: int) -> Mapping[str, int]:
    return _by_reason(engine.counters()["admitted"], _ADMISSIBLE)


def _unlisted(engine: _core.Engine, _: int) -> Mapping[str, int]:
    return {"": engine.counters()["unlisted"]}


def _events(engine: _core.Engine, _: int) -> Mapping[str, int]:
    return {"": engine.seq}


def _unplaced(engine: _core.Engine, _: int) -> Mapping[str, int]:
    return {"": len(engine.unplaced())}


def _detached(engine: _core.Engine, detached_after: int) -> Mapping[str, int]:
    return {"": engine.orphans(max(engine.seq - detached_after, 0))}


def _by_reason(counts: Mapping[bm.Reason, int], reasons: tuple[bm.Reason, ...]) -> Mapping[str, int]:
    """A value for every reason, zeros too: what appears with its first event shows no rate."""
    return {label(reason): counts.get(reason, 0) for reason in reasons}


def label(reason: bm.Reason) -> str:
    """The word for a single reason in metrics and spans."""
    return str(reason.name).lower()


_ADMISSIBLE: Final = tuple(reason for reason in bm.Reason if reason is not bm.Reason.UNKNOWN_MEMORY)

FAMILIES: Final = (
    Family(
        "hidden", "{verdict}", "Single verdicts that hid a memory, by the first reason not let through.",
        grows=True, by_reason=True, read=_hidden,
    ),
    Family(
        "admitted", "{reason}", "Reasons that a policy let through for memories that were shown.",
        grows=True, by_reason=True, read=_admitted,
    ),
    Family(
        "unlisted", "{memory}", "Memories that bulk answers left out.",
        grows=True, by_reason=False, read=_unlisted,
    ),
    Family(
        "events", "{event}", "Events in the open stores.",
        grows=False, by_reason=False, read=_events,
    ),
    Family(
        "unplaced_retractions", "{event}",
        "Retractions and restorations of scope branch or tree whose place cannot be judged.",
        grows=False, by_reason=False, read=_unplaced,
    ),
    Family(
        "detached_messages", "{message}", "Messages that have been without a known way to a root for many events.",
        grows=False, by_reason=False, read=_detached,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Kept:
    """A store that is watched.  The engine outlives it until what it counted is in the sum."""

    store: weakref.ref[bm.Store | bm.Engine]
    engine: _core.Engine
    name: str | None
    detached_after: int

    def is_open(self) -> bool:
        store = self.store()
        return store is not None and not (isinstance(store, bm.Store) and store.closed)


class Watched:
    """The stores that one exporter speaks of.  Safe under threads; in the child of a fork it watches nothing."""

    def __init__(self) -> None:
        self._begin()
        _ALL.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[_core.Engine, _Kept] = {}
        self._past: dict[str | None, dict[str, Counter[str]]] = {}
        self._dead: list[_core.Engine] = []

    def watch(
        self, store: bm.Store | bm.Engine, name: str | None = None, *, detached_after: int = DETACHED_AFTER
    ) -> None:
        """Speak of this store too, until it is gone; what it counted stays in the sums for good.

        With a `name` its numbers bear the label `store`; those of all stores without one are summed.  A name is
        told to whoever reads the metrics, and each is some 35 time series: name few stores, and no owners.
        `detached_after`: a message counts as detached once that many events came after it.
        Raises: TypeError for what is no store; ValueError where it is watched already, in another way.
        """
        if not isinstance(store, bm.Store | bm.Engine):
            raise TypeError(f"what can be watched is a Store or an Engine, not {type(store).__name__}")
        _check_name(name)
        if detached_after < 0:
            raise ValueError(f"detached_after is a number of events, 0 or more, not {detached_after}")
        engine = store._engine
        kept = _Kept(weakref.ref(store), engine, name, detached_after)
        with self._alone():
            known = self._kept.setdefault(engine, kept)
        if (known.name, known.detached_after) != (name, detached_after):
            raise ValueError(
                f"{store!r} is watched already, with name={known.name!r} and detached_after={known.detached_after}: "
                "watch it in one way"
            )
        if known is kept:
            weakref.finalize(store, _gone, weakref.ref(self), engine).atexit = False

    def samples(self, family: Family) -> Iterator[tuple[dict[str, str], int]]:
        """Each value of a metric with its labels: first `reason`, if it has one, then `store`, if that has a name."""
        sums = self._counted(family) if family.grows else self._standing(family)
        for name, values in sums.items():
            for reason, value in values.items():
                labels = {"reason": reason} if family.by_reason else {}
                yield (labels if name is None else {**labels, "store": name}), value

    def forget(self) -> None:
        """Watch nothing, and forget what was counted."""
        with self._alone():
            self._kept.clear()
            self._past.clear()

    def _counted(self, family: Family) -> dict[str | None, Counter[str]]:
        """What was counted, by stores that are gone too: each store is in one of both, at any moment."""
        with self._alone():
            sums = {name: past[family.name].copy() for name, past in self._past.items()}
            for kept in self._kept.values():
                sums.setdefault(kept.name, Counter()).update(family.read(kept.engine, kept.detached_after))
        return sums

    def _standing(self, family: Family) -> dict[str | None, Counter[str]]:
        """How the stores stand that are open.  Engines are asked without the lock, as they may be folding."""
        sums: dict[str | None, Counter[str]] = {}
        with self._alone():
            stores = list(self._kept.values())
        for kept in stores:
            try:
                if kept.is_open():
                    sums.setdefault(kept.name, Counter()).update(family.read(kept.engine, kept.detached_after))
            except Error:  # of another process since a fork
                continue
        return sums

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            yield
        self._settle()

    def _settle(self) -> None:
        """Move what dead stores counted into the sums, unless somebody holds the lock: he does it afterwards.

        Called when a store is collected too, which can be at any moment, in a thread that holds the lock.
        """
        while self._dead and self._lock.acquire(blocking=False):
            try:
                while self._dead:
                    kept = self._kept.pop(self._dead.pop(), None)
                    if kept is not None:
                        past = self._past.setdefault(kept.name, {each.name: Counter() for each in _GROWING})
                        for family in _GROWING:
                            past[family.name].update(family.read(kept.engine, kept.detached_after))
            finally:
                self._lock.release()


_GROWING: Final = tuple(family for family in FAMILIES if family.grows)
_ALL: weakref.WeakSet[Watched] = weakref.WeakSet()


def _gone(watched: weakref.ref[Watched], engine: _core.Engine) -> None:
    """A store was collected; its engine is held until what it counted is in the sums."""
    still = watched()
    if still is not None:
        still._dead.append(engine)
        still._settle()


def _check_name(name: str | None) -> None:
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"the name of a store is a str, not {type(name).__name__}")
    if not name or not name.isprintable():  # a lone surrogate would break every scrape
        raise ValueError(f"the name of a store is printable text, not {name!r:.80}")


def _begin_anew() -> None:
    for watched in list(_ALL):
        watched._begin()


# In the child of a fork the stores are the parent's, as is what they counted; a lock may be held by nobody.
os.register_at_fork(after_in_child=_begin_anew)
