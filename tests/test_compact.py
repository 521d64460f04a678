"""A compacting rewrite: smaller, the same in every answer, and never lost whoever is killed."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem.errors import StoreClosed, StoreDamaged, StoreError, StoreFull, StoreLocked, StoreReadOnly
from branchmem.log import copies, environment, place
from logs import in_child

SEED = 20260401


def batch(name: str, count: int = 20, size: int = 300) -> list[bm.Message | bm.Memory]:
    root = bm.Message(name, None, text=name * 10)
    below = [bm.Message(f"{name}-{number}", name, text="x" * size) for number in range(count)]
    return [root, *below, bm.Memory(f"{name}-memory", "of the last", sources=[below[-1].id])]


def fill(store: bm.Store, batches: int = 30) -> None:
    """Many commits: each leaves free pages."""
    for number in range(batches):
        store.append(batch(f"b{number}", 3))


def answers(store: bm.Store) -> tuple[object, ...]:
    return (
        store.seq,
        store.digest(),
        list(store.memory_ids),
        list(store.message_ids),
        [list(store.at(f"b{number}-2")) for number in range(3)],
        [event.to_dict() for event in store.log.events()],
        store._log.log_id,
    )


def beside(path: Path) -> set[str]:
    return {entry.name.removeprefix(path.name) for entry in path.parent.iterdir()}


def test_a_compacted_store_is_smaller_and_answers_the_same(path: Path) -> None:
    with bm.open(path) as store:
        fill(store)
        before, view = answers(store), store.at("b0-2")

        receipt = store.compact()

        assert receipt.bytes_before > receipt.bytes_after == path.stat().st_size
        assert answers(store) == before
        assert view["b0-memory"].text == "of the last"
        assert store.append(batch("more")).added == 22
        again = answers(store)
        store.compact()
        assert answers(store) == again
    with bm.open(path, create=False, verify=True) as store:
        assert answers(store) == again
    assert beside(path) == {"", "-lock", "-guard"}


def test_all_stores_of_a_process_go_on_upon_the_new_file(path: Path) -> None:
    with bm.open(path) as store, bm.open(path) as twin, bm.open(path, readonly=True) as reader:
        fill(store)
        assert len(reader.at("b0-2")) == 1

        store.compact()

        assert len(environment._files) == 1
        store.append(batch("from the first"))
        twin.append(batch("from the second"))
        assert reader.refresh() > 0
        assert answers(reader) == answers(store) == answers(twin)
        with bm.open(path) as late:
            assert answers(late) == answers(store)
        store.close()
        twin.compact()
        assert reader.digest() == twin.digest()
    assert not environment._files


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def refused_by_the_disk(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("fails", [interrupted, refused_by_the_disk])
def test_what_fails_after_the_old_file_has_gone_loses_no_later_write(
    path: Path, monkeypatch: pytest.MonkeyPatch, fails: Callable[..., None]
) -> None:
    """The last step makes the new name durable; by then the old file has no name."""
    with bm.open(path) as store, bm.open(path, readonly=True) as reader:
        fill(store)
        synced = copies.sync
        with monkeypatch.context() as last:
            last.setattr(copies, "sync", lambda name: fails() if name == str(path.parent) else synced(name))
            with pytest.raises((KeyboardInterrupt, StoreError)):
                store.compact()
        assert store.append(batch("after")).added == 22
        assert answers(reader) == answers(store)
        said = answers(store)
        store.compact()
    with bm.open(path, create=False, verify=True) as store:
        assert answers(store) == said


def test_an_interrupt_between_two_environments_ends_with_the_next_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bm.open(path) as store:
        fill(store, 3)
        before = answers(store)
        with monkeypatch.context() as once:
            once.setattr(store._log._file, "_attach", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.compact()
        with pytest.raises(StoreError, match="open it again"):
            store.append(batch("after"))
        with bm.open(path) as again:
            assert answers(again) == answers(store) == before
            assert store.append(batch("after")).added == 22
            assert answers(again) == answers(store)


def test_what_another_process_appends_afterwards_is_seen(path: Path) -> None:
    with bm.open(path) as store:
        fill(store)
        store.compact()
        for number in range(4):
            assert in_child(partial(append_by_another, path, number)) == "22"
            assert f"other{number}-memory" in store.at(f"other{number}-19")
        assert len(store.log) == 30 * 5 + 4 * 22


def append_by_another(path: Path, number: int) -> int:
    with bm.open(path) as store:
        return store.append(batch(f"other{number}")).added


def test_what_another_process_wrote_beyond_the_map_is_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "MAP_BYTES", 1 << 16)
    with bm.open(path) as store:
        store.append(batch("b0"))
        assert in_child(partial(append_by_another, path, 1)) == "22"
        assert in_child(partial(append_much, path)) == "22"
        assert store.compact().bytes_after > store._log._file.map_bytes // 2
        assert len(store.log) == 66


def append_much(path: Path) -> int:
    with bm.open(path) as store:
        return store.append(batch("much", 20, 20_000)).added


def test_closing_in_another_thread_waits_or_comes_first(path: Path) -> None:
    for _ in range(10):
        store = bm.open(path)
        store.append(batch("b0"))
        said: list[str] = []

        def compact(store: bm.Store = store, said: list[str] = said) -> None:
            try:
                store.compact()
                said.append("compacted")
            except StoreClosed:
                said.append("closed")

        thread = threading.Thread(target=compact)
        thread.start()
        store.close()
        thread.join()
        assert len(said) == 1
        assert not environment._files
        with bm.open(path, create=False, verify=True) as again:
            assert again.check().ok


def test_threads_read_and_write_while_the_file_is_rewritten(path: Path) -> None:
    with bm.open(path) as store:
        fill(store)
        done = threading.Event()
        errors: list[BaseException] = []

        def read() -> None:
            try:
                while not done.is_set():
                    assert store.at("b0-2")["b0-memory"].text == "of the last"
                    assert store.log.get("b1").id == "b1"
                    time.sleep(0.0005)  # else each record that is copied waits for the interpreter
            except BaseException as error:
                errors.append(error)

        def write(name: str) -> None:
            try:
                for number in range(1000):
                    if done.is_set():
                        break
                    written.extend(event.id for event in batch(f"{name}{number}", 2))
                    store.append(batch(f"{name}{number}", 2))
            except BaseException as error:
                errors.append(error)

        def open_and_close() -> None:
            try:
                while not done.is_set():
                    with bm.open(path) as own:
                        assert "b0" in own.log
                    time.sleep(0.0005)
            except BaseException as error:
                errors.append(error)

        written: list[str] = []
        works: list[Callable[[], None]] = [read, read, lambda: write("w"), lambda: write("v"), open_and_close]
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for _ in range(8):
            store.compact()
        done.set()
        for thread in threads:
            thread.join()

        assert errors == []
        assert [id for id in written if id not in store.log] == []
        assert store.check().ok
        assert len(store.log) == 150 + len(written)


def test_a_store_that_others_hold_is_not_compacted_and_they_are_named(path: Path) -> None:
    with bm.open(path) as store:
        fill(store, 3)
        before = answers(store)
        context = multiprocessing.get_context("spawn")
        ready, leave = context.Event(), context.Event()
        child = context.Process(target=hold, args=(path, ready, leave))
        child.start()
        assert ready.wait(30)

        with pytest.raises(StoreLocked, match=f"process {child.pid} ") as caught:
            store.compact()

        assert caught.value.holders == (child.pid,)
        assert answers(store) == before
        store.append(batch("after"))
        leave.set()
        child.join()
        assert child.exitcode == 0
        store.compact()
    assert beside(path) == {"", "-lock", "-guard"}


def hold(path: Path, ready: Any, leave: Any) -> None:
    with bm.open(path) as store:
        ready.set()
        leave.wait(30)
        assert "after" in store.log


def test_who_holds_a_store_is_not_named_where_the_system_does_not_tell(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bm.open(path) as store, open(f"{path}-guard", "rb") as guard:
        fcntl.flock(guard, fcntl.LOCK_SH)
        monkeypatch.setattr(place, "LOCKS", "/nowhere")
        with pytest.raises(StoreLocked, match="it is held, in this process or in another") as caught:
            store.compact()
        assert caught.value.holders == ()


def test_two_processes_cannot_compact_at_once(path: Path) -> None:
    with bm.open(path) as store, open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreLocked):
            store.compact()
        fcntl.flock(file, fcntl.LOCK_UN)
        store.compact()


def test_a_store_whose_guard_was_removed_is_not_compacted(path: Path) -> None:
    with bm.open(path) as store:
        os.unlink(f"{path}-guard")
        with pytest.raises(StoreLocked, match="guard file was removed"):
            store.compact()
    with bm.open(path) as store:
        store.compact()


def test_a_store_that_is_readonly_or_closed_is_not_compacted(path: Path) -> None:
    with bm.open(path) as store, bm.open(path, readonly=True) as reader:
        with pytest.raises(StoreReadOnly):
            reader.compact()
        with pytest.raises(RuntimeError, match="inside work"):
            store._log.read(lambda _: store.compact())
    with pytest.raises(StoreClosed):
        store.compact()


def test_who_opens_meanwhile_waits_and_gets_the_new_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bm.open(path) as store:
        fill(store, 5)
        old, context = path.stat().st_ino, multiprocessing.get_context("spawn")
        answer = context.Queue()
        child = context.Process(target=tell_what_was_opened, args=(path, answer))
        copied = copies.copy

        def slowly(*parts: Any) -> None:
            child.start()
            copied(*parts)
            time.sleep(1.0)  # the child waits for the guard by now

        monkeypatch.setattr("branchmem.log.environment.copy", slowly)
        store.compact()
        inode, events = answer.get(timeout=30)
        child.join()
        assert (inode, events) == (path.stat().st_ino, 25)
        assert inode != old


def tell_what_was_opened(path: Path, answer: Any) -> None:
    with bm.open(path) as store:
        answer.put((store._log._file.which[1], len(store.log)))


def test_a_copy_that_differs_replaces_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bm.open(path) as store:
        fill(store, 3)
        before, inode = answers(store), path.stat().st_ino
        other = path.with_name("other.bmem")
        with bm.open(other) as wrong:
            wrong.append(batch("wrong"))

        class Copies:
            """An environment that copies another file."""

            def __getattr__(self, name: str) -> Any:
                return getattr(env, name)

            def copyfd(self, fd: int, **_: object) -> None:
                os.write(fd, other.read_bytes())

        env = store._log._file.env
        store._log._file.env = Copies()  # type: ignore[assignment]
        with pytest.raises(StoreDamaged, match="same records"):
            store.compact()
        store._log._file.env = env
        assert answers(store) == before
        assert path.stat().st_ino == inode
        store.append(batch("after"))
    assert not list(path.parent.glob("*-draft*"))


def test_a_full_disk_leaves_the_store_as_it_is(path: Path) -> None:
    def work() -> str:
        import resource

        with bm.open(path) as store:
            fill(store)
            store.append(batch("large", 20, 30_000))
            before = answers(store)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, -1))
            try:
                store.compact()
            except StoreFull:
                resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
                store.append(batch("after"))
                return f"full {answers(store)[5][:-22] == before[5]} {store.compact().bytes_after > 200_000}"  # type: ignore[index]
        return "not full"

    assert in_child(work) == "full True True"
    assert not list(path.parent.glob("*-draft*"))


# Killed at every step


STEPS = ((os, "open"), (os, "fsync"), (os, "rename"), (os, "unlink"), (os, "close"), (fcntl, "flock"))


def killed_at(path: Path, step: int) -> int:
    """The signal that ended a process at the `step`-th call of the system that compacting makes, 0 for none."""
    pid = os.fork()
    if pid == 0:
        store = bm.open(path)
        left = step

        def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*parts: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*parts, **named)

            return call

        for module, name in STEPS:
            setattr(module, name, watched(name, getattr(module, name)))
        store.compact()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def test_who_is_killed_at_any_step_loses_nothing(path: Path) -> None:
    with bm.open(path) as store:
        fill(store, 10)
        before = answers(store)
    step, replaced, inode = 1, 0, path.stat().st_ino
    while killed_at(path, step) == signal.SIGKILL:
        replaced += path.stat().st_ino != inode
        inode = path.stat().st_ino
        with bm.open(path, create=False, verify=True) as store:
            assert answers(store) == before, f"killed at step {step}"
            assert beside(path) == {"", "-lock", "-guard"}
        step += 1
    assert replaced > 3
    assert step > replaced + 10


@pytest.mark.soak
def test_who_is_killed_at_any_moment_loses_nothing(path: Path, figure: Callable[[int, int], int]) -> None:
    chance = Random(SEED)
    with bm.open(path) as store:
        fill(store, 40)
        store.append(batch("large", 50, 20_000))
        before = answers(store)
    for _ in range(figure(20, 500)):
        pid = os.fork()
        if pid == 0:
            with bm.open(path) as store:
                while True:
                    store.compact()
        time.sleep(chance.random() * 0.1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with bm.open(path, create=False) as store:
            assert answers(store) == before, f"seed {SEED}"
            assert beside(path) == {"", "-lock", "-guard"}
