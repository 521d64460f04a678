"""Records written as msgpack, as the log writes them or in other forms than the shortest, and sealed as a block."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar
from zlib import crc32

import msgpack

T = TypeVar("T")


class Id(str):
    """An id in a record: in a block its number stands for it where it was mentioned before."""

    __slots__ = ()


class Raw(bytes):
    """Bytes that stand in a record as they are."""

    __slots__ = ()


class Chance:
    """Random choices that follow from one number, in a third of the time that `random` takes for them."""

    def __init__(self, seed: int) -> None:
        source = random.Random(seed)
        self._random = source.random
        self.bits = source.getrandbits
        self.bytes = source.randbytes

    def once_in(self, many: int) -> bool:
        """True once in so many times."""
        return self._random() * many < 1

    def below(self, end: int) -> int:
        """A number from 0, below `end`."""
        return int(self._random() * end)

    def one_of(self, values: Sequence[T]) -> T:
        """Any of these."""
        return values[int(self._random() * len(values))]


class Writer:
    """Writes records as msgpack, but for a number of oddities; with `numbers`, as the log would write them."""

    def __init__(self, chance: Chance, odds: int, numbers: dict[str, int] | None) -> None:
        self.chance = chance
        self.odds = odds
        self.known = numbers
        self.new: dict[str, int] = {}

    def odd(self, ways: int) -> int:
        """Which of so many ways it is written in, seldom another than the first."""
        if self.odds and self.chance.once_in(4):
            self.odds -= 1
            return self.chance.below(ways)
        return 0

    def value(self, value: Any) -> bytes:
        """The bytes of a value, by its type."""
        return self._forms[type(value)](self, value)

    def plain(self, value: Any) -> bytes:
        return _pack(value)

    def raw(self, value: Raw) -> bytes:
        return bytes(value)

    def real(self, value: float) -> bytes:
        return struct.pack(">Bf", 0xCA, value) if self.odd(2) else _pack(value)

    def mapping(self, value: dict[str, Any]) -> bytes:
        parts = [part for pair in value.items() for part in pair]
        return self.head(len(value), 0x80, b"\xde", b"\xdf") + b"".join(map(self.value, parts))

    def array(self, values: Sequence[Any]) -> bytes:
        return self.head(len(values), 0x90, b"\xdc", b"\xdd") + b"".join(map(self.value, values))

    def head(self, length: int, short: int, middle: bytes, long: bytes) -> bytes:
        way = self.odd(6)
        if way == 1:
            return middle + struct.pack(">H", length)
        if way == 2:
            return long + struct.pack(">I", length)
        if way == 3:
            return middle + self.chance.one_of((b"\xff\xff", b"\x10\x00", b"\x10\x01"))
        length = max(length + (0, 0, 0, 0, 1, -1)[way], 0)
        return bytes([short | length]) if length < 16 else middle + struct.pack(">H", length)

    def whole(self, value: int) -> bytes:
        way = self.odd(6)
        code, width = ((0, 0), (0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8), (0xD3, 8))[way]
        return bytes([code]) + (value % 256**width).to_bytes(width, "big") if way else _pack(value)

    def id(self, id: str) -> bytes:
        if self.known is None:
            return self.text(id)
        after, way = len(self.known) + len(self.new), self.odd(6)
        if way:
            numbers = (after, after + 1, self.chance.below(after + 1), 2**32)
            return self.text(id) if way == 1 else self.whole(self.chance.one_of(numbers))
        number = self.known.get(id, self.new.get(id))
        if number is not None:
            return self.whole(number)
        self.new[id] = after
        return self.text(id)

    def text(self, text: str) -> bytes:
        way, data = self.odd(8), text.encode()
        match way:
            case 1:
                return bytes([0xD9, len(data) % 256]) + data
            case 2:
                return struct.pack(">BH", 0xDA, len(data)) + data
            case 3:
                return struct.pack(">BI", 0xDB, len(data)) + data
            case 4:
                return bytes([0xC4, len(data) % 256]) + data
            case 5:
                return struct.pack(">BH", 0xDA, self.chance.one_of((256, 257))) + data
            case 6:
                return _pack(text)[:-1] + self.chance.one_of((b"\x80", b"\xc0", b"\xed", b"\xff"))
            case _:
                return _pack(text)

    _forms: ClassVar[Mapping[type, Callable[[Writer, Any], bytes]]] = {
        Id: id,
        Raw: raw,
        str: text,
        bool: plain,
        type(None): plain,
        int: whole,
        float: real,
        dict: mapping,
        list: array,
    }


def sealed(
    payload: bytes | bytearray, count: int, interned: int, first_seq: int, start: bytes = b"\x01\0\0\0"
) -> bytes:
    """A block with a true checksum around bytes that may be anything."""
    head = start + struct.pack("<IQ", count, interned)
    return head + struct.pack("<I", crc32(payload, crc32(head, crc32(struct.pack("<Q", first_seq))))) + payload


_pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True).pack
