"""Messages as endpoints take them, and the messages of a path that they stand for.

A message of a path keeps its text as text, and in its meta what else it said: calls of tools (`calls`), which call it
answers (`call`), a name, and parts that are no text (`parts`).  Long strings inside of such parts, images as a rule,
are not kept, but what they are known by.  The same message said again gives the same fields; times, ids and what else
an endpoint adds are no part of what is said.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final, Self

from branchmem import Message
from branchmem.canonical import thaw
from branchmem.chat import Call, arguments_text
from branchmem.errors.agent import InvalidMessage

#: Roles of messages that are part of a conversation; messages of any other role only have a place in its tree.
ROLES: Final = ("system", "user", "assistant", "tool")
#: Roles of instructions, which endpoints know under two names.
_INSTRUCTIONS: Final = ("system", "developer")
CALLS, CALL, NAME, PARTS = "calls", "call", "name", "parts"

_KEPT_CHARS: Final = 2048
#: What parts hold for the endpoint, and what wanders from one to the next as a list grows.
_UNSAID: Final = ("cache_control",)
_DIGEST: Final = "sha256:"


@dataclass(frozen=True, slots=True)
class Said:
    """What a message says; two that are equal say the same.  White space around a text says nothing."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    #: The id of the call that it answers.
    call: str | None = None
    name: str | None = None
    #: The JSON text of the parts of a message that is more than text.
    parts: str | None = None

    @property
    def is_instruction(self) -> bool:
        """Whether it says what the application wants, and is no turn of the conversation."""
        return self.role == "system"

    @property
    def is_answer(self) -> bool:
        """Whether a model or a tool said it."""
        return self.role in ("assistant", "tool")

    @classmethod
    def of_wire(cls, wire: object, at: int) -> Said:
        """What a message in the form of an endpoint says: a mapping, or an object of a client.

        Raises: InvalidMessage, which names the place `at` and the field.
        """
        form = plain(wire)
        if not isinstance(form, Mapping):
            raise InvalidMessage(at, "message", "is no mapping with a role and a content")
        role = form.get("role")
        role = "system" if role in _INSTRUCTIONS else role
        if role not in ROLES:
            raise InvalidMessage(at, "role", f"is none of {', '.join(ROLES)}")
        text, parts = _content(form.get("content") or form.get("refusal"), at)
        calls = form.get("tool_calls") or ()
        if not isinstance(calls, (list, tuple)):
            raise InvalidMessage(at, "tool_calls", "is no list")
        call, name = form.get("tool_call_id"), form.get("name") or None
        if role == "tool" and not isinstance(call, str):
            raise InvalidMessage(at, "tool_call_id", "is missing: a result of a tool names the call that it answers")
        if name is not None and not isinstance(name, str):
            raise InvalidMessage(at, "name", "is no text")
        called = tuple(_call(one, at) for one in calls)
        return cls(str(role), text.strip(), called, call if role == "tool" else None, name, parts)

    @classmethod
    def of_message(cls, message: Message) -> Said | None:
        """What a message of a path says; None where it only has a place in the tree."""
        role = "system" if message.role in _INSTRUCTIONS else message.role
        if role not in ROLES:
            return None
        meta = message.meta
        call, name = (value if isinstance(value := meta.get(key), str) else None for key in (CALL, NAME))
        return cls(
            str(role), (message.text or "").strip(), _calls(meta.get(CALLS)), call, name, _parts(meta.get(PARTS))
        )

    @property
    def spoken(self) -> Self:
        """The same with the arguments of calls in one form: applications there are that write this JSON anew."""
        if not self.calls:
            return self
        return replace(self, calls=tuple(replace(call, arguments=_one_form(call.arguments)) for call in self.calls))

    def meta(self) -> dict[str, Any]:
        """What the meta of a message holds that says this, besides its text."""
        meta: dict[str, Any] = {}
        if self.calls:
            meta[CALLS] = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in self.calls]
        if self.call is not None:
            meta[CALL] = self.call
        if self.name is not None:
            meta[NAME] = self.name
        if self.parts is not None:
            meta[PARTS] = json.loads(self.parts)
        return meta

    def wire(self) -> dict[str, Any]:
        """The form in which endpoints take it; parts that were not kept are named in words."""
        form: dict[str, Any] = {"role": self.role, "content": self.text}
        if self.parts is not None:
            form["content"] = [_shown(part) for part in json.loads(self.parts)]
        if self.calls:
            form["content"] = self.text or None
            form["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls
            ]
        if self.call is not None:
            form["tool_call_id"] = self.call
        if self.name is not None:
            form["name"] = self.name
        return form


