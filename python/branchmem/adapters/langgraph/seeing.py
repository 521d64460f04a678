"""What a call on a store sees: the items that a view shows, and over them what its own run has put and not saved.

The view comes first, and nothing is read beside it.  What is pending is nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from branchmem.adapters.langgraph import commits, pending
from branchmem.adapters.langgraph.items import Found, from_memory, from_row
from branchmem.adapters.langgraph.naming import ITEM, SHARED
from branchmem.adapters.langgraph.pending import Row
from branchmem.adapters.langgraph.places import Place

if TYPE_CHECKING:
    from branchmem import Memory, Store, View


class Seen:
    """The items that are seen at one moment."""

    def __init__(self, store: Store, view: View | None, rows: Iterable[Row]) -> None:
        self._store = store
        self._view = view
        #: By the key of an item: its last row.
        self._rows = {row.item: row for row in rows}
        self._all: list[Found] | None = None

    def get(self, item: str) -> Found | None:
        """The item with this key, if any."""
        before = self._logged(item)
        row = self._rows.get(item)
        if row is None:
            return before
        return None if row.text is None else from_row(row, before)

    def all(self) -> list[Found]:
        """All items, in the order in which they were put first.  Cost: reads what the view shows, once."""
        if self._all is None:
            found = {} if self._view is None else newest(self._view.memories(kind=ITEM))
            for item, row in self._rows.items():
                before = found.pop(item, None)
                if row.text is not None:
                    found[item] = from_row(row, before)
            self._all = sorted(found.values(), key=lambda each: each.created)
        return self._all

    def last_use(self, item: Found) -> datetime:
        """When an item was put or used last."""
        if item.memory is None:
            return item.updated
        return max(item.updated, self._store.last_used([item.memory]).get(item.memory, item.updated))

    def _logged(self, item: str) -> Found | None:
        return None if self._view is None else newest(commits.versions(self._view, item)).get(item)


def items_of(store: Store, stand: Place | str | None, *, is_shared: bool) -> Seen:
    """What is seen by a task, or at a message; by nobody's call what crosses threads alone.

    Pending rows are read before all else: a checkpoint that is saved between moves them into its view.
    """
    rows: list[Row] = []
    if isinstance(stand, Place):
        place, thread = stand, stand.run.thread
        found = store.snapshot(lambda reader: pending.rows_of(reader, thread), tables=pending.TABLES)
        product = commits.product_of(store, place)
        stand = product or commits.anchor_of(store, place)
        rows = [] if product else commits.seen_by(store, place, found, stand)
    anchors = [] if stand is None else [stand]
    if is_shared:
        anchors.append(SHARED)
    known = [anchor for anchor in anchors if store.skeleton(anchor)]
    return Seen(store, store.at(known) if known else None, rows)


def newest(memories: Iterable[Memory]) -> dict[str, Found]:
    """Items by their keys.  Where a view shows several versions of one, the one that was put last."""
    found: dict[str, Found] = {}
    for memory in memories:
        if "namespace" not in memory.meta:  # no item, whoever called it so
            continue
        item = from_memory(memory)
        before = found.get(str(memory.key))
        if before is None or (item.updated, str(item.memory)) > (before.updated, str(before.memory)):
            found[str(memory.key)] = item
    return found
