"""A backup: the store as it was at one moment, whole or not there at all, while others go on."""

from __future__ import annotations

import os
import signal
import stat
import threading
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.errors import StoreClosed, StoreDamaged, StoreExists, StoreFull, StoreMissing, StoreOnNetwork
from branchmem.log import copies, place
from logs import in_child


def fill(store: bm.Store, batches: int = 20, start: int = 0) -> None:
    for number in range(start, start + batches):
        root = bm.Message(f"m{number}", None, text="text " * 50)
        store.append([root, bm.Memory(f"k{number}", "memory", sources=[root.id])])


def test_a_backup_is_the_same_log(path: Path) -> None:
    target = path.with_name("backup.bmem")
    with bm.open(path) as store:
        fill(store)

        assert store.backup(target) == str(target)

        digest, log_id = store.digest(), store._log.log_id
        fill(store, 5, 20)
        assert sorted(entry.name for entry in path.parent.glob("backup*")) == [target.name]
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        assert target.stat().st_size < path.stat().st_size
    with bm.open(target, verify=True) as copy:
        assert (copy.digest(), copy._log.log_id, copy.seq) == (digest, log_id, 40)
        assert list(copy.at("m3")) == ["k3"]
        fill(copy, 5, 20)
        with bm.open(path) as store:
            assert copy.digest() == store.digest()


def test_a_backup_is_made_while_others_write(path: Path) -> None:
    with bm.open(path) as store:
        fill(store, 3)
        done = threading.Event()
        errors: list[BaseException] = []

        def write() -> None:
            try:
                for number in range(3, 10_000):
                    if done.is_set():
                        break
                    fill(store, 1, number)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        sizes = []
        for number in range(12):
            with bm.open(store.backup(path.with_name(f"copy{number}")), readonly=True) as copy:
                assert copy.seq % 2 == 0
                assert copy.check().ok
                assert [event.id for event in copy.log.events()] == [
                    f"{kind}{at}" for at in range(copy.seq // 2) for kind in "mk"
                ]
                sizes.append(copy.seq)
        done.set()
        thread.join()
        assert errors == []
        assert sizes == sorted(sizes)
        assert sizes[0] < sizes[-1]


def test_a_reader_may_back_up(path: Path) -> None:
    with bm.open(path) as store:
        fill(store)
    with bm.open(path, readonly=True) as reader, bm.open(reader.backup(path.with_name("copy"))) as copy:
        assert copy.digest() == reader.digest()


def test_nothing_is_overwritten(path: Path) -> None:
    with bm.open(path) as store:
        fill(store)
        link, text = path.with_name("link"), path.with_name("notes.txt")
        link.symlink_to(path.with_name("nowhere"))
        text.write_text("mine")
        for taken in (path, link, text, path.parent):
            with pytest.raises(StoreExists) as caught:
                store.backup(taken)
            assert isinstance(caught.value, FileExistsError)
            assert caught.value.path == str(taken)
        assert text.read_text() == "mine"
        assert store.check().ok


def test_a_place_where_no_store_may_be_takes_no_backup(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bm.open(path) as store:
        with pytest.raises(StoreMissing, match="no folder"):
            store.backup(path.parent / "nowhere" / "copy")
        table = f"1 0 0:40 / {path.parent} rw - nfs4 server:/home rw\n"
        monkeypatch.setattr(place, "_mounts", lambda: table)
        with pytest.raises(StoreOnNetwork):
            store.backup(path.with_name("copy"))
    with pytest.raises(StoreClosed):
        store.backup(path.with_name("copy"))
    assert not list(path.parent.glob("copy*"))


def test_a_copy_that_differs_is_no_backup(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bm.open(path) as store, bm.open(path.with_name("other.bmem")) as other:
        fill(store)
        fill(other, 2)
        real = copies.copy

        def swapped(env: Any, txn: Any, draft: str) -> None:
            other._log.read(lambda reader: real(other._log._file.env, reader._txn, draft + "-other"))
            whole = Path(draft + "-other").read_bytes()

            class Wrong:
                def __getattr__(self, name: str) -> Any:
                    return getattr(env, name)

                def copyfd(self, fd: int, **_: object) -> None:
                    os.write(fd, whole)

            real(Wrong(), txn, draft)  # type: ignore[arg-type]

        monkeypatch.setattr("branchmem.log.copy", swapped)
        with pytest.raises(StoreDamaged, match="same records"):
            store.backup(path.with_name("copy"))
    assert [entry.name for entry in path.parent.glob("copy*")] == ["copy-draft-other"]


def test_no_room_leaves_nothing_behind(path: Path) -> None:
    def work() -> str:
        import resource

        with bm.open(path) as store:
            fill(store, 100)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, -1))
            try:
                store.backup(path.with_name("copy"))
            except StoreFull as error:
                return error.path
        return "not full"

    assert in_child(work) == str(path.with_name("copy"))
    assert not list(path.parent.glob("copy*"))


def test_what_a_killed_backup_left_is_not_in_the_way(path: Path) -> None:
    target = path.with_name("copy")
    with bm.open(path) as store:
        fill(store)
    pid = os.fork()
    if pid == 0:
        os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        bm.open(path).backup(target)
    os.waitpid(pid, 0)
    assert target.with_name("copy-draft").exists()
    assert not target.exists()

    with bm.open(path) as store, bm.open(store.backup(target)) as copy:
        assert copy.digest() == store.digest()
    assert sorted(entry.name for entry in path.parent.glob("copy*")) == ["copy", "copy-guard", "copy-lock"]
