"""Where a call stands: in tasks of every kind, at a checkpoint that is named, for an owner, or nowhere: refused."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import branchmem as bm
import pytest
from branchmem.adapters.langgraph import BranchStore, branching
from branchmem.errors.langgraph import NoCheckpoint, UnknownCheckpoint
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolNode
from langgraph.runtime import RunControl, Runtime
from langgraph.types import Send
from langmem import create_manage_memory_tool, create_search_memory_tool  # type: ignore[import-untyped]  # it ships no types
from worlds import NOTES, Flaky, State, World, chat, echo, got, note, notes, once, ours, plain, thread


def test_runtime_get_store_and_send_all_stand_in_the_task() -> None:
    def planned(state: State) -> list[Send]:
        return [Send("work", {"said": [part]}) for part in "xyz"]

    def work(state: State, runtime: Runtime) -> dict[str, Any]:
        assert runtime.store is not None
        runtime.store.put(NOTES, state["said"][0], {"text": state["said"][0]})
        return {"answers": [state["said"][0]]}

    builder = StateGraph(State)
    builder.add_node("work", work)
    builder.add_conditional_edges(START, planned, ["work"])
    with ours() as world:
        graph = world.graph(builder)
        world.invoke(graph, {"said": ["a"]}, thread())
        assert world.notes(world.head(graph, thread())) == ["x", "y", "z"]


def functional(store: Any, saver: Any, done: set[str], ran: list[str]) -> Any:
    @task
    def remember(text: str) -> str:
        ran.append(text)
        note(text)
        return text

    @entrypoint(checkpointer=saver, store=store)
    def flow(said: str) -> str:
        note(f"{said} itself")
        remember(f"{said} by a task").result()
        once(done, said)
        return ",".join(notes())

    return flow


def test_the_functional_api_keeps_what_tasks_that_are_done_have_put() -> None:
    ran: list[str] = []
    with ours() as world:
        flow = functional(world.store, world.saver, set(), ran)
        with pytest.raises(Flaky):
            flow.invoke("a", thread())
        answer = flow.invoke(None, thread())
        trunk = flow.get_state(thread()).config
        for said in ("x", "y"):
            with pytest.raises(Flaky):
                flow.invoke(said, trunk)
            flow.invoke(None, thread())

        assert answer == "a by a task,a itself"
        assert ran == ["a by a task", "x by a task", "y by a task"]
        assert world.notes(trunk) == ["a by a task", "a itself"]
        assert world.notes(flow.get_state(thread()).config) == [
            "a by a task",
            "a itself",
            "y by a task",
            "y itself",
        ]


def remembering_with_langmem(world: World) -> Any:
    """Three facts on two branches, by LangMem's tools in a ToolNode; what its search finds on the second branch."""
    tools = [create_manage_memory_tool(("facts",)), create_search_memory_tool(("facts",))]

    def agent(state: MessagesState) -> dict[str, Any]:
        said = state["messages"][-1].content
        call = {"name": "search_memory", "args": {"query": "fact"}, "id": f"call {said}"}
        if said != "what do you know?":
            call |= {"name": "manage_memory", "args": {"content": said}}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    graph = world.graph(builder)

    def say(text: str, config: Any) -> Any:
        return world.invoke(graph, {"messages": [HumanMessage(text)]}, config)

    say("fact one", thread())
    trunk = world.head(graph, thread())
    say("fact two", thread())
    say("fact three", trunk)
    return say("what do you know?", thread())["messages"][-1].content


def test_the_tools_of_langmem_work_on_it_and_find_what_the_branch_knows() -> None:
    with ours() as world:
        found = remembering_with_langmem(world)
    assert ("fact one" in found, "fact two" in found, "fact three" in found) == (True, False, True)


def test_on_the_plain_store_they_find_the_other_branch() -> None:
    with plain() as world:
        assert "fact two" in remembering_with_langmem(world)


