"""A log, or what some of its refs need, as a bundle: one signed file that others can take in.

A bundle tells one state of the log, with the refs as they stood in it.  What an erasure took does not
travel, not even where the erasure came while the bundle was being written: then it is written anew.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from branchmem import Store, _core, canonical, new_id
from branchmem.bundle.file import BundleFile
from branchmem.bundle.keys import Key, fingerprint, is_fingerprint, load_key
from branchmem.bundle.manifest import Base
from branchmem.bundle.pins import TABLES as PINS
from branchmem.bundle.pins import Numbered, next_number, note_exported
from branchmem.bundle.receipts import Exported
from branchmem.bundle.selection import needed
from branchmem.bundle.writing import BundleWriter
from branchmem.errors import BundleNotWritten, BundleRefused, InvalidTime
from branchmem.eventlog import body_of, skeleton_of
from branchmem.events import Erasure, Retraction, skeleton_fields
from branchmem.refs import TABLES as REFS
from branchmem.refs import all_heads, head

if TYPE_CHECKING:
    from branchmem.log import Reader, Writer

#: Beside the pins: b"all" + bundle → nothing; who has this bundle, and those that it goes on from, has all of the log.
_ALL: Final = b"all\0"
_PAGE: Final = 1000
_ERASED: Final = b"erased"


def export_bundle(
    store: Store,
    path: str | os.PathLike[str],
    *,
    key: Key | str | os.PathLike[str],
    refs: Iterable[str] | None = None,
    since: str | os.PathLike[str] | None = None,
    recipient: str | None = None,
    expires: datetime | None = None,
    progress: Callable[[int, int | None], object] | None = None,
    now: Callable[[], datetime] = canonical.now,
) -> Exported:
    """Write all of the log with all refs, or what the given refs need, to a new bundle at `path`, signed with `key`.

    With `since`, an earlier bundle of this log by the same key, only what is not in it; who imports the
    new one must have imported that.  `recipient`, the public key or the fingerprint of one, is the only key
    that it can be imported with: it is not encrypted.  From `expires` on it is refused.
    The number of the bundle is taken in any case.

    Raises: UnknownRef; StoreExists, StoreFull, BundleNotWritten about `path`; BundleRefused about `since`; InvalidKey;
    InvalidTime about `expires`; StoreReadOnly; ExtraMissing.
    Cost: reads the events that travel, and, unless `since` is given, once more for the digest; streams.  Writers
    wait while what refs need is found.
    """
    if expires is not None and (not isinstance(expires, datetime) or expires.utcoffset() is None):
        raise InvalidTime("expires", expires, "it is an aware datetime: datetime.now(UTC) + timedelta(days=7)")
    names = None if refs is None else _listed(refs, os.fsdecode(path))
    signer = key if isinstance(key, Key) else load_key(key)
    reader = recipient if recipient is None or is_fingerprint(recipient) else fingerprint(recipient)
    earlier = None if since is None else _earlier(store, since, signer)
    while True:
        with BundleWriter(path) as writer:
            id = new_id()
            part = _part(store, id, names, earlier, now())
            digest = _write(store, writer, part, progress)
            store.refresh()
            if part.gone != _gone(store, part.gone.memories):
                continue
            manifest = writer.finish(
                signer,
                id=id,
                origin=store._log.log_id.hex(),
                number=part.number,
                seq=part.seq,
                created=now(),
                refs=part.refs,
                base=None if earlier is None else earlier.base,
                expires=expires,
                recipient=reader,
                digest=digest,
            )
        return Exported(os.path.abspath(os.fsdecode(path)), manifest)


class _Earlier(NamedTuple):
    """The bundle that another goes on from."""

    base: Base
    seq: int
    #: Whether this store made it, and all of the log up to its seq is in it and in those that it goes on from.
    is_all: bool
    #: Else the positions of its events.
    seqs: array[int]


class _Part(NamedTuple):
    """What of the log travels: the state that a bundle tells."""

    number: int
    seq: int
    refs: Mapping[str, str]
    #: At each position whether its event travels.
    chosen: bytearray
    gone: _Gone
    is_new: bool


class _Gone(NamedTuple):
    """What erasures had taken of a log: while this stays the same, so does what travels without content."""

    #: How many erasures there were, how many memories, and how many of these without content.
    erasures: int
    memories: int
    erased: int


def _listed(refs: Iterable[str], path: str) -> list[str]:
    if isinstance(refs, str):
        raise TypeError(f"refs is a list of names: write [{refs!r:.80}]")
    names = list(refs)
    if not names:
        raise BundleNotWritten(path, "no ref is named: name some, or leave refs out for all of the log")
    return names


def _earlier(store: Store, path: str | os.PathLike[str], key: Key) -> _Earlier:
    """The bundle at `path`, of this log and by this key.  Raises: BundleRefused."""
    with BundleFile.open(path) as bundle:
        manifest = bundle.manifest
        if manifest.origin != store._log.log_id.hex():
            raise BundleRefused(
                bundle.path, f"it is of log {manifest.origin}: only a bundle of this log can be gone on from"
            )
        if manifest.issuer != key.public:
            raise BundleRefused(bundle.path, f"it was signed by {manifest.fingerprint}: go on from it with that key")
        base = Base(manifest.number, manifest.id)
        seqs = array("I")
        is_all = store.snapshot(lambda reader: reader.table("pins").get(_ALL + manifest.id.encode()), tables=PINS)
        if is_all is None:
            bundle.verify(lambda payload: seqs.extend(_seqs(store._fresh(), payload)))
        return _Earlier(base, manifest.seq, is_all is not None, seqs)


def _seqs(engine: _core.Engine, payload: bytes) -> Iterator[int]:
    """The positions of the events of a frame that the log has."""
    for skeleton in _core.split_records(payload)[0]:
        seq = engine.event_seq(skeleton_fields(skeleton)["id"])
        if seq is not None:
            yield seq


def _part(store: Store, id: str, names: list[str] | None, earlier: _Earlier | None, now: datetime) -> _Part:
    """Decide what travels in the bundle of this id, and number it: in one transaction."""

    def plan(writer: Writer) -> tuple[tuple[()], _Part]:
        engine = store._fresh()
        seq = engine.seq
        refs = all_heads(writer) if names is None else {name: head(writer, name) for name in names}
        chosen = bytearray(b"\1") * seq if names is None else needed(store, refs.values())
        number = next_number(writer, now)
        if earlier is not None:
            number = max(number, earlier.base.number + 1)
            if earlier.is_all:
                chosen[: earlier.seq] = bytes(earlier.seq)
            for known in earlier.seqs:
                chosen[known] = 0
        note_exported(writer, Numbered(number, id))
        if names is None:
            writer.table("pins").put(_ALL + id.encode(), b"")
        return (), _Part(number, seq, refs, chosen, _gone(store), earlier is None)

    return store.transact(plan, tables=(*PINS, *REFS))[1]


def _gone(store: Store, memories: int | None = None) -> _Gone:
    """What erasures have taken of the first so many memories of a log, or of all."""
    engine = store._fresh()
    erasures = len(engine.ids_of(Erasure.type))
    end = len(store.memory_ids) if memories is None else memories
    pages = (engine.memory_ids(start, min(start + _PAGE, end)) for start in range(0, end if erasures else 0, _PAGE))
    return _Gone(erasures, end, sum(sum(map(engine.is_erased, page)) for page in pages))


def _write(
    store: Store, writer: BundleWriter, part: _Part, progress: Callable[[int, int | None], object] | None
) -> str | None:
    """Write the events that travel; the digest of a log that holds exactly them, where that is all."""
    engine, total = store._fresh(), sum(part.chosen)

    def read(reader: Reader) -> str | None:
        store.refresh()  # the engine has seen all of this snapshot
        done = 0
        for page in _pages(engine, part):
            writer.write(_records(engine, reader, page))
            done += len(page)
            if progress is not None:
                progress(done, total)
        return _digest(engine, reader, part.chosen) if part.is_new else None

    return store.snapshot(read, tables=())


def _pages(engine: _core.Engine, part: _Part) -> Iterator[list[str]]:
    """The ids of the events that travel, some at a time: erasures, then retractions, then the rest in order.

    Whoever stops half-way while he takes them in shows nothing that is erased or taken back.
    """
    chosen = part.chosen
    first = [
        id
        for type in (Erasure.type, Retraction.type)
        for id in engine.ids_of(type)
        if (seq := engine.event_seq(id)) is not None and seq < part.seq and chosen[seq]
    ]
    for start in range(0, len(first), _PAGE):
        yield first[start : start + _PAGE]
    skipped = frozenset(first)
    for start in range(0, part.seq, _PAGE):
        stop = min(start + _PAGE, part.seq)
        if any(chosen[start:stop]):
            ids = zip(chosen[start:stop], engine.event_ids(start, stop), strict=True)
            page = [id for travels, id in ids if travels and id not in skipped]
            if page:
                yield page


def _records(engine: _core.Engine, reader: Reader, ids: Iterable[str]) -> Iterator[tuple[bytes, bytes | None]]:
    """The canonical skeleton of each event, and its body: None where the log says that it was erased."""
    for id in ids:
        seq, skeleton = skeleton_of(engine, id)
        yield skeleton, body_of(engine, reader, id, seq)


def _digest(engine: _core.Engine, reader: Reader, chosen: bytearray) -> str:
    """As `Store.digest` of a store that holds these events."""
    digest, end = hashlib.sha256(), len(chosen)
    for id in engine.sorted_ids():
        seq, skeleton = skeleton_of(engine, id)
        if seq < end and chosen[seq]:
            body = body_of(engine, reader, id, seq)
            digest.update(skeleton)
            digest.update(_ERASED if body is None else body)
    return digest.hexdigest()
