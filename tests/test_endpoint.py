"""An endpoint that fails in every way: it is asked again where that may help, and nobody reads the key."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from branchmem.endpoint import Endpoint
from branchmem.errors import EndpointFailed, InvalidEmbedder
from serving import Server, nobody, nothing_from_outside, serving, shown

KEY = "sk-a-secret-key"
FORM = {"input": "my text"}


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_from_outside(monkeypatch)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(usual=lambda form: json.dumps({"heard": form}).encode()) as server:
        yield server


def at(base_url: str | None = None, **options: Any) -> Endpoint:
    usual = {"key": None, "timeout": 5.0, "retries": 4, "pause": 0.0, "refused": partial(InvalidEmbedder, "m")}
    return Endpoint("/things", base_url=base_url, **{**usual, **options})


def post(endpoint: Endpoint, max_answer_bytes: int = 1000) -> Any:
    return json.loads(endpoint.post(FORM, max_answer_bytes=max_answer_bytes))


def test_what_is_sent_goes_to_the_path_below_the_url_with_the_key_in_one_header(server: Server) -> None:
    endpoint = at(f" {server.url}/ ", key=KEY)
    assert post(endpoint) == {"heard": FORM}
    assert (endpoint.base_url, endpoint.url, server.paths) == (server.url, f"{server.url}/things", ["/v1/things"])
    assert [name for name, value in server.headers[0].items() if KEY in value] == ["Authorization"]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(endpoint)


def test_url_and_key_come_from_the_environment_unless_they_are_given(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    post(at())
    assert "Authorization" not in server.headers[0]
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    post(at())
    post(at(key="mine"))
    assert [headers["Authorization"] for headers in server.headers[1:]] == [f"Bearer {KEY}", "Bearer mine"]
    assert at("http://host").url == "http://host/things"
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert at().base_url == "https://api.openai.com/v1"


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_what_fails_for_now_is_asked_again(server: Server, status: int) -> None:
    server.told = [(status, {}, b"busy"), (status, {"Retry-After": "0"}, b"")]
    assert post(at(server.url)) == {"heard": FORM}
    assert server.asked == [FORM] * 3


def test_a_connection_that_breaks_is_tried_again(server: Server) -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
    server.told = [socket.socket.close, lambda connection: connection.sendall(half)]
    assert post(at(server.url)) == {"heard": FORM}


def test_it_is_asked_so_often_and_no_more(server: Server) -> None:
    server.told = [(429, {}, f"slow down, {KEY}".encode())] * 9
    with pytest.raises(EndpointFailed, match=r"status 429: slow down, \[key\] \(asked 3 times\)") as failed:
        post(at(server.url, key=KEY, retries=2))
    assert (failed.value.status, len(server.asked)) == (429, 3)
    assert failed.value.url == f"{server.url}/things"
    assert KEY not in shown(failed.value)


def test_pauses_double_unless_the_endpoint_asks_for_another(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    server.told = [(503, headers, b"") for headers in ({}, {}, {"Retry-After": "7"}, {"Retry-After": "soon"})]
    post(at(server.url, pause=0.5))
    assert pauses == [0.5, 1.0, 7.0, 4.0]


@pytest.mark.parametrize("asked", ["3600", "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_nobody_waits_for_an_hour(server: Server, asked: str) -> None:
    server.told = [(429, {"Retry-After": asked}, b"")]
    with pytest.raises(EndpointFailed, match=r"status 429; it asks to wait \d+ s: ask again then") as failed:
        post(at(server.url))
    assert (failed.value.status, len(server.asked)) == (429, 1)


@pytest.mark.parametrize(
    ("status", "why"),
    [(400, "status 400: it reads"), (401, "status 401: check the key"), (403, "check the key"), (404, "404")],
)
def test_what_will_not_do_later_is_not_asked_again(server: Server, status: int, why: str) -> None:
    server.told = [(status, {}, f"it reads {KEY}\n".encode() * 50)]
    with pytest.raises(EndpointFailed, match=why) as failed:
        post(at(server.url, key=KEY))
    assert (failed.value.status, len(server.asked)) == (status, 1)
    assert KEY not in shown(failed.value)
    assert len(str(failed.value)) < 300


def test_a_refusal_that_ends_within_the_key_shows_no_part_of_it(server: Server) -> None:
    for before in range(1600 - len(KEY), 1600):
        server.told = [(400, {}, b" " * before + KEY.encode() + b"; and more")]
        with pytest.raises(EndpointFailed, match="status 400") as failed:
            post(at(server.url, key=KEY))
        assert "sk" not in failed.value.why


def test_a_redirect_takes_nothing_elsewhere(server: Server) -> None:
    for status in (301, 302, 303, 307, 308):
        server.told = [(status, {"Location": f"{server.url}/elsewhere?{KEY}"}, b"")]
        with pytest.raises(EndpointFailed, match="redirects elsewhere") as failed:
            post(at(server.url, key=KEY))
        assert KEY not in shown(failed.value)
    assert set(server.paths) == {"/v1/things"}


def test_an_answer_without_end_is_not_held(server: Server) -> None:
    whole = len(json.dumps({"heard": FORM}))
    assert post(at(server.url), whole) == {"heard": FORM}
    with pytest.raises(EndpointFailed, match="its answer is longer than"):
        post(at(server.url), whole - 1)
    assert len(server.asked) == 2


def test_who_does_not_answer_in_time_is_given_up(server: Server) -> None:
    silent = threading.Event()
    server.told = [lambda connection: silent.wait(5)] * 2
    with pytest.raises(EndpointFailed, match=r"no answer: timed out \(asked 2 times") as failed:
        post(at(server.url, key=KEY, retries=1, timeout=0.1))
    silent.set()
    assert KEY not in shown(failed.value)


def test_nobody_there_is_said_with_the_address() -> None:
    url = nobody()
    with pytest.raises(EndpointFailed, match=r"no answer: .*refused") as failed:
        post(at(url, key=KEY, retries=0))
    assert str(failed.value).startswith(f"{url}/things: ")
    assert failed.value.status is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"base_url": "file:///etc/passwd"}, "must be http"),
        ({"base_url": "ftp://host/v1"}, "must be http"),
        ({"base_url": "localhost:8000"}, "must be http"),
        ({"base_url": ""}, "must be http"),
        ({"base_url": "http://"}, "must be http"),
        ({"base_url": "http://host:port"}, "must be http"),
        ({"base_url": "http://a b/v1"}, "must be http"),
        ({"base_url": f"https://user:{KEY}@host/v1"}, "no user, no password"),
        ({"base_url": f"https://host/v1?key={KEY}"}, "nothing after the path"),
        ({"base_url": f"https://host/v1#{KEY}"}, "nothing after the path"),
        ({"key": f"{KEY}\r\nX-Other: 1"}, "cannot be sent"),
        ({"key": f"{KEY}é"}, "cannot be sent"),
        ({"key": f"{KEY} {KEY}"}, "cannot be sent"),
        ({"key": " "}, "is empty"),
        ({"retries": -1}, "is sent once"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_sent(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidEmbedder, match=why) as refused:
        at(**{"base_url": "http://127.0.0.1:9/v1", **options})
    assert KEY not in shown(refused.value)
