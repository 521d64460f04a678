"""Bundles that are signed as they should be, by somebody who means harm: bombs, lies, endless data, the wrong hands.

Whoever has a key can sign anything.  So what a bundle says of itself is no more trusted than the rest of it.
"""

from __future__ import annotations

import os
import random
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard
from branchmem.bundle.file import BundleFile
from branchmem.errors import BundleRefused
from branchmem.events import Message
from bundle_files import (
    CREATED,
    HEAD,
    MAGIC,
    NIL,
    Packed,
    key,
    packed,
    payload_of,
    read,
    records,
    sealed,
    stated,
    written,
)
from peak_memory import peak_memory

MIB = 1 << 20
PAYLOAD = payload_of((Message(f"m{at}", None).skeleton(), b"\x90") for at in range(3))
ZSTD = struct.pack("<I", 0xFD2FB528)
SKIPPABLE = struct.pack("<II4s", 0x184D2A50, 4, b"skip")


def bare(id: str) -> bytes:
    """The record of a root that has lost its content."""
    return Message(id, None).skeleton() + NIL


def compressed(payload: bytes, **options: int) -> bytes:
    return zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(**options)).compress(payload)


def header(content: int, *, window: int | None = None) -> bytes:
    """The header of a zstd frame that claims so many bytes, and a window of 2**window."""
    if window is None:
        return ZSTD + bytes([0b1110_0000]) + struct.pack("<Q", content)
    return ZSTD + bytes([0b1100_0000, window - 10 << 3]) + struct.pack("<Q", content)


def in_blocks(payload: bytes, *, last: bool = True) -> bytes:
    """The payload as one raw block of a zstd frame."""
    return struct.pack("<I", len(payload) << 3 | last)[:3] + payload


def zeros(last: bool) -> bytes:
    """128 KiB of zeros, as a block of four bytes."""
    return struct.pack("<I", (1 << 17) << 3 | 0b010 | last)[:3] + b"\0"


SOUND = compressed(PAYLOAD)

#: The bytes of a frame, and what is said of the records in it: bytes, events.
FRAMES: dict[str, tuple[bytes, int, int]] = {
    "its header claims exabytes": (header(1 << 60) + in_blocks(PAYLOAD), len(PAYLOAD), 3),
    "header and manifest claim 4 GiB": (header(1 << 32) + in_blocks(PAYLOAD), (1 << 32) - 1, 3),
    "header and manifest claim 9 MiB": (compressed(b"\0" * 9 * MIB), 9 * MIB, 3),
    "its header claims a byte less": (header(len(PAYLOAD) - 1) + in_blocks(PAYLOAD), len(PAYLOAD), 3),
    "header and manifest claim a byte less": (header(len(PAYLOAD) - 1) + in_blocks(PAYLOAD), len(PAYLOAD) - 1, 3),
    "header and manifest claim a byte more": (header(len(PAYLOAD) + 1) + in_blocks(PAYLOAD), len(PAYLOAD) + 1, 3),
    "header and manifest claim nothing": (header(0) + in_blocks(b""), 0, 0),
    "it unpacks into more than it says": (
        header(len(PAYLOAD)) + in_blocks(PAYLOAD, last=False) + zeros(True),
        len(PAYLOAD),
        3,
    ),
    "it unpacks into gigabytes": (header(8 * MIB) + zeros(False) * 16_000 + zeros(True), 8 * MIB, 3),
    "the manifest claims a byte less": (SOUND, len(PAYLOAD) - 1, 3),
    "the manifest claims a byte more": (SOUND, len(PAYLOAD) + 1, 3),
    "its size is not stated": (compressed(PAYLOAD, write_content_size=0), len(PAYLOAD), 3),
    "its window is 128 MiB": (header(len(PAYLOAD), window=27) + in_blocks(PAYLOAD), len(PAYLOAD), 3),
    "its window is 2 TiB": (header(len(PAYLOAD), window=41) + in_blocks(PAYLOAD), len(PAYLOAD), 3),
    "another frame follows": (SOUND + SOUND, len(PAYLOAD), 3),
    "an empty frame follows": (SOUND + compressed(b""), len(PAYLOAD), 3),
    "a skippable frame follows": (SOUND + SKIPPABLE, len(PAYLOAD), 3),
    "a skippable frame comes before": (SKIPPABLE + SOUND, len(PAYLOAD), 3),
    "it is a skippable frame": (SKIPPABLE * 2, 4, 1),
    "a byte follows": (SOUND + b"\0", len(PAYLOAD), 3),
    "a byte is missing": (SOUND[:-1], len(PAYLOAD), 3),
    "it is nothing but a header": (SOUND[:5], len(PAYLOAD), 3),
    "it is nothing but a magic number": (ZSTD, len(PAYLOAD), 3),
    "it is not compressed": (PAYLOAD, len(PAYLOAD), 3),
    "it names a dictionary": (
        ZSTD + b"\x21\x07" + bytes([len(PAYLOAD)]) + in_blocks(PAYLOAD),
        len(PAYLOAD),
        3,
    ),
    "its checksum is wrong": (compressed(PAYLOAD, write_checksum=1)[:-1] + b"\0", len(PAYLOAD), 3),
    "it is of an old format": (struct.pack("<I", 0xFD2FB527) + SOUND[4:], len(PAYLOAD), 3),
}

