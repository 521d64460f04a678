"""Conversations that several tests are about, and the answers of a view in short."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from branchmem import LEGACY, Memory, Message, Reason

# One conversation with an edit (u1, u1x) and a regenerated answer (a2, a2x), and another beside it.
CHAT = [
    Message("c", None),
    Message("u1", "c"),
    Message("a1", "u1"),
    Message("u2", "a1"),
    Message("a2", "u2"),
    Message("a2x", "u2"),
    Message("u1x", "c"),
    Message("a1x", "u1x"),
]
OTHER = [Message("d", None), Message("v1", "d"), Message("v2", "v1")]


def fact(id: str, *sources: str, derived_from: Iterable[str] = (), **fields: Any) -> Memory:
    return Memory(id, f"text of {id}", sources=sources, derived_from=derived_from, **fields)


# What strict hides at every anchor, each for one reason of its own; home and edit are sound.
FLAWED = [
    *CHAT,
    Message("old", LEGACY),
    Message("orphan", "not here"),
    fact("home", "u1"),
    fact("edit", "u1x"),
    fact("no source"),
    fact("no upstream", "u1", derived_from=["nothing"]),
    fact("missing source", "u1", "gone"),
    fact("legacy source", "old"),
    fact("detached source", "orphan"),
    fact("p", "u1", derived_from=["q"]),
    fact("q", "u1", derived_from=["p"]),
    fact("below p", "u1", derived_from=["p"]),
]
IN_A_CIRCLE = {"p", "q", "below p"}


def shown(view: Any) -> set[str]:
    return set(view.ids())


def listed(admitted: dict[Reason, int] | None = None, unlisted: int = 0) -> dict[str, Any]:
    """The counters where nothing has been hidden by name."""
    return {"hidden": {}, "admitted": admitted or {}, "unlisted": unlisted}


# The user edits where they are moving to.
MOVING = [
    Message("chat", parent=None, role="thread"),
    Message("u1", parent="chat", role="user", text="I'm moving to Chengdu"),
    Memory("home", "The user is moving to Chengdu", sources=["u1"]),
    Message("u1-edit", parent="chat", role="user", text="I'm moving to Hangzhou"),
]
