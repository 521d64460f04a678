"""A store in use, for threads and event loops: pinned on entering, let go on leaving.

A thread waits; an event loop never does: what opens or closes a store runs in a thread beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from branchmem.errors import PoolBusy

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from branchmem import Pool, Store
    from branchmem.pool.seats import Asker


class Lease:
    """A store that stays open from entering to leaving, by `with` or `async with`, and again if you like."""

    def __init__(self, pool: Pool, owner: str, path: str, create: bool, timeout: float | None) -> None:
        self._pool = pool
        self._owner = owner
        self._path = path
        self._create = create
        self._timeout = timeout
        self._entered: list[Asker] = []

    def __enter__(self) -> Store:
        told = threading.Event()

        def wake() -> bool:
            told.set()
            return True

        asker = self._pool._ask(self._owner, wake)
        try:
            if not asker.told and not told.wait(self._timeout):
                raise self._busy()
        except BaseException:
            self._pool._leave(asker)
            raise
        if asker.opens:
            self._pool._open(asker, self._path, self._create)
        return self._enter(asker)

    def __exit__(self, *exception: object) -> None:
        self._pool._leave(self._entered.pop())

    async def __aenter__(self) -> Store:
        import asyncio

        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()

        def wake() -> bool:
            try:
                loop.call_soon_threadsafe(_resolve, told)
            except RuntimeError:  # the loop is closed
                return False
            return True

        asker = self._pool._ask(self._owner, wake)
        try:
            if not asker.told:
                async with asyncio.timeout(self._timeout):
                    await told
            opening = in_thread(partial(self._pool._open, asker, self._path, self._create)) if asker.opens else None
        except BaseException as error:
            self._pool._leave_soon(asker)
            raise (self._busy() if isinstance(error, TimeoutError) else error) from None
        if opening is not None:
            try:
                await asyncio.shield(asyncio.wrap_future(opening))
            except BaseException:  # cancelled, or the loop is gone; where opening failed nothing is held
                opening.add_done_callback(lambda done: None if done.exception() else self._pool._leave_soon(asker))
                raise
        return self._enter(asker)

    async def __aexit__(self, *exception: object) -> None:
        self._pool._leave_soon(self._entered.pop())

    def _enter(self, asker: Asker) -> Store:
        if asker.store is None:
            raise self._pool._closed()
        self._entered.append(asker)
        return asker.store

    def _busy(self) -> PoolBusy:
        return PoolBusy(self._pool.folder, self._owner, self._pool.stats().max_open, self._timeout or 0.0)

    def __repr__(self) -> str:
        return f"<Lease of {self._owner!r} in {self._pool.folder}: use it by `with` or `async with`>"


def in_thread(work: Callable[[], None]) -> Future[None]:
    """Run `work` in a thread of its own: those of an event loop may all be waiting for a lease."""
    from concurrent.futures import Future

    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="branchmem-pool").start()
    return done


def _resolve(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
