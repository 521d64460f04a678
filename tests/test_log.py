"""A log on disk: nothing acknowledged is lost, nothing damaged is read, every refusal has a name."""

from __future__ import annotations

import collections
import errno
import fcntl
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import pytest
from branchmem.codec import Interner, decode_block, encode_block, encode_body
from branchmem.errors import (
    Error,
    FormatTooNew,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreForked,
    StoreFull,
    StoreLocked,
    StoreMissing,
    StoreOnNetwork,
    StoreReadOnly,
)
from branchmem.events import Message
from branchmem.log import Log, Reader, Writer, environment, place


class Follower:
    """Takes in the blocks of a log and appends to it, as a store does."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.interner = Interner()
        self.skeletons: list[bytes] = []

    def take_in(self, reader: Reader) -> int:
        for first, block in reader.blocks(len(self.skeletons)):
            assert first == len(self.skeletons) + 1
            self.skeletons += decode_block(first, block, self.interner)
        return len(self.skeletons)

    def append(self, *events: Message) -> int:
        """Append, and return the seq of the last event."""

        def work(writer: Writer) -> int:
            first = self.take_in(writer) + 1
            known = len(self.interner.ids)
            block = encode_block(first, [event.skeleton() for event in events], self.interner)
            self.interner.forget(known)
            writer.put(first, block, [event.body() for event in events])
            return first + len(events) - 1

        return self.log.write(work)


def messages(name: str, count: int, size: int = 10) -> list[Message]:
    return [Message(f"{name}-{number}", None, text=name[0] * size) for number in range(count)]


def contents(log: Log) -> list[tuple[bytes, bytes | None]]:
    """The skeleton and the body of every event, in order."""
    follower = Follower(log)
    return log.read(
        lambda reader: list(
            zip(*(follower.skeletons, reader.bodies(range(1, follower.take_in(reader) + 1))), strict=True)
        )
    )


def expected(events: list[Message]) -> list[tuple[bytes, bytes | None]]:
    return [(event.skeleton(), event.body()) for event in events]


def in_child(work: Callable[[], object]) -> str:
    """Run `work` in a forked process; what it returns as text, or the error that it raised."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        said = answer.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child died: {status}"
    return said


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "alice.bmem"


@pytest.fixture
def small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "MAP_BYTES", 1 << 16)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount") or "mount"
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no disk of its own may be mounted here: {made.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def first_seqs(reader: Reader, after: int) -> list[int]:
    return [first for first, _ in reader.blocks(after)]


def put_raw(path: Path, database: bytes, key: bytes, value: bytes | None) -> None:
    """Change one record behind the back of the log; None deletes it."""
    with lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0) as env:
        db = env.open_db(database)
        with env.begin(write=True, db=db) as txn:
            if value is None:
                txn.delete(key)
            else:
                txn.put(key, value)


# Writing and reading


def test_what_was_written_is_read_after_reopening(path: Path) -> None:
    events = messages("a", 3) + messages("b", 1002)
    with Log.open(path) as log:
        follower = Follower(log)
        assert follower.append(*events[:3]) == 3
        assert follower.append(*events[3:1003]) == 1003
        assert follower.append(*events[1003:]) == 1005
        assert contents(log) == expected(events)
        born = log.log_id
    with Log.open(path, create=False) as log:
        assert contents(log) == expected(events)
        assert log.log_id == born
        assert len(born) == 16
        assert log.path == str(path)


def test_blocks_begin_after_the_seq_given_and_bodies_keep_the_order(path: Path) -> None:
    with Log.open(path) as log:
        follower = Follower(log)
        events = messages("a", 2), messages("b", 3), messages("c", 1)
        for batch in events:
            follower.append(*batch)
        for after, firsts in ((0, [1, 3, 6]), (1, [3, 6]), (2, [3, 6]), (5, [6]), (6, []), (-1, [1, 3, 6])):
            assert log.read(partial(first_seqs, after=after)) == firsts
        assert log.read(lambda reader: list(reader.bodies([6, 1]))) == [events[2][0].body(), events[0][0].body()]


