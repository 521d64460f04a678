"""LangGraph checkpoints: exact counters for the sample, what lists become, and what lies beside the file."""

from __future__ import annotations

import random
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.events import Message
from branchmem.importers import Leaf
from checkpoints import SAMPLE, checkpoint, database, message, write
from exports import SEED, Log, counted, stored_in


def paths(log: Log) -> dict[str, list[str]]:
    """The texts on the path of each message, its own last, by its own id in the log."""
    found: dict[str, list[str]] = {}
    for id, event in log.items():
        if isinstance(event, Message):
            above = found.get(event.parent, []) if isinstance(event.parent, str) else []
            found[id] = above if event.role == "thread" else [*above, event.text or ""]
    return found


def leaves(log: Log) -> list[str]:
    """The paths that end in a leaf, each in a line."""
    parents = {event.parent for event in log.values() if isinstance(event, Message)}
    return sorted(" > ".join(path) for id, path in paths(log).items() if id not in parents)


def took(path: Path, **rest: Any) -> tuple[list[str], dict[str, int]]:
    log = Log()
    report = log.take(path, **rest)
    return leaves(log), counted(report)


# The sample, counted by hand


def test_the_sample() -> None:
    # Thread t1: u1 has two texts, so that ai-1 stands below each; below u2 stand two answers, and u4, which was asked
    # when the second answer had been removed. 11 messages; the subgraph repeats 5 of them in a namespace of its own;
    # t2 has 2. A fork (u2); leaves ai-2, ai-3, ai-4, ai-5, that of the subgraph, ai-6; roots u1 twice, and one each.
    # ai-4 is removed by an update, and is not in the copy of an older checkpoint: vanished twice.
    log = Log()

    report = log.take(SAMPLE)

    assert counted(report) == {
        "messages": 18,
        "added": 18,
        "conversations": 3,
        "forks": 1,
        "leaves": 6,
        "roots": 4,
        "edited": 1,
        "vanished": 2,
    }
    emacs = "My favourite editor is Emacs > reply 1 to: My favourite editor is Emacs > What is my favourite editor?"
    vim = "My favourite editor is Vim > reply 1 to: My favourite editor is Emacs > What is my favourite editor now?"
    assert leaves(log) == sorted(
        [
            f"{emacs} > reply 2 to: What is my favourite editor?",
            f"{emacs} > reply 4 to: What is my favourite editor?",
            f"{emacs} > delegate this please > reply 5 to: delegate this please",
            f"{emacs} > delegate this please > reply 5 to: delegate this please",
            f"{vim} > reply 3 to: What is my favourite editor now?",
            "hello > reply 6 to: hello",
        ]
    )


def test_the_sample_stands_where_its_newest_checkpoint_does() -> None:
    log = Log()

    report = log.take(SAMPLE)

    standing = {root: (log.message(str(at.leaf)).meta["id"], at.leaf_source) for root, at in report.current.items()}
    assert standing == {
        "langgraph:t1": ("u2", "last_line"),
        "langgraph:t1:subagent": ("ai-5", "last_line"),
        "langgraph:t2": ("ai-6", "last_line"),
    }
    first = next(event for event in log.values() if isinstance(event, Message) and event.meta.get("id") == "ai-6")
    assert (first.role, first.created) == ("assistant", datetime(2026, 11, 29, 19, 46, 13, 246268, tzinfo=UTC))


@pytest.mark.parametrize("format", ["auto", "langgraph"])
def test_the_sample_imported_twice_adds_nothing(format: str) -> None:
    log = Log()
    first = log.take(SAMPLE, format=format)

    again = log.take(SAMPLE, format=format)

    assert again.added == 0
    assert again.counters() | {"added": first.added} == first.counters()
    assert again.current == first.current


def test_a_store_takes_the_sample(store: Any) -> None:
    report = importers.import_file(SAMPLE, append=store.append, stored=stored_in(store), erased=store.log.is_erased)

    assert store.seq == report.added + report.conversations


def test_what_was_erased_does_not_come_back() -> None:
    log = Log()
    log.take(SAMPLE)
    gone = next(id for id, event in log.items() if isinstance(event, Message) and event.text == "hello")
    event = log.message(gone)
    log[gone] = Message(gone, event.parent)
    before = dict(log)

    report = importers.import_file(SAMPLE, append=log.append, stored=log.get, erased=lambda id: id == gone)

    assert (report.added, report.erased) == (0, 1)
    assert log == before


# What lists become


A, B, C = message("a", "1"), message("b", "2", "ai"), message("c", "3")


def test_what_is_new_at_the_end_follows(tmp_path: Path) -> None:
    path = database(tmp_path / "x", ("1", None, [A]), ("2", "1", [A, B]), ("3", "2", [A, B, C]))

    assert took(path) == (["a > b > c"], {"messages": 3, "added": 3, "conversations": 1, "leaves": 1, "roots": 1})


