"""A model with a script, for agents that ask nobody: what it answers, and what it was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from agents import Model, ModelResponse, Usage, set_tracing_disabled
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

set_tracing_disabled(True)


class Crash(Exception):
    """The process is gone."""


class Scripted(Model):
    """Answers in order; an exception among them is raised.  `asked` are the texts it was shown, call by call."""

    def __init__(self, *answers: list[Any] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.told: list[str] = []

    async def get_response(self, system_instructions: str | None, input: Any, *args: Any, **rest: Any) -> ModelResponse:
        self.asked.append(json.dumps(input))
        self.told.append(system_instructions or "")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ModelResponse(output=answer, usage=Usage(), response_id=None)

    async def stream_response(
        self, system_instructions: str | None, input: Any, *args: Any, **rest: Any
    ) -> AsyncIterator[Any]:
        answer = await self.get_response(system_instructions, input)
        response = Response(
            id="r", created_at=0, model="m", object="response", output=answer.output, parallel_tool_calls=True,
            tool_choice="auto", tools=[],
        )  # fmt: skip
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


def says(text: str) -> list[Any]:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[content])]


def notes(text: str, call: str) -> list[Any]:
    """A call of the tool `note`."""
    return both((text, call))


def both(*calls: tuple[str, str]) -> list[Any]:
    return [
        ResponseFunctionToolCall(
            type="function_call", id=f"f-{id}", call_id=id, name="note", arguments=json.dumps({"text": text})
        )
        for text, id in calls
    ]


def texts(items: Iterable[Any]) -> list[str]:
    """What a list of items says, each in a word."""
    return [_text(item) for item in items]


def _text(item: Any) -> str:
    content = item.get("content", item.get("output", item.get("name")))
    return content if isinstance(content, str) else content[0]["text"]
