"""What can be saved of a store that is damaged: copied into a new one, and never silently.

An event is saved where its bytes are proven: the checksum of its block and of its body
match, and every id that its skeleton refers to by number was spelled out in a block that is
there.  Nothing is guessed.  What is left out is in the report:

- the events of a *lost block*; nobody knows their ids.  A block says how many ids came before
  it, so that those after a gap keep their meaning; but
- an event that refers to an id of a lost block is *unnamed* and lost too;
- an event without its body is left out, as its content is not known.  What hangs below a
  message that is left out is detached, and hidden, until somebody appends that message again.

Erasures come first, wherever they stand in the file: what they take is copied as it stays and
never with content, whatever an older page still holds.  Content that is gone from the file
although no erasure that is proven says so is lost like any other.

A lost block may have held retractions and erasures, so what comes after it might show what they
hid.  By default the copy ends there: a state in which the log once was, but for what was erased
since.  `beyond_gaps` takes the rest as well, and records that stand on pages which belong to no
tree any more: what an erasure in a lost block took may come back with them.

Where the way into the newest state is lost, the one before it is saved: what the last commit
erased may be there again, and the report says so.  Append the erasures of a replica or a backup.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from branchmem import codec
from branchmem.errors import FormatTooNew, InvalidEvent, StoreDamaged
from branchmem.events import Erasure, Event, event_from_bytes, skeleton_fields
from branchmem.log import FORMAT, made_anew
from branchmem.log.remains import Remains, remains_of
from branchmem.store import Engine
from branchmem.store import open as open_store

_BATCH: Final = 1000
_NO_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Salvage:
    """The report: what was found, what was copied, and what is lost."""

    path: str
    #: The new store, None where the file was only looked at.
    new: str | None
    #: Events that are proven, and were copied, by type.
    messages: int
    memories: int
    retractions: int
    restorations: int
    erasures: int
    #: Messages and memories among them that were erased.
    erased: int
    #: Positions whose blocks are lost, each from the first to before the last.
    lost: tuple[tuple[int, int], ...]
    #: Events whose content is lost, each with its position.
    bodiless: Mapping[str, int]
    #: Positions of events that refer to an id which only a lost block spelled out.
    unnamed: tuple[int, ...]
    #: Proven events after the first lost block that were left there.
    behind: int
    #: Copied events that were found on pages which belong to no tree any more.
    loose: int
    #: What is wrong with the file, in words.
    damage: tuple[str, ...]

    @property
    def events(self) -> int:
        """How many events are proven, or were copied."""
        return self.messages + self.memories + self.retractions + self.restorations + self.erasures

    @property
    def ok(self) -> bool:
        """Whether nothing of the log is lost and nothing is wrong with its file."""
        return not (self.lost or self.bodiless or self.unnamed or self.behind or self.damage)

    @property
    def first_bad_seq(self) -> int | None:
        """The first position whose event is not proven, None where all are."""
        starts = (start for start, _ in self.lost)
        return min((*starts, *self.bodiless.values(), *self.unnamed), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {"events": self.events, **asdict(self), "first_bad_seq": self.first_bad_seq}

    def __str__(self) -> str:
        lost = sum(end - start for start, end in self.lost)
        counts = {
            "in lost blocks": lost,
            "without content": len(self.bodiless),
            "that name an id of a lost block": len(self.unnamed),
            "behind the first lost block, left there": self.behind,
        }
        missing = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        if not missing:
            missing = "no event is lost" if self.ok else "none is known to be lost"
        proven = f"{self.events:,} events {'copied' if self.new else 'proven'}"
        others = {"retractions": self.retractions, "restorations": self.restorations, "erasures": self.erasures}
        more = "".join(f", {count:,} {what}" for what, count in others.items() if count)
        return f"{proven} ({self.messages:,} messages, {self.memories:,} memories{more}): {missing}"


def examine(path: str | os.PathLike[str]) -> Salvage:
    """Say what `salvage` would copy and what is lost, in a file that need not open as a store.  Changes nothing.

    Raises: StoreMissing; StoreLocked where it is open anywhere; FormatTooNew.
    Cost: walks the file and decodes every event in plain Python, about 40 µs an event.
    """
    with remains_of(path) as remains:
        found = _Found()
        for _ in _proven(remains, found, beyond_gaps=False):
            pass
        return found.report(remains, None)


def salvage(path: str | os.PathLike[str], new: str | os.PathLike[str], *, beyond_gaps: bool = False) -> Salvage:
    """Copy what is proven of the file at `path` into a new store at `new`, and report what is lost.

    The copy ends before the first lost block, but for erasures, unless `beyond_gaps`: then memories may
    show that a lost block had retracted or erased.  It is a log of its own, with positions and a log id of
    its own.  The old file is left as it is; the new one is there as a whole or not at all.
    Raises: StoreExists where something lies at `new`; StoreLocked where `path` is open anywhere;
    StoreDamaged where nothing is proven; StoreMissing, StoreFull, FormatTooNew.
    Cost: as `examine`, and an append of all events.
    """
    with remains_of(path) as remains, made_anew(new) as (target, draft):
        found = _Found()
        with open_store(draft) as store:
            batch: list[Event] = []
            for event in _proven(remains, found, beyond_gaps=beyond_gaps):
                batch.append(event)
                if len(batch) == _BATCH:
                    store.append(batch)
                    batch.clear()
            store.append(batch)
        if not found.copied:
            raise StoreDamaged(remains.path, "no event in it is proven, so that nothing was written", 0)
        return found.report(remains, target)


@dataclass(slots=True)
class _Found:
    """The report while it grows."""

    copied: Counter[str] = field(default_factory=Counter)
    erased: int = 0
    behind: int = 0
    loose: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    bodiless: dict[str, int] = field(default_factory=dict)
    unnamed: list[int] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)

    def lose(self, place: _Place) -> None:
        """Note an event that is not proven."""
        if place.skeleton is None:
            self.unnamed.append(place.seq)
        else:
            self.bodiless[skeleton_fields(place.skeleton)["id"]] = place.seq

    def report(self, remains: Remains, new: str | None) -> Salvage:
        return Salvage(
            path=remains.path,
            new=new,
            messages=self.copied["message"],
            memories=self.copied["memory"],
            retractions=self.copied["retraction"],
            restorations=self.copied["restoration"],
            erasures=self.copied["erasure"],
            erased=self.erased,
            lost=tuple(self.lost),
            bodiless=self.bodiless,
            unnamed=tuple(self.unnamed),
            behind=self.behind,
            loose=self.loose,
            damage=(*remains.damage, *self.damage),
        )


class _Place(NamedTuple):
    """A position whose block is proven; no skeleton where it names an id that no block spells out."""

    seq: int
    skeleton: bytes | None
    loose: bool
    #: Whether a block before it is lost, so that it is left there unless it is an erasure.
    behind: bool

    @property
    def type(self) -> str:
        return "" if self.skeleton is None else str(skeleton_fields(self.skeleton)["type"])


def _proven(remains: Remains, found: _Found, *, beyond_gaps: bool) -> Iterator[Event]:
    """The events that are proven, erasures first, then in order; what is not is told to `found`."""
    if int.from_bytes(remains.meta(b"format"), "little") > FORMAT:
        raise FormatTooNew(remains.path)
    places = list(_places(remains, found, beyond_gaps=beyond_gaps))
    erasures = [place for place in places if place.type == Erasure.type]
    others = [place for place in places if place.type != Erasure.type]
    taken = [*erasures, *(place for place in others if not place.behind)]
    bodiless = [place for place in erasures if not isinstance(_body(remains, place.seq, loose=beyond_gaps), bytes)]
    # what an erasure takes that is not proven itself has no content either, but nothing in the copy says why
    is_taken = _erased(taken) if erasures else _never
    is_erased = _erased(place for place in taken if place not in bodiless) if bodiless else is_taken
    for place in taken:
        event = _event(remains, found, place, is_taken, is_erased, beyond_gaps=beyond_gaps)
        if event is not None:
            found.copied[event.type] += 1
            found.erased += is_erased(event.id)
            found.loose += place.loose
            yield event
    for place in others:
        if place.behind:
            if place.skeleton is None or _body(remains, place.seq, loose=False) is _Without.RECORD:
                found.lose(place)
            else:
                found.behind += 1


def _never(id: str) -> bool:
    return False


def _erased(places: Iterable[_Place]) -> Callable[[str], bool]:
    """Whether a message or a memory among these events is erased, as far as these say."""
    engine = Engine()
    engine.add(codec.as_it_stays(place.skeleton) for place in places if place.skeleton is not None)
    return engine._engine.is_erased


def _places(remains: Remains, found: _Found, *, beyond_gaps: bool) -> Iterator[_Place]:
    """All positions whose blocks are proven, in order."""
    seq = 0
    for first_seq, skeletons, loose in _blocks(remains, found, beyond_gaps=beyond_gaps):
        if first_seq > seq:
            found.lost.append((seq, first_seq))
        seq = first_seq + len(skeletons)
        behind = bool(found.lost) and not beyond_gaps
        for position, skeleton in enumerate(skeletons, first_seq):
            yield _Place(position, skeleton, loose, behind)
    if remains.end() > seq:
        found.lost.append((seq, remains.end()))


def _blocks(remains: Remains, found: _Found, *, beyond_gaps: bool) -> Iterator[tuple[int, list[bytes | None], bool]]:
    """Yield (first seq, skeletons, whether it was loose) of the blocks that are proven, in order."""
    interner = codec.Interner()
    seq = 0
    for first_seq, block in remains.blocks():
        if beyond_gaps and first_seq > seq:
            for at, skeletons in _loose_blocks(remains, interner, seq, first_seq):
                yield at, skeletons, True
                seq = at + len(skeletons)
        try:
            if first_seq < seq:
                raise ValueError(f"it begins before the end of another, at seq {seq}")
            skeletons = codec.decode_block_after_gap(first_seq, block, interner)
        except ValueError as error:
            found.damage.append(f"block at seq {first_seq}: {error}")
            continue
        yield first_seq, skeletons, False
        seq = first_seq + len(skeletons)
    if beyond_gaps:
        for at, skeletons in _loose_blocks(remains, interner, seq, remains.end() or _NO_END):
            yield at, skeletons, True


def _loose_blocks(
    remains: Remains, interner: codec.Interner, start: int, end: int
) -> Iterator[tuple[int, list[bytes | None]]]:
    """Loose blocks between `start` and `end`.  Where two of one place differ, neither is proven."""
    for seq in remains.loose_seqs(start, end):
        known = len(interner.ids)
        fitting = []
        for record in remains.loose(seq) if seq >= start else ():
            with suppress(ValueError):
                if seq + len(codec.decode_block_after_gap(seq, record, interner)) <= end:
                    fitting.append(record)
            interner.forget(known)
        if len(fitting) == 1:
            skeletons = codec.decode_block_after_gap(seq, fitting[0], interner)
            start = seq + len(skeletons)
            yield seq, skeletons


def _event(
    remains: Remains,
    found: _Found,
    place: _Place,
    is_taken: Callable[[str], bool],
    is_erased: Callable[[str], bool],
    *,
    beyond_gaps: bool,
) -> Event | None:
    """The event at a place, as it stays where it is erased; None where it is not proven, which is told to `found`."""
    if place.skeleton is not None:
        id = skeleton_fields(place.skeleton)["id"]
        if is_erased(id):
            return codec.as_it_stays(place.skeleton)
        body = _Without.CONTENT if is_taken(id) else _body(remains, place.seq, loose=beyond_gaps)
        if isinstance(body, bytes):
            try:
                return event_from_bytes(place.skeleton, body)
            except InvalidEvent as error:
                raise FormatTooNew(remains.path, f"seq {place.seq}: {error}") from None
    found.lose(place)
    return None


class _Without(Enum):
    """Why there is no content: its record says that it was erased, or there is no record."""

    CONTENT = 1
    RECORD = 2


def _body(remains: Remains, seq: int, *, loose: bool) -> bytes | _Without:
    """The content of the event at `seq`, where one record of it is there.

    Loose ones are looked at only where the log has none, since they may hold what was erased later.
    """
    bodies = _decoded(seq, [remains.body(seq)])
    if not bodies and loose:
        bodies = _decoded(seq, remains.loose(seq))
    if len(bodies) != 1:
        return _Without.RECORD
    body = bodies.pop()
    return _Without.CONTENT if body is None else body


def _decoded(seq: int, records: Iterable[bytes]) -> set[bytes | None]:
    bodies = set()
    for record in records:
        with suppress(ValueError):
            bodies.add(codec.decode_body(seq, record))
    return bodies
