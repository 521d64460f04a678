"""What the rule promises of retractions and restorations, one promise a test, on reference and engine alike."""

from __future__ import annotations

from typing import Any

import branchmem as bm
import pytest
from branchmem import COMPAT, LEGACY, Message, Reason
from branchmem.events import Event, Restoration, Retraction, Scope
from chats import CHAT, OTHER, fact, shown

RETRACTED = Reason.RETRACTED
# A legacy conversation that was continued, and messages that hang nowhere.
OLD = [Message("old", LEGACY), Message("n1", "old"), Message("n2", "n1")]
LOST = [Message("orphan", "not here"), Message("x", "y"), Message("y", "x")]
NOWHERE = ["gone", "orphan", "x", "old", "a memory"]


def retract(*memories: str, at: str = "u2", scope: Scope = "branch", id: str = "r", **fields: Any) -> Retraction:
    return Retraction(id, at, scope=scope, memories=memories, **fields)


def restore(retraction: str = "r", *, at: str, scope: Scope = "branch", id: str = "s") -> Restoration:
    return Restoration(id, at, scope=scope, retraction=retraction)


def retracted(engine: Any, *anchors: str, policy: bm.Policy = COMPAT) -> set[str]:
    """The memories that are RETRACTED at these anchors."""
    bits = engine.at(anchors, policy=policy).reasons().tolist()
    return {id for id, reasons in zip(engine.memory_ids, bits, strict=True) if reasons & RETRACTED}


def told(engine: Any, *events: Event) -> Any:
    engine.add([*CHAT, *OTHER, *OLD, *LOST, fact("a memory", "c"), *events])
    return engine


# What is named


def test_naming_a_memory_takes_back_that_memory(engine: Any) -> None:
    told(engine, fact("home", "u1"), fact("tea", "u1"), retract("home"))

    assert shown(engine.at("a2")) == {"a memory", "tea"}
    assert engine.at("a2").explain("home").reasons == RETRACTED


def test_naming_a_message_takes_back_all_that_has_it_among_its_effective_sources(engine: Any) -> None:
    told(engine, fact("m", "u1"), fact("both", "a1", "u1"), fact("top", derived_from=["m"]), fact("o", "a1"))
    engine.add([retract(sources=["u1"])])

    assert retracted(engine, "a2") == {"m", "both", "top"}


def test_a_message_that_is_not_here_can_be_named(engine: Any) -> None:
    told(engine, fact("m", "u1", "gone"), retract(sources=["gone"]))

    assert retracted(engine, "a2") == {"m"}


def test_a_source_goes_by_id_whatever_bears_it(engine: Any) -> None:
    told(engine, fact("m", "u1"), fact("drawn", "u1", "m"), fact("derived", "u1", derived_from=["m"]))
    engine.add([fact("top", "u1", adopts="drawn"), retract(sources=["m"])])

    assert retracted(engine, "a2") == {"drawn", "top"}


def test_naming_a_message_among_memories_spares_what_was_said_in_it(engine: Any) -> None:
    told(engine, fact("said", "a1"), fact("derived", "u1", derived_from=["a1"]), retract("a1"))

    assert retracted(engine, "a2") == {"derived"}


def test_naming_a_key_takes_back_what_bears_it(engine: Any) -> None:
    told(engine, fact("home", "u1", key="city"), fact("tea", "u1", key="drink"), fact("none", "u1"))
    engine.add([retract(keys=["city", "colour"])])

    assert retracted(engine, "a2") == {"home"}


def test_what_was_stated_afresh_below_is_not_covered_by_key(engine: Any) -> None:
    told(engine, fact("fresh", "u2", "a2", key="city"), fact("derived", key="city", derived_from=["tea"]))
    engine.add([fact("tea", "u2"), retract(at="a1", keys=["city"])])

    assert retracted(engine, "a2") == set()


