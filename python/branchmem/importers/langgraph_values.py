"""What a LangGraph checkpoint says, read from its bytes; nothing in them is ever called or imported.

LangGraph writes values as msgpack, whose extension types name a class and what
to build it from; older releases wrote JSON that does the same.  Its own reader
imports that class.  This one keeps an extension closed, and opens only two: a
message of LangChain, of which it takes the fields, and the snapshot of a list.
What is of any other class is not read: it stays as it was written, and counts as
not readable.  Values of type `pickle` are refused like every unknown type.

What a message says is its role, its content, its name, and the calls of tools
it makes or answers.  Ids of answers, usage and what else providers add are not
part of it, so that a message which only gained these is the same message.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgpack

#: The channel in which LangGraph keeps the messages of a conversation.
CHANNEL: Final = "messages"

#: Types of extensions: objects from keyword arguments, from the fields of a pydantic model; and a snapshot.
_KEYWORDS: Final = 2
_FIELDS: Final = (4, 5)
_SNAPSHOT: Final = 7
_MODULES: Final = ("langchain_core.messages", "langchain.schema.messages", "langchain_core.messages.base")
_ROLES: Final = {
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
    "ChatMessage": None,
}
_ROLES_BY_TYPE: Final = {"human": "user", "ai": "assistant", "function": "tool"}
#: What a message says, whoever wrote it.
_SAID: Final = ("content", "name", "tool_calls", "invalid_tool_calls", "tool_call_id")


class Unreadable(ValueError):
    """Bytes that hold no value that may be read."""


class Closed(NamedTuple):
    """An extension that was not opened."""

    code: int
    data: bytes


class State(NamedTuple):
    """A checkpoint: when it was taken, and the entries of its list of messages, None where it has no such list."""

    taken: datetime | None
    entries: list[Any] | None


class Said(NamedTuple):
    """An entry of a list of messages.

    `key` tells it from the others of its list: the id that LangGraph gave it, else its content.  `digest` stands for
    what it says.  `readable` is whether all of it could be read.
    """

    key: str
    id: str | None
    digest: str
    role: str | None
    text: str | None
    readable: bool


def unpacked(type: object, data: object) -> Any:
    """A value as it was written, extensions closed.  Raises: Unreadable."""
    if type == "null" or data is None:
        return None
    if not isinstance(data, bytes):
        raise Unreadable(f"a value of bytes, not of {data.__class__.__name__}")
    try:
        if type == "msgpack":
            return msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=Closed)
        if type == "json":
            return json.loads(data)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Unreadable(f"a value in {type} ({error})"[:200]) from None
    raise Unreadable(f"a value in msgpack or json, not in {type!r:.40}")


def state(checkpoint: Any) -> State:
    """A checkpoint that holds the values of its channels.  Raises: Unreadable."""
    values = checkpoint.get("channel_values") if isinstance(checkpoint, dict) else None
    if not isinstance(values, dict):
        raise Unreadable("a checkpoint with channel_values")
    versions = checkpoint.get("channel_versions")
    if CHANNEL not in values and isinstance(versions, dict) and CHANNEL in versions:
        raise Unreadable(f"the whole list of {CHANNEL}")
    return State(time(checkpoint.get("ts")), entries(values.get(CHANNEL)))


def entries(value: Any) -> list[Any] | None:
    """The entries of a list of messages, or of a snapshot of one; None where there is none.  Raises: Unreadable."""
    if isinstance(value, Closed) and value.code == _SNAPSHOT:
        value = unpacked("msgpack", value.data)
    if value is None or isinstance(value, list):
        return value
    raise Unreadable(f"a list of {CHANNEL}")


def has_parts_only(metadata: object) -> bool:
    """Whether the metadata of a checkpoint say that its list of messages is kept in parts, by a DeltaChannel."""
    if not isinstance(metadata, dict):
        return False
    counters = metadata.get("counters_since_delta_snapshot")
    return "delta_writes_versioned" in metadata or (isinstance(counters, dict) and CHANNEL in counters)


def time(value: object) -> datetime | None:
    """A time as checkpoints spell it; None for whatever is none."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)


