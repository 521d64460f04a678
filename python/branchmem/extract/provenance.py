"""What a memory from some messages must come from and derive from, so that nothing taken back returns by way of it.

Who reads an answer reads what that was written with: a memory from it derives from all memories of its receipt.  Who
reads a message again of which a memory was taken back, here or on another branch, derives from that memory too.  So a
retraction of either covers the new memory by the rule itself, where it covers the old one, and a restoration brings
both back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from branchmem import STRICT, InvalidEvent, Memory, Message, Reason, new_id
from branchmem.events import Erasure, Retraction
from branchmem.session.slice import Slice
from branchmem.session.step import receipt_of

if TYPE_CHECKING:
    from branchmem import StepView, Store, View
    from branchmem.extract.place import Place

#: Where a memory is hidden for these alone, what derives from it is hidden for nothing that it did not say itself.
_HIDES_ALIKE: Final = Reason.RETRACTED | Reason.SUPERSEDED
#: Who begins a turn, and is answered in it.
_USERS: Final = frozenset(("user", "human"))
#: The kind of memories that stand for messages as a whole.
SUMMARY: Final = "summary"


class Ties(NamedTuple):
    """What a memory from some messages must derive from, and which messages it must come from besides."""

    upstream: tuple[str, ...]
    sources: tuple[str, ...] = ()


class Unusable(Exception):
    """A message of which no memory can be made here; the text says why."""


def receipt(message: Message | None) -> tuple[str, ...]:
    """The memories that a message was written with.  Raises: Unusable where its receipt cannot be read."""
    if message is None:
        return ()
    recalled = receipt_of(message)
    if recalled is None:
        raise Unusable(f"the receipt of {message.id} is no list of memories, so nobody knows what it was written with")
    return recalled


def facts_of(store: Store, message: str) -> list[str]:
    """The memories that come from a message; summaries, which are about many messages, are none of them."""
    return [id for id in store.memories_from(message) if store.skeleton(id).get("kind") != SUMMARY]


class TakenBack:
    """The memories that some retraction covers by a name, wherever that stands, as the log is now.

    Cost: the first time it is asked, a look at every retraction of the log.
    """

    def __init__(self, store: Store, view: View | StepView) -> None:
        self._store = store
        self._view = view
        self._said_by: dict[str, bool] = {}

    @cached_property
    def _names(self) -> tuple[frozenset[str], frozenset[str]]:
        """What retractions name: ids, and keys."""
        store = self._store
        retractions = [store.skeleton(id) for id in store._fresh().ids_of(Retraction.type)]
        ids = (id for one in retractions for id in (*one.get("memories", ()), *one.get("sources", ())))
        return frozenset(ids), frozenset(key for one in retractions for key in one.get("keys", ()))

    @cached_property
    def nothing(self) -> bool:
        """Whether nothing was ever retracted or erased."""
        return not any(self._names) and not self._store._fresh().ids_of(Erasure.type)

    def of(self, message: str) -> tuple[list[str], bool]:
        """Those that come from a message, where what derives from them is hidden for nothing else here.

        And whether others come from a sibling branch as well: what is made of the message here must not be seen there.
        Raises: Unusable where one was erased, or is taken back here and comes from another branch as well, or comes
        from below: what is made of the message again might say it again.
        """
        found: list[str] = []
        is_beside = False
        for id in facts_of(self._store, message):
            if self._store.log.is_erased(id):
                raise Unusable(f"{message} says what was erased in memory {id}")
            if not self._covers(id):
                continue
            reasons = self._view.explain(id).reasons
            if not reasons & ~_HIDES_ALIKE:
                found.append(id)
            elif reasons & (Reason.RETRACTED | Reason.FUTURE):
                raise Unusable(f"{message} says what was taken back in memory {id}")
            else:
                is_beside = True
        return found, is_beside

    def hide(self, message: str) -> bool:
        """Whether one that comes from a message is erased, or taken back here."""
        return any(
            self._store.log.is_erased(id) or (self._covers(id) and Reason.RETRACTED in self._view.explain(id).reasons)
            for id in facts_of(self._store, message)
        )

    def said_by(self, summary: str) -> bool:
        """Whether a memory is a summary that may say what is taken back here, or was erased: it was made before.

        So does one that goes on from it.  Cost: a look at all that it comes from, once.
        """
        if self.nothing:
            return False
        if summary not in self._said_by:
            self._said_by[summary] = any(
                self._store.log.is_erased(id) or any(map(self.hide, self._store.skeleton(id).get("sources", ())))
                for id in self._summaries(summary)
            )
        return self._said_by[summary]

    def _summaries(self, memory: str) -> Iterator[str]:
        """A memory, where it is a summary, and the summaries that it derives from."""
        seen, waiting = {memory}, [memory]
        while waiting:
            id = waiting.pop()
            links = self._store.skeleton(id)
            if links.get("kind") == SUMMARY:
                yield id
                further = {*links.get("derived_from", ())} - seen
                seen |= further
                waiting += further

    def _covers(self, memory: str) -> bool:
        """Whether a retraction names a memory, what it derives from or adopts, or a source or key of any of it."""
        ids, keys = self._names
        seen, waiting = {memory}, [memory] if ids or keys else []
        while waiting:
            id = waiting.pop()
            links = self._store.skeleton(id)
            if id in ids or links.get("key") in keys or not ids.isdisjoint(links.get("sources", ())):
                return True
            upstream = {*links.get("derived_from", ()), *([links["adopts"]] if "adopts" in links else [])} - seen
            seen |= upstream
            waiting += upstream
        return False


class Upstream:
    """What memories from messages of a path must derive from, as the log is now.

    What was said between two messages of the user is one answer, in several steps: each of them was read by the next,
    so each has the receipts of all.  An erased one has lost its receipt: nobody knows what those below were written
    with.  `own` is the receipt of a message that is not in the log yet.
    """

    def __init__(
        self, store: Store, view: View | StepView, path: Sequence[str], own: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self._store = store
        self._path = path
        self._own = own or {}
        self._places = {id: place for place, id in enumerate(path)}
        self._taken_back = TakenBack(store, view)
        self._receipts: dict[str, tuple[str, ...]] = {}

    def of(self, sources: Iterable[str]) -> Ties:
        """What a memory from these messages must derive from.

        Where a memory of one of them was taken back that comes from a sibling branch as well, it must come from the end
        of the path, too: nobody sees that from there.
        Raises: Unusable where one was erased, or nobody can say what it was written with.
        Cost: reads the answers that they belong to, each once.
        """
        found: dict[str, None] = {}
        is_tied = False
        for id in sources:
            if id not in self._own:
                if self._store.log.is_erased(id):
                    raise Unusable(f"{id} was erased meanwhile")
                taken_back, is_beside = self._taken_back.of(id)
                found.update(dict.fromkeys(taken_back))
                is_tied = is_tied or is_beside
            if id not in self._receipts:
                self._receipts.update(self._of_answer(id))
            if id not in self._receipts:
                raise Unusable(f"{id} follows what was erased, so nobody knows what it was written with")
            for memory in self._receipts[id]:
                if self._taken_back.said_by(memory):
                    raise Unusable(f"{id} was written with summary {memory}, which says what was taken back since")
                found[memory] = None
        return Ties(tuple(found), (self._path[-1],) if is_tied else ())

    def _of_answer(self, id: str) -> dict[str, tuple[str, ...]]:
        """For each message of the answer that one belongs to the receipts of all; for one of the user its own.

        Without those that follow what was erased.
        """
        message = self._message(id)
        if message is not None and message.role in _USERS:
            return {id: receipt(message)}
        at = self._places[id]
        above, below = self._answering(range(at, -1, -1)), self._answering(range(at + 1, len(self._path)))
        answer = [*reversed([*above]), *below]
        together: dict[str, None] = {}
        for said in answer:
            recalled = self._own[said] if said in self._own else receipt(self._message(said))
            together.update(dict.fromkeys(recalled))
        return dict.fromkeys(takewhile(self._is_whole, answer), tuple(together))

    def _answering(self, places: Iterable[int]) -> Iterator[str]:
        """The messages from here on until the user speaks."""
        for place in places:
            id = self._path[place]
            message = self._message(id)
            if message is not None and message.role in _USERS:
                return
            yield id

    def _is_whole(self, id: str) -> bool:
        return id in self._own or not self._store.log.is_erased(id)

    def _message(self, id: str) -> Message | None:
        """A message of the log."""
        found = None if id in self._own else self._store.log.get(id)
        return found if isinstance(found, Message) else None


def usable(place: Place, messages: Sequence[Message], key: str | None) -> list[Message]:
    """The messages of which a summary with this key would be visible: nothing that they say, or were written with, is
    hidden here.

    Asked of an engine that holds what decides about such memories, one a message.
    Cost: the path, and a verdict for each memory that has one of them for a source.
    """
    view = place.view()
    must = Upstream(place.store, view, place.path)
    slice = Slice(place.store, Message(new_id(), place.anchor), place.store.seq)
    probes: dict[str, Message] = {}
    for message in messages:
        try:
            ties = must.of([message.id])
            sources = (message.id, *ties.sources)
            probe = Memory(new_id(), "", sources=sources, derived_from=ties.upstream, kind=SUMMARY, key=key)
        except (Unusable, InvalidEvent):
            continue
        slice.add(probe)
        probes[probe.id] = message
    return [probes[id] for id in slice.at(place.anchors, STRICT).filter(probes)]
