"""`branching`: which of the optional abilities of a checkpointer its wrapper has: those that it has itself.

LangGraph looks at the class for what a checkpointer can do, so that each combination is a class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from branchmem.adapters.langgraph import threads
from branchmem.adapters.langgraph.saver import BranchingSaver, at_thread, owners_of
from branchmem.adapters.langgraph.store import BranchStore
from branchmem.session.settled import settled


def branching(saver: BaseCheckpointSaver[Any], store: BranchStore) -> BranchingSaver:
    """Wrap a checkpointer, so that what a step puts into `store` belongs to the checkpoint that the step produces.

    Compile the graph with both: `builder.compile(checkpointer=branching(saver, store), store=store)`.  Whatever else
    the checkpointer can, the wrapped one can: attributes are its own.
    """
    optional = [ability for ability in _ABILITIES if _has(saver, ability)]
    name = f"Branching{type(saver).__name__}"
    wrapped: type[BranchingSaver] = type(name, (*optional, BranchingSaver), {})
    return wrapped(saver, store)


class _Copies(BranchingSaver):
    """A checkpointer that can copy threads."""

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, with what was remembered in it."""
        owners = self.owners(source_thread_id)
        self.saver.copy_thread(source_thread_id, target_thread_id)
        self.mirror(owners, partial(threads.copy, source=str(source_thread_id), target=str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        owners = await self.aowners(source_thread_id)
        await self.saver.acopy_thread(source_thread_id, target_thread_id)
        copied = partial(threads.copy, source=str(source_thread_id), target=str(target_thread_id))
        await settled(partial(self.mirror, owners, copied))


class _Prunes(BranchingSaver):
    """A checkpointer that can prune threads."""

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune threads, and erase what no checkpoint that is left shows."""
        owners = {id: self.owners(id) for id in thread_ids}
        self.saver.prune(thread_ids, strategy=strategy)
        for id in thread_ids:
            kept = [found.checkpoint["id"] for found in self.saver.list(at_thread(id))]
            self.mirror(owners[id], partial(threads.prune, thread=str(id), kept=kept))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        owners = {id: await self.aowners(id) for id in thread_ids}
        await self.saver.aprune(thread_ids, strategy=strategy)
        for id in thread_ids:
            kept = [found.checkpoint["id"] async for found in self.saver.alist(at_thread(id))]
            await settled(partial(self.mirror, owners[id], partial(threads.prune, thread=str(id), kept=kept)))


class _DeletesRuns(BranchingSaver):
    """A checkpointer that can delete what some runs have saved."""

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, and erase what was remembered at them."""
        gone = [found for run in run_ids for found in self.saver.list(None, filter={"run_id": run})]
        self.saver.delete_for_runs(run_ids)
        self._forget(gone)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        gone = [found for run in run_ids async for found in self.saver.alist(None, filter={"run_id": run})]
        await self.saver.adelete_for_runs(run_ids)
        await settled(partial(self._forget, gone))

    def _forget(self, gone: Sequence[CheckpointTuple]) -> None:
        for found in gone:
            thread = str(found.config["configurable"]["thread_id"])
            forget = partial(threads.forget, thread=thread, checkpoints=[found.checkpoint["id"]])
            self.mirror(owners_of([found]) if self.has_owners else [None], forget)


#: What a checkpointer may be able to do, by the method that says so.
_ABILITIES: Final[Mapping[type[BranchingSaver], tuple[str, str]]] = {
    _Copies: ("copy_thread", "acopy_thread"),
    _Prunes: ("prune", "aprune"),
    _DeletesRuns: ("delete_for_runs", "adelete_for_runs"),
}


def _has(saver: BaseCheckpointSaver[Any], ability: type[BranchingSaver]) -> bool:
    return any(getattr(type(saver), name) is not getattr(BaseCheckpointSaver, name) for name in _ABILITIES[ability])