def test_an_exception_undoes_a_write(path: Path) -> None:
    with Log.open(path) as log:
        follower = Follower(log)
        follower.append(*messages("a", 2))

        def fail(writer: Writer) -> None:
            writer.put(3, encode_block(3, [Message("x", None).skeleton()], Interner()), [b"\x90"])
            raise KeyError("of the work itself")

        with pytest.raises(KeyError, match="of the work itself"):
            log.write(fail)
        assert len(contents(log)) == 2
        assert follower.append(*messages("b", 1)) == 3


def test_a_seq_that_was_used_is_refused(path: Path) -> None:
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 3))
        for seq in (1, 2):
            with pytest.raises((ValueError, StoreError)):
                log.write(partial(Writer.put, first_seq=seq, block=b"block", bodies=[b"\x90"]))
        assert contents(log) == expected(messages("a", 3))


def test_work_inside_work_sees_the_same_snapshot(path: Path) -> None:
    with Log.open(path) as log, Log.open(path) as twin:
        follower = Follower(log)
        follower.append(*messages("a", 1))

        def outer(reader: Reader) -> int:
            thread = threading.Thread(target=lambda: follower.append(*messages("b", 1)))
            thread.start()
            thread.join()
            return twin.read(lambda inner: len(list(inner.blocks(0))))

        assert log.read(outer) == 1
        assert log.read(lambda reader: len(list(reader.blocks(0)))) == 2
        with pytest.raises(RuntimeError, match="wait for itself"):
            log.read(lambda reader: twin.write(lambda writer: None))
        with pytest.raises(RuntimeError, match="closed inside its own work"):
            log.read(lambda reader: log.close())
        assert len(contents(log)) == 2


def test_an_answer_outlives_its_snapshot_only_as_an_error(path: Path) -> None:
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 1))
        escaped = log.read(lambda reader: reader)
        with pytest.raises(lmdb.Error):
            escaped.body(1)


def test_closing_waits_for_the_write_of_another_thread(path: Path, small_maps: None) -> None:
    log = Log.open(path)
    started, closing = threading.Event(), threading.Event()
    events = messages("a", 1)

    def work(writer: Writer) -> None:
        started.set()
        closing.wait()
        time.sleep(0.02)
        writer.put(1, encode_block(1, [events[0].skeleton()], Interner()), [events[0].body()])

    thread = threading.Thread(target=lambda: log.write(work))
    thread.start()
    started.wait()
    closing.set()
    log.close()
    thread.join()
    with Log.open(path) as again:
        assert contents(again) == expected(events)


# Whether something changed


def test_changed_is_true_until_all_blocks_were_taken_in(path: Path) -> None:
    with Log.open(path) as log:
        assert log.changed()
        follower = Follower(log)
        log.read(follower.take_in)
        assert not log.changed()
        follower.append(*messages("a", 1))
        assert not log.changed()
        log.write(lambda writer: None)
        assert not log.changed()


def test_a_commit_of_anyone_else_is_a_change(path: Path) -> None:
    with Log.open(path) as log, Log.open(path) as twin:
        follower, other = Follower(log), Follower(twin)
        for number in range(4):
            log.read(follower.take_in)
            assert not log.changed()
            other.append(*messages(f"t{number}", 1))
            assert log.changed()
            log.read(follower.take_in)
            assert not log.changed()
    log = Log.open(path)
    follower = Follower(log)
    log.read(follower.take_in)
    for number in range(3):
        log.close()
        log = Log.open(path)
        log.read(Follower(log).take_in)
        assert not log.changed()
        assert in_child(partial(append_in_child, path, number)) == "done"
        assert log.changed()
    log.close()


def append_in_child(path: Path, number: int) -> str:
    with Log.open(path) as log:
        Follower(log).append(*messages(f"child{number}", 1))
    return "done"


