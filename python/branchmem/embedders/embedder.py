"""What an embedder is: a callable that maps n texts to n vectors, and a name under which its vectors are kept.

Vectors of two models never mix: the name tells them apart, in every process and for ever, so that whoever has no
name of its own is not given one by chance.  What an embedder returns is checked here before anybody uses it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Final, Protocol

from branchmem.errors import BadEmbedding, DimensionMismatch, InvalidEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}", re.ASCII)
_WAY_OUT: Final = "name it: branchmem.embedders.named('my-model', embedder)"


class Embedder(Protocol):
    """n texts → (n, dim): numbers that float32 can hold, one row a text, the same for the same text.

    Whatever texts come with it: with a model that rounds in another way in another batch, hidden texts that were
    embedded in one call with a visible one could change the last bits of its score.

    Two attributes are looked for: `name` (str), under which a store keeps the vectors, and `query`, another such
    callable for texts that are searched with, where the model embeds these in another way.
    """

    def __call__(self, texts: list[str], /) -> ArrayLike:
        """The vectors of these texts, of any length."""


class Named:
    """An embedder under a name of the caller's choice."""

    def __init__(self, name: str, embedder: Embedder, query: Embedder) -> None:
        self.name = name
        self.query = query
        self._embedder = embedder

    def __call__(self, texts: list[str], /) -> ArrayLike:
        """The vectors of these texts."""
        return self._embedder(texts)

    def __repr__(self) -> str:
        return f"<embedder {self.name}>"


def named(name: str, embedder: Embedder, *, query: Embedder | None = None) -> Named:
    """`embedder` under a name: one name a model, for ever.  `query` embeds what is searched with, where that differs.

    Raises: InvalidEmbedder where the name is not 1 to 64 letters, digits and `-_.:/`, or `embedder` cannot be called.
    """
    _require_callable(embedder)
    return Named(_checked(name), embedder, query or _query_of(embedder))


def name_of(embedder: Embedder) -> str:
    """The name under which the vectors of an embedder are kept: its own, or that of a plain function with its module.

    Raises: InvalidEmbedder for whatever has neither: a lambda, an inner function, a partial, a bound method; and
    for what cannot be called.
    """
    _require_callable(embedder)
    name = getattr(embedder, "name", None)
    if isinstance(name, str):
        return _checked(name)
    if not isinstance(embedder, FunctionType | BuiltinFunctionType) or not embedder.__module__:
        raise InvalidEmbedder(repr(embedder), f"it has no name that is the same in every process: {_WAY_OUT}")
    name = f"{embedder.__module__}.{embedder.__qualname__}"
    if "<" in name:  # as in <lambda> and <locals>
        raise InvalidEmbedder(name, f"it is made anew with every call of what surrounds it: {_WAY_OUT}")
    return _checked(name)


def embed(embedder: Embedder, texts: Sequence[str], dim: int | None = None) -> NDArray[np.float32]:
    """The vectors of some texts, as the embedder gives them: float32 (n, dim).  No text is no call.

    Raises: BadEmbedding for another shape, another count, what is no number, NaN and infinity; DimensionMismatch
    where `dim` is given and differs; and whatever the embedder raises.
    """
    return _called(embedder, name_of(embedder), texts, dim)


def embed_query(embedder: Embedder, text: str, dim: int) -> NDArray[np.float32]:
    """The vector of a text to search with: float32 (dim,).  Raises: as `embed`."""
    row: NDArray[np.float32] = _called(_query_of(embedder), name_of(embedder), [text], dim)[0]
    return row


def _require_callable(embedder: object) -> None:
    """Raises: InvalidEmbedder."""
    if not callable(embedder):
        raise InvalidEmbedder(repr(embedder), "it cannot be called: a function from n texts to n vectors is needed")


def _query_of(embedder: Embedder) -> Embedder:
    query: Embedder | None = getattr(embedder, "query", None)
    return embedder if query is None else query


def _called(embedder: Embedder, name: str, texts: Sequence[str], dim: int | None) -> NDArray[np.float32]:
    import numpy as np

    if not texts:
        return np.empty((0, dim or 0), np.float32)
    given: Any = embedder(list(texts))
    try:
        raw = np.asarray(given)
    except (TypeError, ValueError):  # rows of different lengths
        raise BadEmbedding(name, f"it gave {type(given).__name__} of no one shape for {len(texts)} texts") from None
    if raw.dtype.kind not in "fiu":
        raise BadEmbedding(name, f"it gave {type(given).__name__} of {raw.dtype} for {len(texts)} texts")
    if raw.ndim != 2 or raw.shape[0] != len(texts) or not raw.shape[1]:
        raise BadEmbedding(name, f"it gave the shape {raw.shape} for {len(texts)} texts")
    if dim is not None and raw.shape[1] != dim:
        raise DimensionMismatch(name, dim, raw.shape[1])
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(raw, np.float32)
    if not np.isfinite(rows).all():
        raise BadEmbedding(name, "it gave NaN, or a number beyond what float32 can hold")
    return rows


def _checked(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidEmbedder(str(name), "a name has 1 to 64 letters, digits and - _ . : /")
    return name
