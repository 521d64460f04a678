"""AsyncMemory has the same surface, and the same promises."""

from __future__ import annotations

import asyncio
from typing import Any

import branchmem as bm
import pytest
from branchmem.adapters.mem0 import BranchMem
from scripted import USER, Model, config, said, texts


async def seen(memory: Any) -> list[str]:
    listed = texts(await memory.get_all(filters=USER, top_k=1000))
    assert texts(await memory.search("what is liked", filters=USER, top_k=1000, threshold=0.0)) == listed
    return listed


def test_an_async_mem0_keeps_branches_apart(model: Model, store: bm.Store) -> None:
    from mem0 import AsyncMemory

    model.facts.update({"I like tea": ["likes tea"], "I like coffee": ["likes coffee"]})

    async def talk() -> None:
        mem = BranchMem(AsyncMemory.from_config(config(model.url, None)), store)
        left = store.session("left")
        right = left.fork("right")

        async def turn(session: bm.Session, text: str) -> Any:
            await session.asay("user", text)
            return await mem.at(session.head).add(said(text), **USER)

        (tea,), (coffee,) = [
            answer["results"] for answer in await asyncio.gather(turn(left, "I like tea"), turn(right, "I like coffee"))
        ]
        assert await seen(mem.at(left.head)) == ["likes tea"]
        assert await seen(mem.at(right.head)) == ["likes coffee"]

        below = left.fork("below")
        await below.asay("user", "more")
        here = mem.at(below.head)
        new = (await here.update(tea["id"], "likes green tea"))["id"]
        assert (await here.get(tea["id"]))["id"] == new
        assert [one["event"] for one in await here.history(tea["id"])] == ["ADD", "UPDATE"]
        assert await here.get(coffee["id"]) is None
        await here.delete(tea["id"])
        assert await seen(here) == []
        await here.add("likes milk", infer=False, **USER)
        await here.delete_all(**USER)
        assert await seen(here) == []
        await here.add("likes milk", infer=False, **USER)
        await here.reset()
        assert await seen(here) == []
        assert await seen(mem.at(left.head)) == ["likes tea"]
        with pytest.raises(bm.Error, match="delete them at its message"):
            async with left.step() as step:
                await mem.at(step).delete_all(**USER)

    asyncio.run(talk())
