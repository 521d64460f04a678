"""The server as the official conformance suite can ask it: as people run it, but for one thing.

The suite sends no Authorization header and has no option for one, so a layer before the server gives each request the
token.  The server itself is none the wiser: there is no way to start it without a token.

    python conformant.py PORT
"""

from __future__ import annotations

import sys

import branchmem as bm
from branchmem.mcp_server import server
from branchmem.mcp_server.gate import Application, Receive, Scope, Send
from branchmem.mcp_server.http import application, good_token, listening, names_of, serve, url_of


def bearing(token: str, app: Application) -> Application:
    """The application, each of whose requests bears the token."""

    async def with_token(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [*scope["headers"], (b"authorization", f"Bearer {token}".encode())]
        await app(scope, receive, send)

    return with_token


def main(port: int) -> None:
    token = good_token(None)
    with bm.open_temporary() as store, listening("127.0.0.1", port) as bound:
        store.session("main")
        app = application(server(store, ref="main"), token=token, hosts=names_of(bound))
        print(url_of(bound), flush=True)
        serve(bearing(token, app), bound)


if __name__ == "__main__":
    main(int(sys.argv[1]))
