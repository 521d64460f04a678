"""The session as the SDK asks for it: items come back as they were, removing moves the head, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Any

import branchmem as bm
import pytest
from agents.memory import Session, SessionSettings
from agents.run_internal.session_persistence import rewind_session_items
from agents.tool_context import ToolContext
from branchmem.adapters.openai_agents import BranchSession, instructions
from branchmem.errors import BadMove, InvalidEvent, RefMoved
from branchmem.events import Message
from scripted_model import texts

ITEMS: list[Any] = [
    {"role": "user", "content": "hi"},
    {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:,x"}]},
    {"type": "reasoning", "id": "r", "summary": []},
    {"type": "function_call", "id": "f", "call_id": "c", "name": "note", "arguments": '{"text": "tea"}'},
    {"type": "function_call_output", "call_id": "c", "output": "kept"},
    {"type": "message", "id": "m", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "b", "annotations": []}]},
    {"type": "function_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "x"}]},
    {"role": "user", "content": ""},
    {"role": "critic", "content": "c"},
]  # fmt: skip


@pytest.fixture
def session(tmp_path: Path) -> Iterator[BranchSession]:
    with bm.open(tmp_path / "x.bmem") as store:
        yield BranchSession("chat", store)


def said(text: str) -> Any:
    return {"role": "user", "content": text}


def answered(text: str) -> Any:
    return {"role": "assistant", "content": text}


def tool(call: str) -> ToolContext[Any]:
    return ToolContext(None, tool_name="note", tool_call_id=call, tool_arguments="{}")


def seen(session: BranchSession) -> list[str]:
    return sorted(memory.text for memory in session.view().memories())


def test_it_is_a_session_and_items_come_back_as_they_were(session: BranchSession) -> None:
    assert isinstance(session, Session)
    asyncio.run(session.add_items(ITEMS))

    assert asyncio.run(session.get_items()) == ITEMS
    assert asyncio.run(BranchSession("chat", session.store).get_items()) == ITEMS


def test_roles_and_texts_are_what_was_said(session: BranchSession) -> None:
    asyncio.run(session.add_items(ITEMS))

    told = [(message.role, message.text) for message in asyncio.run(session.messages())]

    assert told == [
        ("user", "hi"), ("user", "a"), ("assistant", None), ("assistant", None),
        ("tool", "kept"), ("assistant", "b"), ("tool", None), ("user", ""), ("critic", "c"),
    ]  # fmt: skip


def test_a_limit_gives_the_last_items(session: BranchSession) -> None:
    asyncio.run(session.add_items([said("a"), said("b"), said("c")]))

    assert texts(asyncio.run(session.get_items(2))) == ["b", "c"]
    assert asyncio.run(session.get_items(0)) == []
    limited = BranchSession("chat", session.store, session_settings=SessionSettings(limit=1))
    assert texts(asyncio.run(limited.get_items())) == ["c"]


def test_pop_and_clear_move_the_head_and_lose_nothing(session: BranchSession) -> None:
    asyncio.run(session.add_items([said("a"), said("b")]))
    left = session.head

    assert asyncio.run(session.pop_item()) == said("b")
    assert texts(asyncio.run(session.get_items())) == ["a"]
    asyncio.run(session.clear_session())
    assert asyncio.run(session.get_items()) == []
    assert asyncio.run(session.pop_item()) is None
    asyncio.run(session.switch(left))

    assert texts(asyncio.run(session.get_items())) == ["a", "b"]


def test_nothing_added_writes_nothing(session: BranchSession) -> None:
    before = session.store.seq

    asyncio.run(session.add_items([]))

    assert session.store.seq == before


def test_items_are_added_all_or_none(session: BranchSession) -> None:
    with pytest.raises(InvalidEvent):
        asyncio.run(session.add_items([said("a"), said("x" * (1 << 20) + "x")]))

    assert asyncio.run(session.get_items()) == []


def test_what_the_sdk_takes_back_and_puts_back_is_the_same_message(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("a")])
        await session.remember(tool("c"), "tea")
        await session.add_items(ITEMS[3:5])
        before = session.head
        output, call = await session.pop_item(), await session.pop_item()
        assert seen(session) == []

        await session.add_items([call, output])  # type: ignore[list-item]

        assert session.head == before
        assert seen(session) == ["tea"]

    asyncio.run(scenario())


def test_what_is_said_again_after_a_move_is_another_message(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("a")])
        popped = session.head
        session.session.remember("tea", sources=[popped])
        await session.pop_item()
        await session.clear_session()

        await session.add_items([said("a")])

        assert session.head != popped
        assert seen(session) == []

    asyncio.run(scenario())


def test_the_sdk_rewinds_what_it_added(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("a")])
        await session.add_items(ITEMS[2:])
        await rewind_session_items(session, ITEMS[2:])
        assert texts(await session.get_items()) == ["a"]

    asyncio.run(scenario())


def test_a_memory_waits_for_its_output_in_another_process(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("a")])
        await session.remember(tool("c"), "tea", key="drink")
        assert seen(session) == []
        other = BranchSession("chat", session.store)
        await other.add_items([said("b"), *ITEMS[3:5]])
        assert seen(other) == ["tea"]
        await other.add_items(ITEMS[3:5])
        assert seen(other) == ["tea"]

    asyncio.run(scenario())


def test_only_the_last_attempt_at_a_call_is_seen(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("a")])
        await session.remember(tool("c"), "tea, perhaps")
        await session.remember(tool("c"), "tea")
        await session.add_items(ITEMS[3:5])
        assert seen(session) == ["tea"]

    asyncio.run(scenario())


def test_a_run_whose_ref_was_moved_goes_on_where_it_was_as_a_branch(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("a")])
        run, other = BranchSession("chat", session.store), BranchSession("chat", session.store)
        await run.get_items()
        await other.get_items()
        await other.add_items([said("meanwhile")])
        await run.remember(tool("c"), "tea")

        with pytest.raises(RefMoved) as moved:
            await run.add_items(ITEMS[3:5])

        assert texts(await run.get_items()) == ["a", "meanwhile"]
        assert seen(run) == []
        await run.switch(str(moved.value.kept))
        assert texts(await run.get_items()) == ["a", "note", "kept"]
        assert seen(run) == ["tea"]

    asyncio.run(scenario())


def test_a_call_is_not_edited(session: BranchSession) -> None:
    asyncio.run(session.add_items(ITEMS))
    for message in asyncio.run(session.messages())[2:5]:
        with pytest.raises(BadMove, match="call or its output"):
            asyncio.run(session.edit(message, "x"))


def test_what_a_session_of_branchmem_said_is_an_item(session: BranchSession) -> None:
    session.session.say("user", "a")
    session.session.say("assistant", "b")

    assert asyncio.run(session.get_items()) == [said("a"), {"role": "assistant", "content": "b"}]


@pytest.mark.parametrize("parent", [None, bm.LEGACY])
def test_a_list_that_begins_with_a_root_is_not_emptied(session: BranchSession, parent: Any) -> None:
    session.store.append([Message("m1", parent=parent, role="user", text="hi"), Message("m2", parent="m1")])
    asyncio.run(session.switch("m2"))

    for wanted in (session.pop_item, session.clear_session):
        with pytest.raises(BadMove, match="m1 is an item"):
            asyncio.run(wanted())

    assert asyncio.run(session.get_items()) == [said("hi")]
    assert session.head == "m2"


def test_two_outputs_of_one_call_are_two_messages(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("a")])
        await session.remember(tool("c"), "tea")
        await session.add_items([*ITEMS[3:5], ITEMS[4]])
        assert texts(await session.get_items()) == ["a", "note", "kept", "kept"]
        assert seen(session) == ["tea"]

    asyncio.run(scenario())


@pytest.mark.parametrize("keeps", [True, False])
def test_forks_that_make_a_call_of_one_name_keep_apart(session: BranchSession, *, keeps: bool) -> None:
    async def scenario() -> None:
        await session.add_items([said("a")])
        fork = await session.fork("other")
        if keeps:
            await session.remember(tool("c"), "tea")
        await fork.remember(tool("c"), "coffee")
        await session.add_items(ITEMS[3:5])
        await fork.add_items(ITEMS[3:5])
        assert seen(session) == ["tea"] * keeps
        assert seen(fork) == ["coffee"]

    asyncio.run(scenario())


def test_a_tool_of_any_kind_has_its_output(session: BranchSession) -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "note", "input": "tea"}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "kept"}
    asyncio.run(session.remember(tool("c"), "tea"))

    asyncio.run(session.add_items([call, output]))  # type: ignore[list-item]

    assert seen(session) == ["tea"]


def test_a_run_recalls_where_it_stands_whoever_moves_the_ref(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("a")])
        tea = session.session.remember("drinks tea", sources=[session.head])
        other = BranchSession("chat", session.store)
        await session.get_items()
        edited = await other.edit((await other.messages())[0], "coffee")
        coffee = other.session.remember("drinks coffee", sources=[edited])

        assert (await session.recall("drinks")).ids == (tea.id,)
        assert (await other.recall("drinks")).ids == (coffee.id,)
        context, nobody = Namespace(turn_input=[said("drinks")]), Namespace()
        told = await instructions(session)(context, nobody)  # type: ignore[arg-type]
        assert told.endswith("drinks tea")

    asyncio.run(scenario())


def test_what_is_listed_is_what_the_run_goes_on_from(session: BranchSession, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(session.add_items([said("a")]))
    other, read = BranchSession("chat", session.store), BranchSession._messages

    def late(self: BranchSession, *given: str) -> Any:
        monkeypatch.setattr(BranchSession, "_messages", read)
        other.session.say("user", "meanwhile")
        return read(self, *given)

    monkeypatch.setattr(BranchSession, "_messages", late)
    assert texts(asyncio.run(session.get_items())) == ["a"]

    with pytest.raises(RefMoved):
        asyncio.run(session.add_items([answered("b")]))


def test_an_answer_that_was_recalled_for_is_not_the_one_that_was_not(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("what do I drink?")])
        fact = session.session.remember("drinks tea", sources=[session.head])
        await session.add_items([answered("tea")])
        await session.pop_item()
        await session.recall("drinks tea")
        await session.add_items([answered("tea")])

        (*_, last) = await session.messages()
        assert last.meta["recalled"] == (fact.id,)

    asyncio.run(scenario())


def test_a_turn_that_goes_on_in_another_process_keeps_its_receipt(session: BranchSession) -> None:
    async def scenario() -> None:
        await session.add_items([said("do I drink tea?")])
        fact = session.session.remember("drinks tea", sources=[session.head])
        await session.recall("drinks tea")
        await session.add_items(ITEMS[3:5])

        later = BranchSession("chat", session.store)
        kept = await later.remember(tool("d"), "the user drinks tea")
        await later.add_items([answered("You do."), said("And now?"), answered("Still.")])

        assert kept.derived_from == (fact.id,)
        assert [message.meta.get("recalled") for message in await later.messages()] == [
            None, (fact.id,), None, (fact.id,), None, None,
        ]  # fmt: skip

    asyncio.run(scenario())


def test_nothing_is_added_to_an_answer_whose_receipt_was_erased(session: BranchSession) -> None:
    async def scenario() -> None:
        session.session.say("user", "a")
        session.session.say("assistant", "b", id="b", meta={"recalled": ["home"]})
        session.store.erase(["b"])
        for wanted in (session.remember(tool("c"), "tea"), session.add_items([answered("c")])):
            with pytest.raises(InvalidEvent, match=r"b was erased, so nobody knows .*: rewind above it"):
                await wanted
        await session.add_items([said("d"), answered("e")])

        assert texts(await session.get_items()) == ["a", "d", "e"]

    asyncio.run(scenario())


def test_what_a_turn_was_written_with_is_never_guessed(session: BranchSession) -> None:
    async def scenario() -> None:
        session.session.say("user", "a")
        session.session.say("assistant", "b", meta={"recalled": ["elsewhere"]})
        unknown = await session.remember(tool("c"), "tea")
        session.session.say("assistant", "c", meta={"recalled": "everything"})
        for wanted in (session.remember(tool("d"), "tea"), session.add_items([answered("d")])):
            with pytest.raises(InvalidEvent, match="rewind above it"):
                await wanted
        await session.add_items([said("d"), answered("e")])

        assert unknown.derived_from == ("elsewhere",)
        assert texts(await session.get_items()) == ["a", "b", "c", "d", "e"]

    asyncio.run(scenario())
