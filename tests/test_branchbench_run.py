"""A run asks every method every probe, refuses loudly what breaks the rules; time and death of a run lose nothing."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pytest
from branchmem.branchbench.measures import Row
from branchmem.branchbench.methods.method import Method, Tools, Vectors
from branchmem.branchbench.models.chat import Reply, Request, Turn
from branchmem.branchbench.models.extraction import Scripted
from branchmem.branchbench.models.summaries import Kept
from branchmem.branchbench.run import Bench, Deadline, Metered, TimeIsUp, rows, sample
from branchmem.branchbench.scenario import Language, Scenario
from branchmem.errors import UnknownEvent
from branchmem.errors.branchbench import ContextInvalid, ContextOverBudget, MethodAtFault, MethodFailed
from branchmem.recall.tokens import estimate
from dialogues import fit

BUDGET: Final = 20
closed: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_closed_yet() -> None:
    closed.clear()


class Everything(Method):
    name = "everything"
    line = "every fact that fits"

    def feed(self) -> None:
        self.held = [fact.text for fact in self.scenario.facts.values()]

    def context(self, anchor: str, question: str) -> list[str]:
        return self.tools.first_that_fit(self.held)

    def close(self) -> None:
        closed.append(f"{self.name} {self.scenario.id}")


class Nothing(Everything):
    name = "nothing"
    line = "no memory at all"

    def context(self, anchor: str, question: str) -> list[str]:
        return []


class First:
    """Answers with the first line of the context."""

    name = "first"

    def answer(self, language: Language, question: str, context: Sequence[str]) -> str:
        return context[0] if context else "?"


def nowhere(texts: Any) -> Vectors:
    return np.zeros((1, 1), np.float32)


def tools(**given: Any) -> Tools:
    plain = {"budget": BUDGET, "extractor": Scripted(), "summariser": Kept(estimate)}
    return Tools(**{**plain, "embed": nowhere, "embed_query": nowhere, **given})


def bench() -> Bench:
    return Bench(tools(), First())


def asking(language: Language, id: str, probes: int) -> Scenario:
    scenario = fit(language, id)
    return replace(
        scenario, probes=tuple(replace(scenario.probes[0], id=f"p{place}") for place in range(1, probes + 1))
    )


BOTH: Final[list[type[Method]]] = [Everything, Nothing]
SCENARIOS: Final = [asking("en", "one", 2), asking("zh", "two", 1), asking("en", "three", 1)]


def put(kind: type[Method], **given: Any) -> list[Row]:
    return list(Bench(tools(**given), First()).rows(SCENARIOS[0], [Nothing, kind]))


def test_rows_come_scenario_by_scenario_method_by_method_probe_by_probe() -> None:
    found = [[(row.scenario, row.method, row.probe) for row in of_one] for of_one in rows(SCENARIOS, BOTH, bench, 1)]
    assert found == [
        [
            ("one-en", "everything", "p1"),
            ("one-en", "everything", "p2"),
            ("one-en", "nothing", "p1"),
            ("one-en", "nothing", "p2"),
        ],
        [("two-zh", "everything", "p1"), ("two-zh", "nothing", "p1")],
        [("three-en", "everything", "p1"), ("three-en", "nothing", "p1")],
    ]


def test_a_row_has_the_context_its_tokens_and_what_they_give_away() -> None:
    fed, unfed = (of_method for of_method in put(Everything)[::-2])
    assert fed.context == ("The user moves to Chengdu in March.", "The user moves to Hangzhou in March.")
    assert fed.tokens == sum(map(estimate, fed.context)) <= BUDGET
    assert (fed.answer, fed.exposed, fed.leaked, fed.starved) == (fed.context[0], True, True, False)
    assert (unfed.context, unfed.tokens, unfed.exposed, unfed.starved) == ((), 0, False, True)


def test_every_method_is_closed_once_for_each_scenario() -> None:
    list(rows(SCENARIOS, BOTH, bench, 1))
    assert closed == [f"{kind.name} {scenario.id}" for scenario in SCENARIOS for kind in BOTH]


def test_several_processes_give_the_rows_of_one() -> None:
    def timeless(jobs: int) -> list[list[Row]]:
        return [[replace(row, seconds=0) for row in found] for found in rows(SCENARIOS, BOTH, bench, jobs)]

    assert timeless(2) == timeless(1)


class Chatty(Everything):
    name = "chatty"

    def context(self, anchor: str, question: str) -> list[str]:
        return self.held * 2


def test_a_context_over_the_budget_is_refused_and_never_cut() -> None:
    with pytest.raises(ContextOverBudget) as refused:
        put(Chatty)

    error = refused.value
    assert (error.method, error.scenario, error.probe, error.budget) == ("chatty", "one-en", "p1", BUDGET)
    assert error.tokens == 2 * sum(estimate(fact.text) for fact in SCENARIOS[0].facts.values()) > BUDGET
    for named in ("'chatty'", "'one-en'", "'p1'", str(error.tokens), str(BUDGET), "first_that_fit"):
        assert named in str(error)
    assert closed == ["nothing one-en", "chatty one-en"]


def test_a_context_of_just_the_budget_is_taken() -> None:
    needed = sum(estimate(fact.text) for fact in SCENARIOS[0].facts.values())
    assert put(Everything, budget=needed)[-1].tokens == needed


def supplying(context: Any) -> type[Method]:
    class Odd(Everything):
        name = "odd"

        def context(self, anchor: str, question: str) -> list[str]:
            return context  # type: ignore[no-any-return]

    return Odd


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ("The user moves.", "str"),
        (None, "NoneType"),
        (("The user moves.",), "tuple"),
        (["The user moves.", 3], "a list with int in it"),
        ([None], "a list with NoneType in it"),
        ([b"The user moves."], "a list with bytes in it"),
    ],
)
def test_a_context_that_is_no_list_of_texts_is_refused(context: Any, found: str) -> None:
    with pytest.raises(ContextInvalid) as refused:
        put(supplying(context))
    assert (refused.value.method, refused.value.scenario, refused.value.probe) == ("odd", "one-en", "p1")
    assert refused.value.found == found
    assert str(refused.value).endswith(f"must return a list of str, not {found}")
    assert closed == ["nothing one-en", "odd one-en"]


def failing(at: str, error: BaseException) -> type[Method]:
    class Faulty(Everything):
        name = "faulty"

        def __init__(self, scenario: Scenario, tools: Tools) -> None:
            super().__init__(scenario, tools)
            self.fail("made")

        def feed(self) -> None:
            self.fail("fed")

        def context(self, anchor: str, question: str) -> list[str]:
            self.fail("asked probe p1")
            return []

        def close(self) -> None:
            super().close()
            self.fail("closed")

        def fail(self, here: str) -> None:
            if here == at:
                raise error

    return Faulty


@pytest.mark.parametrize("at", ["made", "fed", "asked probe p1", "closed"])
def test_a_method_that_raises_is_named_with_the_scenario_and_what_it_was_at(at: str) -> None:
    cause = KeyError("u9")
    with pytest.raises(MethodFailed) as failed:
        put(failing(at, cause))

    error = failed.value
    assert (error.method, error.scenario, error.work, error.why) == ("faulty", "one-en", at, "KeyError: 'u9'")
    assert error.__cause__ is cause
    assert str(error).startswith(f"method 'faulty', scenario 'one-en', {at}: KeyError: 'u9'")
    assert closed == ["nothing one-en"] + ["faulty one-en"] * (at != "made")


def test_an_error_of_branchmem_itself_stays_what_it_is_and_notes_the_method() -> None:
    with pytest.raises(UnknownEvent) as failed:
        put(failing("fed", UnknownEvent("u9")))
    assert failed.value.__notes__ == ["method faulty, scenario one-en, fed"]
    assert closed == ["nothing one-en", "faulty one-en"]


def test_what_came_first_is_told_where_closing_fails_too() -> None:
    class Doomed(Everything):
        def context(self, anchor: str, question: str) -> list[str]:
            raise TimeIsUp

        def close(self) -> None:
            raise OSError("no space left")

    with pytest.raises(TimeIsUp):
        put(Doomed)


def test_a_run_that_is_not_read_to_its_end_closes_the_method_at_work() -> None:
    found = bench().rows(SCENARIOS[0], BOTH)
    next(found)
    assert isinstance(found, Iterator)
    found.close()  # type: ignore[attr-defined]
    assert closed == ["everything one-en"]


@pytest.mark.parametrize(
    "error",
    [
        MethodFailed("mine", "one", "fed", "KeyError: 1"),
        ContextInvalid("mine", "one", "p1", "str"),
        ContextOverBudget("mine", "one", "p1", 400, 300),
    ],
)
def test_refusals_reach_the_asking_process_whole(error: MethodAtFault) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert (vars(copied), str(copied)) == (vars(error), str(error))


ASKED: Final = Request((Turn("user", "Where to?"),))


class Clock:
    """A clock that stands still but for what is said to take time."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("branchmem.branchbench.run.time", clock)
    return clock


