"""The summaries that Claude Code wrote when it compacted a conversation, as memories of what they sum up.

The rule: a summary derives from the messages that it stands for, so it is
visible where the last of them is on the path, and is taken back with any of
them.  Those are the messages above the boundary behind which it stands, up to
the summary before; that one it could see, the messages behind it no longer, so
it derives from its memory.  More sources than an event may refer to are spread
over memories of kind `summary-part`, which say nothing themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from branchmem.canonical import MAX_REFERENCES, MAX_TEXT_BYTES
from branchmem.events import Memory
from branchmem.importers.records import Content, Linked, event_id, repaired

KIND: Final = "summary"
PART: Final = "summary-part"


class Summaries:
    """The summaries and boundaries that were met, by record id: a few for each conversation."""

    def __init__(self) -> None:
        self._summaries: dict[str, int] = {}
        # by boundary, or by summary that stands behind none: the logical parent that it names
        self._boundaries: dict[str, str | None] = {}

    def add_summary(self, id: str, place: int, logical: str | None) -> None:
        self._summaries[id] = place
        if logical is not None:
            self._boundaries[id] = logical

    def add_boundary(self, id: str, logical: str | None) -> None:
        self._boundaries[id] = logical

    def memories(self, linked: Linked, content: Callable[[int], Content]) -> Iterator[Memory]:
        """The memories of all summaries, parts first, each after the one it derives from.  O(messages above them)."""
        places = {name: place for id, place in self._summaries.items() if (name := linked.name(id)) is not None}
        boundaries = {name: parent for id, parent in self._boundaries.items() if (name := linked.name(id)) is not None}
        sources: dict[str, tuple[list[str], str | None]] = {}
        done: set[str] = set()
        for name in places:
            waiting: list[str] = []
            at: str | None = name
            while at is not None and at not in done:
                done.add(at)
                waiting.append(at)
                sources[at] = _summed_up(at, linked, places, boundaries)
                at = sources[at][1]
            for at in reversed(waiting):
                found, before = sources.pop(at)
                said = content(places[at])
                text = repaired(said.text or "")[0]
                if not found or not text or len(text.encode()) > MAX_TEXT_BYTES:
                    places[at] = -1
                    continue
                derived = [] if before is None or places[before] < 0 else [_memory_id(before)]
                yield from _memories(_memory_id(at), text, found, derived, said)


def _memory_id(name: str) -> str:
    return event_id(name, KIND)


def _summed_up(
    name: str, linked: Linked, summaries: dict[str, int], boundaries: dict[str, str | None]
) -> tuple[list[str], str | None]:
    """The messages that a summary stands for, from the top down, and the summary among them."""
    found: list[str] = []
    seen = {name}
    boundary = name if name in boundaries else None
    at = linked.above(name)
    last: str | None = None
    while at is not None and at not in seen:
        seen.add(at)
        if at in boundaries and boundary is None:
            boundary = at
            found.clear()
            last = None
        else:
            if last is not None:
                found.append(last)
            if at in summaries:
                found.append(at)
                return found[::-1], at
            last = at  # not yet: the last one met is the root of the conversation
        at = linked.above(at)
    if at is not None and last is not None:  # a circle has no root
        found.append(last)
    named = None if boundary is None else boundaries[boundary]
    if not found and named is not None:
        found = [linked.name(named) or named]
    return found[::-1], None


def _memories(id: str, text: str, sources: list[str], derived: list[str], said: Content) -> Iterator[Memory]:
    room = MAX_REFERENCES - len(derived)
    if len(sources) > room:
        for start in range(0, len(sources), MAX_REFERENCES):
            part = Memory(
                event_id(id, str(start)), "", sources=sources[start : start + MAX_REFERENCES], kind=PART, importance=0.0
            )
            derived = [*derived, part.id]
            yield part
        sources = []
    yield Memory(id, text, sources=sources, derived_from=derived, kind=KIND, created=said.created)
