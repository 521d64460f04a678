"""What keeps a store of branches in order, or is done to it: time to live, copies, owners, other processes, the end."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.adapters.langgraph import BranchStore, branching
from branchmem.errors import InvalidEvent, InvalidOwner, StoreClosed
from branchmem.errors.langgraph import InvalidTTL
from keepers import Able
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.base import NOT_PROVIDED, InvalidNamespaceError
from langmem import create_manage_memory_tool, create_search_memory_tool  # type: ignore[import-untyped]  # it ships no types
from worlds import NOTES, Flaky, Ours, State, chat, echo, got, note, notes, once, thread

FACTS = ("facts",)
MINUTE = timedelta(minutes=1)


class Clock:
    """A clock that stands until it is moved on, but for a microsecond a look."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(microseconds=1)
        return self.now


class Facts:
    """A thread whose turns put, get and delete facts: `put home Chengdu`, or `put home Chengdu 5` for five minutes."""

    def __init__(self, store: bm.Store, builder: StateGraph[State, None, State, State] | None = None, **options: Any):
        self.clock = Clock()
        self.branches = BranchStore(store, clock=self.clock, **options)
        self.saver: Any = branching(Able(), self.branches)
        self.world = Ours(self.branches, self.saver, None)
        self.graph = self.world.graph(builder or chat(obey))

    def say(self, at: Any, *orders: str, **options: Any) -> Any:
        """Go on from a checkpoint; the one that comes of it."""
        self.world.invoke(self.graph, {"said": [";".join(orders)]}, at, **options)
        return self.world.head(self.graph, thread(at["configurable"]["thread_id"]))

    def seen(self, at: Any) -> dict[str, str]:
        """The facts that are visible at a checkpoint."""
        with self.branches.at(at):
            return {item.key: item.value["text"] for item in self.branches.search(FACTS, refresh_ttl=False)}


def obey(state: State) -> dict[str, Any]:
    store = get_store()
    for order in state["said"][-1].split(";"):
        what, key, *rest = order.split()
        if what == "put":
            ttl = float(rest[1]) if rest[1:] else NOT_PROVIDED
            store.put(FACTS, key, {"text": rest[0]}, ttl=ttl)
        elif what == "get":
            store.get(FACTS, key)
        else:
            store.delete(FACTS, key)
    return {}


def within(name: str, ran: Any = obey) -> StateGraph[State, None, State, State]:
    """A graph whose second step is a graph of its own that keeps its state, and whose first does nothing."""
    inner = StateGraph(State)
    for above, node, work in ((START, name, ran), (name, "nothing", lambda state: {})):
        inner.add_node(node, work)
        inner.add_edge(above, node)
    builder = StateGraph(State)
    builder.add_node("first", lambda state: {})
    builder.add_node("inner", inner.compile(checkpointer=True))
    builder.add_edge(START, "first")
    builder.add_edge("first", "inner")
    return builder


@pytest.fixture
def store() -> Iterator[bm.Store]:
    with bm.open_temporary() as opened:
        yield opened


def test_each_branch_loses_what_has_outlived_its_time_there_and_nothing_else(store: bm.Store) -> None:
    facts = Facts(store, ttl={"default_ttl": 10, "omit_expired": True})
    trunk = facts.say(thread(), "put a trunk", "put b trunk")
    facts.clock.now += 5 * MINUTE
    left, right = facts.say(trunk, "put a left", "delete b"), facts.say(trunk, "put b right")
    facts.clock.now += 6 * MINUTE

    assert facts.branches.sweep_ttl() == 2
    assert [facts.seen(each) for each in (trunk, left, right)] == [{}, {"a": "left"}, {"b": "right"}]
    assert not list(store.log.find("trunk"))
    again = facts.say(left, "put b again")
    facts.clock.now += 5 * MINUTE
    assert facts.branches.sweep_ttl() == 2
    assert [facts.seen(each) for each in (trunk, left, right, again)] == [{}, {}, {}, {"b": "again"}]


