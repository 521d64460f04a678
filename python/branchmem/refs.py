"""Named anchors: where each branch stands, and the log of their moves.

A ref is a name for a message.  Moving it writes no event and erases nothing: refs are local
state of a store, not part of its log.  Each move is kept and can be undone, that of a ref which
was deleted, too.  What is visible at a ref is the view at its message, nothing else.
"""

from __future__ import annotations

import unicodedata
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Set, ValuesView
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from branchmem import Message
from branchmem.canonical import from_microseconds, microseconds, now, pack, unpack
from branchmem.errors import AmbiguousName, InvalidRef, RefExists, RefMoved, UnknownRef

if TYPE_CHECKING:
    from branchmem import Store
    from branchmem.log import Reader, Writer

#: The tables of local state that refs live in.
TABLES: Final = ("refs", "reflog")
MAX_REF_BYTES: Final = 256

_END: Final = b"\0"
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Move:
    """A ref was made (`before` is None), moved, or deleted (`after` is None)."""

    name: str
    #: Counts the moves of this ref, from 1; it goes on where a ref is deleted and made again.
    number: int
    before: str | None
    after: str | None
    #: What was done, in a word: create, move, delete, undo, say, step, merge …
    why: str
    created: datetime

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {**asdict(self), "created": self.created.isoformat(timespec="microseconds")}

    def __str__(self) -> str:
        return f"{self.name}@{self.number} {self.why}: {self.before or 'nothing'} → {self.after or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """What no ref leads to: ids, in order of arrival.  Nothing of it is lost: a new ref makes it reachable."""

    #: Messages at which no ref stands, nor at any message below.
    messages: tuple[str, ...]
    #: Memories with an effective source that is not on the path of any ref, or without any.
    memories: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {"messages": list(self.messages), "memories": list(self.memories)}

    def __str__(self) -> str:
        messages, memories = len(self.messages), len(self.memories)
        return (
            f"{messages:,} message{'s' * (messages != 1)} and {memories:,} memor{'y' if memories == 1 else 'ies'} "
            "that no ref leads to"
        )


class Refs(Mapping[str, str]):
    """The refs of a store: name → id of the message.  Safe under threads and processes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, name: str, anchor: str) -> Move:
        """Name a message.

        Raises: RefExists; InvalidRef; UnknownEvent where `anchor` is no message of the log.
        """
        return self._move(name, anchor, "create", new=True)

    def move(self, name: str, anchor: str, *, expected: str | None = None) -> Move:
        """Let a ref stand at another message; with `expected`, only where it stands there now.

        Raises: UnknownRef; RefMoved where it does not stand at `expected`; UnknownEvent.
        """
        return self._move(name, anchor, "move", expected=expected)

    def delete(self, name: str, *, expected: str | None = None) -> Move:
        """Remove a name.  Erases nothing; `undo` brings it back.  Raises: UnknownRef; RefMoved."""
        return self._move(name, None, "delete", expected=expected)

    def undo(self, name: str, number: int | None = None) -> Move:
        """Let a ref stand where it stood before a move of its log, the latest by default; itself a move.

        Undoing that it was made deletes it.  Raises: UnknownRef where there is no such move.
        """
        valid_name(name)

        def plan(writer: Writer) -> tuple[tuple[()], Move]:
            found = None
            for move in _moves(writer, name):
                if number is None or move.number == number:
                    found = move
            if found is None:
                raise UnknownRef(name, "ref" if number is None else f"move {number} in the log of ref")
            return (), write_move(writer, name, found.before, "undo")

        return self._store.transact(plan, tables=TABLES)[1]

    def log(self, name: str | None = None) -> list[Move]:
        """The moves of a ref, or of all by name, the oldest first; those of deleted refs, too.

        Raises: UnknownRef where there never was such a ref.
        """
        if name is not None:
            valid_name(name)
        moves = self._store.snapshot(lambda reader: list(_moves(reader, name)), tables=TABLES)
        if name is not None and not moves:
            raise UnknownRef(name)
        return moves

    def heads(self, names: Iterable[str]) -> list[str]:
        """The messages of several refs, of one moment, in their order.  Raises: UnknownRef."""
        if isinstance(names, str):
            raise TypeError(f"names is a list of refs: write [{names!r:.80}]")
        asked = list(names)
        return self._store.snapshot(lambda reader: [head(reader, name) for name in asked], tables=TABLES)

    def __getitem__(self, name: str) -> str:
        return self._store.snapshot(lambda reader: head(reader, name), tables=TABLES)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and bool(self[name])
        except (UnknownRef, InvalidRef):
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.snapshot(lambda reader: list(all_heads(reader)), tables=TABLES))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> ItemsView[str, str]:
        """Name and message of each ref, of one moment, by name."""
        return self._store.snapshot(all_heads, tables=TABLES).items()

    def values(self) -> ValuesView[str]:
        """The message of each ref, of one moment, by name."""
        return self._store.snapshot(all_heads, tables=TABLES).values()

    def __repr__(self) -> str:
        return f"<{len(self)} refs of {self._store.path}>"

    def _move(self, name: str, anchor: str | None, why: str, *, expected: str | None = None, new: bool = False) -> Move:
        valid_name(name)

        def plan(writer: Writer) -> tuple[tuple[()], Move]:
            if new:
                refuse_existing(writer, name)
            else:
                expect(writer, name, head(writer, name) if expected is None else expected)
            if why != "delete":
                self._store.tree.parent(anchor)  # type: ignore[arg-type]  # refuses what is no message
            return (), write_move(writer, name, anchor, why)

        return self._store.transact(plan, tables=TABLES)[1]


