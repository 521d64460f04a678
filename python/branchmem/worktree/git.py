"""What git says of a directory: on which branch it stands, and how commits relate.

Only git is asked, and only for reading.  Where it cannot answer, nothing is guessed: another
branch would mean another memory.  A directory without any repository is a place of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from branchmem.errors import WorktreeUnknown

State = Literal["branch", "unborn", "rebasing", "detached", "folder"]

_BRANCHES: Final = "refs/heads/"
#: A commit by its whole name, of SHA-1 or SHA-256; nothing else is handed to git as one.
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_DETACHED: Final = re.compile(rf"@\{{({_COMMIT.pattern})\}}")
_LOG_ENTRY: Final = re.compile(r"([0-9a-f]+) .*?@\{(\d+)\} (.*)")
_RENAMED: Final = re.compile(rf"Branch: renamed {_BRANCHES}(\S+) to {_BRANCHES}(\S+)")
_CREATED: Final = re.compile(r"branch: Created from (\S+)")
_SWITCHED: Final = re.compile(r"checkout: moving from (\S+) to (\S+)")
#: Where a rebase keeps the name of the branch that it rewrites.
_REBASES: Final = ("rebase-merge", "rebase-apply")
#: What of the environment says which repositories are trusted; all else of git's could name another repository.
_KEPT: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_DISCOVERY_ACROSS_FILESYSTEM")
_NAME_CHARS: Final = 32
_HASH_DIGITS: Final = 8
_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Place:
    """Where a directory stands, of one moment."""

    #: The directory, without symbolic links.
    directory: str
    #: The folder that all worktrees of the repository share; None where there is no repository.
    common: str | None
    state: State
    #: The branch; what is none is written as no branch can be called: `@{<commit>}` where HEAD is detached,
    #: `@{folder}` without a repository.
    name: str
    #: What is checked out; None where nothing was committed yet.
    commit: str | None

    @property
    def project(self) -> str:
        """A name for the repository, or for the directory without one: readable, and its own on this machine.

        A repository that is moved is another project, unless the user names it.
        """
        path = self.directory if self.common is None else self.common
        shown = os.path.basename(os.path.dirname(path) if os.path.basename(path) == ".git" else path)
        shown = re.sub(r"[^\w.-]+", "-", shown.removesuffix(".git"))[:_NAME_CHARS].strip("-")
        return f"{shown or 'project'}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:_HASH_DIGITS]}"


@dataclass(frozen=True, slots=True)
class Origins:
    """What the log of git remembers of how a branch came to be; it may be gone, so nothing rests on it alone."""

    #: Names that the branch bore before, the latest first.
    renamed: tuple[str, ...] = ()
    #: From which branch, or place `@{<commit>}`, it was made; where HEAD is detached, from which it came, the latest
    #: first.
    made_from: tuple[str, ...] = ()


def look(directory: str | os.PathLike[str]) -> Place:
    """Where a directory stands.

    During a rebase that is the branch that is rewritten, as for git itself, which lends it to no other worktree.
    Raises: WorktreeUnknown where there is no such directory, and where there is a repository of which git says nothing.
    Cost: four runs of git, about 10 ms.
    """
    here = os.path.realpath(directory)
    if not os.path.isdir(here):
        raise WorktreeUnknown(here, "there is no such directory")
    if not _in_repository(here):
        return Place(here, None, "folder", "@{folder}", None)
    folders = _text(here, "rev-parse", "--git-common-dir", "--git-dir").split("\n")
    if len(folders) != 2:
        raise WorktreeUnknown(here, "the path of its repository has a line break")
    common, own = (os.path.realpath(os.path.join(here, folder)) for folder in folders)
    reference = _text(here, "symbolic-ref", "--quiet", "HEAD", none_is=1)
    if reference:
        commit = commit_at(here, reference)
        name = reference.removeprefix(_BRANCHES) if reference.startswith(_BRANCHES) else f"@{{{reference}}}"
        return Place(here, common, "branch" if commit else "unborn", name, commit)
    commit = commit_at(here, "HEAD")
    if commit is None:
        raise WorktreeUnknown(here, "HEAD is on no branch and at no commit")
    rebased = _rebased(own)
    if rebased is not None:
        return Place(here, common, "rebasing", rebased, commit)
    return Place(here, common, "detached", f"@{{{commit}}}", commit)


def branches(directory: str) -> dict[str, str]:
    """The branches of the repository, each with its commit.  Cost: one run of git."""
    listed = _text(directory, "for-each-ref", "--format=%(objectname) %(refname)", _BRANCHES)
    pairs = (line.split(" ", 1) for line in listed.split("\n") if line)
    return {name.removeprefix(_BRANCHES): commit for commit, name in pairs}


def commit_at(directory: str, reference: str) -> str | None:
    """The commit at which a full name of git's stands, None where it stands at none."""
    return _text(directory, "rev-parse", "--quiet", "--verify", reference + "^{commit}", none_is=1) or None


def detached_at(name: str) -> str | None:
    """The commit in the name of a place whose HEAD is detached, None for other names."""
    found = _DETACHED.fullmatch(name)
    return found[1] if found else None


def merge_base(directory: str, a: str, b: str) -> str | None:
    """The nearest commit that is at or above both; None where there is none."""
    return _text(directory, "merge-base", a, b, none_is=1) or None


def distance(directory: str, base: str, commit: str) -> int:
    """How many commits `commit` has above it, itself included, that `base` does not."""
    return int(_text(directory, "rev-list", "--count", f"{base}..{commit}"))


