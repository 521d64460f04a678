"""What `explain` says to people: every reason with the ids at fault, and never what was retracted."""

from __future__ import annotations

from typing import Any

import pytest
from branchmem import COMPAT, LEGACY, STRICT, Message, Policy, Reason, Verdict
from branchmem.events import Erasure, Restoration, Retraction
from branchmem.verdict import Placed, verdict_from_parts
from chats import CHAT, FLAWED, OTHER, fact

TEXTS = [
    ("home", "a1", "every source lies on the path of the anchor"),
    ("home", "c", "source u1 lies below the anchor"),
    ("home", "a1x", "source u1 is on a sibling branch that parts from the path at c"),
    ("home", "v1", "source u1 lies in a tree that the view has no usable anchor in"),
    ("home", None, "the view has no anchor"),
    ("home", "nope", "anchor nope is not a message of the log"),
    ("home", "orphan", "anchor orphan is not attached: a message above it is missing, or parents run in a circle"),
    ("nothing", "a1", "there is no memory nothing in the log"),
    ("no source", "a1", "memory no source has no source"),
    ("no upstream", "a1", "memory nothing, which it derives from or adopts, is not in the log"),
    (
        "p",
        "a1",
        "memory p derives from or adopts itself in a circle; memory q derives from or adopts itself in a circle",
    ),
    ("missing source", "a1", "source gone is not a message of the log"),
    ("legacy source", "a1", "source old is a legacy message: what stands above it was never recorded"),
    (
        "detached source",
        "a1",
        "source orphan is not attached: a message above it is missing, or parents run in a circle",
    ),
]


@pytest.mark.parametrize(("id", "anchor", "text"), TEXTS, ids=[f"{id} at {anchor}" for id, anchor, _ in TEXTS])
def test_a_verdict_says_what_is_at_fault(engine: Any, id: str, anchor: str | None, text: str) -> None:
    engine.add([*FLAWED, *OTHER])

    assert str(engine.at(anchor).explain(id)) == text


def test_every_id_of_a_verdict_takes_the_form_it_is_asked_for_in(engine: Any) -> None:
    engine.add([*CHAT, fact("home", "u1", "u1x"), fact("trip", derived_from=["home"])])
    engine.add([fact("home2", "u1", supersedes=["home"]), Retraction("r7", "a1", scope="branch", memories=["home"])])
    engine.add([Restoration("s2", "a2", scope="branch", retraction="r7")])

    verdict = engine.at("u2", policy=Policy(Reason.SIBLING | Reason.RETRACTED)).explain("trip")

    assert "; ".join(verdict.sentences()) == str(verdict)
    assert verdict.sentences(lambda id: f"<{id}>") == [
        "let through by the policy: source <u1x> is on a sibling branch that parts from the path at <c>",
        "retraction <r7> (scope branch, at <a1>) is in effect here",
        "restoration <s2> (scope branch, at <a2>) lifts it elsewhere",
        "warning: upstream memory <home> is superseded here",
    ]


def test_a_retraction_says_where_it_stands_and_what_lifts_it_elsewhere(engine: Any) -> None:
    engine.add([*CHAT, fact("home", "u1"), Retraction("r7", "u2", scope="branch", memories=["home"])])
    verdict = engine.at("a2").explain("home")
    assert str(verdict) == "retraction r7 (scope branch, at u2) is in effect here"
    assert verdict.retractions == {"r7": Placed("u2", "branch", ())}

    engine.add([Restoration(id, at, scope="tree", retraction="r7") for id, at in (("s2", "v1"), ("s1", "n1"))])
    engine.add([*OTHER, Message("old", LEGACY), Message("n1", "old")])
    engine.add([Retraction("r2", "lost", scope="tree", sources=["u1"])])
    verdict = engine.at("a2").explain("home")
    assert str(verdict) == (
        "retraction r2 (scope tree, at lost) is in effect here; "
        "retraction r7 (scope branch, at u2) is in effect here; "
        "restoration s1 (scope tree, at n1) lifts it elsewhere; "
        "restoration s2 (scope tree, at v1) lifts it elsewhere"
    )
    assert verdict.culprits == {Reason.RETRACTED: ("r2", "r7")}
    assert dict(verdict.retractions) == {
        "r2": Placed("lost", "tree", ()),
        "r7": Placed("u2", "branch", (("s1", "n1", "tree"), ("s2", "v1", "tree"))),
    }


@pytest.mark.parametrize("at", ["lost", "orphan", "old", "home"])
def test_a_restoration_without_a_place_lifts_nothing_elsewhere(engine: Any, at: str) -> None:
    engine.add([*CHAT, Message("old", LEGACY), Message("orphan", "lost"), fact("home", "u1")])
    engine.add([Retraction("r", "c", scope="everywhere", memories=["home"])])
    engine.add([Restoration("s", at, scope="tree", retraction="r")])

    verdict = engine.at("a2").explain("home")
    assert str(verdict) == "retraction r (scope everywhere, at c) is in effect here"
    assert verdict.retractions == {"r": Placed("c", "everywhere", ())}


