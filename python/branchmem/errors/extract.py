"""What extraction, summaries and compaction refuse: nothing is guessed, and nothing left out unsaid."""

from __future__ import annotations

from typing import Final

from branchmem.errors.base import Error, short

#: So much of an answer that could not be used is kept for people to look at.
_KEPT_CHARS: Final = 2000


class InvalidExtraction(Error, ValueError):
    """An extraction that says nothing sensible; `value` is at fault, in the argument `name`."""

    def __init__(self, name: str, value: object, why: str) -> None:
        super().__init__(name, value, why)
        self.name = name
        self.value = value
        self.why = why

    def explanation(self) -> str:
        return f"{self.name}={short(self.value)}: {self.why}"


class ExtractionFailed(Error):
    """Who was asked to extract or to summarise gave what cannot be used; nothing was remembered of it.

    `answer` is how the last one began, None where it was no text.
    """

    def __init__(self, who: str, why: str, attempts: int = 1, answer: str | None = None) -> None:
        answer = None if answer is None else answer[:_KEPT_CHARS]
        super().__init__(who, why, attempts, answer)
        self.who = who
        self.why = why
        self.attempts = attempts
        self.answer = answer

    def explanation(self) -> str:
        times = f" (asked {self.attempts} times)" if self.attempts > 1 else ""
        return f"{self.who}: {self.why}{times}; nothing was remembered of it: ask again, or ask another model"


class PromptTooLong(Error, ValueError):
    """What must stay of a prompt has `tokens`, more than the `budget`; `stages` says what was tried."""

    def __init__(self, tokens: int, budget: int, stages: str) -> None:
        super().__init__(tokens, budget, stages)
        self.tokens = tokens
        self.budget = budget
        self.stages = stages

    def explanation(self) -> str:
        return (
            f"a prompt of {self.tokens} tokens cannot be brought down to {self.budget} ({self.stages}): "
            "raise the budget, keep fewer turns, or give a session and a summariser"
        )
