"""Whether scenarios are fit to be asked: every refusal of an unfair or broken probe, found without a model.

The one rule: what can be seen at an anchor is what `branchmem.reference` shows there in strict; the validator has no
notion of visibility of its own.  It refuses

1. a question that contains an accepted or a forbidden keyword of its probe;
2. a forbidden keyword that the current branch states as well: in a fact that is visible at the anchor, or in a message
   on the path (that of a retraction too) which is no effective source of a forbidden fact;
3. a keyword that is contained in another of the same probe, or equals it;
4. an answer that is not on the path: no needed fact, one that is hidden, one that bears no accepted keyword, or one
   whose effective sources on the path bear none (what adopts is exempt: its original stands elsewhere);
5. a forbidden fact that is visible or bears no forbidden keyword; a forbidden keyword that none bears, or that they
   only deny, so that a leak of it would pass for a denial; one without the other;
6. duplicates: ids of scenarios, events and probes; a question asked twice at one anchor; scenarios of equal texts;
7. a broken structure: see `_Structure`; twins (`…-zh`, `…-en`) that differ in more than their texts.

What it leaves out: whether a text reads well, and whether a question has the answer that its author meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from branchmem.branchbench.keywords import forms, is_negated, normal, stands_in
from branchmem.branchbench.scenario import OPERATIONS, Probe, Scenario
from branchmem.errors.branchbench import UnfitScenario
from branchmem.events import Event, Memory, Message, Retraction
from branchmem.reference import Reference

ROLES: Final = ("user", "assistant")
LANGUAGES: Final = ("zh", "en")
#: By type of event, the fields that twins share.
TWINS: Final[dict[str, tuple[str, ...]]] = {
    "message": ("type", "parent", "role"),
    "memory": ("type", "kind", "sources", "derived_from", "supersedes", "adopts"),
    "retraction": ("type", "at", "scope", "memories", "sources", "standing"),
    "restoration": ("type",),
    "erasure": ("type",),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that makes a scenario, or one of its probes, unfit; `what` names the value at fault."""

    scenario: str
    probe: str | None
    what: str

    def __str__(self) -> str:
        where = self.scenario if self.probe is None else f"{self.scenario} {self.probe}"
        return f"{where}: {self.what}"


def check(scenarios: Iterable[Scenario]) -> None:
    """Raises: UnfitScenario, with everything that is refused in any of them."""
    if found := findings(scenarios):
        raise UnfitScenario(map(str, found))


def findings(scenarios: Iterable[Scenario]) -> list[Finding]:
    """What is refused, scenario by scenario, and then between them; nothing where all are fit.

    The probes of a scenario whose tree cannot be read are looked at once it can.  Cost: O(probes x visible texts).
    """
    given = list(scenarios)
    found: list[Finding] = []
    for scenario in given:
        structure = _Structure(scenario)
        found += structure.findings()
        if structure.is_readable:
            found += _Fairness(scenario).findings()
    return found + list(_duplicates(given)) + list(_unlike_twins(given))


