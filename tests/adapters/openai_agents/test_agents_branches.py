"""A session with branches under the real SDK: no memory of a sibling, none lost, none doubled; the plain one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import branchmem as bm
import pytest
from agents import Agent, Runner, RunState, SQLiteSession, UserError, function_tool
from agents.extensions.memory import AdvancedSQLiteSession
from agents.tool_context import ToolContext
from branchmem.adapters.openai_agents import BranchSession, instructions
from branchmem.errors import BadMove, RefMoved
from branchmem.events import Message, Retraction
from scripted_model import Crash, Scripted, both, notes, says, texts


class Memory(Protocol):
    """A session, and the facts that tools kept, as an agent sees them."""

    session: Any

    async def keep(self, tool: ToolContext[Any], text: str) -> None: ...

    def seen(self) -> list[str]: ...


class Branching:
    """Memory in a store of branchmem."""

    def __init__(self, path: Path, name: str = "chat") -> None:
        self.session = BranchSession(name, bm.open(path / "x.bmem"))

    async def keep(self, tool: ToolContext[Any], text: str) -> None:
        await self.session.remember(tool, text)

    def seen(self) -> list[str]:
        return sorted(memory.text for memory in self.session.view().memories())


class Plain:
    """The SDK's own session, and a list of facts beside it, as users have it."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.facts: list[str] = []

    async def keep(self, tool: ToolContext[Any], text: str) -> None:
        self.facts.append(text)

    def seen(self) -> list[str]:
        return sorted(self.facts)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Branching]:
    found = Branching(tmp_path)
    yield found
    found.session.store.close()


def agent(memory: Memory, *answers: Any, fails: Callable[[str], bool] = lambda text: False) -> tuple[Any, Scripted]:
    """An agent that keeps what the script tells it to."""

    async def note(tool: ToolContext[Any], text: str) -> str:
        await memory.keep(tool, text)
        if fails(text):
            raise Crash
        return f"kept {text}"

    model = Scripted(*answers)
    tool = function_tool(note, failure_error_function=None)
    return Agent(name="a", model=model, tools=[tool]), model


async def run(memory: Memory, input: Any, *answers: Any, **rest: Any) -> Scripted:
    who, model = agent(memory, *answers, **rest)
    await Runner.run(who, input, session=memory.session)
    return model


def test(scenario: Callable[[Branching], Coroutine[Any, Any, None]]) -> Callable[[Branching], None]:
    """A scenario as a test."""

    def tried(memory: Branching) -> None:
        asyncio.run(scenario(memory))

    tried.__name__ = scenario.__name__
    return tried


test.__test__ = False  # type: ignore[attr-defined]


@test
async def test_what_a_tool_keeps_is_seen_once_its_output_is_added(memory: Branching) -> None:
    await run(memory, "I drink tea", notes("tea", "c1"), says("noted"))

    assert memory.seen() == ["tea"]
    (kept,) = memory.session.view().memories()
    source = memory.session.store.log.get(kept.sources[0])
    assert isinstance(source, Message)
    assert (source.role, source.text) == ("tool", "kept tea")
    assert texts(await memory.session.get_items()) == ["I drink tea", "note", "kept tea", "noted"]


@test
async def test_edit(memory: Branching) -> None:
    await run(memory, "I drink tea", notes("tea", "c1"), says("noted"))
    (first, *_) = await memory.session.messages()
    left = memory.session.head

    await memory.session.edit(first, "I drink coffee")
    assert memory.seen() == []
    model = await run(memory, [], notes("coffee", "c2"), says("noted"))

    assert memory.seen() == ["coffee"]
    assert "tea" not in "".join(model.asked)
    await memory.session.switch(left)
    assert memory.seen() == ["tea"]


@test
async def test_regenerate(memory: Branching) -> None:
    await run(memory, "guess what I drink", notes("tea", "c1"), says("tea"))
    left = memory.session.head

    await memory.session.regenerate()
    await run(memory, [], notes("coffee", "c1"), says("coffee"))

    assert memory.seen() == ["coffee"]
    assert texts(await memory.session.get_items())[0::3] == ["guess what I drink", "coffee"]
    await memory.session.switch(left)
    assert memory.seen() == ["tea"]


@test
async def test_fork_and_switch_back(memory: Branching) -> None:
    await run(memory, "I drink tea", notes("tea", "c1"), says("noted"))
    at = memory.session.head
    fork = await memory.session.fork("other")
    await run(memory, "and milk", notes("milk", "c2"), says("noted"))

    other = Branching.__new__(Branching)
    other.session = fork
    await run(other, "and lemon", notes("lemon", "c2"), says("noted"))

    assert (memory.seen(), other.seen()) == (["milk", "tea"], ["lemon", "tea"])
    await memory.session.switch(at)
    assert memory.seen() == ["tea"]
    await memory.session.switch(fork.head)
    assert memory.seen() == ["lemon", "tea"]


