"""The vector stores of a Mem0, safe under threads.

What lies in this process (Qdrant on a path or in memory, FAISS) is not so by itself: a search while another thread
inserts fails, or answers wrongly.  Its calls wait for one another here; those of a server do not.
"""

from __future__ import annotations

from functools import wraps
from threading import RLock
from typing import Any, Final

_LOCK: Final = "_branchmem_lock"


class OneByOne:
    """A vector store whose calls wait for one another."""

    def __init__(self, inner: Any, lock: RLock) -> None:
        self._inner = inner
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        @wraps(found)
        def alone(*args: Any, **options: Any) -> Any:
            with self._lock:
                return found(*args, **options)

        return alone


def lock_of(memory: Any) -> RLock:
    """The one lock of a Mem0, whoever uses it."""
    lock: RLock = vars(memory).setdefault(_LOCK, RLock())
    return lock


def vector_store(memory: Any) -> Any:
    """The rows of all memories."""
    return _safe(memory, memory.vector_store)


def entity_store(memory: Any) -> Any:
    """The rows of all entities; the collection is made if absent."""
    with lock_of(memory):
        return _safe(memory, memory.entity_store)


def _safe(memory: Any, store: Any) -> Any:
    return OneByOne(store, lock_of(memory)) if _lies_here(memory.vector_store) else store


def _lies_here(store: Any) -> bool:
    """Whether a vector store is part of this process."""
    client = getattr(getattr(store, "client", None), "_client", None)
    return type(client).__name__ == "QdrantLocal" or type(store).__name__ == "FAISS"
