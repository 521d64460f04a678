"""Mem0 OSS as its quickstart sets it up, with our language model and embedder, in memory and without a network.

Its one rule: what Mem0 keeps, merges and finds is Mem0's affair.  Ours is what any application decides: one `add` an
exchange, in order of arrival; one `search` a question; a `delete` where the user takes something back.  How each
setting stands to Mem0's documentation is told in bench/branchbench/METHODS.md.

What it leaves out: Mem0's optional extras (spaCy, fastembed), whose models lie on hubs, its hosted platform, telemetry.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final, Protocol

from branchmem.branchbench.keywords import stands_in
from branchmem.branchbench.methods.method import Method, Tools
from branchmem.branchbench.methods.plain_store import named, taken_back
from branchmem.branchbench.models.chat import Chat, Reply, Request, Turn
from branchmem.branchbench.scenario import Language, Scenario
from branchmem.errors.branchbench import ModelUnavailable
from branchmem.events import Memory, Message, Retraction
from branchmem.extra import extra

#: The most that a model may answer to one exchange; an entry of Mem0's form takes 40 to 80 tokens.
MAX_TOKENS: Final = 400
#: How many memories a search asks for; Mem0's own default is 20, which would leave some of the budget unused.
TOP_K: Final = 50
#: Stands in Mem0's prompt in place of today, so that a run asks the same next year.
DATE: Final = "2025-03-03"

_USER: Final = "user"
_DATES: Final = re.compile(r"(?m)^(## (?:Observation|Current) Date\n)\d{4}-\d\d-\d\d$")
_ENTRY: Final = re.compile(r"\{[^{}]*\}")
#: Mem0's prompt is English and so are its examples; what its maintainers advise for other languages.
_INSTRUCTIONS: Final[dict[Language, str | None]] = {
    "en": None,
    "zh": "每条记忆的 text 必须用简体中文书写，与消息的语言相同，不要翻译成英文。",
}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message of the user and its answer, or one of them where the other is not there.

    `facts` are the annotated facts that the messages state, each given with the first exchange that states it;
    `retractions` are to be carried out once the exchange has been added.
    """

    messages: tuple[Message, ...]
    facts: tuple[Memory, ...]
    retractions: tuple[Retraction, ...]


def exchanges(scenario: Scenario, kept: Collection[str]) -> Iterator[Exchange]:
    """The exchanges of the messages that are `kept`, in order of arrival.

    A regenerated answer makes a second exchange with the same message of the user.  Retractions come whatever is
    kept.  O(events).
    """
    said: list[Message] = []
    facts: list[Memory] = []
    retractions: list[Retraction] = []
    here = False
    for event in scenario.events:
        if isinstance(event, Message):
            here = event.id in kept
            if not here:
                continue
            asked = _asked(scenario, event)
            if said and said[-1] is not asked:
                yield Exchange(tuple(said), tuple(facts), tuple(retractions))
                said, facts, retractions = [], [], []
            if asked is not None and not said:
                said.append(asked)
            said.append(event)
        elif isinstance(event, Memory) and here:
            facts.append(event)
        elif isinstance(event, Retraction) and said:
            retractions.append(event)
    if said:
        yield Exchange(tuple(said), tuple(facts), tuple(retractions))


def _asked(scenario: Scenario, message: Message) -> Message | None:
    """The message of the user that `message` answers."""
    parent = scenario.messages.get(message.parent) if isinstance(message.parent, str) else None
    return parent if message.role == "assistant" and parent is not None and parent.role == "user" else None


class _Model(Protocol):
    """What Mem0 asks of its `llm`."""

    def generate_response(self, messages: list[dict[str, str]], **settings: Any) -> str: ...


@dataclass
class Extraction:
    """Mem0's extraction, asked of a language model.

    `answers` were given; of these Mem0 can read nothing in `unreadable`, and `cut` ended at `MAX_TOKENS`.
    """

    chat: Chat
    answers: int = 0
    unreadable: int = 0
    cut: int = 0

    def generate_response(self, messages: list[dict[str, str]], **settings: Any) -> str:
        turns = (Turn(_role(turn["role"]), _DATES.sub(rf"\g<1>{DATE}", turn["content"])) for turn in messages)
        request = Request(tuple(turns), MAX_TOKENS, as_json=settings.get("response_format") is not None)
        with _through():
            return json.dumps({"memory": self._entries(self.chat.ask(request))}, ensure_ascii=False)

    def _entries(self, reply: Reply) -> list[dict[str, Any]]:
        """What Mem0 would read in the answer; an entry that it would fail on is left out, the others stay."""
        self.answers += 1
        found = _read(reply.text)
        if found is None and reply.completion_tokens >= MAX_TOKENS:
            self.cut += 1
            found = [entry for text in _ENTRY.findall(reply.text) if (entry := _parsed(text)) is not None]
        if found is None:
            self.unreadable += 1
        entries = ({"text": entry} if isinstance(entry, str) else entry for entry in found or ())
        return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("text"), str)]


