"""Logs of which one share is visible: conversations of one length, each seen from its two tips.

Nearly half of what was said in a conversation was given up for another reply, and over its last
fifth two branches go on side by side.  Conversations are interleaved at random,
so what a tip sees is strewn over the log.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import branchmem as bm

from bench import shapes
from bench.shapes import ROOT, Work
from bench.workbench import Unequal

TRUNK: Final = 0.8  # of what a tip sees; the rest stands on its own branch
SOURCES: Final = (1, 3)


@dataclass(frozen=True)
class Tips:
    """A work, its tips as messages, and how many memories each of them sees."""

    work: Work
    tips: tuple[int, ...]
    seen: int

    @property
    def share(self) -> str:
        """What a tip sees of all memories, as in `10 %`."""
        return f"{100 * self.seen / len(self.work.sources):.2g} %"

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the tips."""
        return [self.work.message_ids[tip] for tip in self.tips]

    def description(self, store: bm.Store) -> dict[str, Any]:
        """What was measured, for the head of the table.  Raises: Unequal, where a tip shows another share."""
        memories = len(self.work.sources)
        if list(store.memory_ids) != self.work.memory_ids or {len(store.at(id)) for id in self.ids} != {self.seen}:
            raise Unequal(f"{self.work.name}: not every tip shows {self.seen} of {memories} memories")
        return {
            "work": self.work.name,
            "messages": len(self.work.parents),
            "trees": self.work.parents.count(ROOT),
            "memories": memories,
            "tips": len(self.tips),
            "visible": round(self.seen / memories, 5),
        }

    def events(self, texts: Sequence[str], said: Sequence[str] | None = None) -> Iterator[bm.Message | bm.Memory]:
        """All events in order of arrival: memories with these texts by ordinal, messages with what was said."""
        remembered, spoken = iter(texts), iter(said or ())
        for event in self.work.events():
            if isinstance(event, bm.Memory):
                yield bm.Memory(event.id, next(remembered), sources=event.sources)
            else:
                yield bm.Message(event.id, event.parent, role="user", text=next(spoken, None))


def tips(share: float, count: int, *, each: int = 1) -> Tips:
    """About `count` memories, `each` from every message, of which a tip sees this share.

    The deepest source of a memory is its message; up to two others stand above it.
    """
    rng = random.Random(f"{shapes.SEED} tips {share} {count} {each}")
    messages = count // each
    seen = max(2, round(share * messages))
    conversations = [_conversation(seen, rng) for _ in range(max(1, round(messages / (2 * seen))))]
    turns = [number for number, parents in enumerate(conversations) for _ in parents]
    rng.shuffle(turns)
    parents: list[int] = []
    places: list[list[int]] = [[] for _ in conversations]
    for number in turns:
        place = places[number]
        above = conversations[number][len(place)]
        place.append(len(parents))
        parents.append(ROOT if above == ROOT else place[above])
    sources = [_sources(parents, message, rng) for message in range(len(parents)) for _ in range(each)]
    work = Work(
        shape=f"tips-{100 * share:g}%",
        parents=parents,
        sources=sources,
        message_ids=[shapes.random_id(rng) for _ in parents],
        memory_ids=[shapes.random_id(rng) for _ in sources],
    )
    above_another = set(parents)
    depth = shapes.depths(parents)
    found = [message for message in range(len(parents)) if message not in above_another and depth[message] == seen - 1]
    rng.shuffle(found)
    return Tips(work, tuple(found), seen * each)


def _conversation(seen: int, rng: random.Random) -> list[int]:
    """Parents within one conversation whose tips have `seen` messages on their path."""
    parents = [ROOT]
    last = 0
    trunk = max(1, int(TRUNK * seen))
    for _ in range(trunk - 1):
        parents += [last, last]
        last = len(parents) - rng.choice((1, 2))
    branches = [last, last]
    turns = [0, 1] * (seen - trunk)
    rng.shuffle(turns)
    for branch in turns:
        parents.append(branches[branch])
        branches[branch] = len(parents) - 1
    return parents


def _sources(parents: Sequence[int], message: int, rng: random.Random) -> tuple[int, ...]:
    found = [message]
    for _ in range(rng.randint(*SOURCES) - 1):
        found.append(shapes.climb(parents, found[-1], rng.randint(*shapes.GAP)))
    return tuple(dict.fromkeys(found))