def test_reading_a_body_hides_no_change(path: Path) -> None:
    with Log.open(path) as log, Log.open(path) as twin:
        follower, other = Follower(log), Follower(twin)
        follower.append(*messages("a", 1))
        other.append(*messages("b", 1))
        assert log.read(lambda reader: reader.body(2)) is not None
        assert log.changed()
        log.write(lambda writer: writer.put(3, encode_block(3, [Message("x", None).skeleton()], Interner()), [b"\x90"]))
        assert log.changed()


def test_a_failed_read_hides_no_change(path: Path) -> None:
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 1))

        def fail(reader: Reader) -> None:
            list(reader.blocks(0))
            raise KeyError

        with Log.open(path) as twin:
            with pytest.raises(KeyError):
                twin.read(fail)
            assert twin.changed()


# Several at once


def test_two_logs_on_one_file_share_its_environment(path: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(tmp_path, target_is_directory=True)
    first = Log.open(path)
    second = Log.open(tmp_path / "way" / path.name)
    assert second.path == first.path
    Follower(first).append(*messages("a", 1))
    first.close()
    first.close()
    assert len(contents(second)) == 1
    with pytest.raises(StoreClosed):
        first.read(lambda reader: None)
    with pytest.raises(StoreClosed):
        first.changed()
    second.close()
    assert not environment._files
    with Log.open(path) as third:
        assert len(contents(third)) == 1


def test_a_reader_and_a_writer_share_one_file_in_a_process(path: Path) -> None:
    Log.open(path).close()
    with Log.open(path, readonly=True) as reader:
        with pytest.raises(StoreReadOnly):
            reader.write(lambda writer: None)
        with Log.open(path) as log:
            Follower(log).append(*messages("a", 1))
            assert len(contents(reader)) == 1
        with pytest.raises(StoreReadOnly):
            reader.write(lambda writer: None)
        assert len(contents(reader)) == 1


def test_threads_read_while_the_map_grows(path: Path, small_maps: None) -> None:
    with Log.open(path) as log:
        follower = Follower(log)
        done = threading.Event()
        errors: list[BaseException] = []

        def read() -> None:
            own = Follower(log)
            try:
                while not done.is_set():
                    log.read(own.take_in)
                    if own.skeletons:
                        log.read(lambda reader: reader.body(len(own.skeletons)))
                    time.sleep(0.0005)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        events = [event for batch in range(40) for event in messages(f"b{batch}", 5, 5000)]
        for start in range(0, len(events), 5):
            follower.append(*events[start : start + 5])
        done.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert contents(log) == expected(events)
        assert log._file.map_bytes > 1 << 20


def test_processes_create_and_append_at_once_and_lose_nothing(path: Path) -> None:
    start, go = os.pipe()
    children = []
    for number in range(6):
        pid = os.fork()
        if pid == 0:
            os.close(go)
            os.read(start, 1)
            status = 1
            try:
                with Log.open(path) as log:
                    follower = Follower(log)
                    for event in messages(f"p{number}", 20):
                        follower.append(event)
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    os.close(start)
    os.close(go)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 6
    with Log.open(path, create=False, verify=True) as log:
        stored = contents(log)
    wanted = [pair for number in range(6) for pair in expected(messages(f"p{number}", 20))]
    assert sorted(stored) == sorted(wanted)
    for number in range(6):
        own = expected(messages(f"p{number}", 20))
        assert [pair for pair in stored if pair in own] == own
    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        path.name,
        path.name + "-guard",
        path.name + "-lock",
    ]


# The map


def test_the_map_grows_with_the_log(path: Path, small_maps: None) -> None:
    events = messages("a", 3, 1 << 18)
    with Log.open(path) as log:
        assert log._file.map_bytes == 1 << 16
        runs = 0

        def work(writer: Writer) -> None:
            nonlocal runs
            runs += 1
            block = encode_block(1, [event.skeleton() for event in events], Interner())
            writer.put(1, block, [event.body() for event in events])

        log.write(work)
        assert runs > 2
        assert contents(log) == expected(events)


def test_growth_is_bounded_at_one_step(path: Path, small_maps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "MAX_GROWTH_BYTES", 1 << 18)
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 1, 1 << 19))
        assert log._file.map_bytes <= (1 << 20) + (1 << 18)


