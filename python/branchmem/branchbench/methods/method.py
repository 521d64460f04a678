"""What a method of remembering is: it is fed what happened, and supplies a context for a question.

To add one, subclass `Method`, and name it in `methods/__init__.py`.  A method is made anew for each scenario; it sees
the events in the order in which they happened, and at a probe it is told where the conversation stands, as an
application would know it.  Of a probe it may read `anchor` and `question`, nothing else: the rest is for the judge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from branchmem.recall.tokens import estimate

if TYPE_CHECKING:
    from branchmem.branchbench.models.chat import Chat
    from branchmem.branchbench.models.extraction import Extractor
    from branchmem.branchbench.models.summaries import Summariser
    from branchmem.branchbench.scenario import Scenario

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Tools:
    """What every method is given alike.

    `budget` is in tokens as `count` counts them.  `embed` turns n texts into n × d rows of length 1, `embed_query` a
    question into one such row.  `chat` is None where no language model is at hand.
    """

    budget: int
    extractor: Extractor
    summariser: Summariser
    embed: Callable[[Sequence[str]], Vectors]
    embed_query: Callable[[str], Vectors]
    chat: Chat | None = None
    count: Callable[[str], int] = estimate

    def first_that_fit(self, pieces: Iterable[str]) -> list[str]:
        """The longest beginning of `pieces` that keeps the budget; for contexts that come best first.

        A piece that is longer than the whole budget is left out.
        """
        kept: list[str] = []
        left = self.budget
        for piece in pieces:
            cost = self.count(piece)
            if cost > self.budget:
                continue
            if cost > left:
                break
            kept.append(piece)
            left -= cost
        return kept

    def last_that_fit(self, pieces: Sequence[str]) -> list[str]:
        """The longest end of `pieces` that keeps the budget, in their order; for histories."""
        return self.first_that_fit(reversed(pieces))[::-1]


class Method(ABC):
    """One way to remember, over one scenario.

    `name` is what the tables call it, `line` one line for the legend, `requires` the modules that must be installed,
    `needs_chat` says that it cannot do without a language model.
    """

    name: ClassVar[str]
    line: ClassVar[str]
    requires: ClassVar[tuple[str, ...]] = ()
    needs_chat: ClassVar[bool] = False

    @classmethod  # noqa: B027 — most need nothing
    def load(cls) -> None:
        """Import what `requires` names, which is not the method's time; called before each is made.

        Raises: ExtraMissing.
        """

    def __init__(self, scenario: Scenario, tools: Tools) -> None:
        self.scenario = scenario
        self.tools = tools

    @abstractmethod
    def feed(self) -> None:
        """Take in all of `scenario.events`, in their order."""

    @abstractmethod
    def context(self, anchor: str, question: str) -> list[str]:
        """The lines that the answering model reads, in that order; within the budget."""

    def close(self) -> None:  # noqa: B027 — most have nothing to close
        """Let go of files and connections."""
