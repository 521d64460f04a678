"""What a bundle says of itself: from whom, of which log, for whom, and the hash of every frame.

A manifest is what is signed.  Its bytes are one msgpack array, fields in the order of the class,
numbers in their shortest form, names sorted; nothing else is read.  Bundles hold these bytes: they
never change, a new field is a new format.

Hostile bytes are read with little memory: lengths are bounded before anything is made of them, and
nothing stands in anything but the names of refs.  Errors are ValueError with a reason: only the
caller knows the path.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgpack

from branchmem.bundle.keys import fingerprint, is_fingerprint, public_bytes, public_text
from branchmem.canonical import from_microseconds, id_, microseconds
from branchmem.errors import Error
from branchmem.refs import valid_name

FORMAT: Final = 1
#: What a signature covers before the manifest, so that it can never be one of something else.
SIGNED: Final = b"branchmem bundle 1\0"

MAX_MANIFEST_BYTES: Final = 64 << 20
MAX_FRAMES: Final = 1 << 17
MAX_REFS: Final = 1 << 16
MAX_RAW_BYTES: Final = 8 << 20
#: A frame unpacks into at most so many times its bytes: a small file does not fill a disk.
MAX_RATIO: Final = 100
#: The shortest record: [0, "a"] and nil.
MIN_RECORD_BYTES: Final = 5

_FRAME: Final = struct.Struct("<III32s")  # bytes in the file, bytes of its records, events, SHA-256
_FIELDS: Final = 20
_NUMBERS: Final = 1 << 63
_BUNDLE_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HOLDERS: Final = frozenset((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))  # how arrays and maps begin
_pack: Final = msgpack.Packer(use_bin_type=True).pack


class Frame(NamedTuple):
    """One piece of a bundle: so many bytes, which are so many of records when unpacked."""

    size: int
    raw: int
    events: int
    sha256: bytes


class Counts(NamedTuple):
    """How many events of each type there are, and how many of them have no content, since it was erased."""

    messages: int = 0
    memories: int = 0
    retractions: int = 0
    restorations: int = 0
    erasures: int = 0
    erased: int = 0

    @property
    def events(self) -> int:
        """All of them."""
        return sum(self[:5])


class Base(NamedTuple):
    """An earlier bundle of the same log, which a bundle goes on from."""

    number: int
    id: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the issuer of a bundle states, and signs."""

    #: Of this bundle alone: a UUID.
    id: str
    #: The public key that signs, as text.
    issuer: str
    #: The id of the log that the events come from, 32 hex digits.
    origin: str
    #: Rises from bundle to bundle of that log.
    number: int
    #: The log had so many events when the bundle was made.
    seq: int
    #: The bundle after which this one tells what is new; None where it stands by itself.
    base: Base | None
    created: datetime
    #: From when on it is refused.
    expires: datetime | None
    #: The fingerprint of the only key it is for; None: for everybody.
    recipient: str | None
    counts: Counts
    #: The message at which each ref of the bundle stands.
    refs: Mapping[str, str]
    #: The digest of a log with exactly these events, where the issuer states it: 64 hex digits.  Not checked here.
    digest: str | None
    frames: tuple[Frame, ...]

    @property
    def fingerprint(self) -> str:
        """Of the issuer's key: what people compare."""
        return fingerprint(self.issuer)

    def to_bytes(self) -> bytes:
        """The canonical bytes.  Raises: ValueError for what no manifest states."""
        _valid(self)
        return b"".join(
            (
                bytes((0xDC, 0, _FIELDS)),
                _pack(FORMAT),
                _pack(self.id),
                _pack(public_bytes(self.issuer)),
                _pack(bytes.fromhex(self.origin)),
                _pack(self.number),
                _pack(self.seq),
                _pack(None if self.base is None else self.base.number),
                _pack(None if self.base is None else self.base.id),
                _pack(_microseconds(self.created)),
                _pack(None if self.expires is None else _microseconds(self.expires)),
                _pack(self.recipient),
                *map(_pack, self.counts),
                _pack(dict(sorted(self.refs.items()))),
                _pack(None if self.digest is None else bytes.fromhex(self.digest)),
                _pack(b"".join(_FRAME.pack(*frame) for frame in self.frames)),
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """The manifest with these canonical bytes.

        Raises: ValueError for any others.
        Cost: linear; holds at most about 250 MB, whatever the bytes say.
        """
        if len(data) > MAX_MANIFEST_BYTES:
            raise ValueError(f"a manifest of {len(data)} bytes, more than {MAX_MANIFEST_BYTES}")
        try:
            manifest = _read(data)
            if manifest.to_bytes() != data:
                raise ValueError("its bytes are not canonical")
        except (msgpack.UnpackException, Error, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(str(error) or type(error).__name__) from None
        return manifest

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form, frames as a count and their bytes."""
        return {
            "id": self.id,
            "issuer": self.issuer,
            "fingerprint": self.fingerprint,
            "origin": self.origin,
            "number": self.number,
            "seq": self.seq,
            "base": None if self.base is None else self.base._asdict(),
            "created": self.created.isoformat(timespec="microseconds"),
            "expires": None if self.expires is None else self.expires.isoformat(timespec="microseconds"),
            "recipient": self.recipient,
            "counts": self.counts._asdict(),
            "refs": dict(self.refs),
            "digest": self.digest,
            "frames": len(self.frames),
            "bytes": sum(frame.size for frame in self.frames),
            "raw_bytes": sum(frame.raw for frame in self.frames),
        }


class _Fields:
    """The values of a manifest, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._records = msgpack.Unpacker(
            raw=False,
            strict_map_key=True,
            max_buffer_size=max(len(data), 1),
            max_str_len=256,
            max_bin_len=MAX_FRAMES * _FRAME.size,
            max_array_len=_FIELDS,
            max_map_len=MAX_REFS,
            max_ext_len=0,
        )
        self._records.feed(data)

    def count(self) -> int:
        count: int = self._records.read_array_header()
        return count

    def value(self, *types: type) -> Any:
        """The next value, of one of these types; nothing that holds others."""
        at = self._records.tell()
        if at < len(self._data) and self._data[at] in _HOLDERS:
            raise ValueError(f"a list or a map at byte {at} of the manifest")
        value = self._records.unpack()
        if type(value) not in types:
            raise ValueError(f"{value!r:.80} at byte {at} of the manifest")
        return value

    def names(self) -> Mapping[str, str]:
        names: dict[str, str] = {}
        for _ in range(self._records.read_map_header()):
            name = self.value(str)
            names[name] = self.value(str)
        return MappingProxyType(names)


def _read(data: bytes) -> Manifest:
    fields = _Fields(data)
    if fields.count() != _FIELDS:
        raise ValueError(f"a manifest has {_FIELDS} fields")
    format = fields.value(int)
    if format != FORMAT:
        raise ValueError(f"a manifest of format {format!r:.80}, not {FORMAT}: a later branchmem may read it")
    id = fields.value(str)
    issuer = public_text(fields.value(bytes))
    origin = fields.value(bytes).hex()
    number, seq = fields.value(int), fields.value(int)
    base_number = fields.value(int, type(None))
    base_id = fields.value(str, type(None))
    if (base_number is None) != (base_id is None):
        raise ValueError("half of a base")
    created = from_microseconds(fields.value(int))
    expires = fields.value(int, type(None))
    recipient = fields.value(str, type(None))
    counts = Counts(*(fields.value(int) for _ in Counts._fields))
    refs = fields.names()
    digest = fields.value(bytes, type(None))
    table = fields.value(bytes)
    if len(table) % _FRAME.size:
        raise ValueError(f"a table of frames of {len(table)} bytes")
    return Manifest(
        id=id,
        issuer=issuer,
        origin=origin,
        number=number,
        seq=seq,
        base=None if base_number is None else Base(base_number, base_id),
        created=created,
        expires=None if expires is None else from_microseconds(expires),
        recipient=recipient,
        counts=counts,
        refs=refs,
        digest=None if digest is None else digest.hex(),
        frames=tuple(Frame(*frame) for frame in _FRAME.iter_unpack(table)),
    )


def _valid(manifest: Manifest) -> None:
    """Refuse what no manifest states.  Raises: ValueError; InvalidRef; InvalidEvent."""
    _bundle_id(manifest.id)
    if not re.fullmatch("[0-9a-f]{32}", manifest.origin):
        raise ValueError(f"the id of a log has 32 hex digits, not {manifest.origin!r:.80}")
    if manifest.digest is not None and not re.fullmatch("[0-9a-f]{64}", manifest.digest):
        raise ValueError(f"a digest has 64 hex digits, not {manifest.digest!r:.80}")
    if not 1 <= manifest.number < _NUMBERS:
        raise ValueError(f"the number of a bundle is 1 or more, not {manifest.number}")
    if not 0 <= manifest.seq < _NUMBERS:
        raise ValueError(f"a log of {manifest.seq} events")
    if manifest.base is not None:
        _bundle_id(manifest.base.id)
        if not 1 <= manifest.base.number < manifest.number:
            raise ValueError(f"bundle {manifest.number} goes on from bundle {manifest.base.number}")
    if manifest.expires is not None and manifest.expires <= manifest.created:
        raise ValueError(f"it would expire at {manifest.expires.isoformat()}, before it was made")
    if manifest.recipient is not None and not is_fingerprint(manifest.recipient):
        raise ValueError(f"a recipient is the fingerprint of a key, not {manifest.recipient!r:.80}")
    _valid_refs(manifest.refs)
    _valid_frames(manifest)


def _valid_refs(refs: Mapping[str, str]) -> None:
    if len(refs) > MAX_REFS:
        raise ValueError(f"a bundle names up to {MAX_REFS} refs, not {len(refs)}: name those that are needed")
    for name, head in refs.items():
        valid_name(name)
        id_(head, "the head of a ref")


def _valid_frames(manifest: Manifest) -> None:
    counts = manifest.counts
    if len(manifest.frames) > MAX_FRAMES:
        raise ValueError(f"a bundle has up to {MAX_FRAMES} frames, not {len(manifest.frames)}")
    for number, (size, raw, events, _) in enumerate(manifest.frames):
        if not (events and events * MIN_RECORD_BYTES <= raw <= min(MAX_RAW_BYTES, MAX_RATIO * size)):
            raise ValueError(f"frame {number} cannot be {events} events in {raw} bytes, packed into {size}")
    if len({frame.sha256 for frame in manifest.frames}) < len(manifest.frames):
        raise ValueError("the same frame twice")
    if any(not 0 <= count < _NUMBERS for count in counts) or counts.erased > counts.messages + counts.memories:
        raise ValueError(f"counts that cannot be: {tuple(counts)}")
    if counts.events != sum(frame.events for frame in manifest.frames):
        raise ValueError(f"{counts.events} events by type, but others by frame")


def _bundle_id(id: str) -> None:
    if not _BUNDLE_ID.fullmatch(id):
        raise ValueError(f"the id of a bundle is a UUID, not {id!r:.80}")


def _microseconds(time: datetime) -> int:
    if time.utcoffset() is None:
        raise ValueError(f"a time without an offset: {time!r}")
    return microseconds(time)
