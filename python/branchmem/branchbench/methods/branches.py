"""Methods that remember with branchmem: facts, summaries, or both, of a store that knows branches.

Their one rule is that of the store: at an anchor they read one strict view, and nothing else.  All is done through the
public names: events are appended, facts are searched under the view, summaries are memories derived from facts.
Nothing fades: a benchmark has no clock.
"""

from __future__ import annotations

import os
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np

import branchmem as bm
from branchmem.branchbench.methods.method import Method, Vectors
from branchmem.branchbench.methods.plain_store import named
from branchmem.branchbench.models.summaries import TOKENS
from branchmem.embedders import Embedder
from branchmem.embedders import named as embedder_named
from branchmem.events import Event, Memory, Message, Retraction

if TYPE_CHECKING:
    from branchmem.branchbench.methods.method import Tools
    from branchmem.branchbench.scenario import Scenario

SUMMARY: Final = "summary"
EVERY: Final = 12  # facts, about as many as a summary has room for
#: Where a file is memory, so that nobody waits for a disk over a store that is gone after a scenario.
_MEMORY: Final = "/dev/shm"


class _Kept(Method):
    """A store of its own for the scenario: its messages, its retractions, and the facts that an extractor gives."""

    def __init__(self, scenario: Scenario, tools: Tools) -> None:
        super().__init__(scenario, tools)
        in_memory = os.access(_MEMORY, os.W_OK | os.X_OK)
        self._folder = TemporaryDirectory(prefix="branchbench-", dir=_MEMORY if in_memory else None)
        self._store = bm.open(os.path.join(self._folder.name, "scenario.bmem"))
        self._events: list[Event] = []
        self._facts: dict[str, Memory] = {}

    def feed(self) -> None:
        """Cost: one commit, and with a search a second one and one call of the embedder."""
        for event in self.scenario.events:
            self._take(event)
        self._store.append(self._events)

    def close(self) -> None:
        self._store.close()
        self._folder.cleanup()

    def _take(self, event: Event) -> list[Memory]:
        """Keep an event, and the facts that come of it; these facts."""
        if isinstance(event, Retraction):
            self._events.append(self._as_stored(event))
        elif not isinstance(event, Memory):
            self._events.append(event)
        facts = [self._adopting(fact) for fact in self.tools.extractor.facts(self.scenario, event)]
        self._events += facts
        self._facts |= {fact.id: fact for fact in facts}
        return facts

    def _as_stored(self, retraction: Retraction) -> Retraction:
        """The retraction, which also names what stands here for the annotated facts that it names."""
        meant = named(self.scenario, retraction)
        others = tuple(
            fact.id
            for fact in self._facts.values()
            if fact is not self.scenario.facts.get(fact.id) and meant.means(fact, self.scenario)
        )
        return replace(retraction, memories=retraction.memories + others) if others else retraction

    def _adopting(self, fact: Memory) -> Memory:
        """The fact, which adopts what stands here for the annotated fact that it adopts."""
        if fact.adopts is None or fact.adopts in self._facts:
            return fact
        sources = set(self.scenario.facts[fact.adopts].sources)
        read = (id for id, other in self._facts.items() if not sources.isdisjoint(other.sources))
        return replace(fact, adopts=next(read, None))


class _Searched(_Kept):
    """A store whose facts are searched by words and by meaning.

    Texts come best first, as those of the other memories do.  `view.recall` would set a heading above them and put
    them into path order; here all methods supply plain lines, so that answers differ by what was remembered alone.
    """

    def feed(self) -> None:
        super().feed()
        if self._facts:
            self._store.embed_with(self._embedder())
            self._store.embed_all()

    def _found(self, view: bm.View, question: str) -> list[str]:
        """The texts of the facts in view, best first."""
        if not self._facts:
            return []
        hits = view.search(question, k=len(view), kind={"$ne": SUMMARY}, include_faded=True)
        return [hit.text for hit in hits]

    def _embedder(self) -> Embedder:
        """The tools' vectors of all facts.  What is never searched has the vector 0, and costs the model nothing."""
        texts = list(dict.fromkeys(fact.text for fact in self._facts.values()))
        rows = dict(zip(texts, self.tools.embed(texts), strict=True))
        nowhere = np.zeros_like(rows[texts[0]])

        def passages(asked: list[str]) -> Vectors:
            return np.array([rows.get(text, nowhere) for text in asked], np.float32)

        def queries(asked: list[str]) -> Vectors:
            return np.array([self.tools.embed_query(text) for text in asked], np.float32)

        return embedder_named("branchbench", passages, query=queries)


