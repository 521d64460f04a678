"""What one commit writes: batches that came at one time, each judged as if those before it had been appended.

A batch is refused where it has other content for an id that is known.  Of an erased id only
what stays is compared, and its content is never written: neither with its erasure, nor after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from branchmem.codec import MAX_BLOCK_EVENTS
from branchmem.errors import Error, EventConflict, InvalidEventType
from branchmem.eventlog import event_of
from branchmem.events import Event, conflict
from branchmem.verdict import Appended

if TYPE_CHECKING:
    from branchmem import _core
    from branchmem.log import Writer


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
