"""`branchmem bench`: does memory leak across branches?  It asks, counts and prints; what counts, others decide."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from branchmem import terminal
from branchmem.cli.forms import AsJson
from branchmem.errors import Error
from branchmem.terminal import progress, say, say_json, show, width

if TYPE_CHECKING:
    from branchmem.branchbench.measures import Row
    from branchmem.branchbench.methods import Method
    from branchmem.branchbench.scenario import Scenario
    from branchmem.branchbench.setting import Setting


def _folder(given: str) -> Path:
    if not given:
        raise typer.BadParameter("it is empty")
    return Path(given)


class Part(StrEnum):
    classic = "classic"
    long = "long"


class Split(StrEnum):
    dev = "dev"
    test = "test"


class Language(StrEnum):
    zh = "zh"
    en = "en"


class Extraction(StrEnum):
    scripted = "scripted"
    model = "model"


def bench(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Who answers: `extractive` (no model), `local` (the published one, fetched once), or the name of a "
            "model behind OPENAI_BASE_URL.",
        ),
    ] = "extractive",
    part: Annotated[Part | None, typer.Option(help="One part of the data; both by default.")] = None,
    split: Annotated[Split, typer.Option(help="The frozen test split, or the one to develop on.")] = Split.test,
    language: Annotated[Language | None, typer.Option(help="One language; both by default.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A method, as the table calls it; repeat it. All by default."),
    ] = None,
    skip: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A method to leave out; repeat it.")] = None,
    extraction: Annotated[
        Extraction, typer.Option(help="Who extracts facts: the data's authors, or the model.")
    ] = Extraction.scripted,
    budget: Annotated[int, typer.Option(min=1, help="Tokens of context that a method may supply.")] = 300,
    long: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most N probes of the long part.")] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes, where no language model is asked; else there is one.")
    ] = 2,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Stop asking the model after so long; the same command goes on from there."),
    ] = None,
    kept: Annotated[
        bool, typer.Option("--kept", help="Take every answer from those that are kept; ask nobody.")
    ] = False,
    repeat: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Ask N kept calls of such a run again: are the answers the same?"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(parser=_folder, metavar="PATH", help="Write the results, with every answer, into this folder."),
    ] = None,
    recount: Annotated[
        Path | None,
        typer.Option(
            parser=_folder,
            metavar="PATH",
            help="Ask nothing: judge the answers of a results folder anew, and write it again.",
        ),
    ] = None,
    pack: Annotated[
        bool, typer.Option("--pack", help="Ask nothing: put what is kept into the compressed files that are published.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put probes about branching conversations to methods of remembering: what does each give away of other branches?

    The data is checked against its hashes first.  It runs from a clone of the repository, which has the data.
    """
    from branchmem.branchbench import manifest, report
    from branchmem.branchbench.methods import METHODS, check_installed, methods
    from branchmem.branchbench.setting import Setting, packed

    if pack:
        _refuse_beside(context, "pack", (name for name in context.params if name not in ("pack", "as_json")))
    if recount:
        _refuse_beside(context, "recount", (name for name in context.params if name not in ("recount", "as_json")))
    if repeat:
        _refuse_beside(context, "repeat", ("kept", "minutes"))
    if not model:
        raise typer.BadParameter("it is empty", param_hint="--model")
    if part is Part.classic and long:
        raise typer.BadParameter("the classic part has none of its probes: leave one out", param_hint="--long")
    data = manifest.data_folder()
    if pack:
        sizes = packed(data.parent / "cache")
        if as_json:
            say_json(bytes=sizes)
        else:
            say("; ".join(f"{name}: {size:,} bytes" for name, size in sizes.items()))
        return
    if recount:
        rows = report.recount(recount, manifest.load(data), manifest.manifest_of(data).hashes())
        _say(rows, list(dict.fromkeys(row.method for row in rows)), as_json=as_json)
        return
    setting = Setting(
        model=model,
        cache=data.parent / "cache",
        extraction="model" if extraction is Extraction.model else "scripted",
        budget=budget,
        until=None if minutes is None else time.monotonic() + 60 * minutes,
        kept=kept,
    )
    if setting.extractive and extraction is Extraction.model:
        raise typer.BadParameter("the extractive answerer reads no facts: name a --model", param_hint="--extraction")
    if setting.extractive:
        for name, given in {"repeat": repeat, "kept": kept, "minutes": minutes is not None}.items():
            if given:
                raise typer.BadParameter(
                    f"the extractive answerer has no calls for --{name}: name a --model", param_hint=f"--{name}"
                )
    chosen = [kind for kind in methods(method or None) if kind not in methods(skip or [])]
    if setting.extractive and not method:
        chosen = [kind for kind in chosen if not kind.needs_chat]
    if not chosen:
        raise typer.BadParameter("no method is left", param_hint="--skip")
    check_installed(chosen)
    if out:
        report.prepare(out)
    asked = manifest.load(data, part=_value(part), split=split.value)
    scenarios = _chosen(asked, language, long)
    if repeat:
        _repeat(setting, scenarios, chosen, repeat, out, as_json=as_json)
        return
    ran = {"part": part, "split": split, "language": language, "long": long}
    hashes = manifest.manifest_of(data).hashes(part=_value(part), split=split.value)
    config = setting.described(chosen, hashes, ran) if out else {}
    made = _rows(scenarios, chosen, setting, jobs if setting.extractive or kept else 1)
    if out:
        report.write(out, made, config)
    _say(made, [kind.name for kind in chosen], as_json=as_json)
    if out and not as_json:
        say(f"results written to {out}")
    left_out = [name for name, kind in METHODS.items() if setting.extractive and kind.needs_chat and kind not in chosen]
    if left_out and not method and not as_json:
        say(f"not asked, since they need a language model (--model): {'; '.join(left_out)}")


