"""A bundle from an issuer who is not pinned: nothing of it joins the log.

Messages and memories are held, where they are new here and erased by nobody.  Refused, and counted,
is what would change a view: retractions, restorations and erasures; what comes without content; what is
erased here or by the bundle itself; what bears an id that is something else here.  Its refs are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from branchmem import Memory, Message, Store, _core
from branchmem.appending import Origin, erased_among, held_event, hold, id_bytes, let_go
from branchmem.bundle.file import BundleFile
from branchmem.bundle.held import CLASH, TABLES, begin, complete, is_begun, require_begun
from branchmem.bundle.manifest import Manifest
from branchmem.bundle.receipts import Imported
from branchmem.errors import BundleRefused
from branchmem.events import Erasure

if TYPE_CHECKING:
    from branchmem.bundle.importing import Rounds
    from branchmem.log import Reader, Writer

UNDOING: Final = "that take back, restore or erase"
BARE: Final = "without content"
ERASED: Final = "erased"
OTHER: Final = "with other content here"

_HOLDS: Final = frozenset((Message.code, Memory.code))


class _Record(NamedTuple):
    """An event of the bundle, in its canonical bytes; no body where its content was erased."""

    id: str
    skeleton: bytes
    body: bytes | None


class _Sorted(NamedTuple):
    """What becomes of some events of a bundle."""

    new: list[_Record]
    duplicates: int
    #: How many are refused, by why.
    refused: Counter[str]


def keep_apart(store: Store, bundle: BundleFile, said: Imported, rounds: Rounds) -> Imported:
    """Hold what of a bundle may be held.  Raises: BundleRefused where another one with its id is held."""
    proven = bundle.verify(progress=rounds.checked)
    holding = _Holding(store, bundle, [skeleton for skeleton in proven.apart if skeleton[1] == Erasure.code])
    del proven
    if said.dry_run or holding.is_known():
        found = holding.look_at_all(rounds if said.dry_run else None)
    if not said.dry_run:
        found = holding.hold_all(rounds)
    return replace(said, held=found.kept, duplicates=found.duplicates, refused=dict(found.refused))


class _Found:
    """What becomes of the events of a bundle, so far."""

    def __init__(self) -> None:
        self.taken = self.kept = self.duplicates = 0
        self.refused = Counter[str]()

    def add(self, some: _Sorted, count: int) -> None:
        """Count some more."""
        self.taken += count
        self.kept += len(some.new)
        self.duplicates += some.duplicates
        self.refused += some.refused


class _Holding:
    """A bundle that is being taken apart: what is held goes into the table, the rest is counted."""

    def __init__(self, store: Store, bundle: BundleFile, erasures: Sequence[bytes]) -> None:
        self._store = store
        self._bundle = bundle
        self._erasures = erasures
        self._erased = _erased(store, bundle, erasures)

    def is_known(self) -> bool:
        """Whether it is held, or was begun to be.  Raises: BundleRefused where another one bears its id."""
        manifest, path = self._bundle.manifest, self._bundle.path
        return self._store.snapshot(lambda reader: is_begun(reader, manifest, path), tables=TABLES)

    def look_at_all(self, rounds: Rounds | None) -> _Found:
        """What becomes of each event; nothing is written.

        Raises: BundleRefused where another one bears its id, or one of its events is held with other content.
        """
        self.is_known()
        found = _Found()
        for records in _records(self._bundle):
            look = self._sorting(records, found.taken)
            found.add(self._store.snapshot(look, tables=TABLES), len(records))
            if rounds is not None:
                rounds.taken(found.taken)
        return found

    def hold_all(self, rounds: Rounds) -> _Found:
        """Hold what may be held, a frame in one transaction; with the last one the bundle is listed.

        Raises: BundleRefused as `look_at_all`, and where the bundle was dropped meanwhile.
        """
        store, manifest, path = self._store, self._bundle.manifest, self._bundle.path

        def start(writer: Writer) -> tuple[tuple[()], None]:
            begin(writer, manifest, path)
            return (), None

        def end(writer: Writer) -> tuple[tuple[()], int]:
            require_begun(writer, manifest, path)
            gone, engine = 0, store._fresh()
            if self._erasures or engine.has_erasures():  # some may have come meanwhile
                gone = let_go(engine, writer, self._erasures, manifest.id)
            complete(writer, manifest)
            return (), gone

        store.transact(start, tables=TABLES)
        found = _Found()
        for records in _records(self._bundle):
            look = self._sorting(records, found.taken)
            found.add(store.transact(partial(_hold, look, manifest, path), tables=TABLES)[1], len(records))
            rounds.taken(found.taken)
        gone = store.transact(end, tables=TABLES)[1]
        found.kept -= gone
        found.refused += Counter({ERASED: gone})
        return found

    def _sorting(self, records: Sequence[_Record], start: int) -> Callable[[Reader], _Sorted]:
        """What tells, inside of a transaction, what becomes of the events from position `start` on."""
        manifest, path = self._bundle.manifest, self._bundle.path
        erased = self._erased[start : start + len(records)] or bytes(len(records))
        engine = self._store._fresh()  # a snapshot that is taken from now on has all that it knows

        def look(reader: Reader) -> _Sorted:
            found = _sort(engine, reader, records, erased)
            for id, skeleton, body in found.new:
                before = held_event(reader, manifest.id, id)
                if before is not None and (before.skeleton, before.body) != (skeleton, body):
                    raise BundleRefused(path, CLASH)
            return found

        return look


def _hold(
    look: Callable[[Reader], _Sorted], manifest: Manifest, path: str, writer: Writer
) -> tuple[tuple[()], _Sorted]:
    require_begun(writer, manifest, path)
    found = look(writer)
    for id, skeleton, body in found.new:
        hold(writer, manifest.id, id, skeleton, body or b"")
    return (), found


def _records(bundle: BundleFile) -> Iterator[list[_Record]]:
    """The events of a bundle, a frame at a time."""
    for payload in bundle.frames():
        skeletons, bodies = _core.split_records(payload)
        yield [
            _Record(id_bytes(skeleton).decode(), skeleton, body)
            for skeleton, body in zip(skeletons, bodies, strict=True)
        ]


def _erased(store: Store, bundle: BundleFile, erasures: Sequence[bytes]) -> bytearray:
    """For each event of a bundle, 1 where it is erased by the log or by these erasures of the bundle; nothing where
    there are no erasures."""
    engine = store._fresh()
    if not (erasures or engine.has_erasures()):
        return bytearray()

    def skeletons() -> Iterator[bytes]:
        return (skeleton for payload in bundle.frames() for skeleton in _core.split_records(payload)[0])

    return erased_among(engine, erasures, skeletons, Origin(bundle.manifest.issuer, bundle.manifest.origin))


def _sort(engine: _core.Engine, reader: Reader, records: Iterable[_Record], erased: Iterable[int]) -> _Sorted:
    """What becomes of each event; `erased` says of each whether its content is erased."""
    new, duplicates, refused = list[_Record](), 0, Counter[str]()
    for record, is_erased in zip(records, erased, strict=True):
        found = engine.skeleton(record.id)
        if found is not None and _is_same(engine, reader, record, *found):
            duplicates += 1
        elif record.skeleton[1] not in _HOLDS:
            refused[UNDOING] += 1
        elif record.body is None:
            refused[BARE] += 1
        elif found is not None:
            refused[OTHER] += 1
        elif is_erased:
            refused[ERASED] += 1
        else:
            new.append(record)
    return _Sorted(new, duplicates, refused)


def _is_same(engine: _core.Engine, reader: Reader, record: _Record, seq: int, skeleton: bytes) -> bool:
    """Whether an event is what is stored here; of an erased one only what stays is compared."""
    return skeleton == record.skeleton and (
        engine.is_erased(record.id) or (record.body is not None and record.body == reader.body(seq))
    )
