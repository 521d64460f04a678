"""What the tests of sessions share: a step with something in it, and what became of it."""

from __future__ import annotations

from collections.abc import Callable

from branchmem import Message
from branchmem.session import Session, Step


def message(session: Session, id: str) -> Message:
    event = session.store.log.get(id)
    assert isinstance(event, Message)
    return event


class Failed(Exception):
    pass


def attempt(step: Step, then: Callable[[], object]) -> None:
    """Half an answer, a memory, and what happens then."""
    with step:
        step.write("half an ans")
        step.remember("likes fish")
        then()


def failing(error: type[BaseException] = Failed) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail
