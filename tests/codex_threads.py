"""Codex rollouts as Codex writes them, and what became of them in a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from branchmem import importers
from branchmem.events import Memory
from exports import Log, counted
from transcripts import written


def line(kind: str, payload: dict[str, Any], minute: int = 0) -> dict[str, Any]:
    return {"timestamp": f"2026-06-01T10:{minute:02}:00.000Z", "type": kind, "payload": payload}


def meta(id: str, **rest: Any) -> dict[str, Any]:
    return line("session_meta", {"id": id, "timestamp": "2026-06-01T10:00:00.000Z", "cwd": "/tmp/p", **rest})


def agent_of(parent: str, call: str | None = None) -> dict[str, Any]:
    return {"subagent": {"thread_spawn": {"parent_thread_id": parent, "spawn_call_id": call}}}


def message(role: str, text: str, minute: int = 0) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return line("response_item", {"type": "message", "role": role, "content": content}, minute)


def user(text: str, minute: int = 0) -> dict[str, Any]:
    return message("user", text, minute)


def answer(text: str, minute: int = 0) -> dict[str, Any]:
    return message("assistant", text, minute)


def item(kind: str, **rest: Any) -> dict[str, Any]:
    return line("response_item", {"type": kind, **rest})


def told(kind: str, **rest: Any) -> dict[str, Any]:
    return line("event_msg", {"type": kind, **rest})


def rolled_back(turns: object) -> dict[str, Any]:
    return told("thread_rolled_back", num_turns=turns)


def texts(log: Log) -> dict[str | None, str | None]:
    """By the text of each message, or its role where it has none, that of its parent."""

    def shown(id: object) -> str | None:
        event = log.message(str(id))
        return event.text or event.role

    return {shown(id): shown(log.message(id).parent) for id in messages(log) if log.message(id).parent in log}


def messages(log: Log) -> list[str]:
    return [id for id, event in log.items() if not isinstance(event, Memory)]


def memories(log: Log) -> list[Memory]:
    return [event for event in log.values() if isinstance(event, Memory)]


def id_of(log: Log, text: str) -> str:
    return next(id for id in messages(log) if log.message(id).text == text)


def took(tmp_path: Path, *lines: object) -> tuple[Log, dict[str, int]]:
    log = Log()
    return log, counted(log.take(written(tmp_path / "a.jsonl", lines)))


def files_in(tmp_path: Path, **lines: list[Any]) -> tuple[Log, importers.Report]:
    for name, each in lines.items():
        written(tmp_path / "rollouts" / f"{name}.jsonl", each)
    log = Log()
    return log, log.take(tmp_path / "rollouts")


def compacted(text: str, *history: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return line("compacted", {"message": text, "replacement_history": [each["payload"] for each in history], **rest})
