"""`branching`: which of the optional abilities of a checkpointer its wrapper has: those that it has itself.

LangGraph looks at the class for what a checkpointer can do, so that each combination is a class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from branchmem.adapters.langgraph import threads
from branchmem.adapters.langgraph.lacking import at_thread
from branchmem.adapters.langgraph.saver import BranchingSaver, owners_of
from branchmem.adapters.langgraph.store import BranchStore
from branchmem.session.settled import settled

#: How a checkpointer is told to prune all of a thread.
_ALL: Final = "delete"


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
        """Prune threads, and erase what no checkpoint that is left shows; where none will be left, before."""
        owners = {id: self.owners(id) for id in thread_ids}
        if strategy == _ALL:
            self._delete(owners)
        self.saver.prune(thread_ids, strategy=strategy)
        for id in thread_ids if strategy != _ALL else ():
            kept = [found.checkpoint["id"] for found in self.saver.list(at_thread(id))]
            self.mirror(owners[id], partial(threads.prune, thread=str(id), kept=kept))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        owners = {id: await self.aowners(id) for id in thread_ids}
        if strategy == _ALL:
            await settled(partial(self._delete, owners))
        await self.saver.aprune(thread_ids, strategy=strategy)
        for id in thread_ids if strategy != _ALL else ():
            kept = [found.checkpoint["id"] async for found in self.saver.alist(at_thread(id))]
            await settled(partial(self.mirror, owners[id], partial(threads.prune, thread=str(id), kept=kept)))

    def _delete(self, owners: Mapping[str, Sequence[str | None]]) -> None:
        for id, found in owners.items():
            self.mirror(found, partial(threads.delete, thread=str(id)))


class _DeletesRuns(BranchingSaver):
    """A checkpointer that can delete what some runs have saved."""

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, and erase what was remembered at them."""
        gone = [found for run in run_ids for found in self.saver.list(None, filter={"run_id": run})]
        self._forget(gone)
        self.saver.delete_for_runs(run_ids)
        for thread, found in _by_thread(gone).items():
            self._stand(thread, found, self.saver.get_tuple(at_thread(thread)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        gone = [found for run in run_ids async for found in self.saver.alist(None, filter={"run_id": run})]
        await settled(partial(self._forget, gone))
        await self.saver.adelete_for_runs(run_ids)
        for thread, found in _by_thread(gone).items():
            latest = await self.saver.aget_tuple(at_thread(thread))
            await settled(partial(self._stand, thread, found, latest))

    def _forget(self, gone: Sequence[CheckpointTuple]) -> None:
        for thread, found in _by_thread(gone).items():
            for each in found:
                forget = partial(threads.forget, thread=thread, checkpoints=[each.checkpoint["id"]])
                self.mirror(self._owners_of([each]), forget)

    def _stand(self, thread: str, gone: Sequence[CheckpointTuple], latest: CheckpointTuple | None) -> None:
        id = None if latest is None else latest.checkpoint["id"]
        self.mirror(self._owners_of(gone), partial(threads.stand, thread=thread, latest=id))

    def _owners_of(self, found: Sequence[CheckpointTuple]) -> Sequence[str | None]:
        return owners_of(found) if self.has_owners else [None]


def _by_thread(found: Iterable[CheckpointTuple]) -> dict[str, list[CheckpointTuple]]:
    named: dict[str, list[CheckpointTuple]] = {}
    for each in found:
        named.setdefault(str(each.config["configurable"]["thread_id"]), []).append(each)
    return named


#: What a checkpointer may be able to do, by the method that says so.
_ABILITIES: Final[Mapping[type[BranchingSaver], tuple[str, str]]] = {
    _Copies: ("copy_thread", "acopy_thread"),
    _Prunes: ("prune", "aprune"),
    _DeletesRuns: ("delete_for_runs", "adelete_for_runs"),
}


def _has(saver: BaseCheckpointSaver[Any], ability: type[BranchingSaver]) -> bool:
    return any(getattr(type(saver), name) is not getattr(BaseCheckpointSaver, name) for name in _ABILITIES[ability])
