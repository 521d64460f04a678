"""What a checkpoint makes of what is pending: a message of the tree, and the memories and retractions that stand at it.

A message for each checkpoint, below that of its parent; a put is a memory that replaces what is visible there
under its key, a delete is a retraction of that from there on.  So no branch changes what another one sees.  All of
it is one transaction, before the checkpointer saves: a checkpoint that is never saved is a leaf that nobody stands at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from branchmem import Memory, Message
from branchmem import refs as refs_of
from branchmem.adapters.langgraph import pending, returning
from branchmem.adapters.langgraph.naming import (
    ITEM,
    SHARED,
    checkpoint_message,
    thread_message,
    thread_ref,
)
from branchmem.adapters.langgraph.pending import Row, rows_of, taken_by
from branchmem.adapters.langgraph.places import Level, Place, Run
from branchmem.canonical import MAX_REFERENCES, new_id, now, thaw
from branchmem.errors import UnknownEvent, UnknownRef
from branchmem.events import Event, Retraction

if TYPE_CHECKING:
    from branchmem import Store, View
    from branchmem.log import Reader, Writer

_TABLES: Final = (*pending.TABLES, *refs_of.TABLES)
_ROLE: Final = "checkpoint"


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint as the store needs to know it."""

    thread: str
    id: str
    #: The checkpoint that it continues, None for the first.
    parent: str | None
    namespace: str = ""
    #: For a checkpoint of a subgraph: that of the graph around it, which the step around it started from.
    around: str | None = None
    created: datetime | None = None
    source: str | None = None

    @property
    def message(self) -> str:
        """The message that it is."""
        return checkpoint_message(self.thread, self.id)

    def to_message(self, parent: str) -> Message:
        """The message that is appended for it."""
        meta = {} if self.source is None else {"source": self.source}
        role = returning.WITHIN if self.namespace else _ROLE
        return Message(self.message, parent, role=role, created=self.created, meta=meta)


def is_known(store: Store, thread: str, checkpoint: str) -> bool:
    """Whether the store has the message of a checkpoint, attached."""
    return is_attached(store, checkpoint_message(thread, checkpoint))


def is_attached(store: Store, message: str) -> bool:
    """Whether the store has a message, and knows where it stands.

    It does not where the checkpoint above one of a subgraph is in flight, or is never saved (durability "exit"); a
    retraction that stood there would be in effect everywhere.
    """
    try:
        return store.tree.depth(message) is not None
    except UnknownEvent:
        return False


def anchor_of(store: Store, place: Place) -> str:
    """The message at which a task stands: of the innermost checkpoint that the store knows, else the thread's root.

    The checkpoints of a run may be saved after the next step has begun, or never but the last.  What such steps put is
    pending still, so that nothing is missed by standing above.
    """
    run = place.run
    for level in reversed(place.levels):
        if is_known(store, run.thread, level.base):
            return checkpoint_message(run.thread, level.base)
    return thread_message(run.thread) if run.last is None else checkpoint_message(run.thread, run.last)


def product_of(store: Store, place: Place) -> str | None:
    """The message of the checkpoint that the step of a task has produced; None before the store has it."""
    product = place.run.product(place.levels[0].base)
    if product is None:
        return None
    message = checkpoint_message(place.run.thread, product)
    return message if store.skeleton(message) else None


def seen_by(store: Store, place: Place, rows: Iterable[Row], anchor: str) -> list[Row]:
    """Of what is pending, what a task sees: that of its run, and of an earlier run what its step will take."""
    return [row for row in rows if _is_seen(store, place, row, anchor)]


def _is_seen(store: Store, place: Place, row: Row, anchor: str) -> bool:
    run = place.run
    if row.run == run.token:
        return not _is_saved(store, row, run, anchor) and not pending.is_void(store, row, run)
    bases = {(level.namespace, level.base) for level in place.levels}
    if run.goes_on and run.loaded is not None and anchor == checkpoint_message(run.thread, run.loaded):
        bases.add(("", run.loaded))  # its steps after the first may begin before that is saved
    return any((at.namespace, at.base) in bases and pending.is_left(store, row, at, run) for at in row.levels)


