"""assistant-ui: an exported repository of messages, one thread, with the links beside the messages.

`messages` is a list of pairs, a `message` and its `parentId`; the `id` of the
message is its identity, and `headId` is where the user stands.  A repository
does not name its thread, so that one goes by a hash of its first message: the first
of the list that continues none, which stays the first when it is edited or asked again.

What the text of a message is: its `content`, or `parts`, as newer versions call
it: a string, or the `text` of the parts of type `text`, a line each.  Reasoning,
calls of tools, sources, files and data are no part of what was said; of another
type the `text` is taken, and the type is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from branchmem.importers.entries import Entry
from branchmem.importers.files import Files
from branchmem.importers.node_map import PARENT, Chat, Export, Node, conversations, keyed, named_after
from branchmem.importers.records import Report, Source, iso_time

TOOL: Final = "assistant-ui"
EXPECTED: Final = "an assistant-ui repository, `messages` that each have a `message` and a `parentId`"

_UNSAID: Final = frozenset(
    {"reasoning", "tool-call", "tool-result", "source", "source-url", "source-document", "image", "file", "audio"}
    | {"data", "step-start", "dynamic-tool", "component"}
)
# Parts of tools and of data are named after what they hold.
_UNSAID_PREFIXES: Final = ("tool-", "data-")


def looks_like(entry: Any) -> bool:
    """Whether an entry is a repository with messages."""
    messages = entry.get("messages") if isinstance(entry, dict) else None
    return isinstance(messages, list) and any(
        isinstance(item, dict) and isinstance(item.get("message"), dict) and "parentId" in item for item in messages
    )


def sources(files: Files, found: Iterable[Entry], report: Report) -> Iterator[Source]:
    """The threads of some files; see `conversations`."""
    return conversations(files, found, Export(TOOL, EXPECTED, looks_like, _ids, _chat), report)


def _ids(entry: dict[str, Any]) -> Iterable[object]:
    yield entry.get("id")
    tops = (item for item in entry["messages"] if _linked(item)[1] and item.get("parentId") is None)
    yield from (named_after(_nodes([item], Report())) for item in islice(tops, 1))


def _chat(entry: dict[str, Any], report: Report) -> Chat:
    head = entry.get("headId")
    return Chat(_nodes(entry["messages"], report), head if isinstance(head, str) else None)


def _nodes(items: Iterable[Any], report: Report) -> list[Node]:
    return keyed(map(_linked, items), _say, report)


def _linked(item: Any) -> tuple[object, Any]:
    """The id of a message, and the message with its link where `keyed` looks for it."""
    message = item.get("message") if isinstance(item, dict) else None
    if not isinstance(message, dict):
        return None, None
    said = {name: message.get(name) for name in ("role", "content", "parts", "createdAt")}
    return message.get("id"), {**said, PARENT: item["parentId"]} if "parentId" in item else said


def _say(node: Node, message: dict[str, Any]) -> None:
    """Read role, text and time."""
    role = message["role"]
    if isinstance(role, str) and role:
        node.role = role
    else:
        node.readable = False
    node.created = iso_time(message["createdAt"])
    node.text, known = _text(message["parts"] if message["content"] is None else message["content"])
    node.readable = node.readable and known


def _text(content: Any) -> tuple[str, bool]:
    """What was said, and whether all of it could be read."""
    if content is None or isinstance(content, str):
        return content or "", True
    if not isinstance(content, list):
        return "", False
    texts: list[str] = []
    known = True
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(kind, str) and (kind in _UNSAID or kind.startswith(_UNSAID_PREFIXES)):
            continue
        known = known and kind == "text" and isinstance(text, str)
        if isinstance(text, str) and text:
            texts.append(text)
    return "\n".join(texts), known
