"""What each field of an event may hold, and the bytes that stand for it.

One function a kind of field: it returns the value in its one canonical form or
raises InvalidEvent with the value at fault.  `pack` and `unpack` are msgpack
with the limits of the format; nothing here knows which event has which field.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, Final

import msgpack

from branchmem.errors import InvalidEvent, InvalidEventType

MAX_ID_BYTES: Final = 256
MAX_REFERENCES: Final = 4096
MAX_TEXT_BYTES: Final = 1 << 20
MAX_META_BYTES: Final = 1 << 20
MAX_META_DEPTH: Final = 32

NO_META: Final[Mapping[str, Any]] = MappingProxyType({})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)
_MINUTE = timedelta(minutes=1)
_pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True).pack


class Tag:
    """The tag of each field in canonical bytes: skeleton below 32, body from 32."""

    PARENT: Final = 1
    SOURCES: Final = 2
    DERIVED_FROM: Final = 3
    SUPERSEDES: Final = 4
    ADOPTS: Final = 5
    KIND: Final = 6
    KEY: Final = 7
    AT: Final = 8
    SCOPE: Final = 9
    MEMORIES: Final = 10
    KEYS: Final = 11
    STANDING: Final = 12
    RETRACTION: Final = 13
    TARGETS: Final = 14
    CASCADE: Final = 15
    ROLE: Final = 32
    TEXT: Final = 33
    IMPORTANCE: Final = 34
    CREATED: Final = 35
    META: Final = 36
    REASON: Final = 37


def pack(values: Iterable[Any]) -> bytes:
    """The canonical msgpack array of `values`."""
    return _pack(values)


def unpack(data: bytes) -> list[Any]:
    """The array in `data`; ValueError for anything else.  Extension types and what is nested too deep are refused."""
    try:
        out = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            use_list=True,
            ext_hook=_refuse_extension,
            max_ext_len=0,
            max_bin_len=0,
        )
    except (msgpack.UnpackException, ValueError, RecursionError) as error:
        raise ValueError(f"not canonical msgpack: {error}") from None
    if not isinstance(out, list):
        raise ValueError("not a msgpack array")
    if is_deeper(out, 1 + MAX_META_DEPTH):
        raise ValueError(f"nested deeper than {MAX_META_DEPTH}")
    return out


def is_deeper(holder: list[Any] | dict[Any, Any], levels: int) -> bool:
    """Whether lists and maps stand in each other on more than so many levels.  O(size)."""
    if not levels:
        return True
    for part in holder.values() if type(holder) is dict else holder:
        if (type(part) is list or type(part) is dict) and is_deeper(part, levels - 1):
            return True
    return False


def _refuse_extension(code: int, data: bytes) -> Any:
    raise ValueError("an extension type")


def id_(value: object, field: str) -> str:
    """A name: 1 to 256 bytes of valid UTF-8."""
    if not isinstance(value, str):
        raise InvalidEventType(f"{field} must be a string, not {value!r:.80}", value)
    value = str.__str__(value)  # of a string enumeration the value, as the engine reads it, not the member's name
    size = utf8_size(value, field)
    if not 1 <= size <= MAX_ID_BYTES:
        raise InvalidEvent(f"{field} must be 1 to {MAX_ID_BYTES} bytes of UTF-8, not {size}: {value!r:.80}", value)
    return value


def ids(values: object, field: str) -> tuple[str, ...]:
    """A set of names, sorted by their bytes, without repeats."""
    if isinstance(values, (str, bytes)):
        raise InvalidEventType(f"{field} is a list of ids: write {field}=[{values!r:.80}]", values)
    if not isinstance(values, Iterable) or isinstance(values, Mapping):
        raise InvalidEventType(f"{field} is a list of ids, not {values!r:.80}", values)
    listed = [id_(value, f"each of {field}") for value in values]
    return tuple(listed) if len(listed) < 2 else tuple(sorted(set(listed)))


def bounded(id: str, *lists: tuple[str, ...]) -> None:
    """Refuse an event that refers to more than 4,096 ids."""
    total = sum(map(len, lists))
    if total > MAX_REFERENCES:
        raise InvalidEvent(
            f"event {id} refers to {total} ids, more than {MAX_REFERENCES}: "
            "derive part memories first, and this one from them",
            total,
        )


def text(value: object, field: str) -> str:
    """Up to 1 MiB of valid UTF-8."""
    if not isinstance(value, str):
        raise InvalidEventType(f"{field} must be a string, not {value!r:.80}", value)
    value = str.__str__(value)  # of a string enumeration the value, as the engine reads it, not the member's name
    size = utf8_size(value, field)
    if size > MAX_TEXT_BYTES:
        raise InvalidEvent(f"{field} has {size} bytes, more than {MAX_TEXT_BYTES}: keep it elsewhere", size)
    return value


def utf8_size(value: str, field: str) -> int:
    """The bytes of `value` in UTF-8; lone surrogates have none."""
    if value.isascii():
        return len(value)
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise InvalidEvent(f"{field} has a lone surrogate, which is no text: {value!r:.80}", value) from None


def importance(value: object) -> float:
    """A float in 0..1; an int is taken as one, -0.0 as 0.0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidEventType(f"importance must be a number from 0 to 1, not {value!r:.80}", value)
    if not 0 <= value <= 1:
        raise InvalidEvent(f"importance must lie in 0..1, not {value!r:.80}", value)
    return float(value) + 0.0


