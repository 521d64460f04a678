"""A row of Mem0's vector store and a memory of the log: how each is made from the other.

The log holds the text and the payload, so that a row can be made again; the row holds the id of its memory, so that
it is known as one that belongs to a branch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from branchmem import Memory

#: The field of a payload that holds the id of the row's memory.  Rows without it were written by Mem0 alone.
MARK: Final = "branchmem_id"
#: The field of a memory's meta that holds the payload.
META: Final = "mem0"

_TEXT: Final = "data"
#: What stands in a payload and is not kept beside the text: the text itself, and what is made from it alone.
_MADE: Final = (MARK, _TEXT, "hash")


@dataclass(frozen=True, slots=True)
class Row:
    """A row as Mem0 reads one: its id is that of its memory, and it says what the log says."""

    id: str
    payload: dict[str, Any]
    score: float | None = None


def memory_of(
    id: str,
    payload: Mapping[str, Any],
    collection: str,
    *,
    sources: Iterable[str],
    derived_from: Iterable[str] = (),
    replaces: Memory | None = None,
    imported: bool = False,
) -> Memory:
    """The memory that a payload says, as a version of the one that it replaces, from which it does not derive.

    Raises: InvalidEvent, as `Memory`.
    """
    kept = {name: value for name, value in payload.items() if name not in _MADE}
    form = {"collection": collection, "payload": json.loads(json.dumps(kept, default=str))}
    if imported:
        form["imported"] = True
    created = _time(payload.get("updated_at") if replaces else payload.get("created_at"))
    text = payload.get(_TEXT, "")
    if replaces is None:
        return Memory(id, text, sources=sources, derived_from=derived_from, created=created, meta={META: form})
    return Memory(
        id,
        text,
        sources={*replaces.sources, *sources},
        derived_from={*replaces.derived_from, *derived_from} - {replaces.id},
        supersedes=[replaces.id],
        adopts=replaces.adopts,
        kind=replaces.kind,
        key=replaces.key,
        importance=replaces.importance,
        created=created,
        meta={**replaces.meta, META: form},
    )


def collection_of(memory: Memory) -> str | None:
    """The collection that has the memory's row; None where the memory is not Mem0's."""
    form = memory.meta.get(META)
    return form.get("collection") if isinstance(form, Mapping) else None


def is_imported(memory: Memory) -> bool:
    """Whether the memory was Mem0's before it belonged to a branch."""
    form = memory.meta.get(META)
    return isinstance(form, Mapping) and bool(form.get("imported"))


def payload_in(memory: Memory) -> dict[str, Any] | None:
    """What the log keeps of the payload of a memory; None where the memory is not Mem0's."""
    form = memory.to_dict().get("meta", {}).get(META)
    return form.get("payload") if isinstance(form, dict) else None


def payload_of(memory: Memory) -> dict[str, Any]:
    """The payload of a memory's row, without the mark."""
    digest = hashlib.md5(memory.text.encode(), usedforsecurity=False).hexdigest()  # Mem0's own, to find repetitions
    made = {_TEXT: memory.text, "hash": digest}
    return {**(payload_in(memory) or {}), **made}


def row_id(id: str) -> str:
    """The id of a memory's row: the memory's own where that is a UUID or a number, as vector stores want it."""
    with suppress(ValueError):
        return id if id.isdecimal() else str(UUID(id))
    return str(uuid5(NAMESPACE_URL, f"branchmem:{id}"))


def memory_id(row: Any) -> str:
    """The id of the memory that a row of Mem0's says it belongs to."""
    return str((row.payload or {}).get(MARK) or row.id)


def is_ours(row: Any) -> bool:
    """Whether a row was written for a memory of a branch."""
    return MARK in (row.payload or {})


def says(row: Any, memory: Memory) -> bool:
    """Whether a row says what the log says of its memory."""
    return {name: value for name, value in (row.payload or {}).items() if name != MARK} == payload_of(memory)


def text_of(row: Any) -> str | None:
    """The text of a row, None where it has none."""
    text = (row.payload or {}).get(_TEXT)
    return text if isinstance(text, str) and text else None


def _time(value: object) -> datetime | None:
    """A time of a payload, in UTC where it names no offset; None where it is none."""
    try:
        time = datetime.fromisoformat(str(value))
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