def test_a_version_that_lives_for_ever_stays_where_nobody_replaced_it(store: bm.Store) -> None:
    facts = Facts(store)
    trunk = facts.say(thread(), "put a first")
    left = facts.say(trunk, "put a short 1")
    below = facts.say(left, "put a third")
    facts.clock.now += 2 * MINUTE

    assert facts.branches.sweep_ttl() == 1
    assert [facts.seen(each) for each in (trunk, left, below)] == [{"a": "first"}, {}, {"a": "third"}]


@pytest.mark.parametrize("mode", ["sync", "exit"])
def test_so_it_is_where_a_subgraph_replaced_it(store: bm.Store, mode: str) -> None:
    facts = Facts(store, within("inner"))
    trunk = facts.say(thread(), "put a first", durability=mode)
    left = facts.say(trunk, "put a short 1", durability=mode)
    facts.clock.now += 2 * MINUTE

    assert facts.branches.sweep_ttl() == 2
    assert [facts.seen(each) for each in (trunk, left)] == [{"a": "first"}, {}]


def test_reading_prolongs_the_life_of_a_version_wherever_it_is_shown_and_in_copies(store: bm.Store) -> None:
    facts = Facts(store, ttl={"default_ttl": 10, "refresh_on_read": True, "omit_expired": True})
    trunk = facts.say(thread(), "put a x", "put b x")
    facts.clock.now += 8 * MINUTE
    read = facts.say(trunk, "get a")
    facts.saver.copy_thread("t", "copy")
    copied = facts.world.head(facts.graph, thread("copy"))
    facts.clock.now += 4 * MINUTE

    assert facts.branches.sweep_ttl() == 2
    assert [facts.seen(each) for each in (trunk, read, copied)] == [{"a": "x"}] * 3


def test_a_time_to_live_that_is_no_number_is_refused_and_one_without_end_has_none(store: bm.Store) -> None:
    facts = Facts(store, ttl={"omit_expired": True}, shared=[FACTS])
    for ttl in (float("nan"), "soon"):
        with pytest.raises(InvalidTTL):
            facts.branches.put(FACTS, "k", {"text": "x"}, ttl=ttl)  # type: ignore[arg-type]
    for ttl in (float("inf"), 1e18, 5e9):
        facts.branches.put(FACTS, str(ttl), {"text": "x"}, ttl=ttl)
    facts.branches.put(FACTS, "over", {"text": "x"}, ttl=float("-inf"))

    assert len(facts.branches.search(FACTS)) == 3
    assert facts.branches.sweep_ttl() == 1


def letters(texts: list[str]) -> list[list[float]]:
    """How often each text has each of three letters."""
    return [[float(text.count(letter)) for letter in "abc"] for text in texts]


def test_only_what_a_branch_shows_is_ranked_and_what_is_not_indexed_comes_last(store: bm.Store) -> None:
    index: Any = {"dims": 3, "embed": letters, "fields": ["text", "tags[*]"]}
    branches = BranchStore(store, index=index)
    ranked: list[list[str]] = []

    def answer(state: State) -> dict[str, Any]:
        store = get_store()
        if state["said"][-1] == "trunk":
            store.put(FACTS, "near", {"text": "aab"})
            store.put(FACTS, "by tag", {"text": "c", "tags": ["b", "aaaab"]})
            store.put(FACTS, "hidden", {"text": "a"}, index=False)
            store.put(FACTS, "by field", {"text": "b", "other": {"deep": "a"}}, index=["other.deep"])
        else:
            store.put(FACTS, "sibling", {"text": "a"})
        ranked.append([item.key for item in store.search(FACTS, query="a")])
        return {}

    graph = chat(answer).compile(checkpointer=branching(InMemorySaver(), branches), store=branches)
    graph.invoke({"said": ["trunk"]}, thread())
    trunk = graph.get_state(thread()).config
    graph.invoke({"said": ["left"]}, trunk)
    with branches.at(trunk):
        ranked.append([item.key for item in branches.search(FACTS, query="a")])

    known = ["by field", "by tag", "near", "hidden"]
    assert ranked == [known, ["by field", "sibling", *known[1:]], known]


