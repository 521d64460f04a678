"""LibreChat exports, nested and flat: exact counters for every sample, what was said, and how it hangs together."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from branchmem.events import Message
from branchmem.importers import Leaf
from changed_bytes import take_changed
from exports import SEED, Log, counted, parents

SAMPLES = Path(__file__).parent / "samples" / "librechat"
NAMES = sorted(path.name for path in SAMPLES.glob("*.json"))
NOBODY = "00000000-0000-0000-0000-000000000000"


def message(id: str, parent: object = NOBODY, text: object = "", *, user: object = True, **rest: object) -> Any:
    """A message of an export."""
    return {"messageId": id, "parentMessageId": parent, "text": text, "isCreatedByUser": user, **rest}


def took(export: Any, *messages: object, under: str = "messages") -> tuple[Log, dict[str, int]]:
    log = Log()
    return log, counted(log.take(export({"conversationId": "c", under: list(messages)})))


# The samples, counted by hand


def test_the_nested_export() -> None:
    # A prompt, its answer, two ways on: "thanks", answered twice, the second time with a prompt and an answer more;
    # and "lol" with an answer. Two forks, three ends.
    log, root = Log(), "librechat:4a86c40e-e627-4454-b158-889680e23ad3"

    report = log.take(SAMPLES / "librechat-tree.json")

    assert counted(report) == {
        "messages": 9,
        "added": 9,
        "conversations": 1,
        "forks": 2,
        "leaves": 3,
        "roots": 1,
    }
    assert report.current == {root: Leaf(None, "none")}
    first = f"{root}:9501f99d-9bbb-40cb-bbb2-16d79aeceb72"
    assert log[first] == Message(
        first,
        root,
        role="user",
        text="How do I use source venv/bin/activate?\nbash: venv/bin/activate: No such file or directory",
        created=datetime(2024, 5, 1, 16, 35, 11, 530000, tzinfo=UTC),
    )
    assert log.message(f"{root}:6e4c95ca-fcb1-4869-adc3-b4bcec83a270").created is None


def test_the_flat_export_has_two_roots_since_the_first_prompt_was_edited() -> None:
    # A prompt with two answers, and the prompt anew with one.
    log, root = Log(), "librechat:27b593be-9500-479c-94cb-050cab8f5033"

    report = log.take(SAMPLES / "librechat-opts-nonr-branches.json")

    assert counted(report) == {
        "messages": 5,
        "added": 5,
        "conversations": 1,
        "forks": 1,
        "leaves": 3,
        "roots": 2,
    }
    assert report.current == {root: Leaf(None, "none")}
    assert [event.role for event in log.values() if isinstance(event, Message)] == [
        "thread",
        "user",
        "assistant",
        "assistant",
        "user",
        "assistant",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_imported_twice_adds_nothing(name: str) -> None:
    log = Log()
    first = log.take(SAMPLES / name)

    again = log.take(SAMPLES / name)

    assert again.to_dict() == {**first.to_dict(), "added": 0}


@pytest.mark.parametrize("name", NAMES)
def test_three_hundred_changed_bytes_are_an_answer_or_an_error(name: str, tmp_path: Path) -> None:
    answers = take_changed((SAMPLES / name).read_bytes(), tmp_path / "chat.json", SEED)

    assert 50 < answers < 300


# Links


def nested(depth: int, **rest: object) -> Any:
    """A chain of messages, each in the one before."""
    below: Any = None
    for i in reversed(range(depth)):
        below = message(f"m{i}", f"m{i - 1}" if i else NOBODY, f"{i}", children=[below] if below else [], **rest)
    return below


@pytest.mark.parametrize("under", ["messages", "messagesTree"])
def test_a_tree_and_a_list_of_the_same_messages_are_the_same(export: Any, under: str) -> None:
    tree = message("a", children=[message("b", "a", user=False, children=[]), message("c", "a", user=False)])
    flat = [message("c", "a", user=False), message("b", "a", user=False), message("a")]

    one, of_tree = took(export, tree, under=under)
    two, of_list = took(export, *flat)

    assert (dict(one), of_tree) == (dict(two), of_list)
    assert of_tree == {"messages": 3, "added": 3, "conversations": 1, "forks": 1, "leaves": 2, "roots": 1}


def test_what_is_nested_below_a_message_that_says_nothing_is_kept(export: Any) -> None:
    log, count = took(export, message("a", children=[message("b", "a", "", user=False, children=[message("c", "b")])]))

    assert count["messages"] == 3
    assert parents(log)["librechat:c:c"] == "librechat:c:b"


def test_a_chain_is_read_however_deeply_it_is_nested(tmp_path: Path) -> None:
    depth = 3_000
    opened = (
        f'{{"messageId":"m{i}","parentMessageId":"{f"m{i - 1}" if i else NOBODY}","isCreatedByUser":true,"children":['
        for i in range(depth)
    )
    file = tmp_path / "deep.json"
    file.write_text('{"conversationId":"c","messages":[' + "".join(opened) + "]}" * depth + "]}")
    log = Log()

    report = log.take(file)

    assert counted(report) == {"messages": depth, "added": depth, "conversations": 1, "leaves": 1, "roots": 1}
    assert parents(log)[f"librechat:c:m{depth - 1}"] == f"librechat:c:m{depth - 2}"


def test_a_link_counts_more_than_a_nesting_and_a_nesting_more_than_none(export: Any) -> None:
    bare = message("b")
    del bare["parentMessageId"]
    elsewhere = message("d", "a")

    log, count = took(export, message("a", children=[bare, message("c", "b", children=[elsewhere])]))

    assert parents(log) == {
        "librechat:c": None,
        "librechat:c:a": "librechat:c",
        "librechat:c:b": "librechat:c:a",
        "librechat:c:c": "librechat:c:b",
        "librechat:c:d": "librechat:c:a",
    }
    assert count["unknown_types"] == 1


def test_a_parent_that_is_nowhere_leaves_a_message_detached_and_counted(export: Any) -> None:
    log, count = took(export, message("a"), message("b", "a_"), message("c", "b", user=False))

    assert (count["dangling"], count["roots"]) == (1, 1)
    assert parents(log)["librechat:c:b"] == "librechat:c:a_"


def test_what_is_no_message_is_skipped_and_counted(export: Any) -> None:
    _, count = took(export, None, message("a", children=[7]), {"text": "no id", "isCreatedByUser": True}, message(""))

    # Two that are no objects, two without an id.
    assert (count["unknown_types"], count["messages"]) == (4, 3)


def test_an_export_that_names_no_conversation_goes_by_that_of_its_messages(export: Any) -> None:
    log = Log()
    log.take(export({"messages": [message("a", conversationId="of the message")]}))

    assert "librechat:of the message:a" in log


# Roles and texts


@pytest.mark.parametrize(
    ("said", "role"),
    [
        ({"isCreatedByUser": True, "sender": "GPT-4"}, "user"),
        ({"isCreatedByUser": False, "sender": "User"}, "assistant"),
        ({"isCreatedByUser": None, "sender": "User"}, "user"),
        ({"isCreatedByUser": None, "sender": "GPT-4"}, None),
    ],
)
def test_the_role_is_that_of_who_made_it(export: Any, said: dict[str, object], role: str | None) -> None:
    log, count = took(export, {**message("a"), **said})

    assert log.message("librechat:c:a").role == role
    assert count.get("unknown_types", 0) == (role is None)


@pytest.mark.parametrize(
    ("said", "text", "unknown"),
    [
        ({"text": "plain"}, "plain", 0),
        ({"text": None, "content": None}, "", 0),
        ({"text": "", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}, "one\ntwo", 0),
        ({"text": "x", "content": [{"type": "think", "think": "hm"}, {"type": "text", "text": "so"}]}, "so", 0),
        ({"text": "", "content": [{"type": "text", "text": {"value": "of an assistant"}}]}, "of an assistant", 0),
        ({"text": "", "content": [{"type": "tool_call", "tool_call": {"output": "x"}}]}, "", 0),
        ({"text": "", "content": [{"type": "poem", "text": "verse"}]}, "verse", 1),
        ({"text": "", "content": [{"type": {}, "text": "verse"}]}, "verse", 1),
        ({"text": "", "content": [5]}, "", 1),
        ({"text": 5}, "", 1),
        ({"text": "x", "content": "y"}, "x", 1),
    ],
)
def test_the_text_is_what_was_said(export: Any, said: dict[str, object], text: str, unknown: int) -> None:
    log, count = took(export, {**message("a"), **said})

    assert log.message("librechat:c:a").text == text
    assert count.get("unknown_types", 0) == unknown


def test_a_list_of_exports_is_read_too(export: Any) -> None:
    some = [{"conversationId": id, "messages": [message("a")]} for id in "cd"]

    assert Log().take(export(json.dumps(some).encode())).conversations == 2