def valid_name(name: object) -> str:
    """`name`, where a ref may bear it: 1 to 256 bytes of UTF-8 that can be printed on a line."""
    if not isinstance(name, str):
        raise TypeError(f"a ref has a string for a name, not {name!r:.80}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidRef(name, "it has a lone surrogate") from None
    if not 1 <= size <= MAX_REF_BYTES:
        raise InvalidRef(name, f"a name has 1 to {MAX_REF_BYTES} bytes of UTF-8, not {size}")
    if name != name.strip() or any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in name):
        raise InvalidRef(name, "a name has no control characters, and no space at its ends")
    return name


def anchor_of(store: Store, name: str) -> str:
    """The message that a name means, a ref's or its own.  Raises: UnknownRef; AmbiguousName where it means two."""
    try:
        at = store.refs.get(name)
    except InvalidRef:
        at = None
    is_message = store.skeleton(name).get("type") == Message.type
    if at is None and not is_message:
        raise UnknownRef(name, "ref or message")
    if at is not None and is_message and at != name:
        raise AmbiguousName(name, at)
    return name if at is None else at


def head(reader: Reader, name: str) -> str:
    """The message of a ref, inside a transaction.  Raises: UnknownRef."""
    value = reader.table("refs").get(valid_name(name).encode())
    if value is None:
        raise UnknownRef(name)
    return value.decode()


def all_heads(reader: Reader) -> dict[str, str]:
    """The message of each ref, by name, inside a transaction."""
    return {name.decode(): value.decode() for name, value in reader.table("refs").items()}


def refuse_existing(reader: Reader, name: str) -> None:
    """Raises: RefExists."""
    value = reader.table("refs").get(name.encode())
    if value is not None:
        raise RefExists(name, value.decode())


def expect(reader: Reader, name: str, anchor: str) -> None:
    """Refuse, inside a transaction, where a ref does not stand at `anchor`.  Raises: UnknownRef; RefMoved."""
    found = head(reader, name)
    if found != anchor:
        raise RefMoved(name, anchor, found)


def write_move(writer: Writer, name: str, after: str | None, why: str) -> Move:
    """Make, move or (None) delete a ref, inside a transaction, and note the move.  What is said is not checked."""
    refs, log = writer.table("refs"), writer.table("reflog")
    value = refs.get(name.encode())
    last = log.last(name.encode() + _END)
    number = 1 + (int.from_bytes(last[0][-_NUMBER_BYTES:], "big") if last else 0)
    move = Move(name, number, None if value is None else value.decode(), after, why, now())
    log.put(
        name.encode() + _END + number.to_bytes(_NUMBER_BYTES, "big"),
        pack((move.before, after, why, microseconds(move.created))),
    )
    if after is None:
        refs.delete(name.encode())
    else:
        refs.put(name.encode(), after.encode())
    return move


def _moves(reader: Reader, name: str | None) -> Iterator[Move]:
    prefix = b"" if name is None else name.encode() + _END
    for key, value in reader.table("reflog").items(prefix):
        before, after, why, created = unpack(value)
        number = int.from_bytes(key[-_NUMBER_BYTES:], "big")
        bare = key[: -_NUMBER_BYTES - len(_END)].decode()
        yield Move(bare, number, before, after, why, from_microseconds(created))


def unreachable(store: Store) -> Unreachable:
    """What no ref of the store leads to.

    Cost: O(log): reads the skeleton of every memory.
    """
    reached: set[str] = set()
    for anchor in store.refs.values():
        for id in reversed(store.tree.known_path(anchor)):
            if id in reached:
                break
            reached.add(id)
    memories = _reached_memories(store, reached)
    return Unreachable(
        tuple(id for id in store.message_ids if id not in reached),
        tuple(id for id in store.memory_ids if id not in memories),
    )


def _reached_memories(store: Store, messages: Set[str]) -> set[str]:
    """The memories all of whose effective sources are among these messages, and that have one.  O(memories)."""
    lacking: dict[str, int] = {}
    below: dict[str, list[str]] = {}
    ready: list[str] = []
    for id in store.memory_ids:
        fields = store.skeleton(id)
        sources, upstream = fields.get("sources", ()), fields.get("derived_from", ())
        if not (sources or upstream) or not messages >= set(sources):
            continue
        lacking[id] = len(upstream)
        for other in upstream:
            below.setdefault(other, []).append(id)
        if not upstream:
            ready.append(id)
    reached: set[str] = set()
    while ready:
        id = ready.pop()
        reached.add(id)
        for other in below.get(id, ()):
            lacking[other] -= 1
            if not lacking[other]:
                ready.append(other)
    return reached
