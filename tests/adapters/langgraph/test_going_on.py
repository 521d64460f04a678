"""Who goes on from a checkpoint some of whose tasks are done: what those have put comes with their output, or goes."""

from __future__ import annotations

import contextvars
import operator
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import branchmem as bm
import pytest
from branchmem.adapters.langgraph import BranchStore, branching, commits
from branchmem.canonical import now
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from worlds import NOTES, Flaky, Node, Ours, State, World, chat, let_the_others_end, note, notes, once, ours, thread


def sees(state: State) -> dict[str, Any]:
    return {"answers": [",".join(notes())]}


def side_by_side(*nodes: Node, then: tuple[str, ...] = ()) -> StateGraph[State, None, State, State]:
    """A graph of nodes that run at once, and after them of some in a row that answer with what they see."""
    builder = StateGraph(State)
    names = [f"n{number}" for number in range(len(nodes))]
    for name, node in zip(names, nodes, strict=True):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    above: str | list[str] = names
    for name in then:
        builder.add_node(name, sees)
        builder.add_edge(above, name)
        above = name
    return builder


def half_done(world: World, graph: Any, said: str = "a") -> None:
    with pytest.raises(Flaky):
        world.invoke(graph, {"said": [said]}, thread())


def pending_in(store: bm.Store) -> list[Any]:
    """What no checkpoint has, or is kept for one that may come."""
    rows: list[Any] = store.snapshot(lambda reader: list(reader.table("pending").items(b"")), tables=["pending"])
    return rows


class Process(Ours):
    """A process of its own, as far as the adapter can tell: only the file and the checkpoints are common."""

    def __init__(self, store: bm.Store, saver: BaseCheckpointSaver[Any]) -> None:
        branches = BranchStore(store)
        super().__init__(branches, branching(saver, branches), None)


@pytest.mark.parametrize("are_apart", [False, True])
def test_two_that_resume_a_checkpoint_at_once_both_get_what_was_done_beside_the_failure(are_apart: bool) -> None:
    done: set[str] = set()
    is_slow: list[bool] = []
    inside, goes_on = threading.Event(), threading.Event()

    def left(state: State) -> dict[str, Any]:
        note("left")
        return {}

    def right(state: State) -> dict[str, Any]:
        let_the_others_end()
        once(done, "right")
        if is_slow and is_slow.pop():
            inside.set()
            assert goes_on.wait(20)
        return {}

    builder = side_by_side(left, right, then=("later", "last"))
    with bm.open_temporary() as store:
        saver = InMemorySaver()
        first = Process(store, saver)
        second = Process(store, saver) if are_apart else first
        half_done(first, first.graph(builder))
        is_slow.append(True)
        answers = []
        slow = threading.Thread(
            target=lambda: answers.append(second.invoke(second.graph(builder), None, thread())["answers"])
        )
        slow.start()
        assert inside.wait(20)
        answers.append(first.invoke(first.graph(builder), None, thread())["answers"])
        goes_on.set()
        slow.join()

        assert answers == [["left", "left"]] * 2
        assert second.notes(second.head(second.graph(builder), thread())) == ["left"]
        assert first.store.collect(older_than=timedelta(0)) == 0  # nothing is left over


class Raced(InMemorySaver):
    """Lets something happen after a run has loaded its checkpoint, once."""

    meanwhile: Callable[[], Any] | None = None

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        if self.meanwhile is not None and "__pregel_runtime" in config["configurable"]:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return found


def test_who_loads_a_checkpoint_while_another_goes_on_from_it_goes_on_from_there() -> None:
    done: set[str] = set()

    def left(state: State) -> dict[str, Any]:
        note("left")
        return {}

    def right(state: State) -> dict[str, Any]:
        let_the_others_end()
        once(done, "right")
        note("right")
        return {}

    builder = side_by_side(left, right, then=("later", "last"))
    with bm.open_temporary() as store:
        saver = Raced()
        first, second = Process(store, saver), Process(store, saver)
        half_done(first, first.graph(builder))
        saver.meanwhile = lambda: first.invoke(first.graph(builder), None, thread(), interrupt_before=["later"])

        assert second.invoke(second.graph(builder), None, thread())["answers"] == ["left,right"] * 2
        assert second.notes(second.head(second.graph(builder), thread())) == ["left", "right"]
        assert pending_in(store) == []


#: Whose run a node is of.
_RUN: contextvars.ContextVar[str] = contextvars.ContextVar("run")