def test_the_map_follows_what_another_process_wrote(path: Path, small_maps: None) -> None:
    Log.open(path).close()

    def grow() -> str:
        with Log.open(path) as log:
            Follower(log).append(*messages("big", 4, 1 << 18))
        return "done"

    with Log.open(path) as reader:
        assert contents(reader) == []
        assert in_child(grow) == "done"
        assert contents(reader) == expected(messages("big", 4, 1 << 18))
        assert Follower(reader).append(*messages("more", 1)) == 5
    with Log.open(path) as writer:
        assert in_child(partial(append_in_child, path, 1)) == "done"
        assert Follower(writer).append(*messages("last", 1)) == 7


def test_a_map_that_cannot_grow_is_an_error_and_no_end(path: Path) -> None:
    def starve() -> str:
        with Log.open(path) as log:
            follower = Follower(log)
            follower.append(*messages("a", 1))
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), -1))
            try:
                for number in range(100):
                    follower.append(*messages(f"b{number}", 1, 1 << 20))
            except StoreError as error:
                first = len(contents(log))
                follower.append(*messages("small", 1))
                return f"{type(error).__name__} {first > 5} {len(contents(log)) - first}"
        return "never full"

    assert in_child(starve) == "StoreError True 1"


# Processes that end and fork


def test_a_writer_killed_fifty_times_loses_nothing_acknowledged(path: Path) -> None:
    seed = 7
    print("seed", seed)
    chance = random.Random(seed)
    acknowledged = 0
    for round_ in range(50):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            log = Log.open(path)
            follower = Follower(log)
            for number in range(100_000):
                size = (number % 7) * 3000
                seq = follower.append(*messages(f"r{round_}-{number}", 1 + number % 5, size))
                os.write(writing, seq.to_bytes(8, "big"))
            os._exit(0)
        os.close(writing)
        with open(reading, "rb", buffering=0) as acks:
            for _ in range(chance.randint(1, 12)):
                acknowledged = int.from_bytes(acks.read(8), "big")
            time.sleep(chance.random() * 0.004)
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            assert os.WTERMSIG(status) == signal.SIGKILL
            while ack := acks.read(8):
                acknowledged = int.from_bytes(ack, "big")
        with Log.open(path, create=False, verify=round_ % 10 == 0) as log:
            stored = contents(log)
            assert len(stored) >= acknowledged
            assert all(body is not None for _, body in stored)
    assert acknowledged > 50


def test_a_fork_may_not_use_the_log_and_may_open_it_anew(path: Path) -> None:
    with Log.open(path) as log:
        follower = Follower(log)
        follower.append(*messages("a", 1))

        def child() -> str:
            said = []
            for use in (log.changed, lambda: contents(log), lambda: follower.append(*messages("b", 1))):
                try:
                    use()
                    said.append("used")
                except StoreForked:
                    said.append("refused")
            log.close()
            with Log.open(path) as own:
                Follower(own).append(*messages("child", 1))
            return " ".join(said)

        assert in_child(child) == "refused refused refused"
        assert log.changed()
        assert follower.append(*messages("b", 1)) == 3
        assert contents(log) == expected(messages("a", 1) + messages("child", 1) + messages("b", 1))


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_fork_inside_a_transaction_harms_nobody(path: Path, kind: str) -> None:
    with Log.open(path) as log:
        follower = Follower(log)
        follower.append(*messages("a", 1))
        log.read(follower.take_in)

        def work(reader: Any) -> bytes:
            if kind == "write":
                reader.put(2, encode_block(2, [Message("x", None).skeleton()], follower.interner), [b"\x90"])
            pid = os.fork()
            if pid == 0:
                raise InterruptedError
            assert os.waitpid(pid, 0)[1] == 0
            body: bytes = reader.body(1)
            return body

        parent = os.getpid()
        try:
            body = log.read(work) if kind == "read" else log.write(work)
        except BaseException:
            if os.getpid() == parent:
                raise
            try:
                Log.open(path)
            except StoreForked as error:
                os._exit("transaction" not in str(error))
            os._exit(2)
        assert body == messages("a", 1)[0].body()
        assert len(contents(log)) == (2 if kind == "write" else 1)
        if kind == "read":
            assert follower.append(*messages("b", 1)) == 2


