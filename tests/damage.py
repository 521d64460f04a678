"""Damaged files by the thousand: sound stores, what happens to them, and a worker that may die of it.

The shapes are those of real logs: grown by many commits, so that free pages hold older
states; bodies on pages of their own; trees of two levels.  What happens is what disks and
people do: bits flip, headers are overwritten, pages are zeroed, or stand in each other's
place, files are cut off.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import branchmem as bm
from branchmem.errors import Error
from branchmem.events import Event

PAGE = 4096

#: What became of one file: read right, refused, or worse.
RIGHT, REFUSED, PARTLY, WRONG, SILENT, TRACEBACK = b"rxpwst"

Original = tuple[bytes, list[Event]]


def originals(folder: Path) -> list[Original]:
    """Sound stores and their events in order."""
    return [_grown(folder / f"{name}.bmem", batches) for name, batches in _shapes()]


def _shapes() -> Iterator[tuple[str, list[list[Event]]]]:
    yield "one", [[_message(number) for number in range(5)]]
    yield "many", [[_message(3 * batch + number) for number in range(3)] for batch in range(60)]
    yield "large", [[_message(2 * batch, 200), _message(2 * batch + 1, 9000)] for batch in range(12)]
    yield "deep", [[_message(50 * batch + number, 300) for number in range(50)] for batch in range(6)]
    yield "mixed", [[_message(at), bm.Memory(f"k{at}", "k" * 50, sources=[f"m{at // 2}"])] for at in range(90)]


def _message(number: int, size: int = 40) -> bm.Message:
    return bm.Message(f"m{number}", f"m{(number - 1) // 2}" if number else None, text=f"{number} " * (size // 4))


def _grown(path: Path, batches: Sequence[Sequence[Event]]) -> Original:
    with bm.open(path) as store:
        for batch in batches:
            store.append(batch)
    return path.read_bytes(), [event for batch in batches for event in batch]


def damaged(random: Random, whole: bytes) -> bytes:
    """The file after one thing that happens to files."""
    out = bytearray(whole)
    pages = len(out) // PAGE

    def page() -> int:
        return random.randrange(pages) * PAGE

    match random.randrange(8):
        case 0:  # bits
            for _ in range(random.choice((1, 1, 1, 2, 8))):
                out[random.randrange(len(out))] ^= 1 << random.randrange(8)
        case 1:  # meta pages
            out[random.randrange(2) * PAGE + random.randrange(152)] = random.randrange(256)
        case 2:  # the header of a page, and where its records stand
            out[page() + random.randrange(random.choice((16, 64)))] = random.randrange(256)
        case 3:  # pages that were never written
            for _ in range(random.choice((1, 1, 2, 5))):
                at = page()
                out[at : at + PAGE] = bytes(PAGE)
        case 4:  # pages in the place of others
            to, at = page(), page()
            out[to : to + PAGE] = out[at : at + PAGE]
        case 5:  # a stretch of anything
            at, size = random.randrange(len(out)), random.choice((2, 8, 64, 512, 5000))
            out[at : at + size] = random.randbytes(min(size, len(out) - at))
        case 6:  # the end
            del out[random.randrange(len(out)) :]
        case 7:  # the end, at a page
            del out[page() :]
    return bytes(out)


def judged(path: Path, events: Sequence[Event], *, verify: bool) -> int:
    """Open a file and read all that it gives."""
    try:
        with bm.open(path, create=False, verify=verify) as store:
            count = len(store.log)
            same, whole = _compared(store, events, 0, count)
            if count > len(events) or not same:
                return WRONG
            if count < len(events):
                return SILENT
    except Error:
        return REFUSED
    return RIGHT if whole else PARTLY


def _compared(store: bm.Store, events: Sequence[Event], start: int, end: int) -> tuple[bool, bool]:
    """Whether what can be read from `start` to `end` is right, and whether that is all of it."""
    try:
        return list(store.log.events(start, end)) == events[start:end], True
    except Error:
        if end - start == 1:
            return True, False
        middle = (start + end) // 2
        first, second = _compared(store, events, start, middle), _compared(store, events, middle, end)
        return first[0] and second[0], first[1] and second[1]


def worker(path: Path, first: int, last: int, make: Callable[[int], Original], *, verify: bool) -> bytes:
    """What became of the files from `first` until `last` was reached or the worker died."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            for number in range(first, last):
                signal.alarm(20)
                content, events = make(number)
                path.write_bytes(content)
                try:
                    found = judged(path, events, verify=verify)
                except Exception:
                    found = TRACEBACK
                os.write(writing, bytes([found]))
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answers:
        said = answers.read()
    os.waitpid(pid, 0)
    return said


def fates(path: Path, count: int, make: Callable[[int], Original], *, verify: bool) -> bytes:
    """What became of each of `count` files, `d` where it was the death of the worker; a new one goes on."""
    out = b""
    while len(out) < count:
        out += worker(path, len(out), count, make, verify=verify)
        if len(out) < count:
            out += b"d"
    return out
