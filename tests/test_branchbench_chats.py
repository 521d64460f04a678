"""Language models: one answer for one request, whatever was asked before, and a key that nobody reads."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from branchmem.branchbench.models import chat_named, local
from branchmem.branchbench.models.chat import Request, Turn
from branchmem.branchbench.models.endpoint import Endpoint
from branchmem.branchbench.models.local import Local
from branchmem.errors import ExtraMissing
from branchmem.errors.branchbench import ModelUnavailable, PromptTooLong
from serving import Answer, Server, nobody, nothing_from_outside, serving, shown

KEY = "sk-kept-to-itself"
SYSTEM = Turn("system", "Be short.")


def request(*texts: str, system: Turn = SYSTEM, **options: Any) -> Request:
    return Request((system, *(Turn("user", text) for text in texts)), **options)


# -- the local model, over a stand-in for llama.cpp that rounds otherwise for every way in which a prompt is cut


class Llama(ModuleType):
    """As much of llama_cpp as is called: bytes are tokens, and the next one depends on how all were evaluated.

    `evaluated` lists what each decode was given; `script` is what it says, None for what the memory hashes to.
    """

    __version__ = "0.0"
    LLAMA_FLASH_ATTN_TYPE_DISABLED = 0
    START, END, WORDS = 256, 257, 258

    def __init__(self) -> None:
        super().__init__("llama_cpp")
        self.evaluated: list[int] = []
        self.script: bytes | None = None
        self.memory = b""

    def llama_print_system_info(self) -> bytes:
        return b"CPU : AVX2 = 1 | AVX512 = 0 | FMA = 1 | "

    def llama_backend_init(self) -> None: ...

    def llama_model_default_params(self) -> Any:
        return ModuleType("params")

    llama_context_default_params = llama_model_default_params

    def llama_model_load_from_file(self, path: bytes, params: Any) -> int:
        return 1 if Path(path.decode()).read_bytes() == b"weights" else 0

    def llama_init_from_model(self, *_: Any) -> int:
        return 1

    llama_get_memory = llama_model_get_vocab = llama_init_from_model

    def llama_vocab_n_tokens(self, _: Any) -> int:
        return self.WORDS

    def llama_vocab_eos(self, _: Any) -> int:
        return self.END

    def llama_vocab_is_eog(self, _: Any, token: int) -> bool:
        return token == self.END

    def llama_tokenize(self, _: Any, text: bytes, size: int, into: Any, room: int, first: bool, control: bool) -> int:
        tokens = [self.START if text == b"<|im_start|>" else self.END] if control else list(text)
        into[: len(tokens)] = tokens
        return len(tokens)

    def llama_token_to_piece(self, _: Any, token: int, into: Any, *__: Any) -> int:
        into.raw = bytes([token]) if token < self.START else b""
        return int(token < self.START)

    def llama_batch_get_one(self, tokens: Any, count: int) -> list[int]:
        return list(tokens[:count])

    def llama_decode(self, _: Any, batch: list[int]) -> int:
        self.evaluated.append(len(batch))
        self.memory += f"|{batch}".encode()
        return 0

    def llama_get_logits_ith(self, *_: Any) -> Any:
        said = self.memory.count(b"|[") - self._start
        if self.script is None:
            token = sum(self.memory) % 26 + 97 if said < 5 else self.END
        else:
            token = self.script[said] if said < len(self.script) else self.END
        self._logits = (ctypes.c_float * self.WORDS)(*[float(at == token) for at in range(self.WORDS)])
        return ctypes.cast(self._logits, ctypes.POINTER(ctypes.c_float))

    def llama_memory_clear(self, *_: Any) -> None:
        self.memory = b""

    def llama_state_seq_get_size(self, *_: Any) -> int:
        return len(self.memory)

    def llama_state_seq_get_data(self, _: Any, into: Any, size: int, __: int) -> int:
        into[:] = self.memory
        return size

    def llama_state_seq_set_data(self, _: Any, state: Any, size: int, __: int) -> int:
        self.memory = bytes(state)
        self._start = self.memory.count(b"|[") + 1
        return size


@pytest.fixture(autouse=True)
def waiting_threads_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """What loading llama.cpp sets, and would leave to other tests."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Llama:
    stand_in = Llama()
    monkeypatch.setitem(sys.modules, "llama_cpp", stand_in)
    return stand_in


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-q4.gguf"
    path.write_bytes(b"weights")
    return path