# Files that are not what they should be


@pytest.fixture
def sound(path: Path) -> list[Message]:
    """A log with many pages, and its events."""
    events = messages("a", 40, 300) + messages("b", 3, 20_000)
    with Log.open(path) as log:
        follower = Follower(log)
        for start in range(0, len(events), 3):
            follower.append(*events[start : start + 3])
    return events


def verdict(path: Path, events: list[Message], **options: Any) -> str:
    """The error that opening and reading all gives; "right" or "wrong" where it gives none."""
    try:
        with Log.open(path, **options) as log:
            return "right" if contents(log) == expected(events) else "wrong"
    except Error as error:
        return type(error).__name__


def test_a_file_cut_off_anywhere_is_damaged(path: Path, sound: list[Message]) -> None:
    whole = path.read_bytes()
    copy = path.with_name("copy.bmem")
    lengths = {*range(0, len(whole), 3001), *range(0, len(whole), 4096), 1, 16, 151, 152, 153, 8191, len(whole) - 1}

    def judge() -> str:
        verdicts = set()
        for length in sorted(lengths):
            copy.write_bytes(whole[:length])
            verdicts.add(verdict(copy, sound))
            assert copy.read_bytes() == whole[:length]
        return " ".join(sorted(verdicts))

    assert in_child(judge) == "StoreDamaged"
    copy.write_bytes(whole)
    assert verdict(copy, sound) == "right"


def test_flipped_meta_pages_never_give_wrong_records(path: Path, sound: list[Message]) -> None:
    whole = path.read_bytes()
    copy = path.with_name("copy.bmem")
    print("seed", 11)
    chance = random.Random(11)

    def judge() -> str:
        verdicts: dict[str, int] = {}
        for place_ in [*range(152), *range(4096, 4096 + 152)]:
            flipped = bytearray(whole)
            flipped[place_] ^= chance.randint(1, 255)
            copy.write_bytes(flipped)
            said = verdict(copy, sound)
            verdicts[said] = verdicts.get(said, 0) + 1
        return str(sorted(verdicts))

    assert in_child(judge) == "['StoreDamaged', 'right']"


def test_zeroed_and_foreign_pages_are_found_by_verify(path: Path, sound: list[Message]) -> None:
    whole = path.read_bytes()
    copy = path.with_name("copy.bmem")

    def judge() -> str:
        verdicts = set()
        for page in range(2, len(whole) // 4096):
            for filler in (b"\0", b"\xff"):
                copy.write_bytes(whole[: page * 4096] + filler * 4096 + whole[page * 4096 + 4096 :])
                verdicts.add(verdict(copy, sound, verify=True))
        return " ".join(sorted(verdicts - {"right"}))

    assert in_child(judge) == "StoreDamaged"
    assert verdict(path, sound, verify=True) == "right"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"hello", "too few"),
        (b"not a store at all\n" * 1000, "no LMDB file"),
        (b"\0" * 20_000, "no LMDB file"),
    ],
    ids=["empty", "short", "text", "zeros"],
)
def test_a_file_of_another_kind_is_damaged_and_left_alone(path: Path, content: bytes, why: str) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match=why) as caught:
        Log.open(path)
    assert caught.value.path == str(path)
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_lmdb_file_of_another_program_is_no_store(path: Path) -> None:
    put_raw(path, b"inventory", b"tea", b"2 kg")
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match="no branchmem store"):
        Log.open(path)
    put_raw(path, b"meta", b"magic", b"other")
    with pytest.raises(StoreDamaged, match="no branchmem store"):
        Log.open(path, readonly=True)
    assert before != path.read_bytes()
    lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0).close()


