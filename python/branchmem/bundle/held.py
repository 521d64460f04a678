"""What came from issuers who are not pinned: kept outside of the log, where no view can show it.

Messages and memories are held as they came, under the bundle that brought them; nothing of them
decides anything.  What is adopted joins the log as somebody else's: under a root message of the log
that it came from, with an id of its own, so that no id of a stranger is ever taken for one of ours.
What is erased here is not held, and stops to be held with the commit that erases it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from branchmem import Memory, Message, Store
from branchmem.appending import HELD, held_event, held_events
from branchmem.bundle.keys import fingerprint
from branchmem.bundle.manifest import Manifest
from branchmem.canonical import pack, unpack
from branchmem.errors import BundleRefused, UnknownBundle, UnknownEvent
from branchmem.events import Event, event_from_bytes, skeleton_fields

if TYPE_CHECKING:
    from branchmem import _core
    from branchmem.log import Reader, Writer

#: The table of local state that held bundles live in.
TABLES: Final = (HELD,)
#: The role of the message under which adopted memories of one log stand.
ROLE: Final = "bundle"

_BUNDLE: Final = b"bundle\0"
_ID_DIGITS: Final = 32
#: Why a bundle cannot be held beside another.
CLASH: Final = "another bundle with this id is held, with other content: drop that first (store.held.drop)"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


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

        def plan(writer: Writer) -> tuple[tuple[()], int]:
            if _state(writer, bundle) is None:
                raise UnknownBundle(bundle)
            return (), forget(writer, bundle)

        return self._store.transact(plan, tables=TABLES)[1]

    def originals(self, bundle: str, ids: Iterable[str]) -> Originals:
        """Held memories as they join the log; may be asked inside a transaction.

        An original derives from nothing, replaces nothing of this log and stands in no tree but its own, so that
        it shows nowhere and hides nothing.  What it was drawn from stays named, and what of that is here stays
        linked: an erasure or a retraction here reaches it, and what adopts it.
        The same memory of the same log has the same id, whichever bundle brought it.
        Raises: UnknownBundle; UnknownEvent where no memory of this id is held; InvalidEvent where what is
        to be named beside the text does not fit into one event.
        """
        engine = self._store._fresh()

        def read(reader: Reader) -> Originals:
            about = _about(reader, bundle)
            root = Message(_id_here(about, ""), None, role=ROLE, meta={"issuer": about.issuer, "origin": about.origin})
            memories = []
            for id in ids:
                memory = _held_memory(reader, bundle, id)
                if memory is None:
                    raise UnknownEvent(id, f"memory held of bundle {bundle},")
                memories.append(_original(memory, about, root.id, _drawn_from(engine, reader, bundle, memory)))
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

    def _events(self, bundle: str) -> list[Event]:
        def read(reader: Reader) -> list[Event]:
            if bundle not in _complete(reader):
                raise UnknownBundle(bundle)
            return [event_from_bytes(event.skeleton, event.body) for event in held_events(reader, bundle)]

        return self._store.snapshot(read, tables=TABLES)


def begin(writer: Writer, manifest: Manifest, path: str) -> None:
    """Begin to hold the bundle at `path`, inside a transaction.  Raises: BundleRefused where another bears its id."""
    before, mine = _state(writer, manifest.id), _state_of(manifest, complete=False)
    if before is None:
        writer.table(HELD).put(_BUNDLE + manifest.id.encode(), pack(mine))
    elif before[1:] != mine[1:]:
        raise BundleRefused(path, CLASH)


def complete(writer: Writer, manifest: Manifest) -> None:
    """Say that all of a bundle is held, inside a transaction: from now on it is listed."""
    writer.table(HELD).put(_BUNDLE + manifest.id.encode(), pack(_state_of(manifest, complete=True)))


def forget(writer: Writer, bundle: str) -> int:
    """Hold nothing of a bundle any more, inside a transaction; how many events that were."""
    table = writer.table(HELD)
    keys = [event.key for event in held_events(writer, bundle)]
    for key in (*keys, _BUNDLE + bundle.encode()):
        table.delete(key)
    return len(keys)


def _state_of(manifest: Manifest, *, complete: bool) -> list[Any]:
    return [complete, manifest.issuer, manifest.origin, manifest.number, (manifest.created - _EPOCH) // _MICROSECOND]


def _state(reader: Reader, bundle: str) -> list[Any] | None:
    value = reader.table(HELD).get(_BUNDLE + bundle.encode()) if bundle else None
    return None if value is None else unpack(value)


def _complete(reader: Reader) -> list[str]:
    states = reader.table(HELD).items(_BUNDLE)
    return [key.removeprefix(_BUNDLE).decode() for key, value in states if unpack(value)[0]]


def _about(reader: Reader, bundle: str) -> HeldBundle:
    state = _state(reader, bundle)
    if state is None or not state[0]:
        raise UnknownBundle(bundle)
    kinds = Counter(skeleton_fields(event.skeleton)["type"] for event in held_events(reader, bundle))
    _, issuer, origin, number, created = state
    created = _EPOCH + created * _MICROSECOND
    return HeldBundle(bundle, issuer, origin, number, created, kinds[Message.type], kinds[Memory.type])


def _held_memory(reader: Reader, bundle: str, id: str) -> Memory | None:
    found = held_event(reader, bundle, id)
    event = None if found is None else event_from_bytes(found.skeleton, found.body)
    return event if isinstance(event, Memory) else None


class _DrawnFrom(NamedTuple):
    """What a held memory was drawn from, at any remove: its effective sources, and which memories of the log."""

    sources: set[str]
    here: set[str]


def _drawn_from(engine: _core.Engine, reader: Reader, bundle: str, memory: Memory) -> _DrawnFrom:
    sources, here = set(memory.sources), set[str]()
    waiting = list(_upstream(memory))
    met = {memory.id, *waiting}
    while waiting:
        id = waiting.pop()
        if engine.is_memory(id):
            here.update([id] if _is_linked(engine, id) else ())
            continue
        above = _held_memory(reader, bundle, id)
        if above is not None:
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


def _original(memory: Memory, about: HeldBundle, root: str, drawn_from: _DrawnFrom) -> Memory:
    """A held memory as it joins the log."""
    return Memory(
        _id_here(about, memory.id),
        memory.text,
        sources=[root, *drawn_from.sources],
        derived_from=drawn_from.here,
        supersedes=[_id_here(about, old) for old in memory.supersedes],
        kind=memory.kind,
        key=memory.key,
        importance=memory.importance,
        created=memory.created,
        meta={**memory.meta, "origin": {"issuer": about.issuer, "log": about.origin, "id": memory.id}},
    )


def _id_here(about: HeldBundle, id: str) -> str:
    """The id that an event of another log has here: of its id, never of its content."""
    said = pack((about.issuer, about.origin, id))
    return f"held-{hashlib.sha256(said).hexdigest()[:_ID_DIGITS]}"
