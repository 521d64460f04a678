"""The command line: it opens a store, asks, and prints; it decides nothing.

Every command prints for people, or one JSON document with `--json`.  Commands
that read never make a store.  What goes wrong is one line on standard error
with exit status 1, or 2 where the command was used wrongly; never a traceback.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated

import typer
from typer.core import TyperGroup

import branchmem as bm
from branchmem import terminal
from branchmem.cli import (
    answers,
    benchmark,
    branches,
    bundles,
    changes,
    mcp,
    recall,
    transfer,
    trials,
    upkeep,
    worktrees,
)
from branchmem.terminal import say


class InOrder(TyperGroup):
    """Commands and groups of commands in the order of `PANELS`."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [name for commands in PANELS.values() for name in commands]


app = typer.Typer(
    cls=InOrder,
    help="Memory for branching conversations: visible only where all its sources are.",
    add_completion=False,
    rich_markup_mode="markdown",  # else lines of a docstring break where they break there
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


PANELS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Conversations and memories": {
        "import": transfer.import_,
        "export": transfer.export,
        "trees": answers.trees,
        "tree": answers.tree,
        "view": answers.view,
        "explain": answers.explain,
        "derive": transfer.derive,
    },
    "Searching": {
        "search": recall.search,
        "recall": recall.recall,
        "why": recall.why,
        "skills": recall.skills,
        "decay": recall.decay,
        "embed": recall.embed,
    },
    "Taking back": {
        "retract": changes.retract,
        "restore": changes.restore,
        "correct": changes.correct,
        "supersede": changes.supersede,
        "erase": changes.erase,
    },
    "Branches": {
        "refs": branches.refs,
        "log": branches.log,
        "fork": branches.fork,
        "switch": branches.switch,
        "diff": branches.diff,
        "adopt": branches.adopt,
        "merge": branches.merge,
        "worktree": worktrees.worktree,
    },
    "Carrying memory elsewhere": {"bundle": bundles.bundle, "key": bundles.key},
    "The file": {
        "check": upkeep.check,
        "stats": upkeep.stats,
        "backup": upkeep.backup,
        "compact": upkeep.compact,
        "salvage": upkeep.salvage,
    },
    "Serving it": {"mcp": mcp.mcp},
    "Trying it": {"selftest": trials.selftest, "demo": trials.demo, "bench": benchmark.bench},
}
for panel, commands in PANELS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 for an error, 2 for wrong usage, 130 when interrupted."""
    logging.getLogger("branchmem").addHandler(logging.NullHandler())
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
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
