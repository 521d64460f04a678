"""What one commit writes: batches that came at one time, each judged as if those before it had been appended.

A batch is refused where it has other content for an id that is known.  Of an erased id only
what stays is compared, and its content is never written: neither with its erasure, nor after it.

What is held of bundles stands outside of the log, in a table of its own.  It goes with the commit that
erases it, or that erases what it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from branchmem.codec import MAX_BLOCK_EVENTS
from branchmem.errors import Error, EventConflict, InvalidEventType
from branchmem.eventlog import event_of
from branchmem.events import Erasure, Event, conflict, skeleton_fields
from branchmem.verdict import Appended

if TYPE_CHECKING:
    from branchmem import _core
    from branchmem.log import Reader, Writer

#: The table of local state that keeps what is held of bundles: b"event" + bundle + id → skeleton and body.
HELD: Final = "held"
_HELD_EVENT: Final = b"event\0"
#: The id of a bundle, a UUID as text.
_BUNDLE_BYTES: Final = 36
_LENGTH_BYTES: Final = 4


class Batch(NamedTuple):
    """Events to append together, and the canonical bytes of each."""

    events: Sequence[Event]
    skeletons: list[bytes]
    bodies: list[bytes]

    @classmethod
    def of(cls, events: Sequence[Event]) -> Batch:
        """The batch of these events."""
        return cls(events, [event.skeleton() for event in events], [event.body() for event in events])


def checked(events: Iterable[Event]) -> list[Event]:
    """The events of a batch, each of them an event.  Raises: InvalidEventType."""
    if isinstance(events, Event):
        raise InvalidEventType(f"a list of events is needed: write [{events!r:.80}]", events)
    batch = list(events)
    for event in batch:
        if not isinstance(event, Event):
            raise InvalidEventType(f"{event!r:.80} is no event: make a Message or a Memory of it", event)
    return batch


class HeldEvent(NamedTuple):
    """An event that is held of a bundle, in its canonical bytes, and its key in the table."""

    key: bytes
    skeleton: bytes
    body: bytes

    @property
    def id(self) -> str:
        """The id of the event."""
        return self.key[len(_HELD_EVENT) + _BUNDLE_BYTES :].decode()


def held_event(reader: Reader, bundle: str, id: str) -> HeldEvent | None:
    """An event that is held of a bundle, None where it is not."""
    key = _HELD_EVENT + bundle.encode() + id.encode()
    value = reader.table(HELD).get(key)
    return None if value is None else _held(key, value)


def held_events(reader: Reader, bundle: str = "") -> Iterator[HeldEvent]:
    """What is held of a bundle, or of all, one bundle after the other, sorted by id."""
    for key, value in reader.table(HELD).items(_HELD_EVENT + bundle.encode()):
        yield _held(key, value)


def _held(key: bytes, value: bytes) -> HeldEvent:
    end = _LENGTH_BYTES + int.from_bytes(value[:_LENGTH_BYTES], "little")
    return HeldEvent(key, value[_LENGTH_BYTES:end], value[end:])


def hold(writer: Writer, bundle: str, id: str, skeleton: bytes, body: bytes) -> bool:
    """Hold an event of a bundle; False, and nothing is written, where it is held with other content."""
    table, key = writer.table(HELD), _HELD_EVENT + bundle.encode() + id.encode()
    value = len(skeleton).to_bytes(_LENGTH_BYTES, "little") + skeleton + body
    known = table.get(key)
    if known is None:
        table.put(key, value)
    return known in (None, value)


def let_go(engine: _core.Engine, writer: Writer, skeletons: Sequence[bytes], bundle: str = "") -> int:
    """Remove what is held, of a bundle or of all, and is erased, or would be with these skeletons beside it.

    What the log has by itself by then goes as well.  How many events that were.
    Cost: the skeletons of all that is held, at once.
    """
    held = [(event.key, event.id, event.skeleton) for event in held_events(writer, bundle)]
    if not held:
        return 0
    here = {skeleton_fields(skeleton)["id"] for skeleton in skeletons}
    bare, _ = engine.erased_by([*skeletons, *(skeleton for _, _, skeleton in held)])
    erased = {at - len(skeletons) for at in bare}
    gone = [
        key for at, (key, id, _) in enumerate(held) if at in erased or id in here or engine.event_seq(id) is not None
    ]
    table = writer.table(HELD)
    for key in gone:
        table.delete(key)
    return len(gone)


class Commit:
    """The batches that go into one transaction.  The engine has seen all that the transaction sees."""

    def __init__(self, engine: _core.Engine, writer: Writer, *, alone: bool) -> None:
        self._engine = engine
        self._writer = writer
        self._alone = alone
        self._skeletons: list[bytes] = []
        self._bodies: list[bytes | None] = []
        # what was taken, by id; nobody looks it up where one batch comes alone
        self._taken: dict[str, tuple[Event, bytes, bytes]] = {}

    def take(self, batch: Batch) -> Appended | Error:
        """Take in a batch, all of it or, where that is the answer, nothing: what its caller is told."""
        try:
            new = self._new_of(batch)
        except Error as refused:
            return refused.with_traceback(None)
        self._skeletons += [batch.skeletons[at] for at in new]
        self._bodies += [batch.bodies[at] for at in new]
        if not self._alone:
            known = ((batch.events[at], batch.skeletons[at], batch.bodies[at]) for at in new)
            self._taken.update((event.id, (event, skeleton, body)) for event, skeleton, body in known)
        return Appended(len(new), len(batch.events) - len(new), self._engine.seq + len(self._skeletons))

    def write(self) -> list[tuple[int, bytes]]:
        """Write what was taken in, and remove the bodies that it erases.  The blocks, for the engine."""
        bare, erased = self._engine.erased_by(self._skeletons)
        for at in bare:
            self._bodies[at] = None
        blocks = self._engine.encode(self._skeletons)
        for first_seq, block in blocks:
            start = first_seq - blocks[0][0]
            self._writer.put(first_seq, block, self._bodies[start : start + MAX_BLOCK_EVENTS])
        self._writer.erase(erased)
        if bare or erased or any(skeleton[1] == Erasure.code for skeleton in self._skeletons):
            let_go(self._engine, self._writer, self._skeletons)
        return blocks

    def _new_of(self, batch: Batch) -> list[int]:
        """Which events of a batch are neither stored, nor repeated in it, nor taken into this commit before.

        Raises: EventConflict where one of them is there with other content.
        """
        events, skeletons, bodies = batch
        new, stored, repeated, clash = self._engine.plan(skeletons)
        if clash is not None:
            at, before = clash
            raise self._refusal(events[at], None if before is None else events[before])
        differing: dict[int, Event | None] = {
            at: None for at, seq in stored if self._writer.body(seq) != bodies[at]
        } | {at: events[before] for at, before in repeated if bodies[before] != bodies[at]}
        unknown = [at for at in new if events[at].id not in self._taken] if self._taken else new
        if len(unknown) < len(new):
            for at in sorted(set(new).difference(unknown)):
                known, skeleton, body = self._taken[events[at].id]
                if skeleton != skeletons[at]:
                    raise self._refusal(events[at], known)
                if body != bodies[at]:
                    differing[at] = known
        for at in sorted(differing.keys() - self._erased_with(batch, differing)):
            raise self._refusal(events[at], differing[at])
        return unknown

    def _erased_with(self, batch: Batch, places: Iterable[int]) -> set[int]:
        """Which of these places of a batch bear an id that is erased, once all up to this batch is appended."""
        asked = set(places)
        erased = {at for at in asked if self._engine.is_erased(batch.events[at].id)}
        if erased == asked:
            return erased
        bare, _ = self._engine.erased_by([*self._skeletons, *batch.skeletons])
        return erased | asked.intersection(at - len(self._skeletons) for at in bare)

    def _refusal(self, given: Event, known: Event | None) -> EventConflict:
        """The error for an event that differs from one that came before, or from the one that is stored.

        Raises: StoreDamaged where what is stored cannot be read.
        """
        known = known or event_of(self._engine, self._writer, given.id)
        return conflict(given.id, known.to_dict(), given.to_dict())
