"""Which ids a verb may name, and which more it has to.

An event may name what is still to come; a verb is called by somebody who looks at the log, so an
id that is not in it is taken for a slip.  Nothing here writes or decides what is visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from branchmem.errors import InvalidEvent, UnknownEvent
from branchmem.events import skeleton_fields

if TYPE_CHECKING:
    from branchmem import _core


NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class NotInLog(UnknownEvent):
    """A verb names an id that the log does not have; `by_hand` is the event that may name it all the same."""

    def __init__(self, id: str, wanted: str, by_hand: str) -> None:
        super().__init__(id, wanted)
        self.args = (id, wanted, by_hand)
        self.by_hand = by_hand

    def explanation(self) -> str:
        return (
            f"no {self.wanted} {self.id} in the log: check the id, and which store is open; "
            f"if it is still to come, append a {self.by_hand} yourself"
        )


def require(
    engine: _core.Engine,
    ids: Iterable[str],
    wanted: str,
    *,
    by_hand: str | None = None,
    instead: Mapping[str, str] = NOTHING,
) -> None:
    """Refuse an id that does not bear an event of the type `wanted`.

    Raises: NotInLog, or UnknownEvent where no event could name it either (`by_hand` is None); InvalidEvent for what
    is of another type, for some of which there is something to do `instead`.
    """
    for id in ids:
        found = fields(engine, id)
        if not found:
            raise UnknownEvent(id, wanted) if by_hand is None else NotInLog(id, wanted, by_hand)
        if found["type"] != wanted:
            way_out = instead.get(found["type"], f"name a {wanted}")
            raise InvalidEvent(f"{id} is a {found['type']}, not a {wanted}: {way_out}", id)


def targets(engine: _core.Engine, ids: Iterable[str]) -> None:
    """Refuse ids of what cannot be erased; those of nothing here are named for what is still to come."""
    for id in ids:
        if fields(engine, id).get("type", "message") not in ("message", "memory"):
            raise InvalidEvent(
                f"{id} is neither message nor memory: only their content can be erased, so name those that hold it", id
            )


def fields(engine: _core.Engine, id: str) -> dict[str, Any]:
    """The fields of the skeleton of an event; none where the log does not have it."""
    found = engine.skeleton(id)
    return skeleton_fields(found[1]) if found else {}


def with_older_versions(engine: _core.Engine, memories: Iterable[str]) -> list[str]:
    """The memories, and all that they replace over any number of steps, here or not.  O(answer)."""
    reached = dict.fromkeys(memories)
    waiting = list(reached)
    while waiting:
        given = fields(engine, waiting.pop())
        for id in given.get("supersedes", ()) if given.get("type") == "memory" else ():
            if id not in reached:
                reached[id] = None
                waiting.append(id)
    return list(reached)


def deepest_a_tree(engine: _core.Engine, messages: Iterable[str]) -> tuple[str, ...]:
    """Where one stands to have said all of this: of the attached messages, the deepest of each tree.

    Of messages on two branches of a tree it keeps one: no single anchor has both on its path.
    """
    kept: list[str] = []
    for id in messages:
        if not (engine.is_message(id) and engine.is_attached(id)):
            continue
        at = next((place for place, other in enumerate(kept) if engine.common_ancestor(id, other) is not None), None)
        if at is None:
            kept.append(id)
        elif engine.is_ancestor(kept[at], id):
            kept[at] = id
    return tuple(kept)
