"""What the tests of vectors share: a model of words that needs no package, and what a file keeps of it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import branchmem as bm
import numpy as np
from branchmem import embedders
from branchmem.appending import VECTOR
from branchmem.embedders import Embedder
from branchmem.log import Log, Reader
from branchmem.log.tables import VECTORS
from numpy.typing import NDArray

DIM = 32
DRINKS = {
    "tea": "the user drinks green tea",
    "coffee": "the user drinks black coffee",
    "train": "trips go by train",
    "cat": "a cat sleeps on the sofa",
}


@cache
def direction(word: str, dim: int) -> NDArray[np.float32]:
    """Where a word points: the same in every process, and nearly at right angles to every other."""
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(dim).astype(np.float32)


class Words:
    """A model: a text points where its words point, on average.  Counts what it is asked, and fails when told."""

    def __init__(self, name: str = "words", *, dim: int = DIM, salt: str = "") -> None:
        self.name = name
        self.dim = dim
        self.asked: list[str] = []
        self.fails_at: str | None = None
        self._salt = salt

    def __call__(self, texts: list[str], /) -> NDArray[np.float32]:
        """The vectors of some texts."""
        if self.fails_at in texts:
            raise ConnectionError("the model is away")
        self.asked += texts
        return np.array([self.vector(text) for text in texts], np.float32).reshape(len(texts), self.dim)

    def vector(self, text: str) -> NDArray[np.float32]:
        """The vector of one text, zeros for one without a word."""
        words = [direction(self._salt + word, self.dim) for word in text.lower().split()]
        return np.sum(words, axis=0, dtype=np.float32) if words else np.zeros(self.dim, np.float32)

    def times(self, text: str) -> int:
        """How often a text was embedded."""
        return self.asked.count(text)


def many(count: int) -> dict[str, str]:
    return {f"m{number}": f"note {number} about thing {number % 7}" for number in range(count)}


def fill(store: bm.Store, texts: dict[str, str], at: str = "u") -> None:
    """Append memories that hang on a root message, which is made where it lacks."""
    store.append([bm.Message(at, None), *(bm.Memory(id, text, sources=[at]) for id, text in texts.items())])


def found(store: bm.Store, query: str, k: int = 3, at: str = "u", **options: Any) -> list[str]:
    """What a search by meaning finds."""
    return [hit.id for hit in store.at(at).search(query, k, by="vector", **options)]


def kept(path: Path | str, name: str = "words") -> dict[int, NDArray[np.float32]]:
    """The vectors that a file keeps of an embedder, by the position of the memory."""

    def read(reader: Reader) -> dict[int, NDArray[np.float32]]:
        items = reader.table(VECTORS + name).items(VECTOR)
        return {int.from_bytes(key[1:], "big"): np.frombuffer(value, "<f4") for key, value in items}

    with Log.open(path, create=False) as log:
        return log.read(read, tables=[VECTORS + name])


def place(store: bm.Store, id: str) -> int:
    """The position of an event in the log."""
    seq = store._engine.event_seq(id)
    assert seq is not None
    return seq


def another(name: str, model: Words) -> Embedder:
    """A model under another name."""
    return embedders.named(name, model)
