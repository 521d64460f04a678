"""What the tests of travelling memory share: stores with keys of their own, what a bundle holds, what a view says."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import branchmem as bm
from branchmem import Memory, Message, Reason, _core
from branchmem.bundle import BundleFile, Imported
from branchmem.canonical import unpack
from branchmem.events import Erasure, Event, Retraction
from bundle_files import key

ALICE, BOB, EVE = key(1), key(2), key(3)

ODD = bm.Policy(Reason.FUTURE | Reason.OTHER_TREE | Reason.UPSTREAM_CYCLE | Reason.NO_ANCHOR)
LAX = bm.Policy(Reason.ERASED | Reason.RETRACTED | Reason.SUPERSEDED)

#: A conversation with a fork, replaced, retracted and erased memories.
CHAT: list[Event] = [
    Message("chat", None, role="thread"),
    Message("u1", "chat", role="user", text="I live in Chengdu"),
    Memory("home", "The user lives in Chengdu", sources=["u1"], key="home_city"),
    Message("u2", "u1", role="user", text="My flat is small"),
    Memory("flat", "The flat is small", sources=["u2"], derived_from=["home"]),
    Message("u1-edit", "chat", role="user", text="I live in Hangzhou"),
    Memory("home-edit", "The user lives in Hangzhou", sources=["u1-edit"], key="home_city"),
    Memory("moved", "The user lives in Hangzhou now", sources=["u2"], supersedes=["home"], key="home_city"),
    Message("u3", "u2", role="user", text="my salary is a secret"),
    Memory("pay", "their salary", sources=["u3"]),
    Retraction("hush", "u2", scope="branch", memories=["flat"], reason="not that"),
    Erasure("gone", ["u3"]),
]


@contextmanager
def swift_folder() -> Iterator[Path]:
    """A folder that is kept in memory where there is such a place, so that thousands of commits wait for no disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        yield Path(folder)


@contextmanager
def opened(folder: Path, *names: str) -> Iterator[list[bm.Store]]:
    """Stores of these names in a folder, each made if absent."""
    stores = [bm.open(folder / f"{name}.bmem") for name in names]
    try:
        yield stores
    finally:
        for store in stores:
            store.close()


def payloads(path: Path) -> bytes:
    """All that a bundle holds, unpacked."""
    with BundleFile.open(path) as bundle:
        bundle.verify()
        return b"".join(bundle.frames())


def ids(path: Path) -> list[str]:
    """The ids of the events of a bundle, in their order."""
    return [unpack(skeleton)[1] for skeleton in _core.split_records(payloads(path))[0]]


def bare_ids(path: Path) -> set[str]:
    """The ids of those events of a bundle that travel without content."""
    skeletons, bodies = _core.split_records(payloads(path))
    return {unpack(skeleton)[1] for skeleton, body in zip(skeletons, bodies, strict=True) if body is None}


def state(store: bm.Store, anchors: Iterable[Any]) -> list[Any]:
    """The digest of a store, where it stands, and what every view says of every memory."""
    memories = list(store.memory_ids)
    said: list[Any] = [store.digest(), store.seq, memories]
    for anchor in anchors:
        for policy in (bm.STRICT, bm.COMPAT, ODD, LAX):
            try:
                view = store.at(anchor, policy=policy, count=False)
                said.append((view.ids(), view.reasons().tolist()))
            except bm.AmbiguousAnchor:
                said.append("ambiguous")
    return said


def anchors_of(events: Iterable[Event], random: Random) -> list[Any]:
    """No anchor, one that is not here, each message, and some together."""
    messages = [event.id for event in events if isinstance(event, Message)]
    return [None, "not here", *messages, *(random.sample(messages, 2) for _ in range(3))]


def counted(receipt: Imported) -> dict[str, int]:
    """How many events became what."""
    return {
        "imported": receipt.imported,
        "duplicates": receipt.duplicates,
        "held": receipt.held,
        "refused": sum(receipt.refused.values()),
    }