@pytest.mark.parametrize("has_failed_before", [False, True])
def test_what_a_run_has_deleted_stays_so_for_it_while_another_resumes_the_same_checkpoint(
    has_failed_before: bool,
) -> None:
    seen: list[object] = []
    one_inside, other_inside, deleted, saved, over = (threading.Event() for _ in range(5))

    def left(state: State) -> dict[str, Any]:
        get_store().put(NOTES, "k", {"text": "old"})
        return {}

    def right(state: State) -> dict[str, Any]:
        let_the_others_end()
        if _RUN.get() == "failed":
            raise Flaky
        (one_inside if _RUN.get() == "one" else other_inside).set()
        assert (other_inside if _RUN.get() == "one" else deleted).wait(20)
        return {}

    def change(state: State) -> dict[str, Any]:
        if _RUN.get() == "one":
            get_store().delete(NOTES, "k")
        (deleted if _RUN.get() == "one" else saved).set()
        assert (saved if _RUN.get() == "one" else over).wait(20)
        return {}

    def look(state: State) -> dict[str, Any]:
        if _RUN.get() == "one":
            seen.append(get_store().get(NOTES, "k"))
        return {}

    builder = side_by_side(left, right, then=())
    builder.add_node("change", change)
    builder.add_node("look", look)
    builder.add_edge(["n0", "n1"], "change")
    builder.add_edge("change", "look")
    with ours() as world:
        graph = world.graph(builder)

        def go(name: str, given: Any) -> None:
            _RUN.set(name)
            world.invoke(graph, given, thread(), durability="sync")

        one = threading.Thread(target=go, args=("one", None if has_failed_before else {"said": ["a"]}))
        other = threading.Thread(target=go, args=("other", None))
        if has_failed_before:
            with pytest.raises(Flaky):
                contextvars.copy_context().run(go, "failed", {"said": ["a"]})
        else:
            one.start()
            assert one_inside.wait(20)
        other.start()
        assert other_inside.wait(20)
        if has_failed_before:
            one.start()
        one.join()
        over.set()
        other.join()

        assert seen == [None]


def test_who_fails_again_and_again_keeps_nothing_longer_than_it_is_needed() -> None:
    done: set[str] = set()

    def left(state: State) -> dict[str, Any]:
        note("left")
        return {}

    def right(state: State) -> dict[str, Any]:
        let_the_others_end()
        for time_of_failure in ("first", "second", "third"):
            once(done, time_of_failure)
        return {}

    with bm.open_temporary() as store, ours(store=store) as world:
        graph = world.graph(side_by_side(left, right, then=("later", "last")))
        half_done(world, graph)
        for _ in range(2):
            with pytest.raises(Flaky):
                world.invoke(graph, None, thread())
        assert world.invoke(graph, None, thread())["answers"] == ["left", "left"]

        assert pending_in(store) == []


def test_work_that_a_run_does_again_since_the_thread_has_moved_on_is_not_seen_before_it_is_done() -> None:
    seen: list[list[str]] = []
    ran: list[str] = []

    def ask(state: State) -> dict[str, Any]:
        interrupt("may I?")
        seen.append(notes())
        return {}

    def work(state: State) -> dict[str, Any]:
        ran.append(f"work {len(ran)}")
        note(ran[-1])
        return {}

    with ours() as world:
        graph = world.graph(side_by_side(ask, work))
        world.invoke(graph, {"said": ["a"]}, thread())
        asked = world.head(graph, thread())
        world.invoke(graph, Command(resume="yes"), thread())
        yes = world.head(graph, thread())
        world.invoke(graph, Command(resume="yes"), {**asked, "max_concurrency": 1})  # one after the other

        assert ran == ["work 0", "work 1"]
        assert seen == [["work 0"], []]
        assert (world.notes(yes), world.notes(world.head(graph, thread()))) == (["work 0"], ["work 1"])


def test_so_it_is_where_a_run_goes_back_to_an_update() -> None:
    seen: list[list[str]] = []
    ran: list[str] = []

    def fails(state: State) -> dict[str, Any]:
        seen.append(notes())
        if len(seen) == 1:
            let_the_others_end()
            raise Flaky
        return {}

    def work(state: State) -> dict[str, Any]:
        ran.append(f"work {len(ran)}")
        note(ran[-1])
        return {}

    with ours() as world:
        graph = world.graph(side_by_side(fails, work))
        update = world.update(graph, thread(), {"said": ["a"]}, as_node=START)
        with pytest.raises(Flaky):
            world.invoke(graph, None, update)
        world.invoke(graph, None, {**world.head(graph, thread()), "max_concurrency": 1})

        assert (ran, seen) == (["work 0", "work 1"], [[], []])
        assert world.notes(world.head(graph, thread())) == ["work 1"]


