"""What a merge or an adoption would append: decided over a world, in ids that say what is done.

Nothing here writes, and nothing depends on clocks, chance or the order of arrival: two replicas that
hold the same events plan the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from branchmem import Memory, Message, Reason
from branchmem.canonical import MAX_REFERENCES, pack
from branchmem.events import Event
from branchmem.merge.conflicts import Conflict, Decision, Strategy, decide
from branchmem.merge.offers import Sifted, sift
from branchmem.merge.target import Target
from branchmem.merge.world import World

#: What the message of a plan is called: its role, and the start of its id.
Role = Literal["merge", "adoption"]

_ID_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class Resolved:
    """Conflicts that were decided, or a decision taken over: `memory` adopts the winner and supersedes the others."""

    memory: str
    winner: str
    losers: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {"memory": self.memory, "winner": self.winner, "losers": list(self.losers)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done at a target; the same wherever the events are the same."""

    #: Where the target stands before.
    before: str
    #: Where it stands afterwards: at the new message, at the source (`fast_forward`), or as before.
    after: str
    fast_forward: bool = False
    #: The message, then the memories; none where there is nothing to write, or where something is undecided.
    events: tuple[Event, ...] = ()
    #: Each memory that is taken over → the memory at the message that adopts it.
    adopted: Mapping[str, str] = field(default_factory=dict)
    #: Each memory that is not → why.
    skipped: Mapping[str, str] = field(default_factory=dict)
    #: All conflicts that were met, decided or not, each once.
    conflicts: tuple[Conflict, ...] = ()
    resolved: tuple[Resolved, ...] = ()
    #: Conflicts that the strategy leaves open: where there is one, nothing may be written.
    undecided: tuple[Conflict, ...] = ()
    #: Memories that the target shows before, though a retraction hides them at the source; `hides` names some of them.
    taken_back: tuple[str, ...] = ()
    #: What would be hidden at the target and what shown, by id; those of a fast-forward are not looked for.
    hides: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()

    @property
    def message(self) -> str | None:
        """The id of the new message, where there is one."""
        return self.events[0].id if self.events else None


def plan_merge(world: World, source_head: str, into_head: str, strategy: Strategy = "fail") -> Plan:
    """Bring what is visible at one message to another: nothing, a fast-forward, or adoptions.

    Raises: BadAnchor where one of them is not attached.
    Cost: both views, the path of the target, the content of what is taken over and of what could say the same.
    """
    source, target = world.at(source_head), world.at(into_head)
    if world.is_ancestor(source_head, into_head):
        return Plan(into_head, into_head)
    if world.is_ancestor(into_head, source_head):
        return Plan(into_head, source_head, fast_forward=True)
    theirs, ours = frozenset(source.ids()), frozenset(target.ids())
    candidates, ancestor = theirs - ours, world.common_ancestor(source_head, into_head)
    planned = plan(world, candidates, into_head, strategy, role="merge", together=theirs, ancestor=ancestor)
    taken_back = tuple(id for id in sorted(ours - theirs) if Reason.RETRACTED in source.explain(id).reasons)
    return replace(planned, taken_back=taken_back)


def plan(
    world: World,
    candidates: Iterable[str],
    into_head: str,
    strategy: Strategy = "both",
    *,
    role: Role = "adoption",
    together: Set[str] = frozenset(),
    ancestor: str | None = None,
) -> Plan:
    """Take memories over at one message below `into_head`.

    They must be memories of the world.  `together` is what a source shows side by side, and `ancestor` where its
    branch parts from the target's: there the base of a conflict about a key is looked for.
    Raises: BadAnchor; InvalidEvent where one memory would have to name more than 4,096 others.
    Cost: the view and the path at `into_head`, the content of the candidates and of what could say the same.
    """
    target = Target(world, into_head)
    sifted = sift(world, target, candidates, together)
    conflicts = _conflicts(world, target, sifted, together, ancestor)
    decisions, undecided = decide(conflicts, strategy)
    skipped = sifted.skipped | {
        loser: f"it lost to {decision.winners[0]}"
        for decision in decisions
        for loser in decision.losers
        if loser not in target.live
    }
    if undecided:
        return Plan(into_head, into_head, skipped=skipped, conflicts=tuple(conflicts), undecided=tuple(undecided))
    copies = _copies(world, sifted, decisions)
    if not copies:
        return Plan(into_head, into_head, skipped=skipped, conflicts=tuple(conflicts))
    message, memories = _events(world, role, into_head, copies)
    adopted_by = {copy.of: memory.id for copy, memory in zip(copies, memories, strict=True)}
    replaced = {id for memory in memories for named in memory.supersedes for id in (named, *world.reach(named))}
    return Plan(
        into_head,
        message.id,
        events=(message, *memories),
        adopted={offer.id: adopted_by[offer.id] for offer in sifted.new if offer.id in adopted_by},
        skipped=skipped,
        conflicts=tuple(conflicts),
        resolved=_resolved(sifted, decisions, adopted_by),
        hides=tuple(sorted(target.live & replaced)),
        shows=tuple(sorted(memory.id for memory in memories)),
    )


