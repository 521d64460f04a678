"""What the tests of recall share: a chain of messages, what is remembered from it, and what of that is in a text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import branchmem as bm
from branchmem import Memory, Message
from branchmem.events import Event
from branchmem.recall import Recalled

#: A time to come, as of which nothing that was made then has begun to fade.
NOON = datetime(2126, 3, 1, 12, tzinfo=UTC)


def chain(length: int, *, below: str | None = None, name: str = "m") -> list[Message]:
    """Messages, each below the one before it."""
    ids = [f"{name}{number}" for number in range(length)]
    return [Message(id, parent) for id, parent in zip(ids, [below, *ids], strict=False)]


def said(number: int, text: str, *, at: str, **fields: Any) -> Memory:
    return Memory(f"k{number}", text, sources=[at], **fields)


def opened(*events: Event) -> bm.Store:
    store = bm.open_temporary()
    store.append(events)
    return store


def bullets(recalled: Recalled) -> list[str]:
    return [line for line in recalled.text.splitlines() if line.startswith("- ")]