@dataclass
class Clerk:
    """Answers after `takes` seconds of the clock, and says that it once took `cost`."""

    cost: float = 0.0
    takes: float = 0.0
    clock: Clock = field(default_factory=Clock)
    name: str = "clerk"
    asked: int = 0

    def ask(self, request: Request) -> Reply:
        self.asked += 1
        self.clock.now += self.takes
        return Reply("Hangzhou.", 1, 1, self.cost)


def working(clock: Clock, *, made: int = 0, fed: int = 0, asked: int = 0, own: float = 0.0) -> type[Method]:
    class Working(Everything):
        """Asks the model so many times at each work, and takes `own` seconds beside that."""

        name = "working"

        def __init__(self, scenario: Scenario, tools: Tools) -> None:
            super().__init__(scenario, tools)
            self.work(made)

        def feed(self) -> None:
            self.work(fed)

        def context(self, anchor: str, question: str) -> list[str]:
            self.work(asked)
            return []

        def work(self, times: int) -> None:
            assert self.tools.chat is not None
            clock.now += own
            for _ in range(times):
                self.tools.chat.ask(ASKED)

    return Working


def seconds(clock: Clock, clerk: Clerk, scenario: Scenario, kind: type[Method]) -> list[float]:
    meter = Metered(clerk)
    return [row.seconds for row in Bench(tools(chat=meter), First(), meter).rows(scenario, [kind])]


