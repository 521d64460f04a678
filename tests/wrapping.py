"""What the tests of wrapped clients share: what is asked, and what then stands in a session."""

from __future__ import annotations

from typing import Any

import branchmem as bm
from branchmem.extract import Found, Shown
from branchmem.session import Session


def turns(*texts: str) -> list[dict[str, Any]]:
    """Messages in turns, the user's first."""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def said(session: Session, at: str | None = None) -> list[str | None]:
    store = session.store
    path = [store.log.get(id) for id in store.tree.path(at or session.head)[1:]]
    return [message.text for message in path if isinstance(message, bm.Message)]


def receipt(session: Session) -> Any:
    message = session.store.log.get(session.head)
    return message.meta.get("recalled") if isinstance(message, bm.Message) else None


def memories(session: Session) -> list[str]:
    return sorted(memory.text for memory in session.view().memories())


def each_answer(shown: Shown) -> list[Found]:
    """An extractor: the answer says one thing."""
    return [Found(f"m: {shown.messages[-1].text}", sources=(shown.messages[-1].id,))]


def ask(client: Any, messages: list[Any], **options: Any) -> Any:
    return client.chat.completions.create(model="m", messages=messages, **options)
