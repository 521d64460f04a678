"""A wrapped checkpointer is a checkpointer, and what it deletes, copies or prunes is so in the store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import branchmem as bm
import pytest
from branchmem.adapters.langgraph import BranchStore, branching
from branchmem.events import Restoration, Retraction
from keepers import Able, FromLoop
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START
from langgraph.graph.state import CompiledStateGraph
from worlds import NOTES, SAVERS, Flaky, Ours, State, World, chat, echo, got, let_the_others_end, ours, thread


async def in_memory(branches: BranchStore) -> AsyncIterator[Any]:
    yield branching(InMemorySaver(), branches)


async def able(branches: BranchStore) -> AsyncIterator[Any]:
    yield branching(Able(), branches)


async def in_sqlite(branches: BranchStore) -> AsyncIterator[Any]:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    yield FromLoop(branching(SqliteSaver(connection), branches))
    connection.close()


async def in_sqlite_by_a_loop(branches: BranchStore) -> AsyncIterator[Any]:
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        yield branching(saver, branches)


@pytest.mark.parametrize(
    ("make", "count"),
    [(in_memory, 58), (able, 81), (in_sqlite, 58), (in_sqlite_by_a_loop, 58)],
)
def test_wrapped_checkpointers_conform(make: Callable[[BranchStore], AsyncIterator[Any]], count: int) -> None:
    @checkpointer_test(name=make.__name__)
    async def wrapped() -> AsyncIterator[Any]:
        with bm.open_temporary() as store:
            async for saver in make(BranchStore(store)):
                yield saver

    report = asyncio.run(validate(wrapped))
    failures = [failure for result in report.results.values() for failure in result.failures]
    assert (failures, sum(result.tests_passed for result in report.results.values())) == ([], count)
    assert report.passed_all_base()


def test_it_can_what_the_checkpointer_can_and_no_more() -> None:
    with bm.open_temporary() as store:
        plain, able = (branching(saver, BranchStore(store)) for saver in (InMemorySaver(), Able()))

        with pytest.raises(NotImplementedError):
            plain.copy_thread("a", "b")
        able.copy_thread("a", "b")
        assert plain.storage == {}
        assert plain.serde is plain.saver.serde


def talked(
    world: World, *turns: str, name: str = "t"
) -> tuple[CompiledStateGraph[State, None, State, State], list[Any]]:
    """A graph after some turns, and the checkpoint after each."""
    graph = world.graph(chat(echo))
    heads = []
    for turn in turns:
        world.invoke(graph, {"said": [turn]}, thread(name))
        heads.append(world.head(graph, thread(name)))
    return graph, heads


@pytest.fixture
def world() -> Iterator[Ours]:
    """A world whose checkpointer can do everything."""
    with bm.open_temporary() as store:
        branches = BranchStore(store, shared=[("profile",)])
        yield Ours(branches, branching(Able(), branches), None)


def opened(world: Ours) -> bm.Store:
    with world.store.opened({"configurable": {}}) as store:
        return store


def test_a_thread_that_is_deleted_takes_its_memories_with_it_for_good(world: Ours) -> None:
    talked(world, "secret one", "secret two")
    _, (kept,) = talked(world, "other", name="other")
    world.store.put(("profile",), "name", {"text": "Ann"})

    world.saver.delete_thread("t")

    assert not list(opened(world).log.find("secret"))
    assert world.notes(kept) == ["other"]
    assert got(world.store, ("profile",), "name").value == {"text": "Ann"}
    assert list(opened(world).refs) == ["langgraph/other"]
    _, (again,) = talked(world, "anew")
    assert world.notes(again) == ["anew"]


def test_a_copy_of_a_thread_has_its_memories_and_goes_its_own_way(world: Ours) -> None:
    graph, (_, second) = talked(world, "one", "two")
    with world.store.at(second):
        (item,) = [item for item in world.store.search(NOTES) if item.value["text"] == "one"]
        world.store.delete(NOTES, item.key)

    world.saver.copy_thread("t", "copy")
    copied = world.head(graph, thread("copy"))
    assert world.notes(copied) == ["two"]
    assert world.notes(world.history(graph, thread("copy"))[-2].config) == []

    world.invoke(graph, {"said": ["three"]}, thread("copy"))
    world.saver.delete_thread("t")
    assert world.notes(world.head(graph, thread("copy"))) == ["three", "two"]
    assert world.notes(copied) == ["two"]


def test_a_thread_that_is_copied_again_has_each_memory_once_and_its_ref_at_the_latest(world: Ours) -> None:
    graph, _ = talked(world, "one")
    for _ in range(2):
        world.saver.copy_thread("t", "copy")
    talked(world, "two")
    world.saver.copy_thread("t", "copy")
    world.saver.copy_thread("t", "t")

    assert world.notes(world.head(graph, thread("copy"))) == ["one", "two"]
    texts = {name: [memory.text for memory in opened(world).at_ref(name).memories()] for name in opened(world).refs}
    assert texts == {f"langgraph/{name}": ['{"text": "one"}', '{"text": "two"}'] for name in ("copy", "t")}


def test_a_copy_that_is_copied_back_brings_nothing_back_that_was_deleted_since_or_restored(world: Ours) -> None:
    graph, (_, second) = talked(world, "one", "two")
    store = opened(world)
    one, two = store.at_ref("langgraph/t").memories()
    place = store.refs["langgraph/t"]
    store.append([Retraction("taken back", place, scope="branch", memories=[two.id])])
    world.saver.copy_thread("t", "copy")
    store.append([Restoration("brought back", place, scope="branch", retraction="taken back")])
    with world.store.at(second):
        world.store.delete(NOTES, one.meta["key"])

    world.saver.copy_thread("copy", "t")

    assert world.notes(second) == ["two"]
    assert world.notes(world.head(graph, thread("copy"))) == ["one"]
    assert len(list(store.log.events(type="memory"))) == 4


def test_what_was_taken_back_everywhere_is_not_in_a_copy_and_what_was_brought_back_is(world: Ours) -> None:
    graph, (at,) = talked(world, "one")
    store = opened(world)
    place = store.refs["langgraph/t"]
    (memory,) = store.at(place)
    store.append([Retraction("r", place, scope="everywhere", memories=[memory])])
    world.saver.copy_thread("t", "copy")
    copied = world.head(graph, thread("copy"))
    assert (world.notes(at), world.notes(copied)) == ([], [])

    store.append([Restoration("s", place, scope="everywhere", retraction="r")])
    world.saver.copy_thread("t", "copy")
    assert (world.notes(at), world.notes(copied)) == (["one"], ["one"])


def test_pruning_leaves_what_was_derived_from_another_thread_as_well(world: Ours) -> None:
    talked(world, "one")
    talked(world, "other", name="u")
    store = opened(world)
    both = [store.refs["langgraph/t"], store.refs["langgraph/u"]]
    store.append([bm.Memory("both", "said in both", sources=both)])

    world.saver.prune(["t"])

    assert "both" in store.at(both)


@pytest.mark.parametrize("kind", SAVERS)
def test_a_checkpoint_that_is_copied_knows_what_the_original_knew_and_goes_its_own_way(kind: str) -> None:
    with ours(kind) as world:
        graph = world.graph(chat(echo))
        world.invoke(graph, {"said": ["one"]}, thread())
        head = world.head(graph, thread())
        copies = [world.update(graph, head, None, as_node="__copy__") for _ in range(2)]
        copies.append(world.update(graph, copies[0], None, as_node="__copy__"))

        assert [world.notes(each) for each in copies] == [["one"]] * 3
        answers = [world.invoke(graph, {"said": [f"x{n}"]}, each)["answers"][-1] for n, each in enumerate(copies)]
        assert answers == ["one,x0", "one,x1", "one,x2"]


def test_pruning_keeps_what_the_last_checkpoint_shows_and_erases_the_rest(world: Ours) -> None:
    graph, (first, second) = talked(world, "one", "two")
    world.invoke(graph, {"said": ["rejected"]}, first)
    world.invoke(graph, {"said": ["three"]}, second)
    head = world.head(graph, thread())

    world.saver.prune(["t"])

    assert world.notes(head) == ["one", "three", "two"]
    assert not list(opened(world).log.find("rejected"))
    world.invoke(graph, {"said": ["four"]}, thread())
    assert world.notes(world.head(graph, thread())) == ["four", "one", "three", "two"]

    world.saver.prune(["t"], strategy="delete")
    assert not [event for text in ("one", "four") for event in opened(world).log.find(f'"{text}"')]


def test_what_runs_remembered_goes_with_them(world: Ours) -> None:
    graph = world.graph(chat(echo))
    runs = {said: str(uuid4()) for said in ("one", "two")}
    for said, run in runs.items():
        config = {**thread(), "metadata": {"run_id": run}}
        world.invoke(graph, {"said": [said]}, config)
    head = world.head(graph, thread())

    world.saver.delete_for_runs([runs["one"]])

    assert world.notes(head) == ["two"]


def test_the_ref_of_a_thread_goes_back_where_its_latest_run_is_deleted(world: Ours) -> None:
    graph, (trunk,) = talked(world, "trunk")
    runs = [str(uuid4()), str(uuid4())]
    for said, run in zip("xy", runs, strict=True):
        world.invoke(graph, {"said": [said]}, {**trunk, "metadata": {"run_id": run}})

    world.saver.delete_for_runs([runs[1]])
    assert world.notes(world.head(graph, thread())) == ["trunk", "x"]
    assert sorted(memory.text for memory in opened(world).at_ref("langgraph/t").memories()) == [
        '{"text": "trunk"}',
        '{"text": "x"}',
    ]


def test_what_was_done_beside_a_failure_goes_with_the_run_as_well(world: Ours) -> None:
    def fails(state: State) -> dict[str, Any]:
        let_the_others_end()
        raise Flaky

    builder = chat(echo)
    builder.add_node("fails", fails)
    builder.add_edge(START, "fails")
    run = str(uuid4())
    with pytest.raises(Flaky):
        world.invoke(world.graph(builder), {"said": ["secret"]}, {**thread(), "metadata": {"run_id": run}})
    world.saver.delete_for_runs([run])

    assert opened(world).snapshot(lambda reader: list(reader.table("pending").items(b"")), tables=["pending"]) == []


@pytest.mark.parametrize(
    "delete",
    [
        lambda saver: saver.delete_thread("t"),
        lambda saver: saver.prune(["t"], strategy="delete"),
        lambda saver: asyncio.run(saver.aprune(["t"], strategy="delete")),
    ],
)
def test_a_thread_whose_memories_could_not_be_erased_is_still_there_to_be_deleted_again(
    delete: Callable[[Any], None], tmp_path: Path
) -> None:
    with bm.Pool(tmp_path) as pool:
        branches = BranchStore(pool, owner=lambda config: str(config["configurable"]["user"]))
        world = Ours(branches, branching(Able(), branches), None)
        world.invoke(world.graph(chat(echo)), {"said": ["secret"]}, {"configurable": {"thread_id": "t", "user": "ann"}})
        full = pytest.MonkeyPatch()
        full.setattr(pool, "open", partial(_fail, OSError("no space left on device")))
        with pytest.raises(OSError, match="no space"):
            delete(world.saver)
        full.undo()

        delete(world.saver)

        with pool.open("ann") as store:
            assert not list(store.log.find("secret"))


def _fail(error: Exception, *given: Any) -> None:
    raise error


def test_the_asynchronous_side_does_the_same(world: Ours) -> None:
    graph, (_, second) = talked(world, "one", "two")

    async def work() -> None:
        await world.saver.acopy_thread("t", "copy")
        await world.saver.aprune(["copy"])
        await world.saver.adelete_for_runs([])
        await world.saver.adelete_thread("t")

    asyncio.run(work())
    assert world.notes(world.head(graph, thread("copy"))) == ["one", "two"]
    assert world.notes(second) == []


def test_a_thread_that_was_there_before_is_learnt_with_all_its_checkpoints() -> None:
    saver = InMemorySaver()
    before = chat(lambda state: {"answers": ["yes"]}).compile(checkpointer=saver)
    for said in ("one", "two"):
        before.invoke({"said": [said]}, thread())
    (*_, early) = [each.config for each in before.get_state_history(thread()) if not each.next]
    with bm.open_temporary() as store:
        branches = BranchStore(store)
        world = World(branches, branching(saver, branches), None)
        graph = world.graph(chat(echo))
        world.invoke(graph, {"said": ["three"]}, thread())
        late = world.head(graph, thread())
        world.invoke(graph, {"said": ["x"]}, early)

        assert (world.notes(late), world.notes(world.head(graph, thread())), world.notes(early)) == (
            ["three"],
            ["x"],
            [],
        )
        assert store.tree.depth(store.refs["langgraph/t"]) == 6  # that of turn two, below which x stands alone
        assert len(store.tree.roots()) == 1


def test_a_thread_is_a_tree_with_a_ref_at_its_latest_checkpoint() -> None:
    with bm.open_temporary() as store, ours(store=store) as world:
        graph, (first, _) = talked(world, "one", "two")
        texts = [memory.text for memory in store.at_ref("langgraph/t").memories()]
        world.invoke(graph, {"said": ["other"]}, first)

        assert sorted(texts) == ['{"text": "one"}', '{"text": "two"}']
        assert len(store.at_ref("langgraph/t")) == 2
        report = store.check()
        assert (report.orphans, report.dangling, report.unplaced, report.unshowable) == ({}, {}, (), {})
