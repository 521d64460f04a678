"""From new messages on a path to memories, each with the messages that it comes from.

Where it is read is fixed before anybody is asked: the path of one message.  Sources are messages of that path and
nothing else, so that a slow extraction lands on the branch that it came from, wherever the ref stands by then.  What
others wrote meanwhile is looked at when it is written, in the same transaction: what was taken back covers what is
new, what was erased refuses it, and what another has read by then is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from branchmem import EventConflict, InvalidEvent, Memory, Message, Session, Step, Store, UnknownEvent, new_id
from branchmem.canonical import now
from branchmem.errors.extract import ExtractionFailed, InvalidExtraction
from branchmem.extract import marks
from branchmem.extract.asking import arun, run
from branchmem.extract.cutting import Count, counter, whole
from branchmem.extract.outcome import Extracted, Refused
from branchmem.extract.place import Place, place_of
from branchmem.extract.provenance import Unusable, Upstream
from branchmem.extract.shown import Extractor, Found, Shown, known, said
from branchmem.session import remembering

if TYPE_CHECKING:
    from branchmem import StepView
    from branchmem.log import Writer

#: About so many tokens of messages are shown at a time.
WINDOW_TOKENS: Final = 6000
#: So many memories are shown at most of those that are known.
KNOWN: Final = 100
#: No memory may refer to more than 4,096 ids, and what it derives from needs room beside its sources.
MAX_SHOWN: Final = 1000


def extract(
    place: Session | Store,
    extractor: Extractor,
    *,
    anchor: str | Message | None = None,
    since: str | Message | None = None,
    name: str = marks.DEFAULT,
    window_tokens: int = WINDOW_TOKENS,
    known: int = KNOWN,
    tokens: Count | None = None,
) -> Extracted:
    """Remember what the extractor finds in the messages of a path that it has not read yet.

    It is read at `anchor`, by default where the session stands now, whatever becomes of its ref; from below `since`,
    by default from below what was read on this path under this `name`.  It is shown in pieces of about `window_tokens`
    (`tokens` counts those of a text), each with at most `known` memories of the view.  Each piece is one transaction:
    memories and the mark that it was read.  What is there already, the same text from the same messages, is not added.

    Raises: InvalidExtraction; UnknownEvent for what is no message, or not attached; ExtractionFailed where what the
    extractor gives is no list of Found; what the extractor raises.  Pieces before that stay, and are not read again.
    Cost: for each piece one call of the extractor and one commit.
    """
    work = _reading(_Reading(place_of(place, anchor), since, name, window_tokens, known, tokens))
    return run(work, extractor)


def aextract(
    place: Session | Store,
    extractor: Callable[[Shown], Any],
    *,
    anchor: str | Message | None = None,
    since: str | Message | None = None,
    name: str = marks.DEFAULT,
    window_tokens: int = WINDOW_TOKENS,
    known: int = KNOWN,
    tokens: Count | None = None,
) -> Coroutine[Any, Any, Extracted]:
    """As `extract`; the extractor is called in a thread, and may be async.

    Where it is read is fixed by this call, whenever it is awaited: it may be left to a task.  Who is cancelled while
    the extractor works has written nothing of that piece.
    """
    work = _reading(_Reading(place_of(place, anchor), since, name, window_tokens, known, tokens))
    return arun(work, _in_loop(extractor))


def extract_in(
    step: Step,
    extractor: Extractor,
    *,
    since: str | Message | None = None,
    name: str = marks.DEFAULT,
    window_tokens: int = WINDOW_TOKENS,
    known: int = KNOWN,
    tokens: Count | None = None,
) -> Extracted:
    """As `extract`, within an open step, at its end: its text so far is the last message that is shown.

    What is found is remembered by the step, and so is written with its message or not at all.  Where that is written,
    it counts as read down to there.
    Raises: as `extract`; StepEnded.  The step then remembers nothing of it.
    """
    return run(_reading_in(_InStep(step, since, name, window_tokens, known, tokens)), extractor)


async def aextract_in(
    step: Step,
    extractor: Callable[[Shown], Any],
    *,
    since: str | Message | None = None,
    name: str = marks.DEFAULT,
    window_tokens: int = WINDOW_TOKENS,
    known: int = KNOWN,
    tokens: Count | None = None,
) -> Extracted:
    """As `extract_in`; the extractor is called in a thread, and may be async."""
    work = _reading_in(_InStep(step, since, name, window_tokens, known, tokens))
    return await arun(work, _in_loop(extractor))


def _in_loop(extractor: Callable[[Shown], Any]) -> Callable[[Shown], Any]:
    found: Callable[[Shown], Any] = getattr(extractor, "aread", extractor)
    return found


class _Window:
    """How much of a path is shown at a time, and what of it was said."""

    def __init__(
        self, store: Store, path: Sequence[str], since: object, name: str, window_tokens: int, tokens: Count | None
    ) -> None:
        self.name = marks.valid_name(name)
        self.path = path
        self._store = store
        self._tokens = whole("window_tokens", window_tokens, 1)
        self._count = counter(tokens)
        self.fixed = None if since is None else _below(path, since)

    def start(self) -> int:
        """How many messages of the path count as read."""
        if self.fixed is not None:
            return self.fixed
        return self._store.snapshot(lambda reader: marks.read_to(reader, self.name, self.path), tables=marks.TABLES)

    def of(self, start: int) -> tuple[int, list[Message]]:
        """Where a piece of the path ends that starts here, and what was said in it."""
        shown: list[Message] = []
        left = self._tokens
        for at in range(start, len(self.path)):
            message = said(self._store.log.get(self.path[at]))
            if message is None:
                continue
            left -= self._count(message.text or "")
            if shown and (left < 0 or len(shown) == MAX_SHOWN):
                return at, shown
            shown.append(message)
        return len(self.path), shown


class _Reading:
    """An extraction on a path of the log."""

    def __init__(
        self, place: Place, since: object, name: str, window_tokens: int, known: int, tokens: Count | None
    ) -> None:
        self.place = place
        self.store = place.store
        self.window = _Window(place.store, place.path, since, name, window_tokens, tokens)
        self._known = whole("known", known)

    def shown(self, messages: Sequence[Message]) -> tuple[Shown, tuple[str, ...]]:
        """What of these messages is shown, and why the others are not."""
        view = self.place.view()
        usable, left_out = _usable(messages, Upstream(self.store, view, self.place.path))
        return Shown(usable, known(self.store, view, self._known), self.place.anchor), left_out

    def write(self, shown: Shown, found: Sequence[Found], start: int, end: int) -> Extracted | None:
        """Write what was found in a piece, and that it was read; None where another has read some of it meanwhile."""
        ids, created = [new_id() for _ in found], now()
        window, path = self.window, self.window.path

        def plan(writer: Writer) -> tuple[list[Memory], Extracted | None]:
            if window.fixed is None and marks.read_to(writer, window.name, path) != start:
                return [], None
            marks.mark(writer, window.name, path[end - 1])
            must = Upstream(self.store, self.place.view(), path)
            added: list[Memory] = []
            there: list[Memory] = []
            refused: list[Refused] = []
            for id, one in zip(ids, found, strict=True):
                try:
                    memory = replace(_memory(shown, one, must), id=id, created=created)
                    new = next((other for other in added if remembering.same(other, memory)), None)
                except _REFUSALS as error:
                    refused.append(Refused(one, str(error)))
                    continue
                first = new or remembering.known(self.store, memory)
                if first is None:
                    added.append(memory)
                elif first not in (*added, *there):
                    there.append(first)
            messages = tuple(message.id for message in shown.messages)
            return added, Extracted(self.place.anchor, messages, tuple(added), tuple(there), tuple(refused))

        return self.store.transact(plan, tables=marks.TABLES)[1]


def _reading(reading: _Reading) -> Generator[Shown, Any, Extracted]:
    """Yield what is to be read, piece by piece, and be sent what was found."""
    window = reading.window
    out = Extracted(reading.place.anchor)
    start = window.start()
    while start < len(window.path):
        end, messages = window.of(start)
        shown, left_out = reading.shown(messages)
        found = _checked((yield shown)) if shown.messages else []
        written = reading.write(shown, found, start, end)
        if written is None:
            start = window.start()
            continue
        out = out.joined(replace(written, left_out=left_out))
        start = end
    visible = set(reading.place.view().filter([memory.id for memory in out.added]))
    return replace(out, hidden=tuple(memory.id for memory in out.added if memory.id not in visible))


class _InStep:
    """An extraction in a step that is open."""

    def __init__(
        self, step: Step, since: object, name: str, window_tokens: int, known: int, tokens: Count | None
    ) -> None:
        self.step = step
        self.store = step.session.store
        step.view()  # refuses where the step is not open
        self.window = _Window(self.store, self.store.tree.path(step.base), since, name, window_tokens, tokens)
        self._known = whole("known", known)
        self._answer = said(Message(step.id, step.base, role=step._message.role, text=step.text))

    def pieces(self) -> list[list[Message]]:
        """What is to be read, the answer last."""
        pieces: list[list[Message]] = []
        start = self.window.start()
        while start < len(self.window.path):
            start, messages = self.window.of(start)
            if messages:
                pieces.append(messages)
        if self._answer is not None:
            if not pieces:
                pieces.append([])
            pieces[-1].append(self._answer)
        return pieces

    def shown(self, messages: Sequence[Message]) -> tuple[Shown, tuple[str, ...]]:
        """What of these messages is shown, and why the others are not."""
        view = self.step.view()
        usable, left_out = _usable(messages, self._upstream(view))
        return Shown(usable, known(self.store, view, self._known), self.step.id), left_out

    def remember(self, shown: Shown, found: Sequence[Found]) -> Extracted:
        """Let the step remember what was found."""
        added: list[Memory] = []
        there: list[Memory] = []
        refused: list[Refused] = []
        for one in found:
            before = {memory.id for memory in self.step.memories}
            try:
                memory = _memory(shown, one, self._upstream(self.step.view()))
                kept = self.step.remember(
                    memory.text,
                    sources=[id for id in memory.sources if id != self.step.id],
                    derived_from=memory.derived_from,
                    supersedes=memory.supersedes,
                    kind=memory.kind,
                    key=memory.key,
                    importance=memory.importance,
                )
            except _REFUSALS as error:
                refused.append(Refused(one, str(error)))
                continue
            (there if kept.id in before else added).append(kept)
        messages = tuple(message.id for message in shown.messages)
        return Extracted(self.step.id, messages, tuple(added), tuple(there), tuple(refused))

    def _upstream(self, view: StepView) -> Upstream:
        own = {self.step.id: self.step.recalled}
        return Upstream(self.store, view, [*self.window.path, self.step.id], own)

    def mark(self) -> None:
        """Note that it is read down to the step's message, which is so where that is ever written."""

        def plan(writer: Writer) -> tuple[tuple[()], None]:
            marks.mark(writer, self.window.name, self.step.id)
            return (), None

        self.store.transact(plan, tables=marks.TABLES)


