"""A model behind an endpoint: its answer is read whole or as it comes, or refused, and nobody reads the key."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from branchmem.chat import Call, Chat, Reply
from branchmem.errors import EndpointFailed
from branchmem.errors.agent import InvalidModel
from completions import EVENTS, answer, calling, events, pieces, streamed
from serving import Server, nothing_from_outside, serving, shown

KEY = "sk-a-secret-key"
ASKED = [{"role": "user", "content": "Where to?"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALLS = (calling("look", '{"at": "Chengdu"}'), calling("book", '{"nights": 3}', "call_2"))


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_from_outside(monkeypatch)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def chat(server: Server, **options: Any) -> Chat:
    return Chat("m", **{"base_url": server.url, "key": KEY, "timeout": 5.0, "pause": 0.0, **options})


def test_what_is_asked_is_what_the_endpoint_gets(server: Server) -> None:
    server.told = [answer("Chengdu."), answer("Chengdu.")]
    schema = {"type": "object", "title": "place"}
    model = chat(server, temperature=0.5, options={"seed": 4})
    model.ask(ASKED)
    model.ask(ASKED, tools=[TOOL], schema=schema, max_tokens=9)
    asked = {"model": "m", "temperature": 0.5, "seed": 4, "messages": ASKED}
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    assert server.asked == [asked, {**asked, "tools": [TOOL], "response_format": form, "max_tokens": 9}]
    assert server.paths == ["/v1/chat/completions"] * 2
    assert KEY not in repr(model)


def test_an_answer_is_text_calls_and_counts(server: Server) -> None:
    server.told = [answer("Chengdu."), answer(None, CALLS)]
    model = chat(server)
    assert model.ask(ASKED) == Reply("Chengdu.", (), "stop", 7, 3)
    assert model.ask(ASKED) == Reply("", CALLS, "tool_calls", 7, 3)


def test_a_stream_gives_its_pieces_and_at_last_the_same_reply(server: Server) -> None:
    server.told = [streamed("To Chengdu, by train."), streamed("I look.", CALLS)]
    model = chat(server)
    came = list(model.stream(ASKED))
    assert came == ["To", " Chengdu,", " by", " train.", Reply("To Chengdu, by train.", (), "stop", 7, 3)]
    assert list(model.stream(ASKED))[-1] == Reply("I look.", CALLS, "tool_calls", 7, 3)
    assert server.asked[0]["stream"] is True


def test_async_twins_say_the_same(server: Server) -> None:
    server.told = [answer("Chengdu."), streamed("To Chengdu.")]
    model = chat(server)

    async def both() -> tuple[Reply, list[str | Reply]]:
        return await model.aask(ASKED), [piece async for piece in model.astream(ASKED)]

    reply, came = asyncio.run(both())
    assert reply.text == "Chengdu."
    assert came == ["To", " Chengdu.", Reply("To Chengdu.", (), "stop", 7, 3)]


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        # each call is counted as the first one, and named by its id
        ([{"index": 0, "id": id, "function": {"name": name, "arguments": "{}"}} for id, name in ("af", "bg")],
         (Call("a", "f", "{}"), Call("b", "g", "{}"))),
        # nothing is counted; the id is said with each piece
        ([{"id": "a", "function": {"name": "f", "arguments": part}} for part in ('{"x"', ": 1}")],
         (Call("a", "f", '{"x": 1}'),)),
        # arguments are given as an object
        ([{"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}], (Call("a", "f", '{"x": 1}'),)),
    ],
)  # fmt: skip
def test_calls_are_put_together_as_servers_take_them_apart(
    server: Server, deltas: list[dict[str, Any]], calls: tuple[Call, ...]
) -> None:
    choices = [{"index": 0, "delta": {"tool_calls": [delta]}, "finish_reason": None} for delta in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    server.told = [(200, EVENTS, events({"choices": [choice]} for choice in [*choices, end]))]
    *_, reply = chat(server).stream(ASKED)
    assert isinstance(reply, Reply)
    assert reply.calls == calls


@pytest.mark.parametrize(
    "first",
    [
        b'data: {"choices": [{"index": 0, "delta": {"content": "Yes."}}], "usage": null}\n\n',
        b'\xef\xbb\xbfdata: {"choices": [{"index": 0, "delta": {"content": "Yes."}}]}\n\n',  # a byte order mark
        b'data: {"choices": [{"index": 0, "delta": null, "message": {"content": "Yes."}}]}\n\n',
        b'data: {"usage": {"prompt_tokens": 2}}\n\ndata: {"choices": [{"index": 0, "delta": {"content": "Yes."}}]}\n\n',
    ],
)
def test_no_piece_is_lost_however_it_is_packed(server: Server, first: bytes) -> None:
    server.told = [(200, EVENTS, first + b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n')]
    *_, reply = chat(server).stream(ASKED)
    assert isinstance(reply, Reply)
    assert (reply.text, reply.finish) == ("Yes.", "stop")


def test_a_call_without_an_id_gets_one_of_its_own(server: Server) -> None:
    server.told = [answer(None, [Call("", "f", "{}"), Call("", "g", "{}")])]
    first, second = chat(server).ask(ASKED).calls
    assert first.id != second.id
    assert (first.name, second.name) == ("f", "g")


def test_events_are_read_however_they_are_sent(server: Server) -> None:
    said = b"".join(
        b": a comment\r\nevent: message\r\nid: 4\r\ndata:%s\r\n\r\n"
        % json.dumps(chunk, indent=1).replace("\n", "\ndata:").encode()
        for chunk in pieces("To Chengdu.")
    )
    server.told = [(200, EVENTS, said), (200, EVENTS, events(pieces("To Chengdu."), end="").rstrip() + b"\n")]
    for _ in range(2):
        assert list(chat(server).stream(ASKED))[-1] == Reply("To Chengdu.", (), "stop", 7, 3)


def test_a_server_that_knows_no_streams_answers_in_one_piece(server: Server) -> None:
    server.told = [answer("To Chengdu.")]
    assert list(chat(server).stream(ASKED)) == ["To Chengdu.", Reply("To Chengdu.", (), "stop", 7, 3)]


def test_what_fails_before_it_begins_is_asked_again(server: Server) -> None:
    server.told = [(503, {}, b"busy"), streamed("Yes.")]
    assert list(chat(server).stream(ASKED))[-1] == Reply("Yes.", (), "stop", 7, 3)
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ((200, EVENTS, events(pieces("To Chengdu,", finish=None), end="")), "broke off"),
        ((200, {**EVENTS, "Content-Length": "9999"}, events(pieces("To", finish=None), end="")), "broke off"),
        ((200, EVENTS, events(pieces("To", finish=None), end='data: {"choi')), "broke off"),
        ((200, EVENTS, b"data: {nonsense\n\n"), "no chat completion"),
        ((200, EVENTS, b"data: 4\n\n"), "no chat completion"),
        ((200, EVENTS, b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n'), "no UTF-8"),
        ((200, EVENTS, b'data: {"usage": {"prompt_tokens": 1e999}}\n\n'), "no chat completion"),
        ((200, EVENTS, b'data: {"choices": [{"delta": 5}]}\n\n'), "no chat completion"),
        ((200, EVENTS, b""), "no chat completion"),
        ((200, EVENTS, f'data: {{"error": {{"message": "too much for {KEY}"}}}}\n\n'.encode()), "too much for"),
        ((401, {}, KEY.encode()), "check the key"),
    ],
)
def test_a_stream_that_does_not_end_well_is_an_error_without_the_key(server: Server, told: Any, why: str) -> None:
    server.told = [told]
    with pytest.raises(EndpointFailed, match=why) as failed:
        list(chat(server, retries=0).stream(ASKED))
    assert KEY not in shown(failed.value)
    assert "Where to?" not in shown(failed.value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": 3}]}',
        b"[" * 9999,
        b'{"choices": [{"message": {"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f"}}]}}]}',
        b'{"choices": [{"message": {"content": "\xff"}}]}',
        b'{"choices": [{"message": {"tool_calls": [{"id": "c", "function": {"name": ["f"]}}]}}]}',
        b'{"choices": [{"message": {"tool_calls": [{"id": 5, "function": {"name": "f"}}]}}]}',
    ],
)
def test_what_is_no_completion_is_refused(server: Server, body: bytes) -> None:
    server.told = [(200, {}, body)]
    with pytest.raises(EndpointFailed, match="no chat completion"):
        chat(server).ask(ASKED)


def test_who_closes_a_stream_ends_its_connection(server: Server) -> None:
    gone = threading.Event()
    server.told = [until_gone(gone)]
    pieces = chat(server).stream(ASKED)
    assert next(pieces) == "To"
    pieces.close()
    assert gone.wait(5)


def test_who_is_cancelled_ends_its_connection(server: Server) -> None:
    model = chat(server)

    async def cancelled(streams: bool) -> None:
        async def asks() -> None:
            if streams:
                async for _ in model.astream(ASKED):
                    pass
            else:
                await model.aask(ASKED)

        asking = asyncio.create_task(asks())
        while not server.asked:
            await asyncio.sleep(0.005)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    for streams in (False, True):
        gone = threading.Event()
        server.asked.clear()
        server.told = [until_gone(gone)]
        asyncio.run(cancelled(streams))
        assert gone.wait(5)
        assert len(server.asked) == 1


def test_a_model_that_cannot_be_asked_is_refused_at_once() -> None:
    with pytest.raises(InvalidModel, match="model 'm': base_url") as refused:
        Chat("m", base_url="localhost:8000", key=KEY)
    assert KEY not in shown(refused.value)


def until_gone(gone: threading.Event) -> Any:
    """One piece of an answer, and then nothing until whoever asked has gone."""
    begun = events(pieces("To Chengdu.")[:2], end="")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

    def tell(connection: Any) -> None:
        connection.sendall(head + begun)
        connection.settimeout(5)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if not connection.recv(1):
                gone.set()
                return

    return tell
