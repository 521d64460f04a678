"""The five kinds of events, what makes one valid, and the bytes that make two equal.

An event is frozen: lists of ids are sets (sorted by bytes, without repeats),
meta is read-only all the way down, times carry an offset of whole minutes.
Its canonical bytes come in two parts: the skeleton (id, type, and everything
that decides visibility) and the body (what an erasure removes).  Each part is
one msgpack array of tags and values in ascending order of tags, fields at
their default left out.  Logs on disk hold these bytes: a tag never changes its
meaning, a new field is a new tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Final, Literal

from branchmem import canonical
from branchmem.canonical import NO_META, Tag, bounded, choice, flag, id_, ids, instant, pack, thaw
from branchmem.canonical import created as created_
from branchmem.canonical import importance as importance_
from branchmem.canonical import meta as meta_
from branchmem.canonical import text as text_
from branchmem.errors import EventConflict, InvalidEvent

SCOPES: Final = ("branch", "tree", "everywhere")
Scope = Literal["branch", "tree", "everywhere"]


class Legacy(Enum):
    """The parent of a message whose parent was never recorded."""

    LEGACY = "legacy"

    def __repr__(self) -> str:
        return "branchmem.LEGACY"


LEGACY: Final = Legacy.LEGACY


class Event:
    """What all events share: canonical bytes, equality by them, a JSON-ready form."""

    __slots__ = ()
    type: ClassVar[str]
    code: ClassVar[int]
    id: str

    def skeleton(self) -> bytes:
        """Canonical bytes of what decides visibility; ids as strings.  O(size)."""
        raise NotImplementedError

    def body(self) -> bytes:
        """Canonical bytes of the content; empty content is the empty array."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self.skeleton() == other.skeleton() and self.body() == other.body()

    def __hash__(self) -> int:
        return hash(self.skeleton())

    def __reduce__(self) -> tuple[Any, ...]:
        return event_from_dict, (self.to_dict(),)

    def to_dict(self) -> dict[str, Any]:
        """The lossless JSON-ready form: `type`, `id`, and every field not at its default."""
        out: dict[str, Any] = {"type": self.type}
        for slot in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, slot.name)
            if value is LEGACY or value is NO_META or (slot.default is not MISSING and value == slot.default):
                continue
            if isinstance(value, datetime):
                value = value.isoformat(timespec="microseconds")
            out[slot.name] = thaw(value)
        return out

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Message(Event):
    """An event that has a place in a tree: a thread start, a turn, a tool result, a checkpoint.

    `parent` is the id that this message continues, None for a root, or LEGACY
    when it was never recorded.  Text may stay in the caller's own database.
    """

    type: ClassVar[str] = "message"
    code: ClassVar[int] = 0

    id: str
    parent: str | Legacy | None
    role: str | None = None
    text: str | None = None
    created: datetime | None = None
    meta: Mapping[str, Any] = field(default_factory=lambda: NO_META)

    def __init__(
        self,
        id: str,
        parent: str | Legacy | None,
        *,
        role: str | None = None,
        text: str | None = None,
        created: datetime | None = None,
        meta: Mapping[str, Any] = NO_META,
    ) -> None:
        self._set(
            id=id_(id, "id"),
            parent=parent if parent is None or parent is LEGACY else id_(parent, "parent"),
            role=None if role is None else id_(role, "role"),
            text=None if text is None else text_(text, "text"),
            created=None if created is None else created_(created),
            meta=meta_(meta),
        )

    def skeleton(self) -> bytes:
        if self.parent is LEGACY:
            return pack((0, self.id))
        return pack((0, self.id, Tag.PARENT, self.parent))

    def body(self) -> bytes:
        out: list[Any] = []
        if self.role is not None:
            out += (Tag.ROLE, self.role)
        if self.text is not None:
            out += (Tag.TEXT, self.text)
        return _dated(out, self.created, self.meta)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Memory(Event):
    """Something derived from messages: a fact, a summary, a profile entry, a graph edge.

    `sources` are messages, `derived_from` and `supersedes` are memories,
    `adopts` is the memory that this one takes over.  `key` says what it is
    about and is not unique; `importance` lies in 0..1.
    """

    type: ClassVar[str] = "memory"
    code: ClassVar[int] = 1

    id: str
    text: str
    sources: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    adopts: str | None = None
    kind: str = "fact"
    key: str | None = None
    importance: float = 1.0
    created: datetime | None = None
    meta: Mapping[str, Any] = field(default_factory=lambda: NO_META)

    def __init__(
        self,
        id: str,
        text: str,
        *,
        sources: Iterable[str] = (),
        derived_from: Iterable[str] = (),
        supersedes: Iterable[str] = (),
        adopts: str | None = None,
        kind: str = "fact",
        key: str | None = None,
        importance: float = 1.0,
        created: datetime | None = None,
        meta: Mapping[str, Any] = NO_META,
    ) -> None:
        self._set(
            id=id_(id, "id"),
            text=text_(text, "text"),
            sources=ids(sources, "sources"),
            derived_from=ids(derived_from, "derived_from"),
            supersedes=ids(supersedes, "supersedes"),
            adopts=None if adopts is None else id_(adopts, "adopts"),
            kind=id_(kind, "kind"),
            key=None if key is None else id_(key, "key"),
            importance=importance_(importance),
            created=None if created is None else created_(created),
            meta=meta_(meta),
        )
        bounded(self.id, self.sources, self.derived_from, self.supersedes)

    def skeleton(self) -> bytes:
        out: list[Any] = [1, self.id]
        if self.sources:
            out += (Tag.SOURCES, self.sources)
        if self.derived_from:
            out += (Tag.DERIVED_FROM, self.derived_from)
        if self.supersedes:
            out += (Tag.SUPERSEDES, self.supersedes)
        if self.adopts is not None:
            out += (Tag.ADOPTS, self.adopts)
        if self.kind != "fact":
            out += (Tag.KIND, self.kind)
        if self.key is not None:
            out += (Tag.KEY, self.key)
        return pack(out)

    def body(self) -> bytes:
        out: list[Any] = [Tag.TEXT, self.text]
        if self.importance != 1.0:
            out += (Tag.IMPORTANCE, self.importance)
        return _dated(out, self.created, self.meta)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Retraction(Event):
    """Takes back memories, what came from messages, or what bears a key, from `at` on.

    `scope` is "branch", "tree" or "everywhere"; the caller chooses.
    """

    type: ClassVar[str] = "retraction"
    code: ClassVar[int] = 2

    id: str
    at: str
    scope: Scope
    memories: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    standing: bool = False
    reason: str | None = None
    created: datetime | None = None

    def __init__(
        self,
        id: str,
        at: str,
        *,
        scope: Scope,
        memories: Iterable[str] = (),
        sources: Iterable[str] = (),
        keys: Iterable[str] = (),
        standing: bool = False,
        reason: str | None = None,
        created: datetime | None = None,
    ) -> None:
        self._set(
            id=id_(id, "id"),
            at=id_(at, "at"),
            scope=choice(scope, "scope", SCOPES),
            memories=ids(memories, "memories"),
            sources=ids(sources, "sources"),
            keys=ids(keys, "keys"),
            standing=flag(standing, "standing"),
            reason=None if reason is None else text_(reason, "reason"),
            created=None if created is None else created_(created),
        )
        bounded(self.id, self.memories, self.sources, self.keys)
        if not (self.memories or self.sources or self.keys):
            raise InvalidEvent(f"retraction {self.id} takes nothing back: name memories, sources or keys", id)

    def skeleton(self) -> bytes:
        out: list[Any] = [2, self.id]
        if self.sources:
            out += (Tag.SOURCES, self.sources)
        out += (Tag.AT, self.at, Tag.SCOPE, SCOPES.index(self.scope))
        if self.memories:
            out += (Tag.MEMORIES, self.memories)
        if self.keys:
            out += (Tag.KEYS, self.keys)
        if self.standing:
            out += (Tag.STANDING, True)
        return pack(out)

    def body(self) -> bytes:
        out: list[Any] = []
        if self.created is not None:
            out += (Tag.CREATED, instant(self.created))
        if self.reason is not None:
            out += (Tag.REASON, self.reason)
        return pack(out)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Restoration(Event):
    """Lifts one retraction where this restoration is in effect."""

    type: ClassVar[str] = "restoration"
    code: ClassVar[int] = 3

    id: str
    at: str
    scope: Scope
    retraction: str
    created: datetime | None = None

    def __init__(self, id: str, at: str, *, scope: Scope, retraction: str, created: datetime | None = None) -> None:
        self._set(
            id=id_(id, "id"),
            at=id_(at, "at"),
            scope=choice(scope, "scope", SCOPES),
            retraction=id_(retraction, "retraction"),
            created=None if created is None else created_(created),
        )

    def skeleton(self) -> bytes:
        return pack((3, self.id, Tag.AT, self.at, Tag.SCOPE, SCOPES.index(self.scope), Tag.RETRACTION, self.retraction))

    def body(self) -> bytes:
        return _dated([], self.created)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Erasure(Event):
    """Removes the content of messages and memories for good, and by default of what came from them."""

    type: ClassVar[str] = "erasure"
    code: ClassVar[int] = 4

    id: str
    targets: tuple[str, ...]
    cascade: bool = True
    created: datetime | None = None

    def __init__(
        self, id: str, targets: Iterable[str], *, cascade: bool = True, created: datetime | None = None
    ) -> None:
        self._set(
            id=id_(id, "id"),
            targets=ids(targets, "targets"),
            cascade=flag(cascade, "cascade"),
            created=None if created is None else created_(created),
        )
        bounded(self.id, self.targets)
        if not self.targets:
            raise InvalidEvent(f"erasure {self.id} names no target: name messages or memories", id)

    def skeleton(self) -> bytes:
        out: list[Any] = [4, self.id, Tag.TARGETS, self.targets]
        if not self.cascade:
            out += (Tag.CASCADE, False)
        return pack(out)

    def body(self) -> bytes:
        return _dated([], self.created)