STALE: dict[str, dict[str, Any]] = {
    "from the message itself": {"sources": ["a1"]},
    "from above too": {"sources": ["u1", "u2"]},
    "from a sibling": {"sources": ["a1x"]},
    "from another tree": {"sources": ["u2", "v1"]},
    "without a source": {},
    "from what is not here": {"sources": ["u2", "gone"]},
    "from what is not attached": {"sources": ["u2", "orphan"]},
    "from a legacy message": {"sources": ["u2", "old"]},
    "derived from what is above": {"sources": ["u2"], "derived_from": ["above"]},
}


@pytest.mark.parametrize("fields", STALE.values(), ids=STALE)
def test_afresh_means_that_every_effective_source_lies_strictly_below(engine: Any, fields: dict[str, Any]) -> None:
    told(engine, fact("above", "u1"), bm.Memory("m", "", key="city", **fields), retract(at="a1", keys=["city"]))

    assert retracted(engine, "a2") == {"m"}


def test_what_it_adopts_does_not_make_a_statement_stale(engine: Any) -> None:
    told(engine, fact("above", "u1"), fact("m", "u2", adopts="above", key="city"), retract(at="a1", keys=["city"]))

    assert retracted(engine, "a2") == set()


def test_what_is_not_here_adds_no_source_that_could_make_a_statement_stale(engine: Any) -> None:
    told(engine, fact("m", "u2", derived_from=["later"], key="city"), retract(at="a1", keys=["city"]))
    assert engine.at("a2", policy=COMPAT).explain("m").reasons == Reason.MISSING_UPSTREAM

    engine.add([fact("later", "a1", key="trip")])
    assert retracted(engine, "a2") == {"m"}


@pytest.mark.parametrize("at", ["gone", "orphan", "x", "a memory"])
def test_nothing_is_stated_afresh_below_what_has_no_place(engine: Any, at: str) -> None:
    told(engine, Message("below", at), fact("m", "below", key="city"), retract(at=at, keys=["city"]))

    assert retracted(engine, "a2") == {"m"}


def test_below_a_legacy_message_something_can_be_stated_afresh(engine: Any) -> None:
    told(engine, fact("fresh", "n1", key="city"), fact("stale", "old", key="city"), retract(at="old", keys=["city"]))
    engine.add([fact("elsewhere", "u1", key="city")])

    assert retracted(engine, "a2") == retracted(engine, "n2") == {"stale", "elsewhere"}


def test_a_standing_retraction_covers_fresh_statements_too(engine: Any) -> None:
    told(engine, fact("home", "u1", key="city"), fact("new", "u2", key="city"))
    engine.add([retract(at="a1", keys=["city"], standing=True)])

    assert retracted(engine, "a2") == {"home", "new"}


def test_afresh_spares_from_the_key_alone(engine: Any) -> None:
    told(engine, fact("m", "u2", key="city"), fact("n", "u2", key="city"), fact("o", "u2", key="city"))
    engine.add([retract("m", at="a1", sources=["gone"], keys=["city"])])
    assert retracted(engine, "a2") == {"m"}

    engine.add([retract(at="a1", sources=["u2"], keys=["city"], id="r2")])
    assert retracted(engine, "a2") == {"m", "n", "o"}


# What flows


def test_a_retraction_flows_to_what_derives_or_adopts_at_any_remove(engine: Any) -> None:
    told(engine, fact("top", "v1", adopts="middle"), fact("middle", "u1", derived_from=["home"]), fact("home", "u1"))
    engine.add([fact("newer", "u1", supersedes=["home"]), retract("home", at="c", scope="everywhere")])

    assert retracted(engine, "v1") == {"home", "middle", "top"}


def test_what_is_downstream_of_a_covered_key_is_covered_however_fresh_or_named(engine: Any) -> None:
    told(engine, fact("home", "u1", key="city"), fact("taken over", "u2", adopts="home", key="city"))
    engine.add([fact("other key", "u2", derived_from=["taken over"], key="trip"), retract(at="a1", keys=["city"])])

    assert retracted(engine, "a2") == {"home", "taken over", "other key"}