def _role(role: str) -> Any:
    return role if role in ("system", "assistant") else "user"


def _read(text: str) -> list[Any] | None:
    """The list of memories in an answer, found where Mem0 looks for it, or None."""
    found = _parsed(_utils().remove_code_blocks(text))
    if found is None:
        found = _parsed(_utils().extract_json(text))
    entries = found.get("memory") if isinstance(found, dict) else None
    return entries if isinstance(entries, list) else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError:
        return None


@dataclass
class Script:
    """Mem0's extraction, done to perfection: each call is answered with the `facts` that were laid ready for it."""

    facts: Sequence[Memory] = ()

    def generate_response(self, messages: list[dict[str, str]], **settings: Any) -> str:
        entries = [
            {"id": str(place), "text": fact.text, "attributed_to": "user"} for place, fact in enumerate(self.facts)
        ]
        return json.dumps({"memory": entries}, ensure_ascii=False)


@dataclass
class Embedding:
    """Mem0's `embedding_model`: what it searches with is a question, the rest are texts.

    Where `like` is set, it is embedded in place of what is searched with.
    """

    tools: Tools
    like: str | None = None

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        if memory_action != "search":
            return self.embed_batch([text])[0]
        if self.like is not None:
            return self.embed_batch([self.like])[0]
        with _through():
            row: list[float] = self.tools.embed_query(text).tolist()
            return row

    def embed_batch(self, texts: list[str], memory_action: str | None = "add") -> list[list[float]]:
        if memory_action == "search":
            return [self.embed(text, memory_action) for text in texts]
        with _through():
            rows: list[list[float]] = self.tools.embed(texts).tolist()
            return rows


