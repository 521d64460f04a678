"""What a step sees is what its message will show: StepView against the real view, once the step has ended well."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import branchmem as bm
import numpy as np
import pytest
from branchmem import STRICT, Memory, Message, Policy
from branchmem.events import Retraction
from branchmem.questions import Tree
from branchmem.selftest.forests import forest
from branchmem.session import Session, Step, StepView
from figures import Figure, Quote
from sessions import POLICIES, events_about, told


def answers(view: Any, memories: list[str], keys: list[str], limit: int) -> dict[str, Any]:
    """All that can be asked of a view, but where the log stands."""
    return {
        "ids": sorted(view.ids()),
        "len": len(view),
        "in": [id for id in memories if id in view],
        "filter": view.filter([*memories, *memories[:3]]),
        "memories": view.memories(),
        "some": view.memories(limit=limit, kind="fact"),
        "by key": {key: view.current(key) for key in keys},
        "problems": view.problems,
        "anchors": view.anchors,
        "policy": view.policy,
        "explain": {id: replace(view.explain(id), seq=0) for id in memories},
        "contents": {id: told(lambda id=id: view[id]) for id in memories},
    }


def remember_at_random(random: Random, store: bm.Store, step: Step, keys: list[str]) -> None:
    messages, memories = list(store.message_ids), list(store.memory_ids)
    if random.random() < 0.8:
        messages = store.tree.known_path(step.base)
    shown = store.at(step.base).ids()
    if shown and random.random() < 0.5:
        memories = shown
    own = [memory.id for memory in step.memories]
    upstream = memories if random.random() < 0.7 or not own else own
    step.remember(
        random.choice("abcd"),
        sources=random.sample(messages, min(len(messages), random.choice((0, 0, 1, 2)))),
        derived_from=random.sample(upstream, min(len(upstream), random.choice((0, 0, 1, 2)))),
        supersedes=random.sample([*memories, *own], min(len(memories), random.choice((0, 0, 1, 3)))),
        key=random.choice([None, *keys]),
        kind=f"{random.randrange(30)}" if random.random() < 0.5 else "fact",
    )


def as_the_real_view(seed: int) -> tuple[int, int, int]:
    """Verdicts that were compared in a random log, own memories of the step that were shown, and hidden."""
    random = Random(f"step {seed}")
    with bm.open_temporary() as store:
        events = forest(random)
        random.shuffle(events)
        late = events[random.randrange(len(events) // 2, len(events) + 1) :]
        store.append([*events[: len(events) - len(late)], Message("root", None)])
        anchors = [random.choice(list(store.message_ids)) for _ in range(random.choice((1, 1, 2, 3)))]
        for number, anchor in enumerate(anchors):
            store.refs.create(f"r{number}", anchor)
        keys = sorted({one.key for one in events if isinstance(one, Memory) and one.key is not None})
        session = Session(store, "r0", [f"r{number}" for number in range(1, len(anchors))])
        policy = random.choice(POLICIES) if random.random() < 0.6 else STRICT
        with session.step() as step:
            for at in range(random.choice((0, 1, 3, 6))):
                with suppress(bm.EventConflict):
                    remember_at_random(random, store, step, keys)
                if random.random() < 0.3:
                    told(lambda: step.view(policy).ids())
                if random.random() < 0.3:
                    store.append([late.pop() for _ in late[:3]])
                if random.random() < 0.05:
                    store.append(events_about(random, step, store, f"odd{at}"))
            asked = [*store.memory_ids, *(memory.id for memory in step.memories), "nothing"]
            limit = random.randrange(6)
            seen = told(lambda: answers(step.view(policy), asked, keys, limit))
        real = told(lambda: answers(store.at([step.id, *anchors[1:]], policy=policy), asked, keys, limit))
    assert seen == real, f"seed {seed}"
    shown = sum(memory.id in seen["in"] for memory in step.memories) if isinstance(seen, dict) else 0
    return len(asked), shown, len(step.memories) - shown


@pytest.mark.soak
def test_a_step_sees_what_its_message_will_show(figure: Figure, quote: Quote) -> None:
    compared, shown, hidden = (
        sum(counts) for counts in zip(*map(as_the_real_view, range(figure(400, 20_000))), strict=True)
    )

    assert min(shown, hidden) > 100
    quote(f"steps: {compared:,} verdicts as the real view gives them; {shown:,} of them show a memory of the step")


def test_a_step_sees_the_head_and_its_own(session: Session) -> None:
    known = session.remember("likes fish", sources=["u1"], key="food")
    with session.step() as step:
        own = step.remember("likes cod", key="food")
        view = step.view()
        later = step.remember("likes eel")

        assert isinstance(view, StepView)
        assert (view.ids(), len(view), list(view)) == ([known.id, own.id], 2, [known.id, own.id])
        assert [own.id in view, later.id in view, "nothing" in view] == [True, False, False]
        assert view[own.id] == view.get(own.id) == own
        assert view.memories() == view.current("food") == [known, own]
        assert view.memories(limit=1) == [known]
        assert view.current("nothing") is None
        for unfit in (None, 5, b"food"):
            with pytest.raises(TypeError, match="key"):
                view.current(unfit)  # type: ignore[arg-type]
        for limit in (-1, "1", 0.5):
            with pytest.raises(ValueError, match="limit is a number of memories"):
                view.memories(limit=limit)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a list of ids is needed"):
            view.filter(own.id)
        assert view.filter([own.id, "nothing", known.id]) == [own.id, known.id]
        assert (view.anchors, view.policy, view.problems) == ((step.id,), bm.STRICT, bm.Reason(0))
        assert view.explain(own.id).visible
        assert repr(view) == f"<StepView at {step.id}: 2 memories visible>"
        with pytest.raises(KeyError, match="no memory nothing"):
            view["nothing"]
        with pytest.raises(ValueError, match="limit"):
            view.memories(limit=-1)
    assert own.id in session.view()


def test_a_step_sees_what_arrives_under_it(session: Session) -> None:
    session.store.append([Memory("derived", "x", sources=["u1"], derived_from=["upstream"])])
    with session.step() as step:
        own = step.remember("y", derived_from=["derived"])
        late = step.remember("z", sources=["u1"])
        assert step.view().ids() == [late.id]
        session.store.append([Memory("upstream", "x", sources=["u1"])])
        assert step.view().ids() == ["derived", "upstream", own.id, late.id]
        session.store.append([Message("u2", "u1"), Memory("other", "x", sources=["u2"])])
        assert step.view().ids() == ["derived", "upstream", own.id, late.id]


def test_what_is_named_counts_whatever_bears_the_name(session: Session) -> None:
    """`odd` derives from what is a retraction: that is as if absent, yet what names the id covers `odd`."""
    session.store.append(
        [
            Memory("fact", "x", sources=["u1"]),
            Memory("odd", "x", sources=["u1"], derived_from=["first"]),
            Retraction("second", "u1", scope="branch", memories=["first"]),
            Retraction("first", "u1", scope="branch", memories=["fact"]),
        ]
    )
    with session.step() as step:
        step.remember("y", derived_from=["fact"])
        assert step.view(bm.COMPAT).ids() == []
        step.remember("z", derived_from=["odd"])
        assert step.view(bm.COMPAT).ids() == []


def test_what_a_step_replaces_takes_no_place_among_so_many(session: Session) -> None:
    known = [session.remember(f"fact {number}", sources=["u1"]) for number in range(4)]
    older = sorted(known, key=lambda memory: memory.id)  # as they stand in path order
    with session.step() as step:
        step.remember("better", supersedes=older[:2])
        assert step.view().memories(limit=2) == older[2:]
        assert step.view().memories(limit=0) == []
        for many in (np.int8(127), np.uint8(255), np.int64(2**63 - 1), 2**70):
            assert step.view().memories(limit=many) == step.view().memories()  # type: ignore[arg-type]
        assert len(step.view().memories(limit=np.int64(1))) == 1  # type: ignore[arg-type]


def test_placing_what_a_step_remembers_climbs_no_path(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [session.say("user", f"{number}").id for number in range(20)]
    for head in heads:
        session.remember(f"from {head}", sources=[head])
    looked_up: list[str] = []
    path = Tree.path

    def noted(tree: Tree, id: str) -> list[str]:
        looked_up.append(id)
        return path(tree, id)

    monkeypatch.setattr(Tree, "path", noted)
    with session.step() as step:
        for number in range(10):
            step.remember(f"own {number}")
        assert len(step.view().memories()) == 30

    assert looked_up == []


def test_what_names_a_step_before_its_end_counts(session: Session) -> None:
    with session.step() as step:
        own = step.remember("likes fish")
        session.store.append([Memory("newer", "likes cod", sources=["u1"], supersedes=[own.id])])
        assert step.view().ids() == ["newer"]
        session.store.append([Memory("early", "said in it", sources=[step.id])])
        assert step.view().ids() == ["newer", "early"]
        assert [memory.id for memory in step.view().memories()] == ["newer", "early"]
    assert session.view().ids() == ["newer", "early"]


def test_retracting_what_a_step_used_takes_what_it_concluded(session: Session) -> None:
    used = session.remember("likes fish", sources=["u1"], key="food")
    with session.step() as step:
        concluded = step.remember("book the harbour", derived_from=[used])
        afresh = step.remember("likes cod", key="food")
        assert len(step.view()) == 3
        taken = session.store.retract([used.id], keys=["food"], at="u1", scope="branch")
        view = step.view()

        assert view.ids() == [afresh.id]
        with pytest.raises(bm.MemoryHidden, match=f"retraction {taken.events[0].id}"):
            view[concluded.id]
    assert session.view().ids() == [afresh.id]


def test_a_step_sees_no_content_that_was_erased_under_it(session: Session) -> None:
    with session.step() as step:
        own = step.remember("lives in Chengdu", sources=["u1"])
        view = step.view()
        session.store.erase(["u1"])

        with pytest.raises(bm.MemoryHidden, match="erased"):
            view[own.id]
        assert own.id not in step.view()
    assert "Chengdu" not in str(session.store.log.get(own.id))
    with pytest.raises(bm.MemoryHidden, match="erased"):
        view[own.id]


def test_a_step_sees_what_was_erased_after_its_end_no_more(session: Session) -> None:
    with session.step() as step:
        own = step.remember("lives in Chengdu")
        view = step.view()
    session.store.erase([own.id])

    with pytest.raises(bm.MemoryHidden, match="erased after the view was made"):
        view[own.id]
    assert bm.Reason.ERASED in view.explain(own.id).reasons


@pytest.mark.parametrize("policy", POLICIES[-3:-1], ids=["future", "sibling"])
def test_a_view_of_the_whole_log_hands_out_nothing_that_was_erased_since(session: Session, policy: Policy) -> None:
    known = session.remember("lives in Chengdu", sources=["u1"])
    with session.step() as step:
        view = step.view(policy)
        session.store.erase([known.id])

        with pytest.raises(bm.MemoryHidden, match="erased"):
            view[known.id]
        with pytest.raises(bm.MemoryHidden, match="erased"):
            view.memories()


def test_a_step_stands_beside_as_its_session_does(session: Session) -> None:
    profile = session.store.session("profile")
    vegan = profile.remember("vegan", sources=[profile.say("note", "vegan")])
    wide = session.store.session("chat", beside=["profile"])
    with wide.step() as step:
        both = step.remember("a vegan dinner", derived_from=[vegan])
        assert step.view().ids() == [vegan.id, both.id]
        assert step.view().anchors == (step.id, profile.head)
    assert set(wide.view()) == {vegan.id, both.id}
    assert set(session.view()) == set()


def test_a_step_has_no_view_where_its_message_will_have_none(session: Session) -> None:
    session.store.refs.create("here", "u1")
    wide = Session(session.store, "chat", ["here"])

    with wide.step() as step, pytest.raises(bm.AmbiguousAnchor):
        step.view()
    with pytest.raises(bm.AmbiguousAnchor):
        wide.view()


def test_steps_are_shown_with_their_state(session: Session) -> None:
    step = session.step()
    assert repr(step) == f"<Step {step.id} of chat: new>"
    with step:
        step.cancel()
        assert repr(step) == f"<Step {step.id} of chat: open, cancelled>"
    assert isinstance(step, Step)