def _is_saved(store: Store, row: Row, run: Run, anchor: str) -> bool:
    """Whether a row of a run is in the view at an anchor, since a checkpoint of this run took it: others may, too."""
    product = run.product(row.levels[0].base)
    message = None if product is None else checkpoint_message(run.thread, product)
    return message is not None and bool(store.skeleton(message)) and store.tree.is_ancestor(message, anchor)


def save(
    store: Store,
    saved: Saved,
    above: Sequence[Saved],
    run: Run | None,
    *,
    resumes: bool,
    levels: tuple[Level, ...] = (),
) -> bool:
    """Append the message of a checkpoint, and what it takes of what is pending; whether that was anything.

    `above` are those above it that the store may lack, the topmost first; `resumes` says whether it goes on with the
    tasks of its parent, so that what an earlier run has done of them counts; `levels` are the loops around a subgraph.
    Cost: one commit, and the view at its parent where it takes anything.
    """

    def plan(writer: Writer) -> tuple[list[Event], bool]:
        events: list[Event] = []
        taken: list[Row] = []
        root = thread_message(saved.thread)
        if not store.skeleton(root):
            events.append(Message(root, None, role="thread"))
        for each in (*above, saved):
            if not store.skeleton(each.message):
                events.append(each.to_message(_parent_of(store, each, root)))
        rows = rows_of(writer, saved.thread)
        if run is not None:
            rows = rows if saved.namespace else pending.unwanted(writer, rows, run, saved.id)
            taken = taken_by(store, rows, saved.namespace, saved.parent, run, saved.id)
            if not resumes:
                taken = [row for row in taken if row.run == run.token]
            found = _taken(store, writer, saved, taken, run) + _brought(store, writer, saved, run, levels)
            if not _will_be_attached(store, saved, root):
                found = [event for event in found if not isinstance(event, Retraction)]
            events += found
        if not saved.namespace:
            if not taken:  # else it waits until the checkpointer has saved
                _move_ref(writer, saved)
            over = [row for row in rows if "" in row.taken and _is_past(store, saved, row.taken[""][0])]
            pending.remove(writer, [row for row in over if not row.wanted])
        return events, bool(taken)

    return store.transact(plan, tables=_TABLES)[1]


def settle(store: Store, saved: Saved, run: Run) -> None:
    """Remove what a checkpoint of a thread took of its own run, once the checkpointer has saved it, and move the ref.

    Cost: one commit.
    """

    def plan(writer: Writer) -> tuple[tuple[()], int]:
        rows = rows_of(writer, saved.thread)
        taken = [row for row in rows if row.taken.get("", ("", None))[0] == saved.id]
        if taken:  # the thread was not deleted meanwhile
            _move_ref(writer, saved)
        return (), pending.remove(writer, [row for row in taken if row.run == run.token and not row.wanted])

    store.transact(plan, tables=_TABLES)


def give_up(store: Store, thread: str, checkpoint: str) -> None:
    """Let the ref of a thread stand where it stood before a checkpoint that the checkpointer could not save.

    Cost: one commit, where it stands there.
    """
    ref = thread_ref(thread)
    if store.refs.get(ref) == checkpoint_message(thread, checkpoint):
        store.refs.undo(ref)


def put_shared(store: Store, rows: Sequence[Row]) -> None:
    """Append what crosses threads: it belongs to the root of a tree of its own.

    Cost: one commit, and the view there.
    """

    def plan(writer: Writer) -> tuple[list[Event], None]:
        if store.skeleton(SHARED):
            return _events(store, rows, SHARED, store.at(SHARED, count=False)), None
        return [Message(SHARED, None, role="thread"), *_events(store, rows, SHARED, None)], None

    store.transact(plan, tables=())


