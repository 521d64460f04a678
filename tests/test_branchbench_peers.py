"""Mem0 and LangGraph as they are compared: what each supplies, and that nothing leaves the machine."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from branchmem.branchbench.methods import mem0
from branchmem.branchbench.methods.langgraph import LangGraphStore
from branchmem.branchbench.methods.mem0 import Mem0, Mem0Branch, Mem0Scripted, Mem0ScriptedBranch, exchanges
from branchmem.branchbench.methods.method import Method, Tools, Vectors
from branchmem.branchbench.models.chat import Reply, Request
from branchmem.branchbench.models.extraction import Read, Scripted
from branchmem.branchbench.models.summaries import Kept
from branchmem.branchbench.scenario import Scenario
from branchmem.errors import ExtraMissing
from branchmem.errors.branchbench import ModelUnavailable
from branchmem.events import Memory, Retraction, Scope
from branchmem.recall.tokens import estimate
from dialogues import fact, fit, said, telling

PACKAGES = ("mem0", "langgraph")
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in PACKAGES), reason="needs branchmem[branchbench]"
)

CHENGDU = "The user moves to Chengdu in March."
HANGZHOU = "The user moves to Hangzhou in March."
TURIN = "The user moves to Turin in March."
CAT = "The user's cat comes along."
QUESTION = "Where does the user move?"


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home that is empty before Mem0 is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(folder))
        patch.delenv("MEM0_TELEMETRY", raising=False)
        patch.delenv("MEM0_DIR", raising=False)
        mem0._main()
        yield folder


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something asks the network")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def embed(texts: Sequence[str]) -> Vectors:
    """Letter pairs, hashed: texts that share words are near."""
    rows = np.full((len(texts), 64), 0.1, np.float32)
    for row, text in zip(rows, texts, strict=True):
        for place in range(len(text) - 1):
            row[crc32(text[place : place + 2].lower().encode()) % 64] += 1
    unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def embed_query(text: str) -> Vectors:
    row: Vectors = embed([text])[0]
    return row


@dataclass
class Parrot:
    """A model that repeats what the user says in the new messages, or answers with `text`."""

    text: str | None = None
    completion_tokens: int = 9
    requests: list[Request] = field(default_factory=list)
    name: str = "parrot"

    def ask(self, request: Request) -> Reply:
        self.requests.append(request)
        asked = request.turns[-1].content
        new = asked.rpartition("## New Messages\n")[2].partition("\n\n## ")[0] if "## New Messages" in asked else asked
        heard = [line.removeprefix("user: ") for line in new.splitlines() if line.startswith("user: ")]
        text = json.dumps({"memory": [{"id": "0", "text": line} for line in heard]})
        return Reply(text if self.text is None else self.text, 1, self.completion_tokens, 0.0)


def tools(chat: Any = None, **changed: Any) -> Tools:
    plain = Tools(300, Scripted(), Kept(estimate), embed, embed_query, chat)
    return replace(plain, **changed)


def supplied(
    kind: type[Method], scenario: Scenario, anchor: str = "a1b", given: Tools | None = None, question: str = QUESTION
) -> set[str]:
    with closing(kind(scenario, given or tools())) as method:
        method.feed()
        return set(method.context(anchor, question))


def taking_back(scope: Scope, *, at: str = "u2b", id: str = "f1") -> Scenario:
    """The fit scenario, whose user goes on, on either branch, and takes something back on the second one."""
    return telling(
        said("u2", "a1", "Let us go on here."),
        said("a2", "u2"),
        said("u2b", "a1b", "Forget that."),
        Retraction("r1", at=at, scope=scope, memories=[id]),
        said("a2b", "u2b", "It is gone."),
    )


def test_mem0_tells_of_the_abandoned_branch_unless_it_is_fed_with_the_path_only() -> None:
    for kind in (Mem0Scripted, LangGraphStore):
        assert supplied(kind, fit()) == {CHENGDU, HANGZHOU}
    assert supplied(Mem0ScriptedBranch, fit()) == {HANGZHOU}
    assert supplied(Mem0, fit(), given=tools(Parrot())) >= {
        "I move to Chengdu in March.",
        "I move to Hangzhou in March.",
    }
    own = supplied(Mem0Branch, fit(), given=tools(Parrot()))
    assert own == {"I am planning my year.", "I move to Hangzhou in March."}


def test_a_branch_is_read_anew_where_the_conversation_stands_elsewhere() -> None:
    with closing(Mem0ScriptedBranch(fit(), tools())) as method:
        method.feed()
        assert [method.context(anchor, QUESTION) for anchor in ("a1b", "a1", "a0", "u1b")] == [
            [HANGZHOU],
            [CHENGDU],
            [],
            [HANGZHOU],
        ]


def test_mem0_is_fed_exchange_by_exchange_in_order_of_arrival() -> None:
    scenario = telling(
        said("a1c", "u1", "Chengdu is far."),
        fact("f3", "Chengdu is far.", "a1c"),
        said("u2", "a1c"),
        Retraction("r1", at="u2", scope="branch", memories=["f3"]),
        said("u2b", "a1b"),
        said("a2b", "u2b"),
    )

    def fed(kept: Any) -> list[list[list[str]]]:
        told = [(one.messages, one.facts, one.retractions) for one in exchanges(scenario, kept)]
        return [[[event.id for event in events] for events in each] for each in told]

    assert fed(scenario.messages) == [
        [["u0", "a0"], [], []],
        [["u1", "a1"], ["f1"], []],
        [["u1b", "a1b"], ["f2"], []],
        [["u1", "a1c"], ["f3"], []],
        [["u2"], [], ["r1"]],
        [["u2b", "a2b"], [], []],
    ]
    assert fed({"u0", "a0", "u1b"}) == [[["u0", "a0"], [], []], [["u1b"], ["f2"], ["r1"]]]


def test_a_model_hears_the_messages_and_what_is_already_known() -> None:
    chat = Parrot()
    supplied(Mem0, fit(), given=tools(chat))

    assert len(chat.requests) == 3
    system, user = chat.requests[-1].turns
    assert (system.role, user.role) == ("system", "user")
    assert "user: I move to Hangzhou in March.\nassistant: Noted as well.\n" in user.content
    assert '"text": "I move to Chengdu in March."' in user.content
    assert all(request.as_json and request.max_tokens == mem0.MAX_TOKENS for request in chat.requests)


def test_equal_input_asks_the_same_on_another_day(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    for day in ("2031-01-01", "2032-12-31"):
        monkeypatch.setattr("mem0.configs.prompts._resolve_dates", lambda *_, day=day: (day, day))
        chat = Parrot()
        supplied(Mem0, taking_back("tree"), given=tools(chat))
        asked.append(chat.requests)

    assert asked[0] == asked[1]
    assert asked[0][0].turns[1].content.count(mem0.DATE) == 2


def test_chinese_is_to_be_kept_in_chinese() -> None:
    for language, told in (("zh", True), ("en", False)):
        chat = Parrot()
        supplied(Mem0, fit(language), given=tools(chat))
        assert ("## Custom Instructions" in chat.requests[0].turns[1].content) is told


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("I cannot help with that.", set()),
        ("[1, 2]", set()),
        ('{"memory": "none"}', set()),
        ('{"memory": [{"text": 5}, "Plain.", null, {"id": "1", "text": "Kept."}, {"text": ""}]}', {"Plain.", "Kept."}),
        ('Here it is:\n```json\n{"memory": [{"text": "Fenced."}]}\n```', {"Fenced."}),
        ('{"memory": []}', set()),
    ],
)
def test_an_answer_that_is_no_json_is_counted_and_ends_nothing(answer: str, kept: set[str]) -> None:
    with closing(Mem0(fit(), tools(Parrot(answer)))) as method:
        method.feed()
        assert set(method.context("a1b", QUESTION)) == kept
        assert method.extraction is not None
        assert method.extraction.answers == 3
        assert method.extraction.unreadable == (3 if not kept and answer != '{"memory": []}' else 0)


def test_an_answer_that_was_cut_short_keeps_its_whole_entries() -> None:
    answer = '{"memory": [{"id": "0", "text": "Whole."}, {"id": "1", "text": "Also whole."}, {"id": "2", "te'

    assert supplied(Mem0, fit(), given=tools(Parrot(answer, mem0.MAX_TOKENS))) == {"Whole.", "Also whole."}
    assert supplied(Mem0, fit(), given=tools(Parrot(answer))) == set()


def test_a_model_or_an_embedder_that_fails_is_not_passed_over() -> None:
    class Silent(Parrot):
        def ask(self, request: Request) -> Reply:
            raise ModelUnavailable("silent", "it says nothing")

    def failing(texts: Sequence[str]) -> Vectors:
        if CHENGDU in texts:
            raise LookupError(CHENGDU)
        return embed(texts)

    with pytest.raises(ModelUnavailable, match="silent"):
        supplied(Mem0, fit(), given=tools(Silent()))
    with pytest.raises(LookupError, match="Chengdu"):
        supplied(Mem0Scripted, fit(), given=tools(embed=failing))
    with pytest.raises(ModelUnavailable, match="Mem0 asks a language model"):
        supplied(Mem0, fit())


@pytest.mark.parametrize("scope", ["tree", "everywhere", "branch"])
@pytest.mark.parametrize("kind", [Mem0Scripted, LangGraphStore])
def test_a_store_of_all_branches_deletes_what_goes_from_all_of_them(kind: type[Method], scope: Scope) -> None:
    assert (CHENGDU in supplied(kind, taking_back(scope), "a2b")) is (scope == "branch")
    assert (HANGZHOU in supplied(kind, taking_back(scope, id="f2"), "a2b")) is (scope == "branch")


def test_a_store_of_one_branch_deletes_what_goes_from_that_branch() -> None:
    for scope in ("branch", "tree", "everywhere"):
        assert supplied(Mem0ScriptedBranch, taking_back(scope, id="f2"), "a2b") == set()
        assert supplied(Mem0ScriptedBranch, taking_back(scope), "a2b") == {HANGZHOU}
        gone = supplied(Mem0ScriptedBranch, taking_back(scope), "a2")
        assert gone == ({CHENGDU} if scope == "branch" else set())


def test_a_delete_takes_what_states_the_fact_in_other_words() -> None:
    kept = supplied(Mem0, taking_back("tree"), "a2b", tools(Parrot()))

    assert kept == {"I am planning my year.", "I move to Hangzhou in March.", "Let us go on here.", "Forget that."}
    assert "I move to Chengdu in March." in supplied(Mem0, taking_back("branch"), "a2b", tools(Parrot()))


def test_what_is_told_again_after_a_delete_is_kept() -> None:
    again = telling(
        said("u2b", "a1b"),
        Retraction("r1", at="u2b", scope="everywhere", memories=["f1"]),
        said("a2b", "u2b"),
        said("u3b", "a2b", "Chengdu it is."),
        fact("f3", CHENGDU, "u3b"),
        said("a3b", "u3b"),
    )
    for kind in (Mem0Scripted, Mem0ScriptedBranch, LangGraphStore):
        assert CHENGDU in supplied(kind, again, "a3b")


def correcting(key: str | None) -> Scenario:
    return telling(
        said("u2b", "a1b", "No, Turin."),
        fact("f3", TURIN, "u2b", supersedes=["f2"], key=key),
        said("a2b", "u2b"),
    )


def test_mem0_only_adds_and_langgraph_puts_a_correction_in_the_place_of_the_old() -> None:
    assert supplied(Mem0Scripted, correcting(None), "a2b") == {CHENGDU, HANGZHOU, TURIN}
    for key in (None, "city"):
        assert supplied(LangGraphStore, correcting(key), "a2b") == {CHENGDU, TURIN}


def test_langgraph_keeps_one_item_a_subject_whatever_the_branch() -> None:
    scenario = fit()
    keyed = [replace(event, key="city") if isinstance(event, Memory) else event for event in scenario.events]

    for anchor in ("a1", "a1b"):
        assert supplied(LangGraphStore, replace(scenario, events=tuple(keyed)), anchor) == {HANGZHOU}


def test_langgraph_deletes_what_a_model_read_in_the_messages_that_are_meant() -> None:
    class Lines(Parrot):
        def ask(self, request: Request) -> Reply:
            return Reply("- A first line.\n- " + request.turns[-1].content, 1, 1, 0.0)

    read = tools(extractor=Read(Lines()))
    assert "I move to Chengdu in March." in supplied(LangGraphStore, fit(), given=read)
    assert "I move to Chengdu in March." not in supplied(LangGraphStore, taking_back("tree"), "a2b", read)


@pytest.mark.parametrize("kind", [Mem0Scripted, Mem0ScriptedBranch, LangGraphStore])
def test_the_nearest_come_first_and_keep_the_budget(kind: type[Method]) -> None:
    more = [fact(f"f{number}", f"The user likes the number {number}.", "u2b") for number in range(10, 50)]
    scenario = telling(said("u2b", "a1b"), *more, fact("f3", CAT, "u2b"), said("a2b", "u2b"))

    with closing(kind(scenario, tools(budget=60))) as method:
        method.feed()
        context = method.context("a2b", "Does the user's cat come along?")
        assert context[0] == CAT
        assert 40 < sum(map(estimate, context)) <= 60
    with closing(kind(scenario, tools(budget=10_000))) as method:
        method.feed()
        assert len(method.context("a2b", QUESTION)) == len(more) + (2 if kind is Mem0ScriptedBranch else 3)


def test_a_mem0_that_was_closed_is_handed_on_empty() -> None:
    other = telling(said("u2b", "a1b"), fact("f3", CAT, "u2b"))
    with closing(Mem0Scripted(fit(), tools())) as first, closing(Mem0Scripted(other, tools())) as second:
        first.feed()
        second.feed()
        assert set(first.context("a1b", QUESTION)) == {CHENGDU, HANGZHOU}
        assert set(second.context("u2b", QUESTION)) == {CHENGDU, HANGZHOU, CAT}
    with closing(Mem0ScriptedBranch(fit(), tools())) as third:
        third.feed()
        assert third.context("a0", QUESTION) == []


def test_nothing_is_written_at_home_and_the_environment_stays(home: Path) -> None:
    for kind in (Mem0Scripted, Mem0ScriptedBranch, LangGraphStore):
        supplied(kind, fit())

    assert list(home.iterdir()) == []
    assert "MEM0_TELEMETRY" not in os.environ
    assert "MEM0_DIR" not in os.environ
    assert sys.modules["mem0.memory.main"].MEM0_TELEMETRY is False
    assert sys.modules["mem0.memory.telemetry"].MEM0_TELEMETRY is False


def test_what_stands_for_mem0s_model_and_embedder_has_all_that_mem0_asks_for() -> None:
    llm = importlib.import_module("mem0.llms.base").LLMBase
    embedder = importlib.import_module("mem0.embeddings.base").EmbeddingBase

    assert llm.__abstractmethods__ <= set(dir(mem0.Script))
    assert llm.__abstractmethods__ <= set(dir(mem0.Extraction))
    assert {*embedder.__abstractmethods__, "embed_batch"} <= set(dir(mem0.Embedding))


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mem0.memory.main", None)
    monkeypatch.setitem(sys.modules, "langgraph.store.memory", None)
    mem0._main.cache_clear()

    for kind in (Mem0Scripted, LangGraphStore):
        with pytest.raises(ExtraMissing, match=r"pip install 'branchmem\[branchbench\]'"):
            supplied(kind, fit())
    mem0._main.cache_clear()
