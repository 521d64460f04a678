"""The specification held to the letter: small cases exhaustively, and what a log takes in and refuses."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta, timezone
from itertools import chain, combinations, product
from typing import Any

import branchmem as bm
import pytest
from branchmem import LEGACY, Memory, Message, Reason
from branchmem.events import Erasure, Event, Legacy, Restoration, Retraction
from branchmem.reference import Reference
from chats import CHAT, fact

Parents = dict[str, str | Legacy | None]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def subsets(items: str) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(items, size) for size in range(len(items) + 1)))


# Small cases, exhaustively


def climbed(parents: Parents, id: str) -> list[str] | None:
    """The path of a message, or None where it is not attached."""
    path = [id]
    while isinstance(above := parents[path[-1]], str):
        if above not in parents or above in path:
            return None
        path.append(above)
    return path


def reasons_for(parents: Parents, sources: tuple[str, ...], anchors: tuple[str, ...]) -> Reason | None:
    """The table of the rule, read aloud; None where two anchors lie in one tree."""
    problems, paths = Reason(0), []
    for anchor in anchors:
        if anchor not in parents:
            problems |= Reason.UNKNOWN_ANCHOR
        elif (path := climbed(parents, anchor)) is None:
            problems |= Reason.DETACHED_ANCHOR
        else:
            paths.append(path)
    if len({path[-1] for path in paths}) < len(paths):
        return None
    reasons = Reason(0) if anchors else Reason.NO_ANCHOR
    reasons |= Reason(0) if sources else Reason.NO_SOURCES
    for source in sources:
        if source not in parents:
            reasons |= Reason.MISSING_SOURCE
        elif parents[source] is LEGACY:
            reasons |= Reason.LEGACY_SOURCE
        elif (above := climbed(parents, source)) is None:
            reasons |= Reason.DETACHED_SOURCE
        elif paths:
            mine = [path for path in paths if path[-1] == above[-1]]
            if not mine:
                reasons |= Reason.OTHER_TREE | problems
            elif source not in mine[0]:
                reasons |= Reason.FUTURE if mine[0][0] in above else Reason.SIBLING
    return reasons if paths else reasons | problems


def test_every_forest_of_three_messages_read_aloud(engine: Any) -> None:
    make = type(engine)
    for given in product([None, LEGACY, *"abcg"], repeat=3):
        parents: Parents = dict(zip("abc", given, strict=True))
        engine = make()
        engine.add(fact(f"from {sources}", *sources) for sources in subsets("abcg"))
        engine.add(Message(id, parent) for id, parent in parents.items())
        for anchors in [*subsets("abc"), ("g",), ("a", "g"), ("g", "b", "c")]:
            expected = [reasons_for(parents, sources, anchors) for sources in subsets("abcg")]
            if None in expected:
                with pytest.raises(bm.AmbiguousAnchor):
                    engine.at(anchors)
            else:
                assert engine.at(anchors).reasons().tolist() == expected, (parents, anchors)


def test_every_derivation_of_three_memories_read_aloud(engine: Any) -> None:
    make = type(engine)
    own = {"p": {"a"}, "q": set(), "r": {"b"}}
    for graph in product(subsets("pqrg"), repeat=3):
        upstream = dict(zip("pqr", map(set, graph), strict=True))
        for _ in own:
            for id in own:
                upstream[id] |= {above for one in upstream[id] & own.keys() for above in upstream[one]}
        sources = {id: own[id] | {s for one in upstream[id] & own.keys() for s in own[one]} for id in own}
        expected = []
        for id in own:
            here = {id} | upstream[id] & own.keys()
            reasons = Reason.NO_SOURCES if any(not sources[one] for one in here) else Reason(0)
            reasons |= Reason.MISSING_UPSTREAM if "g" in upstream[id] else Reason(0)
            reasons |= Reason.UPSTREAM_CYCLE if any(one in upstream[one] for one in here) else Reason(0)
            expected.append(reasons | (Reason.FUTURE if "b" in sources[id] else Reason(0)))
        engine = make()
        engine.add([Message("a", None), Message("b", "a")])
        engine.add(fact(id, *own[id], derived_from=above) for id, above in zip("pqr", graph, strict=True))

        assert engine.at("a").reasons().tolist() == expected, graph


# What is taken in, and what is refused


def test_a_repeat_is_no_op(store: Any) -> None:
    batch = [*CHAT, fact("m", "u1")]

    assert tuple(store.append([*batch, CHAT[0]])) == (9, 1, 9)
    digest = store.digest()
    assert tuple(store.append(reversed(batch))) == (0, 9, 9)
    assert tuple(store.append([])) == (0, 0, 9)
    assert (store.seq, store.digest()) == (9, digest)


PLAIN = Memory("m", "tea", sources=["c"])
WITH_META = Message("u", "c", role="user", text="x", created=NOON, meta={"n": 1})
DIFFERENT = {
    "text": (PLAIN, Memory("m", "coffee", sources=["c"])),
    "sources": (PLAIN, Memory("m", "tea", sources=["c", "u1"])),
    "derived_from": (PLAIN, Memory("m", "tea", sources=["c"], derived_from=["n"])),
    "kind": (PLAIN, Memory("m", "tea", sources=["c"], kind="summary")),
    "key": (PLAIN, Memory("m", "tea", sources=["c"], key="drink")),
    "importance": (PLAIN, Memory("m", "tea", sources=["c"], importance=0.5)),
    "type": (PLAIN, Message("m", "c")),
    "role": (WITH_META, Message("u", "c", role="tool", text="x", created=NOON, meta={"n": 1})),
    "meta": (WITH_META, Message("u", "c", role="user", text="x", created=NOON, meta={"n": 1.0})),
    "created": (
        WITH_META,
        Message("u", "c", role="user", text="x", created=NOON.astimezone(timezone(timedelta(hours=8))), meta={"n": 1}),
    ),
    "parent": (Message("u", None), Message("u", LEGACY)),
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_one_id_with_two_contents_is_a_conflict_that_names_the_field(store: Any, field: str) -> None:
    first, second = DIFFERENT[field]
    store.append([first])

    with pytest.raises(bm.EventConflict) as raised:
        store.append([Message("new", None), second])

    assert (raised.value.id, raised.value.field) == (first.id, field)
    assert (store.seq, "new" in store.log) == (1, False)


@pytest.mark.parametrize("field", ["sources", "derived_from", "kind", "key", "type", "parent"])
def test_an_engine_compares_what_decides_visibility(engine: Any, field: str) -> None:
    first, second = DIFFERENT[field]
    engine.add([first])

    with pytest.raises(bm.EventConflict, match=f"another {field}"):
        engine.add([Message("new", None), second])
    assert (engine.seq, list(engine.message_ids) == ["new"]) == (1, False)


def test_a_conflict_within_a_batch_refuses_the_batch(store: Any) -> None:
    with pytest.raises(bm.EventConflict):
        store.append([Message("c", None), Message("u", "c"), Message("u", None)])

    assert store.seq == 0


LATER = {
    "retraction": Retraction("r", "c", scope="tree", memories=["m"]),
    "restoration": Restoration("r", "c", scope="tree", retraction="x"),
    "erasure": Erasure("e", ["m"]),
    "supersedes": Memory("n", "tea", sources=["c"], supersedes=["m"]),
    "adopts": Memory("n", "tea", sources=["c"], adopts="m"),
}


@pytest.mark.parametrize("later", LATER)
def test_what_no_one_would_obey_yet_is_refused_with_its_batch(engine: Any, store: Any, later: str) -> None:
    for take_in, target in ((engine.add, engine), (store.append, store)):
        with pytest.raises(bm.InvalidEvent, match=later):
            take_in([Message("c", None), LATER[later]])
        assert target.seq == 0


def test_the_log_hands_out_what_it_took_in(store: Any) -> None:
    events: list[Event] = [Message("b", None), fact("m", "b"), Message("a", "b", text="hi")]
    store.append(events)

    assert [store.log.get(event.id) for event in events] == events
    assert ("b" in store.log, "c" in store.log, len(store.log)) == (True, False, 3)
    assert list(store.log.events()) == events
    assert list(store.log.events(1)) == events[1:]
    assert list(store.log.events(0, 2)) == events[:2]
    assert list(store.log.events(type="message")) == [events[0], events[2]]


def test_the_digest_is_that_of_the_canonical_bytes_by_id(store: Any) -> None:
    events: list[Event] = [Message("ﬀ", None, text="x"), Message("é", "ﬀ"), fact("𝒳", "é"), Message("b", "ﬀ")]
    store.append(events)

    by_id = sorted(events, key=lambda event: event.id.encode())
    expected = hashlib.sha256(b"".join(event.skeleton() + event.body() for event in by_id))
    assert store.digest() == expected.hexdigest()


# The reference alone


def test_the_reference_does_not_recurse() -> None:
    reference = Reference()
    reference.add(Message(f"m{number}", f"m{number - 1}" if number else None) for number in range(5000))
    for number in range(1000):
        reference.add([fact(f"k{number}", f"m{number * 3}", derived_from=[f"k{number - 1}"] if number else [])])

    assert len(reference.at("m2000")) == 667
    assert reference.at("m2990").explain("k999").culprits == {Reason.FUTURE: ("m2991", "m2994", "m2997")}


def test_the_reference_forgets_what_it_kept_when_events_arrive() -> None:
    reference = Reference()
    reference.add([fact("m", "u", derived_from=["n"])])
    seen = [reference.at("u").explain("m").reasons]
    for event in (Message("u", "c"), fact("n", "c"), Message("c", None)):
        reference.add([event])
        seen.append(reference.at("u").explain("m").reasons)

    assert seen == [
        Reason.UNKNOWN_ANCHOR | Reason.MISSING_UPSTREAM | Reason.MISSING_SOURCE,
        Reason.DETACHED_ANCHOR | Reason.MISSING_UPSTREAM | Reason.DETACHED_SOURCE,
        Reason.DETACHED_ANCHOR | Reason.MISSING_SOURCE | Reason.DETACHED_SOURCE,
        Reason(0),
    ]
