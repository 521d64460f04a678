"""Where a call on a store stands: in which task of which run, and from which checkpoints that started.

Everything is read from the configuration that LangGraph gives to the task.  A task of a subgraph stands in several
loops, one in the other, each with a checkpoint that it started from: the outermost is that of the thread.  What
the tasks of a step remember belongs to the checkpoint that the step will produce, which has no id yet.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime

from branchmem.canonical import new_id

#: So many runs are known at a time; one that was forgotten fails at its next call, and loses nothing that was saved.
_MAX_RUNS: Final = 10_000

_RUNTIME: Final = "__pregel_runtime"
_REPLAY: Final = "__pregel_replay_state"
_LOOP: Final = "|"
_TASK: Final = ":"


class Level(NamedTuple):
    """One loop that a task stands in: its namespace, the checkpoint that the step started from, and the task there."""

    namespace: str
    base: str
    task: str


@dataclass(eq=False)
class Run:
    """One invocation of a graph, with its subgraphs.  Tasks run in threads, too: what it holds is copied to be read."""

    #: The object of LangGraph that all of one run share; held, so that no other run gets its address.
    control: object
    thread: str
    #: Names the run in what is pending; unique among processes.
    token: str = field(default_factory=new_id)
    #: The checkpoint of the thread that was saved or loaded last, and is known to the store; None in a new thread.
    last: str | None = None
    #: The checkpoints of the thread that it has saved, or is saving, in order.
    saved: list[str] = field(default_factory=list)
    #: The checkpoint that the run began with, and the versions of its channels.
    loaded: str | None = None
    versions: Mapping[str, Any] = field(default_factory=dict)
    #: Whether that was named, and not taken for being the latest.
    is_named: bool = False
    #: Whether tasks of it had failed, or asked.
    is_half_done: bool = False
    #: Whether those that were done are done again: the checkpoint was named, to go back to it, or is not the latest.
    is_replay: bool = False
    #: The checkpoint of each subgraph that was saved or loaded last, by its namespace.
    tips: dict[str, str] = field(default_factory=dict)
    #: The loops that began with a checkpoint which was named: LangGraph looks next whether it is the latest.
    looking: set[str] = field(default_factory=set)
    #: The task that each subgraph runs in, and which attempt at it began the subgraph, by its namespace.
    tasks: dict[str, str] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    #: The tasks that ran here, and the latest attempt at each.
    attempts: dict[Level, int] = field(default_factory=dict)
    #: Whether any of them was one of the checkpoint that the run began with.
    goes_on: bool = False
    #: Whether a task of it has failed, or asked, so that it saves its step no more.
    has_failed: bool = False
    #: Whether anything was put in it.
    has_put: bool = False

    def attempt(self, level: Level, attempt: int) -> None:
        """Note an attempt at a task; a new one begins its subgraphs anew."""
        if attempt > self.attempts.get(level, 0):
            self.attempts[level] = attempt
            self.goes_on |= not level.namespace and level.base == self.loaded
            for namespace, task in list(self.tasks.items()):
                if task == level.task and self.begun.get(namespace, 1) < attempt:
                    self.tips.pop(namespace, None)

    def product(self, base: str) -> str | None:
        """The checkpoint that the step from this one produces, if it is saved or being saved; None before."""
        at = bisect_right(self.saved, base)
        return self.saved[at] if at < len(self.saved) else None

    def attempts_at(self, levels: tuple[Level, ...], attempt: int) -> tuple[int, ...]:
        """Which attempt at each of some tasks, one in the other, is under way; `attempt` at the innermost."""
        return (*(self.begun.get(inner.namespace, 1) for inner in levels[1:]), attempt)


class Runs:
    """The runs that began in this process.  Safe under threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[tuple[int, str], Run] = OrderedDict()
        self._watched = _watched(self)

    def watch(self, config: RunnableConfig) -> None:
        """Be told of each attempt at each task of a loop that begins, whether it calls the store or not."""
        runtime = config.get("configurable", {}).get(_RUNTIME)
        if type(runtime) is Runtime:  # made for this loop; what its tasks get are copies of it
            object.__setattr__(runtime, "__class__", self._watched)

    def note(self, runtime: Runtime[Any]) -> None:
        """An attempt at a task begins: what an earlier one has put is void."""
        info = runtime.execution_info
        run = None if info is None else self._of(runtime.control, str(info.thread_id))
        if run is None or info is None:
            return
        if _LOOP not in info.checkpoint_ns:
            run.attempt(Level("", info.checkpoint_id, info.task_id), info.node_attempt)
        elif info.node_attempt > 1:
            for level in [level for level in list(run.attempts) if level.task == info.task_id]:
                run.attempt(level, info.node_attempt)

    def begin(self, control: object, thread: str) -> Run:
        """A run that starts, whatever was known under its control before."""
        run = Run(control, thread)
        with self._lock:
            self._runs[id(control), thread] = run
            self._runs.move_to_end((id(control), thread))
            while len(self._runs) > _MAX_RUNS:
                self._runs.popitem(last=False)
        return run

    def of(self, config: RunnableConfig) -> Run | None:
        """The run that a configuration is from; None where it is from none that began here."""
        return self._of(control_of(config), thread_of(config))

    def _of(self, control: object | None, thread: str | None) -> Run | None:
        if control is None or thread is None:
            return None
        with self._lock:
            run = self._runs.get((id(control), thread))
            if run is not None:
                self._runs.move_to_end((id(control), thread))
        return run


