"""The smallest scenarios of branchbench: one that is fit to be asked, and ways to change it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from branchmem.branchbench.scenario import Probe, Scenario
from branchmem.events import Event, Memory, Message

TEXTS = {
    "en": {
        "u0": "I am planning my year.",
        "a0": "Tell me more.",
        "u1": "I move to Chengdu in March.",
        "a1": "Noted.",
        "u1b": "I move to Hangzhou in March.",
        "a1b": "Noted as well.",
        "f1": "The user moves to Chengdu in March.",
        "f2": "The user moves to Hangzhou in March.",
        "question": "Where does the user move?",
        "accepted": "Hangzhou",
        "forbidden": "Chengdu",
    },
    "zh": {
        "u0": "我在做今年的计划。",
        "a0": "说说看。",
        "u1": "我三月搬到成都。",
        "a1": "好的。",
        "u1b": "我三月搬到杭州。",
        "a1b": "记下了。",
        "f1": "用户三月搬到成都。",
        "f2": "用户三月搬到杭州。",
        "question": "用户要搬到哪里？",
        "accepted": "杭州",
        "forbidden": "成都",
    },
}


def fit(language: Any = "en", id: str = "classic-moving") -> Scenario:
    """The smallest scenario with a leak probe: an edited message."""
    text = TEXTS[language]
    events: list[Event] = [
        Message("u0", None, role="user", text=text["u0"]),
        Message("a0", "u0", role="assistant", text=text["a0"]),
        Message("u1", "a0", role="user", text=text["u1"]),
        Memory("f1", text["f1"], sources=["u1"]),
        Message("a1", "u1", role="assistant", text=text["a1"]),
        Message("u1b", "a0", role="user", text=text["u1b"]),
        Memory("f2", text["f2"], sources=["u1b"]),
        Message("a1b", "u1b", role="assistant", text=text["a1b"]),
    ]
    probe = Probe("p1", "a1b", "edit", text["question"], (text["accepted"],), (text["forbidden"],), ("f2",), ("f1",))
    return Scenario(f"{id}-{language}", "classic", language, "moving", tuple(events), (probe,))


def probing(**changed: Any) -> Scenario:
    scenario = fit()
    return replace(scenario, probes=(replace(scenario.probes[0], **changed),))


def telling(*events: Event, before: str | None = None, **changed: Any) -> Scenario:
    """The fit scenario with more events at its end, or before one of its own; and with another probe."""
    scenario = probing(**changed)
    own = list(scenario.events)
    place = len(own) if before is None else next(at for at, event in enumerate(own) if event.id == before)
    return replace(scenario, events=(*own[:place], *events, *own[place:]))


def instead(*events: Event) -> Scenario:
    """The fit scenario with other events of the same ids."""
    changed = {event.id: event for event in events}
    scenario = fit()
    return replace(scenario, events=tuple(changed.get(event.id, event) for event in scenario.events))


def said(id: str, parent: Any, text: str | None = "Fine.", role: str | None = None) -> Message:
    return Message(id, parent, role=role or ("user" if id.startswith("u") else "assistant"), text=text)


def fact(id: str, text: str, source: str, **more: Any) -> Memory:
    return Memory(id, text, sources=[source], **more)
