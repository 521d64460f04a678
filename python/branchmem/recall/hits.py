"""What a search found: each distinct text once, with its ranks, its scores, and why it is visible.

A hit knows ids and numbers; content is read at the first use of it, for all hits in one snapshot.  What was erased
since the search is not handed out: that hit alone raises MemoryHidden.  How hits are ranked is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, overload

from branchmem.errors import MemoryHidden

if TYPE_CHECKING:
    from branchmem._core import Ranked
    from branchmem.events import Memory
    from branchmem.verdict import Verdict

LEXICAL: Final = "lexical"
VECTOR: Final = "vector"

Read = Callable[[list[str]], "list[Memory]"]


class Contents:
    """The memories of some hits, read together when the first of them is wanted.  Safe under threads."""

    def __init__(self, ranked: Sequence[Ranked], read: Read, explain: Callable[[str], Verdict]) -> None:
        self._ranked = ranked
        self._read = read
        self._memories: dict[str, Memory] | None = None
        #: What the view says of a memory.
        self.explain = explain

    def __getitem__(self, id: str) -> Memory:
        """The memory.  Raises: MemoryHidden where it was erased after the search."""
        if self._memories is None:
            self._memories = self._all()
        if id not in self._memories:
            (self._memories[id],) = self._read([id])
        return self._memories[id]

    def _all(self) -> dict[str, Memory]:
        """All of them; none where one was erased, so that each is read by itself."""
        try:
            ids = [id for one in self._ranked for id in one.ids]
            return {memory.id: memory for memory in self._read(ids)}
        except MemoryHidden:
            return {}


@dataclass(frozen=True, slots=True)
class Hit:
    """One text that fits, and the memories that say it.

    `score` compares hits of one search: that of the one ranker there was, or of the fusion.
    """

    id: str
    """The best of the memories."""
    ids: tuple[str, ...]
    """All visible memories that fit the filters and have this very text, sorted."""
    score: float
    ranks: Mapping[str, int] = field(hash=False)
    """The rank that each ranker gave it, from 1; a ranker that did not nominate it is not there."""
    scores: Mapping[str, float] = field(hash=False)
    """The score that each ranker gave it: BM25 for lexical, the cosine for vector."""
    _contents: Contents = field(repr=False, compare=False)

    @property
    def memory(self) -> Memory:
        """The best of the memories.  Raises: MemoryHidden where it was erased after the search."""
        return self._contents[self.id]

    @property
    def memories(self) -> tuple[Memory, ...]:
        """All of them, by id.  Raises: as `memory`."""
        return tuple(self._contents[id] for id in self.ids)

    @property
    def text(self) -> str:
        """What they say.  Raises: as `memory`."""
        return self.memory.text

    @property
    def verdict(self) -> Verdict:
        """Why the memory is visible, as the log is now: `view.explain`."""
        return self._contents.explain(self.id)

    @property
    def why(self) -> str:
        """The verdict in words."""
        return str(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form, with the memory and why it is visible.  Raises: as `memory`."""
        return {
            "id": self.id,
            "ids": list(self.ids),
            "score": self.score,
            "ranks": dict(self.ranks),
            "scores": dict(self.scores),
            "why": self.why,
            "memory": self.memory.to_dict(),
        }


class Hits(Sequence[Hit]):
    """The hits of one search, best first."""

    def __init__(
        self,
        ranked: Sequence[Ranked],
        contents: Contents,
        *,
        query: str,
        rankers: tuple[str, ...],
        faded: int = 0,
        note: str | None = None,
    ) -> None:
        self._ranked = ranked
        self._contents = contents
        #: What was searched for.
        self.query = query
        #: By what was ranked: "lexical", "vector", or both, fused.
        self.rankers = rankers
        #: How many memories would have been candidates, but had faded.
        self.faded = faded
        #: What the search did without, in a sentence.
        self.note = note

    @property
    def ids(self) -> list[str]:
        """The id of each hit, best first."""
        return [one.id for one in self._ranked]

    @cached_property
    def _hits(self) -> tuple[Hit, ...]:
        return tuple(_hit(one, self._contents) for one in self._ranked)

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form.  Raises: MemoryHidden where a memory was erased after the search."""
        return {
            "query": self.query,
            "rankers": list(self.rankers),
            "faded": self.faded,
            "note": self.note,
            "hits": [hit.to_dict() for hit in self],
        }

    def __len__(self) -> int:
        return len(self._ranked)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self._hits[place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hits):
            return NotImplemented
        ours = (self._hits, self.query, self.rankers, self.faded, self.note)
        return ours == (other._hits, other.query, other.rankers, other.faded, other.note)

    __hash__ = None  # type: ignore[assignment]  # compared by what it holds

    def __repr__(self) -> str:
        faded = f", {self.faded} faded" if self.faded else ""
        note = f"; {self.note}" if self.note else ""
        return f"<Hits {len(self)}{faded} for {self.query!r:.80} by {' and '.join(self.rankers)}{note}>"


def each(ranked: Sequence[Ranked], k: int) -> list[tuple[str, float]]:
    """The best `k` memories of some texts, each by itself with the score of its text, then by id."""
    found = ((id, one.score) for one in ranked for id in one.ids)
    return sorted(found, key=lambda one: (-one[1], one[0]))[:k]


def _hit(one: Ranked, contents: Contents) -> Hit:
    given = [(name, found) for name, found in ((LEXICAL, one.lexical), (VECTOR, one.vector)) if found is not None]
    ranks = MappingProxyType({name: rank for name, (rank, _) in given})
    scores = MappingProxyType({name: score for name, (_, score) in given})
    return Hit(one.id, tuple(one.ids), one.score, ranks, scores, contents)