class _Through(BaseException):
    """A failure of ours on its way through Mem0, which catches every Exception and goes on with less."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@contextmanager
def _through() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _Through(error) from error


@contextmanager
def _arrived() -> Iterator[None]:
    try:
        yield
    except _Through as passage:
        raise passage.error from None


@cache
def _main() -> Any:
    """Mem0's own module, loaded without telemetry, its folder in a temporary place, its extras off.

    Raises: ExtraMissing.
    """
    before = {name: os.environ.get(name) for name in ("MEM0_TELEMETRY", "MEM0_DIR")}
    with TemporaryDirectory() as folder, extra("mem0", wanted="Mem0's rows", name="branchbench", package="mem0ai"):
        try:
            os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=folder)
            main = import_module("mem0.memory.main")
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
    # whoever has imported it before us may have left these on
    main.MEM0_TELEMETRY = import_module("mem0.memory.telemetry").MEM0_TELEMETRY = False  # type: ignore[attr-defined]
    spacy = import_module("mem0.utils.spacy_models")
    spacy._load_failed_full = spacy._load_failed_lemma = True  # type: ignore[attr-defined]
    logging.getLogger("mem0").setLevel(logging.ERROR)
    return main


def _utils() -> Any:
    _main()
    return import_module("mem0.memory.utils")


#: Mem0s that are empty and at hand, by width and language: a new one takes 80 ms, to empty one takes 1 ms.
_idle: dict[tuple[int, Language], list[Any]] = {}


@dataclass
class Store:
    """One Mem0, empty at first, and ours until `close`."""

    tools: Tools
    language: Language
    model: _Model
    _key: tuple[int, Language] = field(init=False)
    _memory: Any = field(init=False)

    def __post_init__(self) -> None:
        main = _main()
        self._key = (self.tools.embed([_USER]).shape[1], self.language)
        kept = _idle.setdefault(self._key, [])
        self._memory = kept.pop() if kept else main.Memory.from_config(_config(*self._key))
        self._memory.llm = self.model
        self._memory.embedding_model = Embedding(self.tools)
        self._memory.vector_store._bm25_encoder = False  # what it notes where fastembed is not there

    def add(self, messages: Iterable[Message], like: str | None = None) -> None:
        """Give one exchange to Mem0.

        Mem0 first searches for memories like the messages, which its model is shown, and which are not added twice.
        Where no model reads them, `like` can stand for the messages in that search, and spares embedding them.
        """
        said = [{"role": message.role or _USER, "content": message.text or ""} for message in messages]
        self._memory.embedding_model.like = like
        with _arrived():
            self._memory.add(said, user_id=_USER)
        self._memory.embedding_model.like = None

    def found(self, query: str) -> list[tuple[str, str]]:
        """Ids and texts of what Mem0 finds for `query`, best first: at most `TOP_K`, of a similarity of 0.1 or more."""
        with _arrived():
            results = self._memory.search(query, filters={"user_id": _USER}, top_k=TOP_K)["results"]
        return [(found["id"], found["memory"]) for found in results]

    def delete(self, memory: str) -> None:
        with _arrived():
            self._memory.delete(memory)

    def empty(self) -> None:
        self._memory.reset()

    def close(self) -> None:
        self.empty()
        self._memory.llm = self._memory.embedding_model = None
        _idle[self._key].append(self._memory)


def _config(dims: int, language: Language) -> dict[str, Any]:
    # Both providers are replaced before anything is asked of them: its list of names has none for an object of ours.
    unused = {"provider": "openai", "config": {"api_key": "unused"}}
    return {
        "llm": unused,
        "embedder": unused,
        "vector_store": {"provider": "qdrant", "config": {"path": ":memory:", "embedding_model_dims": dims}},
        "history_db_path": ":memory:",
        "custom_instructions": _INSTRUCTIONS[language],
    }


class Mem0(Method):
    """Mem0 OSS, one memory of the user over all branches, as it knows no branches."""

    name = "Mem0"
    line = "Mem0 OSS with its own extraction, fed with every exchange of every branch"
    requires: ClassVar[tuple[str, ...]] = ("mem0",)
    needs_chat = True

    #: Mem0's calls of the language model, once there were any.
    extraction: Extraction | None = None
    _store: Store | None = None

    @classmethod
    def load(cls) -> None:
        _main()
        for module in ("embeddings.openai", "llms.openai", "vector_stores.qdrant"):  # what its first memory would load
            import_module(f"mem0.{module}")

    def feed(self) -> None:
        self._take_in(self.scenario.messages)

    def context(self, anchor: str, question: str) -> list[str]:
        return self.tools.first_that_fit(text for _, text in self._opened().found(question))

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
        if self.extraction is not None and self.extraction.unreadable:
            _logger.warning(
                "%s: Mem0 could read %d of %d answers of its model",
                self.scenario.id,
                self.extraction.answers - self.extraction.unreadable,
                self.extraction.answers,
            )

    def _opened(self) -> Store:
        if self._store is None:
            self._store = Store(self.tools, self.scenario.language, self._model())
        return self._store

    def _take_in(self, kept: Collection[str]) -> None:
        for exchange in exchanges(self.scenario, kept):
            self._hear(exchange)
            for retraction in exchange.retractions:
                for fact in self._retracted(retraction, kept):
                    self._forget(self.scenario.facts[fact])

    def _forget(self, fact: Memory) -> None:
        """What an application does: search for the fact, delete what states it."""
        store = self._opened()
        for memory, text in store.found(fact.text):
            if self._states(text, fact):
                store.delete(memory)

    def _model(self) -> _Model:
        if self.tools.chat is None:
            raise ModelUnavailable("none", f"{self.name} asks a language model to extract: name one with --model")
        self.extraction = Extraction(self.tools.chat)
        return self.extraction

    def _hear(self, exchange: Exchange) -> None:
        self._opened().add(exchange.messages)

    def _states(self, text: str, fact: Memory) -> bool:
        """Whether a memory states the fact: by the words of the probes that forbid it, which no application has."""
        return any(
            stands_in(keyword, text)
            for probe in self.scenario.probes
            if fact.id in probe.forbids
            for keyword in probe.forbidden
            if stands_in(keyword, fact.text)
        )

    def _retracted(self, retraction: Retraction, kept: Collection[str]) -> Iterable[str]:
        return sorted(taken_back(self.scenario, retraction).facts)


class Mem0Branch(Mem0):
    """Mem0 OSS, a memory for each anchor, fed with its path: what an application can do that knows its branches."""

    name = "Mem0, current branch"
    line = "Mem0 OSS with its own extraction, a new memory for each anchor, fed with the exchanges on its path"

    _anchor: str | None = None

    def feed(self) -> None:
        self._opened()

    def context(self, anchor: str, question: str) -> list[str]:
        if anchor != self._anchor:
            self._opened().empty()
            self._anchor = anchor
            self._take_in({message.id for message in self.scenario.path(anchor)})
        return super().context(anchor, question)

    def _retracted(self, retraction: Retraction, kept: Collection[str]) -> Iterable[str]:
        """A branch's own store can delete what goes from that branch: what is taken back on it, in its conversation or
        everywhere, not what another conversation has taken back for itself."""
        conversation = self.scenario.path(retraction.at)[0].id
        place = {"branch": retraction.at, "tree": conversation}.get(retraction.scope)
        in_effect = place is None or place in kept
        return sorted(named(self.scenario, retraction).facts) if in_effect else ()


class Mem0Scripted(Mem0):
    """Mem0 OSS whose extraction finds the annotated facts, word for word."""

    name = "Mem0, scripted"
    line = "Mem0 OSS whose model answers with the annotated facts of each exchange"
    needs_chat = False

    def _model(self) -> _Model:
        self._script = Script()
        return self._script

    def _hear(self, exchange: Exchange) -> None:
        store = self._opened()
        self._script.facts = exchange.facts
        store.add(exchange.messages, like=exchange.facts[0].text if exchange.facts else _USER)

    def _states(self, text: str, fact: Memory) -> bool:
        return text == fact.text


class Mem0ScriptedBranch(Mem0Scripted, Mem0Branch):
    """As `Mem0Scripted`, fed with the path only."""

    name = "Mem0, scripted, current branch"
    line = "Mem0 OSS with scripted extraction, a new memory for each anchor, fed with the exchanges on its path"
