"""Embedders behind an endpoint that speaks as OpenAI's does: POST {base_url}/embeddings.

Texts leave this machine only to the endpoint that was named, and no redirect takes them elsewhere.  The key goes
into one header and into nothing else: no error, no repr, no name.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from branchmem.embedders.embedder import Named, named
from branchmem.errors import EndpointFailed, InvalidEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_OPENAI: Final = "https://api.openai.com/v1"
_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_URL_VARIABLE: Final = "OPENAI_BASE_URL"
#: Statuses after which the same request may do: too many requests, and a server that is at a loss for now.
_PASSING: Final = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
#: Nobody waits longer between two attempts, whatever the endpoint asks for.
_MAX_PAUSE_SECONDS: Final = 60.0
_MAX_ANSWER_BYTES: Final = 256 << 20
_SHOWN_CHARS: Final = 200


def endpoint(
    model: str,
    *,
    base_url: str | None = None,
    key: str | None = None,
    name: str | None = None,
    dimensions: int | None = None,
    prefix: str = "",
    query_prefix: str = "",
    batch: int = 128,
    timeout: float = 30.0,
    retries: int = 4,
    pause: float = 0.5,
) -> Named:
    """A model behind any OpenAI-compatible endpoint for embeddings: OpenAI's, or that of a server of one's own.

    `base_url` and `key` default to OPENAI_BASE_URL, else OpenAI's, and OPENAI_API_KEY; a local server needs no key.
    `prefix` and `query_prefix` are put before texts, and before what is searched with, where a model asks for it (E5:
    "passage: " and "query: ").  `dimensions` is passed on.  The name is that of the model, with its dimensions where
    they are given.
    Requests carry `batch` texts at most.  One that fails for now (status 408, 409, 425, 429, 5xx, no connection, no
    answer within `timeout` seconds) is sent again, `retries` times at most, after `pause` seconds, then twice as long,
    or after what the endpoint asks for, up to a minute.
    Raises: InvalidEmbedder for a URL or a key that cannot be used.  A call raises EndpointFailed.
    """
    if base_url is None:
        base_url = os.environ.get(_URL_VARIABLE) or _OPENAI
    if key is None:
        key = os.environ.get(_KEY_VARIABLE)
    if batch < 1 or retries < 0:
        raise InvalidEmbedder(model, f"batch={batch}, retries={retries}: a request carries one text, and is sent once")
    options = {} if dimensions is None else {"dimensions": dimensions}
    known = _Endpoint(
        url=_checked_url(model, base_url) + "/embeddings",
        header=None if key is None else _header(model, key),
        request={"model": model, **options},
        batch=batch,
        timeout=timeout,
        retries=retries,
        pause=pause,
    )

    def texts_embedded(texts: list[str]) -> NDArray[np.float32]:
        return known.embed([prefix + text for text in texts])

    def queries_embedded(texts: list[str]) -> NDArray[np.float32]:
        return known.embed([query_prefix + text for text in texts])

    name = name or (model if dimensions is None else f"{model}:{dimensions}")
    return named(name, texts_embedded, query=queries_embedded)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """Where to ask, and how often."""

    url: str
    #: What the key goes into; None without one.
    header: str | None = field(repr=False)
    request: dict[str, Any]
    batch: int
    timeout: float
    retries: int
    pause: float

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np

        parts = [self._rows(texts[start : start + self.batch]) for start in range(0, len(texts), self.batch)]
        try:
            return np.concatenate(parts)
        except ValueError:
            raise EndpointFailed(self.url, "the embeddings of one answer are longer than those of another") from None

    def _rows(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np

        # an endpoint refuses an empty text, and all others of the request with it
        body = json.dumps({**self.request, "input": [text or " " for text in texts]}).encode()
        answer = self._answer(body)
        try:
            found = {item["index"]: item["embedding"] for item in json.loads(answer)["data"]}
            rows = np.array([found[at] for at in range(len(texts))], np.float32)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise EndpointFailed(self.url, f"its answer is not one embedding for each of {len(texts)} texts") from None
        return rows

    def _answer(self, body: bytes) -> bytes:
        """What the endpoint answers in the end.  Raises: EndpointFailed, without the key and without what was sent."""
        pause = self.pause
        for left in range(self.retries, -1, -1):
            wait = pause
            try:
                return self._ask(body)
            except urllib.error.HTTPError as error:
                with error:
                    failed = self._refusal(error)
                    if error.code not in _PASSING:
                        raise failed from None
                    wait = _asked_pause(error.headers.get("Retry-After"), pause)
            except (OSError, http.client.HTTPException) as error:
                reason = self._without_key(str(getattr(error, "reason", None) or error))[:_SHOWN_CHARS]
                failed = EndpointFailed(self.url, f"no answer: {reason or type(error).__name__}")
            if not left:
                raise EndpointFailed(self.url, f"{failed.why} (asked {self.retries + 1} times)", failed.status)
            if wait > _MAX_PAUSE_SECONDS:
                raise EndpointFailed(
                    self.url, f"{failed.why}; it asks to wait {wait:.0f} s: ask again then", failed.status
                )
            time.sleep(wait)
            pause *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _ask(self, body: bytes) -> bytes:
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        if self.header is not None:
            request.add_unredirected_header("Authorization", self.header)
        with _opener.open(request, timeout=self.timeout) as response:
            answer: bytes = response.read(_MAX_ANSWER_BYTES + 1)
            if response.length and len(answer) <= _MAX_ANSWER_BYTES:  # what is missing of the length it announced
                raise http.client.IncompleteRead(answer, response.length)
        if len(answer) > _MAX_ANSWER_BYTES:
            raise EndpointFailed(self.url, f"its answer is longer than {_MAX_ANSWER_BYTES >> 20} MB")
        return answer

    def _refusal(self, error: urllib.error.HTTPError) -> EndpointFailed:
        if error.code in (401, 403):  # such an answer may repeat the key, or a part of it
            return EndpointFailed(
                self.url, f"status {error.code}: check the key (key=, or {_KEY_VARIABLE})", error.code
            )
        if 300 <= error.code < 400:
            why = f"status {error.code}: it redirects elsewhere, which is not followed: name that as base_url"
            return EndpointFailed(self.url, why, error.code)
        try:
            said = " ".join(error.read(_SHOWN_CHARS * 8).decode(errors="replace").split())
        except (OSError, http.client.HTTPException):
            said = ""
        said = self._without_key(said)[:_SHOWN_CHARS]
        return EndpointFailed(self.url, f"status {error.code}{': ' if said else ''}{said}", error.code)

    def _without_key(self, text: str) -> str:
        return text.replace(self.header.removeprefix("Bearer "), "[key]") if self.header else text


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer, and not one with embeddings."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_opener: Final = urllib.request.build_opener(_NoRedirects)


def _checked_url(model: str, base_url: str) -> str:
    url = base_url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidEmbedder(model, "base_url must be http:// or https://, a host and a path, as of OpenAI's /v1")
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidEmbedder(model, "base_url must hold no user, no password and nothing after the path: give key=")
    return url


def _header(model: str, key: str) -> str:
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidEmbedder(model, f"its key (key=, or {_KEY_VARIABLE}) is empty, or holds what cannot be sent")
    return f"Bearer {key}"


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
