"""What the commands share: options, groups that list, opening a store, ids as people type them, JSON forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup

import branchmem as bm
from branchmem import terminal
from branchmem.errors import AmbiguousName, MergeConflict
from branchmem.terminal import say_json, show, width

if TYPE_CHECKING:
    from branchmem.merge import Conflict


class PolicyName(StrEnum):
    """The policies that have a name."""

    strict = "strict"
    compat = "compat"


POLICIES = {PolicyName.strict: bm.STRICT, PolicyName.compat: bm.COMPAT}

StorePath = Annotated[
    Path, typer.Option("--store", envvar="BRANCHMEM_STORE", metavar="PATH", help="The file that holds the log.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Which = Annotated[PolicyName, typer.Option("--policy", help="What a view lets through.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change; write nothing.")]

HELP = {"help_option_names": ["-h", "--help"]}


class Helping(TyperGroup):
    """A group of commands that shows its help where none of them is named."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        return super().parse_args(ctx, args or ["--help"])


class Listing(TyperGroup):
    """A group of commands that lists where none of them is named: `refs --json` is `refs list --json`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args or (args[0].startswith("-") and args[0] not in HELP["help_option_names"]):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def group(help: str, cls: type[TyperGroup] = Helping) -> typer.Typer:
    """An empty group of commands."""
    return typer.Typer(cls=cls, help=help, context_settings=HELP)


@contextmanager
def reading(path: Path) -> Iterator[bm.Store]:
    """The store at `path`, as it is; nothing is made or changed."""
    with bm.open(path, create=False, readonly=True, auto_refresh=False) as store:
        yield store


@contextmanager
def changing(path: Path, *, dry_run: bool) -> Iterator[bm.Store]:
    """The store at `path`, to be changed, or where that is only tried, to be read; none is made."""
    with bm.open(path, create=False, readonly=dry_run) as store:
        yield store


def named(store: bm.Store, given: Sequence[str], *, type: str | None = None) -> list[str]:
    """Ids as given; `…6f880` or `...6f880` stands for the only id that ends so.

    Of messages and memories, or of events of one type; for others than these two it reads the log.
    Raises: BadParameter where several do, or none does.
    """
    return [id if id in store.log else ending(id, _ids(store, type)) for id in given]


def one(store: bm.Store, given: str, *, type: str | None = None) -> str:
    """As `named`, for a single id."""
    (id,) = named(store, [given], type=type)
    return id


def place(store: bm.Store, given: str) -> str:
    """A ref as it is, or a message as people type it."""
    return given if given in store.refs else one(store, given, type="message")


def anchor(store: bm.Store, given: str) -> str:
    """The message that a ref or a message stands for, here or not.  Raises: AmbiguousName."""
    named = place(store, given)
    if named not in store.refs:
        return named
    head = store.refs[named]
    if head != named and store.skeleton(named).get("type") == bm.Message.type:
        raise AmbiguousName(named, head)
    return head


def ending(given: str, ids: Iterable[str]) -> str:
    """`given`, or the only one of `ids` that ends so where it begins with `…` or `...`.

    Raises: BadParameter where several do, or none does.
    """
    tail = given.removeprefix("...").removeprefix(terminal.ELLIPSIS)
    if tail in ("", given):
        return given
    found = [id for id in ids if id.endswith(tail)]
    if len(found) == 1:
        return found[0]
    among = f"{len(found)} ids end so, {found[0]} and {found[1]} among them" if found else "no id ends so"
    raise typer.BadParameter(f"{given}: {among}")


def _ids(store: bm.Store, type: str | None) -> Iterable[str]:
    if type == "message":
        return store.message_ids
    if type == "memory":
        return store.memory_ids
    if type is None:
        return chain(store.message_ids, store.memory_ids)
    return (event.id for event in store.log.events(type=type))


@contextmanager
def conflicts_shown(*, as_json: bool) -> Iterator[None]:
    """Print the conflicts for which something is refused, with the texts of both sides; it stays refused."""
    try:
        yield
    except MergeConflict as refused:
        conflicts = cast("tuple[Conflict, ...]", refused.conflicts)
        if as_json:
            say_json(into=refused.into, conflicts=list(map(conflict_form, conflicts)))
        else:
            show(terminal.conflict_lines(conflicts, width=width()))
        raise


def view_form(view: bm.View, memories: Sequence[bm.Memory]) -> dict[str, Any]:
    """The JSON-ready form of a view and of the memories that were asked for."""
    return {
        "anchors": list(view.anchors),
        "seq": view.seq,
        "problems": list(view.problems.names()),
        "visible": len(view),
        "hidden": hidden(view),
        "memories": [memory.to_dict() for memory in memories],
    }


def verdict_form(verdict: bm.Verdict) -> dict[str, Any]:
    """The JSON-ready form of a verdict."""
    return {
        "id": verdict.id,
        "visible": verdict.visible,
        "reasons": list(verdict.reasons.names()),
        "culprits": {reason.name: list(ids) for reason, ids in verdict.culprits.items()},
        "parted": dict(verdict.parted),
        "retractions": {id: placed_form(placed) for id, placed in verdict.retractions.items()},
        "superseded_upstream": list(verdict.superseded_upstream),
        "text": str(verdict),
        "seq": verdict.seq,
    }


def placed_form(placed: bm.Placed) -> dict[str, Any]:
    """The JSON-ready form of the place of a retraction, and of the restorations that lift it elsewhere."""
    lifted = [{"id": id, "at": at, "scope": scope} for id, at, scope in placed.lifted]
    return {"at": placed.at, "scope": placed.scope, "lifted": lifted}


def conflict_form(conflict: Conflict) -> dict[str, Any]:
    """The JSON-ready form of a conflict, with the memories of both sides and what they go back to."""
    sides = {"base": conflict.base, "ours": conflict.ours, "theirs": conflict.theirs}
    return {"about": conflict.about, **{side: memory and memory.to_dict() for side, memory in sides.items()}}


def hidden(view: bm.View) -> dict[str, int]:
    """How many memories the view hides, by the name of the first reason not let through."""
    mask = view.mask()
    refused = [bits & ~view.policy.admit for bits in view.reasons()[: len(mask)][~mask].tolist()]
    counts = Counter(bm.Reason(bits).primary for bits in refused)
    return {str(reason.name): counts[reason] for reason in bm.Reason if counts[reason]}