def _dated(body: list[Any], created: datetime | None, meta: Mapping[str, Any] = NO_META) -> bytes:
    """A body whose last fields are the time and meta."""
    if created is not None:
        body += (Tag.CREATED, instant(created))
    if meta:
        body += (Tag.META, thaw(meta))
    return pack(body)


TYPES: Final[dict[str, type[Any]]] = {cls.type: cls for cls in (Message, Memory, Retraction, Restoration, Erasure)}

_BY_CODE: Final[dict[int, type[Any]]] = {cls.code: cls for cls in TYPES.values()}
_FIELDS: Final[dict[int, str]] = {value: name.lower() for name, value in vars(Tag).items() if not name.startswith("_")}


def event_from_dict(form: Mapping[str, Any]) -> Event:
    """The event whose `to_dict` this is; InvalidEvent names what does not fit."""
    if not isinstance(form, Mapping):
        raise InvalidEvent(f"an event must be a mapping, not {form!r:.80}", form)
    given = dict(form)
    name = given.pop("type", None)
    cls = TYPES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise InvalidEvent(f"type must be one of {', '.join(TYPES)}, not {name!r:.80}", name)
    known = [slot.name for slot in fields(cls)]
    for field_name in given:
        if field_name not in known:
            raise InvalidEvent(f"a {name} has no field {field_name!r:.80}: it has {', '.join(known)}", field_name)
    if cls is Message:
        given.setdefault("parent", LEGACY)
    missing = [name for name in _REQUIRED[cls] if name not in given]
    if missing:
        raise InvalidEvent(f"a {name} needs {missing[0]}", missing[0])
    if given.get("created") is not None:
        given["created"] = canonical.from_iso(given["created"])
    event: Event = cls(given.pop(_REQUIRED[cls][0]), given.pop(_REQUIRED[cls][1]), **given)
    return event