def test_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    Log.open(path).close()
    put_raw(path, b"meta", b"format", (2).to_bytes(4, "little"))
    before = path.read_bytes()
    with pytest.raises(FormatTooNew, match="format is 2, this version reads up to 1"):
        Log.open(path)
    assert path.read_bytes() == before
    put_raw(path, b"meta", b"format", (0).to_bytes(4, "little"))
    with pytest.raises(StoreDamaged, match="format marker says 0"):
        Log.open(path)
    put_raw(path, b"meta", b"log_id", b"short")
    with pytest.raises(StoreDamaged, match="marker is overwritten"):
        Log.open(path)


def test_a_file_of_the_next_engine_is_refused(path: Path) -> None:
    with lmdb.open(str(path), subdir=False, lib_version=1) as env, env.begin(write=True) as txn:
        txn.put(b"k", b"v")
    with pytest.raises(StoreDamaged, match="no LMDB file"):
        Log.open(path)


def test_a_damaged_body_fails_alone(path: Path, sound: list[Message]) -> None:
    record = bytearray(encode_body(2, sound[1].body()))
    record[-1] ^= 1
    put_raw(path, b"bodies", (2).to_bytes(8, "big"), bytes(record))
    put_raw(path, b"bodies", (3).to_bytes(8, "big"), encode_body(4, sound[3].body()))
    put_raw(path, b"bodies", (4).to_bytes(8, "big"), None)
    with Log.open(path) as log:
        for seq, why in ((2, "checksum"), (3, "checksum"), (4, "missing")):
            with pytest.raises(StoreDamaged, match=why) as caught:
                log.read(partial(Reader.body, seq=seq))
            assert caught.value.seq == seq
        assert log.read(lambda reader: list(reader.bodies([1, 5]))) == [sound[0].body(), sound[4].body()]


def test_a_key_that_is_no_seq_is_damage(path: Path) -> None:
    Log.open(path).close()
    put_raw(path, b"skeletons", b"\0\0\0\0\0\0\0\1more", b"")
    with Log.open(path) as log, pytest.raises(StoreDamaged, match="a block has the key"):
        contents(log)


def test_a_store_without_one_of_its_databases_is_damaged(path: Path) -> None:
    put_raw(path, b"meta", b"magic", b"branchmem")
    put_raw(path, b"meta", b"format", (1).to_bytes(4, "little"))
    put_raw(path, b"meta", b"log_id", bytes(16))
    with pytest.raises(StoreDamaged, match="a database of it is missing"):
        Log.open(path)


# Places where no log can be


def test_a_missing_file_is_made_only_on_demand(path: Path) -> None:
    for options in ({"readonly": True}, {"create": False}):
        with pytest.raises(StoreMissing) as caught:
            Log.open(path, **options)
        assert caught.value.errno == errno.ENOENT
        assert isinstance(pickle.loads(pickle.dumps(caught.value)), StoreMissing)
    assert list(path.parent.iterdir()) == []
    with pytest.raises(StoreMissing, match=r"no folder .*nowhere"):
        Log.open(path.parent / "nowhere" / "a.bmem")
    path.write_bytes(b"")
    with pytest.raises(StoreMissing, match="no folder"):
        Log.open(path / "a.bmem")


def test_links_folders_and_devices_are_refused(path: Path) -> None:
    Log.open(path).close()
    link, twin, pipe = (path.with_name(name) for name in ("link", "twin", "pipe"))
    link.symlink_to(path)
    os.mkfifo(pipe)
    for wrong, why in ((link, "symbolic link"), (path.parent, "a folder"), (pipe, "a folder or a device")):
        with pytest.raises(StoreError, match=why):
            Log.open(wrong)
    link.unlink()
    link.symlink_to(path.with_name("nothing"))
    with pytest.raises(StoreError, match="symbolic link"):
        Log.open(link)
    twin.hardlink_to(path)
    with pytest.raises(StoreError, match="several names"):
        Log.open(twin)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre"])
