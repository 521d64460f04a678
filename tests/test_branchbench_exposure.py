"""On all the data, what branchmem supplies bears nothing that must not be said; on the same probes others do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from branchmem.branchbench.manifest import data_folder, load
from branchmem.branchbench.measures import Row
from branchmem.branchbench.methods import METHODS
from branchmem.branchbench.models.answering import Extractive
from branchmem.branchbench.run import Bench
from remembering import tools

OURS = ("branchmem facts", "branchmem summaries", "branchmem")
RETRACTIONS = {"retract_branch", "retract_tree", "retract_everywhere"}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Every probe of both parts and both splits, put to branchmem and to a memory that knows no branches."""
    bench = Bench(tools(), Extractive())
    asked = [METHODS[name] for name in ("vector memory", *OURS)]

    def made() -> Iterator[Row]:
        for scenario in load(data_folder()):
            yield from bench.rows(scenario, asked)

    return list(made())


def test_branchmem_supplies_nothing_forbidden_on_any_leak_probe(rows: list[Row]) -> None:
    ours = [row for row in rows if row.method in OURS and row.leak_probe]

    assert Counter(row.method for row in ours) == dict.fromkeys(OURS, 1506)
    assert [(row.method, row.scenario, row.probe) for row in ours if row.exposed or row.leaked] == []


def test_retracted_facts_of_each_scope_are_among_them(rows: list[Row]) -> None:
    asked = Counter(row.operation for row in rows if row.method == "branchmem" and row.leak_probe)

    assert {operation for operation in RETRACTIONS if asked[operation] >= 100} == RETRACTIONS


def test_the_same_probes_catch_a_memory_that_knows_no_branches(rows: list[Row]) -> None:
    exposed = Counter(row.operation for row in rows if row.method == "vector memory" and row.exposed)

    assert set(exposed) >= {row.operation for row in rows} - {"retract_everywhere", "retract_tree"}
    assert sum(exposed.values()) > 1000
