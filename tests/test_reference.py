"""The specification held to the letter: small cases exhaustively, and what a log takes in and refuses."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import chain, combinations, product
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem import LEGACY, Memory, Message, Reason
from branchmem.events import Erasure, Event, Legacy, Restoration, Retraction, Scope
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


# A conversation with two branches, another, a legacy one, and messages that hang nowhere.
PLACES = [
    *(Message("c", None), Message("u", "c"), Message("a", "u"), Message("x", "c"), Message("d", None)),
    *(Message("l", LEGACY), Message("n", "l"), Message("o", "gone")),
]
PARENTS: Parents = {message.id: message.parent for message in PLACES}
SCOPES: tuple[Scope, ...] = ("branch", "tree", "everywhere")
STANDING = list(product([*PARENTS, "gone"], SCOPES))


def holds(at: str, scope: str, anchors: tuple[str, ...], *, retracts: bool) -> bool:
    """Whether what stands at a message is in effect at these anchors: *Retraction* of the rule, read aloud."""
    above = {anchor: path for anchor in anchors if anchor in PARENTS and (path := climbed(PARENTS, anchor))}
    place = climbed(PARENTS, at) if at in PARENTS else None
    if scope == "everywhere":
        return True
    if place is None or PARENTS[at] is LEGACY or (retracts and scope == "tree" and PARENTS[place[-1]] is LEGACY):
        return retracts
    mine = [path for path in above.values() if path[-1] == place[-1]]
    if not mine:
        return retracts and (not anchors or len(above) < len(anchors))
    return scope == "tree" or at in mine[0]


def test_every_place_and_scope_of_a_retraction_and_its_restoration_read_aloud(engine: Any) -> None:
    engine.add(PLACES)
    pairs = [(retraction, lift) for retraction in STANDING for lift in [None, *STANDING]]
    for number, ((at, scope), lift) in enumerate(pairs):
        engine.add([fact(f"m{number}", "c"), Retraction(f"r{number}", at, scope=scope, memories=[f"m{number}"])])
        if lift:
            engine.add([Restoration(f"s{number}", lift[0], scope=lift[1], retraction=f"r{number}")])
    for anchors in map(tuple, map(str.split, ("", "gone", "a", "u", "x", "n", "d u", "d o", "a n m0", "d l"))):
        expected = [
            holds(*retraction, anchors, retracts=True) and not (lift and holds(*lift, anchors, retracts=False))
            for retraction, lift in pairs
        ]
        retracted = (engine.at(anchors).reasons() & Reason.RETRACTED).astype(bool).tolist()
        assert [*zip(pairs, retracted, strict=True)] == [*zip(pairs, expected, strict=True)], anchors


def downstream(named: set[str], upstream: dict[str, set[str]]) -> set[str]:
    """What is named and all that refers to it, spread until nothing more is reached."""
    while more := {id for id, above in upstream.items() if above & named} - named:
        named = named | more
    return named


def test_what_a_retraction_covers_and_an_erasure_takes_read_aloud(engine: Any) -> None:
    make = type(engine)
    for number in range(600):
        random = Random(number)
        own = {id: random.sample("abz", random.choice((0, 1, 1, 2))) for id in "pqrs"}
        derived = {id: set(random.sample("pqrsga", random.choice((0, 0, 1, 2)))) for id in "pqrs"}
        adopts = {id: random.sample("pqrsg", random.choice((0, 0, 1))) for id in "pqrs"}
        named = set(random.sample("pqrsgabz", random.choice((1, 1, 2))))
        upstream = {id: derived[id] | set(adopts[id]) for id in "pqrs"}
        drawn = downstream({id for id in own if named & set(own[id])}, derived)
        engine = make()
        engine.add([Message("a", None), Message("b", "a")])
        engine.add(fact(id, *own[id], derived_from=derived[id], adopts=next(iter(adopts[id]), None)) for id in "pqrs")
        for event, reason, taken in (
            (Retraction("by memory", "a", scope="everywhere", memories=named), Reason.RETRACTED, named),
            (Restoration("s1", "a", scope="everywhere", retraction="by memory"), Reason.RETRACTED, set()),
            (Retraction("by source", "a", scope="everywhere", sources=named), Reason.RETRACTED, drawn),
            (Restoration("s2", "a", scope="everywhere", retraction="by source"), Reason.RETRACTED, set()),
            (Erasure("all", named), Reason.ERASED, named | drawn),
        ):
            engine.add([event])
            found = {id for id, bits in zip("pqrs", engine.at("b").reasons().tolist(), strict=True) if bits & reason}
            assert found == downstream(taken, upstream) & set("pqrs"), (number, event)


def test_every_supersession_of_three_memories_read_aloud(engine: Any) -> None:
    make = type(engine)
    anchors = {"p": "a", "q": "b", "r": "c"}
    for graph in product(subsets("pqr"), repeat=3):
        replaced = dict(zip("pqr", map(set, graph), strict=True))
        for _ in replaced:
            for id in replaced:
                replaced[id] |= {old for between in replaced[id] for old in replaced[between]}
        engine = make()
        engine.add(Message(anchor, None) for anchor in "abc")
        engine.add(fact(id, anchors[id], supersedes=old) for id, old in zip("pqr", graph, strict=True))
        for live in subsets("pqr"):
            bits = engine.at([anchors[id] for id in live]).reasons()
            expected = [any(id in replaced[new] - {new} for new in live) for id in "pqr"]
            assert (bits & Reason.SUPERSEDED).astype(bool).tolist() == expected, (graph, live)


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
    "supersedes": (PLAIN, Memory("m", "tea", sources=["c"], supersedes=["n"])),
    "adopts": (PLAIN, Memory("m", "tea", sources=["c"], adopts="n")),
    "importance": (PLAIN, Memory("m", "tea", sources=["c"], importance=0.5)),
    "type": (PLAIN, Message("m", "c")),
    "role": (WITH_META, Message("u", "c", role="tool", text="x", created=NOON, meta={"n": 1})),
    "meta": (WITH_META, Message("u", "c", role="user", text="x", created=NOON, meta={"n": 1.0})),
    "created": (
        WITH_META,
        Message("u", "c", role="user", text="x", created=NOON.astimezone(timezone(timedelta(hours=8))), meta={"n": 1}),
    ),
    "parent": (Message("u", None), Message("u", LEGACY)),
    "at": (Retraction("r", "c", scope="tree", keys=["k"]), Retraction("r", "u", scope="tree", keys=["k"])),
    "scope": (Retraction("r", "c", scope="tree", keys=["k"]), Retraction("r", "c", scope="branch", keys=["k"])),
    "standing": (
        Retraction("r", "c", scope="tree", keys=["k"]),
        Retraction("r", "c", scope="tree", keys=["k"], standing=True),
    ),
    "reason": (
        Retraction("r", "c", scope="tree", keys=["k"], reason="asked to"),
        Retraction("r", "c", scope="tree", keys=["k"]),
    ),
    "retraction": (
        Restoration("s", "c", scope="tree", retraction="r"),
        Restoration("s", "c", scope="tree", retraction="q"),
    ),
    "targets": (Erasure("e", ["x"]), Erasure("e", ["x", "y"])),
    "cascade": (Erasure("e", ["x"]), Erasure("e", ["x"], cascade=False)),
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_one_id_with_two_contents_is_a_conflict_that_names_the_field(store: Any, field: str) -> None:
    first, second = DIFFERENT[field]
    store.append([first])

    with pytest.raises(bm.EventConflict) as raised:
        store.append([Message("new", None), second])

    assert (raised.value.id, raised.value.field) == (first.id, field)
    assert (store.seq, "new" in store.log) == (1, False)


@pytest.mark.parametrize(
    "field", sorted(DIFFERENT.keys() - {"text", "importance", "role", "meta", "created", "reason"})
)
def test_an_engine_compares_what_decides_visibility(engine: Any, field: str) -> None:
    first, second = DIFFERENT[field]
    engine.add([first])

    with pytest.raises(bm.EventConflict, match=f"another {field}"):
        engine.add([Message("new", None), second])
    assert (engine.seq, "new" in list(engine.message_ids)) == (1, False)


def test_a_conflict_within_a_batch_refuses_the_batch(store: Any) -> None:
    with pytest.raises(bm.EventConflict):
        store.append([Message("c", None), Message("u", "c"), Message("u", None)])

    assert store.seq == 0


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


@pytest.mark.parametrize("memories", [0, 19, 4096, 4097])
def test_reference_and_engine_write_the_same_roaring_bytes(memories: int) -> None:
    """A container of up to 4,096 numbers lists them; of more it is bits."""
    events = [*CHAT, *(fact(f"m{number}", "u1" if number % 7 else "u1x") for number in range(memories))]
    reference, engine = Reference(), bm.Engine()
    reference.add(events)
    engine.add(events)

    for anchor in ("c", "a2", "a1x"):
        policy = bm.Policy(admit=Reason.FUTURE if anchor == "c" else Reason(0))
        assert reference.at(anchor, policy=policy).roaring() == engine.at(anchor, policy=policy).roaring(), anchor


# The reference alone


@pytest.fixture
def shallow() -> Iterator[None]:
    """A stack with room for 150 calls."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("shallow")
def test_the_reference_does_not_recurse() -> None:
    reference = Reference()
    reference.add(Message(f"m{number}", f"m{number - 1}" if number else None) for number in range(900))
    upstream = [[], *([f"k{number}"] for number in range(299))]
    reference.add(
        fact(f"k{number}", f"m{number * 3}", derived_from=above, supersedes=above)
        for number, above in enumerate(upstream)
    )
    reference.add([Retraction("r", "m890", scope="branch", memories=["k0"]), Erasure("e", ["nothing"])])

    assert reference.at("m600").ids() == ["k200"]
    assert reference.at("m890").explain("k299").culprits == {
        Reason.FUTURE: ("m891", "m894", "m897"),
        Reason.RETRACTED: ("r",),
    }


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
