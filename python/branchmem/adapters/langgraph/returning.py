"""What a subgraph brings with it when it goes on from a step that lies on another branch.

A graph that goes back to a checkpoint within a subgraph begins a new step, and the nodes that had run in the old one
are not run again: what they remembered must come with the state that they left.  What the old step had handed on to its
thread is there already, and comes from nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from branchmem import Memory, Message
from branchmem.adapters.langgraph.naming import ITEM
from branchmem.events import Retraction

if TYPE_CHECKING:
    from branchmem import Store

#: The role of the checkpoints of subgraphs.
WITHIN: Final = "subgraph"


def is_below(store: Store, message: str, around: str) -> bool:
    """Whether a message of a subgraph stands below the checkpoint that its step started from."""
    at: object = message
    while isinstance(at, str) and store.skeleton(at):
        at = store.tree.parent(at)
        if at == around:
            return True
    return False


def brought(store: Store, parent: str, around: str) -> list[tuple[str, Memory | None]]:
    """The items that a subgraph had put, or (None) deleted, at `parent`, and the step from `around` lacks.

    Cost: nothing where the subgraph goes on in its own step; else the view at `parent`, and a look at every retraction.
    """
    if not store.skeleton(parent) or not store.skeleton(around) or is_below(store, parent, around):
        return []
    steps, started = _steps(store, parent)
    if started is None or _was_taken(store, started, around):
        return []
    memories: list[Memory] = store.at(parent, count=False).memories(kind=ITEM)
    found: dict[str, Memory | None] = {
        store.skeleton(memory)["key"]: None
        for event in store.log.events(type=Retraction.type)
        if isinstance(event, Retraction) and event.at in steps
        for memory in event.memories
        if "key" in store.skeleton(memory)
    }
    found |= {str(memory.key): memory for memory in memories if not steps.isdisjoint(memory.sources)}
    return list(found.items())


def _steps(store: Store, message: str) -> tuple[set[str], str | None]:
    """The checkpoints of a subgraph from one upwards, and that of the graph around it which their step started from."""
    steps: set[str] = set()
    at: object = message
    while isinstance(at, str) and store.skeleton(at):
        event = store.log.get(at)
        if not isinstance(event, Message) or event.role != WITHIN:
            return steps, at
        steps.add(at)
        at = event.parent
    return steps, None


def _was_taken(store: Store, started: str, around: str) -> bool:
    """Whether the step that started at a checkpoint was ended above `around`, or does not stand above it at all."""
    at: object = around
    while isinstance(at, str) and store.skeleton(at):
        event = store.log.get(at)
        parent = store.tree.parent(at)
        if parent == started:
            return not isinstance(event, Message) or event.meta.get("source") == "loop"
        at = parent
    return True
