"""The summaries that Claude Code wrote when it compacted a conversation, as memories of what they sum up.

The rule: a summary derives from the messages that it stands for, so it is
visible where the last of them is on the path, and is taken back with any of
them.  Those are the messages above the boundary behind which it stands, up to
the summary before; that one it could see, the messages behind it no longer, so
it derives from its memory.  Where not all of them are known, because the chain
breaks off or the boundary hangs below nothing, there is no memory yet: one with
a part of its sources could be seen when the rest is taken back.  More sources
than an event may refer to are spread over memories of kind `summary-part`, which
say nothing themselves.
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
        self._boundaries: set[str] = set()

    def add_summary(self, id: str, place: int) -> None:
        self._summaries[id] = place

    def add_boundary(self, id: str) -> None:
        """Take in a boundary; a summary that follows a logical parent itself is one, too."""
        self._boundaries.add(id)

    def memories(self, linked: Linked, content: Callable[[int], Content]) -> Iterator[Memory]:
        """The memories of all summaries, parts first, each after the one it derives from.  O(messages above them)."""
        places = {name: place for id, place in self._summaries.items() if (name := linked.name(id)) is not None}
        boundaries = {name for id in self._boundaries if (name := linked.name(id)) is not None}
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
                unknown = not found or (before is not None and places[before] < 0)
                if unknown or not text or len(text.encode()) > MAX_TEXT_BYTES:
                    places[at] = -1
                    continue
                derived = [] if before is None else [_memory_id(before)]
                yield from _memories(_memory_id(at), text, found, derived, said)


def _memory_id(name: str) -> str:
    return event_id(name, KIND)


def _summed_up(
    name: str, linked: Linked, summaries: dict[str, int], boundaries: set[str]
) -> tuple[list[str], str | None]:
    """The messages that a summary stands for, from the top down, and the summary among them; none where unknown."""
    found: list[str] = []
    seen = {name}
    behind = name in boundaries
    at = linked.above(name)
    last: str | None = None
    while at is not None and at not in seen:
        seen.add(at)
        if at in boundaries and not behind:
            behind = True
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
    whole = at is None and last is not None and linked.is_root(last)
    return (found[::-1] if whole else []), None


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
