"""Work of a session in a thread, so that no event loop waits for the disk; who is cancelled waits until it is done.

Work on a log cannot be stopped half-way: it is written whole or not at all.  Were the cancelled task to go on at
once, it would find a ref that still moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def settled(work: Callable[[], T], *, cancelled: Callable[[], object] = lambda: None) -> T:
    """What `work` returns, from a thread that knows the context variables of the caller.

    Where the task is cancelled meanwhile, `cancelled` is called, and CancelledError raised once the work has ended.
    """
    import asyncio

    task = asyncio.ensure_future(asyncio.to_thread(work))
    stop: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            stop = error
            cancelled()
    if stop is None or task.cancelled():
        return task.result()
    raise stop from task.exception()
