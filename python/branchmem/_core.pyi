"""The compiled engine.  `View` is public; `Engine` is what `branchmem.store` drives."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from branchmem.events import Legacy, Memory
from branchmem.questions import Anchor, Questions
from branchmem.verdict import Policy, Reason, Verdict

if TYPE_CHECKING:
    from branchmem.recall import Decay, Embedder, Hits, Recalled
    from branchmem.recall.decay import Fading
    from branchmem.recall.filters import Condition

__all__ = [
    "BlockError",
    "Engine",
    "Ranked",
    "SearchIndex",
    "Vectors",
    "View",
    "check_records",
    "rank_texts",
    "split_records",
]

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
    def search(
        self,
        query: str,
        k: int = 10,
        *,
        kind: object = None,
        key: object = None,
        created: object = None,
        importance: object = None,
        meta: Mapping[str, object] | None = None,
        by: Literal["lexical", "vector"] | None = None,
        embedder: Embedder | None = None,
        include_faded: bool = False,
        decay: Decay | None = None,
        now: datetime | None = None,
    ) -> Hits:
        """The visible memories that fit a query, best first: `branchmem.recall.search`."""
    def nearest(
        self, vector: NDArray[np.float32], k: int = 10, *, embedder: Embedder | None = None
    ) -> list[tuple[str, float]]:
        """The visible memories nearest to a vector: `branchmem.recall.nearest`."""
    def recall(self, message: str, **options: Any) -> Recalled:
        """What of the visible memories belongs into a prompt: `branchmem.recall.recall`."""
    def explain(self, id: str) -> Verdict:
        """All reasons, and the ids at fault, as the log is now.  Cost: all that the memory derives from.

        Raises: AmbiguousAnchor where anchors that were unknown have come to lie in one tree; so does `reasons`.
        """
    def _explain(self, id: str) -> Verdict: ...
    def reasons(self) -> NDArray[np.uint16]:
        """The reasons of every memory of the log as it is now, under the view's policy, as bits: (memories,).

        Not counted.  Longer than `mask()` where memories came since the view was made.
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
    def depth(self, id: str) -> int | None: ...
    def depths_of_memories(self, ids: Sequence[str]) -> list[int]: ...
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

@final
class Ranked:
    """One text that fits, and the memories that say it."""

    @property
    def ids(self) -> list[str]:
        """All of them, sorted."""
    @property
    def id(self) -> str:
        """The best of them."""
    @property
    def score(self) -> float:
        """Fused, or that of the only ranker."""
    @property
    def lexical(self) -> tuple[int, float] | None:
        """Rank from 1, and score."""
    @property
    def vector(self) -> tuple[int, float] | None:
        """Rank from 1, and cosine."""

@final
class SearchIndex:
    """The words and fields of a log's memories, by ordinal, and when they were last used.  In memory only.

    What was erased is in it until `forget_erased`.  Safe under threads; the caller sees to it that one at a time
    catches up.
    """

    def __new__(cls, engine: Engine, seed: bytes) -> SearchIndex:
        """`seed`: 32 random bytes."""
    def __len__(self) -> int:
        """How many memories were taken in: all ordinals below."""
    def behind(self, limit: int) -> list[tuple[str, int]]:
        """The ids of the next memories that are missing here, and their positions in the log."""
    def add(self, bodies: Sequence[bytes | None]) -> None:
        """Take in the canonical bodies of the next memories, None for one whose content was erased."""
    def forget_erased(self) -> int:
        """Drop all that is kept of what is erased by now, and say how many memories that were."""
    def use(self, ids: Sequence[str], at: Sequence[int]) -> None:
        """When memories were last used, in microseconds since 1970; an earlier time than is known changes nothing."""
    def saying(self, shown: View | NDArray[np.uint32], text: str) -> list[str]:
        """The ids of those that say just this, sorted."""
    def effective(self, shown: View | NDArray[np.uint32], fading: Fading) -> NDArray[np.float64]:
        """The effective importance of each, in order of ordinals; NaN for one without content."""
    def search(
        self,
        shown: View | NDArray[np.uint32],
        query: str | None,
        k: int,
        *,
        conditions: Sequence[Condition] | None = None,
        fading: Fading | None = None,
        vectors: Vectors | None = None,
        vector: NDArray[np.float32] | None = None,
        near: NDArray[np.uint32] | None = None,
        own: Sequence[tuple[str, str, str | None, bytes]] | None = None,
        own_vectors: NDArray[np.float32] | None = None,
    ) -> tuple[list[Ranked], int]:
        """Rank what is shown: lexically where there is a query, by cosine where there are vectors, fused where both.

        The vectors of the ordinals in `near` alone are compared, where that gives enough texts.
        `own` are memories that the log does not have yet: id, kind, key, canonical body; `own_vectors` their rows.
        Also says how many that fit were left out as faded.
        """

@final
class Vectors:
    """The vectors of one embedder, by ordinal.  In memory only."""

    def __new__(cls, engine: Engine, dim: int) -> Vectors: ...
    def __len__(self) -> int: ...
    @property
    def dim(self) -> int: ...
    def missing(self, shown: View | NDArray[np.uint32]) -> list[tuple[str, int]]:
        """Of those shown that have content: the ids without a vector here, and their positions in the log."""
    def put(self, ids: Sequence[str], rows: NDArray[np.float32]) -> None:
        """Give memories their vectors: float32 (n, dim), scaled to length 1 here."""
    def forget_erased(self) -> int:
        """Drop the vectors of what is erased by now."""
    def nearest(self, view: View, vector: NDArray[np.float32], k: int) -> list[tuple[str, float]] | None:
        """The ids and cosines of the nearest that the view shows, best first; None where one of them has no vector."""
    def cosines(self, ids: Sequence[str], vector: NDArray[np.float32]) -> list[float | None]:
        """The cosine of each with a vector; None for one that has no vector here."""
    def rows(self) -> tuple[list[str], NDArray[np.float32]]:
        """The ids that have a vector, and the vectors, for other engines."""

def rank_texts(texts: Sequence[str], query: str) -> list[float]:
    """BM25 of each text for a query, among these texts alone."""
