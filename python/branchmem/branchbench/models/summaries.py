"""Summaries: what a language model writes, or, without one, the facts themselves, cut to size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from branchmem.branchbench.models import prompts
from branchmem.branchbench.models.chat import Chat
from branchmem.branchbench.scenario import Language

TOKENS: Final = 150  # half of the published budget, as `recall.tokens.estimate` counts


class Summariser(Protocol):
    @property
    def name(self) -> str: ...

    def summary(self, language: Language, old: str, lines: Sequence[str], facts: Sequence[str]) -> str:
        """The old summary with what is new taken in, at most about `TOKENS` tokens.

        `lines` are what was said, `facts` what an extractor made of it; each reads the one that it understands.
        """
        ...


class Written:
    """A language model's summary."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.name = chat.name

    def summary(self, language: Language, old: str, lines: Sequence[str], facts: Sequence[str]) -> str:
        return self._chat.ask(prompts.summary(language, old, lines)).text.strip()


class Kept:
    """The newest facts, word for word, as many as fit: what a summary that loses nothing else would say."""

    name = "kept facts"

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count

    def summary(self, language: Language, old: str, lines: Sequence[str], facts: Sequence[str]) -> str:
        kept: list[str] = []
        left = TOKENS
        for line in reversed([*old.splitlines(), *facts]):
            left -= self._count(line)
            if left < 0:
                break
            kept.append(line)
        return "\n".join(reversed(kept))
