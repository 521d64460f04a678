"""A results folder: what a run found, what it was run with, and every answer behind every figure.

`answers.jsonl.zst`  one row a probe and method, in one order: the context supplied, the answer, the judgement
`table.md`           the tables, counted from those rows, and what their words mean
`plot.svg`, `.png`   leak against correct
`config.json`        what was asked for, versions, hashes of the data, the machine; and the SHA-256 of the answers

`recount` makes table and plot from the answers alone, judging each of them anew; so can anyone else.

The one rule: a folder is whole, or says that it is not.  Everything is made in full beside the old files before any of
them is replaced, and the configuration, which names the answers, comes last: what was interrupted between two
replacements is refused when it is read.  Other files in the folder are let be.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from branchmem.branchbench import plot, table
from branchmem.branchbench.measures import Row, judged, row_from_dict
from branchmem.branchbench.methods import METHODS
from branchmem.branchbench.packing import packed, unpacked
from branchmem.branchbench.scenario import Scenario
from branchmem.errors.branchbench import ResultsRefused
from branchmem.extra import extra

ANSWERS: Final = "answers.jsonl.zst"
TABLE: Final = "table.md"
PLOT: Final = "plot"
CONFIG: Final = "config.json"

_LEVEL: Final = 12  # of twenty thousand rows, 19 would save a fifth and take fifty times as long


def write(folder: Path, rows: Sequence[Row], config: Mapping[str, Any]) -> None:
    """Write a results folder whole, in place of an earlier run's.

    `config` is anything that JSON has, with at least `model`, the answering model's name; `about`, a paragraph of
    Markdown that says what was run; and `methods`, which maps each method's name to its line, in the order of the
    tables.  Equal rows and configuration give equal answers, table and SVG, byte for byte.

    Raises: ResultsRefused where a method has two rows of one probe, or is not in `config`; ExtraMissing.  The folder is
    then as it was.
    """
    _check(rows, config["methods"])
    answers = _packed(rows)
    named = dict(config) | {"answers_sha256": sha256(answers).hexdigest()}
    settings = json.dumps(named, indent=2, ensure_ascii=False) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".writing-", dir=folder) as made:
        fresh = Path(made)
        (fresh / ANSWERS).write_bytes(answers)
        (fresh / TABLE).write_text(_page(rows, config), encoding="utf-8")
        plot.draw(rows, _numbers(config["methods"]), f"branchbench, answers by {_title(config['model'])}", fresh / PLOT)
        (fresh / CONFIG).write_text(settings, encoding="utf-8")
        for name in (ANSWERS, TABLE, f"{PLOT}.svg", f"{PLOT}.png", CONFIG):
            (fresh / name).replace(folder / name)


def read(folder: Path) -> tuple[list[Row], dict[str, Any]]:
    """The rows and the configuration of a results folder.

    Raises: ResultsRefused where one is missing, unreadable, or the answers are not those that the configuration names.
    """
    try:
        config: dict[str, Any] = json.loads((folder / CONFIG).read_bytes())
        answers = (folder / ANSWERS).read_bytes()
        expected, *texts = (config[name] for name in ("answers_sha256", "model", "about"))
        methods, data = config["methods"], config.get("data", {})
        if not isinstance(methods, dict) or not isinstance(data, dict):
            raise TypeError("methods and data are maps")
        if not all(isinstance(text, str) for text in (*texts, *methods.values())):
            raise TypeError("model, about and the lines of methods are texts")
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"no results of a run ({type(error).__name__}: {error}): name a folder that a run has written"
        raise ResultsRefused(str(folder), why) from error
    found = sha256(answers).hexdigest()
    if found != expected:
        raise ResultsRefused(
            str(folder),
            f"{ANSWERS} has the SHA-256 {found}, {CONFIG} names {expected}: the writing was interrupted, or a file "
            "was changed since: run again (calls that are kept cost nothing), or take the folder from where it came",
        )
    try:
        return _unpacked(answers), config
    except (ValueError, KeyError, TypeError) as error:
        why = f"{ANSWERS} holds no rows ({type(error).__name__}: {error}): name a folder that a run has written"
        raise ResultsRefused(str(folder), why) from error


def prepare(folder: Path) -> None:
    """Make the folder, and see whether results can be written there: a run of hours shall not end with that.

    Raises: ResultsRefused, ExtraMissing.
    """
    packed(b"", _LEVEL)
    with extra("matplotlib", wanted="plots", name="branchbench"):
        import matplotlib as mpl  # noqa: F401
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryDirectory(prefix=".writing-", dir=folder).cleanup()
    except OSError as error:
        why = f"no results can be written there ({error.strerror}): name another folder"
        raise ResultsRefused(str(folder), why) from error


def recount(folder: Path, scenarios: Iterable[Scenario], hashes: Mapping[str, str]) -> list[Row]:
    """The rows of a results folder, every answer judged anew by the data; its table and plot are written again.

    `hashes` are those of the data's files.  Raises: ResultsRefused, also where the run was about other data.
    """
    rows, config = read(folder)
    for name, expected in config.get("data", {}).items():
        if hashes.get(name) != expected:
            found = hashes.get(name, "not there")
            why = f"{name} was {expected} at the run, here it is {found}: recount in a clone that has that data"
            raise ResultsRefused(str(folder), why)
    probes = {(scenario.id, probe.id): (scenario, probe) for scenario in scenarios for probe in scenario.probes}
    anew = []
    for row in rows:
        known = probes.get((row.scenario, row.probe))
        if known is None:
            why = f"the data has no probe {row.probe} of scenario {row.scenario}: recount with the data of the run"
            raise ResultsRefused(str(folder), why)
        anew.append(judged(*known, row.method, row.context, row.tokens, row.seconds, row.answer))
    write(folder, anew, config)
    return anew


def _check(rows: Sequence[Row], methods: Iterable[str]) -> None:
    counts = Counter((row.method, row.scenario, row.probe) for row in rows)
    for (method, scenario, probe), count in counts.items():
        place = f"method {method}, scenario {scenario}, probe {probe}"
        if method not in methods:
            raise ResultsRefused(place, "the configuration does not name the method, so no table would count its rows")
        if count > 1:
            raise ResultsRefused(place, f"{count} rows, and each would be counted: keep one")


def _page(rows: Sequence[Row], config: Mapping[str, Any]) -> str:
    methods: Mapping[str, str] = config["methods"]
    model, title = table.escaped(config["model"]), table.escaped(_title(config["model"]))
    head = f"# branchbench: {title}\n\n{config['about']}\n"
    if title != model:
        head += f"\nThe model: {model}.\n"
    picture = f"![leak against correct, one point a method]({PLOT}.svg)\n"
    words = "The columns are explained below, in [Measures](#measures), the methods in [Methods](#methods).\n"
    return "\n".join([head, picture, words, table.markdown(rows, list(methods)), table.legend(methods)])


def _numbers(names: Mapping[str, str]) -> dict[str, int]:
    """The names with their places among all methods, whichever of them a run has: pictures can be held side by side."""
    places = {name: place for place, name in enumerate(METHODS, 1)}
    others = (name for name in names if name not in places)
    places |= {name: place for place, name in enumerate(others, len(places) + 1)}
    return {name: places[name] for name in names}


def _title(model: str) -> str:
    """What a model goes by; where it lies, its hash and its settings follow in its full name."""
    return re.split(r" sha256:| at |, ", model, maxsplit=1)[0]


def _packed(rows: Sequence[Row]) -> bytes:
    lines = (json.dumps(row.to_dict(), ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    # A lone surrogate, which models do send, becomes the escape that JSON has for it.
    text = "".join(lines).encode(errors="backslashreplace")
    return packed(text, _LEVEL)


def _unpacked(answers: bytes) -> list[Row]:
    return [row_from_dict(json.loads(line)) for line in unpacked(answers).splitlines()]
