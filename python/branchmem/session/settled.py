"""Work of a session in a thread, so that no event loop waits for the disk; who is cancelled waits until it is done.

Work on a log cannot be stopped half-way: it is written whole or not at all.  Were the cancelled task to go on at
once, it would find a ref that still moves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


async def settled(work: Callable[[], T], *, cancelled: Callable[[], object] = lambda: None) -> T:
    """What `work` returns, from a thread that knows the context variables of the caller.

    Where the task is cancelled meanwhile, `cancelled` is called, and CancelledError raised once the work has ended.
    """
    import asyncio

    # no task, as asyncio.to_thread would make one: a loop that is stopped cancels every task, and the thread goes on
    working = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
    stop: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError as error:
            stop = error
            cancelled()
    if stop is None:
        return working.result()
    raise stop from working.exception()
