"""Saves that are late, that come at the end alone, or not at all: what was put is where it belongs all the same."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.adapters.langgraph import BranchingSaver, BranchStore, branching
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, interrupt
from scenarios import ALL
from worlds import Flaky, State, World, chat, let_the_others_end, note, notes, once, ours, thread

MODES = ("sync", "async", "exit")


def steps(*names: str) -> StateGraph[State, None, State, State]:
    """A graph of nodes in a row, each of which remembers its name, and answers with all that it sees."""
    builder = StateGraph(State)
    above = START
    for name in names:

        def node(state: State, name: str = name) -> dict[str, Any]:
            note(f"{state['said'][-1]}-{name}")
            return {"answers": [",".join(notes())]}

        builder.add_node(name, node)
        builder.add_edge(above, name)
        above = name
    return builder


@pytest.mark.parametrize("kind", ["memory", "async sqlite"])
@pytest.mark.parametrize("mode", MODES)
def test_each_step_sees_what_the_steps_before_it_have_put(mode: str, kind: str) -> None:
    with ours(kind) as world:
        graph = world.graph(steps("one", "two", "three"))
        answers = world.invoke(graph, {"said": ["a"]}, thread(), durability=mode)["answers"]
        trunk = world.head(graph, thread())
        for name in ("x", "y"):
            world.invoke(graph, {"said": [name]}, trunk, durability=mode)

        assert answers == ["a-one", "a-one,a-two", "a-one,a-three,a-two"]
        assert world.notes(trunk) == ["a-one", "a-three", "a-two"]
        assert world.notes(world.head(graph, thread())) == sorted([*world.notes(trunk), "y-one", "y-two", "y-three"])


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_each_checkpoint_shows_what_was_known_there(mode: str) -> None:
    with ours() as world:
        graph = world.graph(steps("one", "two"))
        world.invoke(graph, {"said": ["a"]}, thread(), durability=mode)

        seen = [world.notes(each.config) for each in reversed(world.history(graph, thread()))]

    assert seen == [[], [], ["a-one"], ["a-one", "a-two"]]


def test_a_step_that_begins_before_the_last_is_saved_sees_what_that_has_put() -> None:
    may_save = threading.Event()

    def first(state: State) -> dict[str, Any]:
        note("first")
        return {"answers": [",".join(notes())]}

    def second(state: State) -> dict[str, Any]:
        seen = ",".join(notes())
        note("second")
        may_save.set()
        return {"answers": [seen]}

    builder = StateGraph(State)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    with bm.open_temporary() as store:
        branches = BranchStore(store)

        class Late(BranchingSaver):
            """Saves nothing of a step before the second node has run, as behind a slow disk."""

            def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
                assert metadata["step"] < 1 or may_save.wait(20)
                return super().put(config, checkpoint, metadata, new_versions)

        world = World(branches, Late(InMemorySaver(), branches), None)
        graph = world.graph(builder)
        answers = world.invoke(graph, {"said": ["a"]}, thread(), durability="async")["answers"]
        seen = [world.notes(each.config) for each in reversed(world.history(graph, thread()))]
        trunk = world.head(graph, thread())
        may_save.clear()
        other = world.invoke(graph, {"said": ["b"]}, world.history(graph, thread())[1].config, durability="async")

        assert answers == ["first", "first"]
        assert seen == [[], [], ["first"], ["first", "second"]]
        assert other["answers"][-2:] == ["first,first", "first,first"]
        assert world.notes(trunk) == ["first", "second"]


@pytest.mark.parametrize("name", ["crash_and_resume", "parallel_failure", "crash_and_new_input", "edit"])
def test_scenarios_hold_where_all_is_saved_at_the_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plainly = World.invoke
    monkeypatch.setattr(World, "invoke", lambda *given, **options: plainly(*given, durability="exit", **options))
    with ours() as world:
        seen, expected = ALL[name](world)

    assert seen == expected


def test_what_was_done_beside_a_failure_is_dropped_with_its_output_where_the_user_says_something_new() -> None:
    done: set[str] = set()

    def left(state: State) -> dict[str, Any]:
        note(f"left {state['said'][-1]}")
        return {"answers": ["left"]}

    def right(state: State) -> dict[str, Any]:
        once(done, "right")
        return {"answers": ["right"]}

    builder = StateGraph(State)
    for node in (left, right):
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
    for mode in MODES:
        done.clear()
        with ours() as world:
            graph = world.graph(builder)
            with pytest.raises(Flaky):
                world.invoke(graph, {"said": ["a"]}, thread(), durability=mode)
            state = world.invoke(graph, {"said": ["b"]}, thread(), durability=mode)

            assert state["answers"] == ["left", "right"]
            assert world.notes(world.head(graph, thread())) == ["left b"], mode


@pytest.mark.parametrize("mode", MODES)
def test_what_an_attempt_that_failed_has_put_is_void_though_the_next_one_puts_nothing(mode: str) -> None:
    done: set[str] = set()

    def guess() -> dict[str, Any]:
        if "guess" not in done:
            note("guess")
        once(done, "guess")
        return {}

    again = RetryPolicy(initial_interval=0.0, retry_on=Flaky, jitter=False)
    for within in (False, True):
        done.clear()
        inner = StateGraph(State)
        inner.add_node("guess", lambda state: guess(), retry_policy=again)
        inner.add_edge(START, "guess")
        builder = StateGraph(State)
        builder.add_node("outer", inner.compile() if within else lambda state: guess(), retry_policy=again)
        builder.add_node("later", lambda state: {"answers": [",".join(notes())]})
        builder.add_edge(START, "outer")
        builder.add_edge("outer", "later")
        with ours() as world:
            graph = world.graph(builder)
            state = world.invoke(graph, {"said": ["a"]}, thread(), durability=mode)

            assert state["answers"] == [""]
            assert world.notes(world.head(graph, thread())) == []


@pytest.mark.parametrize("mode", MODES)
def test_the_steps_after_one_that_was_resumed_see_what_was_done_beside_the_failure(mode: str) -> None:
    done: set[str] = set()
    beside = threading.Event()

    def left(state: State) -> dict[str, Any]:
        note("left")
        beside.set()
        return {"answers": []}

    def right(state: State) -> dict[str, Any]:
        assert beside.wait(20)
        let_the_others_end()
        once(done, "right")
        return {"answers": []}

    builder = StateGraph(State)
    for node in (left, right):
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
    builder.add_node("later", lambda state: {"answers": [",".join(notes())]})
    builder.add_edge(["left", "right"], "later")
    with ours() as world:
        graph = world.graph(builder)
        with pytest.raises(Flaky):
            world.invoke(graph, {"said": ["a"]}, thread(), durability=mode)

        assert world.invoke(graph, None, thread(), durability=mode)["answers"] == ["left"]
        assert world.notes(world.head(graph, thread())) == ["left"]


def test_new_input_drops_what_was_done_beside_a_question_of_a_replay() -> None:
    asks: list[str] = []

    def right(state: State) -> dict[str, Any]:
        if asks:
            interrupt("may I?")
        return {}

    def left(state: State) -> dict[str, Any]:
        note(state["said"][-1])
        return {}

    builder = StateGraph(State)
    for node in (left, right):
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
    with ours() as world:
        graph = world.graph(builder)
        world.invoke(graph, {"said": ["a"]}, thread())
        before = next(each.config for each in world.history(graph, thread()) if each.next)
        asks.append("may I?")
        world.invoke(graph, None, before, durability="exit")
        half_done = world.head(graph, thread())
        asks.clear()
        world.invoke(graph, {"said": ["b"]}, half_done, durability="exit")

        assert world.notes(world.head(graph, thread())) == ["b"]


def _killed(folder: str) -> None:
    """Run a graph whose second node kills the process, after the first step was put but not saved, or was."""
    connection = sqlite3.connect(f"{folder}/checkpoints.sqlite", check_same_thread=False)
    branches = BranchStore(bm.open(f"{folder}/store.bmem"))
    graph = _dying(die=True).compile(checkpointer=branching(SqliteSaver(connection), branches), store=branches)
    graph.invoke({"said": ["a"]}, thread(), durability="sync")


def _dying(*, die: bool) -> StateGraph[State, None, State, State]:
    def first(state: State) -> dict[str, Any]:
        note("first")
        return {"answers": ["first"]}

    def second(state: State) -> dict[str, Any]:
        note("second")
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"answers": [",".join(notes())]}

    builder = StateGraph(State)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder


def test_a_process_that_is_killed_in_a_step_leaves_nothing_that_is_seen_and_loses_nothing_that_was_saved(
    tmp_path: Path,
) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(str(tmp_path),))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL

    connection = sqlite3.connect(f"{tmp_path}/checkpoints.sqlite", check_same_thread=False)
    with bm.open(f"{tmp_path}/store.bmem") as store:
        branches = BranchStore(store)
        world = World(branches, branching(SqliteSaver(connection), branches), None)
        graph = world.graph(_dying(die=False))
        assert world.notes(world.head(graph, thread())) == ["first"]
        answered = world.invoke(graph, None, thread())
        assert answered["answers"] == ["first", "first,second"]
        assert world.notes(world.head(graph, thread())) == ["first", "second"]

        assert branches.collect() == 0  # it may be that of a run that goes on
        assert branches.collect(older_than=timedelta(0)) == 1
        assert branches.collect(older_than=timedelta(0)) == 0
    connection.close()


class Full(InMemorySaver):
    """Cannot save what comes after step 0, the first time."""

    failed = False

    def __init__(self) -> None:
        super().__init__()
        self.tried = threading.Event()

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if metadata["step"] == 1 and not self.failed:
            self.failed = True
            self.tried.set()
            raise OSError("no space left on device")
        return super().put(config, checkpoint, metadata, new_versions)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_checkpoint_that_the_checkpointer_could_not_save_takes_nothing_away(is_late: bool) -> None:
    ran = []

    def answer(state: State) -> dict[str, Any]:
        ran.append("answer")
        note("learnt")
        return {"answers": [",".join(notes())]}

    with bm.open_temporary() as store:
        branches = BranchStore(store)
        full = Full()

        class Late(BranchingSaver):
            """Hears that the node is done after the checkpoint was to be saved: both run in the background."""

            def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
                assert not ran or not is_late or full.tried.wait(20)
                super().put_writes(config, writes, task_id, task_path)

        world = World(branches, Late(full, branches), None)
        graph = world.graph(chat(answer))
        with pytest.raises(OSError, match="no space"):
            world.invoke(graph, {"said": ["a"]}, thread(), durability="sync")
        assert world.notes(world.head(graph, thread())) == []
        assert store.at_ref("langgraph/t").memories() == []
        world.invoke(graph, None, thread())

        assert len(ran) == 1  # its output had been kept, and so its memory must be
        assert world.notes(world.head(graph, thread())) == ["learnt"]


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_the_ref_of_a_thread_stands_at_no_checkpoint_that_could_not_be_saved(is_asynchronous: bool) -> None:
    class Never(InMemorySaver):
        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            if metadata["step"] == given["fails at"]:
                raise OSError("no space left on device")
            return super().put(config, checkpoint, metadata, new_versions)

    given = {"fails at": -1}
    with bm.open_temporary() as store, closing(asyncio.new_event_loop()) as loop:
        branches = BranchStore(store)
        world = World(branches, branching(Never(), branches), loop if is_asynchronous else None)
        graph = world.graph(chat(lambda state: {"answers": ["yes"]}))
        for step in (-1, 1):  # the first of the thread; and a later one, that of a step which has put nothing
            given["fails at"] = step
            with pytest.raises(OSError, match="no space"):
                world.invoke(graph, {"said": ["a"]}, thread(), durability="sync")
            saved = [each.config["configurable"]["checkpoint_id"] for each in world.history(graph, thread())]
            assert list(store.refs.values()) == [f"langgraph/t@{latest}" for latest in saved[:1]]
