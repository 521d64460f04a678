"""The conversations and memories that are measured: how they branch, what the memories came from.

A forest is a list of parents in order of arrival, -1 for a root; a work adds
memories and ids.  Everything follows from its seed: the same seed gives the
same events on every machine.  Events arrive as they would: a memory right after
the last of its sources, trees interleaved at random.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import branchmem as bm

SEED: Final = 20_240_607
ROOT: Final = -1

TREE: Final = 500  # messages a tree, so that 100,000 messages stand in 200 trees
BRANCHING: Final = 0.04  # share of chat messages that do not continue the latest one of their tree
MEAN_STEPS_BACK: Final = 3.64  # how far above the latest message a branch starts; gives a mean depth of 213
FORKS: Final = 0.01  # share of memories that get a source on a branch beside: no anchor shows them
REACH: Final = 50  # how far above its deepest source a memory looks for that branch
SOURCES: Final = (1, 5)
GAP: Final = (1, 8)  # messages from one source of a memory up to the next
DENSE_SHARE: Final = 0.30  # share of memories on one path: 29 % visible over the last tenth of it


@dataclass(frozen=True, slots=True)
class Work:
    """Messages, memories and ids to be measured; `sources[i]` are the messages of memory i."""

    shape: str
    parents: list[int]
    sources: list[tuple[int, ...]]
    message_ids: list[str]
    memory_ids: list[str]

    @property
    def name(self) -> str:
        """Shape and size, as in `chats/100k`; the size is the number of memories."""
        return f"{self.shape}/{size_name(len(self.sources))}"

    def events(self) -> Iterator[bm.Message | bm.Memory]:
        """All events in order of arrival, made as they are asked for."""
        written = 0
        for message, parent in enumerate(self.parents):
            above = None if parent == ROOT else self.message_ids[parent]
            yield bm.Message(self.message_ids[message], parent=above)
            while written < len(self.sources) and max(self.sources[written]) == message:
                sources = [self.message_ids[source] for source in self.sources[written]]
                yield bm.Memory(self.memory_ids[written], f"note {written}", sources=sources)
                written += 1


def size_name(count: int) -> str:
    """`100k` for 100,000, `1M` for 1,000,000, plain digits for what is not round."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{name}"
    return str(count)


def chain(count: int, rng: random.Random) -> list[int]:
    """One conversation without a branch: the deepest tree there is."""
    return list(range(ROOT, count - 1))


def star(count: int, rng: random.Random) -> list[int]:
    """One prompt, regenerated again and again: the broadest tree there is."""
    return [ROOT] + [0] * (count - 1)


def caterpillar(count: int, rng: random.Random) -> list[int]:
    """One long conversation with a dead reply beside every message of it, each written after it had gone on."""
    return [ROOT if message == 0 else max(0, message - (2 if message % 2 else 3)) for message in range(count)]


def regenerated(count: int, rng: random.Random) -> list[int]:
    """One long conversation whose tip is regenerated at every step: half of it is dead replies."""
    return _spine(count, dead=1)


def dead_ends(count: int, rng: random.Random) -> list[int]:
    """The same, with every reply that is given up answered once before."""
    return _spine(count, dead=2)


def scattered(count: int, rng: random.Random) -> list[int]:
    """A random recursive tree: every message answers any earlier one."""
    return [ROOT] + [rng.randrange(message) for message in range(1, count)]


