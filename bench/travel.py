"""Bundles: what verifying and importing one costs, and the memory that a million events take on their way.

`python -m bench.travel export|import STORE BUNDLE KEY` does one of both in a process of its own,
and prints the anonymous memory that it took at its peak above what the store itself holds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import branchmem as bm
from branchmem.bundle import BundleFile, load_key, make_key

from bench.ingest import written
from bench.opening import anonymous_bytes
from bench.peers.plain_bundle import decode
from bench.rows import BYTES, Peer, Row, measure
from bench.timing import Runner
from bench.workbench import BATCH, Unequal, Workbench

TOP: Final = Path(__file__).parents[1]
LIMIT_BYTES: Final = 200_000_000
LOOK_SECONDS: Final = 0.002


def b(bench: Workbench) -> list[Row]:
    """Verifying a bundle against a plain decode of it, importing it against appending its events, and its memory."""
    with tempfile.TemporaryDirectory(prefix="branchmem-bench-") as folder:
        return [*_timed(bench, Path(folder)), *_memory(bench, Path(folder))]


def _timed(bench: Workbench, folder: Path) -> list[Row]:
    work = bench.load("chats", bench.size.base).work
    events = list(written(work))
    batches = [events[first : first + BATCH] for first in range(0, len(events), BATCH)]
    key, path = make_key(folder / "key.pem"), folder / "timed.bundle"
    with bm.open(folder / "exported.bmem") as store:
        for batch in batches:
            store.append(batch)
        store.export_bundle(path, key=key)
        digest = store.digest()
    with BundleFile.open(path) as bundle:
        manifest = bundle.manifest

    def verify() -> None:
        with BundleFile.open(path) as bundle:
            bundle.verify()

    begun = _Anew(folder)

    def imported() -> None:
        begun.store.import_bundle(path)

    def appended() -> None:
        for batch in batches:
            begun.store.append(batch)

    rows = measure(
        "B",
        "BundleFile.verify(), each event",
        work.name,
        Runner("ours", verify, len(events)),
        [Peer("plain decode: zstd, msgpack", [Runner("plain", lambda: decode(str(path), manifest), len(events))], 0.5)],
        rounds=bench.size.rounds,
    )
    rows += measure(
        "B",
        "store.import_bundle(path), each event",
        work.name,
        Runner("ours", imported, len(events), before=partial(begun.begin, key.public)),
        [Peer("store.append of the same", [Runner("append", appended, len(events), before=begun.begin)], 0.6)],
        rounds=min(3, bench.size.rounds),
    )
    begun.begin(key.public)
    imported()
    bench.check("B digest", digest, begun.store.digest())
    bench.check("B events", events, list(begun.store.log.events()))
    begun.close()
    return rows


class _Anew:
    """A store that is begun anew for each pass."""

    store: bm.Store

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def begin(self, pinned: str | None = None) -> None:
        """Leave the store of the pass before, and make an empty one that trusts this key."""
        self.close()
        self._count += 1
        self.store = bm.open(self._folder / f"{self._count}.bmem")
        if pinned is not None:
            self.store.pins.pin(pinned, "exporter")

    def close(self) -> None:
        if self._count:
            self.store.close()
            bm.delete(self.store.path)


def _memory(bench: Workbench, folder: Path) -> list[Row]:
    """What exporting and importing take beside the store, in bytes, of processes of their own."""
    if anonymous_bytes() is None:
        bench.leave_out("B, memory: this system does not say how much is anonymous")
        return []
    work = bench.load("chats", bench.size.large // 2).work
    store_path, bundle, key = folder / "large.bmem", folder / "large.bundle", folder / "large.pem"
    make_key(key)
    with bm.open(store_path) as store:
        events = written(work)
        while batch := list(islice(events, BATCH)):
            store.append(batch)
    exported = _took("export", store_path, bundle, key)
    imported = _took("import", folder / "arrived.bmem", bundle, key)
    with bm.open(store_path, readonly=True) as before, bm.open(folder / "arrived.bmem", readonly=True) as after:
        bench.check("B digest of what arrived", before.digest(), after.digest())
    limit = f"{LIMIT_BYTES // 1_000_000} MB"
    return [
        Row("B", f"memory beside the store, {question}", work.name, limit, limit, took, LIMIT_BYTES, 1, BYTES)
        for question, took in (("exporting", exported), ("importing", imported))
    ]


def _took(act: str, *paths: Path) -> float:
    command = [sys.executable, "-m", "bench.travel", act, *map(str, paths)]
    run = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    if run.returncode:
        raise Unequal(f"bench.travel {act}: {run.stderr.strip()}")
    return max(float(json.loads(run.stdout)["beside"]), 1.0)


@contextmanager
def _peak() -> Iterator[Callable[[], int]]:
    """The most anonymous memory that this process held inside, looked at every few milliseconds."""
    peak, done = [anonymous_bytes() or 0], threading.Event()

    def watch() -> None:
        while not done.wait(LOOK_SECONDS):
            peak[0] = max(peak[0], anonymous_bytes() or 0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: peak[0]
    finally:
        done.set()
        watcher.join()


def own_bytes(path: str) -> int:
    """What the store at `path` holds by itself once it is open, in a process that has not opened it before."""
    program = (
        "import sys, branchmem as bm; from bench.opening import anonymous_bytes as held; before = held();"
        "store = bm.open(sys.argv[1]); print(held() - before)"
    )
    run = subprocess.run([sys.executable, "-c", program, path], cwd=TOP, capture_output=True, text=True, check=True)
    return int(run.stdout)


def main(arguments: Sequence[str]) -> int:
    """Export or import, and print what that took beside the store."""
    act, path, bundle, key_path = arguments
    key = load_key(key_path)
    before = anonymous_bytes() or 0
    with _peak() as peak:
        with bm.open(path) as store:
            if act == "export":
                store.export_bundle(bundle, key=key)
            else:
                store.pins.pin(key.public, "exporter")
                store.import_bundle(bundle)
        highest = peak()
    print(json.dumps({"beside": highest - before - own_bytes(path)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
