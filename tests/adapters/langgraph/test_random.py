"""Conversations that go any way, forked, failed, resumed, interrupted: each head knows what its path has learnt."""

from __future__ import annotations

import random
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt
from worlds import SAVERS, Flaky, State, World, note, notes, ours, thread

PARTS = ("left", "inner-one", "inner-two", "last")


def graph_of(world: World, plan: dict[str, str]) -> Any:
    """Two nodes side by side, one of them a graph of two, and a last one; `plan` says which fails, retries or asks."""

    def part(name: str) -> Any:
        def node(state: State) -> dict[str, Any]:
            note(f"{state['said'][-1]} {name}")
            what = plan.pop(name, "") if plan.get(name) != "ask" else "ask"
            if what in ("fail", "retry"):
                raise Flaky(what)
            if what == "ask":
                interrupt("may I?")
            return {"answers": [",".join(notes())]} if name == "last" else {}

        return node

    def tried_again(error: Exception) -> bool:
        return isinstance(error, Flaky) and error.args == ("retry",)

    policy = RetryPolicy(initial_interval=0.0, jitter=False, retry_on=tried_again)
    inner = StateGraph(State)
    inner.add_node("inner-one", part("inner-one"), retry_policy=policy)
    inner.add_node("inner-two", part("inner-two"), retry_policy=policy)
    inner.add_edge(START, "inner-one")
    inner.add_edge("inner-one", "inner-two")
    builder = StateGraph(State)
    builder.add_node("left", part("left"), retry_policy=policy)
    builder.add_node("inner", inner.compile())
    builder.add_node("last", part("last"), retry_policy=policy)
    for name in ("left", "inner"):
        builder.add_edge(START, name)
    builder.add_edge(["left", "inner"], "last")
    return world.graph(builder)


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
@pytest.mark.parametrize("seed", range(4))
def test_each_head_knows_what_its_path_has_learnt(seed: int, mode: str) -> None:
    dice = random.Random(seed)
    plan: dict[str, str] = {}
    with ours(SAVERS[seed % 3]) as world:
        graph = graph_of(world, plan)
        expected: list[tuple[Any, list[str]]] = []
        for turn in range(8):
            start, known = dice.choice(expected) if expected and dice.random() < 0.7 else (thread(f"t{turn}"), [])
            plan.update({dice.choice(PARTS): dice.choice(["fail", "retry", "ask", ""])})
            known = sorted([*known, *(f"{turn} {name}" for name in PARTS)])
            here = {"configurable": {"thread_id": start["configurable"]["thread_id"]}}
            given: Any = {"said": [str(turn)]}
            while True:
                try:
                    state = world.invoke(graph, given, start, durability=mode)
                except Flaky:
                    given, start = None, here
                    continue
                if "__interrupt__" not in state:
                    break
                plan.clear()
                given, start = Command(resume="yes"), here
            assert state["answers"][-1].split(",") == known
            expected.append((world.head(graph, here), known))
            head, seen = dice.choice(expected)
            assert world.notes(head) == seen

        assert [world.notes(head) for head, _ in expected] == [known for _, known in expected]
