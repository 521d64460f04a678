"""What keeps a store sound: counts and checks, copies, and what is left of one that is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import branchmem as bm
from branchmem import terminal
from branchmem.cli.forms import AsJson, StorePath, reading
from branchmem.salvage import Salvage, examine
from branchmem.salvage import salvage as salvaged
from branchmem.terminal import plain, say, say_json, show

NewStore = Annotated[Path, typer.Argument(metavar="NEW", help="A new file for the store.")]


def stats(store: StorePath, as_json: AsJson = False) -> None:
    """Count what the store holds, and print the digest of its state."""
    with reading(store) as log:
        counts = {
            "events": log.seq,
            "messages": len(log.message_ids),
            "memories": len(log.memory_ids),
            "trees": len(log.tree.roots()),
            "leaves": len(log.tree.leaves()),
            "bytes": store.stat().st_size,
        }
        if as_json:
            say_json(store=str(store), **counts, digest=log.digest())
        else:
            say(*terminal.count_lines(str(store), counts), f"digest {log.digest()}")


def check(store: StorePath, as_json: AsJson = False) -> None:
    """Read the whole store and report what is damaged, missing or odd; damage is exit status 1."""
    try:
        with bm.open(store, create=False, readonly=True, verify=True, auto_refresh=False) as log:
            report = log.check()
    except bm.StoreDamaged as refused:
        show_remains(store, refused, as_json=as_json)
        raise typer.Exit(1) from None
    if as_json:
        say_json(**report.to_dict())
    else:
        show(terminal.check_lines(report))
    if not report.ok:
        raise typer.Exit(1)


def show_remains(store: Path, refused: bm.StoreDamaged, *, as_json: bool) -> None:
    """Say why a store does not open, and what of it can be saved."""
    try:
        report = examine(store)
    except bm.StoreLocked:
        raise refused from None
    if as_json:
        say_json(refused=str(refused), **report.to_dict())
    else:
        say(plain(refused))
        show(terminal.salvage_lines(report))
        say("branchmem salvage NEW copies what is proven into a new store")


def compact(store: StorePath, as_json: AsJson = False) -> None:
    """Rewrite the file of the store without its free pages: smaller, and without what was erased.

    Everything keeps its place. No other process may have the store open.
    """
    with bm.open(store, create=False) as log:
        receipt = log.compact()
    if as_json:
        say_json(store=str(store), bytes_before=receipt.bytes_before, bytes_after=receipt.bytes_after)
    else:
        say(f"{receipt.bytes_before:,} bytes before, {receipt.bytes_after:,} after")


def backup(
    store: StorePath,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file for the copy.")],
    as_json: AsJson = False,
) -> None:
    """Copy the store as it is now to FILE, while others go on reading and writing."""
    with reading(store) as log:
        copy = log.backup(file)
    size = file.stat().st_size
    if as_json:
        say_json(store=str(store), file=copy, bytes=size)
    else:
        say(f"{size:,} bytes written to {plain(copy)}")


def salvage(
    store: StorePath,
    new: NewStore,
    beyond_gaps: Annotated[
        bool, typer.Option("--beyond-gaps", help="Go on behind lost blocks: what they had retracted may show.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy what is proven of a damaged store into NEW, and list what is lost; loss is exit status 1.

    The copy ends before the first block that is lost, since that may have held retractions; all that comes
    after it is copied too with --beyond-gaps.
    """
    report: Salvage = salvaged(store, new, beyond_gaps=beyond_gaps)
    if as_json:
        say_json(**report.to_dict())
    else:
        show(terminal.salvage_lines(report))
    if not report.ok:
        raise typer.Exit(1)
