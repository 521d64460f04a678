"""Which run a call of the session belongs to: none is displaced from beside, none keeps what it was after its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import branchmem as bm
import pytest
from agents import Agent, Runner, function_tool
from agents.tool_context import ToolContext
from branchmem.adapters.openai_agents import BranchSession
from branchmem.errors import RefMoved
from scripted_model import Scripted, both, notes, says, texts


@pytest.fixture
def session() -> Iterator[BranchSession]:
    with bm.open_temporary() as store:
        yield BranchSession("chat", store)


def said(text: str) -> Any:
    return {"role": "user", "content": text}


def agent(tool: Callable[[ToolContext[Any], str], Awaitable[str]], *answers: Any) -> Any:
    async def note(context: ToolContext[Any], text: str) -> str:
        return await tool(context, text)

    return Agent(name="a", model=Scripted(*answers), tools=[function_tool(note, failure_error_function=None)])


def seen(session: BranchSession) -> list[str]:
    return sorted(memory.text for memory in session.view().memories())


async def receipts(session: BranchSession) -> list[Any]:
    return [message.meta.get("recalled") for message in await session.messages() if message.role == "assistant"]


async def run(who: Any, session: BranchSession) -> None:
    await Runner.run(who, "hello", session=session)


async def listed(_who: Any, session: BranchSession) -> None:
    await session.add_items([said("hello"), {"role": "assistant", "content": "one"}])
    await session.get_items()


async def edited(who: Any, session: BranchSession) -> None:
    await listed(who, session)
    await session.edit((await session.messages())[0], "hello")
    await session.add_items([{"role": "assistant", "content": "one"}])


@pytest.mark.parametrize("before", [run, listed, edited])
def test_whoever_used_the_session_before_goes_on_below_a_run_in_a_task(
    session: BranchSession, before: Callable[[Any, BranchSession], Awaitable[None]]
) -> None:
    async def scenario() -> None:
        who: Any = Agent(name="a", model=Scripted(says("one"), says("two")))
        await before(who, session)
        who.model.answers = [says("two")]
        async for _ in Runner.run_streamed(who, "more", session=session).stream_events():
            pass
        fact = session.session.remember("likes milk", sources=[session.head])

        assert (await session.recall("milk")).ids == (fact.id,)
        await session.add_items([said("by hand")])
        assert texts(await session.get_items()) == ["hello", "one", "more", "two", "by hand"]

    asyncio.run(scenario())


def test_what_a_tool_recalls_after_it_or_another_listed_the_items_is_in_the_receipt(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("I drink tea")])
        fact = session.session.remember("drinks tea", sources=[session.head])
        is_listed = asyncio.Event()

        async def tool(context: ToolContext[Any], text: str) -> str:
            await session.get_items()
            if text == "list":
                is_listed.set()
                return text
            await is_listed.wait()
            return (await session.recall("tea")).text

        who = agent(tool, both(("recall", "c1"), ("list", "c2")), says("tea"), says("bye"))
        await Runner.run(who, "what do I drink?", session=session)
        await Runner.run(who, "bye", session=session)

        assert await receipts(session) == [(fact.id,)] * 3 + [None]

    asyncio.run(scenario())


@pytest.mark.parametrize("by", ["pop", "add"])
def test_a_run_is_not_displaced_by_who_moves_the_list_beside_it(session: BranchSession, by: str) -> None:
    async def scenario() -> None:
        running, moved = asyncio.Event(), asyncio.Event()

        async def tool(context: ToolContext[Any], text: str) -> str:
            await session.remember(context, text)
            running.set()
            await moved.wait()
            return "kept"

        who = agent(tool, notes("tea", "c"), says("noted"))
        under_way = asyncio.create_task(Runner.run(who, "I drink tea", session=session))
        await running.wait()
        await (session.pop_item() if by == "pop" else session.add_items([said("meanwhile")]))
        moved.set()
        with pytest.raises(RefMoved) as left:
            await under_way

        assert texts(await session.get_items()) == {"pop": [], "add": ["I drink tea", "meanwhile"]}[by]
        assert seen(session) == []
        await session.switch(str(left.value.kept))
        assert texts(await session.get_items()) == ["I drink tea", "note", "kept"]
        assert seen(session) == ["tea"]

    asyncio.run(scenario())


def test_a_tool_that_runs_an_agent_in_another_session_remembers_where_its_own_run_stands(
    session: BranchSession,
) -> None:
    async def scenario() -> None:
        inner, running, moved = BranchSession("inner", session.store), asyncio.Event(), asyncio.Event()

        async def tool(context: ToolContext[Any], text: str) -> str:
            await Runner.run(Agent(name="i", model=Scripted(says("inner"))), "q", session=inner)
            running.set()
            await moved.wait()
            await session.remember(context, text)
            return "kept"

        who = agent(tool, notes("tea", "c"), says("noted"))
        under_way = asyncio.create_task(Runner.run(who, "I drink tea", session=session))
        await running.wait()
        await session.edit((await session.messages())[0], "I drink coffee")
        moved.set()
        with pytest.raises(RefMoved) as left:
            await under_way

        assert seen(session) == []
        await session.switch(str(left.value.kept))
        assert seen(session) == ["tea"]

    asyncio.run(scenario())


def test_an_edit_that_was_written_though_it_was_cancelled_is_gone_on_from(
    session: BranchSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await session.add_items([said("a")])
        (first,) = await session.messages()
        begun, edit = asyncio.Event(), session.session.edit
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def late(*given: Any) -> Any:
            loop.call_soon_threadsafe(task.cancel)  # type: ignore[union-attr]
            loop.call_soon_threadsafe(begun.set)
            while not begun.is_set():
                time.sleep(0.001)
            return edit(*given)

        monkeypatch.setattr(session.session, "edit", late)
        with pytest.raises(asyncio.CancelledError):
            await session.edit(first, "b")
        await session.add_items([{"role": "assistant", "content": "c"}])
        assert texts(await session.get_items()) == ["b", "c"]

    asyncio.run(scenario())
