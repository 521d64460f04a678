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


class InvalidRef(Error, ValueError):
    """No ref can have this name; `name` is at fault."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def explanation(self) -> str:
        return f"{_short(self.name)} cannot be the name of a ref: {self.why}"


class UnknownRef(Error, KeyError):
    """There is no ref of this name, or no such entry in its log; `name` is what was asked for."""

    def __init__(self, name: str, wanted: str = "ref") -> None:
        super().__init__(name, wanted)
        self.name = name
        self.wanted = wanted

    def explanation(self) -> str:
        return f"there is no {self.wanted} {_short(self.name)}: see store.refs, or branchmem refs"


class AmbiguousName(Error, ValueError):
    """A string is a ref and, as it happens, the id of another message than that where the ref stands, `anchor`."""

    def __init__(self, name: str, anchor: str) -> None:
        super().__init__(name, anchor)
        self.name = name
        self.anchor = anchor

    def explanation(self) -> str:
        return (
            f"{_short(self.name)} is a message, and also a ref that stands at {self.anchor}: "
            "say that id for the ref, or give the ref another name"
        )


class RefExists(Error):
    """There is a ref of this name already; `anchor` is the message where it stands."""

    def __init__(self, name: str, anchor: str) -> None:
        super().__init__(name, anchor)
        self.name = name
        self.anchor = anchor

    def explanation(self) -> str:
        return f"ref {_short(self.name)} is there already, at {self.anchor}: move it, or take another name"


class RefMoved(Error):
    """A ref does not stand where it was expected to: somebody moved it from `expected` to `found` meanwhile."""

    def __init__(self, name: str, expected: str, found: str | None, kept: str | None = None) -> None:
        super().__init__(name, expected, found, kept)
        self.name = name
        self.expected = expected
        self.found = found
        self.kept = kept

    def explanation(self) -> str:
        kept = "" if self.kept is None else f"; what was written stands at {self.kept}, on a branch of its own"
        where = "is gone" if self.found is None else f"stands at {self.found}"
        return f"ref {_short(self.name)} {where}, no longer at {self.expected}: look at it again{kept}"


class NoStep(Error, LookupError):
    """There is no current step: `wanted` is what needed one."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted

    def explanation(self) -> str:
        return (
            f"{self.wanted} needs a step: with session.step() as step: …; a thread that was started inside of one "
            "does not know it, so start it with contextvars.copy_context().run, or pass the step to it"
        )


class StepEnded(Error):
    """The step is over, and `wanted` came after that; `id` is that of its message, `cancelled` says how it ended."""

    def __init__(self, id: str, wanted: str, cancelled: bool = False) -> None:
        super().__init__(id, wanted, cancelled)
        self.id = id
        self.wanted = wanted
        self.cancelled = cancelled

    def explanation(self) -> str:
        if self.cancelled:
            return f"{self.wanted} came after step {self.id} was cancelled: leave its block, and begin another step"
        return (
            f"{self.wanted} came after the end of step {self.id}: begin another step; "
            f"what was learned in it late can name its message, session.remember(…, sources=[{self.id!r}])"
        )


class StepOpen(Error):
    """A step of this session is open here, and `wanted` would move the ref under it; `id` is that of its message."""

    def __init__(self, ref: str, id: str, wanted: str) -> None:
        super().__init__(ref, id, wanted)
        self.ref = ref
        self.id = id
        self.wanted = wanted

    def explanation(self) -> str:
        return (
            f"{self.wanted} would move ref {_short(self.ref)} while step {self.id} is open on it: "
            "end the step first, or work on a branch of its own: session.fork(name)"
        )


class BadMove(Error, ValueError):
    """A session cannot go to this message, or start from it; `message` is at fault, `why` says what it would take."""

    def __init__(self, ref: str, message: str, why: str) -> None:
        super().__init__(ref, message, why)
        self.ref = ref
        self.message = message
        self.why = why

    def explanation(self) -> str:
        return f"ref {_short(self.ref)} stays where it is, since message {self.message} {self.why}"


class MergeConflict(Error):
    """Two memories live at the merge replace the same one, or share a key, and differ; nothing was written.

    `conflicts` holds each with its base, ours and theirs.
    """

    def __init__(self, into: str, conflicts: Iterable[object]) -> None:
        conflicts = tuple(conflicts)
        super().__init__(into, conflicts)
        self.into = into
        self.conflicts = conflicts

    def explanation(self) -> str:
        count = len(self.conflicts)
        first = f": {self.conflicts[0]}" if count else ""
        more = f" and {count - 1} more" if count > 1 else ""
        return (
            f"{count} conflict{'s' if count != 1 else ''} on {_short(self.into)}{first}{more}; nothing was written: "
            "choose a strategy, or replace one of them first"
        )


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
        return f"no bundle {_short(self.bundle)} is held: look at store.held"


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
        return f"no key can be pinned as {_short(self.name)}: {self.why}"


class UnknownPin(Error, KeyError):
    """No key is pinned under this name; `name` is what was asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def explanation(self) -> str:
        return f"no key is pinned as {_short(self.name)}: look at store.pins"


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


class WorktreeUnknown(Error):
    """It cannot be said on which branch a directory stands: `why`; no other branch is taken in its place."""

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(directory, why)
        self.directory = directory
        self.why = why

    def explanation(self) -> str:
        return f"{self.directory}: {self.why}; no branch was guessed, so see that git status answers there"


class UnknownBranch(UnknownRef):
    """A git branch of a project has no memory yet; `name` is the ref that it would have."""

    def explanation(self) -> str:
        return (
            f"there is no ref {_short(self.name)}: the branch gets one by worktree.session() where it is checked out, "
            "or check its name, and which store is open"
        )


class BranchSwitched(Error):
    """A session is held at the ref `expected`, and its directory stands on that of `found` now."""

    def __init__(self, directory: str, expected: str, found: str) -> None:
        super().__init__(directory, expected, found)
        self.directory = directory
        self.expected = expected
        self.found = found

    def explanation(self) -> str:
        return (
            f"{self.directory} stands on {_short(self.found)} now, and this session on {_short(self.expected)}: "
            "nothing was written; take a new worktree.session(), or switch back"
        )


class BranchInUse(Error):
    """The memory of a branch was to be deleted by a directory that stands on it."""

    def __init__(self, directory: str, ref: str) -> None:
        super().__init__(directory, ref)
        self.directory = directory
        self.ref = ref

    def explanation(self) -> str:
        return f"{self.directory} stands on {_short(self.ref)}: switch it to another branch, then delete this one"


class ProfileAstray(AmbiguousAnchor):
    """The ref of the profile, at `first`, stands in the tree of a project, one of whose branches is at `second`."""

    def explanation(self) -> str:
        return (
            f"ref 'profile' stands at {self.first}, in one tree with the branches of this project, which part from it "
            f"at {self.root}: what is about the user needs a tree of its own; move that ref to one, or delete it and "
            "one is made"
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
