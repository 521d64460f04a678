"""The local model: a GGUF file, answered by llama.cpp on the CPU, the same text for the same request in every process.

An answer depends on its request alone, down to the last bit of every logit: each call starts from an empty cache,
takes in the state after the system turn, which was evaluated alone and once, then evaluates the rest in one piece and
takes the likeliest token each time.  How a prompt is cut into batches decides how the CPU rounds, so that reusing
what two prompts happen to share, beyond the system turn, would make answers depend on what was asked before.

Turns are written as Qwen's own template writes them.  Text in a turn is text: control tokens spelled out in it are
no control tokens.  Sampling, tools and other templates are left out.
"""

from __future__ import annotations

import codecs
import ctypes
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from branchmem.branchbench.models.chat import Reply, Request, Turn
from branchmem.branchbench.models.weights import sha256
from branchmem.errors import ExtraMissing
from branchmem.errors.branchbench import ModelUnavailable, PromptTooLong

#: What Qwen's template puts first where nobody else does.
_SYSTEM: Final = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
#: A state takes 28 KB a token: room for four of Mem0's, and for many of the short ones.
_STATES_BYTES: Final = 1 << 30

#: One JSON object, with no more white space than people write, so that it comes to an end.  Kept calls were answered
#: under it, and no key tells: whoever changes it changes `Local.name` as well.
_OBJECT: Final = r"""
root ::= object
object ::= "{" ws (pair ("," ws pair)*)? "}"
pair ::= string ws ":" ws value ws
array ::= "[" ws (value ws ("," ws value ws)*)? "]"
value ::= object | array | string | number | "true" | "false" | "null"
string ::= "\"" ([^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,3})?
ws ::= | " " | "\n" [ \t]{0,20}
"""


class Local:
    """A model of Qwen's family in one GGUF file.

    `context` is the most tokens that a prompt and its answer take; 16,384 take 0.5 GB beside the weights.  The file is
    loaded at the first question; for its hash, which is part of the name, it is read whole (seconds), unless whoever
    has just read it says which it is.
    Raises: ExtraMissing without llama-cpp-python; OSError.
    """

    def __init__(
        self, path: Path, digest: str | None = None, *, context: int = 16_384, threads: int = 2, batch: int = 512
    ) -> None:
        llama = _llama()
        self._path = path
        self._context = context
        self._threads = threads
        self._batch = batch
        self._model: _Model | None = None
        self._one_at_a_time = threading.Lock()
        flags = llama.llama_print_system_info().decode().split("|")
        built = " ".join(flag.split("=")[0].split(":")[-1].strip() for flag in flags if flag.strip().endswith("= 1"))
        self.name = (
            f"{path.stem} sha256:{(digest or sha256(path))[:16]}, llama-cpp-python {llama.__version__} ({built}), "
            f"n_ctx {context}, n_batch {batch}, n_ubatch {batch}, n_threads {threads}, flash_attn off, kv f16, "
            "system turn first, greedy"
        )

    def ask(self, request: Request) -> Reply:
        """Raises: PromptTooLong; ModelUnavailable where the file cannot be loaded, or the memory does not do."""
        with self._one_at_a_time:
            started = time.perf_counter()
            if self._model is None:
                self._model = _Model(self.name, self._path, self._context, self._threads, self._batch)
            model = self._model
            system, rest = model.prompt(request.turns)
            prompt_tokens = len(system) + len(rest)
            if prompt_tokens + request.max_tokens > self._context:
                raise PromptTooLong(self.name, prompt_tokens, request.max_tokens, self._context)
            model.start(system)
            said = bytearray()
            completion_tokens = 0
            for token in model.answer(rest, request.max_tokens, _OBJECT if request.as_json else None):
                said += model.piece(token)
                completion_tokens += 1
            # a character of which only the beginning was said is dropped
            text = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(said))
            return Reply(text, prompt_tokens, completion_tokens, time.perf_counter() - started)


