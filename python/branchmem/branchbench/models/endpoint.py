"""A language model behind any endpoint that speaks as OpenAI's does: POST {base_url}/chat/completions.

Scenarios leave this machine only to the endpoint that was named; how often it is asked, and who gets to see the key,
is decided by `branchmem.endpoint`.  Temperature and seed are 0, which not every endpoint keeps to: what makes a run
repeatable is the cache.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any, Final

from branchmem import endpoint
from branchmem.branchbench.models.chat import Reply, Request
from branchmem.errors import EndpointFailed
from branchmem.errors.branchbench import ModelUnavailable

_MAX_ANSWER_BYTES: Final = 16 << 20


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
        self._endpoint = endpoint.Endpoint(
            "/chat/completions",
            base_url=base_url,
            key=key,
            timeout=timeout,
            retries=retries,
            pause=pause,
            refused=partial(ModelUnavailable, model),
        )
        self.name = f"{model} at {self._endpoint.base_url}, temperature 0, seed 0"
        self._model = model

    def __repr__(self) -> str:
        return f"<endpoint {self.name}>"

    def ask(self, request: Request) -> Reply:
        """Raises: ModelUnavailable, with neither the key nor what was sent."""
        form: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": turn.role, "content": turn.content} for turn in request.turns],
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "seed": 0,
        }
        if request.as_json:
            form["response_format"] = {"type": "json_object"}
        started = time.perf_counter()
        try:
            answer = self._endpoint.post(form, max_answer_bytes=_MAX_ANSWER_BYTES)
        except EndpointFailed as error:
            raise self._failed(error.why) from None
        seconds = time.perf_counter() - started
        try:
            said = json.loads(answer)
            text = said["choices"][0]["message"]["content"]
            used = said.get("usage") or {}
            prompt, completion = (int(used.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            raise self._failed("its answer is no chat completion: is this the right base URL?") from None
        if not isinstance(text, str):
            raise self._failed("its answer holds no text")
        return Reply(text, prompt, completion, seconds)

    def _failed(self, why: str) -> ModelUnavailable:
        return ModelUnavailable(self._model, f"{self._endpoint.url}: {why}")
