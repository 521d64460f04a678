"""The compiled engine.  `View` is public; `Engine` is what `branchmem.store` drives."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from branchmem.events import Legacy, Memory
from branchmem.questions import Anchor, Questions
from branchmem.verdict import Policy, Reason, Verdict

__all__ = ["BlockError", "Engine", "View", "check_records", "split_records"]

class BlockError(ValueError):
    """A skeleton block was refused; args are the reason and whether a later version wrote it."""

def check_records(payload: bytes, seed: int) -> tuple[list[int], int, bytes, list[bytes]]:
    """Check that these bytes are canonical records: each a skeleton, and its body or nil.

    How many events of each type there are, how many without content, 8 bytes of a hash for each id, and the
    skeletons of erasures and of events without content.  Raises: BlockError.
    """

def split_records(payload: bytes) -> tuple[list[bytes], list[bytes | None]]:
    """The canonical skeleton and body of each record, None for a body that was erased.  Raises: BlockError."""

@final
class View:
    """What is visible at an anchor, as of the moment it was made.

    The set that a view shows never changes.  What reads content needs the open
    store; `explain` and `reasons` speak of the log as it is now.
    """

    def __contains__(self, id: object, /) -> bool:
        """Whether the memory is visible.  Counted as one verdict.

        Cost: O(1); for sources on two branches of a tree, or in more than eight trees, all that it derives from.
        """
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, id: str, /) -> Memory:
        """The memory.  Raises: MemoryHidden, a KeyError that says why, where it is hidden or unknown."""
    def get(self, id: str) -> Memory:
        """As `view[id]`."""
    def ids(self) -> list[str]:
        """The ids of what is visible, by ordinal."""
    def memories(self, *, kind: str | None = None, key: str | None = None, limit: int | None = None) -> list[Memory]:
        """What is visible, in path order: depth of the deepest source, then id.  The same on every replica.

        Cost: all that is visible, and one read for each memory that is returned.
        """
    def current(self, key: str) -> Memory | list[Memory] | None:
        """The visible memory about a key; a list, in path order, where several rival; None where there is none.

        Counts and costs as `memories`.
        """
    def filter(self, ids: Iterable[str]) -> list[str]:
        """Those of `ids` that are visible, in their order."""
    def explain(self, id: str) -> Verdict:
        """All reasons, and the ids at fault, as the log is now.  Cost: all that the memory derives from.

        Raises: AmbiguousAnchor where anchors that were unknown have come to lie in one tree; so does `reasons`.
        """
    def _explain(self, id: str) -> Verdict: ...
    def reasons(self) -> NDArray[np.uint16]:
        """The reasons of every memory of the log as it is now, under the view's policy, as bits: (memories,).

        Not counted.
        """
    def bitmap(self) -> bytes:
        """One bit a memory, little-endian, ceil(memories / 8) bytes."""
    def mask(self) -> NDArray[np.bool_]:
        """Whether each memory is visible: (memories,)."""
    def ordinals(self) -> NDArray[np.uint32]:
        """The ordinals of what is visible, ascending."""
    def roaring(self) -> bytes:
        """The ordinals in the portable format of Roaring bitmaps."""
    def raise_for_problems(self) -> None:
        """Raises: BadAnchor, where the view has problems."""
    @property
    def problems(self) -> Reason:
        """What is wrong with the anchors: bits 0 to 2, or nothing."""
    @property
    def anchors(self) -> tuple[str, ...]:
        """The ids that the view was asked for, each once."""
    @property
    def policy(self) -> Policy:
        """What is let through."""
    @property
    def seq(self) -> int:
        """The position of the log that the view shows."""

@final
class Engine:
    def __new__(cls, seed: int) -> Engine: ...
    @property
    def seq(self) -> int: ...
    def forsake(self, path: str) -> None: ...
    def plan(
        self, skeletons: Sequence[bytes]
    ) -> tuple[list[int], list[tuple[int, int]], list[tuple[int, int]], tuple[int, int | None] | None]: ...
    def encode(self, skeletons: Sequence[bytes]) -> list[tuple[int, bytes]]: ...
    def erased_by(self, skeletons: Sequence[bytes]) -> tuple[list[int], list[int]]: ...
    def reserve(self, events: int) -> None: ...
    def fold(self, blocks: Sequence[tuple[int, bytes]]) -> int: ...
    def at(self, owner: Questions, anchor: Anchor, policy: Policy, count: bool) -> View: ...
    def visible(
        self,
        memories: NDArray[np.uint32],
        anchors: NDArray[np.uint32],
        policy: Policy,
        empty: Callable[[int], NDArray[np.uint8]],
    ) -> NDArray[np.uint8]: ...
    def bitmaps(
        self, anchors: Sequence[Anchor], policy: Policy, empty: Callable[[tuple[int, int]], NDArray[np.uint8]]
    ) -> NDArray[np.uint8]: ...
    def counters(self) -> dict[str, Any]: ...
    def event_seq(self, id: str) -> int | None: ...
    def event_ids(self, start: int, stop: int) -> list[str]: ...
    def skeleton(self, id: str) -> tuple[int, bytes] | None: ...
    def memory_count(self) -> int: ...
    def message_count(self) -> int: ...
    def memory_ids(self, start: int, stop: int) -> list[str]: ...
    def message_ids(self, start: int, stop: int) -> list[str]: ...
    def memory_ordinals(self, ids: list[str]) -> NDArray[np.uint32]: ...
    def message_ordinals(self, ids: list[str]) -> NDArray[np.uint32]: ...
    def sorted_ids(self) -> list[str]: ...
    def parent(self, id: str) -> str | Legacy | None: ...
    def children(self, id: str) -> list[str]: ...
    def siblings(self, id: str) -> list[str]: ...
    def roots(self) -> list[str]: ...
    def path(self, id: str) -> tuple[list[str], str | None]: ...
    def leaves(self, root: str | None = None) -> list[str]: ...
    def is_ancestor(self, a: str, b: str) -> bool: ...
    def common_ancestor(self, a: str, b: str) -> str | None: ...
    def is_attached(self, id: str) -> bool: ...
    def orphans(self, before_seq: int) -> int: ...
    def memories_from(self, source: str) -> list[str]: ...
    def ids_of(self, of: str) -> list[str]: ...
    def unplaced(self) -> list[str]: ...
    def supersession_circles(self) -> list[list[str]]: ...
    def has_erasures(self) -> bool: ...
    def is_erased(self, id: str) -> bool: ...
    def is_message(self, id: str) -> bool: ...
    def is_memory(self, id: str) -> bool: ...
    def unshowable(self) -> list[tuple[str, int]]: ...
