"""Who may reach the server over HTTP: a gate before the application, which reads no body until all else is right.

A page in a browser reaches loopback too, under a name of its own (DNS rebinding) or from an origin of its own; so Host
and Origin must be among those that are known, exactly, and every request bears the token.  Then the body must come
within a size and a time.  An ASGI application around another one; knows nothing of MCP but one path.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

PATH: Final = "/mcp"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: JSON-RPC: the request was not one that is answered.
_INVALID_REQUEST: Final = -32600


@dataclass(frozen=True, slots=True)
class Limits:
    """How much clients may take of the server."""

    #: Bytes of a body.
    body_bytes: int = 4 << 20
    #: Seconds until a body has come whole.
    body_seconds: float = 10.0
    #: Seconds until the head of a request has come whole.
    head_seconds: float = 10.0
    #: Connections at one time; who comes beyond that is told so (503).
    connections: int = 100
    #: Sessions at one time, which clients of protocol versions before 2026-07-28 open; and seconds until one that is
    #: not used is closed.
    sessions: int = 1000
    idle_seconds: float = 1800.0


LIMITS: Final = Limits()


class _Refusal(Exception):
    """What a request is told that is not let in; nothing of the request is repeated in it."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(status, why)
        self.status = status
        self.why = why


class Gate:
    """Lets requests through to `application` that name a known host, come from no strange origin and bear the token."""

    def __init__(
        self,
        application: Application,
        *,
        token: str,
        hosts: Iterable[str],
        origins: Iterable[str],
        limits: Limits,
    ) -> None:
        self._application = application
        self._token = token.encode()
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._origins = frozenset(origin.lower().encode() for origin in origins)
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"HTTP is served here, not {scope['type']}")
        try:
            self._check(scope)
            body = await self._body(scope, receive)
        except _Refusal as refusal:
            await _refuse(send, refusal)
            return
        if body is not None:
            await self._application(scope, _once(body, receive), send)

    def _check(self, scope: Scope) -> None:
        """Raises: _Refusal."""
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            raise _Refusal(421, "this Host is not served here: --allow-host names more")
        if any(origin.lower() not in self._origins for origin in _values(scope, b"origin")):
            raise _Refusal(403, "pages of this Origin are not answered: --allow-origin names those that are")
        if not self._bears_token(_values(scope, b"authorization")):
            raise _Refusal(401, "send Authorization: Bearer and the token that the server was started with")
        if scope["path"] != PATH:
            raise _Refusal(404, f"the server answers at {PATH}")

    def _bears_token(self, values: list[bytes]) -> bool:
        scheme, _, token = (values[0] if len(values) == 1 else b"").partition(b" ")
        is_same = hmac.compare_digest(token.strip(), self._token)  # always compared, in constant time
        return is_same and scheme.lower() == b"bearer"

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body, or None where the client has left.  Raises: _Refusal where it is too large, or too slow."""
        limit = self._limits.body_bytes
        too_large = _Refusal(413, f"a body has at most {limit} bytes here")
        for length in _values(scope, b"content-length"):
            if not length.isdigit() or int(length) > limit:
                raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise _Refusal(408, f"the body did not come within {self._limits.body_seconds:g} seconds") from None


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value.strip() for key, value in scope["headers"] if key == name]


def _once(body: bytes, receive: Receive) -> Receive:
    """What hands out a body that was read already, and then what comes after it."""
    waiting = [body]

    async def again() -> MutableMapping[str, Any]:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


async def _refuse(send: Send, refusal: _Refusal) -> None:
    said = {"jsonrpc": "2.0", "id": None, "error": {"code": _INVALID_REQUEST, "message": refusal.why}}
    body = json.dumps(said).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
