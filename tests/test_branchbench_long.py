"""The Long part: what its phrase tables, its scenarios and its files promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from branchmem.branchbench import long, validator
from branchmem.branchbench.long import phrases
from branchmem.branchbench.long.draws import Draw
from branchmem.branchbench.long.phrases import Phrases
from branchmem.branchbench.scenario import OPERATIONS, Language, Scenario, lines
from branchmem.errors.branchbench import DataMissing, PhrasesInvalid, UnfitScenario
from branchmem.recall.tokens import estimate
from branchmem.reference import Reference

DATA = phrases.FOLDER.parent / "data"
BUDGET = 300  # tokens of context in a run
Form = dict[str, Any]


@pytest.fixture(scope="module")
def tables() -> dict[Language, Phrases]:
    return phrases.read_all()


@pytest.fixture(scope="module")
def sample() -> list[Scenario]:
    """The first ten numbers in both languages: every layout once."""
    return list(long.scenarios(numbers=10))


@pytest.fixture(scope="module")
def files() -> dict[str, list[Form]]:
    """What lies in the repository, as JSON: reading it as scenarios takes longer than all the rest."""
    return {name: [json.loads(line) for line in (DATA / name).open(encoding="utf-8")] for name in long.FILES.values()}


@pytest.fixture(scope="module")
def whole(files: dict[str, list[Form]]) -> list[Form]:
    return [form for forms in files.values() for form in forms]


def path(form: Form, anchor: str) -> list[Form]:
    messages = {event["id"]: event for event in form["events"] if event["type"] == "message"}
    upward = [messages[anchor]]
    while "parent" in upward[-1] and upward[-1]["parent"] is not None:
        upward.append(messages[upward[-1]["parent"]])
    return upward[::-1]


def mended(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


# Phrase tables


def test_each_language_speaks_of_at_least_45_subjects(tables: dict[Language, Phrases]) -> None:
    for table in tables.values():
        assert len(table.subjects) + len(table.requests) >= 45
        for subject in (*table.subjects, *table.requests):
            assert len(subject.values) >= 8
            assert len(subject.states) >= 3
            assert len(subject.asks) >= 2


@pytest.mark.parametrize("language", phrases.LANGUAGES)
def test_no_value_is_given_away_by_another_text(tables: dict[Language, Phrases], language: Language) -> None:
    assert phrases.collisions(tables[language]) == []


def test_a_value_in_the_text_of_another_subject_is_found(tmp_path: Path) -> None:
    text = (phrases.FOLDER / "en.yaml").read_text(encoding="utf-8")
    told = "I will look near your home first."
    (tmp_path / "en.yaml").write_text(mended(text, told, f"{told} Or in Peru."), encoding="utf-8")
    (found,) = phrases.collisions(phrases.read("en", tmp_path))
    assert "'Peru' of destination stands in" in found
    assert found.endswith("of city")


@pytest.mark.parametrize(
    ("old", "new", "at_fault"),
    [
        ("The user lives in {v} at present.", "The user lives there.", "fact of city has one {v}"),
        ("Which city do I live in?", "Do I live in {v}?", "asks of city has no {v}"),
        ("[Lisbon, Oslo, Toronto, Nairobi, ", "[", "city has 6 values"),
        ("[Lisbon, Oslo,", "[Lisbon, No,", "values of city has False"),
        ("  everywhere:\n", "  anywhere:\n", "everywhere"),
        ("subjects:\n", "subjects: [\n", "line"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(tmp_path: Path, old: str, new: str, at_fault: str) -> None:
    text = (phrases.FOLDER / "en.yaml").read_text(encoding="utf-8")
    (tmp_path / "en.yaml").write_text(mended(text, old, new), encoding="utf-8")
    with pytest.raises(PhrasesInvalid) as refused:
        phrases.read("en", tmp_path)
    assert at_fault in str(refused.value)
    assert "en.yaml" in str(refused.value)


def test_tables_of_different_shape_are_refused(tmp_path: Path) -> None:
    for language in phrases.LANGUAGES:
        text = (phrases.FOLDER / f"{language}.yaml").read_text(encoding="utf-8")
        if language == "en":
            text = mended(text, '"Where is my home these days?"', '"Where is my home these days?", "Where do I dwell?"')
        (tmp_path / f"{language}.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PhrasesInvalid, match="city"):
        phrases.read_all(tmp_path)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as missing:
        phrases.read("zh", tmp_path)
    assert missing.value.place == str(tmp_path / "zh.yaml")


# Draws and scenarios


def test_a_seed_draws_the_same_for_ever() -> None:
    draw = Draw("a seed")
    assert [draw.below(100) for _ in range(6)] == [39, 3, 76, 40, 87, 90]
    assert draw.shuffled("abcdef") == ["e", "a", "b", "c", "d", "f"]


def test_one_seed_gives_the_same_bytes_in_another_process(sample: list[Scenario]) -> None:
    code = (
        "import sys; from branchmem.branchbench import long; from branchmem.branchbench.scenario import lines; "
        "sys.stdout.buffer.write(lines(long.scenarios(numbers=10)).encode())"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    made = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout
    assert made == lines(sample).encode()


def test_another_seed_gives_other_talks(sample: list[Scenario]) -> None:
    (first, _) = long.scenarios("another seed", numbers=1)
    assert first.id == sample[0].id
    assert first.events != sample[0].events


def test_every_layout_passes_the_validator(sample: list[Scenario]) -> None:
    assert [str(finding) for finding in validator.findings(sample)] == []
    assert {probe.operation for scenario in sample for probe in scenario.probes} == set(OPERATIONS)


def test_neither_the_messages_nor_the_facts_of_a_branch_fit_the_budget(sample: list[Scenario]) -> None:
    for scenario in sample:
        reference = Reference()
        reference.add(scenario.events)
        for anchor in {probe.anchor for probe in scenario.probes}:
            facts = reference.at(anchor, count=False).memories()
            assert len(facts) >= 35
            assert sum(estimate(fact.text) for fact in facts) > BUDGET


def test_a_branch_retraction_leaves_the_fact_the_answer_on_the_other_branch(sample: list[Scenario]) -> None:
    for scenario in sample:
        (scopes,) = [{one.scope for one in scenario.retractions}]
        probes = [probe for probe in scenario.probes if probe.forbids]
        taken_back = {memory for one in scenario.retractions for memory in one.memories}
        still_right = [probe for probe in probes if set(probe.needs) & taken_back]
        forbidden = [probe for probe in probes if set(probe.forbids) & taken_back]
        if scopes:
            assert len({probe.anchor for probe in forbidden}) == (1 if scopes == {"branch"} else 2)
            assert bool(still_right) == ("everywhere" not in scopes)


def test_what_was_taken_over_is_needed_and_what_stood_beside_it_forbidden(sample: list[Scenario]) -> None:
    for scenario in sample:
        for probe in scenario.probes:
            fact = scenario.facts[probe.needs[0]]
            if probe.operation == "adopt" and fact.adopts is not None:
                original = scenario.facts[fact.adopts]
                beside = [id for id in probe.forbids if scenario.facts[id].sources == original.sources]
                assert fact.text == original.text
                assert beside


def test_messages_that_take_back_correct_or_take_over_do_not_repeat_the_value(sample: list[Scenario]) -> None:
    from branchmem.branchbench.keywords import stands_in

    for scenario in sample:
        facts = scenario.facts
        silent = [(one.at, facts[memory]) for one in scenario.retractions for memory in one.memories]
        silent += [(one.sources[0], facts[old]) for one in facts.values() for old in one.supersedes]
        silent += [(one.sources[0], facts[one.adopts]) for one in facts.values() if one.adopts is not None]
        subjects = {one.id: one for one in phrases.read(scenario.language).subjects} if silent else {}
        for message, fact in silent:
            (value,) = [one for one in subjects[fact.key or ""].values if stands_in(one.keyword, fact.text)]
            assert not stands_in(value.keyword, scenario.messages[message].text or "")


# Files


def test_the_files_hold_what_the_seed_gives(files: dict[str, list[Form]], sample: list[Scenario]) -> None:
    for name, forms in files.items():
        mine = [scenario for scenario in sample if long.FILES[long.split_of(int(scenario.id[5:9]))] == name]
        assert [form for form in forms if int(form["id"][5:9]) <= 10] == json.loads(
            json.dumps([scenario.to_dict() for scenario in mine])
        )


def test_the_files_hold_300_scenarios_and_more_than_1500_probes(files: dict[str, list[Form]]) -> None:
    assert {name: len(forms) for name, forms in files.items()} == {"long.dev.jsonl": 100, "long.test.jsonl": 200}
    assert sum((DATA / name).stat().st_size for name in files) < 7_000_000
    for forms in files.values():
        languages = Counter(form["language"] for form in forms)
        assert languages["zh"] == languages["en"] == len(forms) // 2
    assert sum(len(form["probes"]) for forms in files.values() for form in forms) >= 1500


def test_every_operation_has_100_leak_probes_and_a_quarter_are_controls(whole: list[Form]) -> None:
    probes = [probe for form in whole for probe in form["probes"]]
    leak_probes = Counter(probe["operation"] for probe in probes if probe["forbidden"])
    assert set(leak_probes) == set(OPERATIONS)
    assert min(leak_probes.values()) >= 100
    assert sum(not probe["forbidden"] for probe in probes) >= len(probes) / 4


def test_every_path_is_long(whole: list[Form]) -> None:
    for form in whole:
        assert 5 <= len(form["probes"]) <= 7
        anchors = {probe["anchor"] for probe in form["probes"]}
        assert len(anchors) <= 3
        for anchor in anchors:
            texts = [message["text"] for message in path(form, anchor)]
            assert 40 <= len(texts) <= 60
            assert sum(map(estimate, texts)) >= 1200


def test_most_answers_were_said_before_the_newest_messages_that_fit(whole: list[Form]) -> None:
    early = late = 0
    for form in whole:
        facts = {event["id"]: event for event in form["events"] if event["type"] == "memory"}
        for probe in form["probes"]:
            newest: set[str] = set()
            left = BUDGET
            for message in reversed(path(form, probe["anchor"])):
                left -= estimate(message["text"])
                if left < 0:
                    break
                newest.add(message["id"])
            is_late = not newest.isdisjoint(facts[probe["needs"][0]]["sources"])
            late += is_late
            early += not is_late
    assert early > 5 * late > 0


def test_the_texts_to_embed_stay_few(whole: list[Form]) -> None:
    facts, exchanges = set(), set()
    for form in whole:
        messages = {event["id"]: event for event in form["events"] if event["type"] == "message"}
        facts |= {event["text"] for event in form["events"] if event["type"] == "memory"}
        exchanges |= {
            (messages[one["parent"]]["text"], one["text"]) for one in messages.values() if one["role"] == "assistant"
        }
    assert len(facts) <= 6000
    assert len(exchanges) <= 9000


def test_nothing_is_written_where_a_scenario_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, _) = long.scenarios(numbers=1)
    monkeypatch.setattr(long, "scenarios", lambda seed: iter([first, first]))
    monkeypatch.setattr(phrases, "collisions", lambda table: [])
    with pytest.raises(UnfitScenario, match="2 scenarios have this id"):
        long.write(tmp_path)
    assert list(tmp_path.iterdir()) == []
