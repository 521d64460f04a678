"""The command line: it opens a store, asks, and prints; it decides nothing.

Every command prints for people, or one JSON document with `--json`.  Commands
that read never make a store.  What goes wrong is one line on standard error
with exit status 1, or 2 where the command was used wrongly; never a traceback.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

import branchmem as bm
from branchmem import demo as demonstration
from branchmem import importers, terminal
from branchmem import selftest as suite
from branchmem.derive import MOST_MESSAGES
from branchmem.derive import derive as notes_of
from branchmem.events import Event
from branchmem.terminal import escaped, progress, say, say_json, show, width

app = typer.Typer(
    help="Memory for branching conversations: visible only where all its sources are.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class PolicyName(StrEnum):
    """The policies that have a name."""

    strict = "strict"
    compat = "compat"


class Format(StrEnum):
    """What a file to import may be."""

    auto = "auto"
    chatgpt = "chatgpt"
    events = "events"


class Leaf(StrEnum):
    """Who says where a conversation stands."""

    declared = "declared"
    heuristic = "heuristic"


POLICIES = {PolicyName.strict: bm.STRICT, PolicyName.compat: bm.COMPAT}

StorePath = Annotated[
    Path, typer.Option("--store", envvar="BRANCHMEM_STORE", metavar="PATH", help="The file that holds the log.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Which = Annotated[PolicyName, typer.Option("--policy", help="What a view lets through.")]


@app.callback(invoke_without_command=True)
def branchmem(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        say(f"branchmem {bm.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command("import")
def import_(
    store: StorePath,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Exports to read.", exists=True, dir_okay=False)],
    format: Annotated[Format, typer.Option(help="What the files are; auto looks into them.")] = Format.auto,
    leaf: Annotated[
        Leaf, typer.Option(help="Whether to guess a current leaf where a file names none.")
    ] = Leaf.declared,
    as_json: AsJson = False,
) -> None:
    """Read the conversations of each FILE into the store; what is there already is left alone."""
    reports = []
    with ExitStack() as stack:

        @cache
        def log() -> bm.Store:
            """Opened when a file was found readable, so that a bad one leaves no empty store."""
            return stack.enter_context(bm.open(store))

        for file in files:
            with progress(f"importing {terminal.plain(file.name)}") as advance:
                report = importers.import_file(
                    file,
                    append=lambda events: log().append(events),
                    stored=lambda id: stored(log(), id),
                    format=format.value,
                    leaf=leaf.value,
                    progress=advance,
                )
            reports.append({"file": str(file), **report.to_dict()})
            if not as_json:
                show(terminal.count_lines(file.name, report.counters()))
                show(terminal.leaf_lines(report.current))
                say(*(f"  skipped the line at byte {bad.offset}: {terminal.plain(bad.why)}" for bad in report.bad))
        if as_json:
            say_json(files=reports, seq=log().seq)


def stored(store: bm.Store, id: str) -> Event | None:
    """What an importer asks of a store: the event that bears an id, or None."""
    return store.log.get(id) if id in store.log else None


@app.command()
def export(
    store: StorePath,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE|-]", help="A new file; without it, standard output.")
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


@app.command()
def trees(store: StorePath, as_json: AsJson = False) -> None:
    """List the conversations: their roots, how many messages and leaves they have, how they begin."""
    with reading(store) as log:
        found = [tree_form(log, root) for root in log.tree.roots()]
        detached = len(log.message_ids) - sum(tree["messages"] for tree in found)
        if as_json:
            say_json(trees=found, detached=detached)
        else:
            show(terminal.tree_rows(found, width=width()))
            show(terminal.count_lines("not shown", {"messages below one that is missing, or in a circle": detached}))


def tree_form(store: bm.Store, root: str) -> dict[str, Any]:
    """The JSON-ready summary of one tree."""
    messages = terminal.below(store, root)
    texts = (terminal.message(store, id).text for id in messages)
    return {
        "root": root,
        "messages": len(messages),
        "leaves": len(store.tree.leaves(root)),
        "latest_leaf": store.tree.latest_leaf(root),
        "begins": next(filter(None, texts), None),
    }


@app.command()
def tree(
    store: StorePath,
    root: Annotated[str, typer.Argument(metavar="ROOT", help="A root, or any message: what is below it is drawn.")],
    as_json: AsJson = False,
) -> None:
    """Draw the tree under ROOT, with the path to its latest leaf."""
    with reading(store) as log:
        (top,) = named(log, [root])
        log.tree.parent(top)  # refuses what is no message, before anything is printed
        leaf = None
        with suppress(bm.UnknownEvent):  # what is detached has no leaf to stand on
            leaf = log.tree.latest_leaf(top)
        if as_json:
            say_json(root=top, latest_leaf=leaf, messages=[message_form(log, id) for id in terminal.below(log, top)])
        else:
            path = set(log.tree.path(leaf)) if leaf else ()
            say(f"{terminal.plain(top)}  ({'● leads to the latest leaf' if leaf else 'detached'})")
            show(terminal.tree_lines(log, top, width=width(), path=path))


def message_form(store: bm.Store, id: str) -> dict[str, Any]:
    """The JSON-ready form of a message, and its children."""
    return {**terminal.message(store, id).to_dict(), "children": list(store.tree.children(id))}


@app.command()
def view(
    store: StorePath,
    anchors: Annotated[list[str] | None, typer.Argument(metavar="ANCHOR…", help="Messages to stand on.")] = None,
    policy: Which = PolicyName.strict,
    kind: Annotated[str | None, typer.Option(help="Only memories of this kind.")] = None,
    key: Annotated[str | None, typer.Option(help="Only memories with this key.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many memories.")] = None,
    as_json: AsJson = False,
) -> None:
    """List what may be remembered at ANCHOR: one message, or one of each tree."""
    with reading(store) as log:
        answer = log.at(named(log, anchors or ()), policy=POLICIES[policy])
        memories = answer.memories(kind=kind, key=key, limit=limit)
        if as_json:
            say_json(policy=policy, **view_form(answer, memories))
        else:
            say(terminal.view_line(answer, len(log.memory_ids)))
            show(terminal.memory_lines(memories, width=width()))
            show(terminal.count_lines("hidden here, by the first reason", hidden(answer)))
        if not answer.policy.admits(answer.problems):
            answer.raise_for_problems()


@app.command()
def explain(
    store: StorePath,
    memory: Annotated[str, typer.Argument(metavar="MEMORY")],
    at: Annotated[list[str] | None, typer.Option("--at", metavar="ANCHOR", help="Where to stand; once a tree.")] = None,
    policy: Which = PolicyName.strict,
    as_json: AsJson = False,
) -> None:
    """Say whether MEMORY is visible at ANCHOR, and name the messages at fault."""
    with reading(store) as log:
        verdict = log.at(named(log, at or ()), policy=POLICIES[policy]).explain(*named(log, [memory]))
        if as_json:
            say_json(**verdict_form(verdict))
        else:
            show(terminal.verdict_lines(verdict, width=width()))


@app.command()
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


@app.command()
def check(store: StorePath, as_json: AsJson = False) -> None:
    """Read the whole store and report what is damaged, missing or odd; damage is exit status 1."""
    with bm.open(store, create=False, readonly=True, verify=True, auto_refresh=False) as log:
        report = log.check()
        if as_json:
            say_json(**report.to_dict())
        else:
            show(terminal.check_lines(report))
    if not report.ok:
        raise typer.Exit(1)


@app.command()
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


@app.command()
def selftest(
    trees: Annotated[int, typer.Option(min=1, help="Random forests to replay.")] = 400,
    seed: Annotated[int | None, typer.Option(help="Replay the forests of an earlier run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the engine with the plain reference, verdict by verdict, on random forests in shuffled order."""
    with progress("comparing") as advance:
        report = suite.run(trees, seed, advance)
    if as_json:
        say_json(**report.to_dict())
    else:
        compared = f"{report.trees:,} trees, {report.decisions:,} verdicts compared"
        say(f"{compared}, {report.mismatches:,} mismatches (seed {report.seed})")
        for case in report.to_dict()["cases"]:
            say_json(**case)
    if report.mismatches:
        raise typer.Exit(1)


