"""What the rule promises of erasures, one promise a test: verdicts on reference and engine, content on the store."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import branchmem as bm
import pytest
from branchmem import COMPAT, LEGACY, Memory, Message, Policy, Reason
from branchmem.events import Erasure, Event, Restoration, Retraction
from chats import CHAT, fact, shown

ERASED = Reason.ERASED
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def erased(engine: Any) -> set[str]:
    """The memories whose content has been erased: a lasting flag, the same at every anchor."""
    flags = {
        frozenset(id for id, bits in zip(engine.memory_ids, view.reasons().tolist(), strict=True) if bits & ERASED)
        for view in (engine.at("a2"), engine.at("a1x", policy=COMPAT), engine.at(None))
    }
    assert len(flags) == 1
    return set(flags.pop())


def told(engine: Any, *events: Event) -> Any:
    engine.add([*CHAT, *events])
    return engine


# What is taken


def test_erasing_a_message_takes_what_was_derived_from_it_at_any_remove(engine: Any) -> None:
    told(
        engine, fact("home", "u1"), fact("both", "a1", "u1"), fact("o", "a1"), fact("top", "u2", derived_from=["home"])
    )
    engine.add([fact("taken over", "a1x", adopts="top"), fact("newer", "u2", supersedes=["home"])])
    engine.add([Erasure("e", ["u1"])])

    assert erased(engine) == {"home", "both", "top", "taken over"}
    assert shown(engine.at("a2")) == shown(engine.at("a2", policy=COMPAT)) == {"o", "newer"}
    assert engine.at("a2").explain("top").culprits == {ERASED: ("top",)}


def test_erasing_a_memory_takes_what_derives_from_it_or_adopts_it(engine: Any) -> None:
    told(engine, fact("home", "u1"), fact("top", "u2", derived_from=["home"]), fact("taken over", "a1x", adopts="home"))
    engine.add([fact("twin", "u1"), Erasure("e", ["home"])])

    assert erased(engine) == {"home", "top", "taken over"}


def test_an_erased_message_keeps_its_place_and_what_came_after_it(engine: Any) -> None:
    told(engine, fact("after", "u2"), Erasure("e", ["u1", "c"]))

    assert shown(engine.at("a2")) == {"after"}
    assert engine.at("u1").problems == Reason(0)
    assert (engine.tree.path("a1"), engine.tree.children("c")) == (["c", "u1", "a1"], ["u1", "u1x"])


def test_an_erased_message_is_still_where_retractions_and_restorations_stand(engine: Any) -> None:
    told(engine, fact("home", "u1"), Erasure("e", ["c", "u2", "a2"], cascade=False))
    engine.add([Retraction("r", "u2", scope="branch", memories=["home"])])
    engine.add([Restoration("s", "a2", scope="branch", retraction="r")])

    assert [anchor for anchor in ("a1", "u2", "a2", "a2x") if "home" in engine.at(anchor)] == ["a1", "a2"]
    assert getattr(engine, "_engine", engine).unplaced() == []


def test_an_erased_message_is_a_root_or_a_legacy_message_as_before(engine: Any) -> None:
    told(engine, Message("old", LEGACY), Message("n1", "old"), fact("m", "old"), fact("n", "n1"))
    engine.add([Erasure("e", ["old", "c"], cascade=False), fact("r", "c")])

    assert (engine.tree.parent("old"), engine.tree.parent("c")) == (LEGACY, None)
    assert (shown(engine.at("n1")), shown(engine.at("a1"))) == ({"n"}, {"r"})
    assert engine.at("n1").explain("m").reasons == Reason.LEGACY_SOURCE


def test_an_erased_message_is_no_missing_source(engine: Any) -> None:
    told(engine, fact("home", "u1"), Erasure("e", ["u1"], cascade=False))

    assert erased(engine) == set()
    assert shown(engine.at("a2")) == {"home"}


def test_without_cascade_nothing_more_is_taken(engine: Any) -> None:
    told(engine, fact("home", "u1"), fact("top", "u2", derived_from=["home"]), fact("taken over", "u2", adopts="home"))
    engine.add([Erasure("e", ["home"], cascade=False)])

    assert erased(engine) == {"home"}
    assert shown(engine.at("a2")) == {"top", "taken over"}


def test_several_erasures_add_up_each_by_itself(engine: Any) -> None:
    told(engine, fact("home", "u1"), fact("top", "u2", derived_from=["home"]), fact("far", "u2", derived_from=["top"]))
    engine.add([fact("tea", "a1"), Erasure("e1", ["home"], cascade=False), Erasure("e2", ["tea"])])
    assert erased(engine) == {"home", "tea"}

    engine.add([Erasure("e3", ["top"]), Erasure("e4", ["top"], cascade=False)])
    assert erased(engine) == {"home", "tea", "top", "far"}


@pytest.mark.parametrize(
    "bearer", [None, Message("named", "c"), fact("named", "c"), Retraction("named", "c", scope="tree", keys=["k"])]
)
def test_what_refers_to_a_named_id_is_taken_whatever_bears_it_here_or_nothing(
    engine: Any, bearer: Event | None
) -> None:
    told(engine, fact("source", "u1", "named"), fact("derived", "u1", derived_from=["named"]))
    engine.add([fact("adopting", "u1", adopts="named"), fact("superseding", "u1", supersedes=["named"])])
    engine.add([Erasure("e", ["named"]), *([bearer] if bearer else [])])

    assert erased(engine) - {"named"} == {"source", "derived", "adopting"}
    assert ("named" in erased(engine)) is isinstance(bearer, Memory)


def test_what_arrives_after_its_erasure_is_erased_and_so_is_what_derives_from_it(engine: Any) -> None:
    told(engine, Erasure("e", ["home", "u3"]))
    engine.add([fact("home", "u1")])
    engine.add([Message("u3", "a2"), fact("trip", "u3"), fact("top", "u2", derived_from=["middle"]), fact("o", "u2")])
    engine.add([fact("middle", "u2", adopts="trip")])

    assert erased(engine) == {"home", "trip", "top", "middle"}


def test_an_erased_memory_can_still_be_retracted_by_key(engine: Any) -> None:
    told(engine, fact("home", "u1", key="city"), Erasure("e", ["home"]))
    engine.add([Retraction("r", "u2", scope="branch", keys=["city"])])

    assert engine.at("a2").explain("home").reasons == ERASED | Reason.RETRACTED


def test_no_anchor_can_show_what_is_erased(engine: Any) -> None:
    told(engine, fact("home", "u1"), fact("o", "u1"), Erasure("e", ["home"]))

    assert dict(getattr(engine, "_engine", engine).unshowable()) == {"home": ERASED}


# What goes, and what stays


HOME = Memory(
    "home",
    "The user lives in Chengdu",
    sources=["u"],
    derived_from=["m"],
    supersedes=["n"],
    adopts="o",
    kind="profile",
    key="city",
    importance=0.5,
    created=NOON,
    meta={"city": "Chengdu"},
)
SAID = Message("u", None, role="user", text="I live in Chengdu", created=NOON, meta={"n": 1})
STAYS = {
    "u": Message("u", None),
    "home": Memory(
        "home", "", sources=["u"], derived_from=["m"], supersedes=["n"], adopts="o", kind="profile", key="city"
    ),
}


def test_content_goes_and_ids_and_links_stay(store: Any) -> None:
    store.append([SAID, HOME, Message("v", "u", text="still here")])
    store.append([Erasure("e", ["u"])])

    assert {id: store.log.get(id) for id in STAYS} == STAYS
    assert [event.id for event in store.log.events() if store.log.is_erased(event.id)] == ["u", "home"]
    assert "Chengdu" not in repr(list(store.log.events()))
    assert store.log.get("v").text == "still here"
    assert (list(store.memory_ids), list(store.message_ids), store.seq) == (["home"], ["u", "v"], 4)


@pytest.mark.parametrize("order", list(permutations(["u", "home", "m", "e"])), ids=" ".join)
def test_in_any_order_of_arrival_the_same_stays(store: Any, order: tuple[str, ...]) -> None:
    said = {"u": SAID, "home": HOME, "m": Memory("m", "It is Chengdu", sources=["u"]), "e": Erasure("e", ["u"])}
    for id in order:
        store.append([said[id]])

    stays = [said[id].skeleton() + (said[id].body() if id == "e" else b"erased") for id in sorted(said)]
    assert store.digest() == hashlib.sha256(b"".join(stays)).hexdigest()
    assert "Chengdu" not in repr(list(store.log.events()))


def test_a_link_that_arrives_makes_an_old_memory_downstream_and_takes_its_content(store: Any) -> None:
    store.append([*CHAT, Erasure("e", ["u1"]), fact("top", "u2", derived_from=["middle"])])
    assert store.log.get("top").text == "text of top"
    store.append([fact("middle", "u1")])

    assert [store.log.get(id).text for id in ("top", "middle")] == ["", ""]


def test_for_an_erased_id_only_what_stays_is_compared(store: Any) -> None:
    store.append([SAID, HOME, Erasure("e", ["u"])])

    appended = store.append([SAID, HOME, *STAYS.values(), Message("u", None, text="anything")])
    assert (appended.added, appended.duplicates) == (0, 5)
    for other in (Message("u", "c", text="I live in Chengdu"), Memory("home", "Chengdu", sources=["u"], key="town")):
        with pytest.raises(bm.EventConflict) as raised:
            store.append([Message("new", None), other])
        assert raised.value.field in ("parent", "sources", "derived_from")
        assert "Chengdu" not in str(raised.value)
    assert store.seq == 3


def test_two_contents_are_no_conflict_in_the_batch_that_erases_both(store: Any) -> None:
    with pytest.raises(bm.EventConflict, match="another text"):
        store.append([Message("u", None, text="one"), Message("u", None, text="two")])

    store.append([Message("u", None, text="one"), Message("u", None, text="two"), Erasure("e", ["u"])])
    assert store.log.get("u") == Message("u", None)


def test_the_digest_has_erased_in_place_of_a_body(store: Any) -> None:
    erasure, retraction = Erasure("e", ["u", "r"]), Retraction("r", "u", scope="tree", keys=["k"], reason="asked to")
    store.append([SAID, erasure, retraction])

    parts = [erasure.skeleton(), erasure.body(), retraction.skeleton(), retraction.body(), SAID.skeleton(), b"erased"]
    assert store.digest() == hashlib.sha256(b"".join(parts)).hexdigest()


def test_retractions_restorations_and_erasures_cannot_be_erased(store: Any) -> None:
    retraction = Retraction("r", "c", scope="tree", keys=["k"], reason="asked to", created=NOON)
    restoration = Restoration("s", "c", scope="tree", retraction="r", created=NOON)
    store.append([retraction, restoration, Erasure("e", ["r", "s", "e", "e2"]), Erasure("e2", ["x"], created=NOON)])

    assert store.log.get("r") == retraction
    assert store.log.get("s") == restoration
    assert [id for id in ("r", "s", "e", "e2", "x") if store.log.is_erased(id)] == []
    with pytest.raises(bm.EventConflict, match="another reason"):
        store.append([Retraction("r", "c", scope="tree", keys=["k"], reason="other", created=NOON)])


def test_a_view_keeps_its_set_but_not_content_that_was_erased_meanwhile(store: Any) -> None:
    store.append([*CHAT, fact("home", "u1"), fact("tea", "u1")])
    view = store.at("a2")
    store.append([Erasure("e", ["home"])])

    assert shown(view) == {"home", "tea"}
    assert "home" in view
    assert view.explain("home").reasons == ERASED
    for read in (lambda: view["home"], lambda: view.get("home"), view.memories):
        with pytest.raises(KeyError, match="erased"):
            read()
    assert view["tea"] == fact("tea", "u1")
    assert store.at("a2").memories() == [fact("tea", "u1")]


def test_nothing_finds_what_was_erased(store: Any) -> None:
    store.append([SAID, HOME, Message("v", "u", text="Chengdu or Hangzhou"), Memory("n", "Chengdu", sources=["v"])])
    assert [event.id for event in store.log.find("Chengdu")] == ["u", "home", "v", "n"]

    store.append([Erasure("e", ["u"]), Erasure("e2", ["n"], cascade=False)])
    assert [event.id for event in store.log.find("Chengdu")] == ["v"]


def test_a_policy_that_lets_erased_through_shows_what_stays(store: Any) -> None:
    store.append([*CHAT, fact("home", "u1", key="city"), Erasure("e", ["home"])])
    view = store.at("a2", policy=Policy(admit=ERASED))

    assert view["home"] == view.current("city") == view.memories()[0] == Memory("home", "", sources=["u1"], key="city")
