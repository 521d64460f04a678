"""What a Mem0 that stands at a place of the tree refuses."""

from __future__ import annotations

from collections.abc import Iterable

from branchmem.errors.base import Error, short


class SourceElsewhere(Error, ValueError):
    """A source is not on the path where a Mem0 stands, so that what comes from it would be hidden there."""

    def __init__(self, source: str, anchors: Iterable[str]) -> None:
        anchors = tuple(anchors)
        super().__init__(source, anchors)
        self.source = source
        self.anchors = anchors

    def explanation(self) -> str:
        return (
            f"source {short(self.source)} is not on the path of {', '.join(map(short, self.anchors))}: "
            "name messages at or above it, or stand elsewhere"
        )


class DeleteInStep(Error):
    """In an open step nothing can be taken back from the step's message on, which is not in the log yet.

    `memories` were to be deleted, `id` is that of the message.
    """

    def __init__(self, id: str, memories: Iterable[str]) -> None:
        memories = tuple(memories)
        super().__init__(id, memories)
        self.id = id
        self.memories = memories

    def explanation(self) -> str:
        return (
            f"{len(self.memories)} memories cannot be deleted in step {short(self.id)}, which is still open: "
            "delete them at its message once it has ended; an update can replace them now"
        )


class NotCovered(Error, TypeError):
    """Something of a Mem0 would pass by the views; `part` names it."""

    def __init__(self, part: str, way_out: str) -> None:
        super().__init__(part, way_out)
        self.part = part
        self.way_out = way_out

    def explanation(self) -> str:
        return f"{self.part} of Mem0 knows no branches: {self.way_out}"
