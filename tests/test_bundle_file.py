"""A bundle as a file: what is written is read, and it is there as a whole or not at all.

Golden file, in `golden/`: `bundle-1.bin` holds `EVENTS` and `BARE` of `bundle_files`, signed with a key that
everybody knows.  Bundles out there hold these bytes: when its test fails, the code is wrong.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from branchmem._core import split_records
from branchmem.bundle.file import BundleFile
from branchmem.bundle.frames import packed, unpacked
from branchmem.bundle.manifest import Base, Counts, Manifest
from branchmem.bundle.writing import BundleWriter
from branchmem.canonical import new_id
from branchmem.errors import BundleNotWritten, BundleRefused, StoreExists, StoreFull, StoreLocked
from branchmem.events import Memory, Message
from bundle_files import (
    BARE,
    BEFORE,
    BUNDLE,
    CREATED,
    EVENTS,
    ORIGIN,
    Record,
    key,
    parts,
    payload_of,
    read,
    records,
    stated,
    written,
)
from peak_memory import peak_memory

GOLDEN = Path(__file__).parent / "golden" / "bundle-1.bin"
MIB = 1 << 20
FIELDS: dict[str, Any] = {"id": BUNDLE, "origin": ORIGIN, "number": 7, "seq": 10, "created": CREATED, "refs": {}}


def contents(path: Path) -> list[Record]:
    """The records of a bundle, once all of it is proven."""
    found: list[Record] = []
    for payload in read(path):
        found += zip(*split_records(payload), strict=True)
    return found


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bundle"

    manifest = written(
        path, base=Base(3, BEFORE), recipient=key(2).fingerprint, digest="ab" * 32, refs={"b": "u1", "a": "x"}
    )

    assert contents(path) == records()
    with BundleFile.open(path) as bundle:
        assert bundle.manifest == manifest
        assert bundle.verify().counts == manifest.counts == Counts(4, 3, 1, 1, 1, 2)
        assert str(bundle) == f"<BundleFile {path}: 10 events from {key().fingerprint}>"
    assert (manifest.issuer, manifest.id, manifest.origin, manifest.number) == (key().public, BUNDLE, ORIGIN, 7)
    assert (manifest.base, manifest.recipient, manifest.digest) == ((3, BEFORE), key(2).fingerprint, "ab" * 32)
    assert list(manifest.refs.items()) == [("a", "x"), ("b", "u1")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["bundle"]


def test_erasures_and_what_lost_its_content_are_told_apart(tmp_path: Path) -> None:
    written(tmp_path / "bundle")
    with BundleFile.open(tmp_path / "bundle") as bundle:
        assert bundle.verify().apart == [event.skeleton() for event in (EVENTS[0], *BARE)]


def test_a_frame_is_shown_once_it_is_checked_and_progress_is_told(tmp_path: Path) -> None:
    path, seen, told = tmp_path / "bundle", list[bytes](), list[tuple[int, int | None]]()
    written(path)
    with BundleFile.open(path) as bundle:
        bundle.verify(seen.append, progress=lambda done, total: told.append((done, total)))
        assert seen == list(bundle.frames())
    assert [total for _, total in told] == [10] * 3
    assert told[-1] == (10, 10)
    assert told == sorted(told)


def test_what_a_visitor_raises_is_not_taken_for_a_fault_of_the_bundle(tmp_path: Path) -> None:
    written(tmp_path / "bundle")

    def visit(payload: bytes) -> None:
        raise ValueError("mine")

    with BundleFile.open(tmp_path / "bundle") as bundle, pytest.raises(ValueError, match=r"^mine$"):
        bundle.verify(visit)


def test_a_bundle_may_hold_nothing(tmp_path: Path) -> None:
    manifest = written(tmp_path / "bundle", [], refs={})
    assert contents(tmp_path / "bundle") == []
    assert (manifest.frames, manifest.counts) == ((), Counts())


def test_events_of_any_size_fit_into_frames(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    noise = os.urandom(MIB // 2).hex()
    large: list[Record] = [
        (event.skeleton(), event.body())
        for event in (
            Message("small", None),
            Memory("m" * 256, noise, sources=[f"{at:0256}" for at in range(4096)], meta={"a": noise[:-10]}),
            Memory("n" * 256, noise, sources=[f"{at:0256}" for at in range(4096)], meta={"a": noise[:-10]}),
            Message("last", "small", text=noise),
        )
    ]

    manifest = written(path, large, frame_bytes=MIB)

    assert max(len(skeleton) + len(body or b"") for skeleton, body in large) > 3 * MIB
    assert [frame.events for frame in manifest.frames] == [2, 1, 1]
    assert contents(path) == large


@pytest.mark.parametrize("size", [5, 100, 2_000, 65_535, 131_071, 131_072, 131_073, 300_000, MIB, 8 * MIB])
def test_what_would_be_packed_into_next_to_nothing_is_stored_as_it_is(size: int) -> None:
    for payload in (b"a" * size, b"a" * (size - 5) + b"bcdef"):
        frame, data = packed([payload], 1)
        assert unpacked(frame, data) == payload
        assert (frame.size, frame.raw) == (len(data), size)
        assert size <= 100 * len(data) <= 100 * (size + 300)


def test_a_bundle_may_lie_on_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path("relative"), tmp_path / "日本 \udcff"):
        written(path)
        assert contents(path) == records()
    written(Path("chain"))
    Path("link").symlink_to("chain")
    assert contents(Path("link")) == records()
    Path("real").mkdir()
    Path("folder").symlink_to("real")
    written(Path("folder") / "below")
    assert contents(Path("real") / "below") == records()


def test_the_golden_bundle_opens_for_ever() -> None:
    assert contents(GOLDEN) == records()
    with BundleFile.open(GOLDEN) as bundle:
        manifest = bundle.manifest
    assert manifest == Manifest(
        id=BUNDLE,
        issuer=key().public,
        origin=ORIGIN,
        number=7,
        seq=10,
        base=Base(5, BEFORE),
        created=CREATED,
        expires=None,
        recipient=key(2).fingerprint,
        counts=Counts(4, 3, 1, 1, 1, 2),
        refs={"main": "u1", "try/é": "chat"},
        digest="cd" * 32,
        frames=manifest.frames,
    )
    assert [frame.events for frame in manifest.frames] == [4, 2, 4]


def test_what_the_golden_bundle_holds_is_written_in_the_same_bytes(tmp_path: Path) -> None:
    golden = parts(GOLDEN)
    again = stated(
        base_number=5,
        base_id=BEFORE,
        recipient=key(2).fingerprint,
        digest=b"\xcd" * 32,
        messages=4,
        memories=3,
        retractions=1,
        restorations=1,
        erasures=1,
        erased=2,
        refs={"main": "u1", "try/é": "chat"},
        table=golden.manifest[-3 * 44 :],
    )
    assert again == golden.manifest
    assert key().sign(b"branchmem bundle 1\0" + golden.manifest) == golden.signature
    assert golden.head + golden.foot == b"branchmem bundle" + len(again).to_bytes(8, "little") + b"bmbundl1"
    assert b"".join(read(GOLDEN)) == payload_of(records())  # how zstd packs them may change


# Whole, or not there.


def test_without_an_end_nothing_is_there(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    with BundleWriter(path) as writer:
        writer.write(records())
    assert os.listdir(tmp_path) == []

    def records_that_end() -> Iterator[Record]:
        yield records()[0]
        assert os.listdir(tmp_path) == ["bundle-draft"]
        raise KeyError

    with pytest.raises(KeyError):
        written(path, records_that_end())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("id", "one", "the id of a bundle is a UUID, not 'one'"),
        ("number", 0, "the number of a bundle is 1 or more, not 0"),
        ("base", Base(7, BEFORE), "bundle 7 goes on from bundle 7"),
        ("expires", CREATED, "before it was made"),
        ("created", CREATED.replace(tzinfo=None), "without an offset"),
        ("recipient", key(2).public, "a recipient is the fingerprint of a key"),
        ("refs", {"a\nb": "u1"}, "no control characters"),
        ("refs", {f"{at}": "u1" for at in range((1 << 16) + 1)}, "up to 65536 refs"),
        ("origin", "x", "32 hex digits"),
        ("digest", "x", "64 hex digits"),
    ],
)
def test_what_no_manifest_states_is_refused_and_nothing_is_there(
    tmp_path: Path, field: str, value: Any, why: str
) -> None:
    with pytest.raises(BundleNotWritten, match=why) as refusal:
        written(tmp_path / "bundle", **{field: value})
    assert str(refusal.value).endswith("; no bundle was written")
    assert os.listdir(tmp_path) == []


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    path, link, folder = tmp_path / "bundle", tmp_path / "link", tmp_path / "folder"
    path.write_text("mine")
    link.symlink_to("nowhere")
    folder.mkdir()
    for there in (path, link, folder):
        with pytest.raises(StoreExists):
            written(there)
    assert path.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["bundle", "folder", "link"]


@pytest.mark.parametrize("has_links", [True, False])
def test_what_came_to_be_there_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    path = tmp_path / "bundle"
    if not has_links:
        monkeypatch.setattr("os.link", _no_links)
    with BundleWriter(path) as writer:
        path.write_text("mine")
        with pytest.raises(StoreExists):
            writer.finish(key(), **FIELDS)
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["bundle"]


def _no_links(*names: str) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_a_medium_without_hard_links_takes_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.link", _no_links)
    written(tmp_path / "bundle")
    assert contents(tmp_path / "bundle") == records()
    assert os.listdir(tmp_path) == ["bundle"]


def test_a_bundle_has_its_name_only_once_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, done = tmp_path / "bundle", list[str]()

    def noted(name: str, act: Any) -> Any:
        def noting(*given: Any) -> Any:
            is_folder = name == "fsync" and stat.S_ISDIR(os.fstat(given[0]).st_mode)
            done.append(f"{name} of the folder" if is_folder else name)
            return act(*given)

        return noting

    for name in ("fsync", "link", "unlink"):
        monkeypatch.setattr(f"os.{name}", noted(name, getattr(os, name)))
    written(path)
    assert done == ["fsync", "link", "unlink", "fsync of the folder"]


def test_two_who_write_to_one_path_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    with BundleWriter(path) as first:
        first.write(records())
        with pytest.raises(StoreLocked, match="somebody else is writing"):
            BundleWriter(path)
        first.finish(key(), **FIELDS)
    assert contents(path) == records()
    with pytest.raises(StoreExists):
        BundleWriter(path)


@pytest.mark.parametrize("then", ["put in its place", "removed"])
def test_a_draft_that_goes_while_it_is_looked_at_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    path, draft, place = tmp_path / "bundle", tmp_path / "bundle-draft", tmp_path / "finished"
    draft.write_text("of somebody else")
    lock = __import__("fcntl").flock

    def goes(fd: int, how: int) -> None:
        if draft.exists() and draft.read_bytes() == b"of somebody else":
            draft.rename(place) if then == "put in its place" else draft.unlink()
        lock(fd, how)

    monkeypatch.setattr("fcntl.flock", goes)
    written(path)

    assert contents(path) == records()
    assert place.exists() == (then == "put in its place")
    assert not place.exists() or place.read_text() == "of somebody else"
    assert not draft.exists()


KILLED = """
import os, signal, sys
from branchmem.bundle.writing import BundleWriter
with BundleWriter(sys.argv[1]) as writer:
    noise = lambda: b"\\x92\\x21\\xda\\x40\\x00" + os.urandom(8192).hex().encode()
    writer.write((b"\\x92\\x00\\xa4%04d" % at, noise()) for at in range(999))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_who_is_killed_leaves_a_draft_that_the_next_one_removes(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    ran = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert os.listdir(tmp_path) == ["bundle-draft"]
    assert (tmp_path / "bundle-draft").stat().st_size > MIB
    with pytest.raises(BundleRefused):
        BundleFile.open(tmp_path / "bundle-draft")

    written(path)

    assert contents(path) == records()
    assert os.listdir(tmp_path) == ["bundle"]


@pytest.fixture
def little_room() -> Iterator[None]:
    """Files may have a megabyte."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("little_room")
def test_without_room_nothing_is_there(tmp_path: Path) -> None:
    events = [Message(f"{at}", None, text=os.urandom(MIB // 2).hex()) for at in range(3)]
    with pytest.raises(StoreFull, match="no room is left for the bundle"):
        written(tmp_path / "bundle", records(events))
    assert os.listdir(tmp_path) == []


def test_where_nothing_can_be_written_the_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "taken-draft").mkdir()
    for path in ("no folder/bundle", "file/bundle", "taken", "/proc/bundle", "\0"):
        with pytest.raises(BundleNotWritten, match="cannot be written"):
            BundleWriter(tmp_path / path)


def test_what_is_refused_or_closed_holds_no_descriptor(tmp_path: Path) -> None:
    path, cut = tmp_path / "bundle", tmp_path / "cut"
    written(path)
    cut.write_bytes(path.read_bytes()[:-1])
    before = os.listdir("/proc/self/fd") if Path("/proc/self/fd").exists() else pytest.skip("there is no /proc")
    for _ in range(3):
        with pytest.raises(BundleRefused):
            BundleFile.open(cut)
        with pytest.raises(StoreExists):
            BundleWriter(path)
        with BundleWriter(tmp_path / "other"):
            pass
        bundle = BundleFile.open(path)
        bundle.close()
        bundle.close()
        with pytest.raises(BundleRefused, match="Bad file descriptor"):
            bundle.verify()
    assert len(os.listdir("/proc/self/fd")) == len(before)


STREAMED = """
import os
from datetime import UTC, datetime
from branchmem.bundle.file import BundleFile
from branchmem.bundle.keys import make_key
from branchmem.bundle.writing import BundleWriter

def records():
    for at in range(given["events"]):
        id = os.urandom(16).hex().encode()
        yield b"\\x94\\x00\\xd9\\x20" + id + b"\\x01\\xa4root", b"\\x92\\x21\\xd9\\x80" + os.urandom(64).hex().encode()

key, path = make_key(given["folder"] + "/key"), given["folder"] + "/bundle"
fields = dict(origin="0" * 32, number=1, seq=1, created=datetime.now(UTC), refs={}, id=given["id"])
if given["events"]:
    with BundleWriter(path) as writer:
        writer.write(records())
        writer.finish(key, **fields)
    with BundleFile.open(path) as bundle:
        answer["events"] = bundle.verify().counts.events
        answer["frames"] = sum(1 for _ in bundle.frames())
        answer["size"] = os.path.getsize(path)
"""


def test_writing_and_reading_take_the_memory_of_a_few_frames(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    plain = peak_memory(STREAMED, folder=tmp_path / "none", id=new_id(), events=0)

    found = peak_memory(STREAMED, folder=tmp_path, id=new_id(), events=200_000)

    assert (found["events"], found["frames"] > 20, found["size"] > 15 * MIB) == (200_000, True, True)
    assert found["peak"] < plain["peak"] + 24 * MIB
