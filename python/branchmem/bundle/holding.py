"""A bundle from an issuer who is not pinned: nothing of it joins the log.

Messages and memories are held, where they are new here and erased by nobody.  Refused, and counted,
is what would change a view: retractions, restorations and erasures; what comes without content; what is
erased here or by the bundle itself; what bears an id that is something else here.  Its refs are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from branchmem import Memory, Message, Store, _core
from branchmem.appending import hold, let_go
from branchmem.bundle.arriving import id_bytes
from branchmem.bundle.file import BundleFile
from branchmem.bundle.held import CLASH, TABLES, begin, complete
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
    records: list[_Record] = []
    for some in _records(bundle):
        if records:
            holding.take(records, is_last=False, dry_run=said.dry_run)
            rounds.taken(holding.taken)
        records = some
    holding.take(records, is_last=True, dry_run=said.dry_run)
    rounds.taken(holding.taken)
    return replace(said, held=holding.kept, duplicates=holding.duplicates, refused=dict(holding.refused))


class _Holding:
    """A bundle that is being taken apart: what is held goes into the table, the rest is counted."""

    def __init__(self, store: Store, bundle: BundleFile, erasures: Sequence[bytes]) -> None:
        self.taken = self.kept = self.duplicates = 0
        self.refused = Counter[str]()
        self._store = store
        self._bundle = bundle
        self._erasures = erasures
        self._erased = _erased(store, bundle, erasures)

    def take(self, records: Sequence[_Record], *, is_last: bool, dry_run: bool) -> None:
        """Hold the next events, in one transaction, or in a dry run say what would become of them.

        With the last ones the bundle is listed, without what was erased in the meantime.
        """
        store, manifest = self._store, self._bundle.manifest

        def look(reader: Reader) -> _Sorted:
            return _sort(store._fresh(), reader, records, self._erased)

        def plan(writer: Writer) -> tuple[tuple[()], tuple[_Sorted, int]]:
            found, gone = look(writer), 0
            if found.new:
                begin(writer, manifest, self._bundle.path)
            for record in found.new:
                if not hold(writer, manifest.id, record.id, record.skeleton, record.body or b""):
                    raise BundleRefused(self._bundle.path, CLASH)
            if is_last and (found.new or self.kept):
                complete(writer, manifest)
                if self._erasures or store._fresh().has_erasures():
                    gone = let_go(store._fresh(), writer, self._erasures, manifest.id)
            return (), (found, gone)

        found, gone = (store.snapshot(look, tables=()), 0) if dry_run else store.transact(plan, tables=TABLES)[1]
        self.taken += len(records)
        self.kept += len(found.new) - gone
        self.duplicates += found.duplicates
        self.refused += found.refused + Counter({ERASED: gone})


def _records(bundle: BundleFile) -> Iterator[list[_Record]]:
    """The events of a bundle, a frame at a time."""
    for payload in bundle.frames():
        skeletons, bodies = _core.split_records(payload)
        yield [
            _Record(id_bytes(skeleton).decode(), skeleton, body)
            for skeleton, body in zip(skeletons, bodies, strict=True)
        ]


def _erased(store: Store, bundle: BundleFile, erasures: Sequence[bytes]) -> Set[str]:
    """The ids of a bundle that are erased, by the log or by these erasures of the bundle, at any remove."""
    engine = store._fresh()
    if not (erasures or engine.has_erasures()):
        return frozenset()
    content = [
        skeleton for payload in bundle.frames() for skeleton in _core.split_records(payload)[0] if skeleton[1] in _HOLDS
    ]
    bare, _ = engine.erased_by([*erasures, *content])
    return {id_bytes(content[at - len(erasures)]).decode() for at in bare if at >= len(erasures)}


def _sort(engine: _core.Engine, reader: Reader, records: Iterable[_Record], erased: Set[str]) -> _Sorted:
    """What becomes of each event, as the log is now."""
    new, duplicates, refused = list[_Record](), 0, Counter[str]()
    for record in records:
        found = engine.skeleton(record.id)
        if found is not None and _is_same(engine, reader, record, *found):
            duplicates += 1
        elif record.skeleton[1] not in _HOLDS:
            refused[UNDOING] += 1
        elif record.body is None:
            refused[BARE] += 1
        elif found is not None:
            refused[OTHER] += 1
        elif record.id in erased:
            refused[ERASED] += 1
        else:
            new.append(record)
    return _Sorted(new, duplicates, refused)


def _is_same(engine: _core.Engine, reader: Reader, record: _Record, seq: int, skeleton: bytes) -> bool:
    """Whether an event is what is stored here; of an erased one only what stays is compared."""
    return skeleton == record.skeleton and (
        engine.is_erased(record.id) or (record.body is not None and record.body == reader.body(seq))
    )
