"""What bundles need beyond branchmem itself, asked for when it is needed: Ed25519 and zstd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from branchmem.errors import ExtraMissing


@contextmanager
def extra(package: str) -> Iterator[None]:
    """Say what to install where `package`, which is imported within, is missing.  Raises: ExtraMissing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ExtraMissing("bundles", package, "bundles") from None
