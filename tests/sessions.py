"""What the tests of sessions share: a step with something in it, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import branchmem as bm
from branchmem import COMPAT, STRICT, Memory, Message, Policy, Reason
from branchmem.events import SCOPES, Erasure, Event, Restoration, Retraction
from branchmem.session import Session, Step

POLICIES = (
    STRICT,
    COMPAT,
    Policy(Reason.SUPERSEDED),
    Policy(Reason.ERASED | Reason.SUPERSEDED | Reason.RETRACTED),
    Policy(Reason.FUTURE | Reason.SIBLING | Reason.OTHER_TREE),
    Policy(Reason.FUTURE),
    Policy(Reason.SIBLING | Reason.NO_SOURCES),
    Policy(Reason((1 << 16) - 1)),
)


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


def told(ask: Any) -> Any:
    """What is answered, or refused."""
    try:
        return ask()
    except bm.AmbiguousAnchor as error:
        return "ambiguous", error.root  # the view at the head names that, not the message below it
    except bm.Error as error:
        return type(error), str(error)


def events_about(random: Random, step: Step, store: bm.Store, name: str) -> list[Event]:
    """Events of somebody who knows the ids of the step before it has ended."""
    known = [step.id, *(memory.id for memory in step.memories)]
    some = random.choice(known)
    place = random.choice([step.id, random.choice(list(store.message_ids))])
    memory = Memory(name, "x", sources=[place], supersedes=[some], derived_from=random.choice(([], [known[-1]])))
    return [
        memory,
        random.choice(
            [
                Message(f"{name}-below", step.id),
                Retraction(f"{name}-r", place, scope=random.choice(SCOPES), memories=[some, name]),
                Restoration(f"{name}-r", step.id, scope=random.choice(SCOPES), retraction="nothing"),
                Erasure(f"{name}-e", [some], cascade=random.random() < 0.5),
            ]
        ),
    ]
