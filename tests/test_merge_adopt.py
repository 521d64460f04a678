"""Memories taken over on another branch: what is written there, what is left out, and that once is enough."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import branchmem as bm
import pytest
from branchmem.canonical import MAX_REFERENCES
from branchmem.errors import UnknownRef
from branchmem.events import Erasure, Restoration, Retraction
from forks import a_fork, texts

NOON = datetime(2026, 4, 4, 12, tzinfo=UTC)


@pytest.fixture
def forked() -> Iterator[bm.Store]:
    with a_fork() as store:
        yield store


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
    assert list(forked.merge("right", into="left").adopted) == ["dog"]


def test_a_copy_that_says_something_else_is_a_memory_of_its_own(forked: bm.Store) -> None:
    forked.append(
        [
            bm.Memory("likes it", "Likes tea", sources=["r1"], adopts="tea"),
            bm.Memory("oolong", "Drinks oolong", sources=["l2"], supersedes=["tea"]),
        ]
    )

    assert forked.merge("left", into="right").hidden == ()
    assert texts(forked, "right") == ["Drinks oolong", "Has a dog", "Likes tea", "The user is Li"]


def test_what_stands_side_by_side_at_the_source_does_so_at_the_target(forked: bm.Store) -> None:
    """There the copy of an old version was never replaced, by whatever replaced that version."""
    forked.append(
        [
            bm.Message("third", "u"),
            *(bm.Memory(f"old{number}", f"Old {number}", sources=["third"]) for number in (1, 2)),
            bm.Memory("copy1", "Old 1", sources=["u"], adopts="old1"),
            bm.Memory("copy2", "Old 2", sources=["l2"], adopts="old2"),
            bm.Memory("new", "New", sources=["l2"], supersedes=["old1", "old2"]),
        ]
    )
    told = texts(forked, "left")
    assert {"Old 1", "Old 2", "New"} <= set(told)

    forked.merge("left", into="right")

    assert texts(forked, "right") == sorted([*told, "Has a dog"])
    assert list(forked.merge("right", into="left").adopted) == ["dog"]


def test_what_says_the_same_there_replaces_what_the_offered_one_replaced(forked: bm.Store) -> None:
    forked.append(
        [
            bm.Memory("Li Wei", "The user is Li Wei", sources=["l1"], supersedes=["name"]),
            bm.Memory("Wei", "The user is Li Wei", sources=["r1"]),
        ]
    )

    done = forked.merge("left", into="right")

    assert done.skipped == {"Li Wei": "it is there as Wei"}
    assert done.hidden == ("Wei", "name")
    assert texts(forked, "right") == ["Drinks tea", "Has a dog", "The user is Li Wei"]


def test_of_two_that_say_the_same_what_either_replaced_is_replaced(forked: bm.Store) -> None:
    forked.append(
        [
            bm.Memory("A", "The user is Li Wei", sources=["l1"]),
            bm.Memory("B", "The user is Li Wei", sources=["l1"], supersedes=["name"]),
        ]
    )

    done = forked.merge("left", into="right")

    assert done.hidden == ("name",)
    assert texts(forked, "right") == ["Drinks tea", "Has a dog", "The user is Li Wei"]


def test_two_that_replace_each_other_stay_where_they_are(forked: bm.Store) -> None:
    forked.append(
        [
            bm.Memory("a", "A", sources=["l1"], supersedes=["b"]),
            bm.Memory("b", "B", sources=["r1"], supersedes=["a"]),
        ]
    )

    assert forked.merge("left", into="right").skipped == {"a": "memory b replaces it there"}
    assert forked.merge("right", into="left").skipped["b"] == "memory a replaces it there"


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


@pytest.mark.parametrize("is_erased", [False, True], ids=["taken back", "erased"])
def test_what_is_hidden_as_one_copy_does_not_come_as_another(forked: bm.Store, is_erased: bool) -> None:
    for name in ("A", "B"):
        forked.append([bm.Message(name.lower(), "u")])
        forked.refs.create(name, name.lower())
    one, other = (forked.adopt(["tea"], into=name).adopted["tea"] for name in ("A", "B"))
    copy = forked.adopt([one], into="right").adopted[one]
    if is_erased:
        forked.append([Erasure("e", [copy])])
    else:
        forked.retract([copy], at=forked.refs["right"], scope="branch", revert=True)

    done = forked.merge("B", into="right")

    assert done.skipped == {other: f"it was taken over there before, as {copy}, which is hidden there"}
    assert texts(forked, "right") == ["Has a dog", "The user is Li"]


def test_of_several_versions_that_replace_it_the_visible_one_is_named(forked: bm.Store) -> None:
    forked.append(
        [
            bm.Memory("drinks 2", "Drinks coffee", sources=["r1"], supersedes=["tea"]),
            bm.Memory("drinks 3", "Drinks water", sources=["r1"], supersedes=["drinks 2"]),
        ]
    )

    assert forked.adopt(["tea"], into="right").skipped == {"tea": "memory drinks 3 replaces it there"}


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