def put_by(store: Store, place: Place, rows: Sequence[Row]) -> None:
    """Append what a task puts: pending until its step has produced a checkpoint, from then on at that one.

    Cost: one commit, and the view there where the step is over.
    """

    def plan(writer: Writer) -> tuple[list[Event], None]:
        product = product_of(store, place)
        if product is not None:
            return _events(store, rows, product, store.at(product, count=False)), None
        pending.add(writer, rows)
        return [], None

    store.transact(plan, tables=pending.TABLES)


def put_at(store: Store, anchor: str, rows: Sequence[Row]) -> None:
    """Append what is put at a checkpoint that was saved: it belongs to that checkpoint, and to all below.

    Cost: one commit, and the view there.
    """
    store.transact(lambda writer: (_events(store, rows, anchor, store.at(anchor, count=False)), None), tables=())


def last_of(rows: Iterable[Row]) -> list[Row]:
    """The last row of each item, in order."""
    return list({row.item: row for row in rows}.values())


def versions(view: View, item: str) -> list[Memory]:
    """The memories of a view that are versions of an item; more than one where branches were merged by hand."""
    found: list[Memory] = view.memories(kind=ITEM, key=item)
    return found


def _taken(store: Store, writer: Writer, saved: Saved, taken: Sequence[Row], run: Run) -> list[Event]:
    """What rows become at a checkpoint; they are noted as taken by it."""
    if not taken:
        return []
    above = _nearest(store, saved, run)
    view = None if above is None else store.at(above, count=False)
    events = _events(store, last_of(taken), saved.message, view, saved.namespace)
    memories = {event.id for event in events if isinstance(event, Memory)}
    for row in taken:
        memory = _memory_id(row, saved.message)
        noted = (saved.id, memory if memory in memories else None)
        pending.change(writer, replace(row, taken={**row.taken, saved.namespace: noted}))
    return events


def _brought(store: Store, writer: Writer, saved: Saved, run: Run, levels: tuple[Level, ...]) -> list[Event]:
    """What a subgraph that goes on from a step on another branch brings with it; its step will take it like its own.

    One that begins anew there, with new input, brings nothing, though LangGraph lets it keep the state from elsewhere.
    """
    if not levels or saved.parent is None or saved.around is None or saved.source == "input":
        return []
    parent, around = (checkpoint_message(saved.thread, id) for id in (saved.parent, saved.around))
    rows = []
    for item, memory in returning.brought(store, parent, around):
        meta = {} if memory is None else thaw(memory.meta)
        place = Place(
            run, (*levels, Level(saved.namespace, saved.parent, "")), run.attempts_at((*levels, levels[0]), 1)
        )
        created = saved.created or now() if memory is None else memory.created or now()
        row = row_of(item, None if memory is None else memory.text, meta, created, place)
        rows.append(
            replace(
                row, taken={saved.namespace: (saved.id, None if memory is None else _memory_id(row, saved.message))}
            )
        )
    if not rows:
        return []
    run.has_put = True
    pending.add(writer, rows)
    view = store.at(around, count=False) if store.skeleton(around) else None
    return _events(store, [replace(row, taken={}) for row in rows], saved.message, view)


def _events(store: Store, rows: Sequence[Row], message: str, view: View | None, namespace: str = "") -> list[Event]:
    """The memories and retractions that rows become at a message; `view` is what is visible above it, None: nothing.

    What a subgraph saved at a checkpoint of its own is taken over from there.
    """
    events: list[Event] = []
    for row in rows:
        known = [] if view is None else versions(view, row.item)
        if row.text is None:
            events += retractions(store, [memory.id for memory in known], message, row.created)
            continue
        within = (row.taken.get(level.namespace, ("", None))[1] for level in row.within(namespace))
        events.append(
            Memory(
                _memory_id(row, message),
                row.text,
                sources=[message],
                supersedes=[memory.id for memory in known],
                adopts=next((memory for memory in within if memory is not None), None),
                kind=ITEM,
                key=row.item,
                created=row.created,
                meta={**row.meta, "created": min([row.meta["created"], *(memory.meta["created"] for memory in known)])},
            )
        )
    return events


