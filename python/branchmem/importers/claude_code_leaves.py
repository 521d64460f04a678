"""At which message each Claude Code conversation stands: the rule by which its own reader resumes.

A transcript names no leaf.  Its reader takes, among the messages that nothing
continues, the one whose nearest prompt or answer stands last in the file, where
that is neither an agent's, nor a team's, nor hidden.  What agents did is not
told to this module at all.

A message stands where its last copy does, in the first file that has it: what a
later file repeats is no news.  One that hangs under its root comes before one
whose parent is in no file, and before those of teams and hidden ones, which
count only where a conversation has nothing else.

Source: `_build_conversation_chain` of claude-agent-sdk-python, which knows
neither several files nor logical parents.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

# What a record is to the rule.
BESIDE: Final = 0  # neither prompt nor answer: what stands above it decides
MAIN: Final = 1
ASIDE: Final = 2  # a team's, or hidden

_UNKNOWN: Final = -1
_IN_A_CIRCLE: Final = -2


class Leaves:
    """The records of several files in columns, 33 bytes each, ids as their hashes."""

    def __init__(self) -> None:
        self._ids = array("q")
        self._parents = array("q")
        self._logical = bytearray()
        self._kinds = bytearray()
        self._conversations = array("i")
        self._places = array("q")
        self._files = array("i")
        self._names: dict[str, int] = {}

    def add(
        self, id: str, parent: str | None, *, logical: bool, kind: int, conversation: str, place: int, file: int
    ) -> None:
        """Take in the next record; `logical` where `parent` is its logical one."""
        self._ids.append(_key(id))
        self._parents.append(0 if parent is None else _key(parent))
        self._logical.append(logical)
        self._kinds.append(kind)
        self._conversations.append(self._names.setdefault(conversation, len(self._names)))
        self._places.append(place)
        self._files.append(file)

    def conversation(self, id: str) -> str | None:
        """The conversation of the first record with this id, None where there is none.  O(records)."""
        try:
            at = self._conversations[self._ids.index(_key(id))]
        except ValueError:
            return None
        return next(name for name, number in self._names.items() if number == at)

    def found(self) -> Iterator[tuple[str, int]]:
        """Each conversation that stands somewhere, with the place of the record at which it does.  O(n log n)."""
        tree = _Tree(self._ids, self._parents, self._logical, self._files)
        best: dict[int, tuple[tuple[bool, bool, int, int], int]] = {}
        for node in tree.ends():
            nearest = self._nearest(tree, node)
            top = tree.top(node)
            if nearest < 0 or top < 0:
                continue
            rank = (
                tree.is_attached(top),
                self._kinds[tree.position[nearest]] == MAIN,
                tree.position[nearest],
                tree.position[node],
            )
            conversation = self._conversations[tree.position[top]]
            if conversation not in best or rank > best[conversation][0]:
                best[conversation] = rank, self._places[tree.position[node]]
        names = list(self._names)
        for conversation, (_, place) in best.items():
            yield names[conversation], place

    def _nearest(self, tree: _Tree, node: int) -> int:
        """The nearest prompt or answer at or above a node, or negative."""
        seen: set[int] = set()
        while node >= 0 and node not in seen and self._kinds[tree.position[node]] == BESIDE:
            seen.add(node)
            node = tree.above[node]
        return -1 if node in seen else node


class _Tree:
    """The messages that records stand for, copies taken together, numbered in the order of their keys.

    `position` is the record at which a message stands, `above` its parent, negative where there is none here.
    """

    def __init__(self, ids: array[int], parents: array[int], logical: bytearray, files: array[int]) -> None:
        self.position = array("i")
        self.above = array("i")
        self._keys = array("q")
        self._parents = array("q")
        self._logical = bytearray()
        for record in sorted(range(len(ids)), key=ids.__getitem__):
            if not self._keys or ids[record] != self._keys[-1]:
                self._keys.append(ids[record])
                self.position.append(record)
                self._parents.append(parents[record])
                self._logical.append(logical[record])
                continue
            if files[record] == files[self.position[-1]]:
                self.position[-1] = record
            if not self._parents[-1] and parents[record]:
                self._parents[-1], self._logical[-1] = parents[record], logical[record]
        for parent in self._parents:
            at = bisect_left(self._keys, parent) if parent else len(self._keys)
            self.above.append(at if at < len(self._keys) and self._keys[at] == parent else -1)
        self._tops = array("i", [_UNKNOWN]) * len(self._keys)

    def ends(self) -> Iterator[int]:
        """The messages that nothing continues."""
        continued = bytearray(len(self.above))
        for at in self.above:
            if at >= 0:
                continued[at] = 1
        return (node for node, inner in enumerate(continued) if not inner)

    def top(self, node: int) -> int:
        """Where climbing ends; negative in a circle.  A circle through a logical parent ends there."""
        way: list[int] = []
        answer = _UNKNOWN
        while answer == _UNKNOWN:
            if self._tops[node] != _UNKNOWN:
                answer = self._tops[node]
                if answer == _IN_A_CIRCLE and node in way:
                    logical = [at for at in way[way.index(node) :] if self._logical[at]]
                    answer = max(logical, key=lambda at: self.position[at]) if logical else _IN_A_CIRCLE
                break
            way.append(node)
            self._tops[node] = _IN_A_CIRCLE  # met again before the way ends, it is one
            if self.above[node] < 0:
                answer = node
            node = self.above[node]
        for at in way:
            self._tops[at] = answer
        return answer

    def is_attached(self, top: int) -> bool:
        """Whether a top hangs under the root of its conversation."""
        return not self._parents[top] or bool(self._logical[top])


def _key(id: str) -> int:
    """A hash that is not 0, the sign of no parent."""
    return hash(id) or 1
