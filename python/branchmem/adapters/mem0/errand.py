"""One call of Mem0 at a place: what it is shown, which sources its memories get, and what became of their ids.

What is extracted comes from all that the extraction was shown, unless narrower sources were named: the message where
the memory is written, and the messages of the path above it.  From an answer it derives from what that answer
was written with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from branchmem import Message, Reason, StepView, View
from branchmem.adapters.mem0.place import InStep, Place, path_from
from branchmem.session.step import receipt_of, still_written_with

#: How many earlier messages Mem0 shows its model.
CONTEXT: Final = 10
_ROLES: Final = ("user", "assistant", "system")


@dataclass(slots=True)
class Errand:
    """One call; `renamed` says which ids that Mem0 made up stand for which memories."""

    place: Place
    sources: tuple[str, ...]
    #: Says what its memories derive from; asked only where some are written.
    derives: Callable[[], tuple[str, ...]] = tuple
    #: The messages of the path before those that are added, oldest first.
    context: tuple[Message, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)
    #: What was raised for ids that Mem0 made up, and is raised at the end, whatever Mem0 makes of it.
    failures: dict[str, Exception] = field(default_factory=dict)

    @property
    def derived_from(self) -> tuple[str, ...]:
        """What its memories derive from.  Raises: InvalidEvent where nobody knows."""
        return self.derives()

    @contextmanager
    def kept(self, ids: Iterable[object]) -> Iterator[None]:
        """Keep what is raised within for these ids, until they succeed; it is raised on as well.

        Mem0 passes over what its vector store raises, or tries again one by one.
        """
        named = [str(id) for id in ids]
        try:
            yield
        except Exception as error:
            self.failures.update(dict.fromkeys(named, error))
            raise
        for id in named:
            self.failures.pop(id, None)

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Raise at the end what was kept meanwhile, in place of what Mem0 made of it, if anything."""
        try:
            yield
        except Exception as error:
            first = next(iter(self.failures.values()), error)
            if first is error:
                raise
            raise first from error
        for failure in self.failures.values():
            raise failure

    def name(self, id: str) -> str:
        """The memory that an id which Mem0 uses stands for."""
        return self.renamed.get(id, id)


def plain(place: Place, sources: tuple[str, ...] | None) -> Errand:
    """A call that changes what it names."""
    named = (place.source,) if sources is None else sources
    return Errand(place, named, lambda: _written_with(place, named, _those(place, named)))


def adding(place: Place, messages: object, sources: tuple[str, ...] | None, *, infer: bool) -> Errand:
    """A call that adds messages, which may stand on the path already.

    An earlier answer that was written with what is hidden by now is not shown again: it would bring that back.
    Raises: InvalidEvent where the receipt of what is added cannot be read, or was erased.
    Cost: reads the path as far up as its messages are shown.
    """
    given = _said(messages)
    path = list(islice(_turns(place), len(given) + CONTEXT))  # lowest first
    here = _matched(path, given)
    view = place.view()
    context = [one for one in path[here : here + CONTEXT] if _stands(view, receipt_of(one))] if infer else []
    if sources is None:
        shown = path[:here] + context
        named = (place.source, *(message.id for message in shown))
        shown += _those(place, [place.source])
    else:
        named = sources
        shown = _those(place, sources)
    derived = _written_with(place, named, shown)
    return Errand(place, named, lambda: derived, tuple(reversed(context)))


def _said(messages: object) -> list[tuple[str, str]]:
    """Role and text of what is added, as Mem0 takes it: a string, a message, or a list of them."""
    if isinstance(messages, str):
        return [("user", messages)]
    listed = [messages] if isinstance(messages, Mapping) else messages
    if not isinstance(listed, Sequence):
        return []
    return [
        (one["role"], one["content"])
        for one in listed
        if isinstance(one, Mapping) and one.get("role") in _ROLES and isinstance(one.get("content"), str)
    ]


def _turns(place: Place) -> Iterator[Message]:
    """Yield what was said on the path and can be read here, the lowest first."""
    return (one for one in path_from(place.store, place.above) if one.role in _ROLES and one.text is not None)


def _matched(path: Sequence[Message], given: Sequence[tuple[str, str]]) -> int:
    """How many messages at the lower end of a path are the first of what is added."""
    for count in range(min(len(path), len(given)), 0, -1):
        if [(one.role, one.text) for one in reversed(path[:count])] == list(given[:count]):
            return count
    return 0


def _those(place: Place, ids: Sequence[str]) -> list[Message]:
    """The messages of these ids, but for one that is still to come."""
    return [one for id in ids for one in islice(path_from(place.store, id), 1)]


def _written_with(place: Place, named: Sequence[str], shown: Sequence[Message]) -> tuple[str, ...]:
    """The memories that messages were written with, and where it is among those named, what an open step recalled.

    Raises: InvalidEvent where a receipt cannot be read, or was erased.
    """
    instead = "name other messages as sources"
    recalled = {id for message in shown for id in still_written_with(place.store, message, instead=instead)}
    if isinstance(place, InStep) and place.source in named:
        recalled.update(place.step.recalled)
    return tuple(recalled)


def _stands(view: View | StepView, memories: Sequence[str] | None) -> bool:
    """Whether nothing of a receipt is hidden, but for what was replaced; of one that cannot be read, nobody knows."""
    if memories is None:
        return False
    hidden = set(memories).difference(view.filter(memories))
    return all(view.explain(id).reasons == Reason.SUPERSEDED for id in hidden)
