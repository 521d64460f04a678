"""What needs no store of one's own: the engine against the reference, and the product at work."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

import branchmem as bm
from branchmem import demo as demonstration
from branchmem import selftest as suite
from branchmem import terminal
from branchmem.cli.forms import AsJson, verdict_form, view_form
from branchmem.terminal import progress, say, say_json, show, width

#: How many logs are replayed, unless told otherwise.
TREES: Final = 100
FULL_TREES: Final = 400
#: What `--full` asks for: so many verdicts, and each reason among them so often.
FULL_VERDICTS: Final = 300_000
FULL_EACH_REASON: Final = 500


def selftest(
    trees: Annotated[
        int | None, typer.Option(min=1, help=f"Random logs to replay: {TREES}, or {FULL_TREES} with --full.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Replay the logs of an earlier run.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Go on to 300,000 verdicts, with each reason 500 times among them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the engine with the plain reference, verdict by verdict, on random logs in shuffled order.

    A mismatch is exit status 1; so is what a full run met too seldom.
    """
    wanted: dict[str, Any] = {"min_decisions": FULL_VERDICTS, "min_each_reason": FULL_EACH_REASON} if full else {}
    with progress("comparing") as advance:
        report = suite.run(trees or (FULL_TREES if full else TREES), seed, advance, **wanted)
    if as_json:
        say_json(**report.to_dict())
    else:
        compared = f"{report.trees:,} trees, {report.decisions:,} verdicts compared"
        say(f"{compared}, {report.mismatches:,} mismatches (seed {report.seed})")
        for case in report.to_dict()["cases"]:
            say_json(**case)
        if full:
            show(terminal.count_lines("verdicts with each reason", report.reasons))
        if report.lacking:
            say(f"fewer than asked for: {', '.join(report.lacking)}")
    if report.mismatches or report.lacking:
        raise typer.Exit(1)


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
