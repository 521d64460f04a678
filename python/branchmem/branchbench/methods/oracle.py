"""The upper bound: the context that holds what the answer needs, and nothing else."""

from __future__ import annotations

from branchmem.branchbench.methods.method import Method
from branchmem.errors.branchbench import UnknownProbe


class Oracle(Method):
    """The needed facts of the probe, word for word.

    No method but a measure of the answering model: it alone reads what the probe needs, and finds the probe by its
    anchor and its question.  What it gets wrong, no memory could have got right.
    """

    name = "oracle"
    line = "just the facts that the answer needs"

    def feed(self) -> None:
        """Nothing to remember."""

    def context(self, anchor: str, question: str) -> list[str]:
        """Raises: UnknownProbe where the scenario asks no such question at this anchor."""
        for probe in self.scenario.probes:
            if (probe.anchor, probe.question) == (anchor, question):
                return self.tools.first_that_fit(self.scenario.facts[id].text for id in probe.needs)
        raise UnknownProbe(self.scenario.id, anchor, question)
