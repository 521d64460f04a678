"""claude.ai exports: exact counters for every sample, what is said in a message, and how it hangs together."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.events import Message
from branchmem.importers import Leaf
from changed_bytes import take_changed
from exports import SEED, Log, counted, parents

SAMPLES = Path(__file__).parent / "samples" / "claude_ai"
NAMES = sorted(path.name for path in SAMPLES.glob("*.json"))
TOOL = "claude-ai"
NOBODY = "00000000-0000-4000-8000-000000000000"


def message(uuid: str, parent: object = None, sender: str = "human", text: object = None, **rest: object) -> Any:
    """A message as a bulk export spells it."""
    blocks = [] if text is None else [{"type": "text", "text": text}]
    return {"uuid": uuid, "parent_message_uuid": parent, "sender": sender, "text": "", "content": blocks, **rest}


def conversation(*messages: object, **rest: object) -> dict[str, object]:
    return {"uuid": "c", "chat_messages": list(messages), **rest}


def took(export: Any, *messages: object, **rest: object) -> tuple[Log, dict[str, int]]:
    log = Log()
    return log, counted(log.take(export([conversation(*messages, **rest)])))


# The samples, counted by hand


def test_chatlore_export() -> None:
    # Two conversations, and one without messages. The first has a prompt with two answers, the second of which goes
    # on; the second is of three messages that name no parent.
    log, one, two = (
        Log(),
        "claude-ai:aaaaaaaa-1111-4222-8333-000000000001",
        "claude-ai:aaaaaaaa-1111-4222-8333-000000000002",
    )

    report = log.take(SAMPLES / "chatlore_conversations.json")

    assert counted(report) == {
        "messages": 7,
        "added": 7,
        "conversations": 2,
        "forks": 1,
        "leaves": 3,
        "roots": 2,
        "unknown_types": 1,
    }
    assert report.current == {one: Leaf(None, "none"), two: Leaf(None, "none")}
    assert parents(log) == {
        one: None,
        f"{one}:m1": one,
        f"{one}:m2": f"{one}:m1",
        f"{one}:m3": f"{one}:m1",
        f"{one}:m4": f"{one}:m3",
        two: None,
        f"{two}:o1": two,
        f"{two}:o2": f"{two}:o1",
        f"{two}:o3": f"{two}:o2",
    }
    assert log[f"{one}:m2"] == Message(
        f"{one}:m2",
        f"{one}:m1",
        role="assistant",
        text="x does not live long enough.",
        created=datetime(2026, 2, 1, 9, 1, tzinfo=UTC),
    )
    # Neither what a tool was asked nor what it returned was said.
    assert log.message(f"{one}:m3").text == "Retried answer: move x out of the inner scope."
    assert log.message(f"{two}:o2").meta == {"assumed_linear": True}


def test_a_user_who_went_back_stands_where_the_dump_says() -> None:
    # Two roots, since the first prompt was edited: four messages below the one, two below the other.
    log, root = Log(), "claude-ai:c0000000-0000-4000-8000-000000000001"
    sample = SAMPLES / "constructed_api_tree_current_leaf_older.json"

    report = log.take(sample)

    assert counted(report) == {"messages": 6, "added": 6, "conversations": 1, "leaves": 2, "roots": 2}
    assert report.current == {root: Leaf(f"{root}:m4", "declared")}
    assert log.message(f"{root}:m1").text == "My favourite editor is Emacs."
    # The newest leaf is on the other branch: whoever asks for a guess gets one only where no leaf is told.
    assert Log().take(sample, leaf="heuristic").current == report.current


def test_a_bulk_export_without_parents() -> None:
    # 85 conversations of 557 messages, none with a parent; two have no messages.
    log = Log()

    report = log.take(SAMPLES / "owimp_claude_example.json")

    assert counted(report) == {
        "messages": 557,
        "added": 557,
        "conversations": 83,
        "leaves": 83,
        "roots": 83,
        "unknown_types": 2,
    }
    assert set(report.current.values()) == {Leaf(None, "none")}
    heuristic = Log().take(SAMPLES / "owimp_claude_example.json", leaf="heuristic").current
    assert {leaf.leaf_source for leaf in heuristic.values()} == {"heuristic"}
    assert all(event.meta for event in log.values() if isinstance(event, Message) and event.role != "thread")


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_imported_twice_adds_nothing(name: str) -> None:
    log = Log()
    first = log.take(SAMPLES / name)

    again = log.take(SAMPLES / name)

    assert again.to_dict() == {**first.to_dict(), "added": 0}


@pytest.mark.parametrize("name", NAMES)
def test_three_hundred_changed_bytes_are_an_answer_or_an_error(name: str, tmp_path: Path) -> None:
    form = json.loads((SAMPLES / name).read_bytes())
    some = json.dumps(form[:2] if isinstance(form, list) else form).encode()

    answers = take_changed(some, tmp_path / "conversations.json", SEED)

    assert 50 < answers < 300


# Links


def test_the_order_of_the_list_says_nothing_where_parents_are_named(export: Any) -> None:
    some = [
        message("a", NOBODY, text="one"),
        message("b", "a", "assistant", "two"),
        message("c", "b", text="three"),
        message("d", "a", "assistant", "other"),
    ]
    chance, logs = random.Random(SEED), []
    for _ in range(5):
        log, count = took(export, *chance.sample(some, len(some)))
        assert count == {"messages": 4, "added": 4, "conversations": 1, "forks": 1, "leaves": 2, "roots": 1}
        logs.append(log)
    assert all(dict(log) == dict(logs[0]) for log in logs)


def test_a_parent_that_is_nowhere_leaves_a_message_detached_and_counted(export: Any) -> None:
    log, count = took(export, message("a", NOBODY), message("b", "gone"), message("c", "b"), message("e", 5))

    assert count["dangling"] == 2
    assert count["roots"] == 1
    assert parents(log)["claude-ai:c:b"] == "claude-ai:c:gone"


def test_one_message_without_a_parent_field_among_others_is_a_root_and_not_assumed_linear(export: Any) -> None:
    bare = message("b")
    del bare["parent_message_uuid"]

    log, count = took(export, message("a"), bare, message("c", "a"))

    assert (count["roots"], count["leaves"]) == (2, 2)
    assert not any(event.meta for event in log.values() if isinstance(event, Message))


def linear(*uuids: str) -> list[Any]:
    some = [message(uuid, text=f"text of {uuid}") for uuid in uuids]
    for each in some:
        del each["parent_message_uuid"]
    return some


def test_a_copy_in_a_conversation_without_parents_is_a_duplicate(export: Any) -> None:
    log, count = took(export, *linear("a", "b", "b", "c", "a"))

    assert count == {"messages": 3, "added": 3, "conversations": 1, "leaves": 1, "roots": 1, "duplicates": 2}
    assert parents(log)["claude-ai:c:c"] == "claude-ai:c:b"


def test_a_later_export_that_names_the_parents_that_were_assumed_adds_nothing(export: Any) -> None:
    log = Log()
    log.take(export([conversation(*linear("a", "b", "c"))]))
    named = [
        {**each, "parent_message_uuid": above}
        for each, above in zip(linear("a", "b", "c"), [NOBODY, "a", "b"], strict=True)
    ]

    report = log.take(export([conversation(*named)]))

    assert (report.added, report.edited, report.duplicates) == (0, 0, 3)


def test_a_later_export_that_names_another_parent_than_the_assumed_one_is_another_version(export: Any) -> None:
    log = Log()
    log.take(export([conversation(*linear("a", "b", "c"))]))
    named = [
        {**each, "parent_message_uuid": above}
        for each, above in zip(linear("a", "b", "c"), [NOBODY, "a", "a"], strict=True)
    ]

    report = log.take(export([conversation(*named)]))

    assert (report.added, report.edited, report.duplicates) == (1, 1, 2)
    (version,) = (id for id in log if id.startswith("claude-ai:c:c~"))
    assert parents(log)[version] == "claude-ai:c:a"


def test_what_is_no_message_is_skipped_and_counted(export: Any) -> None:
    log, count = took(export, None, message("a", NOBODY), 5, message("b", "a", sender=""), {"sender": "human"})

    # Two that are no objects, one without a sender, one without an id.
    assert count["unknown_types"] == 4
    assert count["messages"] == 3
    assert log.message("claude-ai:c:b").role is None


def test_a_conversation_without_messages_among_others_is_counted_and_alone_refused(export: Any) -> None:
    assert Log().take(export([conversation(), conversation(message("a", NOBODY))])).unknown_types == 1
    with pytest.raises(bm.ImportFailed, match="chat_messages"):
        Log().take(export([conversation(), {"uuid": "d"}]), format=TOOL)


@pytest.mark.parametrize("current", ["gone", "", None, 5, NOBODY])
def test_a_leaf_that_is_nowhere_is_none(export: Any, current: object) -> None:
    log = Log()

    report = log.take(export(conversation(message("a", NOBODY), current_leaf_message_uuid=current)))

    assert report.current == {"claude-ai:c": Leaf(None, "none")}


# Texts

PASTED = [{"file_name": "paste.txt", "extracted_content": "pasted"}]


@pytest.mark.parametrize(
    ("said", "text", "unknown"),
    [
        ({"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "text": "x"}, "one\ntwo", 0),
        ({"content": [{"type": "text", "text": ""}], "text": "old"}, "old", 0),
        ({"content": [], "text": "old"}, "old", 0),
        ({"content": None, "text": "old"}, "old", 0),
        ({"content": [{"type": "thinking", "thinking": "hm", "text": "hm"}], "text": "a notice"}, "", 0),
        ({"content": [{"type": "tool_use"}, {"type": "text", "text": "then"}, {"type": "tool_result"}]}, "then", 0),
        ({"content": [{"type": "token_budget"}, {"type": "flag"}]}, "", 0),
        ({"content": [{"type": "poem", "text": "verse"}]}, "verse", 1),
        ({"content": [{"type": ["text"], "text": "verse"}]}, "verse", 1),
        ({"content": ["bare"]}, "", 1),
        ({"content": "bare"}, "", 1),
        ({"content": [{"type": "text", "text": 5}]}, "", 1),
        ({"content": [], "text": 5}, "", 1),
        ({"content": [], "text": "", "attachments": PASTED}, "pasted", 0),
        ({"content": [], "text": "see this", "attachments": PASTED}, "see this", 0),
        ({"content": [], "text": "", "attachments": [None, {"extracted_content": None}]}, "", 0),
    ],
)
def test_the_text_is_what_was_said(export: Any, said: dict[str, object], text: str, unknown: int) -> None:
    log, count = took(export, {**message("a", NOBODY), **said})

    assert log.message("claude-ai:c:a").text == text
    assert count.get("unknown_types", 0) == unknown
