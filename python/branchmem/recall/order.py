"""Where a memory stands among others in path order: by the depth of its deepest effective source, then by its id.

The order of `view.memories()`, for memories that are at hand: what came later in the conversation comes later, and
what is remembered later moves nothing that stands above it.  Says nothing about what is visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from branchmem import StepView
from branchmem.errors import UnknownEvent

if TYPE_CHECKING:
    from branchmem import Memory, Store, View

Place = tuple[int, str]


class PathOrder:
    """Places of memories that a view shows.  Cost: the paths of its anchors, and what each memory derives from."""

    def __init__(self, store: Store, view: View | StepView) -> None:
        self._store = store
        self._step = view if isinstance(view, StepView) else None
        self._depths: dict[str, int] = {}
        for anchor in view.anchors if self._step is None else self._step._base.anchors:
            self._depth(anchor)

    def place(self, memory: Memory) -> Place:
        """The messages above the deepest source that is attached, -1 without one; and the id."""
        step = self._step
        if step is not None and (step._whole is not None or memory.id in step._part.memories):
            return step._order(memory)
        reached, waiting, deepest = {memory.id}, [memory.id], -1
        while waiting:
            links = self._store.skeleton(waiting.pop())
            deepest = max([deepest, *map(self._depth, links.get("sources", ()))])
            new = set(links.get("derived_from", ())) - reached
            reached |= new
            waiting += new
        return deepest, memory.id

    def _depth(self, message: str) -> int:
        """The messages above a message, -1 where it is not attached."""
        if message not in self._depths:
            tree = self._store.tree
            try:
                path = tree.path(message)
            except UnknownEvent:
                self._depths[message] = -1
            else:
                self._depths.update(zip(path, range(len(path)), strict=True))
        return self._depths[message]