@app.command()
def demo(as_json: AsJson = False) -> None:
    """Show it all on a real conversation with branches, in a store that is gone afterwards."""
    with bm.open_temporary() as store:
        story = demonstration.play(store)
        if as_json:
            say_json(
                root=story.root,
                here=view_form(story.here, story.here.memories()),
                there=view_form(story.there, story.there.memories()),
                verdict=verdict_form(story.verdict),
                again=view_form(story.again, story.again.memories()),
                seq_before=story.seq,
                seq_after=store.seq,
            )
        else:
            show(demonstration.lines(store, story, width=width()))


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
        "text": str(verdict),
        "seq": verdict.seq,
    }


def hidden(view: bm.View) -> dict[str, int]:
    """How many memories the view hides, by the name of the first reason not let through."""
    refused = [bits & ~view.policy.admit for bits in view.reasons()[~view.mask()].tolist()]
    counts = Counter(bm.Reason(bits).primary for bits in refused)
    return {str(reason.name): counts[reason] for reason in bm.Reason if counts[reason]}


# Opening, and names


@contextmanager
def reading(path: Path) -> Iterator[bm.Store]:
    """The store at `path`, as it is; nothing is made or changed."""
    with bm.open(path, create=False, readonly=True, auto_refresh=False) as store:
        yield store


def named(store: bm.Store, given: Sequence[str]) -> list[str]:
    """Ids as given; `…6f880` or `...6f880` stands for the only id that ends so.

    Raises: BadParameter where several do, or none does.
    """
    return [id if id in store.log else _ending(store, id) for id in given]


def _ending(store: bm.Store, given: str) -> str:
    tail = given.removeprefix("...").removeprefix(terminal.ELLIPSIS)
    if tail in ("", given):
        return given
    found = [id for id in chain(store.message_ids, store.memory_ids) if id.endswith(tail)]
    if len(found) == 1:
        return found[0]
    among = f"{len(found)} ids end so, {found[0]} and {found[1]} among them" if found else "no id ends so"
    raise typer.BadParameter(f"{given}: {among}")


# The way out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 for an error, 2 for wrong usage, 130 when interrupted."""
    logging.getLogger("branchmem").addHandler(logging.NullHandler())
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        status = app(arguments, prog_name="branchmem", standalone_mode=False)
        sys.stdout.flush()
        return status or 0
    except (KeyboardInterrupt, typer.Abort):
        return _failed("interrupted", 130)
    except typer.TyperException as refusal:
        return _failed(refusal.format_message(), refusal.exit_code)
    except BrokenPipeError:
        # Who read the output has left: say nothing, and let nothing be flushed into the broken pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        return _failed("out of memory")
    except bm.Error as error:
        return _failed(error)
    except UnicodeError as error:
        return _failed(f"not UTF-8: {error}")
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else error)
    except Exception as error:
        if os.environ.get("BRANCHMEM_TRACEBACK"):
            raise
        return _failed(f"{type(error).__name__}: {error} (BRANCHMEM_TRACEBACK=1 shows where)")


def _failed(why: object, status: int = 1) -> int:
    with suppress(OSError, ValueError):
        print(f"branchmem: {terminal.plain(why)}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
