"""One attempt at an answer: its text, and what is learned while it is made, written together at its end.

What a step remembers has its message for a source, so that a failed, cancelled or rejected attempt leaves nothing
that the next one sees: that is its sibling.  The current step travels in a context variable.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, cast

from branchmem import refs
from branchmem.canonical import MAX_TEXT_BYTES, NO_META, ids, microseconds, new_id, now, utf8_size
from branchmem.errors import (
    InvalidEvent,
    InvalidEventType,
    NoStep,
    RefMoved,
    StepEnded,
    StoreReadOnly,
    UnknownEvent,
    UnknownRef,
)
from branchmem.events import Event, Memory, Message
from branchmem.log.tables import ACCESS
from branchmem.session import remembering
from branchmem.session.settled import settled
from branchmem.session.slice import Slice
from branchmem.session.view import StepView
from branchmem.verdict import STRICT, Policy

if TYPE_CHECKING:
    from branchmem import Store
    from branchmem.log import Writer
    from branchmem.recall.conflicts import Options, Remembered
    from branchmem.recall.context import Recalled
    from branchmem.session import Session

OnCancel = Literal["drop", "keep"]

#: What a step writes into the meta of its message: the memories that it was written with, and whether it was cut short.
RECALLED: Final = "recalled"
CANCELLED: Final = "cancelled"

_CURRENT: ContextVar[Step | None] = ContextVar("branchmem.step", default=None)


def current_step() -> Step:
    """The innermost step that is open here.

    Generators have no context of their own: of streams that are read in turns, the one that began last is innermost
    for all.  Let each hold its step by name.
    Raises: NoStep; StepEnded where this is work of a step that is over.
    """
    step = next(_steps_here(), None)
    if step is None:
        raise NoStep("current_step()")
    if step.is_over:
        raise StepEnded(step.id, "current_step()", step.cancelled)
    return step


def receipt_of(message: Message) -> tuple[str, ...] | None:
    """The memories that a message says it was written with; None where what it says is no list of them."""
    recalled = message.meta.get(RECALLED, ())
    return recalled if isinstance(recalled, tuple) and all(isinstance(id, str) and id for id in recalled) else None


def written_with(message: Message, *, instead: str) -> tuple[str, ...]:
    """The memories that a message says it was written with, here or not.

    Raises: InvalidEvent where what it says is no list of them, so that nobody knows; `instead` is the way out.
    """
    recalled = receipt_of(message)
    if recalled is None:
        why = f"the receipt of {message.id} is no list of memories, so nobody knows what it was written with"
        raise InvalidEvent(f"{why}: {instead}", message.id)
    return recalled


def still_written_with(store: Store, message: Message, *, instead: str) -> tuple[str, ...]:
    """As `written_with`.  Raises: InvalidEvent also where the message was erased, and its receipt with it."""
    if store.log.is_erased(message.id):
        why = f"{message.id} was erased, so nobody knows what it was written with"
        raise InvalidEvent(f"{why}: {instead}", message.id)
    return written_with(message, instead=instead)


def step_of(session: Session) -> Step | None:
    """The innermost step here that is one of a session of this ref, over or not."""
    return next((step for step in _steps_here() if step.session._is_same(session)), None)


def _steps_here() -> Iterator[Step]:
    """The steps that this was called in, the innermost first; none in the child of a fork, which cannot end them."""
    step = _CURRENT.get()
    while step is not None:
        if step._process == os.getpid():
            yield step
        step = step._outer


class Step:
    """One attempt; a context manager, `with` or `async with`, that is entered once.  Safe under threads.

    At its end, message and memories are appended in one transaction and the ref moves to the message.  Where
    the ref was moved meanwhile, they are appended below `base` all the same, the ref stays, and RefMoved names the
    message.  Left by an exception or cancelled, it writes nothing (`on_cancel="drop"`), or ("keep") writes message and
    memories below `base`, and the ref stays there; the exception goes on either way.
    """

    def __init__(
        self,
        session: Session,
        *,
        role: str = "assistant",
        on_cancel: OnCancel = "drop",
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> None:
        if on_cancel not in ("drop", "keep"):
            raise ValueError(f'on_cancel is "drop" or "keep", not {on_cancel!r:.80}')
        self.session = session
        #: The id of the message that the step will produce.
        self.id = new_id()
        self._since = session.store.seq
        self._message = Message(self.id, None, role=role, meta=meta, created=created or now())
        for name in (RECALLED, CANCELLED):
            if name in self._message.meta:
                raise InvalidEvent(f"meta has {name}, which a step writes itself: take another name", name)
        self._on_cancel = on_cancel
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._state: Literal["new", "open", "ending", "ended"] = "new"
        self._cancelled = False
        self._text: list[str] = []
        self._text_bytes = 0
        self._recalled: tuple[str, ...] | None = None
        #: What was known already when it was to be remembered.
        self._restated: list[str] = []
        self._outer: Step | None = None

    @property
    def base(self) -> str:
        """The message that the step continues: the head when it was entered, unless its kind says something between."""
        if self._state == "new":
            raise NoStep("step.base")
        return str(self._part.message.parent)

    @property
    def text(self) -> str:
        """What was written so far."""
        return "".join(self._text)

    @property
    def memories(self) -> tuple[Memory, ...]:
        """What the step remembers, in the order in which it came."""
        return () if self._state == "new" else tuple(self._part.memories.values())

    @property
    def is_open(self) -> bool:
        """Whether the step can be written to: it was entered, and neither ended nor was cancelled."""
        return self._state == "open" and not self._cancelled

    @property
    def is_over(self) -> bool:
        """Whether the block of the step was left."""
        return self._state == "ended"

    @property
    def cancelled(self) -> bool:
        """Whether the step was cut short: by `cancel`, or by an exception that left it."""
        return self._cancelled

    @property
    def recalled(self) -> tuple[str, ...]:
        """The receipt: ids of the memories that the answer was written with, sorted; stored in the message's meta."""
        return self._recalled or ()

    @recalled.setter
    def recalled(self, memories: Iterable[str | Memory]) -> None:
        recalled = ids(remembering.named(memories, "recalled"), "recalled")
        with self._opened("step.recalled") as part:
            for id in recalled:
                if not part.links(id):
                    raise UnknownEvent(id, Memory.type)
            self._written(cancelled=True, recalled=recalled)  # refuses, now and not at the end, what meta cannot hold
            self._recalled = recalled

    def recall(self, message: str, *, policy: Policy = STRICT, **options: Any) -> Recalled:
        """What of the step's view belongs into a prompt; its memories join the receipt: `view.recall`.

        Raises: StepEnded; as `view` and `view.recall`; InvalidEvent where meta cannot hold the receipt.
        """
        from branchmem.recall import recall

        found = recall(self.session.store, self.view(policy), message, **options)
        with self._alone():
            self.recalled = (*self.recalled, *found.ids)
        return found

    def write(self, text: str) -> None:
        """Append to the text of the message.

        Raises: StepEnded; InvalidEvent where it is no text, or all of it has more than 1 MiB.
        """
        if not isinstance(text, str):
            raise InvalidEventType(f"text must be a string, not {text!r:.80}", text)
        size = utf8_size(text, "text")
        with self._opened("step.write"):
            if self._text_bytes + size > MAX_TEXT_BYTES:
                raise InvalidEvent(f"text has more than {MAX_TEXT_BYTES} bytes: keep it elsewhere", size)
            self._text_bytes += size
            self._text.append(text)

    def remember(
        self,
        text: str,
        *,
        sources: Iterable[str | Message] = (),
        derived_from: Iterable[str | Memory] = (),
        supersedes: Iterable[str | Memory] = (),
        kind: str = "fact",
        key: str | None = None,
        importance: float = 1.0,
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> Memory:
        """Keep a memory until the end of the step, with the step's message among its sources.

        The same text, sources and kind twice is one memory: the first.
        Raises: StepEnded; UnknownEvent for what is neither in the log nor of this step; EventConflict where the
        first derives from, replaces or is about something else; InvalidEvent.
        """
        memory = remembering.drafted(text, sources, derived_from, supersedes, kind, key, importance, meta, created)
        return self._keep(memory)

    def remember_checked(self, text: str, **options: Unpack[Options]) -> Remembered:
        """As `remember`, after a look at what is visible in the step and says something else.

        It is decided once; what others put on the path before the end of the step is not looked at again.  Takes what
        `remember` takes, and `resolve`, `threshold` and `embedder`: `branchmem.recall.conflicts.remember_checked`.
        """
        from branchmem.recall.conflicts import remember_checked

        return remember_checked(self, text, **options)

    async def arecall(self, message: str, *, policy: Policy = STRICT, **options: Any) -> Recalled:
        """As `recall`, in a thread: it reads the file, and asks the embedder."""
        return await settled(partial(self.recall, message, policy=policy, **options))

    async def aremember_checked(self, text: str, **options: Unpack[Options]) -> Remembered:
        """As `remember_checked`, in a thread."""
        return await settled(partial(self.remember_checked, text, **options))

    def view(self, policy: Policy = STRICT) -> StepView:
        """What is visible at the step's message, its own memories so far included, and at the heads beside.

        Cost: the view at the base, and what decides about the step's memories.  Where the policy tells
        SIBLING from FUTURE, or the log names the step already, it replays the log.
        Raises: StepEnded; UnknownRef; AmbiguousAnchor.
        """
        with self._opened("step.view") as part:
            return StepView(part, self.session.store.refs.heads(self.session.beside), policy)

    def cancel(self) -> None:
        """Cut the step short, from any thread; nothing where it has ended.

        What is still written to it is refused, and its end is that of a cancelled step.  Raises nothing here or there.
        """
        with self._alone():
            if self._state != "ended":
                self._cancelled = True

    def __enter__(self) -> Step:
        self._begin()
        self._token: Token[Step | None] = _CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        self._end(error)

    async def __aenter__(self) -> Step:
        await settled(self._begin)
        self._token = _CURRENT.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        await settled(lambda: self._end(error), cancelled=self.cancel)

    def __repr__(self) -> str:
        return f"<Step {self.id} of {self.session.ref}: {self._state}{', cancelled' if self._cancelled else ''}>"

    def _keep(self, memory: Memory) -> Memory:
        memory = replace(memory, sources=(*memory.sources, self.id))
        with self._opened("step.remember") as part:
            remembering.require(self.session.store, memory, {self.id, *part.memories})
            for first in part.memories.values():
                if remembering.same(first, memory):
                    return first
            part.add(memory)
            return memory

    @contextmanager
    def _opened(self, wanted: str) -> Iterator[Slice]:
        with self._alone():
            if self._state == "new":
                raise NoStep(wanted)
            if not self.is_open:
                raise StepEnded(self.id, wanted, self._cancelled)
            self.session.store._log.changed()  # refuses in the child of a fork, where nothing would be written
            yield self._part

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Alone among the threads of this process.

        The child of a fork can write nothing, and waits for nobody: a lock that was held then is never let go.
        """
        if self._process == os.getpid():
            with self._lock:
                yield
        else:
            yield

    def _begin(self) -> None:
        store, ref = self.session.store, self.session.ref
        if self._state != "new":
            raise StepEnded(self.id, "entering it again", self._cancelled)
        self.session._refuse_in_step("another step")
        if store._log.readonly:
            raise StoreReadOnly(store.path)
        self._head = store.refs[ref]
        self._part = Slice(store, replace(self._message, parent=self._head), self._since)
        # a stream that was abandoned leaves its step in the context for good: it is not held on to
        self._outer = next((step for step in _steps_here() if not step.is_over), None)
        self._state = "open"

    def _leave(self) -> None:
        with suppress(ValueError):  # a generator may be resumed, and closed, in another context than it was begun in
            _CURRENT.reset(self._token)
        del self._token  # which holds what was current before

    def _end(self, error: BaseException | None) -> None:
        with self._alone():
            self._state = "ending"
            self._cancelled = self._cancelled or error is not None
        try:
            self._write()
        except Exception as failed:
            if error is None:
                raise
            error.add_note(f"nothing of step {self.id} was kept: {failed}")
        finally:
            self._state = "ended"

    def _write(self) -> None:
        store, ref = self.session.store, self.session.ref

        def plan(writer: Writer) -> tuple[list[Event], tuple[bool, str | None]]:
            cancelled = self._cancelled
            if cancelled and self._on_cancel == "drop":
                return [], (True, None)
            found = _head(writer, ref)
            if found == self._head and not cancelled:
                refs.write_move(writer, ref, self.id, "step")
            beside = () if cancelled else self._beside(writer)
            if not cancelled:
                self._note_use(writer)
            return [self._written(cancelled, self._recalled), *self.memories, *beside], (cancelled, found)

        if self._cancelled and self._on_cancel == "drop":
            return
        tables = (*refs.TABLES, *((ACCESS,) if self._recalled or self._restated else ()))
        _, (self._cancelled, found) = store.transact(plan, tables=tables)
        if found != self._head and not self._cancelled:
            raise RefMoved(ref, self._head, found, self.id)

    def _stand_below(self, base: str) -> None:
        """Let the step continue another message than the head; the ref must still stand at the head when it ends."""
        moved = Slice(self.session.store, replace(self._part.message, parent=base), self._since)
        for memory in self._part.memories.values():
            moved.add(memory)
        self._part = moved

    def _note_use(self, writer: Writer) -> None:
        """Note, where the step ends well, that what it recalled or knew already was used when its message was made."""
        if self._recalled or self._restated:
            from branchmem.recall import access

            used = (*self.recalled, *self._restated)
            access.mark(writer, used, microseconds(cast(datetime, self._message.created)))

    def _beside(self, writer: Writer) -> Iterable[Event]:
        """What a kind of step writes besides where it ends well, in the same transaction."""
        return ()

    def _written(self, cancelled: bool, recalled: tuple[str, ...] | None) -> Message:
        """The message as it is appended."""
        meta = dict(self._message.meta)
        if recalled is not None:
            meta[RECALLED] = recalled
        if cancelled:
            meta[CANCELLED] = True
        return replace(self._part.message, text=self.text if self._text else None, meta=meta)


def _head(writer: Writer, ref: str) -> str | None:
    try:
        return refs.head(writer, ref)
    except UnknownRef:
        return None