class _Structure:
    """The shape of one scenario.

    Each message stands after its parent, has a text and a role, and none of the user follows another; in Classic they
    are one tree, since a second root is a sibling gone astray (in Long, conversations stand side by side on purpose).
    Each fact stands right after the last message that states it, each retraction at its message and after what it
    names.  Each probe has an operation that there is, at a message, about facts that there are.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._messages: dict[str, Message] = {}
        self._facts: dict[str, Memory] = {}
        self._last: str | None = None
        self.is_readable = True

    def findings(self) -> list[Finding]:
        """Also decides `is_readable`."""
        scenario = self._scenario
        found = [Finding(scenario.id, None, what) for what in self._of_the_whole()]
        known: set[str] = set()
        for event in scenario.events:
            if event.id in known:
                self.is_readable = False
                found.append(Finding(scenario.id, None, f"a second event has the id {event.id}"))
                continue
            known.add(event.id)
            found += (Finding(scenario.id, None, f"{event.id} {what}") for what in self._of_event(event))
        for id, times in Counter(probe.id for probe in scenario.probes).items():
            if times > 1:
                found.append(Finding(scenario.id, id, f"{times} probes have this id"))
        for probe in scenario.probes:
            found += (Finding(scenario.id, probe.id, what) for what in self._of_probe(probe))
        return found

    def _of_the_whole(self) -> Iterator[str]:
        scenario = self._scenario
        if scenario.language not in LANGUAGES:
            yield f"language {scenario.language!r} is none of {', '.join(LANGUAGES)}"
        elif not scenario.id.endswith(f"-{scenario.language}"):
            yield f"its id does not end in -{scenario.language}, its language"
        if scenario.part not in ("classic", "long"):
            yield f"part {scenario.part!r} is neither classic nor long"
        if not scenario.probes:
            yield "it has no probe"

    def _of_event(self, event: Event) -> Iterator[str]:
        if isinstance(event, Message):
            yield from self._of_message(event)
            self._messages[event.id] = event
            self._last = event.id
        elif isinstance(event, Memory):
            yield from self._of_fact(event)
            self._facts[event.id] = event
        elif isinstance(event, Retraction):
            yield from self._of_retraction(event)
        else:
            yield f"is of type {event.type}: only messages, facts and retractions make a scenario"

    def _of_message(self, message: Message) -> Iterator[str]:
        if message.role not in ROLES:
            yield f"has the role {message.role!r}, which is none of {', '.join(ROLES)}"
        if not (message.text or "").strip():
            yield "has no text"
        if message.parent is None:
            if self._messages and self._scenario.part == "classic":
                yield f"is a second root beside {next(iter(self._messages))}: let it branch off below"
        elif message.parent not in self._messages:
            self.is_readable = False
            yield f"has the parent {message.parent!r}, which is no message before it"
        elif message.role == self._messages[str(message.parent)].role == "user":
            yield f"is the second message of the user in a row, after {message.parent}"

    def _of_fact(self, fact: Memory) -> Iterator[str]:
        if fact.kind != "fact":
            yield f"is a memory of kind {fact.kind!r}, not a fact"
        if not fact.text.strip():
            yield "has no text"
        unknown = [source for source in fact.sources if source not in self._messages]
        for source in unknown:
            yield f"has the source {source}, which is no message before it"
        if not fact.sources:
            yield "has no source"
        elif not unknown and self._last not in fact.sources:
            yield f"stands after message {self._last}, which is none of its sources: {', '.join(fact.sources)}"
        adopted = () if fact.adopts is None else (fact.adopts,)
        for other in (*fact.derived_from, *fact.supersedes, *adopted):
            if other not in self._facts:
                yield f"refers to {other}, which is no fact before it"

    def _of_retraction(self, retraction: Retraction) -> Iterator[str]:
        if retraction.at not in self._messages:
            yield f"stands at {retraction.at}, which is no message before it"
        elif retraction.at != self._last:
            yield f"stands at {retraction.at} but after message {self._last}"
        for memory in retraction.memories:
            if memory not in self._facts:
                yield f"takes back {memory}, which is no fact before it"
        for source in retraction.sources:
            if source not in self._messages:
                yield f"takes back what came from {source}, which is no message before it"
        keys = {fact.key for fact in self._facts.values()}
        for key in retraction.keys:
            if key not in keys:
                yield f"takes back the key {key!r}, which no fact before it bears"

    def _of_probe(self, probe: Probe) -> Iterator[str]:
        if probe.operation not in OPERATIONS:
            yield f"operation {probe.operation!r} is none of {', '.join(OPERATIONS)}"
        if probe.anchor not in self._messages:
            yield f"anchor {probe.anchor!r} is no message"
        if not probe.question.strip():
            yield "it has no question"
        if not probe.accepted:
            yield "it accepts nothing"
        for keyword in (*probe.accepted, *probe.forbidden):
            if not all(map(normal, keyword.split("|"))):
                yield f"keyword {keyword!r} has an empty form"
        for fact in (*probe.needs, *probe.forbids):
            if fact not in self._facts:
                yield f"it names {fact!r}, which is no fact"
        if probe.contested is not None and not probe.contested.strip():
            yield "contested is empty: say why, or null"


class _Fairness:
    """The probes of one scenario that can be read."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._reference = Reference()
        self._reference.add(scenario.events)

    def findings(self) -> list[Finding]:
        scenario = self._scenario
        found = []
        asked: dict[tuple[str, str], str] = {}
        for probe in scenario.probes:
            first = asked.setdefault((probe.anchor, normal(probe.question)), probe.id)
            if first != probe.id:
                found.append(Finding(scenario.id, probe.id, f"it asks at {probe.anchor} what {first} asks there"))
            found += (Finding(scenario.id, probe.id, what) for what in self._of_probe(probe))
        return found

    def _of_probe(self, probe: Probe) -> Iterator[str]:
        yield from _in_the_question(probe)
        yield from _within_each_other(probe)
        if probe.anchor in self._scenario.messages:
            path = {message.id: message.text or "" for message in self._scenario.path(probe.anchor)}
            yield from self._stated_here(probe, path)
            yield from self._unanswerable(probe, path)
            yield from self._unfairly_forbidden(probe)

    def _is_visible(self, fact: str, anchor: str) -> bool:
        """One fact at a time: the reference is slow, and few facts matter to a probe."""
        return bool(self._reference.visible([fact], [anchor])[0])

    def _sources(self, fact: str) -> frozenset[str]:
        """The effective sources of a fact."""
        return self._effective.get(fact, frozenset())

    @cached_property
    def _effective(self) -> dict[str, frozenset[str]]:
        effective: dict[str, frozenset[str]] = {}
        for fact in self._scenario.facts.values():  # in order of arrival: what a fact derives from stands before it
            above = (effective.get(one, frozenset()) for one in fact.derived_from)
            effective[fact.id] = frozenset(fact.sources).union(*above)
        return effective

    def _stated_here(self, probe: Probe, path: dict[str, str]) -> Iterator[str]:
        abandoned = frozenset[str]().union(*map(self._sources, probe.forbids))
        for keyword in probe.forbidden:
            for fact in self._scenario.facts.values():
                if stands_in(keyword, fact.text) and self._is_visible(fact.id, probe.anchor):
                    where = f"{fact.id}, which is visible at {probe.anchor}"
                    yield f"forbidden {keyword!r} stands in {where}: {fact.text!r:.80}"
            for message, text in path.items():
                if message not in abandoned and stands_in(keyword, text):
                    yield f"forbidden {keyword!r} stands in {message} on the path to {probe.anchor}: {text!r:.80}"

    def _unanswerable(self, probe: Probe, path: dict[str, str]) -> Iterator[str]:
        if not probe.needs:
            yield "it needs no fact, so its answer is nowhere on the path"
        for id in probe.needs:
            fact = self._scenario.facts.get(id)
            if fact is None:
                continue
            if not self._is_visible(id, probe.anchor):
                yield f"needed fact {id} is not visible at {probe.anchor}: {self._why_hidden(id, probe.anchor)}"
            if not _any_stands_in(probe.accepted, fact.text):
                yield f"needed fact {id} bears no accepted keyword of {_list(probe.accepted)}: {fact.text!r:.80}"
            stating = sorted(self._sources(id) & path.keys())
            if fact.adopts is None and not any(_any_stands_in(probe.accepted, path[one]) for one in stating):
                yield (
                    f"no source of needed fact {id} on the path ({_list(stating)}) bears an accepted keyword of "
                    f"{_list(probe.accepted)}"
                )

    def _unfairly_forbidden(self, probe: Probe) -> Iterator[str]:
        if bool(probe.forbidden) != bool(probe.forbids):
            yield (
                f"forbidden keywords {_list(probe.forbidden)} and forbidden facts {_list(probe.forbids)} go together: "
                "name both or neither"
            )
            return
        facts = {id: self._scenario.facts[id].text for id in probe.forbids if id in self._scenario.facts}
        for id, text in facts.items():
            if self._is_visible(id, probe.anchor):
                yield f"forbidden fact {id} is visible at {probe.anchor}: {text!r:.80}"
            if not _any_stands_in(probe.forbidden, text):
                yield f"forbidden fact {id} bears no forbidden keyword of {_list(probe.forbidden)}: {text!r:.80}"
        for keyword in probe.forbidden:
            bearing = [id for id, text in facts.items() if stands_in(keyword, text)]
            if not bearing:
                yield f"forbidden {keyword!r} stands in no forbidden fact of {_list(probe.forbids)}"
            elif all(is_negated(keyword, facts[id]) for id in bearing):
                yield f"forbidden {keyword!r} is only denied in {_list(bearing)}: {facts[bearing[0]]!r:.80}"
        for id in sorted(set(probe.needs) & set(probe.forbids)):
            yield f"fact {id} is both needed and forbidden"

    def _why_hidden(self, fact: str, anchor: str) -> str:
        return str(self._reference.at(anchor, count=False).explain(fact))


