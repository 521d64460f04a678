"""The MCP server as a process of its own, over both transports: two clients on two branches at once."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from calling import MODES, ask, over_http, refused, texts
from commands import Run
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from serving_http import TOKEN, Served, exchange, served

COMMAND = [sys.executable, "-m", "branchmem.cli", "mcp"]
ROUNDS = 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with two empty branches."""
    with bm.open(tmp_path / "a.bmem") as store:
        store.session("left").fork("right")
    return tmp_path / "a.bmem"


def over_stdio(*options: str) -> Client:
    """A client of a process of its own."""
    words = [*COMMAND[1:], *options]
    return Client(StdioServerParameters(command=COMMAND[0], args=words, env=dict(os.environ)))


@contextmanager
def process(*options: str) -> Iterator[tuple[Served, str]]:
    """A server over HTTP in a process of its own, and the token that it made."""
    environment = {**os.environ, "BRANCHMEM_MCP_TOKEN": ""}
    del environment["BRANCHMEM_MCP_TOKEN"]
    pipes: Any = {"stderr": subprocess.PIPE, "text": True}
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # what a shell runs in its background does not
    with subprocess.Popen([*COMMAND, *options], env=environment, preexec_fn=hears, **pipes) as running:
        assert running.stderr
        try:
            url = re.fullmatch(r"listening at http://127\.0\.0\.1:(\d+)/mcp\n", running.stderr.readline())
            token = re.fullmatch(r"token (\S{43})\n", running.stderr.readline())
            assert url
            assert token
            yield Served(int(url[1])), token[1]
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()
    assert running.returncode == 130


async def converse(client: Client, branch: str) -> None:
    """Say and remember on one branch; nothing of the other is ever found."""
    for number in range(ROUNDS):
        await ask(client, "append_message", anchor=branch, text=f"{branch} {number}")
        await ask(client, "add_memory", {"branchmem/anchor": branch}, text=f"said on {branch} {number}")
        seen = {f"said on {branch} {n}" for n in range(number + 1)}
        assert texts(await ask(client, "list_memories", anchor=branch)) == seen
        assert texts(await ask(client, "search_memories", {"branchmem/anchor": branch}, query="said on")) <= seen


def assert_both_kept_to_their_branch(path: Path) -> None:
    with bm.open(path, readonly=True) as store:
        for branch in ("left", "right"):
            shown = {memory.text for memory in store.at_ref(branch).memories()}
            assert shown == {f"said on {branch} {n}" for n in range(ROUNDS)}
            assert len(store.tree.path(store.refs[branch])) == ROUNDS + 1


def test_two_clients_of_one_server_on_two_branches_at_once_do_not_meet(path: Path) -> None:
    async def both(server: Served) -> None:
        async with over_http(server, MODES[0]) as one, over_http(server, MODES[1]) as other:
            await asyncio.gather(converse(one, "left"), converse(other, "right"))

    with bm.open(path) as store, served(store) as server:
        asyncio.run(both(server))
    assert_both_kept_to_their_branch(path)


def test_one_client_on_two_branches_at_once_keeps_them_apart(path: Path) -> None:
    async def both(server: Served) -> None:
        async with over_http(server) as client:
            await asyncio.gather(converse(client, "left"), converse(client, "right"))

    with bm.open(path) as store, served(store) as server:
        asyncio.run(both(server))
    assert_both_kept_to_their_branch(path)


def test_a_client_that_switches_disturbs_none_that_does_not_say_where_it_stands(path: Path) -> None:
    async def both(server: Served) -> None:
        async with over_http(server) as one, over_http(server) as other:
            await ask(one, "append_message", anchor="right", text="x")
            await ask(one, "add_memory", anchor="right", text="from the right")
            assert (await ask(one, "switch", to="right"))["visible"] == 1
            for client in (one, other):  # both stand where the server stands, until they say otherwise
                assert texts(await ask(client, "list_memories")) == set()

    with bm.open(path) as store, served(store, ref="left") as server:
        asyncio.run(both(server))


def test_two_processes_over_standard_input_share_a_store_that_one_makes_and_no_branch(tmp_path: Path) -> None:
    path = tmp_path / "new.bmem"

    async def both() -> None:
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(over_stdio("--store", str(path), "--ref", "left", "--create"))
            await ask(one, "fork", name="right")
            other = await stack.enter_async_context(over_stdio("--store", str(path), "--ref", "right"))
            await asyncio.gather(converse(one, "left"), converse(other, "right"))
            assert (await refused(one, "get_memory", memory_id="nobody")).startswith("MemoryHidden: ")

    asyncio.run(both())
    assert_both_kept_to_their_branch(path)


def test_the_command_serves_over_http_with_a_token_that_it_makes(path: Path) -> None:
    async def use(server: Served, token: str) -> None:
        async with over_http(server, token=token) as client:
            await ask(client, "append_message", text="hello")
            await ask(client, "add_memory", text="said hello")
            assert texts(await ask(client, "list_memories")) == {"said hello"}
        request = f"POST /mcp HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        assert exchange(server.port, request.encode())[0] == 401

    with process("--store", str(path), "--ref", "left", "--http", "0") as (server, token):
        asyncio.run(use(server, token))
    with bm.open(path, readonly=True) as store:
        assert len(store.at_ref("left")) == 1


def test_the_command_offers_reading_alone_where_it_is_told_to(path: Path) -> None:
    before = path.read_bytes()

    async def use() -> None:
        async with over_stdio("--store", str(path), "--ref", "left", "--readonly") as client:
            assert len((await client.list_tools()).tools) == 5
            assert "append_message" in await refused(client, "append_message", text="x")

    asyncio.run(use())
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ref", "nobody"], "there is no ref 'nobody'"),
        (["--http", "0.0.0.0:0"], "others than this machine could reach the server there"),
        (["--http", "0.0.0.0:0", "--remote"], "--allow-host"),
        (["--http", "0", "--token", "short"], "the token has fewer than 16 characters"),
    ],
)
def test_the_command_refuses_in_one_line_before_it_serves(run: Run, path: Path, options: list[str], said: str) -> None:
    refused = run("mcp", "--store", str(path), *options)

    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert said in refused.err
