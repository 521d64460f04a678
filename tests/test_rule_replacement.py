"""What the rule promises of supersession and adoption, one promise a test, on reference and engine alike."""

from __future__ import annotations

from typing import Any

import branchmem as bm
import pytest
from branchmem import COMPAT, STRICT, Message, Policy, Reason
from branchmem.events import Erasure, Event, Restoration, Retraction
from chats import CHAT, OTHER, fact, shown

SUPERSEDED = Reason.SUPERSEDED


def told(engine: Any, *events: Event) -> Any:
    engine.add([*CHAT, *OTHER, *events])
    return engine


def versions(*sources: str) -> list[bm.Memory]:
    """h0, h1, …: each from one message, each replacing the one before."""
    return [
        fact(f"h{number}", source, supersedes=[f"h{number - 1}"] if number else [])
        for number, source in enumerate(sources)
    ]


def superseded(engine: Any, *anchors: str, policy: Policy = STRICT) -> dict[str, tuple[str, ...]]:
    """The memories that are SUPERSEDED at these anchors, each with the memories that replace it."""
    view = engine.at(anchors, policy=policy)
    bits = dict(zip(engine.memory_ids, view.reasons().tolist(), strict=True))
    return {id: view.explain(id).culprits[SUPERSEDED] for id in bits if bits[id] & SUPERSEDED}


# Supersession


def test_a_replacement_replaces_where_it_is_live_and_nowhere_else(engine: Any) -> None:
    told(engine, *versions("u1", "u2"))

    assert shown(engine.at("a2")) == {"h1"}
    assert engine.at("a2").explain("h0").reasons == SUPERSEDED
    assert [shown(engine.at(anchor)) for anchor in ("u1", "a1", "u2")] == [{"h0"}, {"h0"}, {"h1"}]


def test_on_a_branch_where_the_replacement_was_never_made_the_old_memory_is_current(engine: Any) -> None:
    told(engine, *versions("u1", "a2x"))

    assert (shown(engine.at("a2")), shown(engine.at("a2x"))) == ({"h0"}, {"h1"})


def test_a_memory_is_replaced_over_any_number_of_steps_by_each_that_is_live(engine: Any) -> None:
    told(engine, *versions("u1", "u1", "u2", "a2"))

    assert superseded(engine, "a2") == {"h0": ("h1", "h2", "h3"), "h1": ("h2", "h3"), "h2": ("h3",)}
    assert superseded(engine, "a1") == {"h0": ("h1",)}


def test_the_memories_between_need_not_be_visible(engine: Any) -> None:
    told(engine, *versions("u1", "a1x", "u2"))

    assert superseded(engine, "a2") == {"h0": ("h2",), "h1": ("h2",)}


def test_what_replaces_leads_on_through_what_was_erased(engine: Any) -> None:
    told(engine, *versions("u1", "u1", "u2"), Erasure("e", ["h1"]))

    assert superseded(engine, "a2") == {"h0": ("h2",), "h1": ("h2",)}
    assert shown(engine.at("a1")) == {"h0"}


@pytest.mark.parametrize("between", ["nothing", "u2", "r"])
def test_no_step_leads_through_what_is_no_memory_of_the_log(engine: Any, between: str) -> None:
    told(engine, Retraction("r", "v1", scope="branch", memories=["h0"]))
    engine.add([fact("h0", "u1"), fact("h2", "u2", supersedes=[between])])

    assert superseded(engine, "a2") == {}


def test_a_version_between_that_arrives_later_closes_the_gap(engine: Any) -> None:
    told(engine, fact("h2", "u2", supersedes=["h1"]), fact("h0", "u1"))
    view = engine.at("a2")
    engine.add([fact("h1", "gone", supersedes=["h0"])])

    assert superseded(engine, "a2") == {"h0": ("h2",), "h1": ("h2",)}
    assert (shown(view), view.explain("h0").reasons) == ({"h2", "h0"}, SUPERSEDED)


def test_where_the_replacement_is_taken_back_the_old_memory_comes_back(engine: Any) -> None:
    told(engine, *versions("u1", "u2"), Retraction("r", "a2", scope="branch", memories=["h1"]))
    assert (shown(engine.at("a2")), shown(engine.at("a2x"))) == ({"h0"}, {"h1"})

    engine.add([Retraction("r2", "a2", scope="branch", memories=["h0"])])
    assert shown(engine.at("a2")) == set()
    engine.add([Restoration("s", "a2", scope="branch", retraction="r")])
    assert shown(engine.at("a2")) == {"h1"}
    assert engine.at("a2").explain("h0").culprits == {Reason.RETRACTED: ("r2",), SUPERSEDED: ("h1",)}


