"""Codex rollouts that copy others: forks, agents, and histories that were compacted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.importers import Leaf
from codex_threads import (
    agent_of,
    answer,
    compacted,
    files_in,
    id_of,
    item,
    line,
    memories,
    meta,
    rolled_back,
    texts,
    took,
    user,
)
from exports import Log, parents

# Forks and agents


def test_a_fork_is_cut_by_what_was_said_not_by_time(tmp_path: Path) -> None:
    history = [("u1", 1), ("u2", 2), ("u3", 3)]
    parent = [meta("p"), *(user(text, minute) for text, minute in history)]
    fork = [meta("f", forked_from_id="p"), meta("p"), *(user(text, 30) for text, _ in history), user("own", 1)]

    log, report = files_in(tmp_path, a_fork=fork, b_parent=parent)

    assert (report.messages, report.duplicates, report.conversations, report.edited) == (4, 3, 1, 0)
    assert texts(log)["own"] == "u3"
    assert log.message(id_of(log, "u1")).created == datetime(2026, 6, 1, 10, 1, tzinfo=UTC)
    assert report.current == {"codex:p": Leaf(id_of(log, "u3"), "last_line")}


def test_a_fork_of_a_fork_belongs_to_the_first_thread(tmp_path: Path) -> None:
    first = [meta("p"), user("u1"), user("u2")]
    second = [meta("f", forked_from_id="p"), meta("p"), user("u1"), user("u3")]
    third = [meta("g", forked_from_id="f"), *second, user("u4")]

    log, report = files_in(tmp_path, a=third, b=second, c=first)

    assert (report.messages, report.duplicates, report.conversations) == (4, 3, 1)
    assert (texts(log)["u4"], texts(log)["u3"]) == ("u3", "u1")
    alone = Log()
    for name in "acb":
        alone.take(tmp_path / "rollouts" / f"{name}.jsonl")
    assert parents(alone) == parents(log)


def test_an_agent_may_leave_out_what_tools_did_from_what_it_copies(tmp_path: Path) -> None:
    call = [item("reasoning", summary=[]), item("function_call", call_id="c", name="ls", arguments="{}")]
    output = item("function_call_output", call_id="c", output="done")
    parent = [meta("p"), user("u1"), *call, output, answer("a1"), user("u2"), answer("a2")]
    agent = [meta("x", source=agent_of("p", "c")), user("u1"), answer("a1"), user("u2"), user("task"), answer("found")]

    log, report = files_in(tmp_path, a_agent=agent, b_parent=parent)

    assert (report.messages, report.duplicates, report.forks) == (9, 3, 1)
    assert (texts(log)["task"], texts(log)["found"]) == ("u2", "task")
    assert report.current == {"codex:p": Leaf(id_of(log, "a2"), "last_line")}
    marked = {log.message(id).text for id in log if log.message(id).meta}
    assert marked == {"task", "found"}


def test_an_agent_that_copied_nothing_is_a_tree_below_the_same_root(tmp_path: Path) -> None:
    parent = [meta("p"), user("u1"), answer("a1")]

    log, report = files_in(tmp_path, p=parent, x=[meta("x", source=agent_of("p")), user("task"), answer("found")])

    assert (report.messages, report.roots, report.conversations, report.duplicates) == (4, 2, 1, 0)
    assert log.message(id_of(log, "task")).meta == {"isSidechain": True, "agentId": "x"}


def test_a_later_turn_of_the_parent_is_not_taken_for_the_beginning_of_a_fork(tmp_path: Path) -> None:
    parent = [meta("p"), user("u1"), user("u2"), user("go on")]

    log, report = files_in(tmp_path, f=[meta("f", forked_from_id="p"), user("u1"), user("go on")], p=parent)

    assert (report.messages, report.duplicates, report.forks) == (4, 1, 1)
    assert sorted(
        log.message(str(log.message(id).parent)).text or "" for id in log if log.message(id).text == "go on"
    ) == [
        "u1",
        "u2",
    ]


def test_threads_that_name_each_other_as_their_parent(tmp_path: Path) -> None:
    one = [meta("a", forked_from_id="b"), user("u1")]

    _, report = files_in(
        tmp_path, a=one, b=[meta("b", forked_from_id="a"), user("u2")], c=[meta("c", forked_from_id="c")]
    )

    assert (report.messages, report.dangling) == (2, 0)


def test_threads_that_begin_alike_are_conversations_of_their_own(tmp_path: Path) -> None:
    _, report = files_in(tmp_path, a=[meta("a"), user("fix it")], b=[meta("b"), user("fix it")])

    assert (report.messages, report.conversations, report.duplicates) == (2, 2, 0)


# Compaction


def test_a_second_summary_derives_from_the_first(tmp_path: Path) -> None:
    kept = user("u1")
    lines = [
        user("u1"),
        answer("a1"),
        compacted("s", kept, user("first")),
        user("u2"),
        compacted("s", kept, user("second")),
    ]

    log, _ = took(tmp_path, meta("t"), *lines)

    first, second = memories(log)
    assert (first.text, second.text) == ("first", "second")
    assert set(first.sources or ()) == {id_of(log, "u1"), id_of(log, "a1")}
    assert set(second.sources or ()) == {id_of(log, "first"), id_of(log, "u2")}
    assert second.derived_from == (first.id,)


def test_a_summary_of_turns_that_are_rolled_back_later_is_unknown_afterwards(tmp_path: Path) -> None:
    log, _ = took(tmp_path, user("u1"), user("u2"), compacted("", user("both")), user("u3"), rolled_back(2), user("u4"))

    with bm.open_temporary() as store:
        store.append(log.values())
        (memory,) = memories(log)
        assert memory.id in store.at(id_of(log, "u3"))
        assert memory.id not in store.at(id_of(log, "u4"))


@pytest.mark.parametrize(
    ("payload", "summary"),
    [
        ({"message": "old"}, "old"),
        ({"message": "old", "replacement_history": []}, "old"),
        ({"message": "", "replacement_history": [user("u1")["payload"], {"type": "compaction"}]}, None),
        ({"message": 7}, None),
    ],
)
def test_what_the_summary_of_a_compacted_history_is(
    payload: dict[str, Any], summary: str | None, tmp_path: Path
) -> None:
    log, count = took(tmp_path, user("u1"), line("compacted", payload), user("u2"))

    assert [memory.text for memory in memories(log)] == ([] if summary is None else [summary])
    assert count["messages"] == 3
