"""assistant-ui repositories: exact counters for the sample, what is said in a message, and how it hangs together."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from branchmem.events import Message
from branchmem.importers import Leaf
from changed_bytes import take_changed
from exports import SEED, Log, counted, parents

SAMPLE = Path(__file__).parent / "samples" / "assistant_ui" / "constructed_repository_head_older.json"


def item(id: str, parent: object = None, content: object = "", role: object = "user", **rest: object) -> Any:
    return {"message": {"id": id, "role": role, "content": content, **rest}, "parentId": parent}


def took(export: Any, *items: object, **rest: object) -> tuple[Log, dict[str, int], dict[str, Leaf]]:
    log = Log()
    report = log.take(export({"id": "c", "messages": list(items), **rest}))
    return log, counted(report), report.current


def test_the_sample() -> None:
    # Two first prompts: one with two answers, the second of which goes on, one with an empty answer.
    log = Log()
    tops = [["u1First", "user", "Which tea do I like?"]]
    root = "assistant-ui:~" + hashlib.sha256(json.dumps(tops).encode()).hexdigest()[:16]

    report = log.take(SAMPLE)

    assert counted(report) == {"messages": 6, "added": 6, "conversations": 1, "forks": 1, "leaves": 3, "roots": 2}
    assert report.current == {root: Leaf(f"{root}:a1tOlder", "declared")}
    assert parents(log) == {
        root: None,
        f"{root}:u1First": root,
        f"{root}:a1tOlder": f"{root}:u1First",
        f"{root}:a1tRetry": f"{root}:u1First",
        f"{root}:u2After": f"{root}:a1tRetry",
        f"{root}:u1Edit": root,
        f"{root}:a2Edit": f"{root}:u1Edit",
    }
    assert log[f"{root}:a1tRetry"] == Message(
        f"{root}:a1tRetry",
        f"{root}:u1First",
        role="assistant",
        text="Black tea.\nOr green tea.",
        created=datetime(2026, 3, 1, 10, 1, tzinfo=UTC),
    )
    assert log.message(f"{root}:a1tOlder").text == "Green tea."  # reasoning was not said
    assert log.message(f"{root}:a2Edit").text == ""


def test_a_thread_without_a_name_keeps_its_ids_when_its_first_prompt_is_edited(export: Any) -> None:
    first, answer, edited = item("u1", None, "tea?"), item("a1", "u1", "yes", "assistant"), item("u2", None, "coffee?")
    log = Log()

    log.take(export({"messages": [first, answer]}))

    assert log.take(export({"messages": [first, answer, edited]})).added == 1


def test_a_message_without_an_id_is_never_taken_for_another(export: Any) -> None:
    nameless = {"message": {"role": "user", "content": "who?"}, "parentId": None}

    log, _, _ = took(export, item("1", None, "tea?"), nameless, item("a", "1", "yes"))

    assert log["assistant-ui:c:a"] == Message("assistant-ui:c:a", "assistant-ui:c:1", role="user", text="yes")
    assert log.message("assistant-ui:c:1").text == "tea?"


def test_the_sample_imported_twice_adds_nothing() -> None:
    log = Log()
    first = log.take(SAMPLE)

    assert log.take(SAMPLE).to_dict() == {**first.to_dict(), "added": 0}


def test_three_hundred_changed_bytes_are_an_answer_or_an_error(tmp_path: Path) -> None:
    assert 20 < take_changed(SAMPLE.read_bytes(), tmp_path / "repository.json", SEED) < 300


@pytest.mark.parametrize("head", ["gone", "", None, 5])
def test_a_head_that_is_nowhere_is_none(export: Any, head: object) -> None:
    assert took(export, item("a"), headId=head)[2] == {"assistant-ui:c": Leaf(None, "none")}


def test_children_may_come_before_their_parents(export: Any) -> None:
    log, count, _ = took(export, item("b", "a", role="assistant"), item("a"))

    assert count == {"messages": 2, "added": 2, "conversations": 1, "leaves": 1, "roots": 1}
    assert list(log) == ["assistant-ui:c", "assistant-ui:c:a", "assistant-ui:c:b"]


def test_an_unknown_parent_and_a_circle_are_kept_hidden_and_counted(export: Any) -> None:
    # What assistant-ui itself refuses to load.
    log, count, _ = took(export, item("a"), item("b", "gone"), item("x", "y"), item("y", "x"))

    assert (count["dangling"], count["cycles"], count["messages"]) == (1, 1, 4)
    assert parents(log)["assistant-ui:c:b"] == "assistant-ui:c:gone"


def test_what_is_no_message_is_skipped_and_counted(export: Any) -> None:
    nameless = {"message": {"role": "user", "content": "who"}, "parentId": None}

    _, count, _ = took(
        export, None, item("a"), {"message": None, "parentId": None}, nameless, item("b", "a", role=None)
    )

    assert (count["unknown_types"], count["messages"]) == (4, 3)


@pytest.mark.parametrize(
    ("said", "text", "unknown"),
    [
        ({"content": "plain"}, "plain", 0),
        ({"content": None, "parts": [{"type": "text", "text": "newer"}]}, "newer", 0),
        ({"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}, "one\ntwo", 0),
        ({"content": [{"type": "reasoning", "text": "hm"}, {"type": "source", "url": "x"}]}, "", 0),
        ({"content": [{"type": "tool-weather", "text": "x"}, {"type": "data-chart", "data": 1}]}, "", 0),
        ({"content": [{"type": "poem", "text": "verse"}]}, "verse", 1),
        ({"content": [{"type": "text"}]}, "", 1),
        ({"content": [5]}, "", 1),
        ({"content": 5}, "", 1),
    ],
)
def test_the_text_is_what_was_said(export: Any, said: dict[str, object], text: str, unknown: int) -> None:
    log, count, _ = took(export, {"message": {"id": "a", "role": "user", **said}, "parentId": None})

    assert log.message("assistant-ui:c:a").text == text
    assert count.get("unknown_types", 0) == unknown
