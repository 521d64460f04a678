"""Whether a bundle may join the log: whose key is pinned, and which bundle of a log comes after which.

An older bundle would bring back what its issuer has taken back since, as far as this store does not
know of it yet, so of each log of a pinned issuer numbers only rise.  A bundle that goes on from another
joins only where nothing of what that held can be missing: a retraction that is missing hides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from branchmem.bundle.file import BundleFile
from branchmem.bundle.manifest import Base, Manifest
from branchmem.bundle.pins import Numbered, last_imported, note_imported, pinned
from branchmem.canonical import pack, unpack
from branchmem.errors import BundleRefused

if TYPE_CHECKING:
    from branchmem.log import Reader, Writer

# In the table of pins: b"had" + log + bundle → a bundle that was imported; b"whole" + log → the number of the latest
# with which all that the log had by then was here.  A log is issuer, b"\0", id.
_HAD: Final = b"had\0"
_WHOLE: Final = b"whole\0"


class _Had(NamedTuple):
    """A bundle that was imported."""

    number: int
    seq: int
    #: Whether with it all that the log had at that seq is here.
    is_whole: bool


def admitted(reader: Reader, bundle: BundleFile) -> str | None:
    """The name under which the issuer is pinned, None where he is not.

    Raises: BundleRefused for one of a pinned issuer that is older than what was imported, or goes on from what was not.
    """
    manifest = bundle.manifest
    name = pinned(reader, manifest.issuer)
    if name is None:
        return None
    last, base = last_imported(reader, manifest.issuer, manifest.origin), manifest.base
    if last is not None and (
        manifest.number < last.number or (manifest.number == last.number) != (manifest.id == last.id)
    ):
        raise BundleRefused(
            bundle.path,
            f"its number is {manifest.number}, and number {last.number} of the same log, {last.id}, was imported "
            "before: ask for a new one",
        )
    if base is not None and not _has(reader, manifest, base):
        instead = (
            "import that first"
            if last is None or last.number < base.number
            else f"ask for one that goes on from {last.id}, or holds all of the log"
        )
        raise BundleRefused(bundle.path, f"it goes on from bundle {base.id}, which was not imported: {instead}")
    return name


def note(writer: Writer, manifest: Manifest) -> None:
    """Keep, inside a transaction, that all of a bundle of a pinned issuer was imported."""
    seq, base = manifest.seq, manifest.base
    before = _Had(0, 0, True) if base is None else _had(writer, manifest, base.id)
    is_whole = before is not None and before.is_whole and manifest.counts.events == seq - before.seq
    writer.table("pins").put(_HAD + _log(manifest) + manifest.id.encode(), pack((manifest.number, seq, is_whole)))
    if is_whole:
        writer.table("pins").put(_WHOLE + _log(manifest), pack((manifest.number,)))
    note_imported(writer, manifest.issuer, manifest.origin, Numbered(manifest.number, manifest.id))


def _has(reader: Reader, manifest: Manifest, base: Base) -> bool:
    """Whether all that an earlier bundle of the same log held is here, of it or of a later one that held everything."""
    had, whole = _had(reader, manifest, base.id), reader.table("pins").get(_WHOLE + _log(manifest))
    return (had is not None and had.number == base.number) or (whole is not None and unpack(whole)[0] >= base.number)


def _had(reader: Reader, manifest: Manifest, id: str) -> _Had | None:
    value = reader.table("pins").get(_HAD + _log(manifest) + id.encode())
    return None if value is None else _Had(*unpack(value))


def _log(manifest: Manifest) -> bytes:
    return f"{manifest.issuer}\0{manifest.origin}".encode()
