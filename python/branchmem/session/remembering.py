"""What a session may remember: memories that name what is there, and each of them once.

A memory is known by its text, its sources and its kind.  Nothing else is compared with it, and no
hash of a text is kept: what is erased must not be guessed from what stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from branchmem.canonical import new_id, now
from branchmem.errors import EventConflict, InvalidEvent, InvalidEventType, UnknownEvent
from branchmem.events import Memory, Message

if TYPE_CHECKING:
    from branchmem import Store
    from branchmem.log import Writer

#: What a second memory must have in common with the first one, in the order in which it is looked at.
_FIXED: Final = ("derived_from", "supersedes", "key")


def named(events: Iterable[str | Message] | Iterable[str | Memory], field: str) -> list[str]:
    """The ids of events that are given as such, or by their ids.  Raises: InvalidEventType."""
    if isinstance(events, (str, bytes, Message, Memory)) or not isinstance(events, Iterable):
        raise InvalidEventType(f"{field} is a list: write {field}=[{events!r:.80}]", events)
    return [event.id if isinstance(event, (Message, Memory)) else event for event in events]


def drafted(
    text: str,
    sources: Iterable[str | Message],
    derived_from: Iterable[str | Memory],
    supersedes: Iterable[str | Memory],
    kind: str,
    key: str | None,
    importance: float,
    meta: Mapping[str, Any],
    created: datetime | None,
) -> Memory:
    """A memory as it is given to `remember`, under an id of its own; `created` is now, unless it is given."""
    return Memory(
        new_id(),
        text,
        sources=named(sources, "sources"),
        derived_from=named(derived_from, "derived_from"),
        supersedes=named(supersedes, "supersedes"),
        kind=kind,
        key=key,
        importance=importance,
        meta=meta,
        created=created or now(),
    )


def require(store: Store, memory: Memory, pending: Collection[str] = ()) -> None:
    """Refuse a memory that names what is not in the log, nor `pending` in a step.

    Raises: UnknownEvent; InvalidEvent where it is of another type.
    """
    for ids, wanted, other in (
        (memory.sources, "message", "a memory belongs into derived_from"),
        ((*memory.derived_from, *memory.supersedes), "memory", "a message belongs into sources"),
    ):
        for id in ids:
            if id in pending:
                continue
            found = store.skeleton(id).get("type")
            if found is None:
                raise UnknownEvent(id, wanted)
            if found != wanted:
                raise InvalidEvent(f"{id} is a {found}, not a {wanted}: {other}", id)


def remember(store: Store, memory: Memory) -> Memory:
    """Append a memory with sources, unless the log has it; the first of its kind.

    Raises: EventConflict where the first derives from, replaces or is about something else.
    Cost: one commit, and a look at the memories that have one of its sources.
    """

    def plan(writer: Writer) -> tuple[list[Memory], Memory]:
        first = known(store, memory)
        if first is not None and same(first, memory):
            return [], first
        return [memory], memory

    return store.transact(plan, tables=())[1]


def is_same(first: Memory, memory: Memory) -> bool:
    """Whether two memories are one, whatever else they say."""
    return (first.text, first.sources, first.kind) == (memory.text, memory.sources, memory.kind)


def same(first: Memory, memory: Memory) -> bool:
    """Whether two memories are one.  Raises: EventConflict where they are, and differ in what cannot change."""
    if not is_same(first, memory):
        return False
    for field in _FIXED:
        stored, given = getattr(first, field), getattr(memory, field)
        if stored != given:
            raise EventConflict(first.id, field, stored, given)
    return True


def known(store: Store, memory: Memory) -> Memory | None:
    """The earliest memory of the log that is the same, visible or not; what was erased or adopts another is none.

    Cost: a look at the memories that have one of its sources.
    """
    for id in min((store.memories_from(source) for source in memory.sources), key=len):
        if not _is_alike(store.skeleton(id), memory) or store.log.is_erased(id):
            continue
        found = store.log.get(id)
        if isinstance(found, Memory) and is_same(found, memory):
            return found
    return None


def _is_alike(skeleton: Mapping[str, Any], memory: Memory) -> bool:
    return (
        tuple(skeleton.get("sources", ())) == memory.sources
        and skeleton.get("kind", "fact") == memory.kind
        and "adopts" not in skeleton
    )