def mark(entry: Any) -> bytes | None:
    """What tells the bytes of an entry from those of others; None where it was not kept as bytes."""
    return hashlib.blake2b(entry.data, digest_size=16).digest() if isinstance(entry, Closed) else None


def said(entry: Any) -> Said:
    """What an entry of a list of messages says; what cannot be read has no role and no text."""
    try:
        role, fields = _opened(entry)
        form = _canonical([role, *(fields.get(name) or None for name in _SAID)])
    except (Unreadable, TypeError, ValueError, RecursionError):
        digest = _hash(b"?", _written(entry))
        return Said(f"?{digest}", None, digest, None, None, readable=False)
    digest = _hash(b"", form)
    id = fields.get("id")
    id = id if isinstance(id, str) and id else None
    text, known = _text(fields.get("content"))
    return Said(digest if id is None else f"={id}", id, digest, role, text, known and role is not None)


def _opened(entry: Any) -> tuple[str | None, dict[str, Any]]:
    """The role and the fields of a message.  Raises: Unreadable where it is none, or of a class that is not known."""
    named: str | None = None
    if isinstance(entry, Closed):
        if entry.code != _KEYWORDS and entry.code not in _FIELDS:
            raise Unreadable("a message")
        parts = unpacked("msgpack", entry.data)
        if not isinstance(parts, list) or len(parts) < 3:
            raise Unreadable("a message")
        module, named, entry = parts[:3]
        if not _is_known(module, named):
            raise Unreadable("a message of LangChain")
    elif isinstance(entry, dict) and entry.get("type") == "constructor" and isinstance(entry.get("id"), list):
        *modules, named = entry["id"] or [None]
        if not _is_known(".".join(map(str, modules)), named):
            raise Unreadable("a message of LangChain")
        entry = entry.get("kwargs")
    if not isinstance(entry, dict):
        raise Unreadable("a message")
    return _role(named, entry), entry


def _is_known(module: object, name: object) -> bool:
    """Whether this is a class of messages of LangChain."""
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    return name.removesuffix("Chunk") in _ROLES and any(
        module == known or module.startswith(f"{known}.") for known in _MODULES
    )


def _role(named: str | None, fields: dict[str, Any]) -> str | None:
    """Who says a message: by its class, else by its role, else by its type."""
    role = None if named is None else _ROLES[named.removesuffix("Chunk")]
    if role is not None:
        return role
    given = fields.get("role") or fields.get("type")
    return _ROLES_BY_TYPE.get(given, given) if isinstance(given, str) and given else None


def _text(content: Any) -> tuple[str, bool]:
    """A string as it is, of a list the strings and the blocks of text, a line each; whether all of it was known."""
    if content is None or isinstance(content, str):
        return content or "", True
    if not isinstance(content, list):
        return "", False
    texts = [
        part if isinstance(part, str) else part.get("text")
        for part in content
        if isinstance(part, str) or (isinstance(part, dict) and part.get("type") == "text")
    ]
    known = all(isinstance(part, (str, dict)) for part in content)
    return "\n".join(text for text in texts if isinstance(text, str) and text), known


def _canonical(value: Any) -> bytes:
    """The same bytes for the same value, whatever the order of its fields."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Closed):
        return {"code": value.code, "data": value.data.hex()}
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def _written(entry: Any) -> bytes:
    """Something to tell entries by that cannot be read: all of them are alike that are nested too deep."""
    try:
        return entry.data if isinstance(entry, Closed) else repr(entry).encode(errors="replace")
    except RecursionError:
        return b""


def _hash(kind: bytes, form: bytes) -> str:
    return hashlib.sha256(kind + form).hexdigest()
