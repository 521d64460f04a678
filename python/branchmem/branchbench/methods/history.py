"""Methods that remember by repeating what was said: the whole history, or the branch on which the conversation stands.

Their one rule: the newest messages that fit the budget, oldest first, each a line with its speaker.  Nothing is
derived, so facts and retractions are of no use to them; who asks for something to be forgotten says so in a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from branchmem.branchbench.methods.method import Method
from branchmem.branchbench.scenario import Language
from branchmem.events import Message

_SPEAKERS: Final[dict[Language, tuple[str, str]]] = {"en": ("User: ", "Assistant: "), "zh": ("用户：", "助手：")}


def said(message: Message, language: Language) -> str:
    """A message as a line of a history."""
    user, assistant = _SPEAKERS[language]
    return (user if message.role == "user" else assistant) + (message.text or "")


class FullHistory(Method):
    """All messages of all branches, in order of arrival: a chat log that is appended to and knows no tree.

    Where the conversation stands changes nothing: an application with such a log has all of it, also after its user
    went back.
    """

    name = "full history"
    line = "the newest messages of all branches, in order of arrival"

    def feed(self) -> None:
        """Nothing to prepare: the log is the scenario's."""

    def context(self, anchor: str, question: str) -> list[str]:
        return self._newest(self.scenario.messages.values())

    def _newest(self, messages: Iterable[Message]) -> list[str]:
        return self.tools.last_that_fit([said(message, self.scenario.language) for message in messages])


class CurrentBranch(FullHistory):
    """The messages from the root to the anchor: what a chat that keeps a tree shows its model.

    Nothing of another branch can be in it.  What was retracted or corrected on this branch can, since it was said here.
    """

    name = "current branch"
    line = "the newest messages of the branch on which the conversation stands"

    def context(self, anchor: str, question: str) -> list[str]:
        return self._newest(self.scenario.path(anchor))
