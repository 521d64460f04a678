"""Exports in which a value is of a type that it should not be: an answer or a typed error, whatever the format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from branchmem.errors import Error
from exports import Log, chat, conversation, node, said

ODD: tuple[Any, ...] = (None, [["x"]], {"x": 1}, -7, "")
SPOKEN = [{"type": "text", "text": "hi"}]
CLAUDE_AI = {"uuid": "a", "sender": "human", "parent_message_uuid": None, "text": "", "content": SPOKEN}
LIBRECHAT = {"messageId": "a", "parentMessageId": None, "isCreatedByUser": True, "createdAt": "2026-01-01T00:00:00Z"}
TOLD = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
SPAWNED = {"subagent": {"thread_spawn": {"parent_thread_id": "p", "spawn_call_id": "c"}}}
CALL = {"type": "assistant", "message": {"id": "m", "role": "assistant", "content": [*SPOKEN, {"type": "tool_use"}]}}
FORKED = {"forkedFrom": {"sessionId": "r", "messageUuid": "v"}, "toolUseResult": {"agentId": "g"}}
SWIPED = {"mes": "hi", "is_user": False, "swipes": ["hi"], "swipe_id": 0, "swipe_info": [{"send_date": 1}], "extra": {}}
REPLIES = [{"message_id": "b", "parent_id": "a", "text": "yo", "role": "assistant", "rank": 1, "replies": []}]

#: Files of JSON, then files of lines, by what is in them.
ENTRIES: dict[str, Any] = {
    "assistant-ui": {"headId": "a", "messages": [{"parentId": None, "message": {"id": "a", "content": SPOKEN}}]},
    "chatgpt": [conversation({"r": node(None), "a": node("r", "hi")}, current_node="a")],
    "claude-ai": [{"uuid": "c", "chat_messages": [{**CLAUDE_AI, "attachments": [{"extracted_content": "x"}]}]}],
    "librechat": {"conversationId": "c", "messages": [{**LIBRECHAT, "content": SPOKEN, "children": [LIBRECHAT]}]},
    "open-webui": [chat({"a": said(None, "", "assistant", output=[{"type": "message", "content": SPOKEN}])}, "a")],
    "open-webui, a list": [{"chat": {"messages": [{"id": "a", "role": "user", "content": SPOKEN}]}}],
}
LINES: dict[str, list[Any]] = {
    "claude-code": [
        {**CALL, "uuid": "a", "parentUuid": None, "sessionId": "s"},
        {**CALL, **FORKED, "uuid": "b", "parentUuid": "a", "logicalParentUuid": "z", "isCompactSummary": True},
    ],
    "codex": [
        {"type": "session_meta", "payload": {"id": "t", "forked_from_id": "p", "source": SPAWNED}},
        {"type": "response_item", "payload": TOLD},
        {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}},
        {"type": "compacted", "payload": {"message": "all", "replacement_history": [TOLD]}},
    ],
    "events": [{"type": "message", "id": "a", "parent": None, "meta": {"n": 1}}],
    "oasst": [
        {"message_tree_id": "a", "prompt": {"message_id": "a", "text": "hi", "role": "prompter", "replies": REPLIES}},
        {"thread_id": "t", "thread": REPLIES},
    ],
    "sillytavern": [{"user_name": "me", "character_name": "it", "chat_metadata": {"main_chat": "x"}}, SWIPED],
}


def with_odd(value: Any) -> Iterator[Any]:
    """The same, each time with something odd in one place, or nothing at all."""
    yield from ODD
    if isinstance(value, dict):
        for name, each in value.items():
            yield {other: value[other] for other in value if other != name}
            yield from ({**value, name: odd} for odd in with_odd(each))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from ([*value[:at], odd, *value[at + 1 :]] for odd in with_odd(each))


def written(format: str, value: Any) -> str:
    lines = value if format in LINES and isinstance(value, list) else [value]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


@pytest.mark.parametrize("format", [*ENTRIES, *LINES])
def test_a_value_of_any_type_gives_an_answer_or_a_typed_error(format: str, tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    whole = {**ENTRIES, **LINES}[format]
    path.write_text(written(format, whole))
    assert Log().take(path).added > 0
    answers = 0
    for value in with_odd(whole):
        path.write_text(text := written(format, value))
        log = Log()
        try:
            report = log.take(path)
        except Error:
            assert not log, text
            continue
        except Exception as error:
            raise AssertionError(text) from error
        again = log.take(path)
        assert (again.added, again.messages, again.current) == (0, report.messages, report.current), text
        answers += 1
    assert answers
