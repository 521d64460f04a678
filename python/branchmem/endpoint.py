"""One JSON POST to an endpoint that speaks as OpenAI's does, answered whole or in events, and what to do when it fails.

The one rule: what is sent goes to the endpoint that was named, and nowhere else.  No redirect is followed; the key
goes into one header and into nothing else: no error, no repr, no name.

Left out: what is asked, and what an answer means.  Each caller has a path of its own below the URL.
"""

from __future__ import annotations

import codecs
import http.client
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from branchmem.errors import EndpointFailed, Error

_OPENAI: Final = "https://api.openai.com/v1"
_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_URL_VARIABLE: Final = "OPENAI_BASE_URL"
#: Statuses after which the same request may do: too many requests, and a server that is at a loss for now.
_PASSING: Final = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
#: Nobody waits longer between two attempts, whatever the endpoint asks for.
_MAX_PAUSE_SECONDS: Final = 60.0
_SHOWN_CHARS: Final = 200
_READ_OF_REFUSAL_BYTES: Final = 8 * _SHOWN_CHARS
_READ_OF_EVENTS_BYTES: Final = 1 << 16

T = TypeVar("T")


class Line:
    """The connection of one request, which another thread may cut: whoever waits for an answer then fails at once."""

    def __init__(self) -> None:
        self.is_cut = False
        self._socket: socket.socket | None = None

    def cut(self) -> None:
        """End the connection, and let no other be made.  Nothing where it has ended."""
        self.is_cut = True
        if self._socket is not None:
            with suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_RDWR)

    def take(self, connected: socket.socket) -> None:
        """Hold the connection that was made.  Raises: ConnectionAbortedError where the line was cut meanwhile."""
        self._socket = connected
        if self.is_cut:
            raise ConnectionAbortedError("cut")