def _refuse_beside(context: typer.Context, option: str, others: Iterable[str]) -> None:
    """Raises: BadParameter where one of the others was given too, which would be passed over without a word."""
    for name in others:
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"it has no use beside --{option}: leave one out", param_hint=f"--{name}")


def _value(choice: StrEnum | None) -> Any:
    return None if choice is None else choice.value


def _repeat(
    setting: Setting,
    scenarios: list[Scenario],
    methods: list[type[Method]],
    count: int,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Ask again, say how many answers are the same; exit status 1 where one is not."""
    from branchmem.branchbench.repeat import REPEATED, repeat

    made = []
    with _placed(), progress("asking again") as advance:
        for repetition in repeat(setting, scenarios, methods, count):
            made.append(repetition)
            advance(len(made), count)
    same = sum(repetition.same for repetition in made)
    form = {
        "model": made[0].model if made else setting.model,
        "same": same,
        "of": len(made),
        "calls": [repetition.to_dict() for repetition in made],
    }
    if out:
        (out / REPEATED).write_text(json.dumps(form, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        say_json(**form)
    else:
        say(f"{same} of {len(made)} calls were answered word for word as before")
    if same < len(made):
        raise typer.Exit(1)


def _chosen(scenarios: list[Scenario], language: Language | None, long: int | None) -> list[Scenario]:
    """The scenarios that are asked: of one language, and of the long part no more than so many probes."""
    from branchmem.branchbench.run import sample

    spoken = [one for one in scenarios if language is None or one.language == language.value]
    if long is None:
        return spoken
    return [one for one in spoken if one.part == "classic"] + sample(
        (one for one in spoken if one.part == "long"), long
    )


def _rows(scenarios: list[Scenario], methods: list[type[Method]], setting: Setting, jobs: int) -> list[Row]:
    """Every row of a run.  Raises: TyperException, with what is left said, where it ends early."""
    from branchmem.branchbench.run import TimeIsUp, rows

    made: list[Row] = []
    done = 0
    try:
        with _placed(), progress("asking") as advance:
            for done, some in enumerate(rows(scenarios, methods, setting, jobs), 1):
                made += some
                advance(done, len(scenarios))
    except (TimeIsUp, KeyboardInterrupt) as end:
        next_time = "begins anew" if setting.extractive else "goes on from there"
        why = "the time is up" if isinstance(end, TimeIsUp) else "interrupted"
        left = f"{done} of {len(scenarios)} scenarios are done: the same command {next_time}"
        refusal = typer.TyperException(f"{why}; {left}")
        refusal.exit_code = 1 if isinstance(end, TimeIsUp) else 130
        raise refusal from None
    return made


@contextmanager
def _placed() -> Iterator[None]:
    """What a method was at when branchmem itself refused something, in the one line that people get."""
    try:
        yield
    except Error as error:
        notes = getattr(error, "__notes__", None)
        if not notes:
            raise
        raise typer.TyperException("; ".join([*notes, str(error)])) from error


def _say(rows: list[Row], methods: list[str], *, as_json: bool) -> None:
    from branchmem.branchbench.measures import figures
    from branchmem.branchbench.table import PARTS

    parts = {title: [row for row in rows if row.part == part] for part, title in PARTS.items()}
    if as_json:
        by_method = (
            (title, method, [row for row in here if row.method == method])
            for title, here in parts.items()
            for method in methods
        )
        say_json(
            figures=[
                {"part": title, "method": name, **figures(mine).to_dict()} for title, name, mine in by_method if mine
            ]
        )
        return
    for title, here in parts.items():
        if here:
            show(terminal.bench_lines(title, here, methods, width=width()))
