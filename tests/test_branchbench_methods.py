"""What each method supplies of a conversation that branches: within the budget, with branchmem of no other branch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

import pytest
from branchmem.branchbench.methods import METHODS, Method, methods
from branchmem.branchbench.methods.branches import BranchmemBoth, BranchmemFacts, BranchmemSummaries
from branchmem.branchbench.methods.history import CurrentBranch, FullHistory
from branchmem.branchbench.methods.method import Vectors
from branchmem.branchbench.methods.oracle import Oracle
from branchmem.branchbench.methods.summary import RollingSummary, RollingSummaryBranch
from branchmem.branchbench.methods.vectors import NaiveVectors
from branchmem.branchbench.models.extraction import Extractor, Read, Scripted
from branchmem.branchbench.scenario import Language
from branchmem.errors.branchbench import UnknownMethod, UnknownProbe
from branchmem.events import Event, Retraction, Scope
from branchmem.recall.tokens import estimate
from hypothesis import given, settings
from hypothesis import strategies as st
from remembering import LANGUAGES, SAID, Counted, Echo, embed, fact, moving, retracting, short, supplied, tools, turn

ALONE: Final = [method for method in METHODS.values() if not method.requires]
BRANCHMEM: Final = [BranchmemFacts, BranchmemSummaries, BranchmemBoth]


@pytest.mark.parametrize("language", LANGUAGES)
class TestBothLanguages:
    @pytest.mark.parametrize("method", [CurrentBranch, *BRANCHMEM])
    def test_who_knows_the_branch_supplies_no_other_city(self, method: type[Method], language: Language) -> None:
        scenario, said = moving(language), SAID[language]

        for anchor, here, elsewhere in (("a4", "f1", "f3"), ("a3b", "f3", "f1")):
            context = supplied(method, scenario, anchor, said["question"])
            kept = said[here] if method in BRANCHMEM else said[scenario.facts[here].sources[0]]
            assert any(kept in line for line in context)
            assert not any(
                said[elsewhere] in line or said[scenario.facts[elsewhere].sources[0]] in line for line in context
            )

    @pytest.mark.parametrize("method", [FullHistory, RollingSummary, NaiveVectors])
    def test_who_knows_no_branch_supplies_both_cities(self, method: type[Method], language: Language) -> None:
        context = "\n".join(supplied(method, moving(language), "a3b", SAID[language]["question"]))

        for city in {"en": ("Chengdu", "Hangzhou"), "zh": ("成都", "杭州")}[language]:
            assert city in context

    @pytest.mark.parametrize("method", [BranchmemFacts, BranchmemBoth, BranchmemSummaries])
    def test_what_was_adopted_is_supplied_on_its_new_branch(self, method: type[Method], language: Language) -> None:
        said = SAID[language]

        context = supplied(method, moving(language), "a3b", said["f7"])

        assert said["f7"] in context
        assert said["f2"] not in context

    @pytest.mark.parametrize("method", BRANCHMEM)
    def test_a_superseded_fact_is_not_supplied(self, method: type[Method], language: Language) -> None:
        said = SAID[language]

        assert said["f6"] in supplied(method, moving(language), "a4", said["f6"])
        assert said["f5"] not in supplied(method, moving(language), "a4", said["f6"])
        assert said["f5"] in supplied(NaiveVectors, moving(language), "a4", said["f6"])

    def test_histories_name_who_spoke_oldest_first(self, language: Language) -> None:
        user, assistant = {"en": ("User: ", "Assistant: "), "zh": ("用户：", "助手：")}[language]
        said = SAID[language]

        context = supplied(CurrentBranch, moving(language), "a1b")

        assert context == [user + said["u0"], assistant + said["a0"], user + said["u1b"], assistant + said["a1b"]]

    def test_the_oracle_supplies_what_the_probe_needs(self, language: Language) -> None:
        said = SAID[language]

        assert supplied(Oracle, moving(language), "a3b", said["question"]) == [said["f3"]]
        with pytest.raises(UnknownProbe, match="a1b"):
            supplied(Oracle, moving(language), "a1b", said["question"])


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 250), st.sampled_from(LANGUAGES), st.sampled_from(ALONE))
def test_every_method_keeps_the_budget(budget: int, language: Language, method: type[Method]) -> None:
    scenario = moving(language, *retracting("branch", "f2"))

    context = supplied(method, scenario, "a3b", SAID[language]["question"], tools(budget))

    assert sum(map(estimate, context)) <= budget
    assert all(context)


@pytest.mark.parametrize("method", BRANCHMEM)
@pytest.mark.parametrize(("scope", "still_at"), [("branch", ("a3b", "a4")), ("tree", ()), ("everywhere", ())], ids=str)
def test_branchmem_supplies_what_was_taken_back_only_where_it_still_holds(
    method: type[Method], scope: Scope, still_at: tuple[str, ...]
) -> None:
    said = SAID["en"]
    scenario = moving("en", *retracting(scope, "f2"))

    held = {
        anchor
        for anchor in ("a5", "a4", "a3b")
        if {said["f2"], said["f7"]} & set(supplied(method, scenario, anchor, "Does the cat come along?"))
    }

    assert held == set(still_at)


@pytest.mark.parametrize(("scope", "deleted"), [("branch", False), ("tree", True), ("everywhere", True)], ids=str)
@pytest.mark.parametrize("extractor", [Scripted(), Read(Echo())], ids=["scripted", "read"])
def test_vector_memory_deletes_what_is_to_go_from_every_branch(
    extractor: Extractor, scope: Scope, deleted: bool
) -> None:
    given = tools(extractor=extractor)

    context = supplied(NaiveVectors, moving("en", *retracting(scope, "f2")), "a5", given=given)

    assert any("cat comes along" in line for line in context) is not deleted
    assert any("peanuts" in line for line in context)


def test_vector_memory_keeps_what_only_another_conversation_takes_back() -> None:
    talk = (turn("u1", None), fact("f1", "u1"), turn("u2", None))

    here = Retraction("r1", "u2", scope="tree", memories=["f1"])
    everywhere = Retraction("r1", "u2", scope="everywhere", memories=["f1"])

    assert supplied(NaiveVectors, short(*talk, here), "u1") == ["fact f1"]
    assert supplied(NaiveVectors, short(*talk, everywhere), "u1") == []


def test_facts_that_a_model_has_read_are_taken_back_by_their_messages() -> None:
    said = SAID["en"]
    before, after = moving("en"), moving("en", *retracting("tree", "f2"))

    for anchor, text in (("a4", said["u2"]), ("a3b", said["f7"])):  # read, and adopted from what was read
        assert text in supplied(BranchmemFacts, before, anchor, given=tools(extractor=Read(Echo())))
        assert text not in supplied(BranchmemFacts, after, anchor, given=tools(extractor=Read(Echo())))


def test_vector_memory_supplies_the_nearest_first() -> None:
    said = SAID["en"]

    context = supplied(NaiveVectors, moving("en"), "a4", said["f4"], tools(estimate(said["f4"]) + 1))

    assert context == [said["f4"]]


def test_a_rolling_summary_has_every_message_once() -> None:
    scenario, given = moving("en"), tools(80)
    assert isinstance(given.summariser, Counted)

    context = supplied(RollingSummary, scenario, "a4", given=given)

    lines = supplied(FullHistory, scenario, "a4")
    folded = [line for _, lines, _ in given.summariser.asked for line in lines]
    assert len(given.summariser.asked) > 1
    assert folded + context[-len(lines) + len(folded) :] == lines
    assert SAID["en"]["f1"] in context
    assert sum(map(estimate, lines[len(folded) :])) <= 40


def test_a_rolling_summary_of_a_branch_is_that_of_a_conversation_which_had_no_other() -> None:
    scenario, given = moving("en"), tools(30)
    path = {message.id for message in scenario.path("a4")}
    sources = {fact.id for fact in scenario.facts.values() if path.issuperset(fact.sources)}
    alone = [event for event in scenario.events if event.id in path | sources]

    here = supplied(RollingSummaryBranch, scenario, "a4", given=given)

    assert here == supplied(RollingSummary, replace(scenario, events=tuple(alone)), "a4", given=given)
    assert here != supplied(RollingSummary, scenario, "a4", given=given)
    assert SAID["en"]["f3"] not in "\n".join(here)


def test_a_short_dialogue_has_a_summary_at_the_end_of_each_branch() -> None:
    said = SAID["en"]

    at_the_ends = [supplied(BranchmemSummaries, moving("en"), anchor) for anchor in ("a2", "a3b", "a4")]

    assert at_the_ends == [[said[id] for id in ids] for ids in (("f1", "f2"), ("f3", "f4", "f7"), ("f1", "f2", "f6"))]


def test_an_older_summary_comes_back_when_a_newer_one_is_taken_back() -> None:
    talk = (
        *(turn("u1", None), fact("f1", "u1"), turn("a1", "u1")),
        *(turn("u2", "a1"), fact("f2", "u2", supersedes=["f1"]), turn("a2", "u2")),
        *(turn("u3", "a2"), fact("f3", "u3"), turn("a3", "u3")),
        *(turn("u2b", "a1"), turn("a2b", "u2b")),
    )
    taken_back = Retraction("r1", "u2b", scope="tree", memories=["f3"])

    assert supplied(BranchmemSummaries, short(*talk), "a3") == ["fact f2", "fact f3"]
    assert supplied(BranchmemSummaries, short(*talk, taken_back), "a3") == ["fact f2"]


@pytest.mark.parametrize("method", [BranchmemSummaries, BranchmemBoth])
def test_a_summary_that_comes_back_is_left_out_where_it_says_what_was_superseded(method: type[Method]) -> None:
    scenario = short(
        *(turn("u1", None), fact("f1", "u1"), turn("a1", "u1"), turn("a1b", "u1")),  # the old summary: f1
        *(turn("u2", "a1b"), fact("f2", "u2", supersedes=["f1"]), fact("f3", "u2"), turn("a2", "u2")),
        *(turn("u3b", "a1"), Retraction("r1", "u3b", scope="tree", memories=["f3"])),  # takes the new one along
    )

    assert supplied(BranchmemSummaries, scenario, "a1b") == ["fact f1"]
    assert "fact f1" not in supplied(method, scenario, "a2")


def test_a_summary_without_what_one_branch_took_back_is_not_read_on_another() -> None:
    scenario = short(
        *(turn("u1", None), fact("f1", "u1"), fact("f2", "u1"), turn("a1", "u1")),
        *(turn("u2", "a1"), fact("f3", "u2"), turn("a2", "u2")),
        *(turn("u2b", "a1"), Retraction("r1", "u2b", scope="branch", memories=["f1"]), turn("a2b", "u2b")),
    )

    assert supplied(BranchmemSummaries, scenario, "a2b") == ["fact f2"]
    assert supplied(BranchmemSummaries, scenario, "a2") == ["fact f1", "fact f2", "fact f3"]


def test_of_several_summaries_the_one_that_knows_most_is_read() -> None:
    scenario = short(
        *(turn("u1", None), fact("f1", "u1"), fact("f2", "u1"), turn("a1", "u1"), turn("a1b", "u1")),
        *(turn("u2", "a1b"), fact("f3", "u2"), fact("f4", "u2"), turn("a2", "u2")),
        *(turn("u3", "a2"), Retraction("r1", "u3", scope="branch", memories=["f1"]), turn("a3", "u3")),
    )

    assert supplied(BranchmemSummaries, scenario, "a2") == ["fact f2", "fact f3", "fact f4"]


def test_what_was_taken_back_is_summed_up_without_it_at_once() -> None:
    scenario = short(
        *(turn("u1", None), fact("f1", "u1"), fact("f2", "u1"), turn("a1", "u1")),
        *(turn("u2", "a1"), Retraction("r1", "u2", scope="tree", memories=["f1"]), turn("a2", "u2")),
        *(turn("u3", "a2"), fact("f3", "u3"), turn("a3", "u3")),
    )

    assert supplied(BranchmemSummaries, scenario, "a2") == ["fact f2"]
    assert supplied(BranchmemSummaries, scenario, "a3") == ["fact f2", "fact f3"]


def test_a_summary_replaces_those_before_it() -> None:
    with closing(BranchmemSummaries(moving("en"), tools())) as fed:
        fed.feed()

        assert [len(fed._store.at(leaf).memories(kind="summary")) for leaf in ("a4", "a3b")] == [1, 1]


def test_summaries_are_few() -> None:
    talk: list[Event] = []
    for place in range(40):
        parent = f"a{place - 1}" if place else None
        talk += [turn(f"u{place}", parent), fact(f"f{place}", f"u{place}"), turn(f"a{place}", f"u{place}")]
    given = tools()
    assert isinstance(given.summariser, Counted)

    supplied(BranchmemSummaries, short(*talk), "a39", given=given)

    assert [facts[-1] for _, _, facts in given.summariser.asked] == [f"fact f{place}" for place in (11, 23, 35, 39)]


def test_both_say_nothing_twice() -> None:
    said = SAID["en"]

    context = supplied(BranchmemBoth, moving("en"), "a4", said["question"])

    assert sorted(context) == sorted(said[id] for id in ("f1", "f2", "f6"))


def test_what_is_never_searched_costs_the_embedder_nothing() -> None:
    asked: list[str] = []

    def noting(texts: Sequence[str]) -> Vectors:
        asked.extend(texts)
        return embed(texts)

    supplied(BranchmemBoth, moving("en"), "a4", given=replace(tools(), embed=noting))

    assert sorted(asked) == sorted(SAID["en"][f"f{place}"] for place in range(1, 8))


@pytest.mark.parametrize("method", [method for method in ALONE if method is not Oracle])
def test_a_conversation_without_facts_is_no_mistake(method: type[Method]) -> None:
    assert bool(supplied(method, short(turn("u1", None)), "u1")) is (
        method in (FullHistory, CurrentBranch, RollingSummary, RollingSummaryBranch)
    )


def test_methods_stand_in_the_order_of_the_tables() -> None:
    assert list(METHODS) == [
        "full history",
        "current branch",
        "rolling summary",
        "rolling summary, current branch",
        "vector memory",
        "Mem0",
        "Mem0, current branch",
        "Mem0, scripted",
        "Mem0, scripted, current branch",
        "LangGraph store",
        "branchmem facts",
        "branchmem summaries",
        "branchmem",
        "oracle",
    ]
    assert methods() == list(METHODS.values())
    assert methods(["oracle", "full history", "oracle"]) == [FullHistory, Oracle]


def test_an_unknown_method_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownMethod, match=r"no method 'fullhistory': .*full history; current branch") as refused:
        methods(["oracle", "fullhistory"])

    assert refused.value.names == tuple(METHODS)


def test_naming_the_methods_loads_no_package_of_theirs() -> None:
    packages = "{'mem0', 'langgraph', 'qdrant_client'}"
    asked = f"import branchmem.branchbench.methods, sys; print(sorted({packages} & {{*sys.modules}}))"

    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"
