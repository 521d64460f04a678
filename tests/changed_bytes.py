"""Files with one byte changed, each imported into a log of its own: an answer, or a typed error and nothing written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import branchmem as bm
from exports import Log

#: Changes of each file.
CHANGES = 300


def changed(whole: bytes, seed: int, *, is_long: bool = False) -> Iterator[tuple[bytes, str]]:
    """The file with a byte changed, and which; of a long one only the line that it is in, and the next."""
    chance = random.Random(seed)
    for _ in range(CHANGES):
        at, byte = chance.randrange(len(whole)), chance.randrange(256)
        start, end = 0, len(whole)
        if is_long:
            start = whole.rfind(b"\n", 0, at) + 1
            end = whole.find(b"\n", whole.find(b"\n", at) + 1) + 1 or end
        yield whole[start:at] + bytes([byte]) + whole[at + 1 : end], f"seed {seed}, byte {at} is {byte}"


def take_changed(whole: bytes, path: Path, seed: int, *, is_long: bool = False) -> int:
    """Import each of the changed files from `path`, and return how many gave an answer."""
    answers = 0
    for data, what in changed(whole, seed, is_long=is_long):
        path.write_bytes(data)
        log = Log()
        try:
            report = log.take(path)
        except bm.Error:
            assert not log, what
            continue
        except Exception as error:
            raise AssertionError(what) from error
        assert len(log) == report.added + report.conversations, what
        answers += 1
        if answers % 10 == 0:
            assert log.take(path).added == 0, what
    return answers
