"""Engine and reference give the same answers, whatever the events and however they arrive."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem import LEGACY, Message, Reason, selftest
from branchmem.events import Event
from branchmem.reference import Reference
from chats import fact

ODD = bm.Policy(Reason.FUTURE | Reason.OTHER_TREE | Reason.UPSTREAM_CYCLE | Reason.NO_ANCHOR)
POLICIES = (bm.STRICT, bm.COMPAT, ODD)


def flags(target: Any, anchor: Any) -> dict[str, int] | str:
    """The reasons of every memory by its id, or that the anchors lie in one tree."""
    try:
        reasons = target.at(anchor).reasons()
    except bm.AmbiguousAnchor:
        return "ambiguous"
    return dict(zip(target.memory_ids, reasons.tolist(), strict=True))


def anchors_of(random: Random, events: list[Event]) -> list[Any]:
    messages = [event.id for event in events if isinstance(event, Message)]
    return [None, "not here", *messages, *(random.sample(messages, 2) for _ in range(6))]


def forest_from(seed: str) -> tuple[Random, list[Event], list[Any]]:
    """A source of chance, a forest drawn from it, and anchors to ask at; a failure shows the seed."""
    print("seed", seed)
    random = Random(seed)
    events = selftest.forest(random)
    return random, events, anchors_of(random, events)


# The suite that ships


def test_400_shuffled_trees_agree_in_at_least_107_000_verdicts() -> None:
    steps: list[tuple[int, int]] = []
    report = selftest.run(400, 20_260_101, lambda done, total: steps.append((done, total)))
    print("seed", report.seed)

    assert report.mismatches == 0, json.dumps(report.to_dict()["cases"], ensure_ascii=False)
    assert (report.trees, report.decisions >= 107_000) == (400, True)
    assert steps == [(done, 400) for done in range(1, 401)]


def test_a_run_is_told_again_by_its_seed() -> None:
    first = selftest.run(3)

    assert selftest.run(3, first.seed) == first
    assert selftest.run(3, first.seed + 1).decisions != first.decisions


def test_a_run_goes_on_until_enough_was_compared() -> None:
    report = selftest.run(1, 7, min_decisions=1500)

    assert report.decisions >= 1500
    assert report.trees > 1


class BlindToTheFuture(Reference):
    """Takes what lies below the anchor for a sibling."""

    def _judge(self, *about: Any) -> Reason | None:
        return Reason.SIBLING if super()._judge(*about) is Reason.FUTURE else super()._judge(*about)


class Impatient(Reference):
    """Judges a derived memory for good when it arrives."""

    def _forget(self) -> None:
        kept = getattr(self, "_lasting", {})
        super()._forget()
        self._lasting = kept


class Broken(Reference):
    """Cannot be asked for bitmaps."""

    def bitmaps(self, *about: Any, **more: Any) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(("wrong", "at_most"), [(BlindToTheFuture, 4), (Impatient, 4)])
def test_a_wrong_engine_is_found_and_the_case_is_small(wrong: Callable[[], Any], at_most: int) -> None:
    report = selftest.run(4, 1, engine=wrong)

    assert report.mismatches > 0
    assert 1 <= len(report.cases) <= selftest.MAX_CASES
    for case in json.loads(json.dumps(report.to_dict()))["cases"]:
        assert sum(map(len, case["batches"])) <= at_most
        replayed, reference = wrong(), Reference()
        for batch in case["batches"]:
            replayed.add(map(bm.event_from_dict, batch))
            replayed.bitmaps([form["id"] for form in batch])
            reference.add(map(bm.event_from_dict, batch))
        assert flags(replayed, case["anchors"]) != flags(reference, case["anchors"])


def test_an_engine_that_breaks_on_what_it_is_told_is_a_mismatch() -> None:
    report = selftest.run(1, 1, engine=Broken)

    assert report.mismatches > 0
    assert report.cases[0].engine == "ZeroDivisionError"
    assert sum(map(len, report.cases[0].batches)) == 1


# Order, repetition, batching


@pytest.mark.parametrize("seed", range(10))
def test_any_order_repetition_and_batching_gives_the_same_flags_and_digest(seed: int) -> None:
    random, events, anchors = forest_from(f"orders {seed}")
    reference = Reference()
    reference.add(events)
    expected = [flags(reference, anchor) for anchor in anchors]
    for _ in range(3):
        batches = selftest.arrivals(random, events)
        engine, again = bm.Engine(), Reference()
        with closing(bm.open_temporary()) as store:
            for batch in batches:
                engine.add(batch)
                store.append(batch)
                again.add(batch)
            assert [flags(engine, anchor) for anchor in anchors] == expected
            assert [flags(store, anchor) for anchor in anchors] == expected
            assert [flags(again, anchor) for anchor in anchors] == expected
            assert store.digest() == again.digest() == reference.digest()


@pytest.mark.parametrize("seed", range(12))
def test_every_prefix_of_every_arrival_agrees(seed: int) -> None:
    """What the engine works out step by step is what the reference works out from nothing."""
    random, events, anchors = forest_from(f"prefixes {seed}")
    single = [anchor for anchor in anchors if not isinstance(anchor, list)]
    arriving = [list(reversed(events)), events, random.sample(events, len(events))][seed % 3]
    engine, reference = bm.Engine(), Reference()
    earlier = []
    for event in arriving:
        engine.add([event])
        reference.add([event])
        for anchor in anchors:
            assert flags(engine, anchor) == flags(reference, anchor), (event, anchor)
        policy = random.choice(POLICIES)
        for anchor in single:
            assert list(engine.at(anchor, policy=policy)) == list(reference.at(anchor, policy=policy)), (event, anchor)
        rows = reference.bitmaps(single, policy=policy)
        assert engine.bitmaps(single, policy=policy).tolist() == rows.tolist(), event
        view = engine.at(random.choice(single), policy=policy)
        earlier.append((view, list(view.ids()), bytes(view.bitmap())))
    for view, ids, bitmap in earlier:
        assert (list(view.ids()), bytes(view.bitmap())) == (ids, bitmap)


# Larger shapes, where the engine chooses between ways to work


def conversation(random: Random, branching: float, messages: int, memories: int) -> list[Event]:
    """A few trees that branch at the tip or anywhere, and memories from one path or from two."""
    ids = ["root0", "root1", "old"]
    events: list[Event] = [Message("root0", None), Message("root1", None), Message("old", LEGACY)]
    for number in range(messages):
        parent = random.choice(ids) if random.random() < branching else ids[-1]
        ids.append(f"m{number}")
        events.append(Message(ids[-1], parent))
    for number in range(memories):
        near = random.randrange(len(ids))
        sources = [ids[max(0, near - random.randint(0, 8))] for _ in range(random.randint(1, 4))]
        upstream = [f"k{random.randrange(number)}"] if number and random.random() < 0.2 else []
        events.append(fact(f"k{number}", *sources, derived_from=upstream))
    return events


@pytest.mark.parametrize("seed", range(16))
def test_questions_between_appends_do_not_change_later_answers(seed: int) -> None:
    """Labels, reductions and what waits for a parent are worked out now or later: nobody can tell."""
    random = Random(f"between {seed}")
    print("seed", seed)
    events = conversation(random, random.choice((0.02, 0.2, 1.0)), random.choice((40, 150, 400)), 150)
    arrange: list[Callable[[list[Event]], None]] = [random.shuffle, list.reverse, lambda events: None]
    arrange[seed % 3](events)
    engine, reference = bm.Engine(), Reference()
    while events:
        size = random.choice((1, 5, 30, 100))
        engine.add(events[:size])
        reference.add(events[:size])
        del events[:size]
        messages, memories = list(reference.message_ids), list(reference.memory_ids)
        anchors = [None, *random.choices(messages, k=3)] if messages else [None]
        policy = random.choice(POLICIES)
        ask = random.randrange(4)
        if ask == 0:
            assert [flags(engine, anchor) for anchor in anchors] == [flags(reference, anchor) for anchor in anchors]
        elif ask == 1:
            rows = reference.bitmaps(anchors, policy=policy)
            assert engine.bitmaps(anchors, policy=policy).tolist() == rows.tolist()
        elif ask == 2 and messages and memories:
            pairs = random.choices(memories, k=30), random.choices(messages, k=30)
            assert engine.visible(*pairs, policy=policy).tolist() == reference.visible(*pairs, policy=policy).tolist()
        else:
            for id in memories[-3:]:
                verdicts = [target.at(anchors[-1], policy=policy).explain(id) for target in (engine, reference)]
                assert verdicts[0] == verdicts[1]
        assert engine.counters() == reference.counters()
    for anchor in random.sample(list(reference.message_ids), 12):
        assert flags(engine, anchor) == flags(reference, anchor)


@pytest.mark.parametrize("branching", [0.0, 0.03, 0.5])
def test_a_long_conversation_agrees_sparse_and_dense(branching: float) -> None:
    random = Random(f"long {branching}")
    events = conversation(random, branching, messages=1200, memories=1500)
    engine, reference = bm.Engine(), Reference()
    reference.add(events)
    random.shuffle(events)
    half = len(events) // 2
    engine.add(events[:half])
    engine.bitmaps(["root0", "m7"])
    engine.add(events[half:])

    messages = sorted(reference.message_ids)
    anchors = random.sample(messages, 10)
    for policy in POLICIES:
        for anchor in anchors:
            assert sorted(engine.at(anchor, policy=policy)) == sorted(reference.at(anchor, policy=policy))
    for anchor in anchors:
        assert flags(engine, anchor) == flags(reference, anchor)
    pairs = random.choices(list(reference.memory_ids), k=500), random.choices(messages, k=500)
    for policy in POLICIES:
        assert engine.visible(*pairs, policy=policy).tolist() == reference.visible(*pairs, policy=policy).tolist()