class Endpoint:
    """Where to ask, as whom, and how often: `url` is `path` below `base_url`.

    `base_url` and `key` default to OPENAI_BASE_URL, else OpenAI's, and OPENAI_API_KEY; a local server needs no key.
    A request that fails for now (status 408, 409, 425, 429, 5xx, no connection, no answer within `timeout` seconds)
    is sent again, `retries` times at most, after `pause` seconds, then twice as long each time, or after what the
    endpoint asks for, up to a minute.
    Raises: what `refused` makes of the reason, for a URL or a key that cannot be used; neither is in it.
    """

    def __init__(
        self,
        path: str,
        *,
        base_url: str | None,
        key: str | None,
        timeout: float,
        retries: int,
        pause: float,
        refused: Callable[[str], Error],
    ) -> None:
        if base_url is None:
            base_url = os.environ.get(_URL_VARIABLE) or _OPENAI
        if key is None:
            key = os.environ.get(_KEY_VARIABLE)
        if retries < 0:
            raise refused(f"retries={retries}: a request is sent once at least")
        self.base_url = _checked_url(base_url, refused)
        self.url = self.base_url + path
        self._key = None if key is None else _checked_key(key, refused)
        self._timeout = timeout
        self._retries = retries
        self._pause = pause

    def post(self, form: Mapping[str, Any], *, max_answer_bytes: int, line: Line | None = None) -> bytes:
        """What the endpoint answers in the end.  Raises: EndpointFailed, without the key and without what was sent."""

        def whole(response: http.client.HTTPResponse) -> bytes:
            with response:
                answer: bytes = response.read(max_answer_bytes + 1)
                if response.length and len(answer) <= max_answer_bytes:  # what is missing of the length it announced
                    raise http.client.IncompleteRead(answer, response.length)
            if len(answer) > max_answer_bytes:
                raise self._too_long(max_answer_bytes)
            return answer

        return self._answered(form, whole, line or Line())

    def events(
        self, form: Mapping[str, Any], *, max_answer_bytes: int, line: Line | None = None
    ) -> Generator[str, None, None]:
        """The data of each server-sent event of the answer, as it comes; all of an answer that is no such stream.

        A request is sent again only until its answer begins.  Closing the iterator ends the connection.
        Raises: EndpointFailed, without the key and without what was sent; also where the stream breaks.
        """
        line = line or Line()
        response = self._answered(form, lambda response: response, line)
        with response:
            try:
                yield from self._events(response, max_answer_bytes)
            except (OSError, http.client.HTTPException) as error:
                raise self._broken(error, "its answer broke off") from None
            except UnicodeDecodeError:
                raise self.failed("its answer is no UTF-8") from None
            except GeneratorExit:
                line.cut()
                raise

    def failed(self, why: str, status: int | None = None) -> EndpointFailed:
        """The error that says what is wrong with an answer, in one line and without the key."""
        return EndpointFailed(self.url, " ".join(self._without_key(why).split())[: 2 * _SHOWN_CHARS], status)

    def _answered(self, form: Mapping[str, Any], take: Callable[[http.client.HTTPResponse], T], line: Line) -> T:
        """What `take` makes of the answer, asked for until it comes."""
        body = json.dumps(form).encode()
        pause = self._pause
        for left in range(self._retries, -1, -1):
            wait = pause
            try:
                return take(self._sent(body, line))
            except urllib.error.HTTPError as error:
                with error:
                    failed = self._refusal(error)
                    if error.code not in _PASSING:
                        raise failed from None
                    wait = _asked_pause(error.headers.get("Retry-After"), pause)
            except (OSError, http.client.HTTPException) as error:
                failed = self._broken(error, "no answer")
            if line.is_cut:
                raise EndpointFailed(self.url, "the request was cancelled")
            if not left:
                raise EndpointFailed(self.url, f"{failed.why} (asked {self._retries + 1} times)", failed.status)
            if wait > _MAX_PAUSE_SECONDS:
                why = f"{failed.why}; it asks to wait {wait:.0f} s: ask again then"
                raise EndpointFailed(self.url, why, failed.status)
            time.sleep(wait)
            pause *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _sent(self, body: bytes, line: Line) -> http.client.HTTPResponse:
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        if self._key is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        return cast(http.client.HTTPResponse, _opener(line).open(request, timeout=self._timeout))

    def _events(self, response: http.client.HTTPResponse, max_answer_bytes: int) -> Generator[str, None, None]:
        left = max_answer_bytes
        line: list[bytes] = []
        data: list[str] = []
        is_whole = None
        while read := response.readline(_READ_OF_EVENTS_BYTES):
            left -= len(read)
            if left < 0:
                raise self._too_long(max_answer_bytes)
            if is_whole is None:
                read = read.removeprefix(codecs.BOM_UTF8)
            if is_whole is None and read.strip():
                is_whole = read.lstrip().startswith(b"{")  # which no line of events does
            line.append(read)
            if is_whole or not read.endswith(b"\n"):
                continue
            text = b"".join(line).rstrip(b"\r\n")
            line.clear()
            name, _, value = text.partition(b":")
            if name == b"data":
                data.append(value.removeprefix(b" ").decode())
            elif not text and data:
                yield "\n".join(data)
                data.clear()
        if is_whole:
            yield b"".join(line).decode()
        elif data:  # servers there are that do not end the last event
            yield "\n".join(data)

    def _broken(self, error: Exception, what: str) -> EndpointFailed:
        reason = self._without_key(str(getattr(error, "reason", None) or error))[:_SHOWN_CHARS]
        return EndpointFailed(self.url, f"{what}: {reason or type(error).__name__}")

    def _too_long(self, max_answer_bytes: int) -> EndpointFailed:
        return EndpointFailed(self.url, f"its answer is longer than {max_answer_bytes >> 20} MB")

    def _refusal(self, error: urllib.error.HTTPError) -> EndpointFailed:
        status = error.code
        if status in (401, 403):  # such an answer may repeat the key, or a part of it
            why = f"status {status}: check the key (key=, or {_KEY_VARIABLE})"
        elif 300 <= status < 400:
            why = (
                f"status {status}: it redirects elsewhere, which is not followed: name that as base_url, or "
                f"{_URL_VARIABLE}"
            )
        else:
            said = self._said(error)
            why = f"status {status}{': ' if said else ''}{said}"
        return EndpointFailed(self.url, why, status)

    def _said(self, error: urllib.error.HTTPError) -> str:
        """How the text of a refusal begins, in one line."""
        try:
            read = error.read(_READ_OF_REFUSAL_BYTES)
        except (OSError, http.client.HTTPException):
            return ""
        text = self._without_key(read.decode(errors="replace"))
        if self._key and len(read) == _READ_OF_REFUSAL_BYTES:
            text = text[: -len(self._key)]  # where reading ended within the key, its beginning stands there
        return " ".join(text.split())[:_SHOWN_CHARS]

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer, and not the one that was asked for."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _opener(line: Line) -> urllib.request.OpenerDirector:
    """What opens connections, and hands each to the line."""

    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            line.take(self.sock)

    class Secure(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            line.take(self.sock)

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, req)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Secure, req)

    return urllib.request.build_opener(_NoRedirects, Http, Https)


def _checked_url(base_url: str, refused: Callable[[str], Error]) -> str:
    url = base_url.strip().rstrip("/")
    named = f"base_url (or {_URL_VARIABLE})"
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound or not url.isascii() or not url.isprintable() or " " in url:
        raise refused(f"{named} must be http:// or https://, a host and a path, as of OpenAI's /v1")
    if parts.username is not None or parts.query or parts.fragment:
        why = f"{named} must hold no user, no password and nothing after the path: give key=, or {_KEY_VARIABLE}"
        raise refused(why)
    return url


def _checked_key(key: str, refused: Callable[[str], Error]) -> str:
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise refused(f"its key (key=, or {_KEY_VARIABLE}) is empty, or holds what cannot be sent")
    return key


def _asked_pause(asked: str | None, pause: float) -> float:
    """How many seconds to wait: what the header Retry-After asks for, else `pause`."""
    if asked is None:
        return pause
    try:
        return max(0.0, float(asked))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    except (ValueError, OverflowError, OSError):
        return pause
