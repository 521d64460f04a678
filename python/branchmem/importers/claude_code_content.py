"""What a line of a Claude Code transcript says: role, text and time.

Text is what a person or the model said.  Thinking, images, calls of tools and
what they return are known and have none; what is of no known kind gives the text
that it has, and is told.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from branchmem.importers.records import iso_time, repaired

#: The types of lines that a model takes for turns of a conversation.
TURNS: Final = ("user", "assistant")

_SILENT: Final = frozenset(
    [
        "thinking",
        "redacted_thinking",
        "image",
        "document",
        "tool_use",
        "tool_result",
        "tool_reference",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
        "search_result",
    ]
)


def said(form: dict[str, Any]) -> tuple[str | None, str | None, datetime | None, bool]:
    """The role, text and time of a line, and whether all of it could be read."""
    kind, message = form.get("type"), form.get("message")
    role = name(message.get("role")) if isinstance(message, dict) else None
    text: str | None = ""
    known = True
    if isinstance(message, str):
        text = message
    elif isinstance(message, dict):
        text, known = _said(message.get("content"))
    elif isinstance(form.get("content"), str):
        text = form["content"]
    elif kind in TURNS:
        known = False
    if form.get("isMeta") is True:
        text = None
    return role or name(kind), text, iso_time(form.get("timestamp")), known


def _said(content: object) -> tuple[str, bool]:
    """The text of a message, and whether all of it could be read."""
    if isinstance(content, str):
        return content, True
    if not isinstance(content, list):
        return "", False
    texts: list[str] = []
    known = True
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind in _SILENT:
            continue
        text = block.get("text") if isinstance(block, dict) else block
        known = known and kind == "text" and isinstance(text, str)
        if isinstance(text, str) and text:
            texts.append(text)
    return "\n".join(texts), known


def blocks(message: object) -> list[dict[str, Any]]:
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def name(value: object) -> str | None:
    """A string that can name something, however long, None for whatever cannot."""
    return repaired(value)[0] if isinstance(value, str) and value else None
