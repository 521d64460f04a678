"""The server over streamable HTTP: where it listens, under which names, and how long it waits for anybody.

Loopback, unless told otherwise in so many words.  The socket is bound before anything is said, so that what is asked
about is the address that it has.  The sessions that clients of older protocol versions open know no branch: each call
says its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
from collections.abc import Iterable
from typing import Any, Final

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from uvicorn.protocols.http.h11_impl import H11Protocol

from branchmem.errors.mcp_server import AddressRefused, InvalidToken
from branchmem.mcp_server.gate import LIMITS, PATH, Application, Gate, Limits

#: A token that is given has at least so many characters; one that is made has 256 random bits.
MIN_TOKEN: Final = 16

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_HTTP_PORT: Final = 80

#: Seconds that open answers have once the server was told to stop.
_STOPPING_SECONDS: Final = 2


def good_token(given: str | None) -> str:
    """`given`, or a new token where there is none.  Raises: InvalidToken."""
    if given is None:
        return secrets.token_urlsafe(32)
    if len(given) < MIN_TOKEN:
        raise InvalidToken(f"has fewer than {MIN_TOKEN} characters")
    if not given.isascii() or not given.isprintable() or " " in given:
        raise InvalidToken("has characters that a header cannot hold")
    return given


def listening(host: str, port: int, *, remote: bool = False) -> socket.socket:
    """A socket that listens at an address; port 0 is one that is free.  Not on loopback only with `remote`.

    Raises: AddressRefused.
    """
    address = f"{host}:{port}"
    try:
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not ipaddress.ip_address(str(found[0]).partition("%")[0]).is_loopback and not remote:
            raise AddressRefused(
                address,
                "others than this machine could reach the server there, in plain HTTP: take 127.0.0.1, or say --remote "
                "and put TLS before it",
            )
        return socket.create_server(found[:2], family=family)
    except (OSError, OverflowError) as error:
        raise AddressRefused(address, f"cannot listen there ({error}): take another address") from None


def url_of(bound: socket.socket) -> str:
    """Where clients on this machine find the server."""
    host, port = bound.getsockname()[:2]
    return f"http://{_bracketed(host)}:{port}{PATH}"


def names_of(bound: socket.socket, more: Iterable[str] = ()) -> list[str]:
    """The Host headers that are served: those of loopback, or of the address itself, and `more`.

    Raises: AddressRefused where the server listens at all addresses of the machine, and nobody said what it is called.
    """
    host, port = bound.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    given = tuple(more)
    if address.is_unspecified:
        if not given:
            raise AddressRefused(
                f"{host}:{port}", "say with --allow-host under which names clients reach it, NAME:PORT"
            )
        return list(given)
    names = dict.fromkeys((_bracketed(host), *(_LOOPBACK if address.is_loopback else ())))
    bare = names if port == _HTTP_PORT else ()  # which clients leave out
    return [*(f"{name}:{port}" for name in names), *bare, *given]


def application(
    made: MCPServer[Any],
    *,
    token: str,
    hosts: Iterable[str],
    origins: Iterable[str] = (),
    limits: Limits = LIMITS,
) -> Application:
    """The ASGI application: the gate, and the server behind it; `origins` beside those of the hosts themselves."""
    known = tuple(hosts)
    inner = made.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=limits.body_bytes,
        max_sessions=limits.sessions,
        session_idle_timeout=limits.idle_seconds,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the gate has done it
    )
    own = (f"http://{host}" for host in known)
    return Gate(inner, token=token, hosts=known, origins=(*own, *origins), limits=limits)


def serve(app: Application, bound: socket.socket, *, limits: Limits = LIMITS) -> None:
    """Answer at a socket until the process is told to stop."""
    uvicorn_of(app, limits=limits).run(sockets=[bound])


def uvicorn_of(app: Application, *, limits: Limits = LIMITS) -> uvicorn.Server:
    """What answers requests for `serve`; its `serve` and `should_exit` are for who runs it in a loop of his own."""

    class Hasty(_Hasty):
        head_seconds = limits.head_seconds

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=Hasty,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=_STOPPING_SECONDS,
        )
    )


class _Hasty(H11Protocol):
    """Closes a connection whose next request has begun, or is its first, and whose head does not come in time."""

    head_seconds: float

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.head_seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
