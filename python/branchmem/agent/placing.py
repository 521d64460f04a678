"""Where a list of messages belongs in the tree of a session: found by what they say, or refused.

A list is a conversation from its first message on.  It is followed from the root down all branches, as far as it says
what stands there; what follows after that is new, and belongs below.  Instructions at its beginning are the
application's, and no part of it.  Where several places say the same, the one counts at which the session stands; where
it stands at none of them, or where a list has left out what stands between, nothing is guessed.  What stands in the
tree without a word, as adoptions do, another branch may have put there for itself: what is below it is meant where the
session has stood there, or where the list has an answer from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from branchmem import Message
from branchmem.agent.wire import Said
from branchmem.errors.agent import PlaceAmbiguous, PlaceUnknown
from branchmem.session.step import written_with

if TYPE_CHECKING:
    from branchmem import Session, Store


@dataclass(frozen=True, slots=True)
class Place:
    """Where a list stands: its last known message, and what of the list is new below that, each with a receipt.

    A new answer may be one that is known, edited, or said again after what was edited above it.  So it has the receipts
    of all answers in whose place it stands.
    """

    at: str
    new: tuple[tuple[Said, tuple[str, ...]], ...]


def place(session: Session, head: str, messages: Sequence[object]) -> Place:
    """The place of a list in the tree of `head`, the message where the session stands.

    Raises: InvalidMessage; PlaceAmbiguous where two places fit; PlaceUnknown where none does; InvalidEvent where a new
    answer stands for one whose receipt cannot be read.
    Cost: reads every message beside the path of the list, and the whole tree where an answer in it is new.
    """
    said = [Said.of_wire(message, at) for at, message in enumerate(messages)]
    first = next((at for at, one in enumerate(said) if not one.is_instruction), len(said))
    if first == len(said):
        raise PlaceUnknown(session.ref, max(len(said) - 1, 0), "the list says nothing besides instructions")
    return _Search(session, head, said, first).found()


class _Search:
    """One list, and the tree that it is looked for in."""

    def __init__(self, session: Session, head: str, said: Sequence[Said], first: int) -> None:
        self._ref = session.ref
        self._refs = session.store.refs
        self._log = session.store.log
        self._tree = session.store.tree
        self._read = _Reader(session.store)
        self._path = self._tree.path(head)
        self._said = said
        self._spoken = [one.spoken for one in said]
        self._first = first

    def found(self) -> Place:
        #: For each place whether it is no accident that it fits.
        fitting, at = dict.fromkeys(self._beginnings(), True), self._first
        places, known = [*fitting], at
        while fitting and at < len(self._said):
            fitting, at = self._fitting(fitting, self._spoken[at]), at + 1
            if any(fitting.values()):
                places, known = [id for id, is_meant in fitting.items() if is_meant], at
        at = known
        chosen = self._chosen(places, at)
        self._refuse_cut(places, at)
        return Place(chosen, tuple(zip(self._said[at:], self._receipts(places, at), strict=True)))

    def _beginnings(self) -> list[str]:
        """What stands for a list of which nothing has been said: the root, where it only has a place in the tree.

        A root that says something has none above it that another beginning could hang under.
        """
        root = self._path[0]
        if self._is_silent(root, at_beginning=True):
            return [root]
        if self._read.said(root) != self._spoken[self._first]:
            why = "the conversation begins with another, and has no root above it: give the list a session of its own"
            raise PlaceUnknown(self._ref, self._first, why)
        return [_ABOVE]

    def _fitting(self, places: Mapping[str, bool], one: Said) -> dict[str, bool]:
        """The messages that follow on these places and say this, each with whether it is meant.

        An answer is no accident; what a user says may be said on two branches.
        """
        found: dict[str, bool] = {}
        for place, is_meant in places.items():
            for id, is_near in self._below([place]).items():
                if self._read.said(id) == one:
                    found[id] = one.is_answer or (is_meant and is_near)
        return found

    def _below(self, places: Iterable[str]) -> dict[str, bool]:
        """The messages of the conversation that follow directly on these places.

        For each whether nothing stands between that another branch may have put there.
        """
        found: dict[str, bool] = {}
        waiting = [(id, True) for id in places]
        is_beginning = {id for id, _ in waiting if id == self._path[0]}
        while waiting:
            id, is_near = waiting.pop()
            for child in [self._path[0]] if id == _ABOVE else self._tree.children(id):
                if self._is_silent(child, at_beginning=id in is_beginning):
                    waiting.append((child, is_near and self._is_own(child)))
                    if id in is_beginning:
                        is_beginning.add(child)
                else:
                    found[child] = is_near
        return found

    def _chosen(self, places: Sequence[str], at: int) -> str:
        """The one place that is meant: the lowest of the session's path, or of the only chain that there is."""
        tips = {tip for place in places for tip in self._tips(place, at == self._first)}
        here = next((id for id in reversed(self._path) if id in tips), None)
        if here is not None:
            return here
        lowest = [tip for tip in tips if not any(tip != one and self._tree.is_ancestor(tip, one) for one in tips)]
        if len(lowest) > 1:
            raise PlaceAmbiguous(self._ref, at, lowest)
        return lowest[0]

    def _tips(self, place: str, at_beginning: bool) -> list[str]:
        """A place, and what of the session's own hangs below it without saying anything: adoptions and merges."""
        found, waiting = [], [place]
        while waiting:
            id = waiting.pop()
            found.append(id)
            silent = (child for child in self._tree.children(id) if self._is_silent(child, at_beginning=at_beginning))
            waiting += filter(self._is_own, silent)
        return found

    def _is_own(self, id: str) -> bool:
        """Whether the session stood at a message or below, or it was erased, so that nothing is learned there."""
        return self._log.is_erased(id) or any(self._tree.is_ancestor(id, at) for at in self._stood)

    @cached_property
    def _stood(self) -> frozenset[str]:
        """Where the ref of the session ever stood."""
        return frozenset(move.after for move in self._refs.log(self._ref) if move.after is not None)

    def _receipts(self, places: Sequence[str], at: int) -> Iterator[tuple[str, ...]]:
        """For each new answer the receipts of those as deep below these places as it will be, or that say the same."""
        here: Iterable[str] = places
        for one in self._spoken[at:]:
            here = self._below(here)
            alike: list[str] = []
            if one.is_answer:
                everywhere = self._descendants([self._path[0]])
                alike = [*here, *(id for id in everywhere if self._read.said(id) == one)]
            yield tuple(dict.fromkeys(memory for id in alike for memory in self._read.recalled(id)))

    def _refuse_cut(self, places: Sequence[str], at: int) -> None:
        """Refuse a list that goes on with what was said further below: it has left out what stands between.

        A new message of the user may repeat an earlier one; an answer, or two messages that follow each other there as
        here, are no accident.
        """
        new = self._spoken[at : at + 2]
        if not any(one.is_answer for one in self._spoken[at:]):
            return
        for id in self._descendants(places):
            if self._read.said(id) != new[0]:
                continue
            if new[0].is_answer or any(self._read.said(child) == one for one in new[1:] for child in self._below([id])):
                why = f"it stands further below, at {id}: give the whole conversation, from its first message on"
                raise PlaceUnknown(self._ref, at, why)

    def _descendants(self, places: Iterable[str]) -> Iterable[str]:
        waiting = [child for place in places for child in self._tree.children(place)]
        while waiting:
            id = waiting.pop()
            yield id
            waiting += self._tree.children(id)

    def _is_silent(self, id: str, *, at_beginning: bool) -> bool:
        said = self._read.said(id)
        return said is None or (at_beginning and said.is_instruction)


#: Stands above a root that says something itself.
_ABOVE = ""


class _Reader:
    """What the messages of a store say, and what they were written with, each read once."""

    def __init__(self, store: Store) -> None:
        self._log = store.log
        self._messages: dict[str, Message | None] = {}
        self._said: dict[str, Said | None] = {}

    def said(self, id: str) -> Said | None:
        if id not in self._said:
            message = self._message(id)
            said = None if message is None else Said.of_message(message)
            self._said[id] = said and said.spoken
        return self._said[id]

    def recalled(self, id: str) -> tuple[str, ...]:
        """Raises: InvalidEvent where nobody can say."""
        message = self._message(id)
        return () if message is None else written_with(message, instead="give the list a session of its own")

    def _message(self, id: str) -> Message | None:
        if id not in self._messages:
            event = self._log.get(id)
            self._messages[id] = event if isinstance(event, Message) else None
        return self._messages[id]
