"""What a verb did, or would do: ids and counts, never the content of what they name.

Ids and keys outlive retraction and erasure; texts do not, and a retraction's `reason` may repeat
one.  So a receipt can be printed, logged and kept.  What is visible was decided by the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from branchmem.events import Erasure, Event
from branchmem.verdict import Appended

#: So many ids are named in a sentence; a receipt holds them all.
_NAMED: Final = 5
#: What an erasure removes, and what a reason may repeat.
_CONTENT: Final = ("role", "text", "reason", "importance", "created", "meta")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What changes at the leaves that are not the anchor, each leaf a view of its own."""

    #: Leaves that were compared.
    leaves: int
    #: Those of them at which something changes.
    changed: int
    #: Memories that go, in order of arrival, each with the number of leaves at which it does.
    hidden: Mapping[str, int]
    #: Memories that come, likewise.
    shown: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "leaves": self.leaves,
            "changed": self.changed,
            "hidden": dict(self.hidden),
            "shown": dict(self.shown),
        }

    def summary(self) -> str:
        """At how many leaves something changes."""
        leaves = _counted(self.leaves, "leaf", "leaves")
        if not self.changed:
            return f"nothing changes at {leaves}" if self.leaves else "there is no leaf"
        return f"{self.changed:,} of {leaves} {'changes' if self.changed == 1 else 'change'}"

    def __str__(self) -> str:
        return f"elsewhere {self.summary()}" + _moved(self.hidden, self.shown)