def test_a_retraction_that_is_lifted_here_is_not_mentioned(engine: Any) -> None:
    engine.add([*CHAT, fact("home", "u1"), Retraction("r", "u1", scope="branch", memories=["home"])])
    engine.add([Restoration("s", "u2", scope="branch", retraction="r")])
    verdict = engine.at("a2").explain("home")

    assert (verdict.culprits, verdict.retractions, verdict.visible) == ({}, {}, True)


def test_why_something_was_retracted_is_never_said(engine: Any) -> None:
    engine.add([*CHAT, fact("home", "u1")])
    engine.add([Retraction("r", "u1", scope="tree", keys=["k"], memories=["home"], reason="I left my husband")])

    assert "husband" not in str(engine.at("a2").explain("home")) + repr(engine.at("a2").explain("home"))


def test_a_replaced_memory_says_what_replaces_it_here(engine: Any) -> None:
    engine.add([*CHAT, fact("home", "u1"), fact("home2", "u1", supersedes=["home"])])
    engine.add([fact("home3", "a1", supersedes=["home2"]), fact("top", "u2", derived_from=["home", "home2", "home3"])])
    at = engine.at("a2").explain

    assert str(at("home")) == "memory home2 replaces it here; memory home3 replaces it here"
    assert str(at("home2")) == "memory home3 replaces it here"
    assert str(at("top")) == (
        "every source lies on the path of the anchor; "
        "warning: upstream memory home is superseded here; warning: upstream memory home2 is superseded here"
    )
    assert (at("top").visible, at("top").reasons) == (True, Reason(0))
    assert str(engine.at("a1").explain("top")).startswith(
        "source u2 lies below the anchor; warning: upstream memory home "
    )


def test_an_erased_memory_says_so(engine: Any) -> None:
    engine.add([*CHAT, fact("home", "u1"), Erasure("e", ["u1"])])

    assert str(engine.at("a2").explain("home")) == "the content of home has been erased"


def test_all_reasons_are_said_lowest_first_and_what_a_policy_lets_through_is_named(engine: Any) -> None:
    engine.add([*CHAT, Message("l", LEGACY), fact("home", "u1", "l"), fact("home2", "u1", supersedes=["home"])])
    engine.add([Retraction("r", "c", scope="tree", memories=["home"]), Erasure("e", ["home"])])
    said = (
        "the content of home has been erased; "
        "source l is a legacy message: what stands above it was never recorded; "
        "retraction r (scope tree, at c) is in effect here; "
        "memory home2 replaces it here"
    )

    assert str(engine.at("a1").explain("home")) == said
    everything = Policy(admit=Reason((1 << 16) - 1))
    assert str(engine.at("a1", policy=everything).explain("home")) == f"let through by the policy: {said}"


@pytest.mark.parametrize("policy", [STRICT, COMPAT], ids=["strict", "compat"])
def test_a_verdict_holds_the_ids_at_fault_in_byte_order(engine: Any, policy: Policy) -> None:
    engine.add([*CHAT, fact("m", "u1"), fact("ﬀ", "u1", supersedes=["m"]), fact("é", "u1", supersedes=["m"])])
    engine.add([fact("𝒳", "u1", supersedes=["m"]), fact("top", "u1", derived_from=["m"])])
    engine.add(Retraction(id, "c", scope="tree", memories=["top"]) for id in ("r𝒳", "rﬀ", "ré"))

    verdict = engine.at("a1", policy=policy).explain("m")
    assert verdict.culprits == {Reason.SUPERSEDED: ("é", "ﬀ", "𝒳")}
    verdict = engine.at("a1", policy=policy).explain("top")
    assert verdict.culprits == {Reason.RETRACTED: ("ré", "rﬀ", "r𝒳")}
    assert verdict.superseded_upstream == ("m",)


def test_a_verdict_is_made_from_parts_in_any_order() -> None:
    reasons = Reason.SIBLING | Reason.RETRACTED | Reason.SUPERSEDED
    blamed = [(Reason.SUPERSEDED, "n"), (Reason.SIBLING, "b"), (Reason.RETRACTED, "r"), (Reason.SIBLING, "a")]
    verdict = verdict_from_parts(
        *("m", False, int(reasons), [*blamed, *blamed], {"b": "c", "a": "c"}, 7),
        {"r": ("u", "tree", [("s2", "u", "branch"), ("s1", "u", "tree")])},
        ["y", "x"],
    )

    assert verdict == Verdict(
        "m",
        False,
        reasons,
        {Reason.SIBLING: ("a", "b"), Reason.RETRACTED: ("r",), Reason.SUPERSEDED: ("n",)},
        7,
        {"a": "c", "b": "c"},
        {"r": Placed("u", "tree", (("s1", "u", "tree"), ("s2", "u", "branch")))},
        ("x", "y"),
    )
    assert [list(part) for part in (verdict.parted, verdict.retractions)] == [["a", "b"], ["r"]]
