"""What a retraction asks of a store that knows no branches and can only delete.

Its one rule: such a store deletes what no place that states it is to keep, and leaves alone what another branch or
another conversation is to keep, since its delete would take the fact from there too.  So a retraction of scope
`everywhere` deletes, one of scope `tree` deletes what its own conversation has stated, one of scope `branch` deletes
nothing.  How a store finds the rows to delete is its own affair.
"""

from __future__ import annotations

from dataclasses import dataclass

from branchmem.branchbench.scenario import Scenario
from branchmem.events import Memory, Retraction


@dataclass(frozen=True, slots=True)
class Named:
    """What a retraction names: annotated facts, and the messages that state them.

    `facts` are ids of annotated facts, `sources` ids of messages.  Where a model has read the facts, their ids are its
    own, and only the messages tell which are meant.
    """

    facts: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.facts)

    def means(self, fact: Memory, scenario: Scenario) -> bool:
        """Whether `fact` is meant: an annotated one by its id, one that a model has read by its messages."""
        if fact.id in scenario.facts:
            return fact.id in self.facts
        return not self.sources.isdisjoint(fact.sources)


def named(scenario: Scenario, retraction: Retraction) -> Named:
    """What `retraction` names, by id, by message or by key, with all that derives from it or adopts it.

    Facts that come after the retraction are not meant.  O(events).
    """
    facts: set[str] = set()
    sources: set[str] = set()
    for event in scenario.events:
        if event.id == retraction.id:
            break
        if isinstance(event, Memory) and (
            event.id in retraction.memories
            or event.key in retraction.keys
            or not set(retraction.sources).isdisjoint(event.sources)
            or not facts.isdisjoint((*event.derived_from, event.adopts))
        ):
            facts.add(event.id)
            sources.update(event.sources)
    return Named(frozenset(facts), frozenset(sources))


def taken_back(scenario: Scenario, retraction: Retraction) -> Named:
    """What a store with a plain delete deletes on `retraction`, which may be nothing.  O(events + depth)."""
    if retraction.scope == "branch":
        return Named()
    meant = named(scenario, retraction)
    if retraction.scope == "everywhere":
        return meant
    conversation = scenario.path(retraction.at)[0]
    stated = {id: scenario.facts[id].sources for id in meant.facts}
    here = {
        id: sources
        for id, sources in stated.items()
        if all(scenario.path(source)[0] is conversation for source in sources)
    }
    return Named(frozenset(here), frozenset().union(*here.values()))
