"""ChatGPT exports: `conversations.json`, a shard of it, or one conversation.

A conversation is an object with a `mapping` from keys to nodes, `parent` and
`children` being their links.  Only identity, parent, role, text and time of
creation are read: what changes from export to export stays out.

What the text of a message is:

    content_type                          text
    text, multimodal_text                 the strings of `parts` and the `text` of its objects, a line each
    code, execution_output, tether_quote  `text`
    tether_browsing_display               `result`
    reasoning_recap                       `content`
    thoughts                              empty: thinking is no part of what was said
    user_editable_context, and whatever   none: the node only holds its place in the tree
    is marked as visually hidden
    any other                             the first of the above that is there; the type is counted

A node without a message holds its place too, without role, text or time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from branchmem.importers.entries import Entry
from branchmem.importers.files import Files
from branchmem.importers.node_map import Chat, Export, Node, conversations, joined, nodes, time
from branchmem.importers.records import Report, Source

TOOL: Final = "chatgpt"
EXPECTED: Final = "a ChatGPT export, conversations that each have a `mapping`"

_FIELDS: Final = ("parts", "text", "result", "content")
_FIELD: Final = {
    "text": "parts",
    "multimodal_text": "parts",
    "code": "text",
    "execution_output": "text",
    "tether_quote": "text",
    "tether_browsing_display": "result",
    "reasoning_recap": "content",
}


def looks_like(entry: Any) -> bool:
    """Whether an entry is a conversation with nodes."""
    return isinstance(entry, dict) and isinstance(entry.get("mapping"), dict) and bool(entry["mapping"])


def sources(files: Files, found: Iterable[Entry], report: Report) -> Iterator[Source]:
    """The conversations of some files; see `conversations`."""
    return conversations(files, found, Export(TOOL, EXPECTED, looks_like, _ids, _chat), report)


def _ids(entry: dict[str, Any]) -> Iterable[object]:
    return entry.get("conversation_id"), entry.get("id")


def _chat(entry: dict[str, Any], report: Report) -> Chat:
    found = nodes(entry["mapping"], _say, report, parent="parent", children="children")
    current = entry.get("current_node")
    return Chat(found, current if isinstance(current, str) else None)


def _say(node: Node, value: dict[str, Any]) -> None:
    """Read role, text and time."""
    message = value.get("message")
    if not isinstance(message, dict):
        node.readable = node.readable and message is None
        return
    author, content, metadata = (message.get(name) for name in ("author", "content", "metadata"))
    role = author.get("role") if isinstance(author, dict) else None
    if isinstance(role, str) and role:
        node.role = role
    else:
        node.readable = False
    node.created = time(message.get("create_time"))
    kind = content.get("content_type") if isinstance(content, dict) else None
    hidden = isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation") is True
    if not hidden and kind != "user_editable_context":
        node.text, known = _text(content, kind)
        node.readable = node.readable and known


def _text(content: Any, kind: Any) -> tuple[str, bool]:
    """The text of a `content`, and whether its type is known and all of it could be read."""
    if not isinstance(content, dict):
        return (content, False) if isinstance(content, str) else ("", False)
    if kind == "thoughts":
        return "", True
    field = _FIELD.get(kind) if isinstance(kind, str) else None
    if field is not None:
        return joined(content.get(field))
    found = (joined(content.get(field))[0] for field in _FIELDS)
    return next(filter(None, found), ""), False