def test_what_replaces_each_other_lives_on_where_the_other_is_taken_back(engine: Any) -> None:
    told(engine, fact("p", "u1", supersedes=["q"], key="k"), fact("q", "a2", supersedes=["p"], key="k"))
    engine.add([Retraction("r", "u1", scope="branch", keys=["k"])])

    assert shown(engine.at("a2")) == {"q"}
    assert engine.at("a2").explain("p").reasons == Reason.RETRACTED | SUPERSEDED


def test_taking_back_a_version_between_revives_nothing(engine: Any) -> None:
    told(engine, *versions("u1", "u2", "a2"), Retraction("r", "a2", scope="branch", memories=["h1"]))

    assert engine.at("a2").explain("h1").reasons == Reason.RETRACTED | SUPERSEDED
    assert shown(engine.at("a2")) == {"h2"}


def test_two_that_replace_each_other_are_both_hidden_where_both_are_live(engine: Any) -> None:
    told(engine, fact("p", "u1", supersedes=["q"]), fact("q", "u2", supersedes=["p"]))

    assert (shown(engine.at("a2")), shown(engine.at("a1"))) == (set(), {"p"})
    assert superseded(engine, "a2") == {"p": ("q",), "q": ("p",)}


def test_a_memory_never_replaces_itself(engine: Any) -> None:
    told(engine, fact("s", "u1", supersedes=["s"]))
    told(engine, fact("p", "u1", supersedes=["q"]), fact("q", "a1x", supersedes=["p"]))

    assert superseded(engine, "a2") == {"q": ("p",)}
    assert shown(engine.at("a2")) == {"s", "p"}


def test_circles_of_replacement_are_found(engine: Any) -> None:
    told(engine, fact("s", supersedes=["s"]), fact("p", supersedes=["q", "x"]), fact("q", supersedes=["p"]))
    engine.add([fact("a", supersedes=["b"]), fact("b", supersedes=["z"]), fact("z", supersedes=["a", "p"])])

    asked = getattr(engine, "_engine", engine)
    assert sorted(asked.supersession_circles()) == [["a", "b", "z"], ["p", "q"]]


def test_live_is_what_the_policy_would_show_without_supersession(engine: Any) -> None:
    told(engine, fact("old", "u1"), fact("new", supersedes=["old"]), fact("next", "a2", supersedes=["new"]))

    assert superseded(engine, "a1") == {}
    assert superseded(engine, "a1", policy=COMPAT) == {"old": ("new",)}
    assert superseded(engine, "a1", policy=Policy(admit=Reason.FUTURE)) == {"old": ("next",), "new": ("next",)}
    everything = Policy(admit=Reason((1 << 16) - 1))
    assert superseded(engine, "a1", policy=everything) == {"old": ("new", "next"), "new": ("next",)}


def test_a_policy_that_lets_superseded_through_shows_both_and_changes_nothing_else(engine: Any) -> None:
    told(engine, *versions("u1", "u2"), fact("side", "a1x", supersedes=["h1"]))
    policy = Policy(admit=SUPERSEDED)

    assert shown(engine.at("a2", policy=policy)) == {"h0", "h1"}
    assert superseded(engine, "a2", policy=policy) == {"h0": ("h1",)}


def test_where_no_anchor_is_usable_only_what_the_policy_shows_replaces(engine: Any) -> None:
    told(engine, *versions("u1", "a2"))

    assert superseded(engine) == superseded(engine, "nope", policy=COMPAT) == {}
    assert superseded(engine, policy=COMPAT) == {"h0": ("h1",)}
    assert shown(engine.at(None, policy=COMPAT)) == {"h1"}


def test_one_more_anchor_may_hide_what_was_visible(engine: Any) -> None:
    told(engine, *versions("u1", "v1"))

    assert (shown(engine.at("a2")), shown(engine.at(["a2", "v2"]))) == ({"h0"}, {"h1"})


def test_an_erased_memory_replaces_only_where_the_policy_shows_it(engine: Any) -> None:
    told(engine, *versions("u1", "u2"), Erasure("e", ["h1"]))

    assert superseded(engine, "a2") == superseded(engine, "a2", policy=COMPAT) == {}
    assert superseded(engine, "a2", policy=Policy(admit=Reason.ERASED)) == {"h0": ("h1",)}


def test_supersession_does_not_reach_downstream_but_warns(engine: Any) -> None:
    told(engine, *versions("u1", "u2"), fact("top", derived_from=["middle"]), fact("middle", derived_from=["h0"]))
    engine.add([fact("adopting", "u1", adopts="h0")])
    at = engine.at("a2").explain

    assert shown(engine.at("a2")) == {"h1", "top", "middle", "adopting"}
    assert at("top").superseded_upstream == at("middle").superseded_upstream == ("h0",)
    assert [at(id).superseded_upstream for id in ("adopting", "h0", "h1", "nothing")] == [()] * 4
    assert engine.at("a1").explain("top").superseded_upstream == ()


