"""Packages that are no part of branchmem itself: asked for when they are needed, and what to install if missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from branchmem.errors import ExtraMissing


@contextmanager
def extra(module: str, *, wanted: str, name: str, package: str | None = None) -> Iterator[None]:
    """Say what to install where `module`, which is imported within, is missing.

    `wanted` need it (a plural); `name` is the extra; `package` is what the package is called, where it is not called as
    its module.  Another module's absence is left as it is.

    Raises: ExtraMissing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module:
            raise
        raise ExtraMissing(wanted, package or module, name) from None
