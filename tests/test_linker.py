"""The linker: what a file's records become, whatever their order, and whatever is wrong with them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import pytest
from branchmem.events import Event, Memory, Message
from branchmem.importers.records import Leaf, LeafChoice, Record, event_id
from exports import counted, parents
from figures import Figure
from sources import START, any_record, imported, record, version


def is_attached(log: Mapping[str, Event], id: str) -> bool:
    seen = set()
    while id not in seen:
        seen.add(id)
        event = log.get(id)
        if not isinstance(event, Message):
            return False
        if not isinstance(event.parent, str):
            return True
        id = event.parent
    return False


def text_of(event: Event | None) -> str | None:
    assert isinstance(event, Message)
    return event.text


def test_a_conversation_hangs_under_a_root_of_its_own() -> None:
    log: dict[str, Event] = {}

    report = imported(log, record("a", None), record("b", "a"), record("b2", "a"), record("x", None, conversation="d"))

    assert log["c"] == Message("c", None, role="thread")
    assert parents(log) == {"c": None, "a": "c", "b": "a", "b2": "a", "d": None, "x": "d"}
    assert counted(report) == {
        "messages": 4,
        "added": 4,
        "conversations": 2,
        "forks": 1,
        "leaves": 3,
        "roots": 2,
    }


def test_children_may_stand_before_their_parents() -> None:
    log: dict[str, Event] = {}

    imported(log, record("c3", "c2"), record("c2", "c1"), record("c1", None))

    assert list(log) == ["c", "c1", "c2", "c3"]


def test_siblings_keep_the_order_they_are_given_then_that_of_the_file() -> None:
    log: dict[str, Event] = {}

    imported(log, record("p", None), record("late", "p", order=9), record("second", "p", order=1), record("first", "p"))

    assert list(log) == ["c", "p", "first", "second", "late"]


def test_importing_twice_adds_nothing() -> None:
    log: dict[str, Event] = {}
    file = [record("a", None), record("b", "a"), record("b2", "a"), record("lost", "gone"), record("s", "s")]
    first = imported(log, *file)

    again = imported(log, *file)

    assert again.added == 0
    assert counted(again) | {"added": first.added} == counted(first)


def test_a_longer_export_adds_what_is_new() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None), record("b", "a"))

    report = imported(log, record("a", None), record("b", "a"), record("b2", "a"), record("c1", "b"))

    assert (report.messages, report.added, report.edited) == (4, 2, 0)
    assert list(log)[-2:] == ["c1", "b2"]


def test_an_edit_in_place_becomes_a_sibling_and_what_is_below_it_follows() -> None:
    log: dict[str, Event] = {}
    old = [record("a", None), record("b", "a"), record("d", "b")]
    new = [record("a", None), record("b", "a", "said otherwise"), record("d", "b"), record("e", "d")]
    imported(log, *old)

    report = imported(log, *new)

    edited = version("b", log)
    moved = version("d", log)
    # The hash is of the event as it would be under its plain id: SHA-256 over skeleton and body.
    plain = Message("b", "a", role="user", text="said otherwise")
    assert edited == "b~" + hashlib.sha256(plain.skeleton() + plain.body()).hexdigest()[:8]
    assert parents(log) == {"c": None, "a": "c", "b": "a", "d": "b", edited: "a", moved: edited, "e": moved}
    assert text_of(log["b"]) == "text of b"
    assert text_of(log[edited]) == "said otherwise"
    assert (report.messages, report.added, report.edited) == (4, 3, 2)
    assert imported(log, *new).added == 0
    assert imported(log, *old).added == 0


def test_an_edit_taken_back_finds_the_first_version_again() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None), record("b", "a"))
    imported(log, record("a", None, "other"), record("b", "a"))

    report = imported(log, record("a", None), record("b", "a"), record("n", "b"))

    assert (report.added, report.edited) == (1, 0)
    assert parents(log)["n"] == "b"


def test_a_moved_message_is_other_content() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None), record("b", "a"), record("d", "b"))

    report = imported(log, record("a", None), record("b", "a"), record("d", "a"))

    assert report.edited == 1
    assert parents(log)[version("d", log)] == "a"


@pytest.mark.parametrize("linked_first", [True, False])
def test_of_two_copies_in_one_file_the_linked_one_wins(linked_first: bool) -> None:
    log: dict[str, Event] = {}
    copies = [record("b", "a"), record("b", None, conversation="another session")]

    report = imported(log, record("a", None), *(copies if linked_first else copies[::-1]), record("d", "b"))

    assert parents(log) == {"c": None, "a": "c", "b": "a", "d": "b"}
    assert (report.messages, report.duplicates, report.edited) == (3, 1, 0)


def test_an_unlinked_copy_of_a_stored_message_is_a_duplicate() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None), record("b", "a"))

    report = imported(log, record("b", None), record("n", "b"))

    assert (report.messages, report.added, report.duplicates, report.edited) == (2, 1, 1, 0)
    assert parents(log)["n"] == "b"


def test_a_stored_unlinked_copy_stays_and_the_linked_one_is_other_content() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None), record("b", None))

    report = imported(log, record("a", None), record("b", "a"))

    assert (report.added, report.duplicates, report.edited) == (1, 0, 1)
    assert parents(log)["b"] == "c"
    assert parents(log)[version("b", log)] == "a"


def test_other_content_under_one_id_in_one_file_is_a_version_and_the_newest_has_the_children() -> None:
    log: dict[str, Event] = {}
    file = [record("a", None), record("a", None, "edited"), record("b", "a"), record("a", None)]

    report = imported(log, *file[:3])

    assert parents(log)["b"] == version("a", log)
    assert counted(report) == {
        "messages": 3,
        "added": 3,
        "conversations": 1,
        "leaves": 2,
        "roots": 2,
        "edited": 1,
    }
    assert imported(log, *file[:3]).added == 0
    third = imported(log, *file)  # the first content stands last now: what is below it hangs there
    assert (third.duplicates, third.edited) == (1, 2)
    assert parents(log)[version("b", log)] == "a"


def test_a_message_below_a_missing_one_is_kept_detached_until_its_parent_comes() -> None:
    log: dict[str, Event] = {}

    report = imported(log, record("b", "a"), record("d", "b"), record("r", None))

    assert list(log) == ["c", "r", "b", "d"]
    assert (report.dangling, report.roots, report.leaves) == (1, 1, 2)
    assert not is_attached(log, "d")
    assert imported(log, record("a", None)).added == 1
    assert is_attached(log, "d")


def test_a_root_is_made_when_something_hangs_under_it() -> None:
    log: dict[str, Event] = {
        "c": Message("c", None, role="thread"),
        "b": Message("b", "c", role="user", text="text of b"),
    }

    report = imported(log, record("lost", "gone", conversation="d"), record("b", None, conversation="e"))

    assert (report.conversations, report.roots, report.dangling, report.duplicates) == (1, 1, 1, 1)
    assert list(log) == ["c", "b", "lost"]
    assert report.current == {"c": Leaf(None, "none"), "d": Leaf(None, "none")}
    later = imported(log, record("gone", None, conversation="d"), record("lost", "gone", conversation="d"))
    assert (later.conversations, later.added, list(log)[3:]) == (1, 1, ["d", "gone"])


def test_a_parent_that_only_the_log_has_is_known() -> None:
    log: dict[str, Event] = {"old": Message("old", None), "memory": Memory("memory", "no message")}

    report = imported(log, record("b", "old"), record("d", "memory"))

    assert (report.dangling, report.conversations, "c" in log) == (1, 1, False)
    assert report.current == {"old": Leaf(None, "none")}
    assert is_attached(log, "b")


def test_a_circle_is_kept_hidden_and_counted_once() -> None:
    log: dict[str, Event] = {}
    file = [
        record("a", None),
        record("x", "z"),
        record("y", "x"),
        record("z", "y"),
        record("below", "y"),
        record("self", "self"),
    ]

    report = imported(log, *file)

    assert (report.cycles, report.dangling, report.messages) == (2, 0, 6)
    assert parents(log) == {"c": None, "a": "c", "z": "y", "x": "z", "y": "x", "below": "y", "self": "self"}
    assert [id for id in log if is_attached(log, id)] == ["c", "a"]
    assert imported(log, *file).added == 0


def test_a_repeated_id_that_closes_a_circle_stays_hidden() -> None:
    log: dict[str, Event] = {}
    file = [record("r", None), record("h", "r"), record("k", "h"), record("h", "k")]

    report = imported(log, *file)

    again = version("h", log)
    assert (report.cycles, report.edited) == (1, 1)
    assert parents(log) == {"c": None, "r": "c", "h": "r", again: "k", "k": again}
    assert imported(log, *file).added == 0


def test_a_logical_parent_is_taken_where_it_is_known_and_closes_no_circle() -> None:
    log: dict[str, Event] = {}

    report = imported(
        log,
        record("a", None, logical_parent="b"),
        record("b", "a"),
        record("known", None, logical_parent="b"),
        record("unknown", None, logical_parent="gone"),
    )

    assert parents(log) == {"c": None, "a": "c", "b": "a", "known": "b", "unknown": "c"}
    assert (report.cycles, report.dangling, report.roots) == (1, 0, 2)


def test_an_id_of_another_event_is_left_to_it() -> None:
    log: dict[str, Event] = {"a": Memory("a", "mine"), "c": Memory("c", "mine too")}

    report = imported(log, record("a", None), record("b", "a"))

    root, a = version("c", log), version("a", log)
    assert parents(log) == {root: None, a: root, "b": a}
    assert (report.messages, report.added, report.edited, report.conversations) == (2, 2, 2, 1)


def test_a_version_whose_id_is_taken_gets_another() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None))
    taken = dict(log)
    imported(taken, record("a", None, "other"))
    log[version("a", taken)] = Memory(version("a", taken), "here first")

    imported(log, record("a", None, "other"))

    assert [text_of(event) for id, event in log.items() if id.count("~") == 2] == ["other"]
    assert imported(log, record("a", None, "other")).added == 0


def test_an_id_over_256_bytes_becomes_a_hash() -> None:
    assert event_id("tool", "c", "n") == "tool:c:n"
    assert event_id("x" * 256) == "x" * 256
    assert event_id("é" * 129) == "~" + hashlib.sha256(("é" * 129).encode()).hexdigest()
    assert event_id("a\ud800") == "a\ufffd"
    log: dict[str, Event] = {}
    imported(log, record("y" * 250, None))
    imported(log, record("y" * 250, None, "edited"))
    assert [len(id) for id in log] == [1, 250, 65]


def test_what_no_event_holds_is_replaced_or_left_out_and_counted() -> None:
    log: dict[str, Event] = {}

    report = imported(
        log,
        record("a", None, "a \ud83d and \udc00"),
        record("b", "a", "x" * (1 << 20)),
        record("d", "b", "x" * (1 << 20) + "y"),
        record("e", "d", role="r" * 257),
        record("f", "e", created=datetime(2026, 1, 1)),
    )

    assert text_of(log["a"]) == "a \ufffd and \ufffd"
    assert text_of(log["b"]) is not None
    assert log["d"] == Message("d", "b", role="user")
    assert log["e"] == Message("e", "d", text="text of e")
    assert log["f"] == Message("f", "e", role="user", text="text of f")
    assert (report.replaced, report.too_long, report.unknown_types) == (2, 1, 1)


def test_the_declared_leaf_is_taken_only_where_one_can_stand_there() -> None:
    file = [record("a", None), record("b", "a"), record("hole", "b", role=None), record("odd", "b", usable=False)]

    def leaf(declared: str | None, choice: LeafChoice = "declared") -> Leaf:
        leaves = {} if declared is None else {"c": declared}
        return imported({}, *file, leaves=leaves, leaf=choice).current["c"]

    assert leaf("a") == Leaf("a", "declared")
    assert leaf("a", "heuristic") == Leaf("a", "declared")
    for nowhere in ("hole", "odd", "missing", None):
        assert leaf(nowhere) == Leaf(None, "none")
        assert leaf(nowhere, "heuristic") == Leaf("b", "heuristic")


def test_the_newest_leaf_is_attached_and_newest_by_time_then_by_position() -> None:
    def newest(*file: Record) -> Leaf:
        return imported({}, *file, leaf="heuristic").current["c"]

    late, later = START, START + timedelta(1)
    a = record("a", None, created=later)
    assert newest(a, record("b", "a", created=late), record("d", "a")) == Leaf("b", "heuristic")
    assert newest(a, record("b", "a", created=late), record("d", "a", created=late)) == Leaf("d", "heuristic")
    assert newest(a, record("lost", "gone", created=later)) == Leaf("a", "heuristic")
    assert newest(record("lost", "gone")) == Leaf(None, "none")


def test_the_leaf_of_an_edited_conversation_is_the_version() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None))

    report = imported(log, record("a", None, "edited"), leaves={"c": "a"})

    assert report.current == {"c": Leaf(version("a", log), "declared")}


@pytest.mark.parametrize("seed", range(300))
def test_any_records_import_once_in_an_order_with_parents_first(seed: int) -> None:
    chance = random.Random(seed)
    log: dict[str, Event] = {}
    files = [[any_record(chance) for _ in range(chance.randrange(1, 12))] for _ in range(3)]
    for file in files:
        known = set(log)
        report = imported(log, *file, leaf="heuristic")

        events = [event for id, event in log.items() if id not in known]
        if not report.cycles:
            _parents_first(events)
        assert report.added == len(events) - sum(id in ("C", "D") for id in log.keys() - known)
        assert report.messages >= report.added
        assert all(is_attached(log, leaf.leaf) for leaf in report.current.values() if leaf.leaf)
        again = imported(log, *file, leaf="heuristic")
        assert (again.added, again.messages) == (0, report.messages), f"seed {seed}"


def _parents_first(events: Iterable[Event]) -> None:
    place = {event.id: i for i, event in enumerate(events)}
    for event in events:
        if isinstance(event, Message) and isinstance(event.parent, str):
            assert place.get(event.parent, -1) < place[event.id]


@pytest.mark.soak
@pytest.mark.parametrize("shape", ["chain", "chain, children first", "fan", "circle", "one id"])
def test_no_shape_of_a_long_file_takes_more_than_seconds(shape: str, figure: Figure) -> None:
    n = figure(20_000, 100_000)
    chain = [record(f"m{i}", f"m{i - 1}" if i else None) for i in range(n)]
    file = {
        "chain": chain,
        "chain, children first": chain[::-1],
        "fan": [record(f"m{i}", "m0" if i else None) for i in range(n)],
        "circle": [record("m0", f"m{n - 1}"), *chain[1:]],
        "one id": [record("m", None, str(i // 2), logical_parent=f"m{i}" if i % 2 else None) for i in range(n)],
    }[shape]
    log: dict[str, Event] = {}

    report = imported(log, *file)

    distinct = n // 2 if shape == "one id" else n
    assert (report.messages, report.added) == (distinct, distinct)
    assert report.leaves == {"fan": n - 1, "circle": 0, "one id": distinct}.get(shape, 1)
