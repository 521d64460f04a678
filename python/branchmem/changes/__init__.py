"""The verbs of a store: take back, bring back, correct, replace, erase.

Each is one batch of events, written by `append`, and answers with a receipt: ids and counts, no
content.  `dry_run=True` writes nothing and says what would change at the anchor and at every other
leaf.  Whoever needs more than a verb allows appends the event itself (`branchmem.events`).

Beside the verbs: `names` knows which ids they may name, `trial` what events would change,
`receipts` how that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from branchmem.canonical import MAX_REFERENCES, new_id
from branchmem.canonical import ids as ids_
from branchmem.changes import names
from branchmem.changes.names import NotInLog
from branchmem.changes.receipts import Change, Elsewhere, Erased
from branchmem.changes.trial import Seen, Trial
from branchmem.errors import InvalidEvent, InvalidEventType
from branchmem.events import Erasure, Event, Memory, Restoration, Retraction, Scope, conflict
from branchmem.questions import Questions
from branchmem.verdict import Appended, Reason

__all__ = ["Change", "Changes", "Elsewhere", "Erased", "NotInLog"]

if TYPE_CHECKING:
    from branchmem import _core
    from branchmem.eventlog import EventLog


_RETRACTION = "branchmem.events.Retraction that names it"
_RESTORATION = "branchmem.events.Restoration that names it"
_INSTEAD_OF_A_MEMORY = {"message": "name it as a source to take back what came from it"}
_INSTEAD_OF_A_SOURCE = {"memory": "name it as a memory to take it back"}
_INSTEAD_OF_WHAT_WAS_SAID = {"memory": "name the message that it came from, or supersede it"}


class Changes(Questions):
    """The verbs.  What they answer of hidden and shown memories is meant under the strict policy.

    A real run looks at the anchor before and after its commit, so that what others append in that
    moment counts as its work; a dry run compares two engines of one moment.
    """

    if TYPE_CHECKING:  # what the store has beside its verbs

        def append(self, events: Iterable[Event]) -> Appended: ...
        @property
        def log(self) -> EventLog: ...

    def retract(
        self,
        memories: Iterable[str] = (),
        *,
        sources: Iterable[str] = (),
        keys: Iterable[str] = (),
        at: str,
        scope: Scope,
        standing: bool = False,
        revert: bool = False,
        reason: str | None = None,
        id: str | None = None,
        created: datetime | None = None,
        dry_run: bool = False,
    ) -> Change:
        """Take back memories, all that came from messages (`sources`), and all that bears a key, as seen from `at`.

        `scope` is where that holds: "branch" at `at` and below it, "tree" in its whole conversation,
        "everywhere".  With the memories go the older versions that they replace, which would come back
        in their place; `revert=True` names the given ones alone and so brings these back.  What came from a
        message or bears a key goes without its older versions.  `standing`:
        also what states a key afresh later.  With more older versions than an event can name there are several
        retractions in the batch, whose ids are that of the first with /2, /3 … behind it.

        Raises: UnknownEvent where `at`, a memory or a source is not in the log (only an event that is appended
        may name what is still to come); InvalidEvent where it is of another type, or nothing is named.
        Cost: one commit and two views at `at`; a dry run replays the log twice and visits every leaf.
        """
        first = Retraction(
            new_id() if id is None else id,
            at,
            scope=scope,
            memories=memories,
            sources=sources,
            keys=keys,
            standing=standing,
            reason=reason,
            created=created,
        )
        engine = self._fresh()
        names.require(engine, [first.at], "message", by_hand=_RETRACTION)
        names.require(engine, first.memories, "memory", by_hand=_RETRACTION, instead=_INSTEAD_OF_A_MEMORY)
        names.require(engine, first.sources, "message", by_hand=_RETRACTION, instead=_INSTEAD_OF_A_SOURCE)
        named = first.memories if revert else names.with_older_versions(engine, first.memories)
        return self._change(_several(first, named), (first.at,), dry_run=dry_run)

    def restore(
        self,
        retraction: str,
        *,
        at: str,
        scope: Scope,
        id: str | None = None,
        created: datetime | None = None,
        dry_run: bool = False,
    ) -> Change:
        """Lift one retraction where this restoration is in effect; `scope` is read as in `retract`.

        What another retraction covers as well stays hidden: it needs a restoration of its own.

        Raises: UnknownEvent where the retraction or `at` is not in the log; InvalidEvent where it is of another type.
        Cost: as `retract`.
        """
        event = Restoration(new_id() if id is None else id, at, scope=scope, retraction=retraction, created=created)
        engine = self._fresh()
        names.require(engine, [event.retraction], "retraction", by_hand=_RESTORATION)
        names.require(engine, [event.at], "message", by_hand=_RESTORATION)
        return self._change([event], (event.at,), dry_run=dry_run)

    def correct(
        self,
        message: str,
        *,
        memory: Memory,
        at: str,
        scope: Scope = "branch",
        reason: str | None = None,
        id: str | None = None,
        created: datetime | None = None,
        dry_run: bool = False,
    ) -> Change:
        """Take back all that came from a message ("what I said there was wrong"), and remember this instead.

        `id` is that of the retraction.  A memory that itself derives from the message is born covered,
        and the receipt says so: name the message of the correction as its source.  A memory that is hidden at `at`
        for another reason is written too, and the receipt says why.  What the memories of the message
        had replaced comes back, unless the new memory supersedes them.

        Raises: UnknownEvent where the message or `at` is not in the log; InvalidEvent where it is of another type;
        EventConflict where the id of the memory is taken.  Nothing is written then.
        Cost: as `retract`.
        """
        given = _memory(memory, "memory")
        event = Retraction(
            new_id() if id is None else id, at, scope=scope, sources=[message], reason=reason, created=created
        )
        engine = self._fresh()
        names.require(engine, [event.at], "message", by_hand=_RETRACTION)
        names.require(engine, event.sources, "message", by_hand=_RETRACTION, instead=_INSTEAD_OF_WHAT_WAS_SAID)
        return self._change([event, given], (event.at,), dry_run=dry_run)

    def supersede(self, memories: Iterable[str], *, by: Memory, at: str | None = None, dry_run: bool = False) -> Change:
        """Replace memories: appends `by`, which supersedes them and what it names itself.

        They are hidden where `by` is visible, and nowhere else.  The receipt looks at `at`; without it, at the
        deepest of `by`'s own sources in each tree, where it was said; at nothing where it has none.

        Raises: UnknownEvent where a memory or `at` is not in the log; InvalidEvent where it is of another type;
        EventConflict where the id of `by` is taken.
        Cost: as `retract`.
        """
        given, named = _memory(by, "by"), ids_(memories, "memories")
        event = replace(given, supersedes=(*given.supersedes, *named))
        if not event.supersedes:
            raise InvalidEvent(f"memory {event.id} replaces nothing: name memories, or append it", event.id)
        engine = self._fresh()
        names.require(engine, named, "memory", by_hand="branchmem.Memory that supersedes it")
        anchors = names.deepest_a_tree(engine, event.sources) if at is None else _anchors(engine, at)
        return self._change([event], anchors, dry_run=dry_run)

    def erase(
        self,
        targets: Iterable[str],
        *,
        cascade: bool = True,
        at: str | None = None,
        id: str | None = None,
        created: datetime | None = None,
        dry_run: bool = False,
    ) -> Erased:
        """Remove the content of messages and memories for good, and by default of all that came from them.

        What is named and not here yet is stored without content when it comes, and so is what will be derived.
        Messages that repeat the content are not found by themselves: name them.  Ids and keys stay.
        The bytes stay in free pages of the file until `compact()`.

        Raises: InvalidEvent for an id of what is neither message nor memory; UnknownEvent where `at` is not in the log.
        Cost: one commit, and what goes; with `at` two views; a dry run as that of `retract`.
        """
        event = Erasure(new_id() if id is None else id, targets, cascade=cascade, created=created)
        engine = self._fresh()
        names.targets(engine, event.targets)
        anchors = () if at is None else _anchors(engine, at)
        self._refuse_conflicts([event])
        receipt = _receipt(engine, event)
        if dry_run:
            trial = Trial(engine, [event.skeleton()])
            seen, appended, elsewhere = trial.at(anchors), None, trial.elsewhere(anchors)
        else:
            seen = Seen(self, anchors)
            appended, elsewhere = self.append([event]), None
            seen.again(self)
        return replace(
            receipt,
            appended=appended,
            anchors=anchors,
            hidden=seen.hidden,
            shown=seen.shown,
            elsewhere=elsewhere,
            known=self._known([event], appended),
        )

    def _change(self, events: Sequence[Event], anchors: tuple[str, ...], *, dry_run: bool) -> Change:
        if dry_run:
            self._refuse_conflicts(events)
            trial = Trial(self._fresh(), [event.skeleton() for event in events])
            seen, appended, elsewhere = trial.at(anchors), None, trial.elsewhere(anchors)
            unplaced = trial.after._engine.unplaced()
        else:
            seen = Seen(self, anchors)
            appended, elsewhere = self.append(events), None
            seen.again(self)
            unplaced = self._fresh().unplaced()
        born = seen.hiding(event.id for event in events if isinstance(event, Memory))
        return Change(
            events=tuple(events),
            appended=appended,
            anchors=anchors,
            hidden=seen.hidden,
            shown=seen.shown,
            born_covered={one.id: one.culprits[Reason.RETRACTED] for one in born if Reason.RETRACTED in one.reasons},
            born_hidden={one.id: tuple(one.sentences()) for one in born},
            unplaced=tuple(event.id for event in events if event.id in unplaced),
            elsewhere=elsewhere,
            known=self._known(events, appended),
        )

    def _known(self, events: Iterable[Event], appended: Appended | None) -> bool:
        """Whether the log had all of them before they were appended, or tried."""
        return not appended.added if appended is not None else all(event.id in self.log for event in events)

    def _refuse_conflicts(self, events: Sequence[Event]) -> None:
        """Raise what `append` would raise for ids that are taken.  Of erased events only what stays is compared."""
        batch: dict[str, Event] = {}
        for event in events:
            known = batch.setdefault(event.id, event)
            if known is event and event.id in self.log:
                known = self.log.get(event.id)
            erased = self.log.is_erased(event.id)
            if known.skeleton() != event.skeleton() or (known != event and not erased):
                raise conflict(event.id, known.to_dict(), event.to_dict())


def _memory(given: object, name: str) -> Memory:
    if not isinstance(given, Memory):
        raise InvalidEventType(f"{name} must be a Memory, not {given!r:.80}", given)
    return given


def _anchors(engine: _core.Engine, at: str) -> tuple[str, ...]:
    if not isinstance(at, str):
        raise TypeError(f"at is the id of one message, not {at!r:.80}")
    names.require(engine, [at], "message")
    return (at,)


def _several(first: Retraction, memories: Sequence[str]) -> list[Retraction]:
    """`first` with these memories, as so many retractions as their number needs."""
    named = [("memories", id) for id in memories]
    named += [("sources", id) for id in first.sources] + [("keys", key) for key in first.keys]
    parts = (named[start : start + MAX_REFERENCES] for start in range(0, len(named), MAX_REFERENCES))
    return [
        replace(
            first,
            id=first.id if number == 1 else f"{first.id}/{number}",
            memories=_ids_in(part, "memories"),
            sources=_ids_in(part, "sources"),
            keys=_ids_in(part, "keys"),
        )
        for number, part in enumerate(parts, 1)
    ]


def _ids_in(named: Iterable[tuple[str, str]], field: str) -> tuple[str, ...]:
    return tuple(id for name, id in named if name == field)


def _receipt(engine: _core.Engine, event: Erasure) -> Erased:
    """What the erasure takes of the log as it is."""
    messages = tuple(filter(engine.is_message, event.targets))
    memories = tuple(filter(engine.is_memory, event.targets))
    here = {*messages, *memories}
    _, seqs = engine.erased_by([event.skeleton()])
    going = [id for seq in sorted(seqs) for id in engine.event_ids(seq, seq + 1)]
    derived = tuple(id for id in going if id not in here)
    keys = {names.fields(engine, id).get("key") for id in (*memories, *derived)}
    return Erased(
        event=event,
        appended=None,
        messages=messages,
        memories=memories,
        derived=derived,
        already=tuple(filter(engine.is_erased, (*messages, *memories))),
        absent=tuple(id for id in event.targets if id not in here),
        keys=tuple(sorted(key for key in keys if key is not None)),
        bodies=len(going),
    )
