"""Engine and reference give the same answers, whatever the events and however they arrive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem import LEGACY, Memory, Message, Reason, selftest
from branchmem.events import SCOPES, Erasure, Event, Restoration, Retraction
from branchmem.reference import Reference
from branchmem.selftest.forests import arrivals, forest
from chats import fact
from figures import Figure, Quote

ODD = bm.Policy(Reason.FUTURE | Reason.OTHER_TREE | Reason.UPSTREAM_CYCLE | Reason.NO_ANCHOR)
POLICIES = (bm.STRICT, bm.COMPAT, ODD)


def flags(target: Any, anchor: Any, policy: bm.Policy = bm.STRICT) -> dict[str, int] | str:
    """The reasons of every memory by its id, or that the anchors lie in one tree."""
    try:
        reasons = target.at(anchor, policy=policy).reasons()
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
    events = forest(random)
    return random, events, anchors_of(random, events)


# The suite that ships


@pytest.mark.soak
def test_shuffled_logs_of_all_types_agree_in_every_verdict(figure: Figure, quote: Quote) -> None:
    trees = figure(120, 4000)
    steps: list[tuple[int, int]] = []
    report = selftest.run(trees, 20_260_101, lambda done, total: steps.append((done, total)))
    print("seed", report.seed)

    assert report.mismatches == 0, json.dumps(report.to_dict()["cases"], ensure_ascii=False)
    assert report.decisions >= trees * 1000
    assert min(report.reasons.values()) >= trees * 10, report.reasons
    assert steps == [(done, trees) for done in range(1, trees + 1)]
    quote(f"selftest: {trees:,} trees, {report.decisions:,} verdicts compared, {report.mismatches} mismatches")


def test_a_run_is_told_again_by_its_seed() -> None:
    first = selftest.run(3)

    assert selftest.run(3, first.seed) == first
    assert selftest.run(3, first.seed + 1).reasons != first.reasons


def test_a_run_goes_on_until_enough_was_compared() -> None:
    report = selftest.run(1, 7, min_decisions=3000)

    assert report.decisions >= 3000
    assert (report.trees > 1, report.lacking) == (True, ())


def test_a_run_goes_on_until_each_reason_was_met_often_enough_but_not_for_ever() -> None:
    report = selftest.run(2, 4, min_each_reason=40)
    assert (min(report.reasons.values()) >= 40, report.lacking) == (True, ())

    short = selftest.run(1, 7, min_decisions=10**9, min_each_reason=2000)
    assert short.trees == 4
    assert short.lacking[0] == "decisions"
    assert set(short.lacking[1:]) == {name for name, met in short.reasons.items() if met < 2000}


def test_most_of_what_can_happen_happens_in_the_logs() -> None:
    """What hides nothing anywhere would be compared and prove nothing."""
    alone = dict.fromkeys((Reason(0), Reason.RETRACTED, Reason.SUPERSEDED, Reason.ERASED), 0)
    for seed in range(30):
        reference = Reference()
        reference.add(forest(Random(f"happens {seed}")))
        for id in reference.message_ids:
            for bits in reference.at(id).reasons().tolist():
                if bits in alone:
                    alone[Reason(bits)] += 1
    assert min(alone.values()) >= 20, alone
    assert alone[Reason(0)] >= 500, alone


# Engines that are wrong


class BlindToTheFuture(Reference):
    """Takes what lies below the anchor for a sibling."""

    def _judge(self, *about: Any) -> Reason | None:
        return Reason.SIBLING if super()._judge(*about) is Reason.FUTURE else super()._judge(*about)


class Impatient(Reference):
    """Judges a derived memory for good when it arrives."""

    def _forget(self, *about: Any) -> None:
        kept = getattr(self, "_lasting", {})
        super()._forget(*about)
        self._lasting = kept


class OneLiveForAll(Reference):
    """Asks strict what is live, whatever the policy."""

    def _superseded(self, stand: Any, policy: bm.Policy) -> Any:
        return super()._superseded(stand, bm.STRICT)


class HardOfHearing(Reference):
    """Takes in something else than it was told, or nothing."""

    def __init__(self, hears: Callable[[Event], Event | None]) -> None:
        self._hears = hears
        super().__init__()

    def add(self, events: Iterable[Event]) -> Any:
        return super().add(heard for event in events if (heard := self._hears(event)) is not None)


def deaf_to(*types: type[Event]) -> Callable[[Event], Event | None]:
    return lambda event: None if isinstance(event, types) else event


def taking(type: type[Event], **otherwise: Any) -> Callable[[Event], Event]:
    """Hears events of a type with other fields; a value may be a function of the field as it was told."""

    def hears(event: Event) -> Event:
        if not isinstance(event, type):
            return event
        form = event.to_dict()
        for name, value in otherwise.items():
            form[name] = value(getattr(event, name)) if callable(value) else value
        return bm.event_from_dict(form)

    return hears


def no_longer(names: tuple[str, ...]) -> list[str]:
    """A list of names in which nothing is named that is in the log."""
    return ["nothing bears this"] if names else []


MISHEARD: dict[str, Callable[[Event], Event | None]] = {
    "no retractions": deaf_to(Retraction),
    "no restorations": deaf_to(Restoration),
    "no erasures": deaf_to(Erasure),
    "no replacement": taking(Memory, supersedes=()),
    "no adoption": taking(Memory, adopts=None),
    "no keys": taking(Memory, key=None),
    "no retracted memories": taking(Retraction, memories=no_longer),
    "no retracted sources": taking(Retraction, sources=no_longer),
    "no retracted keys": taking(Retraction, keys=no_longer),
    "nothing stated afresh": taking(Retraction, standing=True),
    "everything stated afresh": taking(Retraction, standing=False),
    "a tree is a branch": taking(Retraction, scope=lambda scope: "branch" if scope == "tree" else scope),
    "a branch is a tree": taking(Retraction, scope=lambda scope: "tree" if scope == "branch" else scope),
    "everywhere is a tree": taking(Retraction, scope=lambda scope: "tree" if scope == "everywhere" else scope),
    "a tree is everywhere": taking(Retraction, scope=lambda scope: "everywhere" if scope == "tree" else scope),
    "a tree is restored by branch": taking(Restoration, scope=lambda scope: "branch" if scope == "tree" else scope),
    "a branch is restored by tree": taking(Restoration, scope=lambda scope: "tree" if scope == "branch" else scope),
    "everything is restored everywhere": taking(Restoration, scope="everywhere"),
    "everything is erased by cascade": taking(Erasure, cascade=True),
    "nothing is erased by cascade": taking(Erasure, cascade=False),
}

WRONG: dict[str, Callable[[], Any]] = {
    "blind to the future": BlindToTheFuture,
    "impatient": Impatient,
    "one live for all policies": OneLiveForAll,
    **{name: partial(HardOfHearing, hears) for name, hears in MISHEARD.items()},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_engine_is_found_and_the_case_is_small(
    wrong: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "MAX_CASES", 1)
    found = (case for seed in range(30) for case in selftest.run(1, seed, engine=wrong).to_dict()["cases"])
    case = json.loads(json.dumps(next(case for case in found if case["question"] == "flags")))

    print(json.dumps(case, ensure_ascii=False))
    assert case["engine"] != case["reference"]
    assert sum(map(len, case["batches"])) <= 6
    policy = bm.Policy(Reason(sum(Reason[name] for name in case["admit"])))
    replayed, reference = wrong(), Reference()
    for batch in case["batches"]:
        replayed.add(map(bm.event_from_dict, batch))
        replayed.bitmaps([form["id"] for form in batch])
        reference.add(map(bm.event_from_dict, batch))
    assert flags(replayed, case["anchors"], policy) == case["engine"]
    assert flags(reference, case["anchors"], policy) == case["reference"]


class Broken(Reference):
    """Cannot be asked for bitmaps."""

    def bitmaps(self, *about: Any, **more: Any) -> Any:
        raise ZeroDivisionError


def test_an_engine_that_breaks_on_what_it_is_told_is_a_mismatch() -> None:
    report = selftest.run(1, 1, engine=Broken)

    assert report.mismatches > 0
    assert report.cases[0].engine == "ZeroDivisionError"
    assert sum(map(len, report.cases[0].batches)) == 1


class Forgetful(Reference):
    """Loses what it has counted."""

    def counters(self) -> dict[str, Any]:
        return {**super().counters(), "hidden": {}}


def test_an_engine_that_counts_wrong_is_found() -> None:
    report = selftest.run(1, 1, engine=Forgetful)

    assert {case.question for case in report.cases} == {"counted"}
    assert sum(map(len, report.cases[0].batches)) <= 1


# Order, repetition, batching


@pytest.mark.parametrize("seed", range(10))
def test_any_order_repetition_and_batching_gives_the_same_flags_and_digest(seed: int) -> None:
    random, events, anchors = forest_from(f"orders {seed}")
    reference = Reference()
    reference.add(events)
    expected = [flags(reference, anchor) for anchor in anchors]
    for _ in range(3):
        batches = arrivals(random, events)
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


def conversation(random: Random, branching: float, messages: int, memories: int, undone: int = 0) -> list[Event]:
    """A few trees that branch at the tip or anywhere, memories from one path or from two, and what undoes them."""
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
        links: dict[str, Any] = {"key": f"about {random.randrange(9)}"}
        if number and undone and random.random() < 0.3:
            links["supersedes"] = [f"k{max(0, number - random.choice((1, 1, 2, 30)))}"]
        if number and undone and random.random() < 0.05:
            links["adopts"] = f"k{random.randrange(number)}"
        events.append(fact(f"k{number}", *sources, derived_from=upstream, **links))
    for number in range(undone):
        named: dict[str, Any] = random.choice(
            (
                {"memories": [f"k{random.randrange(memories)}" for _ in range(3)]},
                {"sources": [random.choice(ids)]},
                {"keys": [f"about {random.randrange(9)}"], "standing": random.random() < 0.2},
            )
        )
        scopes: list[Any] = random.choices(SCOPES, (16, 1, 1), k=2)
        events.append(Retraction(f"r{number}", random.choice(ids), scope=scopes[0], **named))
        if random.random() < 0.4:
            events.append(Restoration(f"s{number}", random.choice(ids), scope=scopes[1], retraction=f"r{number}"))
        if random.random() < 0.1:
            target = random.choice((f"k{random.randrange(memories)}", random.choice(ids)))
            events.append(Erasure(f"e{number}", [target], cascade=random.random() < 0.5))
    return events


@pytest.mark.parametrize("seed", range(16))
def test_questions_between_appends_do_not_change_later_answers(seed: int) -> None:
    """Labels, reductions and what waits for a parent are worked out now or later: nobody can tell."""
    random = Random(f"between {seed}")
    print("seed", seed)
    events = conversation(random, random.choice((0.02, 0.2, 1.0)), random.choice((40, 150, 400)), 150, seed % 4 * 8)
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


@pytest.mark.parametrize("undone", [0, 5, 60])
@pytest.mark.parametrize("branching", [0.0, 0.03, 0.5])
def test_a_long_conversation_agrees_sparse_and_dense(branching: float, undone: int) -> None:
    random = Random(f"long {branching}")
    events = conversation(random, branching, messages=1200, memories=1500, undone=undone)
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
        for policy in POLICIES:
            assert flags(engine, anchor, policy) == flags(reference, anchor, policy)
    pairs = random.choices(list(reference.memory_ids), k=500), random.choices(anchors, k=500)
    for policy in POLICIES:
        assert engine.visible(*pairs, policy=policy).tolist() == reference.visible(*pairs, policy=policy).tolist()
