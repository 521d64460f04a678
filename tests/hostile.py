"""Hostile bytes: blocks, skeletons and bodies that are valid, but for what was done to them.

What is done happens on four levels: values of a record are deformed; what is
written is written in other forms than the shortest; bytes are changed by hands
that do not know what they mean; the header says something else.  But for the
last, the checksum is made right again: else nothing would get past it.
Everything follows from the seed and the number of an input.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

from branchmem._core import Engine
from branchmem.canonical import MAX_REFERENCES
from branchmem.codec import Interner, decode_block, encode_block
from branchmem.events import Event, Memory, Message
from oddly import Chance, Id, Raw, Writer, sealed

#: Type, id, then tags and values; a body has tags and values alone.
Record = list[Any]

#: Names at the limits of lengths and encodings, beginnings of each other, and of one to four bytes a letter.
NAMES = [
    *("x" * length for length in (1, 2, 30, 31, 32, 33, 254, 255, 256)),
    *(form for letter in "\0\x7fé\u07ff日\uffff𝄞\U0010ffff" for form in (letter, "a" + letter, letter * 64)),
    *"abcdefghijklmnop",
    *("fact", "summary", "ab", "A", "-1", "0", "c00001 "),
]

#: What no record holds, in msgpack: other types, sizes that nothing stands behind, and text that is none.
STRANGE = [
    *(b"", b"\xc0", b"\xc1", b"\xc2", b"\xc3", b"\xc4\x00", b"\xc6\xff\xff\xff\xff", b"\xc7\x00\x05", b"\xc7\x00\xff"),
    *(b"\xca\x3f\x80\x00\x00", b"\xcb\x7f\xf8\0\0\0\0\0\0", b"\xcf" + b"\xff" * 8, b"\xd0\xff", b"\xd6\xff\0\0\0\0"),
    *(
        b"\xdb\xff\xff\xff\xff",
        b"\xdc\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x80",
        b"\x81\xa1a\xc0",
    ),
    *(b"\xa0", b"\xa1\xff", b"\xa2\xc3\x28", b"\xa3\xed\xa0\x80", b"\xa4\xf4\x90\x80\x80", b"\xa2\xc0\x80", b"\xe0"),
    *(b"\x91" * depth + b"\xc0" for depth in (1, 2, 33, 34, 500, 990, 1020, 1100)),
    *(b"\x81\xa1a" * depth + b"\xc0" for depth in (31, 32, 33, 1000)),
    b"\xdc\x10\x00" * 700,
]

#: Values that no skeleton holds, and few bodies.
ODD_ONES: list[Any] = [0.0, 1.0, 0.5, float("nan"), float("inf"), -1, -40, -200, {}, {"a": 1}, {"b": 1, "a": [{}]}]

#: Bytes that begin something in msgpack, or end a range of it.
TELLING = bytes.fromhex("00017f808f9092949fa0a1bfc0c1c2c3c4c7cacccdcecfd0d6d9dadbdcdde0ff")

_KINDS = (0, 0, 1, 1, 1, 2, 3, 4)
_LENGTHS = (1, 1, 1, 2, 2, 2, 3, 3, 5, 20)


@dataclass(frozen=True)
class Context:
    """A log that a block may follow on, and the names that blocks mention, sorted."""

    events: tuple[Event, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, size: int) -> Context:
        """A log that mentions so many ids: so numbers take one byte, or two, three or five."""
        mentioned = [f"c{at:05}" for at in range(size)]
        events: list[Event] = [
            Memory(mentioned[at], "", sources=mentioned[at + 1 : at + 4000]) for at in range(0, size, 4000)
        ]
        if size > 1:
            events.append(Message(mentioned[1], None))
        seen = mentioned[:: size // 40 + 1] + mentioned[-1:]
        return cls(tuple(events), tuple(sorted({*NAMES, *seen, *(event.id for event in events)})))

    @cached_property
    def blocks(self) -> list[tuple[int, bytes]]:
        """The log in its bytes, with the place of each block."""
        return [(0, encode_block(0, [event.skeleton() for event in self.events], Interner()))] if self.events else []

    @cached_property
    def interner(self) -> Interner:
        """The ids that the log mentions; what comes on top is to be forgotten again."""
        interner = Interner()
        for first_seq, block in self.blocks:
            decode_block(first_seq, block, interner)
        return interner

    @cached_property
    def borne(self) -> frozenset[str]:
        """The ids of the events."""
        return frozenset(event.id for event in self.events)

    def engine(self) -> Engine:
        """An engine that holds the log."""
        engine = Engine(0)
        engine.fold(self.blocks)
        return engine


class Hostile(Chance):
    """What chance makes of a context; the same for equal seeds and numbers."""

    def __init__(self, seed: int, number: int, context: Context) -> None:
        super().__init__(seed << 64 | number)
        self.context = context

    # What is valid.

    def name(self) -> str:
        """One of the names."""
        return self.one_of(self.context.names)

    def some(self, form: Callable[[str], str]) -> list[str]:
        """A few of the names, sorted, without repeats."""
        return [form(name) for name in sorted({self.name() for _ in range(self.one_of(_LENGTHS))})]

    def record(self) -> Record:
        """The record of a valid event, mostly with an id that nothing bears."""
        id = self.name()
        if id in self.context.borne:
            id = self.name()
        kind = self.one_of(_KINDS)
        record: Record = [kind, Id(id)]
        if kind == 0:
            parents: tuple[Record, ...] = ([], [1, None], [1, Id(self.name())])
            record += parents[min(self.below(6), 2)]
        elif kind == 1:
            for tag in (2, 3, 4):
                if self.once_in(2):
                    record += [tag, self.some(Id)]
            if self.once_in(4):
                record += [5, Id(self.name())]
            for tag in (6, 7):
                if self.once_in(3):
                    record += [tag, self.name().replace("fact", "facts")]
        elif kind == 4:
            record += [14, self.some(Id)] + [15, False] * self.once_in(2)
        else:
            named = 1 + self.below(7) if kind == 2 else 0
            record += [2, self.some(Id)] if named & 1 else []
            record += [8, Id(self.name()), 9, self.below(3)]
            record += [10, self.some(Id)] if named & 2 else []
            record += [11, self.some(str)] if named & 4 else []
            record += ([12, True] * self.once_in(2)) if kind == 2 else [13, Id(self.name())]
        return record

    def long_lists(self) -> Record:
        """A memory that refers to about as many ids as one may."""
        total = MAX_REFERENCES - 1 + self.below(3)
        names, first = [Id(f"l{at:04}") for at in range(total)], self.one_of((1, 15, 16, total // 2, total - 1))
        return [1, Id(self.name()), 2, names[:first], 3, names[first:]]

    def content(self, kind: int) -> Record:
        """The body of a valid event of this type."""
        body: Record = []
        if kind == 0:
            body += ([32, self.name()] * self.once_in(2)) + ([33, self.name() * 3] * self.once_in(2))
        if kind == 1:
            body += [33, self.name() * 3] + [34, self.one_of((0.0, 0.5, 0.1))] * self.once_in(2)
        if self.once_in(2):
            body += [35, [self.one_of((0, -1, 10**15, -62_135_500_000_000_000)), self.one_of((0, 60, -330, 1439))]]
        if kind < 2 and self.once_in(2):
            body += [36, {name: self.meta(2) for name in self.some(str)}]
        return body + ([37, self.name()] * self.once_in(2) if kind == 2 else [])

    def meta(self, depth: int) -> Any:
        """What may stand in meta, with so many levels below it."""
        if depth and self.once_in(3):
            return {name: self.meta(depth - 1) for name in self.some(str)}
        if depth and self.once_in(3):
            return [self.meta(depth - 1) for _ in range(self.below(4))]
        return self.one_of((None, True, 0, -1, 2**63, -(2**63), 2**64 - 1, 1.0, -0.0, self.name()))

    # What may be wrong with it.

    def deform(self, record: Record, start: int = 2) -> None:
        """Do one thing to a record whose tags begin at `start`."""
        fields = (len(record) - start) // 2
        tag = start + 2 * self.below(fields) if fields > 0 else 0
        lists = [value for value in record if isinstance(value, list)]
        what = self.below(10)
        if what == 0 and fields > 1:
            other = start + 2 * self.below(fields)
            record[tag : tag + 2], record[other : other + 2] = record[other : other + 2], record[tag : tag + 2]
        elif what == 1:
            record += record[tag : tag + 2]
        elif what == 2:
            del record[tag : tag + 2]
        elif what == 3 and fields > 0:
            record[tag] = self.one_of((*range(17), 31, 32, 33, 34, 35, 36, 37, 99))
        elif what == 4 and start and record:
            record[0] = self.one_of((0, 1, 2, 3, 4, 5, 255, 256, -1))
        elif what == 5:
            del record[-1:]
        elif what == 6:
            record += self.record()[2:] if start else self.content(self.below(5))
        elif what in (7, 8) and lists:
            self.deform_list(self.one_of(lists))
        elif record:
            record[self.below(len(record))] = self.anything()

    def deform_list(self, values: list[Any]) -> None:
        """Do one thing to a list that it may not bear."""
        match self.below(6):
            case 0:
                values.reverse()
            case 1:
                values += values[:1]
            case 2:
                values.clear()
            case 3:
                values.append(self.anything())
            case 4 if values:
                values[0] = self.anything()
            case _:
                values.append(Id(self.name()))

    def anything(self) -> Any:
        """A value of any kind."""
        match self.below(9):
            case 0:
                return None
            case 1:
                return self.once_in(2)
            case 2:
                return self.below(17)
            case 3:
                return self.bits(64) >> self.below(64)
            case 4:
                return Id(self.name())
            case 5:
                return self.name()
            case 6:
                return self.some(self.one_of((Id, str)))
            case 7:
                return self.one_of(ODD_ONES)
            case _:
                return Raw(self.one_of(STRANGE))

    def touch(self, data: bytearray) -> None:
        """Do one thing to bytes that knows nothing of what they mean."""
        at = self.below(len(data)) if data else 0
        end = at + self.one_of((1, 1, 2, 4, 9, 41))
        match self.below(9) if data else 4:
            case 0:
                data[at] ^= 1 << self.below(8)
            case 1:
                data[at] = self.below(256)
            case 2:
                data[at] = self.one_of(TELLING)
            case 3:
                data[at] = (data[at] + self.one_of((1, 255))) % 256
            case 4:
                data.insert(at, self.one_of(TELLING))
            case 5:
                del data[at:end]
            case 6:
                data += data[at:end]
            case 7:
                to = self.below(len(data))
                data[to:to] = data[at:end]
            case _:
                del data[at:]

    def effort(self) -> tuple[int, int, int]:
        """How many values are deformed, how many written oddly, and how often bytes are touched."""
        some = self.one_of((1, 1, 1, 2, 4))
        one_level = [(0, 0, 0)] * 2 + [(some, 0, 0)] * 3 + [(0, some, 0)] * 2 + [(0, 0, some)]
        return self.one_of([*one_level, (some, 1, 1)])

    # The bytes.

    def block(self) -> tuple[bytes, bool]:
        """A block that claims to follow on the context, and whether nothing was done to it."""
        interned, first_seq = len(self.context.interner.ids), len(self.context.events)
        if self.once_in(32):
            noise = self.bytes(self.below(80))
            return sealed(noise, 1 + self.below(3), interned, first_seq), False
        deformed, odd, touched = self.effort()
        batch = [self.record() for _ in range(self.one_of((1, 1, 1, 2, 2, 3, 5)))]
        sound = not deformed + odd + touched
        if self.once_in(2000):
            batch = [self.long_lists()]
            sound = sound and len(batch[0][3]) + len(batch[0][5]) <= MAX_REFERENCES
        elif self.once_in(2000):
            batch = [self.record() for _ in range(999 + self.below(3))]
            sound = sound and len(batch) <= 1000
        for _ in range(deformed):
            self.deform(self.one_of(batch))
        writer = Writer(self, odd, self.context.interner.numbers)
        payload = bytearray(b"".join(map(writer.array, batch)))
        for _ in range(touched):
            self.touch(payload)
        if not self.once_in(24):
            return sealed(payload, len(batch), interned, first_seq), sound
        return self.with_a_header_that_lies(payload, len(batch), interned, first_seq), False

    def with_a_header_that_lies(self, payload: bytes | bytearray, count: int, interned: int, first_seq: int) -> bytes:
        """A block whose header is not what belongs there, or whose checksum is wrong."""
        start = b"\x01\0\0\0"
        match self.below(7):
            case 0:
                start = self.one_of((b"\0\0\0\0", b"\x02\0\0\0", b"\xff\0\0\0", b"\x01\x01\0\0", b"\x01\0\0\x80"))
            case 1:
                count = self.one_of((0, count + 1, count - 1, 1000, 1001, 2**32 - 1))
            case 2:
                interned = self.one_of((interned + 1, abs(interned - 1), 1 << 32, 2**64 - 1))
            case 3:
                first_seq += 1
            case 4:
                data = bytearray(sealed(payload, count, interned, first_seq))
                del data[self.below(24) :]
                return bytes(data)
            case _:
                data = bytearray(sealed(payload, count, interned, first_seq))
                self.touch(data)
                return bytes(data)
        return sealed(payload, count, interned, first_seq, start)

    def skeleton(self) -> tuple[bytes, bool]:
        """A skeleton in its string form, and whether nothing was done to it."""
        record = self.long_lists() if self.once_in(2000) else self.record()
        sound = sum(len(value) for value in record if isinstance(value, list)) <= MAX_REFERENCES
        return self.spelled(record, sound)

    def event(self, seq: int) -> tuple[bytes, bytes, bool]:
        """A skeleton, the record of a body at this place of the log, and whether nothing was done to either."""
        record = self.record()
        kind = record[0]
        skeleton, sound = self.spelled(record, True) if self.once_in(8) else (Writer(self, 0, None).array(record), True)
        other = self.below(5) if self.once_in(16) else kind
        body, is_valid = self.spelled(self.content(other), other == kind, start=0)
        record_of_it, is_untouched = self.body_record(seq, body)
        return skeleton, record_of_it, sound and is_valid and is_untouched

    def body_record(self, seq: int, body: bytes) -> tuple[bytes, bool]:
        """The record of a body, mostly with a true checksum, and whether nothing was done to it."""
        start, sound = b"\x01\0\0\0", True
        if self.once_in(24):
            start = self.one_of((b"\0\0\0\0", b"\x02\0\0\0", b"\x01\x01\0\0", b"\x01\x02\0\0", b"\x01\0\0\x07"))
            body, sound = self.one_of((body, b"")), False
        record = bytearray(start + struct.pack("<I", crc32(body, crc32(struct.pack("<Q", seq) + start))) + body)
        if self.once_in(48):
            sound = False
            self.touch(record)
        return bytes(record), sound

    def spelled(self, record: Record, sound: bool, start: int = 2) -> tuple[bytes, bool]:
        """The bytes of a record without numbers, and whether it was sound and nothing was done to it."""
        deformed, odd, touched = self.effort()
        for _ in range(deformed):
            self.deform(record, start)
        data = bytearray(Writer(self, odd, None).array(record))
        for _ in range(touched):
            self.touch(data)
        return bytes(data), sound and not deformed + odd + touched
