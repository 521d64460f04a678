"""What one context and one answer give away, each measure at its smallest case; Wilson's interval by two routes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import pytest
from branchmem.branchbench.measures import Figures, Judgement, Rate, Row, Z, figures, judge, judged, rate, row_from_dict
from branchmem.branchbench.scenario import Language
from dialogues import fit

CONTEXTS: dict[Language, dict[str, list[str]]] = {
    "en": {"needed": ["The user moves to Hangzhou."], "other": ["The user has a cat."], "hidden": ["He left Chengdu."]},
    "zh": {"needed": ["用户要搬到杭州。"], "other": ["用户有一只猫。"], "hidden": ["用户离开了成都。"]},
}
ANSWERS: dict[Language, dict[str, str]] = {
    "en": {
        "right": "To Hangzhou.",
        "leak": "To Chengdu.",
        "denial": "Not to Chengdu any more.",
        "right and denial": "To Hangzhou, not to Chengdu any more.",
        "both": "To Hangzhou or to Chengdu.",
        "unknown": "I don't know.",
        "nothing": "",
    },
    "zh": {
        "right": "杭州。",
        "leak": "搬到成都。",
        "denial": "不去成都了。",
        "right and denial": "搬到杭州，不去成都了。",
        "both": "杭州或者成都。",
        "unknown": "不知道。",
        "nothing": "",
    },
}
in_both_languages = pytest.mark.parametrize("language", ["en", "zh"])


def judgement(language: Language, answer: str, *contexts: str, **changed: Any) -> Judgement:
    probe = replace(fit(language).probes[0], **changed)
    context = [line for name in contexts for line in CONTEXTS[language][name]]
    return judge(probe, context, ANSWERS[language].get(answer, answer))


@in_both_languages
def test_exposure_and_starving_are_seen_in_the_context_alone(language: Language) -> None:
    for answer in ANSWERS[language]:
        seen = {
            contexts: (found.exposed, found.starved)
            for contexts in [(), ("other",), ("needed",), ("hidden",), ("needed", "hidden"), ("hidden", "needed")]
            for found in [judgement(language, answer, *contexts)]
        }
        assert seen == {
            (): (False, True),
            ("other",): (False, True),
            ("needed",): (False, False),
            ("hidden",): (True, True),
            ("needed", "hidden"): (True, False),
            ("hidden", "needed"): (True, False),
        }


@in_both_languages
@pytest.mark.parametrize(
    ("answer", "leaked", "negated", "correct"),
    [
        ("right", False, False, True),
        ("leak", True, False, False),
        ("denial", False, True, False),
        ("right and denial", False, True, True),
        ("both", True, False, False),
        ("unknown", False, False, False),
        ("nothing", False, False, False),
    ],
)
def test_leaks_denials_and_right_answers_are_seen_in_the_answer_alone(
    language: Language, answer: str, leaked: bool, negated: bool, correct: bool
) -> None:
    for contexts in [(), ("needed",), ("hidden", "needed")]:
        found = judgement(language, answer, *contexts)
        assert (found.leaked, found.negated, found.correct) == (leaked, negated, correct)


@in_both_languages
def test_a_denial_of_one_word_does_not_cover_the_statement_of_another(language: Language) -> None:
    other = {"en": "Beijing", "zh": "北京"}[language]
    mixed = {"en": "Not to Chengdu any more. To Beijing.", "zh": "不去成都了。搬到北京。"}[language]
    forbidden = (*fit(language).probes[0].forbidden, other)

    for words in (forbidden, forbidden[::-1]):
        found = judgement(language, mixed, forbidden=words)
        assert (found.leaked, found.negated) == (True, False)


@in_both_languages
def test_a_denied_context_exposes_all_the_same(language: Language) -> None:
    probe = fit(language).probes[0]
    assert judge(probe, [ANSWERS[language]["denial"]], "").exposed


@in_both_languages
def test_any_accepted_keyword_will_do(language: Language) -> None:
    accepted = ("Nanjing|南京", *fit(language).probes[0].accepted)
    found = judgement(language, "right", "needed", accepted=accepted)
    assert found.correct
    assert not found.starved


@in_both_languages
def test_a_control_leaks_and_exposes_nothing(language: Language) -> None:
    found = judgement(language, "both", "hidden", "needed", forbidden=(), forbids=())
    assert found == Judgement(exposed=False, leaked=False, negated=False, correct=True, starved=False)


def test_an_accepted_word_may_be_part_of_a_denial() -> None:
    probe = replace(fit().probes[0], accepted=("peanuts",), forbidden=())
    assert judge(probe, [], "The user cannot eat peanuts.").correct


def test_a_row_says_what_was_asked_and_survives_its_file() -> None:
    scenario = fit("zh")
    probe = replace(scenario.probes[0], contested="成都也说得通。")

    row = judged(scenario, probe, "mine", ["用户要搬到杭州。"], 9, 0.123456789, "搬到成都。")

    assert (row.scenario, row.probe, row.part, row.language, row.operation) == (
        "classic-moving-zh",
        "p1",
        "classic",
        "zh",
        "edit",
    )
    assert (row.contested, row.leak_probe, row.leaked, row.tokens, row.seconds) == (True, True, True, 9, 0.123457)
    assert row_from_dict(row.to_dict()) == row


def test_of_leak_probes_and_controls_each_measure_counts_its_own() -> None:
    scenario = fit()
    guarded = scenario.probes[0]
    control = replace(guarded, id="p2", forbidden=(), forbids=())
    needed, hidden = CONTEXTS["en"]["needed"], CONTEXTS["en"]["hidden"]
    rows: list[Row] = [
        judged(scenario, guarded, "mine", hidden, 10, 1.0, "To Chengdu."),
        judged(scenario, guarded, "mine", needed, 20, 2.0, "To Hangzhou, not to Chengdu any more."),
        judged(scenario, control, "mine", needed, 30, 3.0, "To Hangzhou."),
        judged(scenario, control, "mine", [], 0, 6.0, "I don't know."),
    ]

    assert figures(rows) == Figures(
        exposure=Rate(1, 2),
        leak=Rate(1, 2),
        negated=Rate(1, 2),
        correct=Rate(2, 4),
        starved=Rate(2, 4),
        tokens=15.0,
        seconds=3.0,
    )


def test_of_no_rows_nothing_is_claimed() -> None:
    found = figures([])
    assert found.leak == found.correct == rate([]) == Rate(0, 0)
    assert found.leak.interval == (0.0, 1.0)
    assert all(map(math.isnan, (found.leak.value, found.tokens, found.seconds)))


def test_figures_are_json_also_where_nothing_was_counted() -> None:
    row = judged(fit(), fit().probes[0], "mine", [], 4, 0.5, "To Chengdu.")
    found = json.loads(json.dumps(figures([row]).to_dict(), allow_nan=False))
    assert found["leak"] == {"hits": 1, "of": 1, "interval": list(Rate(1, 1).interval)}
    assert (found["tokens"], found["seconds"], found["correct"]["hits"]) == (4.0, 0.5, 0)

    nothing = json.loads(json.dumps(figures([]).to_dict(), allow_nan=False))
    assert nothing["leak"] == {"hits": 0, "of": 0, "interval": [0.0, 1.0]}
    assert (nothing["tokens"], nothing["seconds"]) == (None, None)


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        # Newcombe, Two-sided confidence intervals for the single proportion, Statistics in Medicine 17, 1998, table I.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # What the benchmark before this one published, and the bounds: z² / (n + z²) is left of certainty.
        (2, 34, 0.016, 0.191),
        (0, 34, 0.0, 0.1015),
        (34, 34, 0.8985, 1.0),
    ],
)
def test_intervals_are_the_published_ones(hits: int, of: int, low: float, high: float) -> None:
    digits = 3 if (hits, of) == (2, 34) else 4
    assert tuple(round(end, digits) for end in Rate(hits, of).interval) == (low, high)


def test_each_end_of_an_interval_is_a_rate_at_which_the_count_is_just_as_far_off_as_z_allows() -> None:
    """Wilson's definition, exactly: (share - p)² n = z² p (1 - p) at both ends."""
    square = Fraction(Z) ** 2
    for of in (1, 2, 3, 34, 98, 1500):
        for hits in {0, 1, of // 3, of // 2, of - 1, of}:
            share = Fraction(hits, of)
            low, high = Rate(hits, of).interval
            assert low <= share <= high
            for end in map(Fraction, (low, high)):
                assert abs(float((share - end) ** 2 * of - square * end * (1 - end))) < 1e-12
            assert (low == 0, high == 1) == (hits == 0, hits == of)


def test_z_leaves_two_and_a_half_per_cent_at_either_side() -> None:
    assert pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-12) == Z


def test_misses_and_hits_have_mirrored_intervals() -> None:
    for hits in range(35):
        low, high = Rate(hits, 34).interval
        assert Rate(34 - hits, 34).interval == pytest.approx((1 - high, 1 - low), abs=1e-12)
