"""A method that remembers by a running summary and the newest messages.

Its one rule: a message is either in the buffer, word for word, or has been folded into the summary.
"""

from __future__ import annotations

from branchmem.branchbench.methods.history import said
from branchmem.branchbench.methods.method import Method
from branchmem.events import Message


class RollingSummary(Method):
    """A summary buffer: when the newest messages take more than half the budget, the oldest are summed up
    until a quarter is left, so that a model is not asked at every exchange.

    It is fed every message of every branch in order of arrival, which is its own best practice: there is one summary
    a conversation, which goes forward only.  An application whose user switches back does not rewind it, and could
    not: what was folded in cannot be taken out again.  So every anchor gets the summary as it stands after all that
    has happened.  For the same reason it has no way to delete: a retraction reaches it as the message that asks for it.

    Buffers are looked at once an exchange, as such memories save an exchange at a time.
    """

    name = "rolling summary"
    line = "a running summary of all branches, and the newest messages"

    def feed(self) -> None:
        """Cost: at most one call of the summariser an exchange."""
        self._summary = ""
        #: Each message that is not summed up yet: its line, and the facts that were made of it.
        self._buffer: list[tuple[str, list[str]]] = []
        for event in self.scenario.events:
            if isinstance(event, Message):
                if event.role == "user":
                    self._fold()
                self._buffer.append((said(event, self.scenario.language), []))
            if self._buffer:
                self._buffer[-1][1].extend(fact.text for fact in self.tools.extractor.facts(self.scenario, event))
        self._fold()

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
