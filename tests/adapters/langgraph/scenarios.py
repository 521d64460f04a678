"""What users do with threads: each returns what was seen where, and what must be seen there.

Written once, for a store that knows branches and for one that does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt
from worlds import Flaky, State, World, chat, echo, let_the_others_end, note, notes, once, thread

#: What was seen, and what must be, by what is looked at.
Outcome = tuple[dict[str, Any], dict[str, Any]]
Scenario = Callable[[World], Outcome]


def edit(world: World) -> Outcome:
    """A message is said otherwise: the graph goes on from before it."""
    graph = world.graph(chat(echo))
    world.invoke(graph, {"said": ["hello"]}, thread())
    before = world.head(graph, thread())
    world.invoke(graph, {"said": ["I live in Chengdu"]}, thread())
    edited = world.invoke(graph, {"said": ["I live in Hangzhou"]}, before)
    return (
        {"answer": edited["answers"][-1], "head": world.notes(world.head(graph, thread()))},
        {"answer": "I live in Hangzhou,hello", "head": ["I live in Hangzhou", "hello"]},
    )


def copy_of_a_checkpoint(world: World) -> Outcome:
    """A checkpoint is copied beside itself, and the graph goes on from the copy."""
    graph = world.graph(chat(echo))
    world.invoke(graph, {"said": ["a"]}, thread())
    before = next(each.config for each in world.history(graph, thread()) if each.next == ("answer",))
    copied = world.update(graph, before, None, as_node="__copy__")
    at_copy = world.notes(copied)
    world.invoke(graph, None, copied)
    return {"copy": at_copy, "head": world.notes(world.head(graph, thread()))}, {"copy": [], "head": ["a"]}


def update_state(world: World) -> Outcome:
    """The state of an earlier checkpoint is changed by hand, and the graph goes on from there."""
    graph = world.graph(chat(echo))
    world.invoke(graph, {"said": ["a"]}, thread())
    before = world.head(graph, thread())
    world.invoke(graph, {"said": ["b"]}, thread())
    fork = world.update(graph, before, {"said": ["by hand"]}, as_node="answer")
    at_fork = world.notes(fork)
    world.invoke(graph, {"said": ["c"]}, fork)
    return {"fork": at_fork, "head": world.notes(world.head(graph, thread()))}, {"fork": ["a"], "head": ["a", "c"]}


def regenerate(world: World) -> Outcome:
    """An answer is made again, from the checkpoint before it: what the rejected one remembered is not there."""
    texts = iter(["the first try", "the second try"])

    def answer(state: State) -> dict[str, Any]:
        note(next(texts))
        return {"answers": [",".join(notes())]}

    graph = world.graph(chat(answer))
    world.invoke(graph, {"said": ["a"]}, thread())
    before = next(each.config for each in world.history(graph, thread()) if each.next == ("answer",))
    again = world.invoke(graph, None, before)
    return (
        {"answer": again["answers"][-1], "head": world.notes(world.head(graph, thread()))},
        {"answer": "the second try", "head": ["the second try"]},
    )


def fork(world: World) -> Outcome:
    """Three branches go on from one checkpoint."""
    graph = world.graph(chat(echo))
    world.invoke(graph, {"said": ["trunk"]}, thread())
    trunk = world.head(graph, thread())
    heads = {}
    for name in ("x", "y", "z"):
        world.invoke(graph, {"said": [name]}, trunk)
        heads[name] = world.head(graph, thread())
    seen = {name: world.notes(head) for name, head in heads.items()} | {"trunk": world.notes(trunk)}
    return seen, {"x": ["trunk", "x"], "y": ["trunk", "y"], "z": ["trunk", "z"], "trunk": ["trunk"]}


def switch_back_and_forth(world: World) -> Outcome:
    """Two branches are gone on with in turns."""
    graph = world.graph(chat(echo))
    world.invoke(graph, {"said": ["trunk"]}, thread())
    heads = {name: world.head(graph, thread()) for name in ("x", "y")}
    answers: dict[str, str] = {}
    for turn in ("1", "2", "3"):
        for name in heads:
            answers[name] = world.invoke(graph, {"said": [name + turn]}, heads[name])["answers"][-1]
            heads[name] = world.head(graph, thread())
    return answers, {"x": "trunk,x1,x2,x3", "y": "trunk,y1,y2,y3"}


def replay(world: World) -> Outcome:
    """A turn is run again from its beginning: what it remembers is there once."""
    graph = world.graph(chat(echo))
    world.invoke(graph, {"said": ["a"]}, thread())
    before = next(each.config for each in world.history(graph, thread()) if each.next == ("answer",))
    world.invoke(graph, None, before)
    return {"head": world.notes(world.head(graph, thread()))}, {"head": ["a"]}


def retry(world: World) -> Outcome:
    """A node fails and is tried again in the same run."""
    done: set[str] = set()

    def answer(state: State) -> dict[str, Any]:
        note("tried")
        once(done, "answer")
        return {"answers": [",".join(notes())]}

    builder = StateGraph(State)
    builder.add_node("answer", answer, retry_policy=RetryPolicy(initial_interval=0.0, retry_on=Flaky, jitter=False))
    builder.add_edge(START, "answer")
    graph = world.graph(builder)
    answered = world.invoke(graph, {"said": ["a"]}, thread())
    return (
        {"answer": answered["answers"], "head": world.notes(world.head(graph, thread()))},
        {"answer": ["tried"], "head": ["tried"]},
    )


def crash_and_resume(world: World) -> Outcome:
    """A node remembers, and the process dies before its step is over; the run is resumed."""
    done: set[str] = set()

    def answer(state: State) -> dict[str, Any]:
        note("learnt")
        once(done, "answer")
        return {"answers": [",".join(notes())]}

    graph = world.graph(chat(answer))
    with pytest.raises(Flaky):
        world.invoke(graph, {"said": ["a"]}, thread())
    answered = world.invoke(graph, None, thread())
    return (
        {"answer": answered["answers"], "head": world.notes(world.head(graph, thread()))},
        {"answer": ["learnt"], "head": ["learnt"]},
    )


def crash_and_new_input(world: World) -> Outcome:
    """A node remembers and fails; the user says something else instead of going on."""
    done: set[str] = set()

    def answer(state: State) -> dict[str, Any]:
        note(state["said"][-1])
        once(done, "answer")
        return {"answers": [",".join(notes())]}

    graph = world.graph(chat(answer))
    with pytest.raises(Flaky):
        world.invoke(graph, {"said": ["a"]}, thread())
    answered = world.invoke(graph, {"said": ["b"]}, thread())
    return {"answer": answered["answers"], "head": world.notes(world.head(graph, thread()))}, {
        "answer": ["b"],
        "head": ["b"],
    }


def interrupt_and_resume(world: World) -> Outcome:
    """A node remembers, and asks; with the answer it runs from its beginning."""

    def answer(state: State) -> dict[str, Any]:
        note("asked")
        reply = interrupt("may I?")
        note(reply)
        return {"answers": [",".join(notes())]}

    graph = world.graph(chat(answer))
    world.invoke(graph, {"said": ["a"]}, thread())
    waiting = world.notes(world.head(graph, thread()))
    answered = world.invoke(graph, Command(resume="yes"), thread())
    return (
        {"waiting": waiting, "answer": answered["answers"], "head": world.notes(world.head(graph, thread()))},
        {"waiting": [], "answer": ["asked,yes"], "head": ["asked", "yes"]},
    )


def parallel_failure(world: World) -> Outcome:
    """Of two nodes of one step one fails, as a rule after the other is done, and is run again."""
    done: set[str] = set()
    beside = threading.Event()

    def left(state: State) -> dict[str, Any]:
        note("left")
        beside.set()
        return {"answers": ["left"]}

    def right(state: State) -> dict[str, Any]:
        note("right")
        assert beside.wait(20)
        let_the_others_end()
        once(done, "right")
        return {"answers": ["right"]}

    builder = StateGraph(State)
    for node in (left, right):
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
    graph = world.graph(builder)
    with pytest.raises(Flaky):
        world.invoke(graph, {"said": ["a"]}, thread())
    world.invoke(graph, None, thread())
    return {"head": world.notes(world.head(graph, thread()))}, {"head": ["left", "right"]}


def concurrent_forks(world: World) -> Outcome:
    """Two runs go on from one checkpoint at the same time."""
    both = threading.Barrier(2, timeout=20)

    def answer(state: State) -> dict[str, Any]:
        note(state["said"][-1])
        if state["said"][-1] != "trunk":
            both.wait()
        return {"answers": [",".join(notes())]}

    graph = world.graph(chat(answer))
    world.invoke(graph, {"said": ["trunk"]}, thread())
    trunk = world.head(graph, thread())
    with ThreadPoolExecutor(2) as pool:
        runs = {name: pool.submit(graph.invoke, {"said": [name]}, trunk) for name in ("x", "y")}
        answers = {name: run.result(30)["answers"][-1] for name, run in runs.items()}
    return answers, {"x": "trunk,x", "y": "trunk,y"}


def subgraph_crash_and_resume(world: World) -> Outcome:
    """Of a subgraph the second node fails; only that one is run again."""
    done: set[str] = set()
    ran: list[str] = []

    def first(state: State) -> dict[str, Any]:
        ran.append("first")
        note("first")
        return {"answers": ["first"]}

    def second(state: State) -> dict[str, Any]:
        note("second")
        once(done, "second")
        return {"answers": [",".join(notes())]}

    inner = StateGraph(State)
    inner.add_node("first", first)
    inner.add_node("second", second)
    inner.add_edge(START, "first")
    inner.add_edge("first", "second")
    builder = StateGraph(State)
    builder.add_node("inner", inner.compile())
    builder.add_edge(START, "inner")
    graph = world.graph(builder)
    with pytest.raises(Flaky):
        world.invoke(graph, {"said": ["a"]}, thread())
    answered = world.invoke(graph, None, thread())
    return (
        {"ran": len(ran), "answer": answered["answers"][-1], "head": world.notes(world.head(graph, thread()))},
        {"ran": 1, "answer": "first,second", "head": ["first", "second"]},
    )


#: Those that a store without branches fails.
ALL: dict[str, Scenario] = {
    each.__name__: each
    for each in (
        edit,
        copy_of_a_checkpoint,
        update_state,
        regenerate,
        fork,
        switch_back_and_forth,
        replay,
        retry,
        crash_and_resume,
        crash_and_new_input,
        interrupt_and_resume,
        parallel_failure,
        concurrent_forks,
        subgraph_crash_and_resume,
    )
}
