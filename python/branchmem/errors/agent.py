"""What an agent, a wrapped client or the model behind them is refused, and how to go on."""

from __future__ import annotations

from collections.abc import Iterable

from branchmem.errors.base import Error, short


class InvalidModel(Error, ValueError):
    """A model that cannot be asked as it is described; `model` names it.  The key is no part of it."""

    def __init__(self, model: str, why: str) -> None:
        super().__init__(model, why)
        self.model = model
        self.why = why

    def explanation(self) -> str:
        return f"model {short(self.model)}: {self.why}"


class InvalidTool(Error, ValueError):
    """A function that no model can be told of, or that returned what it cannot be told; `tool` names it."""

    def __init__(self, tool: str, why: str) -> None:
        super().__init__(tool, why)
        self.tool = tool
        self.why = why

    def explanation(self) -> str:
        return f"tool {short(self.tool)}: {self.why}"


class ToolRefused(Error):
    """A call of a tool that is told to the model instead of a result; a tool raises it to say what is wrong."""

    def __init__(self, tool: str, why: str) -> None:
        super().__init__(tool, why)
        self.tool = tool
        self.why = why

    def explanation(self) -> str:
        return f"tool {short(self.tool)}: {self.why}"


class TurnEndless(Error):
    """The model called tools in each of `rounds` replies and gave no answer; nothing of the turn stands at the ref."""

    def __init__(self, rounds: int) -> None:
        super().__init__(rounds)
        self.rounds = rounds

    def explanation(self) -> str:
        return f"no answer after {self.rounds} replies that called tools: raise max_rounds, or mend what the tools say"


class NoAnswer(Error):
    """The model said nothing and called nothing; `finish` is why it ended, in its words.  Nothing stands at the ref."""

    def __init__(self, finish: str | None) -> None:
        super().__init__(finish)
        self.finish = finish

    def explanation(self) -> str:
        return f"the model gave no answer (it ended with {short(self.finish)}): ask again, or let it say more"


class ForeignSession(Error, TypeError):
    """A session whose steps do more than append an answer; `kind` is its class."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind

    def explanation(self) -> str:
        return f"the steps of a {self.kind} are its own: give a session of the store, store.session(ref)"


class InvalidMessage(Error, ValueError):
    """A message in no form that endpoints take; `at` counts from 0, `field` is at fault.  No text is shown."""

    def __init__(self, at: int, field: str, why: str) -> None:
        super().__init__(at, field, why)
        self.at = at
        self.field = field
        self.why = why

    def explanation(self) -> str:
        return f"messages[{self.at}]: its {self.field} {self.why}"


class PlaceAmbiguous(Error, ValueError):
    """A list of messages fits several places, `places`, and the session stands at none; `at` counts those that fit."""

    def __init__(self, ref: str, at: int, places: Iterable[str]) -> None:
        places = tuple(places)
        super().__init__(ref, at, places)
        self.ref = ref
        self.at = at
        self.places = places

    def explanation(self) -> str:
        shown = ", ".join(self.places[:8])
        return (
            f"the first {self.at} of the messages fit {len(self.places)} places in the tree of {short(self.ref)} "
            f"({shown}), and it stands at none of them: session.switch to the one that is meant, and call again"
        )


class PlaceUnknown(Error, ValueError):
    """A list of messages that is no way through the tree from its beginning; `at` is the first that has no place."""

    def __init__(self, ref: str, at: int, why: str) -> None:
        super().__init__(ref, at, why)
        self.ref = ref
        self.at = at
        self.why = why

    def explanation(self) -> str:
        return f"messages[{self.at}] has no place in the tree of {short(self.ref)}: {self.why}"


class NotAStep(Error, AttributeError):
    """Something of a wrapped client that would not become a step; `asked` names it."""

    def __init__(self, asked: str, why: str) -> None:
        super().__init__(asked, why)
        self.asked = asked
        self.why = why

    def explanation(self) -> str:
        return f"{self.asked} is no step of a session: {self.why}"


class ForkAstray(Error, ValueError):
    """A fork, `ref`, that began, or was set to work, at a message which is not on the path of its lead.

    It knows what nobody said there.
    """

    def __init__(self, ref: str, began: str, lead: str) -> None:
        super().__init__(ref, began, lead)
        self.ref = ref
        self.began = began
        self.lead = lead

    def explanation(self) -> str:
        return (
            f"{short(self.ref)} began or went on at {self.began}, which is not on the path where {short(self.lead)} "
            "stands: give the member another name, or take over what you name by store.adopt"
        )


class MemberFailed(Error):
    """The work of a member of a swarm raised something, which is the cause; nothing of it was adopted."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(member, why)
        self.member = member
        self.why = why

    def explanation(self) -> str:
        return f"{self.member} failed: {self.why}; what it found by then is on its fork: swarm.adopt takes it over"