ODD = [("ä 空", "x y"), ("*", "b"), ("a:b/c%20", "|", "\n"), ("l" * 5000, "m"), ("a··b",)]
REFUSED = [(), ("a.b",), ("a", ""), ("langgraph", "x"), (1,), ("a\0b",)]


def test_labels_may_be_odd_and_what_the_base_refuses_is_refused(store: bm.Store) -> None:
    facts = Facts(store)
    with facts.branches.at(facts.say(thread(), "put a x")):
        for number, namespace in enumerate(ODD):
            facts.branches.put(namespace, "k" * 1000, {"n": number})
        assert [got(facts.branches, each, "k" * 1000).value["n"] for each in ODD] == list(range(len(ODD)))
        assert sorted(facts.branches.list_namespaces()) == sorted([*ODD, FACTS])
        for refused in REFUSED:
            with pytest.raises(InvalidNamespaceError):
                facts.branches.put(refused, "k", {"n": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("namespace", "key", "text"),
    [(FACTS, "k", "x" * 2**20), (FACTS, "k", "\ud800"), (FACTS, "\ud800", "x"), (("\ud800",), "k", "x")],
)
def test_what_no_memory_can_hold_is_refused_when_it_is_put_and_the_run_goes_on(
    store: bm.Store, namespace: tuple[str, ...], key: str, text: str
) -> None:
    def answer(state: State) -> dict[str, Any]:
        with pytest.raises(InvalidEvent):
            get_store().put(namespace, key, {"text": text})
        note("it was refused")
        return {}

    world = Facts(store, chat(answer)).world
    graph = world.graph(chat(answer))
    world.invoke(graph, {"said": ["a"]}, thread())

    assert world.notes(world.head(graph, thread())) == ["it was refused"]


def test_edits_of_a_copied_thread_and_of_its_original_do_not_meet(store: bm.Store) -> None:
    facts = Facts(store)
    trunk = facts.say(thread(), "put a trunk", "put b trunk")
    left, right = facts.say(trunk, "put a left", "delete b"), facts.say(trunk, "put a right")
    before = [facts.seen(each) for each in (trunk, left, right)]
    facts.saver.copy_thread("t", "copy")
    copies = [{"configurable": {**each["configurable"], "thread_id": "copy"}} for each in (trunk, left, right)]
    assert [facts.seen(each) for each in copies] == before

    original = facts.say(left, "put c original")
    copied = facts.say(copies[1], "put b copied"), facts.say(copies[2], "delete a")
    assert facts.seen(original) == {"a": "left", "c": "original"}
    assert [facts.seen(each) for each in copied] == [{"a": "left", "b": "copied"}, {"b": "trunk"}]
    assert [facts.seen(each) for each in (trunk, left, right, *copies)] == before * 2

    facts.saver.delete_thread("t")
    assert [facts.seen(each) for each in copied] == [{"a": "left", "b": "copied"}, {"b": "trunk"}]


def test_pruning_leaves_what_is_before_it_as_far_as_the_last_checkpoint_shows_it(store: bm.Store) -> None:
    facts = Facts(store)
    trunk = facts.say(thread(), "put a trunk", "put b trunk")
    left, right = facts.say(trunk, "put a left"), facts.say(trunk, "put a right")
    facts.saver.prune(["t"])

    assert [facts.seen(each) for each in (trunk, left)] == [{"b": "trunk"}] * 2
    assert facts.seen(right) == {"a": "right", "b": "trunk"}
    assert facts.world.snapshot(facts.graph, left).values == {}
    assert facts.seen(facts.say(right, "put c more")) == {"a": "right", "b": "trunk", "c": "more"}


def test_what_a_subgraph_remembered_is_erased_though_its_step_was_saved_at_the_end(store: bm.Store) -> None:
    facts = Facts(store, within("inner"))
    facts.say(thread(), "put a secret", durability="exit")
    head = facts.say(thread(), "put a second", durability="exit")
    facts.saver.prune(["t"])
    assert not list(store.log.find("secret"))
    assert facts.seen(head) == {"a": "second"}

    facts.saver.copy_thread("t", "copy")
    facts.saver.delete_thread("t")
    assert facts.seen(facts.world.head(facts.graph, thread("copy"))) == {"a": "second"}
    facts.saver.delete_thread("copy")
    assert not list(store.log.find("second"))


def test_a_store_that_is_closed_in_a_run_refuses_and_the_run_is_resumed_with_another(tmp_path: Path) -> None:
    saver = InMemorySaver()
    opened: list[bm.Store] = []

    def closing(state: State) -> dict[str, Any]:
        note(state["said"][-1])
        if len(state["said"]) == 2 and len(opened) == 1:
            opened[0].close()
        return {"answers": [",".join(notes())]}

    def graph() -> Any:
        opened.append(bm.open(tmp_path / "m.bmem"))
        branches = BranchStore(opened[-1])
        return chat(closing).compile(checkpointer=branching(saver, branches), store=branches)

    begun = graph()
    begun.invoke({"said": ["a"]}, thread(), durability="sync")
    with pytest.raises(StoreClosed):
        begun.invoke({"said": ["b"]}, thread(), durability="sync")
    resumed = graph()
    assert len(opened[1].at_ref("langgraph/t").memories()) == 1
    assert resumed.invoke(None, thread())["answers"] == ["a", "a,b"]
    assert len(opened[1].at_ref("langgraph/t").memories()) == 2
    opened[1].close()


def of(owner: object, name: str) -> Any:
    return {"configurable": {"thread_id": name, "user_id": owner}}


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[tuple[bm.Pool, Any, Any]]:
    """A pool with room for one store, a checkpointer and a graph over it."""
    with bm.Pool(tmp_path / "pool", max_open=1) as pool:
        branches = BranchStore(pool, owner=lambda config: config["configurable"]["user_id"])
        saver = branching(InMemorySaver(), branches)
        yield pool, saver, chat(echo).compile(checkpointer=saver, store=branches)


def test_a_thread_of_two_owners_is_deleted_with_what_either_remembered(owned: Any) -> None:
    pool, saver, graph = owned
    for owner in ("ann", "bob", "ann"):
        answer = graph.invoke({"said": [f"secret of {owner}"]}, of(owner, "t"))["answers"][-1]
    assert answer == "secret of ann,secret of ann"

    saver.delete_thread("t")
    for owner in ("ann", "bob"):
        with pool.open(owner) as store:
            assert not list(store.log.find("secret"))


@pytest.mark.parametrize("owner", [None, "", 5])
def test_a_run_that_does_not_say_whose_it_is_is_refused(owned: Any, owner: object) -> None:
    pool, _, graph = owned
    with pytest.raises(InvalidOwner):
        graph.invoke({"said": ["a"]}, of(owner, "t"))
    assert list(pool.owners()) == []


def test_one_store_in_two_event_loops_one_after_the_other(store: bm.Store, tmp_path: Path) -> None:
    branches = BranchStore(store)

    async def say(text: str) -> Any:  # a checkpointer each, and a graph over it
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "c.sqlite")) as saver:
            graph = chat(echo).compile(checkpointer=branching(saver, branches), store=branches)
            return (await graph.ainvoke({"said": [text]}, thread()))["answers"][-1]

    assert [asyncio.run(say(text)) for text in "ab"] == ["a", "a,b"]


