"""A bundle that is not the one that was signed: changed, cut, extended, put together from others; always refused."""

from __future__ import annotations

import os
from itertools import islice, permutations
from pathlib import Path

import pytest
from branchmem.bundle.file import BundleFile
from branchmem.errors import BundleRefused
from bundle_files import BUNDLE, EVENTS, HEAD, key, parts, read, records, together, written
from figures import Figure, Quote

#: Each bit by itself, and all of them.
MASKS = (*(1 << bit for bit in range(8)), 0xFF)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A small bundle of several frames."""
    path = tmp_path / "alice.bundle"
    written(path)
    assert len(parts(path).frames) == 3
    return path


def is_refused(path: Path) -> bool:
    """Whether reading all of a bundle is refused."""
    try:
        read(path)
    except BundleRefused:
        return True
    return False


def is_refused_as(path: Path, data: bytes) -> bool:
    """Whether it is refused with these bytes in its file."""
    path.write_bytes(data)
    return is_refused(path)


@pytest.mark.soak
def test_every_change_of_one_byte_is_refused(bundle: Path, figure: Figure, quote: Quote) -> None:
    whole = bundle.read_bytes()
    masks = MASKS if figure(len(MASKS), 255) == len(MASKS) else range(1, 256)
    fd = os.open(bundle, os.O_WRONLY)
    try:
        for at, byte in enumerate(whole):
            for mask in masks:
                os.pwrite(fd, bytes([byte ^ mask]), at)
                assert is_refused(bundle), f"byte {at} of {len(whole)} changed by {mask:#04x}"
            os.pwrite(fd, bytes([byte]), at)
    finally:
        os.close(fd)
    assert bundle.read_bytes() == whole
    assert not is_refused(bundle)
    quote(f"bundles: {len(whole) * len(masks):,} changes of one byte, all of them refused")


def test_what_stands_before_a_changed_frame_is_all_that_is_ever_handed_out(bundle: Path) -> None:
    honest, start = read(bundle), len(HEAD)
    whole = bundle.read_bytes()
    for number, frame in enumerate(parts(bundle).frames):
        changed = bytearray(whole)
        changed[start + len(frame) - 1] ^= 1
        start += len(frame)
        bundle.write_bytes(changed)
        with BundleFile.open(bundle) as opened:
            frames = opened.frames()
            assert list(islice(frames, number)) == honest[:number]
            with pytest.raises(BundleRefused, match=f"frame {number}: its hash"):
                next(frames)


def test_every_truncation_is_refused(bundle: Path) -> None:
    whole = bundle.read_bytes()
    for size in range(len(whole)):
        assert is_refused_as(bundle, whole[:size]), f"the first {size} of {len(whole)} bytes"
        assert is_refused_as(bundle, whole[len(whole) - size :]), f"the last {size} of {len(whole)} bytes"


def test_every_byte_that_is_taken_out_is_missed(bundle: Path) -> None:
    whole = bundle.read_bytes()
    for at in range(len(whole)):
        assert is_refused_as(bundle, whole[:at] + whole[at + 1 :]), f"without byte {at}"


def test_what_is_put_in_anywhere_is_refused(bundle: Path) -> None:
    whole = bundle.read_bytes()
    for at in range(len(whole) + 1):
        for more in (b"\0", b"\xff", whole[at : at + 1] or b"\x01"):
            assert is_refused_as(bundle, whole[:at] + more + whole[at:]), f"{more!r} at {at}"


@pytest.mark.parametrize("more", [b"\0" * 16, b"\0" * 4096, b"branchmem bundle"])
def test_what_follows_or_comes_before_is_refused(bundle: Path, more: bytes) -> None:
    whole = bundle.read_bytes()
    for extended in (whole + more, more + whole, whole + whole[-16:], whole + whole[-80:], whole + whole):
        assert is_refused_as(bundle, extended)


def test_frames_in_another_order_are_refused(bundle: Path) -> None:
    honest = parts(bundle)
    for order in list(permutations(honest.frames))[1:]:
        assert is_refused_as(bundle, together(honest._replace(frames=list(order))))


def test_frames_that_are_lost_or_come_twice_are_refused(bundle: Path) -> None:
    honest = parts(bundle)
    for number in range(len(honest.frames)):
        before, frame, after = honest.frames[:number], honest.frames[number], honest.frames[number + 1 :]
        for frames in ([*before, *after], [*before, frame, frame, *after], [*before, b"\0" * len(frame), *after]):
            assert is_refused_as(bundle, together(honest._replace(frames=frames)))


@pytest.fixture
def pairs(tmp_path: Path) -> tuple[Path, Path]:
    """Two bundles of one issuer, alike to the byte in all sizes."""
    here, there = tmp_path / "here", tmp_path / "there"
    written(here, records(EVENTS), number=7)
    other = [(skeleton.replace(b"u1", b"u2"), body) for skeleton, body in records(EVENTS)]
    written(there, other, number=8, id=BUNDLE.replace("0", "1"))
    return here, there


def test_no_part_of_another_bundle_of_the_same_issuer_fits(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    here, there = map(parts, pairs)
    assert len(here.frames) == len(there.frames)
    mixed = tmp_path / "mixed"
    for name in ("manifest", "signature", "frames"):
        assert is_refused_as(mixed, together(here._replace(**{name: getattr(there, name)}))), name
    for number, frame in enumerate(there.frames):
        assert frame != here.frames[number]
        frames = [*here.frames[:number], frame, *here.frames[number + 1 :]]
        assert is_refused_as(mixed, together(here._replace(frames=frames))), f"frame {number}"
    swapped = here._replace(manifest=there.manifest, signature=there.signature, foot=there.foot)
    assert is_refused_as(mixed, together(swapped))
    assert not is_refused_as(mixed, together(here))


def test_a_bundle_that_somebody_else_signed_is_refused(bundle: Path) -> None:
    honest = parts(bundle)
    signed = b"branchmem bundle 1\0" + honest.manifest
    assert key(1).sign(signed) == honest.signature
    for signature in (key(2).sign(signed), key(1).sign(honest.manifest), b"\0" * 64, b"\xff" * 64):
        bundle.write_bytes(together(honest._replace(signature=signature)))
        with pytest.raises(BundleRefused, match="not signed by the key of its issuer, bm-"):
            BundleFile.open(bundle)


def test_a_file_that_changes_while_it_is_open_is_refused_when_it_is_read_again(bundle: Path) -> None:
    whole = bundle.read_bytes()
    with BundleFile.open(bundle) as opened:
        opened.verify()
        with bundle.open("r+b") as file:
            file.seek(len(HEAD) + 5)
            file.write(bytes([whole[len(HEAD) + 5] ^ 1]))
        with pytest.raises(BundleRefused, match="frame 0: its hash"):
            list(opened.frames())
        bundle.write_bytes(whole)
        assert len(list(opened.frames())) == 3
        os.truncate(bundle, len(HEAD) + 5)
        with pytest.raises(BundleRefused, match="frame 0: 5 bytes are left of"):
            list(opened.frames())
        os.truncate(bundle, 0)
        with pytest.raises(BundleRefused, match="frame 0: 0 bytes are left of"):
            opened.verify()


def test_a_file_that_is_moved_or_replaced_while_it_is_open_stays_what_it_was(bundle: Path, tmp_path: Path) -> None:
    honest = read(bundle)
    with BundleFile.open(bundle) as opened:
        bundle.rename(tmp_path / "moved")
        bundle.write_bytes(b"something else")
        assert list(opened.frames()) == honest
        assert opened.verify().counts == opened.manifest.counts
