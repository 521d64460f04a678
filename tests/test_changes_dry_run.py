"""A dry run says exactly what then happens, and leaves no trace: compared with doing it on a copy, on random logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem.changes import trial
from branchmem.events import Erasure, Event, Restoration, Retraction
from figures import Figure

SCOPES: Any = ("branch", "tree", "everywhere")
VERBS = ("retract", "restore", "correct", "supersede", "erase")


def random_log(random: Random) -> list[Event]:
    """A few trees, some of them legacy or detached, memories of every kind, and what was taken back already."""
    events: list[Event] = []
    messages = [f"u{n}" for n in range(random.randint(4, 16))]
    for number, id in enumerate(messages):
        parent: Any = random.choice(messages[max(0, number - 2) : number]) if number else None
        if random.random() < 0.1:
            parent = random.choice([None, None, bm.LEGACY, "gone"])
        events.append(bm.Message(id, parent))
    memories = [f"m{n}" for n in range(random.randint(4, 18))]

    def some(ids: list[str], most: int) -> list[str]:
        return random.sample(ids, min(len(ids), random.randint(0, most)))

    for number, id in enumerate(memories):
        older = memories[:number] + ["absent"] * (random.random() < 0.05)
        events.append(
            bm.Memory(
                id,
                id,
                sources=random.sample(messages, 1) if random.random() < 0.7 else some(messages, 2),
                derived_from=some(older, 1) if random.random() < 0.4 else (),
                supersedes=some(memories, 2) if random.random() < 0.4 else (),
                adopts=random.choice(older) if older and random.random() < 0.1 else None,
                key=random.choice([None, "k1", "k2"]),
            )
        )
    retractions = [f"r{n}" for n in range(random.randint(1, 2))]
    for id in retractions:
        events.append(
            Retraction(
                id,
                random.choice([*messages, "gone"]),
                scope=random.choice(SCOPES),
                memories=some(memories, 2),
                sources=some(messages, 1),
                keys=some(["k1", "k2"], 1) or ["k3"],
                standing=random.random() < 0.3,
            )
        )
    for number in range(random.randint(0, 2)):
        events.append(
            Restoration(
                f"s{number}",
                random.choice(messages),
                scope=random.choice(SCOPES),
                retraction=random.choice(retractions),
            )
        )
    if random.random() < 0.3:
        events.append(Erasure("e", some(messages + memories, 2) or ["gone"], cascade=random.random() < 0.7))
    random.shuffle(events)
    return events


def random_verb(random: Random, store: bm.Store, verb: str) -> Callable[..., Any]:
    """One call of a verb on what is in the store, with `store` and `dry_run` left open."""
    messages, memories = list(store.message_ids), list(store.memory_ids)
    anchor, scope = random.choice(messages), random.choice(SCOPES)
    new = bm.Memory(
        "new",
        "new",
        sources=random.sample(messages, random.randint(1, 3)),
        derived_from=random.sample(memories, random.randint(0, 1)),
        key=random.choice([None, "k1"]),
    )
    if verb == "retract":
        given: dict[str, Any] = {
            "memories": random.sample(memories, random.randint(0, 2)),
            "sources": random.sample(messages, random.randint(0, 1)),
            "keys": random.choice([["k1"], ["k2", "k3"]]),
            "standing": random.random() < 0.3,
            "revert": random.random() < 0.3,
        }
        return lambda store, **how: store.retract(at=anchor, scope=scope, id="new", **given, **how)
    if verb == "restore":
        lifted = random.choice([event.id for event in store.log.events(type="retraction")])
        return lambda store, **how: store.restore(lifted, at=anchor, scope=scope, id="new", **how)
    if verb == "correct":
        message = random.choice(messages)
        return lambda store, **how: store.correct(message, memory=new, at=anchor, scope=scope, id="newer", **how)
    if verb == "supersede":
        named = random.sample(memories, 2)
        at = random.choice([None, anchor])
        return lambda store, **how: store.supersede(named, by=new, at=at, **how)
    targets = random.sample([*messages, *memories, "gone", "never"], random.randint(1, 3))
    cascade = random.random() < 0.7
    return lambda store, **how: store.erase(targets, cascade=cascade, at=anchor, id="new", **how)


def shown_at_leaves(store: bm.Store) -> dict[str, set[str]]:
    return {leaf: set(store.at(leaf, count=False).ids()) for leaf in store.tree.leaves()}


def tally(before: dict[str, set[str]], after: dict[str, set[str]], anchors: tuple[str, ...]) -> dict[str, int]:
    """At how many leaves that are no anchor each memory of `before` is not in `after`."""
    return Counter(id for leaf in before if leaf not in anchors for id in before[leaf] - after[leaf])


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Callable[[bm.Store], bm.Store]]:
    """Copy a store, and open the copy."""
    opened: list[bm.Store] = []

    def copy(store: bm.Store) -> bm.Store:
        opened.append(bm.open(store.backup(tmp_path / f"copy-{len(opened)}.bmem")))
        return opened[-1]

    yield copy
    for store in opened:
        store.close()


@pytest.mark.soak
@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_says_what_then_happens(copied: Any, figure: Figure, verb: str) -> None:
    changes = 0
    for seed in range(figure(25, 400)):
        random = Random(f"{verb}-{seed}")
        with bm.open_temporary() as store:
            store.append(random_log(random))
            call = random_verb(random, store, verb)
            before, digest, seq = shown_at_leaves(store), store.digest(), store.seq

            tried = call(store, dry_run=True)

            assert (store.digest(), store.seq) == (digest, seq), (verb, seed)
            copy = copied(store)
            done = call(copy)
            after = shown_at_leaves(copy)
            said, real = tried.to_dict(), done.to_dict()
            elsewhere = said["elsewhere"]
            assert elsewhere["hidden"] == tally(before, after, tried.anchors), (verb, seed)
            assert elsewhere["shown"] == tally(after, before, tried.anchors), (verb, seed)
            others = [leaf for leaf in before if leaf not in tried.anchors]
            assert elsewhere["leaves"] == len(others), (verb, seed)
            assert elsewhere["changed"] == sum(before[leaf] != after[leaf] for leaf in others), (verb, seed)
            for form in (said, real):
                for name in ("dry_run", "added", "elsewhere"):
                    del form[name]
            assert said == real, (verb, seed)
            changes += bool(tried.hidden or tried.shown)
            copy.close()
    assert changes, "no call of the verb changed anything: nothing was tested"


@pytest.mark.soak
@pytest.mark.parametrize("verb", VERBS)
def test_the_effect_at_the_anchor_is_that_of_the_reference(figure: Figure, verb: str) -> None:
    from branchmem.reference import Reference

    for seed in range(figure(25, 400)):
        random = Random(f"{verb}-{seed}")
        events = random_log(random)
        with bm.open_temporary() as store:
            store.append(events)
            tried = random_verb(random, store, verb)(store, dry_run=True)
        reference = Reference()
        reference.add(events)
        anchors = tried.anchors
        before = set(reference.at(anchors).ids()) if anchors else set()
        reference.add(tried.events if isinstance(tried, bm.Change) else [tried.event])
        after = set(reference.at(anchors).ids()) if anchors else set()
        assert (set(tried.hidden), set(tried.shown)) == (before - after, after - before), (verb, seed)


def test_the_leaves_are_visited_some_at_a_time_with_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with bm.open_temporary() as store:
        store.append([bm.Message("u", None), *(bm.Message(f"u{n}", "u") for n in range(9))])
        store.append([bm.Memory(f"m{n}", "", sources=["u" if n % 2 else f"u{n}"]) for n in range(9)])

        def tried() -> bm.Elsewhere | None:
            return store.retract(sources=["u", "u2"], at="u", scope="tree", id="r", dry_run=True).elsewhere

        at_once = tried()
        monkeypatch.setattr(trial, "_BITMAP_BYTES", 5)

        assert tried() == at_once
        assert at_once == bm.Elsewhere(9, 9, {"m1": 9, "m2": 1, "m3": 9, "m5": 9, "m7": 9}, {})
        assert str(at_once) == "elsewhere 9 of 9 leaves change: hides m1, m2, m3, m5, m7"


def test_a_dry_run_changes_neither_file_nor_counters_nor_engine(path: Path) -> None:
    with bm.open(path) as store:
        store.append([bm.Message("u", None), bm.Memory("m", "", sources=["u"])])
        bytes_before, counted, seq = path.read_bytes(), store.counters(), store.seq

        for tried in (
            store.retract(["m"], at="u", scope="tree", dry_run=True),
            store.correct("u", memory=bm.Memory("n", ""), at="u", dry_run=True),
            store.supersede(["m"], by=bm.Memory("n", "", sources=["u"]), dry_run=True),
            store.erase(["m"], at="u", dry_run=True),
        ):
            assert (tried.dry_run, tried.hidden) == (True, ("m",))

        assert (path.read_bytes(), store.counters(), store.seq) == (bytes_before, counted, seq)
        assert store.at("u").ids() == ["m"]


def test_a_store_open_for_reading_lets_verbs_be_tried_only(path: Path) -> None:
    with bm.open(path) as store:
        store.append([bm.Message("u", None), bm.Memory("m", "", sources=["u"])])

    with bm.open(path, readonly=True) as store:
        assert store.retract(["m"], at="u", scope="tree", dry_run=True).hidden == ("m",)
        with pytest.raises(bm.StoreReadOnly):
            store.retract(["m"], at="u", scope="tree")


def test_a_dry_run_sees_what_others_appended(path: Path) -> None:
    with bm.open(path) as store, bm.open(path) as other:
        other.append([bm.Message("u", None), bm.Memory("m", "", sources=["u"])])

        assert store.retract(["m"], at="u", scope="tree", dry_run=True).hidden == ("m",)


def test_a_dry_run_says_what_is_already_there(path: Path) -> None:
    with bm.open(path) as store:
        store.append([bm.Message("u", None), bm.Memory("m", "", sources=["u"])])
        store.retract(["m"], at="u", scope="tree", id="r")

        again = store.retract(["m"], at="u", scope="tree", id="r", dry_run=True)

        assert (again.hidden, again.shown, again.known) == ((), (), True)
        assert str(again).startswith("there already: retraction r;")
        assert str(again).startswith(str(store.retract(["m"], at="u", scope="tree", id="r")))
        for said in (store.erase(["u"], id="e", dry_run=True), store.erase(["u"], id="e")):
            assert (said.known, "there already" in str(said)) == (False, False)
        for said in (store.erase(["u"], id="e", dry_run=True), store.erase(["u"], id="e")):
            assert (said.known, str(said).startswith("there already: erasure e;")) == (True, True)
        with pytest.raises(bm.EventConflict, match="r is already there with another scope"):
            store.retract(["m"], at="u", scope="branch", id="r", dry_run=True)


def test_of_erased_events_a_dry_run_compares_what_stays(path: Path) -> None:
    with bm.open(path) as store:
        store.append([bm.Message("u", None), bm.Memory("m", "secret", sources=["u"])])
        store.erase(["m"])

        assert store.correct("u", memory=bm.Memory("m", "other", sources=["u"]), at="u", dry_run=True).hidden == ()
        for dry_run in (True, False):
            with pytest.raises(bm.EventConflict, match="another sources"):
                store.correct("u", memory=bm.Memory("m", "other"), at="u", dry_run=dry_run)
