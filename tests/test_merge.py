"""Two branches compared, memories taken over, one branch brought to another: what is written, and what is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import branchmem as bm
import pytest
from branchmem.canonical import MAX_REFERENCES
from branchmem.errors import AmbiguousName, UnknownRef
from branchmem.events import Erasure, Restoration, Retraction

NOON = datetime(2026, 4, 4, 12, tzinfo=UTC)


@pytest.fixture
def forked() -> Iterator[bm.Store]:
    """A conversation that parts at `u`: `left` knows tea, `right` knows dog, both know name."""
    with bm.open_temporary() as store:
        store.append(
            [
                bm.Message("chat", None),
                bm.Message("u", "chat"),
                bm.Memory("name", "The user is Li", sources=["u"], key="name"),
                bm.Message("l1", "u"),
                bm.Message("l2", "l1"),
                bm.Memory("tea", "Drinks tea", sources=["l1"]),
                bm.Message("r1", "u"),
                bm.Memory("dog", "Has a dog", sources=["r1"]),
            ]
        )
        store.refs.create("left", "l2")
        store.refs.create("right", "r1")
        yield store


def texts(store: bm.Store, *refs: str) -> list[str]:
    return sorted(memory.text for memory in store.at_ref(*refs).memories())


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


# Take over


def test_adopting_writes_one_message_and_one_memory_each(forked: bm.Store) -> None:
    done = forked.adopt(["tea"], into="right")

    (message, copy) = done.events
    assert forked.refs["right"] == message.id == done.message
    assert (message.to_dict()["parent"], message.to_dict()["role"]) == ("r1", "adoption")
    assert isinstance(copy, bm.Memory)
    assert (copy.text, copy.adopts, copy.supersedes, copy.sources) == ("Drinks tea", "tea", ("tea",), (message.id,))
    assert done.adopted == {"tea": copy.id}
    assert texts(forked, "right") == ["Drinks tea", "Has a dog", "The user is Li"]
    assert (done.shown, done.hidden, done.source) == ((copy.id,), (), None)


def test_a_copy_has_all_that_the_original_had(forked: bm.Store) -> None:
    forked.append(
        [
            bm.Memory("old", "Drinks", sources=["l1"]),
            bm.Memory(
                "full",
                "Drinks oolong",
                sources=["l2"],
                supersedes=["old", "tea"],
                kind="taste",
                key="drink",
                importance=0.25,
                created=NOON,
                meta={"by": ["me"]},
            ),
        ]
    )

    copy = forked.log.get(forked.adopt(["full"], into="right").adopted["full"]).to_dict()

    original = forked.log.get("full").to_dict()
    same = ("text", "kind", "key", "importance", "created", "meta")
    assert {name: copy[name] for name in same} == {name: original[name] for name in same}
    assert copy["supersedes"] == ["full", "old", "tea"]


def test_adopting_again_does_nothing(forked: bm.Store) -> None:
    first = forked.adopt(["tea"], into="right")
    before = forked.seq

    again = forked.adopt(["tea"], into="right")

    assert (forked.seq, again.message, again.before) == (before, None, first.after)
    assert again.skipped == {"tea": f"it is there as {first.adopted['tea']}"}


def test_what_is_there_with_equal_text_is_not_taken_over(forked: bm.Store) -> None:
    forked.append(
        [
            bm.Memory("dog too", "Has a dog", sources=["l1"]),
            bm.Memory("dog of another kind", "Has a dog", sources=["l1"], kind="guess"),
        ]
    )

    done = forked.adopt(["name", "dog too", "dog of another kind"], into="right")

    assert done.skipped == {"name": "it is visible there", "dog too": "it is there as dog"}
    assert list(done.adopted) == ["dog of another kind"]


def test_of_two_that_say_the_same_one_is_adopted(forked: bm.Store) -> None:
    forked.append([bm.Memory("tea again", "Drinks tea", sources=["l2"])])

    done = forked.adopt(["tea again", "tea"], into="right")

    assert list(done.adopted) == ["tea"]
    assert done.skipped == {"tea again": "memory tea, which is offered as well, says the same"}
    assert forked.adopt(["tea again"], into="right").message is None


def test_a_copy_replaces_there_what_its_original_replaced(forked: bm.Store) -> None:
    forked.append([bm.Memory("full name", "The user is Li Wei", sources=["l1"], key="name", supersedes=["name"])])

    done = forked.adopt(["full name"], into="right")

    assert done.hidden == ("name",)
    assert texts(forked, "right") == ["Has a dog", "The user is Li Wei"]


def test_a_newer_version_replaces_the_copy_of_the_older_one(forked: bm.Store) -> None:
    first = forked.adopt(["tea"], into="right")
    forked.append([bm.Memory("oolong", "Drinks oolong", sources=["l2"], supersedes=["tea"])])

    done = forked.adopt(["oolong"], into="right")

    assert done.hidden == (first.adopted["tea"],)
    assert texts(forked, "right") == ["Drinks oolong", "Has a dog", "The user is Li"]


def test_of_two_versions_offered_at_once_the_newer_is_adopted(forked: bm.Store) -> None:
    forked.append([bm.Memory("oolong", "Drinks oolong", sources=["l2"], supersedes=["tea"])])

    done = forked.adopt(["tea", "oolong"], into="right")

    assert list(done.adopted) == ["oolong"]
    assert done.skipped == {"tea": "memory oolong, which is offered as well, replaces it"}


def test_a_branch_that_replaced_its_copy_does_not_get_the_original_again(forked: bm.Store) -> None:
    copy = forked.adopt(["tea"], into="right").adopted["tea"]
    at = forked.refs["right"]
    forked.append([bm.Memory("coffee", "Drinks coffee", sources=[at], supersedes=[copy])])

    again = forked.adopt(["tea"], into="right")

    assert again.skipped == {"tea": f"it was taken over there before, as {copy}, which is hidden there"}
    assert texts(forked, "right") == ["Drinks coffee", "Has a dog", "The user is Li"]


def test_a_copy_that_was_taken_back_stays_taken_back(forked: bm.Store) -> None:
    copy = forked.adopt(["tea"], into="right").adopted["tea"]
    forked.retract([copy], at=forked.refs["right"], scope="branch", revert=True)

    again = forked.adopt(["tea"], into="right")

    assert again.skipped == {"tea": f"it was taken over there before, as {copy}, which is hidden there"}
    assert "Drinks tea" in texts(forked, "left")


def test_over_several_adoptions_it_was_taken_over_all_the_same(forked: bm.Store) -> None:
    forked.append([bm.Message("third", "u")])
    forked.refs.create("third", "third")
    copy = forked.adopt(["tea"], into="right").adopted["tea"]
    forked.adopt([copy], into="third")

    assert forked.adopt(["tea"], into="third").message is None
    assert texts(forked, "third") == ["Drinks tea", "The user is Li"]
    forked.retract(["tea"], at="chat", scope="everywhere")
    assert texts(forked, "third") == ["The user is Li"]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (
            Retraction("r", "r1", scope="branch", memories=["tea"]),
            "retraction r (scope branch, at r1) is in effect here",
        ),
        (Retraction("r", "r1", scope="branch", sources=["l1"]), "retraction r (scope branch, at r1) is in effect here"),
        (Erasure("e", ["tea"]), "the content of tea has been erased"),
        (bm.Memory("no tea", "No tea", sources=["r1"], supersedes=["tea"]), "memory no tea replaces it there"),
    ],
    ids=["retracted", "by source", "erased", "replaced"],
)
def test_what_the_branch_decided_against_is_left_out(forked: bm.Store, event: Any, why: str) -> None:
    forked.append([event])

    done = forked.adopt(["tea"], into="right")

    assert (done.skipped, done.message) == ({"tea": why}, None)


def test_a_restored_memory_may_be_adopted(forked: bm.Store) -> None:
    forked.append(
        [
            Retraction("r", "r1", scope="branch", memories=["tea"]),
            Restoration("back", "r1", scope="branch", retraction="r"),
        ]
    )

    assert list(forked.adopt(["tea"], into="right").adopted) == ["tea"]


def test_a_memory_without_a_source_gets_one_by_being_adopted(forked: bm.Store) -> None:
    forked.append([bm.Memory("guess", "Likes trains")])

    done = forked.adopt(["guess"], into="left")

    assert done.shown == (done.adopted["guess"],)


def test_what_derives_from_something_unknown_would_stay_hidden(forked: bm.Store) -> None:
    forked.append([bm.Memory("trip", "A trip", sources=["l1"], derived_from=["gone"])])

    done = forked.adopt(["trip"], into="right")

    assert done.skipped == {"trip": "memory gone, which it derives from or adopts, is not in the log"}


def test_a_wide_memory_is_adopted_into_one_tree(forked: bm.Store) -> None:
    forked.append([bm.Message("other", None), bm.Memory("wide", "Li has a shop", sources=["l1", "other"])])
    assert "Li has a shop" not in texts(forked, "left")

    forked.adopt(["wide"], into="right")

    assert "Li has a shop" in texts(forked, "right")


def test_a_copy_that_a_standing_retraction_of_its_key_covers_is_born_hidden(forked: bm.Store) -> None:
    """Below the retraction the original was stated afresh; the copy is not."""
    forked.append(
        [
            Retraction("no homes", "l1", scope="tree", keys=["home"]),
            bm.Memory("home", "Lives in Xi'an", sources=["l2"], key="home"),
        ]
    )
    assert "Lives in Xi'an" in texts(forked, "left")

    done = forked.merge("left", into="right")

    copy = done.adopted["home"]
    assert done.born_hidden == {copy: ("retraction no homes (scope tree, at l1) is in effect here",)}
    assert forked.merge("left", into="right").message is None


def test_what_is_no_memory_is_refused(forked: bm.Store) -> None:
    with pytest.raises(bm.UnknownEvent, match="no memory nowhere"):
        forked.adopt(["tea", "nowhere"], into="right")
    with pytest.raises(bm.InvalidEvent, match="l1 is a message, not a memory: name the memories that came from it"):
        forked.adopt(["l1"], into="right")
    with pytest.raises(TypeError, match=r"write memories=\['tea'\]"):
        forked.adopt("tea", into="right")
    with pytest.raises(UnknownRef):
        forked.adopt(["tea"], into="nowhere")
    assert forked.refs["right"] == "r1"


def test_a_ref_at_a_detached_message_takes_nothing_over(forked: bm.Store) -> None:
    forked.append([bm.Message("lost", "not here")])
    forked.refs.create("lost", "lost")

    with pytest.raises(bm.BadAnchor):
        forked.adopt(["tea"], into="lost")
    with pytest.raises(bm.BadAnchor):
        forked.merge("lost", into="right")


def test_a_memory_that_replaced_very_many_is_adopted(forked: bm.Store) -> None:
    old = [f"old{number}" for number in range(MAX_REFERENCES - 1)]
    forked.append([bm.Memory(id, "old", sources=["u"]) for id in old])
    forked.append([bm.Memory("all", "All of it", sources=["l1"], supersedes=old)])

    done = forked.adopt(["all"], into="right")

    (copy,) = done.events[1:]
    assert isinstance(copy, bm.Memory)
    assert copy.supersedes == ("all",)
    assert set(done.hidden) == set(old)


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
