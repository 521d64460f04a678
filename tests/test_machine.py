"""Appends and questions interleaved at will: the engine answers as the reference does, error for error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import branchmem as bm
import pytest
from branchmem import COMPAT, LEGACY, STRICT, Memory, Message, Policy, Reason
from branchmem.events import Event
from branchmem.reference import Reference
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

policies = st.one_of(
    st.sampled_from([STRICT, COMPAT, Policy(admit=Reason.FUTURE), Policy(admit=Reason((1 << 16) - 1))]),
    st.integers(0, (1 << 16) - 1).map(lambda bits: Policy(admit=Reason(bits))),
)


class Conversations(RuleBasedStateMachine):
    """`ids` names messages, memories and what is not here (yet): all are drawn alike wherever an id is asked for."""

    ids = Bundle("ids")
    views = Bundle("views")

    def __init__(self) -> None:
        super().__init__()
        self.engine = bm.Engine()
        self.reference = Reference()
        self.named = 0

    def new_id(self) -> str:
        self.named += 1
        return f"{'éz'[self.named % 2]}{self.named}"

    def both(self, ask: Callable[[Any], Any]) -> Any:
        """The answer of both, which must be one; an error counts as an answer."""
        ours, right = (outcome(ask, target) for target in (self.engine, self.reference))
        assert ours == right
        return ours

    # Appends

    @rule(target=ids)
    def name_what_is_not_here(self) -> str:
        return self.new_id()

    @rule(target=ids, legacy=st.booleans())
    def start(self, legacy: bool) -> str:
        return self.add(Message(self.new_id(), LEGACY if legacy else None))

    @rule(target=ids, parent=ids)
    def reply(self, parent: str) -> str:
        return self.add(Message(self.new_id(), parent))

    @rule(id=ids, parent=st.one_of(st.none(), ids))
    def arrive_late_or_conflict(self, id: str, parent: str | None) -> None:
        self.add(Message(id, parent))

    @rule(target=ids, sources=st.lists(ids, max_size=3), derived_from=st.lists(ids, max_size=2))
    def remember(self, sources: list[str], derived_from: list[str]) -> str:
        return self.add(Memory(self.new_id(), "text", sources=sources, derived_from=derived_from))

    @rule(id=ids, sources=st.lists(ids, max_size=2), derived_from=st.lists(ids, max_size=2))
    def remember_late_or_conflict(self, id: str, sources: list[str], derived_from: list[str]) -> None:
        self.add(Memory(id, "text", sources=sources, derived_from=derived_from))

    @rule(target=ids, parent=ids, length=st.integers(2, 12))
    def talk(self, parent: str, length: int) -> str:
        path = [parent, *(self.new_id() for _ in range(length))]
        self.add(*(Message(id, above) for above, id in pairwise(path)))
        return path[-1]

    @rule(target=ids, upstream=ids, source=ids, backwards=st.booleans())
    def derive_in_a_chain(self, upstream: str, source: str, backwards: bool) -> str:
        chain = [upstream, *(self.new_id() for _ in range(3))]
        memories = [Memory(id, "", sources=[source], derived_from=[above]) for above, id in pairwise(chain)]
        self.add(*(reversed(memories) if backwards else memories))
        return chain[-1]

    @rule(target=ids, other=ids)
    def run_in_a_circle(self, other: str) -> str:
        first, second = self.new_id(), self.new_id()
        self.add(Message(first, second), Message(second, first))
        return first

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        if self.reference.seq:
            known = list(self.reference.log.events())
            self.add(*data.draw(st.lists(st.sampled_from(known), max_size=4)))

    def add(self, *events: Event) -> str:
        self.both(lambda target: tuple(target.add(events)))
        return events[-1].id if events else ""

    # Questions

    @rule(anchors=st.lists(ids, max_size=3), policy=policies)
    def look_around(self, anchors: list[str], policy: Policy) -> None:
        self.both(lambda target: everything(target.at(anchors, policy=policy)))

    @rule(target=views, anchors=st.lists(ids, max_size=2), policy=policies)
    def keep_a_view(self, anchors: list[str], policy: Policy) -> tuple[Any, Any]:
        views = [outcome(lambda target: target.at(anchors, policy=policy), target) for target in self.targets()]
        return views[0], views[1]

    @rule(pair=views, id=ids)
    def ask_a_view_about_one(self, pair: tuple[Any, Any], id: str) -> None:
        if not isinstance(pair[0], bm.View):
            assert pair[0] == pair[1]
            return
        for ask in (lambda view: id in view, lambda view: explained(view, id), lambda view: view.filter([id, "?", id])):
            assert outcome(ask, pair[0]) == outcome(ask, pair[1])

    @rule(pair=consumes(views))
    def ask_a_view_about_all(self, pair: tuple[Any, Any]) -> None:
        if isinstance(pair[0], bm.View):
            assert outcome(everything, pair[0]) == outcome(everything, pair[1])

    @rule(anchor=ids, policy=policies)
    def explain_all(self, anchor: str, policy: Policy) -> None:
        known = [*self.reference.memory_ids, "?"]
        self.both(lambda target: [explained(target.at(anchor, policy=policy), id) for id in known])

    @rule(pairs=st.lists(st.tuples(ids, ids), max_size=6), policy=policies)
    def ask_for_pairs(self, pairs: list[tuple[str, str]], policy: Policy) -> None:
        memories, anchors = [memory for memory, _ in pairs], [anchor for _, anchor in pairs]
        self.both(lambda target: target.visible(memories, anchors, policy=policy).tolist())

    @rule(anchors=st.lists(st.one_of(st.none(), ids, st.lists(ids, max_size=2)), max_size=4), policy=policies)
    def ask_for_bitmaps(self, anchors: list[Any], policy: Policy) -> None:
        self.both(lambda target: target.bitmaps(anchors, policy=policy).tolist())

    @rule(id=ids, other=ids)
    def ask_the_tree(self, id: str, other: str) -> None:
        for question in ("parent", "children", "siblings", "path", "leaves", "latest_leaf"):
            self.both(of_tree(question, id))
        self.both(of_tree("is_ancestor", id, other))
        self.both(of_tree("common_ancestor", id, other))

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

    def targets(self) -> tuple[Any, Any]:
        return self.engine, self.reference


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
    return verdict.visible, verdict.reasons, dict(verdict.culprits), dict(verdict.parted), verdict.seq, str(verdict)


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


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of views with problems are not news here."""
    logging.getLogger("branchmem").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("branchmem").setLevel(logging.NOTSET)


TestConversations = Conversations.TestCase
TestConversations.settings = settings(
    max_examples=400,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
