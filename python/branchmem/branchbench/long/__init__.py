"""The Long part of branchbench: conversations whose current branch does not fit what a model is given.

300 scenarios, 150 numbers in Chinese and English each, made from phrase tables (`phrases`), a way of talking (`talk`)
and ten ways of branching (`layouts`).  The one rule: one seed, the same bytes on every machine.  Scenarios of one
number have the same layout in both languages; every third number is for development.

What it leaves out: whether the scenarios are fit to be asked, which the validator decides before they are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from branchmem.branchbench.long import phrases
from branchmem.branchbench.long.draws import Draw
from branchmem.branchbench.long.layouts import LAYOUTS
from branchmem.branchbench.long.phrases import Phrases
from branchmem.branchbench.long.talk import Talk
from branchmem.branchbench.scenario import Scenario, Split, lines
from branchmem.errors.branchbench import PhrasesInvalid

SEED: Final = "branchbench long 1"
#: How many scenarios there are in each language.
NUMBERS: Final = 150
FILES: Final[dict[Split, str]] = {"dev": "long.dev.jsonl", "test": "long.test.jsonl"}


def scenarios(seed: str = SEED, *, numbers: int = NUMBERS, folder: Path = phrases.FOLDER) -> Iterator[Scenario]:
    """The scenarios of a seed: number by number, Chinese first.

    Raises: PhrasesInvalid, DataMissing, ExtraMissing for the phrase tables in `folder`.
    Cost: three milliseconds a scenario.
    """
    tables = phrases.read_all(folder)
    for number in range(1, numbers + 1):
        for table in tables.values():
            yield _scenario(seed, number, table)


def split_of(number: int) -> Split:
    """To which split the scenarios of a number belong."""
    return "dev" if number % 3 == 1 else "test"


def write(folder: Path, seed: str = SEED) -> list[Path]:
    """Write both files of the part; all scenarios have passed the validator before the first byte.

    Raises: UnfitScenario, with all that is refused; PhrasesInvalid; DataMissing; ExtraMissing; OSError.
    """
    from branchmem.branchbench import validator

    for table in phrases.read_all().values():
        if found := phrases.collisions(table):
            raise PhrasesInvalid(f"{table.language}.yaml", f"{len(found)} values give a subject away: {found[0]}")
    made = list(scenarios(seed))
    validator.check(made)
    written = []
    for split, name in FILES.items():
        text = lines(one for one in made if split_of(_number(one)) == split)
        aside = folder / f"{name}.new"
        aside.write_text(text, encoding="utf-8", newline="\n")
        written.append((aside, folder / name))
    return [aside.replace(path) for aside, path in written]


def _scenario(seed: str, number: int, table: Phrases) -> Scenario:
    operation = list(LAYOUTS)[(number - 1) % len(LAYOUTS)]
    talk = Talk(table, Draw(f"{seed}/{number}"))
    LAYOUTS[operation](talk)
    return Scenario(
        id=f"long-{number:04}-{table.language}",
        part="long",
        language=table.language,
        topic=talk.topic(),
        events=tuple(talk.events),
        probes=tuple(talk.probes),
    )


def _number(scenario: Scenario) -> int:
    return int(scenario.id.split("-")[1])
