"""The ref of a directory follows its git branch: where it stands, and what branches of a repository exchange.

Branches are named as git names them; the store knows their refs.  What is deleted for good is shown
and asked for first, as an erasure is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from branchmem import terminal
from branchmem.cli.branches import StrategyName, tell_difference, tell_merged
from branchmem.cli.forms import AsJson, DryRun, StorePath, changing, conflicts_shown, group, reading
from branchmem.terminal import say_json, show, width

if TYPE_CHECKING:
    import branchmem as bm
    from branchmem.worktree import Worktree

worktree = group("Let memory follow the git branch of a folder: compare, merge, delete by the names of branches.")

Folder = Annotated[Path, typer.Option("--dir", metavar="FOLDER", help="A folder of the repository.")]
HERE = Path(".")
Project = Annotated[
    str | None,
    typer.Option("--project", envvar="BRANCHMEM_PROJECT", metavar="NAME", help="Instead of the name of its path."),
]


@worktree.command()
def status(store: StorePath, folder: Folder = HERE, project: Project = None, as_json: AsJson = False) -> None:
    """Say which ref the folder has, and where it stands or would start."""
    with reading(store) as log:
        found = of(log, folder, project).status()
        if as_json:
            say_json(**found.to_dict())
        else:
            show(terminal.status_lines(found, width=width()))


@worktree.command()
def diff(
    store: StorePath,
    a: Annotated[str, typer.Argument(metavar="A", help="A git branch.")],
    b: Annotated[str | None, typer.Argument(metavar="B", help="Another; else that of the folder.")] = None,
    folder: Folder = HERE,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Say where the memories of two git branches part, and list what one of them alone sees."""
    with reading(store) as log:
        place = of(log, folder, project)
        tell_difference(log, place.diff_branch(a, b), a, b or place.place.name, as_json=as_json)


@worktree.command()
def merge(
    store: StorePath,
    source: Annotated[str, typer.Argument(metavar="BRANCH", help="The git branch to take over from.")],
    into: Annotated[
        str | None, typer.Option("--into", metavar="BRANCH", help="The one that takes over; else that of the folder.")
    ] = None,
    strategy: Annotated[
        StrategyName, typer.Option("--strategy", help="Who wins a conflict; fail writes nothing.")
    ] = StrategyName.fail,
    folder: Folder = HERE,
    project: Project = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Bring what the memory of a git branch holds to another one; conflicts are those of merge."""
    with changing(store, dry_run=dry_run) as log, conflicts_shown(as_json=as_json):
        place = of(log, folder, project)
        tell_merged(place.merge_branch(source, into=into, strategy=strategy.value, dry_run=dry_run), as_json=as_json)


@worktree.command()
def delete(
    store: StorePath,
    branch: Annotated[str, typer.Argument(metavar="BRANCH", help="The git branch whose memory goes.")],
    folder: Folder = HERE,
    project: Project = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete the ref of a git branch and erase for good what only that branch saw.

    What other branches took over stays, and so do global kinds. On a terminal it shows what goes and asks;
    elsewhere it needs --yes.
    """
    asks = not (yes or dry_run)
    if asks and not sys.stdin.isatty():
        raise typer.BadParameter("an erasure is for good: try it with --dry-run, then pass it", param_hint="--yes")
    with changing(store, dry_run=dry_run) as log:
        place = of(log, folder, project)
        if asks:
            show(terminal.deleted_lines(place.delete_branch(branch, dry_run=True), width=width()), out=sys.stderr)
            if not terminal.agreed("Delete and erase for good?"):
                raise typer.TyperException("nothing was deleted")
        receipt = place.delete_branch(branch, dry_run=dry_run)
    if as_json:
        say_json(**receipt.to_dict())
    else:
        show(terminal.deleted_lines(receipt, width=width()))


def of(store: bm.Store, folder: Path, project: str | None) -> Worktree:
    """The worktree of a folder."""
    from branchmem.worktree import Worktree

    return Worktree(store, folder, project=project)
