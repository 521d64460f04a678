"""What the tests of the log share: one who follows it, what it should hold, and work in a forked process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from branchmem.codec import Interner, decode_block, encode_block
from branchmem.errors import Error
from branchmem.events import Message
from branchmem.log import Log, Reader, Writer


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


def verdict(path: Path, events: list[Message], **options: Any) -> str:
    """The error that opening and reading all gives; "right" or "wrong" where it gives none."""
    try:
        with Log.open(path, **options) as log:
            return "right" if contents(log) == expected(events) else "wrong"
    except Error as error:
        return type(error).__name__


def in_child(work: Callable[[], object], *, seconds: int = 0) -> str:
    """Run `work` in a forked process, killed after so many seconds; what it returns as text, or the error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        signal.alarm(seconds)
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


def append_in_child(path: Path, number: int) -> str:
    with Log.open(path) as log:
        Follower(log).append(*messages(f"child{number}", 1))
    return "done"
