"""What a user says in parts is asked of the model as it was given, and kept as far as a log should hold it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import branchmem as bm
import pytest
from branchmem.agent import Agent, Answer
from branchmem.session import Session
from completions import Scripted

pytestmark = pytest.mark.usefixtures("without_disk")

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 3000}}
PARTS = [{"type": "text", "text": "What is it?"}, IMAGE]
NOT_KEPT = [PARTS[0], {"type": "text", "text": "(image_url, not kept)"}]


@pytest.fixture
def session() -> Iterator[Session]:
    with bm.open_temporary() as store:
        yield store.session("chat")


def send(agent: Agent, parts: Any) -> Answer:
    return agent.send(parts)


def asend(agent: Agent, parts: Any) -> Answer:
    return asyncio.run(agent.asend(parts))


@pytest.mark.parametrize("asks", [send, asend])
def test_the_model_is_shown_a_large_image_in_the_turn_that_brings_it(asks: Callable[[Agent, Any], Answer]) -> None:
    with bm.open_temporary() as store:
        model = Scripted("A cat.", "A dog.", "Black.", "Nothing.")
        agent = Agent(store.session("chat"), model, system="Be brief.")
        first = asks(agent, PARTS)
        agent.edit(store.tree.path(first.id)[-2], [IMAGE])
        asks(agent, "Which colour?")
        asks(agent, [{"type": "text", "text": ""}])

        assert [asked[1:] for asked in model.asked[:2]] == [[said(PARTS)], [said([IMAGE])]]
        assert model.asked[2][1] == said(NOT_KEPT[1:])
        assert model.asked[3][-1]["content"] == "Black."
        assert "A" * 3000 not in str([store.log.get(id) for id in store.message_ids])


def said(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_parts_that_are_no_text_are_said_and_sent(session: Session) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    model = Scripted("A cat.", "Yes.")
    agent = Agent(session, model)
    answer = agent.send([{"type": "text", "text": "What is it?"}, image])
    agent.send("Sure?")
    assert model.asked[1][0]["content"] == [{"type": "text", "text": "What is it?"}, image]
    asked = session.store.log.get(str(session.store.tree.parent(answer.id)))
    assert isinstance(asked, bm.Message)
    assert (asked.role, asked.text) == ("user", "What is it?")


def test_what_others_wrote_into_a_message_is_not_taken_for_calls_or_parts(session: Session) -> None:
    session.say("user", "Hi", meta={"calls": 4, "parts": ["x"], "name": ["y"]})
    session.say("assistant", "Hello", meta={"calls": [{"id": 1}], "call": {}})
    session.say("tool", "A result that nobody asked for")
    model = Scripted("Yes.")
    Agent(session, model).send("So?")
    assert [form["content"] for form in model.asked[0]] == ["Hi", "Hello", "So?"]
    assert {key for form in model.asked[0] for key in form} == {"role", "content"}
