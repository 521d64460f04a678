"""What needs no store of one's own: the engine against the reference, and the product at work."""

from __future__ import annotations

from typing import Annotated

import typer

import branchmem as bm
from branchmem import demo as demonstration
from branchmem import selftest as suite
from branchmem.cli.forms import AsJson, verdict_form, view_form
from branchmem.terminal import progress, say, say_json, show, width


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