def known(directory: str, commits: Iterable[str]) -> set[str]:
    """Those of `commits` that the repository has.  Cost: one run of git."""
    asked = {commit for commit in commits if _COMMIT.fullmatch(commit)}
    if not asked:
        return set()
    lines = _text(directory, "cat-file", "--batch-check", given=asked).split("\n")
    return {line.split(" ", 1)[0] for line in lines if line.split(" ")[1:2] == ["commit"]}


def ancestors(directory: str, commit: str, among: Iterable[str]) -> set[str]:
    """Those of `among` that are `commit` or stand above it.  Cost: two runs of git, and the commits between."""
    asked = known(directory, among)
    if not asked:
        return set()
    beyond = _text(directory, "rev-list", "--stdin", given=[*asked, f"^{commit}"])
    return asked.difference(beyond.split("\n"))


def origins(place: Place) -> Origins:
    """What git's log says of how a place came to be.  Cost: two runs of git at most."""
    if place.state == "detached":
        return Origins(made_from=_came_from(place))
    if place.state not in ("branch", "rebasing") or place.name.startswith("@{"):
        return Origins()
    name, renamed = place.name, []
    for _, made, said in _logged(place.directory, _BRANCHES + place.name):
        if (was := _RENAMED.fullmatch(said)) and was[2] == name:
            name = was[1]
            renamed.append(name)
        elif created := _CREATED.fullmatch(said):
            source = created[1].removeprefix(_BRANCHES)
            return Origins(tuple(renamed), _switched_from(place, name, made) if source == "HEAD" else (source,))
    return Origins(tuple(renamed))


def _switched_from(place: Place, name: str, made: int) -> tuple[str, ...]:
    """What this worktree stood on before it first switched to a branch that was made at that second."""
    first: tuple[str, ...] = ()
    for _, switched, said in _logged(place.directory, "HEAD"):
        moved = _SWITCHED.fullmatch(said)
        if moved and moved[2] == name and switched >= made:
            first = (_named(moved[1]),)
    return first


def _came_from(place: Place) -> tuple[str, ...]:
    """Where a detached HEAD was since it was detached, and what this worktree stood on before."""
    found: list[str] = []
    for commit, _, said in _logged(place.directory, "HEAD"):
        if commit != place.commit:
            found.append(_named(commit))
        if moved := _SWITCHED.fullmatch(said):
            return (*found, _named(moved[1]))
    return tuple(found)


def _named(said: str) -> str:
    """The name of a place as git's log says it: a branch, or a commit."""
    return f"@{{{said}}}" if _COMMIT.fullmatch(said) else said


def _logged(directory: str, reference: str) -> list[tuple[str, int, str]]:
    """The log of a reference, the latest first: to which commit, when in seconds, and what was done."""
    shape = ("--no-show-signature", "--no-color", "--date=unix", "--format=%H %gd %gs")
    lines = _text(directory, "log", "--walk-reflogs", *shape, reference, "--").split("\n")
    found = (_LOG_ENTRY.fullmatch(line) for line in lines)
    return [(entry[1], int(entry[2]), entry[3]) for entry in found if entry]


def _rebased(own: str) -> str | None:
    """The branch that a rebase in progress rewrites."""
    for kind in _REBASES:
        try:
            with open(os.path.join(own, kind, "head-name"), encoding="utf-8", errors="surrogateescape") as said:
                name = said.read().removesuffix("\n")
        except (FileNotFoundError, NotADirectoryError):
            continue
        if name.startswith(_BRANCHES):
            return name.removeprefix(_BRANCHES)
    return None


def _in_repository(directory: str) -> bool:
    """Whether a repository, sound or not, is here or above, on this file system: then git must know it."""
    across = os.environ.get("GIT_DISCOVERY_ACROSS_FILESYSTEM", "").lower() in ("1", "true", "yes", "on")
    device = os.stat(directory).st_dev
    while True:
        is_bare = all(os.path.exists(os.path.join(directory, part)) for part in ("HEAD", "objects", "refs"))
        if is_bare or os.path.lexists(os.path.join(directory, ".git")):
            return True
        above = os.path.dirname(directory)
        if above == directory or (not across and os.stat(above).st_dev != device):
            return False
        directory = above


def _text(directory: str, *words: str, none_is: int | None = None, given: Iterable[str] = ()) -> str:
    """What git prints, without the last line break; nothing where it ends with the status `none_is`."""
    lines = "".join(f"{line}\n" for line in given)
    try:
        ran = subprocess.run(
            ("git", "-C", directory, *words),
            input=lines.encode(),
            capture_output=True,
            env=_environment(),
            timeout=_SECONDS,
            check=False,
        )
    except (FileNotFoundError, PermissionError):
        raise WorktreeUnknown(directory, "there is a repository, and no program git to ask: install it") from None
    except subprocess.TimeoutExpired:
        raise WorktreeUnknown(directory, f"git did not answer within {_SECONDS} s: git {words[0]}") from None
    if ran.returncode == none_is:
        return ""
    if ran.returncode:
        said = os.fsdecode(ran.stderr).strip().split("\n")[0] or f"it ended with status {ran.returncode}"
        raise WorktreeUnknown(directory, f"git {words[0]} says {said!r}")
    return os.fsdecode(ran.stdout).removesuffix("\n")


def _environment() -> dict[str, str]:
    """What git gets to know: nothing that names another repository, no other language, no network, no questions."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    return {**kept, "LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
