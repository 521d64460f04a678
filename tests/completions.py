"""Answers of a model, as an endpoint gives them and as a client does: scripted, whole or in pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from branchmem.chat import Call, Reply
from serving import Answer

#: The headers of an answer that comes in events.
EVENTS = {"Content-Type": "text/event-stream"}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
HEAD = {"id": "chatcmpl-1", "created": 1, "model": "m"}


def calling(name: str, arguments: str = "{}", id: str = "call_1") -> Call:
    return Call(id, name, arguments)


def whole(text: str | None, calls: Sequence[Call] = (), finish: str = "stop") -> dict[str, Any]:
    """A completion."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [_wire(call) for call in calls]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else finish}
    return {**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE}


def pieces(text: str, calls: Sequence[Call] = (), finish: str | None = "stop") -> list[dict[str, Any]]:
    """The chunks of a completion: a word each, the arguments of calls in two pieces, why it ended, and usage."""
    words = text.split(" ") if text else []
    deltas: list[dict[str, Any]] = [{"content": ("" if at == 0 else " ") + word} for at, word in enumerate(words)]
    for at, call in enumerate(calls):
        half = len(call.arguments) // 2
        first, rest = call.arguments[:half], call.arguments[half:]
        deltas.append({"tool_calls": [{"index": at, **_wire(Call(call.id, call.name, first))}]})
        deltas.append({"tool_calls": [{"index": at, "function": {"arguments": rest}}]})
    chunks = [_chunk({"role": "assistant", "content": ""}, None), *(_chunk(delta, None) for delta in deltas)]
    if finish is not None:
        chunks.append(_chunk({}, "tool_calls" if calls else finish))
        chunks.append({**HEAD, "object": "chat.completion.chunk", "choices": [], "usage": USAGE})
    return chunks


def events(chunks: Iterable[Mapping[str, Any]], end: str = "data: [DONE]\n\n") -> bytes:
    """Chunks as an endpoint sends them."""
    return ("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + end).encode()


def answer(text: str | None, calls: Sequence[Call] = ()) -> Answer:
    """What a server is told that answers whole."""
    return 200, {"Content-Type": "application/json"}, json.dumps(whole(text, calls)).encode()


def streamed(text: str, calls: Sequence[Call] = (), finish: str | None = "stop") -> Answer:
    """What a server is told that answers in events."""
    return 200, EVENTS, events(pieces(text, calls, finish))


class Scripted:
    """A model that says what it is told, and keeps what it was asked; an exception is raised instead."""

    def __init__(self, *told: str | Reply | BaseException | Callable[[], Any]) -> None:
        self.told = list(told)
        self.asked: list[list[dict[str, Any]]] = []
        self.tools: list[list[str]] = []

    def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> Reply:
        self.asked.append([dict(message) for message in messages])
        self.tools.append([tool["function"]["name"] for tool in tools])
        told = self.told.pop(0)
        if callable(told):
            told = told()
        if isinstance(told, BaseException):
            raise told
        return told if isinstance(told, Reply) else Reply(told, finish="stop", prompt_tokens=2, completion_tokens=1)


class Streaming(Scripted):
    """The same in words as they come; what it is told after a reply that is None is raised between them."""

    def stream(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Generator[str | Reply, None, None]:
        reply = self.ask(messages, **options)
        yield from (word + " " for word in reply.text.split())
        yield reply


def _wire(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _chunk(delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**HEAD, "object": "chat.completion.chunk", "choices": [choice]}
