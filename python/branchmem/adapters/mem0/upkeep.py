"""Rows and memories brought together: rows that Mem0 wrote alone, rows that are missing, rows that must go.

A memory whose row was lost could not be found; a row whose memory was erased still holds what was erased; a row without
a memory is hidden.  Each of these is mended here, when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from branchmem import Memory, Message
from branchmem.adapters.mem0.entities import LINKS
from branchmem.adapters.mem0.payloads import (
    MARK,
    collection_of,
    is_ours,
    memory_id,
    memory_of,
    payload_of,
    row_id,
    says,
    text_of,
)
from branchmem.adapters.mem0.rows import everything
from branchmem.adapters.mem0.stores import entity_store, lock_of, vector_store

if TYPE_CHECKING:
    from branchmem import Store

ROLE: Final = "import"


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of the rows of a collection that Mem0 wrote alone.  To import again adds nothing."""

    #: The message that the memories have for their only source.
    root: str
    #: Memories that are new to the log.
    added: int
    #: Rows whose memory the log had.
    known: int
    #: Rows without a text.
    without_text: int


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What was mended, as ids of memories."""

    #: Their row was missing, or said something else than the log; it was written anew.
    rebuilt: tuple[str, ...]
    #: Their content is erased, and so their row was removed.
    removed: tuple[str, ...]
    #: They have a row, but are not in the log: what a crash, or a step that wrote nothing, left behind.
    astray: tuple[str, ...]


def import_rows(memory: Any, store: Store, root: str, filters: Mapping[str, Any]) -> Imported:
    """Append the memories of rows that Mem0 wrote alone, below a root of their own, in one batch.

    Raises: EventConflict where the id of the root is taken; InvalidEvent for a row that no memory can be made of.
    Cost: one commit; all rows that fit are held at once.
    """
    collection = str(memory.collection_name)
    new: list[Memory] = []
    known = without_text = 0
    for row in everything(vector_store(memory), dict(filters) or None):
        if is_ours(row):
            continue
        if text_of(row) is None:
            without_text += 1
        elif str(row.id) in store.log:
            known += 1
        else:
            new.append(memory_of(str(row.id), row.payload, collection, sources=[root], imported=True))
    appended = store.append([Message(root, None, role=ROLE), *new])
    added = sum(1 for one in new if one.id in store.log) if appended.added else 0
    return Imported(root, added, known, without_text)


def reconcile(memory: Any, store: Store, filters: Mapping[str, Any]) -> Reconciled:
    """Write rows that are missing or differ from the log, remove those of what was erased, list those astray.

    Also what came into the log without Mem0, by a merge or in a bundle, gets its row here.
    Cost: one look at the vector store a memory of the log, and an embedding a row that is written.
    """
    rows, collection = vector_store(memory), str(memory.collection_name)
    rebuilt, removed = [], []
    for id in store.memory_ids:
        row = rows.get(vector_id=row_id(id))
        if store.log.is_erased(id):
            if row is not None and memory_id(row) == id:
                rows.delete(vector_id=row_id(id))
                removed.append(id)
            continue
        found = store.log.get(id)
        if not isinstance(found, Memory) or collection_of(found) != collection:
            continue
        if row is None or not says(row, found):
            _write(memory, found, is_there=row is not None)
            rebuilt.append(id)
    if any(map(store.log.is_erased, store.memory_ids)) and hasattr(memory, "entity_store"):
        _forget_entities(memory, store)
    return Reconciled(tuple(rebuilt), tuple(removed), tuple(_astray(memory, store, filters)))


def discard_astray(memory: Any, store: Store, filters: Mapping[str, Any]) -> tuple[str, ...]:
    """Delete the rows that fit and whose memory is not in the log, and return their ids.

    While nobody adds and no step is open: a row is written before its memory.
    """
    astray = tuple(_astray(memory, store, filters))
    for id in astray:
        vector_store(memory).delete(vector_id=row_id(id))
    return astray


def _astray(memory: Any, store: Store, filters: Mapping[str, Any]) -> Iterator[str]:
    return (
        memory_id(row)
        for row in everything(vector_store(memory), dict(filters) or None)
        if is_ours(row) and memory_id(row) not in store.log
    )


def _write(memory: Any, found: Memory, *, is_there: bool) -> None:
    rows, id = vector_store(memory), row_id(found.id)
    payload = {**payload_of(found), MARK: found.id}
    vector = memory.embedding_model.embed(found.text, "update" if is_there else "add")
    if is_there:
        rows.update(vector_id=id, vector=vector, payload=payload)
    else:
        rows.insert(vectors=[vector], payloads=[payload], ids=[id])


def _forget_entities(memory: Any, store: Store) -> None:
    """Remove the links of entities to what was erased, and the entities that nothing else is linked to."""
    entities = entity_store(memory)
    with lock_of(memory):  # nobody adds a link meanwhile
        for row in everything(entities):
            links = [str(id) for id in (row.payload or {}).get(LINKS) or ()]
            left = [id for id in links if not store.log.is_erased(id)]
            if links and not left:
                entities.delete(vector_id=row.id)
            elif len(left) < len(links):
                entities.update(vector_id=row.id, vector=None, payload={**row.payload, LINKS: left})
