"""A checkpointer that can do all that LangGraph knows of, and one that lets an event loop call a synchronous one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver


class Able(InMemorySaver):
    """Checkpoints in memory, with copies of threads, pruning, and deleting of runs."""

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        for namespace, saved in self.storage.get(source_thread_id, {}).items():
            self.storage[target_thread_id][namespace].update(saved)
        keyed: tuple[dict[Any, Any], ...] = (self.writes, self.blobs)  # keys of two kinds: both begin with the thread
        for kept in keyed:
            for (thread, *rest), value in list(kept.items()):
                if thread == source_thread_id:
                    kept[target_thread_id, *rest] = dict(value) if isinstance(value, dict) else value

    def prune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        for thread in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread)
                continue
            for namespace, saved in self.storage.get(thread, {}).items():
                for old in sorted(saved)[:-1]:
                    del saved[old]
                    self.writes.pop((thread, namespace, old), None)

    def delete_for_runs(self, run_ids: Any) -> None:
        for found in list(self.list(None)):
            if found.metadata.get("run_id") in run_ids:
                at = found.config["configurable"]
                del self.storage[at["thread_id"]][at["checkpoint_ns"]][at["checkpoint_id"]]

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self.prune(thread_ids, strategy=strategy)

    async def adelete_for_runs(self, run_ids: Any) -> None:
        self.delete_for_runs(run_ids)


class FromLoop(BaseCheckpointSaver[Any]):
    """The synchronous side of a checkpointer, where only an asynchronous one is called."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    async def aget_tuple(self, config: Any) -> Any:
        return self.saver.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        for found in self.saver.list(config, **options):
            yield found

    async def aput(self, *given: Any) -> Any:
        return self.saver.put(*given)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.saver.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        self.saver.delete_thread(thread_id)