def test_what_says_something_else_is_another_version_and_what_comes_after_follows_it(tmp_path: Path) -> None:
    path = database(tmp_path / "x", ("1", None, [A, B]), ("2", "1", [message("A", "1"), B]))

    paths, counters = took(path)

    assert paths == ["A > b", "a > b"]
    assert (counters["messages"], counters["edited"], counters["roots"]) == (4, 1, 2)


def test_a_history_that_is_shortened_stays_one_path(tmp_path: Path) -> None:
    path = database(tmp_path / "x", ("1", None, [A, B]), ("2", "1", [B]), ("3", "2", [B, C]))

    paths, counters = took(path)

    assert paths == ["a > b > c"]
    assert (counters["messages"], counters["vanished"], "edited" in counters) == (3, 1, False)


def test_a_summary_in_place_of_old_turns_stands_after_them(tmp_path: Path) -> None:
    summary = message("s", "9", "system")
    path = database(tmp_path / "x", ("1", None, [A, B, C]), ("2", "1", [summary, C]))

    paths, counters = took(path)

    assert paths == ["a > b > c", "a > b > s > c"]
    assert counters["vanished"] == 2


def test_an_answer_that_was_removed_from_the_end_is_left_aside(tmp_path: Path) -> None:
    path = database(tmp_path / "x", ("1", None, [A, B]), ("2", "1", [A]), ("3", "2", [A, C]))

    paths, counters = took(path)

    assert paths == ["a > b", "a > c"]
    assert (counters["vanished"], counters["forks"]) == (1, 1)


def test_a_list_that_was_emptied_begins_again(tmp_path: Path) -> None:
    path = database(tmp_path / "x", ("1", None, [A, B]), ("2", "1", []), ("3", "2", [C]))

    log = Log()
    report = log.take(path)

    assert leaves(log) == ["a > b", "c"]
    assert counted(report)["vanished"] == 2


def test_messages_without_ids_are_known_by_what_they_say(tmp_path: Path) -> None:
    a, b = message("a"), message("b", type="ai")
    path = database(tmp_path / "x", ("1", None, [a, b]), ("2", "1", [a, b, a]), ("3", "1", [a, b, b]))

    assert took(path)[0] == ["a > b > a", "a > b > b"]


def test_a_message_that_only_gained_usage_is_the_same(tmp_path: Path) -> None:
    paid = message("b", "2", "ai", usage_metadata={"total_tokens": 7}, response_metadata={"model": "m"})
    path = database(tmp_path / "x", ("1", None, [A, B]), ("2", "1", [A, paid]))

    assert took(path)[1]["messages"] == 2


def test_other_calls_of_tools_make_another_version(tmp_path: Path) -> None:
    calls = (message("", "2", "ai", tool_calls=[{"name": "find", "args": {"q": q}, "id": "c"}]) for q in "xy")
    path = database(tmp_path / "x", *((str(at), None, [A, call]) for at, call in enumerate(calls)))

    assert took(path)[1] == {"messages": 3, "added": 3, "conversations": 1, "forks": 1, "leaves": 2, "roots": 1}


def test_checkpoints_in_any_order_on_disk_give_the_same(tmp_path: Path) -> None:
    rows = [("1", None, [A]), ("2", "1", [A, B]), ("3", "1", [A, C]), ("4", "3", [A, C, B])]
    logs = []
    for name, some in (("x", rows), ("y", rows[::-1])):
        log = Log()
        log.take(database(tmp_path / name, *some))
        logs.append(log)

    assert dict(logs[0]) == dict(logs[1])


def test_a_checkpoint_whose_parent_is_gone_says_its_path_itself(tmp_path: Path) -> None:
    # LangGraph may prune a thread to its latest checkpoint: what is left must not come out as a second conversation.
    log = Log()
    log.take(database(tmp_path / "x", ("1", None, [A]), ("2", "1", [A, B])))

    report = log.take(database(tmp_path / "y", ("2", "1", [A, B], "t")))

    assert counted(report) == {"messages": 2, "conversations": 1, "leaves": 1, "roots": 1}


def test_a_later_time_makes_no_version(tmp_path: Path) -> None:
    log = Log()
    log.take(database(tmp_path / "x", ("1", None, [A])))

    report = log.take(database(tmp_path / "y", ("2", "1", checkpoint([A], "2026-04-01T00:00:00+00:00"))))

    assert (report.added, report.duplicates, report.edited) == (0, 1, 0)


def test_checkpoints_in_a_circle_hang_below_nothing(tmp_path: Path) -> None:
    path = database(tmp_path / "x", ("1", "2", [A]), ("2", "1", [A, B]), ("3", "3", [C]), ("4", None, [C]))

    log = Log()
    report = log.take(path)

    assert counted(report) == {
        "messages": 4,
        "added": 4,
        "conversations": 1,
        "leaves": 3,
        "roots": 1,
        "dangling": 2,
        "cycles": 2,
        "vanished": 1,
    }


