"""Order does not matter: any permutation of a log, with repeats and in any batches, is one state and says the same."""

from __future__ import annotations

from contextlib import closing
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem.events import TYPES, Erasure, Event, Memory, Message
from branchmem.reference import Reference
from branchmem.selftest.forests import MISSING, arrivals, forest
from figures import Figure, Quote

pytestmark = pytest.mark.usefixtures("quiet")

PERMUTATIONS_OF_A_LOG = 100
# So seldom one is asked of the reference, which is slow, and told to a store, which costs a file.
PERMUTATIONS_PER_REFERENCE = 10
PERMUTATIONS_PER_STORE = 20
POLICIES = (bm.STRICT, bm.COMPAT)

Flags = list[dict[str, int]]


def eventful(random: Random) -> list[Event]:
    """A small log with events of every type, an erasure of what never arrives among them."""
    while True:
        events = forest(random)
        by_type = {type: [event for event in events if event.type == type] for type in TYPES}
        if all(by_type.values()):
            kept = random.sample(by_type["message"], min(20, len(by_type["message"]))) + by_type["memory"]
            undoing = [event for type in ("retraction", "restoration", "erasure") for event in by_type[type]]
            return [*kept, *undoing, Erasure("erases what never arrives", [MISSING, "?"])]


def places(random: Random, events: list[Event]) -> list[Any]:
    """No anchor, one that is not here, and some messages: one at a time, and many that may lie in one tree."""
    messages = [event.id for event in events if isinstance(event, Message)]
    return [
        None,
        MISSING,
        *random.sample(messages, 6),
        random.sample(messages, 2),
        [*random.sample(messages, 1), MISSING],
    ]


def flags(log: Any, anchors: list[Any]) -> Flags:
    """The reasons of every memory by its id, at each anchor under each policy; nothing where anchors are ambiguous."""
    ids = list(log.memory_ids)
    out = []
    for anchor in anchors:
        for policy in POLICIES:
            try:
                out.append(dict(zip(ids, log.at(anchor, policy=policy).reasons().tolist(), strict=True)))
            except bm.AmbiguousAnchor:
                out.append({})
    return out


def with_other_content(event: Event) -> Event:
    return bm.event_from_dict({**event.to_dict(), "text": "what was erased, told otherwise", "meta": {"again": True}})


def check_in_a_file(batches: list[list[Event]], anchors: list[Any], expected: Flags, digest: str) -> None:
    """A store that was told the same has the same digest and flags; what it has erased may come again in any words."""
    with closing(bm.open_temporary()) as store:
        for batch in batches:
            store.append(batch)
        assert store.digest() == digest
        assert flags(store, anchors) == expected
        of_content = [event for batch in batches for event in batch if isinstance(event, (Message, Memory))]
        erased = [with_other_content(event) for event in of_content if store.log.is_erased(event.id)]
        assert store.append(erased).added == 0
        assert store.digest() == digest


@pytest.mark.soak
def test_any_order_repetition_and_batching_is_one_state(figure: Figure, quote: Quote) -> None:
    permutations = figure(2000, 100_000)
    met: set[str] = set()
    erased = stores = 0
    for number in range(permutations):
        which, again = divmod(number, PERMUTATIONS_OF_A_LOG)
        if not again:
            random = Random(f"permutations {which}")
            events = eventful(random)
            anchors = places(random, events)
            told = Reference()
            told.add(events)
            expected, digest = flags(told, anchors), told.digest()
            met |= {event.type for event in events}
            erased += sum(map(told.is_erased, told.memory_ids))
        seed = f"permutation {again} of {which}"
        batches = arrivals(Random(seed), events)
        engine, reference = bm.Engine(), Reference()
        for batch in batches:
            engine.add(batch)
            reference.add(batch)
        assert flags(engine, anchors) == expected, seed
        assert reference.digest() == digest, seed
        if again % PERMUTATIONS_PER_REFERENCE == 0:
            assert flags(reference, anchors) == expected, seed
        if again % PERMUTATIONS_PER_STORE == 0:
            stores += 1
            print(seed)
            check_in_a_file(batches, anchors, expected, digest)

    assert met == set(TYPES)
    assert erased > permutations // PERMUTATIONS_OF_A_LOG
    told_in = f"{permutations:,} permutations of {which + 1:,} logs, {stores:,} of them in files"
    quote(f"R4: {told_in}: one digest, one set of flags")