def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    share = tmp_path / "my share"
    (share / "local").mkdir(parents=True)
    point = str(share).replace(" ", "\\040")
    table = (
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        f"29 22 0:40 / {point} rw,relatime shared:1 - {kind} server:/home rw\n"
        f"30 29 0:41 / {point}/local rw - ext4 /dev/vdb rw\n"
    )
    monkeypatch.setattr(place, "_mounts", lambda: table)
    with pytest.raises(StoreOnNetwork, match=kind):
        Log.open(share / "a.bmem")
    Log.open(share / "local" / "a.bmem").close()
    Log.open(tmp_path / "my share of it.bmem").close()


def test_where_no_mounts_are_told_a_file_is_taken_as_local(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_mounts", lambda: "")
    Log.open(path).close()


def test_a_guard_held_alone_locks_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.02)
    Log.open(path).close()
    with open(f"{path}-guard", "rb") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        with pytest.raises(StoreLocked):
            Log.open(path)
        fcntl.flock(guard, fcntl.LOCK_UN)
        with Log.open(path), pytest.raises(BlockingIOError):
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_no_new_log_is_made_where_an_old_one_is_still_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.02)
    with Log.open(path) as log:
        path.unlink()
        with pytest.raises(StoreLocked):
            Log.open(path)
        assert contents(log) == []
    Log.open(path).close()


def test_a_crash_while_creating_leaves_nothing_in_the_way(path: Path) -> None:
    for left in ("-draft", "-draft-lock", "-guard", "-lock"):
        Path(f"{path}{left}").write_bytes(b"")
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 1))
    assert not Path(f"{path}-draft").exists()


# No permission, no room


def test_without_permission_to_write_a_log_can_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 1))
    opened = os.open

    def refuse(name: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return opened(name, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreReadOnly, match="readonly=True"):
        Log.open(path)
    with Log.open(path, readonly=True) as log:
        assert len(contents(log)) == 1
    Path(f"{path}-guard").unlink()
    with Log.open(path, readonly=True) as log:
        assert len(contents(log)) == 1
    monkeypatch.setattr(os, "open", lambda *_, **__: opened("/nowhere/at/all", os.O_RDONLY) and 0)
    with pytest.raises(StoreError):
        Log.open(path, readonly=True)


def test_only_a_reader_where_nobody_can_write_goes_without_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Log.open(path).close()
    with Log.open(path, readonly=True) as log:
        assert log._file.env.flags()["lock"]
    monkeypatch.setattr(environment, "frozen", lambda _: True)
    with Log.open(path, readonly=True) as log:
        assert not log._file.env.flags()["lock"]
    with Log.open(path) as log:
        flags = log._file.env.flags()
        assert flags["lock"]
        assert flags["sync"]
        assert flags["metasync"]
        assert not flags["writemap"]


def test_a_read_only_medium_can_be_read(small_disk: Path) -> None:
    path = small_disk / "alice.bmem"
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 3))
    for left in ("-lock", "-guard"):
        Path(f"{path}{left}").unlink()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with Log.open(path, readonly=True, verify=True) as log:
        assert contents(log) == expected(messages("a", 3))
        log.read(Follower(log).take_in)
        assert not log.changed()
    with pytest.raises(StoreReadOnly):
        Log.open(path)
    with pytest.raises(StoreReadOnly):
        Log.open(small_disk / "new.bmem")


def test_a_full_disk_keeps_what_was_acknowledged(small_disk: Path) -> None:
    path = small_disk / "alice.bmem"
    with Log.open(path) as log:
        follower = Follower(log)
        acknowledged: list[Message] = []

        def fill() -> None:
            for number in range(100):
                batch = messages(f"b{number}", 3, 30_000)
                follower.append(*batch)
                acknowledged.extend(batch)

        with pytest.raises(StoreFull, match="nothing of this batch was written"):
            fill()
        assert len(acknowledged) > 15
        assert contents(log) == expected(acknowledged)
        small = messages("small", 1, 1)
        follower.append(*small)
        assert contents(log) == expected(acknowledged + small)
    assert verdict(path, acknowledged + small, verify=True) == "right"
    with pytest.raises(StoreFull), ExitStack() as logs:
        collections.deque(logs.enter_context(Log.open(small_disk / f"{number}.bmem")) for number in range(100))
    assert not list(small_disk.glob("*-draft*"))