def event_from_bytes(skeleton: bytes, body: bytes) -> Event:
    """The event with these canonical parts; InvalidEvent where they are not those of one."""
    try:
        given, content = canonical.unpack(skeleton), canonical.unpack(body)
        code, id = given[:2]
    except ValueError as error:
        raise InvalidEvent(f"the bytes of an event are {error}", skeleton) from None
    cls = _BY_CODE.get(code) if type(code) is int else None
    if cls is None:
        raise InvalidEvent(f"there is no event type {code!r:.80}", code)
    values = _tagged(given[2:]) | _tagged(content)
    if cls is Message:
        values.setdefault("parent", LEGACY)
    if "created" in values:
        values["created"] = canonical.from_instant(values["created"])
    if "scope" in values:
        values["scope"] = canonical.word(values["scope"], "scope", SCOPES)
    required = _REQUIRED[cls][1:]
    for name in required:
        if name not in values:
            raise InvalidEvent(f"the bytes of {cls.type} {id!r:.80} have no {name}", id)
    if not values.keys() <= _NAMES[cls]:
        raise InvalidEvent(f"the bytes of {cls.type} {id!r:.80} have fields {sorted(values)}", id)
    event: Event = cls(id, values.pop(required[0]), **values)
    if event.skeleton() != skeleton or event.body() != body:
        raise InvalidEvent(f"the bytes of {cls.type} {id!r:.80} are not canonical", id)
    return event


def _tagged(flat: list[Any]) -> dict[str, Any]:
    if len(flat) % 2:
        raise InvalidEvent("the bytes of an event have a tag without a value", flat)
    try:
        return {_FIELDS[tag]: value for tag, value in zip(flat[::2], flat[1::2], strict=True)}
    except (KeyError, TypeError):
        raise InvalidEvent(f"the bytes of an event have an unknown tag among {flat[::2]!r:.80}", flat) from None


_REQUIRED: Final[dict[type[Any], tuple[str, ...]]] = {
    Message: ("id", "parent"),
    Memory: ("id", "text"),
    Retraction: ("id", "at", "scope"),
    Restoration: ("id", "at", "scope", "retraction"),
    Erasure: ("id", "targets"),
}
_NAMES: Final = {cls: frozenset(slot.name for slot in fields(cls)) for cls in TYPES.values()}


def skeleton_fields(skeleton: bytes) -> dict[str, Any]:
    """The fields of a canonical skeleton by name, without those at their default."""
    code, id, *flat = canonical.unpack(skeleton)
    return {"type": _BY_CODE[code].type, "id": id, **_tagged(flat)}


def conflict(id: str, stored: Mapping[str, Any], given: Mapping[str, Any]) -> EventConflict:
    """The error for two events of one id that differ; content is named only where all that an erasure leaves agrees."""
    for name in ("type", *_FIELDS.values()):
        if (name in stored) != (name in given) or pack([stored.get(name)]) != pack([given.get(name)]):
            return EventConflict(id, name, stored.get(name), given.get(name))
    raise AssertionError("events that differ have a field that differs")
