"""Branches by name: where they stand and stood, what two of them have each, what one takes over from another.

Refs and messages are told apart by the store.  What a merge or an adoption says are ids and counts;
the texts of a conflict are shown, since both sides show them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

import branchmem as bm
from branchmem import terminal
from branchmem.cli.forms import (
    AsJson,
    DryRun,
    Listing,
    StorePath,
    changing,
    conflicts_shown,
    ending,
    group,
    named,
    one,
    place,
    reading,
)
from branchmem.errors import MergeConflict
from branchmem.terminal import say, say_json, show, width

if TYPE_CHECKING:
    from branchmem.merge import Difference, Merged
    from branchmem.refs import Move


class StrategyName(StrEnum):
    """Which side wins where both say something of one thing."""

    fail = "fail"
    ours = "ours"
    theirs = "theirs"
    newer = "newer"
    both = "both"


Ref = Annotated[str, typer.Argument(metavar="REF", help="The name of a ref.")]
NewRef = Annotated[str, typer.Argument(metavar="NAME", help="A new name.")]
Into = Annotated[str, typer.Option("--into", metavar="REF", help="The ref that takes over.")]
Anchor = Annotated[str, typer.Argument(metavar="MESSAGE", help="The message where it is to stand.")]
Beside = Annotated[
    list[str] | None,
    typer.Option("--beside", metavar="REF", help="A ref of another tree that both are seen from as well."),
]

refs = group("List the named anchors of the branches; create, move, delete them, and undo any move.", Listing)


@refs.command("list")
def list_refs(store: StorePath, as_json: AsJson = False) -> None:
    """List the refs: where each stands, and how that message begins."""
    with reading(store) as log:
        heads = dict(log.refs.items())
        if as_json:
            say_json(refs=heads)
        elif not heads:
            say("no refs yet: branchmem refs create NAME MESSAGE makes one")
        else:
            show(terminal.ref_rows(log, heads, width=width()))


@refs.command("create")
def create_ref(store: StorePath, name: NewRef, message: Anchor, as_json: AsJson = False) -> None:
    """Name a message."""
    with changing(store, dry_run=False) as log:
        _tell(log.refs.create(name, one(log, message, type="message")), as_json=as_json)


@refs.command("move")
def move_ref(
    store: StorePath,
    name: Ref,
    message: Anchor,
    expected: Annotated[
        str | None, typer.Option("--expected", metavar="MESSAGE", help="Only if it stands there now.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let REF stand at another message; writes no event."""
    with changing(store, dry_run=False) as log:
        stands = None if expected is None else one(log, expected, type="message")
        _tell(log.refs.move(name, one(log, message, type="message"), expected=stands), as_json=as_json)


@refs.command("delete")
def delete_ref(store: StorePath, name: Ref, as_json: AsJson = False) -> None:
    """Remove a name; erases nothing, and `refs undo` brings it back."""
    with changing(store, dry_run=False) as log:
        _tell(log.refs.delete(name), as_json=as_json)


