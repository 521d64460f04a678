"""Embedders behind an endpoint that speaks as OpenAI's does: POST {base_url}/embeddings.

Texts leave this machine only to the endpoint that was named.  How often it is asked, and who gets to see the key, is
decided by `branchmem.endpoint`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from branchmem.embedders.embedder import Named, named
from branchmem.endpoint import Endpoint
from branchmem.errors import EndpointFailed, InvalidEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAX_ANSWER_BYTES: Final = 256 << 20


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
    if batch < 1:
        raise InvalidEmbedder(model, f"batch={batch}: a request carries one text at least")
    known = _Model(
        Endpoint(
            "/embeddings",
            base_url=base_url,
            key=key,
            timeout=timeout,
            retries=retries,
            pause=pause,
            refused=partial(InvalidEmbedder, model),
        ),
        {"model": model} if dimensions is None else {"model": model, "dimensions": dimensions},
        batch,
    )

    def texts_embedded(texts: list[str]) -> NDArray[np.float32]:
        return known.embed([prefix + text for text in texts])

    def queries_embedded(texts: list[str]) -> NDArray[np.float32]:
        return known.embed([query_prefix + text for text in texts])

    name = name or (model if dimensions is None else f"{model}:{dimensions}")
    return named(name, texts_embedded, query=queries_embedded)


@dataclass(frozen=True, slots=True)
class _Model:
    """A model at an endpoint: what every request says of it, and how many texts one carries."""

    endpoint: Endpoint
    request: dict[str, Any]
    batch: int

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np

        parts = [self._rows(texts[start : start + self.batch]) for start in range(0, len(texts), self.batch)]
        try:
            return np.concatenate(parts)
        except ValueError:
            raise self._failed("the embeddings of one answer are longer than those of another") from None

    def _rows(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np

        # an endpoint refuses an empty text, and all others of the request with it
        form = {**self.request, "input": [text or " " for text in texts]}
        answer = self.endpoint.post(form, max_answer_bytes=_MAX_ANSWER_BYTES)
        try:
            found = {item["index"]: item["embedding"] for item in json.loads(answer)["data"]}
            rows = np.array([found[at] for at in range(len(texts))], np.float32)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise self._failed(f"its answer is not one embedding for each of {len(texts)} texts") from None
        return rows

    def _failed(self, why: str) -> EndpointFailed:
        return EndpointFailed(self.endpoint.url, why)
