"""What an extractor is shown, and what it finds.

It sees what is visible where it reads: messages of one path, and memories of the view there.  Recalled text is never
shown as something that was said, and neither are instructions or what was erased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from branchmem import Memory, MemoryHidden, Message
from branchmem.extract.frames import without_frames
from branchmem.extract.provenance import SUMMARY

if TYPE_CHECKING:
    from branchmem import StepView, Store, View
    from branchmem.log import Reader

#: Whose messages are no part of what was said: they frame it.
SILENT: Final = frozenset(("system", "developer", "thread"))
#: Kinds of memories that an extractor is not shown: instructions, and texts about all of the conversation.
_APART: Final = frozenset(("skill", SUMMARY))


@dataclass(frozen=True, slots=True)
class Shown:
    """What an extractor is shown: new messages of a path, and what is known there."""

    #: Oldest first; their text is what was said, without what branchmem wrote into it.
    messages: tuple[Message, ...]
    #: Memories that are visible there, by arrival: the last ones, where there are many.
    known: tuple[Memory, ...]
    #: The message at which it is read: the last of the path.
    anchor: str


@dataclass(frozen=True, slots=True)
class Found:
    """One memory that an extractor found.

    `sources` are the messages that say it, of those that were shown; None: not cited, then it comes from all of them.
    `derived_from` are known memories that it repeats or rests on, `supersedes` those that it replaces.
    """

    text: str
    sources: tuple[str, ...] | None = None
    derived_from: tuple[str, ...] = ()
    kind: str = "fact"
    key: str | None = None
    importance: float = 1.0
    supersedes: tuple[str, ...] = ()


Extractor = Callable[[Shown], Iterable[Found]]


def said(message: object) -> Message | None:
    """A message as it is shown; None where nothing was said in it."""
    if not isinstance(message, Message) or message.role in SILENT or not message.text:
        return None
    text = without_frames(message.text)
    if not text:
        return None
    return message if text == message.text else replace(message, text=text)


def all_said(store: Store, ids: Iterable[str]) -> list[Message]:
    """What was said in these messages, in their order.  Cost: one read each."""
    log = store.log
    return [message for message in (said(log.get(id)) for id in ids) if message is not None]


def known(store: Store, view: View | StepView, limit: int) -> tuple[Memory, ...]:
    """The memories of a view that arrived last, at most so many.  Cost: the view, and one read each."""
    ids: Sequence[str] = view.ids() if limit else ()

    def last(reader: Reader) -> list[Memory]:
        found: list[Memory] = []
        for id in reversed(ids):
            if len(found) == limit:
                break
            try:
                memory = view[id]
            except MemoryHidden:  # erased meanwhile
                continue
            if memory.kind not in _APART and memory.text.strip():
                found.append(memory)
        return found

    return tuple(reversed(store.snapshot(last, tables=())))
