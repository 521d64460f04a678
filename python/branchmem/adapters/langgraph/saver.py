"""Any checkpointer, with what is remembered in a step tied to the checkpoint that the step produces.

The checkpointer saves as before, and decides alone what a graph goes on from.  Before it saves, the store learns the
checkpoint and takes what is pending; where the checkpointer then fails, nothing stands at what the store has learnt.
Before it deletes, the store erases: only the checkpointer knows whose a thread is, so that who tries again can.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from branchmem.adapters.langgraph import commits, pending, threads
from branchmem.adapters.langgraph.commits import Saved
from branchmem.adapters.langgraph.lacking import Lacking, all_beside, at_thread, copied, is_copy, time_of
from branchmem.adapters.langgraph.places import Run, attempt_of, control_of, is_in_task, levels_of, thread_of
from branchmem.adapters.langgraph.store import BranchStore
from branchmem.session.settled import settled

#: What tells of a task that it is not done: it failed, or waits for an answer.
_CONTROL: Final = frozenset({"__error__", "__error_source_node__", "__interrupt__", "__resume__"})
#: Under which name the tasks of a graph write what comes from outside.
_NULL_TASK: Final = "00000000-0000-0000-0000-000000000000"
#: Where a pool keeps whose a thread is: in the metadata of its checkpoints.
_OWNER: Final = "branchmem_owner"


class BranchingSaver(BaseCheckpointSaver[Any]):
    """A checkpointer that tells a store which checkpoints there are.  Made by `branching`."""

    def __init__(self, saver: BaseCheckpointSaver[Any], store: BranchStore) -> None:
        self.saver = saver
        self.branch_store = store

    @property
    def serde(self) -> SerializerProtocol:  # type: ignore[override]  # an attribute of the base
        """How the checkpointer that is wrapped writes values."""
        return self.saver.serde

    @property
    def config_specs(self) -> list[Any]:
        """As the checkpointer that is wrapped says."""
        return list(self.saver.config_specs)

    def __getattr__(self, name: str) -> Any:
        if name in ("saver", "branch_store"):  # while it is being copied
            raise AttributeError(name)
        return getattr(self.saver, name)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BranchingSaver:
        """As the checkpointer that is wrapped, wrapped again."""
        saver = self.saver.with_allowlist(extra_allowlist)
        if saver is self.saver:
            return self
        clone = copy.copy(self)
        clone.saver = saver
        return clone

    def get_next_version(self, current: Any, channel: None) -> Any:
        """As the checkpointer that is wrapped counts versions."""
        return self.saver.get_next_version(current, channel)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint; where a run begins with it, the store learns it, and what is above it."""
        found = self.saver.get_tuple(config)
        if control_of(config) is not None:
            lacks = self._begin(config, found)
            while self._may_be_past(config, found) and _is_another(later := self.saver.get_tuple(config), found):
                found, lacks = later, self._load(config, later)
            while lacks is not None and lacks.above is not None:
                lacks.add(self.saver.get_tuple(lacks.above))
            self._learn(config, lacks)
        return found

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        found = await self.saver.aget_tuple(config)
        if control_of(config) is not None:
            lacks = await settled(partial(self._begin, config, found))
            while self._may_be_past(config, found) and _is_another(later := await self.saver.aget_tuple(config), found):
                found, lacks = later, await settled(partial(self._load, config, later))
            while lacks is not None and lacks.above is not None:
                lacks.add(await self.saver.aget_tuple(lacks.above))
            await settled(partial(self._learn, config, lacks))
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The checkpoints; where a subgraph begins with one again, the store is told."""
        self._note_tip(config, None)
        for found in self.saver.list(config, filter=filter, before=before, limit=limit):
            self._note_tip(config, found)
            yield found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        self._note_tip(config, None)
        async for found in self.saver.alist(config, filter=filter, before=before, limit=limit):
            self._note_tip(config, found)
            yield found

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save, after the store has taken what belongs to the checkpoint."""
        below = config
        if is_copy(config, metadata):
            below = copied(config, checkpoint, self.saver.list(all_beside(config)))
        lacks = self._lacking(below)
        while lacks is not None and lacks.above is not None:
            lacks.add(self.saver.get_tuple(lacks.above))
        settle = self._save(below, checkpoint, metadata, lacks)
        try:
            done = self.saver.put(config, checkpoint, self._signed(config, metadata), new_versions)
        except BaseException:
            self._give_up(config, checkpoint)
            raise
        if settle is not None:
            settle()
        return done

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`."""
        below = config
        if is_copy(config, metadata):
            below = copied(config, checkpoint, [each async for each in self.saver.alist(all_beside(config))])
        lacks = await settled(partial(self._lacking, below))
        while lacks is not None and lacks.above is not None:
            lacks.add(await self.saver.aget_tuple(lacks.above))
        settle = await settled(partial(self._save, below, checkpoint, metadata, lacks))
        try:
            done = await self.saver.aput(config, checkpoint, self._signed(config, metadata), new_versions)
        except BaseException:
            await settled(partial(self._give_up, config, checkpoint))
            raise
        if settle is not None:
            await settled(settle)
        return done

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task has written, after the store was told whether it is done."""
        self._finish(config, writes, task_id)
        self.saver.put_writes(config, writes, task_id, task_path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As `put_writes`."""
        await settled(partial(self._finish, config, writes, task_id))
        await self.saver.aput_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread, and erase what was remembered in it."""
        owners = self.owners(thread_id)
        self.mirror(owners, partial(threads.delete, thread=str(thread_id)))
        self.saver.delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        owners = await self.aowners(thread_id)
        await settled(partial(self.mirror, owners, partial(threads.delete, thread=str(thread_id))))
        await self.saver.adelete_thread(thread_id)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As the checkpointer that is wrapped knows it."""
        return self.saver.get_delta_channel_history(config=config, channels=channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`."""
        return await self.saver.aget_delta_channel_history(config=config, channels=channels)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.saver!r}>"

    # what the store is told; all of it may wait for the disk

    @property
    def has_owners(self) -> bool:
        """Whether threads have owners, since the store is a pool."""
        return self.branch_store.has_owners

    def _begin(self, config: RunnableConfig, found: CheckpointTuple | None) -> Lacking | None:
        """A run begins, or a subgraph in it; what the store lacks of the checkpoint that it begins with."""
        thread, namespace = thread_of(config), _namespace(config)
        if thread is None or (is_in_task(config) and not namespace) or self._only_looks(config, namespace, found):
            return None
        self.branch_store.runs.watch(config)
        if namespace:
            self._begin_loop(config, namespace, found)
            return None
        run = self.branch_store.runs.begin(control_of(config), thread)
        if found is not None and config["configurable"].get("checkpoint_id"):
            run.is_named = True
            run.looking.add("")
        return self._load(config, found)

    def _load(self, config: RunnableConfig, found: CheckpointTuple | None) -> Lacking | None:
        """A run goes on from a checkpoint; what the store lacks of that."""
        run = self.branch_store.runs.of(config)
        if run is None or found is None:
            return None
        run.last = run.loaded = found.checkpoint["id"]
        run.versions = dict(found.checkpoint["channel_versions"])
        run.is_half_done = _is_half_done(found)
        with self.branch_store.opened(config) as store:
            pending.want(store, run, found.checkpoint["id"])
        return self._lacking_at(config, run.thread, found.checkpoint["id"], found)

    def _may_be_past(self, config: RunnableConfig, found: CheckpointTuple | None) -> bool:
        """Whether a run has begun with what is the latest checkpoint, some of whose tasks are done.

        Another run may have gone on from there meanwhile, before it was known that this one wants what those have put.
        """
        run = self.branch_store.runs.of(config)
        if run is None or found is None or run.is_named or is_in_task(config) or _namespace(config):
            return False
        return run.loaded == found.checkpoint["id"] and bool(_tasks(found, done=True))

    def _only_looks(self, config: RunnableConfig, namespace: str, found: CheckpointTuple | None) -> bool:
        """Whether a loop has begun with a checkpoint that was named, and this asks which one is the latest."""
        run = self.branch_store.runs.of(config)
        if run is None or config["configurable"].get("checkpoint_id", "") is not None or namespace not in run.looking:
            return False
        run.looking.discard(namespace)
        run.is_replay |= not namespace and found is not None and found.checkpoint["id"] != run.loaded
        return True

    def _begin_loop(self, config: RunnableConfig, namespace: str, found: CheckpointTuple | None) -> None:
        run = self.branch_store.runs.of(config)
        if run is None:
            return
        _note_loop(run, config)
        _note_start(run, config, found)
        if found is not None and config["configurable"].get("checkpoint_id"):
            run.looking.add(namespace)
        levels = levels_of(config, run.tasks)
        with self.branch_store.opened(config) as store:
            pending.begin_loop(store, run, namespace)
            if found is not None and levels:
                pending.want(store, run, levels[0].base)

    def _note_tip(self, config: RunnableConfig | None, found: CheckpointTuple | None) -> None:
        """The checkpoint that a subgraph begins with, None for a new one, where a run that goes back lists them."""
        run = None if config is None or not _namespace(config) else self.branch_store.runs.of(config)
        if config is not None and run is not None:
            self.branch_store.runs.watch(config)
            _note_loop(run, config)
            _note_start(run, config, found)

    def _lacking(self, config: RunnableConfig) -> Lacking | None:
        """What the store lacks above a checkpoint of a thread that is to be saved."""
        parent = config["configurable"].get("checkpoint_id")
        thread = thread_of(config)
        if not parent or _namespace(config) or thread is None:
            return None
        return self._lacking_at(config, thread, parent, None)

    def _lacking_at(
        self, config: RunnableConfig, thread: str, checkpoint: str, found: CheckpointTuple | None
    ) -> Lacking | None:
        with self.branch_store.opened(config) as store:
            if commits.is_known(store, thread, checkpoint):
                return None
            lacks = Lacking(thread, checkpoint, lambda id: commits.is_known(store, thread, id))
        if found is not None:
            lacks.add(found)
        return lacks

    def _learn(self, config: RunnableConfig, lacks: Lacking | None) -> None:
        if lacks is not None and lacks.found:
            with self.branch_store.opened(config) as store:
                commits.save(store, lacks.found[-1], lacks.found[:-1], None, resumes=False)

    def _save(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, lacks: Lacking | None
    ) -> Callable[[], None] | None:
        """Tell the store of a checkpoint that will be saved; what is to be done once it is."""
        thread = thread_of(config)
        if thread is None:
            return None
        namespace = _namespace(config)
        run = self.branch_store.runs.of(config)
        saved = Saved(
            thread,
            checkpoint["id"],
            config["configurable"].get("checkpoint_id") or None,
            namespace,
            _around(namespace, metadata),
            time_of(checkpoint),
            metadata.get("source"),
        )
        if run is not None and not namespace:
            run.saved.append(saved.id)  # what its step puts late looks here, once the store has it
        resumes = metadata.get("source") == "loop" and (run is None or _resumes(run, saved, checkpoint))
        with self.branch_store.opened(config) as store:
            above = [] if lacks is None else lacks.found
            levels = levels_of(config, run.tasks) if run is not None and namespace else ()
            has_taken = commits.save(store, saved, above, run, resumes=resumes, levels=levels)
        if run is None:
            return None
        if namespace:
            run.tips[namespace] = saved.id
            return None
        run.last = saved.id
        return partial(self._settle, config, saved, run) if has_taken else None

    def _settle(self, config: RunnableConfig, saved: Saved, run: Run) -> None:
        with self.branch_store.opened(config) as store:
            commits.settle(store, saved, run)

    def _give_up(self, config: RunnableConfig, checkpoint: Checkpoint) -> None:
        with self.branch_store.opened(config) as store:
            commits.give_up(store, str(thread_of(config)), checkpoint["id"])

    def _finish(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str) -> None:
        """A task has written: it is done where any of that is no mere word about its failure or its question."""
        run = self.branch_store.runs.of(config)
        base = config["configurable"].get("checkpoint_id")
        if run is None or not base or task == _NULL_TASK or not writes:
            return
        is_done = any(channel not in _CONTROL for channel, _ in writes)
        with self.branch_store.opened(config) as store:
            pending.finish(store, run, run.thread, _namespace(config), base, task, is_done=is_done)

    def _signed(self, config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Metadata that say whose the thread is, where the store is a pool."""
        owner = self.branch_store.owner_of(config) if self.has_owners else None
        return metadata if owner is None else {**metadata, _OWNER: owner}  # type: ignore[typeddict-unknown-key]

    def owners(self, thread_id: str) -> Sequence[str | None]:
        """Whose a thread is, by all of its checkpoints: several, where it was handed on."""
        return owners_of(self.saver.list(at_thread(thread_id))) if self.has_owners else [None]

    async def aowners(self, thread_id: str) -> Sequence[str | None]:
        """As `owners`."""
        if not self.has_owners:
            return [None]
        return owners_of([found async for found in self.saver.alist(at_thread(thread_id))])

    def mirror(self, owners: Iterable[str | None], work: Any) -> None:
        """Do in the stores what was done to the checkpoints; nothing where nobody knows whose they were."""
        for owner in owners:
            with self.branch_store.opened_of(owner) as store:
                work(store)


