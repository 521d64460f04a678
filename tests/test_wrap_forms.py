"""A wrapped client knows a message again in whatever form it is sent, and refuses what has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import branchmem as bm
import pytest
from branchmem.agent import wrap
from branchmem.chat import Call, Reply
from branchmem.errors.agent import InvalidMessage, NoAnswer
from branchmem.session import Session
from clients import Client
from completions import calling
from wrapping import ask, said, turns

pytestmark = pytest.mark.usefixtures("without_disk")

CALLS = (calling("look", '{"at": "Chengdu"}', "c1"), calling("look", '{"at": "Xi\'an"}', "c2"))


@pytest.fixture
def session() -> Iterator[Session]:
    with bm.open_temporary() as store:
        yield store.session("chat")


def test_calls_of_tools_and_their_results_have_their_place(session: Session) -> None:
    client = Client(Reply("", CALLS), "Rain.", Reply("", CALLS[:1]), "Sun.")
    wrapped = wrap(client, session)
    message = ask(wrapped, turns("Weather?")).choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": f"rain {call.id}"} for call in CALLS]
    conversation = [*turns("Weather?"), message, *results]
    ask(wrapped, conversation)
    assert said(session) == ["Weather?", None, "rain c1", "rain c2", "Rain."]
    store = session.store
    path = [store.log.get(id) for id in store.tree.path(session.head)[1:]]
    assert [getattr(message, "role", None) for message in path] == ["user", "assistant", "tool", "tool", "assistant"]
    before = len(store.message_ids)
    ask(wrapped, [*conversation[:-1], {**results[1], "content": "sun"}])
    assert len(store.message_ids) == before + 2
    assert said(session)[:4] == ["Weather?", None, "rain c1", "sun"]


def test_a_stream_of_calls_is_known_again(session: Session) -> None:
    wrapped = wrap(Client(Reply("I look.", CALLS, "tool_calls"), "Rain."), session)
    list(ask(wrapped, turns("Weather?"), stream=True))
    wire = {"role": "assistant", "content": "I look.", "tool_calls": [_form(call) for call in CALLS]}
    results = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in CALLS]
    ask(wrapped, [*turns("Weather?"), wire, *results])
    assert said(session) == ["Weather?", "I look.", "rain", "rain", "Rain."]


def test_instructions_that_say_nothing_are_no_place_for_what_is_recalled(session: Session) -> None:
    session.remember("lives in Chengdu", sources=[session.say("user", "Chengdu")])
    client = Client("A1")
    ask(wrap(client, session, recall={}), [{"role": "system"}, *turns("Chengdu")])
    recalled, silent, _ = client.sent[0]["messages"]
    assert "lives in Chengdu" in recalled["content"]
    assert silent == {"role": "system"}


def test_an_answer_that_is_none_is_refused(session: Session) -> None:
    client = Client()
    client.chat.completions.create = lambda **form: {"choices": [], "usage": {"prompt_tokens": float("inf")}}
    with pytest.raises(NoAnswer):
        ask(wrap(client, session), turns("u1"))
    assert said(session) == []


def test_instructions_at_the_beginning_are_the_applications_and_later_ones_are_said(session: Session) -> None:
    wrapped = wrap(Client("A1", "A2", "A3"), session)
    ask(wrapped, [{"role": "system", "content": "Monday"}, *turns("u1")])
    ask(wrapped, [{"role": "developer", "content": "Tuesday"}, *turns("u1", "A1", "u2")])
    assert said(session) == ["u1", "A1", "u2", "A2"]
    late = [*turns("u1", "A1"), {"role": "system", "content": "Be brief"}, *turns("u2")]
    ask(wrapped, late)
    assert said(session) == ["u1", "A1", "Be brief", "u2", "A3"]


def test_images_are_known_by_what_they_are_and_large_ones_are_not_kept(session: Session) -> None:
    def seen(url: str) -> list[dict[str, Any]]:
        parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": url}}]
        return [{"role": "user", "content": parts}]

    cat, dog = ("data:image/png;base64," + letter * 1_200_000 for letter in "cd")
    client = Client("A cat.", "Sure.", "A dog.")
    wrapped = wrap(client, session)
    ask(wrapped, seen(cat))
    ask(wrapped, [*seen(cat), *turns("", "A cat.", "Sure?")[1:]])
    assert said(session) == ["What?", "A cat.", "Sure?", "Sure."]
    assert client.sent[0]["messages"] == seen(cat)
    ask(wrapped, seen(dog))
    assert said(session) == ["What?", "A dog."]
    assert max(len(str(session.store.log.get(id))) for id in session.store.message_ids) < 5000


def test_the_same_said_in_another_form_is_the_same(session: Session) -> None:
    client = Client("  A1\n", "A2")
    wrapped = wrap(client, session)
    ask(wrapped, turns(" u1 "))
    forms = [{"role": "user", "content": [{"type": "text", "text": "u1"}]}, {"role": "assistant", "content": "A1"}]
    ask(wrapped, [*forms, *turns("u2")])
    assert len(session.store.message_ids) == 1 + 4
    refused = {"role": "assistant", "content": None, "refusal": "A1"}
    for mark in ({"cache_control": {"type": "ephemeral"}}, {}):  # which wanders down as a list grows
        parts = [{"type": "text", "text": "u3", **mark}, {"type": "text", "text": "please"}]
        client.told = ["A3"]
        ask(wrapped, [*turns("u1"), refused, *turns("u2", "A2"), {"role": "user", "content": parts}])
    assert len(session.store.message_ids) == 1 + 7


def test_calls_are_known_again_however_their_arguments_are_written(session: Session) -> None:
    client = Client(Reply("", CALLS[:1]))
    wrapped = wrap(client, session)
    ask(wrapped, turns("u1"))
    head = session.head
    for arguments in ('{ "at":"Chengdu" }', {"at": "Chengdu"}):
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
        result = {"role": "tool", "tool_call_id": "c1", "content": "Rain."}
        client.told = ["A2"]
        ask(wrapped, [*turns("u1"), {"role": "assistant", "content": None, "tool_calls": [call]}, result])
        assert session.store.tree.is_ancestor(head, session.head)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{"role": "critic", "content": "x"}], r"messages\[0\]: its role is none of"),
        ([*turns("u1"), "text"], r"messages\[1\]: its message is no mapping"),
        ([{"role": "user", "content": 4}], "its content is neither"),
        ([{"role": "user", "content": ["x"]}], "a part that is no mapping"),
        ([{"role": "tool", "content": "x"}], "its tool_call_id is missing"),
        ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "its tool_calls has one without"),
        ([{"role": "assistant", "tool_calls": 5}], "its tool_calls is no list"),
        ([{"role": "user", "content": "x", "name": 5}], "its name is no text"),
    ],
)
def test_a_message_of_no_form_is_refused_before_anything_is_sent(
    session: Session, messages: list[Any], why: str
) -> None:
    client = Client("A1")
    with pytest.raises(InvalidMessage, match=why):
        ask(wrap(client, session), messages)
    assert client.sent == []


def _form(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