@test
async def test_retry_of_the_same_message(memory: Branching) -> None:
    await run(memory, "I drink tea", notes("tea", "c1"), says("noted"))
    while await memory.session.pop_item() is not None:
        pass
    assert memory.seen() == []

    await run(memory, "I drink tea", notes("tea", "c1"), says("noted"))

    assert memory.seen() == ["tea"]
    assert len(memory.session.store.memory_ids) == 2


@test
async def test_crash_in_a_tool_and_resume(memory: Branching) -> None:
    with pytest.raises(UserError):
        await run(memory, "I drink tea", notes("tea, I guess", "c1"), fails=lambda text: "guess" in text)
    assert memory.seen() == []
    store = memory.session.store

    memory.session = BranchSession("chat", store)
    await run(memory, [], notes("tea", "c1"), says("noted"))

    assert memory.seen() == ["tea"]


@test
async def test_crash_after_a_tool_and_resume(memory: Branching) -> None:
    with pytest.raises(Crash):
        await run(memory, "I drink tea", notes("tea", "c1"), Crash())
    path = memory.session.store.path
    memory.session.store.close()

    memory.session = BranchSession("chat", bm.open(path))
    assert memory.seen() == ["tea"]
    await run(memory, [], says("noted"))

    assert memory.seen() == ["tea"]
    assert texts(await memory.session.get_items()) == ["I drink tea", "note", "kept tea", "noted"]


@test
async def test_several_calls_in_a_turn_and_several_memories_in_a_call(memory: Branching) -> None:
    kept: list[str] = []

    class Twice(Branching):
        def __init__(self) -> None:
            self.session = memory.session

        async def keep(self, tool: ToolContext[Any], text: str) -> None:
            for form in (text, text.upper(), text):
                kept.append((await self.session.remember(tool, form)).id)

    await run(Twice(), "tea and milk", both(("tea", "c1"), ("milk", "c2")), says("noted"))

    assert memory.seen() == ["MILK", "TEA", "milk", "tea"]
    assert len(set(kept)) == 4


@test
async def test_a_streamed_run(memory: Branching) -> None:
    who, _ = agent(memory, notes("tea", "c1"), says("noted"), notes("coffee", "c1"), says("noted"))
    for input in cast("list[str | list[Any]]", ["guess what I drink", []]):
        result = Runner.run_streamed(who, input, session=memory.session)
        async for _ in result.stream_events():
            pass
        if input:
            assert memory.seen() == ["tea"]
            await memory.session.regenerate()

    assert memory.seen() == ["coffee"]
    assert texts(await memory.session.get_items()) == ["guess what I drink", "note", "kept coffee", "noted"]


@test
async def test_parallel_branches(memory: Branching) -> None:
    await run(memory, "hello", says("hello"))
    forks = [await memory.session.fork(f"branch-{at}") for at in range(5)]

    async def along(session: BranchSession, word: str) -> Branching:
        other = Branching.__new__(Branching)
        other.session = session
        for at in range(3):
            await run(other, word, notes(f"{word}{at}", "c"), says("noted"))
        return other

    done = await asyncio.gather(*(along(fork, f"w{at}-") for at, fork in enumerate(forks)))

    assert [other.seen() for other in done] == [[f"w{at}-{n}" for n in range(3)] for at in range(5)]
    assert memory.seen() == []


@test
async def test_a_call_that_waits_for_approval(memory: Branching) -> None:
    async def note(tool: ToolContext[Any], text: str) -> str:
        await memory.keep(tool, text)
        return f"kept {text}"

    async def needs(context: Any, arguments: Any, call: str) -> bool:
        return call == "c2"

    model = Scripted(both(("tea", "c1"), ("milk", "c2")), says("noted"))
    who: Any = Agent(name="a", model=model, tools=[function_tool(note, needs_approval=needs)])
    result = await Runner.run(who, "tea and milk", session=memory.session)
    state = await RunState.from_string(who, result.to_state().to_string())
    for asked in state.get_interruptions():
        state.approve(asked)
    memory.session = BranchSession("chat", memory.session.store)

    await Runner.run(who, state, session=memory.session)

    assert memory.seen() == ["milk", "tea"]


@test
async def test_a_call_that_is_approved_after_an_edit_brings_nothing_to_the_edited_branch(memory: Branching) -> None:
    async def note(tool: ToolContext[Any], text: str) -> str:
        await memory.keep(tool, text)
        return f"kept {text}"

    model = Scripted(notes("milk", "c"), says("noted"))
    who: Any = Agent(name="a", model=model, tools=[function_tool(note, needs_approval=True)])
    waiting = (await Runner.run(who, "I drink milk", session=memory.session)).to_state().to_string()
    left = memory.session.head
    (first, *_) = await memory.session.messages()
    await memory.session.edit(first, "I drink coffee")

    async def approve() -> None:
        state = await RunState.from_string(who, waiting)
        state.approve(state.get_interruptions()[0])
        await Runner.run(who, state, session=memory.session)

    with pytest.raises(BadMove, match="no call c at or above it: switch"):
        await approve()
    assert memory.seen() == []
    assert texts(await memory.session.get_items()) == ["I drink coffee"]
    await memory.session.switch(left)
    await approve()
    assert memory.seen() == ["milk"]