def _in_the_question(probe: Probe) -> Iterator[str]:
    for name, keywords in (("accepted", probe.accepted), ("forbidden", probe.forbidden)):
        for keyword in keywords:
            if stands_in(keyword, probe.question):
                yield f"{name} {keyword!r} stands in the question: {probe.question!r:.80}"


def _within_each_other(probe: Probe) -> Iterator[str]:
    keywords = (*probe.accepted, *probe.forbidden)
    for place, inner in enumerate(keywords):
        for other, outer in enumerate(keywords):
            held = [form for form in forms(outer) if stands_in(inner, form)]
            if place != other and held and not (place > other and stands_in(outer, inner)):
                yield f"keyword {inner!r} is contained in {outer!r} ({held[0]})"


def _duplicates(scenarios: list[Scenario]) -> Iterator[Finding]:
    for id, times in Counter(scenario.id for scenario in scenarios).items():
        if times > 1:
            yield Finding(id, None, f"{times} scenarios have this id")
    told: dict[tuple[str, ...], str] = {}
    for scenario in scenarios:
        texts = tuple(normal(message.text or "") for message in scenario.messages.values())
        first = told.setdefault(texts, scenario.id)
        if first != scenario.id:
            yield Finding(scenario.id, None, f"its messages are word for word those of {first}")


