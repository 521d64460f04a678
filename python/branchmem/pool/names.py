"""Which file an owner has, and which owner a file: one to one, whatever the owner is called.

A name is plain text where the owner is, and holds only what every file system keeps apart and as it
is: no upper case, no separator, nothing beyond ASCII, no dot or dash in front, no name of a device.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from branchmem.errors import InvalidOwner

END: Final = ".bmem"
#: Leaves room in the 255 bytes of a file name for the end, and for what is put beside a store.
MAX_NAME_BYTES: Final = 200

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-.@+")
_NOT_IN_FRONT: Final = ".-"
_DEVICES: Final = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10)))
)
_ESCAPED: Final = re.compile(rb"%([0-9a-f]{2})")


def place_of(owner: str) -> tuple[str, str]:
    """The folder and the file of an owner: two hex digits, so that no folder grows large, and the escaped owner.

    Raises: InvalidOwner for what is no text, or too long.
    """
    name = _escaped(owner)
    return hashlib.sha256(owner.encode()).hexdigest()[:2], name + END


def owner_of(folder: str, file: str) -> str | None:
    """The owner whose place this is, None where it is nobody's."""
    name = file.removesuffix(END)
    try:
        owner = _ESCAPED.sub(lambda escape: bytes.fromhex(escape[1].decode()), name.encode()).decode()
        return owner if place_of(owner) == (folder, file) else None
    except (UnicodeError, InvalidOwner):
        return None


def _escaped(owner: str) -> str:
    """The owner with each byte of its UTF-8 that is not plain as % and two hex digits."""
    if not isinstance(owner, str):
        raise InvalidOwner(owner, f"it must be a str, not {type(owner).__name__}")
    try:
        raw = owner.encode()
    except UnicodeEncodeError:
        raise InvalidOwner(owner, "it must be valid UTF-8, and has a lone surrogate") from None
    if not raw:
        raise InvalidOwner(owner, "it must not be empty")
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in raw)
    if name[0] in _NOT_IN_FRONT or name.partition(".")[0] in _DEVICES:
        name = f"%{raw[0]:02x}{name[1:]}"
    if len(name) > MAX_NAME_BYTES:
        raise InvalidOwner(
            owner,
            f"its file name would have {len(name)} bytes, more than {MAX_NAME_BYTES} (a-z, 0-9 and _-.@+ take one, "
            "any other byte takes three): use a shorter id, or a hash of this one",
        )
    return name
