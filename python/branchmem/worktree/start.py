"""Where the memory of a new branch starts: on the branch that it was made from, as late as its commits allow.

Commits decide, as git relates them: the nearest commit that the new branch shares with a branch which has a
ref.  Where several are as near, and git's log does not say from which one it was made, it starts from what
all of them share: it may see less than was meant, never what belongs to another branch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from branchmem.events import Message
from branchmem.worktree import git

if TYPE_CHECKING:
    from branchmem import Store
    from branchmem.worktree.git import Place

#: The name in a message's meta under which the commit stands that was checked out when it was written.
COMMIT: Final = "commit"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a ref that is not there yet would be made."""

    #: The message; None for the root of the project.
    message: str | None = None
    #: The branches that it starts from; several where git does not tell which one it was.
    branches: tuple[str, ...] = ()
    #: The nearest commit that it shares with the first of them.
    base: str | None = None
    #: Whether it is the same branch under a new name, so that the ref is renamed.
    renamed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {**asdict(self), "branches": list(self.branches)}

    def __str__(self) -> str:
        where = "the root of the project" if self.message is None else self.message
        if self.renamed:
            return f"{where}, as {self.branches[0]} was renamed"
        if not self.branches:
            return where
        return f"{where}, from {' and '.join(self.branches)} at commit {(self.base or '')[:12]}"


def start_of(store: Store, place: Place, heads: Mapping[str, str]) -> Start:
    """Where the branch of a place starts, with the messages at which the refs of its project stand, by branch.

    Raises: WorktreeUnknown.
    Cost: a run of git for each branch that has a ref; where the nearest has gone on, the messages on its path.
    """
    if place.common is None or not heads:
        return Start()
    there = git.branches(place.directory)
    origins = git.origins(place)
    for name in origins.renamed:
        if name in heads and name not in there:
            return Start(heads[name], (name,), place.commit, renamed=True)
    bases = _nearest(place, _tips(place, there, heads))
    if not bases:
        return Start()
    names = tuple(name for name in origins.made_from if name in bases)[:1] or tuple(sorted(bases))
    found = [_latest(store, place, heads[name], *bases[name]) for name in names]
    return Start(_shared(store, found), names, bases[names[0]][1])


def _tips(place: Place, there: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """The commits of the branches, and of the detached places, among these names."""
    detached = {name: commit for name in names if (commit := git.detached_at(name))}
    known = git.known(place.directory, detached.values())
    return {name: there[name] for name in names if name in there} | {
        name: commit for name, commit in detached.items() if commit in known
    }


def _nearest(place: Place, tips: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Those with which the place shares its nearest commit, each with its tip and that commit."""
    if place.commit is None:
        return {}
    bases = {tip: git.merge_base(place.directory, place.commit, tip) for tip in set(tips.values())}
    shared = {name: (tip, base) for name, tip in tips.items() if (base := bases[tip]) is not None}
    far = {base: git.distance(place.directory, base, place.commit) for base in {base for _, base in shared.values()}}
    least = min(far.values(), default=0)
    return {name: (tip, base) for name, (tip, base) in shared.items() if far[base] == least}


def _latest(store: Store, place: Place, head: str, tip: str, base: str) -> str | None:
    """The latest message of a branch that was written at a commit which the new branch has as well.

    Where the branch has not gone on since, that is its head.  Before the first commit was made, no commit is noted.
    """
    if tip == base:
        return head
    path = store.tree.known_path(head)
    noted = {id: message.meta[COMMIT] for id in path if COMMIT in (message := _message(store, id)).meta}
    shared = git.ancestors(place.directory, base, {commit for commit in noted.values() if isinstance(commit, str)})
    return next((id for id in reversed(path) if id in noted and (noted[id] is None or noted[id] in shared)), None)


def _message(store: Store, id: str) -> Message:
    event = store.log.get(id)
    assert isinstance(event, Message)
    return event


def _shared(store: Store, messages: list[str | None]) -> str | None:
    """The deepest message at or above all of them."""
    shared = messages[0]
    for other in messages[1:]:
        shared = None if shared is None or other is None else store.tree.common_ancestor(shared, other)
    return shared
