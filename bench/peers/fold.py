"""The peer of opening: a plain Python fold over the blocks of a log.

What a good Python programmer would write for replay: msgpack's C parser, one
dict from id to number, lists for the rest.  It decodes, interns and links,
which is less than opening does: the blocks are handed over in memory, no
checksum is verified, no event held against the rules, nothing reduced or
prepared for a question.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

_HEADER_BYTES: Final = 20
_MESSAGE: Final = 0
_SOURCES: Final = 2
_DERIVED_FROM: Final = 3
ROOT: Final = -1
UNKNOWN: Final = -2


@dataclass(slots=True)
class Fold:
    """Ids are numbered in order of first mention; messages and memories stand in order of arrival.

    `parents[i]` and `sources[j]` are the numbers of the ids that message i and memory j name.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    messages: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    memories: list[int] = field(default_factory=list)
    sources: list[list[int]] = field(default_factory=list)

    def take_in(self, records: Iterable[list[Any]]) -> None:
        """Link the records of a block, each `[type, id, tag, value, ...]`."""
        numbers = self.numbers
        for record in records:
            id: Any = record[1]
            if type(id) is str:
                numbers[id] = id = len(numbers)
            if record[0] == _MESSAGE:
                parent: Any = record[3] if len(record) == 4 else UNKNOWN
                if type(parent) is str:
                    numbers[parent] = parent = len(numbers)
                self.messages.append(id)
                self.parents.append(ROOT if parent is None else parent)
            else:
                sources: list[int] = []
                for at in range(2, len(record), 2):
                    if record[at] == _SOURCES:
                        sources = self._numbers(record[at + 1])
                    elif record[at] == _DERIVED_FROM:
                        self._numbers(record[at + 1])
                self.memories.append(id)
                self.sources.append(sources)

    def _numbers(self, references: list[Any]) -> list[int]:
        numbers = self.numbers
        for at, reference in enumerate(references):
            if type(reference) is str:
                numbers[reference] = references[at] = len(numbers)
        return references


def fold(blocks: Iterable[bytes]) -> Fold:
    """Replay all blocks."""
    folded = Fold()
    unpacker = msgpack.Unpacker()
    for block in blocks:
        unpacker.feed(memoryview(block)[_HEADER_BYTES:])
        folded.take_in(unpacker)
    return folded
