"""What can be asked of an engine, with or without a file behind it.

Names and shapes of `Engine` and `Store` live here once.  Nothing here decides
what is visible: each question is one call of the compiled engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from branchmem import _core
from branchmem.errors import StoreBehind, UnknownEvent
from branchmem.events import Legacy, Memory, skeleton_fields
from branchmem.verdict import STRICT, Policy, Reason

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Many = Sequence[str] | Sequence[int] | NDArray[np.integer[Any]]

Anchor = str | Iterable[str] | None
_T = TypeVar("_T")

_UNKNOWN = (1 << 32) - 1
_PAGE = 10_000


class Questions:
    """Views, pairs, bitmaps, ordinals, topology and counters.  Safe under threads."""

    #: The vectors of the embedder, once they were asked for: what `view.nearest` needs, if the log has not changed.
    _nearby: _core.Vectors | None = None

    def __init__(self) -> None:
        self._engine = _core.Engine(int.from_bytes(os.urandom(8), "big"))

    def _fresh(self) -> _core.Engine:
        """The engine, having seen what others appended."""
        return self._engine

    def _look(self) -> None:
        """Let the views that are held see what others appended, before they say what the log is now."""

    @property
    def seq(self) -> int:
        """How many events were accepted: the position after the latest one."""
        return self._fresh().seq

    def at(
        self, anchor: Anchor, *, policy: Policy = STRICT, min_seq: int | None = None, count: bool = True
    ) -> _core.View:
        """The view at an anchor, at several (one a tree), or without one.

        Raises: AmbiguousAnchor for two anchors in one tree; StoreBehind where the log has not
        reached `min_seq`.  An anchor that cannot be used is a problem of the view, no error.
        Cost: the path and what is visible there, not how much is remembered elsewhere.
        """
        engine = self._fresh()
        if min_seq is not None and engine.seq < min_seq:
            raise StoreBehind(engine.seq, min_seq)
        return engine.at(self, anchor, policy, count)

    def visible(self, memories: Many, anchors: Many, *, policy: Policy = STRICT) -> NDArray[np.bool_]:
        """Whether memory i is visible at anchor i: bool (n,).  Takes ids or ordinals of either.

        Raises: UnknownEvent for an ordinal that is none; an unknown id is not visible.
        Cost: one comparison a pair in strict.
        """
        import numpy as np

        engine = self._fresh()
        pairs = (
            _ordinals(memories, engine.memory_ordinals, engine.memory_count(), "memory"),
            _ordinals(anchors, engine.message_ordinals, engine.message_count(), "message"),
        )
        found = engine.visible(*pairs, policy, lambda count: np.empty(count, np.uint8))
        return found.view(np.bool_)

    def bitmaps(self, anchors: Iterable[Anchor], *, policy: Policy = STRICT) -> NDArray[np.uint8]:
        """A bitmap an anchor, each as `at` takes it: uint8 (n, ceil(memories / 8)), little-endian bits."""
        import numpy as np

        return self._fresh().bitmaps(listed(anchors), policy, lambda shape: np.empty(shape, np.uint8))

    @property
    def memory_ids(self) -> Ids:
        """The id of each memory ordinal, the position of its bit in every bitmap."""
        engine = self._fresh()
        return Ids(engine.memory_count(), engine.memory_ids)

    @property
    def message_ids(self) -> Ids:
        """The id of each message ordinal."""
        engine = self._fresh()
        return Ids(engine.message_count(), engine.message_ids)

    def memory_ordinals(self, ids: Iterable[str]) -> NDArray[np.uint32]:
        """The ordinal of each memory: uint32 (n,).  Raises: UnknownEvent."""
        return _known(listed(ids), self._fresh().memory_ordinals, "memory")

    def message_ordinals(self, ids: Iterable[str]) -> NDArray[np.uint32]:
        """The ordinal of each message: uint32 (n,).  Raises: UnknownEvent."""
        return _known(listed(ids), self._fresh().message_ordinals, "message")

    def skeleton(self, id: str) -> dict[str, Any]:
        """What places an event and links it, by the names of its fields; nothing where the log does not have it.

        It stays when the event is erased; no view filters it.  Fields at their default are left out.
        """
        found = self._fresh().skeleton(id)
        return skeleton_fields(found[1]) if found else {}

    def memories_from(self, source: str) -> list[str]:
        """The memories that have this id among their own sources, visible or not, in order of arrival.

        Cost: O(answer); the first time, all that memories refer to is indexed, 8 bytes a reference.
        """
        return self._fresh().memories_from(source)

    @property
    def tree(self) -> Tree:
        """The topology: parents, children, paths."""
        return Tree(self)

    def counters(self) -> dict[str, Any]:
        """Verdicts handed out: `{"hidden": {reason: n}, "admitted": {reason: n}, "unlisted": n}`.

        `hidden` counts the primary reason of each single verdict, `admitted` each reason that a
        policy let through, `unlisted` what bulk answers left out.  Never resets by itself.
        """
        return self._engine.counters()

    def _warn(self, problems: Reason, anchors: tuple[str, ...]) -> None:
        import logging

        logging.getLogger("branchmem").warning(
            "a view at %s has problems: %s", ", ".join(anchors) or "no anchor", ", ".join(problems.names())
        )

    def _memory(self, view: _core.View, id: str, visible: bool) -> Memory:
        raise TypeError("an engine without a file keeps no content: read it where the events are kept")

    def _memories(self, ids: list[str], view: _core.View) -> list[Memory]:
        raise TypeError("an engine without a file keeps no content: read it where the events are kept")


class Tree:
    """Topology.  Every question raises UnknownEvent for what is no message of the log."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def parent(self, id: str) -> str | Legacy | None:
        """What the message continues: None for a root, LEGACY where it was never recorded.  O(1)."""
        return self._engine.parent(id)

    def children(self, id: str) -> list[str]:
        """The messages directly below, attached or not, in order of arrival.  O(children)."""
        return self._engine.children(id)

    def siblings(self, id: str) -> tuple[list[str], int]:
        """All that name the same parent, the message included, and its index.  Tops of trees are siblings."""
        siblings = self._engine.siblings(id)
        return siblings, siblings.index(id)

    def known_path(self, id: str) -> list[str]:
        """As `path`, from the first ancestor on that the log has where one above is missing.  O(depth)."""
        return self._engine.path(id)[0]

    def path(self, id: str) -> list[str]:
        """The message and all its ancestors, root first.  O(depth).

        Raises: UnknownEvent for the ancestor that is missing, or where parents run in a circle.
        """
        path, broken = self._engine.path(id)
        if broken is None:
            return path
        if broken in path:
            raise UnknownEvent(id, "root above, since parents run in a circle, the message")
        raise UnknownEvent(broken, f"parent of message {path[0]}, message")

    def depth(self, id: str) -> int | None:
        """How many messages stand above this one; None where it is not attached.  O(1)."""
        return self._engine.depth(id)

    def roots(self) -> list[str]:
        """The tops of all trees, legacy messages too, in order of arrival."""
        return self._engine.roots()

    def leaves(self, root: str | None = None) -> list[str]:
        """Attached messages without children, in order of arrival: all, or those at or below `root`."""
        return self._engine.leaves(root)

    def latest_leaf(self, id: str) -> str:
        """The leaf at or below an attached message that arrived last.  O(what hangs below)."""
        self.path(id)
        return self._engine.leaves(id)[-1]

    def is_ancestor(self, a: str, b: str) -> bool:
        """Whether `a` is `b` or stands above it.  O(log chains on the path), O(depth) where not attached."""
        return self._engine.is_ancestor(a, b)

    def common_ancestor(self, a: str, b: str) -> str | None:
        """The deepest message at or above both; None in two trees.  Cost as `is_ancestor`."""
        return self._engine.common_ancestor(a, b)

    @property
    def _engine(self) -> _core.Engine:
        return self._questions._fresh()


