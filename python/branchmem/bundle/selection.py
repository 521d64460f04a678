"""What the views at given messages need: the events of a log without which they would answer otherwise.

The one rule: in a fresh store that holds only these events, every strict view at messages that came
with them, one a tree, shows what it shows here.  That holds for policies that let through ERASED,
RETRACTED and SUPERSEDED as well, and not for others: COMPAT shows what lacks a source, such as the
original of an adoption, or a version between two, whose own sources stay behind; and what has no source
here does not travel.

- messages: the paths; for scope tree, the path of where a retraction or restoration stands;
- memories all of whose effective sources are among them, with what they derive from and adopt;
- what stands between two of them in a line of replacements, with what that derives from and adopts;
- retractions in effect at any of these messages, with the restorations that name them; all erasures.

What an adopted memory was stated on travels only where it decides whether a key takes it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from branchmem import Policy, Reason
from branchmem.canonical import Tag, unpack
from branchmem.events import SCOPES, Erasure, Restoration, Retraction

if TYPE_CHECKING:
    from branchmem import _core
    from branchmem.questions import Questions

#: Lets through all but what no view at the messages of some trees can show.
_IN_THESE_TREES: Final = Policy(Reason.ERASED | Reason.SIBLING | Reason.FUTURE | Reason.RETRACTED | Reason.SUPERSEDED)
_TREE, _EVERYWHERE = SCOPES.index("tree"), SCOPES.index("everywhere")
_YES, _NO = 1, 2
_PAGE: Final = 10_000


def needed(log: Questions, heads: Iterable[str]) -> bytearray:
    """For each position of the log, whether its event is needed by views at these messages and above: 1 or 0.

    Nothing may be appended meanwhile.
    Cost: the paths; then all memories of their trees, all retractions, restorations and erasures: some microseconds
    each, and again where retractions of scope tree bring more messages.
    """
    chosen = _Chosen(log)
    for head in heads:
        chosen.climb(head)
    while chosen.grew:
        chosen.grew = False
        chosen.take_changes()
        chosen.take_memories()
    for id in chosen.engine.ids_of(Erasure.type):
        chosen.take(id)
    return chosen.taken


class _Links(NamedTuple):
    """What a memory refers to."""

    sources: list[str]
    derived_from: list[str]
    supersedes: list[str]
    #: What it derives from and what it adopts.
    upstream: list[str]
    key: str | None


class _Chosen:
    """The events that were taken so far."""

    def __init__(self, log: Questions) -> None:
        self.engine: _core.Engine = log._fresh()
        #: 1 at each position whose event was taken.
        self.taken = bytearray(self.engine.seq)
        #: Whether messages were taken since somebody last looked.
        self.grew = False
        self._log = log
        # the trees that views stand in, each with a message of it
        self._trees: dict[str, str] = {}
        # the keys that retractions take back unless stated afresh, with where these stand
        self._keys: dict[str, set[str]] = {}
        # at each position, whether all effective sources of the memory there were taken
        self._shows = bytearray()

    def take(self, id: str) -> bool:
        """Take an event of the log; whether it is new."""
        seq = self.engine.event_seq(id)
        if seq is None or self.taken[seq]:
            return False
        self.taken[seq] = 1
        return True

    def climb(self, message: str) -> None:
        """Take a message and what is known above it."""
        path = self.engine.path(message)[0]
        if self.engine.is_attached(message):
            self._trees.setdefault(path[0], message)
        for id in reversed(path):
            if not self.take(id):
                break
            self.grew = True

    def take_changes(self) -> None:
        """Take retractions that are in effect at a message that was taken, and the restorations that name them."""
        unplaced = frozenset(self.engine.unplaced())
        for id in self.engine.ids_of(Retraction.type):
            fields = self._fields(id)
            if id in unplaced or self._holds(fields):
                self.take(id)
                for key in () if fields.get(Tag.STANDING) else fields.get(Tag.KEYS, ()):
                    self._keys.setdefault(key, set()).add(fields[Tag.AT])
        for id in self.engine.ids_of(Restoration.type):
            fields = self._fields(id)
            if id not in unplaced and self._has(fields[Tag.RETRACTION]) and self._holds(fields):
                self.take(id)

    def take_memories(self) -> None:
        """Take what can show at the messages that were taken, what it derives from and adopts, and what it replaces."""
        self._shows = bytearray(len(self.taken))
        replacing, elsewhere, met = list[str](), list[str](), bytearray(len(self.taken))
        for id in self._of_these_trees():
            if not self._is_shown(id):
                continue
            self._take_with_upstream(id)
            if self._keys:
                elsewhere += filter(self._is_kept_by_its_place, self._upstream(id, met))
            if self._links(id).supersedes:
                replacing.append(id)
        for id in elsewhere:
            for source in self._effective_sources(id):
                self.climb(source)
        for id in self._between(replacing):
            self._take_with_upstream(id)

    def _fields(self, id: str) -> dict[int, Any]:
        """The fields of the skeleton of an event of the log, by tag."""
        found = self.engine.skeleton(id)
        flat = unpack(found[1])[2:] if found else []
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def _links(self, id: str) -> _Links:
        fields = self._fields(id)
        derived_from, adopts = fields.get(Tag.DERIVED_FROM, []), fields.get(Tag.ADOPTS)
        return _Links(
            fields.get(Tag.SOURCES, []),
            derived_from,
            fields.get(Tag.SUPERSEDES, []),
            derived_from if adopts is None else [*derived_from, adopts],
            fields.get(Tag.KEY),
        )

    def _has(self, id: str) -> bool:
        """Whether an event with this id was taken."""
        seq = self.engine.event_seq(id)
        return seq is not None and self.taken[seq] == 1

    def _holds(self, fields: dict[int, Any]) -> bool:
        """Whether what has such a scope and place is in effect at a message that was taken; its place goes with it."""
        scope, at = fields[Tag.SCOPE], fields[Tag.AT]
        if scope == _EVERYWHERE:
            return True
        if not self.engine.is_message(at):
            return False
        if scope == _TREE and self.engine.is_attached(at) and self.engine.path(at)[0][0] in self._trees:
            self.climb(at)
        return self._has(at)

    def _of_these_trees(self) -> Iterator[str]:
        """The memories that some message of the trees could show, in order."""
        if not self._trees:
            return
        mask = self._log.at(list(self._trees.values()), policy=_IN_THESE_TREES, count=False).mask()
        for start in range(0, len(mask), _PAGE):
            ids = self.engine.memory_ids(start, min(start + _PAGE, len(mask)))
            yield from (ids[at] for at in mask[start : start + _PAGE].nonzero()[0].tolist())

    def _is_shown(self, memory: str) -> bool:
        """Whether all effective sources of a memory were taken, which derives from what is here, in no circle."""
        waiting = [memory]
        while waiting:
            seq = self.engine.event_seq(waiting[-1])
            if seq is None or self._shows[seq]:
                waiting.pop()
                continue
            links = self._links(waiting[-1])
            known = [self._shown_before(id) for id in links.derived_from]
            if _NO in known or not all(map(self._has, links.sources)):
                self._shows[seq] = _NO
            elif 0 in known:
                waiting += (id for id, shows in zip(links.derived_from, known, strict=True) if not shows)
            else:
                self._shows[seq] = _YES
        return self._shown_before(memory) == _YES

    def _shown_before(self, memory: str) -> int:
        seq = self.engine.event_seq(memory)
        return _NO if seq is None else self._shows[seq]

    def _take_with_upstream(self, memory: str) -> None:
        """Take a memory and all that it derives from or adopts."""
        waiting = [memory]
        while waiting:
            id = waiting.pop()
            if self.engine.is_memory(id) and self.take(id):
                waiting += self._links(id).upstream

    def _upstream(self, memory: str, met: bytearray) -> Iterator[str]:
        """What a memory derives from or adopts, but not what has been met before."""
        waiting = self._links(memory).upstream
        while waiting:
            id = waiting.pop()
            seq = self.engine.event_seq(id)
            if seq is not None and not met[seq]:
                met[seq] = 1
                if self.engine.is_memory(id):
                    yield id
                    waiting += self._links(id).upstream

    def _is_kept_by_its_place(self, memory: str) -> bool:
        """Whether a key does not take a memory back only since it was stated afresh."""
        places = self._keys.get(self._links(memory).key or "", ())
        if not places:
            return False
        sources = self._effective_sources(memory)
        attached = (
            bool(sources) and all(map(self.engine.is_message, sources)) and all(map(self.engine.is_attached, sources))
        )
        return attached and any(
            self.engine.is_message(at)
            and all(at != source and self.engine.is_ancestor(at, source) for source in sources)
            for at in places
        )

    def _effective_sources(self, memory: str) -> set[str]:
        sources, met, waiting = set[str](), {memory}, [memory]
        while waiting:
            links = self._links(waiting.pop())
            sources.update(links.sources)
            new = set(links.derived_from) - met
            met |= new
            waiting += filter(self.engine.is_memory, new)
        return sources

    def _between(self, replacing: Iterable[str]) -> set[str]:
        """What does not show here, and stands between these memories and what they replace of what does."""
        met = set[str]()
        replaced_by: dict[str, list[str]] = {}
        between = list[str]()
        waiting = [old for new in replacing for old in self._links(new).supersedes]
        while waiting:
            id = waiting.pop()
            if id in met or not self.engine.is_memory(id) or self._shown_before(id) == _YES:
                continue
            met.add(id)
            for old in self._links(id).supersedes:
                if self._shown_before(old) == _YES:
                    between.append(id)
                else:
                    replaced_by.setdefault(old, []).append(id)
                    waiting.append(old)
        found = set[str]()
        while between:
            id = between.pop()
            if id not in found:
                found.add(id)
                between += replaced_by.get(id, ())
        return found
