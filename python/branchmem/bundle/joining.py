"""A bundle from a pinned issuer: its events join the log as they are, and its refs come with them.

What the log has already must be the same there and here; then nothing that is appended can fail.
What an erasure of either side takes arrives without content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, overload

from branchmem import Memory, Message, Store, _core
from branchmem.appending import Batch, id_bytes
from branchmem.bundle import held
from branchmem.bundle.admission import admitted, note
from branchmem.bundle.arriving import CREATED, DIVERGED, FAST_FORWARD, UNCHANGED, Arriving, Trial, Way, way_of
from branchmem.bundle.file import BundleFile
from branchmem.bundle.pins import TABLES as PINS
from branchmem.bundle.receipts import Arrived, Imported
from branchmem.errors import BundleRefused, Error, EventConflict, MergeConflict, StoreError
from branchmem.events import Erasure, Event, conflict, event_from_bytes
from branchmem.merge import Conflict, Plan, Resolved, Strategy, World, plan_merge
from branchmem.refs import TABLES as REFS
from branchmem.refs import all_heads, head, write_move

if TYPE_CHECKING:
    from branchmem.bundle.importing import Rounds
    from branchmem.log import Reader, Writer

#: A commit is full with so many events, or with so many bytes of them.
_BATCH: Final = 10_000
_BATCH_BYTES: Final = 8 << 20
#: The canonical body that stands for content which was erased.
_EMPTY: Final = {Message.code: Message("_", None).body(), Memory.code: Memory("_", "").body()}


def join(
    store: Store,
    bundle: BundleFile,
    said: Imported,
    rounds: Rounds,
    names: Mapping[str, str] | None,
    strategy: Strategy,
) -> Imported:
    """Check a bundle of a pinned issuer against the log, then append it, and let the refs follow."""
    arriving, known = Arriving(store, bundle, names), _Known(store)

    def visit(payload: bytes) -> None:
        skeletons, bodies = _core.split_records(payload)
        arriving.meet(skeletons)
        known.meet(skeletons, bodies)

    proven = bundle.verify(visit, progress=rounds.checked)
    known.prove(bundle, proven.apart)
    del proven
    ways = arriving.ways()
    planned = _planned(store, bundle, ways, strategy, dry_run=said.dry_run)
    said = replace(said, imported=known.new, duplicates=known.stored)
    if said.dry_run:
        return _with_refs(said, ways, planned)
    joining = _Joining(store, bundle)
    try:
        for skeletons, bodies in _batches(bundle):
            joining.append(skeletons, bodies)
            rounds.taken(joining.done)
        joining.end()
        ways = _follow(store, bundle, arriving.heads)
        merged = {way.name: _merge(store, way, strategy) for way in ways if way.how == DIVERGED}
    except StoreError:
        raise
    except Error as error:
        # the store or the file was changed since all of it was checked
        if not joining.done:
            raise
        raise BundleRefused(bundle.path, _why(error), joining.done) from error
    return _with_refs(said, ways, merged)


def _why(error: Error) -> str:
    if isinstance(error, MergeConflict):
        said = f"{error.conflicts[0]} came to be in conflict on {error.into} while it was being taken in"
        return f"{said}: import it again with a strategy"
    return error.why if isinstance(error, BundleRefused) else str(error)


class _Joining:
    """Appends the events of a bundle, each batch in one transaction, and only while the bundle is admitted.

    What comes without content waits until the log itself says that it was erased, so that whoever is stopped on the
    way leaves nothing that looks as if it had never had any.
    """

    def __init__(self, store: Store, bundle: BundleFile) -> None:
        #: So many events were appended, or found to be there.
        self.done = 0
        self._store = store
        self._bundle = bundle
        self._waiting: list[bytes] = []

    def append(self, skeletons: Sequence[bytes], bodies: Sequence[bytes | None]) -> None:
        """Append the next events, with those before them that were waiting for one of these.

        Raises: BundleRefused where the bundle is not admitted any more; EventConflict.
        """
        skeletons, bodies = [*self._waiting, *skeletons], [*(None for _ in self._waiting), *bodies]

        def plan(writer: Writer) -> tuple[Batch, list[bytes]]:
            _require(writer, self._bundle)
            waiting = set[int]()
            if None in bodies:
                erased, _ = self._store._fresh().erased_by(skeletons)
                waiting = {at for at, body in enumerate(bodies) if body is None}.difference(erased)
            events = [at for at in range(len(skeletons)) if at not in waiting] if waiting else range(len(skeletons))
            return _batch(skeletons, bodies, events), [skeletons[at] for at in sorted(waiting)]

        _, self._waiting = self._store.transact(plan, tables=PINS)
        self.done += len(skeletons) - len(self._waiting)

    def end(self) -> None:
        """Refuse the bundle where something is still waiting.  Raises: BundleRefused."""
        if self._waiting:
            raise BundleRefused(self._bundle.path, _unexplained(self._waiting[0]))


def _require(reader: Reader, bundle: BundleFile) -> None:
    """Refuse, inside a transaction, a bundle that may not join any more.  Raises: BundleRefused."""
    if admitted(reader, bundle) is None:
        raise BundleRefused(bundle.path, "its key was unpinned meanwhile: pin it again, and import it again")


def _unexplained(skeleton: bytes) -> str:
    return f"event {id_bytes(skeleton).decode()} has no content, and no erasure says why: ask for a new one"


class _Known:
    """What of a bundle the log has already, while its frames are being read."""

    def __init__(self, store: Store) -> None:
        self.new = 0
        self.stored = 0
        self._store = store
        # other content for an id that is known, which may yet turn out to be erased
        self._differing: list[tuple[bytes, bytes]] = []

    def meet(self, skeletons: list[bytes], bodies: list[bytes | None]) -> None:
        """Compare the events of a frame with the log.  Raises: EventConflict."""
        engine = self._store._fresh()
        new, stored, _, clash = engine.plan(skeletons)
        if clash is not None:
            at = clash[0]
            raise self._conflict(skeletons[at], bodies[at])
        self.new += len(new)
        self.stored += len(stored)
        if stored:
            self._differing += self._store.snapshot(
                lambda reader: list(_differing(engine, reader, skeletons, bodies, stored)), tables=()
            )

    def prove(self, bundle: BundleFile, apart: Sequence[bytes]) -> None:
        """Refuse content that is missing, or other than here, where no erasure of the log or the bundle says why.

        Raises: BundleRefused; EventConflict.
        """
        differing = [skeleton for skeleton, _ in self._differing]
        bare, _ = self._store._fresh().erased_by([*apart, *differing])
        proven = frozenset(bare)
        for at, skeleton in enumerate(apart):
            if at not in proven and skeleton[1] != Erasure.code:
                raise BundleRefused(bundle.path, _unexplained(skeleton))
        for at, (skeleton, body) in enumerate(self._differing, len(apart)):
            if at not in proven:
                raise self._conflict(skeleton, body)

    def _conflict(self, skeleton: bytes, body: bytes | None) -> EventConflict:
        given = _event(skeleton, body)
        return conflict(given.id, self._store.log.get(given.id).to_dict(), given.to_dict())


def _differing(
    engine: _core.Engine,
    reader: Reader,
    skeletons: Sequence[bytes],
    bodies: Sequence[bytes | None],
    stored: Iterable[tuple[int, int]],
) -> Iterator[tuple[bytes, bytes]]:
    """What has other content here and is not erased here."""
    for at, seq in stored:
        body = bodies[at]
        if body is not None and body != reader.body(seq) and not engine.is_erased(id_bytes(skeletons[at]).decode()):
            yield skeletons[at], body


def _planned(
    store: Store, bundle: BundleFile, ways: Iterable[Way], strategy: Strategy, *, dry_run: bool
) -> dict[str, Plan]:
    """What the merges of the refs that went two ways would write, by name.  Raises: MergeConflict, unless a dry run."""
    diverged = [way for way in ways if way.how == DIVERGED]
    if not diverged:
        return {}
    trial, planned = Trial(store, bundle), dict[str, Plan]()
    for way in diverged:
        planned[way.name] = plan = trial.merge(way, strategy)
        if plan.undecided and not dry_run:
            raise MergeConflict(way.name, plan.undecided)
    return planned


def _batches(bundle: BundleFile) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
    """The skeletons and bodies of a bundle, as many at a time as go into one commit."""
    skeletons, bodies, size = list[bytes](), list[bytes | None](), 0
    for payload in bundle.frames():
        more, contents = _core.split_records(payload)
        skeletons += more
        bodies += contents
        size += len(payload)
        if len(skeletons) >= _BATCH or size >= _BATCH_BYTES:
            yield skeletons, bodies
            skeletons, bodies, size = [], [], 0
    if skeletons:
        yield skeletons, bodies


def _batch(skeletons: Sequence[bytes], bodies: Sequence[bytes | None], places: Iterable[int]) -> Batch:
    """The events at some of these places; of those without content the log keeps none, whatever is given here."""
    chosen = [(skeletons[at], bodies[at]) for at in places]
    some = [skeleton for skeleton, _ in chosen]
    contents = [_EMPTY[skeleton[1]] if body is None else body for skeleton, body in chosen]
    return Batch(_Events(some, contents), some, contents)


class _Events(Sequence[Event]):
    """Events that are made of their bytes when somebody asks for one."""

    def __init__(self, skeletons: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        self._skeletons = skeletons
        self._bodies = bodies

    def __len__(self) -> int:
        return len(self._skeletons)

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Event]: ...
    def __getitem__(self, at: int | slice) -> Event | Sequence[Event]:
        if isinstance(at, slice):
            return _Events(self._skeletons[at], self._bodies[at])
        return event_from_bytes(self._skeletons[at], self._bodies[at])


def _event(skeleton: bytes, body: bytes | None) -> Event:
    return event_from_bytes(skeleton, _EMPTY[skeleton[1]] if body is None else body)


def _follow(store: Store, bundle: BundleFile, heads: Mapping[str, str]) -> list[Way]:
    """Make and move refs, note that the bundle was imported, and hold nothing of it any more: in one transaction."""
    manifest = bundle.manifest

    def plan(writer: Writer) -> tuple[tuple[()], list[Way]]:
        _require(writer, bundle)
        engine, ours = store._fresh(), all_heads(writer)
        ways = [way_of(name, ours.get(name), theirs, engine.is_ancestor) for name, theirs in heads.items()]
        for way in ways:
            if way.how in (CREATED, FAST_FORWARD):
                write_move(writer, way.name, way.theirs, "import")
        note(writer, manifest)
        return (), ways

    ways = store.transact(plan, tables=(*PINS, *REFS))[1]
    held.forget(store, manifest)
    return ways


def _merge(store: Store, way: Way, strategy: Strategy) -> Plan:
    """Bring what the branch of a ref of the bundle sees to the ref here, which went another way."""

    def plan(writer: Writer) -> tuple[Sequence[Event], Plan]:
        ours = head(writer, way.name)
        planned = plan_merge(World.of(store), way.theirs, ours, strategy)
        if planned.undecided:
            raise MergeConflict(way.name, planned.undecided)
        if planned.after != ours:
            write_move(writer, way.name, planned.after, "import")
        return planned.events, planned

    return store.transact(plan, tables=REFS)[1]


def _with_refs(said: Imported, ways: Iterable[Way], plans: Mapping[str, Plan]) -> Imported:
    adopted: dict[str, str] = {}
    conflicts, resolved, arrived = list[Conflict](), list[Resolved](), list[Arrived]()
    for way in ways:
        after, how, plan = way.theirs, way.how, plans.get(way.name)
        if way.how == UNCHANGED:
            after = way.ours or way.theirs
        if plan is not None:
            after = plan.after
            how = "conflict" if plan.undecided else UNCHANGED if plan.after == plan.before else "merged"
            adopted |= plan.adopted
            conflicts += plan.conflicts
            resolved += plan.resolved
        arrived.append(Arrived(way.name, way.ours, after, way.theirs, how))
    return replace(said, refs=tuple(arrived), adopted=adopted, conflicts=tuple(conflicts), resolved=tuple(resolved))
