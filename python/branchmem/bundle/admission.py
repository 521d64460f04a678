"""Whether a bundle may be taken in: whose key is pinned, and which bundle of a log comes after which.

An older bundle would bring back what its issuer has taken back since, as far as this store does not
know of it yet, so of each log of a pinned issuer numbers only rise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from branchmem.bundle.file import BundleFile
from branchmem.bundle.pins import last_imported, pinned
from branchmem.errors import BundleRefused

if TYPE_CHECKING:
    from branchmem.log import Reader


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
            f"it is number {manifest.number} of its log, and number {last.number}, {last.id}, was imported before: "
            "ask for a new one",
        )
    if base is not None and (
        last is None or last.number < base.number or (last.number == base.number) != (last.id == base.id)
    ):
        raise BundleRefused(bundle.path, f"it goes on from bundle {base.number}, {base.id}: import that first")
    return name
