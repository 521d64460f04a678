"""Where something is made of a path: a message that stays the same, whatever becomes of refs."""

from __future__ import annotations

from typing import NamedTuple

from branchmem import Message, Session, Store, View
from branchmem.errors.extract import InvalidExtraction


class Place(NamedTuple):
    """A message, its path, and the anchors of the view there."""

    store: Store
    anchor: str
    #: The message and all its ancestors, root first.
    path: tuple[str, ...]
    #: The message, and what the session stands beside.
    anchors: tuple[str, ...]

    def view(self) -> View:
        """What is visible there, as the log is now; what it hides is not counted."""
        return self.store.at(self.anchors, count=False)


def place_of(place: Session | Store, anchor: str | Message | None) -> Place:
    """A message of a store, by default where a session stands now; with a session, what that stands beside as well.

    Raises: InvalidExtraction for a store without an anchor; UnknownEvent where it is no message, or not attached.
    """
    at = anchor.id if isinstance(anchor, Message) else anchor
    beside: tuple[str, ...] = ()
    if isinstance(place, Session):
        store = place.store
        at = place.head if at is None else at
        beside = tuple(store.refs.heads(place.beside))
    else:
        store = place
    if not isinstance(at, str):
        raise InvalidExtraction("anchor", at, "a store stands nowhere: name a message, or pass a session")
    path = tuple(store.tree.path(at))
    return Place(store, at, path, (at, *(other for other in beside if other != at)))
