"""What only one branch saw, and what is erased when its memory is deleted.

That are the messages to which its ref led, now or before, and that of no other ref, with all below
them; and each memory that has one of them among its effective sources.  What was taken over on another
branch has sources of its own there and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from branchmem import new_id
from branchmem.canonical import MAX_REFERENCES
from branchmem.events import Erasure

if TYPE_CHECKING:
    from branchmem import Appended, Store
    from branchmem.refs import Move

#: Why a ref was moved when its branch was renamed; the other name follows.
RENAMED_FROM: Final = "rename from "
RENAMED_TO: Final = "rename to "
#: So many ids are named in a sentence; a receipt holds them all.
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """What only one branch saw: ids, in order of arrival, without what was erased before."""

    messages: tuple[str, ...]
    memories: tuple[str, ...]
    #: Memories of other branches that were taken over from these, or from what derives from them.
    adopted: tuple[str, ...]

    def erasures(self, ids: list[str]) -> list[Erasure]:
        """The events that erase it and nothing else, with these ids, to which are added as many as are needed."""
        parts = list(_batches((*self.messages, *self.memories)))
        ids.extend(new_id() for _ in parts[len(ids) :])
        return [Erasure(id, part, cascade=False) for id, part in zip(ids, parts, strict=False)]


@dataclass(frozen=True, slots=True)
class Deleted:
    """What deleting the memory of a branch did, or would do: ids and counts, never content.

    The content is out of reach for every reader at once; its bytes stay in free pages of the file until
    `store.compact()`.  Ids and keys outlive it, and so do the reasons of retractions.
    """

    ref: str
    #: The message at which the ref stood.
    head: str
    #: What lost its content, or would: what only that branch saw.
    seen: Seen
    #: The ids of the erasures; none where nothing was written, or nothing was the branch's alone.
    erasures: tuple[str, ...] = ()
    #: What the log made of them; None where nothing was written (`dry_run`).
    appended: Appended | None = None

    @property
    def dry_run(self) -> bool:
        """Whether nothing was written."""
        return self.appended is None

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "dry_run": self.dry_run,
            "ref": self.ref,
            "head": self.head,
            "messages": list(self.seen.messages),
            "memories": list(self.seen.memories),
            "adopted": list(self.seen.adopted),
            "erasures": list(self.erasures),
            "added": 0 if self.appended is None else self.appended.added,
        }

    def __str__(self) -> str:
        messages, memories, adopted = len(self.seen.messages), len(self.seen.memories), self.seen.adopted
        said, known = "message" if messages == 1 else "messages", "memory" if memories == 1 else "memories"
        gone = f"{messages:,} {said} and {memories:,} {known}"
        parts = [
            f"{'would delete' if self.dry_run else 'deleted'} {self.ref}, which stood at {self.head}",
            f"{gone} {'would lose' if self.dry_run else 'lost'} their content, in free pages until compact",
        ]
        if adopted:
            more = f" and {len(adopted) - _NAMED} more" if len(adopted) > _NAMED else ""
            parts.append(f"taken over elsewhere, where it stays: {', '.join(adopted[:_NAMED])}{more}")
        return "; ".join(parts)


def only_seen_by(store: Store, ref: str) -> Seen:
    """What only the branch of a ref saw, within the tree of its head.

    Cost: the log of moves, the paths of all refs, and what goes.
    """
    heads, logs = dict(store.refs.items()), _by_name(store.refs.log())
    tree, head = store.tree, heads[ref]
    kept: set[str] = set()
    for name in heads.keys() - {ref}:
        _reach(store, _led_to(logs, name), kept)
    seen: set[str] = set()
    _reach(store, (id for id in _led_to(logs, ref) if tree.common_ancestor(id, head) is not None), seen)
    waiting = list(seen - kept)
    messages = set(waiting)
    while waiting:
        below = [id for id in tree.children(waiting.pop()) if id not in messages]
        messages.update(below)
        waiting += below
    memories, adopted = _drawn_from(store, messages)
    log = store.log
    fresh = [id for id in messages if not log.is_erased(id)]
    ordinals = dict(zip(fresh, store.message_ordinals(fresh).tolist(), strict=True))
    return Seen(tuple(sorted(fresh, key=ordinals.__getitem__)), memories, adopted)


def _by_name(moves: Iterable[Move]) -> dict[str, list[Move]]:
    logs: dict[str, list[Move]] = {}
    for move in moves:
        logs.setdefault(move.name, []).append(move)
    return logs


def _led_to(logs: Mapping[str, Sequence[Move]], name: str) -> set[str]:
    """The messages at which a ref stood, under the names that its branch bore before, too."""
    led: set[str] = set()
    asked: set[tuple[str, str | None]] = set()
    waiting: list[tuple[str, str | None]] = [(name, None)]
    while waiting:
        one = waiting.pop()
        if one in asked:
            continue
        asked.add(one)
        for move in _life(logs.get(one[0], ()), one[1]):
            led.update(id for id in (move.before, move.after) if id is not None)
            if move.why.startswith(RENAMED_FROM):
                waiting.append((move.why.removeprefix(RENAMED_FROM), one[0]))
    return led


def _life(moves: Sequence[Move], until: str | None) -> list[Move]:
    """The moves of a name since it was last renamed; or those before its branch was renamed `until`."""
    found: list[Move] = []
    life: list[Move] = []
    for move in moves:
        life.append(move)
        if move.after is None and move.why.startswith(RENAMED_TO):
            if until is not None and move.why == RENAMED_TO + until:
                found += life
            life = []
    return life if until is None else found


def _reach(store: Store, anchors: Iterable[str], reached: set[str]) -> None:
    """Add the paths of the anchors to what is reached, as far as the log has them.  O(what is added)."""
    for anchor in anchors:
        id: object = anchor
        while isinstance(id, str) and id not in reached and id in store.log:
            reached.add(id)
            id = store.tree.parent(id)


def _drawn_from(store: Store, messages: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The memories with one of the messages among their effective sources, and those that only adopt such.

    The engine finds all that an erasure with all downstream would take; whose own sources, or those of what it
    derives from, name none of the messages, has only adopted.
    """
    engine = store._fresh()
    _, seqs = engine.erased_by([Erasure(new_id(), part).skeleton() for part in _batches(sorted(messages))])
    ids = [engine.event_ids(seq, seq + 1)[0] for seq in sorted(seqs)]
    taken = [id for id in ids if engine.is_memory(id)]
    drawn = _downstream(store, taken, messages)
    return tuple(id for id in taken if id in drawn), tuple(id for id in taken if id not in drawn)


def _downstream(store: Store, memories: Iterable[str], messages: set[str]) -> set[str]:
    """Of the memories and all that they derive from, those with one of the messages among their effective sources."""
    derivers: dict[str, list[str]] = {}
    found: set[str] = set()
    known = set(memories)
    waiting = list(known)
    while waiting:
        id = waiting.pop()
        fields = store.skeleton(id)
        if not messages.isdisjoint(fields.get("sources", ())):
            found.add(id)
        for upstream in fields.get("derived_from", ()):
            derivers.setdefault(upstream, []).append(id)
            if upstream not in known:
                known.add(upstream)
                waiting.append(upstream)
    waiting = list(found)
    while waiting:
        new = [id for id in derivers.get(waiting.pop(), ()) if id not in found]
        found.update(new)
        waiting += new
    return found


def _batches(ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(ids)
    while part := tuple(islice(rest, MAX_REFERENCES)):
        yield part
