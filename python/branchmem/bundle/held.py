"""What came from issuers who are not pinned: kept outside of the log, where no view can show it.

Messages and memories are held as they came, under the bundle that brought them; nothing of them
decides anything.  What is adopted joins the log as somebody else's: under a root message of the log
that it came from, with an id of its own, so that no id of a stranger is ever taken for one of ours.
What is erased here is not held, and stops to be held with the commit that erases it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from branchmem import Memory, Message, Store
from branchmem.appending import BUNDLE_BYTES, HELD, HELD_BUNDLE, Origin, held_event, held_events
from branchmem.bundle.keys import fingerprint
from branchmem.bundle.manifest import Manifest
from branchmem.canonical import from_microseconds, microseconds, pack, unpack
from branchmem.errors import BundleRefused, UnknownBundle, UnknownEvent
from branchmem.events import Event, conflict, event_from_bytes, skeleton_fields

if TYPE_CHECKING:
    from branchmem import _core
    from branchmem.log import Reader, Writer

#: The table of local state that held bundles live in.
TABLES: Final = (HELD,)
#: The role of the message under which adopted memories of one log stand.
ROLE: Final = "bundle"

#: So many events stop to be held in one transaction.
_BATCH: Final = 10_000
#: Why a bundle cannot be held beside another.
CLASH: Final = "another bundle with this id is held, with other content: drop that first (store.held.drop)"
#: Why it is not held to its end.
DROPPED: Final = "it was dropped while it was being taken in: import it again"


@dataclass(frozen=True, slots=True)
class HeldBundle:
    """A bundle of which something is held: from whom, of which log."""

    id: str
    #: The public key that signed it, as text.
    issuer: str
    #: The id of the log that it came from.
    origin: str
    number: int
    created: datetime
    messages: int
    memories: int

    @property
    def fingerprint(self) -> str:
        """Of the issuer's key: what people compare."""
        return fingerprint(self.issuer)

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        created = self.created.isoformat(timespec="microseconds")
        return {**asdict(self), "created": created, "fingerprint": self.fingerprint}

    def __str__(self) -> str:
        return (
            f"{self.id}: {self.messages:,} messages and {self.memories:,} memories "
            f"from {self.fingerprint}, bundle {self.number} of log {self.origin}"
        )


class Originals(NamedTuple):
    """Held memories as they join the log when they are adopted."""

    #: The root message that they stand under, then the memories, in the order asked for.
    events: tuple[Event, ...]
    #: The ids that these memories have in the log.
    ids: tuple[str, ...]


