"""Appends and questions interleaved at will: the engine answers as the reference does, error for error."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import branchmem as bm
import pytest
from branchmem import COMPAT, LEGACY, STRICT, Memory, Message, Policy, Reason
from branchmem.events import SCOPES, Erasure, Event, Restoration, Retraction
from branchmem.reference import Reference
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

pytestmark = pytest.mark.usefixtures("quiet")

policies = st.one_of(
    st.sampled_from([STRICT, COMPAT, Policy(admit=Reason.FUTURE | Reason.ERASED), Policy(admit=Reason((1 << 16) - 1))]),
    st.integers(0, (1 << 16) - 1).map(lambda bits: Policy(admit=Reason(bits))),
)


class Conversations(RuleBasedStateMachine):
    """`ids` names events of all types and what is not here (yet): all are drawn alike wherever an id is asked for.

    `messages`, `memories` and `retractions` are some of them, for what would otherwise seldom name anything.
    """

    ids = Bundle("ids")
    messages = Bundle("messages")
    memories = Bundle("memories")
    retractions = Bundle("retractions")
    views = Bundle("views")
    places = st.one_of(messages, ids)
    remembered = st.one_of(memories, ids)
    scopes = st.sampled_from(SCOPES)
    keys = st.sampled_from(["home", "diet"])

    def __init__(self) -> None:
        super().__init__()
        self.ours = self.make()
        self.reference = Reference()
        self.named = 0

    def make(self) -> Any:
        """What is compared with the reference."""
        return bm.Engine()

    def new_id(self) -> str:
        self.named += 1
        return f"{'éz'[self.named % 2]}{self.named}"

    def both(self, ask: Callable[[Any], Any]) -> Any:
        """The answer of both, which must be one; an error counts as an answer."""
        ours, right = (outcome(ask, target) for target in self.targets())
        assert ours == right
        return ours

    # Appends

    @rule(target=ids)
    def name_what_is_not_here(self) -> str:
        return self.new_id()

    @rule(targets=(ids, messages), legacy=st.booleans())
    def start(self, legacy: bool) -> str:
        return self.add(Message(self.new_id(), LEGACY if legacy else None))

    @rule(targets=(ids, messages), parent=ids)
    def reply(self, parent: str) -> str:
        return self.add(Message(self.new_id(), parent))

    @rule(targets=(ids, messages), parent=messages)
    def answer(self, parent: str) -> str:
        return self.add(Message(self.new_id(), parent))

    @rule(id=ids, parent=st.one_of(st.none(), ids))
    def arrive_late_or_conflict(self, id: str, parent: str | None) -> None:
        self.add(Message(id, parent))

    @rule(
        targets=(ids, memories),
        sources=st.lists(places, max_size=3),
        derived_from=st.lists(remembered, max_size=2),
        key=st.one_of(st.none(), keys),
    )
    def remember(self, sources: list[str], derived_from: list[str], key: str | None) -> str:
        return self.add(Memory(self.new_id(), "text", sources=sources, derived_from=derived_from, key=key))

    @rule(
        targets=(ids, memories),
        sources=st.lists(places, min_size=1, max_size=2),
        supersedes=st.lists(remembered, max_size=3),
        adopts=st.one_of(st.none(), remembered),
        key=st.one_of(st.none(), keys),
    )
    def replace_or_adopt(self, sources: list[str], supersedes: list[str], adopts: str | None, key: str | None) -> str:
        memory = Memory(self.new_id(), "text", sources=sources, supersedes=supersedes, adopts=adopts, key=key)
        return self.add(memory)

    @rule(
        id=ids,
        sources=st.lists(ids, max_size=2),
        derived_from=st.lists(ids, max_size=2),
        supersedes=st.lists(ids, max_size=1),
        adopts=st.one_of(st.none(), ids),
    )
    def remember_late_or_conflict(self, id: str, **links: Any) -> None:
        self.add(Memory(id, "text", **links))

    @rule(
        targets=(ids, retractions),
        at=places,
        scope=scopes,
        memories=st.lists(remembered, min_size=1, max_size=2),
        sources=st.lists(ids, max_size=1),
    )
    def take_back(self, at: str, scope: Any, memories: list[str], sources: list[str]) -> str:
        return self.add(Retraction(self.new_id(), at, scope=scope, memories=memories, sources=sources))

    @rule(
        targets=(ids, retractions),
        at=places,
        scope=scopes,
        keys=st.lists(keys, min_size=1, max_size=2),
        sources=st.lists(places, max_size=1),
        standing=st.booleans(),
    )
    def take_back_by_key(self, at: str, scope: Any, keys: list[str], sources: list[str], standing: bool) -> str:
        return self.add(Retraction(self.new_id(), at, scope=scope, keys=keys, sources=sources, standing=standing))

    @rule(targets=(ids, memories), at=messages, scope=scopes, key=keys, standing=st.booleans())
    def take_back_a_key_and_state_it_afresh(self, at: str, scope: Any, key: str, standing: bool) -> str:
        below, memory = Message(self.new_id(), at), self.new_id()
        retraction = Retraction(self.new_id(), at, scope=scope, keys=[key], standing=standing)
        return self.add(retraction, below, Memory(memory, "text", sources=[below.id], key=key))

    @rule(target=ids, at=messages, scope=scopes, retraction=st.one_of(retractions, retractions, ids))
    def restore(self, at: str, scope: Any, retraction: str) -> str:
        return self.add(Restoration(self.new_id(), at, scope=scope, retraction=retraction))

    @rule(id=ids, at=ids, scope=scopes, named=ids, restores=st.booleans())
    def take_back_or_restore_late_or_conflict(self, id: str, at: str, scope: Any, named: str, restores: bool) -> None:
        restoration = Restoration(id, at, scope=scope, retraction=named)
        self.add(restoration if restores else Retraction(id, at, scope=scope, memories=[named]))

    @rule(target=ids, named=st.lists(ids, min_size=1, max_size=2), cascade=st.booleans())
    def erase(self, named: list[str], cascade: bool) -> str:
        return self.add(Erasure(self.new_id(), named, cascade=cascade))

    @rule(targets=(ids, messages), parent=places, length=st.integers(2, 8))
    def talk(self, parent: str, length: int) -> MultipleResults[str]:
        path = [parent, *(self.new_id() for _ in range(length))]
        self.add(*(Message(id, above) for above, id in pairwise(path)))
        return multiple(*path[1::2])

    @rule(
        targets=(ids, memories),
        upstream=remembered,
        source=places,
        link=st.sampled_from(["derived_from", "supersedes"]),
        backwards=st.booleans(),
    )
    def continue_in_a_chain(self, upstream: str, source: str, link: str, backwards: bool) -> str:
        chain = [upstream, *(self.new_id() for _ in range(3))]
        memories = [linked(id, source, link, above) for above, id in pairwise(chain)]
        self.add(*(reversed(memories) if backwards else memories))
        return memories[-1].id

    @rule(target=ids)
    def run_in_a_circle(self) -> str:
        first, second = self.new_id(), self.new_id()
        self.add(Message(first, second), Message(second, first))
        return first

    @rule(targets=(ids, memories), source=places, link=st.sampled_from(["derived_from", "supersedes"]))
    def remember_in_a_circle(self, source: str, link: str) -> str:
        first, second = self.new_id(), self.new_id()
        self.add(linked(first, source, link, second), linked(second, source, link, first))
        return first

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        if self.reference.seq:
            known = list(self.reference.log.events())
            self.add(*data.draw(st.lists(st.sampled_from(known), max_size=4)))

    def add(self, *events: Event) -> str:
        self.both(lambda target: tuple(appender(target)(events)))
        return events[-1].id if events else ""

    # Questions

    @rule(anchors=st.lists(places, max_size=3), policy=policies)
    def look_around(self, anchors: list[str], policy: Policy) -> None:
        self.both(lambda target: everything(target.at(anchors, policy=policy)))

    @rule(target=views, anchors=st.lists(places, max_size=2), policy=policies)
    def keep_a_view(self, anchors: list[str], policy: Policy) -> tuple[Any, Any]:
        views = [outcome(lambda target: target.at(anchors, policy=policy), target) for target in self.targets()]
        return views[0], views[1]

    @rule(pair=views, id=ids)
    def ask_a_view_about_one(self, pair: tuple[Any, Any], id: str) -> None:
        if isinstance(pair[0], tuple):
            assert pair[0] == pair[1]
            return
        for ask in (lambda view: id in view, lambda view: explained(view, id), lambda view: view.filter([id, "?", id])):
            assert outcome(ask, pair[0]) == outcome(ask, pair[1])

    @rule(pair=consumes(views))
    def ask_a_view_about_all(self, pair: tuple[Any, Any]) -> None:
        if not isinstance(pair[0], tuple):
            assert outcome(everything, pair[0]) == outcome(everything, pair[1])

    @rule(target=ids, pair=views, at=messages, scope=scopes, how=st.sampled_from(["take back", "erase", "replace"]))
    def undo_what_a_view_shows(self, pair: tuple[Any, Any], at: str, scope: Any, how: str) -> str:
        id, shown = self.new_id(), self.shown_first(pair)
        if not shown:
            return id
        if how == "erase":
            return self.add(Erasure(id, shown))
        if how == "replace":
            return self.add(Memory(id, "text", sources=[at], supersedes=shown))
        return self.add(Retraction(id, at, scope=scope, memories=shown))

    @rule(anchor=places, policy=policies)
    def explain_all(self, anchor: str, policy: Policy) -> None:
        known = [*self.reference.memory_ids, "?"]
        self.both(lambda target: [explained(target.at(anchor, policy=policy), id) for id in known])

    @rule(pairs=st.lists(st.tuples(remembered, places), max_size=6), policy=policies)
    def ask_for_pairs(self, pairs: list[tuple[str, str]], policy: Policy) -> None:
        memories, anchors = [memory for memory, _ in pairs], [anchor for _, anchor in pairs]
        self.both(lambda target: target.visible(memories, anchors, policy=policy).tolist())

    @rule(anchors=st.lists(st.one_of(st.none(), places, st.lists(ids, max_size=2)), max_size=4), policy=policies)
    def ask_for_bitmaps(self, anchors: list[Any], policy: Policy) -> None:
        self.both(lambda target: target.bitmaps(anchors, policy=policy).tolist())

    @rule(id=ids, other=ids)
    def ask_the_tree(self, id: str, other: str) -> None:
        for question in ("parent", "children", "siblings", "path", "depth", "leaves", "latest_leaf"):
            self.both(of_tree(question, id))
        self.both(of_tree("is_ancestor", id, other))
        self.both(of_tree("common_ancestor", id, other))

    @rule(id=ids)
    def ask_about_the_log(self, id: str) -> None:
        """The engine answers these to `check`, the reference by itself."""
        ours, right = self.ours._engine, self.reference
        assert sorted(ours.unplaced()) == sorted(right.unplaced())
        assert sorted(ours.supersession_circles()) == sorted(right.supersession_circles())
        assert dict(ours.unshowable()) == right.unshowable()
        assert ours.is_erased(id) == right.is_erased(id)

    @rule(known=st.lists(ids, max_size=3))
    def ask_for_ordinals(self, known: list[str]) -> None:
        self.both(lambda target: target.memory_ordinals(known).tolist())
        self.both(lambda target: target.message_ordinals(known).tolist())

    @invariant()
    def both_stand_at_one_place(self) -> None:
        self.both(lambda target: (target.seq, list(target.memory_ids), list(target.message_ids)))
        self.both(lambda target: (target.tree.roots(), target.tree.leaves()))

    @invariant()
    def both_have_counted_the_same(self) -> None:
        self.both(lambda target: target.counters())

    def shown_first(self, pair: tuple[Any, Any]) -> list[str]:
        """The first memory that a view shows, if any; nothing where there is no view."""
        if isinstance(pair[0], tuple):
            return []
        ours: list[str] = pair[0].ids()
        assert ours == pair[1].ids()
        return ours[:1]

    def targets(self) -> tuple[Any, Any]:
        return self.ours, self.reference


class StoredConversations(Conversations):
    """The same through a file; and what was written is read, until it is erased."""

    def make(self) -> Any:
        return bm.open_temporary()

    def teardown(self) -> None:
        self.ours.close()

    @rule(data=st.data())
    def arrive_again_with_other_content(self, data: st.DataObject) -> None:
        """A conflict, but where the content has been erased."""
        known = [event for event in self.reference.log.events() if isinstance(event, (Message, Memory))]
        if known:
            form = data.draw(st.sampled_from(known)).to_dict()
            self.add(bm.event_from_dict({**form, "text": "other", "meta": {"more": 1}}))

    @rule(pair=Conversations.views, id=Conversations.ids, key=Conversations.keys)
    def read_a_view(self, pair: tuple[Any, Any], id: str, key: str) -> None:
        if not isinstance(pair[0], tuple):
            for ask in (lambda view: view.get(id), lambda view: view.memories(), lambda view: view.current(key)):
                assert outcome(ask, pair[0]) == outcome(ask, pair[1])

    @rule(anchor=Conversations.places, policy=policies, key=Conversations.keys)
    def erase_what_a_view_shows_and_read_it(self, anchor: str, policy: Policy, key: str) -> None:
        pair = self.ours.at(anchor, policy=policy), self.reference.at(anchor, policy=policy)
        for id in self.shown_first(pair):
            self.add(Erasure(self.new_id(), [id]))
            self.read_a_view(pair, id, key)

    @rule(anchors=st.lists(Conversations.places, max_size=2), policy=policies, key=Conversations.keys)
    def read_what_is_visible(self, anchors: list[str], policy: Policy, key: str) -> None:
        self.both(lambda target: target.at(anchors, policy=policy).memories())
        self.both(lambda target: target.at(anchors, policy=policy).memories(key=key, limit=2))
        self.both(lambda target: target.at(anchors, policy=policy).current(key))

    @rule(id=Conversations.ids)
    def read_the_log(self, id: str) -> None:
        self.both(lambda target: target.log.get(id))
        self.both(lambda target: target.log.is_erased(id))

    @rule()
    def read_all(self) -> None:
        self.both(lambda target: (target.digest(), list(target.log.events())))


def linked(id: str, source: str, link: str, other: str) -> Memory:
    """A memory that derives from another or replaces it, as `link` says."""
    names: dict[str, Any] = {link: [other]}
    return Memory(id, "", sources=[source], **names)


def appender(target: Any) -> Callable[[Any], Any]:
    append: Callable[[Any], Any] = target.append if isinstance(target, bm.Store) else target.add
    return append


def outcome(ask: Callable[[Any], Any], target: Any) -> Any:
    """The answer, or the error; what is unknown must be the same, which two of three anchors are named need not."""
    try:
        return ask(target)
    except bm.Error as error:
        return type(error).__name__, error.args if isinstance(error, bm.UnknownEvent) else ()


def of_tree(question: str, *ids: str) -> Callable[[Any], Any]:
    return lambda target: getattr(target.tree, question)(*ids)


def explained(view: Any, id: str) -> tuple[Any, ...]:
    verdict = view.explain(id)
    about = (dict(verdict.culprits), dict(verdict.parted), dict(verdict.retractions), verdict.superseded_upstream)
    return verdict.visible, verdict.reasons, *about, verdict.seq, str(verdict)


def everything(view: Any) -> dict[str, Any]:
    return {
        "problems": view.problems,
        "anchors": view.anchors,
        "seq": view.seq,
        "len": len(view),
        "ids": list(view.ids()),
        "iteration": list(view),
        "bitmap": bytes(view.bitmap()),
        "mask": view.mask().tolist(),
        "ordinals": view.ordinals().tolist(),
        "reasons": view.reasons().tolist(),
    }


def machine(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=50,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


TestConversations = Conversations.TestCase
TestConversations.settings = machine(250)
TestStoredConversations = StoredConversations.TestCase
TestStoredConversations.settings = machine(100)
