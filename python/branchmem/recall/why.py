"""Why a memory layer said what it said: who said a text, what remembers it, and which answers were written with that.

An explicit read of the whole log, not of a view: what is hidden is found with its verdict.  Erased content is not there
to be found.  Compares texts folded, so that neither case nor width nor composition of a character matters.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from branchmem.canonical import Tag, unpack
from branchmem.errors import InvalidSearch
from branchmem.eventlog import body_of, skeleton_of
from branchmem.events import Event, Memory, Message, event_from_bytes
from branchmem.recall.rendering import NO_TEXT, line
from branchmem.refs import anchor_of
from branchmem.session.step import CANCELLED, RECALLED, receipt_of
from branchmem.verdict import Reason, Verdict

if TYPE_CHECKING:
    from branchmem import Store
    from branchmem.log import Reader

#: At most so many characters are shown of a text, of a name or of what is asked for, and of a list of ids or reasons.
_SHOWN: Final = 100
_NAMED: Final = 40
_LISTED: Final = 400
_PAGE: Final = 1000


class Found(NamedTuple):
    """A memory that contains the text, and what the view says of it."""

    memory: Memory
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """A message whose receipt names memories that contain the text."""

    message: Message
    #: Their ids, sorted.
    memories: tuple[str, ...]
    #: Whether it lies on the path that was asked about.
    on_path: bool

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {"message": self.message.to_dict(), "memories": list(self.memories), "on_path": self.on_path}


@dataclass(frozen=True, slots=True)
class Why:
    """Where a text comes from, and where it went.  `str` of it is for people."""

    text: str
    #: The messages on which the question stands; none where it asks about no place.
    anchors: tuple[str, ...]
    #: Every memory that contains it: those that are visible first, then by when they were made, and by id.
    memories: tuple[Found, ...]
    #: The messages on the path that contain it, root first; of several paths one after the other.
    messages: tuple[Message, ...]
    #: Every answer that was written with one of the memories: those on the path first, root first.
    answers: tuple[Answer, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "text": self.text,
            "anchors": list(self.anchors),
            "memories": [{"memory": memory.to_dict(), **_said(verdict)} for memory, verdict in self.memories],
            "messages": [message.to_dict() for message in self.messages],
            "answers": [answer.to_dict() for answer in self.answers],
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"“{line(self.text, _NAMED)}”{self._place()}: {', '.join(self._counts()) or 'nothing says so'}"
        if self.memories:
            yield "Memories that say so:"
        for memory, verdict in self.memories:
            yield f"- {_dated(memory)}{self._shown(memory.text)}"
            state = "visible" if verdict.visible else "hidden"
            yield f"  {memory.id} is {state} here: {line(str(verdict), _LISTED)}"
        if self.messages:
            yield "Messages on the path that say so:"
        for message in self.messages:
            yield f"- {_dated(message)}{_speaker(message)}{self._shown(message.text)}"
            yield f"  {message.id}"
        if self.answers:
            yield "Answers that were written with such a memory:"
        for answer in self.answers:
            message = answer.message
            yield f"- {_dated(message)}{_speaker(message)}{line(message.text or NO_TEXT, _SHOWN)}"
            where = f", {'on' if answer.on_path else 'off'} the path" if self.anchors else ""
            cut = ", cut short" if message.meta.get(CANCELLED) is True else ""
            yield f"  {message.id}, with {line(', '.join(answer.memories), _LISTED)}{where}{cut}"

    def _place(self) -> str:
        return f" at {line(', '.join(self.anchors), _SHOWN)}" if self.anchors else ""

    def _counts(self) -> Iterator[str]:
        visible = sum(verdict.visible for _, verdict in self.memories)
        if self.memories:
            yield f"{_counted(len(self.memories), 'memory', 'memories')} ({visible:,} visible here)"
        if self.messages:
            yield f"{_counted(len(self.messages), 'message', 'messages')} on the path"
        if self.answers:
            yield f"{_counted(len(self.answers), 'answer', 'answers')} written with such a memory"

    def _shown(self, text: str | None) -> str:
        """The part of a text where it says so."""
        return line(text or "", _SHOWN, around=place_of(text or "", self.text))


def why(store: Store, text: str, *, at: str | Iterable[str] | None = None) -> Why:
    """Every memory and, on the path, every message that contains a text; every answer written with such a memory.

    `at` is a ref or a message, or a list of these, one a tree: the memories get the verdicts of the strict view there.
    Without it there is no path: the verdicts say that the view has no anchor.
    Raises: InvalidSearch for a text that is nothing but space; UnknownRef for what is neither ref nor message;
    AmbiguousName for a ref that is named like another message; AmbiguousAnchor for two places in one tree.
    Cost: reads the whole log, and its messages again where a memory contains the text; an explanation for each such
    memory.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidSearch("text", text, "almost every text contains that: ask for a word")
    anchors = _anchors(store, at)
    view = store.at(anchors, count=False)
    log = _Log(store)
    path = {id: None for anchor in anchors for id in store.tree.known_path(anchor)}
    memories: dict[str, Memory] = {}
    messages: dict[str, Message] = {}
    for event in log.matching(_says(text), lambda id: id in path or not log.engine.is_message(id)):
        if isinstance(event, Memory):
            memories[event.id] = event
        elif isinstance(event, Message):
            messages[event.id] = event
    places = {id: place for place, id in enumerate(path)}
    explained = (Found(memory, view.explain(id)) for id, memory in memories.items())
    found = [each for each in explained if Reason.ERASED not in each.verdict.reasons]  # erased since it was read
    return Why(
        text,
        tuple(anchors),
        memories=tuple(sorted(found, key=lambda each: (not each.verdict.visible, *_age(each.memory)))),
        messages=tuple(sorted(messages.values(), key=lambda message: places[message.id])),
        answers=tuple(
            sorted(
                _answers(log, memories, path),
                key=lambda answer: (places.get(answer.message.id, len(places)), *_age(answer.message)),
            )
        ),
    )


