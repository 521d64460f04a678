"""Many callers, one commit: who appends while a commit is under way waits for the next one, with all the others.

One thread writes while anybody waits, and ends when nobody does; the event loops of the callers
never wait for the disk.  What a batch gets as its answer is known to the store, not here.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from branchmem.events import Event
from branchmem.verdict import Appended

if TYPE_CHECKING:
    import asyncio

#: Writes batches in one commit; the answer or the refusal of each, as if they came one after the other.
AppendEach = Callable[[Sequence[Sequence[Event]]], Sequence[Appended | Exception]]

#: A commit takes no further batch once it holds so many events: who waits is answered now and then.
MAX_EVENTS: Final = 10_000


class _Caller(NamedTuple):
    batch: Sequence[Event]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Appended]


class Coalescer:
    """The batches of one store that wait for their commit.  Safe under threads and several event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Caller] = deque()
        self._writing = False

    async def append(self, batch: Sequence[Event], append_each: AppendEach) -> Appended:
        """Have `append_each` write the batch, with those of other callers.  All callers bring the same `append_each`.

        Raises: what it gave for this batch; what it raised, to every caller of that commit.  Who is cancelled
        before the commit begins is left out of it; later, the batch is written all the same.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        caller = _Caller(batch, loop, loop.create_future())
        with self._lock:
            self._waiting.append(caller)
            begin, self._writing = not self._writing, True
            if begin:
                try:
                    threading.Thread(target=self._write, args=(append_each,), name="branchmem-append").start()
                except BaseException:
                    self._writing = False
                    self._waiting.remove(caller)
                    raise
        return await caller.future

    def _write(self, append_each: AppendEach) -> None:
        while callers := self._next():
            answers: Sequence[Appended | BaseException]
            try:
                answers = append_each([caller.batch for caller in callers])
            except BaseException as error:  # whatever it is, nobody may wait for ever
                answers = [_own(error) for _ in callers]
            _answer(callers, answers)

    def _next(self) -> list[_Caller]:
        """Whose batches the next commit takes, in order of arrival; nobody: the thread must end."""
        callers: list[_Caller] = []
        events = 0
        with self._lock:
            while self._waiting and events < MAX_EVENTS:
                caller = self._waiting.popleft()
                if not caller.future.cancelled():
                    callers.append(caller)
                    events += len(caller.batch)
            self._writing = bool(callers)
        return callers


def _own(error: BaseException) -> BaseException:
    """An error for one caller, where it can be copied: each adds to its own the way that it takes."""
    try:
        own = copy.copy(error)
    except Exception:
        return error
    own.__cause__ = error
    return own


def _answer(callers: Sequence[_Caller], answers: Sequence[Appended | BaseException]) -> None:
    """Tell each caller in its own event loop, which is woken once."""
    told: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Appended], Appended | BaseException]]] = {}
    for caller, answer in zip(callers, answers, strict=True):
        told.setdefault(caller.loop, []).append((caller.future, answer))
    for loop, answered in told.items():
        try:
            loop.call_soon_threadsafe(_resolve, answered)
        except RuntimeError:  # the loop is closed: nobody waits there
            continue


def _resolve(answered: Sequence[tuple[asyncio.Future[Appended], Appended | BaseException]]) -> None:
    for future, answer in answered:
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
