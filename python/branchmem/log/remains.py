"""What a damaged file still holds: records out of its pages, read in plain Python and never through LMDB.

A record counts as part of the log where it hangs in a tree that one of the two meta
pages leads to: the newest state, and the one before it, whose pages LMDB does not use
again.  Records on other pages are *loose*: of older states mostly, but also of
writes that were never committed, so that only their reader can say what they prove.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lmdb.verify import verify

from branchmem.errors import StoreMissing
from branchmem.log.pages import metas
from branchmem.log.place import found, guarded, placed, unguarded
from branchmem.log.refusals import typed_errors
from branchmem.log.trees import Node, Trees

_SEQ_BYTES = 8
_MAY_BE_MISSING = "a last commit may be missing, and what it erased be there again"


class Remains:
    """A file that is open, and held by nobody else.  `damage` says in words what is wrong with its pages.

    Memory: about 300 bytes a record.
    """

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.damage: list[str] = [*_findings(path)]
        page_bytes, snapshots = metas(fd)
        self._trees = Trees(fd, page_bytes)
        self._records: dict[bytes, dict[bytes, Node]] = {b"meta": {}, b"skeletons": {}, b"bodies": {}}
        self._loose: dict[bytes, list[Node]] | None = None
        for snapshot in snapshots:
            databases = self._trees.databases(snapshot.main_root)
            if snapshot is snapshots[0] and not self._records.keys() <= databases.keys():
                self.damage.append(f"page {snapshot.main_root} leads to no log: {_MAY_BE_MISSING}")
            for name, database in databases.items():
                records = self._records.get(name, {})
                for node in self._trees.nodes(database.root):
                    records.setdefault(node.key, node)
        if len(snapshots) < 2:
            self.damage.append(f"{2 - len(snapshots)} of its 2 meta pages are overwritten: {_MAY_BE_MISSING}")
        self.damage.extend(dict.fromkeys(self._trees.bad))

    def meta(self, name: bytes) -> bytes:
        """What the log says of itself under `name`, empty where that is lost."""
        node = self._records[b"meta"].get(name)
        return (self._trees.value(node) if node else None) or b""

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield (first seq, block) of all blocks that are part of the log, in order; an empty one where it is lost."""
        records = self._records[b"skeletons"]
        for key in sorted(key for key in records if len(key) == _SEQ_BYTES):
            yield int.from_bytes(key, "big"), self._trees.value(records[key]) or b""

    def body(self, seq: int) -> bytes:
        """The record of the body of the event at `seq`, empty where it is lost."""
        node = self._records[b"bodies"].get(seq.to_bytes(_SEQ_BYTES, "big"))
        return (self._trees.value(node) if node else None) or b""

    def end(self) -> int:
        """The position after the last event that is known to have been there by its body."""
        keys = [key for key in self._records[b"bodies"] if len(key) == _SEQ_BYTES]
        return int.from_bytes(max(keys), "big") + 1 if keys else 0

    def loose(self, seq: int) -> set[bytes]:
        """All records on all pages that bear the number `seq`, whatever they are."""
        nodes = self._loose_nodes().get(seq.to_bytes(_SEQ_BYTES, "big"), ())
        return {value for node in nodes if (value := self._trees.value(node))}

    def loose_seqs(self, start: int, end: int) -> list[int]:
        """The numbers from `start` to before `end` that records on any page bear, in order."""
        return sorted(seq for key in self._loose_nodes() if start <= (seq := int.from_bytes(key, "big")) < end)

    def _loose_nodes(self) -> dict[bytes, list[Node]]:
        if self._loose is None:
            self._loose = {}
            for node in self._trees.loose():
                if len(node.key) == _SEQ_BYTES:
                    self._loose.setdefault(node.key, []).append(node)
        return self._loose


@contextmanager
def remains_of(path: str | os.PathLike[str]) -> Iterator[Remains]:
    """What the file at `path` still holds.

    Raises: StoreMissing; StoreLocked where others have it open; StoreOnNetwork.
    Cost: walks the file in plain Python, about 2 s for 100 MB.
    """
    name = os.path.abspath(os.fsdecode(path))
    with ExitStack() as opened:
        with typed_errors(name, True):
            name = placed(name)
            if found(name) is None:
                raise StoreMissing(name)
            if os.path.exists(name + "-guard"):  # else nobody ever had it open
                opened.callback(unguarded, guarded(name, fcntl.LOCK_EX))
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            opened.callback(os.close, fd)
            remains = Remains(name, fd)
        yield remains


def _findings(path: str) -> list[str]:
    try:
        return list(verify(path, subdir=False))  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever stops the walk is a finding
        return [str(error) or type(error).__name__]
