"""A method that remembers by facts and their vectors, in one collection that knows no branches.

Its one rule: the facts nearest to the question, best first, until the budget is full.
"""

from __future__ import annotations

import numpy as np

from branchmem.branchbench.methods.method import Method
from branchmem.branchbench.methods.plain_store import taken_back
from branchmem.events import Memory, Retraction


class NaiveVectors(Method):
    """Facts of all branches, by cosine.

    A fact that supersedes another is one more row: nearest neighbours know no versions.  A retraction that is to hold
    on every branch deletes; one that is to hold on one branch cannot, since the row is the only one there is.
    """

    name = "vector memory"
    line = "the facts of all branches that are nearest to the question"

    def feed(self) -> None:
        """Cost: one call of the embedder."""
        facts: dict[str, Memory] = {}
        for event in self.scenario.events:
            if isinstance(event, Retraction):
                gone = taken_back(self.scenario, event)
                facts = {id: fact for id, fact in facts.items() if not gone.means(fact, self.scenario)}
            facts |= {fact.id: fact for fact in self.tools.extractor.facts(self.scenario, event)}
        self._texts = list(dict.fromkeys(fact.text for fact in facts.values()))
        self._rows = self.tools.embed(self._texts) if self._texts else None

    def context(self, anchor: str, question: str) -> list[str]:
        if self._rows is None:
            return []
        cosines = self._rows @ self.tools.embed_query(question)
        return self.tools.first_that_fit(self._texts[row] for row in np.argsort(-cosines, kind="stable"))