@test
async def test_a_run_goes_on_where_it_was_when_the_user_edits_meanwhile(memory: Branching) -> None:
    await run(memory, "I drink milk", notes("milk", "c0"), says("noted"))
    session, running, edited = memory.session, asyncio.Event(), asyncio.Event()

    class Slow(Branching):
        def __init__(self) -> None:
            self.session = session

        async def keep(self, tool: ToolContext[Any], text: str) -> None:
            await session.recall("milk")
            running.set()
            await edited.wait()
            await session.remember(tool, text)

    under_way = asyncio.create_task(run(Slow(), "I drink tea", notes("tea", "c1"), says("noted")))
    await running.wait()
    await session.edit((await session.messages())[-1], "I drink coffee")
    edited.set()
    with pytest.raises(RefMoved) as moved:
        await under_way

    assert memory.seen() == ["milk"]
    assert texts(await session.get_items())[-1] == "I drink coffee"
    await session.switch(str(moved.value.kept))
    assert memory.seen() == ["milk", "tea"]
    (tea,) = (one for one in session.view().memories() if one.text == "tea")
    assert len(tea.derived_from) == 1


async def in_one_piece(who: Any, said: str, session: BranchSession) -> None:
    await Runner.run(who, said, session=session)


async def streamed(who: Any, said: str, session: BranchSession) -> None:
    async for _ in Runner.run_streamed(who, said, session=session).stream_events():
        pass


@pytest.mark.parametrize("running", [in_one_piece, streamed])
def test_what_was_recalled_is_the_receipt_and_does_not_come_back_by_way_of_a_tool(
    memory: Branching, running: Callable[[Any, str, BranchSession], Coroutine[Any, Any, None]]
) -> None:
    asyncio.run(recalling(memory, running))


async def recalling(memory: Branching, running: Callable[[Any, str, BranchSession], Coroutine[Any, Any, None]]) -> None:
    store = memory.session.store
    await run(memory, "I drink tea", notes("drinks tea", "c1"), says("noted"))
    (fact,) = memory.session.view().memories()
    who, model = agent(memory, notes("the user likes tea", "c2"), says("tea it is"))
    who.instructions = instructions(memory.session, "Be kind.")

    await running(who, "what do I drink? tea?", memory.session)

    assert model.told[0].startswith("Be kind.\n\n")
    assert "drinks tea" in model.told[0]
    assert memory.seen() == ["drinks tea", "the user likes tea"]
    answer = store.log.get(memory.session.head)
    assert isinstance(answer, Message)
    assert fact.id in answer.meta["recalled"]
    store.append([Retraction("r", at=memory.session.head, memories=[fact.id], scope="branch")])
    assert memory.seen() == []


@test
async def test_instructions_of_a_streamed_run_are_about_what_is_said_in_it(memory: Branching) -> None:
    memory.session.session.remember("drinks tea", sources=[memory.session.head])
    who, model = agent(memory, says("tea"))
    who.instructions = instructions(memory.session)

    await streamed(who, "do I drink tea?", memory.session)

    assert "drinks tea" in model.told[0]


@test
async def test_instructions_hold_nothing_of_another_branch(memory: Branching) -> None:
    await run(memory, "hello", says("hello"))
    fork = await memory.session.fork("other")
    await run(memory, "I drink tea", notes("drinks tea", "c1"), says("noted"))

    who, model = agent(memory, says("I do not know"))
    who.instructions = instructions(fork)
    await Runner.run(who, "do I drink tea?", session=fork)

    assert model.told == [""]


# The same on what the SDK has


@pytest.mark.parametrize("kind", ["sqlite", "advanced"])
def test_the_plain_session_leaks_loses_and_doubles(kind: str) -> None:
    asyncio.run(_plain(kind))


async def _plain(kind: str) -> None:
    advanced = kind == "advanced"
    session: Any = AdvancedSQLiteSession(session_id="chat", create_tables=True) if advanced else SQLiteSession("chat")
    memory = Plain(session)
    await run(memory, "I drink tea", notes("tea", "c1"), says("noted"))

    if advanced:  # edit: a branch from the turn before it
        await session.create_branch_from_turn(1, "edited")
    else:
        while await session.pop_item() is not None:
            pass
    await run(memory, "I drink coffee", notes("coffee", "c2"), says("noted"))
    assert memory.seen() == ["coffee", "tea"]  # edit leaks

    if advanced:
        await session.switch_to_branch("main")
        assert memory.seen() == ["coffee", "tea"]  # so does switching back
    while await session.pop_item() is not None:
        pass
    await run(memory, "I drink tea", notes("tea", "c3"), says("noted"))
    assert memory.seen() == ["coffee", "tea", "tea"]  # a retry doubles

    with pytest.raises(UserError):
        await run(memory, "and milk", notes("milk, I guess", "c4"), fails=lambda text: True)
    await run(memory, [], notes("milk", "c4"), says("noted"))
    assert "milk, I guess" in memory.seen()  # what was kept in a call that crashed stays
