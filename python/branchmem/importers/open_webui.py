"""Open WebUI exports: the rows of its table of chats, one row, or a chat without its row.

A row has the chat under `chat`.  A chat has a `history`: its `messages` map keys
to nodes, `parentId` and `childrenIds` being their links, and `currentId` is
where the user stands.  Where there is no such map, as in chats from before
there was one, the list `messages` of the chat is one path: a message follows the
one before it unless it names its parent, its key is its `id`, else its position,
and the user stands at the end.  Beside a map the list only repeats a path of it.

What the text of a message is:

    content of an assistant    the string, without the blocks that show thinking, calls of tools and code that was
                               run: `<details type="reasoning">`, `tool_calls`, `code_interpreter`
    content of anybody else    the string
    content that is a list     the strings and the `text` of the objects in it, a line each
    empty or no content        what the items of type `message` in `output` say, a line each
    any other                  empty; the message is counted as not quite readable

A message without a role is not quite readable either, and nobody stands on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from branchmem.importers.entries import Entry, Repeated
from branchmem.importers.files import Files
from branchmem.importers.node_map import Chat, Export, Node, conversations, joined, nodes, time
from branchmem.importers.records import Report, Source

TOOL: Final = "open-webui"
EXPECTED: Final = "an Open WebUI export, chats that each have a `history` of `messages`"

_BLOCK: Final = re.compile(r'<details\s+type="(?:reasoning|tool_calls|code_interpreter)"', re.IGNORECASE)
_BLOCK_END: Final = re.compile("</details>", re.IGNORECASE)


def looks_like(entry: Any) -> bool:
    """Whether an entry is a row with messages, or a chat that has a history of some."""
    return isinstance(entry, dict) and ("chat" in entry or "history" in entry) and _messages(entry) is not None


def sources(files: Files, found: Iterable[Entry], report: Report) -> Iterator[Source]:
    """The chats of some files; see `conversations`."""
    return conversations(files, found, Export(TOOL, EXPECTED, looks_like, _ids, _chat), report)


def _ids(entry: dict[str, Any]) -> Iterable[object]:
    return entry.get("id"), _inner(entry).get("id")


def _inner(entry: dict[str, Any]) -> dict[str, Any]:
    """The chat of a row; what has no row is the chat itself."""
    chat = entry.get("chat")
    return chat if isinstance(chat, dict) else entry


def _messages(entry: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]] | None:
    """The map of a chat, else its list as far as it holds objects, else None."""
    chat = _inner(entry)
    history, listed = chat.get("history"), chat.get("messages")
    mapped = history.get("messages") if isinstance(history, dict) else None
    if isinstance(mapped, dict) and mapped:
        return mapped
    if isinstance(listed, list) and any(isinstance(message, dict) and "role" in message for message in listed):
        return listed
    return None


def _chat(entry: dict[str, Any], report: Report) -> Chat:
    messages = _messages(entry)
    if isinstance(messages, list):
        found, last = _path(messages, report)
        return Chat(found, last, "last_line")
    assert messages is not None, "entries without messages are no conversations"
    current = _inner(entry)["history"].get("currentId")
    found = nodes(messages, _say, report, parent="parentId", children="childrenIds")
    return Chat(found, current if isinstance(current, str) else None)


def _path(listed: list[Any], report: Report) -> tuple[list[Node], str | None]:
    """The nodes of a list of messages, each below the one before it unless it says otherwise; the key of the last."""
    pairs: list[tuple[str, Any]] = []
    last: str | None = None
    for position, message in enumerate(listed):
        if not isinstance(message, dict):
            report.unknown_types += 1
            continue
        id = message.get("id")
        key = id if isinstance(id, str) and id else str(id if type(id) is int else position)
        pairs.append((key, {"parentId": last, **message}))
        last = key
    return nodes(Repeated(pairs), _say, report, parent="parentId", children="childrenIds"), last


def _say(node: Node, value: dict[str, Any]) -> None:
    """Read role, text and time."""
    role = value.get("role")
    if isinstance(role, str) and role:
        node.role = role
    else:
        node.readable = False
    node.created = time(value.get("timestamp"))
    node.text, known = joined(value.get("content"))
    node.readable = node.readable and known
    if node.role == "assistant":
        node.text = _spoken(node.text)
    output = value.get("output")
    if not node.text and isinstance(output, list):
        items = [item for item in output if isinstance(item, dict) and item.get("type") == "message"]
        node.text = "\n".join(filter(None, (joined(item.get("content"))[0] for item in items)))


def _spoken(text: str) -> str:
    """A text without the blocks that were not said; one that is not ended reaches to the end.  O(size)."""
    block = _BLOCK.search(text)
    if block is None:
        return text
    kept: list[str] = []
    at = 0
    while block is not None:
        kept.append(text[at : block.start()])
        end = _BLOCK_END.search(text, block.end())
        at = len(text) if end is None else end.end()
        block = _BLOCK.search(text, at)
    kept.append(text[at:])
    return "\n".join(filter(None, (part.strip() for part in kept)))
