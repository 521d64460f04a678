"""An agent in a session: an answer is written with what is visible, and what fails is as if it had never been asked."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.agent import Agent, Answer
from branchmem.chat import Reply
from branchmem.errors import BadMove, InvalidEvent, RefMoved, StepEnded, UnknownEvent
from branchmem.errors.agent import ForeignSession, InvalidModel, NoAnswer, ToolRefused, TurnEndless
from branchmem.extract import Extracted, Found, Shown, extract
from branchmem.session import Session
from branchmem.skills import Skill
from completions import Scripted, Streaming, calling

pytestmark = pytest.mark.usefixtures("without_disk")


@pytest.fixture
def session() -> Iterator[Session]:
    with bm.open_temporary() as store:
        yield store.session("chat")


def said(session: Session, at: str | None = None) -> list[tuple[str | None, str | None]]:
    """Role and text of each message of a path, below its root."""
    store = session.store
    path = [store.log.get(id) for id in store.tree.path(at or session.head)[1:]]
    return [(message.role, message.text) for message in path if isinstance(message, bm.Message)]


def role(session: Session, id: str) -> str | None:
    message = session.store.log.get(id)
    return message.role if isinstance(message, bm.Message) else None


def texts(session: Session, at: str | None = None) -> list[str]:
    """What is visible, in the order of the alphabet."""
    return sorted(memory.text for memory in session.store.at(at or session.head).memories())


def repeat(shown: Shown) -> list[Found]:
    """An extractor: each message says one thing."""
    return [Found(f"{message.role}: {message.text}", sources=(message.id,)) for message in shown.messages]


def learn(what: str) -> str:
    """Learn something."""
    bm.current_step().remember(what)
    return f"learned {what}"


def test_the_name_of_a_model_is_no_model(session: Session) -> None:
    with pytest.raises(InvalidModel, match=r"gpt-5-mini.*Chat"):
        Agent(session, "gpt-5-mini")  # type: ignore[arg-type]  # what is refused


def test_a_turn_is_what_the_user_said_and_the_answer(session: Session) -> None:
    model = Scripted("Chengdu.", "By train.")
    agent = Agent(session, model, system="Be brief.")
    first = agent.send("Where to?")
    assert (str(first), first.id, first.finish, first.prompt_tokens) == ("Chengdu.", session.head, "stop", 2)
    agent.send("How?")
    assert said(session) == [
        ("user", "Where to?"),
        ("assistant", "Chengdu."),
        ("user", "How?"),
        ("assistant", "By train."),
    ]
    assert model.asked[1] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where to?"},
        {"role": "assistant", "content": "Chengdu."},
        {"role": "user", "content": "How?"},
    ]


def test_what_is_recalled_stands_behind_the_instructions_and_in_the_receipt(session: Session) -> None:
    session.say("user", "I live in Chengdu.", id="u0")
    home = session.remember("The user lives in Chengdu.", sources=["u0"])
    model = Scripted("In Chengdu.", "Hm.")
    answer = Agent(session, model, system="Be brief.").send("Where do I live, in Chengdu?")
    system = model.asked[0][0]["content"]
    assert system.startswith("Be brief.\n\n")
    assert home.text in system
    message = session.store.log.get(answer.id)
    assert isinstance(message, bm.Message)
    assert message.meta["recalled"] == (home.id,)
    assert answer.recalled is not None
    assert answer.recalled.ids == (home.id,)
    assert Agent(session, model, recall=None).send("And in Chengdu?").recalled is None
    assert [form["role"] for form in model.asked[1]] == ["user", "user", "assistant", "user"]


def test_a_skill_is_called_up_by_the_message_and_by_the_files_that_are_worked_on(session: Session) -> None:
    docker = Skill(
        "docker", "Build images.", body="Use slim images.", trigger_keywords=("docker",), glob_patterns=("Dockerfile",)
    )
    model = Scripted("One.", "Two.", "Three.")
    agent = Agent(session, model, skills=iter([docker]))
    for text, paths, known in (("Build docker images", (), 1), ("Go on", ["Dockerfile"], 1), ("Thanks", (), 0)):
        agent.send(text, paths=paths)
        assert sum("Use slim images." in str(form["content"]) for form in model.asked[-1]) == known


def test_edit_regenerate_fork_and_switch_see_their_own_branch_and_no_other(session: Session) -> None:
    model = Scripted(*(f"Answer {number}." for number in range(9)))
    agent = Agent(session, model, extractor=repeat)
    first = agent.send("I like tea.")
    user = session.store.tree.parent(first.id)
    assert texts(session) == ["assistant: Answer 0.", "user: I like tea."]
    edited = agent.edit(str(user), "I like coffee.")
    assert texts(session) == ["assistant: Answer 1.", "user: I like coffee."]
    again = agent.regenerate()
    assert texts(session) == ["assistant: Answer 2.", "user: I like coffee."]
    assert session.store.tree.parent(again.id) == session.store.tree.parent(edited.id)
    assert agent.switch(first.id) == first.id
    assert texts(session) == ["assistant: Answer 0.", "user: I like tea."]
    other = agent.fork("other")
    other.send("And cake.")
    assert texts(other.session)[1:3] == ["assistant: Answer 3.", "user: And cake."]
    assert texts(session) == ["assistant: Answer 0.", "user: I like tea."]
    for form in ("coffee", "Answer 1", "Answer 2"):
        assert form not in str(model.asked[3])


def test_a_message_that_was_not_answered_is_answered(session: Session) -> None:
    session.say("user", "Hello?", id="u1")
    answer = Agent(session, Scripted("Here.")).regenerate()
    assert session.store.tree.parent(answer.id) == "u1"


def test_what_was_erased_is_not_passed_over_for_an_earlier_question(session: Session) -> None:
    for id, role in {"u1": "user", "a1": "assistant", "u2": "user"}.items():
        session.say(role, id, id=id)
    session.store.erase(["u2"])
    with pytest.raises(BadMove, match="message u2 was erased, and may be what is to be answered: rewind above it"):
        Agent(session, Scripted("Here.")).regenerate()
    assert session.head == "u2"


def test_what_cannot_be_edited_or_answered_is_refused(session: Session) -> None:
    agent = Agent(session, Scripted("One."))
    with pytest.raises(BadMove, match="no message with role user"):
        agent.regenerate()
    answer = agent.send("Hello")
    with pytest.raises(BadMove, match="is not the user's"):
        agent.edit(answer.id, "Other")
    with pytest.raises(UnknownEvent):
        agent.edit("nowhere", "Other")
    elsewhere = session.store.session("elsewhere").say("user", "Hi")
    with pytest.raises(BadMove, match="another tree"):
        agent.edit(elsewhere, "Other")
    assert session.head == answer.id


VERBS: list[Callable[[Agent, str], Any]] = [
    lambda agent, user: agent.send("Next"),
    lambda agent, user: agent.edit(user, "Other"),
    lambda agent, user: agent.regenerate(),
    lambda agent, user: list(agent.stream("Next")),
]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("failing", [bm.EndpointFailed("url", "gone"), KeyboardInterrupt(), Reply("", finish="length")])
def test_a_call_that_fails_leaves_nothing_that_a_retry_sees(
    session: Session, verb: Callable[[Agent, str], Any], failing: Any
) -> None:
    model = Streaming("Hello.", Reply("", (calling("learn", '{"what": "secret"}'),)), failing, "Fine.", "Fine.")
    agent = Agent(session, model, tools=[learn], extractor=repeat)
    first = agent.send("Hi")
    before, moves = texts(session), len(session.store.refs.log("chat"))
    user = str(session.store.tree.parent(first.id))
    with pytest.raises((bm.EndpointFailed, KeyboardInterrupt, NoAnswer)):
        verb(agent, user)
    assert (session.head, texts(session)) == (first.id, before)
    assert len(session.store.refs.log("chat")) == moves
    verb(agent, user)
    assert "secret" not in str(model.asked[-1])
    assert [text for text in texts(session) if "secret" in text] == []
    assert model.asked[-1] == model.asked[1]


def test_a_stream_that_is_closed_is_a_call_that_failed(session: Session) -> None:
    agent = Agent(session, Streaming("One two three.", "Again."))
    head = session.head
    pieces = agent.stream("Count")
    assert [next(pieces), next(pieces)] == ["One ", "two "]
    pieces.close()
    assert session.head == head
    agent.send("Count")
    assert said(session) == [("user", "Count"), ("assistant", "Again.")]


def test_a_stream_gives_pieces_and_at_last_the_answer(session: Session) -> None:
    pieces = list(Agent(session, Streaming("One two.")).stream("Count"))
    assert pieces[:-1] == ["One ", "two. "]
    assert isinstance(pieces[-1], Answer)
    assert pieces[-1].id == session.head
    assert next(Agent(session, Scripted("Whole.")).stream("Count")) == "Whole."


def test_tools_are_called_and_their_results_are_messages_of_the_path(session: Session) -> None:
    calls = (calling("learn", '{"what": "tea"}', "c1"), calling("learn", '{"what": "cake"}', "c2"))
    model = Scripted(Reply("I learn.", calls, "tool_calls", 5, 5), "Done.", "Bye.")
    agent = Agent(session, model, tools=[learn])
    answer = agent.send("Learn")
    assert (answer.calls, answer.text, answer.prompt_tokens) == (calls, "Done.", 7)
    assert said(session) == [
        ("user", "Learn"),
        ("assistant", "I learn."),
        ("tool", "learned tea"),
        ("tool", "learned cake"),
        ("assistant", "Done."),
    ]
    assert [memory.text for memory in answer.memories] == ["tea", "cake"]
    assert {memory.sources for memory in answer.memories} == {(answer.id,)}
    assert model.tools[0] == ["learn"]
    agent.send("Bye")
    assert [form["role"] for form in model.asked[2]] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert model.asked[2][:4] == model.asked[1]


def test_what_a_rejected_answer_learned_by_tools_stays_with_it(session: Session) -> None:
    model = Scripted(Reply("", (calling("learn", '{"what": "tea"}'),)), "Done.", "Other.")
    agent = Agent(session, model, tools=[learn])
    first = agent.send("Learn")
    agent.regenerate()
    assert texts(session) == []
    agent.switch(first.id)
    assert texts(session) == ["tea"]


def test_a_call_that_does_not_fit_is_told_to_the_model(session: Session) -> None:
    def picky(what: str) -> str:
        raise ToolRefused("picky", f"{what} is not for sale")

    wrong = ["{", "[]", "{}", '{"what": 4}', '{"what": "a", "more": 1}']
    calls = [*(calling("learn", arguments, f"c{at}") for at, arguments in enumerate(wrong))]
    calls += [calling("nothing", id="c8"), calling("picky", '{"what": "tea"}', "c9")]
    agent = Agent(session, Scripted(Reply("", tuple(calls)), "I see."), tools=[learn, picky])
    agent.send("Go")
    told = [text for role, text in said(session) if role == "tool"]
    assert all(text is not None and text.startswith("Refused: ") for text in told)
    assert "there is no such tool, only learn, picky" in str(told[-2])
    assert "tea is not for sale" in str(told[-1])
    assert texts(session) == []


def test_what_a_tool_raises_ends_the_turn(session: Session) -> None:
    def broken() -> str:
        raise OSError("disk")

    agent = Agent(session, Scripted(Reply("", (calling("broken"),))), tools=[broken])
    head = session.head
    with pytest.raises(OSError, match="disk"):
        agent.send("Go")
    assert session.head == head


def test_a_model_that_only_calls_tools_is_stopped(session: Session) -> None:
    model = Scripted(*(Reply("", (calling("learn", '{"what": "tea"}'),)) for _ in range(9)))
    head = session.head
    with pytest.raises(TurnEndless, match="after 3 replies"):
        Agent(session, model, tools=[learn], max_rounds=3).send("Go")
    assert (len(model.asked), session.head) == (3, head)


def test_an_interleaved_stream_ties_what_its_tool_learns_to_its_own_answer(session: Session) -> None:
    def streams(name: str, what: str) -> tuple[Session, Iterator[Any]]:
        model = Streaming(Reply("One two.", (calling("learn", f'{{"what": "{what}"}}'),)), "Done now.")
        own = session.store.session(name)
        return own, Agent(own, model, tools=[learn]).stream("Go")

    (one, first), (other, second) = streams("one", "tea"), streams("other", "cake")

    def read_in_turns() -> None:
        for _ in range(9):
            next(first, None)
            next(second, None)

    copy_context().run(read_in_turns)  # which keeps the step of who ended first
    assert (texts(one), texts(other)) == (["tea"], ["cake"])


def test_who_is_moved_meanwhile_is_told_and_its_answer_is_kept_apart(session: Session) -> None:
    def moving() -> str:
        session.store.refs.move("chat", session.store.tree.roots()[0])
        return "Answer."

    agent = Agent(session, Scripted("One.", moving))
    agent.send("Hi")
    with pytest.raises(RefMoved):
        agent.send("Next")
    assert said(session) == []


def test_what_is_extracted_is_part_of_the_step_and_comes_from_what_was_said(session: Session) -> None:
    answer = Agent(session, Scripted("Nice."), extractor=repeat).send("I like tea.")
    assert isinstance(answer.extracted, Extracted)
    user = str(session.store.tree.parent(answer.id))
    assert [memory.sources for memory in answer.memories] == [tuple(sorted((user, answer.id))), (answer.id,)]
    assert texts(session) == ["assistant: Nice.", "user: I like tea."]


def test_an_answer_stands_where_nothing_could_be_extracted(session: Session, caplog: Any) -> None:
    def failing(shown: Shown) -> list[Found]:
        raise bm.EndpointFailed("url", "gone")

    with caplog.at_level(logging.WARNING, "branchmem"):
        answer = Agent(session, Scripted("Nice."), extractor=failing).send("Hi")
    assert session.head == answer.id
    assert isinstance(answer.unextracted, bm.EndpointFailed)
    assert "nothing was extracted" in caplog.text


def test_an_answer_stands_whatever_an_extractor_raises(session: Session) -> None:
    def broken(shown: Shown) -> list[Found]:
        raise KeyError("a bug")

    answer = Agent(session, Scripted("Nice."), extractor=broken).send("Hi")
    assert session.head == answer.id
    assert isinstance(answer.unextracted, KeyError)


def test_an_answer_that_is_cancelled_at_its_end_is_none(session: Session) -> None:
    def cancelling(shown: Shown) -> list[Found]:
        bm.current_step().cancel()
        return []

    head = session.head
    with pytest.raises(StepEnded):
        Agent(session, Scripted("Nice."), extractor=cancelling).send("Hi")
    assert session.head == head


def test_what_a_failed_turn_said_bears_the_receipt(session: Session) -> None:
    memory = session.remember("The user likes tea.", sources=[session.say("user", "I like tea.")])
    model = Scripted(Reply("Since you like tea …", (calling("nothing"),)), OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        Agent(session, model).send("What do I like? Tea?")
    (result,) = (id for id in session.store.message_ids if role(session, id) == "tool")

    session.switch(result)  # where no ref stands, but anybody may
    out = extract(session, repeat)

    assert {added.text.partition(":")[0]: added.derived_from for added in out.added} == {
        "user": (),
        "assistant": (memory.id,),
        "tool": (memory.id,),
    }


def test_of_two_calls_with_one_id_each_keeps_its_result(session: Session) -> None:
    twice = Reply("", tuple(calling("learn", f'{{"what": "{what}"}}', "c1") for what in ("tea", "cake")))
    model = Scripted(twice, "Done.", "Bye.")
    agent = Agent(session, model, tools=[learn], recall=None)
    agent.send("Go")
    agent.send("And?")
    results = [message["content"] for message in model.asked[2] if message["role"] == "tool"]
    assert results == ["learned tea", "learned cake"]


def test_a_long_prompt_is_made_shorter_before_it_is_sent(session: Session) -> None:
    def long() -> str:
        return "word " * 5000

    model = Scripted(Reply("", (calling("long"),)), "Done.", "Bye.")
    agent = Agent(session, model, tools=[long], compaction={"budget": 2000})
    answer = agent.send("Go")
    assert answer.compacted is not None
    assert [stage.name for stage in answer.compacted.stages] == ["snip"]
    assert len(str(model.asked[1])) < 9000
    assert ("tool", "word " * 5000) in said(session)


def test_summaries_that_stand_in_for_turns_are_in_the_receipt(session: Session) -> None:
    model = Scripted(*("Long answer. " * 60 for _ in range(8)))
    agent = Agent(session, model, recall=None)
    for number in range(6):
        agent.send(f"Question {number}")
    compaction = {"budget": 900, "summariser": lambda passage: "They talked.", "keep_turns": 1, "range_turns": 2}
    answer = Agent(session, model, recall=None, compaction=compaction).send("Last")
    assert answer.compacted is not None
    assert answer.compacted.ids
    message = session.store.log.get(answer.id)
    assert isinstance(message, bm.Message)
    assert set(message.meta["recalled"]) == set(answer.compacted.ids)


def test_what_was_erased_is_sent_to_no_model(session: Session) -> None:
    model = Scripted(Reply("", (calling("learn", '{"what": "tea"}'),)), "Done.", "Bye.")
    agent = Agent(session, model, tools=[learn])
    agent.send("My secret")
    store = session.store
    user, _, result, _ = store.tree.path(session.head)[1:]
    store.erase([user, result])
    agent.send("Hi")
    assert model.asked[2] == [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Hi"}]


CRASHING = """
import os, sys
import branchmem as bm
from branchmem.agent import Agent
from branchmem.chat import Call, Reply