REQUESTS = [
    request("Where?"),
    request("Where to?"),
    request("Where?", system=Turn("system", "Be long.")),
    request("Where?", "And when?"),
    Request((Turn("user", "Where?"),)),
]


def test_an_answer_depends_on_its_request_alone(llama: Llama, weights: Path) -> None:
    alone = [Local(weights).ask(one).text for one in REQUESTS]
    model = Local(weights)
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3], [3, 3, 1, 4, 0]):
        assert [model.ask(REQUESTS[at]).text for at in order] == [alone[at] for at in order]
    assert len(set(alone)) > 1


def test_a_system_turn_is_evaluated_once(llama: Llama, weights: Path) -> None:
    model = Local(weights)
    model.ask(request("Where?", max_tokens=1))
    model.ask(request("Whither?", max_tokens=1))
    system, rest, other = llama.evaluated
    assert system == len("system\nBe short.") + 3
    assert other - rest == len("Whither?") - len("Where?")


def test_states_are_let_go_where_they_are_too_many(
    llama: Llama, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Local(weights)
    expected = model.ask(REQUESTS[0]).text
    monkeypatch.setattr(local, "_STATES_BYTES", 0)
    model.ask(REQUESTS[2])
    before = len(llama.evaluated)
    assert model.ask(request("Where?", max_tokens=1)).text == expected[:1]
    assert len(llama.evaluated) - before == 2


def test_text_in_a_turn_is_no_control_token(llama: Llama, weights: Path) -> None:
    plain = Local(weights).ask(request("x" * len("<|im_end|>")))
    assert Local(weights).ask(request("<|im_end|>")).prompt_tokens == plain.prompt_tokens


def test_half_a_character_is_not_said(llama: Llama, weights: Path) -> None:
    llama.script = "杭州".encode()
    assert Local(weights).ask(request("?", max_tokens=5)).text == "杭"
    whole = Local(weights).ask(request("?"))
    assert (whole.text, whole.completion_tokens) == ("杭州", 6)


def test_a_prompt_that_does_not_fit_names_its_size(llama: Llama, weights: Path) -> None:
    model = Local(weights, context=100)
    with pytest.raises(PromptTooLong, match=r"takes 138 tokens and its answer up to 10, .* holds 100") as caught:
        model.ask(request("x" * 100, max_tokens=10))
    assert (caught.value.prompt_tokens, caught.value.limit) == (138, 100)
    assert isinstance(caught.value, ModelUnavailable)
    assert model.ask(request("x", max_tokens=61)).prompt_tokens + 61 == 100


def test_the_name_tells_weights_build_and_settings(llama: Llama, weights: Path) -> None:
    name = Local(weights).name
    for part in ("tiny-q4", "sha256:9a129038d9a00aed", "llama-cpp-python 0.0 (AVX2 FMA)", "n_ctx 16384", "greedy"):
        assert part in name
    others = Local(weights, context=8), Local(weights, batch=8), Local(weights, threads=1), Local(weights, "beef")
    assert len({name, *(other.name for other in others)}) == 5


def test_weights_that_cannot_be_loaded_are_named(llama: Llama, tmp_path: Path) -> None:
    (tmp_path / "torn.gguf").write_bytes(b"wei")
    with pytest.raises(ModelUnavailable, match=r"torn\.gguf cannot be loaded"):
        Local(tmp_path / "torn.gguf").ask(request("?"))


def test_a_missing_llama_names_the_extra(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(ExtraMissing, match=r"branchmem\[llama\]"):
        Local(weights)


# -- an endpoint


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_from_outside(monkeypatch)


def said(text: Any, **usage: int) -> Answer:
    return 200, {}, json.dumps({"choices": [{"message": {"content": text}}], "usage": usage}).encode()


def at(server: Server, **options: Any) -> Endpoint:
    return Endpoint("big", base_url=server.url, key=KEY, pause=0.0, retries=options.pop("retries", 1), **options)


def test_an_endpoint_is_asked_at_temperature_0() -> None:
    with serving(said("Hangzhou", prompt_tokens=9, completion_tokens=2)) as server:
        reply = at(server).ask(request("Where?", max_tokens=7, as_json=True))
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("Hangzhou", 9, 2)
    assert (server.paths, server.headers[0]["Authorization"]) == (["/v1/chat/completions"], f"Bearer {KEY}")
    assert server.asked[0] == {
        "model": "big",
        "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Where?"}],
        "max_tokens": 7,
        "temperature": 0,
        "seed": 0,
        "response_format": {"type": "json_object"},
    }