def _watched(runs: Runs) -> type[Runtime[Any]]:
    """The class of runtimes that tell of attempts: LangGraph makes a copy with the number of each."""

    class Watched(Runtime[Any]):
        __slots__ = ()

        def patch_execution_info(self, **overrides: Any) -> Runtime[Any]:
            patched = super().patch_execution_info(**overrides)
            runs.note(patched)
            return patched

    return Watched


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task stands: the loops from the outermost to the innermost, and which attempt it is at the tasks."""

    run: Run
    levels: tuple[Level, ...]
    attempts: tuple[int, ...]


def current_config() -> RunnableConfig | None:
    """The configuration of the task that this is called in, None where it is called in none.

    A thread that was started in a task has none, unless by `contextvars.copy_context().run`.
    """
    try:
        return get_config()
    except RuntimeError:
        return None


def is_in_task(config: RunnableConfig) -> bool:
    """Whether a configuration is that of a task, and not that which a run begins with."""
    return "__pregel_task_id" in config.get("configurable", {})


def task_of(config: RunnableConfig | None) -> str | None:
    """The task of a configuration, None where it is that of none."""
    return None if config is None else config.get("configurable", {}).get("__pregel_task_id")


def is_replay(config: RunnableConfig) -> bool:
    """Whether a configuration is from a run that goes back to a checkpoint."""
    return config.get("configurable", {}).get(_REPLAY) is not None


def thread_of(config: RunnableConfig) -> str | None:
    """The thread of a configuration."""
    thread = config.get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)


def control_of(config: RunnableConfig) -> object | None:
    """What all configurations of one run share."""
    return getattr(config.get("configurable", {}).get(_RUNTIME), "control", None)


def attempt_of(config: RunnableConfig) -> int:
    """Which attempt at its task a configuration is from, counted from 1."""
    execution = getattr(config.get("configurable", {}).get(_RUNTIME), "execution_info", None)
    return getattr(execution, "node_attempt", 1)


def levels_of(config: RunnableConfig, tasks: Mapping[str, str]) -> tuple[Level, ...]:
    """The loops that a task stands in, from the outermost on; none where no checkpoint is named.

    A task that a task calls (functional API) stands in the loop of its caller, which has the same checkpoint.
    `tasks` are those of subgraphs whose namespaces do not name them, since they keep their state from step to step.
    """
    configurable = config.get("configurable", {})
    bases: Mapping[str, str] = configurable.get("checkpoint_map") or {}
    segments = str(configurable.get("checkpoint_ns") or "").split(_LOOP)
    levels: list[Level] = []
    for depth, segment in enumerate(segments):
        namespace = _LOOP.join(segments[:depth])
        base = bases.get(namespace)
        task = segment.rpartition(_TASK)[2] if _TASK in segment else tasks.get(_LOOP.join(segments[: depth + 1]), "")
        if base is None:
            continue
        if levels and levels[-1].base == base:
            levels[-1] = levels[-1]._replace(task=task)
        else:
            levels.append(Level(namespace, base, task))
    return tuple(levels) if levels and not levels[0].namespace else ()