@refs.command("undo")
def undo_move(
    store: StorePath,
    name: Ref,
    number: Annotated[
        int | None, typer.Argument(metavar="NUMBER", min=1, help="A move of `branchmem log`; else the latest.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let REF stand where it stood before a move, also where it was deleted since."""
    with changing(store, dry_run=False) as log:
        _tell(log.refs.undo(name, number), as_json=as_json)


@refs.command("unreachable")
def unreachable(store: StorePath, as_json: AsJson = False) -> None:
    """List the messages and memories that no ref leads to; nothing of it is lost."""
    with reading(store) as log:
        found = log.unreachable()
        if as_json:
            say_json(**found.to_dict())
        else:
            show(terminal.unreachable_lines(found))


def log(
    store: StorePath,
    ref: Annotated[str | None, typer.Argument(metavar="REF", help="A ref, also a deleted one; else all.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the moves of REF, the oldest first: `branchmem refs undo REF NUMBER` undoes one."""
    with reading(store) as opened:
        moves = opened.refs.log(ref)
    if as_json:
        say_json(moves=[move.to_dict() for move in moves])
    else:
        show(terminal.move_rows(moves, width=width()))


def fork(
    store: StorePath,
    name: NewRef,
    origin: Annotated[str, typer.Option("--from", metavar="REF", help="The ref where the new one starts.")],
    as_json: AsJson = False,
) -> None:
    """Start a branch NAME where REF stands; neither sees what the other adds from now on."""
    with changing(store, dry_run=False) as log:
        head = log.session(origin, create=False).fork(name).head
        if as_json:
            say_json(name=name, after=head, **{"from": origin})
        else:
            show(terminal.stands_lines(name, head, width=width()))


def switch(store: StorePath, ref: Ref, message: Anchor, as_json: AsJson = False) -> None:
    """Let REF stand at MESSAGE, and say how much is visible there; writes no event."""
    with changing(store, dry_run=False) as log:
        head = log.session(ref, create=False).switch(one(log, message, type="message"))
        view = log.at(head)
        if as_json:
            say_json(name=ref, after=head, visible=len(view))
        else:
            show(terminal.stands_lines(ref, head, width=width()))
            say(terminal.view_line(view, len(log.memory_ids)))


def diff(
    store: StorePath,
    a: Annotated[str, typer.Argument(metavar="A", help="A ref, or a message.")],
    b: Annotated[str, typer.Argument(metavar="B", help="A ref, or a message.")],
    beside: Beside = None,
    as_json: AsJson = False,
) -> None:
    """Say where A and B part, and list what may be remembered at one of them only."""
    with reading(store) as log:
        found = log.diff(place(log, a), place(log, b), beside=beside or ())
        tell_difference(log, found, a, b, as_json=as_json)


def adopt(
    store: StorePath,
    memories: Annotated[list[str], typer.Argument(metavar="MEMORY…", help="The memories to take over.")],
    into: Into,
    held: Annotated[
        str | None, typer.Option("--held", metavar="BUNDLE", help="They are those of a bundle that is held.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take each MEMORY over at a new message of the ref INTO; what is known there already is left out."""
    with changing(store, dry_run=dry_run) as log:
        if held is None:
            receipt = log.adopt(named(log, memories, type="memory"), into=into, dry_run=dry_run)
        else:
            bundle = ending(held, log.held)
            known = [memory.id for memory in log.held.memories(bundle)]
            ids = [ending(id, known) for id in memories]
            receipt = log.adopt(ids, into=into, held=bundle, dry_run=dry_run)
        tell_merged(receipt, as_json=as_json)


def merge(
    store: StorePath,
    source: Annotated[str, typer.Argument(metavar="REF", help="The branch to take over from: a ref, or a message.")],
    into: Into,
    strategy: Annotated[
        StrategyName, typer.Option("--strategy", help="Who wins a conflict; fail writes nothing.")
    ] = StrategyName.fail,
    beside: Beside = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Bring what REF sees to the ref INTO: by moving that where possible, else by one message and adoptions.

    Where both sides say different things of one key, or replace one memory, that is a conflict. It is shown with
    base, ours and theirs, and is exit status 1 unless the strategy decides it: for ours, for theirs, for what was
    created later, or that both stand. A dry run tells the same.
    """
    with changing(store, dry_run=dry_run) as log, conflicts_shown(as_json=as_json):
        source, others = place(log, source), beside or ()
        receipt = log.merge(source, into=into, beside=others, strategy=strategy.value, dry_run=dry_run)
        tell_merged(receipt, as_json=as_json)


def _tell(move: Move, *, as_json: bool) -> None:
    if as_json:
        say_json(**move.to_dict())
    else:
        show(terminal.move_lines(move, width=width()))


def tell_difference(store: bm.Store, found: Difference, a: str, b: str, *, as_json: bool) -> None:
    """Print how two branches differ that go by these names."""
    if as_json:
        say_json(**found.to_dict())
    else:
        show(terminal.difference_lines(store, found, (a, b), width=width()))


def tell_merged(receipt: Merged, *, as_json: bool) -> None:
    """Print what was taken over, or would be.  Raises: MergeConflict where that would be refused."""
    if receipt.undecided:
        raise MergeConflict(receipt.into, receipt.undecided)
    if as_json:
        say_json(**receipt.to_dict())
    else:
        show(terminal.merged_lines(receipt, width=width()))
