"""Graphs that remember, over LangGraph's own store or ours, and what is seen at each of their checkpoints.

A node remembers a note a time under a key of its own, as memory tools do: work that is done twice is seen twice.
"""

from __future__ import annotations

import asyncio
import operator
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Protocol, TypedDict
from uuid import uuid4

import branchmem as bm
from branchmem.adapters.langgraph import BranchingSaver, BranchStore, branching
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore, Item
from langgraph.store.memory import InMemoryStore

NOTES = ("notes",)
SAVERS = ("memory", "sqlite", "async sqlite")


class State(TypedDict, total=False):
    said: Annotated[list[str], operator.add]
    answers: Annotated[list[str], operator.add]


class Node(Protocol):
    """A node by the name that LangGraph gives to its argument: it answers with what it writes, or is to be awaited."""

    def __call__(self, state: State) -> Any: ...


def note(text: str) -> None:
    """Remember a text, under a key of its own."""
    get_store().put(NOTES, uuid4().hex, {"text": text})


def notes() -> list[str]:
    """The texts that are remembered, as a task sees them."""
    return sorted(item.value["text"] for item in get_store().search(NOTES, limit=100))


def got(store: BaseStore, namespace: tuple[str, ...], key: str, **options: Any) -> Item:
    """An item that must be there."""
    item = store.get(namespace, key, **options)
    assert item is not None
    return item


class World:
    """A store, a checkpointer, and a way to run graphs over both, with or without an event loop."""

    def __init__(
        self, store: BaseStore, saver: BaseCheckpointSaver[Any], loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self.store = store
        self.saver = saver
        self._loop = loop

    def graph(self, builder: StateGraph[Any, Any, Any, Any]) -> Any:
        return builder.compile(checkpointer=self.saver, store=self.store)

    def invoke(self, graph: Any, given: Any, config: Any, **options: Any) -> Any:
        if self._loop is None:
            return graph.invoke(given, config, **options)
        return self._loop.run_until_complete(graph.ainvoke(given, config, **options))

    def head(self, graph: Any, config: Any) -> Any:
        return self.snapshot(graph, config).config

    def snapshot(self, graph: Any, config: Any, **options: Any) -> Any:
        if self._loop is None:
            return graph.get_state(config, **options)
        return self._loop.run_until_complete(graph.aget_state(config, **options))

    def update(self, graph: Any, config: Any, values: Any, **options: Any) -> Any:
        if self._loop is None:
            return graph.update_state(config, values, **options)
        return self._loop.run_until_complete(graph.aupdate_state(config, values, **options))

    def history(self, graph: Any, config: Any) -> list[Any]:
        if self._loop is None:
            return list(graph.get_state_history(config))

        async def collected() -> list[Any]:
            return [each async for each in graph.aget_state_history(config)]

        return self._loop.run_until_complete(collected())

    def notes(self, config: Any) -> list[str]:
        """The texts that are visible at a checkpoint; LangGraph's store knows no checkpoints."""
        if not isinstance(self.store, BranchStore):
            return sorted(item.value["text"] for item in self.store.search(NOTES, limit=100))
        with self.store.at(config):
            return sorted(item.value["text"] for item in self.store.search(NOTES, limit=100))


class Ours(World):
    """A world of our store and a wrapped checkpointer."""

    store: BranchStore
    saver: BranchingSaver

    def __init__(self, store: BranchStore, saver: BranchingSaver, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(store, saver, loop)


@contextmanager
def plain() -> Iterator[World]:
    """LangGraph as it is."""
    yield World(InMemoryStore(), InMemorySaver(), None)


@contextmanager
def ours(kind: str = "memory", store: bm.Store | None = None, **options: Any) -> Iterator[Ours]:
    """Our store and a wrapped checkpointer of some kind."""
    with bm.open_temporary() as fresh, checkpointer(kind) as (saver, loop):
        branches = BranchStore(store or fresh, **options)
        yield Ours(branches, branching(saver, branches), loop)


@contextmanager
def checkpointer(kind: str) -> Iterator[tuple[BaseCheckpointSaver[Any], asyncio.AbstractEventLoop | None]]:
    if kind == "memory":
        yield InMemorySaver(), None
    elif kind == "sqlite":
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        yield SqliteSaver(connection), None
        connection.close()
    else:
        loop = asyncio.new_event_loop()
        opened = AsyncSqliteSaver.from_conn_string(":memory:")
        yield loop.run_until_complete(opened.__aenter__()), loop
        loop.run_until_complete(opened.__aexit__(None, None, None))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def thread(name: str = "t") -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


def chat(answer: Node) -> StateGraph[State, None, State, State]:
    """A graph with one node."""
    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder


def echo(state: State) -> dict[str, Any]:
    """Remember what was said last, and answer with all that is remembered."""
    note(state["said"][-1])
    return {"answers": [",".join(notes())]}


class Flaky(Exception):
    """A node fails, the first time."""


def let_the_others_end() -> None:
    """Wait until what runs beside a task has ended and its output is saved: no event tells of that."""
    time.sleep(0.3)


def once(done: set[str], name: str) -> None:
    """Fail the first time that something of this name is tried."""
    if name not in done:
        done.add(name)
        raise Flaky(name)