class _Copy(NamedTuple):
    """A memory to be written: a copy of `original`, in the place of `of`, that supersedes the others."""

    of: str
    original: str
    supersedes: frozenset[str]


def _conflicts(
    world: World, target: Target, sifted: Sifted, together: Set[str], ancestor: str | None
) -> list[Conflict]:
    """Each pair of what stays visible at the target and what is new there that cannot both stand, sorted.

    What the source shows as well stands beside the new one there already.
    """
    found = []
    for offer in sifted.new:
        key, text = world.fields(offer.id).get("key"), world.said(offer.id).text
        reach = world.reach(offer.id).union(*map(world.reach, sifted.same_as.get(offer.id, ())))
        rivals = {*target.by_key.get(key, ())} if key is not None else set[str]()
        rivals.update(*(target.reaching.get(id, ()) for id in reach))
        for ours in sorted(rivals - sifted.struck - together):
            if world.said(ours).text == text or _has_met(world, sifted, ours):
                continue
            alike = (offer.id, *sorted(sifted.same_as.get(offer.id, ())))
            shared = next(filter(None, (world.nearest(id, world.reach(ours)) for id in alike)), None)
            about = key if key is not None and world.fields(ours).get("key") == key else shared or ours
            base = shared if shared is not None or key is None else _known_of(world, ancestor, key)
            is_known = base is not None and world.fields(base) and target.knows(base)
            found.append(
                Conflict(
                    base=world.memory(base) if base is not None and is_known else None,
                    ours=world.memory(ours),
                    theirs=world.memory(offer.id),
                    about=about,
                )
            )
    return found


def _has_met(world: World, sifted: Sifted, ours: str) -> bool:
    """Whether the source shows the same memory, or a copy of the same, and let it stand beside all else."""
    lineage = set(world.lineage(ours))
    return any(not lineage.isdisjoint(world.lineage(theirs)) for theirs in sifted.same_as.get(ours, ()))


def _known_of(world: World, ancestor: str | None, key: str) -> str | None:
    """What is visible of a key where two branches part; of several, the first by id."""
    if ancestor is None:
        return None
    return min((id for id in world.at(ancestor).ids() if world.fields(id).get("key") == key), default=None)


def _copies(world: World, sifted: Sifted, decisions: Sequence[Decision]) -> list[_Copy]:
    """The memories to be written, by what each is a copy of.

    A winner supersedes the losers, all that they name as replaced, and what else was offered and says the same as they.
    """
    originals = {offer.id: offer.original for offer in sifted.new}
    named = {offer.id: set(offer.supersedes) for offer in sifted.new}
    for id, carried in sifted.carried.items():
        originals[id], named[id] = id, {id, *world.supersedes(id), *carried}
    for decision in decisions:
        lost = set(decision.losers)
        for id in decision.losers:
            lost |= named.pop(id, world.supersedes(id)) | sifted.same_as.get(id, set())
        for id in decision.winners:
            named.setdefault(id, {id, *world.supersedes(id)}).update(lost)
            originals.setdefault(id, id)
    return sorted(
        (_Copy(id, originals[id], frozenset(supersedes)) for id, supersedes in named.items()),
        key=lambda copy: copy.original,
    )


def _events(world: World, role: Role, into_head: str, copies: Sequence[_Copy]) -> tuple[Message, list[Memory]]:
    """The message and, in the order of the copies, their memories; their ids say what is done, and where."""
    copies = [copy._replace(supersedes=_within_limit(world, copy)) for copy in copies]
    said = [role, into_head, *((copy.original, *sorted(copy.supersedes)) for copy in copies)]
    message = Message(f"{role}-{_named(said)}", into_head, role=role)
    memories = []
    for copy in copies:
        original = world.memory(copy.original)
        memories.append(
            Memory(
                f"adopted-{_named([message.id, copy.original])}",
                original.text,
                sources=[message.id],
                adopts=copy.original,
                supersedes=copy.supersedes,
                kind=original.kind,
                key=original.key,
                importance=original.importance,
                created=original.created,
                meta=original.meta,
            )
        )
    return message, memories


def _named(parts: Iterable[object]) -> str:
    return hashlib.sha256(pack(list(parts))).hexdigest()[:_ID_DIGITS]


def _within_limit(world: World, copy: _Copy) -> frozenset[str]:
    """What a copy must name to replace all that it should: if that is too much, less what the rest replaces anyway."""
    if len(copy.supersedes) < MAX_REFERENCES:
        return copy.supersedes
    beyond = {id for named in copy.supersedes for id in world.reach(named)}
    return frozenset({copy.original, *(copy.supersedes - beyond)})


def _resolved(sifted: Sifted, decisions: Sequence[Decision], adopted_by: Mapping[str, str]) -> tuple[Resolved, ...]:
    """What was decided now, and what was decided elsewhere and is taken over."""
    now = [Resolved(adopted_by[id], id, decision.losers) for decision in decisions for id in decision.winners]
    before = [
        Resolved(adopted_by[id], id, tuple(sorted(carried - {id})))
        for id, carried in sorted(sifted.carried.items())
        if id in adopted_by and all(id not in decision.winners for decision in decisions)
    ]
    return (*now, *before)
