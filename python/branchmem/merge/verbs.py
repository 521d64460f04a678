"""The three verbs of a store: compare two branches, take memories over, bring one branch to another.

Each decides inside of one transaction, upon the newest state of all processes, and writes message,
memories and the move of the ref at once or nothing.  A dry run reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from branchmem import Appended, InvalidEvent, Memory, Message, Store, UnknownEvent, View
from branchmem.canonical import ids as ids_
from branchmem.errors import MergeConflict
from branchmem.events import Event
from branchmem.merge.conflicts import Strategy
from branchmem.merge.plan import Plan, plan, plan_merge
from branchmem.merge.receipts import Difference, Merged
from branchmem.merge.world import World
from branchmem.refs import TABLES, anchor_of, head, write_move

if TYPE_CHECKING:
    from branchmem.log import Writer

_INSTEAD: Final = {"message": "name the memories that came from it"}


class _Planned(NamedTuple):
    """A plan, what it was made from, and what has to be appended before its events."""

    plan: Plan
    source: str | None
    first: Sequence[Event] = ()
    #: Where the views stand as well.
    beside: tuple[str, ...] = ()


def diff(store: Store, a: str, b: str, *, beside: Sequence[str] = ()) -> Difference:
    """What two refs or messages have each for themselves, as seen from there and from the refs `beside`.

    Raises: UnknownRef for what is neither; AmbiguousName for what is both, and two messages; BadAnchor for a
    message that is not attached; AmbiguousAnchor where one of `beside` stands in the tree of one of them.
    Cost: both paths and both views.
    """
    first, second = anchor_of(store, a), anchor_of(store, b)
    world = World.of(store, beside=store.refs.heads(beside))
    here, there = world.at(first).ids(), world.at(second).ids()
    ancestor = world.common_ancestor(first, second)
    paths = world.path(first), world.path(second)
    shared = 0 if ancestor is None else paths[0].index(ancestor) + 1
    one, other = frozenset(here), frozenset(there)
    return Difference(
        a=first,
        b=second,
        ancestor=ancestor,
        messages_a=tuple(paths[0][shared:]),
        messages_b=tuple(paths[1][shared:]),
        only_a=tuple(id for id in here if id not in other),
        only_b=tuple(id for id in there if id not in one),
        both=tuple(id for id in here if id in other),
    )


def adopt(
    store: Store, memories: Iterable[str], *, into: str, held: str | None = None, dry_run: bool = False
) -> Merged:
    """Take memories over on the branch of a ref: one message there, and one adopting memory each.

    The copy replaces there the original, what that replaced, and copies of these.  What the branch shows
    already, took over before, or has taken back or replaced itself is left out, and the receipt says why; so doing it
    again does nothing.  Rivals stand side by side: they are listed as conflicts, and none is refused.

    Raises: UnknownRef; UnknownEvent where a memory is not in the log, InvalidEvent where it is of another type;
    BadAnchor where the ref stands at a message that is not attached.
    Cost: one commit, two views and the path at the ref, the content of what is taken over and of what could
    say the same.
    """
    asked = ids_(memories, "memories")

    def planned(before: str) -> _Planned:
        first: Sequence[Event] = ()
        ids: Sequence[str] = asked
        if held is not None:
            first, ids = store.held.originals(held, asked)
        _require(store, ids, first)
        world = World.of(store, [event for event in first if isinstance(event, Memory)])
        return _Planned(plan(world, ids, before, role="adoption"), None, first)

    tables = TABLES if held is None else (*TABLES, "held")
    return _carry_out(store, into, planned, "adopt", tables=tables, dry_run=dry_run)


def merge(
    store: Store,
    ref: str,
    *,
    into: str,
    beside: Sequence[str] = (),
    strategy: Strategy = "fail",
    dry_run: bool = False,
) -> Merged:
    """Bring what the branch of a ref or a message sees to the branch of the ref `into`.

    Both are seen from the refs `beside` as well, so that what derives from a memory there is no less taken over.

    Where the target stands above the source, it is moved forward; where below, nothing is to be done.  Else what
    is visible at the source and not at the target is taken over, as by `adopt`.  Retractions are not.
    In conflict are two memories that would both be live at the target, say different things, and share a key or
    replace the same memory.  `fail` refuses, `both` lets them stand; `ours`, `theirs` and `newer` (by `created`) write
    a copy of the winner there that supersedes them.  To merge again does nothing, whatever the strategy.

    Raises: MergeConflict, and nothing is written; also for what `newer` cannot tell.  UnknownRef; AmbiguousName;
    BadAnchor where one of them stands at a message that is not attached; AmbiguousAnchor where one of `beside` stands
    in the tree of one of them.
    Cost: one commit, three views and the path of the target, the content of what is taken over and of what could
    say the same.
    """
    if strategy not in get_args(Strategy):
        raise ValueError(f"strategy must be one of {', '.join(get_args(Strategy))}, not {strategy!r:.80}")

    def planned(before: str) -> _Planned:
        source, heads = anchor_of(store, ref), tuple(store.refs.heads(beside))
        made = plan_merge(World.of(store, beside=heads), source, before, strategy)
        return _Planned(made, source, beside=heads)

    return _carry_out(store, into, planned, "merge", tables=TABLES, dry_run=dry_run)


def _carry_out(
    store: Store,
    into: str,
    planned: Callable[[str], _Planned],
    why: str,
    *,
    tables: Sequence[str],
    dry_run: bool,
) -> Merged:
    if dry_run:
        made = planned(store.refs[into])
        return _receipt(store, into, made)

    def work(writer: Writer) -> tuple[list[Event], tuple[_Planned, View]]:
        made = planned(head(writer, into))
        if made.plan.undecided:
            raise MergeConflict(into, made.plan.undecided)
        seen = store.at((made.plan.before, *made.beside), count=False)
        if made.plan.after != made.plan.before:
            write_move(writer, into, made.plan.after, why)
        return _needed(made), (made, seen)

    appended, (made, seen) = store.transact(work, tables=tables)
    return _receipt(store, into, made, appended, seen)


def _receipt(
    store: Store, into: str, made: _Planned, appended: Appended | None = None, seen: View | None = None
) -> Merged:
    """What was done, or would be; `seen` is the target's view from before it was done."""
    done = made.plan
    hidden, shown = done.hides, done.shows
    born_hidden: dict[str, tuple[str, ...]] = {}
    if seen is not None or done.fast_forward:
        before, after = (
            store.at((at, *made.beside), count=False) if view is None else view
            for at, view in ((done.before, seen), (done.after, None))
        )
        was, now = frozenset(before.ids()), frozenset(after.ids())
        hidden, shown = tuple(sorted(was - now)), tuple(sorted(now - was))
        verdicts = (after.explain(id) for id in done.shows if id not in now)
        born_hidden = {verdict.id: tuple(verdict.sentences()) for verdict in verdicts}
    return Merged(
        into=into,
        source=made.source,
        before=done.before,
        after=done.after,
        fast_forward=done.fast_forward,
        message=done.message,
        adopted=done.adopted,
        skipped=done.skipped,
        conflicts=done.conflicts,
        resolved=done.resolved,
        undecided=done.undecided,
        taken_back=tuple(id for id in done.taken_back if id not in hidden),
        hidden=hidden,
        shown=shown,
        born_hidden=born_hidden,
        events=tuple(_needed(made)),
        appended=appended,
    )


def _needed(made: _Planned) -> list[Event]:
    """The events of a plan, after what they need of that which is not in the log yet."""
    memories = [event for event in made.first if isinstance(event, Memory) and event.id in made.plan.adopted]
    sources = {source for memory in memories for source in memory.sources}
    messages = [event for event in made.first if isinstance(event, Message) and event.id in sources]
    return [*messages, *memories, *made.plan.events]


def _require(store: Store, ids: Iterable[str], first: Iterable[Event]) -> None:
    """Refuse what is no memory.  Raises: UnknownEvent; InvalidEvent."""
    coming = {event.id for event in first}
    for id in ids:
        type = "memory" if id in coming else store.skeleton(id).get("type")
        if type is None:
            raise UnknownEvent(id, "memory")
        if type != "memory":
            raise InvalidEvent(f"{id} is a {type}, not a memory: {_INSTEAD.get(type, 'name a memory')}", id)
