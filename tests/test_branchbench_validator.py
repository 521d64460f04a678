"""A scenario that is no fair test is refused, each fault by a line that names the value; its fit twin passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from branchmem.branchbench.scenario import Scenario
from branchmem.branchbench.validator import check, findings
from branchmem.errors.branchbench import UnfitScenario
from branchmem.events import LEGACY, Erasure, Memory, Message, Retraction
from dialogues import fact, fit, instead, probing, said, telling


def corrected(text: str) -> Scenario:
    """A correction within the branch: the old value stands lawfully on the path, at u1b, and nowhere else."""
    return telling(
        said("u2", "a1b", text),
        fact("f3", "The user moves to Suzhou.", "u2", supersedes=["f2"]),
        said("a2", "u2"),
        anchor="a2",
        operation="correct",
        accepted=("Suzhou",),
        forbidden=("Hangzhou",),
        needs=("f3",),
        forbids=("f2",),
        contested="The old value stands on the path.",
    )


def adopted(adopts: str | None) -> Scenario:
    """The plan of the abandoned branch is taken over, by a message that does not repeat it."""
    return telling(
        said("u2", "a1b", "Take over the plan of the other branch."),
        fact("f3", "The user moves to Chengdu.", "u2", adopts=adopts),
        said("a2", "u2"),
        anchor="a2",
        operation="adopt",
        accepted=("Chengdu",),
        forbidden=(),
        needs=("f3",),
        forbids=(),
    )


def retracted(request: str) -> Scenario:
    """The move is taken back where the user asks for it; the same user has a cat."""
    return telling(
        said("u2", "a1b", "I have a cat."),
        fact("f3", "The user has a cat.", "u2"),
        said("a2", "u2"),
        said("u3", "a2", request),
        Retraction("r1", "u3", scope="branch", memories=["f2"]),
        said("a3", "u3"),
        anchor="a3",
        operation="retract_branch",
        accepted=("cat",),
        forbidden=("Hangzhou",),
        needs=("f3",),
        forbids=("f2",),
        contested="What was taken back stands on the path.",
    )


def taking_back(at: str, **what: Any) -> Scenario:
    """A retraction at the end, after message a1b."""
    return telling(Retraction("r1", at, scope="branch", **what))


def merged(first: str) -> Scenario:
    """What the answer needs was drawn from two messages, by way of another fact."""
    return telling(
        said("u2", "a1b", first),
        fact("f3", "The user is a vet.", "u2"),
        said("a2", "u2"),
        said("u3", "a2", "The clinic is small."),
        fact("f4", "The user is a vet in a small clinic.", "u3", derived_from=["f3"]),
        anchor="u3",
        accepted=("vet",),
        needs=("f4",),
    )


FIT: dict[str, Scenario] = {
    "an edited message": fit(),
    "the same in Chinese": fit("zh"),
    "a control": probing(forbidden=(), forbids=()),
    "a correction that does not repeat the old value": corrected("Suzhou it is."),
    "an adoption": adopted("f1"),
    "a retraction that does not repeat what it takes back": retracted("Forget the move."),
    "a needed fact that derives from another": merged("I am a vet."),
    "a second conversation in Long": replace(telling(said("u9", None)), id="long-0001-en", part="long"),
    "two answers in a row": telling(said("a2", "a1b")),
    "forms that contain each other": probing(accepted=("Hangzhou|in Hangzhou",)),
    "a keyword within a longer word of another": probing(accepted=("Hangzhou", "hang")),
    "a second fact after one message": telling(fact("f3", "A move is planned.", "u1b"), before="a1b"),
}


@pytest.mark.parametrize("name", FIT)
def test_a_fit_scenario_passes(name: str) -> None:
    assert [str(finding) for finding in findings([FIT[name]])] == []


#: By refusal: an unfit scenario beside what it must be told.
UNFIT: dict[str, tuple[Scenario, str]] = {
    # 1: the question
    "1 an accepted word in the question": (
        probing(question="Does the user move to HANGZHOU?"),
        "accepted 'Hangzhou' stands in the question: 'Does the user move to HANGZHOU?'",
    ),
    "1 a forbidden word in the question": (
        probing(question="Is it still Chengdu?"),
        "forbidden 'Chengdu' stands in the question: 'Is it still Chengdu?'",
    ),
    # 2: the branch states it as well
    "2 a visible fact states it": (
        telling(said("u2", "a1b"), fact("f3", "Chengdu has a zoo.", "u2"), anchor="u2"),
        "forbidden 'Chengdu' stands in f3, which is visible at u2: 'Chengdu has a zoo.'",
    ),
    "2 a message on the path states it": (
        telling(said("u2", "a1b", "Chengdu has a zoo."), anchor="u2"),
        "forbidden 'Chengdu' stands in u2 on the path to u2: 'Chengdu has a zoo.'",
    ),
    "2 the correcting message repeats the old value": (
        corrected("Suzhou, not Hangzhou."),
        "forbidden 'Hangzhou' stands in u2 on the path to a2: 'Suzhou, not Hangzhou.'",
    ),
    "2 the request to forget repeats it": (
        retracted("Forget Hangzhou."),
        "forbidden 'Hangzhou' stands in u3 on the path to a3: 'Forget Hangzhou.'",
    ),
    # 3: keywords in each other
    "3 an accepted word in a forbidden one": (
        probing(accepted=("Hangzhou", "March"), forbidden=("Chengdu in March",)),
        "keyword 'March' is contained in 'Chengdu in March' (chengdu in march)",
    ),
    "3 a form in a form": (
        probing(accepted=("Hangzhou|to Hangzhou", "x|Hangzhou in March")),
        "keyword 'Hangzhou|to Hangzhou' is contained in 'x|Hangzhou in March' (hangzhou in march)",
    ),
    "3 equal keywords": (
        probing(accepted=("Hangzhou", "ＨＡＮＧＺＨＯＵ")),
        "keyword 'Hangzhou' is contained in 'ＨＡＮＧＺＨＯＵ' (hangzhou)",
    ),
    # 4: the answer is not on the path
    "4 no needed fact": (probing(needs=()), "it needs no fact, so its answer is nowhere on the path"),
    "4 a needed fact on another branch": (
        probing(needs=("f2", "f1"), accepted=("March",), forbidden=(), forbids=()),
        "needed fact f1 is not visible at a1b: source u1 is on a sibling branch that parts from the path at a0",
    ),
    "4 a needed fact that bears no accepted word": (
        probing(accepted=("Suzhou",)),
        "needed fact f2 bears no accepted keyword of Suzhou: 'The user moves to Hangzhou in March.'",
    ),
    "4 no source bears an accepted word": (
        instead(said("u1b", "a0", "I move to the city of West Lake.")),
        "no source of needed fact f2 on the path (u1b) bears an accepted keyword of Hangzhou",
    ),
    "4 an effective source that does not bear it either": (
        merged("I look after animals."),
        "no source of needed fact f4 on the path (u2, u3) bears an accepted keyword of vet",
    ),
    "4 a fact that adopts nothing": (
        adopted(None),
        "no source of needed fact f3 on the path (u2) bears an accepted keyword of Chengdu",
    ),
    # 5: what is forbidden
    "5 a forbidden fact that is visible": (
        probing(forbids=("f1", "f2")),
        "forbidden fact f2 is visible at a1b: 'The user moves to Hangzhou in March.'",
    ),
    "5 a forbidden fact that bears no forbidden word": (
        probing(forbidden=("Suzhou",)),
        "forbidden fact f1 bears no forbidden keyword of Suzhou: 'The user moves to Chengdu in March.'",
    ),
    "5 a forbidden word that no forbidden fact bears": (
        probing(forbidden=("Chengdu", "Suzhou")),
        "forbidden 'Suzhou' stands in no forbidden fact of f1",
    ),
    "5 a forbidden word that its fact denies": (
        instead(fact("f1", "The user does not move to Chengdu.", "u1")),
        "forbidden 'Chengdu' is only denied in f1: 'The user does not move to Chengdu.'",
    ),
    "5 forbidden words without facts": (
        probing(forbids=()),
        "forbidden keywords Chengdu and forbidden facts none go together: name both or neither",
    ),
    "5 forbidden facts without words": (
        probing(forbidden=()),
        "forbidden keywords none and forbidden facts f1 go together: name both or neither",
    ),
    "5 a fact both needed and forbidden": (probing(needs=("f2", "f1")), "fact f1 is both needed and forbidden"),
    # 6: duplicates within a scenario
    "6 an event id twice": (telling(said("a1", "u1b")), "a second event has the id a1"),
    "6 a probe id twice": (replace(fit(), probes=fit().probes * 2), "2 probes have this id"),
    "6 a question twice": (
        replace(
            fit(), probes=(fit().probes[0], replace(fit().probes[0], id="p2", question="WHERE does the user move?"))
        ),
        "it asks at a1b what p1 asks there",
    ),
    # 7: structure
    "7 an unknown operation": (probing(operation="undo"), "operation 'undo' is none of edit, regenerate, "),
    "7 an anchor that is no message": (probing(anchor="f2"), "anchor 'f2' is no message"),
    "7 a needed fact that is none": (probing(needs=("f2", "u1b")), "it names 'u1b', which is no fact"),
    "7 a forbidden fact that is none": (probing(forbids=("f1", "f9")), "it names 'f9', which is no fact"),
    "7 no question": (probing(question=" "), "it has no question"),
    "7 nothing accepted": (probing(accepted=()), "it accepts nothing"),
    "7 an empty form": (probing(accepted=("Hangzhou|",)), "keyword 'Hangzhou|' has an empty form"),
    "7 an empty doubt": (probing(contested=""), "contested is empty: say why, or null"),
    "7 no probe": (replace(fit(), probes=()), "it has no probe"),
    "7 a fact before its source": (
        telling(fact("f3", "There is a plan.", "a1b"), before="a1b"),
        "f3 has the source a1b, which is no message before it",
    ),
    "7 a fact with a source that is a fact": (
        telling(fact("f3", "There is a plan.", "f2")),
        "f3 has the source f2, which is no message before it",
    ),
    "7 a fact without a source": (telling(Memory("f3", "There is a plan.")), "f3 has no source"),
    "7 a late fact": (
        telling(fact("f3", "There is a plan.", "u1b")),
        "f3 stands after message a1b, which is none of its sources: u1b",
    ),
    "7 a fact that replaces an unknown one": (
        telling(fact("f3", "There is a plan.", "a1b", supersedes=["f9"])),
        "f3 refers to f9, which is no fact before it",
    ),
    "7 a fact without text": (telling(fact("f3", "  ", "a1b")), "f3 has no text"),
    "7 a summary": (
        telling(fact("f3", "There is a plan.", "a1b", kind="summary")),
        "f3 is a memory of kind 'summary', not a fact",
    ),
    "7 a message without text": (telling(said("u2", "a1b", None)), "u2 has no text"),
    "7 a message with an empty text": (telling(said("u2", "a1b", "\n")), "u2 has no text"),
    "7 a message without a role": (
        telling(Message("u2", "a1b", text="Fine.")),
        "u2 has the role None, which is none of user, assistant",
    ),
    "7 a message with another role": (
        telling(said("u2", "a1b", role="tool")),
        "u2 has the role 'tool', which is none of user, assistant",
    ),
    "7 two messages of the user in a row": (
        telling(said("u2", "u1b")),
        "u2 is the second message of the user in a row, after u1b",
    ),
    "7 an unknown parent": (telling(said("u2", "a9")), "u2 has the parent 'a9', which is no message before it"),
    "7 a parent that comes later": (
        telling(said("u2", "a1b"), before="a1b"),
        "u2 has the parent 'a1b', which is no message before it",
    ),
    "7 a message of unknown parent": (
        telling(said("u2", LEGACY)),
        "u2 has the parent branchmem.LEGACY, which is no message before it",
    ),
    "7 a second root in Classic": (telling(said("u2", None)), "u2 is a second root beside u0: let it branch off below"),
    "7 another kind of event": (
        telling(Erasure("e1", ["f1"])),
        "e1 is of type erasure: only messages, facts and retractions make a scenario",
    ),
    "7 a retraction at no message": (
        taking_back("u9", memories=["f1"]),
        "r1 stands at u9, which is no message before it",
    ),
    "7 a retraction in another place than it says": (
        taking_back("u1b", memories=["f1"]),
        "r1 stands at u1b but after message a1b",
    ),
    "7 a retraction of what there is not": (
        taking_back("a1b", memories=["f9"]),
        "r1 takes back f9, which is no fact before it",
    ),
    "7 a retraction of a source that there is not": (
        taking_back("a1b", sources=["u9"]),
        "r1 takes back what came from u9, which is no message before it",
    ),
    "7 a retraction of a key that no fact bears": (
        taking_back("a1b", keys=["city"]),
        "r1 takes back the key 'city', which no fact before it bears",
    ),
    "7 an id without its language": (replace(fit(), id="classic-moving"), "its id does not end in -en, its language"),
    "7 another language": (
        replace(fit(), id="classic-moving-fr", language="fr"),  # type: ignore[arg-type]
        "language 'fr' is none of zh, en",
    ),
    "7 another part": (replace(fit(), part="short"), "part 'short' is neither"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", UNFIT)
def test_an_unfit_scenario_is_refused_and_the_value_at_fault_is_named(name: str) -> None:
    scenario, what = UNFIT[name]

    found = [str(finding) for finding in findings([scenario])]

    assert any(line.startswith(scenario.id) and what in line for line in found), found
    assert all("\n" not in line for line in found)


def test_a_refusal_names_the_scenario_and_the_probe() -> None:
    assert [str(finding) for finding in findings([probing(question="Still Chengdu?")])] == [
        "classic-moving-en p1: forbidden 'Chengdu' stands in the question: 'Still Chengdu?'"
    ]


def test_check_raises_one_error_with_everything_that_is_refused() -> None:
    unfit = [probing(question="Chengdu?"), replace(probing(operation="undo"), id="long-0001-en", part="long")]

    with pytest.raises(UnfitScenario) as refused:
        check(unfit)

    assert len(refused.value.findings) == 3
    assert "Chengdu?" in str(refused.value)
    assert "undo" in str(refused.value)
    assert "its messages are word for word those of classic-moving-en" in str(refused.value)
    check([fit(), fit("zh")])


def test_scenarios_of_one_id_are_refused() -> None:
    found = [str(finding) for finding in findings([fit(), replace(fit(), topic="another")])]

    assert "classic-moving-en: 2 scenarios have this id" in found


def test_scenarios_of_equal_texts_are_refused_though_their_ids_differ() -> None:
    assert [str(finding) for finding in findings([fit(), fit(id="classic-house")])] == [
        "classic-house-en: its messages are word for word those of classic-moving-en"
    ]


def test_twins_of_one_structure_pass() -> None:
    assert findings([fit("zh"), fit("en")]) == []


@pytest.mark.parametrize(
    ("english", "what"),
    [
        (probing(operation="fork"), "probe p1 differs from its twin classic-moving-zh: operation 'fork' and 'edit'"),
        (probing(anchor="u1b"), "probe p1 differs from its twin classic-moving-zh: anchor 'u1b' and 'a1b'"),
        (probing(contested="It may be."), "probe p1 differs from its twin classic-moving-zh: contested True and False"),
        (telling(said("a2", "a1b")), "a2 differs from its twin classic-moving-zh: that one has none"),
        (
            telling(said("a2", "a1b"), fact("f3", "Noted.", "a2", supersedes=["f2"])),
            "f3 differs from its twin classic-moving-zh: that one has none",
        ),
        (
            instead(said("a1b", "a1")),
            "a1b differs from its twin classic-moving-zh: parent 'a1' and 'u1b'",
        ),
        (
            replace(fit(), events=(*fit().events[:3], *fit().events[4:5], fit().events[3], *fit().events[5:])),
            "its events stand in another order than those of its twin classic-moving-zh",
        ),
    ],
)
def test_twins_that_differ_in_more_than_their_texts_are_refused(english: Scenario, what: str) -> None:
    assert f"classic-moving-en: {what}" in [str(finding) for finding in findings([fit("zh"), english])]


def test_a_scenario_that_cannot_be_read_is_told_its_structure_alone() -> None:
    unreadable = telling(said("u2", "a9"), question="Chengdu?")

    assert [str(finding) for finding in findings([unreadable])] == [
        "classic-moving-en: u2 has the parent 'a9', which is no message before it"
    ]
