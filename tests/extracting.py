"""What the tests of extraction share: extractors that follow a script, and models that do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import branchmem as bm
from branchmem.chat import Reply
from branchmem.extract import Extractor, Found, Passage, Shown
from branchmem.reference import Reference


def finding(*found: Found | str) -> Extractor:
    """An extractor that finds this in whatever it is shown."""
    memories = [Found(one) if isinstance(one, str) else one for one in found]
    return lambda shown: memories


def each(shown: Shown) -> list[Found]:
    """An extractor that finds the text of each message, and cites that."""
    return [Found(f"{message.text}", (message.id,)) for message in shown.messages]


class Seen:
    """An extractor that keeps what it was shown, and finds what another does."""

    def __init__(self, extractor: Extractor = each) -> None:
        self.shown: list[Shown] = []
        self._extractor = extractor

    def __call__(self, shown: Shown) -> Iterable[Found]:
        self.shown.append(shown)
        return self._extractor(shown)

    @property
    def messages(self) -> list[list[str]]:
        """The ids of the messages that it was shown, call by call."""
        return [[message.id for message in shown.messages] for shown in self.shown]

    @property
    def texts(self) -> list[list[str | None]]:
        return [[message.text for message in shown.messages] for shown in self.shown]


class Scripted:
    """A model that gives these answers, one after the other, and keeps what it was asked."""

    model = "scripted"

    def __init__(self, *answers: str | Reply) -> None:
        self._answers = iter(answers)
        self.asked: list[list[Mapping[str, Any]]] = []
        self.options: list[dict[str, Any]] = []

    def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> Reply:
        self.asked.append(list(messages))
        self.options.append({"schema": schema, "max_tokens": max_tokens})
        answer = next(self._answers)
        return answer if isinstance(answer, Reply) else Reply(answer)


def answer(*memories: Mapping[str, Any]) -> str:
    """The answer of a model, with what it leaves out of each memory filled in."""
    rest = {"sources": ["m1"], "builds_on": [], "replaces": [], "kind": "fact", "key": None, "importance": 0.5}
    return json.dumps({"memories": [{**rest, **memory} for memory in memories]})


def counted(passage: Passage) -> str:
    """A summary that names the messages in it, and how the one before began."""
    before = "" if passage.before is None else f"{passage.before} | "
    return before + ",".join(message.id for message in passage.messages)


def talk(session: bm.Session, turns: int, *, start: int = 0, text: Callable[[int], str] = str) -> None:
    """Turns of a user and an assistant: q0, a0, q1, a1 …"""
    for number in range(start, start + turns):
        session.say("user", f"question {text(number)}", id=f"q{number}")
        session.say("assistant", f"answer {text(number)}", id=f"a{number}")


def visible_to_both(store: bm.Store, anchor: str) -> set[str]:
    """The texts that are visible at an anchor, where engine and reference say the same."""
    reference = Reference()
    reference.append(store.log.events())
    seen = set(store.at(anchor).ids())
    assert seen == set(reference.at(anchor).ids())
    return {store.at(anchor)[id].text for id in seen}
