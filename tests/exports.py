"""Files to import: samples of exports, and conversations as exports spell them; a log that takes them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from branchmem import importers
from branchmem.events import Event, Message
from branchmem.importers import Report

SAMPLES = Path(__file__).parent / "samples" / "chatgpt"
OPEN_WEBUI = Path(__file__).parent / "samples" / "open_webui"
READABLE = sorted(path.name for path in SAMPLES.glob("*.json") if path.name != "owimp_invalid_unicode.json")
SEED = 20260301


class Log(dict[str, Event]):
    """A log in memory: it takes batches, and refuses what it has."""

    def append(self, events: Sequence[Event]) -> None:
        assert len(events) <= importers.BATCH
        for event in events:
            assert event.id not in self
            self[event.id] = event

    def take(self, path: Path, **rest: Any) -> Report:
        return importers.import_file(path, append=self.append, stored=self.get, erased=never, **rest)

    def message(self, id: str) -> Message:
        event = self[id]
        assert isinstance(event, Message)
        return event


def never(id: str) -> bool:
    """What a log says of which nothing was erased."""
    return False


def stored_in(store: Any) -> Callable[[str], Event | None]:
    """What an importer asks of a store."""

    def stored(id: str) -> Event | None:
        event: Event | None = store.log.get(id) if id in store.log else None
        return event

    return stored


def counted(report: Report) -> dict[str, int]:
    return {name: count for name, count in report.counters().items() if count}


def parents(log: Mapping[str, Event]) -> dict[str, object]:
    return {id: event.parent for id, event in log.items() if isinstance(event, Message)}


def node(parent: object = None, text: object = None, role: str = "user", **rest: object) -> dict[str, object]:
    """A node with a text, or without a message."""
    if text is None:
        return {"parent": parent, "children": [], "message": None, **rest}
    content = {"content_type": "text", "parts": [text]}
    return {"parent": parent, "children": [], "message": {"author": {"role": role}, "content": content}, **rest}


def conversation(mapping: object, **rest: object) -> dict[str, object]:
    return {"id": "c", "mapping": mapping, **rest}


def said(parent: object, content: object, role: str = "user", **rest: object) -> dict[str, object]:
    """A message of Open WebUI."""
    return {"parentId": parent, "childrenIds": [], "role": role, "content": content, **rest}


def chat(messages: object, current: object = None, **rest: object) -> dict[str, Any]:
    """A chat of Open WebUI in its row."""
    return {"id": "c", "chat": {"history": {"messages": messages, "currentId": current}}, **rest}