def test_a_call_from_the_cache_counts_as_long_as_it_once_took(clock: Clock) -> None:
    clerk = Clerk(cost=10.0, takes=0.25, clock=clock)
    # Making it and six calls are for the scenario, half of each for each of two probes; three calls for the probe.
    found = seconds(clock, clerk, SCENARIOS[0], working(clock, made=2, fed=4, asked=3, own=1.0))
    assert found == [(1 + 1) / 2 + 1 + 10 * (6 / 2 + 3)] * 2
    assert clerk.asked == 2 + 4 + 2 * 3


def test_a_call_that_is_asked_now_counts_once(clock: Clock) -> None:
    clerk = Clerk(cost=0.5, takes=0.5, clock=clock)
    assert seconds(clock, clerk, SCENARIOS[1], working(clock, fed=1, asked=2)) == [1.5]


def test_what_the_answer_takes_is_not_the_methods_time(clock: Clock) -> None:
    meter = Metered(Clerk(cost=10.0, takes=0.25, clock=clock))

    class Asking(First):
        def answer(self, language: Language, question: str, context: Sequence[str]) -> str:
            return meter.ask(ASKED).text

    found = list(Bench(tools(chat=meter), Asking(), meter).rows(SCENARIOS[0], [working(clock, asked=1)]))
    assert [row.seconds for row in found] == [10.0, 10.0]
    assert (meter.cost, meter.waited) == (40.0, 1.0)


