"""The log of one owner: one LMDB file, wrapped so that nothing in it kills or lies.

A log gives out transactions and nothing else: `read` runs work on a snapshot,
`write` runs work in one durable transaction.  What the blocks mean is known to
the codec and the engine, not here.

place        where a file may lie, and the guard file beside it
pages        whether a file is sound enough to be mapped
blanks       the bytes of a file that no record fills
copies       files that take the place of others, or a place of their own
gate         who may use the map of a file, and who moves it
marker       that a file is a log, of which format, and the id that it was born with
environment  the one LMDB environment that a file has in a process
tables       local state that is no part of the log
refusals     every error of LMDB and the system as one of `branchmem.errors`
trees        the trees of a file, walked in plain Python
remains      what a damaged file still holds, read without LMDB
removal      how a log goes
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import lmdb

from branchmem import codec
from branchmem.errors import StoreClosed, StoreDamaged, StoreError, StoreForked, StoreReadOnly
from branchmem.log.copies import copy, made_anew
from branchmem.log.environment import GONE, Compacted, File, inherit, join, key, opening
from branchmem.log.marker import FORMAT
from branchmem.log.refusals import typed, typed_errors
from branchmem.log.tables import VECTORS, Table

__all__ = ["FORMAT", "Compacted", "Log", "Reader", "Table", "Writer", "made_anew"]

T = TypeVar("T")
_R = TypeVar("_R", bound="Reader")

#: What an event takes at least: a key and the record of an empty body.
LEAST_EVENT_BYTES: Final = 16

_NO_WORDS = memoryview(b"")
_NO_WORDS.release()


class _TablesMade(Exception):
    """Another process made tables, which a commit may have to look at: open them, and begin again."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.names = names


