"""Random logs: what a log can hold, and everything that goes wrong in one.

Forests with orphans, circles and legacy messages; memories derived, adopted and
replaced in chains and circles; retractions, restorations and erasures of what is
here, of what is not, and of what is of another type.  Most events name something
sensible, so that most memories show somewhere and each reason is met.

Events alone: what they mean is the business of engine and reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

import branchmem as bm
from branchmem.events import SCOPES, Erasure, Event, Restoration, Retraction

Batches = list[list[Event]]

MISSING: Final = "not here"
KEYS: Final = ("home", "Home", "a key that no small buffer holds, 住所")
# Where bytes, code points and lengths of ids could be told apart.
_PREFIXES: Final = ("m", "M", "é", "ﬀ", "𝒳", "a long name that no small buffer holds ")
_SCOPE_WEIGHTS: Final = (5, 2, 1)


class Cast(NamedTuple):
    """The ids of a log by the type that bears them; `messages` are those of its trees."""

    messages: list[str]
    memories: list[str]
    retractions: list[str]
    restorations: list[str]
    erasures: list[str]

    def anything(self) -> list[str]:
        """Every id, and two that nothing bears."""
        return [*self.messages, *self.memories, *self.retractions, *self.restorations, *self.erasures, MISSING, "?"]


def forest(random: Random) -> list[Event]:
    """A random log: some 30 messages, some 12 memories, up to a dozen events that take back, restore and erase.

    One log in twelve has a dozen small trees, and memories with sources in all of them.
    """
    wide = random.random() < 1 / 12
    trees = list(_trees(random, *((9, 12, 3) if wide else (1, 3, 18))))
    numbered = {
        "memory": random.randint(10, 15),
        "retraction": random.choice((0, 1, 2, 3, 5)),
        "restoration": random.choice((0, 0, 1, 2, 4)),
        "erasure": random.choice((0, 0, 0, 1, 2)),
    }
    ids = ([f"{random.choice(_PREFIXES)} {type}{number}" for number in range(n)] for type, n in numbered.items())
    cast = Cast([message.id for message in trees], *ids)
    messages = [*trees, *_never_attached(random, cast)]
    return [
        *messages,
        *_memories(random, messages, cast, wide),
        *_retractions(random, cast),
        *_restorations(random, cast),
        *_erasures(random, cast),
    ]


def arrivals(random: Random, events: Sequence[Event]) -> Batches:
    """The events in shuffled order, some of them twice, in batches of random sizes."""
    arriving = [*events, *random.sample(events, len(events) // 8)]
    random.shuffle(arriving)
    batches = []
    while arriving:
        size = random.choice((1, 2, 5, 20, 100))
        batches.append(arriving[:size])
        del arriving[:size]
    return batches


def _trees(random: Random, fewest: int, most: int, size: int) -> Iterator[bm.Message]:
    for tree in range(random.randint(fewest, most)):
        name = f"{random.choice(_PREFIXES)}{tree}."
        grown = [bm.Message(f"{name}0", bm.LEGACY if random.random() < 0.2 else None)]
        for number in range(1, random.randint(min(size, 4), size)):
            parent = grown[-1] if random.random() < 0.55 else random.choice(grown)
            grown.append(bm.Message(f"{name}{number}", parent.id))
        yield from grown


def _never_attached(random: Random, cast: Cast) -> Iterator[bm.Message]:
    """Below a parent that is not here, below what is no message, in circles."""
    yield bm.Message("orphan", MISSING)
    for number in range(random.randint(0, 2)):
        yield bm.Message(f"orphan{number}", "orphan")
    yield bm.Message("astray", random.choice([*cast.memories, *cast.retractions, *cast.restorations, *cast.erasures]))
    yield from (bm.Message("x", "y"), bm.Message("y", "x"), bm.Message("below x", "x"), bm.Message("z", "z"))


def _memories(random: Random, messages: Sequence[bm.Message], cast: Cast, wide: bool) -> Iterator[bm.Memory]:
    """Mostly from one path, so that they show somewhere; mostly derived from earlier ones, so not all in circles."""
    parents = {message.id: message.parent for message in messages}
    anything = cast.anything()
    for number, id in enumerate(cast.memories):
        path = [random.choice(messages).id if random.random() < 0.1 else random.choice(cast.messages)]
        while len(path) < 40 and isinstance(parent := parents.get(path[-1]), str) and parent in parents:
            path.append(parent)
        if random.random() < 0.6:
            path = path[: random.randint(1, 3)]
        sources = random.choices(path, k=random.choice((0, 1, 1, 1, 1, 1, 2, 2, 3)))
        if wide and random.random() < 0.4:
            sources = random.sample(cast.messages, min(len(cast.messages), 12))
        earlier, previous = cast.memories[:number], cast.memories[max(0, number - 1) : number]
        derived_from = _named(random, previous, earlier, 0.3)
        supersedes = _named(random, previous, earlier, 0.3)
        adopts = _named(random, previous, earlier, 0.15)
        for chance, names, extra in (
            (0.15, cast.messages, sources),
            (0.04, [MISSING, "?"], sources),
            (0.03, anything, sources),
            (0.05, cast.memories[number : number + 3], derived_from),
            (0.03, [MISSING, "?", path[0]], derived_from),
            (0.08, cast.memories, supersedes),
            (0.15, earlier or anything, supersedes),
            (0.05, [id, *anything], supersedes),
            (0.03, [id, *anything], adopts),
        ):
            if random.random() < chance:
                extra.append(random.choice(names))
        yield bm.Memory(
            id,
            f"text of {id}",
            sources=sources,
            derived_from=derived_from,
            supersedes=supersedes,
            adopts=adopts[-1] if adopts else None,
            key=random.choice(KEYS) if random.random() < 0.6 else None,
        )


def _named(random: Random, previous: list[str], earlier: list[str], chance: float) -> list[str]:
    """With this chance one memory that came before, more often the one just before: so chains come about."""
    names = previous if random.random() < 0.6 else earlier
    return [random.choice(names)] if names and random.random() < chance else []


def _retractions(random: Random, cast: Cast) -> Iterator[Retraction]:
    anything = cast.anything()
    for id in cast.retractions:
        memories, sources, keys = list[str](), list[str](), list[str]()
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            named, usual = random.choices(
                ((memories, cast.memories), (sources, cast.messages), (keys, KEYS)), (4, 3, 3)
            )[0]
            odd = named is not keys and random.random() < 0.15
            named.append(random.choice(anything if odd else usual))
        yield Retraction(
            id,
            _place(random, cast, high=bool(keys)),
            scope=random.choices(SCOPES, _SCOPE_WEIGHTS)[0],
            memories=memories,
            sources=sources,
            keys=keys,
            standing=random.random() < 0.25,
            reason="private" if random.random() < 0.3 else None,
        )


def _restorations(random: Random, cast: Cast) -> Iterator[Restoration]:
    anything = cast.anything()
    for id in cast.restorations:
        lifted = random.choice(anything if random.random() < 0.1 else cast.retractions or anything)
        yield Restoration(id, _place(random, cast), scope=random.choices(SCOPES, _SCOPE_WEIGHTS)[0], retraction=lifted)


def _erasures(random: Random, cast: Cast) -> Iterator[Erasure]:
    anything = cast.anything()
    for id in cast.erasures:
        usual = random.choice((cast.messages, cast.memories))
        targets = [
            random.choice(anything if random.random() < 0.25 else usual) for _ in range(random.choice((1, 1, 2, 3)))
        ]
        yield Erasure(id, targets, cascade=random.random() < 0.65)


def _place(random: Random, cast: Cast, *, high: bool = False) -> str:
    """Mostly a message of a tree, where something is below it if it stands `high`; else what is no such message."""
    if random.random() < 0.1:
        return random.choice([*cast.anything(), "orphan", "astray", "x"])
    place = random.randrange(len(cast.messages))
    return cast.messages[max(0, place - random.randint(0, 8)) if high else place]
