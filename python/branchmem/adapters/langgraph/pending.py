"""What tasks have put and no checkpoint has yet: rows of a local table, in order, until the checkpoint is saved.

A row is durable when the call that put it returns, is no event, and is visible to its own run alone.  Which
rows a checkpoint takes follows from what LangGraph does with the tasks: those of the run that saves it; and of an
earlier run those whose tasks were done, or whose subgraph was saved, and which were not run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from branchmem.adapters.langgraph.naming import checkpoint_message, thread_prefix
from branchmem.adapters.langgraph.places import Level, Run

if TYPE_CHECKING:
    from branchmem import Store
    from branchmem.log import Reader, Writer

#: The table of local state that the rows are in.
TABLES: Final = ("pending",)

_ALL: Final = b"langgraph:"
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One item that was put (`text` is its value as JSON) or deleted (None) by a task."""

    id: str
    run: str
    thread: str
    levels: tuple[Level, ...]
    #: Which attempt it was at the task in each of the loops.
    attempts: tuple[int, ...]
    #: The key of the memories that are versions of the item.
    item: str
    text: str | None
    created: datetime
    meta: dict[str, Any] = field(default_factory=dict)
    #: By namespace of a loop: the checkpoint that took this row there, and the memory that it is there, if any.
    taken: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    #: The namespaces of the loops in which the task is done.
    done: tuple[str, ...] = ()
    #: The runs that may still save its step: its own, and those that began where the task stands and may do without
    #: doing it again.
    wanted: tuple[str, ...] = ()
    #: Its key in the table, which orders rows; empty until it is written.
    place: bytes = b""

    def level(self, namespace: str) -> Level | None:
        """The loop of this namespace that the task stands in, if any."""
        return next((level for level in self.levels if level.namespace == namespace), None)

    def within(self, namespace: str) -> tuple[Level, ...]:
        """The loops that stand in that loop, from the outermost on."""
        return tuple(level for level in self.levels if len(level.namespace) > len(namespace))

    def to_bytes(self) -> bytes:
        """The value in the table."""
        form = [
            *(self.id, self.run, self.thread, self.levels, self.attempts, self.item, self.text),
            *(self.created.isoformat(), self.meta, self.taken, self.done),
            *self.wanted,
        ]
        return json.dumps(form).encode()

    @classmethod
    def from_bytes(cls, place: bytes, value: bytes) -> Row:
        """The row that `to_bytes` wrote."""
        id, run, thread, levels, attempts, item, text, created, meta, taken, done, *wanted = json.loads(value)
        return cls(
            id=id,
            run=run,
            thread=thread,
            levels=tuple(Level(*level) for level in levels),
            attempts=tuple(attempts),
            item=item,
            text=text,
            created=datetime.fromisoformat(created),
            meta=meta,
            taken={namespace: (checkpoint, memory) for namespace, (checkpoint, memory) in taken.items()},
            done=tuple(done),
            wanted=tuple(wanted),
            place=place,
        )


def rows_of(reader: Reader, thread: str) -> list[Row]:
    """What is pending in a thread, in the order in which it was put."""
    return [Row.from_bytes(place, value) for place, value in reader.table("pending").items(thread_prefix(thread))]


def all_rows(reader: Reader) -> Iterator[Row]:
    """What is pending in all threads."""
    return (Row.from_bytes(place, value) for place, value in reader.table("pending").items(_ALL))


def add(writer: Writer, rows: Iterable[Row]) -> None:
    """Append rows, inside a transaction."""
    table = writer.table("pending")
    for row in rows:
        prefix = thread_prefix(row.thread)
        last = table.last(prefix)
        number = 1 + (int.from_bytes(last[0][-_NUMBER_BYTES:], "big") if last else 0)
        table.put(prefix + number.to_bytes(_NUMBER_BYTES, "big"), row.to_bytes())


def change(writer: Writer, row: Row) -> None:
    """Write a row as it is now, inside a transaction."""
    writer.table("pending").put(row.place, row.to_bytes())


def remove(writer: Writer, rows: Iterable[Row]) -> int:
    """Remove rows, inside a transaction, and say how many were there."""
    table = writer.table("pending")
    return sum(table.delete(row.place) for row in rows)


def want(store: Store, run: Run, base: str) -> None:
    """Let what other runs have put from a checkpoint on be kept until this one, which goes on from there, has saved.

    Cost: a look at what is pending; one commit, where anything is from there.
    """

    def concerned(reader: Reader) -> list[Row]:
        rows = [row for row in rows_of(reader, run.thread) if run.token not in (row.run, *row.wanted)]
        return [row for row in rows if any(not level.namespace and level.base == base for level in row.levels)]

    def plan(writer: Writer) -> tuple[tuple[()], None]:
        for row in concerned(writer):
            change(writer, replace(row, wanted=(*row.wanted, run.token)))
        return (), None

    if store.snapshot(concerned, tables=TABLES):
        store.transact(plan, tables=TABLES)


def unwanted(writer: Writer, rows: Iterable[Row], run: Run, new: str | None = None) -> list[Row]:
    """Rows as they are once a run does not want them any more, inside a transaction.

    Where it saves a `new` checkpoint, it still wants what it put itself in later steps.
    """
    found = []
    for row in rows:
        is_for_later = new is not None and row.run == run.token and row.levels[0].base >= new
        if run.token in row.wanted and not is_for_later:
            row = replace(row, wanted=tuple(token for token in row.wanted if token != run.token))
            change(writer, row)
        found.append(row)
    return found


