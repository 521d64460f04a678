"""What is taken back, lifted and replaced, on the conversations of `shapes`.

A changed work is a work whose memories may derive from each other, bear keys and
replace each other, with retractions and restorations among its events.  Everything
follows from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Final, Literal

import branchmem as bm
from branchmem.events import Event, Restoration, Retraction

from bench import shapes
from bench.shapes import ROOT, SEED, Work
from bench.tour import Tour

Scope = Literal["branch", "tree", "everywhere"]

SCOPES: Final[dict[Scope, float]] = {"branch": 0.80, "tree": 0.15, "everywhere": 0.05}
NAMES: Final = {"memories": 0.50, "sources": 0.25, "keys": 0.25}  # what a retraction names
STANDING: Final = 0.2  # share of the retractions by key
LIFTED: Final = 0.05  # share of the retractions that are restored, on a branch or in a tree
NAMED: Final = (1, 3)  # memories that a retraction names
KEYS: Final = 300
KEYED: Final = 0.5  # share of memories with a key
DERIVED: Final = 0.15  # share of memories that derive from one or two others
NEAR: Final = 20  # among so many above a memory are those that it derives from
SEEN: Final = 100  # among so many above a message is what a retraction there names
LOOKED_BACK: Final = 50  # messages above a retraction, among which is the one that it corrects
LIFTED_WITHIN: Final = 2_000  # messages of the log after a retraction's place, among which stands what lifts it
SUBJECTS: Final = 5  # a tree, where every memory is a version


@dataclass(frozen=True, slots=True)
class Lift:
    """A restoration: the message at which it stands, and where it is in effect."""

    id: str
    at: int
    scope: Scope
    arrives: int


@dataclass(frozen=True, slots=True)
class Taking:
    """A retraction by numbers of messages and memories; it arrives after that message and what hangs on it."""

    id: str
    at: int
    scope: Scope
    arrives: int
    memories: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    key: str | None = None
    standing: bool = False
    lifts: tuple[Lift, ...] = ()


@dataclass(frozen=True)
class ChangedWork:
    """A work and what changes its views; `derived[i]` and `replaces[i]` are the memories that memory i names."""

    kind: str
    work: Work
    derived: Mapping[int, tuple[int, ...]]
    keys: Mapping[int, str]
    replaces: Mapping[int, tuple[int, ...]]
    takings: Sequence[Taking] = ()

    @property
    def name(self) -> str:
        """Kind and size, as in `retracted/100k`; the size is the number of memories."""
        return f"{self.kind}/{shapes.size_name(len(self.work.memory_ids))}"

    @cached_property
    def tour(self) -> Tour:
        """Of the messages, and what decides each memory by its own sources."""
        return Tour.of(self.work)

    def without(self) -> ChangedWork:
        """The same with nothing taken back and nothing replaced."""
        return replace(self, replaces={}, takings=())

    def among(self, messages: Sequence[int]) -> ChangedWork:
        """What stands on these messages alone, ascending and with all that is above each; nothing taken back."""
        work = self.work
        message_of = {message: at for at, message in enumerate(messages)} | {ROOT: ROOT}
        memories = [memory for memory, sources in enumerate(work.sources) if message_of.keys() >= set(sources)]
        memory_of = {memory: at for at, memory in enumerate(memories)}

        def named(by: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
            inner = {memory_of[memory]: others for memory, others in by.items() if memory in memory_of}
            return {memory: tuple(memory_of[other] for other in others) for memory, others in inner.items()}

        inner = Work(
            shape=work.shape,
            parents=[message_of[work.parents[message]] for message in messages],
            sources=[tuple(message_of[source] for source in work.sources[memory]) for memory in memories],
            message_ids=[work.message_ids[message] for message in messages],
            memory_ids=[work.memory_ids[memory] for memory in memories],
        )
        keys = {memory_of[memory]: key for memory, key in self.keys.items() if memory in memory_of}
        return ChangedWork(self.kind, inner, named(self.derived), keys, named(self.replaces))

    def events(self) -> Iterator[Event]:
        """All events in order of arrival, made as they are asked for."""
        changes: dict[int, list[Event]] = {}
        for taking in self.takings:
            changes.setdefault(taking.arrives, []).append(self.retraction(taking))
            for lift in taking.lifts:
                changes.setdefault(lift.arrives, []).append(self.restoration(taking, lift))
        ids = self.work.memory_ids
        message, memory = -1, 0
        for event in self.work.events():
            if isinstance(event, bm.Message):
                yield from changes.get(message, ())
                message += 1
                yield event
                continue
            yield bm.Memory(
                event.id,
                event.text,
                sources=event.sources,
                derived_from=[ids[up] for up in self.derived.get(memory, ())],
                supersedes=[ids[old] for old in self.replaces.get(memory, ())],
                key=self.keys.get(memory),
            )
            memory += 1
        yield from changes.get(message, ())

    def retraction(self, taking: Taking) -> Retraction:
        """The event."""
        work = self.work
        return Retraction(
            taking.id,
            work.message_ids[taking.at],
            scope=taking.scope,
            memories=[work.memory_ids[memory] for memory in taking.memories],
            sources=[work.message_ids[message] for message in taking.sources],
            keys=[] if taking.key is None else [taking.key],
            standing=taking.standing,
        )

    def restoration(self, taking: Taking, lift: Lift) -> Restoration:
        """The event."""
        at = self.work.message_ids[lift.at]
        return Restoration(lift.id, at, scope=lift.scope, retraction=taking.id)


class _Hanging:
    """The memories on each message, by the deepest of their sources."""

    def __init__(self, work: Work, tour: Tour) -> None:
        self.parents = work.parents
        self.on: dict[int, list[int]] = {}
        for memory, message in enumerate(tour.deepest):
            if message is not None:
                self.on.setdefault(message, []).append(memory)

    def upwards(self, message: int) -> Iterator[int]:
        """What hangs on the path of a message, nearest first."""
        while message != ROOT:
            yield from reversed(self.on.get(message, ()))
            message = self.parents[message]


def retracted(count: int, shape: str = "chats", kind: str = "retracted") -> ChangedWork:
    """Keys, derivations, and a retraction for every ten messages, at random ones, of what can be seen from there."""
    work = shapes.work(shape, count)
    tour = Tour.of(work)
    rng = random.Random(f"{SEED} {kind} {count}")
    hanging = _Hanging(work, tour)
    keys = {memory: f"subject-{rng.randrange(KEYS)}" for memory in range(count) if rng.random() < KEYED}
    derived = {}
    for memory, message in enumerate(tour.deepest):
        if message is not None and rng.random() < DERIVED:
            ups = [up for up in islice(hanging.upwards(message), NEAR) if up < memory]
            if ups:
                derived[memory] = tuple(dict.fromkeys(rng.choices(ups, k=rng.randint(1, 2))))
    bare = ChangedWork(kind, work, derived, keys, {})
    takings = [_taking(bare, tour, hanging, rng) for _ in range(count // 10)]
    return replace(bare, takings=takings)


def _taking(bare: ChangedWork, tour: Tour, hanging: _Hanging, rng: random.Random) -> Taking:
    work = bare.work
    at = rng.randrange(len(work.parents))
    arrives = rng.randrange(at, len(work.parents))
    scope = rng.choices(list(SCOPES), list(SCOPES.values()))[0]
    lifts = []
    if rng.random() < LIFTED:
        beside = range(at, min(at + LIFTED_WITHIN, len(work.parents)))
        places = [message for message in beside if tour.tree[message] == tour.tree[at]]
        place = rng.choice(places)
        lifts.append(Lift(shapes.random_id(rng), place, rng.choice(("branch", "tree")), max(place, arrives)))
    taking = Taking(shapes.random_id(rng), at, scope, arrives, lifts=tuple(lifts))
    seen = list(islice(hanging.upwards(at), SEEN))
    subjects = [bare.keys[memory] for memory in seen if memory in bare.keys]
    by = rng.choices(list(NAMES), list(NAMES.values()))[0]
    if by == "memories" and seen:
        return replace(taking, memories=tuple(dict.fromkeys(rng.choices(seen, k=rng.randint(*NAMED)))))
    if by == "keys" and subjects:
        return replace(taking, key=rng.choice(subjects), standing=rng.random() < STANDING)
    return replace(taking, sources=(shapes.climb(work.parents, at, rng.randrange(LOOKED_BACK)),))


def hot_key(count: int) -> ChangedWork:
    """Half the memories of the first tree bear one key, which is retracted on its branches: once for ten messages."""
    work = shapes.work("chats", count)
    tour = Tour.of(work)
    rng = random.Random(f"{SEED} hot {count}")
    own = [message for message, tree in enumerate(tour.tree) if tree == 0]
    of_tree = [memory for memory, sources in enumerate(work.sources) if tour.tree[sources[0]] == 0]
    keys = {memory: "hot" for memory in of_tree if rng.random() < KEYED}
    last = len(work.parents) - 1
    takings = [Taking(shapes.random_id(rng), rng.choice(own), "branch", last, key="hot") for _ in range(count // 10)]
    return ChangedWork("hot-key", work, {}, keys, {}, takings)


def versions(count: int, shape: str = "chats") -> ChangedWork:
    """Every memory is about one of a few subjects of its tree, and replaces the version before it on its path."""
    work = shapes.work(shape, count)
    tour = Tour.of(work)
    rng = random.Random(f"{SEED} versions {count}")
    hanging = _Hanging(work, tour)
    subject = [rng.randrange(SUBJECTS) for _ in range(count)]
    replaces = {}
    for memory, message in enumerate(tour.deepest):
        if message is not None:
            older = (old for old in hanging.upwards(message) if old < memory and subject[old] == subject[memory])
            if (old := next(older, None)) is not None:
                replaces[memory] = (old,)
    return ChangedWork("versions", work, {}, {memory: f"subject-{at}" for memory, at in enumerate(subject)}, replaces)


def one_chain(kind: str, shape: str, count: int) -> ChangedWork:
    """One memory a message, each replacing the one that came before it."""
    rng = random.Random(f"{SEED} {kind} {count}")
    work = Work(
        shape=shape,
        parents=shapes.SHAPES[shape](count, rng),
        sources=[(message,) for message in range(count)],
        message_ids=[shapes.random_id(rng) for _ in range(count)],
        memory_ids=[shapes.random_id(rng) for _ in range(count)],
    )
    return ChangedWork(kind, work, {}, {}, {memory: (memory - 1,) for memory in range(1, count)})


def rivals(count: int) -> ChangedWork:
    """One memory a message, on siblings, each replacing the very first."""
    chain = one_chain("rivals", "star", count)
    return replace(chain, replaces=dict.fromkeys(range(1, count), (0,)))


#: By kind.
CHANGES: Final[dict[str, Callable[[int], ChangedWork]]] = {
    "retracted": retracted,
    "retracted-dense": partial(retracted, shape="dense", kind="retracted-dense"),
    "retracted-of-100": partial(retracted, shape="chats-of-100", kind="retracted-of-100"),
    "hot-key": hot_key,
    "versions": versions,
    "versions-on-siblings": partial(one_chain, "versions-on-siblings", "star"),
    "versions-on-a-path": partial(one_chain, "versions-on-a-path", "chain"),
    "rivals": rivals,
}
