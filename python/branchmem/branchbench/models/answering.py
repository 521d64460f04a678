"""Who answers a probe from the context that a method supplies: a language model, or the rule that needs none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from branchmem.branchbench.models import extractive, prompts
from branchmem.branchbench.models.chat import Chat
from branchmem.branchbench.scenario import Language


class Answerer(Protocol):
    """Reads the question and the context's lines, nothing else.  `name` is what the tables call it."""

    @property
    def name(self) -> str: ...

    def answer(self, language: Language, question: str, context: Sequence[str]) -> str: ...


class Extractive:
    """The sentence of the context that fits best."""

    name = "extractive"

    def answer(self, language: Language, question: str, context: Sequence[str]) -> str:
        return extractive.answer(language, question, context)


class Asked:
    """A language model, asked with the one prompt for answers.  Raises: ModelUnavailable."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.name = chat.name

    def answer(self, language: Language, question: str, context: Sequence[str]) -> str:
        return self._chat.ask(prompts.answer(language, question, context)).text.strip()
