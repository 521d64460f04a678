"""Graphs within graphs: what their nodes remember belongs to the step of the thread that they are part of."""

from __future__ import annotations

import threading
from typing import Any

import branchmem as bm
import pytest
from branchmem.adapters.langgraph import BranchingSaver, BranchStore
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt
from worlds import NOTES, SAVERS, Flaky, Node, State, note, notes, once, ours, thread

MODES = ("sync", "async", "exit")


def remembering(name: str) -> Node:
    """A node that remembers its name and what was said, and answers with all that it sees."""

    def node(state: State) -> dict[str, Any]:
        note(f"{state['said'][-1]}-{name}")
        return {"answers": [",".join(notes())]}

    return node


def row(**nodes: Any) -> StateGraph[State, None, State, State]:
    """Nodes, one after the other."""
    builder = StateGraph(State)
    above = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(above, name)
        above = name
    return builder


@pytest.mark.parametrize("kind", SAVERS)
@pytest.mark.parametrize("mode", MODES)
def test_what_a_subgraph_remembers_is_on_the_branch_of_its_step(mode: str, kind: str) -> None:
    inner = row(one=remembering("one"), two=remembering("two")).compile()
    with ours(kind) as world:
        graph = world.graph(row(inner=inner, after=remembering("after")))
        first = world.invoke(graph, {"said": ["a"]}, thread(), durability=mode)
        trunk = world.head(graph, thread())
        world.invoke(graph, {"said": ["x"]}, trunk, durability=mode)
        left = world.head(graph, thread())
        world.invoke(graph, {"said": ["y"]}, trunk, durability=mode)

        assert first["answers"][-1] == "a-after,a-one,a-two"
        assert world.notes(trunk) == ["a-after", "a-one", "a-two"]
        assert world.notes(left) == sorted([*world.notes(trunk), "x-one", "x-two", "x-after"])
        assert world.notes(world.head(graph, thread())) == sorted([*world.notes(trunk), "y-one", "y-two", "y-after"])


