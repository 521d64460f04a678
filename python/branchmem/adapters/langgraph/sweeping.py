"""Which items have outlived their time, on any branch, and their erasure."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from branchmem import Memory
from branchmem.adapters.langgraph.commits import is_attached, retractions
from branchmem.adapters.langgraph.items import from_memory
from branchmem.adapters.langgraph.naming import ITEM
from branchmem.canonical import MAX_REFERENCES, new_id
from branchmem.events import Erasure, Event

if TYPE_CHECKING:
    from branchmem import Store


def sweep(store: Store, moment: datetime) -> int:
    """Erase the items whose time was over at a moment, and say how many versions that were.

    An older version stays, where a branch still shows it, and does not come back where it was replaced.
    Cost: reads every memory that is an item; one commit.
    """
    events: list[Event] = []
    over: list[str] = []
    for memory in store.log.events(type=Memory.type):
        if not isinstance(memory, Memory) or memory.kind != ITEM or store.log.is_erased(memory.id):
            continue
        item = from_memory(memory)
        used = store.last_used([memory.id]).get(memory.id, item.updated)
        if item.ttl is None or max(used, item.updated) + item.ttl > moment:
            continue
        over.append(memory.id)
        for source in filter(partial(is_attached, store), memory.sources):
            events += retractions(store, memory.supersedes, source, moment)
    events += (
        Erasure(new_id(), over[start : start + MAX_REFERENCES], cascade=False, created=moment)
        for start in range(0, len(over), MAX_REFERENCES)
    )
    store.append(events)
    return len(over)
