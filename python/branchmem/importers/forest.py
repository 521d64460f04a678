"""Which record of a source stands above which, and which records are copies of one another.

The records come one by one and are kept in columns: some 300 bytes each with
their id, whatever they say.  Nothing is guessed: a parent that is nowhere stays
one that is nowhere, and of a circle it is known that it is one.  What events the
records become is the linker's question, not one for here.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from branchmem.importers.records import Record

DIGEST_BYTES: Final = 16

# What is known of a node, as bits of `Forest.flags`.
LINKED: Final = 1  # it names a parent or a logical one, though that may be dropped
LOGICAL: Final = 2  # it names only a logical one
FIRST: Final = 4  # no earlier content of the source has its id
USABLE: Final = 8  # one could stand there
COPIED: Final = 16  # every record of it was `copied`
MERGED: Final = 32  # another node stands for it

_NEVER: Final = float("-inf")


def digest(body: bytes) -> bytes:
    """What stands for the content of a message: 128 bits of BLAKE2b over its canonical body."""
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()


def numbers(count: int, value: int) -> array[int]:
    """A column of `count` times a number of 32 bits."""
    return array("i", [value]) * count


def circles(above: Sequence[int]) -> Iterator[list[int]]:
    """The circles of a forest that went wrong: `above[i]` is the parent of i, or negative.  O(n)."""
    seen = numbers(len(above), 0)
    for start in range(len(above)):
        i = start
        while i >= 0 and not seen[i]:
            seen[i] = start + 1
            i = above[i]
        if i >= 0 and seen[i] == start + 1:
            circle = [i]
            while (i := above[i]) != circle[0]:
                circle.append(i)
            yield circle


@dataclass(frozen=True, slots=True)
class Starts:
    """Where walks begin: tops by the number of their conversation; nodes below messages that the log has; below
    missing ones; and in circles."""

    tops: dict[int, list[int]]
    elsewhere: list[int]
    dangling: list[int]
    circled: list[int]


class Forest:
    """A node for each content that a source has under an id; copies that do not differ are one node.

    Ids have numbers, and so have nodes; whatever is negative is none.
    """

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.number: dict[str, int] = {}
        # by number of an id: the node of its last record, and the node of its only content
        self._newest = array("i")
        self._only = array("i")
        # of ids with several contents: the nodes by content and by number of the parent
        self._several: dict[int, dict[bytes, dict[int, int]]] = {}
        # by node; `last` is the position of its last copy, `turn` is 0 or the same for those of one turn
        self.id = array("i")
        self.conversation = array("i")
        self.parent = array("i")
        self.place = array("q")
        self.created = array("d")
        self.turn = array("q")
        self.last = array("i")
        self.flags = bytearray()
        self._order = array("q")
        self._digests = bytearray()
        self._records = 0
        # by node, once linked
        self.above = array("i")
        self._child = array("i")
        self._sibling = array("i")

    def __len__(self) -> int:
        return len(self.id)

    def digest(self, node: int) -> bytes:
        """What stands for the content of a node."""
        return bytes(self._digests[node * DIGEST_BYTES : (node + 1) * DIGEST_BYTES])

    def newest(self, record_id: str) -> int:
        """The node of the last record that has this id."""
        number = self.number.get(record_id, -1)
        return -1 if number < 0 else self._newest[number]

    def take(self, record: Record, digest: bytes, created: datetime | None, *, usable: bool) -> bool:
        """Take in the next record, whose content has this digest and this time; say whether it is a copy.

        Of copies that differ in their link alone the linked one wins, whatever the order.
        """
        id, conversation = self._numbered(record.id), self._numbered(record.conversation)
        named = record.logical_parent if record.parent is None else record.parent
        parent = -1 if named is None else self._numbered(named)
        logical = LOGICAL if record.parent is None and named is not None else 0
        same = self._same(id, digest)
        is_copy = bool(same) and (parent < 0 or parent in same or -1 in same)
        if not is_copy:
            node = self._added(record, id, conversation, parent, digest)
            self.created[node] = _NEVER if created is None else created.timestamp()
            self.flags[node] |= logical
        elif parent < 0:
            node = next(iter(same.values()))
        elif parent in same:
            node = same[parent]
            self.flags[node] &= logical | ~LOGICAL
        else:
            node = same.pop(-1)
            self.conversation[node], self.parent[node], self._order[node] = conversation, parent, record.order
            self.flags[node] |= LINKED | logical
            self._put(node, id, digest)
        self.last[node] = self._records
        self._newest[id] = node
        if usable:
            self.flags[node] |= USABLE
        if not record.copied:
            self.flags[node] &= ~COPIED
        self._records += 1
        return is_copy

    def merge(self, said: Callable[[int], bytes]) -> int:
        """Let the nodes of what was copied stand aside for those that they are copies of; return how many did.

        `said` stands for what is said at a place: it is asked once a node of an id with copies.  Where no original
        is here, the copy with the earliest time stands for the others: no copy is older than what it copies.
        """
        merged = 0
        for id, by_content in self._several.items():
            nodes = sorted(node for by_parent in by_content.values() for node in by_parent.values())
            copies = [node for node in nodes if self.flags[node] & COPIED]
            if not copies:
                continue
            kept = {said(self.place[node]): node for node in nodes if not self.flags[node] & COPIED}
            for copy in sorted(copies, key=self.created.__getitem__):
                original = kept.setdefault(said(self.place[copy]), copy)
                if original == copy:
                    continue
                self.flags[original] |= self.flags[copy] & (FIRST | USABLE)
                self.flags[copy] = MERGED
                self.last[original] = max(self.last[original], self.last[copy])
                if self._newest[id] == copy:
                    self._newest[id] = original
                merged += 1
        return merged

    def link(self, is_stored: Callable[[str], bool]) -> tuple[Starts, int]:
        """Find what is above each node; return where walks begin, and how many circles there were.

        `is_stored` says whether a message of the log has an id.
        """
        self._several.clear()
        for node in range(len(self)):
            if self.flags[node] & MERGED:
                self.above.append(-1)
                continue
            parent = self.parent[node]
            at = -1 if parent < 0 else self._newest[parent]
            if at < 0 <= parent and self.flags[node] & LOGICAL and not is_stored(self.ids[parent]):
                self.parent[node] = -1
            self.above.append(at)
        opened = self._open_circles()
        self._rank()
        starts = Starts({}, [], [], [])
        for node in range(len(self)):
            if self.flags[node] & MERGED:
                continue
            tops = starts.tops.setdefault(self.conversation[node], [])
            parent = self.parent[node]
            if self.above[node] >= 0:
                continue
            if parent < 0:
                tops.append(node)
            elif self._newest[parent] >= 0:
                starts.circled.append(node)
            elif is_stored(self.ids[parent]):
                starts.elsewhere.append(node)
            else:
                starts.dangling.append(node)
        return starts, opened

    def walk(self, starts: Iterable[int]) -> Iterator[int]:
        """All nodes at and below `starts`, each after the one above it, branch by branch."""
        for start in starts:
            yield start
            waiting = [self._child[start]]
            while waiting:
                node = waiting.pop()
                if node >= 0:
                    yield node
                    waiting += (self._sibling[node], self._child[node])

    def turns(self) -> Sequence[int]:
        """For each node one that stands for its turn: the same for all of a turn, itself where it names none."""
        turns = array("i", range(len(self)))
        before = -1
        for node in sorted((node for node in turns if self.turn[node]), key=self.turn.__getitem__):
            if before >= 0 and self.turn[before] == self.turn[node]:
                turns[node] = turns[before]
            before = node
        return turns

    def standing(self) -> Iterator[int]:
        """The nodes that are usable and have nothing usable below them, the newest first."""
        inner = bytearray(len(self))
        for node in range(len(self)):
            if self.flags[node] & USABLE and self.above[node] >= 0:
                inner[self.above[node]] = 1
        found = (node for node in range(len(self)) if self.flags[node] & USABLE and not inner[node])
        return iter(sorted(found, key=lambda node: (self.created[node], self.last[node]), reverse=True))

    def _numbered(self, id: str) -> int:
        number = self.number.setdefault(id, len(self.ids))
        if number == len(self.ids):
            self.ids.append(id)
            self._newest.append(-1)
            self._only.append(-1)
        return number

    def _added(self, record: Record, id: int, conversation: int, parent: int, digest: bytes) -> int:
        node = len(self)
        self.id.append(id)
        self.conversation.append(conversation)
        self.parent.append(parent)
        self.place.append(record.place)
        self.created.append(_NEVER)
        self.turn.append(0 if record.turn is None else hash((conversation, record.turn)))
        self.last.append(0)
        self.flags.append(COPIED | (0 if self._newest[id] >= 0 else FIRST) | (LINKED if parent >= 0 else 0))
        self._order.append(record.order)
        self._digests += digest
        self._put(node, id, digest)
        return node

    def _same(self, id: int, digest: bytes) -> dict[int, int]:
        """The nodes that have this content under an id, by number of the parent."""
        several = self._several.get(id)
        if several is not None:
            return several.get(digest, {})
        only = self._only[id]
        return {self.parent[only]: only} if only >= 0 and self.digest(only) == digest else {}

    def _put(self, node: int, id: int, digest: bytes) -> None:
        only = self._only[id]
        if only < 0:
            self._only[id] = node
        elif only != node or id in self._several:
            several = self._several.setdefault(id, {self.digest(only): {self.parent[only]: only}})
            several.setdefault(digest, {})[self.parent[node]] = node

    def _open_circles(self) -> int:
        """Make every circle a chain that can be walked, and return how many there were.

        A link to a logical parent is dropped.  Where there is none, the node that
        comes last in the file keeps the parent it names, under its plain id.
        """
        found = list(circles(self.above))
        for circle in found:
            logical = [node for node in circle if self.flags[node] & LOGICAL]
            last = max(logical or circle, key=self.last.__getitem__)
            self.above[last] = -1
            if logical:
                self.parent[last] = -1
        return len(found)

    def _rank(self) -> None:
        """Chain the children of each node: by order, then as in the file."""
        ranked: Iterable[int] = range(len(self) - 1, -1, -1)
        if any(order != self._order[0] for order in self._order):
            ranked = sorted(range(len(self)), key=self._order.__getitem__)[::-1]
        self._child, self._sibling = numbers(len(self), -1), numbers(len(self), -1)
        for node in ranked:
            above = self.above[node]
            if above >= 0:
                self._sibling[node], self._child[above] = self._child[above], node
