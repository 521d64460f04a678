"""What refs, sessions, merges and worktrees refuse, so that nobody is moved or overruled unseen."""

from __future__ import annotations

from collections.abc import Iterable

from branchmem.errors.base import Error, short
from branchmem.errors.events import AmbiguousAnchor


class InvalidRef(Error, ValueError):
    """No ref can have this name; `name` is at fault."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def explanation(self) -> str:
        return f"{short(self.name)} cannot be the name of a ref: {self.why}"


class UnknownRef(Error, KeyError):
    """There is no ref of this name, or no such entry in its log; `name` is what was asked for."""

    def __init__(self, name: str, wanted: str = "ref") -> None:
        super().__init__(name, wanted)
        self.name = name
        self.wanted = wanted

    def explanation(self) -> str:
        return f"there is no {self.wanted} {short(self.name)}: see store.refs, or branchmem refs"


class AmbiguousName(Error, ValueError):
    """A string is a ref and, as it happens, the id of another message than that where the ref stands, `anchor`."""

    def __init__(self, name: str, anchor: str) -> None:
        super().__init__(name, anchor)
        self.name = name
        self.anchor = anchor

    def explanation(self) -> str:
        return (
            f"{short(self.name)} is a message, and also a ref that stands at {self.anchor}: "
            "say that id for the ref, or give the ref another name"
        )


class RefExists(Error):
    """There is a ref of this name already; `anchor` is the message where it stands."""

    def __init__(self, name: str, anchor: str) -> None:
        super().__init__(name, anchor)
        self.name = name
        self.anchor = anchor

    def explanation(self) -> str:
        return f"ref {short(self.name)} is there already, at {self.anchor}: move it, or take another name"


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
        return f"ref {short(self.name)} {where}, no longer at {self.expected}: look at it again{kept}"


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
            f"{self.wanted} would move ref {short(self.ref)} while step {self.id} is open on it: "
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
        return f"ref {short(self.ref)} stays where it is, since message {self.message} {self.why}"


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
            f"{count} conflict{'s' if count != 1 else ''} on {short(self.into)}{first}{more}; nothing was written: "
            "choose a strategy, or replace one of them first"
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
            f"there is no ref {short(self.name)}: the branch gets one by worktree.session() where it is checked out, "
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
            f"{self.directory} stands on {short(self.found)} now, and this session on {short(self.expected)}: "
            "nothing was written; take a new worktree.session(), or switch back"
        )


class BranchInUse(Error):
    """The memory of a branch was to be deleted by a directory that stands on it."""

    def __init__(self, directory: str, ref: str) -> None:
        super().__init__(directory, ref)
        self.directory = directory
        self.ref = ref

    def explanation(self) -> str:
        return f"{self.directory} stands on {short(self.ref)}: switch it to another branch, then delete this one"


class ProfileAstray(AmbiguousAnchor):
    """The ref of the profile, at `first`, stands in the tree of a project, one of whose branches is at `second`."""

    def explanation(self) -> str:
        return (
            f"ref 'profile' stands at {self.first}, in one tree with the branches of this project, which part from it "
            f"at {self.root}: what is about the user needs a tree of its own; move that ref to one, or delete it and "
            "one is made"
        )
