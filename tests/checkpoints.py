"""Databases of LangGraph checkpoints, written without LangGraph: its tables, and messages as it packs them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack

SAMPLE = Path(__file__).parent / "samples" / "langgraph" / "branching_checkpoints.sqlite"
TAKEN = "2026-03-01T10:00:00+00:00"
TABLES = """create table checkpoints (
    thread_id text not null, checkpoint_ns text not null default '', checkpoint_id text not null,
    parent_checkpoint_id text, type text, checkpoint blob, metadata blob,
    primary key (thread_id, checkpoint_ns, checkpoint_id))"""
_MODULES = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage", "system": "SystemMessage"}


def message(content: Any, id: str | None = None, type: str = "human", **fields: Any) -> msgpack.ExtType:
    """A message of LangChain as LangGraph packs it: the fields of a pydantic model."""
    name = _MODULES[type]
    told = {"content": content, "type": type, "id": id, "response_metadata": {}, **fields}
    return packed(f"langchain_core.messages.{type}", name, told)


def packed(module: str, name: str, told: Any, *, code: int = 5) -> msgpack.ExtType:
    return msgpack.ExtType(code, msgpack.packb([module, name, told, "model_validate_json"]))


def checkpoint(entries: Any, taken: str | None = TAKEN, **values: Any) -> bytes:
    """A checkpoint with this list of messages, None for one without."""
    values = {**values} if entries is None else {**values, "messages": entries}
    told = {"v": 4, "ts": taken, "channel_values": values, "channel_versions": dict.fromkeys(values, "1")}
    return bytes(msgpack.packb(told))


def database(path: Path, *rows: Sequence[Any], journal: str = "delete") -> Path:
    """A file of SQLite with these checkpoints: id, parent, entries or bytes; then thread and namespace."""
    connection = sqlite3.connect(path)
    connection.execute(f"pragma journal_mode = {journal}")
    connection.execute(TABLES)
    write(connection, *rows)
    connection.close()
    return path


def write(connection: sqlite3.Connection, *rows: Sequence[Any]) -> None:
    rest: tuple[Any, ...] = ("t", "", {"source": "loop"}, "msgpack")
    for row in rows:
        id, parent, entries, thread, namespace, metadata, type = [*row, *rest[len(row) - 3 :]]
        said = entries if isinstance(entries, bytes) else checkpoint(entries)
        told = json.dumps(metadata).encode()
        connection.execute(
            "insert into checkpoints values (?, ?, ?, ?, ?, ?, ?)", (thread, namespace, id, parent, type, said, told)
        )
    connection.commit()