def test_a_tool_that_is_given_the_store() -> None:
    @tool
    def keep(text: str, store: Annotated[Any, InjectedStore()]) -> str:
        """Keep a text."""
        store.put(NOTES, text, {"text": text})
        return "kept"

    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([keep]))
    builder.add_edge(START, "tools")
    with ours() as world:
        graph = world.graph(builder)
        for number in "12":
            calls = [{"name": "keep", "args": {"text": f"{number}{half}"}, "id": half} for half in "ab"]
            world.invoke(graph, {"messages": [AIMessage("", tool_calls=calls)]}, thread())
        assert world.notes(world.head(graph, thread())) == ["1a", "1b", "2a", "2b"]


def test_two_forks_of_one_checkpoint_in_one_event_loop() -> None:
    both = asyncio.Event()
    waiting = 0

    async def answer(state: State) -> dict[str, Any]:
        nonlocal waiting
        await get_store().aput(NOTES, state["said"][-1], {"text": state["said"][-1]})
        if state["said"][-1] != "trunk":
            waiting += 1
            if waiting == 2:
                both.set()
            await both.wait()
        found = await get_store().asearch(NOTES)
        return {"answers": [",".join(sorted(item.value["text"] for item in found))]}

    async def work() -> Any:
        with ours() as world:
            graph = world.graph(chat(answer))
            await graph.ainvoke({"said": ["trunk"]}, thread())
            trunk = (await graph.aget_state(thread())).config
            control = RunControl()  # of one of them; the other one has its own
            runs = (graph.ainvoke({"said": ["x"]}, trunk, control=control), graph.ainvoke({"said": ["y"]}, trunk))
            return [answered["answers"][-1] for answered in await asyncio.gather(*runs)]

    assert asyncio.run(work()) == ["trunk,x", "trunk,y"]


def test_a_control_that_is_used_again_is_another_run() -> None:
    control = RunControl()
    with ours() as world:
        graph = world.graph(chat(echo))
        answers = []
        first = None
        for said in ("a", "b", "c"):
            answers.append(world.invoke(graph, {"said": [said]}, first or thread(), control=control)["answers"][-1])
            first = first or world.head(graph, thread())

    assert answers == ["a", "a,b", "a,c"]


def test_streams_are_runs() -> None:
    with ours() as world:
        graph = world.graph(chat(echo))
        streamed = [list(graph.stream({"said": [said]}, thread(), stream_mode="updates"))[-1] for said in "ab"]

    assert [each["answer"]["answers"] for each in streamed] == [["a"], ["a,b"]]


def test_what_is_put_at_a_checkpoint_belongs_to_all_below_it() -> None:
    with ours() as world:
        graph = world.graph(chat(echo))
        world.invoke(graph, {"said": ["a"]}, thread())
        trunk = world.head(graph, thread())
        world.invoke(graph, {"said": ["b"]}, thread())
        branch = world.head(graph, thread())
        with world.store.at(trunk) as at_trunk:
            at_trunk.put(NOTES, "late", {"text": "late"})
        world.invoke(graph, {"said": ["c"]}, branch)
        with world.store.at(branch) as at_branch:
            at_branch.delete(NOTES, "late")

        assert world.notes(trunk) == ["a", "late"]
        assert world.notes(branch) == ["a", "b"]
        assert world.notes(world.head(graph, thread())) == ["a", "b", "c"]


def test_a_graph_that_is_run_where_a_checkpoint_is_named_stands_at_its_own_steps() -> None:
    with ours() as world:
        graph = world.graph(chat(echo))
        world.invoke(graph, {"said": ["trunk"]}, thread())
        trunk = world.head(graph, thread())
        world.invoke(graph, {"said": ["x"]}, trunk)
        x = world.head(graph, thread())
        with world.store.at(x):
            answers = world.invoke(graph, {"said": ["y"]}, trunk)["answers"]
            here = [item.value["text"] for item in world.store.search(NOTES)]

        assert (answers, sorted(here)) == (["trunk", "trunk,y"], ["trunk", "x"])
        assert (world.notes(x), world.notes(world.head(graph, thread()))) == (["trunk", "x"], ["trunk", "y"])