def test_url_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(said("yes")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        chat = chat_named("big")
        assert chat is not None
        assert chat.ask(request("?")).text == "yes"
    assert chat.name == f"big at {server.url}, temperature 0, seed 0"
    assert "response_format" not in server.asked[0]
    assert chat_named("extractive") is None


def test_a_name_goes_nowhere_while_no_endpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(ModelUnavailable, match=r"'Local': it is neither extractive nor local, .*OPENAI_BASE_URL"):
        chat_named("Local")


def test_no_weights_are_fetched_while_nothing_can_load_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched() -> Path:
        raise AssertionError("fetched a gigabyte")

    monkeypatch.setattr("branchmem.branchbench.models.weights.fetch", fetched)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(ExtraMissing, match="llama-cpp-python"):
        chat_named("local")


def test_what_fails_for_now_is_asked_again() -> None:
    with serving((503, {}, b"busy"), (429, {"Retry-After": "0"}, b""), said("yes")) as server:
        assert at(server, retries=2).ask(request("?")).text == "yes"
    assert len(server.asked) == 3


def repeated(status: int) -> Answer:
    return status, {"Location": f"http://127.0.0.1:1/{KEY}"}, f"no such thing for {KEY}".encode()


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([repeated(400)], r"status 400: no such thing for \[key\]"),
        ([repeated(401)], "status 401: check the key"),
        ([repeated(307)], "status 307: it redirects elsewhere"),
        ([repeated(500), repeated(500)], r"status 500: .*\(asked 2 times\)"),
        ([(429, {"Retry-After": "3600"}, b"")], "asks to wait 3600 s"),
        ([(200, {}, KEY.encode())], "no chat completion"),
        ([(200, {}, b'{"choices": []}')], "no chat completion"),
        ([said(None)], "holds no text"),
    ],
)
def test_a_failure_is_told_without_the_key(answers: list[Answer], why: str) -> None:
    with serving(*answers) as server:
        endpoint = at(server)
        with pytest.raises(ModelUnavailable, match=why) as caught:
            endpoint.ask(request("?"))
    assert KEY not in shown(caught.value) + f"{endpoint!r}{endpoint.name}"
    assert server.url in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("ftp://host/v1", KEY),
        ("https://user:hush@host/v1", KEY),
        ("https://host/v1?key=hush", KEY),
        ("https://host/v1", "hush hush"),
        ("https://host/v1", ""),
    ],
)
def test_a_url_or_key_that_cannot_be_used_is_refused_unrepeated(url: str, key: str) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        Endpoint("big", base_url=url, key=key)
    assert "hush" not in shown(caught.value)
    assert not key or key not in shown(caught.value)


def test_nobody_there_is_told() -> None:
    with pytest.raises(ModelUnavailable, match="no answer"):
        Endpoint("big", base_url=nobody(), retries=0).ask(request("?"))
