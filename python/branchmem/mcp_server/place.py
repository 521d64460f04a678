"""Where a call stands: the anchor travels with each call, and no connection has one of its own.

What the call gives as an argument comes first, then what its `_meta` says, then the ref of the server; where there is
nothing, nothing is guessed.  A name means what it means everywhere: a ref, or else a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from branchmem import Store
from branchmem.errors.mcp_server import InvalidAnchor, NoAnchor
from branchmem.refs import anchor_of

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
    at = anchor_of(store, name)
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
