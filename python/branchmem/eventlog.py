"""The unfiltered truth of a store: every event as its log keeps it, whatever any view shows.

An event whose content was erased is handed out as it stays: its id, its place, its links.
That the events of the log say so decides, whatever the file still holds; a file that says
so alone is damaged.  What a view shows is asked elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from branchmem.codec import as_it_stays
from branchmem.errors import StoreDamaged, UnknownEvent
from branchmem.events import TYPES, Event, Memory, Message, event_from_bytes

if TYPE_CHECKING:
    from branchmem import _core
    from branchmem.log import Log, Reader

UNPROVEN: Final = "its content is erased, and no event of the log says so"

_PAGE: Final = 1000


class EventLog:
    """Every event of a log, in the order in which it was accepted.  No view filters it."""

    def __init__(self, log: Log, fresh: Callable[[], _core.Engine]) -> None:
        self._log = log
        self._fresh = fresh

    def get(self, id: str) -> Event:
        """The event with this id; as it stays where its content was erased.  Raises: UnknownEvent."""
        engine = self._fresh()
        skeleton_of(engine, id)
        return self._log.read(lambda reader: event_of(engine, reader, id))

    def events(self, start: int = 0, stop: int | None = None, type: str | None = None) -> Iterator[Event]:
        """The events at positions `start` to `stop`, of one type or of all, in order.  Reads a thousand at a time."""
        if type not in (None, *TYPES):
            raise ValueError(f"type must be one of {', '.join(TYPES)}, or None for all, not {type!r:.80}")
        return self._events(start, stop, type)

    def _events(self, start: int, stop: int | None, type: str | None) -> Iterator[Event]:
        engine = self._fresh()
        end = engine.seq if stop is None else min(stop, engine.seq)
        for page in range(max(start, 0), end, _PAGE):
            read = partial(_events_of, engine, engine.event_ids(page, min(page + _PAGE, end)))
            yield from (event for event in self._log.read(read) if type in (None, event.type))

    def find(self, text: str) -> Iterator[Event]:
        """The messages and memories whose text contains `text`, visible or not.  Reads the whole log."""
        for event in self.events():
            if isinstance(event, Message | Memory) and text in (event.text or ""):
                yield event

    def is_erased(self, id: str) -> bool:
        """Whether this is a message or a memory of the log whose content was erased.  O(1)."""
        return self._fresh().is_erased(id)

    def __contains__(self, id: object) -> bool:
        engine = self._fresh()
        return isinstance(id, str) and engine.event_seq(id) is not None

    def __len__(self) -> int:
        return self._fresh().seq


def skeleton_of(engine: _core.Engine, id: str) -> tuple[int, bytes]:
    """Where an event stands, and its canonical skeleton.  Raises: UnknownEvent."""
    found = engine.skeleton(id)
    if found is None:
        raise UnknownEvent(id)
    return found


def skeletons(engine: _core.Engine, start: int, stop: int) -> Iterator[bytes]:
    """Yield the canonical skeletons of the events at positions `start` to `stop`, in order.  A thousand at a time."""
    for page in range(start, stop, _PAGE):
        for id in engine.event_ids(page, min(page + _PAGE, stop)):
            yield skeleton_of(engine, id)[1]


def event_of(engine: _core.Engine, reader: Reader, id: str) -> Event:
    """An event that the engine held before the snapshot was taken; as it stays where its content was erased.

    Raises: UnknownEvent; StoreDamaged as `body_of`.
    """
    seq, skeleton = skeleton_of(engine, id)
    body = body_of(engine, reader, id, seq)
    return as_it_stays(skeleton) if body is None else event_from_bytes(skeleton, body)


def body_of(engine: _core.Engine, reader: Reader, id: str, seq: int) -> bytes | None:
    """The canonical body of such an event, None where it was erased.

    Where the file is ahead of the engine, what it erased is taken to be erased by what the engine has yet to see.
    Raises: StoreDamaged where the body is not sound, or erased without an event that says so.
    """
    body = reader.body(seq)
    if body is not None:
        return None if engine.has_erasures() and engine.is_erased(id) else body
    seen = engine.seq  # before the engine is asked: another thread may tell it more meanwhile
    if engine.is_erased(id) or seen < reader.count():
        return None
    raise StoreDamaged(reader.path, UNPROVEN, seq)


def _events_of(engine: _core.Engine, ids: list[str], reader: Reader) -> list[Event]:
    return [event_of(engine, reader, id) for id in ids]
