"""Mem0's database as it looks from a place: earlier messages and the history of a memory, both read from the log.

Nothing is written to it: the log has what was said and what became of each memory, on every branch.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from branchmem import Memory, Reason, StepView, View
from branchmem.adapters.mem0.errand import Errand
from branchmem.adapters.mem0.payloads import is_imported, payload_in
from branchmem.adapters.mem0.place import current

#: Why a memory may be hidden where its history is told all the same.
_PAST = Reason.SUPERSEDED | Reason.RETRACTED


class History:
    """What Mem0 calls its `db`, during one errand.  What it does not have raises AttributeError."""

    def __init__(self, inner: Any, errand: Errand) -> None:
        self._inner = inner
        self._errand = errand

    def get_last_messages(self, session_scope: str, limit: int = 10) -> list[dict[str, Any]]:
        """The messages of the path that precede what is added, oldest first."""
        return [
            {"role": one.role, "content": one.text, "name": None, "created_at": _iso(one.created)}
            for one in self._errand.context[-limit:]
        ]

    def save_messages(self, messages: Any, session_scope: str) -> None:
        """Nothing: messages are appended to the log, by who leads the conversation."""

    def add_history(self, *entry: Any, **more: Any) -> None:
        """Nothing: each change is an event of the log."""

    def batch_add_history(self, records: Any) -> None:
        """Nothing: each change is an event of the log."""

    def get_history(self, memory_id: str) -> list[dict[str, Any]]:
        """What became of a memory on this path, the oldest first; nothing where it belongs to another branch.

        For a memory that was imported, what Mem0 itself knows of the time before comes first.
        """
        view, store = self._errand.place.view(), self._errand.place.store
        id = current(view, self._errand.name(str(memory_id))) or str(memory_id)
        told: list[dict[str, Any]] = []
        versions = self._versions(view, id)
        for memory, before in zip(versions, (None, *versions), strict=False):
            if before is None and is_imported(memory):
                told += _until(memory, self._inner.get_history(memory.id))
            if before is not None or not told:
                told.append(_entry(memory, before, "ADD" if before is None else "UPDATE"))
        if versions and not view.filter([versions[-1].id]):
            last = versions[-1]
            for retraction in view.explain(last.id).culprits.get(Reason.RETRACTED, ()):
                taken = getattr(store.log.get(retraction), "created", None) if retraction in store.log else None
                told.append({**_entry(last, last, "DELETE"), "new_memory": None, "updated_at": _iso(taken)})
                told[-1]["is_deleted"] = True
                break
        return told

    def close(self) -> None:
        """Nothing: the database belongs to the Mem0 that was given."""

    def _versions(self, view: View | StepView, id: str) -> list[Memory]:
        """The versions of a memory that belong to this path, the oldest first, up to the latest one."""
        store = self._errand.place.store
        found: dict[str, Memory] = {}
        waiting = [id]
        while waiting:
            at = waiting.pop()
            if at in found or view.explain(at).reasons & ~_PAST:
                continue
            memory = view.get(at) if view.filter([at]) else store.log.get(at)
            if not isinstance(memory, Memory):
                continue
            found[at] = memory
            waiting += memory.supersedes
            for source in memory.sources[:1]:
                waiting += [
                    one for one in store.memories_from(source) if at in store.skeleton(one).get("supersedes", ())
                ]
        return _oldest_first(found)


def _oldest_first(versions: dict[str, Memory]) -> list[Memory]:
    """Versions after all those that they replace, whatever the clock said, else by their times."""
    left = sorted(versions.values(), key=lambda one: (_iso(one.created) or "", one.id))
    told = []
    while left:
        waiting = {one.id for one in left}
        first = (at for at, one in enumerate(left) if not waiting.intersection(one.supersedes))
        told.append(left.pop(next(first, 0)))
    return told


def _until(memory: Memory, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Mem0 tells up to what the memory says: what it changed in place after that is not on any path."""
    saying = [at for at, one in enumerate(told, 1) if one.get("new_memory") == memory.text]
    return told[: saying[-1]] if saying else []


def _entry(memory: Memory, before: Memory | None, event: str) -> dict[str, Any]:
    payload = payload_in(memory) or {}
    return {
        "id": f"{event.lower()}-{memory.id}",
        "memory_id": memory.id,
        "old_memory": None if before is None else before.text,
        "new_memory": memory.text,
        "event": event,
        "created_at": payload.get("created_at") or _iso(memory.created),
        "updated_at": payload.get("updated_at"),
        "is_deleted": False,
        "actor_id": payload.get("actor_id"),
        "role": payload.get("role"),
    }


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