def test_a_memory_may_derive_from_what_it_replaces_and_is_warned(engine: Any) -> None:
    told(engine, fact("h0", "u1"), fact("h1", "u2", derived_from=["h0"], supersedes=["h0"]))
    assert engine.at("a2").explain("h1").superseded_upstream == ("h0",)

    engine.add([Retraction("r", "u1", scope="branch", memories=["h0"])])
    assert engine.at("a2").explain("h1").superseded_upstream == ()
    policy = Policy(admit=Reason.RETRACTED)
    assert engine.at("a2", policy=policy).explain("h1").superseded_upstream == ("h0",)
    assert shown(engine.at("a2", policy=policy)) == {"h1"}


def test_a_memory_in_a_circle_is_no_warning_to_itself(engine: Any) -> None:
    told(engine, fact("p", "u1", derived_from=["q"]), fact("q", "u1", derived_from=["p"]))
    engine.add([fact("new", "u1", supersedes=["p", "q"])])

    assert engine.at("a2").explain("p").superseded_upstream == ("q",)


def test_a_superseded_memory_counts_as_hidden(engine: Any) -> None:
    told(engine, *versions("u1", "u2"))
    assert "h0" not in engine.at("a2")
    assert engine.visible(["h0", "h1", "h0"], ["a2", "a2", "a1"]).tolist() == [False, True, True]
    engine.at("a2", policy=Policy(admit=SUPERSEDED)).ids()

    assert engine.counters() == {"hidden": {SUPERSEDED: 1}, "admitted": {SUPERSEDED: 1}, "unlisted": 1}


# What is current


def test_current_is_the_live_memory_with_that_key_or_the_rivals_in_path_order(store: Any) -> None:
    old, new = fact("old", "u1", key="city"), fact("new", "u2", key="city", supersedes=["old"])
    rival = fact("a rival", "a2", key="city")
    store.append([*CHAT, rival, old, new, fact("tea", "u1", key="drink")])

    assert store.at("a1").current("city") == old
    assert store.at("a2x").current("city") == new
    assert store.at("a2").current("city") == [new, rival]
    assert store.at("u1x").current("city") is None
    assert store.at("a2").current("colour") is None


# Adoption


def test_an_adopted_memory_is_visible_by_its_own_sources(engine: Any) -> None:
    told(engine, fact("home", "u1"), fact("taken over", "a1x", adopts="home"))

    assert [shown(engine.at(anchor)) for anchor in ("a2", "u1x", "a1x")] == [{"home"}, set(), {"taken over"}]


def test_a_memory_that_adopts_needs_a_source_of_its_own(engine: Any) -> None:
    told(engine, fact("home", "u1"), fact("taken over", adopts="home"))

    assert engine.at("a2").explain("taken over").culprits == {Reason.NO_SOURCES: ("taken over",)}


def test_what_is_wrong_with_the_sources_of_the_adopted_is_not_wrong_here(engine: Any) -> None:
    told(engine, Message("orphan", "not here"), Message("old", bm.LEGACY), fact("bare"))
    engine.add([fact("home", "gone", "orphan", "old", derived_from=["bare"]), fact("taken over", "u1", adopts="home")])

    assert engine.at("a2").explain("taken over").reasons == Reason(0)


def test_adopting_what_is_not_here_is_a_missing_upstream_at_any_remove(engine: Any) -> None:
    told(
        engine, fact("top", "u1", derived_from=["m"]), fact("m", "u1", adopts="n"), fact("n", "u1", derived_from=["x"])
    )
    engine.add([fact("from a message", "u1", adopts="u1")])

    at = engine.at("a2").explain
    assert at("top").culprits == at("m").culprits == {Reason.MISSING_UPSTREAM: ("x",)}
    assert at("from a message").culprits == {Reason.MISSING_UPSTREAM: ("u1",)}


def test_a_circle_may_run_through_adoptions(engine: Any) -> None:
    told(engine, fact("p", "u1", adopts="q"), fact("q", "u1", derived_from=["p"]), fact("below", "u1", adopts="p"))
    engine.add([fact("itself", "u1", adopts="itself"), fact("twice", "u1", adopts="twin", derived_from=["twin"])])
    engine.add([fact("twin", "u1")])

    at = engine.at("a2").explain
    assert at("p").culprits == at("q").culprits == at("below").culprits == {Reason.UPSTREAM_CYCLE: ("p", "q")}
    assert at("itself").culprits == {Reason.UPSTREAM_CYCLE: ("itself",)}
    assert at("twice").reasons == Reason(0)
