"""Memory that travels: bundles written and taken in, what is held of strangers, and the keys that say who is none.

A private key is read from its file and goes nowhere: what is printed of a key is its public half.
The store decides whom it trusts and what a bundle does; what is printed of it are ids and counts,
and texts only of what somebody asked to see.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import branchmem as bm
from branchmem import terminal
from branchmem.cli.forms import AsJson, DryRun, Listing, StorePath, changing, conflicts_shown, ending, group, reading
from branchmem.errors import MergeConflict
from branchmem.terminal import plain, progress, say, say_json, show, width

if TYPE_CHECKING:
    from branchmem.bundle import Imported, Key, Pin


class StrategyName(StrEnum):
    """Which side wins where a ref went two ways and both say something of one thing."""

    fail = "fail"
    local = "local"
    remote = "remote"
    newer = "newer"
    both = "both"


bundle = group("Carry memory to another store in one signed file, and take in what others send.")
key = group("List the public keys that are pinned; make a key, pin and unpin those of others.", Listing)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The bundle.")]
PrivateKey = typer.Option("--key", envvar="BRANCHMEM_KEY", metavar="PATH", help="The file of your private key.")
OwnKey = Annotated[Path | None, PrivateKey]
Strategy = Annotated[StrategyName, typer.Option("--strategy", help="Who wins a conflict; fail writes nothing.")]
RefNames = Annotated[
    list[str] | None,
    typer.Option("--ref", metavar="THEIRS=MINE", help="Of the refs, only this one arrives, by a name of yours."),
]
Bundle = Annotated[str, typer.Argument(metavar="BUNDLE", help="The id of a bundle that is held.")]


@bundle.command()
def export(
    store: StorePath,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file for the bundle.")],
    key: Annotated[Path, PrivateKey],
    refs: Annotated[
        list[str] | None, typer.Option("--ref", metavar="NAME", help="Only what this ref needs; else everything.")
    ] = None,
    since: Annotated[
        Path | None, typer.Option("--since", metavar="FILE", help="Only what is new since this earlier bundle.")
    ] = None,
    recipient: Annotated[
        str | None,
        typer.Option("--for", metavar="KEY", help="Only who has this key may import it: a pinned name, or a key."),
    ] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, max=36_500, help="Refused after so many days.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write what the store remembers, or what some refs need, to a new signed FILE; erased content stays out.

    It is signed, not encrypted: who gets the file can read it, whomever it is for.
    """
    with changing(store, dry_run=False) as log, progress("exporting") as advance:
        receipt = log.export_bundle(
            file,
            key=_loaded(key),
            refs=refs,
            since=since,
            recipient=None if recipient is None else log.pins.get(recipient, recipient),
            expires=None if days is None else datetime.now(UTC) + timedelta(days=days),
            progress=advance,
        )
    if as_json:
        say_json(**receipt.to_dict())
    else:
        show(terminal.manifest_lines(receipt.manifest, f"{file} is written", now=datetime.now(UTC), width=width()))


@bundle.command()
def preview(store: StorePath, file: File, key: OwnKey = None, as_json: AsJson = False) -> None:
    """Say what importing FILE would do; nothing is written."""
    with reading(store) as log, progress("checking") as advance:
        receipt = log.import_bundle(file, key=_own(key), dry_run=True, progress=advance)
    _tell(receipt, as_json=as_json)


