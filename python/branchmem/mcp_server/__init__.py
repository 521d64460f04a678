"""A store as an MCP server: memory for any host that speaks the protocol, each call on the branch that it names.

    with bm.open("alice.bmem") as store:
        mcp_server.server(store, ref="main").run("stdio")

The place of a call travels with it; the server knows no place of a client.  What may be seen there, the store decides.

server    the tools, resources and prompts there are
tools     what each does with the store
forms     what the tools take and answer with, as schemas
trees     where the branches are
place     where a call stands
refusals  what a client is told that is refused
http      streamable HTTP: addresses, names, tokens, waiting
gate      who may reach the server over HTTP
"""

from __future__ import annotations

from branchmem.extra import extra

with extra("mcp", wanted="MCP servers", name="mcp"):
    from branchmem.mcp_server.server import server

__all__ = ["server"]