class Ids(Sequence[str]):
    """Ordinal → id, as of the moment it was asked for: nothing is copied until read."""

    def __init__(self, count: int, page: Callable[[int, int], list[str]]) -> None:
        self._count = count
        self._page = page

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            start, stop, step = place.indices(self._count)
            if step == 1:
                return self._page(start, stop) if start < stop else []
            return [self[at] for at in range(start, stop, step)]
        at = range(self._count)[place]
        return self._page(at, at + 1)[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, self._count, _PAGE):
            yield from self._page(start, min(start + _PAGE, self._count))

    def __repr__(self) -> str:
        return f"<{self._count} ids>"


def _ordinals(
    values: Many, find: Callable[[list[str]], NDArray[np.uint32]], count: int, wanted: str
) -> NDArray[np.uint32]:
    """Ordinals of ids, with `_UNKNOWN` where an id is none; or ordinals as they are, checked."""
    import numpy as np

    if not isinstance(values, np.ndarray) or values.dtype.kind in "UO":
        given: list[Any] = listed(values)
        if given and isinstance(given[0], str):
            return find(given)
        values = np.asarray(given) if given else np.empty(0, np.uint32)
    if values.dtype.kind not in "iu" or values.ndim != 1:
        raise TypeError(f"ordinals are a flat array of integers, not {values.dtype} of shape {values.shape}")
    if values.size:
        least = values.min() if values.dtype.kind == "i" else 0
        worst = least if least < 0 else values.max()
        if not 0 <= worst < count:
            raise UnknownEvent(str(worst), f"{wanted} with ordinal")
    return np.ascontiguousarray(values, np.uint32)


def listed(values: Iterable[_T]) -> list[_T]:
    """What is to be answered one by one; a string is no list, though it can be iterated."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"a list of ids is needed: write [{values!r:.80}]")
    return list(values)


def _known(ids: list[str], find: Callable[[list[str]], NDArray[np.uint32]], wanted: str) -> NDArray[np.uint32]:
    found = find(ids)
    unknown = (found == _UNKNOWN).nonzero()[0]
    if unknown.size:
        raise UnknownEvent(ids[unknown[0]], wanted)
    return found