WHY = {
    "its window is 128 MiB": "a window of 134217728 bytes",
    "it names a dictionary": "it needs a dictionary",
    "it is not compressed": "it is no zstd frame",
    "a skippable frame comes before": "it is no zstd frame",
    "its size is not stated": "its header says",
}

#: Records that are no events, or not those that the manifest counts.
RECORDS: dict[str, tuple[bytes, int]] = {
    "half a record": (PAYLOAD[:-1], 3),
    "a skeleton without a body": (PAYLOAD + Message("n", None).skeleton(), 3),
    "a byte behind the last record": (PAYLOAD + b"\x00", 3),
    "an extension type": (PAYLOAD + b"\x94\x00\xc7\x01\x05a\x01\xc0\x90", 4),
    "a skeleton that is not canonical": (PAYLOAD + b"\x94\xcc\x00\xa1n\x01\xc0\x90", 4),
    "a body that is not canonical": (PAYLOAD + Message("n", None).skeleton() + b"\xdc\x00\x00", 4),
    "an erasure without content": (PAYLOAD + b"\x94\x04\xa1e\x0e\x91\xa1u\xc0", 4),
    "the body of a memory under a message": (
        PAYLOAD + Message("n", None).skeleton() + b"\x94\x21\xa1t\x22\xcb" + b"\0" * 8,
        4,
    ),
    "one event more than is said": (PAYLOAD, 2),
    "one event less than is said": (PAYLOAD, 4),
    "what msgpack makes huge lists of": (b"\xdd\xff\xff\xff\xff" + PAYLOAD, 3),
    "what is nested deep": (b"\x91" * 2000 + PAYLOAD, 3),
}


def refused(path: Path, data: bytes, why: str | None = None) -> str:
    """Why the bundle with these bytes is refused."""
    path.write_bytes(data)
    with pytest.raises(BundleRefused, match=why) as refusal:
        read(path)
    assert str(refusal.value).endswith("; nothing of it was applied")
    return refusal.value.why


def test_what_is_made_by_hand_is_a_bundle_as_long_as_it_tells_the_truth(tmp_path: Path) -> None:
    path = tmp_path / "honest"
    for frame in (packed(PAYLOAD, 3), Packed(header(len(PAYLOAD)) + in_blocks(PAYLOAD), len(PAYLOAD), 3)):
        path.write_bytes(sealed([frame], stated([frame])))
        assert read(path) == [PAYLOAD]


@pytest.mark.parametrize("what", FRAMES)
def test_a_frame_that_is_not_what_it_says_is_refused(tmp_path: Path, what: str) -> None:
    frame = Packed(*FRAMES[what])
    why = refused(tmp_path / "bomb", sealed([frame], stated([frame])))
    assert WHY.get(what, "") in why


