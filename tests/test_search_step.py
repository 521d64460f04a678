"""Search in a step: what it finds is what a search at its message will find, once the step has ended well."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

import branchmem as bm
import numpy as np
import pytest
from branchmem.embedders import named
from branchmem.errors import InvalidFilter, InvalidSearch
from branchmem.events import Erasure, Event, Retraction
from branchmem.session import Session, Step
from figures import Figure
from searching import FLOATS, NOW, SIGNS, Toy, written
from sessions import POLICIES, events_about, told

KINDS = ("fact", "taste", "profile")


def remembered(random: Random, at: str) -> dict[str, Any]:
    """What a memory may hold besides its links; some texts come often, some memories have faded by now."""
    return {
        "text": random.choice(("tea", "green tea", "喝茶")) if random.random() < 0.6 else written(random),
        "kind": random.choice(KINDS),
        "key": random.choice((None, "home", "drink")),
        "importance": random.choice((1.0, 1.0, 0.5, 0.01)),
        "created": NOW - timedelta(days=random.choice((0, 0, 3, 30, 60))),
        "meta": {} if random.random() < 0.5 else {"at": at, "n": random.randrange(4)},
    }


def conversation(random: Random) -> list[Event]:
    """A tree with some branches, and memories on all of them; some replaced, taken back or erased."""
    events: list[Event] = [bm.Message("root", None)]
    messages, memories = ["root"], list[str]()
    for number in range(random.randint(3, 8)):
        events.append(bm.Message(f"m{number}", random.choice(messages[-2:])))
        messages.append(f"m{number}")
    for number in range(random.choice((3, 10, 30))):
        links: dict[str, Any] = {"sources": [random.choice(messages)]}
        if memories and random.random() < 0.2:
            links[random.choice(("derived_from", "supersedes"))] = [random.choice(memories)]
        memories.append(f"k{number}")
        events.append(bm.Memory(f"k{number}", **remembered(random, "log"), **links))
    if random.random() < 0.4:
        events.append(Retraction("r", random.choice(messages), scope="branch", memories=[random.choice(memories)]))
    if random.random() < 0.4:
        events.append(Erasure("e", [random.choice([*memories, *messages[1:]])], cascade=random.random() < 0.5))
    return events


def remember(random: Random, step: Step) -> None:
    """Let the step remember something, which may replace or go on from what it sees."""
    shown = step.view().ids()
    links: dict[str, Any] = {
        name: random.sample(shown, min(len(shown), random.choice((0, 0, 0, 1, 2))))
        for name in ("derived_from", "supersedes")
    }
    fields = remembered(random, "step")
    with suppress(bm.EventConflict):
        step.remember(fields.pop("text"), **fields, **links)


def answers(view: Any, asked: list[tuple[str, dict[str, Any]]], embedder: Toy) -> Any:
    """What each search finds, and the nearest of the first query."""
    found = []
    for query, options in asked:
        hits = view.search(query, now=NOW, **options)
        numbers = [(hit.id, hit.ids, hit.score, dict(hit.ranks), dict(hit.scores)) for hit in hits]
        contents = [told(lambda hit=hit: (hit.text, hit.memories, hit.verdict.visible)) for hit in hits]
        found.append((numbers, contents, hits.faded, hits.rankers, hits.note))
    vector = np.array(embedder.row(asked[0][0]), np.float32)
    return found, view.nearest(vector, 7, embedder=embedder)


def question(random: Random, embedder: Toy) -> tuple[str, dict[str, Any]]:
    options: dict[str, Any] = {"k": random.choice((1, 3, 10, 100))}
    if random.random() < 0.5:
        options["embedder"] = embedder
        options["by"] = random.choice((None, None, "vector", "lexical"))
    if random.random() < 0.3:
        options["include_faded"] = True
    if random.random() < 0.3:
        options |= random.choice(
            ({"kind": "taste"}, {"key": {"$ne": None}}, {"meta": {"at": "step"}}, {"meta": {"n": {"$gte": 2}}})
        )
    return random.choice(("tea", "green tea", "茶", written(random))), options


def compare(seed: int, met: Counter[str]) -> None:
    random = Random(f"search in a step {seed}")
    embedder = random.choice((SIGNS, FLOATS))
    policy = random.choice(POLICIES) if random.random() < 0.4 else bm.STRICT
    with bm.open_temporary() as store:
        events = conversation(random)
        store.append(events)
        store.refs.create("here", random.choice(list(store.message_ids)[-3:]))
        session = Session(store, "here")
        asked = [question(random, embedder) for _ in range(4)]
        with session.step() as step:
            for at in range(random.choice((1, 3, 6))):
                remember(random, step)
                if random.random() < 0.3:
                    step.view(policy).search("tea")
                if random.random() < 0.06:
                    with suppress(bm.EventConflict):
                        store.append(events_about(random, step, store, f"odd{at}"))
                    met["named"] += 1
            view = step.view(policy)
            seen = answers(view, asked, embedder)
            own = {memory.id for memory in step.memories}
        assert seen == answers(store.at(step.id, policy=policy), asked, embedder), f"seed {seed}"
        assert seen == answers(view, asked, embedder), f"seed {seed}: the view of the step, after its end"
    for numbers, _, faded, rankers, _ in seen[0]:
        met["hits"] += len(numbers)
        met["own"] += sum(not own.isdisjoint(hit[1]) for hit in numbers)
        met["shared"] += sum(not own.isdisjoint(hit[1]) and not own.issuperset(hit[1]) for hit in numbers)
        met["faded"] += faded
        met["fused"] += len(rankers) == 2
    met["replaced"] += bool(view._replaced)


@pytest.mark.soak
@pytest.mark.usefixtures("without_disk")
def test_a_step_finds_what_its_message_will_find(figure: Figure) -> None:
    met: Counter[str] = Counter()
    for seed in range(figure(50, 5_000)):
        compare(seed, met)

    least = {"hits": 300, "own": 90, "shared": 20, "faded": 300, "fused": 30, "named": 8, "replaced": 8}
    assert all(met[name] >= count for name, count in least.items()), met


def test_a_step_finds_its_own_beside_what_the_head_shows(session: Session) -> None:
    known = session.remember("likes green tea", sources=["u1"], key="drink")
    with session.step() as step:
        own = step.remember("likes tea", key="drink")
        twin = step.remember("likes green tea", kind="guess")
        view = step.view()
        hits = view.search("tea")
        step.remember("tea is gone")

        assert [hit.ids for hit in hits] == [(own.id,), tuple(sorted([known.id, twin.id]))]
        assert hits[0].memory == own
        assert {memory.id for memory in hits[1].memories} == {known.id, twin.id}
        assert hits[0].why == "every source lies on the path of the anchor"
        assert [hit.score for hit in view.search("tea")] == [hit.score for hit in hits]
        assert view.search("tea", kind="guess").ids == [twin.id]
        assert len(step.view().search("tea")) == 3
    assert [hit.ids for hit in view.search("tea")] == [hit.ids for hit in hits]


def test_what_a_step_replaces_is_not_found_in_it(session: Session) -> None:
    old = session.remember("likes tea", sources=["u1"])
    with session.step() as step:
        new = step.remember("likes green tea", supersedes=[old])
        assert step.view().search("tea").ids == [new.id]
        assert [id for id, _ in step.view().nearest(SIGNS.row("tea"), embedder=SIGNS)] == [new.id]  # type: ignore[arg-type]
        step.cancel()
    assert session.view().search("tea").ids == [old.id]


def test_what_is_erased_under_a_step_is_not_found_in_it(session: Session) -> None:
    session.store.append([bm.Memory("known", "likes tea", sources=["u1"])])
    with session.step() as step:
        concluded = step.remember("likes green tea", derived_from=["known"])
        view = step.view()
        hits = view.search("tea")
        assert hits.ids == ["known", concluded.id]
        session.store.append([Erasure("e", ["known"])])

        assert view.search("tea").ids == []
        admitted = step.view(bm.Policy(bm.Reason.ERASED))
        assert admitted.ids() == ["known", concluded.id]
        assert admitted.search("tea").ids == admitted.search("tea", embedder=SIGNS).ids == []
        for hit in hits:
            with pytest.raises(bm.MemoryHidden):
                _ = hit.text


def test_what_will_be_erased_once_a_step_has_ended_is_not_found_in_it(session: Session) -> None:
    """`early` goes on from what the step concludes, whose source is erased: the log cannot know that yet."""
    policy = bm.Policy(bm.Reason.ERASED | bm.Reason.MISSING_UPSTREAM)
    root = session.store.tree.path(session.head)[0]
    with session.step() as step:
        concluded = step.remember("likes tea", sources=["u1"])
        early = bm.Memory("early", "likes green tea", sources=[root], derived_from=[concluded.id])
        session.store.append([early, Erasure("e", ["u1"])])
        view = step.view(policy)

        assert session.view(policy).search("tea").ids == ["early"]
        assert view.ids() == ["early", concluded.id]
        assert view.search("tea").ids == view.search("tea", embedder=SIGNS).ids == []
    assert session.view(policy).search("tea").ids == []


def test_what_the_step_of_another_remembers_is_not_found(session: Session) -> None:
    fork = session.fork("other")
    with session.step() as step:
        step.remember("likes tea")
        with fork.step() as other:
            mine = other.remember("likes green tea")
            assert other.view().search("tea").ids == [mine.id]
        assert len(step.view().search("tea")) == 1
        assert session.view().search("tea").ids == []


def test_what_the_log_says_better_stands_before_all_that_a_step_says(session: Session) -> None:
    """Also where it says each thing so often that the best rows are few texts, which a step's own fill up."""
    toward = {"log": 0.1, "own": 20.0}

    def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0, toward.get(text.split()[0], 0.0) * (1 + int(text.split()[-1]))] for text in texts]

    model = named("toward", lambda texts: embed([text if text[-1].isdigit() else "query 0" for text in texts]))
    said = [(f"log {at}", f"k{at}-{time}") for at in range(12) for time in range(60)]
    session.store.append(bm.Memory(id, text, sources=[session.head]) for text, id in said)
    with session.step() as step:
        for at in range(110):
            step.remember(f"own {at}")
        hits = step.view().search("query 0", by="vector", embedder=model)

    assert [hit.text for hit in hits] == [f"log {at}" for at in range(10)]


def test_a_step_refuses_what_a_view_refuses(session: Session) -> None:
    with session.step() as step:
        view = step.view()
        with pytest.raises(InvalidSearch):
            view.search(3)  # type: ignore[arg-type]
        with pytest.raises(InvalidSearch):
            view.search("tea", k=1.5)  # type: ignore[arg-type]
        with pytest.raises(InvalidFilter):
            view.search("tea", kind={"$like": "x"})
        with pytest.raises(InvalidSearch, match="embedder"):
            view.nearest(np.zeros(3, np.float32))
