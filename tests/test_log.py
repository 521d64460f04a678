"""A log on disk: what was written is read, and who has read knows whether anything has changed since."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import lmdb
import pytest
from branchmem.codec import Interner, encode_block
from branchmem.errors import (
    StoreError,
)
from branchmem.events import Message
from branchmem.log import Log, Reader, Writer
from logs import Follower, append_in_child, contents, expected, in_child, messages


def first_seqs(reader: Reader, after: int) -> list[int]:
    return [first for first, _ in reader.blocks(after)]


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