def chats(count: int, rng: random.Random, tree: int = TREE) -> list[int]:
    """Trees of about so many messages, interleaved at random; 4 % of the messages start a branch.

    A branch starts a few messages (geometric, mean 3.64) above the latest
    message of its tree, as a regeneration or an edit does, and is what the
    conversation then goes on with.
    """
    latest = [ROOT] * max(1, count // tree)
    stay = 1 / MEAN_STEPS_BACK
    parents: list[int] = []
    for message in range(count):
        tree = rng.randrange(len(latest))
        parent = latest[tree]
        if parent != ROOT and rng.random() < BRANCHING:
            steps = 1 + int(math.log(1 - rng.random()) / math.log(1 - stay))
            parent = climb(parents, parent, steps)
        parents.append(parent)
        latest[tree] = message
    return parents


SHAPES: Final[dict[str, Callable[[int, random.Random], list[int]]]] = {
    "chats": chats,
    "dense": chats,
    "chats-of-100": partial(chats, tree=100),
    "chats-of-2k": partial(chats, tree=2_000),
    "chain": chain,
    "star": star,
    "caterpillar": caterpillar,
    "regenerated": regenerated,
    "dead-ends": dead_ends,
    "random": scattered,
}


def work(shape: str, count: int) -> Work:
    """`count` messages of this shape and as many memories, ids of 36 characters.

    The deepest source of a memory is any message, all alike; its other sources,
    0 to 4, stand 1 to 8 messages above each other.  In the shape `dense`, 30 %
    of the memories come from the path of one message (`crowded_path`).
    """
    rng = random.Random(f"{SEED} {shape} {count}")
    parents = SHAPES[shape](count, rng)
    deepest = [rng.randrange(count) for _ in range(count)]
    if shape == "dense":
        crowd = crowded_path(parents)
        for memory in range(count):
            if rng.random() < DENSE_SHARE:
                deepest[memory] = crowd[rng.randrange(len(crowd))]
    branches = _branches(parents)
    sources = sorted((_sources(parents, branches, message, rng) for message in deepest), key=max)
    return Work(
        shape=shape,
        parents=parents,
        sources=sources,
        message_ids=[random_id(rng) for _ in range(count)],
        memory_ids=[random_id(rng) for _ in range(count)],
    )


def anchors(work: Work, count: int) -> list[int]:
    """`count` random messages to stand at, with repeats where there are fewer.

    For `dense`, messages of the last tenth of the crowded path.
    """
    rng = random.Random(f"{SEED} anchors")
    choice: Sequence[int] = range(len(work.parents))
    if work.shape == "dense":
        crowd = crowded_path(work.parents)
        choice = crowd[-(len(crowd) // 10 or 1) :]
    return [choice[rng.randrange(len(choice))] for _ in range(count)]


def crowded_path(parents: Sequence[int]) -> list[int]:
    """The path of the deepest message, root first."""
    depth = depths(parents)
    path = [depth.index(max(depth))]
    while parents[path[-1]] != ROOT:
        path.append(parents[path[-1]])
    return path[::-1]


def depths(parents: Sequence[int]) -> list[int]:
    """Of every message, how many stand above it."""
    depth: list[int] = []
    for parent in parents:
        depth.append(0 if parent == ROOT else depth[parent] + 1)
    return depth


def random_id(rng: random.Random) -> str:
    """An id of 36 characters."""
    digits = f"{rng.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _spine(count: int, dead: int) -> list[int]:
    """A conversation in which every message is first answered by a branch of `dead` messages that is given up."""
    step = dead + 1
    return [ROOT if at == 0 else at - step if at % step == 0 else at - 1 for at in range(count)]


def _branches(parents: Sequence[int]) -> dict[int, list[int]]:
    """The children of every message that has several."""
    children: dict[int, list[int]] = {}
    for message, parent in enumerate(parents):
        if parent != ROOT:
            children.setdefault(parent, []).append(message)
    return {parent: below for parent, below in children.items() if len(below) > 1}


def _sources(
    parents: Sequence[int], branches: dict[int, list[int]], deepest: int, rng: random.Random
) -> tuple[int, ...]:
    sources = [deepest]
    for _ in range(rng.randint(*SOURCES) - 1):
        sources.append(climb(parents, sources[-1], rng.randint(*GAP)))
    if rng.random() < FORKS:
        message = deepest
        for _ in range(REACH):
            below, message = message, parents[message]
            if message in branches:
                sources.append(next(child for child in branches[message] if child != below))
            if message in branches or message == ROOT:
                break
    return tuple(dict.fromkeys(sources))


def climb(parents: Sequence[int], message: int, steps: int) -> int:
    """The message this many steps above, or the root."""
    while steps and parents[message] != ROOT:
        message = parents[message]
        steps -= 1
    return message
