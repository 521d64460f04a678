"""The promises of the rule, one a test, each on reference and engine alike."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import branchmem as bm
import pytest
from branchmem import COMPAT, LEGACY, Message, Policy, Reason
from branchmem.events import Erasure, Restoration, Retraction
from chats import CHAT, FLAWED, IN_A_CIRCLE, OTHER, fact, listed, shown

# Where a memory shows


def test_a_memory_shows_at_its_source_and_below_and_nowhere_else(engine: Any) -> None:
    engine.add([*CHAT, fact("home", "u1")])

    assert [message.id for message in CHAT if "home" in engine.at(message.id)] == ["u1", "a1", "u2", "a2", "a2x"]


def test_switching_back_writes_nothing(store: Any) -> None:
    store.append([*CHAT, fact("home", "u1"), fact("edit", "u1x")])
    seq, digest = store.seq, store.digest()

    assert [shown(store.at(leaf)) for leaf in ("a2", "a1x", "a2")] == [{"home"}, {"edit"}, {"home"}]
    assert (store.seq, store.digest()) == (seq, digest)


def test_one_source_on_a_sibling_hides_the_whole_memory(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "u1", "a2x")])

    assert "m" in engine.at("a2x")
    assert "m" not in engine.at("a2")


def test_a_derived_memory_needs_the_sources_of_all_it_comes_from(engine: Any) -> None:
    engine.add([*CHAT, fact("top", derived_from=["middle"]), fact("middle", "u1", derived_from=["deep"])])
    engine.add([fact("deep", "a2")])

    assert [anchor for anchor in ("a2", "a2x", "u2", "a1x") if "top" in engine.at(anchor)] == ["a2"]
    assert engine.at("u2").explain("top").reasons == Reason.FUTURE
    assert engine.at("a1x").explain("top").reasons == Reason.SIBLING


def test_a_label_never_decides(store: Any) -> None:
    labels: dict[str, Any] = {"meta": {"inactive": True}, "kind": "branch:u1x", "key": "main", "importance": 0.0}
    store.append([fact("new", "u1", supersedes=["old"], created=datetime(1970, 1, 1, tzinfo=UTC), **labels)])
    store.append([*CHAT, fact("m", "u1", **labels), fact("old", "u1", created=datetime(2026, 1, 1, tzinfo=UTC))])

    assert shown(store.at("u1")) == {"m", "new"}


def test_a_legacy_conversation_can_be_continued(engine: Any) -> None:
    engine.add([Message("l", LEGACY), Message("n1", "l"), Message("n2", "n1"), Message("n2x", "n1")])
    engine.add([fact("before", "l"), fact("after", "n1"), fact("branch", "n2")])

    assert [shown(engine.at(anchor)) for anchor in ("l", "n2", "n2x")] == [set(), {"after", "branch"}, {"after"}]
    assert shown(engine.at("n2", policy=COMPAT)) == {"before", "after", "branch"}
    assert shown(engine.at("l", policy=COMPAT)) == {"before"}
    assert engine.at("n2").problems == Reason(0)


def test_a_legacy_source_takes_no_part_in_the_path(engine: Any) -> None:
    engine.add([*CHAT, Message("l", LEGACY), fact("m", "u1", "l")])

    assert engine.at("a1").explain("m").reasons == Reason.LEGACY_SOURCE
    assert engine.at("l").explain("m").reasons == Reason.LEGACY_SOURCE | Reason.OTHER_TREE
    assert engine.at("a1x").explain("m").reasons == Reason.LEGACY_SOURCE | Reason.SIBLING


def test_messages_that_come_later_attach_what_waited_for_them(engine: Any) -> None:
    engine.add([fact("top", derived_from=["m"]), fact("m", "u2")])
    assert engine.at("u2").problems == Reason.UNKNOWN_ANCHOR
    engine.add([Message("u2", "a1"), Message("a1", "u1")])
    assert engine.at("u2").problems == Reason.DETACHED_ANCHOR
    assert engine.at("u2").explain("top").reasons == Reason.DETACHED_ANCHOR | Reason.DETACHED_SOURCE
    engine.add([Message("c", None), Message("u1", "c")])

    assert shown(engine.at("u2")) == {"top", "m"}


def test_what_hangs_below_a_memory_is_detached(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "u1"), Message("below", "m"), fact("n", "below")])

    assert engine.at("below").problems == Reason.DETACHED_ANCHOR
    assert engine.at("u1").explain("n").reasons == Reason.DETACHED_SOURCE


# Anchors


@pytest.mark.parametrize("nowhere", [None, [], ()], ids=repr)
def test_a_strict_view_without_an_anchor_is_empty(engine: Any, nowhere: Any) -> None:
    engine.add(FLAWED)
    view = engine.at(nowhere)

    assert len(view) == 0
    assert list(view) == []
    assert view.problems == Reason.NO_ANCHOR
    assert view.anchors == ()
    assert all(reasons & Reason.NO_ANCHOR for reasons in view.reasons().tolist())
    assert view.explain("nothing").reasons == Reason.NO_ANCHOR | Reason.UNKNOWN_MEMORY


def test_compat_without_an_anchor_shows_all_but_circles_and_counts_each_case(engine: Any) -> None:
    engine.add(FLAWED)
    view = engine.at(None, policy=COMPAT)

    assert shown(view) == set(engine.memory_ids) - IN_A_CIRCLE
    admitted = {
        Reason.NO_ANCHOR: 7,
        Reason.NO_SOURCES: 1,
        Reason.MISSING_UPSTREAM: 1,
        Reason.MISSING_SOURCE: 1,
        Reason.LEGACY_SOURCE: 1,
        Reason.DETACHED_SOURCE: 1,
    }
    assert engine.counters() == listed(admitted, unlisted=3)
    assert not any(id in view for id in IN_A_CIRCLE)
    assert engine.counters() == {
        "hidden": {Reason.UPSTREAM_CYCLE: 3},
        "admitted": admitted,
        "unlisted": 3,
    }


def test_compat_at_an_anchor_still_hides_a_sibling(engine: Any) -> None:
    engine.add(FLAWED)

    assert shown(engine.at("a1x", policy=COMPAT)) == {"edit", "no source", "legacy source", "detached source"}
    assert engine.at("a1x", policy=COMPAT).explain("missing source").reasons == (Reason.MISSING_SOURCE | Reason.SIBLING)


def test_compat_does_not_let_an_anchor_through_that_is_not_there(engine: Any) -> None:
    engine.add([*CHAT, Message("lost", "nowhere"), fact("m", "u1")])

    assert shown(engine.at("nope", policy=COMPAT)) == set()
    assert shown(engine.at("lost", policy=COMPAT)) == set()


def test_an_anchor_of_another_type_is_as_if_absent(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "u1")])

    assert engine.at("m").problems == Reason.UNKNOWN_ANCHOR


def test_an_event_of_another_type_is_an_unknown_memory(engine: Any) -> None:
    retraction = Retraction("r", "c", scope="tree", keys=["k"])
    engine.add([*CHAT, fact("m", "u1"), retraction, Restoration("s", "c", scope="tree", retraction="r")])
    engine.add([Erasure("e", ["gone"])])

    for other in ("u1", "r", "s", "e", "gone"):
        verdict = engine.at("u1").explain(other)
        assert (verdict.visible, verdict.reasons) == (False, Reason.UNKNOWN_MEMORY)
        assert other not in engine.at("u1")


def test_a_view_may_stand_in_several_trees(engine: Any) -> None:
    engine.add([*CHAT, *OTHER, fact("m", "u1"), fact("n", "v1"), fact("both", "u1", "v1")])

    assert shown(engine.at(["a1", "v2"])) == {"m", "n", "both"}
    assert shown(engine.at("a1")) == {"m"}
    assert engine.at(["a1x", "v2"]).explain("both").culprits == {Reason.SIBLING: ("u1",)}


def test_two_anchors_in_one_tree_are_a_mistake_that_names_them(engine: Any) -> None:
    engine.add([*CHAT, *OTHER])

    with pytest.raises(bm.AmbiguousAnchor, match="a1x") as raised:
        engine.at(["v1", "a1", "nope", "a1x"])

    assert (raised.value.first, raised.value.second, raised.value.root) == ("a1", "a1x", "c")
    assert isinstance(raised.value, ValueError)
    with pytest.raises(bm.AmbiguousAnchor):
        engine.at(["c", "u1"])


def test_the_same_anchor_twice_counts_once(engine: Any) -> None:
    engine.add([*CHAT, *OTHER, fact("both", "u1", "v1")])
    view = engine.at(iter(["a1", "v2", "a1", "nope", "nope"]))

    assert view.anchors == ("a1", "v2", "nope")
    assert "both" in view


@pytest.mark.parametrize("wrong", [7, b"a1", ["a1", None], [["a1"]], 1.5], ids=repr)
def test_an_anchor_is_an_id_or_a_list_of_ids(engine: Any, wrong: Any) -> None:
    engine.add(CHAT)

    with pytest.raises(TypeError):
        engine.at(wrong)


def test_an_unusable_anchor_beside_a_good_one_is_named_where_it_may_matter(engine: Any) -> None:
    engine.add([*CHAT, *OTHER, Message("lost", "nowhere"), fact("m", "u1"), fact("n", "v1"), fact("side", "u1x")])
    view = engine.at(["a1", "nope", "lost"])

    problems = Reason.UNKNOWN_ANCHOR | Reason.DETACHED_ANCHOR
    assert view.problems == problems
    assert view.explain("m").reasons == Reason(0)
    assert view.explain("side").reasons == Reason.SIBLING
    assert view.explain("n").reasons == problems | Reason.OTHER_TREE
    assert view.explain("n").culprits == {
        Reason.UNKNOWN_ANCHOR: ("nope",),
        Reason.DETACHED_ANCHOR: ("lost",),
        Reason.OTHER_TREE: ("v1",),
    }
    assert view.explain("nothing").reasons == Reason.UNKNOWN_MEMORY


def test_problems_raise_only_when_asked(engine: Any) -> None:
    engine.add([*CHAT, Message("lost", "nowhere")])
    engine.at("a1").raise_for_problems()

    with pytest.raises(bm.BadAnchor, match="UNKNOWN_ANCHOR") as raised:
        engine.at(["a1", "nope"]).raise_for_problems()
    assert raised.value.anchors == ("nope",)
    with pytest.raises(bm.BadAnchor, match="NO_ANCHOR"):
        engine.at(None).raise_for_problems()
    with pytest.raises(bm.BadAnchor, match="lost"):
        engine.at("lost").raise_for_problems()


def test_a_problem_is_logged_once(engine: Any, caplog: pytest.LogCaptureFixture) -> None:
    engine.add([*CHAT, fact("m", "u1")])
    with caplog.at_level(logging.DEBUG, logger="branchmem"):
        view = engine.at(["a1", "nope"])
        for _ in range(3):
            assert "m" in view
            view.ids()
            view.explain("m")
        engine.at("a1").ids()

    assert [(record.name, "nope" in record.getMessage()) for record in caplog.records] == [("branchmem", True)]


def test_a_log_that_is_behind_says_so(engine: Any) -> None:
    engine.add(CHAT)

    assert engine.at("a1", min_seq=8).seq == 8
    with pytest.raises(bm.StoreBehind) as raised:
        engine.at("a1", min_seq=9)
    assert (raised.value.seq, raised.value.min_seq) == (8, 9)


# Policies


def test_compat_lets_through_six_reasons() -> None:
    assert {
        *("NO_ANCHOR", "NO_SOURCES", "MISSING_UPSTREAM", "MISSING_SOURCE", "LEGACY_SOURCE", "DETACHED_SOURCE"),
    } == set(COMPAT.admit.names())
    assert bm.STRICT.admit == Reason(0)


def test_a_policy_lets_through_what_it_names_and_no_more(engine: Any) -> None:
    engine.add([*CHAT, fact("ahead", "a2"), fact("side", "u1x"), fact("ahead, no upstream", "a2", derived_from=["x"])])

    assert shown(engine.at("u1", policy=Policy(admit=Reason.FUTURE))) == {"ahead"}
    assert shown(engine.at("u1", policy=Policy(admit=Reason.SIBLING))) == {"side"}
    assert shown(engine.at("u1", policy=Policy(admit=Reason.FUTURE | Reason.MISSING_UPSTREAM))) == {
        "ahead",
        "ahead, no upstream",
    }


def test_no_policy_lets_an_unknown_memory_through(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "u1")])
    everything = Policy(admit=Reason((1 << 16) - 1))
    view = engine.at("nope", policy=everything)

    assert shown(view) == {"m"}
    assert "nothing" not in view
    assert view.filter(["nothing", "m"]) == ["m"]
    assert not view.explain("nothing").visible
    assert engine.visible(["nothing"], ["u1"], policy=everything).tolist() == [False]
    assert engine.counters()["hidden"] == {Reason.UNKNOWN_MEMORY: 2}


def test_a_fork_below_the_anchor_is_future_and_sibling_together(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "a2", "u1x")])

    assert engine.at("u1").explain("m").reasons == Reason.FUTURE | Reason.SIBLING
    assert engine.at("c").explain("m").reasons == Reason.FUTURE
    assert shown(engine.at("c", policy=Policy(admit=Reason.FUTURE))) == {"m"}
    assert shown(engine.at("u1", policy=Policy(admit=Reason.FUTURE))) == set()
    assert shown(engine.at("u1", policy=Policy(admit=Reason.FUTURE | Reason.SIBLING))) == {"m"}


# Explaining


def test_explain_names_the_message_at_fault_and_where_the_branches_part(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "c", "u1", "a2x")])

    verdict = engine.at("a1x").explain("m")
    assert verdict.culprits == {Reason.SIBLING: ("a2x", "u1")}
    assert verdict.parted == {"a2x": "c", "u1": "c"}
    assert "source u1 is on a sibling branch that parts from the path at c" in str(verdict)
    verdict = engine.at("a2").explain("m")
    assert verdict.culprits == {Reason.SIBLING: ("a2x",)}
    assert verdict.parted == {"a2x": "u2"}
    assert (verdict.id, verdict.visible, verdict.seq) == ("m", False, 9)


def test_explain_names_all_sources_below_the_anchor(engine: Any) -> None:
    engine.add([*CHAT, *OTHER, fact("m", "u1", "u2", "a2", "u1x", "v1")])

    assert engine.at("u1").explain("m").culprits == {
        Reason.FUTURE: ("a2", "u2"),
        Reason.SIBLING: ("u1x",),
        Reason.OTHER_TREE: ("v1",),
    }


def test_explain_names_what_is_wrong_with_the_memory_itself(engine: Any) -> None:
    engine.add(FLAWED)
    at = engine.at("a1").explain

    assert at("no source").culprits == {Reason.NO_SOURCES: ("no source",)}
    assert at("no upstream").culprits == {Reason.MISSING_UPSTREAM: ("nothing",)}
    assert at("missing source").culprits == {Reason.MISSING_SOURCE: ("gone",)}
    assert at("legacy source").culprits == {Reason.LEGACY_SOURCE: ("old",)}
    assert at("detached source").culprits == {Reason.DETACHED_SOURCE: ("orphan",)}
    assert at("below p").culprits == {Reason.UPSTREAM_CYCLE: ("p", "q")}
    assert at("nothing").culprits == {Reason.UNKNOWN_MEMORY: ("nothing",)}
    assert at("home").culprits == {}


def test_explain_names_faults_at_any_remove(engine: Any) -> None:
    engine.add([*CHAT, fact("top", "u1", derived_from=["x", "y"]), fact("x", derived_from=["empty", "gone"])])
    engine.add([fact("empty"), fact("y", "lost", "u1", derived_from=["y"])])

    assert engine.at("u1").explain("top").culprits == {
        Reason.NO_SOURCES: ("empty", "x"),
        Reason.MISSING_UPSTREAM: ("gone",),
        Reason.UPSTREAM_CYCLE: ("y",),
        Reason.MISSING_SOURCE: ("lost",),
    }


def test_a_source_that_is_not_here_is_a_source(engine: Any) -> None:
    engine.add([*CHAT, fact("m", "gone"), fact("top", derived_from=["m"])])

    assert engine.at("u1").explain("top").reasons == Reason.MISSING_SOURCE
