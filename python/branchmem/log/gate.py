"""Who may use the map of a file: transactions side by side, or alone who moves it.

Knows neither files nor LMDB.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Lets transactions through side by side, one a thread, and whoever moves the map through alone.

    An interrupt may strike on the way in or out.  So the lock is one that no interrupt leaves held, threads
    are noted and not counted, and nobody waits for himself: what is left behind is harmless to its thread,
    and `leave` may be called again.
    """

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.open_anew()

    def open_anew(self) -> None:
        """Forget who waits or shuts: in the child of a fork these are the parent's."""
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self.shut = False

    def __enter__(self) -> None:
        with self._lock:
            while self.shut:
                self._turn.wait()
            self.inside.add(threading.get_ident())

    def __exit__(self, *exception: object) -> None:
        self.leave()

    def leave(self) -> None:
        """This thread is not inside, or not any longer."""
        with self._lock:
            self.inside.discard(threading.get_ident())
            if self.shut:
                self._turn.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else inside: waits for who is, and lets nobody in meanwhile."""
        mine = False
        try:
            with self._lock:
                while self.shut:
                    self._turn.wait()
                self.shut = mine = True
                while self.inside - {threading.get_ident()}:
                    self._turn.wait()
            yield
        finally:
            if mine:
                with self._lock:
                    self.shut = False
                    self._turn.notify_all()
