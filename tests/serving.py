"""A server that tests of endpoints ask, and that fails as it is told."""

from __future__ import annotations

import json
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

#: Status, headers, body; or what takes the connection.
Answer = tuple[int, dict[str, str], bytes] | Callable[[socket.socket], object]


class Server:
    """Answers as it is told, one after the other, and with `usual` of what it was sent where it is told nothing."""

    def __init__(self, usual: Callable[[Any], bytes]) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.told: list[Answer] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.asked.append(json.loads(body))
                server.headers.append(dict(self.headers))
                server.paths.append(self.path)
                answer = server.told.pop(0) if server.told else (200, {}, usual(server.asked[-1]))
                if callable(answer):
                    answer(self.connection)
                    self.close_connection = True
                    return
                status, headers, body = answer
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@contextmanager
def serving(*told: Answer, usual: Callable[[Any], bytes] = lambda _: b"{}") -> Iterator[Server]:
    """A server for as long as it is asked."""
    server = Server(usual)
    server.told = list(told)
    try:
        yield server
    finally:
        server.close()


def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a proxy nor URL nor key of whoever runs the tests."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def nobody() -> str:
    """A URL at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def shown(error: BaseException) -> str:
    """All that anybody may come to read of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