@pytest.mark.parametrize("named", ["nothing", "u1", "r"])
def test_what_is_named_need_not_be_a_memory_for_its_downstream_to_be_covered(engine: Any, named: str) -> None:
    told(engine, fact("derived", "u1", derived_from=[named]), fact("adopting", "u1", adopts=named), fact("o", "u1"))
    engine.add([retract(named)])

    assert retracted(engine, "a2") == {"derived", "adopting"}


def test_a_circle_is_covered_as_a_whole(engine: Any) -> None:
    told(engine, fact("p", "u1", derived_from=["q"]), fact("q", "u1", adopts="p"), retract("p"))

    assert retracted(engine, "a2") == {"p", "q"}


# Scopes, and who wins


def test_scope_branch_is_in_effect_where_its_message_is_on_the_path(engine: Any) -> None:
    told(engine, fact("home", "u1"), retract("home", at="u2"))

    assert [message.id for message in CHAT if retracted(engine, message.id)] == ["u2", "a2", "a2x"]
    assert retracted(engine, "v1") == set()
    assert retracted(engine, "v1", "a2") == {"home"}


def test_scope_tree_is_in_effect_wherever_the_view_stands_in_the_tree_of_the_retraction(engine: Any) -> None:
    told(engine, fact("home", "u1"), retract("home", at="v1", scope="tree"))

    assert retracted(engine, "a2") == set()
    assert [retracted(engine, anchor) for anchor in ("d", "v2")] == [{"home"}, {"home"}]
    assert retracted(engine, "a2", "d") == {"home"}


def test_scope_everywhere_is_always_in_effect(engine: Any) -> None:
    told(engine, fact("home", "u1"), retract("home", at="v1", scope="everywhere"))

    assert [retracted(engine, anchor) for anchor in ("a2", "u1x", "n1", "v2")] == [{"home"}] * 4


def test_on_another_branch_a_branch_retraction_loses_and_wider_ones_win(engine: Any) -> None:
    told(engine, fact("home", "a2"), retract("home", at="a1x"))
    assert shown(engine.at("a2")) == {"a memory", "home"}

    engine.add([retract("home", at="a1x", scope="tree", id="wide")])
    assert engine.at("a2").explain("home").culprits == {RETRACTED: ("wide",)}


def test_a_retraction_hides_under_compat_and_where_no_anchor_is_usable(engine: Any) -> None:
    told(engine, fact("home", "u1"), retract("home", at="a1x"))

    assert engine.at("nope", policy=COMPAT).explain("home").reasons == Reason.UNKNOWN_ANCHOR | RETRACTED
    assert engine.at(None, policy=COMPAT).explain("home").reasons == Reason.NO_ANCHOR | RETRACTED
    assert shown(engine.at(None, policy=COMPAT)) == {"a memory"}


def test_an_unknown_memory_is_not_retracted(engine: Any) -> None:
    told(engine, retract("nothing", scope="everywhere"))

    assert engine.at("a2").explain("nothing").reasons == Reason.UNKNOWN_MEMORY


# Restorations


def test_a_restoration_lifts_its_retraction_where_it_is_in_effect(engine: Any) -> None:
    told(engine, fact("home", "u1"), restore(at="u2"), retract("home", at="c", scope="tree"))

    assert [message.id for message in CHAT if retracted(engine, message.id)] == ["c", "u1", "a1", "u1x", "a1x"]


def test_a_restoration_has_a_scope_of_its_own(engine: Any) -> None:
    told(engine, fact("home", "u1"), retract("home", at="c", scope="everywhere"), restore(at="a1x", scope="tree"))

    assert (retracted(engine, "a2"), retracted(engine, "v1")) == (set(), {"home"})
    engine.add([restore(at="v1", scope="everywhere", id="s2")])
    assert (retracted(engine, "n1"), retracted(engine)) == (set(), set())


