"""What facts an event brings: as the scenario's authors annotated them, or as a language model reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from branchmem.branchbench.models import prompts
from branchmem.branchbench.models.chat import Chat
from branchmem.branchbench.scenario import Scenario
from branchmem.events import Event, Memory, Message


class Extractor(Protocol):
    """`facts` is asked for every event in its turn; the memories that it gives are to be kept from then on."""

    @property
    def name(self) -> str: ...

    def facts(self, scenario: Scenario, event: Event) -> Sequence[Memory]: ...


class Scripted:
    """The annotated facts, word for word: what a perfect extraction gives."""

    name = "scripted"

    def facts(self, scenario: Scenario, event: Event) -> Sequence[Memory]:
        return (event,) if isinstance(event, Memory) else ()


class Read:
    """What a language model reads in each message of the user.  Adoptions are deliberate acts and stay as annotated."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.name = chat.name

    def facts(self, scenario: Scenario, event: Event) -> Sequence[Memory]:
        if isinstance(event, Memory) and event.adopts is not None:
            return (event,)
        if not isinstance(event, Message) or event.role != "user" or not event.text:
            return ()
        reply = self._chat.ask(prompts.facts(scenario.language, event.text)).text
        lines = [line.strip(" -*\t") for line in reply.splitlines()]
        stated = [line for line in lines if line and line.rstrip("。.").lower() not in ("none", "无")]
        return [Memory(f"{event.id}/{place}", line, sources=[event.id]) for place, line in enumerate(stated)]
