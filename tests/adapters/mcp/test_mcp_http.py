"""The gate before the MCP server: whatever a request lacks or has too much of, it is told so, and nothing is done."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import branchmem as bm
import pytest
from branchmem.errors.mcp_server import AddressRefused, InvalidToken
from branchmem.mcp_server.gate import Limits
from branchmem.mcp_server.http import good_token, listening, names_of, url_of
from serving_http import TOKEN, Served, answer, exchange, served

LIMITS = Limits(body_bytes=20_000, body_seconds=0.4, head_seconds=0.4, connections=8)
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with bm.open_temporary() as store:
        store.session("main")
        with served(store, ref="main", limits=LIMITS) as server:
            yield server
        assert store.seq == 1, "nothing was written by any of the requests"


def request(server: Served, *lines: str, body: bytes | None = None, path: str = "/mcp", method: str = "POST") -> bytes:
    """A good request, but for `lines`: each takes the place of the header of its name, `Name:` alone removes it."""
    body = json.dumps(CALL).encode() if body is None else body
    headers = {
        "host": f"Host: {server.host}",
        "authorization": f"Authorization: Bearer {TOKEN}",
        "content-type": "Content-Type: application/json",
        "accept": "Accept: application/json, text/event-stream",
        "content-length": f"Content-Length: {len(body)}",
        "connection": "Connection: close",
    }
    for line in lines:
        name = line.partition(":")[0].lower()
        headers[name] = line
    kept = [line for line in headers.values() if line.partition(":")[2]]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "", ""]).encode() + body


def test_a_good_request_is_answered(server: Served) -> None:
    for lines in (
        (),
        (f"Host: localhost:{server.port}",),
        (f"Host: LOCALHOST:{server.port}",),
        (f"Host: [::1]:{server.port}",),
        (f"Origin: http://{server.host}",),
        (f"Origin: http://localhost:{server.port}",),
        (f"Authorization: bearer  {TOKEN}",),
    ):
        status, said = exchange(server.port, request(server, *lines))
        assert (status, b'"serverInfo"' in said) == (200, True), lines


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "evil.example.com:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1:{port}.evil.example.com",
        "localhost.evil.example.com:{port}",
        "127.0.0.1:{port}@evil.example.com",
        "0.0.0.0:{port}",
    ],
)
def test_a_host_that_is_not_its_own_is_refused(server: Served, host: str) -> None:
    status, said = exchange(server.port, request(server, f"Host: {host.format(port=server.port)}"))

    assert status == 421
    assert b"evil" not in said


def test_a_request_without_a_host_is_refused(server: Served) -> None:
    old = request(server, "Host:").replace(b"HTTP/1.1", b"HTTP/1.0")

    assert exchange(server.port, old)[0] == 421
    assert exchange(server.port, request(server, "Host:"))[0] == 400
    twice = request(server).replace(b"\r\n", f"\r\nHost: {server.host}\r\n".encode(), 1)
    assert exchange(server.port, twice)[0] == 400


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example.com",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost:{port}.evil.example.com",
        "null",
        "file://",
    ],
)
def test_a_page_of_another_origin_is_refused_with_the_token_or_without(server: Served, origin: str) -> None:
    line = f"Origin: {origin.format(port=server.port)}"

    assert exchange(server.port, request(server, line))[0] == 403
    assert exchange(server.port, request(server, line, "Authorization:"))[0] == 403
    both = request(server, f"Origin: http://{server.host}").replace(b"\r\n", f"\r\n{line}\r\n".encode(), 1)
    assert exchange(server.port, both)[0] == 403


@pytest.mark.parametrize(
    "given",
    [
        "",
        " Bearer",
        " Bearer ",
        f" Bearer {TOKEN}x",
        f" Bearer {TOKEN[:-1]}",
        f" Bearer {TOKEN.upper()}",
        f" Basic {TOKEN}",
        f" {TOKEN}",
        f" Bearer {TOKEN} {TOKEN}",
        " Bearer \u00e9\u00e9\u00e9",
    ],
)
def test_a_request_without_the_token_is_refused_whatever_it_asks(server: Served, given: str) -> None:
    for method, path in (("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("OPTIONS", "/mcp"), ("GET", "/")):
        status, said = exchange(
            server.port, request(server, f"Authorization:{given}", method=method, path=path, body=b"{}")
        )
        assert status == 401
        assert b"www-authenticate: Bearer" in said
        assert TOKEN.encode() not in said


def test_a_token_beside_another_is_none(server: Served) -> None:
    twice = request(server).replace(b"\r\n", b"\r\nAuthorization: Bearer x\r\n", 1)

    assert exchange(server.port, twice)[0] == 401


def test_a_token_in_the_address_is_none(server: Served) -> None:
    assert exchange(server.port, request(server, "Authorization:", path=f"/mcp?token={TOKEN}"))[0] == 401


def test_only_one_path_is_served(server: Served) -> None:
    for path in ("/", "/mcp/", "/sse", "/.well-known/oauth-protected-resource", "/mcp/../mcp"):
        assert exchange(server.port, request(server, path=path))[0] == 404


def test_a_body_that_is_too_large_is_refused_by_what_it_says_or_by_what_comes(server: Served) -> None:
    too_many = LIMITS.body_bytes + 1
    assert exchange(server.port, request(server, f"Content-Length: {too_many}", body=b""))[0] == 413
    assert exchange(server.port, request(server, f"Content-Length: {'9' * 100}", body=b""))[0] in (400, 413)
    chunked = request(server, "Content-Length:", "Transfer-Encoding: chunked", body=b"")
    chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(chunked + chunk * 5)
        assert answer(connection)[0] == 413
    fits = json.dumps(CALL).encode().ljust(LIMITS.body_bytes)
    assert exchange(server.port, request(server, body=fits))[0] == 200


def test_a_body_that_does_not_come_is_not_waited_for(server: Served) -> None:
    whole = request(server)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(whole[:-10])
        assert answer(connection)[0] == 408


def test_a_body_that_comes_byte_by_byte_is_cut_off(server: Served) -> None:
    whole = request(server)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(whole[:-100])
        try:
            for byte in whole[-100:-50]:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
            status = answer(connection)[0]
        except (BrokenPipeError, ConnectionResetError):
            status = 408
    assert status == 408


@pytest.mark.parametrize("begun", [b"", b"POST /mcp HTTP/1.1\r\nHost: x\r\n", b"POST"])
def test_a_head_that_does_not_come_is_not_waited_for(server: Served, begun: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(begun)
        assert answer(connection) == (0, b"")


def test_the_second_head_on_a_connection_is_not_waited_for_either(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request(server, "Connection: keep-alive", method="DELETE"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 4")
        connection.sendall(b"POST /m")
        assert answer(connection)[1].count(b"HTTP/1.1 ") == 0


def test_more_connections_than_allowed_are_told_so_and_room_comes_back(server: Served) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(LIMITS.connections)]
    try:
        assert exchange(server.port, request(server))[0] == 503
        for connection in idle:
            assert answer(connection) == (0, b"")
    finally:
        for connection in idle:
            connection.close()
    assert exchange(server.port, request(server))[0] == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"jsonrpc": "2.0"}', b"[" * 5000, b'{"id": 1e999}']
)
def test_a_body_that_is_no_request_is_an_error_and_no_traceback(server: Served, body: bytes) -> None:
    status, said = exchange(server.port, request(server, body=body))

    assert 400 <= status < 500
    assert b"Traceback" not in said


def test_bytes_that_are_no_http_are_refused(server: Served) -> None:
    assert exchange(server.port, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")[0] == 400
    assert exchange(server.port, b"GET / HTTP/9.9\r\n\r\n")[0] == 421


# Where it listens


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_loopback_is_listened_at_without_a_word(host: str) -> None:
    with listening(host, 0) as bound:
        port = bound.getsockname()[1]
        assert f"localhost:{port}" in names_of(bound)
        assert url_of(bound).endswith(f":{port}/mcp")


@pytest.mark.parametrize("host", ["0.0.0.0", "", "8.8.8.8", "no such host"])
def test_elsewhere_is_not_listened_at_unless_it_is_said(host: str) -> None:
    with pytest.raises(AddressRefused):
        listening(host, 0)


def test_a_port_that_is_taken_is_refused() -> None:
    with listening("127.0.0.1", 0) as bound, pytest.raises(AddressRefused, match="take another"):
        listening("127.0.0.1", bound.getsockname()[1])


def test_all_addresses_need_a_name_by_which_they_are_called() -> None:
    with listening("0.0.0.0", 0, remote=True) as bound:
        with pytest.raises(AddressRefused, match="--allow-host"):
            names_of(bound)
        assert names_of(bound, ["memory.example:443"]) == ["memory.example:443"]


@pytest.mark.parametrize("token", ["", "short", "has a space in it, which is long", "é" * 20, "a\n" * 20])
def test_a_token_that_keeps_nobody_out_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(InvalidToken) as refused:
        good_token(token)
    assert not token or token not in str(refused.value)


def test_a_token_that_is_made_is_another_each_time() -> None:
    assert len({good_token(None) for _ in range(10)}) == 10
    assert good_token(TOKEN) == TOKEN