def folded(text: str) -> str:
    """A text in the form in which texts are compared: NFKC and case-folded."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", _nfkc(text).casefold())


def place_of(text: str, sought: str) -> int:
    """Where a text says what is sought; 0 where it does not.  Folded, the text before that may have another length."""
    at = max(0, folded(text).find(folded(sought)))
    if text.isascii():
        return at
    return max(0, bisect_right(range(len(text)), at, key=lambda end: len(folded(text[:end]))) - 1)


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _says(text: str) -> Callable[[bytes], bool]:
    """Whether the text of a body contains this one."""
    wanted = folded(text)

    def says(body: bytes) -> bool:
        fields = iter(unpack(body))
        return any(tag == Tag.TEXT and wanted in folded(value) for tag, value in zip(fields, fields, strict=True))

    return says


class _Log:
    """The events that a log had when it was opened here, by what their canonical bodies hold."""

    def __init__(self, store: Store) -> None:
        self.engine = store._fresh()
        self._log = store._log
        self._end = self.engine.seq

    def matching(self, fits: Callable[[bytes], bool], wanted: Callable[[str], bool]) -> Iterator[Event]:
        """Yield the messages and memories that are wanted and whose body fits, in order.  A thousand at a time.

        Only these are made into events, which costs several times what reading their bodies does.
        """
        engine = self.engine
        for start in range(0, self._end, _PAGE):
            ids = engine.event_ids(start, min(start + _PAGE, self._end))
            page = [(start + place, id) for place, id in enumerate(ids) if wanted(id)]

            def read(reader: Reader, page: list[tuple[int, str]] = page) -> list[Event]:
                found = []
                for seq, id in page:
                    if engine.is_message(id) or engine.is_memory(id):
                        body = body_of(engine, reader, id, seq)
                        if body is not None and fits(body):
                            found.append(event_from_bytes(skeleton_of(engine, id)[1], body))
                return found

            yield from self._log.read(read)


def _anchors(store: Store, at: str | Iterable[str] | None) -> list[str]:
    """The messages that refs and ids mean, each once."""
    names = [] if at is None else [at] if isinstance(at, str) else at
    return list(dict.fromkeys(anchor_of(store, name) for name in names))


def _answers(log: _Log, memories: Mapping[str, Memory], path: Mapping[str, None]) -> Iterator[Answer]:
    """The messages whose receipts name one of the memories, in order of arrival."""
    if not memories:
        return
    for event in log.matching(lambda body: RECALLED.encode() in body, log.engine.is_message):
        if isinstance(event, Message):
            named = {id for id in receipt_of(event) or () if id in memories}
            if named:
                yield Answer(event, tuple(sorted(named)), event.id in path)


def _age(event: Memory | Message) -> tuple[float, str]:
    """By when it was made, what does not say so first; then by id: the same on every replica."""
    return float("-inf") if event.created is None else event.created.timestamp(), event.id


def _dated(event: Memory | Message) -> str:
    return "" if event.created is None else f"{event.created.date().isoformat()}: "


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _speaker(message: Message) -> str:
    return "" if message.role is None else f"{line(message.role, _NAMED)}: "


def _said(verdict: Verdict) -> dict[str, Any]:
    """A verdict, JSON-ready."""
    return {
        "visible": verdict.visible,
        "reasons": list(verdict.reasons.names()),
        "culprits": {str(reason.name): list(ids) for reason, ids in verdict.culprits.items()},
        "why": str(verdict),
    }
