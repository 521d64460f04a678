"""What only one branch saw is what goes with it: nothing that another ref leads to is touched."""

from __future__ import annotations

import random
from collections.abc import Iterator

import branchmem as bm
import pytest
from branchmem.events import Erasure
from branchmem.worktree.removal import only_seen_by


@pytest.fixture
def store() -> Iterator[bm.Store]:
    with bm.open_temporary() as opened:
        yield opened


def grow(store: bm.Store, *links: str) -> None:
    """Append messages, each written as `parent/id`."""
    pairs = (link.split("/") for link in links)
    store.append([bm.Message(id, parent or None) for parent, id in pairs])


def test_what_hangs_above_a_fork_is_not_the_branchs_alone(store: bm.Store) -> None:
    grow(store, "/root", "root/m1", "m1/m2", "m1/f1", "f1/f2")
    store.refs.create("main", "m2")
    store.refs.create("feature", "f2")

    assert only_seen_by(store, "feature").messages == ("f1", "f2")
    assert only_seen_by(store, "main").messages == ("m2",)


def test_attempts_that_a_branch_left_are_its_own(store: bm.Store) -> None:
    grow(store, "/root", "root/m1", "m1/try", "try/below", "m1/f1")
    store.refs.create("main", "m1")
    store.refs.create("feature", "m1")
    store.refs.move("feature", "try")
    store.refs.move("feature", "f1")

    assert only_seen_by(store, "feature").messages == ("try", "below", "f1")
    assert only_seen_by(store, "main").messages == ()


def test_what_another_ref_led_to_before_is_kept(store: bm.Store) -> None:
    grow(store, "/root", "root/m1", "m1/m2", "m2/f1")
    store.refs.create("main", "m2")
    store.refs.create("feature", "f1")
    store.refs.move("main", "m1")  # may be undone

    assert only_seen_by(store, "feature").messages == ("f1",)


def test_what_a_deleted_ref_led_to_is_not(store: bm.Store) -> None:
    grow(store, "/root", "root/m1", "m1/f1", "f1/f2")
    store.refs.create("main", "m1")
    store.refs.create("topic", "f1")
    store.refs.create("feature", "f2")
    assert only_seen_by(store, "feature").messages == ("f2",)

    store.refs.delete("topic")

    assert only_seen_by(store, "feature").messages == ("f1", "f2")


def test_a_look_at_another_conversation_does_not_make_it_the_branchs(store: bm.Store) -> None:
    grow(store, "/root", "root/f1", "/chat", "chat/c1")
    store.refs.create("main", "root")
    store.refs.create("feature", "f1")
    store.refs.move("feature", "c1")
    store.refs.move("feature", "f1")

    assert only_seen_by(store, "feature").messages == ("f1",)


def test_memories_go_by_their_effective_sources(store: bm.Store) -> None:
    grow(store, "/root", "root/m1", "m1/m2", "m1/f1")
    store.refs.create("main", "m2")
    store.refs.create("feature", "f1")
    store.append(
        [
            bm.Memory("ours", "", sources=["m2"]),
            bm.Memory("above", "", sources=["m1"]),
            bm.Memory("theirs", "", sources=["f1"]),
            bm.Memory("both", "", sources=["m2", "f1"]),
            bm.Memory("derived", "", sources=["m2"], derived_from=["theirs"]),
            bm.Memory("taken over", "", sources=["m2"], adopts="theirs"),
            bm.Memory("from taken over", "", derived_from=["taken over"]),
            bm.Memory("newer", "", sources=["m2"], supersedes=["theirs"]),
            bm.Memory("circle-1", "", derived_from=["circle-2"]),
            bm.Memory("circle-2", "", sources=["f1"], derived_from=["circle-1"]),
        ]
    )

    seen = only_seen_by(store, "feature")

    assert seen.memories == ("theirs", "both", "derived", "circle-1", "circle-2")
    assert seen.adopted == ("taken over", "from taken over")


def test_what_was_erased_before_is_not_named_again(store: bm.Store) -> None:
    grow(store, "/root", "root/f1", "f1/f2")
    store.refs.create("main", "root")
    store.refs.create("feature", "f2")
    store.append([bm.Memory("a", "", sources=["f1"]), bm.Memory("b", "", derived_from=["a"])])
    store.append([Erasure("gone", ["f1", "a"], cascade=False)])

    seen = only_seen_by(store, "feature")

    assert (seen.messages, seen.memories) == (("f2",), ("b",))


def test_an_erasure_names_what_one_event_can_name(store: bm.Store) -> None:
    grow(store, "/root", "root/f0", *(f"f{at}/f{at + 1}" for at in range(4_999)))
    store.append([bm.Memory(f"m{at}", "", sources=[f"f{at}"]) for at in range(100)])
    store.refs.create("main", "root")
    store.refs.create("feature", "f4999")

    erasures = only_seen_by(store, "feature").erasures(["given"])

    assert erasures[0].id == "given"
    assert [(len(event.targets), event.cascade) for event in erasures] == [(4_096, False), (1_004, False)]


@pytest.mark.parametrize("seed", range(40))
def test_nothing_that_another_ref_leads_to_is_touched(store: bm.Store, seed: int) -> None:
    chance = random.Random(seed)
    parents: dict[str, str | None] = {"t0": None, "t1": None}
    for at in range(chance.randrange(5, 60)):
        parents[f"m{at}"] = chance.choice(list(parents))
    store.append([bm.Message(id, parent) for id, parent in parents.items()])
    memories: dict[str, tuple[list[str], list[str], str | None]] = {}
    for at in range(chance.randrange(40)):
        upstream = chance.sample(list(memories), min(len(memories), chance.choice((0, 0, 1, 2))))
        adopts = chance.choice(list(memories)) if memories and chance.random() < 0.3 else None
        memories[f"x{at}"] = (chance.sample(list(parents), chance.choice((1, 1, 2))), upstream, adopts)
    store.append(
        [
            bm.Memory(id, "", sources=sources, derived_from=upstream, adopts=adopts)
            for id, (sources, upstream, adopts) in memories.items()
        ]
    )
    names = [f"r{at}" for at in range(chance.randrange(1, 6))]
    for name in names:
        store.refs.create(name, chance.choice(list(parents)))
    for _ in range(chance.randrange(10)):
        store.refs.move(chance.choice(names), chance.choice(list(parents)))
    name, others = names[0], names[1:]
    before = {other: set(store.at_ref(other)) for other in others}

    seen = only_seen_by(store, name)

    def path(id: str | None) -> set[str]:
        return set() if id is None else {id} | path(parents[id])

    def effective(id: str) -> set[str]:
        sources, upstream, _ = memories[id]
        return set(sources).union(*map(effective, upstream))

    def led(ref: str) -> set[str]:
        stood = {id for move in store.refs.log(ref) for id in (move.before, move.after) if id is not None}
        return {id for id in stood if ref != name or path(id) & path(store.refs[name]) & {"t0", "t1"}}

    kept = set().union(*(path(id) for other in others for id in led(other)))
    alone = set().union(*map(path, led(name))) - kept
    gone = {id for id in parents if path(id) & alone}
    assert set(seen.messages) == gone, f"seed {seed}"
    assert set(seen.memories) == {id for id in memories if effective(id) & gone}, f"seed {seed}"
    assert not gone & kept, f"seed {seed}"

    store.append(seen.erasures([]))

    assert {other: set(store.at_ref(other)) for other in others} == before, f"seed {seed}"
