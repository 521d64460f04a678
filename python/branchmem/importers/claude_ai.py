"""claude.ai exports: `conversations.json` of a bulk export, or one conversation as the site's own API gives it.

A conversation is an object with a list `chat_messages`; `uuid` and
`parent_message_uuid` of a message are its links, and a parent of zeros is none.
Of a dump of the API `current_leaf_message_uuid` is where the user stands; a bulk
export does not say.  The order of the list says nothing, except where no message
of a conversation has a field for its parent, as in old exports: then each
follows the one before it, and is marked `assumed_linear` in its meta.

What the text of a message is:

    blocks in `content`    the `text` of those of type `text`, a line each.  Thinking, calls of tools, what they
                           return, budgets and flags are no part of what was said; of another type the `text` is
                           taken, and the type is counted
    no such block          `text`, unless there are other blocks, for which it only holds a notice
    neither of them        what was extracted from the attachments, a line each: a text that was pasted and nothing said
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from branchmem.importers.entries import Entry
from branchmem.importers.files import Files
from branchmem.importers.node_map import PARENT, Chat, Export, Node, conversations, keyed
from branchmem.importers.records import ASSUMED_LINEAR, Report, Source, iso_time

TOOL: Final = "claude-ai"
EXPECTED: Final = "a claude.ai export, conversations whose `chat_messages` each have a `uuid`"

_NO_PARENT: Final = "00000000-0000-4000-8000-000000000000"
_PARENT: Final = "parent_message_uuid"
_ROLES: Final = {"human": "user"}
_UNSAID: Final = frozenset({"thinking", "redacted_thinking", "tool_use", "tool_result", "token_budget", "flag"})


def looks_like(entry: Any) -> bool:
    """Whether an entry is a conversation with messages."""
    messages = entry.get("chat_messages") if isinstance(entry, dict) else None
    return isinstance(messages, list) and any(
        isinstance(message, dict) and ("uuid" in message or "sender" in message) for message in messages
    )


def sources(files: Files, found: Iterable[Entry], report: Report) -> Iterator[Source]:
    """The conversations of some files; see `conversations`."""
    return conversations(files, found, Export(TOOL, EXPECTED, looks_like, _ids, _chat), report)


def _ids(entry: dict[str, Any]) -> Iterable[object]:
    return (entry.get("uuid"),)


def _chat(entry: dict[str, Any], report: Report) -> Chat:
    messages = entry["chat_messages"]
    is_linear = not any(isinstance(message, dict) and _PARENT in message for message in messages)
    found = keyed(((_uuid(message), _linked(message)) for message in messages), _say, report)
    if is_linear:
        _chain(found)
    current = entry.get("current_leaf_message_uuid")
    return Chat(found, current if isinstance(current, str) else None)


def _chain(found: Iterable[Node]) -> None:
    """Put each node below the one before it, a copy where the first of its key is."""
    above: dict[str, str | None] = {}
    last: str | None = None
    for node in found:
        node.parent = above.setdefault(node.key, last)
        node.unlinked = False
        node.meta = {ASSUMED_LINEAR: True}
        last = node.key


def _uuid(message: Any) -> object:
    return message.get("uuid") if isinstance(message, dict) else None


def _linked(message: Any) -> Any:
    """A message whose link to its parent stands where `keyed` looks for it."""
    if not isinstance(message, dict) or _PARENT not in message:
        return message
    parent = message[_PARENT]
    return {**message, PARENT: None if parent == _NO_PARENT else parent}


def _say(node: Node, message: dict[str, Any]) -> None:
    """Read role, text and time."""
    sender = message.get("sender")
    if isinstance(sender, str) and sender:
        node.role = _ROLES.get(sender, sender)
    else:
        node.readable = False
    node.created = iso_time(message.get("created_at"))
    node.text, known = _text(message)
    node.readable = node.readable and known


def _text(message: dict[str, Any]) -> tuple[str, bool]:
    """What was said, and whether all of it could be read."""
    content, whole, attachments = (message.get(name) for name in ("content", "text", "attachments"))
    blocks = content if isinstance(content, list) else []
    known = content is None or isinstance(content, list)
    texts: list[str] = []
    is_plain = True
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        text = block.get("text") if isinstance(block, dict) else None
        is_plain = is_plain and kind == "text"
        if kind == "text":
            known = known and (text is None or isinstance(text, str))
        elif isinstance(kind, str) and kind in _UNSAID:
            continue
        else:
            known = False
        if isinstance(text, str) and text:
            texts.append(text)
    if texts:
        return "\n".join(texts), known
    if is_plain and isinstance(whole, str) and whole:
        return whole, known
    known = known and (whole is None or isinstance(whole, str))
    extracted = (each.get("extracted_content") for each in _objects(attachments))
    return "\n".join(text for text in extracted if isinstance(text, str) and text), known


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