@bundle.command("import")
def import_(
    store: StorePath,
    file: File,
    strategy: Strategy = StrategyName.fail,
    refs: RefNames = None,
    key: OwnKey = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Check all of FILE, then take it in: it joins the log where its key is pinned, and is held apart where not."""
    own, names = _own(key), _mapped(refs)
    if not (dry_run or store.exists()):
        with bm.open_temporary() as trial, progress("checking") as advance:  # what is refused leaves no empty store
            trial.import_bundle(file, key=own, dry_run=True, progress=advance)
    opened = bm.open(store, readonly=dry_run, create=not dry_run)
    with opened as log, conflicts_shown(as_json=as_json), progress("importing") as advance:
        receipt = log.import_bundle(
            file,
            key=own,
            strategy=strategy.value,
            refs=names,
            dry_run=dry_run,
            progress=advance,
        )
    _tell(receipt, as_json=as_json)


@bundle.command()
def inspect(file: File, as_json: AsJson = False) -> None:
    """Check all of FILE by itself and say what it is; needs no store."""
    from branchmem.bundle import BundleFile

    with BundleFile.open(file) as opened, progress("checking") as advance:
        opened.verify(progress=advance)
        manifest = opened.manifest
    if as_json:
        say_json(file=str(file), **manifest.to_dict())
    else:
        show(terminal.manifest_lines(manifest, f"{file} is whole", now=datetime.now(UTC), width=width()))


@bundle.command()
def held(
    store: StorePath,
    bundle: Annotated[str | None, typer.Argument(metavar="BUNDLE", help="List the memories of this one.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the bundles of strangers that are held apart, or the memories of one: adopt takes them over."""
    with reading(store) as log:
        if bundle is None:
            bundles = list(log.held.values())
            if as_json:
                say_json(held=[each.to_dict() for each in bundles])
            else:
                show(terminal.held_rows(bundles, width=width()))
        else:
            id = ending(bundle, log.held)
            memories = log.held.memories(id)
            if as_json:
                say_json(bundle=id, memories=[memory.to_dict() for memory in memories])
            else:
                show(terminal.memory_lines(memories, width=width()))


@bundle.command()
def drop(store: StorePath, bundle: Bundle, as_json: AsJson = False) -> None:
    """Forget a bundle that is held; what was adopted from it stays."""
    with changing(store, dry_run=False) as log:
        id = ending(bundle, log.held)
        events = log.held.drop(id)
    if as_json:
        say_json(bundle=id, dropped=events)
    else:
        say(f"{events:,} events of {plain(id)} are dropped")


@key.command("list")
def list_keys(store: StorePath, as_json: AsJson = False) -> None:
    """List the pinned keys: bundles that they signed join the log."""
    with reading(store) as log:
        pins = log.pins.list()
    if as_json:
        say_json(pins=[pin.to_dict() for pin in pins])
    elif not pins:
        say("no key is pinned: branchmem key pin PUBLIC NAME trusts one")
    else:
        show(line for pin in pins for line in terminal.key_lines(pin.name, pin.public, pin.fingerprint, width=width()))


@key.command()
def make(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new file for the private key.")],
    as_json: AsJson = False,
) -> None:
    """Make a private key in a new file that only you can read, and print its public half, to be pinned by others."""
    from branchmem.bundle import make_key

    _tell_own(make_key(path), path, as_json=as_json)


@key.command("show")
def show_key(
    path: Annotated[Path, typer.Argument(metavar="PATH", envvar="BRANCHMEM_KEY", help="The file of a private key.")],
    as_json: AsJson = False,
) -> None:
    """Print the public half of a private key, to be pinned by others."""
    _tell_own(_loaded(path), path, as_json=as_json)


@key.command()
def pin(
    store: StorePath,
    public: Annotated[str, typer.Argument(metavar="PUBLIC", help="A public key, as `key show` prints it.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, in your words.")],
    as_json: AsJson = False,
) -> None:
    """Trust a public key: bundles that it signed join the log. Compare the fingerprint with its owner's first."""
    from branchmem.bundle import fingerprint

    fingerprint(public)  # refuses what is no public key, before a store is made
    with bm.open(store) as log:
        pinned = log.pins.pin(public, name)
    _tell_pin(pinned, as_json=as_json)


@key.command()
def unpin(
    store: StorePath,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a pinned key.")],
    as_json: AsJson = False,
) -> None:
    """Trust a key no longer; what its bundles brought stays."""
    with changing(store, dry_run=False) as log:
        pinned = log.pins.unpin(name)
    _tell_pin(pinned, as_json=as_json)


def _loaded(path: Path) -> Key:
    from branchmem.bundle import load_key

    return load_key(path)


def _own(path: Path | None) -> Key | None:
    return None if path is None else _loaded(path)


def _mapped(given: list[str] | None) -> dict[str, str] | None:
    """`THEIRS=MINE` as people type it; a name alone is the same here.  Raises: BadParameter for a name given twice."""
    if not given:
        return None
    names: dict[str, str] = {}
    for theirs, other, mine in (name.partition("=") for name in given):
        if theirs in names:
            raise typer.BadParameter(f"{theirs} is named twice: it arrives once", param_hint="--ref")
        names[theirs] = mine if other else theirs
    return names


def _tell(receipt: Imported, *, as_json: bool) -> None:
    """Print what was taken in, or would be.  Raises: MergeConflict where that would be refused."""
    if as_json:
        say_json(**receipt.to_dict())
    else:
        show(terminal.imported_lines(receipt, width=width()))
        if not receipt.resolved:
            show(terminal.conflict_lines(receipt.conflicts, width=width()))
    for ref in receipt.refs:
        if ref.how == "conflict":
            raise MergeConflict(ref.name, receipt.conflicts)


def _tell_own(key: Key, path: Path, *, as_json: bool) -> None:
    if as_json:
        say_json(file=str(path), public=key.public, fingerprint=key.fingerprint)
    else:
        show(terminal.key_lines(str(path), key.public, key.fingerprint, width=width()))


def _tell_pin(pin: Pin, *, as_json: bool) -> None:
    if as_json:
        say_json(**pin.to_dict())
    else:
        show(terminal.key_lines(pin.name, pin.public, pin.fingerprint, width=width()))
