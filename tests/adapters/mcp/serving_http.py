"""The server over HTTP as the tests run it: in a thread, on a free port of loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import branchmem as bm
from branchmem.mcp_server import server
from branchmem.mcp_server.gate import Application, Limits
from branchmem.mcp_server.http import application, listening, names_of, uvicorn_of

TOKEN = "a-token-for-tests-alone"


class Served(NamedTuple):
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def served(
    store: bm.Store,
    *,
    ref: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    around: Callable[[Application], Application] = lambda app: app,
) -> Iterator[Served]:
    """The server of a store, until the block is left."""
    bound = listening("127.0.0.1", 0)
    app = application(server(store, ref=ref), token=TOKEN, hosts=names_of(bound), limits=limits)
    running = uvicorn_of(around(app), limits=limits)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve(sockets=[bound])))
    thread.start()
    try:
        yield Served(bound.getsockname()[1])
    finally:
        running.should_exit = True
        thread.join()
        bound.close()


def exchange(port: int, request: bytes, *, timeout: float = 20) -> tuple[int, bytes]:
    """Send bytes as they are, and return the status and all that comes until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(request)
        return answer(connection)


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """The status and the rest of what comes until the server closes; 0 where it just closes."""
    came = b""
    while some := connection.recv(65536):
        came += some
    return (int(came.split(b" ", 2)[1]) if came.startswith(b"HTTP/") else 0), came