def test_an_item_is_changed_and_deleted_on_one_branch_alone() -> None:
    def answer(state: State) -> dict[str, Any]:
        said = state["said"][-1]
        if said == "forget":
            get_store().delete(("facts",), "home")
        else:
            get_store().put(("facts",), "home", {"text": said})
        return {"answers": [said]}

    with ours() as world:
        graph = world.graph(chat(answer))
        world.invoke(graph, {"said": ["Chengdu"]}, thread())
        trunk = world.head(graph, thread())
        seen = {}
        for said in ("Hangzhou", "forget", "Yibin"):
            world.invoke(graph, {"said": [said]}, trunk)
            with world.store.at(world.head(graph, thread())):
                seen[said] = [item.value["text"] for item in world.store.search(("facts",))]
        with world.store.at(trunk):
            kept = got(world.store, ("facts",), "home").value

    assert seen == {"Hangzhou": ["Hangzhou"], "forget": [], "Yibin": ["Yibin"]}
    assert kept == {"text": "Chengdu"}


def test_what_is_shared_crosses_threads_and_branches_at_once() -> None:
    def answer(state: State) -> dict[str, Any]:
        get_store().put(("profile", "ann"), "name", {"text": state["said"][-1]})
        note(state["said"][-1])
        found = get_store().search((), limit=100)
        return {"answers": [",".join(sorted(item.value["text"] for item in found))]}

    with ours(shared=[("profile",)]) as world:
        graph = world.graph(chat(answer))
        answers = [world.invoke(graph, {"said": [name]}, thread(name))["answers"][-1] for name in ("Ann", "Anna")]

        assert answers == ["Ann,Ann", "Anna,Anna"]
        assert got(world.store, ("profile", "ann"), "name").value == {"text": "Anna"}
        assert world.store.list_namespaces(prefix=("profile",)) == [("profile", "ann")]
        assert world.notes(world.head(graph, thread("Ann"))) == ["Ann"]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get(NOTES, "k"),
        lambda store: store.put(NOTES, "k", {"text": "x"}),
        lambda store: store.delete(NOTES, "k"),
        lambda store: store.search(()),
        lambda store: store.list_namespaces(),
        lambda store: asyncio.run(store.aput(NOTES, "k", {"text": "x"})),
    ],
)
def test_a_call_that_stands_nowhere_is_refused_and_told_the_way_out(call: Callable[[BranchStore], Any]) -> None:
    with ours(shared=[("profile",)]) as world, pytest.raises(NoCheckpoint, match=r"store\.at\(.*shared=\["):
        call(world.store)


@pytest.mark.parametrize("saver", [None, InMemorySaver(), "of another store"])
def test_a_graph_without_a_checkpointer_of_this_store_is_refused(saver: Any) -> None:
    with bm.open_temporary() as store, bm.open_temporary() as other:
        if saver == "of another store":
            saver = branching(InMemorySaver(), BranchStore(other))
        graph = chat(echo).compile(checkpointer=saver, store=BranchStore(store))
        with pytest.raises(NoCheckpoint, match="branching"):
            graph.invoke({"said": ["a"]}, thread())
        assert len(store.log) == 0


def test_a_thread_of_a_task_is_refused_unless_it_is_given_the_context() -> None:
    def answer(state: State) -> dict[str, Any]:
        refused: list[str] = []

        def work(*, knows: bool) -> None:
            try:
                store.put(NOTES, str(knows), {"text": str(knows)})
            except NoCheckpoint as error:
                refused.append(str(error))

        store = get_store()
        with_context = partial(contextvars.copy_context().run, partial(work, knows=True))
        for target in (partial(work, knows=False), with_context):
            started = threading.Thread(target=target)
            started.start()
            started.join()
        return {"answers": refused}

    with ours() as world:
        graph = world.graph(chat(answer))
        (refused,) = world.invoke(graph, {"said": ["a"]}, thread())["answers"]

        assert "copy_context" in refused
        assert world.notes(world.head(graph, thread())) == ["True"]


def test_a_graph_that_a_node_runs_on_a_thread_of_its_own_remembers_there() -> None:
    with ours() as world:
        inner = world.graph(chat(echo))

        def outer(state: State) -> dict[str, Any]:
            note(f"outer {state['said'][-1]}")
            answered = inner.invoke({"said": [f"inner {state['said'][-1]}"]}, thread("inner"))
            return {"answers": [f"{answered['answers'][-1]} | {','.join(notes())}"]}

        graph = world.graph(chat(outer))
        answers = [world.invoke(graph, {"said": [said]}, thread())["answers"][-1] for said in "ab"]

    assert answers == ["inner a | outer a", "inner a,inner b | outer a,outer b"]


