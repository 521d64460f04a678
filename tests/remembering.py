"""What the tests of branchbench's methods share: a conversation in two languages, and tools that need no package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from branchmem.branchbench.methods import Method, Tools
from branchmem.branchbench.methods.method import Vectors
from branchmem.branchbench.models.chat import Reply, Request
from branchmem.branchbench.models.extraction import Extractor, Scripted
from branchmem.branchbench.models.summaries import Kept
from branchmem.branchbench.scenario import Language, Probe, Scenario
from branchmem.events import Event, Memory, Message, Retraction, Scope
from branchmem.recall.tokens import estimate

LANGUAGES: Final[tuple[Language, ...]] = ("en", "zh")

SAID: Final[dict[Language, dict[str, str]]] = {
    "en": {
        "u0": "Help me plan.",
        "a0": "Gladly.",
        "u1": "I am moving to Chengdu.",
        "a1": "A fine place.",
        "u2": "My cat comes along.",
        "a2": "She will need a box.",
        "u1b": "I am moving to Hangzhou.",
        "a1b": "The lake is near.",
        "u2b": "I cannot eat peanuts.",
        "a2b": "Noted.",
        "u3b": "My pet comes along here too.",
        "a3b": "Then she needs a box.",
        "u3": "My budget is 3000 yuan.",
        "a3": "That will do.",
        "u4": "Make that 4500 yuan.",
        "a4": "Even better.",
        "f1": "The user is moving to Chengdu.",
        "f2": "The user's cat comes along.",
        "f3": "The user is moving to Hangzhou.",
        "f4": "The user cannot eat peanuts.",
        "f5": "The budget is 3000 yuan.",
        "f6": "The budget is 4500 yuan.",
        "f7": "The user's cat comes along here too.",
        "question": "Which city is it?",
    },
    "zh": {
        "u0": "帮我做个计划。",
        "a0": "好的。",
        "u1": "我要搬到成都。",
        "a1": "好地方。",
        "u2": "我的猫一起去。",
        "a2": "她需要一个箱子。",
        "u1b": "我要搬到杭州。",
        "a1b": "离湖很近。",
        "u2b": "我不能吃花生。",
        "a2b": "记下了。",
        "u3b": "我的宠物这次也一起去。",
        "a3b": "那她需要一个箱子。",
        "u3": "我的预算是3000元。",
        "a3": "够了。",
        "u4": "改成4500元。",
        "a4": "更好。",
        "f1": "用户要搬到成都。",
        "f2": "用户的猫一起去。",
        "f3": "用户要搬到杭州。",
        "f4": "用户不能吃花生。",
        "f5": "预算是3000元。",
        "f6": "预算是4500元。",
        "f7": "用户的猫这次也一起去。",
        "question": "是哪座城市？",
    },
}


def embed(texts: Sequence[str]) -> Vectors:
    """A text points where its characters point."""
    rows = np.zeros((len(texts), 64), np.float32)
    for row, text in enumerate(texts):
        for character in text.lower():
            rows[row, ord(character) % 64] += 1
    lengths: Vectors = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths


@dataclass
class Counted(Kept):
    """Keeps facts, and what it was asked."""

    asked: list[tuple[str, list[str], list[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(estimate)

    def summary(self, language: Language, old: str, lines: Sequence[str], facts: Sequence[str]) -> str:
        self.asked.append((old, [*lines], [*facts]))
        return super().summary(language, old, lines, facts)


class Echo:
    """A model that reads one fact in each message: the message."""

    name = "echo"

    def ask(self, request: Request) -> Reply:
        return Reply(request.turns[-1].content, 1, 1, 0.0)


def tools(budget: int = 300, extractor: Extractor | None = None) -> Tools:
    return Tools(budget, extractor or Scripted(), Counted(), embed, lambda text: embed([text])[0])


def moving(language: Language, *after: Event) -> Scenario:
    """A move: to Chengdu with a cat, or, on an edited branch, to Hangzhou; then the first plan again, corrected."""
    said = SAID[language]
    parents = {"u0": None, "a0": "u0", "u1": "a0", "a1": "u1", "u2": "a1", "a2": "u2", "u1b": "a0", "a1b": "u1b"}
    parents |= {"u2b": "a1b", "a2b": "u2b", "u3b": "a2b", "a3b": "u3b", "u3": "a2", "a3": "u3", "u4": "a3", "a4": "u4"}
    facts = {
        "u1": Memory("f1", said["f1"], sources=["u1"]),
        "u2": Memory("f2", said["f2"], sources=["u2"]),
        "u1b": Memory("f3", said["f3"], sources=["u1b"]),
        "u2b": Memory("f4", said["f4"], sources=["u2b"]),
        "u3b": Memory("f7", said["f7"], sources=["u3b"], adopts="f2"),
        "u3": Memory("f5", said["f5"], sources=["u3"]),
        "u4": Memory("f6", said["f6"], sources=["u4"], supersedes=["f5"]),
    }
    events: list[Event] = []
    for id, parent in parents.items():
        role = "user" if id.startswith("u") else "assistant"
        events += [Message(id, parent, role=role, text=said[id]), *([facts[id]] if id in facts else [])]
    probe = Probe("p1", "a3b", "switch_back", said["question"], ("x",), (), ("f3",), ())
    return Scenario("moving", "classic", language, "moving", (*events, *after), (probe,))


def short(*events: Event) -> Scenario:
    """A conversation of a few events, told in letters."""
    return Scenario("short", "classic", "en", "letters", events, ())


def turn(id: str, parent: str | None) -> Message:
    return Message(id, parent, role="user" if id.startswith("u") else "assistant", text=f"this is {id}")


def fact(id: str, source: str, *, supersedes: Sequence[str] = ()) -> Memory:
    return Memory(id, f"fact {id}", sources=[source], supersedes=supersedes)


def supplied(
    method: type[Method], scenario: Scenario, anchor: str, question: str = "what is it?", given: Tools | None = None
) -> list[str]:
    """What a method supplies at an anchor after all of the scenario."""
    with closing(method(scenario, given or tools())) as fed:
        fed.feed()
        return fed.context(anchor, question)


def retracting(scope: Scope, *memories: str) -> Iterator[Event]:
    """On the branch that goes to Chengdu the user takes something back."""
    yield Message("u5", "a4", role="user", text="Forget that.")
    yield Retraction("r1", "u5", scope=scope, memories=memories)
    yield Message("a5", "u5", role="assistant", text="Gone.")