def test_the_tools_of_langmem_change_and_delete_by_id_on_one_branch_alone(store: bm.Store) -> None:
    manage, search = create_manage_memory_tool(namespace=NOTES), create_search_memory_tool(namespace=NOTES)
    said: list[str] = []

    def answer(state: State) -> dict[str, Any]:
        said.append(manage.invoke(json.loads(state["said"][-1])))
        found = json.loads(search.invoke({"query": "tea"}))
        return {"answers": [",".join(sorted(item["value"]["content"] for item in found))]}

    world = Facts(store).world
    graph = world.graph(chat(answer))

    def does(at: Any, **order: str) -> tuple[Any, str]:
        answered = world.invoke(graph, {"said": [json.dumps(order)]}, at)["answers"][-1]
        return world.head(graph, thread()), answered

    trunk, _ = does(thread(), action="create", content="likes tea")
    id = said[-1].split()[-1]
    left, changed = does(trunk, action="update", id=id, content="likes coffee")
    right, deleted = does(trunk, action="delete", id=id)
    assert [changed, deleted] == ["likes coffee", ""]
    assert does(left, action="create", content="likes milk")[1] == "likes coffee,likes milk"
    assert does(right, action="update", id=id, content="likes water")[1] == "likes water"
    assert does(trunk, action="create", content="likes milk")[1] == "likes milk,likes tea"


