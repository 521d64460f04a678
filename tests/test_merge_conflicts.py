"""What cannot both stand: which pairs are a conflict, how each strategy decides them, and that it stays decided."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import branchmem as bm
import pytest
from branchmem.errors import MergeConflict
from branchmem.events import Erasure, Event, Retraction
from branchmem.merge import Conflict, Merged, Strategy

NOON = datetime(2026, 4, 4, 12, tzinfo=UTC)
DECIDING: tuple[Strategy, ...] = ("ours", "theirs", "newer")
#: Left and right each know better where the user lives; the one on the left was made later.
BASE = bm.Memory("base", "Lives in Xi'an", sources=["u"], key="home")


def home(id: str, text: str, source: str, hours: int | None = None, **fields: Any) -> bm.Memory:
    created = None if hours is None else NOON + timedelta(hours=hours)
    return bm.Memory(id, text, sources=[source], **{"key": "home", "created": created} | fields)


LEFT = home("left home", "Lives in Chengdu", "l", 2, supersedes=["base"])
RIGHT = home("right home", "Lives in Hangzhou", "r", 1, supersedes=["base"])


@pytest.fixture
def forked() -> Iterator[bm.Store]:
    """A conversation that parts at `u` into `left` and `right`, and a third branch."""
    with bm.open_temporary() as store:
        store.append([bm.Message("chat", None), bm.Message("u", "chat")])
        store.append([bm.Message(id, "u") for id in ("l", "r", "t")])
        for name, at in (("left", "l"), ("right", "r"), ("third", "t")):
            store.refs.create(name, at)
        yield store


def texts(store: bm.Store, ref: str) -> list[str]:
    return sorted(memory.text for memory in store.at_ref(ref).memories())


def pairs(conflicts: tuple[Any, ...]) -> list[tuple[str, str, str, str | None]]:
    return [(one.about, one.ours.id, one.theirs.id, one.base and one.base.id) for one in conflicts]


def in_conflict(store: bm.Store, *events: Event) -> list[tuple[str, str, str, str | None]]:
    """Left merged into right, with these events."""
    store.append(events)
    return pairs(store.merge("left", into="right", dry_run=True).conflicts)


# What is a conflict


def test_two_that_replace_the_same_memory_are_one(forked: bm.Store) -> None:
    left = bm.Memory("left home", "Chengdu", sources=["l"], supersedes=["base"])
    right = bm.Memory("right home", "Hangzhou", sources=["r"], supersedes=["base"])

    assert in_conflict(forked, BASE, left, right) == [("base", "right home", "left home", "base")]


def test_two_that_share_a_key_are_one(forked: bm.Store) -> None:
    assert in_conflict(forked, home("a", "Chengdu", "l"), home("b", "Hangzhou", "r")) == [("home", "b", "a", None)]


def test_the_base_of_a_key_is_what_was_remembered_where_the_branches_part(forked: bm.Store) -> None:
    base = home("c", "Xi'an", "u")
    forked.append([base, bm.Memory("b", "Hangzhou", sources=["r"], key="home", supersedes=["c"])])

    assert in_conflict(forked, home("a", "Chengdu", "l")) == [("home", "b", "a", "c")]


def test_over_several_versions_the_nearest_that_both_replace_is_the_base(forked: bm.Store) -> None:
    events = (
        bm.Memory("v1", "one", sources=["chat"]),
        bm.Memory("v2", "two", sources=["u"], supersedes=["v1"]),
        bm.Memory("v3", "three", sources=["l"], supersedes=["v2"]),
        bm.Memory("v4", "four", sources=["l"], supersedes=["v3"]),
        bm.Memory("w3", "drei", sources=["r"], supersedes=["v2"]),
    )

    assert in_conflict(forked, *events) == [("v2", "w3", "v4", "v2")]


def test_what_was_erased_is_the_base_of_nothing(forked: bm.Store) -> None:
    assert in_conflict(forked, BASE, LEFT, RIGHT, Erasure("e", ["base"])) == [("home", "right home", "left home", None)]


@pytest.mark.parametrize("sides", ["u", "r"])
def test_what_was_taken_back_at_the_target_is_the_base_of_nothing(forked: bm.Store, sides: str) -> None:
    back = Retraction("back", sides, scope="branch", memories=["base"])

    assert in_conflict(forked, BASE, LEFT, RIGHT, back) == [("home", "right home", "left home", None)]


def test_of_two_that_say_the_same_what_either_replaces_is_in_conflict(forked: bm.Store) -> None:
    events = (
        bm.Memory("a", "Chengdu", sources=["l"]),
        bm.Memory("a2", "Chengdu", sources=["l"], supersedes=["base"]),
        bm.Memory("b", "Hangzhou", sources=["r"], supersedes=["base"]),
    )

    assert in_conflict(forked, BASE, *events) == [("base", "b", "a", "base")]


@pytest.mark.parametrize(
    "events",
    [
        (home("a", "Chengdu", "l"), home("b", "Chengdu", "r")),
        (home("a", "Chengdu", "l"), home("b", "Chengdu", "r", kind="guess")),
        (home("a", "Chengdu", "l", key=None), home("b", "Hangzhou", "r", key=None)),
        (home("a", "Chengdu", "l", key="Home"), home("b", "Hangzhou", "r")),
        (home("a", "Chengdu", "l"), home("b", "Hangzhou", "r", supersedes=["a"])),
        (home("a", "Chengdu", "l", supersedes=["b"]), home("b", "Hangzhou", "r")),
    ],
    ids=["same text", "other kind, same text", "no key", "other key", "ours replaces theirs", "theirs replaces ours"],
)
def test_these_are_none(forked: bm.Store, events: tuple[Event, ...]) -> None:
    assert in_conflict(forked, *events) == []
    forked.merge("left", into="right")


def test_what_theirs_replaces_is_in_no_conflict_with_the_others(forked: bm.Store) -> None:
    events = (home("a", "Chengdu", "l", supersedes=["b"]), home("a2", "Xi'an", "l"), home("b", "Hangzhou", "r"))

    assert in_conflict(forked, *events) == []


def test_what_both_branches_show_is_in_no_conflict_with_what_one_of_them_added(forked: bm.Store) -> None:
    left, right = home("left home", "Chengdu", "l"), home("right home", "Hangzhou", "r")

    assert in_conflict(forked, BASE, left) == []
    assert in_conflict(forked, right) == [("home", "right home", "left home", "base")]


def test_rivals_of_one_side_are_in_no_conflict_with_each_other(forked: bm.Store) -> None:
    assert in_conflict(forked, home("a", "Chengdu", "l"), home("a2", "Xi'an", "l")) == []


def test_each_pair_is_listed_once(forked: bm.Store) -> None:
    events = [
        home(f"{side}{number}", f"{side}{number}", side, supersedes=["base"]) for side in "lr" for number in (1, 2)
    ]

    assert in_conflict(forked, BASE, *events) == [
        ("home", "r1", "l1", "base"),
        ("home", "r2", "l1", "base"),
        ("home", "r1", "l2", "base"),
        ("home", "r2", "l2", "base"),
    ]


# How it is decided


@pytest.fixture
def homes(forked: bm.Store) -> bm.Store:
    forked.append([BASE, LEFT, RIGHT, bm.Memory("tea", "Drinks tea", sources=["l"])])
    return forked


def test_a_conflict_refuses_the_merge_and_nothing_is_written(homes: bm.Store) -> None:
    before = homes.seq

    with pytest.raises(
        MergeConflict, match="1 conflict on 'right': home: ours right home, theirs left home"
    ) as refused:
        homes.merge("left", into="right")

    (conflict,) = refused.value.conflicts
    assert isinstance(conflict, Conflict)
    assert (conflict.base, conflict.ours, conflict.theirs, conflict.about) == (BASE, RIGHT, LEFT, "home")
    assert (homes.seq, homes.refs["right"]) == (before, "r")
    assert "Chengdu" not in str(refused.value)
    again = pickle.loads(pickle.dumps(refused.value))
    assert again.conflicts == refused.value.conflicts


def test_a_dry_run_lists_the_conflicts_instead(homes: bm.Store) -> None:
    seen = homes.merge("left", into="right", dry_run=True)

    assert seen.undecided == seen.conflicts
    assert (seen.events, seen.adopted, seen.after) == ((), {}, "r")
    assert str(seen) == "right would not be merged; 1 conflict: 1 undecided"
    (conflict,) = json.loads(json.dumps(seen.to_dict()))["conflicts"]
    assert (conflict["about"], conflict["theirs"]["text"]) == ("home", "Lives in Chengdu")


@pytest.mark.parametrize(
    ("strategy", "winner", "loser"), [("ours", RIGHT, LEFT), ("theirs", LEFT, RIGHT), ("newer", LEFT, RIGHT)]
)
def test_the_winner_is_adopted_and_supersedes_both(
    homes: bm.Store, strategy: Strategy, winner: bm.Memory, loser: bm.Memory
) -> None:
    done = homes.merge("left", into="right", strategy=strategy)

    (decided,) = done.resolved
    assert (decided.winner, decided.losers) == (winner.id, (loser.id,))
    copy = homes.log.get(decided.memory)
    assert isinstance(copy, bm.Memory)
    assert (copy.adopts, copy.supersedes) == (winner.id, ("base", "left home", "right home"))
    assert copy.sources == (done.message,)
    assert texts(homes, "right") == sorted(["Drinks tea", winner.text])
    assert pairs(done.conflicts) == [("home", "right home", "left home", "base")]
    assert done.hidden == ("right home",)


def test_both_lets_them_stand_as_rivals(homes: bm.Store) -> None:
    done = homes.merge("left", into="right", strategy="both")

    assert texts(homes, "right") == ["Drinks tea", "Lives in Chengdu", "Lives in Hangzhou"]
    assert (done.resolved, done.undecided, len(done.conflicts)) == ((), (), 1)


def test_adopting_does_not_refuse_rivals_and_lists_them(homes: bm.Store) -> None:
    done = homes.adopt(["left home"], into="right")

    assert pairs(done.conflicts) == [("home", "right home", "left home", "base")]
    assert texts(homes, "right") == ["Lives in Chengdu", "Lives in Hangzhou"]


@pytest.mark.parametrize("hours", [None, 1], ids=["no time", "the same time"])
def test_what_newer_cannot_tell_stays_a_conflict(forked: bm.Store, hours: int | None) -> None:
    forked.append(
        [
            home("a", "Chengdu", "l", hours),
            home("b", "Hangzhou", "r", 1),
            home("c", "reads", "l", 1, key="hobby"),
            home("d", "swims", "r", 2, key="hobby"),
        ]
    )

    with pytest.raises(MergeConflict) as refused:
        forked.merge("left", into="right", strategy="newer")

    assert pairs(refused.value.conflicts) == [("home", "b", "a", None)]
    assert forked.refs["right"] == "r"


@pytest.mark.parametrize("strategy", get_args(Strategy)[1:])
@pytest.mark.parametrize("rivals", [(1, 1), (1, 2), (2, 1), (3, 2)])
def test_a_second_merge_finds_nothing_to_do_whatever_its_strategy(
    forked: bm.Store, strategy: Strategy, rivals: tuple[int, int]
) -> None:
    forked.append([BASE])
    for side, count in zip("lr", rivals, strict=True):
        forked.append(
            [home(f"{side}{at}", f"{side}{at}", side, ord(side) + 100 * at, supersedes=["base"]) for at in range(count)]
        )
    forked.merge("left", into="right", strategy=strategy)
    before = forked.seq, forked.refs["right"]

    for again in get_args(Strategy):
        done = forked.merge("left", into="right", strategy=again)
        assert (done.message, done.conflicts) == (None, ())
    assert (forked.seq, forked.refs["right"]) == before


def test_what_says_the_same_as_a_loser_loses_with_it(forked: bm.Store) -> None:
    forked.append([home("a", "Chengdu", "l"), home("a2", "Hangzhou", "l"), home("b", "Hangzhou", "r")])
    assert pairs(forked.merge("left", into="right", dry_run=True).conflicts) == [("home", "b", "a", None)]

    forked.merge("left", into="right", strategy="theirs")

    assert texts(forked, "right") == ["Chengdu"]
    assert forked.merge("left", into="right").message is None


def test_newer_names_only_what_it_cannot_tell(forked: bm.Store) -> None:
    forked.append([home("a", "Chengdu", "l"), home("a2", "Xi'an", "l", 2), home("b", "Hangzhou", "r", 1)])

    with pytest.raises(MergeConflict) as refused:
        forked.merge("left", into="right", strategy="newer")

    assert pairs(refused.value.conflicts) == [("home", "b", "a", None)]


def test_of_several_rivals_the_newest_wins_over_all(forked: bm.Store) -> None:
    for number, side in enumerate("lrlr"):
        forked.append([home(f"{side}{number}", f"in {number}", side, number)])

    forked.merge("left", into="right", strategy="newer")

    assert texts(forked, "right") == ["in 3"]


def test_ours_keeps_all_rivals_that_the_target_had(forked: bm.Store) -> None:
    forked.append([home("l0", "in 0", "l"), home("r0", "in 1", "r"), home("r1", "in 2", "r")])

    forked.merge("left", into="right", strategy="ours")

    assert texts(forked, "right") == ["in 1", "in 2"]


# That it stays decided


@pytest.mark.parametrize("strategy", DECIDING)
def test_a_decision_goes_along_when_it_is_merged_back(homes: bm.Store, strategy: Strategy) -> None:
    homes.merge("left", into="right", strategy=strategy)
    won = texts(homes, "right")

    homes.merge("right", into="left")

    assert texts(homes, "left") == won
    assert homes.merge("left", into="right").message is None


def test_that_both_may_stand_goes_along_when_it_is_merged_back(homes: bm.Store) -> None:
    homes.merge("left", into="right", strategy="both")

    done = homes.merge("right", into="left")

    assert done.conflicts == ()
    assert texts(homes, "left") == texts(homes, "right")


def test_two_that_won_over_a_third_are_no_rivals_when_they_are_merged_back(forked: bm.Store) -> None:
    """Each of them supersedes the loser now, which replaced what one of them had replaced."""
    forked.append(
        [
            BASE,
            home("job", "Is a baker in Dali", "l", 1, key="job", supersedes=["base"]),
            home("left home", "Lives in Chengdu", "l", 3, supersedes=["base"]),
            home("right job", "Is a tailor", "r", 2, key="job"),
        ]
    )
    forked.merge("left", into="right", strategy="newer")
    assert texts(forked, "right") == ["Is a tailor", "Lives in Chengdu"]

    forked.merge("right", into="left")

    assert texts(forked, "left") == ["Is a tailor", "Lives in Chengdu"]


def test_a_conflict_that_was_decided_is_not_asked_about_on_a_third_branch(homes: bm.Store) -> None:
    homes.merge("left", into="right", strategy="ours")
    homes.merge("right", into="third")

    done = homes.merge("left", into="third")

    assert (done.conflicts, texts(homes, "third")) == ((), ["Drinks tea", "Lives in Hangzhou"])


def test_a_decision_reaches_a_branch_that_says_the_same_as_the_winner(homes: bm.Store) -> None:
    """Else the loser, coming later from elsewhere, would be a conflict again there."""
    homes.append([home("third home", "Lives in Hangzhou", "t", 3, supersedes=["base"])])
    homes.merge("left", into="right", strategy="ours")

    done = homes.merge("right", into="third")

    assert [decided.winner for decided in done.resolved] == ["third home"]
    assert homes.merge("left", into="third").conflicts == ()
    assert texts(homes, "third") == ["Drinks tea", "Lives in Hangzhou"]


def test_two_branches_that_decided_differently_are_in_conflict(homes: bm.Store) -> None:
    right = homes.merge("left", into="right", strategy="ours", dry_run=True)
    left = homes.merge("right", into="left", strategy="ours", dry_run=True)
    homes.append([*right.events, *left.events])
    homes.refs.move("right", right.after)
    homes.refs.move("left", left.after)

    with pytest.raises(MergeConflict) as refused:
        homes.merge("left", into="right")

    (conflict,) = refused.value.conflicts
    assert isinstance(conflict, Conflict)
    assert (conflict.ours.text, conflict.theirs.text) == ("Lives in Hangzhou", "Lives in Chengdu")
    homes.merge("left", into="right", strategy="theirs")
    assert texts(homes, "right") == ["Drinks tea", "Lives in Chengdu"]


def test_what_is_remembered_after_a_decision_wins_without_being_asked(homes: bm.Store) -> None:
    done = homes.merge("left", into="right", strategy="ours")
    (decided,) = done.resolved
    homes.append([home("moved", "Lives in Dali", done.after, 9, supersedes=[decided.memory])])

    homes.merge("right", into="left")

    assert texts(homes, "left") == ["Drinks tea", "Lives in Dali"]


def test_a_decision_for_an_older_version_replaces_the_copies_of_the_newer_one(forked: bm.Store) -> None:
    forked.append([home("v1", "Chengdu", "l")])
    forked.merge("left", into="right")
    forked.append([home("v2", "Hangzhou", "l", supersedes=["v1"])])
    forked.merge("left", into="right")
    forked.append([home("v1 after all", "Chengdu", "l", adopts="v1", supersedes=["v1", "v2"])])
    assert (texts(forked, "left"), texts(forked, "right")) == (["Chengdu"], ["Hangzhou"])

    done = forked.merge("left", into="right")

    assert (done.conflicts, texts(forked, "right")) == ((), ["Chengdu"])
    assert forked.merge("left", into="right").message is None


def test_a_decision_that_was_taken_over_and_taken_back_stays_so(homes: bm.Store) -> None:
    (decided,) = homes.merge("left", into="right", strategy="ours").resolved
    copy = homes.merge("right", into="third").adopted[decided.memory]
    homes.retract([copy], at=homes.refs["third"], scope="branch", revert=True)

    again = homes.merge("right", into="third")

    assert again.skipped[decided.memory] == f"it was taken over there before, as {copy}, which is hidden there"
    assert texts(homes, "third") == ["Drinks tea", "Lives in Xi'an"]


def test_a_decision_that_is_reverted_is_asked_again(homes: bm.Store) -> None:
    (decided,) = homes.merge("left", into="right", strategy="ours").resolved
    homes.retract([decided.memory], at=homes.refs["right"], scope="branch", revert=True)
    assert texts(homes, "right") == ["Drinks tea", "Lives in Hangzhou"]

    with pytest.raises(MergeConflict):
        homes.merge("left", into="right")


def test_the_newer_wins_and_the_log_is_the_same_whichever_way_is_merged_first(homes: bm.Store) -> None:
    digests: set[str] = set()
    for order in (("left", "right"), ("right", "left")):
        with bm.open_temporary() as store:
            store.append(homes.log.events())
            for name, at in homes.refs.items():
                store.refs.create(name, at)
            for source, into in (order, order[::-1]):
                store.merge(source, into=into, strategy="newer")
            digests.add(store.digest())
            assert texts(store, "left") == texts(store, "right") == ["Drinks tea", "Lives in Chengdu"]
    assert len(digests) == 1


def test_a_strategy_that_is_none_is_refused(homes: bm.Store) -> None:
    with pytest.raises(ValueError, match="strategy must be one of fail, ours, theirs, newer, both, not 'mine'"):
        homes.merge("left", into="right", strategy="mine")  # type: ignore[arg-type]


def test_a_receipt_of_a_decision_is_json_ready(homes: bm.Store) -> None:
    done = homes.merge("left", into="right", strategy="theirs")

    form = json.loads(json.dumps(done.to_dict()))
    assert form["resolved"] == [{"memory": done.resolved[0].memory, "winner": "left home", "losers": ["right home"]}]
    assert form["added"] == 3
    assert isinstance(done, Merged)