class Changes(TypedDict, total=False):
    said: Annotated[list[str], DeltaChannel(lambda known, given: known + [each for some in given for each in some])]
    answers: Annotated[list[str], operator.add]


@pytest.mark.parametrize("mode", ["sync", "exit"])
def test_new_input_drops_what_was_done_beside_a_failure_where_a_channel_keeps_changes(mode: str) -> None:
    done: set[str] = set()

    def left(state: Changes) -> dict[str, Any]:
        note(f"left {state['said'][-1]}")
        return {"answers": ["left"]}

    def right(state: Changes) -> dict[str, Any]:
        let_the_others_end()
        once(done, "right")
        return {}

    builder = StateGraph(Changes)
    for node in (left, right):
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
    with ours() as world:
        graph = world.graph(builder)
        with pytest.raises(Flaky):
            world.invoke(graph, {"said": ["a"]}, thread(), durability=mode)

        assert world.invoke(graph, {"said": ["b"]}, thread(), durability=mode)["answers"] == ["left"]
        assert world.notes(world.head(graph, thread())) == ["left b"]


def test_a_put_that_is_under_way_while_its_step_is_saved_is_not_lost() -> None:
    inside, goes_on = threading.Event(), threading.Event()
    started: list[threading.Thread] = []

    def clock() -> Any:
        if threading.current_thread() in started:  # the put knows where it stands, and is not written yet
            inside.set()
            assert goes_on.wait(20)
        return now()

    def answer(state: State) -> dict[str, Any]:
        started.append(threading.Thread(target=contextvars.copy_context().run, args=(note, "late")))
        started[0].start()
        assert inside.wait(20)
        return {}

    with ours(clock=clock) as world:
        graph = world.graph(chat(answer))
        world.invoke(graph, {"said": ["a"]}, thread())
        goes_on.set()
        started[0].join()

        assert world.notes(world.head(graph, thread())) == ["late"]


def test_what_is_read_late_while_its_step_is_saved_sees_what_the_step_has_put(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, goes_on = threading.Event(), threading.Event()
    started: list[threading.Thread] = []
    seen: list[list[str]] = []
    product_of = commits.product_of

    def looked(*given: Any) -> Any:
        found = product_of(*given)
        if threading.current_thread() in started:
            inside.set()
            assert goes_on.wait(20)
        return found

    def answer(state: State) -> dict[str, Any]:
        note("a")
        reads = contextvars.copy_context()
        started.append(threading.Thread(target=lambda: seen.append(reads.run(notes))))
        started[0].start()
        assert inside.wait(20)
        return {}

    monkeypatch.setattr(commits, "product_of", looked)
    with ours() as world:
        world.invoke(world.graph(chat(answer)), {"said": ["a"]}, thread())
        goes_on.set()
        started[0].join()

        assert seen == [["a"]]


def test_a_run_that_another_has_passed_still_saves_what_it_has_put_itself() -> None:
    ran: list[str] = []
    left_is_done, goes_on = threading.Event(), threading.Event()

    def left(state: State) -> dict[str, Any]:
        ran.append("left")
        note("left")
        return {}

    def right(state: State) -> dict[str, Any]:
        assert _RUN.get() == "other" or goes_on.wait(20)
        return {}

    class Told(InMemorySaver):
        def put_writes(self, *given: Any) -> None:
            super().put_writes(*given)
            if ran:
                left_is_done.set()

    with bm.open_temporary() as store:
        world = Process(store, Told())
        graph = world.graph(side_by_side(left, right, then=("later", "last")))

        def go(name: str, given: Any) -> None:
            _RUN.set(name)
            answered.append(world.invoke(graph, given, thread(), durability="sync")["answers"])

        answered: list[list[str]] = []
        slow = threading.Thread(target=go, args=("slow", {"said": ["a"]}))
        slow.start()
        assert left_is_done.wait(20)
        go("other", None)
        goes_on.set()
        slow.join()

        assert (ran, answered) == (["left"], [["left", "left"]] * 2)
        assert world.notes(world.head(graph, thread())) == ["left"]
        assert pending_in(store) == []
