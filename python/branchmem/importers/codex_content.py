"""What an item of a Codex rollout says, and what tells it from others: role, text and key.

Text is what a person or the model said.  Reasoning, images, calls of tools and what
they return have none; neither has what the tool itself puts before the model under
the role of the user, which only holds its place.  The key is the same for all
copies of an item, whatever time they were given.
"""

from __future__ import annotations

import json
from typing import Any, Final

from branchmem.importers.line_source import named

# What an item that is no message belongs to.
_SILENT: Final = {
    "reasoning": "assistant",
    "function_call": "assistant",
    "function_call_output": "tool",
    "custom_tool_call": "assistant",
    "custom_tool_call_output": "tool",
    "local_shell_call": "assistant",
    "web_search_call": "assistant",
    "image_generation_call": "assistant",
    "tool_search_call": "assistant",
    "tool_search_output": "tool",
    "ghost_snapshot": "system",
    "compaction": "system",
    "compaction_summary": "system",
    "context_compaction": "system",
}
#: The types of items, which old files hold without an envelope.
TYPES: Final = frozenset(["message", *_SILENT])
_SEALED: Final = ("compaction", "compaction_summary", "context_compaction")
_SPOKEN: Final = ("input_text", "output_text", "text")
_BESIDE: Final = ("input_image", "refusal")
# What the tool says for the user begins with one of these.
_CONTEXTUAL: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<skill>",
    "<user_shell_command>",
    "<subagent_notification>",
    "# AGENTS.md instructions",
)
# Fields that may differ between copies of an item.
_VOLATILE: Final = frozenset(["id", "status", "phase", "metadata", "internal_chat_message_metadata_passthrough"])
_EVENTS: Final = {"user_message": "user", "agent_message": "assistant"}


class Item:
    """An item that becomes a message; `known` where all of it could be read, `key` equal for its copies."""

    __slots__ = ("contextual", "key", "kind", "known", "role", "text")

    def __init__(self, kind: str, role: str | None, text: str, rest: Any, *, known: bool) -> None:
        self.kind = kind
        self.role = role
        self.text = text
        self.known = known
        self.contextual = role == "user" and text.lstrip().startswith(_CONTEXTUAL)
        self.key = json.dumps([kind, role, text, rest], sort_keys=True)

    @property
    def begins_turn(self) -> bool:
        """Whether a user said it, so that a turn begins here."""
        return self.kind == "message" and self.role == "user" and not self.contextual

    @property
    def is_context(self) -> bool:
        """Whether it only prepares the turn that follows."""
        return self.kind == "message" and (self.contextual or self.role == "developer")


def item(kind: str, payload: dict[str, Any]) -> Item | None:
    """What the payload of a line of this type becomes; None where it is no message."""
    if kind == "compacted":
        return Item("compacted", "system", summary(payload), None, known=True)
    if kind == "event_msg":
        role = _EVENTS.get(str(payload.get("type")))
        text = payload.get("message")
        return Item("message", role, text, [], known=True) if role is not None and isinstance(text, str) else None
    if kind != "response_item":
        return None
    own = payload.get("type")
    if own == "message":
        text, others, known = _spoken(payload.get("content"))
        role = named(payload.get("role"))
        return Item("message", role, text, others, known=known and role is not None)
    rest = {field: value for field, value in payload.items() if field not in _VOLATILE}
    role = _SILENT.get(own) if isinstance(own, str) else None
    return Item(str(own), role, "", rest, known=role is not None)


def speaker(payload: dict[str, Any]) -> str | None:
    """The role whose words an item holds, None where nobody speaks."""
    found = item("response_item", payload) if payload.get("type") == "message" else None
    return None if found is None or found.contextual else found.role


def summary(payload: dict[str, Any]) -> str:
    """What replaced a compacted history: what stands last in it where that can be read, else the message."""
    message = payload.get("message")
    message = message if isinstance(message, str) else ""
    history = payload.get("replacement_history")
    items = [each for each in history if isinstance(each, dict)] if isinstance(history, list) else []
    if any(each.get("type") in _SEALED for each in items):
        return message
    texts = (_spoken(each.get("content"))[0] for each in reversed(items) if each.get("type") == "message")
    return next(filter(None, texts), message)


def _spoken(content: object) -> tuple[str, list[Any], bool]:
    """The text of a message, what else is in it, and whether all of it could be read."""
    if isinstance(content, str):
        return content, [], True
    if not isinstance(content, list):
        return "", [], False
    texts: list[str] = []
    rest: list[Any] = []
    known = True
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        text = block.get("text") if isinstance(block, dict) else None
        if kind in _SPOKEN and isinstance(text, str):
            texts.append(text)
        else:
            rest.append(block)
            known = known and kind in _BESIDE
    return "\n".join(filter(None, texts)), rest, known
