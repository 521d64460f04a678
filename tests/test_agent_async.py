"""An agent that is awaited does what one does that is not, and who is cancelled in it finds nothing of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import branchmem as bm
import pytest
from branchmem.agent import Agent, Answer
from branchmem.chat import Chat, Reply
from branchmem.errors.agent import InvalidTool
from branchmem.extract import Found, Shown
from branchmem.session import Session
from completions import Scripted, calling, streamed
from serving import nothing_from_outside, serving

pytestmark = pytest.mark.usefixtures("without_disk")


@pytest.fixture
def session() -> Iterator[Session]:
    with bm.open_temporary() as store:
        yield store.session("chat")


class Awaited(Scripted):
    """A model that is awaited, and never answers where it is told nothing more than a pause."""

    pause = "…"

    async def aask(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        if self.told[0] == self.pause:
            self.told.pop(0)
            await asyncio.Event().wait()
        return self.ask(messages, **options)

    async def astream(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> AsyncGenerator[str | Reply, None]:
        reply = await self.aask(messages, **options)
        for word in reply.text.split():
            yield word
        yield reply


def texts(session: Session) -> list[str]:
    return sorted(memory.text for memory in session.view().memories())


def said(session: Session) -> list[str | None]:
    store = session.store
    path = [store.log.get(id) for id in store.tree.path(session.head)[1:]]
    return [message.text for message in path if isinstance(message, bm.Message)]


async def learn(what: str) -> str:
    """Learn something."""
    await asyncio.sleep(0)
    bm.current_step().remember(what)
    return f"learned {what}"


def ask(what: str, step: bm.Step) -> str:
    """Learn in a thread."""
    assert threading.current_thread() is not threading.main_thread()
    assert bm.current_step() is step
    step.remember(what)
    return f"asked {what}"


def test_awaited_verbs_do_what_the_others_do(session: Session) -> None:
    calls = (calling("learn", '{"what": "tea"}', "c1"), calling("ask", '{"what": "cake"}', "c2"))
    agent = Agent(session, Awaited(Reply("", calls), "One.", "Two.", "Three.", "Four."), tools=[learn, ask])

    async def work() -> None:
        first = await agent.asend("Hi")
        assert (first.text, texts(session)) == ("One.", ["cake", "tea"])
        user = session.store.tree.path(first.id)[1]
        await agent.aedit(user, "Hello")
        assert (said(session), texts(session)) == (["Hello", "Two."], [])
        await agent.aregenerate()
        assert said(session) == ["Hello", "Three."]
        await agent.aswitch(first.id)
        assert texts(session) == ["cake", "tea"]
        other = await agent.afork("other")
        await other.asend("Bye")
        assert (session.head, said(other.session)[-2:]) == (first.id, ["Bye", "Four."])

    asyncio.run(work())


def test_awaited_streams_give_pieces_and_at_last_the_answer(session: Session) -> None:
    agent = Agent(session, Awaited("One two.", "Three.", "Four."))

    async def work() -> None:
        pieces = [piece async for piece in agent.astream("Hi")]
        assert pieces[:-1] == ["One", "two."]
        assert isinstance(pieces[-1], Answer)
        user = session.store.tree.path(session.head)[1]
        assert [str(piece) async for piece in agent.astream_edit(user, "Hello")] == ["Three."] * 2
        assert [str(piece) async for piece in agent.astream_regenerate()] == ["Four."] * 2
        assert said(session) == ["Hello", "Four."]

    asyncio.run(work())


def test_a_model_that_cannot_be_awaited_is_asked_in_a_thread(session: Session) -> None:
    async def work() -> None:
        agent = Agent(session, Scripted("One.", "Two."))
        assert str(await agent.asend("Hi")) == "One."
        assert [str(piece) async for piece in agent.astream("Hi")] == ["Two.", "Two."]

    asyncio.run(work())


@pytest.mark.parametrize("streams", [False, True])
def test_who_is_cancelled_finds_nothing_of_it(session: Session, streams: bool) -> None:
    async def work() -> None:
        model = Awaited(Reply("", (calling("learn", '{"what": "secret"}'),)), Awaited.pause, "Fine.")
        agent = Agent(session, model, tools=[learn])
        head = session.head

        async def asks() -> None:
            if streams:
                async for _ in agent.astream("Hi"):
                    pass
            else:
                await agent.asend("Hi")

        asking = asyncio.create_task(asks())
        while len(model.told) > 1:
            await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (session.head, texts(session)) == (head, [])
        await agent.asend("Hi")
        assert (said(session), texts(session)) == (["Hi", "Fine."], [])
        assert "secret" not in str(model.asked[-1])

    asyncio.run(work())


def test_parallel_agents_on_forks_see_nothing_of_each_other(session: Session) -> None:
    def found(shown: Shown) -> list[Found]:
        return [Found(message.text or "") for message in shown.messages if message.role == "user"]

    async def work() -> None:
        agents = [Agent(session, Awaited(f"One {n}.", f"Two {n}."), extractor=found).fork(f"f{n}") for n in range(5)]
        for text in ("tea", "cake"):
            await asyncio.gather(*(agent.asend(f"{text} {n}") for n, agent in enumerate(agents)))
        for n, agent in enumerate(agents):
            assert texts(agent.session) == [f"cake {n}", f"tea {n}"]
        assert texts(session) == []

    asyncio.run(work())


def test_a_tool_that_is_awaited_needs_an_agent_that_is(session: Session) -> None:
    agent = Agent(session, Scripted(Reply("", (calling("learn", '{"what": "tea"}'),))), tools=[learn])
    head = session.head
    with pytest.raises(InvalidTool, match="asend"):
        agent.send("Hi")
    assert session.head == head


def test_a_whole_turn_goes_over_the_wire(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_from_outside(monkeypatch)
    calls = (calling("learn", '{"what": "tea"}'),)
    with serving(streamed("I learn.", calls), streamed("Done now.")) as server:
        agent = Agent(session, Chat("m", base_url=server.url), tools=[learn], max_tokens=50)

        async def work() -> list[str | Answer]:
            return [piece async for piece in agent.astream("Learn")]

        *pieces, answer = asyncio.run(work())
        assert pieces == ["I", " learn.", "Done", " now."]
        assert isinstance(answer, Answer)
        assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("Done now.", 14, 6)
        assert [form["messages"][-1]["role"] for form in server.asked] == ["user", "tool"]
        assert {form["max_tokens"] for form in server.asked} == {50}
        assert server.asked[1]["tools"][0]["function"]["name"] == "learn"
