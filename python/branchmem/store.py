"""A log and its engine: append events, ask for views, read what is visible.

`append` refuses, persists, folds: after the log has a batch nothing can fail.
The engine is disposable; opening replays the skeletons and never the bodies.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from branchmem import _core
from branchmem.coalesce import Coalescer
from branchmem.errors import (
    Error,
    EventConflict,
    FormatTooNew,
    InvalidEventType,
    MemoryHidden,
    StoreBehind,
    StoreClosed,
    StoreDamaged,
    UnknownEvent,
)
from branchmem.events import TYPES, Event, Memory, Message, conflict, event_from_bytes, refuse_later, skeleton_fields
from branchmem.log import Compacted, Log, Reader, Writer
from branchmem.log.removal import remove
from branchmem.questions import Anchor, Questions
from branchmem.verdict import STRICT, Appended, Policy, why_hidden

if TYPE_CHECKING:
    from branchmem.check import Check

_PAGE = 1000
#: How many blocks are read before they are folded: about a megabyte.
_BLOCKS = 16
#: What an open store takes by itself, nearly all of it LMDB's list of changed pages; and an event at most.
_STORE_BYTES = (2 << 20) + (64 << 10)
_EVENT_BYTES = 150
_STORES: weakref.WeakSet[Store] = weakref.WeakSet()


class Engine(Questions):
    """The same questions without a file, for events that live in a database of the caller's.

    Keeps skeletons only: a repeated id with another skeleton is an EventConflict,
    bodies are not compared, and content is read where it is kept.  May be asked in the child of a
    fork, unless a thread was adding to it or asking it at that moment.
    """

    def __init__(self) -> None:
        super().__init__()
        self._adding = threading.Lock()

    def add(self, events: Iterable[Event]) -> Appended:
        """Take in a batch: any order, idempotent, all or nothing.

        Raises: EventConflict; InvalidEvent for what this version does not support yet.
        Cost: linear in the batch; nothing that was added before is touched again.
        """
        batch = _checked(events)
        skeletons = [event.skeleton() for event in batch]
        with self._adding:
            new, stored, repeated, clash = self._engine.plan(skeletons)
            if clash is not None:
                at, before = clash
                _, known = (0, skeletons[before]) if before is not None else _found(self._engine, batch[at].id)
                raise conflict(batch[at].id, skeleton_fields(known), skeleton_fields(skeletons[at]))
            self._engine.fold(self._engine.encode([skeletons[at] for at in new]))
            return Appended(len(new), len(stored) + len(repeated), self._engine.seq)


class _Encoded(NamedTuple):
    """A batch and the canonical bytes of each of its events."""

    events: Sequence[Event]
    skeletons: list[bytes]
    bodies: list[bytes]


class Store(Questions):
    """One owner's memory in one file.  A context manager; safe under threads and processes."""

    def __init__(self, log: Log, *, auto_refresh: bool = True, on_close: Any = None) -> None:
        super().__init__()
        self._log = log
        self._changed = log.changed
        self._auto_refresh = auto_refresh
        self._on_close = on_close
        self._folding = threading.RLock()
        self._coalescer = Coalescer()
        _STORES.add(self)
        log.read(self._replay)

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._log.path

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        try:
            self._changed()
        except StoreClosed:
            return True
        return False

    @property
    def memory_bytes(self) -> int:
        """About how much memory this store holds, the mapped pages of its file not counted.

        An estimate from the number of events that were taken in.
        """
        return _STORE_BYTES + _EVENT_BYTES * self._engine.seq

    def append(self, events: Iterable[Event]) -> Appended:
        """Write a batch: atomic, durable, any order, idempotent.  Nothing is written where one event is refused.

        Raises: EventConflict for an id that has other content; InvalidEvent; StoreFull,
        StoreReadOnly and the other errors of a store.
        Cost: one fsync a batch, then linear in the batch.
        """
        (answer,) = self._append_each([_checked(events)])
        if isinstance(answer, Appended):
            return answer
        try:
            raise answer
        finally:
            del answer  # else its traceback would hold it, and it its traceback

    async def aappend(self, events: Iterable[Event]) -> Appended:
        """As `append`, without a wait of the event loop for the disk: callers at one time share one commit.

        Answers and errors are those of appending one after the other, in order of arrival.  A caller
        who is cancelled leaves his batch written whole or not at all.
        """
        self._log.changed()  # refuses in the child of a fork, before any lock
        return await self._coalescer.append(_checked(events), self._append_each)

    def _append_each(self, batches: Sequence[Sequence[Event]]) -> list[Appended | Exception]:
        """Append batches in one commit; the answer or the refusal of each is as if they came one after the other."""
        self._log.changed()  # refuses in the child of a fork, before any lock
        given = [_encoded(batch) for batch in batches]

        def persist(writer: Writer) -> tuple[list[tuple[int, bytes]], list[Appended | Exception]]:
            self._take_in(writer)
            answers: list[Appended | Exception] = []
            skeletons: list[bytes] = []
            contents: list[bytes] = []
            earlier: dict[str, tuple[Event, bytes, bytes]] = {}
            seq = self._engine.seq
            for batch in given:
                try:
                    new = self._new_of(writer, batch, earlier)
                except Error as refused:
                    answers.append(refused.with_traceback(None))
                    continue
                events, own_skeletons, own_bodies = batch
                skeletons += [own_skeletons[at] for at in new]
                contents += [own_bodies[at] for at in new]
                answers.append(Appended(len(new), len(events) - len(new), seq + len(skeletons)))
                if len(given) > 1:
                    earlier.update((events[at].id, (events[at], own_skeletons[at], own_bodies[at])) for at in new)
            blocks = self._engine.encode(skeletons)
            for first_seq, block in blocks:
                start = first_seq - blocks[0][0]
                writer.put(first_seq, block, contents[start : start + _PAGE])
            return blocks, answers

        with self._folding:
            _, answers = self._log.write(persist, then=lambda written: self._engine.fold(written[0]))
            return answers

    def _new_of(self, reader: Reader, batch: _Encoded, earlier: Mapping[str, tuple[Event, bytes, bytes]]) -> list[int]:
        """Which events of a batch are neither stored, nor repeated in it, nor `earlier` in the same commit.

        Raises: EventConflict where one of them is there with other content.
        """
        events, skeletons, bodies = batch
        new, stored, repeated, clash = self._engine.plan(skeletons)
        if clash is not None:
            at, before = clash
            raise _differ(events[before] if before is not None else self._event(reader, events[at].id), events[at])
        for at, seq in stored:
            if reader.body(seq) != bodies[at]:
                raise _differ(self._event(reader, events[at].id), events[at])
        for at, before in repeated:
            if bodies[before] != bodies[at]:
                raise _differ(events[before], events[at])
        if not earlier:
            return new
        unknown = []
        for at in new:
            known = earlier.get(events[at].id)
            if known is None:
                unknown.append(at)
            elif known[1:] != (skeletons[at], bodies[at]):
                raise _differ(known[0], events[at])
        return unknown

    def at(
        self, anchor: Anchor, *, policy: Policy = STRICT, min_seq: int | None = None, count: bool = True
    ) -> _core.View:
        """As `Questions.at`; sees what other processes appended, unless opened with `auto_refresh=False`."""
        if self._changed() and self._auto_refresh:  # as _fresh, which would be one call more on the hottest path
            self.refresh()
        if min_seq is not None and self._engine.seq < min_seq:
            self.refresh()
            if self._engine.seq < min_seq:
                raise StoreBehind(self._engine.seq, min_seq)
        return self._engine.at(self, anchor, policy, count)

    def refresh(self) -> int:
        """Take in what was appended elsewhere, and return how many events that were."""
        self._log.changed()
        with self._folding:
            before = self._engine.seq
            self._log.read(self._take_in)
            return self._engine.seq - before

    @property
    def log(self) -> EventLog:
        """The unfiltered truth: every event, whatever any view shows."""
        self._fresh()
        return EventLog(self)

    def digest(self) -> str:
        """SHA-256 (hex) over all events sorted by id: the same for the same set of events.  O(log)."""
        import hashlib

        engine = self._fresh()
        ids = engine.sorted_ids()  # before the snapshot, which holds at least these

        def hashed(reader: Reader) -> str:
            digest = hashlib.sha256()
            for id in ids:
                seq, skeleton = _found(engine, id)
                digest.update(skeleton)
                digest.update(reader.body(seq) or b"")
            return digest.hexdigest()

        return self._log.read(hashed)

    def check(self) -> Check:
        """Read everything and report: checksums, orphans, circles, dangling references.  O(log)."""
        from branchmem.check import check

        return check(self)

    def compact(self) -> Compacted:
        """Rewrite the file without what was deleted or became free in it: smaller, with everything in its place.

        seq, ordinals and digest stay; who is killed meanwhile leaves the old file or the new one.
        No other process may have the store open; threads of this one read on, and wait with their writes.
        Raises: StoreLocked, whose `holders` are those processes; StoreFull, StoreReadOnly.
        Cost: needs room for both files; about 2 s for 100 MB.
        """
        return self._log.compact()

    def backup(self, path: str | os.PathLike[str]) -> str:
        """Copy the store as it is now to a new file, and return its full name; others read and write meanwhile.

        The copy is a store: the same log, with the same digest.  It is there as a whole or not at all.
        Raises: StoreExists, whatever lies at `path`; StoreFull, StoreOnNetwork and the other errors of a store.
        Cost: as `compact`.
        """
        return self._log.backup(path)

    def close(self) -> None:
        """Let go of the file.  Views keep the set they show; twice is once."""
        self._log.close()
        if self._on_close is not None:
            self._on_close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.path}: {self._engine.seq} events>"

    def _fresh(self) -> _core.Engine:
        if self._changed() and self._auto_refresh:
            self.refresh()
        return self._engine

    def _take_in(self, reader: Reader) -> None:
        """Fold what this engine has not seen, all of it at once: a batch is seen whole or not.  Repeatable."""
        self._fold(list(reader.blocks(self._engine.seq - 1)))

    def _replay(self, reader: Reader) -> None:
        """Fold the whole log, some blocks at a time: nobody asks yet."""
        self._engine.reserve(reader.last_seq())
        blocks = reader.blocks(-1)
        while some := list(islice(blocks, _BLOCKS)):
            self._fold(some)
        if reader.count() != self._engine.seq:
            raise StoreDamaged(self.path, f"it should hold {reader.count()} events", self._engine.seq)

    def _fold(self, blocks: list[tuple[int, bytes]]) -> None:
        try:
            self._engine.fold(blocks)
        except _core.BlockError as error:
            why, newer = error.args
            if newer:
                raise FormatTooNew(self.path, f"{why}: upgrade branchmem") from None
            raise StoreDamaged(self.path, why, self._engine.seq) from None

    def _event(self, reader: Reader, id: str) -> Event:
        """The event with this id, which the engine held before the snapshot was taken."""
        seq, skeleton = _found(self._engine, id)
        body = reader.body(seq)
        if body is None:
            raise StoreDamaged(self.path, "its content is erased, and no event of the log says so", seq)
        return event_from_bytes(skeleton, body)

    def _memory(self, view: _core.View, id: str, visible: bool) -> Memory:
        if not visible:
            raise MemoryHidden(id, why_hidden(lambda: view._explain(id), view.seq))
        return self._memories([id])[0]

    def _memories(self, ids: list[str]) -> list[Memory]:
        def read(reader: Reader) -> list[Memory]:
            events = (self._event(reader, id) for id in ids)
            return [event for event in events if isinstance(event, Memory)]

        return self._log.read(read)