def test_what_a_node_has_put_that_failed_for_good_is_not_remembered() -> None:
    def failing(state: State) -> dict[str, Any]:
        note("failed")
        raise Flaky("for good")

    def rescue(state: State) -> dict[str, Any]:
        note("rescued")
        return {"answers": [",".join(notes())]}

    builder = StateGraph(State)
    builder.add_node("failing", failing, error_handler=rescue)
    builder.add_edge(START, "failing")
    with ours() as world:
        graph = world.graph(builder)
        answered = world.invoke(graph, {"said": ["a"]}, thread())

        assert answered["answers"] == ["rescued"]
        assert world.notes(world.head(graph, thread())) == ["rescued"]


def test_what_is_learnt_late_lands_on_the_branch_that_it_came_from() -> None:
    late: list[Callable[[], list[str]]] = []

    def learn(text: str) -> list[str]:
        note(text)
        return notes()

    def answer(state: State) -> dict[str, Any]:
        note(state["said"][-1])
        late.append(partial(contextvars.copy_context().run, learn, f"late {state['said'][-1]}"))
        return {"answers": [",".join(notes())]}

    with ours() as world:
        graph = world.graph(chat(answer))
        world.invoke(graph, {"said": ["trunk"]}, thread())
        trunk = world.head(graph, thread())
        heads = {}
        for said in ("x", "y"):
            world.invoke(graph, {"said": [said]}, trunk)
            heads[said] = world.head(graph, thread())

        assert late[1]() == ["late x", "trunk", "x"]
        assert world.notes(heads["x"]) == ["late x", "trunk", "x"]
        assert world.notes(heads["y"]) == ["trunk", "y"]
        assert world.invoke(graph, {"said": ["z"]}, heads["x"])["answers"][-1] == "late x,trunk,x,z"


def test_a_checkpoint_that_the_store_does_not_know_is_refused() -> None:
    with ours() as world:
        unknown: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_id": "1f0"}}
        with pytest.raises(UnknownCheckpoint) as refused, world.store.at(unknown):
            pass
        assert (refused.value.thread, refused.value.checkpoint) == ("t", "1f0")
        with world.store.at({"configurable": {}}), pytest.raises(NoCheckpoint, match="at"):
            world.store.get(NOTES, "k")


def test_each_owner_of_a_pool_has_a_store_of_his_own(tmp_path: Path) -> None:
    def of(owner: str) -> RunnableConfig:
        return {"configurable": {"thread_id": f"of {owner}", "user_id": owner}}

    with bm.Pool(tmp_path, max_open=1) as pool:
        branches = BranchStore(pool, owner=lambda config: config["configurable"]["user_id"], shared=[("profile",)])
        saver = branching(InMemorySaver(), branches)
        graph = chat(echo).compile(checkpointer=saver, store=branches)
        for owner in ("ann", "bob"):
            for said in ("one", "two"):
                graph.invoke({"said": [f"{owner} {said}"]}, of(owner))
            with branches.at(of(owner)):
                branches.put(("profile",), "name", {"text": owner})
        heads = {
            owner: {**of(owner)["configurable"], **graph.get_state(of(owner)).config["configurable"]}
            for owner in ("ann", "bob")
        }
        saver.delete_thread("of ann")

        seen = {}
        for owner, head in heads.items():
            with branches.at({"configurable": head}):
                seen[owner] = sorted(item.value["text"] for item in branches.search((), limit=100))
        assert seen == {"ann": ["ann"], "bob": ["bob", "bob one", "bob two"]}
        assert sorted(pool.owners()) == ["ann", "bob"]


def test_a_pool_needs_owners_and_a_store_has_one(tmp_path: Path) -> None:
    with bm.Pool(tmp_path) as pool, pytest.raises(TypeError, match="owner="):
        BranchStore(pool)
    with bm.open_temporary() as store, pytest.raises(TypeError, match="owner="):
        BranchStore(store, owner=lambda config: "ann")
    with bm.open_temporary() as store, pytest.raises(TypeError, match="shared"):
        BranchStore(store, shared=["profile"])