class Model:
    def ask(self, messages, **options):
        if messages[-1]["role"] == "tool":
            os._exit(9)
        return Reply("", (Call("c1", "learn", "{}"),))

def learn() -> str:
    bm.current_step().remember("secret")
    return "secret"

Agent(bm.open(sys.argv[1]).session("chat"), Model(), tools=[learn]).send("Hi")
"""


def test_a_process_that_dies_in_a_turn_leaves_nothing_that_a_retry_sees(tmp_path: Path) -> None:
    path = tmp_path / "alice.bmem"
    ran = subprocess.run([sys.executable, "-c", CRASHING, path], check=False)
    assert ran.returncode == 9
    with bm.open(path) as store:
        session = store.session("chat")
        assert said(session) == []
        model = Scripted("Hello.")
        Agent(session, model).send("Hi")
        assert model.asked == [[{"role": "user", "content": "Hi"}]]
        assert (said(session), texts(session)) == ([("user", "Hi"), ("assistant", "Hello.")], [])


def test_what_no_log_can_hold_is_refused(session: Session) -> None:
    head = session.head
    with pytest.raises(InvalidEvent):
        Agent(session, Scripted("One.")).send("a" * (2 << 20))
    assert session.head == head


def test_a_session_with_steps_of_its_own_is_refused(session: Session) -> None:
    class Other(Session):
        def step(self, **options: Any) -> Any:
            return super().step(**options)

    with pytest.raises(ForeignSession, match="steps of a Other"):
        Agent(Other(session.store, "chat"), Scripted("One.")).send("Hi")


def test_an_agent_needs_a_round_and_tools_of_different_names(session: Session) -> None:
    with pytest.raises(ValueError, match="max_rounds"):
        Agent(session, Scripted(), max_rounds=0)
    with pytest.raises(ValueError, match="name of two tools"):
        Agent(session, Scripted(), tools=[learn, partial(learn).func])
