"""What a log was told, without the rule: its events as they came, and the forest that its messages form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from branchmem.errors import UnknownEvent
from branchmem.events import TYPES, Event, Legacy, Memory, Message

if TYPE_CHECKING:
    from branchmem.reference import Reference


class ReferenceLog:
    """The unfiltered truth: every event, in the order in which it was accepted; of an erased one what stays."""

    def __init__(self, reference: Reference, events: Mapping[str, Event]) -> None:
        self._reference = reference
        self._events = events

    def is_erased(self, id: str) -> bool:
        """Whether the content of a message or memory of the log has been erased."""
        return self._reference.is_erased(id)

    def get(self, id: str) -> Event:
        """The event `id`.  Raises: UnknownEvent."""
        if id not in self._events:
            raise UnknownEvent(id)
        return self._events[id]

    def find(self, text: str) -> Iterator[Event]:
        """The messages and memories whose text contains `text`, visible or not."""
        told = (event for event in list(self._events.values()) if isinstance(event, Message | Memory))
        return (event for event in told if text in (event.text or ""))

    def __contains__(self, id: object) -> bool:
        return id in self._events

    def __len__(self) -> int:
        return len(self._events)

    def events(self, start: int = 0, stop: int | None = None, type: str | None = None) -> Iterator[Event]:
        """The events at positions `start` to `stop`, of one type or of all."""
        if type not in (None, *TYPES):
            raise ValueError(f"type must be one of {', '.join(TYPES)}, or None for all, not {type!r:.80}")
        end = len(self._events) if stop is None else max(stop, 0)
        return (event for event in list(self._events.values())[max(start, 0) : end] if type in (None, event.type))


class ReferenceTree:
    """The forest of messages.  All raise UnknownEvent for what is no message of the log."""

    def __init__(self, reference: Reference, messages: Mapping[str, Message]) -> None:
        self._reference = reference
        self._messages = messages

    def parent(self, id: str) -> str | Legacy | None:
        """What the message continues: None for a root, LEGACY where it was never recorded."""
        return self._known(id).parent

    def children(self, id: str) -> list[str]:
        """The messages directly below, in order of arrival, attached or not."""
        self._known(id)
        return [message.id for message in self._messages.values() if message.parent == id]

    def siblings(self, id: str) -> tuple[list[str], int]:
        """All that name the same parent, itself included, and its index.  Tops of trees are siblings."""
        parent = self._known(id).parent
        same = self.roots()
        if isinstance(parent, str):
            same = [message.id for message in self._messages.values() if message.parent == parent]
        return same, same.index(id)

    def path(self, id: str) -> list[str]:
        """The message and all above it, root first.  Raises: UnknownEvent for what is missing there."""
        self._known(id)
        climbed = list(self._reference._climb(id))
        above = self._messages[climbed[-1]].parent
        if above in self._messages:
            raise UnknownEvent(id, "root above, since parents run in a circle, the message")
        if isinstance(above, str):
            raise UnknownEvent(above, f"parent of message {climbed[-1]}, message")
        return climbed[::-1]

    def depth(self, id: str) -> int | None:
        """How many messages stand above; None where one above is missing."""
        self._known(id)
        try:
            return len(self.path(id)) - 1
        except UnknownEvent:
            return None

    def roots(self) -> list[str]:
        """The tops of all trees, legacy ones too, in order of arrival."""
        return [message.id for message in self._messages.values() if not isinstance(message.parent, str)]

    def leaves(self, root: str | None = None) -> list[str]:
        """Attached messages without children, in order of arrival; or those at or below `root`, attached or not."""
        parents = {message.parent for message in self._messages.values()}
        ends = [id for id in self._messages if id not in parents]
        if root is None:
            return [id for id in ends if self._reference._place(id)]
        self._known(root)
        return [id for id in ends if root in self._reference._climb(id)]

    def latest_leaf(self, id: str) -> str:
        """The leaf at or below an attached message that arrived last."""
        self.path(id)
        return self.leaves(id)[-1]

    def is_ancestor(self, a: str, b: str) -> bool:
        """Whether `a` is `b` or stands above it, as far as links are known."""
        self._known(a)
        self._known(b)
        return a in self._reference._climb(b)

    def common_ancestor(self, a: str, b: str) -> str | None:
        """The deepest message at or above both; None in two trees."""
        self._known(a)
        self._known(b)
        above = set(self._reference._climb(a))
        return next((id for id in self._reference._climb(b) if id in above), None)

    def _known(self, id: str) -> Message:
        if id not in self._messages:
            raise UnknownEvent(id, "message")
        return self._messages[id]
