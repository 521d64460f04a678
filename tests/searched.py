"""Logs that are searched: conversations with memories that say something, and where one stands in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, get_args

import branchmem as bm
from branchmem.events import Erasure, Event, Restoration, Retraction, Scope
from searching import NOW, written

KINDS = ("fact", "profile", "taste")
KEYS = ("home", "drink", None)
NUMBERS = (0, 1, 2, 2.0, 2.5, -3, 2**53, 2**53 + 1, float(2**53))
VALUES: tuple[Any, ...] = (
    *NUMBERS,
    "",
    "a",
    "ab",
    "é",
    True,
    False,
    None,
    [1],
    [1.0],
    ["a", {"b": 2}],
    {"a": 1},
    {"a": {"b": 2}},
    [],
)


def conversations(random: Random) -> list[Event]:
    """Two trees; some fifty memories, most of them visible somewhere; some replaced, adopted, taken back or erased."""
    events: list[Event] = [bm.Message("r0", None), bm.Message("r1", None)]
    messages = ["r0", "r1"]
    for number in range(random.randint(2, 10)):
        events.append(bm.Message(f"m{number}", random.choice(messages[-3:])))
        messages.append(f"m{number}")
    memories: list[str] = []
    for number in range(random.choice((5, 20, 50, 50, 130))):
        earlier = random.choices(memories, k=random.choice((0, 0, 0, 0, 0, 1))) if memories else []
        linked: dict[str, Any] = {"sources": [random.choice(messages)]}
        if earlier:
            linked |= random.choice(({"supersedes": earlier}, {"adopts": earlier[0]}, {"derived_from": earlier}))
        memories.append(f"k{number}")
        events.append(bm.Memory(memories[-1], "", **linked))
    for number in range(random.choice((0, 1, 3))):
        scopes = random.choices(get_args(Scope), k=2)
        named = random.choices(memories, k=2)
        events.append(Retraction(f"t{number}", random.choice(messages), scope=scopes[0], memories=named))
        if random.random() < 0.4:
            events.append(Restoration(f"z{number}", random.choice(messages), scope=scopes[1], retraction=f"t{number}"))
    for number in range(random.choice((0, 0, 1, 2))):
        events.append(Erasure(f"e{number}", random.choices(memories, k=2), cascade=random.random() < 0.5))
    return events


def told(random: Random, events: Sequence[Event]) -> list[Event]:
    """The same events; the memories say something, and have all that can be asked for."""
    common = [written(random) for _ in range(4)]

    def say(event: Event) -> Event:
        if not isinstance(event, bm.Memory):
            return event
        return replace(
            event,
            text=random.choice(common) if random.random() < 0.3 else written(random),
            kind=random.choice(KINDS),
            key=random.choice((event.key, *KEYS)),
            importance=random.choice((1.0, 0.5, 0.06, 0.0, random.random())),
            created=random.choice((None, moment(random), moment(random))),
            meta={name: random.choice(VALUES) for name in random.sample(("n", "s", "deep"), random.randint(0, 3))},
        )

    return [say(event) for event in events]


def moment(random: Random) -> datetime:
    return NOW - timedelta(hours=random.choice((-24, 0, 168, 336, random.randrange(2_000))))


def standing(random: Random, events: Sequence[Event]) -> tuple[list[str], bm.Policy]:
    """Where a view stands, most often at one message."""
    messages = [event.id for event in events if isinstance(event, bm.Message)]
    admit = bm.Reason(random.getrandbits(16)) & ~bm.Reason.UNKNOWN_MEMORY
    policy = random.choice((bm.STRICT, bm.STRICT, bm.STRICT, bm.COMPAT, bm.Policy(admit)))
    return random.choices([*messages[-6:], *messages, "?"], k=random.choice((0, 1, 1, 1, 1, 1, 2, 3))), policy
