"""A merge that is planned and not written: over any engine, at the cost of what the two branches see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import branchmem as bm
import pytest
from branchmem.events import Event
from branchmem.merge import World, plan, plan_merge

BRANCHES: list[Event] = [
    bm.Message("chat", None),
    bm.Message("l", "chat"),
    bm.Message("r", "chat"),
    bm.Memory("name", "Li", sources=["chat"]),
    *(bm.Memory(f"l{number}", f"left {number}", sources=["l"]) for number in range(20)),
    *(bm.Memory(f"r{number}", f"right {number}", sources=["r"], key=f"k{number}") for number in range(20)),
]


class Counted(bm.Engine):
    """An engine without a file that keeps bodies, and notes what is read of it."""

    def __init__(self, events: list[Event]) -> None:
        super().__init__()
        self.add(events)
        self.bodies = {event.id: event for event in events}
        self.read: Counter[str] = Counter()

    def skeleton(self, id: str) -> dict[str, Any]:
        self.read["skeleton"] += 1
        return super().skeleton(id)

    def memories_from(self, source: str) -> list[str]:
        self.read["source"] += 1
        return super().memories_from(source)

    def memory(self, id: str) -> bm.Memory:
        self.read["content"] += 1
        memory = self.bodies[id]
        assert isinstance(memory, bm.Memory)
        return memory


@pytest.fixture
def store() -> Iterator[bm.Store]:
    with bm.open_temporary() as store:
        store.append(BRANCHES)
        store.refs.create("left", "l")
        store.refs.create("right", "r")
        yield store


def test_an_engine_without_a_file_plans_what_a_store_does(store: bm.Store) -> None:
    trial = Counted(BRANCHES)

    planned = plan_merge(World(trial, trial.memory), "l", "r")

    assert planned == plan_merge(World.of(store), "l", "r")
    done = store.merge("left", into="right")
    assert (planned.events, planned.after, dict(planned.adopted)) == (done.events, done.after, done.adopted)
    trial.add(planned.events)
    assert trial.at(planned.after).ids() == store.at(done.after).ids()


def test_what_is_not_in_the_engine_yet_can_be_planned_with(store: bm.Store) -> None:
    arriving = bm.Memory("arriving", "from afar", sources=["a root of its own"])

    planned = plan(World.of(store, [arriving]), ["arriving"], "r")

    assert planned.adopted.keys() == {"arriving"}
    assert "arriving" not in store.log
    store.append([bm.Message("a root of its own", None), arriving, *planned.events])
    assert planned.adopted["arriving"] in store.at(planned.after)


def test_a_plan_with_open_conflicts_holds_no_events(store: bm.Store) -> None:
    store.append([bm.Memory("rival", "no", sources=["l"], key="k3")])

    planned = plan_merge(World.of(store), "l", "r", "fail")

    assert [one.theirs.id for one in planned.undecided] == ["rival"]
    assert (planned.events, planned.after, planned.message) == ((), "r", None)


def test_planning_does_not_read_what_neither_branch_sees() -> None:
    elsewhere: list[Event] = [bm.Message("other", "chat"), bm.Message("tree", None)]
    elsewhere += [bm.Memory(f"o{number}", "same", sources=["other"]) for number in range(3000)]
    elsewhere += [bm.Memory(f"t{number}", "same", sources=["tree"], key=f"k{number}") for number in range(3000)]
    small, large = Counted(BRANCHES), Counted([*BRANCHES, *elsewhere])

    for trial in (small, large):
        planned = plan_merge(World(trial, trial.memory), "l", "r", "newer")
        assert len(planned.adopted) == 20

    assert small.read == large.read
    assert small.read["content"] <= 45
    assert small.read["skeleton"] <= 90


def test_merging_again_reads_no_more_than_copies_and_originals() -> None:
    trial = Counted(BRANCHES)
    planned = plan_merge(World(trial, trial.memory), "l", "r")
    trial.add(planned.events)
    trial.bodies |= {event.id: event for event in planned.events}
    trial.read.clear()

    again = plan_merge(World(trial, trial.memory), "l", planned.after)

    assert (again.message, len(again.skipped)) == (None, 20)
    assert trial.read["content"] <= 40, (
        "at most the originals and their copies, to tell that these are no more than that"
    )


def test_two_worlds_in_another_order_of_arrival_plan_the_same() -> None:
    one, other = Counted(BRANCHES), Counted(BRANCHES[::-1])

    assert plan_merge(World(one, one.memory), "l", "r") == plan_merge(World(other, other.memory), "l", "r")