def test_namespaces_and_threads_are_kept_apart_whatever_they_are_called(tmp_path: Path) -> None:
    path = database(tmp_path / "x", ("1", None, [A], "t", "n"), ("1", None, [A], "t:n"), ("1", None, [A], "t%3An"))

    log = Log()
    report = log.take(path)

    assert set(report.current) == {"langgraph:t:n", "langgraph:t%3An", "langgraph:t%253An"}
    assert report.messages == 3


def test_the_path_of_a_checkpoint_holds_its_list_in_order(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    rows: list[tuple[str, str | None, list[Any]]] = []
    lists: list[list[tuple[str, str]]] = []
    fresh = iter(range(10_000))
    for number in range(300):
        before = chance.randrange(len(lists)) if lists and chance.random() < 0.95 else None
        listed = [] if before is None else list(lists[before])
        for _ in range(chance.randrange(3)):
            what, at = chance.randrange(6), chance.randrange(len(listed) + 1)
            if what == 0 and listed:
                del listed[: at % len(listed)]
            elif what == 1 and listed:
                del listed[at % len(listed)]
            elif what == 2 and listed:
                listed[at % len(listed)] = (listed[at % len(listed)][0], f"m{next(fresh)}")
            elif what == 3:
                listed.insert(at, (str(next(fresh)), f"m{next(fresh)}"))
            else:
                listed.append((str(next(fresh)), f"m{next(fresh)}"))
        lists.append(listed)
        rows.append(
            (f"{number:04}", None if before is None else f"{before:04}", [message(text, id) for id, text in listed])
        )
    log = Log()
    log.take(database(tmp_path / "x", *rows))
    known = [" ".join(path) + " " for path in paths(log).values()]

    for listed in lists:
        texts = [text for _, text in listed]
        assert not texts or any(_holds(path.split(), texts) for path in known if path.endswith(f"{texts[-1]} "))
    assert len(log) > 200


def _holds(path: list[str], texts: list[str]) -> bool:
    left = iter(path)
    return all(text in left for text in texts)


# The file and what lies beside it


def test_nothing_is_written_beside_a_file(tmp_path: Path) -> None:
    path = database(tmp_path / "x.sqlite", ("1", None, [A, B]), journal="wal")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    tmp_path.chmod(0o555)

    try:
        assert took(path)[0] == ["a > b"]
        assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    finally:
        tmp_path.chmod(0o755)


def test_what_only_the_log_of_changes_holds_is_seen_and_what_is_not_committed_is_not(tmp_path: Path) -> None:
    path = database(tmp_path / "x.sqlite", ("1", None, [A]), journal="wal")
    writer = sqlite3.connect(path)
    write(writer, ("2", "1", [A, B]))
    writer.execute("update checkpoints set parent_checkpoint_id = null, checkpoint = x'' where checkpoint_id = '2'")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir() if not each.name.endswith("-shm")}

    assert took(path)[0] == ["a > b"]
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir() if not each.name.endswith("-shm")} == before
    writer.close()


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "x.sqlite").execute("create table notes (text)").connection.close()

    with pytest.raises(ImportFailed, match="a database of LangGraph checkpoints"):
        took(tmp_path / "x.sqlite")


def test_checkpoints_without_messages_are_no_conversation(tmp_path: Path) -> None:
    path = database(tmp_path / "x", ("1", None, None), ("1", None, [A], "u"))

    assert took(path)[1] == {
        "messages": 1, "added": 1, "conversations": 1, "leaves": 1, "roots": 1, "unknown_types": 1,
    }  # fmt: skip
    with pytest.raises(ImportFailed, match="that hold `messages`"):
        took(database(tmp_path / "y", ("1", None, None)))


def test_three_hundred_changed_bytes_give_an_answer_or_import_failed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    sound = SAMPLE.read_bytes()
    path = tmp_path / "x.sqlite"
    answers = 0
    for number in range(300):
        changed = bytearray(sound)
        for _ in range(chance.choice((1, 1, 1, 8, 64))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        path.write_bytes(changed)
        log = Log()
        try:
            first = log.take(path, format="langgraph")
        except ImportFailed:
            assert not log
            continue
        answers += 1
        assert len(log) == first.added + first.conversations
        if number % 10 == 0:
            assert log.take(path, format="langgraph").added == 0
    assert 100 < answers < 300


def test_where_a_checkpoint_stands_is_last_line(tmp_path: Path) -> None:
    path = database(tmp_path / "x", ("1", None, [A, B]), ("2", "1", [A]))
    log = Log()

    report = log.take(path)

    assert [(log.message(str(at.leaf)).text, at.leaf_source) for at in report.current.values()] == [("a", "last_line")]
    assert report.current["langgraph:t"] != Leaf(None, "none")