class _Model:
    """The loaded weights, one context of llama.cpp, and the states after system turns, the last used ones."""

    def __init__(self, name: str, path: Path, context: int, threads: int, batch: int) -> None:
        self._name = name
        self._llama = llama = _llama()
        llama.llama_backend_init()
        self._weights = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
        if not self._weights:
            raise ModelUnavailable(name, f"{path} cannot be loaded: fetch it again, or look whether memory is left")
        settings = llama.llama_context_default_params()
        settings.n_ctx = context
        settings.n_batch = settings.n_ubatch = self._batch = batch
        settings.n_threads = settings.n_threads_batch = threads
        settings.n_seq_max = 1
        settings.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = llama.llama_init_from_model(self._weights, settings)
        if not self._context:
            raise ModelUnavailable(name, f"no room for {context} tokens: ask for a smaller context, or free memory")
        self._memory = llama.llama_get_memory(self._context)
        self._words = llama.llama_model_get_vocab(self._weights)
        self._n_words = llama.llama_vocab_n_tokens(self._words)
        self._states: OrderedDict[tuple[int, ...], Any] = OrderedDict()

    def prompt(self, turns: Sequence[Turn]) -> tuple[list[int], list[int]]:
        """The tokens of the system turn, and those of all that follows, up to where the answer begins."""
        if not turns or turns[0].role != "system":
            turns = (Turn("system", _SYSTEM), *turns)
        start, end = self._tokens("<|im_start|>", control=True), self._tokens("<|im_end|>", control=True)
        line = self._tokens("\n")
        system, *others = [[*start, *self._tokens(f"{turn.role}\n{turn.content}"), *end, *line] for turn in turns]
        rest = [token for turn in others for token in turn]
        return system, [*rest, *start, *self._tokens("assistant\n")]

    def start(self, system: list[int]) -> None:
        """Go to where this system turn, and nothing else, has been evaluated."""
        llama = self._llama
        known = tuple(system)
        if known not in self._states:
            llama.llama_memory_clear(self._memory, True)
            self._evaluate(system)
            state = (ctypes.c_uint8 * llama.llama_state_seq_get_size(self._context, 0))()
            if llama.llama_state_seq_get_data(self._context, state, len(state), 0) != len(state):
                raise ModelUnavailable(self._name, f"the state after {len(system)} tokens cannot be kept: free memory")
            self._states[known] = state
        self._states.move_to_end(known)
        while len(self._states) > 1 and sum(map(len, self._states.values())) > _STATES_BYTES:
            self._states.popitem(last=False)
        state = self._states[known]
        llama.llama_memory_clear(self._memory, True)
        if llama.llama_state_seq_set_data(self._context, state, len(state), 0) != len(state):
            raise ModelUnavailable(self._name, f"the state after {len(system)} tokens cannot be taken up: free memory")

    def answer(self, rest: list[int], most: int, grammar: str | None) -> Iterator[int]:
        """The likeliest tokens after `rest`, `most` of them at the most; those that `grammar` allows, to its end."""
        chosen = _Grammar(self._llama, self._words, grammar) if grammar else None
        try:
            self._evaluate(rest)
            for said in range(1, most + 1):
                logits = np.ctypeslib.as_array(self._llama.llama_get_logits_ith(self._context, -1), (self._n_words,))
                token = chosen.best(logits) if chosen else int(logits.argmax())
                if self._llama.llama_vocab_is_eog(self._words, token):
                    return
                yield token
                if said == most or (chosen and chosen.ended_by(token)):
                    return
                self._evaluate([token])
        finally:
            if chosen:
                chosen.close()

    def piece(self, token: int) -> bytes:
        """What a token says: whole characters, or a part of one."""
        piece = ctypes.create_string_buffer(512)
        size = self._llama.llama_token_to_piece(self._words, token, piece, len(piece), 0, False)
        return piece.raw[: max(0, size)]

    def _tokens(self, text: str, *, control: bool = False) -> list[int]:
        spelled = text.encode(errors="replace")
        tokens = (ctypes.c_int32 * (len(spelled) + 1))()
        count = self._llama.llama_tokenize(self._words, spelled, len(spelled), tokens, len(tokens), False, control)
        return list(tokens[:count])

    def _evaluate(self, tokens: list[int]) -> None:
        for at in range(0, len(tokens), self._batch):
            piece = tokens[at : at + self._batch]
            given = (ctypes.c_int32 * len(piece))(*piece)
            failed = self._llama.llama_decode(self._context, self._llama.llama_batch_get_one(given, len(piece)))
            if failed:
                raise ModelUnavailable(self._name, f"llama_decode failed with {failed}: look whether memory is left")


class _Grammar:
    """What may be said next; of what may, the likeliest token is taken.  Close it."""

    def __init__(self, llama: Any, words: Any, grammar: str) -> None:
        self._llama = llama
        self._end = llama.llama_vocab_eos(words)
        self._sampler = llama.llama_sampler_init_grammar(words, grammar.encode(), b"root")

    def best(self, logits: np.ndarray[Any, np.dtype[np.float32]]) -> int:
        """The likeliest token that is allowed; the lower one where two are alike."""
        likeliest = int(logits.argmax())
        if self._allowed([likeliest]):
            return likeliest
        order = np.argsort(-logits, kind="stable")
        for start, stop in ((1, 64), (64, len(order))):
            allowed = self._allowed([int(token) for token in order[start:stop]])
            if allowed:
                return allowed[0]
        return int(self._end)

    def ended_by(self, token: int) -> bool:
        """Whether nothing may follow this token, which was said."""
        self._llama.llama_sampler_accept(self._sampler, token)
        return bool(self._allowed([self._end]))

    def close(self) -> None:
        self._llama.llama_sampler_free(self._sampler)

    def _allowed(self, tokens: list[int]) -> list[int]:
        llama = self._llama
        entries = (llama.llama_token_data * len(tokens))(*[(token, 0.0, 0.0) for token in tokens])
        array = llama.llama_token_data_array(entries, len(tokens), -1, False)
        llama.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return [entry.id for entry in entries if entry.logit != float("-inf")]


def check_installed() -> None:
    """Raises: ExtraMissing without llama-cpp-python."""
    _llama()


def _llama() -> Any:
    # Threads that wait for each other shall sleep: spinning, they take the core from the one that they wait for, and a
    # machine that does anything else besides answers three times as slowly.  Read when OpenMP is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import llama_cpp
    except ModuleNotFoundError as error:
        if error.name != "llama_cpp":
            raise
        raise ExtraMissing("answers of a local model", "llama-cpp-python", "llama") from None
    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL)  # it calls warnings errors
    return llama_cpp
