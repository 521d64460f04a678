"""The verbs of a store: take back, bring back, correct, replace, erase; each can be tried first.

With `--dry-run` the store is opened for reading only.  What is printed are ids and counts: no
command prints what it takes back.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

import branchmem as bm
from branchmem import terminal
from branchmem.cli.forms import AsJson, StorePath, changing, named, one
from branchmem.terminal import say_json, show, width


class ScopeName(StrEnum):
    """Where a retraction or a restoration holds."""

    branch = "branch"
    tree = "tree"
    everywhere = "everywhere"


At = Annotated[str, typer.Option("--at", metavar="ANCHOR", help="The message at which it stands.")]
Viewpoint = Annotated[
    str | None, typer.Option("--at", metavar="ANCHOR", help="Where to look for what is hidden and shown.")
]
ScopeOption = Annotated[
    ScopeName,
    typer.Option("--scope", help="Where it holds: ANCHOR and below, its whole conversation, or everywhere."),
]
Sources = Annotated[list[str] | None, typer.Option("--source", metavar="MESSAGE", help="A source of the new memory.")]
NewText = Annotated[str, typer.Option("--text", help="What the new memory says.")]
Kind = Annotated[str, typer.Option("--kind", help="The kind of the new memory.")]
Key = Annotated[str | None, typer.Option("--key", help="The key of the new memory.")]
EventId = Annotated[str | None, typer.Option("--id", help="The id of what is written; made up without it.")]
Why = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; printed by explain --reasons alone.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, here and elsewhere; write nothing.")]


def retract(
    store: StorePath,
    at: At,
    scope: ScopeOption,
    memories: Annotated[list[str] | None, typer.Argument(metavar="MEMORY…", help="Memories to take back.")] = None,
    sources: Annotated[
        list[str] | None, typer.Option("--source", metavar="MESSAGE", help="Take back all that came from it.")
    ] = None,
    keys: Annotated[list[str] | None, typer.Option("--key", help="Take back all that bears it.")] = None,
    standing: Annotated[
        bool, typer.Option("--standing", help="Keys hold for what is stated afresh later, too.")
    ] = False,
    revert: Annotated[
        bool, typer.Option("--revert", help="Let the older versions of each MEMORY come back in its place.")
    ] = False,
    reason: Why = None,
    id: EventId = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take back each MEMORY and its older versions, and what came from messages or bears a key."""
    if not (memories or sources or keys):
        raise typer.BadParameter("nothing to take back: name a MEMORY, a --source or a --key")
    with changing(store, dry_run=dry_run) as log:
        receipt = log.retract(
            named(log, memories or ()),
            sources=named(log, sources or ()),
            keys=keys or (),
            at=one(log, at),
            scope=scope.value,
            standing=standing,
            revert=revert,
            reason=reason,
            id=id,
            dry_run=dry_run,
        )
    _tell(receipt, as_json=as_json)


def restore(
    store: StorePath,
    at: At,
    scope: ScopeOption,
    retraction: Annotated[str, typer.Argument(metavar="RETRACTION", help="The retraction to lift.")],
    id: EventId = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Lift RETRACTION again where this restoration holds; what another one covers stays hidden."""
    with changing(store, dry_run=dry_run) as log:
        (lifted,) = named(log, [retraction], type="retraction")
        receipt = log.restore(lifted, at=one(log, at), scope=scope.value, id=id, dry_run=dry_run)
    _tell(receipt, as_json=as_json)


def correct(
    store: StorePath,
    at: At,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What was said wrongly.")],
    text: NewText,
    sources: Sources = None,
    kind: Kind = "fact",
    key: Key = None,
    scope: ScopeOption = ScopeName.branch,
    reason: Why = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of the retraction; made up without it.")] = None,
    memory_id: Annotated[
        str | None, typer.Option("--memory-id", help="The id of the new memory; made up, too.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take back all that came from MESSAGE, and remember TEXT instead; its source is ANCHOR unless named."""
    with changing(store, dry_run=dry_run) as log:
        anchor = one(log, at)
        receipt = log.correct(
            one(log, message),
            memory=bm.Memory(_made_up(memory_id), text, sources=named(log, sources or [anchor]), kind=kind, key=key),
            at=anchor,
            scope=scope.value,
            reason=reason,
            id=id,
            dry_run=dry_run,
        )
    _tell(receipt, as_json=as_json)


def supersede(
    store: StorePath,
    memories: Annotated[list[str], typer.Argument(metavar="MEMORY…", help="The memories to replace.")],
    text: NewText,
    sources: Annotated[list[str], typer.Option("--source", metavar="MESSAGE", help="A source of the new memory.")],
    kind: Kind = "fact",
    key: Key = None,
    at: Viewpoint = None,
    id: EventId = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Replace each MEMORY by a new one, wherever that is visible."""
    with changing(store, dry_run=dry_run) as log:
        receipt = log.supersede(
            named(log, memories),
            by=bm.Memory(_made_up(id), text, sources=named(log, sources), kind=kind, key=key),
            at=None if at is None else one(log, at),
            dry_run=dry_run,
        )
    _tell(receipt, as_json=as_json)


def erase(
    store: StorePath,
    targets: Annotated[list[str], typer.Argument(metavar="ID…", help="Messages and memories, here or not yet.")],
    no_cascade: Annotated[bool, typer.Option("--no-cascade", help="Leave alone what was derived from them.")] = False,
    at: Viewpoint = None,
    id: EventId = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove the content of messages and memories for good, and of all that was derived from them.

    On a terminal it shows what goes and asks; elsewhere it needs --yes. Ids and keys stay. The bytes
    stay in free pages of the file until `branchmem compact`.
    """
    asks = not (yes or dry_run)
    if asks and not sys.stdin.isatty():
        raise typer.BadParameter("an erasure is for good: try it with --dry-run, then pass it", param_hint="--yes")
    with changing(store, dry_run=dry_run) as log:
        wanted: dict[str, Any] = {
            "targets": named(log, targets),
            "cascade": not no_cascade,
            "at": None if at is None else one(log, at),
            "id": _made_up(id),
        }
        if asks:
            show(terminal.change_lines(log.erase(**wanted, dry_run=True), width=width()), out=sys.stderr)
            if not terminal.agreed("Erase for good?"):
                raise typer.TyperException("nothing was erased")
        receipt = log.erase(**wanted, dry_run=dry_run)
    _tell(receipt, as_json=as_json)


def _made_up(id: str | None) -> str:
    return bm.new_id() if id is None else id


def _tell(receipt: bm.Change | bm.Erased, *, as_json: bool) -> None:
    if as_json:
        say_json(**receipt.to_dict())
    else:
        show(terminal.change_lines(receipt, width=width()))