def test_a_restoration_in_one_tree_lifts_for_the_whole_view(engine: Any) -> None:
    told(engine, fact("home", "u1"), retract("home", at="c"), restore(at="v1"))

    assert [retracted(engine, *anchors) for anchors in (["a2"], ["a2", "d"], ["a2", "v2"])] == [{"home"}] * 2 + [set()]


def test_two_retractions_need_two_restorations_and_retracting_again_is_a_new_one(engine: Any) -> None:
    told(engine, fact("home", "u1"), retract("home"), retract("home", id="r2"), restore("r", at="u2"))
    assert engine.at("a2").explain("home").culprits == {RETRACTED: ("r2",)}

    engine.add([restore("r2", at="a2", id="s2")])
    assert (retracted(engine, "a2"), retracted(engine, "u2")) == (set(), {"home"})
    engine.add([retract("home", at="a2", id="again")])
    assert engine.at("a2").explain("home").culprits == {RETRACTED: ("again",)}


@pytest.mark.parametrize("named", ["nothing", "u2", "home", "s0"])
def test_a_restoration_of_what_is_no_retraction_lifts_nothing(engine: Any, named: str) -> None:
    told(engine, fact("home", "u1"), retract("home"), restore("r", at="a2x", id="s0"))
    engine.add([restore(named, at="c", scope="everywhere")])

    assert retracted(engine, "a2") == {"home"}


# Where a place cannot be judged


@pytest.mark.parametrize("scope", ["branch", "tree"])
@pytest.mark.parametrize("at", NOWHERE)
def test_without_a_place_a_retraction_holds_and_a_restoration_does_not(engine: Any, at: str, scope: Scope) -> None:
    told(engine, fact("home", "u1"), fact("tea", "u1"), retract("home", at=at, scope=scope))
    engine.add([retract("tea", at="c", scope="everywhere", id="r2"), restore("r2", at=at, scope=scope)])

    assert [retracted(engine, anchor) for anchor in ("a2", "v1", "n2")] == [{"home", "tea"}] * 3
    assert asked(engine).unplaced() == ["r", "s"]


@pytest.mark.parametrize("at", NOWHERE)
def test_scope_everywhere_asks_for_no_place(engine: Any, at: str) -> None:
    told(engine, fact("home", "u1"), retract("home", at=at, scope="everywhere"))
    assert [retracted(engine, *anchors) for anchors in ([], ["a2"], ["nope"])] == [{"home"}] * 3

    engine.add([restore(at=at, scope="everywhere")])
    assert [retracted(engine, *anchors) for anchors in ([], ["a2"], ["nope"])] == [set()] * 3
    assert asked(engine).unplaced() == []


def test_a_tree_that_begins_with_a_legacy_message_cannot_bound_a_retraction(engine: Any) -> None:
    told(engine, fact("home", "u1"), fact("tea", "u1"), fact("sea", "u1"), retract("home", at="n1", scope="tree"))
    engine.add([retract("tea", at="n1", id="branch")])
    engine.add([retract("sea", at="c", scope="everywhere", id="r2"), restore("r2", at="n1", scope="tree")])

    assert retracted(engine, "a2") == {"home", "sea"}
    assert retracted(engine, "a2", "old") == {"home"}
    assert retracted(engine, "a2", "n2") == {"home", "tea"}
    assert asked(engine).unplaced() == ["r"]


@pytest.mark.parametrize("scope", ["branch", "tree"])
@pytest.mark.parametrize("unusable", ["nope", "orphan", "a memory"])
def test_an_unusable_anchor_might_stand_in_the_tree_of_a_retraction(engine: Any, unusable: str, scope: Scope) -> None:
    told(engine, fact("home", "u1"), retract("home", at="v1", scope=scope))

    assert retracted(engine, "a2") == set()
    assert retracted(engine, "a2", unusable) == {"home"}
    assert retracted(engine, unusable) == {"home"}
    assert retracted(engine, "a2", "d", unusable) == ({"home"} if scope == "tree" else set())


