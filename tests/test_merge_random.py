"""Whatever two branches hold: merged both ways in any order they end as one, and merging again changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import get_args

import branchmem as bm
import pytest
from branchmem.errors import MergeConflict
from branchmem.events import SCOPES, Erasure, Event, Retraction
from branchmem.merge import Merged, Strategy
from branchmem.selftest.forests import forest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BOTH_WAYS = (("left", "right"), ("right", "left"))
SOON = datetime(2026, 1, 1, tzinfo=UTC)
Logs = Callable[[Random], list[Event]]


def thorough(examples: int) -> settings:
    return settings(
        max_examples=examples, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


def conversations(random: Random) -> list[Event]:
    """One or two trees; memories that replace, derive from and repeat what is visible with them; some taken back."""
    events: list[Event] = []
    paths: dict[str, tuple[str, ...]] = {}
    for tree in range(random.choice((1, 1, 2))):
        paths[f"r{tree}"] = (f"r{tree}",)
        events.append(bm.Message(f"r{tree}", None))
        for number in range(random.randint(3, 9)):
            parent = random.choice([id for id in paths if id.startswith(f"r{tree}")])
            id = f"r{tree}.{number}"
            paths[id] = (*paths[parent], id)
            events.append(bm.Message(id, parent))
    messages = sorted(paths)
    times = iter(random.sample(range(10_000), 20))
    sources: dict[str, set[str]] = {}
    for number in range(random.randint(3, 11)):
        at = random.choice(messages)
        here = [id for id, needed in sources.items() if needed <= set(paths[at])]
        derived = random.sample(here, min(len(here), random.choice((0, 0, 0, 0, 1))))
        events.append(
            bm.Memory(
                f"k{number}",
                random.choice("abcde") if random.random() < 0.5 else f"text {number}",
                sources=[at],
                supersedes=random.sample(here, min(len(here), random.choice((0, 0, 1, 1, 2)))),
                derived_from=derived,
                key=random.choice((None, "p", "q")),
                created=SOON + timedelta(seconds=next(times)),
            )
        )
        sources[f"k{number}"] = {at}.union(*(sources[id] for id in derived))
    for number in range(random.choice((0, 0, 1, 2))):
        named = random.choice((["memories", *sources], ["keys", "p", "q"], ["sources", *messages]))
        events.append(
            Retraction(
                f"back{number}",
                random.choice(messages),
                scope=random.choice(SCOPES),
                standing=random.random() < 0.2,
                memories=[random.choice(named[1:])] if named[0] == "memories" else (),
                keys=[random.choice(named[1:])] if named[0] == "keys" else (),
                sources=[random.choice(named[1:])] if named[0] == "sources" else (),
            )
        )
    if random.random() < 0.15:
        events.append(Erasure("gone", [random.choice(sorted(sources))], cascade=random.random() < 0.5))
    return events


def odd_logs(random: Random) -> list[Event]:
    """All that a log can hold, with circles and what is missing; some of it says the same, some has a time."""

    def about(event: Event) -> Event:
        if not isinstance(event, bm.Memory):
            return event
        text = random.choice("abc") if random.random() < 0.5 else event.text
        return replace(event, text=text, created=SOON + timedelta(seconds=random.randrange(9)))

    return [about(event) for event in forest(random)]


LOGS = pytest.mark.parametrize("logs", [conversations, odd_logs])


@contextmanager
def branched(events: Sequence[Event], heads: Sequence[str]) -> Iterator[bm.Store]:
    with closing(bm.open_temporary()) as store:
        store.append(events)
        for name, at in zip(("left", "right"), heads, strict=True):
            store.refs.create(name, at)
        yield store


def two_heads(random: Random, events: Sequence[Event]) -> list[str]:
    """Two attached messages of a log."""
    with closing(bm.open_temporary()) as store:
        store.append(events)
        attached = [id for id in store.message_ids if not store.at(id, count=False).problems]
    return random.sample(sorted(attached), 2) if len(attached) > 1 else attached * 2


def shown(store: bm.Store, at: str) -> dict[str, bm.Memory]:
    return {memory.id: memory for memory in store.at(at, count=False).memories()}


def merged(store: bm.Store, source: str, into: str, strategy: Strategy) -> Merged | None:
    """What came of it; None for a conflict, of which nothing may be left."""
    before = store.seq, store.refs[into]
    seen = store.merge(source, into=into, strategy=strategy, dry_run=True)
    if not seen.undecided:
        return store.merge(source, into=into, strategy=strategy)
    with pytest.raises(MergeConflict) as refused:
        store.merge(source, into=into, strategy=strategy)
    assert refused.value.conflicts == seen.undecided
    assert (store.seq, store.refs[into]) == before
    return None


def replaced_by(store: bm.Store, memories: Sequence[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(memories)
    while waiting:
        new = set(store.skeleton(waiting.pop()).get("supersedes", ())) - found
        found |= new
        waiting += new
    return found


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "branchmem")  # odd logs have many messages that nobody can stand at


@LOGS
@pytest.mark.parametrize("strategy", ["fail", "both"])
@given(random=st.randoms(use_true_random=False))
@thorough(40)
def test_one_digest_whichever_way_is_merged_first(logs: Logs, strategy: Strategy, random: Random) -> None:
    events = logs(random)
    heads = two_heads(random, events)
    ends = []
    for order in (BOTH_WAYS, BOTH_WAYS[::-1]):
        with branched(random.sample(events, len(events)), heads) as store:
            for source, into in order:
                merged(store, source, into, strategy)
            ends.append((store.digest(), dict(store.refs)))
    assert ends[0] == ends[1], (events, heads)


@given(random=st.randoms(use_true_random=False))
@thorough(40)
def test_one_digest_where_the_newer_wins(random: Random) -> None:
    """Where all say different things, and nothing was taken back: of that, one of the two merges alone would know."""
    told = [event for event in conversations(random) if isinstance(event, bm.Message | bm.Memory)]
    events = [replace(event, text=event.id) for event in told]
    heads = two_heads(random, events)
    ends = []
    for order in (BOTH_WAYS, BOTH_WAYS[::-1]):
        with branched(events, heads) as store:
            for source, into in order:
                store.merge(source, into=into, strategy="newer")
            ends.append((store.digest(), dict(store.refs)))
    assert ends[0] == ends[1], (events, heads)


@LOGS
@pytest.mark.parametrize("strategy", get_args(Strategy))
@given(random=st.randoms(use_true_random=False))
@thorough(20)
def test_merging_twice_changes_nothing(logs: Logs, strategy: Strategy, random: Random) -> None:
    events = logs(random)
    heads = two_heads(random, events)
    with branched(events, heads) as store:
        if merged(store, "left", "right", strategy) is None:
            return
        end = store.seq, store.refs["right"]
        for again in get_args(Strategy):
            done = store.merge("left", into="right", strategy=again)
            assert (done.message, done.conflicts, done.undecided) == (None, (), ()), (events, heads)
        assert (store.seq, store.refs["right"]) == end


@LOGS
@pytest.mark.parametrize("strategy", get_args(Strategy)[1:])
@given(random=st.randoms(use_true_random=False))
@thorough(20)
def test_merging_to_and_fro_comes_to_an_end(logs: Logs, strategy: Strategy, random: Random) -> None:
    events = logs(random)
    heads = two_heads(random, events)
    with branched(events, heads) as store:
        for number in count():
            before = store.seq
            for source, into in BOTH_WAYS:
                merged(store, source, into, strategy)
            if store.seq == before:
                break
            assert number < 3, (events, heads)


@LOGS
@pytest.mark.parametrize("strategy", get_args(Strategy)[1:])
@given(random=st.randoms(use_true_random=False))
@thorough(20)
def test_nothing_is_lost_in_a_merge(logs: Logs, strategy: Strategy, random: Random) -> None:
    """The target sees what the source saw unless the receipt says why not, and what it saw unless that was replaced."""
    events = logs(random)
    heads = two_heads(random, events)
    with branched(events, heads) as store:
        source, before = shown(store, heads[0]), shown(store, heads[1])
        done = merged(store, "left", "right", strategy)
        if done is None or done.before == done.after or done.fast_forward:
            return
        after = shown(store, done.after)
        for id in source.keys() - before.keys():
            assert (id in done.adopted) != (id in done.skipped), (events, heads)
        for id, by in done.adopted.items():
            copy = store.log.get(by)
            assert isinstance(copy, bm.Memory)
            assert (copy.kind, copy.key, copy.text) == (source[id].kind, source[id].key, source[id].text)
            assert (by in after) != (by in done.born_hidden), (events, heads)
        new = [event.id for event in done.events if event.id in after]
        assert before.keys() - after.keys() <= replaced_by(store, new), (events, heads)
        assert (set(done.hidden), set(done.shown)) == (before.keys() - after.keys(), after.keys() - before.keys())
        pairs = [(one.ours.id, one.theirs.id) for one in done.conflicts]
        assert len(set(pairs)) == len(pairs)


@LOGS
@pytest.mark.parametrize("strategy", get_args(Strategy))
@given(random=st.randoms(use_true_random=False))
@thorough(20)
def test_a_dry_run_foretells_the_merge(logs: Logs, strategy: Strategy, random: Random) -> None:
    events = logs(random)
    heads = two_heads(random, events)
    with branched(events, heads) as store:
        seen = store.merge("left", into="right", strategy=strategy, dry_run=True)
        done = merged(store, "left", "right", strategy)
        if done is None:
            return
        assert seen.events == done.events
        if not done.born_hidden:
            assert {**seen.to_dict(), "dry_run": False, "added": len(done.events)} == done.to_dict(), (events, heads)


@LOGS
@given(random=st.randoms(use_true_random=False))
@thorough(20)
def test_adopting_twice_changes_nothing(logs: Logs, random: Random) -> None:
    events = logs(random)
    heads = two_heads(random, events)
    memories = sorted(event.id for event in events if isinstance(event, bm.Memory))
    chosen = random.sample(memories, min(len(memories), 4))
    with branched(events, heads) as store:
        first = store.adopt(chosen, into="right")
        again = store.adopt(chosen, into="right")
        assert first.adopted.keys() | first.skipped.keys() == set(chosen), (events, heads, chosen)
        assert (again.message, set(again.skipped)) == (None, set(chosen)), (events, heads, chosen)
