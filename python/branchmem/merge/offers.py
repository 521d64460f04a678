"""What is offered to a branch: which of it is there already, is kept out, or would be new.

A memory that restates another on its own way stands for that one; what it decided goes with it, so
that a conflict which was decided once is not asked about again elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from branchmem.merge.target import Target
from branchmem.merge.world import Said, World


@dataclass(slots=True, eq=False)
class Offer:
    """One memory that may be taken over, and what it brings along."""

    id: str
    #: The memory that an adoption of it would name: itself, or the one that it restates.
    original: str
    #: What an adoption of it would name as replaced: the original, all that this and its restatements name, and what
    #: it would strike without that.
    supersedes: set[str]
    #: Of that, what is decided rather than inherited.
    decided: frozenset[str]
    #: What is visible at the target and would be replaced.
    strikes: frozenset[str] = frozenset()
    #: What the target took over of it before, visible or not.
    taken: tuple[str, ...] = ()

    @classmethod
    def of(cls, world: World, id: str) -> Offer:
        """The offer of a memory."""
        original, decided, supersedes, passed = id, set(world.decided(id)), set(world.supersedes(id)), set[str]()
        while (restated := world.restates(original)) is not None and restated not in passed:
            passed.add(original)
            original = restated
            decided |= world.decided(original)
            supersedes |= world.supersedes(original)
        return cls(id, original, {*supersedes - passed, original}, frozenset(decided))


@dataclass(slots=True, eq=False)
class Sifted:
    """What came of offers."""

    #: What is to be taken over, unless it loses a conflict.
    new: list[Offer] = field(default_factory=list)
    #: Each other candidate → why not.
    skipped: dict[str, str] = field(default_factory=dict)
    #: What is visible at the target and will be replaced.
    struck: set[str] = field(default_factory=set)
    #: What is visible at the target and should replace more than it does, because an offer that says the same did.
    carried: dict[str, set[str]] = field(default_factory=dict)
    #: For what is visible at the target, and for each new offer: the candidates that say the same.
    same_as: dict[str, set[str]] = field(default_factory=dict)


def sift(world: World, target: Target, candidates: Iterable[str], together: Set[str]) -> Sifted:
    """Tell what is new at the target from what is there, was there, or is kept out.

    `together` is what stands side by side at the source: nothing of it takes the place of anything else of it.
    """
    sifted = Sifted()
    offered = [Offer.of(world, id) for id in sorted(set(candidates))]
    for offer in offered:
        offer.taken = _taken(world, target, offer)
    beside: dict[str, list[str]] = {}
    for offer in offered:
        if offer.id in together:
            for id in world.lineage(offer.id):
                beside.setdefault(id, []).append(offer.id)
    offers = []
    for offer in offered:
        if (why := _kept_out(world, target, offer, together, beside)) is not None:
            sifted.skipped[offer.id] = why
        else:
            offers.append(offer)
    offers = _without_replaced(world, sifted, offers, together)
    sifted.struck.update(*(offer.strikes for offer in offers))
    first: dict[Said, Offer] = {}
    for offer in offers:
        if not _is_there(world, target, sifted, offer):
            _add(world, sifted, first.setdefault(world.said(offer.id), offer), offer)
    return sifted


def _kept_out(
    world: World, target: Target, offer: Offer, together: Set[str], beside: Mapping[str, list[str]]
) -> str | None:
    """Why an offer is not even looked at, if so; else what it would strike is noted in it."""
    if offer.id in target.live:
        return "it is visible there"
    if (why := target.keeps_out(offer.id)) is not None:
        return why
    if offer.taken and target.live.isdisjoint(offer.taken):
        return f"it was taken over there before, as {offer.taken[0]}, which is hidden there"
    if (same := target.silenced(offer.id)) is not None:
        return f"{same}, which was taken over there before and is hidden there, says the same"
    strikes = {ours for id in world.replaced(offer.id) for ours in target.copies.get(id, ())}
    replacing = {
        ours for id in world.copied(offer.id) for ours in target.reaching.get(id, ()) if id not in world.lineage(ours)
    }
    if offer.id in together:
        strikes -= together
        named = world.reach(offer.id)
        strikes = {ours for ours in strikes if ours in named or not _stands_for(world, ours, beside)}
        replacing -= together
    in_its_place = (replacing - strikes) | target.in_place_of(offer.id)
    if in_its_place and not offer.taken:
        return f"memory {min(in_its_place & target.live or in_its_place)} replaces it there"
    offer.strikes = frozenset(ours for ours in strikes - replacing if world.said(ours) != world.said(offer.id))
    offer.supersedes |= offer.strikes - world.reach(offer.id)
    return None


def _taken(world: World, target: Target, offer: Offer) -> tuple[str, ...]:
    """What the target took over of an offer before, visible or not, and of what the offer is a copy of.

    What came there another way as a copy of the same counts where all of that is hidden there.
    """
    taken = dict.fromkeys(target.adoptions.get(offer.id, ()))
    for id in target.adoptions.get(offer.original, ()):
        if id in target.live or _covers(world, [id], offer):
            taken[id] = None
    copied = world.copied(offer.id)
    if target.live.isdisjoint(copied):
        akin = [id for above in copied[1:] for id in target.adoptions.get(above, ())]
        if target.live.isdisjoint(akin):
            taken |= dict.fromkeys(id for id in akin if _covers(world, [id], offer))
    return tuple(taken)


def _stands_for(world: World, ours: str, beside: Mapping[str, list[str]]) -> bool:
    """Whether the source shows the same in another copy than the target; `beside` has its offers by what they copy."""
    return any(world.said(id) == world.said(ours) for above in world.lineage(ours) for id in beside.get(above, ()))


def _covers(world: World, memories: Iterable[str], offer: Offer) -> bool:
    """Whether these memories replace, or are, all that an offer decided against."""
    known = {other for id in memories for other in (id, *world.reach(id))}
    return all(not known.isdisjoint(world.lineage(other)) for other in offer.decided)


def _without_replaced(world: World, sifted: Sifted, offers: list[Offer], together: Set[str]) -> list[Offer]:
    """The offers that no other one replaces."""
    copies: dict[str, list[str]] = {}
    for offer in offers:
        for id in world.copied(offer.id):
            copies.setdefault(id, []).append(offer.id)
    pairs = {
        (replaced, offer.id)
        for offer in offers
        for id in world.replaced(offer.id)
        for replaced in copies.get(id, ())
        if replaced != offer.id and not together >= {replaced, offer.id}
    }
    for replaced, by in sorted(pairs):
        if (by, replaced) not in pairs:
            sifted.skipped.setdefault(replaced, f"memory {by}, which is offered as well, replaces it")
    return [offer for offer in offers if offer.id not in sifted.skipped]


def _is_there(world: World, target: Target, sifted: Sifted, offer: Offer) -> bool:
    """Whether what is visible at the target says the same, and goes on to; what it should replace is noted."""
    same = [id for id in offer.taken if id in target.live and id not in sifted.struck]
    same = same or [id for id in target.saying(world.said(offer.id)) if id not in sifted.struck]
    if not same:
        return False
    if offer.strikes or not _covers(world, same, offer):
        sifted.carried.setdefault(same[0], set()).update(offer.supersedes - {offer.original})
    sifted.skipped[offer.id] = f"it is there as {same[0]}"
    sifted.same_as.setdefault(same[0], set()).add(offer.id)
    return True


def _add(world: World, sifted: Sifted, first: Offer, offer: Offer) -> None:
    """Note an offer as new, or as the same as the first that says so."""
    if first is offer:
        sifted.new.append(offer)
        return
    if offer.strikes or not _covers(world, [first.id], offer):
        first.supersedes |= offer.supersedes
    sifted.skipped[offer.id] = f"memory {first.id}, which is offered as well, says the same"
    sifted.same_as.setdefault(first.id, set()).add(offer.id)
