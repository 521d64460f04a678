"""The published runs: their answers, judged anew by the data, give the figures that the README quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from shutil import copytree

import pytest
from branchmem.branchbench import report
from branchmem.branchbench.manifest import data_folder, load, manifest_of
from branchmem.branchbench.measures import Row, figures
from branchmem.branchbench.models import local

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "branchbench" / "results"
PUBLISHED = sorted(folder.name for folder in RESULTS.iterdir())
#: The README's words for measures.
MEASURES = {"exposed": "exposure", "leaked": "leak", "correct": "correct", "starved": "starved"}


@cache
def rows(name: str) -> list[Row]:
    return report.read(RESULTS / name)[0]


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_answer_is_judged_anew_as_it_was(name: str, tmp_path: Path) -> None:
    copy = copytree(RESULTS / name, tmp_path / name)
    data = data_folder()

    assert report.recount(copy, load(data, split="test"), manifest_of(data).hashes()) == rows(name)
    assert (copy / report.TABLE).read_bytes() == (RESULTS / name / report.TABLE).read_bytes()


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_method_was_asked_the_same_probes(name: str) -> None:
    by_method: dict[str, list[tuple[str, str]]] = {}
    for row in rows(name):
        by_method.setdefault(row.method, []).append((row.scenario, row.probe))

    assert len({tuple(sorted(probes)) for probes in by_method.values()}) == 1
    assert max(row.tokens for row in rows(name)) <= 300


def test_kept_calls_were_answered_under_the_grammar_of_today() -> None:
    published = "9cc8fc6a1d6a429cfe4c0adceb2fb191749256c1ac1ffe7a411c9cc9cf4c93bd"

    assert sha256(local._OBJECT.encode()).hexdigest() == published, "give `Local.name` another one as well"


def quoted() -> Iterator[tuple[str, str, str, str, str]]:
    """Cells of the README's tables: folder, method, part, measure, rate.  The text below a table names its folder."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Does memory leak across branches?")[1]
    section = section.split("\n## ")[0]
    for found in re.finditer(r"(?m)^(?:\|.*\n)+", section):
        head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines())
        folder = re.search(r"\]\(bench/branchbench/results/([\w-]+)/table\.md\)", section[found.end() :])
        assert folder
        part, columns = "classic", list[tuple[str, str]]()
        for cell in head[1:]:
            named = re.fullmatch(r"(?:(Classic|Long): )?(\w+)", cell)
            assert named
            part = (named[1] or part).lower()
            columns.append((part, MEASURES[named[2]]))
        for method, *cells in lines:
            for (where, measure), cell in zip(columns, cells, strict=True):
                yield folder[1], method, where, measure, cell


def test_the_readme_quotes_every_method_of_the_published_runs_as_it_is() -> None:
    cells = list(quoted())

    assert {(folder, method) for folder, method, *_ in cells} == {
        (name, row.method) for name in PUBLISHED for row in rows(name)
    }
    for folder, method, part, measure, cell in cells:
        mine = [row for row in rows(folder) if (row.method, row.part) == (method, part)]
        rate = getattr(figures(mine), measure)
        assert (folder, method, part, measure, cell) == (folder, method, part, measure, f"{100 * rate.value:.1f} %")
