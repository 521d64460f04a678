"""Whether a model says the same again: calls that are kept, asked once more by a process that has no memory of them.

Several runs through one cache would be one run.  So this replays a run from the cache, draws some of its calls by the
hash of what was asked, asks the model itself, and compares word for word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from branchmem.branchbench.methods.method import Method
from branchmem.branchbench.models import chat_kept, chat_named
from branchmem.branchbench.models.cache import Cache, key_of
from branchmem.branchbench.models.chat import Chat, Reply, Request
from branchmem.branchbench.scenario import Scenario
from branchmem.branchbench.setting import Setting

REPEATED: Final = "repeated.json"


@dataclass
class Overheard:
    """A model whose calls are noted, each once."""

    chat: Chat
    calls: dict[str, tuple[Request, Reply]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.chat.name

    def ask(self, request: Request) -> Reply:
        reply = self.chat.ask(request)
        self.calls[key_of(self.name, request)] = (request, reply)
        return reply


@dataclass(frozen=True, slots=True)
class Repetition:
    """One call of `model` and its repetition; `key` is that of the cache."""

    model: str
    key: str
    kept: str
    again: str
    seconds: float

    @property
    def same(self) -> bool:
        return self.kept == self.again

    def to_dict(self) -> dict[str, Any]:
        """The call for a machine; the model, which is the same for all, is left to who lists them."""
        form = asdict(self)
        del form["model"]
        return form | {"same": self.same}


def drawn(calls: dict[str, tuple[Request, Reply]], count: int) -> list[tuple[str, Request, Reply]]:
    """So many of the calls, those whose keys come first: hashes, which nobody can pick."""
    return [(key, *calls[key]) for key in sorted(calls)[:count]]


def repeat(
    setting: Setting, scenarios: Sequence[Scenario], methods: Sequence[type[Method]], count: int
) -> Iterator[Repetition]:
    """Replay a run, every call of which is kept, then ask the model `count` of its calls again.

    Raises: CallNotKept where the run has not been made; what the model raises.
    Cost: a run from the cache, then as long as these calls take.
    """
    kept_of, chat = chat_kept(setting.model, Cache(setting.cache)), chat_named(setting.model)
    assert kept_of is not None, "the extractive answerer makes no calls"
    assert chat is not None
    overheard = Overheard(kept_of)
    bench = setting.bench(overheard)
    for scenario in scenarios:
        for _ in bench.rows(scenario, methods):
            pass
    for key, request, kept in drawn(overheard.calls, count):
        again = chat.ask(request)
        yield Repetition(chat.name, key, kept.text, again.text, again.seconds)
