"""Two branches compared, and one brought to another: what is written, and what is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import branchmem as bm
import pytest
from branchmem.errors import AmbiguousName, UnknownRef
from branchmem.events import Retraction
from branchmem.merge import Strategy
from forks import a_fork, texts


@pytest.fixture
def forked() -> Iterator[bm.Store]:
    with a_fork() as store:
        yield store


# Compare


def test_a_diff_names_what_each_side_has_for_itself(forked: bm.Store) -> None:
    seen = forked.diff("left", "right")

    assert (seen.a, seen.b, seen.ancestor) == ("l2", "r1", "u")
    assert (seen.messages_a, seen.messages_b) == (("l1", "l2"), ("r1",))
    assert (seen.only_a, seen.only_b, seen.both) == (("tea",), ("dog",), ("name",))
    assert str(seen) == (
        "parting at u; l2: 2 messages, only here 1 memory (tea); "
        "r1: 1 message, only here 1 memory (dog); both show 1 memory"
    )
    assert json.loads(json.dumps(seen.to_dict()))["messages_a"] == ["l1", "l2"]


def test_a_diff_takes_messages_as_well_as_refs(forked: bm.Store) -> None:
    assert forked.diff("u", "left").only_b == ("tea",)
    assert forked.diff("left", "left").messages_a == ()


def test_what_derives_from_a_branch_beside_is_compared_and_merged_as_a_session_sees_it(forked: bm.Store) -> None:
    forked.append([bm.Message("other", None), bm.Memory("tabs", "Prefers tabs.", sources=["other"])])
    forked.refs.create("profile", "other")
    forked.append([bm.Memory("indents", "Indents with tabs.", sources=["r1"], derived_from=["tabs"])])

    assert forked.diff("left", "right").only_b == ("dog",)
    assert forked.diff("left", "right", beside=["profile"]).only_b == ("dog", "indents")
    merged = forked.merge("right", into="left", beside=["profile"])
    assert sorted(merged.adopted) == ["dog", "indents"]
    assert "Indents with tabs." in [memory.text for memory in forked.at_ref("left", "profile").memories()]
    with pytest.raises(bm.AmbiguousAnchor):
        forked.diff("left", "right", beside=["left"])


def test_two_trees_have_no_common_ancestor(forked: bm.Store) -> None:
    forked.append([bm.Message("other", None), bm.Message("o1", "other")])

    seen = forked.diff("left", "o1")

    assert (seen.ancestor, seen.messages_b, seen.both) == (None, ("other", "o1"), ())


def test_a_name_that_is_a_ref_and_another_message_is_refused(forked: bm.Store) -> None:
    forked.refs.create("u", "l1")
    forked.refs.create("r1", "r1")

    with pytest.raises(AmbiguousName, match="'u' is a message, and also a ref that stands at l1") as refused:
        forked.diff("u", "right")
    assert (refused.value.name, refused.value.anchor) == ("u", "l1")
    assert forked.diff("r1", "left").a == "r1"
    with pytest.raises(UnknownRef, match="no ref or message 'nowhere'"):
        forked.diff("nowhere", "left")
    with pytest.raises(UnknownRef):
        forked.merge("tea", into="left")


# Merge


def test_a_merge_brings_what_the_source_sees_and_the_target_does_not(forked: bm.Store) -> None:
    done = forked.merge("left", into="right")

    assert texts(forked, "right") == ["Drinks tea", "Has a dog", "The user is Li"]
    assert texts(forked, "left") == ["Drinks tea", "The user is Li"]
    assert (done.source, done.before, done.after) == ("l2", "r1", forked.refs["right"])
    assert forked.log.get(done.after).to_dict() == {
        "type": "message",
        "id": done.after,
        "parent": "r1",
        "role": "merge",
    }
    assert [move.why for move in forked.refs.log("right")] == ["create", "merge"]
    assert str(done) == (f"right moved from r1 to {done.after}; adopted 1 memory (tea); shows {done.adopted['tea']}")


def test_merging_both_ways_ends_with_both_knowing_all(forked: bm.Store) -> None:
    forked.merge("left", into="right")
    forked.merge("right", into="left")

    assert texts(forked, "left") == texts(forked, "right")
    seq, digest = forked.seq, forked.digest()
    for source, into in (("left", "right"), ("right", "left")):
        assert forked.merge(source, into=into).message is None
    assert (forked.seq, forked.digest()) == (seq, digest)


def test_a_target_above_its_source_is_moved_forward(forked: bm.Store) -> None:
    forked.refs.create("behind", "u")
    before = forked.seq

    seen = forked.merge("left", into="behind", dry_run=True)
    done = forked.merge("left", into="behind")

    assert (forked.refs["behind"], forked.seq) == ("l2", before)
    assert (done.fast_forward, done.message, done.shown) == (True, None, ("tea",))
    assert (seen.fast_forward, seen.shown, seen.dry_run) == (True, ("tea",), True)


@pytest.mark.parametrize("source", ["right", "u", "chat"])
def test_there_is_nothing_to_merge_from_above(forked: bm.Store, source: str) -> None:
    done = forked.merge(source, into="right")

    assert (done.before, done.after, done.adopted) == ("r1", "r1", {})
    assert str(done) == "right stays at r1: nothing to take over"
    assert len(forked.refs.log("right")) == 1


def test_branches_of_two_trees_can_be_merged(forked: bm.Store) -> None:
    forked.append([bm.Message("other", None), bm.Memory("cat", "Has a cat", sources=["other"])])
    forked.refs.create("other", "other")

    forked.merge("left", into="other")

    assert texts(forked, "other") == ["Drinks tea", "Has a cat", "The user is Li"]
    assert texts(forked, "other", "left") == ["Drinks tea", "Has a cat", "The user is Li"]


def test_a_merge_carries_no_retraction_and_says_so(forked: bm.Store) -> None:
    forked.retract(["name"], at="l2", scope="branch")

    done = forked.merge("left", into="right")

    assert done.taken_back == ("name",)
    assert "The user is Li" in texts(forked, "right")
    assert "still shows what is taken back at the source: name" in str(done)


def test_what_the_merge_replaces_is_not_said_to_be_shown_still(forked: bm.Store) -> None:
    forked.append([bm.Memory("full name", "The user is Li Wei", sources=["l1"], supersedes=["name"])])
    forked.retract(["name"], at="l2", scope="branch")

    seen = forked.merge("left", into="right", dry_run=True)
    done = forked.merge("left", into="right")

    assert (seen.taken_back, done.taken_back, done.hidden) == ((), (), ("name",))
    assert "still shows" not in str(done)


def test_what_the_target_took_back_or_replaced_does_not_come_back(forked: bm.Store) -> None:
    forked.retract(["name"], at="r1", scope="branch", id="r")

    done = forked.merge("left", into="right")

    assert texts(forked, "right") == ["Drinks tea", "Has a dog"]
    assert done.skipped == {"name": "retraction r (scope branch, at r1) is in effect here"}


def test_merging_back_an_update_of_what_was_merged_replaces_it(forked: bm.Store) -> None:
    forked.merge("left", into="right")
    copy = next(id for id in forked.at_ref("right") if id.startswith("adopted-"))
    at = forked.refs["right"]
    forked.append([bm.Memory("oolong", "Drinks oolong", sources=[at], supersedes=[copy])])

    forked.merge("right", into="left")

    assert texts(forked, "left") == ["Drinks oolong", "Has a dog", "The user is Li"]


def test_what_is_added_to_what_was_merged_before_is_in_no_conflict_with_it(forked: bm.Store) -> None:
    forked.append([bm.Memory("reads", "Reads", sources=["l1"], key="hobby")])
    forked.merge("left", into="right")
    forked.append([bm.Memory("swims", "Swims", sources=["l2"], key="hobby")])

    assert list(forked.merge("left", into="right").adopted) == ["swims"]


@pytest.fixture
def taken_up_again(forked: bm.Store) -> bm.Store:
    """On the right, a newer version of dog and, beside it on purpose, the older one, taken up again."""
    forked.append(
        [
            bm.Memory("dogs", "Has two dogs", sources=["r1"], supersedes=["dog"]),
            bm.Message("r2", "r1"),
            bm.Memory("dog again", "Has a dog", sources=["r2"], adopts="dog"),
        ]
    )
    forked.refs.move("right", "r2")
    return forked


def test_what_was_taken_up_again_stays_where_it_is_merged_back(taken_up_again: bm.Store) -> None:
    store = taken_up_again
    store.merge("right", into="left")
    assert texts(store, "left") == ["Drinks tea", "Has a dog", "Has two dogs", "The user is Li"]

    done = store.merge("left", into="right")

    assert (list(done.adopted), done.hidden) == (["tea"], ())
    assert texts(store, "right") == texts(store, "left")


def test_merging_again_leaves_what_was_taken_up_again(taken_up_again: bm.Store) -> None:
    store = taken_up_again
    at = store.refs["right"]
    store.merge("right", into="left")

    again = store.merge("right", into="left")

    assert (again.message, store.refs["right"]) == (None, at)


def test_what_was_taken_up_again_is_brought_where_the_older_one_is_replaced(forked: bm.Store) -> None:
    forked.append(
        [
            bm.Memory("full name", "The user is Li Wei", sources=["l1"], supersedes=["name"]),
            bm.Memory("name again", "The user is Li", sources=["l2"], adopts="name", key="name"),
        ]
    )

    done = forked.merge("left", into="right")

    assert (list(done.adopted), done.hidden) == (["full name", "name again", "tea"], ("name",))
    assert texts(forked, "right") == sorted([*texts(forked, "left"), "Has a dog"])


def test_a_dry_run_writes_nothing_and_says_what_would_be(forked: bm.Store) -> None:
    before = forked.seq

    seen = forked.merge("left", into="right", dry_run=True)

    assert (forked.seq, forked.refs["right"], seen.appended) == (before, "r1", None)
    assert str(seen).startswith(f"right would move from r1 to {seen.after}; would adopt 1 memory (tea)")
    done = forked.merge("left", into="right")
    assert done.to_dict() == seen.to_dict() | {"dry_run": False, "added": 2}
    assert done.events == seen.events


def test_an_undone_merge_can_be_done_again(forked: bm.Store) -> None:
    first = forked.merge("left", into="right")
    forked.refs.undo("right")
    assert texts(forked, "right") == ["Has a dog", "The user is Li"]

    again = forked.merge("left", into="right")

    assert (again.after, again.appended) == (first.after, (0, 2, forked.seq))
    assert texts(forked, "right") == ["Drinks tea", "Has a dog", "The user is Li"]


def test_a_store_for_reading_can_be_asked_for_a_dry_run(tmp_path: Any, forked: bm.Store) -> None:
    copy = forked.backup(tmp_path / "copy.bmem")

    with bm.open(copy, readonly=True) as store:
        assert list(store.merge("left", into="right", dry_run=True).adopted) == ["tea"]
        assert store.diff("left", "right").only_a == ("tea",)
        with pytest.raises(bm.StoreReadOnly):
            store.merge("left", into="right")


def test_no_id_is_made_from_a_text(forked: bm.Store) -> None:
    """What is erased must not be guessed from what stays."""
    with bm.open_temporary() as other:
        events = [event.to_dict() for event in forked.log.events()]
        other.append([bm.event_from_dict(form | {"text": form["id"]} if "text" in form else form) for form in events])
        for name, at in forked.refs.items():
            other.refs.create(name, at)

        assert other.merge("left", into="right").adopted == forked.merge("left", into="right").adopted


def test_a_receipt_holds_ids_and_no_content(forked: bm.Store) -> None:
    done = forked.merge("left", into="right")

    assert "Drinks tea" not in json.dumps(done.to_dict()) + str(done) + repr(done)


@pytest.mark.parametrize("strategy", get_args(Strategy))
def test_what_a_retraction_of_its_key_hid_does_not_come_again_from_what_says_the_same(strategy: Strategy) -> None:
    with bm.open_temporary() as store:
        store.append([bm.Message("r", None), bm.Message("a", "r"), bm.Message("b", "r"), bm.Message("c", "b")])
        store.append([Retraction("x", "b", scope="tree", keys=["city"])])
        store.append([bm.Memory(id, "tea", sources=["c"], key="city") for id in ("k1", "k2")])
        store.refs.create("main", "a")
        first = store.merge("c", into="main", strategy=strategy)
        assert list(first.born_hidden) == [first.adopted["k1"]]

        again = store.merge("c", into="main", strategy=strategy)

        assert (again.message, sorted(again.skipped)) == (None, ["k1", "k2"])


@pytest.mark.parametrize("known", [False, True])
def test_a_conflict_quotes_what_both_replace_only_where_the_target_knows_it(forked: bm.Store, known: bool) -> None:
    forked.append([bm.Message("third", "chat"), bm.Memory("diary", "a secret", sources=["third"])])
    if known:
        forked.adopt(["diary"], into="right")
    for side in ("left", "right"):
        forked.append([bm.Memory(f"{side}-says", side, sources=[forked.refs[side]], supersedes=["diary"])])

    (conflict,) = forked.merge("left", into="right", dry_run=True).conflicts
    assert (conflict.about, conflict.base and conflict.base.text) == ("diary", "a secret" if known else None)
