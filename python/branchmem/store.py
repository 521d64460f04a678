"""A log and its engine: append events, ask for views, read what is visible.

`append` refuses, persists, folds: after the log has a batch nothing can fail.
The engine is disposable; opening replays the skeletons and never the bodies.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from branchmem import _core
from branchmem.appending import Batch, Commit, checked
from branchmem.coalesce import Coalescer
from branchmem.codec import as_it_stays
from branchmem.errors import Error, FormatTooNew, MemoryHidden, StoreBehind, StoreClosed, StoreDamaged
from branchmem.eventlog import UNPROVEN, EventLog, body_of, event_of, skeleton_of
from branchmem.events import Erasure, Event, Memory, conflict, event_from_bytes, skeleton_fields
from branchmem.log import Compacted, Log, Reader, Writer
from branchmem.log.removal import remove
from branchmem.questions import Anchor, Questions
from branchmem.searches import Searches
from branchmem.verdict import STRICT, Appended, Policy, Reason, why_hidden

if TYPE_CHECKING:
    from branchmem.check import Check

T = TypeVar("T")

#: How many blocks are read before they are folded: about a megabyte.
_BLOCKS = 16
#: What an open store takes by itself, nearly all of it LMDB's list of changed pages; and an event at most.
_STORE_BYTES = (2 << 20) + (64 << 10)
_EVENT_BYTES = 150
#: What stands for an erased body in the digest.
_ERASED = b"erased"
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

        Raises: EventConflict; InvalidEvent.
        Cost: linear in the batch; nothing that was added before is touched again.
        """
        batch = checked(events)
        skeletons = [event.skeleton() for event in batch]
        with self._adding:
            new, stored, repeated, clash = self._engine.plan(skeletons)
            if clash is not None:
                at, before = clash
                known = skeletons[before] if before is not None else skeleton_of(self._engine, batch[at].id)[1]
                raise conflict(batch[at].id, skeleton_fields(known), skeleton_fields(skeletons[at]))
            self._engine.fold(self._engine.encode([skeletons[at] for at in new]))
            return Appended(len(new), len(stored) + len(repeated), self._engine.seq)


