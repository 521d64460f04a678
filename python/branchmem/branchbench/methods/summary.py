"""Methods that remember by a running summary and the newest messages, of all branches or of one.

Their one rule: a message is either in the buffer, word for word, or has been folded into the summary.
"""

from __future__ import annotations

from collections.abc import Collection

from branchmem.branchbench.methods.history import said
from branchmem.branchbench.methods.method import Method
from branchmem.events import Message


class RollingSummary(Method):
    """A summary buffer: when the newest messages take more than half the budget, the oldest are summed up
    until a quarter is left, so that a model is not asked at every exchange.

    It is fed every message of every branch in order of arrival, as LangChain's summary buffer is: there is one summary
    a conversation, which goes forward only, and what was folded in cannot be taken out again.  So every anchor gets the
    summary as it stands after all that has happened.  For the same reason it has no way to delete: a retraction reaches
    it as the message that asks for it.

    Buffers are looked at once an exchange, as such memories save an exchange at a time.
    """

    name = "rolling summary"
    line = "a running summary of all branches, and the newest messages"

    def feed(self) -> None:
        """Cost: at most one call of the summariser an exchange."""
        self._take_in(self.scenario.messages)

    def context(self, anchor: str, question: str) -> list[str]:
        summary = self.tools.last_that_fit(self._summary.splitlines())
        left = self.tools.budget - sum(map(self.tools.count, summary))
        newest: list[str] = []
        for line, _ in reversed(self._buffer):
            left -= self.tools.count(line)
            if left < 0:
                break
            newest.append(line)
        return [*summary, *reversed(newest)]

    def _take_in(self, kept: Collection[str]) -> None:
        """Begin anew with the messages that are `kept`."""
        self._summary = ""
        #: Each message that is not summed up yet: its line, and the facts that were made of it.
        self._buffer: list[tuple[str, list[str]]] = []
        here = False
        for event in self.scenario.events:
            if isinstance(event, Message):
                here = event.id in kept
                if here:
                    if event.role == "user":
                        self._fold()
                    self._buffer.append((said(event, self.scenario.language), []))
            if here:
                self._buffer[-1][1].extend(fact.text for fact in self.tools.extractor.facts(self.scenario, event))
        self._fold()

    def _fold(self) -> None:
        """Where the buffer takes more than half the budget, sum up its oldest until the rest takes a quarter."""
        costs = [self.tools.count(line) for line, _ in self._buffer]
        if sum(costs) <= self.tools.budget // 2:
            return
        fold = 1
        while sum(costs[fold:]) > self.tools.budget // 4:
            fold += 1
        lines = [line for line, _ in self._buffer[:fold]]
        facts = [fact for _, facts in self._buffer[:fold] for fact in facts]
        self._summary = self.tools.summariser.summary(self.scenario.language, self._summary, lines, facts)
        del self._buffer[:fold]


class RollingSummaryBranch(RollingSummary):
    """The same for each anchor anew, fed with its path: as LangMem's running summary, which lies in the state of a
    graph and goes back with its checkpoint.
    """

    name = "rolling summary, current branch"
    line = "a running summary of the branch on which the conversation stands, and its newest messages"

    _anchor: str | None = None

    def feed(self) -> None:
        """Nothing to do before an anchor is known."""

    def context(self, anchor: str, question: str) -> list[str]:
        """Cost: at a new anchor, at most one call of the summariser an exchange of its path."""
        if anchor != self._anchor:
            self._anchor = anchor
            self._take_in({message.id for message in self.scenario.path(anchor)})
        return super().context(anchor, question)
