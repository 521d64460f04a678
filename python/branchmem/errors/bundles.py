"""What cannot be trusted, or is lacking, for memory to travel."""

from __future__ import annotations

from branchmem.errors.base import Error, short


class BundleRefused(Error):
    """A bundle cannot be trusted or is not for this store: `why`.

    `applied` of its events had joined the log by then: none, unless the store or the file was changed by others after
    all of it had been checked.
    """

    def __init__(self, path: str, why: str, applied: int = 0) -> None:
        super().__init__(path, why, applied)
        self.path = path
        self.why = why
        self.applied = applied

    def explanation(self) -> str:
        left = f"{self.applied:,} of its events had been taken in by then, and stay"
        return f"{self.path}: {self.why}; {left if self.applied else 'nothing of it was applied'}"


class BundleNotWritten(Error):
    """A bundle cannot be written at this path, or not with what it was to say: `why`; nothing is there."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def explanation(self) -> str:
        return f"{self.path}: {self.why}; no bundle was written"


class UnknownBundle(Error, KeyError):
    """No bundle of this id is held; `bundle` is what was asked for."""

    def __init__(self, bundle: str) -> None:
        super().__init__(bundle)
        self.bundle = bundle

    def explanation(self) -> str:
        return f"no bundle {short(self.bundle)} is held: look at store.held"


class InvalidKey(Error, ValueError):
    """No key can be read from, or made at, this place: `why`.  What was found there is not repeated."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(place, why)
        self.place = place
        self.why = why

    def explanation(self) -> str:
        return f"{self.place}: {self.why}"


class PinRefused(Error, ValueError):
    """No key can be pinned under this name; `name` is at fault."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def explanation(self) -> str:
        return f"no key can be pinned as {short(self.name)}: {self.why}"


class UnknownPin(Error, KeyError):
    """No key is pinned under this name; `name` is what was asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def explanation(self) -> str:
        return f"no key is pinned as {short(self.name)}: look at store.pins"


class ExtraMissing(Error, ImportError):
    """A package that is not part of branchmem itself is needed for `wanted`, and not installed."""

    def __init__(self, wanted: str, package: str, extra: str) -> None:
        super().__init__(wanted, package, extra)
        self.wanted = wanted
        self.package = package
        self.extra = extra

    def explanation(self) -> str:
        return (
            f"{self.wanted} need the package {self.package}, which is not installed: "
            f"pip install 'branchmem[{self.extra}]'"
        )