def _reading_in(reading: _InStep) -> Generator[Shown, Any, Extracted]:
    all_found: list[tuple[Shown, list[Found]]] = []
    out = Extracted(reading.step.id)
    for messages in reading.pieces():
        shown, left_out = reading.shown(messages)
        out = replace(out, left_out=(*out.left_out, *left_out))
        if shown.messages:
            all_found.append((shown, _checked((yield shown))))
    for shown, found in all_found:
        out = out.joined(reading.remember(shown, found))
    reading.mark()
    visible = set(reading.step.view().filter([memory.id for memory in out.added]))
    return replace(out, hidden=tuple(memory.id for memory in out.added if memory.id not in visible))


#: What is wrong with one memory that was found, and with none beside it.
_REFUSALS: Final = (Unusable, InvalidEvent, EventConflict, UnknownEvent)


def _memory(shown: Shown, found: Found, must: Upstream) -> Memory:
    """A memory that was found, with all that it comes from.

    Raises: one of `_REFUSALS` where it cites what was not shown, or what must not be read here any more.
    """
    messages = [message.id for message in shown.messages]
    cited = remembering.named(found.sources or (), "sources")
    sources = cited or messages
    _require(cited, messages, "message")
    if not isinstance(found.text, str) or not found.text.strip():
        raise Unusable("it says nothing")
    ties = must.of(sources)
    memories = {memory.id for memory in shown.known}
    derived, replaced = (
        remembering.named(found.derived_from, "derived_from"),
        remembering.named(found.supersedes, "supersedes"),
    )
    _require(derived, {*memories, *ties.upstream}, "memory")
    _require(replaced, memories, "memory")
    return Memory(
        shown.anchor,  # until it gets an id of its own
        found.text.strip(),
        sources=(*sources, *ties.sources),
        derived_from=(*ties.upstream, *derived),
        supersedes=replaced,
        kind=found.kind,
        key=found.key,
        importance=found.importance,
    )


