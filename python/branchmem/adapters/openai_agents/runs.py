"""Which run a call of a session belongs to, and where that run stands.

The SDK says of no call which run it is from, and not when a run ends.  So whoever asks for the items begins a run, for
itself and for the tasks that it starts; a context variable says which.  A call from elsewhere looks from where the last
run stands, and never moves that: it begins one of its own there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from weakref import WeakKeyDictionary

from branchmem.events import Message


@dataclass(slots=True)
class Run:
    """A run of the SDK, which its tasks share."""

    #: Where it stands; None where that was never asked.
    at: str | None = None
    #: What was recalled, and whether an answer has that as its receipt; shared with the runs that go on from here.
    recalled: dict[str, bool] = field(default_factory=dict)
    #: By parent what was taken off the list, which the SDK may put back.
    popped: dict[str, Message] = field(default_factory=dict)
    #: The run that was begun last by whoever is in this one, where this one stood.
    next: Run | None = None


class Runs:
    """The runs of one session."""

    def __init__(self) -> None:
        self._last = Run()

    def here(self) -> Run:
        """The run in which this is called; elsewhere, the last that began."""
        run = _HERE.get().get(self, self._last)
        while run.next is not None:
            run = run.next
        return run

    def own(self) -> Run:
        """The run in which this is called, for what moves it; elsewhere a new one, where the last stands."""
        run = _HERE.get().get(self)
        return run if run is not None and run.next is None else self._following(self.here().at)

    def go_on(self, at: str) -> None:
        """Begin a run here that stands at a message, and has recalled what was recalled here."""
        self.begin(self._following(at))

    def begin(self, run: Run) -> None:
        """Let what follows here be another run."""
        self._last = run
        _HERE.set(WeakKeyDictionary({**_HERE.get(), self: run}))

    def _following(self, at: str | None) -> Run:
        """A run at a message, in place of the one in which this is called where that stands there."""
        outer, before = _HERE.get().get(self), self.here()
        self._last = run = Run(at, before.recalled, {**before.popped})
        if outer is not None and before.at in (None, at):
            outer.next = run
        return run


_NONE: Final[Mapping[Runs, Run]] = MappingProxyType({})
#: The run that was begun here last, for each session.
_HERE: ContextVar[Mapping[Runs, Run]] = ContextVar("branchmem.openai_agents", default=_NONE)
