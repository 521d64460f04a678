"""What the threads, checkpoints and items of LangGraph are called in a store.

Names are made from what LangGraph calls them and from nothing else, so that every process gives the same.  What is too
long for an id goes in as its digest.  Names outlive erasure: a thread, namespace or key must not carry secrets.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from branchmem.canonical import MAX_ID_BYTES
from branchmem.errors import InvalidRef
from branchmem.refs import valid_name

#: The kind of the memories that are items, by which they are told from other memories of a store.
ITEM: Final = "langgraph"

#: The message that is the tree of what crosses threads.
SHARED: Final = "langgraph-shared"

#: What a thread may take of an id; the rest is left to the id of a checkpoint.
_MAX_THREAD_BYTES: Final = 160


def thread_message(thread: str) -> str:
    """The root of the tree of a thread."""
    return f"langgraph-thread/{_fitting(thread, _MAX_THREAD_BYTES)}"


def checkpoint_message(thread: str, checkpoint: str) -> str:
    """The message that a checkpoint of a thread is, of whatever namespace: their ids are unique."""
    return f"langgraph/{_fitting(thread, _MAX_THREAD_BYTES)}@{_fitting(checkpoint, 64)}"


def thread_ref(thread: str) -> str:
    """The ref that stands at the latest checkpoint of a thread."""
    name = f"langgraph/{_fitting(thread, _MAX_THREAD_BYTES)}"
    try:
        return valid_name(name)
    except InvalidRef:
        return f"langgraph/{_digest(thread)}"


def item_key(namespace: tuple[str, ...], key: str) -> str:
    """The key of the memories that are versions of one item: `users.alice..home`.

    Labels have no dots and are not empty, so that the first two dots end the namespace.
    """
    name = f"{'.'.join(namespace)}..{key}"
    return name if len(name.encode(errors="surrogatepass")) <= MAX_ID_BYTES else _digest(name)


def thread_prefix(thread: str) -> bytes:
    """How the keys of what is pending in a thread begin."""
    return b"langgraph:" + sha256(thread.encode(errors="surrogatepass")).digest()[:16].hex().encode() + b":"


def _fitting(name: str, size: int) -> str:
    return name if len(name.encode(errors="surrogatepass")) <= size else _digest(name)


def _digest(name: str) -> str:
    return f"sha256={sha256(name.encode(errors='surrogatepass')).hexdigest()[:48]}"
