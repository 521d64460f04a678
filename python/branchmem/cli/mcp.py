"""`branchmem mcp`: the store as a server for hosts that speak the Model Context Protocol.

Standard output belongs to the protocol; what people are told goes to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

import branchmem as bm
from branchmem.cli.forms import StorePath
from branchmem.cli.recall import EmbedderName, embedder_of
from branchmem.terminal import show


def mcp(
    store: StorePath,
    ref: Annotated[
        str | None, typer.Option("--ref", metavar="REF", help="Where a call stands that gives no anchor.")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the store, and REF in it, where there is none.")
    ] = False,
    readonly: Annotated[bool, typer.Option("--readonly", help="Offer only what reads.")] = False,
    embedder: EmbedderName = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="[HOST:]PORT", help="Streamable HTTP at this address; else standard input."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="BRANCHMEM_MCP_TOKEN",
            metavar="TOKEN",
            help="What each HTTP request must bear; one is made, and said, where none is given.",
        ),
    ] = None,
    hosts: Annotated[
        list[str] | None, typer.Option("--allow-host", metavar="NAME:PORT", help="One more Host that is served.")
    ] = None,
    origins: Annotated[
        list[str] | None, typer.Option("--allow-origin", metavar="URL", help="One more Origin that is answered.")
    ] = None,
    remote: Annotated[
        bool,
        typer.Option("--remote", help="Listen where other machines can reach it: plain HTTP, so put TLS before it."),
    ] = False,
) -> None:
    """Serve the store to MCP hosts: over standard input and output, or with --http.

    Each call says on which branch it stands; one that does not stands at REF.
    """
    if readonly and create:
        raise typer.BadParameter("--readonly makes nothing: leave --create out")
    if http is None and (hosts or origins or remote):
        raise typer.BadParameter("--allow-host, --allow-origin and --remote are for --http")
    address = None if http is None else _address(http)
    model = embedder_of(embedder)
    from branchmem.mcp_server import server
    from branchmem.mcp_server.http import application, good_token, listening, names_of, serve, url_of

    bearer = good_token(None if address is None else token)
    with bm.open(store, create=create, readonly=readonly) as opened:
        if ref is not None:
            _require(opened, ref, create=create)
        opened.embed_with(model)
        made = server(opened, ref=ref, readonly=readonly)
        if address is None:
            made.run("stdio")
            return
        with listening(*address, remote=remote) as bound:
            app = application(made, token=bearer, hosts=names_of(bound, hosts or ()), origins=origins or ())
            show(_told(url_of(bound), bearer if token is None else None, remote=remote), out=sys.stderr)
            sys.stderr.flush()
            serve(app, bound)


def _told(url: str, token: str | None, *, remote: bool) -> Iterator[str]:
    """What is said before the first request: the address, and the token that was made."""
    yield f"listening at {url}"
    if token is not None:
        yield f"token {token}"
    if remote:
        yield "this is plain HTTP: unless TLS stands before it, whoever is between reads the token"


def _require(store: bm.Store, ref: str, *, create: bool) -> None:
    """Raises: UnknownRef where there is no such ref, and none is to be made."""
    if create:
        store.session(ref)
    else:
        store.refs.heads([ref])


def _address(given: str) -> tuple[str, int]:
    """The host, 127.0.0.1 where only a port is given, and the port.  Raises: BadParameter."""
    host, _, port = given.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise typer.BadParameter(f"--http {given}: write [HOST:]PORT, as 127.0.0.1:8765")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