class Reader:
    """A snapshot of the log; it lives while the work that was given it runs."""

    def __init__(self, file: File, txn: lmdb.Transaction[bytes], tables: Mapping[str, Any]) -> None:
        self._file = file
        self._txn = txn
        self._tables = tables
        self.path = file.path
        self.exhausted = False
        self.wrote = False

    def blocks(self, after_seq: int) -> Iterator[tuple[int, bytes]]:
        """Yield (first seq, block) of all blocks whose first seq is above `after_seq`, in order."""
        with self._txn.cursor(self._file.skeletons) as cursor:
            if cursor.set_range(key(max(after_seq + 1, 0))):
                for place, block in cursor:
                    if len(place) != 8:
                        raise StoreDamaged(self._file.path, f"a block has the key {place[:16]!r}")
                    yield int.from_bytes(place, "big"), block
        self.exhausted = True

    def last_seq(self) -> int:
        """The first seq of the last block, 0 without one; no more than a file of this size can hold."""
        with self._txn.cursor(self._file.skeletons) as cursor:
            last = int.from_bytes(cursor.key(), "big") if cursor.last() else 0
        return min(last, os.path.getsize(self._file.path) // LEAST_EVENT_BYTES)

    def body(self, seq: int) -> bytes | None:
        """The canonical body of the event at `seq`, None where it was erased."""
        record = self._txn.get(key(seq), db=self._file.bodies)
        if record is None:
            raise StoreDamaged(self._file.path, "the body is missing", seq)
        try:
            return codec.decode_body(seq, record)
        except ValueError as error:
            raise StoreDamaged(self._file.path, str(error), seq) from None

    def count(self) -> int:
        """How many events the file says that it holds: one body each."""
        return int(self._txn.stat(self._file.bodies)["entries"])

    def table(self, name: str) -> Table:
        """A table of local state; the transaction must have been given its name."""
        return Table(self._txn, self._tables.get(name), self.path, name, self._has_written)

    def vector_tables(self) -> list[Table]:
        """The tables that keep vectors: inside a write all that the file has."""
        return [self.table(name) for name in self._tables if name.startswith(VECTORS)]

    def require(self, tables: Iterable[str]) -> None:
        """Refuse work inside of this that reads a table which the file has and this transaction was not given."""
        unknown = [name for name in tables if name not in self._tables]
        if unknown:
            with self._txn.cursor() as names:
                for name in unknown:
                    if names.set_key(name.encode()):
                        raise RuntimeError(f"{self.path}: the work around this must be given the table {name}")

    def _has_written(self) -> None:
        self.wrote = True

    def copy(self, draft: str) -> None:
        """Write this snapshot to the new file `draft`."""
        copy(self._file.env, self._txn, draft)

    def bodies(self, seqs: Iterable[int]) -> Iterator[bytes | None]:
        """Yield the body of each of `seqs`, in the order given."""
        return map(self.body, seqs)


class Writer(Reader):
    """A transaction that sees the newest state and keeps other writers out."""

    def put(self, first_seq: int, block: bytes, bodies: Sequence[bytes | None]) -> None:
        """Append a block and the canonical bodies of its events, None for one that was erased before it came.

        `first_seq` must lie beyond all before it.
        """
        self.wrote = True
        records = [(key(seq), codec.encode_body(seq, body)) for seq, body in enumerate(bodies, first_seq)]
        fits = self._txn.put(key(first_seq), block, append=True, db=self._file.skeletons)
        _, added = self._txn.cursor(self._file.bodies).putmulti(records, append=True)
        if not fits or added != len(records):
            raise ValueError(f"seq {first_seq} does not lie beyond the end of the log")

    def erase(self, seqs: Iterable[int]) -> None:
        """Remove the bodies at `seqs`, which must be there, for every reader from the commit on.

        Their bytes stand in pages of older states until the file is compacted.  Each seq once: of a large body
        that is written twice in one transaction LMDB would keep the pages.
        """
        for seq in seqs:
            self.wrote = True
            self._txn.put(key(seq), codec.encode_body(seq, None), db=self._file.bodies)


class Log:
    """A log on disk.  Safe under threads; use after a fork or after close is a typed error."""

    def __init__(self, file: File, *, readonly: bool) -> None:
        self._file = file
        self._words = file.words
        self._watch = (0, -1)
        self._closed = False
        self.path = file.path
        self.readonly = readonly
        self.log_id = file.log_id
        file.followers.add(self)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, readonly: bool = False, create: bool = True, verify: bool = False
    ) -> Log:
        """Open the log at `path`, made if absent unless `readonly` or not `create`.

        Waits for a writer in another process to end its transaction.  Raises: StoreLocked where another
        makes, replaces or deletes the file for too long.  Cost: `verify` reads the whole file in plain
        Python; else two pages.
        """
        name = os.path.abspath(os.fsdecode(path))
        with typed_errors(name, readonly):
            return cls(join(name, readonly=readonly, create=create, verify=verify), readonly=readonly)

    def changed(self) -> bool:
        """Whether some process committed since this log last gave out all blocks, or wrote.

        May be True without need, never False wrongly.  Cost: one look at the mapped meta page.
        """
        word, txnid = self._watch
        try:
            return self._words[word] != txnid
        except ValueError:
            raise self._refusal() from None

    @property
    def is_at_work(self) -> bool:
        """Whether this thread is inside of work on the file, which keeps its map where it is."""
        return getattr(self._file.here, "reader", None) is not None

    def read(self, work: Callable[[Reader], T], *, tables: Sequence[str] = ()) -> T:
        """Run `work` on one snapshot.  Inside other work on this file, on the snapshot of that.

        `tables` are those of local state that it reads.
        `work` must not wait for a write of another thread: the map cannot grow under a snapshot.
        """
        outer: Reader | None = getattr(self._file.here, "reader", None)
        if outer is not None:
            self._check()
            outer.require(tables)
            return work(outer)
        return self._transact(Reader, work, tables=tables)

    def write(
        self,
        work: Callable[[Writer], T],
        *,
        then: Callable[[T], object] = lambda out: None,
        tables: Sequence[str] = (),
    ) -> T:
        """Run `work` in one transaction, durable when this returns; an exception undoes it.

        `work` may run again, after the map has grown: it must be repeatable.  `then` gets what it
        returned once that is durable; where `then` is cut short, `changed` says so.  `tables` are those of local
        state that `work` reads or writes; they are made where the file lacks them.
        """
        self._check_writable("a write inside other work on the same file would wait for itself")
        with self._file.writing:
            return self._transact(Writer, work, then, tables=tables)

    def compact(self) -> Compacted:
        """Rewrite the file without its free pages; positions, ids and contents stay.

        Must have the log alone among processes; threads of this one read on, and wait with their writes.
        Raises: StoreLocked, with the processes that hold it.
        Cost: reads all records twice, writes them once, and walks the copy in plain Python: about 2 s for 100 MB.
        """
        self._check_writable("compacted inside work on the same file")
        with typed_errors(self.path, self.readonly):
            return self._file.compact()

    def backup(self, path: str | os.PathLike[str]) -> str:
        """Copy one snapshot to `path`, where nothing may be yet, and return its full name.

        Others read and write meanwhile; only where the map must grow does this process wait.
        Raises: StoreExists; StoreFull and the other errors of a store, about the copy.
        Cost: as `compact`.
        """
        self._check()
        with made_anew(path) as (target, draft):
            self.read(lambda reader: reader.copy(draft))
        return target

    def moved(self) -> None:
        """The file was replaced by its compacted copy: look at that."""
        self._watch = (0, -1)
        self._words = _NO_WORDS if self._closed else self._file.words

    def close(self) -> None:
        """Let go of the file, after the transactions of other threads.  Twice is once."""
        with opening():
            if self._closed:
                return
            if self.is_at_work and not self._file.forked:
                raise RuntimeError(f"{self.path}: closed inside its own work")
            self._closed = True
            self._words = _NO_WORDS
            self._file.leave()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _transact(
        self,
        kind: type[_R],
        work: Callable[[_R], T],
        then: Callable[[T], object] | None = None,
        *,
        tables: Sequence[str],
    ) -> T:
        file = self._file
        reopened = False
        made: Sequence[str] = ()
        while True:
            env, map_bytes = file.env, file.map_bytes
            try:
                try:
                    with file.gate:
                        self._check()
                        file.know(made, create=False)
                        file.know(tables, create=then is not None)
                        return self._run(kind, work, then)
                except _TablesMade as error:
                    made = error.names
                except lmdb.MapFullError:
                    file.grow(map_bytes)
                except lmdb.MapResizedError:
                    file.follow()
                except lmdb.PanicError:
                    if reopened:
                        raise
                    reopened = True
                    file.reopen(env)
            except lmdb.Error as error:
                raise typed(error, self.path, self.readonly) from error
            except BaseException:
                file.gate.leave()  # an interrupt may have struck on the way in or out
                raise

    def _run(self, kind: type[_R], work: Callable[[_R], T], then: Callable[[T], object] | None) -> T:
        file = self._file
        write = then is not None
        tables = dict(file.tables)  # one that another thread opens after the transaction began is not open to it
        txn = file.env.begin(write=write)
        try:
            if write:
                if file.gone:
                    raise StoreError(self.path, GONE)
                if unknown := file.unknown(txn):
                    raise _TablesMade(unknown)
                tables = dict(file.tables)  # nobody opens any while this thread writes
            reader = kind(file, txn, tables)
            file.here.reader = reader
            try:
                out = work(reader)
            finally:
                file.here.reader = None
            if file.forked:
                raise StoreForked(self.path)
            txnid = txn.id()
            txn.commit()
        except BaseException:
            if file.forked:
                inherit(txn)  # ending it here would end it in the parent too
            else:
                txn.abort()
            raise
        if then is not None:
            then(out)
        base = txnid - 1 if write else txnid
        if reader.exhausted or self._watch == file.watch(base):
            self._watch = file.watch(txnid if reader.wrote else base)
        return out

    def _check_writable(self, inside: str) -> None:
        """Refuse where this log may not write, or, saying `inside`, where this thread works on the file already."""
        self._check()
        if self.readonly:
            raise StoreReadOnly(self.path)
        if self.is_at_work:
            raise RuntimeError(f"{self.path}: {inside}")

    def _check(self) -> None:
        if self._closed or self._file.forked:
            raise self._refusal()

    def _refusal(self) -> StoreError:
        return StoreForked(self.path) if self._file.forked else StoreClosed(self.path)
