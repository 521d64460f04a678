"""LibreChat exports: a conversation, its messages a list, or a tree that is nested under `children`.

Messages stand under `messages`, or under `messagesTree`.  `messageId` and
`parentMessageId` are their links, nested or not, and a parent of zeros is none;
being nested gives a parent only to a message without a field for one.  A
message that says nothing keeps its place, and all that is below it.  Where the
user stands is nowhere told.

What the text of a message is:

    parts in `content`     the text of those of type `text`, a line each.  Thinking, calls of tools, files and pictures
                           are no part of what was said; of another type the text is taken, and the type is counted
    no such part           `text`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from branchmem.importers.entries import Entry
from branchmem.importers.files import Files
from branchmem.importers.node_map import CHILDREN, PARENT, Chat, Export, Node, conversations, keyed
from branchmem.importers.records import Report, Source, iso_time

TOOL: Final = "librechat"
EXPECTED: Final = "a LibreChat export, a conversation whose `messages` each have a `messageId`"

_NO_PARENT: Final = "00000000-0000-0000-0000-000000000000"
_PARENT: Final = "parentMessageId"
_LISTS: Final = ("messages", "messagesTree")
_UNSAID: Final = frozenset({"think", "tool_call", "image_file", "image_url", "file", "agent_update", "error"})


def looks_like(entry: Any) -> bool:
    """Whether an entry is a conversation with messages."""
    return isinstance(entry, dict) and _messages(entry) is not None


def sources(files: Files, found: Iterable[Entry], report: Report) -> Iterator[Source]:
    """The conversations of some files; see `conversations`."""
    return conversations(files, found, Export(TOOL, EXPECTED, looks_like, _ids, _chat), report)


def _ids(entry: dict[str, Any]) -> Iterable[object]:
    yield entry.get("conversationId")
    yield from (message.get("conversationId") for message in _messages(entry) or () if isinstance(message, dict))


def _messages(entry: dict[str, Any]) -> list[Any] | None:
    for name in _LISTS:
        listed = entry.get(name)
        if isinstance(listed, list) and any(isinstance(each, dict) and "messageId" in each for each in listed):
            return listed
    return None


def _chat(entry: dict[str, Any], report: Report) -> Chat:
    return Chat(keyed(_flat(_messages(entry) or []), _say, report))


def _flat(tree: list[Any]) -> Iterator[tuple[object, Any]]:
    """All messages of a tree, each with its id, before what is nested in it.  O(messages), however deep."""
    left = tree[::-1]
    while left:
        message = left.pop()
        if not isinstance(message, dict):
            yield None, message
            continue
        nested = message.get(CHILDREN)
        if isinstance(nested, list):
            left += nested[::-1]
            nested = [_id(each) for each in nested if _id(each) is not None]
        said = {name: value for name, value in message.items() if name not in (PARENT, CHILDREN)}
        if _PARENT in message:
            parent = message[_PARENT]
            said[PARENT] = None if parent == _NO_PARENT else parent
        if nested is not None:
            said[CHILDREN] = nested
        yield _id(message), said


def _id(message: Any) -> object:
    return message.get("messageId") if isinstance(message, dict) else None


def _say(node: Node, message: dict[str, Any]) -> None:
    """Read role, text and time."""
    by_user = message.get("isCreatedByUser")
    if isinstance(by_user, bool):
        node.role = "user" if by_user else "assistant"
    elif message.get("sender") == "User":
        node.role = "user"
    else:
        node.readable = False
    node.created = iso_time(message.get("createdAt"))
    node.text, known = _text(message)
    node.readable = node.readable and known


def _text(message: dict[str, Any]) -> tuple[str, bool]:
    """What was said, and whether all of it could be read."""
    content, whole = message.get("content"), message.get("text")
    known = (content is None or isinstance(content, list)) and (whole is None or isinstance(whole, str))
    texts: list[str] = []
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if isinstance(part, dict) else None
        text = text.get("value") if isinstance(text, dict) else text
        if isinstance(kind, str) and kind in _UNSAID:
            continue
        known = known and kind == "text" and (text is None or isinstance(text, str))
        if isinstance(text, str) and text:
            texts.append(text)
    if texts:
        return "\n".join(texts), known
    return whole if isinstance(whole, str) else "", known
