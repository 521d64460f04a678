"""What a checkpointer has to tell of the checkpoints above one, where the store cannot know it by itself.

Checkpoints that were saved before the checkpointer was wrapped, or by a run of another owner; and which checkpoint one
is a copy of: LangGraph saves a copy beside its original, with the same parent, though it goes on from the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple

from branchmem.adapters.langgraph.commits import Saved
from branchmem.adapters.langgraph.places import control_of

_COPY: Final = "fork"


class Lacking:
    """Checkpoints of a thread that the store lacks, from one upwards until one that it has, or the first."""

    def __init__(self, thread: str, checkpoint: str, is_known: Any) -> None:
        self._thread = thread
        self._is_known = is_known
        #: The next one to be looked for.
        self.above: RunnableConfig | None = at_thread(thread, checkpoint)
        self.found: list[Saved] = []

    def add(self, found: CheckpointTuple | None) -> None:
        """Take in what was looked for, which is the next one above."""
        self.above = None
        if found is None:
            return
        parent = _parent_of(found)
        self.found.insert(
            0,
            Saved(
                self._thread,
                found.checkpoint["id"],
                parent,
                created=time_of(found.checkpoint),
                source=found.metadata.get("source"),
            ),
        )
        if parent and not self._is_known(parent):
            self.above = at_thread(self._thread, parent)


def is_copy(config: RunnableConfig, metadata: Mapping[str, Any]) -> bool:
    """Whether a checkpoint that is to be saved is a copy of one beside it, and not the beginning of a replay."""
    return metadata.get("source") == _COPY and control_of(config) is None


def all_beside(config: RunnableConfig) -> RunnableConfig:
    """The configuration that names all checkpoints of a graph of a thread."""
    return {"configurable": {name: config["configurable"].get(name, "") for name in ("thread_id", "checkpoint_ns")}}


def copied(config: RunnableConfig, checkpoint: Checkpoint, saved: Iterable[CheckpointTuple]) -> RunnableConfig:
    """The configuration that names what a checkpoint is a copy of, among those of its thread that are saved.

    Of an original and its copies it is the original.  Where several originals could be it, it stays the parent: what
    only one of them remembers is seen by no other.
    """
    parent = config["configurable"].get("checkpoint_id") or None
    beside = [each for each in saved if _parent_of(each) == parent and _is_as(each.checkpoint, checkpoint)]
    originals = [each.checkpoint["id"] for each in beside if each.metadata.get("source") != _COPY]
    if len(originals) != 1:
        return config
    return {**config, "configurable": {**config["configurable"], "checkpoint_id": originals[0]}}


def at_thread(thread: str, checkpoint: str | None = None) -> RunnableConfig:
    """The configuration that names a thread, or a checkpoint of it."""
    configurable = {"thread_id": thread, "checkpoint_ns": ""}
    return {"configurable": configurable | ({} if checkpoint is None else {"checkpoint_id": checkpoint})}


def time_of(checkpoint: Checkpoint) -> datetime | None:
    """When a checkpoint was made, None where it does not say so."""
    try:
        time = datetime.fromisoformat(checkpoint["ts"])
    except (KeyError, TypeError, ValueError):
        return None
    return time if time.utcoffset() is not None else None


def _parent_of(found: CheckpointTuple) -> str | None:
    return (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")


def _is_as(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints hold the same, and have seen the same."""
    return one["channel_versions"] == other["channel_versions"] and one["versions_seen"] == other["versions_seen"]
