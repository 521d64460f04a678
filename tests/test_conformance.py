"""The named cases of the rule: exact reasons, in any order of arrival and any batches."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem.events import Event
from branchmem.reference import Reference

CASES = json.loads((Path(__file__).parent / "conformance" / "cases.json").read_text())
NAMED_POLICIES = {"strict": bm.STRICT, "compat": bm.COMPAT}


def policy_of(view: dict[str, Any]) -> bm.Policy:
    named = view.get("policy", "strict")
    if isinstance(named, str):
        return NAMED_POLICIES[named]
    return bm.Policy(bm.Reason(sum(bm.Reason[name] for name in named)))


def check(case: dict[str, Any], target: Any) -> int:
    """Ask every view of a case; returns how many verdicts and errors were as they must be."""
    checked = 0
    for view in case["views"]:
        if "error" in view:
            with pytest.raises(getattr(bm, view["error"])):
                target.at(view["anchor"])
            checked += 1
            continue
        at = target.at(view["anchor"], policy=policy_of(view))
        reasons = dict(zip(target.memory_ids, at.reasons().tolist(), strict=True))
        for id, expected in view["memories"].items():
            verdict = at.explain(id)
            assert sorted(verdict.reasons.names()) == sorted(expected["reasons"]), (id, view)
            assert reasons.get(id, verdict.reasons) == verdict.reasons, (id, view)
            assert verdict.visible is expected["visible"], (id, view)
            assert (id in at) is expected["visible"], (id, view)
            assert (id in at.ids()) is expected["visible"], (id, view)
            checked += 1
    return checked


def replay(case: dict[str, Any], target: Any, order: int) -> None:
    """Append the events of a case: in the order told, backwards, or shuffled by seed; in batches."""
    events: list[Event] = [bm.event_from_dict(form) for form in case["events"]]
    random = Random(f"{case['name']} {order}")
    print("order", order, "of", case["name"])
    if order == 1:
        events.reverse()
    elif order > 1:
        events += random.sample(events, len(events) // 4)
        random.shuffle(events)
    append = target.append if isinstance(target, bm.Store) else target.add
    while events:
        size = random.choice((1, 2, 4, len(events)))
        append(events[:size])
        del events[:size]


@pytest.mark.parametrize("order", range(6))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_case_in_any_order_and_batches(engine: Any, case: dict[str, Any], order: int) -> None:
    replay(case, engine, order)

    assert check(case, engine) > 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_case_on_disk(case: dict[str, Any]) -> None:
    reference = Reference()
    replay(case, reference, 0)
    for order in (1, 2):
        with closing(bm.open_temporary()) as store:
            replay(case, store, order)

            assert check(case, store) > 0
            assert store.digest() == reference.digest()


def test_all_51_cases_run() -> None:
    ran = {}
    for case in CASES:
        reference = Reference()
        replay(case, reference, 0)
        ran[case["name"]] = check(case, reference)

    assert len(ran) == len(CASES) == 51
    assert all(ran.values())


def test_every_reason_has_a_case() -> None:
    reasons = {
        name
        for case in CASES
        for view in case["views"]
        for expected in view.get("memories", {}).values()
        for name in expected["reasons"]
    }

    assert reasons == set(bm.Reason((1 << 16) - 1).names())
