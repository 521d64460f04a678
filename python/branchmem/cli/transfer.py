"""What goes into a store and comes out of it: files imported, notes derived, events exported."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Final

import typer

import branchmem as bm
from branchmem import importers, terminal
from branchmem.cli.forms import AsJson, StorePath, reading
from branchmem.derive import MOST_MESSAGES
from branchmem.derive import derive as notes_of
from branchmem.events import Event
from branchmem.importers import formats
from branchmem.terminal import escaped, progress, say, say_json, show


class Leaf(StrEnum):
    """Who says where a conversation stands."""

    declared = "declared"
    heuristic = "heuristic"


_AUTO: Final = "auto"


def _known(format: str) -> str:
    if format not in (_AUTO, *importers.FORMATS):
        raise typer.BadParameter(f"{terminal.plain(format)!r} is none of {', '.join((_AUTO, *importers.FORMATS))}")
    return format


def _there(files: list[str]) -> list[str]:
    for file in files:
        if not (formats.is_url(file) or os.path.exists(file)):
            raise typer.BadParameter(f"{terminal.plain(formats.shown(file))!r} does not exist")
    return files


def import_(
    store: StorePath,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="Exports to read: files, zip archives and folders of them, or the URL of a database.",
            callback=_there,
        ),
    ],
    format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help=f"What the files are: {', '.join(importers.FORMATS)}; auto looks into them.",
            callback=_known,
            autocompletion=lambda: [_AUTO, *importers.FORMATS],
        ),
    ] = _AUTO,
    leaf: Annotated[
        Leaf, typer.Option(help="Whether to guess a current leaf where a file names none.")
    ] = Leaf.declared,
    as_json: AsJson = False,
) -> None:
    """Read the conversations of each FILE into the store; what is there already is left alone."""
    reports = []
    seq = 0
    with ExitStack() as stack:

        @cache
        def log() -> bm.Store:
            """Opened when a file was found readable, so that a bad one leaves no empty store."""
            return stack.enter_context(bm.open(store))

        try:
            for file in files:
                said = formats.shown(file)
                name = Path(said).name or said
                with progress(f"importing {terminal.plain(name)}") as advance:
                    report = importers.import_file(
                        file,
                        append=lambda events: log().append(events),
                        stored=lambda id: stored(log(), id),
                        erased=lambda id: log().log.is_erased(id),
                        format=format,
                        leaf=leaf.value,
                        progress=advance,
                    )
                reports.append({"file": said, **report.to_dict()})
                seq = log().seq
                if not as_json:
                    show(terminal.count_lines(name, report.counters()))
                    show(terminal.leaf_lines(report.current))
                    say(*(f"  skipped the line at byte {bad.offset}: {terminal.plain(bad.why)}" for bad in report.bad))
        finally:  # what was imported before a file that could not be is told all the same
            if as_json and reports:
                say_json(files=reports, seq=seq)


def stored(store: bm.Store, id: str) -> Event | None:
    """What an importer asks of a store: the event that bears an id, or None."""
    return store.log.get(id) if id in store.log else None


def derive(
    store: StorePath,
    every: Annotated[int, typer.Option(min=1, max=MOST_MESSAGES, help="Messages that one note covers.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Write notes along every branch: the leading sentences of every n messages.

    They stand in for the summaries that a model would write, so that there is something to look at without one. A note
    has exactly the messages it covers as its sources, and deriving again adds only what new messages have filled.
    """
    with bm.open(store, create=False) as log:
        with progress("deriving") as advance:
            notes = []
            for note in notes_of(log, every=every):
                notes.append(note)
                advance(len(notes), None)
            before = log.seq
            for start in range(0, len(notes), importers.BATCH):
                log.append(notes[start : start + importers.BATCH])
        added = log.seq - before
        if as_json:
            say_json(every=every, notes=len(notes), added=added, seq=log.seq)
        else:
            say(f"{len(notes):,} notes, {added:,} of them new")


def export(
    store: StorePath,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE|-", help="A new file; without it, standard output.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write every event, one line of JSON each, in the order of their arrival."""
    with reading(store) as log:
        if file is not None and str(file) != "-":
            count = write_events(log, file)
            if as_json:
                say_json(file=str(file), events=count)
            else:
                say(f"{count:,} events written to {terminal.plain(file)}")
        elif as_json:
            say_json(events=[event.to_dict() for event in log.log.events()])
        else:
            for line in importers.dump(log.log.events()):
                sys.stdout.write(escaped(line.decode()))


def write_events(store: bm.Store, file: Path) -> int:
    """Write all events to a file that is not there yet, and return their number; half a file is none."""
    with file.open("xb") as out:
        try:
            with progress("exporting") as advance:
                for count, line in enumerate(importers.dump(store.log.events()), 1):
                    out.write(line)
                    advance(count, store.seq)
        except BaseException:
            file.unlink()
            raise
    return store.seq