def _usable(messages: Iterable[Message], must: Upstream) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The messages of which something may be made, and for each other one why not."""
    usable: list[Message] = []
    left_out: list[str] = []
    for message in messages:
        try:
            must.of([message.id])
        except Unusable as error:
            left_out.append(str(error))
        else:
            usable.append(message)
    return tuple(usable), tuple(left_out)


def _require(cited: Iterable[object], shown: Iterable[str], what: str) -> None:
    """Raises: Unusable for what was not shown."""
    among = set(shown)
    for id in cited:
        if not isinstance(id, str) or id not in among:
            raise Unusable(f"it cites {what} {id!r:.80}, which was not shown")


def _checked(answer: object) -> list[Found]:
    """What an extractor gave.  Raises: ExtractionFailed where that is no list of Found."""
    if isinstance(answer, (str, bytes, Mapping)) or not isinstance(answer, Iterable):
        raise ExtractionFailed("the extractor", f"it gave {answer!r:.80}, no list of Found")
    found = list(answer)
    for one in found:
        if not isinstance(one, Found):
            raise ExtractionFailed("the extractor", f"it gave {one!r:.80} for a Found")
    return found


def _below(path: Sequence[str], since: object) -> int:
    """How many messages of a path are not below `since`.  Raises: InvalidExtraction."""
    id = since.id if isinstance(since, Message) else since
    if id not in path:
        raise InvalidExtraction("since", id, f"it does not lie on the path of {path[-1]}")
    return path.index(id) + 1