def is_void(store: Store, row: Row, run: Run, within: str = "") -> bool:
    """Whether a later attempt of the same run has begun a task of a row of it anew, and not gone on from it.

    For a loop `within`, the attempts at tasks around it do not count: what it saves is what its own tasks did.
    """
    return any(
        attempt < run.attempts.get(level, 1) and not is_kept(store, row, level.namespace, list(run.tips.values()))
        for level, attempt in zip(row.levels, row.attempts, strict=True)
        if len(level.namespace) >= len(within)
    )


def is_kept(store: Store, row: Row, namespace: str, tips: Iterable[str]) -> bool:
    """Whether a loop within that loop was saved with the row, on the path of one of these checkpoints."""
    for level in row.within(namespace):
        if level.namespace in row.taken:
            message = checkpoint_message(row.thread, row.taken[level.namespace][0])
            return any(_is_above(store, message, checkpoint_message(row.thread, tip)) for tip in tips)
    return False


def taken_by(store: Store, rows: Iterable[Row], namespace: str, parent: str | None, run: Run, new: str) -> list[Row]:
    """The rows that a new checkpoint of a loop takes, which continues `parent` and is saved by `run`.

    Saves may be late: what the run put from a checkpoint on that is not older than the new one is for a later one.
    """
    taken = []
    for row in rows:
        level = row.level(namespace)
        if level is None:
            continue
        if row.run == run.token:
            is_taken = namespace in row.taken and (namespace or row.taken[namespace][0] in run.saved)
            if level.base < new and not is_taken and not is_void(store, row, run, namespace):
                taken.append(row)
        elif level.base == parent and is_left(store, row, level, run):
            taken.append(row)
    return taken


def is_left(store: Store, row: Row, level: Level, run: Run) -> bool:
    """Whether a row of an earlier run stands for work that `run`, which goes on from there, does not do again."""
    is_done_again = level in run.attempts or (run.is_replay and level.base == run.loaded)
    if level.namespace in row.done and not is_done_again:
        return True
    return is_kept(store, row, level.namespace, list(run.tips.values()))


def finish(store: Store, run: Run, thread: str, namespace: str, base: str, task: str, *, is_done: bool) -> None:
    """Note that a task is done, or (failed, interrupted) will be run again.

    Rows of a task that will be run again are removed.  What a subgraph in it has saved stays, and what it has put:
    it may go on for a while, and save that.  The step will not be saved by this run, which wants nothing any more.
    Cost: a look at what is pending; one commit, where anything of the task is.
    """
    level = Level(namespace, base, task)

    def concerned(reader: Reader) -> list[Row]:
        rows = [row for row in rows_of(reader, thread) if row.level(namespace) == level]
        own = [row for row in rows if row.run == run.token]
        if not is_done:
            return [row for row in own if not row.taken and not row.within(namespace)]
        own = [row for row in own if not is_void(store, row, run, namespace)]
        kept = [row for row in rows if is_kept(store, row, namespace, list(run.tips.values()))]
        return [row for row in {row.id: row for row in own + kept}.values() if namespace not in row.done]

    def is_wanting(reader: Reader) -> bool:
        return not is_done and any(run.token in row.wanted for row in rows_of(reader, thread))

    def plan(writer: Writer) -> tuple[tuple[()], None]:
        rows = concerned(writer)
        if is_done:
            done = [replace(row, done=(*row.done, namespace)) for row in rows]
            for row in unwanted(writer, done, run) if run.has_failed else done:
                change(writer, row)
        else:
            remove(writer, rows)
            unwanted(writer, rows_of(writer, thread), run)
        return (), None

    run.has_failed |= not is_done
    if namespace or not is_done or level in run.attempts:  # else it is no task: channels keep their own changes so
        run.attempt(level, run.attempts.get(level, 1) + (0 if is_done else 1))
    if store.snapshot(lambda reader: concerned(reader) or is_wanting(reader), tables=TABLES):
        store.transact(plan, tables=TABLES)


def begin_loop(store: Store, run: Run, namespace: str) -> None:
    """Remove what this run put in a subgraph that starts over, and what the subgraph has not saved.

    Cost: a look at what is pending; one commit, where anything is removed.
    """

    def lost(reader: Reader) -> list[Row]:
        return [
            row
            for row in rows_of(reader, run.thread)
            if row.run == run.token and row.level(namespace) is not None and namespace not in row.taken
        ]

    if run.has_put and store.snapshot(lost, tables=TABLES):
        store.transact(lambda writer: ((), remove(writer, lost(writer))), tables=TABLES)


def collect(store: Store, older_than: timedelta, now: datetime) -> int:
    """Remove what crashed steps left, if it is older: nothing will ever take it.  How many rows that were.

    What waits for the other tasks of its step stays, however old, as it does in the checkpointer; what was kept for a
    run that crashed as well goes once the thread has gone on.
    Cost: a look at all that is pending; one commit, where anything is removed.
    """

    def dead(reader: Reader) -> list[Row]:
        return [row for row in all_rows(reader) if now - row.created >= older_than and is_dead(row)]

    def is_dead(row: Row) -> bool:
        if "" in row.taken and row.wanted:
            message = checkpoint_message(row.thread, row.taken[""][0])
            return bool(store.skeleton(message)) and bool(store.tree.children(message))
        return not row.done and not row.taken

    if not store.snapshot(dead, tables=TABLES):
        return 0
    return store.transact(lambda writer: ((), remove(writer, dead(writer))), tables=TABLES)[1]


def _is_above(store: Store, message: str, below: str) -> bool:
    known = store.skeleton(message) and store.skeleton(below)
    return bool(known) and store.tree.is_ancestor(message, below)