def flag(value: object, field: str) -> bool:
    """True or False, nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise InvalidEventType(f"{field} must be True or False, not {value!r:.80}", value)
    return value


def choice(value: object, field: str, allowed: tuple[str, ...]) -> str:
    """One of the words in `allowed`."""
    if value not in allowed:
        raise InvalidEvent(f"{field} must be one of {', '.join(allowed)}, not {value!r:.80}", value)
    return allowed[allowed.index(value)]


def word(number: object, field: str, allowed: tuple[str, ...]) -> str:
    """The word of `allowed` that a number stands for in canonical bytes."""
    if type(number) is not int or not 0 <= number < len(allowed):
        raise InvalidEvent(f"there is no {field} {number!r:.80}", number)
    return allowed[number]


def created(value: object) -> datetime:
    """An aware time whose offset is a whole number of minutes."""
    if not isinstance(value, datetime):
        raise InvalidEventType(f"created must be a datetime, not {value!r:.80}", value)
    offset = value.utcoffset()
    if offset is None:
        raise InvalidEvent(f"created has no offset: use an aware datetime, not {value!r}", value)
    if offset % _MINUTE:
        raise InvalidEvent(f"created has an offset that is no whole number of minutes: {value!r}", value)
    return value.replace(tzinfo=UTC if not offset else timezone(offset), fold=0)


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def from_iso(value: object) -> datetime:
    """The time that `value` spells."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    raise InvalidEvent(f"created must be a time in ISO 8601 with an offset, not {value!r:.80}", value)


def instant(value: datetime) -> tuple[int, int]:
    """UTC microseconds since 1970 and the offset in minutes."""
    offset = value.utcoffset()
    since = value - _EPOCH
    # As `since // timedelta(microseconds=1)`, in a third of the time: appending spends much of it on encoding.
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return microseconds, offset // _MINUTE if offset else 0


def microseconds(value: datetime) -> int:
    """UTC microseconds since 1970."""
    return instant(value)[0]


def from_microseconds(value: int) -> datetime:
    """The time, in UTC, that `microseconds` counted.  Raises: OverflowError where no datetime can hold it."""
    return _EPOCH + timedelta(microseconds=value)


def from_instant(value: object) -> datetime:
    """The time that `instant` wrote."""
    if not (isinstance(value, list) and len(value) == 2 and all(type(part) is int for part in value)):
        raise InvalidEvent(f"created must be microseconds and minutes, not {value!r:.80}", value)
    try:
        offset = timedelta(minutes=value[1])
        zone = UTC if not offset else timezone(offset)
        return (_NAIVE_EPOCH + (timedelta(microseconds=value[0]) + offset)).replace(tzinfo=zone)
    except (OverflowError, ValueError):
        raise InvalidEvent(f"created is out of range: {value!r:.80}", value) from None


def meta(value: object) -> Mapping[str, Any]:
    """A JSON-like mapping, read-only all the way down, keys sorted by their bytes."""
    if value is NO_META:
        return NO_META
    if not isinstance(value, Mapping):
        raise InvalidEventType(f"meta must be a mapping, not {value!r:.80}", value)
    frozen: Mapping[str, Any] = _freeze(value, 1)
    if not frozen:
        return NO_META
    size = len(_pack(thaw(frozen)))
    if size > MAX_META_BYTES:
        raise InvalidEvent(f"meta has {size} bytes, more than {MAX_META_BYTES}: keep it elsewhere", size)
    return frozen


def _freeze(value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        utf8_size(value, "meta")
        return str.__str__(value)
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            raise InvalidEvent(f"meta holds an integer beyond 64 bits: {value!r:.80}", value)
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidEvent(f"meta holds {value!r}, which JSON has no word for", value)
        return float(value)
    if depth > MAX_META_DEPTH:
        raise InvalidEvent(f"meta is nested deeper than {MAX_META_DEPTH}", None)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidEventType(f"keys of meta must be strings, not {key!r:.80}", key)
            utf8_size(key, "a key of meta")
        return MappingProxyType({str.__str__(key): _freeze(value[key], depth + 1) for key in sorted(value)})
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(part, depth + 1) for part in value)
    raise InvalidEventType(f"meta takes what JSON takes, not {value!r:.80}", value)


def thaw(value: Any) -> Any:
    """Plain dicts and lists from what `meta` and `ids` froze."""
    if isinstance(value, Mapping):
        return {key: thaw(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [thaw(part) for part in value]
    return value


def new_id() -> str:
    """A UUIDv7: 48 bits of Unix milliseconds, 74 random bits (RFC 9562, section 5.7)."""
    stamp = time.time_ns() // 1_000_000 & (1 << 48) - 1
    random = int.from_bytes(os.urandom(10), "big")
    high = stamp << 16 | 7 << 12 | random >> 68
    low = 2 << 62 | random & (1 << 62) - 1
    digits = f"{high << 64 | low:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
