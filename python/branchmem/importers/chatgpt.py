"""ChatGPT exports: `conversations.json`, a shard of it, or one conversation.

A conversation is an object with a `mapping` from keys to nodes.  The key is
the identity of a node, whatever its `id` says, and `parent` is its parent;
`children` rank siblings, and give a parent only to a node that has no `parent`
key.  Only identity, parent, role, text and time of creation are read: what
changes from export to export stays out.

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

A node without a message holds its place too, without role, text or time.  One
whose parent cannot be read hangs below a parent that does not exist: it is
kept, and nothing below it is shown until an export says better.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from branchmem.errors import ImportFailed
from branchmem.importers.linker import Leaf, Record, Report, event_id, repaired

TOOL: Final = "chatgpt"
EXPECTED: Final = "a ChatGPT export, conversations that each have a `mapping`"

# Stands for a parent that cannot be read, in ids of messages that do not exist.
_UNREADABLE: Final = "?"
_UNRANKED: Final = 1 << 62
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
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


class Repeated(dict[str, Any]):
    """A JSON object in which a key stands more than once: a dict of the last values, `pairs` of all."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def parse(path: str, data: bytes) -> Any:
    """The JSON value in `data`; ImportFailed names the byte at fault."""
    if data.startswith(b"PK\x03\x04"):
        raise ImportFailed(path, "byte 0", f"{EXPECTED}, not an archive: unpack it and import its conversations.json")
    mark = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    try:
        text = data[mark:].decode()
    except UnicodeDecodeError as error:
        raise ImportFailed(path, f"byte {mark + error.start}", f"{EXPECTED}, in UTF-8") from None
    if not text.strip():
        raise ImportFailed(path, "byte 0", f"{EXPECTED}, not an empty file")
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        place = mark + len(text[: error.pos].encode())
        raise ImportFailed(path, f"byte {place}", f"{EXPECTED}, in JSON ({error.msg})") from None
    except RecursionError:
        raise ImportFailed(path, "byte 0", f"{EXPECTED}, in JSON that is nested less deeply") from None
    except ValueError as error:
        raise ImportFailed(path, "byte 0", f"{EXPECTED}, in JSON ({error})") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    return made if len(made) == len(pairs) else Repeated(pairs)


def records(path: str, value: object, report: Report) -> tuple[list[Record], dict[str, Leaf]]:
    """The records of all conversations in a parsed export, and the leaf that each declares, by root.

    What cannot be read is counted in `report.unknown_types`; where no entry has
    a message, ImportFailed.
    """
    entries = _entries(path, value)
    found: list[Record] = []
    leaves: dict[str, Leaf] = {}
    for entry in entries:
        mapping = entry.get("mapping") if isinstance(entry, dict) else None
        if not isinstance(mapping, dict) or not mapping:
            report.unknown_types += 1
            continue
        nodes = _nodes(mapping, report)
        conversation = _conversation(entry, nodes, report)
        root = event_id(TOOL, conversation)
        found.extend(_record(root, conversation, node) for node in nodes)
        current = entry.get("current_node")
        if isinstance(current, str):
            leaves[root] = Leaf(event_id(TOOL, conversation, current), "declared")
    if not found:
        first = entries[0] if entries else None
        keys = f", not {', '.join(f'{key!r:.40}' for key in [*first][:8])}" if isinstance(first, dict) and first else ""
        raise ImportFailed(path, "entry 0", f"{EXPECTED}{repaired(keys)[0]}")
    return found, leaves


def _entries(path: str, value: object) -> list[Any]:
    if isinstance(value, dict):
        if "mapping" in value:
            return [value]
        value = value.get("conversations")
    if not isinstance(value, list):
        raise ImportFailed(path, "the top level", f"{EXPECTED}: a list of them, one, or an object with `conversations`")
    return value


@dataclass(slots=True)
class _Node:
    """One entry of a mapping, read.

    `unlinked` where there is no `parent` key, `astray` where what stands there
    cannot be read, `suggested` where a list of children gives the parent.
    """

    key: str
    parent: str | None = None
    suggested: str | None = None
    unlinked: bool = False
    astray: bool = False
    order: int = _UNRANKED
    role: str | None = None
    text: str | None = None
    created: datetime | None = None
    readable: bool = True


