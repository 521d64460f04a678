"""Items of the SDK, each as a message of the log and back.

An item is kept as it is, but for its text, which is that of the message, where it can be searched and erased.  What a
session of branchmem said is an item with its role and text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from branchmem.events import Message

#: What the meta of a message holds: its item without the field that is its text, and the name of that field.
ITEM: Final = "item"
TEXT: Final = "text"

#: Roles of what somebody says.
ROLES: Final = ("user", "assistant", "system", "developer")


def drafted(item: Mapping[str, Any]) -> tuple[Message, str | None]:
    """A message for an item, and the call whose output it is."""
    told = json.loads(json.dumps(item))
    kind = str(told.get("type", "message"))
    role = told.get("role")
    is_result = is_output(told)
    call = told.get("call_id") if is_result else None
    if not isinstance(role, str) or not role:
        role = "tool" if is_result else "assistant"
    field = "output" if is_result else "content"
    text = told.get(field)
    meta: dict[str, Any] = {}
    if isinstance(text, str):
        del told[field]
        if told != {"role": role} or role not in ROLES:
            meta = {ITEM: told, TEXT: field}
    else:
        meta, text = {ITEM: told}, text_of(text) if kind == "message" else None
    message = Message(uuid4().hex, None, role=role, text=text, created=datetime.now(UTC), meta=meta)
    return message, call if isinstance(call, str) else None


def item_of(message: Message) -> dict[str, Any] | None:
    """The item that a message stands for; None for the root of a conversation, and what has no form for the SDK.

    What a session of branchmem said is an item with its role and text.
    """
    meta = message.to_dict().get("meta", {})
    if ITEM in meta:
        item: dict[str, Any] = meta[ITEM]
        return {**item, meta[TEXT]: message.text} if TEXT in meta else item
    is_said = message.role in ROLES and message.text is not None
    return {"role": message.role, "content": message.text} if is_said else None


def is_output(item: Mapping[str, Any]) -> bool:
    """Whether an item is the output of a call."""
    return str(item.get("type")).endswith("_output")


def text_of(content: Any) -> str | None:
    """The text of a message, that of its parts a line each; None where there is none."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(part for part in parts if isinstance(part, str) and part) or None