def test_after_the_deadline_the_model_is_asked_nothing_more() -> None:
    clerk = Clerk()
    assert Deadline(clerk, math.inf).ask(ASKED).text == "Hangzhou."
    with pytest.raises(TimeIsUp):
        Deadline(clerk, -math.inf).ask(ASKED)
    assert clerk.asked == 1


def test_no_framework_catches_the_end_of_time_as_one_more_error() -> None:
    assert not issubclass(TimeIsUp, Exception)


@dataclass
class Limited:
    """A clerk whose answers are kept, and whose time is up after so many new ones."""

    kept: dict[str, Reply]
    new: int

    name: str = "limited"

    def ask(self, request: Request) -> Reply:
        if repr(request) not in self.kept:
            until = math.inf if self.new > 0 else -math.inf
            self.kept[repr(request)] = Deadline(Clerk(), until).ask(request)
            self.new -= 1
        return self.kept[repr(request)]


class Curious(Everything):
    name = "curious"

    def context(self, anchor: str, question: str) -> list[str]:
        assert self.tools.chat is not None
        return [self.tools.chat.ask(Request((Turn("user", f"{self.scenario.id} {question}"),))).text]


def test_a_run_out_of_time_goes_on_where_it_stood() -> None:
    kept: dict[str, Reply] = {}

    def sitting(new: int) -> Callable[[], Bench]:
        return lambda: Bench(tools(chat=Limited(kept, new)), First())

    first: list[list[Row]] = []
    with pytest.raises(TimeIsUp):
        first.extend(rows(SCENARIOS, [Curious], sitting(1), 1))
    second = list(rows(SCENARIOS, [Curious], sitting(2), 1))

    assert closed == [f"curious {id}" for id in ("one-en", "two-zh", "one-en", "two-zh", "three-en")]
    assert [[row.answer for row in found] for found in second] == [["Hangzhou."] * 2, ["Hangzhou."], ["Hangzhou."]]
    assert len(kept) == 3


def many(language: Language, count: int, probes: int) -> list[Scenario]:
    return [asking(language, f"long-{place:04}", probes) for place in range(count)]


@pytest.mark.parametrize("probes", [0, 1, 4, 5, 6, 11, 40])
def test_a_sample_has_exactly_so_many_probes_of_both_languages_in_turn(probes: int) -> None:
    chosen = sample([*many("en", 10, 5), *many("zh", 10, 5)], probes)

    assert sum(len(scenario.asked) for scenario in chosen) == probes
    assert [scenario.language for scenario in chosen] == (["zh", "en"] * 10)[: len(chosen)]
    assert all(len(scenario.asked) == 5 for scenario in chosen[:-1])
    assert len({scenario.id for scenario in chosen}) == len(chosen)


def test_a_sample_does_not_depend_on_the_order_of_the_scenarios() -> None:
    every = [*many("en", 10, 5), *many("zh", 10, 5)]
    assert sample(every, 23) == sample(every[::-1], 23)


def test_a_larger_sample_holds_the_smaller() -> None:
    every = [*many("en", 10, 5), *many("zh", 10, 5)]
    small, large = sample(every, 20), sample(every, 40)
    assert large[: len(small)] == small


def test_a_sample_of_more_than_there_is_is_all_of_it() -> None:
    every = [*many("en", 3, 2), *many("zh", 1, 2)]
    assert sorted(scenario.id for scenario in sample(every, 99)) == sorted(scenario.id for scenario in every)


def test_a_sample_of_one_language_is_full_too() -> None:
    chosen = sample(many("en", 10, 5), 12)
    assert [len(scenario.asked) for scenario in chosen] == [5, 5, 2]
    assert [len(scenario.probes) for scenario in chosen] == [5, 5, 5]  # a method may not tell that it is a sample
