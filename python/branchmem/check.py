"""What is wrong with a store, read from the bytes and from what follows from them.

Damage is what must not be; everything else is what an application may have meant,
but what hides memories.  Reads the whole log; changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from branchmem import codec
from branchmem.errors import StoreDamaged
from branchmem.eventlog import body_of
from branchmem.events import Erasure, Message, Restoration, Retraction, skeleton_fields
from branchmem.verdict import Reason

if TYPE_CHECKING:
    from branchmem import _core
    from branchmem.log import Reader
    from branchmem.store import Store


@dataclass(frozen=True, slots=True)
class Check:
    """The report.  Ids are in order of arrival."""

    events: int
    messages: int
    memories: int
    retractions: int
    restorations: int
    erasures: int
    #: Messages and memories without their content.
    erased: int
    #: Bytes that are not those that were written, or not what the engine holds.
    damage: tuple[str, ...]
    #: The first position that is damaged.
    first_bad_seq: int | None
    #: Messages whose parent is not in the log, each with that parent: they and all below are detached.
    orphans: Mapping[str, str]
    #: Circles of parents: none of them is ever attached.
    circles: tuple[tuple[str, ...], ...]
    #: All other events with what they refer to and the log does not have, or has as an event of another type.
    #: What a retraction or an erasure names may be absent on purpose; a wrong id looks the same.
    dangling: Mapping[str, tuple[str, ...]]
    #: Retractions and restorations whose place cannot be judged: such a retraction is in effect everywhere,
    #: such a restoration nowhere.
    unplaced: tuple[str, ...]
    #: Memories that replace each other: each hides all others wherever they are live.
    supersession_circles: tuple[tuple[str, ...], ...]
    #: Two or more roots that a user wrote: versions of one first prompt are trees of their own
    #: unless the conversation has a root above them.
    prompts: tuple[str, ...]
    #: Memories that no anchor can show as the log is, with the reasons.
    unshowable: Mapping[str, Reason]

    @property
    def ok(self) -> bool:
        """Whether every byte is sound."""
        return not self.damage

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {**asdict(self), "unshowable": {id: reasons.names() for id, reasons in self.unshowable.items()}}

    def __str__(self) -> str:
        counts = {
            "damaged": self.damage,
            "orphans": self.orphans,
            "circles of parents": self.circles,
            "events with dangling references": self.dangling,
            "retractions and restorations without a place": self.unplaced,
            "circles of replacements": self.supersession_circles,
            "roots that look like edited first prompts": self.prompts,
            "memories that no anchor can show": self.unshowable,
        }
        found = ", ".join(f"{len(what)} {name}" for name, what in counts.items() if what)
        others = {
            "retractions": self.retractions,
            "restorations": self.restorations,
            "erasures": self.erasures,
            "of them erased": self.erased,
        }
        more = "".join(f", {count} {name}" for name, count in others.items() if count)
        held = f"{self.events} events ({self.messages} messages, {self.memories} memories{more})"
        return f"{held}: {found or 'nothing wrong'}"


def check(store: Store) -> Check:
    """Check a store; see `Check`.  Cost: decodes every event in plain Python."""
    engine = store._fresh()
    end = engine.seq
    damage = store._log.read(lambda reader: list(_damage(store, reader, end)))
    others = {type: engine.ids_of(type) for type in (Retraction.type, Restoration.type, Erasure.type)}
    retractions = frozenset(others[Retraction.type])
    missing = {id: _missing(engine, retractions, id) for id in chain(store.memory_ids, *others.values())}
    erased = sum(map(engine.is_erased, chain(store.message_ids, store.memory_ids))) if engine.has_erasures() else 0
    detached = {id: store.tree.parent(id) for id in store.message_ids if not engine.is_attached(id)}
    prompts = tuple(id for id in store.tree.roots() if _is_prompt(store, id))
    return Check(
        events=store.seq,
        messages=len(store.message_ids),
        memories=len(store.memory_ids),
        retractions=len(others[Retraction.type]),
        restorations=len(others[Restoration.type]),
        erasures=len(others[Erasure.type]),
        erased=erased,
        damage=tuple(why for _, why in damage),
        first_bad_seq=min((seq for seq, _ in damage), default=None),
        orphans={id: str(parent) for id, parent in detached.items() if not engine.is_message(str(parent))},
        circles=tuple(_circles({id: str(parent) for id, parent in detached.items()})),
        dangling={id: ids for id, ids in missing.items() if ids},
        unplaced=tuple(engine.unplaced()),
        supersession_circles=tuple(map(tuple, engine.supersession_circles())),
        prompts=prompts if len(prompts) > 1 else (),
        unshowable={id: Reason(reasons) for id, reasons in engine.unshowable()},
    )


def _damage(store: Store, reader: Reader, end: int) -> Iterator[tuple[int, str]]:
    """Where and how blocks and bodies before `end`, decoded by the plain codec, are not what the engine folded.

    What others append meanwhile lies behind `end`; it is not looked at and does not count as taken in.
    """
    interner = codec.Interner()
    at = 0
    for first_seq, block in reader.blocks(-1):
        if first_seq >= end:
            break
        try:
            skeletons = codec.decode_block(first_seq, block, interner)
        except ValueError as error:
            yield first_seq, f"block at seq {first_seq}: {error}"
            return
        at = first_seq + len(skeletons)
        for seq, skeleton in enumerate(skeletons, first_seq):
            (id,) = store._engine.event_ids(seq, seq + 1) or [""]
            if store._engine.skeleton(id) != (seq, skeleton):
                yield seq, f"seq {seq}: the engine holds something else for event {id}"
            try:
                if body_of(store._engine, reader, id, seq) is None and _is_left(store._engine, reader, seq):
                    yield seq, f"seq {seq}: its content is still there, though {id} was erased: salvage leaves it out"
            except StoreDamaged as error:
                yield seq, f"seq {seq}: {error.why}"
    if at != end:
        yield min(at, end), f"the log ends at seq {at}, the engine stands at {end}"


def _is_left(engine: _core.Engine, reader: Reader, seq: int) -> bool:
    """Whether the file has the content of an erased event; not where it was erased after the snapshot was taken."""
    return reader.body(seq) is not None and engine.seq <= reader.count()


def _missing(engine: _core.Engine, retractions: Collection[str], id: str) -> tuple[str, ...]:
    """What an event refers to and the log does not have, each once."""
    found = engine.skeleton(id)
    fields = skeleton_fields(found[1]) if found else {}

    def is_content(id: str) -> bool:
        return engine.is_message(id) or engine.is_memory(id)

    known: dict[str, Callable[[str], bool]] = {
        "at": engine.is_message,
        "sources": engine.is_message,
        "derived_from": engine.is_memory,
        "adopts": engine.is_memory,
        "supersedes": engine.is_memory,
        "memories": engine.is_memory,
        "retraction": retractions.__contains__,
        "targets": is_content,
    }
    missing: dict[str, None] = {}
    for name, is_known in known.items():
        value = fields.get(name, ())
        ids = (value,) if isinstance(value, str) else value
        missing.update((one, None) for one in ids if not is_known(one))
    return tuple(missing)


def _circles(parents: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The circles among detached messages, each once.  O(messages)."""
    done: set[str] = set()
    for first in parents:
        way: dict[str, None] = {}
        id = first
        while id in parents and id not in done and id not in way:
            way[id] = None
            id = parents[id]
        if id in way:
            met = list(way)
            yield tuple(met[met.index(id) :])
        done.update(way)


def _is_prompt(store: Store, root: str) -> bool:
    try:
        event = store.log.get(root)
    except StoreDamaged:  # it is listed as such
        return False
    return isinstance(event, Message) and event.role == "user"
