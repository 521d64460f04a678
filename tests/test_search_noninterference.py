"""What is hidden at an anchor changes nothing of any search there: no score by a bit, no order, no text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem.events import Erasure, Event, Restoration, Retraction
from branchmem.reference import Reference
from branchmem.selftest.forests import forest
from figures import Figure
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from searched import conversations, standing, told
from searching import FLOATS, NOW, SIGNS, Ranker, Toy, written

pytestmark = pytest.mark.usefixtures("quiet")

#: Words that everybody uses, and words that only hidden memories use.
COMMON = ("tea", "Tea", "green", "dog", "我喜欢", "喝茶", "茶", "成都", "コーヒー", "커피를")
SECRET = ("passport", "花生过敏", "秘密", "ひみつ", "비밀")
QUERIES = ("tea green", "茶 喝茶 passport", "秘密", "")
FILTERS: tuple[dict[str, Any], ...] = ({}, {"kind": "taste"}, {"importance": {"$lt": 0.9}, "meta": {"n": {"$ne": 1}}})

RANKERS: tuple[tuple[Ranker | None, Toy | None], ...] = (
    ("lexical", None),
    ("vector", FLOATS),
    ("vector", SIGNS),
    (None, FLOATS),
    (None, SIGNS),
)

#: How a memory is hidden at "here": its sources; what it derives from.
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "on a sibling": (("sibling",), ()),
    "below": (("below",), ()),
    "in another tree": (("elsewhere",), ()),
    "half on a sibling": (("here", "sibling"), ()),
    "from what is missing": (("nowhere",), ()),
    "from what is detached": (("astray",), ()),
    "from nothing": ((), ()),
    "derived from what is hidden": (("here",), ("hidden",)),
    "taken back": (("here",), ()),
    "replaced": (("top",), ()),
    "erased": (("here",), ()),
}
STIRS = (
    "taken back everywhere",
    "taken back below",
    "given back",
    "erased",
    "erased with its source",
    "used",
    "replaced",
)


def texts(words: Sequence[str]) -> st.SearchStrategy[str]:
    between = st.sampled_from((" ", ""))
    return st.builds(lambda glue, some: glue.join(some), between, st.lists(st.sampled_from(words), max_size=5))


def fields() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "kind": st.sampled_from(("fact", "taste")),
            "key": st.sampled_from((None, "home")),
            "importance": st.sampled_from((1.0, 0.5, 0.04)),
            "created": st.sampled_from((None, NOW, NOW - timedelta(days=40))),
            "meta": st.sampled_from(({}, {"n": 1}, {"n": 2})),
        }
    )


shown_ones = st.lists(st.tuples(texts(COMMON), fields()), min_size=1, max_size=8)
hidden_ones = st.lists(
    st.tuples(
        st.sampled_from(sorted(WAYS)), texts(COMMON + SECRET), fields(), st.sampled_from(("", "supersedes", "adopts"))
    ),
    max_size=12,
)
stirs = st.lists(st.tuples(st.sampled_from(STIRS), st.integers(0, 30)), max_size=8)


@settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(shown_ones, st.lists(hidden_ones, min_size=1, max_size=3), stirs)
def test_a_hidden_memory_changes_no_score_order_or_text(
    shown: list[tuple[str, dict[str, Any]]], hidden: list[list[Any]], stirred: list[tuple[str, int]]
) -> None:
    with closing(bm.open_temporary()) as store:
        store.append(conversation(shown))
        older = store.at("here")
        ids, expected = set(older.ids()), answers(older)
        assert ids == {"current", *(f"shown{number}" for number in range(len(shown)))}

        names: list[str] = []
        for batch in hidden:
            events = [event for one in batch for event in hide(names, *one)]
            note(f"hidden: {events}")
            store.append(events)
            assert set(store.at("here").ids()) == ids
            assert answers(store.at("here")) == expected
        for number, (way, which) in enumerate(stirred):
            if names:
                note(f"stirred: {way} {names[which % len(names)]}")
                stir(store, number, way, names[which % len(names)])
                assert set(store.at("here").ids()) == ids
        assert answers(store.at("here")) == answers(older) == expected


def conversation(shown: list[tuple[str, dict[str, Any]]]) -> list[Event]:
    """What is visible at "here", and places around it.  "current" replaces whatever is hidden as "replaced"."""
    old = [f"replaced {number}" for number in range(40)]
    return [
        bm.Message("top", None),
        bm.Message("here", "top"),
        bm.Message("below", "here"),
        bm.Message("sibling", "top"),
        bm.Message("elsewhere", None),
        bm.Message("astray", "nowhere"),
        bm.Memory("current", "green tea 茶", sources=["here"], supersedes=old, created=NOW),
        bm.Memory("hidden", "passport", sources=["sibling"]),
        *(bm.Memory(f"shown{number}", text, sources=["here"], **more) for number, (text, more) in enumerate(shown)),
    ]


def hide(names: list[str], way: str, text: str, more: dict[str, Any], link: str) -> Iterator[Event]:
    """A memory that is hidden this way, and what hides it; it may replace or adopt what is visible."""
    id = f"{way} {len(names)}"
    names.append(id)
    sources, derived_from = WAYS[way]
    # What is replaced is live still, and what it replaces is hidden.
    replaced = ["shown0"] if link == "supersedes" and way != "replaced" else []
    adopted = "shown0" if link == "adopts" else None
    yield bm.Memory(id, text, sources=sources, derived_from=derived_from, supersedes=replaced, adopts=adopted, **more)
    if way == "taken back":
        yield Retraction(f"back {id}", "top", scope="branch", memories=[id])
    if way == "erased":
        yield Erasure(f"gone {id}", [id])


def stir(store: bm.Store, number: int, way: str, id: str) -> None:
    """Do something about a hidden memory that leaves it hidden."""
    if way == "used":
        store.used([id], at=NOW)
    elif way == "replaced":
        store.append([bm.Memory(f"new {number}", "tea passport", sources=["sibling"], supersedes=[id])])
    elif way == "erased":
        store.append([Erasure(f"e{number}", [id])])
    elif way == "erased with its source":
        store.append([Erasure(f"e{number}", ["sibling", "elsewhere", "below", id])])
    elif way == "taken back below":
        store.append([Retraction(f"t{number}", "below", scope="branch", memories=[id])])
    else:
        store.append([Retraction(f"t{number}", "sibling", scope="everywhere", memories=[id])])
        if way == "given back":
            store.append([Restoration(f"z{number}", "top", scope="everywhere", retraction=f"t{number}")])


def answers(view: Any) -> list[Any]:
    """All that searches in a view say, to the last bit."""
    found: list[Any] = []
    for query in QUERIES:
        for number, (by, embedder) in enumerate(RANKERS):
            conditions = FILTERS[(number + len(query)) % len(FILTERS)]
            hits = view.search(query, 5, by=by, embedder=embedder, now=NOW, **conditions)
            found.append((hits.to_dict(), [hit.text for hit in hits], hits.rankers, hits.note))
        found.append(view.nearest(SIGNS([query])[0], embedder=SIGNS))
        recalled = view.recall(query, budget=60, embedder=FLOATS, now=NOW)
        found.append((str(recalled), recalled.to_dict()))
    return found


def test_a_word_that_only_hidden_memories_use_is_in_no_list() -> None:
    """It finds nothing; and that hidden ones use other words a hundred times as often as visible ones is no matter."""
    with closing(bm.open_temporary()) as store:
        store.append(conversation([("tea", {}), ("green tea", {}), ("我喝茶", {})]))
        without = [(hit.id, hit.score) for hit in store.at("here").search("tea 茶", now=NOW)]
        names, events = list[str](), list[Event]()
        for number in range(300):
            way = sorted(WAYS.keys() - {"replaced"})[number % (len(WAYS) - 1)]
            events += hide(names, way, f"tea passport 茶 秘密{number}", {}, "")
        store.append(events)
        for word in ("passport", "秘密", "密", "秘密299"):
            assert not store.at("here").search(word, now=NOW)
            assert [(hit.id, hit.score) for hit in store.at("here").search(f"tea {word} 茶", now=NOW)] == without
        assert len(store.at("sibling").search("passport", 500, now=NOW)) > 20


@pytest.mark.soak
@pytest.mark.parametrize("logs", [conversations, forest])
def test_whatever_leaves_a_view_as_it_is_leaves_its_searches_as_they_are(logs: Any, figure: Figure) -> None:
    """Random logs: all events that change nothing of what is visible at an anchor come after a first search there."""
    late = 0
    for seed in range(figure(10, 500)):
        random = Random(f"noninterference {logs.__name__} {seed}")
        events = told(random, logs(random))
        random.shuffle(events)
        first = [event for event in events if isinstance(event, bm.Message) or random.random() < 0.5]
        for _ in range(10):
            anchors, policy = standing(random, events)
            if shown := visible(first, anchors, policy):
                break
        else:
            continue
        known = {event.id for event in first}
        more = harmless(first, [event for event in events if event.id not in known], anchors, policy)
        queries = [*random.sample(sorted(shown.values()), min(3, len(shown))), written(random), "茶"]
        with closing(bm.open_temporary()) as store:
            store.append(first)
            older = store.at(anchors, policy=policy)
            before = numbers(older, queries)
            store.append(more)
            assert numbers(store.at(anchors, policy=policy), queries) == before, f"seed {seed}"
            assert numbers(older, queries) == before, f"seed {seed}"
        late += len(more)
    assert late > figure(50, 2_500)


def harmless(before: list[Event], events: list[Event], anchors: Sequence[str], policy: bm.Policy) -> list[Event]:
    """Those of some events, in their order, that change nothing of what is visible after the others."""
    shown = visible(before, anchors, policy)
    if shown is None or visible([*before, *events], anchors, policy) == shown:
        return events
    if len(events) == 1:
        return []
    half = len(events) // 2
    first = harmless(before, events[:half], anchors, policy)
    return first + harmless(before + first, events[half:], anchors, policy)


def visible(events: Sequence[Event], anchors: Sequence[str], policy: bm.Policy) -> dict[str, str] | None:
    """The texts of what is visible and has content; None where two anchors lie in one tree."""
    log = Reference()
    log.add(events)
    try:
        view = log.at(anchors, policy=policy)
    except bm.AmbiguousAnchor:
        return None
    return {memory.id: memory.text for memory in view.memories() if not log.is_erased(memory.id)}


def numbers(view: Any, queries: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for query in queries:
        for by, embedder in (("lexical", None), ("vector", FLOATS), (None, SIGNS)):
            hits = view.search(query, by=by, embedder=embedder, now=NOW)
            found.append([(hit.ids, hit.id, hit.score, hit.ranks, hit.scores, hit.text) for hit in hits])
            found.append(hits.faded)
    return found
