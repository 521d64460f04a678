"""The verbs of a store: what each writes, what its receipt says, and what it refuses."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import branchmem as bm
import pytest
from branchmem.canonical import MAX_REFERENCES
from branchmem.errors import InvalidEventType
from branchmem.events import Erasure, Restoration, Retraction

SECRET = "Chengdu"


@pytest.fixture
def chat() -> Iterator[bm.Store]:
    """`home` comes from u1 and replaces `home0`; `trip` derives from it; the user goes on to u9, or edits u1."""
    with bm.open_temporary() as store:
        store.append(
            [
                bm.Message("chat", None, role="thread"),
                bm.Message("u0", "chat", text="Hello"),
                bm.Message("u1", "u0", text=f"I'm moving to {SECRET}"),
                bm.Message("u9", "u1", text="Not any more"),
                bm.Message("edit", "u0", text="I'm moving"),
                bm.Memory("home0", "The user is moving", sources=["u0"], key="home_city"),
                bm.Memory(
                    "home", f"The user is moving to {SECRET}", sources=["u1"], key="home_city", supersedes=["home0"]
                ),
                bm.Memory("trip", f"A flight to {SECRET}", derived_from=["home"], key="travel"),
            ]
        )
        yield store


def shown(store: bm.Store, *anchors: str) -> set[str]:
    return set(store.at(anchors, count=False).ids())


# Taking back


def test_a_branch_retraction_hides_below_and_leaves_the_sibling_alone(chat: bm.Store) -> None:
    done = chat.retract(["home0"], at="u1", scope="branch", id="r")

    assert chat.log.get("r") == Retraction("r", "u1", scope="branch", memories=["home0"])
    assert shown(chat, "u9") == {"home", "trip"}
    assert shown(chat, "edit") == {"home0"}
    assert (done.id, done.dry_run, done.anchors, done.elsewhere) == ("r", False, ("u1",), None)


def test_with_a_memory_its_older_versions_are_taken_back(chat: bm.Store) -> None:
    chat.append([bm.Memory("home2", "Again", sources=["u9"], supersedes=["home", "never-came"])])

    done = chat.retract(["home2"], at="u9", scope="branch")

    (written,) = done.events
    assert isinstance(written, Retraction)
    assert written.memories == ("home", "home0", "home2", "never-came")
    assert (done.hidden, done.shown) == (("trip", "home2"), ())
    assert shown(chat, "u9") == set()


def test_reverting_a_memory_brings_its_older_version_back(chat: bm.Store) -> None:
    done = chat.retract(["home"], at="u9", scope="branch", revert=True)

    assert (done.hidden, done.shown) == (("home", "trip"), ("home0",))
    assert shown(chat, "u9") == {"home0"}


def test_what_came_from_a_message_is_taken_back_by_its_source(chat: bm.Store) -> None:
    done = chat.retract(sources=["u1"], at="u9", scope="tree")

    assert done.hidden == ("home", "trip")
    assert shown(chat, "u1") == {"home0"}


def test_a_key_is_taken_back_until_it_is_stated_afresh_or_for_good(chat: bm.Store) -> None:
    chat.retract(keys=["home_city"], at="u9", scope="branch")
    chat.append([bm.Message("u10", "u9"), bm.Memory("home2", "Hangzhou", sources=["u10"], key="home_city")])
    assert shown(chat, "u10") == {"home2"}

    done = chat.retract(keys=["home_city"], at="u10", scope="branch", standing=True, reason="enough of it")

    (written,) = done.events
    assert isinstance(written, Retraction)
    assert (written.standing, written.reason) == (True, "enough of it")
    assert done.hidden == ("home2",)


def test_older_versions_beyond_what_an_event_can_name_make_more_retractions_in_one_batch(chat: bm.Store) -> None:
    count = MAX_REFERENCES + 10
    versions = [bm.Memory(f"v{n}", "", sources=["u0"], supersedes=[f"v{n - 1}"] if n else ()) for n in range(count)]
    chat.append(versions)
    before = chat.seq

    done = chat.retract([f"v{count - 1}"], keys=["travel"], at="u9", scope="everywhere", id="r")

    assert [event.id for event in done.events] == ["r", "r/2"]
    named = [(event.memories, event.keys) for event in done.events if isinstance(event, Retraction)]
    assert {id for memories, _ in named for id in memories} == {version.id for version in versions}
    assert [keys for _, keys in named] == [(), ("travel",)]
    assert (done.appended, chat.seq) == (bm.Appended(2, 0, before + 2), before + 2)
    assert shown(chat, "u9") == {"home"}


# Bringing back


def test_a_restoration_lifts_its_retraction_and_no_other(chat: bm.Store) -> None:
    first = chat.retract(["home"], at="u1", scope="branch")
    second = chat.retract(sources=["u1"], at="u1", scope="branch")

    once = chat.restore(first.id, at="u9", scope="branch", id="s")

    assert chat.log.get("s") == Restoration("s", "u9", scope="branch", retraction=first.id)
    assert (once.hidden, once.shown) == ((), ("home0",))
    assert chat.restore(second.id, at="u9", scope="branch").shown == ("home", "trip")
    assert shown(chat, "u9") == {"home", "trip"}
    assert shown(chat, "u1") == set()


# Correcting, replacing


def test_a_correction_is_one_batch_and_holds_on_its_branch(chat: bm.Store) -> None:
    before = chat.seq
    corrected = bm.Memory("home2", "The user is moving to Hangzhou", sources=["u9"])

    done = chat.correct("u1", memory=corrected, at="u9", id="r", reason="a slip")

    assert chat.log.get("r") == Retraction("r", "u9", scope="branch", sources=["u1"], reason="a slip")
    assert chat.log.get("home2") == corrected
    assert (done.appended, done.born_covered) == (bm.Appended(2, 0, before + 2), {})
    assert (done.hidden, done.shown) == (("home", "trip"), ("home0", "home2"))
    assert shown(chat, "u1") == {"home", "trip"}


def test_a_correction_that_derives_from_what_it_corrects_is_born_covered(chat: bm.Store) -> None:
    done = chat.correct("u1", memory=bm.Memory("home2", "", derived_from=["trip"]), at="u9", id="r")

    assert done.born_covered == {"home2": ("r",)}
    assert "home2 is born covered by r" in str(done)
    assert "born hidden" not in str(done)


def test_a_correction_that_is_hidden_where_it_is_made_says_why(chat: bm.Store) -> None:
    done = chat.correct("u1", memory=bm.Memory("home2", SECRET, sources=["u99"]), at="u9", id="r")

    assert (done.born_covered, done.born_hidden) == ({}, {"home2": ("source u99 is not a message of the log",)})
    assert str(done).endswith("; home2 is born hidden: source u99 is not a message of the log")
    assert pickle.loads(pickle.dumps(done)) == done


@pytest.mark.parametrize("id", ["home", "u9", "r"])
def test_of_a_correction_whose_memory_is_refused_nothing_is_written(chat: bm.Store, id: str) -> None:
    before = chat.digest()
    refusals = []

    for dry_run in (True, False):
        with pytest.raises(bm.EventConflict, match=f"event {id} is already there") as refused:
            chat.correct("u1", memory=bm.Memory(id, "other", sources=["u9"]), at="u9", id="r", dry_run=dry_run)
        refusals.append(str(refused.value))

    assert refusals[0] == refusals[1]
    assert chat.digest() == before


def test_a_replacement_supersedes_what_is_named_and_what_it_names_itself(chat: bm.Store) -> None:
    by = bm.Memory("home2", "Hangzhou", sources=["u9"], supersedes=["trip"], importance=0.5, meta={"a": 1})

    done = chat.supersede(["home"], by=by)

    expected = bm.Memory(
        "home2", "Hangzhou", sources=["u9"], supersedes=["home", "trip"], importance=0.5, meta={"a": 1}
    )
    assert chat.log.get("home2") == expected
    assert (done.anchors, done.hidden, done.shown) == (("u9",), ("home", "trip"), ("home2",))
    assert shown(chat, "u1") == {"home", "trip"}


def test_a_replacement_is_looked_at_where_it_was_said_unless_told_otherwise(chat: bm.Store) -> None:
    chat.append([bm.Message("b", None), bm.Message("b1", "b")])

    said = chat.supersede(["home"], by=bm.Memory("x", "", sources=["b1", "u1", "u9", "b"]))

    assert set(said.anchors) == {"u9", "b1"}
    assert said.shown == ("x",)
    assert chat.supersede(["home"], by=bm.Memory("y", "", sources=["u9"]), at="u1").anchors == ("u1",)
    nowhere = chat.supersede(["home"], by=bm.Memory("z", "", sources=["gone"]))
    assert (nowhere.anchors, nowhere.hidden, nowhere.shown) == ((), (), ())


def test_a_replacement_with_a_key_that_is_retracted_for_good_is_born_covered(chat: bm.Store) -> None:
    standing = chat.retract(keys=["home_city"], at="u1", scope="branch", standing=True)

    done = chat.supersede(["home0"], by=bm.Memory("home2", "", sources=["u9"], key="home_city"))

    assert done.born_covered == {"home2": (standing.id,)}
    assert done.shown == ()


# Erasing


def test_an_erasure_says_what_goes_what_stays_and_where_the_bytes_are(chat: bm.Store) -> None:
    done = chat.erase(["u1", "home0", "later"], at="u9", id="e")

    assert chat.log.get("e") == Erasure("e", ["u1", "home0", "later"])
    assert (done.messages, done.memories, done.absent) == (("u1",), ("home0",), ("later",))
    assert (done.derived, done.bodies, done.already) == (("home", "trip"), 4, ())
    assert done.ids == ("u1", "home0", "home", "trip", "later")
    assert done.keys == ("home_city", "travel")
    assert (done.hidden, done.shown) == (("home", "trip"), ())
    assert done.remains == "in free pages until compact"
    assert "in free pages until compact" in str(done)
    assert all(chat.log.is_erased(id) for id in ("u1", "home0", "home", "trip"))
    assert list(chat.log.find(SECRET)) == []


def test_without_cascade_what_was_derived_stays(chat: bm.Store) -> None:
    done = chat.erase(["u1"], cascade=False)

    assert (done.messages, done.derived, done.bodies) == (("u1",), (), 1)
    assert (done.anchors, done.hidden, done.shown) == ((), (), ())
    assert shown(chat, "u9") == {"home", "trip"}


def test_erasing_a_replacement_shows_what_it_replaced(chat: bm.Store) -> None:
    assert chat.erase(["home"], at="u9").shown == ("home0",)


def test_what_was_gone_before_is_said_and_not_counted_again(chat: bm.Store) -> None:
    chat.erase(["home"])

    again = chat.erase(["u1", "home"])

    assert (again.already, again.derived, again.bodies) == (("home",), (), 1)


# Names that a verb refuses


WRONG: dict[str, tuple[Callable[[bm.Store], object], type[Exception], str]] = {
    "a memory that is not here": (
        lambda store: store.retract(["hom"], at="u9", scope="branch"),
        bm.UnknownEvent,
        "no memory hom in the log: check the id, and which store is open; "
        "if it is still to come, append a branchmem.events.Retraction that names it yourself",
    ),
    "a message where a memory belongs": (
        lambda store: store.retract(["u1"], at="u9", scope="branch"),
        bm.InvalidEvent,
        "u1 is a message, not a memory: name it as a source to take back what came from it",
    ),
    "a memory where a message belongs": (
        lambda store: store.retract(sources=["home"], at="u9", scope="branch"),
        bm.InvalidEvent,
        "home is a memory, not a message: name it as a memory to take it back",
    ),
    "a retraction at what is not here": (
        lambda store: store.retract(["home"], at="u99", scope="branch"),
        bm.UnknownEvent,
        "no message u99 in the log",
    ),
    "a retraction at a memory": (
        lambda store: store.retract(["home"], at="home", scope="branch"),
        bm.InvalidEvent,
        "home is a memory, not a message: name a message",
    ),
    "a retraction of nothing": (
        lambda store: store.retract(at="u9", scope="branch"),
        bm.InvalidEvent,
        "takes nothing back: name memories, sources or keys",
    ),
    "a scope that is none": (
        lambda store: store.retract(["home"], at="u9", scope="here"),  # type: ignore[arg-type]
        bm.InvalidEvent,
        "scope must be one of branch, tree, everywhere, not 'here'",
    ),
    "a string where a list belongs": (
        lambda store: store.retract("home", at="u9", scope="branch"),
        InvalidEventType,
        "memories is a list of ids: write memories=['home']",
    ),
    "a restoration of what is not here": (
        lambda store: store.restore("r9", at="u9", scope="branch"),
        bm.UnknownEvent,
        "no retraction r9 in the log: check the id, and which store is open; "
        "if it is still to come, append a branchmem.events.Restoration that names it yourself",
    ),
    "a restoration of a memory": (
        lambda store: store.restore("home", at="u9", scope="branch"),
        bm.InvalidEvent,
        "home is a memory, not a retraction",
    ),
    "a correction of what is not here": (
        lambda store: store.correct("u99", memory=bm.Memory("m", ""), at="u9"),
        bm.UnknownEvent,
        "no message u99 in the log",
    ),
    "a correction by what is no memory": (
        lambda store: store.correct("u1", memory=bm.Message("m", None), at="u9"),  # type: ignore[arg-type]
        InvalidEventType,
        "memory must be a Memory, not Message",
    ),
    "a replacement of what is not here": (
        lambda store: store.supersede(["hom"], by=bm.Memory("m", "", sources=["u9"])),
        bm.UnknownEvent,
        "no memory hom in the log",
    ),
    "a replacement of nothing": (
        lambda store: store.supersede([], by=bm.Memory("m", "", sources=["u9"])),
        bm.InvalidEvent,
        "memory m replaces nothing: name memories, or append it",
    ),
    "a replacement as a string": (
        lambda store: store.supersede("home", by=bm.Memory("m", "", sources=["u9"])),
        InvalidEventType,
        "memories is a list of ids: write memories=['home']",
    ),
    "a replacement seen from what is not here": (
        lambda store: store.supersede(["home"], by=bm.Memory("m", "", sources=["u9"]), at="u99"),
        bm.UnknownEvent,
        "no message u99 in the log",
    ),
    "an erasure seen from several messages": (
        lambda store: store.erase(["u1"], at=["u9", "u1"]),  # type: ignore[arg-type]
        TypeError,
        "at is the id of one message, not ['u9', 'u1']",
    ),
    "an erasure as a string": (
        lambda store: store.erase("u1"),
        InvalidEventType,
        "targets is a list of ids: write targets=['u1']",
    ),
    "an erasure of nothing": (
        lambda store: store.erase([]),
        bm.InvalidEvent,
        "names no target: name messages or memories",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused_names_the_value_and_the_way_out_and_writes_nothing(chat: bm.Store, what: str) -> None:
    verb, error, said = WRONG[what]
    before = chat.digest()

    with pytest.raises(error) as refused:
        verb(chat)

    assert said in str(refused.value)
    assert chat.digest() == before
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_a_retraction_cannot_be_erased(chat: bm.Store) -> None:
    done = chat.retract(["home"], at="u9", scope="branch", id="r")

    with pytest.raises(bm.InvalidEvent, match="r is neither message nor memory"):
        chat.erase([done.id])


def test_a_scope_has_no_default(chat: bm.Store) -> None:
    with pytest.raises(TypeError, match="scope"):
        chat.retract(["home"], at="u9")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="scope"):
        chat.restore("r", at="u9")  # type: ignore[call-arg]


# What all share


def test_a_verb_repeated_under_its_id_is_written_once(chat: bm.Store) -> None:
    when = datetime(2026, 1, 2, tzinfo=UTC)

    first, again = (
        chat.retract(["home"], at="u9", scope="branch", id="r", created=when, reason="why") for _ in range(2)
    )

    assert first.events == again.events
    assert (first.appended, again.appended) == (bm.Appended(1, 0, chat.seq), bm.Appended(0, 1, chat.seq))
    assert (again.hidden, again.shown) == ((), ())
    assert str(again).startswith("there already: retraction r")
    assert chat.erase(["u1"], id="e", created=when).appended == bm.Appended(1, 0, chat.seq)
    assert chat.erase(["u1"], id="e", created=when).appended == bm.Appended(0, 1, chat.seq)


def test_without_an_id_each_event_gets_a_new_one(chat: bm.Store) -> None:
    ids = {chat.retract(["home"], at="u9", scope="branch").id for _ in range(3)}

    assert len(ids) == 3
    assert all(id in chat.log for id in ids)


def every_verb(store: bm.Store, *, dry_run: bool) -> list[Any]:
    new = bm.Memory(f"new-{dry_run}", SECRET, sources=["u9"], supersedes=["home"], meta={"city": SECRET})
    return [
        store.retract(["home"], at="u9", scope="branch", reason=SECRET, id=f"r-{dry_run}", dry_run=dry_run),
        store.correct("u1", memory=new, at="u9", reason=SECRET, dry_run=dry_run),
        store.supersede(["home"], by=bm.Memory(f"by-{dry_run}", SECRET, sources=["u1"]), dry_run=dry_run),
        store.erase(["u1", "home"], at="u9", dry_run=dry_run),
    ]


@pytest.mark.parametrize("dry_run", [True, False])
def test_no_receipt_holds_a_text_or_a_reason(chat: bm.Store, dry_run: bool) -> None:
    for receipt in every_verb(chat, dry_run=dry_run):
        assert SECRET not in str(receipt)
        assert SECRET not in repr(receipt)
        assert SECRET not in json.dumps(receipt.to_dict())


def test_verbs_count_no_verdicts(chat: bm.Store) -> None:
    before = chat.counters()

    every_verb(chat, dry_run=True)
    every_verb(chat, dry_run=False)

    assert chat.counters() == before


@pytest.mark.parametrize(("scope", "unplaced"), [("branch", True), ("tree", True), ("everywhere", False)])
def test_an_event_whose_place_cannot_be_judged_is_said_to_be_so(chat: bm.Store, scope: Any, unplaced: bool) -> None:
    chat.append([bm.Message("lost", "nowhere")])

    done = chat.retract(["home"], at="lost", scope=scope, id="r")

    assert done.unplaced == (("r",) if unplaced else ())
    assert ("the place of r cannot be judged" in str(done)) == unplaced
    assert shown(chat, "u9") == set()


def test_long_lists_are_cut_in_sentences_and_whole_in_receipts(chat: bm.Store) -> None:
    chat.append([bm.Memory(f"m{n}", "", sources=["u9"]) for n in range(8)])

    done = chat.retract(sources=["u9"], at="u9", scope="branch", id="r")

    assert done.hidden == tuple(f"m{n}" for n in range(8))
    assert str(done) == "wrote retraction r; at u9: hides m0, m1, m2, m3, m4 and 3 more"
