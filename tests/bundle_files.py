"""Bundles made by hand: honest small ones, and files that are signed as they should be and lie in all else."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgpack
import zstandard
from branchmem import LEGACY, Memory, Message
from branchmem.bundle.file import BundleFile
from branchmem.bundle.keys import Key
from branchmem.bundle.manifest import Manifest
from branchmem.bundle.writing import BundleWriter
from branchmem.events import Erasure, Event, Restoration, Retraction
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HEAD = b"branchmem bundle"
MAGIC = b"bmbundl1"
NIL = b"\xc0"
ORIGIN = "0123456789abcdef" * 2
BUNDLE = "01890a5d-ac96-774b-bcce-b302099a8057"
BEFORE = "01890a5d-0000-7000-8000-000000000000"
CREATED = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=UTC)

#: The fields of a manifest in the order of its bytes.
FIELDS = (
    *("format", "id", "issuer", "origin", "number", "seq", "base_number", "base_id", "created", "expires", "recipient"),
    *("messages", "memories", "retractions", "restorations", "erasures", "erased", "refs", "digest", "table"),
)

EVENTS: list[Event] = [
    Erasure("forget", ["u0", "gone"], created=CREATED),
    Message("chat", None, role="thread"),
    Message("old", LEGACY),
    Message("u1", "chat", role="user", text="I'm moving to 成都", created=CREATED, meta={"client": "web"}),
    Memory("home", "The user is moving to Chengdu", sources=["u1"], key="home_city", importance=0.5),
    Memory("plan", "They need a flat", derived_from=["home"], supersedes=["guess"], adopts="other", kind="note"),
    Retraction("never", "u1", scope="tree", memories=["plan"], keys=["k"], standing=True, reason="wrong"),
    Restoration("again", "u1", scope="everywhere", retraction="never"),
]
#: What stays of events that the erasure took.
BARE: list[Event] = [Message("u0", "chat"), Memory("gone", "", sources=["u0"], key="secret")]

Record = tuple[bytes, bytes | None]


def key(seed: int = 1) -> Key:
    """A key that everybody knows: for tests alone."""
    return Key(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


def records(events: Iterable[Event] = EVENTS, bare: Iterable[Event] = BARE) -> list[Record]:
    """The records of events, and of some without their content."""
    return [*((event.skeleton(), event.body()) for event in events), *((event.skeleton(), None) for event in bare)]


def payload_of(some: Iterable[Record]) -> bytes:
    """The bytes of records, as a frame holds them."""
    return b"".join(skeleton + (NIL if body is None else body) for skeleton, body in some)


def written(
    path: Path, some: Iterable[Record] | None = None, *, by: Key | None = None, frame_bytes: int = 90, **fields: Any
) -> Manifest:
    """Write an honest bundle, in frames of about so many bytes."""
    stated: dict[str, Any] = {
        "id": BUNDLE,
        "origin": ORIGIN,
        "number": 7,
        "seq": 10,
        "created": CREATED,
        "refs": {"main": "u1"},
        **fields,
    }
    with patch("branchmem.bundle.frames.FRAME_BYTES", frame_bytes), BundleWriter(path) as writer:
        writer.write(records() if some is None else some)
        return writer.finish(by or key(), **stated)


class Packed(NamedTuple):
    """A frame: its bytes, and what the manifest says of it."""

    data: bytes
    raw: int
    events: int


def packed(payload: bytes, events: int) -> Packed:
    """An honest frame."""
    return Packed(zstandard.ZstdCompressor().compress(payload), len(payload), events)


def table(frames: Iterable[Packed]) -> bytes:
    """The table of these frames."""
    return b"".join(
        struct.pack("<III32s", len(data), raw, events, hashlib.sha256(data).digest()) for data, raw, events in frames
    )


def stated(frames: Sequence[Packed] = (), *, by: Key | None = None, **changes: Any) -> bytes:
    """The bytes of a manifest of messages, whatever is changed in it."""
    values: dict[str, Any] = {
        "format": 1,
        "id": BUNDLE,
        "issuer": public_raw(by or key()),
        "origin": bytes.fromhex(ORIGIN),
        "number": 7,
        "seq": 10,
        "base_number": None,
        "base_id": None,
        "created": 1_772_368_200_123_456,
        "expires": None,
        "recipient": None,
        "messages": sum(frame.events for frame in frames),
        "memories": 0,
        "retractions": 0,
        "restorations": 0,
        "erasures": 0,
        "erased": 0,
        "refs": {},
        "digest": None,
        "table": table(frames),
    }
    assert not changes.keys() - values.keys()
    packed: bytes = msgpack.packb([(values | changes)[name] for name in FIELDS])
    return packed


def sealed(frames: Iterable[Packed], manifest: bytes, *, by: Key | None = None) -> bytes:
    """The file of these frames and this manifest, truly signed."""
    signature = (by or key()).sign(b"branchmem bundle 1\0" + manifest)
    return b"".join(
        (HEAD, *(frame.data for frame in frames), manifest, signature, struct.pack("<Q8s", len(manifest), MAGIC))
    )


def public_raw(of: Key) -> bytes:
    """The 32 bytes of a public key."""
    return base64.urlsafe_b64decode(of.public.removeprefix("ed25519:") + "=")


class Parts(NamedTuple):
    """A bundle, taken apart."""

    head: bytes
    frames: list[bytes]
    manifest: bytes
    signature: bytes
    foot: bytes


def parts(path: Path) -> Parts:
    """Take an honest bundle apart."""
    data = path.read_bytes()
    size, _ = struct.unpack("<Q8s", data[-16:])
    with BundleFile.open(path) as bundle:
        ends = [len(HEAD)]
        for frame in bundle.manifest.frames:
            ends.append(ends[-1] + frame.size)
    frames = [data[start:end] for start, end in pairwise(ends)]
    return Parts(data[:16], frames, data[ends[-1] : ends[-1] + size], data[-80:-16], data[-16:])


def together(parts: Parts) -> bytes:
    """The bytes of what was taken apart."""
    return b"".join((parts.head, *parts.frames, parts.manifest, parts.signature, parts.foot))


def read(path: Path) -> list[bytes]:
    """The records of each frame of a bundle, once all of it is proven; the error where it is not."""
    with BundleFile.open(path) as bundle:
        bundle.verify()
        return list(bundle.frames())