def prompt(path: Iterable[Message]) -> list[tuple[dict[str, Any], str]]:
    """The messages of a path, from its root, as endpoints take them, each with its id.

    What has no content, since it was erased, is left out, and so are calls without a result and results without a call,
    which endpoints refuse.
    """
    said = [(one, message.id) for message in path if (one := Said.of_message(message)) is not None]
    found: list[tuple[dict[str, Any], str]] = []
    for at, (one, id) in enumerate(said):
        if one.role == "tool":
            continue
        results: dict[str | None, list[tuple[Said, str]]] = {}
        for result in takewhile(_is_result, said[at + 1 :]):
            results.setdefault(result[0].call, []).append(result)
        # models there are that give two calls one id: the first result is that of the first
        answered = [(call, results[call.id].pop(0)) for call in one.calls if results.get(call.id)]
        if one.text or one.parts or answered:
            found.append((replace(one, calls=tuple(call for call, _ in answered)).wire(), id))
        found += ((result.wire(), of) for _, (result, of) in answered)
    return found


def _is_result(said: tuple[Said, str]) -> bool:
    return said[0].role == "tool"


def plain(value: object) -> Any:
    """A value of an OpenAI-style client as mappings and lists, whatever objects it is made of."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump()
    return plain(vars(value)) if hasattr(value, "__dict__") else value


def _content(content: object, at: int) -> tuple[str, str | None]:
    """The text of a content, and the JSON text of its parts where they are more than one text."""
    if content is None or isinstance(content, str):
        return content or "", None
    if isinstance(content, Mapping) or not isinstance(content, Sequence):
        raise InvalidMessage(at, "content", "is neither a text nor a list of parts")
    parts = list(content)
    if not all(isinstance(part, Mapping) for part in parts):
        raise InvalidMessage(at, "content", "has a part that is no mapping with a type")
    texts = [str(part.get("text") or "") for part in parts if part.get("type") == "text"]
    if len(parts) == len(texts) <= 1:
        return "".join(texts), None
    try:
        return "\n".join(texts), _json([_kept(part) for part in parts])
    except (TypeError, ValueError):
        raise InvalidMessage(at, "content", "has a part that is no JSON") from None


def _call(call: Any, at: int) -> Call:
    try:
        function = call["function"]
        return Call(str(call["id"]), str(function["name"]), arguments_text(function["arguments"]))
    except (TypeError, ValueError, KeyError):
        raise InvalidMessage(at, "tool_calls", "has one without id, function name and arguments") from None


def _calls(kept: object) -> tuple[Call, ...]:
    """The calls in the meta of a message; none where another has written something else there."""
    fields = ("id", "name", "arguments")
    if not isinstance(kept, tuple) or not all(
        isinstance(one, Mapping) and all(isinstance(one.get(field), str) for field in fields) for one in kept
    ):
        return ()
    return tuple(Call(*(one[field] for field in fields)) for one in kept)


def _parts(kept: object) -> str | None:
    """The JSON text of the parts in the meta of a message; None where another has written something else there."""
    if not isinstance(kept, tuple) or not kept or not all(isinstance(part, Mapping) for part in kept):
        return None
    return _json(thaw(kept))


def _kept(value: Any, *, is_text: bool = False) -> Any:
    """A part as it is kept: a long string in it, but for a text, is replaced by what it is known by."""
    if isinstance(value, Mapping):
        text = value.get("type") == "text"
        said = ((key, inner) for key, inner in value.items() if key not in _UNSAID)
        return {str(key): _kept(inner, is_text=text and key == "text") for key, inner in said}
    if isinstance(value, (list, tuple)):
        return [_kept(inner) for inner in value]
    if isinstance(value, str) and len(value) > _KEPT_CHARS and not is_text:
        return _DIGEST + hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()
    return value


def _shown(part: Any) -> Any:
    """A part as endpoints take it; one that was not kept whole is named in words."""
    if f'"{_DIGEST}' in _json(part):
        return {"type": "text", "text": f"({part.get('type', 'part')}, not kept)"}
    return part


def _one_form(arguments: str) -> str:
    """JSON in the one form in which equal values are equal texts; what is none, as it is."""
    try:
        return _json(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