class EventLog:
    """Every event of a log, in the order in which it was accepted.  No view filters it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, id: str) -> Event:
        """The event with this id.  Raises: UnknownEvent."""
        _found(self._store._fresh(), id)
        return self._store._log.read(lambda reader: self._store._event(reader, id))

    def events(self, start: int = 0, stop: int | None = None, type: str | None = None) -> Iterator[Event]:
        """The events at positions `start` to `stop`, of one type or of all, in order.  Reads a thousand at a time."""
        if type not in (None, *TYPES):
            raise ValueError(f"type must be one of {', '.join(TYPES)}, or None for all, not {type!r:.80}")
        return self._events(start, stop, type)

    def _events(self, start: int, stop: int | None, type: str | None) -> Iterator[Event]:
        engine = self._store._fresh()
        end = engine.seq if stop is None else min(stop, engine.seq)
        for page in range(max(start, 0), end, _PAGE):
            ids = engine.event_ids(page, min(page + _PAGE, end))
            read = partial(self._read, ids)
            yield from (event for event in self._store._log.read(read) if type in (None, event.type))

    def find(self, text: str) -> Iterator[Event]:
        """The messages and memories whose text contains `text`, visible or not.  Reads the whole log."""
        for event in self.events():
            if isinstance(event, Message | Memory) and text in (event.text or ""):
                yield event

    def _read(self, ids: list[str], reader: Reader) -> list[Event]:
        return [self._store._event(reader, id) for id in ids]

    def __contains__(self, id: object) -> bool:
        engine = self._store._fresh()
        return isinstance(id, str) and engine.event_seq(id) is not None

    def __len__(self) -> int:
        return self._store._fresh().seq


def open(
    path: str | os.PathLike[str],
    *,
    readonly: bool = False,
    create: bool = True,
    verify: bool = False,
    auto_refresh: bool = True,
) -> Store:
    """Open the store at `path`, made if absent unless `readonly` or not `create`.

    `verify` reads the whole file before it is mapped, for files of doubtful origin.
    Raises: StoreMissing, StoreDamaged, FormatTooNew, StoreOnNetwork and the other errors of a store.
    Cost: replays the skeletons, about a microsecond an event.
    """
    log = Log.open(path, readonly=readonly, create=create, verify=verify)
    try:
        return Store(log, auto_refresh=auto_refresh)
    except BaseException:
        log.close()
        raise


def delete(path: str | os.PathLike[str]) -> bool:
    """Delete the store at `path` for good, with all that lies beside it; False where there is none.

    Raises: StoreLocked where anybody has it open, in this process or in another.
    """
    return remove(path)


def open_temporary() -> Store:
    """A store that is gone when it is closed: for tests and trials."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="branchmem-")
    remove = partial(_remove, folder, os.getpid())
    try:
        log = Log.open(os.path.join(folder, "temporary.bmem"))
        return Store(log, on_close=weakref.finalize(log, remove))
    except BaseException:
        remove()
        raise


def _remove(folder: str, owner: int) -> None:
    """Remove the folder of a temporary store, unless this is the child of a fork: it is the parent's."""
    import shutil

    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _forsake() -> None:
    for store in list(_STORES):
        store._engine.forsake(store.path)


def _checked(events: Iterable[Event]) -> list[Event]:
    if isinstance(events, Event):
        raise InvalidEventType(f"a list of events is needed: write [{events!r:.80}]", events)
    batch = list(events)
    for event in batch:
        if not isinstance(event, Event):
            raise InvalidEventType(f"{event!r:.80} is no event: make a Message or a Memory of it", event)
        refuse_later(event)
    return batch


def _encoded(batch: Sequence[Event]) -> _Encoded:
    return _Encoded(batch, [event.skeleton() for event in batch], [event.body() for event in batch])


def _differ(known: Event, given: Event) -> EventConflict:
    return conflict(given.id, known.to_dict(), given.to_dict())


def _found(engine: _core.Engine, id: str) -> tuple[int, bytes]:
    found = engine.skeleton(id)
    if found is None:
        raise UnknownEvent(id)
    return found


# In the child of a fork views must not try a lock that a thread of the parent may hold.
os.register_at_fork(after_in_child=_forsake)