def _nodes(mapping: dict[str, Any], report: Report) -> list[_Node]:
    """The nodes of a conversation in the order of the file; each that is not quite readable is counted once."""
    pairs: Iterable[tuple[str, Any]] = mapping.pairs if isinstance(mapping, Repeated) else mapping.items()
    nodes: list[_Node] = []
    ranks: dict[tuple[str, str], int] = {}
    for key, value in pairs:
        whole, count = repaired(key)
        report.replaced += count
        node = _Node(whole)
        _read_links(node, value, ranks)
        if isinstance(value, dict) and value.get("message") is not None:
            _read_message(node, value["message"])
        nodes.append(node)
    _suggest_parents(nodes, ranks)
    for node in nodes:
        above = node.suggested if node.parent is None else node.parent
        if above is not None:
            node.order = ranks.get((above, node.key), _UNRANKED)
        report.unknown_types += not node.readable
    return nodes


def _read_links(node: _Node, value: Any, ranks: dict[tuple[str, str], int]) -> None:
    """Read what the node says of its parent, and rank its children."""
    if not isinstance(value, dict):
        node.unlinked, node.astray, node.readable = True, True, False
        return
    parent = value.get("parent")
    if "parent" not in value:
        node.unlinked = True
    elif isinstance(parent, str):
        node.parent = repaired(parent)[0]
    elif type(parent) is int:
        node.parent, node.readable = str(parent), False
    elif parent is not None:
        node.astray, node.readable = True, False
    children = value.get("children")
    if isinstance(children, list):
        for rank, child in enumerate(children):
            if isinstance(child, str):
                ranks.setdefault((node.key, repaired(child)[0]), rank)
            else:
                node.readable = False
    elif children is not None:
        node.readable = False


def _suggest_parents(nodes: Iterable[_Node], ranks: Iterable[tuple[str, str]]) -> None:
    """Give each node without a `parent` key the one other node that lists it as a child.

    Listed by nobody it is a root; listed by several, its parent cannot be known.
    Either way of being listed is a fault of the file, and counted as such.
    """
    unlinked = {node.key: node for node in nodes if node.unlinked}
    if not unlinked:
        return
    listers: dict[str, list[str]] = {}
    for lister, child in ranks:
        if child in unlinked and lister != child:
            listers.setdefault(child, []).append(lister)
    for key, found in listers.items():
        node = unlinked[key]
        node.readable = False
        node.astray = len(found) > 1
        node.suggested = None if node.astray else found[0]


def _read_message(node: _Node, message: Any) -> None:
    """Read role, text and time."""
    if not isinstance(message, dict):
        node.readable = False
        return
    author, content, metadata = (message.get(name) for name in ("author", "content", "metadata"))
    role = author.get("role") if isinstance(author, dict) else None
    if isinstance(role, str) and role:
        node.role = role
    else:
        node.readable = False
    node.created = _time(message.get("create_time"))
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
        return _joined(content.get(field))
    found = (_joined(content.get(field))[0] for field in _FIELDS)
    return next(filter(None, found), ""), False


def _joined(value: Any) -> tuple[str, bool]:
    """A string as it is, a list of parts a line each; and whether all of it could be read."""
    if value is None or isinstance(value, str):
        return value or "", True
    if not isinstance(value, list):
        return "", False
    texts = [part.get("text") if isinstance(part, dict) else part for part in value]
    known = all(part is None or isinstance(part, (str, dict)) for part in value)
    return "\n".join(text for text in texts if isinstance(text, str) and text), known


def _time(value: Any) -> datetime | None:
    """Seconds since 1970 as a time; None for whatever is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return _EPOCH + timedelta(seconds=value)
    except (OverflowError, ValueError):  # beyond the calendar, or not a number
        return None


def _conversation(entry: dict[str, Any], nodes: Sequence[_Node], report: Report) -> str:
    """`conversation_id`, else `id`, else `~` and a hash of its top nodes: key, role and text, by key."""
    for name in ("conversation_id", "id"):
        given = entry.get(name)
        if isinstance(given, str) and given:
            whole, count = repaired(given)
            report.replaced += count
            return whole
    keys = {node.key for node in nodes}
    tops = [node for node in nodes if node.suggested is None and node.parent not in keys]
    form = json.dumps(sorted([node.key, node.role or "", node.text or ""] for node in tops))
    return "~" + hashlib.sha256(form.encode()).hexdigest()[:16]


def _record(root: str, conversation: str, node: _Node) -> Record:
    parent = f"{_UNREADABLE}:{node.key}" if node.astray else node.parent
    return Record(
        conversation=root,
        id=event_id(TOOL, conversation, node.key),
        parent=None if parent is None else event_id(TOOL, conversation, parent),
        logical_parent=None if node.suggested is None else event_id(TOOL, conversation, node.suggested),
        order=node.order,
        role=node.role,
        text=node.text,
        created=node.created,
        usable=not node.unlinked and not node.astray,
    )
