"""A trip is planned on two branches of one LangGraph thread: what the plain store tells the wrong one, and ours not.

    pip install 'branchmem[langgraph]'
    python examples/langgraph_leak.py

No model is asked: the node remembers what it is told, and answers with what it finds.  Each step asserts what it shows.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import branchmem as bm
from branchmem.adapters.langgraph import BranchStore, branching
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.memory import InMemoryStore

FACTS = ("facts",)
THREAD: Any = {"configurable": {"thread_id": "trip"}}

Seen = dict[str, list[str]]


class State(TypedDict, total=False):
    said: Annotated[list[str], operator.add]
    knows: list[str]


def agent(state: State) -> State:
    """Remember what was said, and tell all that is known."""
    store = get_store()
    store.put(FACTS, uuid4().hex, {"text": state["said"][-1]})
    return {"knows": sorted(item.value["text"] for item in store.search(FACTS, limit=100))}


def talk(graph: Any) -> Seen:
    """A thread, an edit, the way back, and a turn that is run again; what the agent knew each time."""
    graph.invoke({"said": ["We travel in May."]}, THREAD)
    before = graph.get_state(THREAD).config
    seen: Seen = {}
    seen["She wants to go to Chengdu"] = graph.invoke({"said": ["The trip goes to Chengdu."]}, before)["knows"]
    chengdu = graph.get_state(THREAD).config
    seen["She edits that: to Hangzhou"] = graph.invoke({"said": ["The trip goes to Hangzhou."]}, before)["knows"]
    seen["Back on the first branch, she adds"] = graph.invoke({"said": ["Book a hotpot place."]}, chengdu)["knows"]
    (again, *_) = (each.config for each in graph.get_state_history(THREAD) if each.next == ("agent",))
    seen["That turn is run again"] = graph.invoke(None, again)["knows"]
    return seen


def show(name: str, seen: Seen) -> None:
    print(f"\n{name}")
    for what, knows in seen.items():
        print(f"  {what}. The agent knows:")
        for fact in knows:
            print(f"      {fact}")


def main() -> None:
    builder = StateGraph(State)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")

    plain = talk(builder.compile(checkpointer=InMemorySaver(), store=InMemoryStore()))
    show("LangGraph's own store", plain)
    assert "The trip goes to Chengdu." in plain["She edits that: to Hangzhou"]  # said on the other branch
    assert plain["That turn is run again"].count("Book a hotpot place.") == 2

    with bm.open_temporary() as memory:
        store = BranchStore(memory)
        ours = talk(builder.compile(checkpointer=branching(InMemorySaver(), store), store=store))
    show("BranchStore", ours)
    assert ours == {
        "She wants to go to Chengdu": ["The trip goes to Chengdu.", "We travel in May."],
        "She edits that: to Hangzhou": ["The trip goes to Hangzhou.", "We travel in May."],
        "Back on the first branch, she adds": [
            "Book a hotpot place.",
            "The trip goes to Chengdu.",
            "We travel in May.",
        ],
        "That turn is run again": ["Book a hotpot place.", "The trip goes to Chengdu.", "We travel in May."],
    }


if __name__ == "__main__":
    main()
