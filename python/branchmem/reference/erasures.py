"""What has been erased, and what stays of it.

An erasure is for good: it takes what it names and, unless told otherwise, what came
from that, whenever either arrives.  The place in the tree and every link stay, so that
nothing else changes its answer; the content goes, and no hash of it stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from branchmem.events import Erasure, Event, Memory, Message
from branchmem.reference.links import Links


def erased_ids(links: Links, erasures: Iterable[Erasure]) -> set[str]:
    """What erasures name, here or not, and what they take.  Only messages and memories can bear such an id.

    Each erasure by itself: what one names without cascade is no reason for another to take more.
    """
    erased: set[str] = set()
    for erasure in erasures:
        targets = set(erasure.targets)
        erased |= targets
        if erasure.cascade:
            erased |= links.covered(targets | links.drawn_from(targets))
    return erased


def as_kept(event: Event, erased: Collection[str]) -> Event:
    """An event as the log keeps it: a message or a memory that is erased without its content, all else as it came."""
    if event.id not in erased:
        return event
    if isinstance(event, Message):
        return Message(event.id, event.parent)
    if isinstance(event, Memory):
        return Memory(
            event.id,
            "",
            sources=event.sources,
            derived_from=event.derived_from,
            supersedes=event.supersedes,
            adopts=event.adopts,
            kind=event.kind,
            key=event.key,
        )
    return event