class _SummedUp(_Kept):
    """A store with summaries, each a memory derived from facts that were in view when it was written.

    One is due where 12 facts have come since the last one was, where a fact was retracted or superseded, where the user
    leaves a line of work for another, and at the end.  It is written if there is a fact in view that the current
    summary does not know, from the newest facts that fit, and supersedes the summaries in view.  So what hides a fact
    hides its summaries, and an older one comes back.

    Supersession does not reach what is derived: a summary that knows a superseded fact stays in view.  So a summary
    is current only where all its facts are in view; of several, the one that knows most of what is there.
    """

    def __init__(self, scenario: Scenario, tools: Tools) -> None:
        super().__init__(scenario, tools)
        #: The log so far without a file: what is due is decided here, so that the store takes one commit.
        self._engine = bm.Engine()
        self._told = 0
        self._summaries: dict[str, Memory] = {}
        #: For each summary the facts that were in view when it was written, also those that did not fit.
        self._known: dict[str, set[str]] = {}
        self._newest: str | None = None
        self._new = 0
        self._changed = False

    def _take(self, event: Event) -> list[Memory]:
        if isinstance(event, Message):
            if self._new >= EVERY or self._changed or event.parent != self._newest:
                self._sum_up()
            self._newest = event.id
        facts = super()._take(event)
        self._new += len(facts)
        self._changed |= isinstance(event, Retraction) or any(fact.supersedes for fact in facts)
        if event is self.scenario.events[-1]:
            self._sum_up()
        return facts

    def _sum_up(self) -> None:
        """Write a summary of what is in view at the newest message, if the current one does not know all of it."""
        self._new, self._changed = 0, False
        self._engine.add(self._events[self._told :])
        self._told = len(self._events)
        if self._newest is None:
            return
        view = self._engine.at(self._newest)
        facts = [self._facts[id] for id in view.filter(self._facts)]
        current = self._current(view)
        if current and self._known[current.id].issuperset(fact.id for fact in facts):
            return
        chosen = self._newest_that_fit(facts)
        texts = [fact.text for fact in chosen]
        text = self.tools.summariser.summary(self.scenario.language, "", texts, texts) if texts else ""
        if not text:
            return
        summary = Memory(
            f"summary/{len(self._summaries)}",
            text,
            kind=SUMMARY,
            derived_from=[fact.id for fact in chosen],
            supersedes=view.filter(self._summaries),
        )
        self._events.append(summary)
        self._summaries[summary.id] = summary
        self._known[summary.id] = {fact.id for fact in facts}

    def _current(self, view: bm.View) -> Memory | None:
        """The summary to be read in a view."""
        shown = set(view.ids())
        whole = (each for each in self._summaries.values() if shown.issuperset((each.id, *each.derived_from)))
        return max(whole, key=lambda each: len(self._known[each.id] & shown), default=None)

    def _lines(self, view: bm.View) -> list[str]:
        """The lines of the current summary."""
        current = self._current(view)
        return self.tools.last_that_fit(current.text.splitlines()) if current else []

    def _newest_that_fit(self, facts: list[Memory]) -> list[Memory]:
        """The newest facts that a summary has room for, at least one, in order of arrival."""
        left = TOKENS
        chosen: list[Memory] = []
        for fact in reversed(facts):
            left -= self.tools.count(fact.text)
            if left < 0 and chosen:
                break
            chosen.append(fact)
        return chosen[::-1]


class BranchmemFacts(_Searched):
    """The facts that the anchor's view shows, searched."""

    name = "branchmem facts"
    line = "facts visible at the anchor, searched by words and by meaning"

    def context(self, anchor: str, question: str) -> list[str]:
        return self.tools.first_that_fit(self._found(self._store.at(anchor), question))


class BranchmemSummaries(_SummedUp):
    """The summary that is current in the anchor's view."""

    name = "branchmem summaries"
    line = "the summary visible at the anchor, derived from visible facts"

    def context(self, anchor: str, question: str) -> list[str]:
        return self._lines(self._store.at(anchor))


class BranchmemBoth(_SummedUp, _Searched):
    """The current summary, then the searched facts that it does not already say word for word."""

    name = "branchmem"
    line = "the summary visible at the anchor, then visible facts by search"

    def context(self, anchor: str, question: str) -> list[str]:
        view = self._store.at(anchor)
        summary = self._lines(view)
        said = "\n".join(summary)
        facts = (text for text in self._found(view, question) if text not in said)
        return self.tools.first_that_fit([*summary, *facts])