def retractions(store: Store, memories: Iterable[str], message: str, created: datetime) -> list[Event]:
    """What takes memories back from a message on, with all the older versions that would come back in their place."""
    found: set[str] = set()
    waiting = list(memories)
    while waiting:
        id = waiting.pop()
        if id not in found:
            found.add(id)
            waiting += store.skeleton(id).get("supersedes", ())
    named = sorted(found)
    return [
        Retraction(new_id(), message, scope="branch", memories=named[start : start + MAX_REFERENCES], created=created)
        for start in range(0, len(named), MAX_REFERENCES)
    ]


def _memory_id(row: Row, message: str) -> str:
    """The same each time that this row is taken by this message."""
    return f"{row.id}@{message.rpartition('@')[2]}"


def _parent_of(store: Store, saved: Saved, root: str) -> str:
    """The message above that of a checkpoint: its parent's; where a subgraph begins anew, the step's around it."""
    around = None if saved.around is None else checkpoint_message(saved.thread, saved.around)
    if saved.parent is not None and (around is None or saved.source != "input"):
        parent = checkpoint_message(saved.thread, saved.parent)
        if around is None or returning.is_below(store, parent, around):
            return parent
    return around or root


def _will_be_attached(store: Store, saved: Saved, root: str) -> bool:
    """Whether the message of a checkpoint is attached once it is appended."""
    above = _parent_of(store, saved, root) if saved.namespace else root
    return above == root or is_attached(store, above)


def _nearest(store: Store, saved: Saved, run: Run) -> str | None:
    """The message above a checkpoint at which the store can tell what is visible; None where nothing can be."""
    for checkpoint in (saved.parent, saved.around, run.last):
        if checkpoint is not None and is_known(store, saved.thread, checkpoint):
            return checkpoint_message(saved.thread, checkpoint)
    return None


def _is_past(store: Store, saved: Saved, checkpoint: str) -> bool:
    """Whether a checkpoint stands above the new one, so that it was saved, and what it took is no longer needed."""
    parent = None if saved.parent is None else checkpoint_message(saved.thread, saved.parent)
    message = checkpoint_message(saved.thread, checkpoint)
    return parent is not None and bool(store.skeleton(parent)) and store.tree.is_ancestor(message, parent)


def _move_ref(writer: Writer, saved: Saved) -> None:
    """Let the ref of the thread stand at the checkpoint, unless it stands at a later one."""
    ref = thread_ref(saved.thread)
    if is_later(saved.message, _head(writer, ref)):
        refs_of.write_move(writer, ref, saved.message, saved.source or "save")


def is_later(message: str, head: str | None) -> bool:
    """Whether the checkpoint that a message is was made after that at which a ref stands."""
    return head is None or head.rpartition("@")[2] < message.rpartition("@")[2]


def _head(reader: Reader, ref: str) -> str | None:
    try:
        return refs_of.head(reader, ref)
    except UnknownRef:
        return None


def row_of(item: str, text: str | None, meta: dict[str, Any], created: datetime, place: Place | None) -> Row:
    """The row of an item that is put, or (None) deleted: by a task, or, without a place, by nobody's.

    Raises: InvalidEvent where no memory could hold it.
    """
    if text is not None:
        Memory(ITEM, text, kind=ITEM, key=item, created=created, meta=meta)
    return Row(
        id=new_id(),
        run="" if place is None else place.run.token,
        thread="" if place is None else place.run.thread,
        levels=() if place is None else place.levels,
        attempts=() if place is None else place.attempts,
        item=item,
        text=text,
        created=created,
        meta=meta,
        wanted=() if place is None else (place.run.token,),
    )
