"""Where a log cannot be opened or written: every refusal has a name, and costs nothing that was acknowledged."""

from __future__ import annotations

import collections
import errno
import fcntl
import os
import pickle
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lmdb
import pytest
from branchmem.errors import (
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreMissing,
    StoreOnNetwork,
    StoreReadOnly,
)
from branchmem.events import Message
from branchmem.log import Log, environment, place
from logs import Follower, contents, expected, in_child, messages, verdict


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount") or "mount"
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no disk of its own may be mounted here: {made.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


class Failing:
    """An environment or a transaction that writes, whose `method` fails with each of `errors` in turn."""

    def __init__(self, real: Any, method: str, errors: list[Exception]) -> None:
        self.real, self.method, self.errors = real, method, errors

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.real, name)
        if name == "begin" and self.method != "begin":
            return lambda **options: (
                Failing(attribute(**options), self.method, self.errors)
                if options.get("write")
                else attribute(**options)
            )
        if name != self.method or not self.errors:
            return attribute

        def fail(*_: object, **__: object) -> None:
            raise self.errors.pop(0)

        return fail

    def _begin(self, **options: Any) -> Any:
        txn = self.real.begin(**options)
        return Failing(txn, self.method, self.errors) if options.get("write") else txn


def lmdb_error(kind: type[lmdb.Error], code: int) -> lmdb.Error:
    """The error as LMDB raises it: only there it has a code."""
    error = kind("as if")
    error.code = code  # type: ignore[misc]
    return error


# Places where no log can be


def test_a_missing_file_is_made_only_on_demand(path: Path) -> None:
    for options in ({"readonly": True}, {"create": False}):
        with pytest.raises(StoreMissing) as caught:
            Log.open(path, **options)
        assert caught.value.errno == errno.ENOENT
        assert isinstance(pickle.loads(pickle.dumps(caught.value)), StoreMissing)
    assert list(path.parent.iterdir()) == []
    with pytest.raises(StoreMissing, match=r"no folder .*nowhere"):
        Log.open(path.parent / "nowhere" / "a.bmem")
    path.write_bytes(b"")
    with pytest.raises(StoreMissing, match="no folder"):
        Log.open(path / "a.bmem")


@pytest.mark.parametrize("name", [b"\xff\xfe", b"new\nline", " \u00e9 \U0001f332".encode()])
def test_a_file_may_have_any_name_that_the_system_allows(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    try:
        path.touch()
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    path.unlink()
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 1))
        log.compact()
        log.backup(f"{path}-copy")
    for copy in (path, f"{path}-copy"):
        with Log.open(copy, verify=True) as log:
            assert contents(log) == expected(messages("a", 1))


def test_links_folders_and_devices_are_refused(path: Path) -> None:
    Log.open(path).close()
    link, twin, pipe = (path.with_name(name) for name in ("link", "twin", "pipe"))
    link.symlink_to(path)
    os.mkfifo(pipe)
    for wrong, why in ((link, "symbolic link"), (path.parent, "a folder"), (pipe, "a folder or a device")):
        with pytest.raises(StoreError, match=why):
            Log.open(wrong)
    link.unlink()
    link.symlink_to(path.with_name("nothing"))
    with pytest.raises(StoreError, match="symbolic link"):
        Log.open(link)
    twin.hardlink_to(path)
    with pytest.raises(StoreError, match="several names"):
        Log.open(twin)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre"])
def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    share = tmp_path / "my share"
    (share / "local").mkdir(parents=True)
    point = str(share).replace(" ", "\\040")
    table = (
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        f"29 22 0:40 / {point} rw,relatime shared:1 - {kind} server:/home rw\n"
        f"30 29 0:41 / {point}/local rw - ext4 /dev/vdb rw\n"
    )
    monkeypatch.setattr(place, "_mounts", lambda: table)
    with pytest.raises(StoreOnNetwork, match=kind):
        Log.open(share / "a.bmem")
    Log.open(share / "local" / "a.bmem").close()
    Log.open(tmp_path / "my share of it.bmem").close()


def test_where_no_mounts_are_told_a_file_is_taken_as_local(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_mounts", lambda: "")
    Log.open(path).close()


def test_a_guard_held_alone_locks_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.02)
    Log.open(path).close()
    with open(f"{path}-guard", "rb") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        with pytest.raises(StoreLocked):
            Log.open(path)
        fcntl.flock(guard, fcntl.LOCK_UN)
        with Log.open(path), pytest.raises(BlockingIOError):
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_no_new_log_is_made_where_an_old_one_is_still_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.02)
    with Log.open(path) as log:
        path.unlink()
        with pytest.raises(StoreLocked):
            Log.open(path)
        assert contents(log) == []
    Log.open(path).close()


