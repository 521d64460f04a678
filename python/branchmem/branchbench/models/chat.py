"""What a language model is here: messages in, one text out, the same text each time.

A backend answers one request; `Cached` (in `cache.py`) keeps every answer by the hash of model and request.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True)
class Turn:
    """One message to a model."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """One call.  Temperature is 0 and the seed 0, always; `as_json` asks for one JSON object."""

    turns: tuple[Turn, ...]
    max_tokens: int = 64
    as_json: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, and what it cost: tokens as the model counts them, seconds when it was first asked."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


class Chat(Protocol):
    """A language model.  `name` names weights and settings, so that equal names give equal answers."""

    @property
    def name(self) -> str: ...

    def ask(self, request: Request) -> Reply:
        """The model's answer; ModelUnavailable where it gives none."""
        ...
