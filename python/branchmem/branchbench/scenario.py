"""A scenario: what happened in one conversation, and what is asked about it; and the files that hold them.

One line of a file is one scenario in JSON.  Its `events` are branchmem's own events (`Event.to_dict`), in the order
in which they happened: messages; memories of kind `fact`, each right after the last message that states it;
retractions.  Its probes each ask one question at one anchor.  What the words mean is in `rule.md`'s glossary;
which scenarios are fit to be asked, the validator decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from branchmem.events import Event, Memory, Message, Retraction, event_from_dict

Part = Literal["classic", "long"]
Language = Literal["zh", "en"]
Split = Literal["dev", "test"]

OPERATIONS: Final = (
    "edit",
    "regenerate",
    "fork",
    "switch_back",
    "correct",
    "nested_fork",
    "retract_branch",
    "retract_tree",
    "retract_everywhere",
    "adopt",
)


@dataclass(frozen=True, slots=True)
class Probe:
    """One question, asked where the conversation stands at `anchor`.

    A keyword is one or more forms with `|` between them; any form counts.  `needs` and `forbids` are ids of facts:
    those that the answer needs, and those that must not reach it.  `contested` says why a reader could call the
    probe unfair, or is None.
    """

    id: str
    anchor: str
    operation: str
    question: str
    accepted: tuple[str, ...]
    forbidden: tuple[str, ...]
    needs: tuple[str, ...]
    forbids: tuple[str, ...]
    contested: str | None = None

    def to_dict(self) -> dict[str, Any]:
        form = {name: getattr(self, name) for name in self.__slots__}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in form.items()}


@dataclass(frozen=True)
class Scenario:
    """One conversation with all its branches, and its probes."""

    id: str
    part: Part
    language: Language
    topic: str
    events: tuple[Event, ...]
    probes: tuple[Probe, ...]
    at_most: int | None = None

    @property
    def asked(self) -> tuple[Probe, ...]:
        """The probes that a run puts: the first `at_most`, all where it is None.  That is no part of the data."""
        return self.probes[: self.at_most]

    @cached_property
    def messages(self) -> dict[str, Message]:
        """Every message by id, in order of arrival."""
        return {event.id: event for event in self.events if isinstance(event, Message)}

    @cached_property
    def facts(self) -> dict[str, Memory]:
        """Every annotated fact by id, in order of arrival."""
        return {event.id: event for event in self.events if isinstance(event, Memory)}

    @cached_property
    def retractions(self) -> tuple[Retraction, ...]:
        return tuple(event for event in self.events if isinstance(event, Retraction))

    def path(self, anchor: str) -> list[Message]:
        """The messages from the root to `anchor`.  O(depth)."""
        upward = []
        message: Message | None = self.messages[anchor]
        while message is not None:
            upward.append(message)
            message = self.messages[message.parent] if isinstance(message.parent, str) else None
        return upward[::-1]

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "part": self.part,
            "language": self.language,
            "topic": self.topic,
            "events": [event.to_dict() for event in self.events],
            "probes": [probe.to_dict() for probe in self.probes],
        }


def scenario_from_dict(form: dict[str, Any]) -> Scenario:
    """A scenario from its JSON form; KeyError, TypeError or InvalidEvent where it is none."""
    probes = []
    for probe in form["probes"]:
        lists = {name: tuple(probe[name]) for name in ("accepted", "forbidden", "needs", "forbids")}
        probes.append(Probe(**{**probe, **lists}))
    return Scenario(
        id=form["id"],
        part=form["part"],
        language=form["language"],
        topic=form["topic"],
        events=tuple(event_from_dict(event) for event in form["events"]),
        probes=tuple(probes),
    )


def read(content: bytes) -> Iterator[Scenario]:
    """The scenarios of a file, from its bytes: one a line.  Raises: ValueError; as `scenario_from_dict`."""
    for line in content.splitlines():
        yield scenario_from_dict(json.loads(line))


def lines(scenarios: Iterable[Scenario]) -> str:
    """The text of a file: one line a scenario, the same bytes for the same scenarios."""
    forms: Sequence[str] = [
        json.dumps(scenario.to_dict(), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        for scenario in scenarios
    ]
    return "".join(form + "\n" for form in forms)
