"""What the tests of `remember_checked` share: where one remembers, toy meanings, and what became of conflicts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from branchmem import Memory
from branchmem.recall import Conflict, Remembered
from branchmem.recall.conflicts import Resolution
from branchmem.session import Session, Step

Place = Session | Step


class Compass:
    """Texts point where they say, `@` so many degrees: the cosine of two is that of the angle between them."""

    name = "compass"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        angles = [math.radians(float((re.findall(r"@(\d+)", text) or ["90"])[0])) for text in texts]
        return [[math.cos(angle), math.sin(angle)] for angle in angles]


COMPASS = Compass()


@contextmanager
def session_place(session: Session) -> Iterator[Callable[..., Remembered]]:
    session.say("user", "Well", id="later")
    yield lambda text, **options: session.remember_checked(text, **{"sources": ["later"], **options})


@contextmanager
def step_place(session: Session) -> Iterator[Callable[..., Remembered]]:
    with session.step() as step:
        yield step.remember_checked


PLACES = pytest.mark.parametrize("place", [session_place, step_place], ids=["session", "step"])


def shown(place: Place) -> set[str]:
    return {memory.text for memory in place.view().memories()}


def kept(remembered: Remembered) -> list[tuple[str, str, str | None]]:
    return [(conflict.memory.id, conflict.by, conflict.done) for conflict in remembered.conflicts]


def supersede(new: Memory, conflicts: Sequence[Conflict]) -> Resolution:
    return "supersede"
