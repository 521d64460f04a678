"""SillyTavern chats: swipes, branches in files of their own, every spelling of a time, and files with bytes changed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.importers import Leaf, sillytavern
from changed_bytes import CHANGES, take_changed
from exports import Log, counted, parents, stored_in
from figures import Figure
from transcripts import written

SAMPLES = Path(__file__).parent / "samples" / "sillytavern"
MAIN = SAMPLES / "constructed_Guide - main.jsonl"
BRANCH = SAMPLES / "constructed_Branch #2 - 2024-09-01@10h05m00s.jsonl"
SEED = 20260802


def header(**metadata: Any) -> dict[str, Any]:
    return {"user_name": "You", "character_name": "Guide", "create_date": "2024-9-1", "chat_metadata": metadata}


def line(text: str, *swipes: str, user: bool = False, **rest: Any) -> dict[str, Any]:
    """A line; `swipes` are those of it, if any."""
    form: dict[str, Any] = {"name": "x", "is_user": user, "is_system": False, "send_date": "", "mes": text}
    if swipes:
        form |= {"swipes": list(swipes), "swipe_id": swipes.index(text) if text in swipes else 0}
    return form | rest


def user(text: str, **rest: Any) -> dict[str, Any]:
    return line(text, user=True, **rest)


def texts(log: Log) -> dict[str | None, str | None]:
    """By the text of each message the text of its parent."""
    return {log.message(id).text: log.message(str(log.message(id).parent)).text for id in log if log.message(id).parent}


def took(tmp_path: Path, *lines: object) -> tuple[Log, dict[str, int]]:
    log = Log()
    return log, counted(log.take(written(tmp_path / "a.jsonl", lines)))


def test_the_main_chat() -> None:
    # A greeting of 2 swipes, a prompt, an answer of 3 swipes of which the second was chosen, and a line each below the
    # other: a prompt, an answer, a hidden note. 2 + 1 + 3 + 3 messages. The prompt has 3 answers: 1 fork. The ends are
    # the greeting and the 2 answers that were not chosen, and the note.
    log = Log()

    report = log.take(MAIN)

    assert counted(report) == {
        "messages": 9,
        "added": 9,
        "conversations": 1,
        "forks": 1,
        "leaves": 4,
        "roots": 2,
    }
    assert texts(log) == {
        "Welcome, traveller. Which road do you take?": None,
        "A new face! North or south?": None,
        "The north road. My horse is called Ember.": "Welcome, traveller. Which road do you take?",
        "The north road is snowed in.": "The north road. My horse is called Ember.",
        "The north road leads to Varn.": "The north road. My horse is called Ember.",
        "The north road is watched by bandits.": "The north road. My horse is called Ember.",
        "We ride to Varn.": "The north road leads to Varn.",
        "Varn's gates are open.": "We ride to Varn.",
        "(hidden by user) scratch note": "Varn's gates are open.",
    }
    root, *_, note = (id for id in log if log.message(id).meta or log.message(id).parent is None)
    assert report.current == {root: Leaf(note, "last_line")}
    assert (log.message(note).role, log.message(note).meta) == ("assistant", {"hidden": True})
    assert log.message(note).created == datetime(2024, 9, 1, 10, 8, tzinfo=UTC)


def test_the_branch() -> None:
    # Greeting, prompt and answer are those of the main chat, 6 messages; the first answer was chosen, and has a prompt
    # below it.
    log = Log()

    report = log.take(BRANCH)

    assert counted(report) == {
        "messages": 7,
        "added": 7,
        "conversations": 1,
        "forks": 1,
        "leaves": 4,
        "roots": 2,
    }
    assert texts(log)["Then we wait for the thaw."] == "The north road is snowed in."


@pytest.mark.parametrize("order", [(MAIN, BRANCH), (BRANCH, MAIN), (SAMPLES,)])
def test_a_chat_and_its_branch_are_one_conversation_however_they_come(order: tuple[Path, ...]) -> None:
    log, together = Log(), Log()
    report = together.take(SAMPLES)

    for path in order:
        log.take(path)

    assert log == together
    assert counted(report) == {
        "messages": 10,
        "added": 10,
        "conversations": 1,
        "forks": 1,
        "leaves": 4,
        "roots": 2,
        "duplicates": 6,
    }
    # it stands where the main chat does, though the branch comes first by name
    assert [log.message(str(leaf.leaf)).text for leaf in report.current.values()] == ["(hidden by user) scratch note"]


@pytest.mark.parametrize("path", [MAIN, BRANCH, SAMPLES], ids=["main", "branch", "folder"])
def test_imported_twice_it_adds_nothing(path: Path, store: Any) -> None:
    log = Log()
    first = log.take(path)

    again = log.take(path, format="sillytavern")

    assert again.added == 0
    assert again.counters() | {"added": first.added} == first.counters()
    assert again.current == first.current
    importers.import_file(path, append=store.append, stored=stored_in(store), erased=store.log.is_erased)
    assert store.seq == len(log)


def test_what_a_memory_of_one_swipe_says_is_unknown_below_the_other(tmp_path: Path) -> None:
    log = Log()
    log.take(SAMPLES)
    by_text = {log.message(id).text: id for id in log}
    thaw, varn = by_text["Then we wait for the thaw."], by_text["We ride to Varn."]

    with bm.open_temporary() as store:
        store.append([*log.values(), bm.Memory("m", "Varn is north", sources=[str(log.message(varn).parent)])])

        assert "m" in store.at(varn)
        assert "m" not in store.at(thaw)


def test_a_message_edited_in_place_is_a_new_sibling_and_so_is_all_below_it(tmp_path: Path) -> None:
    log, _ = took(tmp_path, header(), line("hi"), user("one"), line("two"))

    report = log.take(written(tmp_path / "b.jsonl", [header(), line("hi"), user("ONE"), line("two")]))

    assert (report.added, report.edited, report.forks) == (2, 0, 0)
    assert sorted(texts(log).items(), key=str) == [("ONE", "hi"), ("hi", None), ("one", "hi"), ("two", "ONE")]
    assert len(log) == 6


def test_a_chat_that_grew_adds_what_is_new(tmp_path: Path) -> None:
    log, _ = took(tmp_path, header(), line("hi"), user("one"), line("two", "two"))

    grown = [header(), line("hi", "hi", "hey"), user("one"), line("three", "two", "three"), user("four")]
    report = log.take(written(tmp_path / "b.jsonl", grown))

    assert (report.messages, report.added, report.forks) == (6, 3, 1)
    assert texts(log)["four"] == "three"


def test_what_was_hidden_or_dated_anew_is_the_same_message(tmp_path: Path) -> None:
    log, _ = took(tmp_path, header(), line("hi", send_date="April 26, 2024 6:06am"), user("one"))

    again = [header(), line("hi", send_date="April 27, 2024 6:06am", is_system=True), user("one"), line("two")]
    report = log.take(written(tmp_path / "b.jsonl", again))

    assert (report.added, report.edited, report.duplicates) == (1, 0, 1)
    assert next(log.message(id).meta for id in log if log.message(id).text == "hi") == {}


def test_chats_that_begin_otherwise_are_conversations_of_their_own(tmp_path: Path) -> None:
    written(tmp_path / "chats" / "1.jsonl", [header(), line("hi"), user("one")])
    written(tmp_path / "chats" / "2.jsonl", [header(), line("hello"), user("one")])
    log = Log()

    report = log.take(tmp_path / "chats")

    assert counted(report) == {"messages": 4, "added": 4, "conversations": 2, "leaves": 2, "roots": 2}


@pytest.mark.parametrize(
    ("swipe", "chosen"), [(0, "b"), (1, "b"), (2, "b"), (7, "b"), (-1, "b"), (None, "b"), ("1", "b"), (True, "b")]
)
def test_the_text_of_a_line_says_which_swipe_was_chosen(swipe: object, chosen: str, tmp_path: Path) -> None:
    log, count = took(tmp_path, line("b", "a", "b", swipe_id=swipe), user("then"))

    assert texts(log)["then"] == chosen
    assert count["messages"] == 3


def test_a_text_that_is_no_swipe_is_one_more(tmp_path: Path) -> None:
    log, count = took(tmp_path, line("edited", "a", "b"), user("then"))

    assert (count["messages"], texts(log)["then"]) == (4, "edited")


def test_a_line_with_swipes_alone_says_the_one_that_was_chosen(tmp_path: Path) -> None:
    log, count = took(tmp_path, line("hi"), line("b", "a", "b", mes=None), user("then"))

    assert (count["unknown_types"], texts(log)["then"]) == (1, "b")


def test_roles(tmp_path: Path) -> None:
    lines = [line("hi"), user("me", is_system=True), line("snow", is_system=True, extra={"type": "narrator"})]

    log, _ = took(tmp_path, *lines)

    told = [(log.message(id).role, dict(log.message(id).meta)) for id in log]
    assert told == [("thread", {}), ("assistant", {}), ("user", {"hidden": True}), ("system", {"hidden": True})]


def test_lines_that_are_no_messages_are_counted_and_passed_over(tmp_path: Path) -> None:
    lines = [header(), line("hi"), {"note": 1}, b"{broken", line("x", mes=7), user("then", is_user="yes"), b"[]"]

    log, count = took(tmp_path, *lines)

    assert (count["messages"], count["bad_lines"], count["unknown_types"]) == (2, 2, 3)
    assert texts(log) == {"hi": None, "then": "hi"}


def test_a_byte_order_mark_and_a_last_line_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    whole = b"\xef\xbb\xbf" + b"\n".join(json.dumps(each).encode() for each in (header(), line("hi"), user("one")))
    path.write_bytes(whole[:-5])
    log = Log()

    assert counted(log.take(path)) == {"messages": 1, "added": 1, "conversations": 1, "leaves": 1, "roots": 1}
    path.write_bytes(whole)
    assert log.take(path).added == 1


def test_a_chat_of_headers_only_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    log = Log()

    with pytest.raises(ImportFailed, match="SillyTavern"):
        log.take(written(tmp_path / "a.jsonl", [header()]))

    assert not log


@pytest.mark.parametrize(
    ("spelled", "time"),
    [
        (1682121767124, datetime(2023, 4, 22, 0, 2, 47, 124000)),
        ("1682121767124", datetime(2023, 4, 22, 0, 2, 47, 124000)),
        ("2023-4-21 @20h 02m 47s 124ms", datetime(2023, 4, 21, 20, 2, 47, 124000)),
        ("2024-07-12@01h31m37s", datetime(2024, 7, 12, 1, 31, 37)),
        ("2024-07-12@01h31m37s123ms", datetime(2024, 7, 12, 1, 31, 37, 123000)),
        ("April 26, 2024 6:06am", datetime(2024, 4, 26, 6, 6)),
        ("June 19, 2023 12:20am", datetime(2023, 6, 19, 0, 20)),
        ("June 19, 2023 12:20pm", datetime(2023, 6, 19, 12, 20)),
        ("Sep 1, 2024 10:00 PM", datetime(2024, 9, 1, 22, 0)),
        ("2024-09-01T10:00:00.500Z", datetime(2024, 9, 1, 10, 0, 0, 500000)),
        ("2024-09-01T12:00:00+02:00", datetime(2024, 9, 1, 10, 0)),
        ("2024-09-01 10:00:00", datetime(2024, 9, 1, 10, 0)),
    ],
)
def test_every_spelling_of_a_time(spelled: object, time: datetime) -> None:
    assert sillytavern.time(spelled) == time.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "spelled",
    ["", "soon", "Smarch 1, 2024 6:06am", "2024-13-01@01h31m37s", "9" * 400, 1e300, float("nan"), True, None, [], "²"],
)
def test_what_is_no_time_is_none(spelled: object) -> None:
    assert sillytavern.time(spelled) is None


def test_each_swipe_has_its_own_time(tmp_path: Path) -> None:
    infos = [{"send_date": "April 26, 2024 6:06am"}, None]

    log, _ = took(tmp_path, line("b", "a", "b", "c", swipe_info=infos, send_date="April 27, 2024 6:06am"))

    assert {log.message(id).text: log.message(id).created for id in log} == {
        None: None,
        "a": datetime(2024, 4, 26, 6, 6, tzinfo=UTC),
        "b": datetime(2024, 4, 27, 6, 6, tzinfo=UTC),
        "c": None,
    }


@pytest.mark.soak
def test_a_deep_chat(figure: Figure, tmp_path: Path) -> None:
    deep = figure(3_000, 100_000)

    log, count = took(tmp_path, header(), *(line("again") for _ in range(deep)))

    assert count == {"messages": deep, "added": deep, "conversations": 1, "leaves": 1, "roots": 1}
    assert len(set(parents(log).values())) == deep + 1


@pytest.mark.parametrize("path", [MAIN, BRANCH], ids=["main", "branch"])
def test_three_hundred_changed_bytes_give_an_answer_or_a_typed_error(path: Path, tmp_path: Path) -> None:
    assert take_changed(path.read_bytes(), tmp_path / "a.jsonl", SEED) > CHANGES // 2
