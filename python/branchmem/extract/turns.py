"""The messages of a prompt in turns, each from one message of the user to the next, that must not be taken apart.

A call of a tool and its result stay in one piece, whoever speaks between them.  What frames the conversation (system,
developer) belongs to no turn, and stays where it is, as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from branchmem.errors.extract import InvalidExtraction
from branchmem.extract.cutting import Count, snipped
from branchmem.extract.frames import EARLIER, without_frames

#: A message takes about so many tokens besides what it says, and a part that is no text so many.
_FRAME_TOKENS: Final = 4
_PART_TOKENS: Final = 1000
_FRAMING: Final = frozenset(("system", "developer"))
_LEFT_OUT: Final = "[image or file left out]"


@dataclass(frozen=True, slots=True)
class Prompted:
    """A message of a prompt, in the form of OpenAI's, and the message of the log that it is; None where it is none."""

    form: Mapping[str, Any]
    source: str | None = None

    @property
    def role(self) -> object:
        return self.form.get("role")

    @property
    def frames(self) -> bool:
        """Whether it frames the conversation, and is no part of it."""
        return self.role in _FRAMING

    @property
    def stands_in(self) -> bool:
        """Whether it is summaries in the place of turns, and nothing else."""
        content = self.form.get("content")
        return isinstance(content, str) and content.startswith(EARLIER) and not without_frames(content)

    def tokens(self, count: Count) -> int:
        """About how many tokens it takes."""
        content, calls = self.form.get("content"), self.form.get("tool_calls")
        total = _FRAME_TOKENS
        if isinstance(content, str):
            total += count(content)
        elif isinstance(content, Sequence):
            total += sum(_PART_TOKENS if _text(part) is None else count(_text(part) or "") for part in content)
        return total + (count(json.dumps(calls)) if calls else 0)

    def shortened(self, tokens: int, count: Count) -> Prompted:
        """The same with each text of more than so many tokens snipped."""
        return self._with(lambda text: snipped(text, tokens, count))

    def without_parts(self) -> Prompted:
        """The same without images and files, each of which is named in one line."""
        content = self.form.get("content")
        if not isinstance(content, list) or all(_text(part) is not None for part in content):
            return self
        parts = [part if _text(part) is not None else {"type": "text", "text": _LEFT_OUT} for part in content]
        return replace(self, form={**self.form, "content": parts})

    def with_short_arguments(self, tokens: int, count: Count) -> Prompted:
        """The same with long texts among the arguments of its calls snipped; arguments stay JSON."""
        calls = self.form.get("tool_calls")
        if not isinstance(calls, list):
            return self
        short = [_short_call(call, tokens, count) for call in calls]
        return self if short == calls else replace(self, form={**self.form, "tool_calls": short})

    def _with(self, change: Callable[[str], str]) -> Prompted:
        content: object = self.form.get("content")
        if isinstance(content, str):
            changed: object = change(content)
        elif isinstance(content, list):
            changed = [part if _text(part) is None else {**part, "text": change(part["text"])} for part in content]
        else:
            return self
        return self if changed == content else replace(self, form={**self.form, "content": changed})


def read(messages: Sequence[Mapping[str, Any]], sources: Sequence[str | None]) -> list[Prompted]:
    """The messages of a prompt, each with that of the log.  Raises: InvalidExtraction."""
    if isinstance(messages, (str, Mapping)) or not all(isinstance(form, Mapping) for form in messages):
        raise InvalidExtraction("messages", messages, "a list of messages is needed, each with a role and its content")
    for at, form in enumerate(messages):
        if not _are_calls(calls := form.get("tool_calls") or []):
            raise InvalidExtraction(f"messages[{at}].tool_calls", calls, "a list of mappings is needed, as JSON has it")
    if isinstance(sources, str) or len(sources) not in (0, len(messages)):
        raise InvalidExtraction("sources", sources, f"one id or None for each of {len(messages)} messages is needed")
    return [Prompted(form, source) for form, source in zip(messages, sources or [None] * len(messages), strict=True)]


def turns(messages: Sequence[Prompted]) -> list[list[int]]:
    """The turns of a conversation, each the places of its messages; what frames it is in none.  O(messages)."""
    found: list[list[int]] = []
    turn_of_call: dict[str, int] = {}
    for place, message in enumerate(messages):
        if message.frames:
            continue
        if message.role == "user" or not found:
            found.append([])
        opened = turn_of_call.get(str(message.form.get("tool_call_id"))) if message.role == "tool" else None
        if opened is not None and opened < len(found) - 1:
            joined = [place for turn in found[opened:] for place in turn]
            found[opened:] = [joined]
            turn_of_call = {call: min(turn, opened) for call, turn in turn_of_call.items()}
        found[-1].append(place)
        for call in message.form.get("tool_calls") or ():
            if isinstance(call, Mapping) and isinstance(call.get("id"), str):
                turn_of_call[call["id"]] = len(found) - 1
    return found


def _are_calls(calls: object) -> bool:
    """Whether they are calls of tools as JSON has them, and no objects of a client."""
    try:
        json.dumps(calls)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(calls, (list, tuple)) and all(isinstance(call, Mapping) for call in calls)


def _text(part: object) -> str | None:
    """The text of a part of a message, None where it is something else."""
    text = part.get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else None


def _short_call(call: Any, tokens: int, count: Count) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    if not isinstance(arguments, dict):
        return call
    short = {
        name: snipped(value, tokens, count) if isinstance(value, str) else value for name, value in arguments.items()
    }
    if short == arguments:
        return call
    return {**call, "function": {**function, "arguments": json.dumps(short, ensure_ascii=False)}}
