"""Memory that follows the git branch of a directory: which ref it has, where a new one starts, how one goes.

Every place has a ref of its own, `<project>/<branch>`: a branch, one without commits, a detached HEAD, a directory
without git.  Where git does not say which, nothing is read or written.  The branches of a repository share one tree;
memories of global kinds live in a tree beside it, on which every session stands.

A ref goes by the name of its branch.  One that git renames takes its ref along, as long as git's log remembers it; one
that git deletes keeps its memory, and a later branch of that name goes on with it, until `delete_branch`.

git      what git says of a directory
start    where the memory of a new branch starts
session  the session of a place
removal  what only one branch saw, and what is erased with it

Left out: git itself is never written to, and what the files of a branch say is not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from branchmem import Message, Store, new_id
from branchmem.errors import BranchInUse, InvalidRef, ProfileAstray, UnknownBranch
from branchmem.merge import diff, merge
from branchmem.refs import TABLES, all_heads, head, valid_name, write_move
from branchmem.worktree import git
from branchmem.worktree.git import Place, State
from branchmem.worktree.removal import RENAMED_FROM, RENAMED_TO, Deleted, only_seen_by
from branchmem.worktree.session import PROFILE, WorktreeSession
from branchmem.worktree.start import Start, start_of

if TYPE_CHECKING:
    from branchmem.events import Erasure
    from branchmem.log import Writer
    from branchmem.merge import Difference, Merged, Strategy
    from branchmem.worktree.removal import Seen

__all__ = ["PROFILE", "Deleted", "Place", "Start", "Status", "Worktree", "WorktreeSession"]

#: The name, which no branch can bear, of the ref at the root of all branches of a project.
_ROOT: Final = "@{root}"


@dataclass(frozen=True, slots=True)
class Status:
    """Where a directory stands, and what the store has for it."""

    ref: str
    state: State
    #: What is checked out; None where nothing was committed yet.
    commit: str | None
    #: The message at which the ref stands; None where it is not made yet.
    head: str | None
    #: Where it would start then.
    start: Start | None
    #: Names of this project's branches that have a ref.
    branches: tuple[str, ...]
    #: Those of them that git does not have any more: their memory is kept until `delete_branch`.
    gone: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "ref": self.ref,
            "state": self.state,
            "commit": self.commit,
            "head": self.head,
            "start": None if self.start is None else self.start.to_dict(),
            "branches": list(self.branches),
            "gone": list(self.gone),
        }

    def __str__(self) -> str:
        where = f"stands at {self.head}" if self.head is not None else f"is new and starts from {self.start}"
        lines = [f"{self.ref} ({self.state}) {where}"]
        if self.gone:
            lines.append(f"kept, though git has no such branch: {', '.join(self.gone)}")
        return "\n".join(lines)


class Worktree:
    """The memory of a directory.  Git is asked anew by each call, so the branch may be switched between them.

    `project` names the repository in refs, for instance where it lies at another place on each machine; by default
    it is made from where it lies.  `global_kinds` are the kinds of memory that belong to the user, not to a branch.
    """

    def __init__(
        self,
        store: Store,
        directory: str | os.PathLike[str] = ".",
        *,
        project: str | None = None,
        global_kinds: Iterable[str] = ("user", "feedback"),
    ) -> None:
        if isinstance(global_kinds, str):
            raise TypeError(f"global_kinds is a list of kinds: write [{global_kinds!r:.80}]")
        if project is not None and "/" in valid_name(project):
            raise InvalidRef(project, "the name of a project has no slash, which ends it in a ref")
        self.store: Final = store
        self.directory: Final = os.path.realpath(directory)
        self.global_kinds: Final = frozenset(global_kinds)
        self._project = project

    @property
    def place(self) -> Place:
        """What git says of the directory now.  Raises: WorktreeUnknown.  Cost: about 10 ms."""
        return git.look(self.directory)

    @property
    def ref(self) -> str:
        """The ref of the branch on which the directory stands now.  Raises, costs: as `place`."""
        return self._ref(self.place)

    def ref_of(self, branch: str) -> str:
        """The ref of a branch of this project, whether it is made or not.

        A place that is no branch is named as in its ref: `@{<commit>}`, `@{folder}`.
        """
        return f"{self._project or self.place.project}/{branch}"

    def session(self) -> WorktreeSession:
        """The session of the branch on which the directory stands now.

        Its ref is made where it is not there yet, and starts on the branch that it was made from.
        Raises: WorktreeUnknown; InvalidRef where no ref can have this name; ProfileAstray.
        Cost: as `place`; once a branch, a run of git for each branch with a ref.
        """
        place = self.place
        ref = self._ref(place)
        self._make(place, ref)
        return WorktreeSession(self.store, ref, place, self.global_kinds)

    def status(self) -> Status:
        """Where the directory stands, and what the store has for it; nothing is written."""
        place = self.place
        ref = self._ref(place)
        heads = self._heads(place)
        at = heads.get(place.name)
        there = git.branches(self.directory) if place.common is not None else {}
        return Status(
            ref=ref,
            state=place.state,
            commit=place.commit,
            head=at,
            start=start_of(self.store, place, heads) if at is None else None,
            branches=tuple(heads),
            gone=tuple(name for name in heads if not name.startswith("@{") and name not in {*there, place.name}),
        )

    def diff_branch(self, a: str, b: str | None = None) -> Difference:
        """As `store.diff`, of two branches; the second is by default the one on which the directory stands.

        Both are seen as their sessions see them, from the profile as well.
        Raises: UnknownBranch, an UnknownRef, where one has no memory yet.
        """
        place = self.place
        first, second = self._known(place, a), self._known(place, place.name if b is None else b)
        return diff(self.store, first, second, beside=self._beside())

    def merge_branch(
        self, source: str, into: str | None = None, *, strategy: Strategy = "fail", dry_run: bool = False
    ) -> Merged:
        """As `store.merge`, of two branches; the second is by default the one on which the directory stands.

        Both are seen as their sessions see them, from the profile as well, so that what a branch derived from a
        global memory is taken over, too.  The second gets its ref where it has none yet, unless this is a dry run.
        Raises: UnknownBranch where one has no memory yet; MergeConflict, and nothing is written.
        """
        place = self.place
        ref = self._known(place, source)
        if into is None and not dry_run:
            self._make(place, self._ref(place))
        target = self._known(place, place.name if into is None else into)
        return merge(self.store, ref, into=target, beside=self._beside(), strategy=strategy, dry_run=dry_run)

    def delete_branch(self, branch: str, *, dry_run: bool = False) -> Deleted:
        """Delete the ref of a branch, and erase what only that branch saw, in one transaction.

        That are the messages to which only its ref led, with all below them, and the memories with one of
        those among their effective sources.  What was taken over on other branches stays, and so do
        global memories.  What arrives later for the branch, as from a step that was still open, is not erased.

        Raises: UnknownBranch; BranchInUse where the directory stands on it.
        Cost: the log of moves, the paths of all refs, and what goes.
        """
        place = self.place
        ref = self._known(place, branch)
        if branch == _ROOT:
            raise InvalidRef(ref, "all branches of the project start there: name one of them")
        if branch == place.name:
            raise BranchInUse(self.directory, ref)
        ids: list[str] = []

        def delete(writer: Writer) -> tuple[list[Erasure], tuple[str, Seen]]:
            at, seen = head(writer, ref), only_seen_by(self.store, ref)
            write_move(writer, ref, None, "delete")
            return seen.erasures(ids), (at, seen)

        if dry_run:
            at, seen = self.store.snapshot(
                lambda reader: (head(reader, ref), only_seen_by(self.store, ref)), tables=TABLES
            )
            return Deleted(ref, at, seen)
        appended, (at, seen) = self.store.transact(delete, tables=TABLES)
        return Deleted(ref, at, seen, tuple(ids), appended)

    def _ref(self, place: Place) -> str:
        return f"{self._project or place.project}/{place.name}"

    def _beside(self) -> tuple[str, ...]:
        """The ref of the profile, where there is one: a store that only imported branches may have none."""
        return (PROFILE,) if PROFILE in self.store.refs else ()

    def _known(self, place: Place, branch: str) -> str:
        """The ref of a branch.  Raises: UnknownBranch."""
        ref = f"{self._project or place.project}/{branch}"
        if ref not in self.store.refs:
            raise UnknownBranch(ref)
        return ref

    def _heads(self, place: Place) -> dict[str, str]:
        """The messages at which the refs of the project stand, by branch."""
        prefix = self._ref(place).removesuffix(place.name)
        found = {ref.removeprefix(prefix): at for ref, at in self.store.refs.items() if ref.startswith(prefix)}
        found.pop(_ROOT, None)
        return found

    def _make(self, place: Place, ref: str) -> None:
        """Make the ref, that of the profile, and the roots below them, as far as they are not there.

        Raises: ProfileAstray where the profile stands in the tree of the ref; nothing was written then.
        """
        valid_name(ref)
        there = dict(self.store.refs.items())
        if {ref, PROFILE} <= there.keys():
            self._refuse_astray(there, there[ref])
            return
        start = start_of(self.store, place, self._heads(place))
        prefix = ref.removesuffix(place.name)
        profile = Message(new_id(), None, role="thread", meta={"profile": True})
        top = Message(new_id(), None, role="thread", meta={"project": prefix.removesuffix("/")})

        def plan(writer: Writer) -> tuple[list[Message], None]:
            heads = all_heads(writer)
            made = []
            if PROFILE not in heads:
                made.append(profile)
                write_move(writer, PROFILE, profile.id, "create")
            if ref in heads:
                return made, None
            root = heads.get(prefix + _ROOT)
            if root is None:
                others = (at for name, at in heads.items() if name.startswith(prefix))
                known = next(others, None) if start.message is None else start.message
                if known is None:
                    made.append(top)
                root = top.id if known is None else self.store.tree.known_path(known)[0]
                write_move(writer, prefix + _ROOT, root, "create")
            if top not in made:
                self._refuse_astray(heads, root)
            old = prefix + start.branches[0] if start.renamed else ""
            if old in heads:
                write_move(writer, ref, heads[old], RENAMED_FROM + old)
                write_move(writer, old, None, RENAMED_TO + ref)
            else:
                write_move(writer, ref, root if start.message is None else start.message, "create")
            return made, None

        self.store.transact(plan, tables=TABLES)

    def _refuse_astray(self, heads: Mapping[str, str], at: str) -> None:
        """Raises: ProfileAstray where the ref of the profile, if there is one, stands in the tree of a message."""
        profile = heads.get(PROFILE)
        if profile is not None and (root := self.store.tree.common_ancestor(profile, at)) is not None:
            raise ProfileAstray(profile, at, root)
