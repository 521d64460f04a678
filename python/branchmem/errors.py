"""What branchmem refuses, and how to go on.

Every error is an `Error`, carries the value at fault as an attribute, and says
the way out in its text.  The arguments of an error are its attributes, so that
errors survive pickling between processes.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable


class Error(Exception):
    """Base of all errors of branchmem: catch it to catch them all."""

    def explanation(self) -> str:
        """One line for people: what was refused, and the way out."""
        return " ".join(str(arg) for arg in self.args)

    def __str__(self) -> str:
        """The explanation, printable whatever value is at fault: a lone surrogate is spelled out."""
        return self.explanation().encode(errors="backslashreplace").decode()


class InvalidEvent(Error, ValueError):
    """An event cannot be what it says: `why` names the rule, `value` is at fault."""

    def __init__(self, why: str, value: object = None) -> None:
        super().__init__(why, value)
        self.why = why
        self.value = value

    def explanation(self) -> str:
        return self.why


class InvalidEventType(InvalidEvent, TypeError):
    """A field holds a value of a type that it never takes."""


class EventConflict(Error):
    """One id, two contents: `field` differs between what is stored and what was given."""

    def __init__(self, id: str, field: str, stored: object = None, given: object = None) -> None:
        super().__init__(id, field, stored, given)
        self.id = id
        self.field = field
        self.stored = stored
        self.given = given

    def explanation(self) -> str:
        return (
            f"event {self.id} is already there with another {self.field} "
            f"({_short(self.stored)}, not {_short(self.given)}): events never change, "
            "so append the new content under an id of its own"
        )


class AmbiguousAnchor(Error, ValueError):
    """Two anchors of one view lie in one tree; `root` is the root of that tree."""

    def __init__(self, first: str, second: str, root: str) -> None:
        super().__init__(first, second, root)
        self.first = first
        self.second = second
        self.root = root

    def explanation(self) -> str:
        return (
            f"anchors {self.first} and {self.second} lie in one tree (root {self.root}): "
            "a view stands on one message a tree, so keep one of them"
        )


class UnknownEvent(Error, KeyError):
    """Nothing in the log bears this id, or what bears it is of another type."""

    def __init__(self, id: str, wanted: str = "event") -> None:
        super().__init__(id, wanted)
        self.id = id
        self.wanted = wanted

    def explanation(self) -> str:
        return f"no {self.wanted} {self.id} in the log: append it first, or check which store is open"


class MemoryHidden(Error, KeyError):
    """The memory is not visible in this view; `why` says what hides it."""

    def __init__(self, id: str, why: str) -> None:
        super().__init__(id, why)
        self.id = id
        self.why = why

    def explanation(self) -> str:
        return f"memory {self.id} is hidden here: {self.why}"


class BadAnchor(Error):
    """The view has problems; only `View.raise_for_problems` raises this."""

    def __init__(self, problems: str, anchors: Iterable[str] = ()) -> None:
        anchors = tuple(anchors)
        super().__init__(problems, anchors)
        self.problems = problems
        self.anchors = anchors

    def explanation(self) -> str:
        what = f"cannot stand on {', '.join(self.anchors)}" if self.anchors else "has no anchor"
        return f"the view {what} ({self.problems}): pass the id of an attached message"


class StoreError(Error):
    """A store cannot do what was asked; `path` names its file."""

    remedy = "check the file"

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def explanation(self) -> str:
        return f"{self.path}: {self.why or self.remedy}"


class StoreBehind(Error):
    """The log on disk has not reached the position that was asked for."""

    def __init__(self, seq: int, min_seq: int) -> None:
        super().__init__(seq, min_seq)
        self.seq = seq
        self.min_seq = min_seq

    def explanation(self) -> str:
        return (
            f"the log stands at seq {self.seq}, not yet at {self.min_seq}: "
            "wait for the writer, or check which store is open"
        )


class StoreDamaged(StoreError):
    """The file is not whole; trust nothing from `seq` on (None: the file as such)."""

    def __init__(self, path: str, why: str, seq: int | None = None) -> None:
        Error.__init__(self, path, why, seq)
        self.path = path
        self.why = why
        self.seq = seq

    def explanation(self) -> str:
        where = "" if self.seq is None else f" at seq {self.seq}"
        return f"{self.path} is damaged{where}: {self.why}; restore a backup, or save what is proven: branchmem salvage"


class StoreLocked(StoreError):
    """Other processes hold the store; `holders` are their ids, as far as the system tells."""

    remedy = "another process holds the store: close it there first"

    def __init__(self, path: str, why: str = "", holders: Iterable[int] = ()) -> None:
        holders = tuple(holders)
        Error.__init__(self, path, why, holders)
        self.path = path
        self.why = why
        self.holders = holders


class StoreReadOnly(StoreError):
    """The store was opened for reading, or its medium takes no writes."""

    remedy = "the store is open for reading only: open it with readonly=False on a writable medium"


class StoreFull(StoreError):
    """No room is left; what was acknowledged is intact."""

    remedy = "no room is left on the disk: free some and append again, nothing of this batch was written"


class StoreForked(StoreError):
    """The store was opened before a fork and is used in the child."""

    remedy = "the store was opened before this process was forked: call branchmem.open in the child"


class StoreClosed(StoreError, ValueError):
    """The store was closed."""

    remedy = "the store is closed: open it again with branchmem.open"


class StoreMissing(StoreError, FileNotFoundError):
    """There is no store at this path, and none was to be made."""

    remedy = "there is no store here: check the path; appending or importing makes one"

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(path, why)
        self.errno = errno.ENOENT  # OSError takes the first argument for it


class StoreExists(StoreError, FileExistsError):
    """There is something at this path already; it was left alone."""

    remedy = "there is something at this path already, which was left alone: name a new file"

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(path, why)
        self.errno = errno.EEXIST  # OSError takes the first argument for it


class StoreOnNetwork(StoreError):
    """The path lies on a network file system, where a memory map is not safe."""

    remedy = "a store cannot live on a network file system: keep it on a local disk"


class FormatTooNew(StoreError):
    """The file was written by a later branchmem."""

    remedy = "the store was written by a later version: upgrade branchmem"


class InvalidOwner(Error, ValueError):
    """An owner that no file can be named after; `owner` is at fault."""

    def __init__(self, owner: object, why: str) -> None:
        super().__init__(owner, why)
        self.owner = owner
        self.why = why

    def explanation(self) -> str:
        return f"{_short(self.owner)} cannot be the owner of a store: {self.why}"


class PoolBusy(Error):
    """No store of the pool came free in time: `max_open` of them are leased, or wait to be opened."""

    def __init__(self, folder: str, owner: str, max_open: int, seconds: float) -> None:
        super().__init__(folder, owner, max_open, seconds)
        self.folder = folder
        self.owner = owner
        self.max_open = max_open
        self.seconds = seconds

    def explanation(self) -> str:
        return (
            f"{self.folder}: no room for the store of {_short(self.owner)} in {self.seconds:g} s, as all "
            f"{self.max_open} that may be open are leased: end leases sooner, wait longer (timeout=), "
            "or allow more of them (max_open=)"
        )


class ImportFailed(Error):
    """A file cannot be read as what it was said to be: `place` in it, and what was `expected`."""

    def __init__(self, path: str, place: str, expected: str) -> None:
        super().__init__(path, place, expected)
        self.path = path
        self.place = place
        self.expected = expected

    def explanation(self) -> str:
        return f"{self.path}: at {self.place}: expected {self.expected}"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