def graph_in(folder: str, store: bm.Store) -> Any:
    """A graph over files; also what the other process runs."""
    connection = sqlite3.connect(f"{folder}/c.sqlite", check_same_thread=False)
    branches = BranchStore(store)
    return chat(echo).compile(checkpointer=branching(SqliteSaver(connection), branches), store=branches)


def test_another_process_goes_on_with_a_thread_while_this_one_has_it_open(tmp_path: Path) -> None:
    there = (
        "import sys, branchmem as bm, test_upkeep_of_branches as here\n"
        "with bm.open(sys.argv[1] + '/m.bmem') as store:\n"
        "    state = here.graph_in(sys.argv[1], store).invoke({'said': ['b']}, here.thread())\n"
        "    print(state['answers'][-1])\n"
    )
    with bm.open(tmp_path / "m.bmem") as store:
        graph = graph_in(str(tmp_path), store)
        graph.invoke({"said": ["a"]}, thread())
        trunk = graph.get_state(thread()).config
        command = [sys.executable, "-c", there, str(tmp_path)]
        other = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)

        assert other.stdout == "a,b\n"
        assert graph.invoke({"said": ["c"]}, thread())["answers"][-1] == "a,b,c"
        assert graph.invoke({"said": ["d"]}, trunk)["answers"][-1] == "a,d"


def test_what_a_cancelled_subgraph_does_in_its_thread_is_kept_where_its_output_is(store: bm.Store) -> None:
    has_put, is_cancelled, has_ended = (threading.Event() for _ in range(3))
    done: set[str] = set()
    ran: list[str] = []
    branches = BranchStore(store)

    class Dying(type(branching(InMemorySaver(), branches))):  # type: ignore[misc]  # made at run time
        """Tells when the step has failed; keeps what the subgraph writes after that, and no checkpoint of it."""

        async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            await super().aput_writes(config, writes, task_id, task_path)
            failed.update([task_id] if any(channel == "__error__" for channel, _ in writes) else [])
            if len(failed) == 2:
                is_cancelled.set()

        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            if config["configurable"]["checkpoint_ns"] and metadata["step"] == 1:
                once(done, "saving")
            return super().put(config, checkpoint, metadata, new_versions)

    def one(state: State) -> dict[str, Any]:
        ran.append("one")
        note("one")
        has_put.set()
        assert is_cancelled.wait(20)
        return {"answers": ["one"]}

    inner = chat(one).compile()

    def calling(state: State) -> dict[str, Any]:
        try:
            return {"answers": inner.invoke({"said": ["b"]})["answers"]}
        finally:
            has_ended.set()

    async def failing(state: State) -> dict[str, Any]:
        assert await asyncio.to_thread(has_put.wait, 20)
        once(done, "failing")
        return {}

    failed: set[str] = set()
    builder = StateGraph(State)
    for name, node in (("calling", calling), ("failing", failing)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=Dying(InMemorySaver(), branches), store=branches)

    async def talk() -> Any:
        with pytest.raises(Flaky):
            await graph.ainvoke({"said": ["a"]}, thread())
        assert await asyncio.to_thread(has_ended.wait, 20)
        return await graph.ainvoke(None, thread())

    assert (asyncio.run(talk())["answers"], ran) == (["one"], ["one"])
    assert len(store.at_ref("langgraph/t").memories()) == 1