@pytest.mark.parametrize("gone", ["removed", "moved", "replaced"])
def test_nothing_is_written_into_a_file_that_has_lost_its_name(path: Path, gone: str) -> None:
    with Log.open(path) as log, Log.open(path.with_name("other")):
        Follower(log).append(*messages("a", 1))
        if gone == "replaced":
            path.with_name("other").rename(path)
        else:
            path.rename(path.with_name("elsewhere")) if gone == "moved" else path.unlink()
        with pytest.raises(StoreError, match="close it and open it again"):
            Follower(log).append(*messages("b", 1))
        with pytest.raises(StoreError):
            log.compact()
        assert contents(log) == expected(messages("a", 1))


def test_a_crash_while_creating_leaves_nothing_in_the_way(path: Path) -> None:
    for left in ("-draft", "-draft-lock", "-guard", "-lock"):
        Path(f"{path}{left}").write_bytes(b"")
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 1))
    assert not Path(f"{path}-draft").exists()


# No permission, no room


def test_without_permission_to_write_a_log_can_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 1))
    opened = os.open

    def refuse(name: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return opened(name, flags, *rest, **named)

    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.02)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreReadOnly, match="readonly=True"):
        Log.open(path)
    with Log.open(path, readonly=True) as log:
        assert len(contents(log)) == 1
    Path(f"{path}-guard").unlink()
    with Log.open(path, readonly=True) as log:
        assert len(contents(log)) == 1
    monkeypatch.setattr(os, "open", lambda *_, **__: opened("/nowhere/at/all", os.O_RDONLY) and 0)
    with pytest.raises(StoreError):
        Log.open(path, readonly=True)


def test_a_reader_without_a_guard_gets_one_before_it_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Log.open(path).close()
    with monkeypatch.context() as nobody:
        nobody.setattr(environment, "guarded_now", refuse_permission)
        reader = Log.open(path, readonly=True)
    with reader, Log.open(path) as log, open(f"{path}-guard", "rb") as guard:
        with pytest.raises(BlockingIOError):
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Follower(log).append(*messages("a", 1))


def refuse_permission(*_: object) -> int:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_without_descriptors_the_limit_is_named_and_none_is_lost(path: Path) -> None:
    Log.open(path).close()

    def child() -> object:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        before = os.listdir("/proc/self/fd")
        said = []
        first_free = next(number for number in range(len(before) + 1) if str(number) not in before)
        for limit in range(first_free, max(map(int, before)) + 20):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            try:
                Log.open(path).close()
                break
            except StoreError as error:
                said.append("ulimit -n" in str(error))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return len(said) > 3, all(said), sorted(os.listdir("/proc/self/fd")) == sorted(before)

    assert in_child(child) == "(True, True, True)"


def test_only_a_reader_where_nobody_can_write_goes_without_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Log.open(path).close()
    with Log.open(path, readonly=True) as log:
        assert log._file.env.flags()["lock"]
    monkeypatch.setattr(environment, "frozen", lambda _: True)
    with Log.open(path, readonly=True) as log:
        assert not log._file.env.flags()["lock"]
    with Log.open(path) as log:
        flags = log._file.env.flags()
        assert flags["lock"]
        assert flags["sync"]
        assert flags["metasync"]
        assert not flags["writemap"]


def test_a_read_only_medium_can_be_read(small_disk: Path) -> None:
    path = small_disk / "alice.bmem"
    with Log.open(path) as log:
        Follower(log).append(*messages("a", 3))
    for left in ("-lock", "-guard"):
        Path(f"{path}{left}").unlink()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with Log.open(path, readonly=True, verify=True) as log:
        assert contents(log) == expected(messages("a", 3))
        log.read(Follower(log).take_in)
        assert not log.changed()
    with pytest.raises(StoreReadOnly):
        Log.open(path)
    with pytest.raises(StoreReadOnly):
        Log.open(small_disk / "new.bmem")