class Held(Mapping[str, HeldBundle]):
    """The bundles that are held by a store, by id.  Safe under threads and processes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def memories(self, bundle: str) -> list[Memory]:
        """The memories that are held of a bundle, sorted by id, as their issuer wrote them.

        No view has filtered them: nothing here says that they are true, or current.
        Raises: UnknownBundle.
        """
        return [event for event in self._events(bundle) if isinstance(event, Memory)]

    def messages(self, bundle: str) -> list[Message]:
        """The messages that are held of a bundle, sorted by id.  Raises: UnknownBundle."""
        return [event for event in self._events(bundle) if isinstance(event, Message)]

    def drop(self, bundle: str) -> int:
        """Hold nothing of a bundle any more; how many events that were.  What was adopted stays.

        Raises: UnknownBundle.
        """

        def unlist(writer: Writer) -> tuple[tuple[()], None]:
            state = _state(writer, bundle)
            if state is None:
                raise UnknownBundle(bundle)
            _put_state(writer, bundle, [False, *state[1:]])
            return (), None

        self._store.transact(unlist, tables=TABLES)
        return _empty(self._store, bundle)

    def originals(self, bundle: str, ids: Iterable[str]) -> Originals:
        """Held memories as they join the log; may be asked inside a transaction.

        An original derives from nothing, replaces nothing of this log and stands in no tree but its own, so that
        it shows nowhere and hides nothing.  What it was drawn from stays named, whichever bundle of the same log held
        that, and what of that is here or was adopted before stays linked: an erasure or a retraction here reaches it,
        and what adopts it.
        The same memory of the same log has the same id, whichever bundle brought it; one that was adopted before is
        the one that is here.
        Raises: UnknownBundle; UnknownEvent where no memory of this id is held; EventConflict where what is here under
        the id of its adoption says something else; InvalidEvent where what is to be named beside the text does not
        fit into one event.
        """
        engine = self._store._fresh()

        def read(reader: Reader) -> Originals:
            _, issuer, log, *_ = _listed(reader, bundle)
            origin = Origin(issuer, log)
            bundles = _of_log(reader, origin)
            meta = {"issuer": issuer, "origin": log}
            root = self._known(Message(origin.id_here(""), None, role=ROLE, meta=meta), [])
            memories = []
            for id in ids:
                memory = _held_memory(reader, bundle, id)
                if memory is None:
                    raise UnknownEvent(id, f"memory held of bundle {bundle},")
                drawn_from = _drawn_from(engine, reader, origin, bundles, memory)
                memories.append(self._known(_original(memory, origin, root.id, drawn_from), [root.id]))
            return Originals((root, *memories), tuple(memory.id for memory in memories))

        return self._store.snapshot(read, tables=TABLES)

    def __getitem__(self, bundle: str) -> HeldBundle:
        return self._store.snapshot(lambda reader: _about(reader, bundle), tables=TABLES)

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.snapshot(_complete, tables=TABLES))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<{len(self)} bundles held by {self._store.path}>"

    def _known(self, made: Event, above: Sequence[str]) -> Event:
        """What the log has under the id of an event that is made to be adopted; this event where it has nothing.

        What a memory was drawn from may have been known better or less when it was adopted before; the messages
        `above` must be among its sources.
        Raises: EventConflict where somebody put something else there.
        """
        log = self._store.log
        if made.id not in log:
            return made
        known = log.get(made.id)
        if log.is_erased(made.id):
            return known
        if isinstance(made, Memory) and isinstance(known, Memory) and set(above) <= set(known.sources):
            made = replace(made, sources=known.sources, derived_from=known.derived_from)
        if known != made:
            raise conflict(made.id, known.to_dict(), made.to_dict())
        return known

    def _events(self, bundle: str) -> list[Event]:
        def read(reader: Reader) -> list[Event]:
            _listed(reader, bundle)
            return [event_from_bytes(event.skeleton, event.body) for event in held_events(reader, bundle)]

        return self._store.snapshot(read, tables=TABLES)


def is_begun(reader: Reader, manifest: Manifest, path: str) -> bool:
    """Whether the bundle at `path` is held, or was begun to be.  Raises: BundleRefused where another bears its id."""
    state = _state(reader, manifest.id)
    if state is not None and state[1:] != _state_of(manifest, complete=False)[1:]:
        raise BundleRefused(path, CLASH)
    return state is not None


def begin(writer: Writer, manifest: Manifest, path: str) -> None:
    """Begin to hold the bundle at `path`, inside a transaction.  Raises: BundleRefused where another bears its id."""
    if not is_begun(writer, manifest, path):
        _put_state(writer, manifest.id, _state_of(manifest, complete=False))


def require_begun(reader: Reader, manifest: Manifest, path: str) -> None:
    """Refuse, inside a transaction, what was not begun to be held, or was dropped since.  Raises: BundleRefused."""
    if not is_begun(reader, manifest, path):
        raise BundleRefused(path, DROPPED)


def complete(writer: Writer, manifest: Manifest) -> None:
    """Say that all of a bundle is held that may be, inside a transaction: if that is anything, it is listed now."""
    if any(held_events(writer, manifest.id)):
        _put_state(writer, manifest.id, _state_of(manifest, complete=True))
    else:
        writer.table(HELD).delete(HELD_BUNDLE + manifest.id.encode())


def forget(store: Store, manifest: Manifest) -> None:
    """Hold nothing of this bundle any more; another one with its id stays."""

    def unlist(writer: Writer) -> tuple[tuple[()], bool]:
        state = _state(writer, manifest.id)
        is_held = state is not None and state[1:] == _state_of(manifest, complete=False)[1:]
        if is_held:
            _put_state(writer, manifest.id, _state_of(manifest, complete=False))
        return (), is_held

    if store.transact(unlist, tables=TABLES)[1]:
        _empty(store, manifest.id)


def _empty(store: Store, bundle: str) -> int:
    """Remove a bundle that is not listed any more, some events at a time; how many events that were."""

    def some(writer: Writer) -> tuple[tuple[()], int]:
        table = writer.table(HELD)
        keys = [event.key for event in islice(held_events(writer, bundle), _BATCH)]
        for key in keys:
            table.delete(key)
        if len(keys) < _BATCH:
            table.delete(HELD_BUNDLE + bundle.encode())
        return (), len(keys)

    count = 0
    while (found := store.transact(some, tables=TABLES)[1]) == _BATCH:
        count += found
    return count + found


def _state_of(manifest: Manifest, *, complete: bool) -> list[Any]:
    """What is kept of a bundle: what tells it from others, and no hash of anything in it."""
    created = microseconds(manifest.created)
    return [complete, manifest.issuer, manifest.origin, manifest.number, created, manifest.seq, list(manifest.counts)]


def _state(reader: Reader, bundle: str) -> list[Any] | None:
    is_id = isinstance(bundle, str) and bundle.isascii() and len(bundle) == BUNDLE_BYTES
    value = reader.table(HELD).get(HELD_BUNDLE + bundle.encode()) if is_id else None
    return None if value is None else unpack(value)


def _put_state(writer: Writer, bundle: str, state: list[Any]) -> None:
    writer.table(HELD).put(HELD_BUNDLE + bundle.encode(), pack(state))


def _complete(reader: Reader) -> list[str]:
    states = reader.table(HELD).items(HELD_BUNDLE)
    return [key.removeprefix(HELD_BUNDLE).decode() for key, value in states if unpack(value)[0]]


def _of_log(reader: Reader, origin: Origin) -> list[str]:
    """The bundles of one log of which something may be held."""
    states = reader.table(HELD).items(HELD_BUNDLE)
    return [key.removeprefix(HELD_BUNDLE).decode() for key, value in states if unpack(value)[1:3] == [*origin]]


def _listed(reader: Reader, bundle: str) -> list[Any]:
    """The state of a bundle of which all is held that may be.  Raises: UnknownBundle."""
    state = _state(reader, bundle)
    if state is None or not state[0]:
        raise UnknownBundle(bundle)
    return state


def _about(reader: Reader, bundle: str) -> HeldBundle:
    _, issuer, origin, number, created, *_ = _listed(reader, bundle)
    kinds = Counter(skeleton_fields(event.skeleton)["type"] for event in held_events(reader, bundle))
    created = from_microseconds(created)
    return HeldBundle(bundle, issuer, origin, number, created, kinds[Message.type], kinds[Memory.type])


def _held_memory(reader: Reader, bundle: str, id: str) -> Memory | None:
    found = held_event(reader, bundle, id)
    event = None if found is None else event_from_bytes(found.skeleton, found.body)
    return event if isinstance(event, Memory) else None


class _DrawnFrom(NamedTuple):
    """What a held memory was drawn from, at any remove."""

    #: Its effective sources, and the memories that are not here, under both ids that they may come to have.
    sources: set[str]
    #: Memories of the log.
    here: set[str]


def _drawn_from(
    engine: _core.Engine, reader: Reader, origin: Origin, bundles: Sequence[str], memory: Memory
) -> _DrawnFrom:
    sources, here = set(memory.sources), set[str]()
    waiting = list(_upstream(memory))
    met = {memory.id, *waiting}
    while waiting:
        id = waiting.pop()
        known = (id, origin.id_here(id))
        linked = [one for one in known if engine.is_memory(one) and _is_linked(engine, one)]
        here.update(linked)
        sources.update(() if linked else known)
        for above in filter(None, (_held_memory(reader, bundle, id) for bundle in bundles)):
            sources.update(above.sources)
            new = set(_upstream(above)) - met
            met |= new
            waiting += new
    return _DrawnFrom(sources, here)


def _upstream(memory: Memory) -> tuple[str, ...]:
    return memory.derived_from if memory.adopts is None else (*memory.derived_from, memory.adopts)


def _is_linked(engine: _core.Engine, memory: str) -> bool:
    """Whether a memory of the log lacks nothing that it derives from or adopts, and does so in no circle."""
    is_open: dict[str, bool] = {}
    waiting = [memory]
    while waiting:
        id = waiting[-1]
        if id in is_open:
            is_open[id] = False
            waiting.pop()
            continue
        found = engine.skeleton(id)
        if found is None or not engine.is_memory(id):
            return False
        is_open[id] = True
        fields = skeleton_fields(found[1])
        above = [*fields.get("derived_from", ()), *filter(None, [fields.get("adopts")])]
        if any(map(is_open.get, above)):
            return False
        waiting += (id for id in above if id not in is_open)
    return True


def _original(memory: Memory, origin: Origin, root: str, drawn_from: _DrawnFrom) -> Memory:
    """A held memory as it joins the log."""
    return Memory(
        origin.id_here(memory.id),
        memory.text,
        sources=[root, *drawn_from.sources],
        derived_from=drawn_from.here,
        supersedes=[origin.id_here(old) for old in memory.supersedes],
        kind=memory.kind,
        key=memory.key,
        importance=memory.importance,
        created=memory.created,
        meta={**memory.meta, "origin": {**origin._asdict(), "id": memory.id}},
    )
