"""What became of an extraction: what is new, what was known, and what was refused or not shown, with the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from branchmem import Memory
from branchmem.extract.shown import Found


@dataclass(frozen=True, slots=True)
class Refused:
    """A memory that was found and not remembered, and why."""

    found: Found
    why: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        sources = None if self.found.sources is None else list(self.found.sources)
        return {"text": self.found.text, "sources": sources, "why": self.why}


@dataclass(frozen=True, slots=True)
class Extracted:
    """What became of an extraction."""

    #: Where it was read: what was found is visible here, unless it is `hidden`.
    anchor: str
    #: The messages that were shown, by their ids, oldest first.
    messages: tuple[str, ...] = ()
    #: What is new, in the order in which it was found.
    added: tuple[Memory, ...] = ()
    #: What was found and the log had already, visible or not.
    known: tuple[Memory, ...] = ()
    refused: tuple[Refused, ...] = ()
    #: Of what is new, the ids of what is not visible at the anchor: it comes from what was taken back.
    hidden: tuple[str, ...] = ()
    #: Which messages were not shown, and why nothing may be made of them: a sentence each.
    left_out: tuple[str, ...] = ()

    @property
    def memories(self) -> tuple[Memory, ...]:
        """What was found and is remembered: what is new, and what was known."""
        return (*self.added, *self.known)

    def joined(self, then: Extracted) -> Extracted:
        """With what became of the piece that was read then, at the same place."""
        return Extracted(
            self.anchor,
            (*self.messages, *then.messages),
            (*self.added, *then.added),
            (*self.known, *then.known),
            (*self.refused, *then.refused),
            (*self.hidden, *then.hidden),
            (*self.left_out, *then.left_out),
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "anchor": self.anchor,
            "messages": list(self.messages),
            "added": [memory.to_dict() for memory in self.added],
            "known": [memory.id for memory in self.known],
            "refused": [refused.to_dict() for refused in self.refused],
            "hidden": list(self.hidden),
            "left_out": list(self.left_out),
        }

    def __str__(self) -> str:
        counts = f"{len(self.messages)} messages read, {len(self.added)} memories added, {len(self.known)} known"
        return f"{counts}, {len(self.refused)} refused, at {self.anchor}"