def test_a_frame_that_needs_a_dictionary_is_refused(tmp_path: Path) -> None:
    known = zstandard.ZstdCompressionDict(PAYLOAD * 100, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    frame = Packed(zstandard.ZstdCompressor(dict_data=known).compress(PAYLOAD), len(PAYLOAD), 3)
    refused(tmp_path / "bundle", sealed([frame], stated([frame])))


@pytest.mark.parametrize("what", RECORDS)
def test_records_that_are_not_events_or_not_those_that_were_counted_are_refused(tmp_path: Path, what: str) -> None:
    payload, events = RECORDS[what]
    frame = packed(payload, events)
    assert refused(tmp_path / "lie", sealed([frame], stated([frame]))).startswith("frame 0: ")


@pytest.mark.parametrize(
    "again", [b"\x94\x00\xa2m0\x01\xc0\x90", b"\x94\x00\xa2m0\x01\xa2m1\x90", b"\x94\x00\xa2m0\x01\xc0\xc0"]
)
def test_an_id_that_comes_twice_is_refused(tmp_path: Path, again: bytes) -> None:
    apart, together = [packed(PAYLOAD, 3), packed(again, 1)], [packed(PAYLOAD + again, 4)]
    for frames in (apart, together):
        erased = int(again.endswith(NIL))
        refused(tmp_path / "twice", sealed(frames, stated(frames, erased=erased)), "it holds an id twice")


def test_a_frame_that_comes_twice_is_refused(tmp_path: Path) -> None:
    frames = [packed(PAYLOAD, 3)] * 2
    refused(tmp_path / "twice", sealed(frames, stated(frames)), "the same frame twice")


@pytest.mark.parametrize(
    "counts",
    [{"messages": 2, "memories": 1}, {"erased": 1}, {"messages": 0, "erasures": 3}, {"messages": 2, "retractions": 1}],
)
def test_counts_that_lie_are_refused(tmp_path: Path, counts: dict[str, Any]) -> None:
    frame = packed(PAYLOAD, 3)
    refused(
        tmp_path / "lie", sealed([frame], stated([frame], **counts)), r"it holds \(3, 0, 0, 0, 0, 0\) events by type"
    )


@pytest.mark.parametrize(
    "counts", [{"messages": 4}, {"messages": 2**63}, {"messages": -1, "memories": 4}, {"erased": 4}]
)
def test_counts_that_cannot_be_are_refused_before_a_frame_is_read(tmp_path: Path, counts: dict[str, Any]) -> None:
    path, frame = tmp_path / "lie", packed(PAYLOAD, 3)
    path.write_bytes(sealed([frame], stated([frame], **counts)))
    with pytest.raises(BundleRefused):
        BundleFile.open(path)


@pytest.mark.parametrize("change", [-1, 1, 1 << 20, (1 << 32) - 200])
def test_sizes_of_frames_that_lie_are_refused(tmp_path: Path, change: int) -> None:
    frame = packed(PAYLOAD, 3)
    manifest = stated([frame])
    size = struct.pack("<I", len(frame.data))
    assert manifest.count(size) == 1
    lie = manifest.replace(size, struct.pack("<I", len(frame.data) + change))
    refused(tmp_path / "lie", sealed([frame], lie), "its size is not that of its frames")


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (64 << 20) + 1, 1 << 31, 1 << 40, (1 << 64) - 1])
def test_a_length_of_the_manifest_that_lies_is_refused(tmp_path: Path, size: int) -> None:
    frame = packed(PAYLOAD, 3)
    whole = sealed([frame], stated([frame]))
    refused(tmp_path / "lie", whole[:-16] + struct.pack("<Q", size) + MAGIC)


# Nothing that a bundle claims takes memory.


READ_IT = """
from branchmem.bundle.file import BundleFile
from branchmem.errors import BundleRefused
answer["before"] = int(open("/proc/self/statm").read().split()[1]) * 4096
try:
    with BundleFile.open(given["path"]) as bundle:
        bundle.verify()
except BundleRefused as error:
    answer["why"] = error.why
"""


def taken(path: Path) -> tuple[str, int]:
    """Why a bundle is refused, and how many MiB that takes at its peak."""
    found = peak_memory(READ_IT, path=path)
    return found["why"], found["peak"] // MIB


def test_bombs_take_little_memory(tmp_path: Path) -> None:
    source = random.Random(1)
    same = b"".join(bare(f"{at}") for at in range(8000))
    noise = b"".join(bare(f"{source.random()}") for _ in range(8000))
    many = (7 * MIB - len(noise)) // len(bare("m"))
    texts = b"".join(text(f"{at}", b"a" * MIB) for at in range(7)) + text(
        "noise", source.randbytes(80_000).hex().encode()
    )
    bombs = {
        "one record over and over": ([packed(noise + bare("m") * many, 8000 + many)], 8000 + many),
        "the same records in every frame": ([packed(bare(f"u{at}") + same, 8001) for at in range(100)], 800_100),
        "frames of 7 MiB that say the same": ([packed(bare(f"u{at}") + texts, 9) for at in range(20)], 20),
    }
    path = tmp_path / "bundle"
    written(path)
    plain = peak_memory(READ_IT, path=path)["peak"] // MIB
    for what, (frames, erased) in bombs.items():
        path.write_bytes(sealed(frames, stated(frames, erased=erased)))
        why, peak = taken(path)
        assert path.stat().st_size * 10 < sum(frame.raw for frame in frames), what
        assert why.endswith("it holds an id twice"), what
        assert len(frames) == 20 or why.startswith("frame "), "it is noticed at the end only"
        assert peak < plain + 96, what