def _unlike_twins(scenarios: list[Scenario]) -> Iterator[Finding]:
    first: dict[str, Scenario] = {}
    for scenario in scenarios:
        twin = first.setdefault(scenario.id.removesuffix(f"-{scenario.language}"), scenario)
        if twin.language == scenario.language:
            continue
        mine, other = _shape(scenario), _shape(twin)
        for id in [*mine, *(id for id in other if id not in mine)]:
            if mine.get(id) != other.get(id):
                yield Finding(
                    scenario.id, None, f"{id} differs from its twin {twin.id}: {_difference(mine, other, id)}"
                )
        if mine.keys() == other.keys() and list(mine) != list(other):
            yield Finding(scenario.id, None, f"its events stand in another order than those of its twin {twin.id}")


def _shape(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """By event and by probe, what twins have in common: all but what is written in a language."""
    shape = {event.id: {name: getattr(event, name) for name in TWINS[event.type]} for event in scenario.events}
    for probe in scenario.probes:
        alike: dict[str, Any] = {name: getattr(probe, name) for name in ("anchor", "operation", "needs", "forbids")}
        shape[f"probe {probe.id}"] = alike | {"contested": probe.contested is not None}
    return shape


def _difference(mine: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]], id: str) -> str:
    if id not in other:
        return "that one has none"
    if id not in mine:
        return "this one has none"
    names = sorted(mine[id].keys() | other[id].keys())
    unlike = [name for name in names if mine[id].get(name) != other[id].get(name)]
    return ", ".join(f"{name} {mine[id].get(name)!r} and {other[id].get(name)!r}" for name in unlike)


def _any_stands_in(keywords: Iterable[str], text: str) -> bool:
    return any(stands_in(keyword, text) for keyword in keywords)


def _list(values: Iterable[str]) -> str:
    return ", ".join(values) or "none"