def owners_of(found: Iterable[CheckpointTuple]) -> list[str | None]:
    """Whose checkpoints are, as far as they say; each once."""
    named = (each.metadata.get(_OWNER) for each in found)
    return list(dict.fromkeys(str(owner) for owner in named if owner is not None))


def _namespace(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns") or "")


def _note_loop(run: Run, config: RunnableConfig) -> None:
    """Note in which task, and in which attempt at it, a subgraph begins."""
    namespace = _namespace(config)
    run.tasks[namespace] = str(config["configurable"].get("__pregel_task_id", ""))
    run.begun[namespace] = attempt_of(config)
    levels = levels_of(config, run.tasks)
    if levels:
        run.attempt(levels[-1], attempt_of(config))


def _note_start(run: Run, config: RunnableConfig, found: CheckpointTuple | None) -> None:
    """Note the checkpoint that a subgraph begins with, None for a new one."""
    if found is None:
        run.tips.pop(_namespace(config), None)
    else:
        run.tips[_namespace(config)] = found.checkpoint["id"]


def _is_half_done(found: CheckpointTuple) -> bool:
    """Whether tasks that started from a checkpoint have failed, or wait for an answer."""
    return bool(_tasks(found, done=False) - _tasks(found, done=True))


def _tasks(found: CheckpointTuple, *, done: bool) -> set[str]:
    """The tasks that started from a checkpoint and have written output; or those that have failed, or asked."""
    writes = [(task, channel) for task, channel, _ in found.pending_writes or () if task != _NULL_TASK]
    return {task for task, channel in writes if (channel not in _CONTROL) == done}


def _is_another(later: CheckpointTuple | None, found: CheckpointTuple | None) -> bool:
    return later is not None and found is not None and later.checkpoint["id"] != found.checkpoint["id"]


def _around(namespace: str, metadata: CheckpointMetadata) -> str | None:
    """The checkpoint of the innermost loop around a subgraph, which its step started from."""
    around = [(len(name), base) for name, base in metadata.get("parents", {}).items() if len(name) < len(namespace)]
    return max(around)[1] if namespace and around else None


def _resumes(run: Run, saved: Saved, checkpoint: Checkpoint) -> bool:
    """Whether a run goes on with the tasks of the checkpoint that it loaded, and has not dropped them for new input.

    Where nothing is saved between (durability "exit"), it shows in whether any of those that were not done ran; and
    where all were done, in what the checkpoint says was seen.
    """
    if saved.namespace or saved.parent != run.loaded or run.goes_on:
        return True
    if run.is_half_done:
        return False
    seen = checkpoint["versions_seen"].get("__interrupt__", {})
    return all(channel in seen and seen[channel] >= version for channel, version in run.versions.items())
