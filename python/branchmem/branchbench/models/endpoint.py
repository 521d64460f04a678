"""A language model behind any endpoint that speaks as OpenAI's does: POST {base_url}/chat/completions.

Scenarios leave this machine only to the endpoint that was named, and no redirect takes them elsewhere.  The key goes
into one header and into nothing else: no error, no repr, no name.  Temperature and seed are 0, which not every
endpoint keeps to: what makes a run repeatable is the cache.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import urlsplit

from branchmem.branchbench.models.chat import Reply, Request
from branchmem.errors.branchbench import ModelUnavailable

_OPENAI: Final = "https://api.openai.com/v1"
_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_URL_VARIABLE: Final = "OPENAI_BASE_URL"
#: Statuses after which the same request may do: too many requests, and a server that is at a loss for now.
_PASSING: Final = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
_MAX_PAUSE_SECONDS: Final = 60.0
_MAX_ANSWER_BYTES: Final = 16 << 20
_SHOWN_CHARS: Final = 200


class Endpoint:
    """The model of this name at an endpoint.  Two endpoints have two names, whatever they call their models.

    `base_url` and `key` default to OPENAI_BASE_URL, else OpenAI's, and OPENAI_API_KEY; a local server needs no key.
    A request that fails for now (status 408, 409, 425, 429, 5xx, no connection, no answer within `timeout` seconds)
    is sent again, `retries` times at most, after `pause` seconds, then twice as long each time, or as long as the
    endpoint asks for, up to a minute.
    Raises: ModelUnavailable for a URL or a key that cannot be used.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key: str | None = None,
        timeout: float = 300.0,
        retries: int = 4,
        pause: float = 1.0,
    ) -> None:
        base_url = _checked_url(model, base_url or os.environ.get(_URL_VARIABLE) or _OPENAI)
        self._key = _checked_key(model, os.environ.get(_KEY_VARIABLE) if key is None else key)
        self.name = f"{model} at {base_url}, temperature 0, seed 0"
        self._model = model
        self._url = f"{base_url}/chat/completions"
        self._timeout = timeout
        self._retries = retries
        self._pause = pause

    def __repr__(self) -> str:
        return f"<endpoint {self.name}>"

    def ask(self, request: Request) -> Reply:
        """Raises: ModelUnavailable, with neither the key nor what was sent."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": turn.role, "content": turn.content} for turn in request.turns],
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "seed": 0,
        }
        if request.as_json:
            body["response_format"] = {"type": "json_object"}
        started = time.perf_counter()
        answer = self._answer(json.dumps(body).encode())
        seconds = time.perf_counter() - started
        try:
            form = json.loads(answer)
            text = form["choices"][0]["message"]["content"]
            used = form.get("usage") or {}
            read, said = (int(used.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            raise self._failed("its answer is no chat completion: is this the right base URL?") from None
        if not isinstance(text, str):
            raise self._failed("its answer holds no text")
        return Reply(text, read, said, seconds)

    def _answer(self, body: bytes) -> bytes:
        """What the endpoint answers in the end."""
        pause = self._pause
        for left in range(self._retries, -1, -1):
            wait = pause
            try:
                return self._once(body)
            except urllib.error.HTTPError as error:
                with error:
                    why = self._refusal(error)
                    if error.code not in _PASSING:
                        raise self._failed(why) from None
                    wait = _asked_pause(error.headers.get("Retry-After"), pause)
            except (OSError, http.client.HTTPException) as error:
                reason = self._without_key(str(getattr(error, "reason", None) or error))[:_SHOWN_CHARS]
                why = f"no answer: {reason or type(error).__name__}"
            if not left:
                raise self._failed(f"{why} (asked {self._retries + 1} times)")
            if wait > _MAX_PAUSE_SECONDS:
                raise self._failed(f"{why}; it asks to wait {wait:.0f} s: run again then, what was answered is kept")
            time.sleep(wait)
            pause *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _once(self, body: bytes) -> bytes:
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        if self._key is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        with _opener.open(request, timeout=self._timeout) as response:
            answer: bytes = response.read(_MAX_ANSWER_BYTES + 1)
            if response.length and len(answer) <= _MAX_ANSWER_BYTES:  # what is missing of the length it announced
                raise http.client.IncompleteRead(answer, response.length)
        if len(answer) > _MAX_ANSWER_BYTES:
            raise self._failed(f"its answer is longer than {_MAX_ANSWER_BYTES >> 20} MB")
        return answer

    def _refusal(self, error: urllib.error.HTTPError) -> str:
        if error.code in (401, 403):  # such an answer may repeat the key, or a part of it
            return f"status {error.code}: check the key ({_KEY_VARIABLE})"
        if 300 <= error.code < 400:
            return f"status {error.code}: it redirects elsewhere, which is not followed: name that as {_URL_VARIABLE}"
        try:
            said = " ".join(error.read(_SHOWN_CHARS * 8).decode(errors="replace").split())
        except (OSError, http.client.HTTPException):
            said = ""
        said = self._without_key(said)[:_SHOWN_CHARS]
        return f"status {error.code}{': ' if said else ''}{said}"

    def _failed(self, why: str) -> ModelUnavailable:
        return ModelUnavailable(self._model, f"{self._url}: {why}")

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer, and not a model's."""

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
        raise ModelUnavailable(
            model, f"{_URL_VARIABLE} must be http:// or https://, a host and a path, as of OpenAI's /v1"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise ModelUnavailable(
            model, f"{_URL_VARIABLE} must hold no user and nothing after the path: use {_KEY_VARIABLE}"
        )
    return url


def _checked_key(model: str, key: str | None) -> str | None:
    if key is None:
        return None
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ModelUnavailable(model, f"{_KEY_VARIABLE} is empty, or holds what cannot be sent")
    return key


def _asked_pause(asked: str | None, pause: float) -> float:
    """How many seconds to wait: what the header Retry-After asks for, else `pause`."""
    try:
        return pause if asked is None else max(0.0, float(asked))
    except ValueError:
        return pause