@pytest.mark.parametrize("mode", MODES)
def test_subgraphs_side_by_side_and_within_each_other(mode: str) -> None:
    deep = row(deepest=remembering("deepest"), deeper=remembering("deeper")).compile()
    left = row(deep=deep, left=remembering("left")).compile()
    right = row(right=remembering("right")).compile()
    builder = StateGraph(State)
    for name, node in (("l", left), ("r", right)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    with ours() as world:
        graph = world.graph(builder)
        world.invoke(graph, {"said": ["a"]}, thread(), durability=mode)

        assert world.notes(world.head(graph, thread())) == ["a-deeper", "a-deepest", "a-left", "a-right"]


def test_a_subgraph_that_is_called_twice_in_one_node() -> None:
    inner = row(one=remembering("one")).compile()

    def node(state: State) -> dict[str, Any]:
        for said in ("first", "second"):
            inner.invoke({"said": [said]})
        return {"answers": [",".join(notes())]}

    with ours() as world:
        graph = world.graph(row(node=node))
        answered = world.invoke(graph, {"said": ["a"]}, thread())

        assert answered["answers"] == ["first-one,second-one"]
        assert world.notes(world.head(graph, thread())) == ["first-one", "second-one"]


@pytest.mark.parametrize("mode", MODES)
def test_a_subgraph_that_keeps_its_state_from_turn_to_turn(mode: str) -> None:
    inner = row(one=remembering("one"), two=remembering("two")).compile(checkpointer=True)
    with ours() as world:
        graph = world.graph(row(inner=inner))
        world.invoke(graph, {"said": ["a"]}, thread(), durability=mode)
        trunk = world.head(graph, thread())
        world.invoke(graph, {"said": ["b"]}, thread(), durability=mode)
        later = world.head(graph, thread())
        world.invoke(graph, {"said": ["c"]}, trunk, durability=mode)

        assert world.notes(trunk) == ["a-one", "a-two"]
        assert world.notes(later) == ["a-one", "a-two", "b-one", "b-two"]
        assert world.notes(world.head(graph, thread())) == ["a-one", "a-two", "c-one", "c-two"]


@pytest.mark.parametrize("inherits", [None, True])
def test_a_subgraph_that_fails_in_its_second_node_loses_nothing_of_the_first(inherits: bool | None) -> None:
    done: set[str] = set()
    ran: list[str] = []

    def one(state: State) -> Any:
        ran.append("one")
        return remembering("one")(state)

    def two(state: State) -> dict[str, Any]:
        note("two")
        once(done, "two")
        return {"answers": [",".join(notes())]}

    inner = row(one=one, two=two, three=remembering("three")).compile(checkpointer=inherits)
    with ours() as world:
        graph = world.graph(row(before=remembering("before"), inner=inner))
        with pytest.raises(Flaky):
            world.invoke(graph, {"said": ["a"]}, thread())
        assert world.notes(world.head(graph, thread())) == ["a-before"]
        answered = world.invoke(graph, None, thread())

        assert ran == ["one"]
        assert answered["answers"][-1] == "a-before,a-one,a-three,two"
        assert world.notes(world.head(graph, thread())) == ["a-before", "a-one", "a-three", "two"]


def test_a_subgraph_that_is_done_beside_a_node_that_fails() -> None:
    done: set[str] = set()
    ran: list[str] = []

    def one(state: State) -> Any:
        ran.append("one")
        return remembering("one")(state)

    def failing(state: State) -> dict[str, Any]:
        note("failing")
        once(done, "failing")
        return {"answers": ["failing"]}

    builder = StateGraph(State)
    for name, node in (("inner", row(one=one, two=remembering("two")).compile()), ("failing", failing)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    with ours() as world:
        graph = world.graph(builder)
        with pytest.raises(Flaky):
            world.invoke(graph, {"said": ["a"]}, thread())
        world.invoke(graph, None, thread())

        assert world.notes(world.head(graph, thread())) == ["a-one", "a-two", "failing"]
        assert len(ran) in (1, 2)  # whether the other one had finished before the failure


@pytest.mark.parametrize("mode", MODES)
def test_a_node_with_a_subgraph_that_is_tried_again_goes_on_in_it(mode: str) -> None:
    done: set[str] = set()

    def two(state: State) -> dict[str, Any]:
        note("two")
        once(done, "two")
        return {"answers": [",".join(notes())]}

    builder = StateGraph(State)
    retry = RetryPolicy(initial_interval=0.0, retry_on=Flaky, jitter=False)
    builder.add_node("inner", row(one=remembering("one"), two=two).compile(), retry_policy=retry)
    builder.add_edge(START, "inner")
    with ours() as world:
        graph = world.graph(builder)
        answered = world.invoke(graph, {"said": ["a"]}, thread(), durability=mode)

        assert answered["answers"][-1] == "a-one,two"
        assert world.notes(world.head(graph, thread())) == ["a-one", "two"]


def test_a_question_within_a_subgraph() -> None:
    def two(state: State) -> dict[str, Any]:
        note("asked")
        note(interrupt("may I?"))
        return {"answers": [",".join(notes())]}

    with ours() as world:
        graph = world.graph(row(inner=row(one=remembering("one"), two=two).compile()))
        world.invoke(graph, {"said": ["a"]}, thread())
        assert world.notes(world.head(graph, thread())) == []
        answered = world.invoke(graph, Command(resume="yes"), thread())

        assert answered["answers"][-1] == "a-one,asked,yes"
        assert world.notes(world.head(graph, thread())) == ["a-one", "asked", "yes"]


def test_a_checkpoint_within_a_subgraph_shows_what_was_known_there() -> None:
    def two(state: State) -> dict[str, Any]:
        note("two")
        interrupt("may I?")
        return {"answers": []}

    with ours() as world:
        graph = world.graph(row(before=remembering("before"), inner=row(one=remembering("one"), two=two).compile()))
        world.invoke(graph, {"said": ["a"]}, thread())
        state = world.snapshot(graph, thread(), subgraphs=True)
        within = state.tasks[0].state.config

        assert world.notes(state.config) == ["a-before"]
        assert world.notes(within) == ["a-before", "a-one"]


def test_going_back_into_a_subgraph_keeps_what_its_earlier_nodes_remembered() -> None:
    ran: list[str] = []

    def one(state: State) -> Any:
        ran.append("one")
        return remembering("one")(state)

    def two(state: State) -> dict[str, Any]:
        ran.append("two")
        note(f"two-{len(ran)}")
        interrupt("may I?")
        return {"answers": [",".join(notes())]}

    with ours() as world:
        graph = world.graph(row(inner=row(one=one, two=two).compile(checkpointer=True)))
        world.invoke(graph, {"said": ["a"]}, thread())
        within = world.snapshot(graph, thread(), subgraphs=True).tasks[0].state.config
        world.invoke(graph, Command(resume="yes"), thread())
        left = world.head(graph, thread())
        world.invoke(graph, None, within)
        world.invoke(graph, Command(resume="yes"), thread())

        assert ran.count("one") == 1
        assert world.notes(left) == ["a-one", "two-3"]
        assert world.notes(world.head(graph, thread())) == ["a-one", f"two-{len(ran)}"]


def test_an_item_that_a_subgraph_changes_and_deletes() -> None:
    def one(state: State) -> dict[str, Any]:
        get_store().put(("facts",), "home", {"text": state["said"][-1]})
        get_store().put(("facts",), "pet", {"text": "cat"})
        return {}

    def two(state: State) -> dict[str, Any]:
        get_store().put(("facts",), "home", {"text": state["said"][-1] + "!"})
        get_store().delete(("facts",), "pet")
        return {"answers": [str(len(get_store().search(("facts",))))]}

    with bm.open_temporary() as store, ours(store=store) as world:
        graph = world.graph(row(inner=row(one=one, two=two).compile()))
        answers = [world.invoke(graph, {"said": [said]}, thread())["answers"][-1] for said in ("a", "b")]
        assert isinstance(world.store, BranchStore)
        with world.store.at(world.head(graph, thread())):
            items = world.store.search(("facts",))

    assert answers == ["1", "1"]
    assert [(item.key, item.value) for item in items] == [("home", {"text": "b!"})]


def test_what_a_subgraph_deletes_stays_on_other_branches_and_threads() -> None:
    def one(state: State) -> dict[str, Any]:
        if state["said"][-1] == "forget":
            get_store().delete(NOTES, "kept")
        return {}

    def two(state: State) -> dict[str, Any]:
        if state["said"][-1] == "keep":
            get_store().put(NOTES, "kept", {"text": "kept"})
        return {}

    for mode in MODES:
        with ours() as world:
            graph = world.graph(row(two=two, inner=row(one=one).compile(checkpointer=True)))
            world.invoke(graph, {"said": ["keep"]}, thread(), durability=mode)
            trunk = world.head(graph, thread())
            world.invoke(graph, {"said": ["forget"]}, trunk, durability=mode)

            assert world.notes(world.head(graph, thread())) == [], mode
            assert world.notes(trunk) == ["kept"], mode


def test_a_subgraph_that_keeps_its_state_and_is_given_new_input_brings_nothing_from_another_branch() -> None:
    inner = row(one=remembering("one")).compile(checkpointer=True)

    def calling(state: State) -> dict[str, Any]:
        inner.invoke({"said": state["said"]})
        return {}

    with ours() as world:
        graph = world.graph(row(before=remembering("before"), calling=calling))
        world.invoke(graph, {"said": ["a"]}, thread())
        before = next(each.config for each in world.history(graph, thread()) if each.next == ("calling",))
        world.update(graph, before, {"said": ["by hand"]}, as_node="before")
        world.invoke(graph, {"said": ["b"]}, thread())

        assert world.notes(world.head(graph, thread())) == ["a-before", "b-before", "b-one"]


@pytest.mark.parametrize("mode", MODES)
def test_a_subgraph_that_keeps_its_state_begins_in_a_replay_and_is_done_beside_a_question(mode: str) -> None:
    asks: list[str] = []

    def other(state: State) -> dict[str, Any]:
        if asks:
            interrupt("may I?")
        return {}

    builder = StateGraph(State)
    builder.add_node("inner", row(one=remembering("one")).compile(checkpointer=True))
    builder.add_node("other", other)
    for name in ("inner", "other"):
        builder.add_edge(START, name)
    with ours() as world:
        graph = world.graph(builder)
        world.invoke(graph, {"said": ["a"]}, thread())
        before = next(each.config for each in world.history(graph, thread()) if each.next)
        asks.append("may I?")
        world.invoke(graph, None, before, durability=mode)
        world.invoke(graph, Command(resume="yes"), thread(), durability=mode)

        assert world.notes(world.head(graph, thread())) == ["a-one"]


def test_a_subgraph_that_goes_on_after_its_step_has_failed_keeps_what_it_saves() -> None:
    has_put, may_go_on = threading.Event(), threading.Event()
    done: set[str] = set()

    def one(state: State) -> dict[str, Any]:
        note("one")
        has_put.set()
        assert may_go_on.wait(20)
        return {}

    def failing(state: State) -> dict[str, Any]:
        assert has_put.wait(20)
        once(done, "failing")
        return {}

    builder = StateGraph(State)
    for name, node in (("inner", row(one=one, two=lambda state: {}).compile()), ("failing", failing)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    with ours() as world:

        class Telling(BranchingSaver):
            """Lets the subgraph go on once its step is known to have failed."""

            def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
                super().put_writes(config, writes, task_id, task_path)
                if any(channel == "__error__" for channel, _ in writes):
                    may_go_on.set()

        world.saver = Telling(world.saver.saver, world.store)
        graph = world.graph(builder)
        with pytest.raises(Flaky):
            world.invoke(graph, {"said": ["a"]}, thread())
        world.invoke(graph, None, thread())

        assert world.notes(world.head(graph, thread())) == ["one"]
