"""The data that the published figures come from: as large as promised, fit to be asked, and as the manifest has it."""

from __future__ import annotations

from collections import Counter

import pytest
from branchmem.branchbench.manifest import PARTS, SPLITS, data_folder, load, manifest_of, name_of
from branchmem.branchbench.scenario import Part, Scenario, Split
from branchmem.branchbench.validator import findings


@pytest.fixture(scope="module")
def files() -> dict[tuple[Part, Split], list[Scenario]]:
    """The scenarios of each file."""
    folder = data_folder()
    return {(part, split): load(folder, part=part, split=split) for part in PARTS for split in SPLITS}


Files = dict[tuple[Part, Split], list[Scenario]]


def sizes(*scenarios: Scenario) -> dict[str, tuple[int, int]]:
    """By language: how many scenarios, how many probes."""
    dialogues = Counter(scenario.language for scenario in scenarios)
    probes = Counter(scenario.language for scenario in scenarios for _ in scenario.probes)
    return {language: (dialogues[language], probes[language]) for language in dialogues}


def operations(*scenarios: Scenario) -> set[str]:
    return {probe.operation for scenario in scenarios for probe in scenario.probes}


def test_classic_has_thirty_dialogues_and_ninety_eight_probes_a_language(files: Files) -> None:
    whole = files["classic", "dev"] + files["classic", "test"]

    assert sizes(*whole) == {"zh": (30, 98), "en": (30, 98)}
    assert sizes(*files["classic", "test"]) == {"zh": (20, 69), "en": (20, 69)}
    assert operations(*whole) == {"edit", "regenerate", "fork", "switch_back", "correct"}


def test_long_has_three_hundred_scenarios_and_fifteen_hundred_probes(files: Files) -> None:
    whole = files["long", "dev"] + files["long", "test"]
    size = sizes(*whole)

    assert set(size) == {"zh", "en"}
    assert sum(scenarios for scenarios, _ in size.values()) >= 300
    assert sum(probes for _, probes in size.values()) >= 1500
    assert operations(*whole) >= {"nested_fork", "retract_branch", "retract_tree", "retract_everywhere", "adopt"}


def test_every_scenario_stands_in_the_file_of_its_part(files: Files) -> None:
    for (part, split), scenarios in files.items():
        assert [one.id for one in scenarios if one.part != part or not one.id.startswith(f"{part}-")] == [], split


def test_every_classic_dialogue_has_its_twin_in_the_same_split(files: Files) -> None:
    for split in SPLITS:
        twins = Counter(scenario.id.rpartition("-")[0] for scenario in files["classic", split])
        assert set(twins.values()) == {2}


def test_the_validator_refuses_nothing_of_all_four_files_together(files: Files) -> None:
    together = [scenario for scenarios in files.values() for scenario in scenarios]

    assert [str(finding) for finding in findings(together)] == []


def test_the_manifest_has_four_files_and_counts_what_they_hold(files: Files) -> None:
    entries = manifest_of(data_folder()).files

    assert set(entries) == {name_of(part, split) for part, split in files}
    for (part, split), scenarios in files.items():
        entry, probes = entries[name_of(part, split)], [probe for one in scenarios for probe in one.probes]
        leak_probes = sum(bool(probe.forbidden) for probe in probes)
        assert (entry.scenarios, entry.probes, entry.leak_probes) == (len(scenarios), len(probes), leak_probes)