class Store(Searches):
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

        An estimate from the number of events that were taken in, and of what its searches keep.
        """
        searches = 0 if self._index is None else self._index.memory_bytes
        return _STORE_BYTES + _EVENT_BYTES * self._engine.seq + searches

    def append(self, events: Iterable[Event]) -> Appended:
        """Write a batch: atomic, durable, any order, idempotent.  Nothing is written where one event is refused.

        What it erases loses its content in the same commit; of an erased id only what stays is compared, and
        content that comes for it is not written.
        Raises: EventConflict for an id that has other content; InvalidEvent; StoreFull,
        StoreReadOnly and the other errors of a store.
        Cost: one fsync a batch, then linear in the batch.
        """
        (answer,) = self._append_each([checked(events)])
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
        return await self._coalescer.append(checked(events), self._append_each)

    def _append_each(self, batches: Sequence[Sequence[Event]]) -> list[Appended | Error]:
        """Append batches in one commit; the answer or the refusal of each is as if they came one after the other."""
        self._log.changed()  # refuses in the child of a fork, before any lock
        given = [Batch.of(batch) for batch in batches]

        def persist(writer: Writer) -> tuple[Commit, list[Appended | Error]]:
            self._take_in(writer)
            commit = Commit(self._engine, writer, alone=len(given) == 1)
            answers = [commit.take(batch) for batch in given]
            commit.write()
            return commit, answers

        with self._folding:
            _, answers = self._log.write(persist, then=lambda written: self._fold_own(written[0]))
            self._has_folded()
            return answers

    def transact(
        self, plan: Callable[[Writer], tuple[Iterable[Event] | Batch, T]], *, tables: Sequence[str]
    ) -> tuple[Appended, T]:
        """Append the events that `plan` returns, with what it puts into tables of local state: all of it or nothing.

        `plan` sees the newest state of all processes, may ask this store anything, and must not append; no other
        process writes until it has returned.  It may run again: ids that it makes up must come from outside of it.
        Raises: what `plan` raises, and what `append` raises; nothing is written then.
        Cost: as `append`.
        """
        self._log.changed()  # refuses in the child of a fork, before any lock

        def persist(writer: Writer) -> tuple[Commit, Appended, T]:
            self._take_in(writer)
            events, out = plan(writer)
            commit = Commit(self._engine, writer, alone=True)
            answer = commit.take(events if isinstance(events, Batch) else Batch.of(checked(events)))
            if isinstance(answer, Error):
                raise answer
            commit.write()
            return commit, answer, out

        with self._folding:
            _, appended, out = self._log.write(persist, then=lambda written: self._fold_own(written[0]), tables=tables)
            self._has_folded()
            return appended, out

    def snapshot(self, work: Callable[[Reader], T], *, tables: Sequence[str]) -> T:
        """What `work` reads of tables of local state, in one snapshot of the file."""
        return self._log.read(work, tables=tables)

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
            self._has_folded()
            return self._engine.seq - before

    @property
    def log(self) -> EventLog:
        """The unfiltered truth: every event, whatever any view shows."""
        self._fresh()
        return EventLog(self._log, self._fresh)

    def erasures(self) -> list[Erasure]:
        """All erasures, in order: append them to a backup that was restored, and before an old export is imported.

            restored.append(store.erasures())

        What they name stays erased there, whatever it holds and whatever arrives later.
        """
        engine = self._fresh()
        ids = engine.ids_of(Erasure.type)

        def read(reader: Reader) -> list[Erasure]:
            events = (event_of(engine, reader, id) for id in ids)
            return [event for event in events if isinstance(event, Erasure)]

        return self._log.read(read)

    def digest(self) -> str:
        """SHA-256 (hex) over all events sorted by id: the same for the same set of events.  O(log).

        Content that was erased counts as erased.  Where another process has just erased some that this store still
        knew, the digest is that of the newest state, whether or not the store refreshes by itself.
        """
        self._fresh()
        while (digest := self._log.read(self._digest_at)) is None:
            self.refresh()
        return digest

    def _digest_at(self, reader: Reader) -> str | None:
        """The digest of what the engine knew of a snapshot, None where the snapshot has less of it."""
        import hashlib

        engine = self._engine
        seen, there = engine.seq, reader.count()
        end = min(seen, there)
        digest = hashlib.sha256()
        for id in engine.sorted_ids():
            seq, skeleton = skeleton_of(engine, id)
            if seq >= end:
                continue
            body = reader.body(seq)
            if body is None:
                known = engine.is_erased(id)
                if seen < there and not (known and engine.seq == seen):
                    return None
                if not known:
                    raise StoreDamaged(self.path, UNPROVEN, seq)
            digest.update(skeleton)
            digest.update(_ERASED if body is None else body)
        return digest.hexdigest()

    def check(self) -> Check:
        """Read everything and report: checksums, orphans, circles, dangling references.  O(log)."""
        from branchmem.check import check

        return check(self)

    def compact(self) -> Compacted:
        """Rewrite the file without what was erased or became free in it: smaller, with everything in its place.

        Until then the bytes of what was erased stand in free pages, where no reader comes to.
        seq, ordinals and digest stay; who is killed meanwhile leaves the old file or the new one.
        No other process may have the store open; threads of this one read on, and wait with their writes.
        Raises: StoreLocked, whose `holders` are those processes; StoreFull, StoreReadOnly.
        Cost: needs room for both files; about 2 s for 100 MB.
        """
        return self._log.compact()

    def backup(self, path: str | os.PathLike[str]) -> str:
        """Copy the store as it is now to a new file, and return its full name; others read and write meanwhile.

        The copy is a store: the same log, with the same digest, without a byte of what was erased.  It is there as
        a whole or not at all.  Who is killed meanwhile leaves `path`-draft, which may hold anything that the store
        held; the next backup to `path` removes it.
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

    def _look(self) -> None:
        with suppress(StoreClosed):  # views that are held answer from what was known then
            if not self._log.is_at_work:  # who is inside a snapshot may hold up whom a refresh would wait for
                self._fresh()

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

    def _fold_own(self, commit: Commit) -> None:
        """Fold what was just committed, and give what is kept for searches its memories while they are at hand."""
        first = self._engine.memory_count()
        self._engine.fold(commit.blocks)
        if self._index is not None:
            self._index.take_in(first, commit.memories)

    def _has_folded(self) -> None:
        """Let what is kept for searches drop what is erased by now."""
        if self._index is not None:
            self._index.log_changed()

    def _memory(self, view: _core.View, id: str, visible: bool) -> Memory:
        if not visible:
            self._look()
            raise MemoryHidden(id, why_hidden(lambda: view._explain(id), view.seq))
        return self._memories([id], view)[0]

    def _memories(self, ids: list[str], view: _core.View) -> list[Memory]:
        """The memories that a view shows; without their content where its policy lets ERASED through.

        Raises: MemoryHidden for one that was erased after the view was made.
        """
        shows_erased = Reason.ERASED in view.policy.admit

        def read(reader: Reader) -> list[Memory]:
            found = []
            for id in ids:
                seq, skeleton = skeleton_of(self._engine, id)
                body = body_of(self._engine, reader, id, seq)
                if body is None and not shows_erased:
                    raise MemoryHidden(id, "its content was erased after the view was made")
                event = as_it_stays(skeleton) if body is None else event_from_bytes(skeleton, body)
                if isinstance(event, Memory):
                    found.append(event)
            return found

        return self._log.read(read)


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


# In the child of a fork views must not try a lock that a thread of the parent may hold.
os.register_at_fork(after_in_child=_forsake)
