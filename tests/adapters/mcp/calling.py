"""Calls of the SDK's own client, and what they answer: structured, or the text of a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import branchmem as bm
import httpx2
from branchmem.mcp_server import server
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from serving_http import TOKEN, Served

#: The handshake of the protocol versions before 2026-07-28, and the stateless one since.
MODES = ("legacy", "auto")


async def ask(client: Client, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    """What a tool answers."""
    result = await client.call_tool(tool, arguments, meta=meta)  # type: ignore[arg-type]
    assert not result.is_error, result.content
    structured = result.structured_content
    assert isinstance(structured, dict)
    return structured


async def refused(client: Client, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> str:
    """The text with which a tool refuses, without the prefix of the SDK."""
    result = await client.call_tool(tool, arguments, meta=meta)  # type: ignore[arg-type]
    assert result.is_error, result.structured_content
    assert result.structured_content is None
    (said,) = result.content
    text = str(getattr(said, "text", ""))
    assert "Traceback" not in text
    return text.removeprefix(f"Error executing tool {tool}: ")


def talk(
    store: bm.Store, work: Callable[[Client], Awaitable[None]], *, ref: str | None = "main", mode: str = "legacy"
) -> None:
    """Let `work` use a client of the server of a store, in this process."""

    async def run() -> None:
        async with Client(server(store, ref=ref), mode=mode) as client:
            await work(client)

    asyncio.run(run())


@asynccontextmanager
async def over_http(served: Served, mode: str = "auto", token: str = TOKEN) -> AsyncIterator[Client]:
    """A client of a server over HTTP."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=20) as http,
        Client(streamable_http_client(served.url, http_client=http), mode=mode) as client,
    ):
        yield client


def texts(answer: dict[str, Any]) -> set[str]:
    """The texts of the memories of an answer."""
    found = answer.get("memories") or [hit["memory"] for hit in answer.get("hits", ())]
    return {memory["text"] for memory in found}


@contextmanager
def edited() -> Iterator[bm.Store]:
    """A store in which the user said something, and then something else in its place.

    `main` stands at u1, `other` at its sibling u2; `home` comes from u1, and `elsewhere` from u2.
    """
    with bm.open_temporary() as store:
        store.append(
            [
                bm.Message("chat", None, role="thread"),
                bm.Message("u1", "chat", role="user", text="I'm moving to Chengdu"),
                bm.Memory("home", "The user is moving to Chengdu", sources=["u1"], key="home_city"),
                bm.Message("u2", "chat", role="user", text="I'm moving to Hangzhou"),
                bm.Memory("elsewhere", "The user is moving to Hangzhou", sources=["u2"], key="home_city"),
            ]
        )
        store.refs.create("main", "u1")
        store.refs.create("other", "u2")
        yield store
