"""Which retractions cover a memory, and which of them are in effect where a view stands.

Covering asks no view: it goes by what is named and by what flows from it.  Being in
effect asks no memory: it goes by the place of the retraction and by the anchors.
Where a place cannot be judged, a retraction holds and a restoration does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from branchmem.events import LEGACY, Event, Restoration, Retraction

if TYPE_CHECKING:
    from branchmem.reference import Paths, Reference


class Retractions:
    """The retractions of a log with their restorations, and what each covers: worked out for one set of events."""

    def __init__(self, reference: Reference, events: Iterable[Event]) -> None:
        self._reference = reference
        self._all = [event for event in events if isinstance(event, Retraction | Restoration)]
        self._retractions = {event.id: event for event in self._all if isinstance(event, Retraction)}
        self._restorations: dict[str, list[Restoration]] = {id: [] for id in self._retractions}
        for event in self._all:
            if isinstance(event, Restoration) and event.retraction in self._retractions:
                self._restorations[event.retraction].append(event)
        self._covering: dict[str, list[str]] | None = None

    def __getitem__(self, id: str) -> Retraction:
        return self._retractions[id]

    def lifting(self, id: str) -> list[Restoration]:
        """The restorations that lift this retraction somewhere, by id: not those whose place cannot be judged."""
        lifting = [one for one in self._restorations[id] if one.scope == "everywhere" or self._is_placed(one)]
        return sorted(lifting, key=lambda restoration: restoration.id)

    def covering(self, memory: str) -> list[str]:
        """The retractions that cover a memory, in effect or not, by id."""
        if self._covering is None:
            self._covering = {}
            for id in sorted(self._retractions):
                for covered in self._cover(self._retractions[id]):
                    self._covering.setdefault(covered, []).append(id)
        return self._covering.get(memory, [])

    def in_effect(self, problems: bool, paths: Paths) -> frozenset[str]:
        """The retractions in effect in a view that has these paths, and `problems` or none."""
        return frozenset(
            id
            for id, retraction in self._retractions.items()
            if self._holds(retraction, problems, paths)
            and not any(self._lifts(restoration, paths) for restoration in self._restorations[id])
        )

    def lasts(self, id: str, sources: Iterable[str]) -> bool:
        """Whether no restoration names a retraction, and it is in effect wherever these sources lie on the path."""
        retraction = self._retractions[id]
        if self._restorations[id]:
            return False
        if retraction.scope == "everywhere" or not self._is_placed(retraction):
            return True
        *_, top = self._reference._climb(retraction.at)
        holds_below = retraction.at if retraction.scope == "branch" else top
        attached = (source for source in sources if self._reference._place(source))
        return any(holds_below in self._reference._climb(source) for source in attached)

    def unplaced(self) -> list[str]:
        """The retractions and restorations of scope branch or tree whose place cannot be judged, sorted."""
        return sorted(event.id for event in self._all if event.scope != "everywhere" and not self._is_placed(event))

    def _cover(self, retraction: Retraction) -> set[str]:
        links = self._reference._links
        named = set(retraction.memories) | links.drawn_from(set(retraction.sources))
        for id, memory in links.memories.items():
            if memory.key in retraction.keys and (retraction.standing or not self._is_stated_afresh(id, retraction.at)):
                named.add(id)
        return links.covered(named)

    def _is_stated_afresh(self, memory: str, at: str) -> bool:
        """Whether a memory has effective sources and each of them is attached and lies strictly below `at`."""
        sources = self._reference._links.sources(memory)
        return bool(sources) and all(
            source != at and self._reference._place(source) and at in self._reference._climb(source)
            for source in sources
        )

    def _is_placed(self, event: Retraction | Restoration) -> bool:
        """Whether it can be judged where the event stands: not at what is missing, detached or legacy."""
        messages = self._reference._messages
        place = self._reference._place(event.at)
        if place is None or messages[event.at].parent is LEGACY:
            return False
        return not (isinstance(event, Retraction) and event.scope == "tree" and messages[place[0]].parent is LEGACY)

    def _holds(self, retraction: Retraction, problems: bool, paths: Paths) -> bool:
        if retraction.scope == "everywhere" or not self._is_placed(retraction):
            return True
        place = self._reference._place(retraction.at)
        if place is None or place[0] not in paths:
            return problems
        return retraction.scope == "tree" or retraction.at in paths[place[0]][1]

    def _lifts(self, restoration: Restoration, paths: Paths) -> bool:
        if restoration.scope == "everywhere":
            return True
        place = self._reference._place(restoration.at)
        if place is None or place[0] not in paths or not self._is_placed(restoration):
            return False
        return restoration.scope == "tree" or restoration.at in paths[place[0]][1]
