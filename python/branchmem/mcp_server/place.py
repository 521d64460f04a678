"""Where a call stands: the anchor travels with each call, and no connection has one of its own.

What the call gives as an argument comes first, then what its `_meta` says, then the ref of the server; where there is
nothing, nothing is guessed.  A name means what it means everywhere: a ref, or else a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from branchmem import Message, Store, new_id, refs
from branchmem.errors.mcp_server import InvalidAnchor, NoAnchor

#: Under this name a call may say in its `_meta` where it stands.
META: Final = "branchmem/anchor"


@dataclass(frozen=True, slots=True)
class Place:
    """A message of the log that is attached, and the ref that named it, if one did."""

    at: str
    ref: str | None

    @property
    def anchor(self) -> str:
        """What stands for the place in later calls: the ref, which moves on with its branch, or the message."""
        return self.at if self.ref is None else self.ref


def place(store: Store, name: str) -> Place:
    """The place that a name means.

    Raises: UnknownRef for what is neither a ref nor a message; AmbiguousName; BadAnchor where it is not attached.
    """
    at = refs.anchor_of(store, name)
    if store.tree.depth(at) is None:
        store.at(at, count=False).raise_for_problems()
    is_ref = at != name or name in store.refs
    return Place(at, name if is_ref else None)


def called_from(store: Store, argument: str, meta: Mapping[str, Any] | None, ref: str | None, *, wanted: str) -> Place:
    """Where a call stands that gives `argument` ("" for none) and `meta`, on a server with this ref.

    Raises: NoAnchor; InvalidAnchor where `meta` has one that is none; as `place`.
    """
    given = argument
    if not given and meta is not None and META in meta:
        given = meta[META]
        if not isinstance(given, str) or not given:
            raise InvalidAnchor(given)
    if not given and ref is not None:
        given = ref
    if not given:
        raise NoAnchor(wanted)
    return place(store, given)


def now(writer: Any, here: Place) -> Place:
    """A place inside a transaction: where its ref stands by now."""
    return here if here.ref is None else Place(refs.head(writer, here.ref), here.ref)


def apart(store: Store, writer: Any, here: Place, step: Message) -> tuple[Place, list[Message]]:
    """Where the branch of a ref stands by itself: at `step`, returned to be appended, where others share its place.

    Without that, what is added or taken back on one of two branches that stand at one message, as after a fork, would
    be so on the other.  An id is taken at its word: it means that message, whoever else goes on from there.
    """
    others = [name for name, at in refs.all_heads(writer).items() if at == here.at and name != here.ref]
    if here.ref is None or not (others or store.tree.children(here.at)):
        return here, []
    refs.write_move(writer, here.ref, step.id, "step")
    return Place(step.id, here.ref), [replace(step, parent=here.at)]


def step_alone() -> Message:
    """A message without a word, by which a branch goes on alone."""
    return Message(new_id(), None, role="checkpoint", created=datetime.now(UTC))
