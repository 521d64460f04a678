"""Who may open a store, who waits, which store is closed to make room: the books of a pool.

Nothing here opens, closes or waits.  Each call changes the books under one lock and says what is to
be done: a store is there and pinned, or the asker is to open it, or will be told.  Room is given in
order of arrival; who asks for a store that is open never waits.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from branchmem import Store


class Seat:
    """The store of one owner.

    Three states: `store` is there and can be pinned; or it is `busy`, as one opens or deletes it and others
    wait for that; or it stands in the queue for room, and somebody waits for it.
    """

    __slots__ = ("busy", "memory_bytes", "owner", "pins", "store", "waiting")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.store: Store | None = None
        self.busy = False
        self.pins = 0
        self.memory_bytes = 0
        self.waiting: OrderedDict[Asker, None] = OrderedDict()


class Asker:
    """Who asked for a store.  `wake` tells him to look, and says whether that reached anybody.

    Once told: `store` is pinned for him; or he `opens` it, after closing `first`; or he is `refused`, as one
    who came too late or whom nobody can reach any more.
    """

    __slots__ = ("first", "opens", "refused", "seat", "store", "wake")

    def __init__(self, seat: Seat, wake: Callable[[], bool]) -> None:
        self.seat = seat
        self.wake = wake
        self.store: Store | None = None
        self.opens = False
        self.first: Store | None = None
        self.refused = False

    @property
    def told(self) -> bool:
        return self.store is not None or self.opens or self.refused


class Seats:
    """Room for `max_open` stores; those that nobody uses stay while all together fit into `max_memory` bytes."""

    def __init__(self, max_open: int, max_memory: int) -> None:
        self.max_open = max_open
        self.max_memory = max_memory
        self.closed = False
        self.open = self.opened = self.evicted = self.hits = self.waits = self.memory_bytes = 0
        self._lock = threading.Lock()
        self._seats: dict[str, Seat] = {}
        self._idle: OrderedDict[str, Seat] = OrderedDict()  # least recently used first
        self._queue: OrderedDict[str, Seat] = OrderedDict()
        self._surplus: list[Store] = []

    def ask(self, owner: str, wake: Callable[[], bool]) -> Asker:
        """Ask for a store.  Who is not told at once is woken when he is."""
        with self._lock:
            seat = self._current(owner) or Seat(owner)
            asker = Asker(seat, wake)
            if self.closed:
                asker.refused = True
            elif seat.store is not None:
                self.hits += 1
                self._pin(seat, asker)
            else:
                self._seats[owner] = seat
                seat.waiting[asker] = None
                if not seat.busy and owner not in self._queue:
                    self._queue[owner] = seat
                    self._admit()
                self.waits += not asker.told
            return asker

    def fill(self, asker: Asker, store: Store) -> bool:
        """The asker opened the store, for all who wait for it too; False where the pool was closed meanwhile."""
        with self._lock:
            if self.closed:
                return False
            seat = asker.seat
            seat.busy, seat.store = False, store
            self.opened += 1
            self._pin(seat, asker)
            while seat.waiting:
                other, _ = seat.waiting.popitem(last=False)
                self._pin(seat, other)
                if not other.wake():
                    seat.pins -= 1
                    other.store, other.refused = None, True
            self._weigh(seat)
            return True

    def failed(self, asker: Asker) -> None:
        """The asker could not open the store: the next who waits for it tries on his own account."""
        with self._lock:
            if not self.closed:
                self._appoint(asker.seat, None)
                self._admit()

    def leave(self, asker: Asker) -> None:
        """The asker needs his store no more, or does not wait for it any longer; not while he opens it."""
        with self._lock:
            if self.closed:
                if asker.first is not None:
                    self._surplus.append(asker.first)
                return
            if asker.refused:
                return
            seat = asker.seat
            if asker.store is not None:
                self._unpin(seat)
            elif asker.opens:
                self._appoint(seat, asker.first)
            else:
                del seat.waiting[asker]
                if not seat.waiting and seat.owner in self._queue:
                    del self._queue[seat.owner]
                    del self._seats[seat.owner]
            self._admit()

    def seize(self, owner: str) -> tuple[Seat, Store | None] | None:
        """Keep everybody from the store of an owner, and hand it out where it is open; None where it is in use."""
        with self._lock:
            seat = self._current(owner)
            if seat is None:
                seat = self._seats[owner] = Seat(owner)
            elif self._idle.pop(owner, None) is None:
                return None
            seat.busy = True
            store, seat.store = seat.store, None
            self.memory_bytes -= seat.memory_bytes
            seat.memory_bytes = 0
            return seat, store

    def release(self, seat: Seat, *, was_open: bool) -> None:
        """Let others at a seat that was seized; `was_open`: the store that came with it is closed now."""
        with self._lock:
            if self.closed:
                return
            self.open -= was_open
            seat.busy = False
            if seat.waiting:
                self._queue[seat.owner] = seat
            else:
                del self._seats[seat.owner]
            self._admit()

    def surplus(self) -> list[Store]:
        """Stores to be closed now.  They count as open until `freed` was called for each."""
        with self._lock:
            stores, self._surplus = self._surplus, []
            return stores

    def freed(self) -> None:
        """One of the surplus was closed."""
        with self._lock:
            if not self.closed:
                self.open -= 1
                self._admit()

    def close(self) -> list[Store]:
        """Refuse everybody from now on, and hand out what is open."""
        with self._lock:
            self.closed = True
            stores = [seat.store for seat in self._seats.values() if seat.store is not None] + self._surplus
            for seat in self._seats.values():
                for asker in seat.waiting:
                    asker.refused = True
                    asker.wake()
            self._seats.clear()
            self._idle.clear()
            self._queue.clear()
            self._surplus = []
            self.open = self.memory_bytes = 0
            return stores

    def count(self) -> tuple[int, int, int]:
        """How many stores are open, how many of them are pinned, and how many askers wait."""
        with self._lock:
            pinned = sum(seat.pins > 0 for seat in self._seats.values())
            return self.open, pinned, sum(len(seat.waiting) for seat in self._seats.values())

    def _current(self, owner: str) -> Seat | None:
        """The seat of an owner, unless somebody closed its store."""
        seat = self._seats.get(owner)
        if seat is None or not self._stale(seat):
            return seat
        return None

    def _stale(self, seat: Seat) -> bool:
        """Whether somebody closed the store; then the next who asks opens it anew."""
        if seat.store is None or not seat.store.closed:
            return False
        del self._seats[seat.owner]
        self._idle.pop(seat.owner, None)
        self.memory_bytes -= seat.memory_bytes
        seat.store = None
        self.open -= 1
        return True

    def _pin(self, seat: Seat, asker: Asker) -> None:
        seat.pins += 1
        self._idle.pop(seat.owner, None)
        asker.store = seat.store

    def _unpin(self, seat: Seat) -> None:
        seat.pins -= 1
        if not seat.pins and seat.store is not None and not self._stale(seat):
            self._idle[seat.owner] = seat
            self._weigh(seat)

    def _weigh(self, seat: Seat) -> None:
        """Note what a store holds in memory now, and give up unused ones while all hold too much."""
        assert seat.store is not None
        before, seat.memory_bytes = seat.memory_bytes, seat.store.memory_bytes
        self.memory_bytes += seat.memory_bytes - before
        while self.memory_bytes > self.max_memory and self._idle:
            self._surplus.append(self._evict())

    def _evict(self) -> Store:
        """Take the least recently used store out of the books; its room is kept."""
        owner, seat = self._idle.popitem(last=False)
        del self._seats[owner]
        self.memory_bytes -= seat.memory_bytes
        self.evicted += 1
        assert seat.store is not None
        return seat.store

    def _admit(self) -> None:
        """Give what room there is to those who wait for it, in order of arrival."""
        while self._queue and (self._idle or self.open < self.max_open):
            first = None
            if self.open < self.max_open:
                self.open += 1
            else:
                first = self._evict()
            _, seat = self._queue.popitem(last=False)
            self._appoint(seat, first)

    def _appoint(self, seat: Seat, first: Store | None) -> None:
        """Let the first of the waiting who can be reached open the store, in room that is kept for it."""
        seat.busy = True
        while seat.waiting:
            asker, _ = seat.waiting.popitem(last=False)
            asker.opens, asker.first = True, first
            if asker.wake():
                return
            asker.opens, asker.first, asker.refused = False, None, True
        del self._seats[seat.owner]
        if first is None:
            self.open -= 1
        else:
            self._surplus.append(first)