@dataclass(frozen=True, slots=True)
class Change:
    """What a verb wrote, or would write, and what that changes in strict views."""

    #: The events of the verb, in one batch; new or there already.
    events: tuple[Event, ...] = field(repr=False)
    #: What the log made of them; None where nothing was written (`dry_run`).
    appended: Appended | None
    #: Where `hidden`, `shown` and what is born covered or hidden were looked at; none: they were not.
    anchors: tuple[str, ...]
    #: Memories that were visible at the anchor before and are not any more, in order of arrival.
    hidden: tuple[str, ...]
    #: Memories that are visible at the anchor now and were not before, new ones among them.
    shown: tuple[str, ...]
    #: Memories of the batch that are retracted at the anchor from birth, each with the retractions at fault.
    born_covered: Mapping[str, tuple[str, ...]]
    #: Memories of the batch that are hidden at the anchor from birth, by a retraction or not, each with what
    #: `explain` says of it.
    born_hidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Events of the batch whose place cannot be judged: such a retraction is in effect everywhere,
    #: such a restoration nowhere.
    unplaced: tuple[str, ...] = ()
    #: The other leaves; only a dry run looks at them.
    elsewhere: Elsewhere | None = None
    #: Whether all events of the batch were in the log before.
    known: bool = False

    @property
    def id(self) -> str:
        """The id of the first event: a retraction is restored by it."""
        return self.events[0].id

    @property
    def dry_run(self) -> bool:
        """Whether nothing was written."""
        return self.appended is None

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form; events without their content."""
        return {
            "dry_run": self.dry_run,
            "added": 0 if self.appended is None else self.appended.added,
            "known": self.known,
            "events": [_bare(event) for event in self.events],
            "anchors": list(self.anchors),
            "hidden": list(self.hidden),
            "shown": list(self.shown),
            "born_covered": {id: list(retractions) for id, retractions in self.born_covered.items()},
            "born_hidden": {id: list(sentences) for id, sentences in self.born_hidden.items()},
            "unplaced": list(self.unplaced),
            "elsewhere": None if self.elsewhere is None else self.elsewhere.to_dict(),
        }

    def __str__(self) -> str:
        parts = [_written(self.events, self.appended, self.known), *_effects(self.anchors, self.hidden, self.shown)]
        parts += (f"{id} is born covered by {_listed(by)}" for id, by in self.born_covered.items())
        parts += (
            f"{id} is born hidden: {_listed(why)}"
            for id, why in self.born_hidden.items()
            if id not in self.born_covered
        )
        if self.unplaced:
            parts.append(f"the place of {_listed(self.unplaced)} cannot be judged")
        if self.elsewhere is not None:
            parts.append(str(self.elsewhere))
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure removed, or would remove, and what stays.

    The content is out of reach for every reader at once; its bytes stay in free pages of the file
    until `store.compact()`.  Ids and keys outlive it, and so do the parents and sources that link them.
    """

    event: Erasure
    #: What the log made of it; None where nothing was written (`dry_run`).
    appended: Appended | None
    #: Messages that were named and are here.
    messages: tuple[str, ...]
    #: Memories that were named and are here.
    memories: tuple[str, ...]
    #: Memories that go because they were derived from what was named, or adopt it, in order of arrival.
    derived: tuple[str, ...]
    #: Those of the named ones whose content was gone before.
    already: tuple[str, ...]
    #: What was named and is not here yet: it will be stored without content.
    absent: tuple[str, ...]
    #: Keys of these memories: like all ids, they stay readable.
    keys: tuple[str, ...]
    #: Stored contents that go: those of named and derived ones that were not gone before.
    bodies: int
    #: As in `Change`.
    anchors: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    elsewhere: Elsewhere | None = None
    #: Where the bytes of the content still are.
    remains: str = "in free pages until compact"
    #: As in `Change`.
    known: bool = False

    @property
    def id(self) -> str:
        """The id of the erasure."""
        return self.event.id

    @property
    def dry_run(self) -> bool:
        """Whether nothing was written."""
        return self.appended is None

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids that stay readable: what was named, here or not, and what was derived from it."""
        return tuple(dict.fromkeys((*self.messages, *self.memories, *self.derived, *self.absent)))

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "dry_run": self.dry_run,
            "added": 0 if self.appended is None else self.appended.added,
            "known": self.known,
            "events": [_bare(self.event)],
            "messages": list(self.messages),
            "memories": list(self.memories),
            "derived": list(self.derived),
            "already": list(self.already),
            "absent": list(self.absent),
            "ids": list(self.ids),
            "keys": list(self.keys),
            "bodies": self.bodies,
            "anchors": list(self.anchors),
            "hidden": list(self.hidden),
            "shown": list(self.shown),
            "elsewhere": None if self.elsewhere is None else self.elsewhere.to_dict(),
            "remains": self.remains,
        }

    def __str__(self) -> str:
        named = (
            f"{_counted(len(self.messages), 'message', 'messages')} and "
            f"{_counted(len(self.memories), 'memory', 'memories')} named"
        )
        parts = [_written((self.event,), self.appended, self.known), named]
        if self.derived:
            parts.append(
                f"{_counted(len(self.derived), 'memory', 'memories')} derived from them: {_listed(self.derived)}"
            )
        if self.absent:
            parts.append(f"not here yet: {_listed(self.absent)}")
        parts.append(f"{_counted(self.bodies, 'content', 'contents')} {self._verb} gone, {self.remains}")
        kept = f"{_counted(len(self.ids), 'id', 'ids')} and {_counted(len(self.keys), 'key', 'keys')}"
        parts += (f"{kept} stay readable", *_effects(self.anchors, self.hidden, self.shown))
        if self.elsewhere is not None:
            parts.append(str(self.elsewhere))
        return "; ".join(parts)

    @property
    def _verb(self) -> str:
        return "would be" if self.dry_run else "is" if self.bodies == 1 else "are"


def _bare(event: Event) -> dict[str, Any]:
    """The JSON-ready form of an event, without its content."""
    return {name: value for name, value in event.to_dict().items() if name not in _CONTENT}


def _written(events: Iterable[Event], appended: Appended | None, known: bool) -> str:
    named = " and ".join(f"{event.type} {event.id}" for event in events)
    if known:
        return f"there already: {named}"
    return f"would write {named}" if appended is None else f"wrote {named}"


def _effects(anchors: tuple[str, ...], hidden: tuple[str, ...], shown: tuple[str, ...]) -> list[str]:
    if not anchors:
        return []
    where = f"at {_listed(anchors)}"
    return [where + (_moved(hidden, shown) or ": nothing changes")]


def _moved(hidden: Iterable[str], shown: Iterable[str]) -> str:
    said = [f"{what} {_listed(ids)}" for what, ids in (("hides", tuple(hidden)), ("shows", tuple(shown))) if ids]
    return ": " + ", ".join(said) if said else ""


def _listed(ids: Iterable[str]) -> str:
    ids = tuple(ids)
    more = len(ids) - _NAMED
    return ", ".join(ids[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
