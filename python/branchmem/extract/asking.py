"""Work that waits for answers, in line or in an event loop; a model that is asked again with what was wrong.

Work is a generator that yields what it asks and is sent the answer, so that it is written once for both.  Between two
answers it holds no lock and no transaction.  Whoever is cancelled while an answer is awaited has written nothing of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from branchmem.errors.extract import ExtractionFailed
from branchmem.session.settled import settled

if TYPE_CHECKING:
    from branchmem.chat import Asks, Reply

Q = TypeVar("Q")
R = TypeVar("R")
Turns = Sequence[Mapping[str, Any]]

#: So much of an answer that cannot be used is shown again to who gave it.
_SHOWN_CHARS: Final = 4000


class Unfit(Exception):
    """An answer that cannot be used; the text says why, to whom gave it."""


def run(work: Generator[Q, Any, R], ask: Callable[[Q], Any]) -> R:
    """Do work, asking in line."""
    try:
        question = next(work)
        while True:
            question = work.send(ask(question))
    except StopIteration as end:
        result: R = end.value
        return result
    finally:
        work.close()


async def arun(work: Generator[Q, Any, R], ask: Callable[[Q], Any]) -> R:
    """Do work in threads, so that no loop waits; `ask` is called in one, too, unless it is a coroutine function."""
    import asyncio
    from inspect import isawaitable, iscoroutinefunction

    answer: Any = None
    try:
        while True:
            ended, out = await settled(partial(_advance, work, answer))
            if ended:
                result: R = out
                return result
            # who is cancelled while a thread makes a coroutine would leave that without anybody who awaits it
            answer = ask(out) if iscoroutinefunction(ask) else await asyncio.to_thread(ask, out)
            if isawaitable(answer):
                answer = await answer
    finally:
        work.close()


def _advance(work: Generator[Any, Any, Any], answer: Any) -> tuple[bool, Any]:
    """Whether work has ended, and with what; else what it asks.  A StopIteration cannot leave a thread."""
    try:
        return False, work.send(answer)
    except StopIteration as end:
        return True, end.value


def asked(turns: Turns, read: Callable[[Reply, bool], R], *, who: str, retries: int) -> Generator[Turns, Reply, R]:
    """What is read in the reply to these messages, which are yielded; who answers unfitly is asked again, and told why.

    `read` is also told whether this is the last attempt; it raises Unfit.
    Raises: ExtractionFailed after `retries` more attempts.
    """
    said: list[Mapping[str, Any]] = list(turns)
    for attempt in range(1, retries + 2):
        reply = yield said
        try:
            if reply.finish == "length":
                raise Unfit("it was cut short before its end: say less")
            return read(reply, attempt > retries)
        except Unfit as unfit:
            why = str(unfit)
            if attempt > retries:
                raise ExtractionFailed(who, why, attempt, reply.text) from None
        said = [
            *turns,
            {"role": "assistant", "content": reply.text[:_SHOWN_CHARS] or "(nothing)"},
            {
                "role": "user",
                "content": f"That answer cannot be used: {why}. Answer again, as you were asked to.",
            },
        ]
    raise AssertionError("unreachable: the last attempt returns or raises")


def named(model: Asks) -> str:
    """How a model is named to people."""
    name = getattr(model, "model", None)
    return f"model {name}" if isinstance(name, str) else type(model).__name__


def awaitable(model: Asks, **options: Any) -> Callable[[Turns], Reply | Awaitable[Reply]]:
    """How a model is asked from an event loop: by `aask`, where it has that, so that a cancelled call ends."""
    return partial(getattr(model, "aask", model.ask), **options)
