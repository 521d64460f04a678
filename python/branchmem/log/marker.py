"""What a file says of itself: that it is a log, of which format, and the random id that it was born with."""

from __future__ import annotations

import os
import struct
from typing import Final

import lmdb

from branchmem.errors import FormatTooNew, StoreDamaged

FORMAT: Final = 1
MAGIC: Final = b"branchmem"

_FORMAT: Final = struct.Struct("<I")
_ID_BYTES: Final = 16


def mark(env: lmdb.Environment, txn: lmdb.Transaction[bytes]) -> None:
    """Make the file that of a new log."""
    meta = env.open_db(b"meta", txn=txn)
    txn.put(b"magic", MAGIC, db=meta)
    txn.put(b"format", _FORMAT.pack(FORMAT), db=meta)
    txn.put(b"log_id", os.urandom(_ID_BYTES), db=meta)


def log_id(path: str, env: lmdb.Environment) -> bytes:
    """The id of a log.

    Raises: StoreDamaged for what is no log, or has a marker that is overwritten; FormatTooNew.
    """
    try:
        meta = env.open_db(b"meta", create=False)
        with env.begin(db=meta) as txn:
            magic, version, id = (txn.get(name, b"") for name in (b"magic", b"format", b"log_id"))
    except (lmdb.NotFoundError, lmdb.IncompatibleError):
        magic = b""
    if magic != MAGIC:
        raise StoreDamaged(path, "it is an LMDB file, but no branchmem store; it was left as it is")
    if len(version) != _FORMAT.size or len(id) != _ID_BYTES:
        raise StoreDamaged(path, "its format marker is overwritten")
    (found,) = _FORMAT.unpack(version)
    if found > FORMAT:
        raise FormatTooNew(path, f"its format is {found}, this version reads up to {FORMAT}: {FormatTooNew.remedy}")
    if found != FORMAT:
        raise StoreDamaged(path, f"its format marker says {found}")
    return id