class Failing:
    """An environment or a transaction whose `method` fails with each of `errors` in turn."""

    def __init__(self, real: Any, method: str, errors: list[Exception]) -> None:
        self.real, self.method, self.errors = real, method, errors

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.real, name)
        if name == "begin" and self.method != "begin":
            return lambda **options: Failing(attribute(**options), self.method, self.errors)
        if name != self.method or not self.errors:
            return attribute

        def fail(*_: object, **__: object) -> None:
            raise self.errors.pop(0)

        return fail


def lmdb_error(kind: type[lmdb.Error], code: int) -> lmdb.Error:
    """The error as LMDB raises it: only there it has a code."""
    error = kind("as if")
    error.code = code  # type: ignore[misc]
    return error


@pytest.mark.parametrize(
    ("kind", "code", "ours"),
    [
        (lmdb.DiskError, errno.ENOSPC, StoreFull),
        (lmdb.Error, errno.EDQUOT, StoreFull),
        (lmdb.Error, errno.EFBIG, StoreFull),
        (lmdb.ReadonlyError, errno.EACCES, StoreReadOnly),
        (lmdb.Error, errno.EROFS, StoreReadOnly),
        (lmdb.LockError, errno.EAGAIN, StoreLocked),
        (lmdb.ReadersFullError, -30790, StoreLocked),
        (lmdb.CorruptedError, -30796, StoreDamaged),
        (lmdb.PageNotFoundError, -30797, StoreDamaged),
        (lmdb.InvalidParameterError, errno.EINVAL, StoreError),
    ],
)
def test_every_error_of_lmdb_leaves_as_one_of_ours(
    path: Path, kind: type[lmdb.Error], code: int, ours: type[StoreError]
) -> None:
    with Log.open(path) as log:
        follower = Follower(log)
        follower.append(*messages("a", 1))
        real = log._file.env
        log._file.env = Failing(real, "commit", [lmdb_error(kind, code)])  # type: ignore[assignment]
        with pytest.raises(ours) as caught:
            follower.append(*messages("b", 1))
        assert type(caught.value) is ours
        assert caught.value.path == str(path)
        log._file.env = real
        assert follower.append(*messages("b", 1)) == 2


def test_a_short_write_is_a_full_disk_only_where_no_room_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log.open(path) as log:
        real = log._file.env
        for room, ours in ((0, StoreFull), (1 << 30, StoreError)):
            status = os.statvfs_result((4096, 4096, 0, 0, room // 4096, 0, 0, 0, 0, 255))
            monkeypatch.setattr(os, "statvfs", lambda _, status=status: status)
            log._file.env = Failing(real, "commit", [lmdb_error(lmdb.Error, errno.EIO)])  # type: ignore[assignment]
            with pytest.raises(ours) as caught:
                Follower(log).append(*messages("a", 1))
            assert type(caught.value) is ours
        log._file.env = real


def test_an_environment_that_gave_up_is_opened_anew(path: Path) -> None:
    with Log.open(path) as log:
        follower = Follower(log)
        follower.append(*messages("a", 1))
        log._file.env = Failing(log._file.env, "begin", [lmdb_error(lmdb.PanicError, -30795)])  # type: ignore[assignment]
        assert follower.append(*messages("b", 1)) == 2
        assert isinstance(log._file.env, lmdb.Environment)
        assert len(contents(log)) == 2


def test_another_engine_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Log.open(path).close()
    real = lmdb.Environment

    def newer(*args: Any, **options: Any) -> Any:
        return Failing(real(*args, **options), "lib_version", [])

    monkeypatch.setattr(lmdb, "Environment", newer)
    monkeypatch.setattr(Failing, "lib_version", lambda self: (1, 0, 0), raising=False)
    with pytest.raises(StoreError, match=r"engine 0\.9"):
        Log.open(path)