def test_what_unpacks_into_more_than_a_hundredfold_is_refused_before_it_is_read(tmp_path: Path) -> None:
    bomb, honest = tmp_path / "bomb", tmp_path / "honest"
    event = Message("m", None, text="a" * MIB)
    frame = packed(payload_of(records([event], [])), 1)
    assert len(frame.data) < 200
    bomb.write_bytes(sealed([frame], stated([frame])))
    with pytest.raises(BundleRefused, match="frame 0 cannot be 1 events in"):
        BundleFile.open(bomb)

    written(honest, records([event], []))

    assert read(honest) == [payload_of(records([event], []))]
    assert honest.stat().st_size > MIB


def text(id: str, of: bytes) -> bytes:
    """The record of a root with a long text."""
    return Message(id, None).skeleton() + b"\x92\x21\xdb" + struct.pack(">I", len(of)) + of


def tree(levels: int) -> bytes:
    """Lists of 15 lists, on so many levels: 12 MB for six of them, and 60 times as much when they are made."""
    return b"\x9f" + tree(levels - 1) * 15 if levels else b"\x90"


@pytest.mark.parametrize(
    "manifest",
    [
        b"\xdc\x00\x14" + b"\x90" * (63 * MIB),
        b"\xdc\x00\x14\x01" + b"\x91" * (63 * MIB),
        b"\xdc\x00\x14" + tree(6),
        b"\xdd\xff\xff\xff\xff" + b"\xc0" * (63 * MIB),
        b"\xdf\xff\xff\xff\xff" + b"\xa0" * (63 * MIB),
        b"\xdc\x00\x14\xdb\x03\xf0\x00\x00" + b"a" * (63 * MIB),
        stated()[:-3] + b"\xc6\x03\xf0\x00\x00" + b"\0" * (63 * MIB),
        b"\0" * (64 * MIB),
    ],
    ids=["lists", "nested", "a tree", "a long list", "a big map", "a long string", "a long table", "zeros"],
)
def test_a_manifest_that_is_a_bomb_takes_little_memory(tmp_path: Path, manifest: bytes) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(sealed([], manifest))

    why, peak = taken(path)

    path.unlink()
    assert why
    assert peak < 192


# What has no end.


def test_pipes_devices_and_folders_are_refused_without_reading(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    for path in (pipe, link, "/dev/zero", "/dev/urandom", tmp_path):
        with pytest.raises(BundleRefused, match="it is no regular file"):
            BundleFile.open(path)


def test_a_file_of_terabytes_is_refused_at_once(tmp_path: Path) -> None:
    path, frame = tmp_path / "sparse", packed(PAYLOAD, 3)
    whole = sealed([frame], stated([frame]))
    for end in (b"", struct.pack("<Q", 64 * MIB) + MAGIC, whole[len(HEAD) :]):
        path.write_bytes(HEAD)
        os.truncate(path, (1 << 40) - len(end))
        with path.open("ab") as file:
            file.write(end)
        with pytest.raises(BundleRefused):
            BundleFile.open(path)


def test_files_that_are_no_bundles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    for data in (b"", b"{}", b"branchmem bundle", b"PK\x03\x04" * 100, HEAD + b"\0" * 200):
        refused(path, data)
    path.unlink()
    for missing in (path, path / "below", "\0"):
        with pytest.raises(BundleRefused, match=r"cannot be read|null"):
            BundleFile.open(missing)


# In the wrong hands, or too late.


def test_a_bundle_is_refused_from_the_moment_on_at_which_it_expires(tmp_path: Path) -> None:
    path, end = tmp_path / "bundle", CREATED + timedelta(days=1)
    written(path, expires=end)
    with BundleFile.open(path) as bundle:
        bundle.admit(end - timedelta(microseconds=1))
        for now in (end, end + timedelta(days=365)):
            with pytest.raises(BundleRefused, match="it has expired at 2026-03-02T12:30:00"):
                bundle.admit(now)


def test_a_bundle_for_one_key_is_refused_to_all_others(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    written(path, recipient=key(2).fingerprint)
    with BundleFile.open(path) as bundle:
        bundle.admit(CREATED, key(2))
        for other, why in ((None, "name that key"), (key(1), f"not for {key(1).fingerprint}"), (key(3), "not for bm-")):
            with pytest.raises(BundleRefused, match=f"it is for the key {key(2).fingerprint}: {why}"):
                bundle.admit(CREATED, other)


def test_a_bundle_for_everybody_is_admitted_with_any_key_or_none(tmp_path: Path) -> None:
    written(tmp_path / "bundle")
    with BundleFile.open(tmp_path / "bundle") as bundle:
        for other in (None, key(1), key(2)):
            bundle.admit(CREATED, other)
