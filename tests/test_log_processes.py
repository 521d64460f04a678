"""A log in several hands: threads and processes lose nothing that was acknowledged, and the map follows them."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from branchmem.codec import Interner, encode_block
from branchmem.errors import (
    StoreClosed,
    StoreError,
    StoreForked,
    StoreReadOnly,
)
from branchmem.events import Message
from branchmem.log import Log, Reader, Writer, environment, place
from logs import Follower, append_in_child, contents, expected, in_child, messages


@pytest.fixture
def small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "MAP_BYTES", 1 << 16)


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


def test_who_wanted_to_make_a_log_that_another_made_meanwhile_opens_that(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = place.guarded_now

    def late(*parts: Any) -> int | None:
        monkeypatch.setattr(environment, "guarded_now", asked)
        other.append(Log.open(path))
        return asked(*parts)

    other: list[Log] = []
    monkeypatch.setattr(environment, "guarded_now", late)
    with Log.open(path) as log:
        assert log.log_id == other[0].log_id
    other[0].close()


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


def test_a_reader_that_was_killed_keeps_no_pages_for_good(path: Path) -> None:
    Log.open(path).close()

    def killed_while_it_reads() -> int:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:

            def stay(_: Reader) -> None:
                os.write(writing, b".")
                signal.pause()

            Log.open(path).read(stay)
        os.read(reading, 1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)
        return pid

    with Log.open(path) as log:
        first = killed_while_it_reads()
        assert f"{first} " in log._file.env.readers()
        log._file.grow(log._file.map_bytes)
        assert f"{first} " not in log._file.env.readers()
        second = killed_while_it_reads()
    holder = os.fork()
    if holder == 0:
        time.sleep(60)
    with Log.open(path) as log:
        assert f"{second} " not in log._file.env.readers()
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)


def test_who_waits_for_a_guard_keeps_nobody_from_other_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Log.open(path).close()
    waits, asked = threading.Event(), place._guard
    said: list[str] = []

    def guard(name: str) -> int:
        if name == str(path):
            waits.set()
        return asked(name)

    def open_it() -> None:
        try:
            Log.open(path).close()
            said.append("opened")
        except StoreError as error:
            said.append(str(error))

    monkeypatch.setattr(place, "_guard", guard)
    with open(f"{path}-guard", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread = threading.Thread(target=open_it)
        thread.start()
        waits.wait()
        Log.open(path.with_name("other.bmem")).close()
        assert said == []
    thread.join()
    assert said == ["opened"]


def test_a_process_forked_while_a_log_is_made_does_not_keep_its_guard(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.1)
    reserved = place.reserve_lock
    children: list[int] = []

    def fork(name: str) -> None:
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                time.sleep(60)
                os._exit(0)
        reserved(name)

    monkeypatch.setattr(environment, "reserve_lock", fork)
    try:
        with Log.open(path) as log:
            Follower(log).append(*messages("a", 1))
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


def test_a_fork_while_the_map_moves_is_refused_and_does_not_wait(path: Path) -> None:
    with Log.open(path) as log:
        moves, go = threading.Event(), threading.Event()

        def move() -> None:
            with log._file.gate.alone():
                moves.set()
                go.wait()

        thread = threading.Thread(target=move)
        thread.start()
        moves.wait()

        def child() -> None:
            signal.alarm(10)
            contents(log)

        try:
            assert in_child(child).startswith("StoreForked")
        finally:
            go.set()
            thread.join()


def read_until_interrupted(log: Log, seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    while True:
        log.read(lambda reader: None)


def test_an_interrupt_wherever_it_strikes_leaves_a_log_that_works(path: Path) -> None:
    seed = 5
    chance = random.Random(seed)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def move() -> None:
        with log._file.gate.alone():
            pass

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Log.open(path) as log:
            Follower(log).append(*messages("a", 1))
            for number in range(500):
                with pytest.raises(KeyboardInterrupt):
                    read_until_interrupted(log, chance.uniform(20e-6, 200e-6))
                thread = threading.Thread(target=move, daemon=True)
                thread.start()
                thread.join(10)
                if thread.is_alive():
                    log._file.gate = type(log._file.gate)()  # else closing would wait for ever
                    pytest.fail(f"seed {seed}, interrupt {number}: the map can move no more")
            assert len(contents(log)) == 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