def test_a_full_disk_keeps_what_was_acknowledged(small_disk: Path) -> None:
    path = small_disk / "alice.bmem"
    with Log.open(path) as log:
        follower = Follower(log)
        acknowledged: list[Message] = []

        def fill() -> None:
            for number in range(100):
                batch = messages(f"b{number}", 3, 30_000)
                follower.append(*batch)
                acknowledged.extend(batch)

        with pytest.raises(StoreFull, match="nothing of this batch was written"):
            fill()
        assert len(acknowledged) > 15
        assert contents(log) == expected(acknowledged)
        small = messages("small", 1, 1)
        follower.append(*small)
        assert contents(log) == expected(acknowledged + small)
    assert verdict(path, acknowledged + small, verify=True) == "right"
    with pytest.raises(StoreFull), ExitStack() as logs:
        collections.deque(logs.enter_context(Log.open(small_disk / f"{number}.bmem")) for number in range(100))
    assert not list(small_disk.glob("*-draft*"))


def test_a_limit_of_the_size_of_files_is_a_full_disk(path: Path) -> None:
    def fill() -> str:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        acknowledged: list[Message] = []
        with Log.open(path) as log:
            follower = Follower(log)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, -1))
            try:
                for number in range(100):
                    batch = messages(f"b{number}", 3, 30_000)
                    follower.append(*batch)
                    acknowledged.extend(batch)
            except StoreFull:
                small = messages("small", 1, 1)
                follower.append(*small)
                assert contents(log) == expected(acknowledged + small)
        return f"{len(acknowledged) > 15} {verdict(path, acknowledged + small, verify=True)}"

    assert in_child(fill) == "True right"


# Errors of LMDB


@pytest.mark.parametrize(
    ("kind", "code", "ours"),
    [
        (lmdb.DiskError, errno.ENOSPC, StoreFull),
        (lmdb.Error, errno.EDQUOT, StoreFull),
        (lmdb.Error, errno.EFBIG, StoreFull),
        (lmdb.ReadonlyError, errno.EACCES, StoreReadOnly),
        (lmdb.Error, errno.EROFS, StoreReadOnly),
        (lmdb.LockError, errno.EAGAIN, StoreLocked),
        (lmdb.ReadersFullError, -30790, StoreLocked),
        (lmdb.CorruptedError, -30796, StoreDamaged),
        (lmdb.PageNotFoundError, -30797, StoreDamaged),
        (lmdb.InvalidParameterError, errno.EINVAL, StoreError),
    ],
)
def test_every_error_of_lmdb_leaves_as_one_of_ours(
    path: Path, kind: type[lmdb.Error], code: int, ours: type[StoreError]
) -> None:
    with Log.open(path) as log:
        follower = Follower(log)
        follower.append(*messages("a", 1))
        real = log._file.env
        log._file.env = Failing(real, "commit", [lmdb_error(kind, code)])  # type: ignore[assignment]
        with pytest.raises(ours) as caught:
            follower.append(*messages("b", 1))
        assert type(caught.value) is ours
        assert caught.value.path == str(path)
        log._file.env = real
        assert follower.append(*messages("b", 1)) == 2


def test_a_short_write_is_a_full_disk_only_where_no_room_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log.open(path) as log:
        real = log._file.env
        for room, ours in ((0, StoreFull), (1 << 30, StoreError)):
            status = os.statvfs_result((4096, 4096, 0, 0, room // 4096, 0, 0, 0, 0, 255))
            monkeypatch.setattr(os, "statvfs", lambda _, status=status: status)
            log._file.env = Failing(real, "commit", [lmdb_error(lmdb.Error, errno.EIO)])  # type: ignore[assignment]
            with pytest.raises(ours) as caught:
                Follower(log).append(*messages("a", 1))
            assert type(caught.value) is ours
        log._file.env = real


def test_an_environment_that_gave_up_is_opened_anew(path: Path) -> None:
    with Log.open(path) as log:
        follower = Follower(log)
        follower.append(*messages("a", 1))
        log._file.env = Failing(log._file.env, "begin", [lmdb_error(lmdb.PanicError, -30795)])  # type: ignore[assignment]
        assert follower.append(*messages("b", 1)) == 2
        assert isinstance(log._file.env, lmdb.Environment)
        assert len(contents(log)) == 2


def test_another_engine_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Log.open(path).close()
    real = lmdb.Environment

    def newer(*args: Any, **options: Any) -> Any:
        return Failing(real(*args, **options), "lib_version", [])

    monkeypatch.setattr(lmdb, "Environment", newer)
    monkeypatch.setattr(Failing, "lib_version", lambda self: (1, 0, 0), raising=False)
    with pytest.raises(StoreError, match=r"engine 0\.9"):
        Log.open(path)
