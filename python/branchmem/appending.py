"""What one commit writes: batches that came at one time, each judged as if those before it had been appended.

A batch is refused where it has other content for an id that is known.  Of an erased id only
what stays is compared, and its content is never written: neither with its erasure, nor after it.

What is held of bundles stands outside of the log, in a table of its own.  It goes with the commit that
erases it, or that erases what it came from.  What came from one log is judged by itself: no id of one
stranger reaches what another sent.  The vectors of what is erased go with the same commit, of every embedder.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple

from branchmem.canonical import Tag, new_id, pack, unpack
from branchmem.codec import MAX_BLOCK_EVENTS
from branchmem.errors import Error, EventConflict, InvalidEventType
from branchmem.eventlog import event_of
from branchmem.events import Erasure, Event, Memory, conflict
from branchmem.verdict import Appended

if TYPE_CHECKING:
    from branchmem import _core
    from branchmem.log import Reader, Writer

#: The table of local state that keeps what is held of bundles:
#: b"bundle" + bundle → whether it is held whole, issuer, origin, …; b"event" + bundle + id → skeleton and body.
HELD: Final = "held"
HELD_BUNDLE: Final = b"bundle\0"
_HELD_EVENT: Final = b"event\0"
#: In a table that keeps vectors: b"v" + position in the log → vector.
VECTOR: Final = b"v"
#: The id of a bundle, a UUID as text.
BUNDLE_BYTES: Final = 36
_LENGTH_BYTES: Final = 4
_ID_DIGITS: Final = 32
#: So many held events are judged at once, at least.
_PAGE: Final = 2_000


class Batch(NamedTuple):
    """Events to append together, and the canonical bytes of each."""

    events: Sequence[Event]
    skeletons: list[bytes]
    bodies: list[bytes]

    @classmethod
    def of(cls, events: Sequence[Event]) -> Batch:
        """The batch of these events."""
        return cls(events, [event.skeleton() for event in events], [event.body() for event in events])


def checked(events: Iterable[Event]) -> list[Event]:
    """The events of a batch, each of them an event.  Raises: InvalidEventType."""
    if isinstance(events, Event):
        raise InvalidEventType(f"a list of events is needed: write [{events!r:.80}]", events)
    batch = list(events)
    for event in batch:
        if not isinstance(event, Event):
            raise InvalidEventType(f"{event!r:.80} is no event: make a Message or a Memory of it", event)
    return batch


class Origin(NamedTuple):
    """The log that bundles came from: who signed them, and its id."""

    issuer: str
    log: str

    def id_here(self, id: str) -> str:
        """The id that an event of that log has in this one once it is adopted: of its id, never of its content.

        That of "" is the root message under which all of them stand.
        """
        import hashlib

        return f"held-{hashlib.sha256(pack((*self, id))).hexdigest()[:_ID_DIGITS]}"


class HeldEvent(NamedTuple):
    """An event that is held of a bundle, in its canonical bytes, and its key in the table."""

    key: bytes
    skeleton: bytes
    body: bytes


def held_event(reader: Reader, bundle: str, id: str) -> HeldEvent | None:
    """An event that is held of a bundle, None where it is not."""
    key = _HELD_EVENT + bundle.encode() + id.encode()
    value = reader.table(HELD).get(key)
    return None if value is None else _held(key, value)


def held_events(reader: Reader, bundle: str) -> Iterator[HeldEvent]:
    """What is held of a bundle, sorted by id."""
    return (_held(key, value) for key, value in _held_values(reader, bundle))


def _held_values(reader: Reader, bundle: str) -> Iterator[tuple[bytes, bytes]]:
    return reader.table(HELD).items(_HELD_EVENT + bundle.encode())


def _held(key: bytes, value: bytes) -> HeldEvent:
    end = _skeleton_end(value)
    return HeldEvent(key, value[_LENGTH_BYTES:end], value[end:])


def _skeleton_end(value: bytes) -> int:
    return _LENGTH_BYTES + int.from_bytes(value[:_LENGTH_BYTES], "little")


def hold(writer: Writer, bundle: str, id: str, skeleton: bytes, body: bytes) -> None:
    """Hold an event of a bundle."""
    key = _HELD_EVENT + bundle.encode() + id.encode()
    writer.table(HELD).put(key, len(skeleton).to_bytes(_LENGTH_BYTES, "little") + skeleton + body)


def vector_key(seq: int) -> bytes:
    """Where the vector of the memory at a position of the log stands in the table of an embedder."""
    return VECTOR + seq.to_bytes(8, "big")


def let_go(engine: _core.Engine, writer: Writer, causes: Sequence[bytes], only: str | None = None) -> int:
    """Remove what is held, of all bundles or of one, and is erased, or would be with these skeletons in the log.

    How many events that were.
    Cost: one pass over what is held, as `erased_among`; the keys of what goes.
    """
    count = 0
    for origin, bundles in _held_by_origin(writer, only).items():
        erased = erased_among(engine, causes, partial(_held_skeletons, writer, bundles), origin)
        places = (key for bundle in bundles for key, _ in _held_values(writer, bundle))
        gone = list(compress(places, erased)) if 1 in erased else []
        for key in gone:
            writer.table(HELD).delete(key)
        count += len(gone)
    return count


def _held_skeletons(reader: Reader, bundles: Iterable[str]) -> Iterator[bytes]:
    for bundle in bundles:
        for _, value in _held_values(reader, bundle):
            yield value[_LENGTH_BYTES : _skeleton_end(value)]


def _held_by_origin(reader: Reader, only: str | None) -> dict[Origin, list[str]]:
    found: dict[Origin, list[str]] = {}
    for key, value in reader.table(HELD).items(HELD_BUNDLE + (only or "").encode()):
        _, issuer, log, *_ = unpack(value)
        found.setdefault(Origin(issuer, log), []).append(key.removeprefix(HELD_BUNDLE).decode())
    return found


def erased_among(
    engine: _core.Engine, causes: Sequence[bytes], skeletons: Callable[[], Iterable[bytes]], origin: Origin
) -> bytearray:
    """For each of these events of another log, 1 where its content is erased here, or would be with `causes`
    in the log: by its own id, by what it came from, at any remove, or by the id that it has here once it is adopted.

    `causes` are the skeletons of erasures and of what they take; `skeletons` are given again and again, in one order.
    Cost: one pass, some microseconds an event; one more where something is erased that others came from.  Holds a
    byte an event, 24 bytes a reference of a memory in the second pass, and about as much as `causes`.
    """
    judge, erased, spreading = _Judge(engine, causes, origin), bytearray(), list[int]()
    for page in _pages(skeletons(), sum(map(len, causes))):
        found, spread = judge.judge(page)
        spreading += (len(erased) + at for at in spread)
        erased += found
    if spreading:
        _spread(erased, spreading, skeletons())
    return erased


class _Judge:
    """Finds what is erased among some events of another log, as far as these tell."""

    def __init__(self, engine: _core.Engine, causes: Sequence[bytes], origin: Origin) -> None:
        self._engine = engine
        self._causes = causes
        self._origin = origin
        root = origin.id_here("")
        self._is_adopted_from = engine.is_message(root)
        self._all_are_erased = self._is_adopted_from and bool(self._erased([_probe(sources=[root])]))

    def judge(self, page: Sequence[bytes]) -> tuple[bytearray, list[int]]:
        """Which of these are erased, and the places of those that take what came from them along."""
        erased = bytearray(len(page))
        looked = [*enumerate(page), *self._under_other_ids(page)]
        hits = [looked[at] for at in self._erased([skeleton for _, skeleton in looked])]
        if self._all_are_erased:
            hits += ((at, skeleton) for at, skeleton in enumerate(page) if skeleton[1] == Memory.code)
        if not hits:
            return erased, []
        for at, _ in hits:
            erased[at] = 1
        probes = [_probe(derived_from=[id_bytes(skeleton).decode()]) for _, skeleton in hits]
        taken = self._erased([*(skeleton for _, skeleton in looked), *probes])
        return erased, sorted({hits[at - len(looked)][0] for at in taken if at >= len(looked)})

    def _under_other_ids(self, page: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """Memories whose id is an event of the log, under one that is not; and all under that of their adoption."""
        for at, skeleton in enumerate(page):
            if skeleton[1] == Memory.code:
                id = id_bytes(skeleton).decode()
                if self._engine.event_seq(id) is not None:
                    yield at, _renamed(skeleton, new_id())
                if self._is_adopted_from:
                    yield at, _renamed(skeleton, self._origin.id_here(id))

    def _erased(self, skeletons: Sequence[bytes]) -> list[int]:
        places, _ = self._engine.erased_by([*self._causes, *skeletons])
        return [at - len(self._causes) for at in places if at >= len(self._causes)]


def _pages(skeletons: Iterable[bytes], least_bytes: int) -> Iterator[list[bytes]]:
    page, size = list[bytes](), 0
    for skeleton in skeletons:
        page.append(skeleton)
        size += len(skeleton)
        if len(page) >= _PAGE and size >= least_bytes:
            yield page
            page, size = [], 0
    if page:
        yield page


def _spread(erased: bytearray, spreading: Iterable[int], skeletons: Iterable[bytes]) -> None:
    """Mark what came from these places, at any remove.  Ids are compared by hashes of 8 bytes, keyed anew each run."""
    ids, above, below = array("q"), array("q"), array("Q")
    for at, skeleton in enumerate(skeletons):
        ids.append(hash(id_bytes(skeleton)))
        if skeleton[1] == Memory.code:
            flat = unpack(skeleton)
            for tag, named in zip(flat[2::2], flat[3::2], strict=True):
                for id in named if tag == Tag.DERIVED_FROM else [named] if tag == Tag.ADOPTS else ():
                    above.append(hash(id.encode()))
                    below.append(at)
    order = array("Q", sorted(range(len(above)), key=above.__getitem__))
    waiting, taken = list(spreading), bytearray(len(erased))
    while waiting:
        id = ids[waiting.pop()]
        place = bisect_left(order, id, key=above.__getitem__)
        while place < len(order) and above[order[place]] == id:
            at = below[order[place]]
            if not taken[at]:
                taken[at] = erased[at] = 1
                waiting.append(at)
            place += 1


def id_bytes(skeleton: bytes) -> bytes:
    """The id in a canonical skeleton."""
    start, end = _id_place(skeleton)
    return skeleton[start:end]


def _id_place(skeleton: bytes) -> tuple[int, int]:
    start, size = 3, skeleton[2] & 0x1F
    if skeleton[2] >= 0xD9:  # str 8 or str 16
        start = 4 if skeleton[2] == 0xD9 else 5
        size = int.from_bytes(skeleton[3:start], "big")
    return start, start + size


def _renamed(skeleton: bytes, id: str) -> bytes:
    """The canonical skeleton of the same event under another id."""
    return skeleton[:2] + pack([id])[1:] + skeleton[_id_place(skeleton)[1] :]


def _probe(*, sources: Iterable[str] = (), derived_from: Iterable[str] = ()) -> bytes:
    """A memory that nobody has."""
    return Memory(new_id(), "", sources=sources, derived_from=derived_from).skeleton()


class Commit:
    """The batches that go into one transaction.  The engine has seen all that the transaction sees."""

    def __init__(self, engine: _core.Engine, writer: Writer, *, alone: bool) -> None:
        self._engine = engine
        self._writer = writer
        self._alone = alone
        self._skeletons: list[bytes] = []
        self._bodies: list[bytes | None] = []
        #: What was written, as the engine folds it.
        self.blocks: list[tuple[int, bytes]] = []
        # what was taken, by id; nobody looks it up where one batch comes alone
        self._taken: dict[str, tuple[Event, bytes, bytes]] = {}

    def take(self, batch: Batch) -> Appended | Error:
        """Take in a batch, all of it or, where that is the answer, nothing: what its caller is told."""
        try:
            new = self._new_of(batch)
        except Error as refused:
            return refused.with_traceback(None)
        self._skeletons += [batch.skeletons[at] for at in new]
        self._bodies += [batch.bodies[at] for at in new]
        if not self._alone:
            known = ((batch.events[at], batch.skeletons[at], batch.bodies[at]) for at in new)
            self._taken.update((event.id, (event, skeleton, body)) for event, skeleton, body in known)
        return Appended(len(new), len(batch.events) - len(new), self._engine.seq + len(self._skeletons))

    @property
    def memories(self) -> list[bytes | None]:
        """The bodies of the memories that were written, in their order; None where one was erased before it came."""
        pairs = zip(self._skeletons, self._bodies, strict=True)
        return [body for skeleton, body in pairs if skeleton[1] == Memory.code]

    def write(self) -> None:
        """Write what was taken in, and remove the bodies and vectors that it erases."""
        bare, erased = self._engine.erased_by(self._skeletons)
        for at in bare:
            self._bodies[at] = None
        self.blocks = self._engine.encode(self._skeletons)
        for first_seq, block in self.blocks:
            start = first_seq - self.blocks[0][0]
            self._writer.put(first_seq, block, self._bodies[start : start + MAX_BLOCK_EVENTS])
        self._writer.erase(erased)
        for table in self._writer.vector_tables() if erased else ():
            for seq in erased:
                table.delete(vector_key(seq))
        erasures = [skeleton for skeleton in self._skeletons if skeleton[1] == Erasure.code]
        if bare or erased or erasures:
            let_go(self._engine, self._writer, [*erasures, *(self._skeletons[at] for at in bare)])

    def _new_of(self, batch: Batch) -> list[int]:
        """Which events of a batch are neither stored, nor repeated in it, nor taken into this commit before.

        Raises: EventConflict where one of them is there with other content.
        """
        events, skeletons, bodies = batch
        new, stored, repeated, clash = self._engine.plan(skeletons)
        if clash is not None:
            at, before = clash
            raise self._refusal(events[at], None if before is None else events[before])
        differing: dict[int, Event | None] = {
            at: None for at, seq in stored if self._writer.body(seq) != bodies[at]
        } | {at: events[before] for at, before in repeated if bodies[before] != bodies[at]}
        unknown = [at for at in new if events[at].id not in self._taken] if self._taken else new
        if len(unknown) < len(new):
            for at in sorted(set(new).difference(unknown)):
                known, skeleton, body = self._taken[events[at].id]
                if skeleton != skeletons[at]:
                    raise self._refusal(events[at], known)
                if body != bodies[at]:
                    differing[at] = known
        for at in sorted(differing.keys() - self._erased_with(batch, differing)):
            raise self._refusal(events[at], differing[at])
        return unknown

    def _erased_with(self, batch: Batch, places: Iterable[int]) -> set[int]:
        """Which of these places of a batch bear an id that is erased, once all up to this batch is appended."""
        asked = set(places)
        erased = {at for at in asked if self._engine.is_erased(batch.events[at].id)}
        if erased == asked:
            return erased
        bare, _ = self._engine.erased_by([*self._skeletons, *batch.skeletons])
        return erased | asked.intersection(at - len(self._skeletons) for at in bare)

    def _refusal(self, given: Event, known: Event | None) -> EventConflict:
        """The error for an event that differs from one that came before, or from the one that is stored.

        Raises: StoreDamaged where what is stored cannot be read.
        """
        known = known or event_of(self._engine, self._writer, given.id)
        return conflict(given.id, known.to_dict(), given.to_dict())