@pytest.mark.parametrize("scope", ["branch", "tree"])
def test_an_unusable_anchor_makes_no_restoration_hold(engine: Any, scope: Scope) -> None:
    told(engine, fact("home", "u1"), retract("home", at="c", scope="everywhere"), restore(at="v1", scope=scope))

    assert [retracted(engine, *anchors) for anchors in (["a2"], ["a2", "nope"], ["nope"], [])] == [{"home"}] * 4
    assert retracted(engine, "v2", "nope") == set()


def test_what_holds_for_an_unusable_anchor_is_lifted_where_a_restoration_is_in_effect(engine: Any) -> None:
    told(engine, fact("home", "u1"), retract("home", at="v1", scope="tree"), restore(at="u2"))

    assert [retracted(engine, anchor, "nope") for anchor in ("a1", "a2", "d")] == [{"home"}, set(), {"home"}]
    assert (retracted(engine, "a1", "d"), retracted(engine, "a2", "d")) == ({"home"}, set())


def test_a_place_that_arrives_is_judged_from_then_on(engine: Any) -> None:
    told(engine, fact("home", "u1"), retract("home", at="later"))
    view = engine.at("a2")
    assert retracted(engine, "a2") == {"home"}
    engine.add([Message("later", "a1x")])

    assert (retracted(engine, "a2"), retracted(engine, "later")) == (set(), {"home"})
    assert shown(view) == {"a memory"}
    assert view.explain("home").visible


def test_a_hidden_memory_counts_its_retraction_last(engine: Any) -> None:
    told(engine, fact("home", "u1"), fact("side", "a1x"), retract("home", "side", at="c"))
    for id in ("home", "side", "a memory"):
        engine.at("a2").explain(id)

    assert engine.counters()["hidden"] == {RETRACTED: 1, Reason.SIBLING: 1}


def test_what_is_taken_back_for_good_no_anchor_can_show(engine: Any) -> None:
    for_good = ("everywhere", "nowhere", "in its tree", "at its source")
    told(engine, *(fact(id, "u1") for id in (*for_good, "restored", "below", "beside", "in another tree")))
    engine.add([fact("adopting", "a1x", adopts="at its source"), fact("derived", "a2", derived_from=["below"])])
    engine.add(
        [
            retract("everywhere", at="a1x", scope="everywhere", id="r1"),
            retract("nowhere", at="gone", scope="branch", id="r2"),
            retract("in its tree", at="a1x", scope="tree", id="r3"),
            retract("at its source", at="u1", scope="branch", id="r4"),
            retract("restored", at="a1x", scope="everywhere", id="r5"),
            restore("r5", at="gone"),
            retract("below", at="u2", scope="branch", id="r6"),
            retract("beside", at="a1x", scope="branch", id="r7"),
            retract("in another tree", at="v1", scope="tree", id="r8"),
        ]
    )

    assert dict(asked(engine).unshowable()) == dict.fromkeys((*for_good, "derived"), RETRACTED)


def asked(engine: Any) -> Any:
    """What answers the questions that a check asks: the reference itself, or the compiled engine."""
    return getattr(engine, "_engine", engine)


def test_what_derives_from_an_adopter_is_covered_at_its_own_place(engine: Any) -> None:
    told(engine, fact("m", "u1"), Message("v", "a1x"), fact("n", "v", adopts="m"), fact("o", derived_from=["n"]))
    for number, at in enumerate(("u1", "v")):
        engine.add([retract("m", at=at, id=f"r{number}")])

    assert shown(engine.at("v")) == {"a memory"}
    assert retracted(engine, "v") == {"m", "n", "o"}
