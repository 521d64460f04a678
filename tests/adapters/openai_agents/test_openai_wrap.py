"""The real client, wrapped, against an endpoint on loopback: whole and in pieces, waiting and awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import branchmem as bm
import openai
import pytest
from branchmem.agent import AsyncWrapped, Wrapped, wrap
from branchmem.errors.agent import NoAnswer, NotAStep
from branchmem.extract import Found, Shown
from branchmem.session import Session
from completions import EVENTS, answer, calling, events, pieces, streamed
from serving import Server, nothing_from_outside, serving

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def session() -> Iterator[Session]:
    with bm.open_temporary() as store:
        yield store.session("chat")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    nothing_from_outside(monkeypatch)
    with serving() as server:
        yield server


def client(server: Server) -> Any:
    return openai.OpenAI(base_url=server.url, api_key="sk-none", max_retries=0)


def aclient(server: Server) -> Any:
    return openai.AsyncOpenAI(base_url=server.url, api_key="sk-none", max_retries=0)


def turns(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def said(session: Session) -> list[str | None]:
    store = session.store
    path = [store.log.get(id) for id in store.tree.path(session.head)[1:]]
    return [message.text for message in path if isinstance(message, bm.Message)]


def memories(session: Session) -> list[str]:
    return sorted(memory.text for memory in session.view().memories())


def each_answer(shown: Shown) -> list[Found]:
    return [Found(f"m: {shown.messages[-1].text}", sources=(shown.messages[-1].id,))]


def test_edit_regenerate_and_going_back_each_see_their_own_branch(server: Server, session: Session) -> None:
    server.told = [answer("A1"), streamed("A two"), answer("B2"), streamed("A2 again"), answer("A3")]
    with wrap(client(server), session, extractor=each_answer) as wrapped:
        assert type(wrapped) is Wrapped

        def ask(*texts: str, stream: bool = False) -> None:
            came = wrapped.chat.completions.create(model="m", messages=turns(*texts), stream=stream)
            if stream:
                words = [chunk.choices[0].delta.content or "" for chunk in came if chunk.choices]
                assert said(session)[-1] == "".join(words)
            else:
                assert said(session)[-1] == came.choices[0].message.content

        ask("u1")
        ask("u1", "A1", "u2", stream=True)
        assert memories(session) == ["m: A two", "m: A1"]
        ask("u1", "A1", "edited")
        assert memories(session) == ["m: A1", "m: B2"]
        ask("u1", "A1", "u2", stream=True)
        assert memories(session) == ["m: A1", "m: A2 again"]
        ask("u1", "A1", "u2", "A two", "u3")
        assert memories(session) == ["m: A two", "m: A1", "m: A3"]
    assert len(session.store.message_ids) == 1 + 9


def test_its_own_objects_are_messages_of_a_list(server: Server, session: Session) -> None:
    call = calling("look", '{"at": "Chengdu"}')
    server.told = [answer(None, [call]), answer("Rain.")]
    wrapped = wrap(client(server), session)
    first = wrapped.chat.completions.create(model="m", messages=turns("Weather?"), tools=[TOOL])
    message = first.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    wrapped.chat.completions.create(model="m", messages=[*turns("Weather?"), message, result], tools=[TOOL])
    assert said(session) == ["Weather?", None, "rain", "Rain."]


def test_calls_that_come_in_pieces_are_known_again(server: Server, session: Session) -> None:
    call = calling("look", '{"at": "Chengdu"}')
    server.told = [streamed("I look.", [call]), answer("Rain.")]
    wrapped = wrap(client(server), session)
    list(wrapped.chat.completions.create(model="m", messages=turns("Weather?"), tools=[TOOL], stream=True))
    function = {"name": call.name, "arguments": call.arguments}
    message = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": call.id, "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    wrapped.chat.completions.create(model="m", messages=[*turns("Weather?"), message, result], tools=[TOOL])
    assert said(session) == ["Weather?", "I look.", "rain", "Rain."]


def test_what_fails_leaves_nothing_that_a_retry_sees(server: Server, session: Session) -> None:
    broken = (200, EVENTS, events(pieces("Half an answer", finish=None), end=""))
    server.told = [(500, {}, b"{}"), broken, streamed("A1")]
    wrapped = wrap(client(server), session)
    head = session.head
    with pytest.raises(openai.InternalServerError):
        wrapped.chat.completions.create(model="m", messages=turns("u1"))
    with pytest.raises(NoAnswer):
        list(wrapped.chat.completions.create(model="m", messages=turns("u1"), stream=True))
    assert session.head == head
    list(wrapped.chat.completions.create(model="m", messages=turns("u1"), stream=True))
    assert said(session) == ["u1", "A1"]
    assert len(session.store.message_ids) == 1 + 2


def test_the_awaited_client_does_the_same(server: Server, session: Session) -> None:
    server.told = [answer("A1"), streamed("A two"), answer("B2"), streamed("C two words")]

    async def work() -> None:
        async with wrap(aclient(server), session, extractor=each_answer) as wrapped:
            assert type(wrapped) is AsyncWrapped
            ask = wrapped.chat.completions.create
            first = await ask(model="m", messages=turns("u1"))
            assert first.choices[0].message.content == "A1"
            async with await ask(model="m", messages=turns("u1", "A1", "u2"), stream=True) as stream:
                words = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
            assert "".join(words) == "A two"
            assert memories(session) == ["m: A two", "m: A1"]
            await ask(model="m", messages=turns("u1", "A1", "edited"))
            assert memories(session) == ["m: A1", "m: B2"]
            stream = await ask(model="m", messages=turns("u1", "A1", "u2", "A two", "u3"), stream=True)
            await anext(stream)
            await stream.close()
            assert memories(session) == ["m: A1", "m: B2"]

    asyncio.run(work())


def test_what_else_asks_a_model_is_refused_and_the_rest_is_the_clients(server: Server, session: Session) -> None:
    wrapped = wrap(client(server), session)
    for name in ("responses", "beta", "with_raw_response"):
        with pytest.raises(NotAStep):
            getattr(wrapped, name)
    with pytest.raises(NotAStep):
        wrapped.chat.completions.parse(model="m", messages=turns("u1"))
    hurried = wrapped.with_options(timeout=3)
    assert (type(hurried), hurried.client.timeout) == (Wrapped, 3)
    assert wrapped.base_url == server.url + "/"
    assert server.asked == []
