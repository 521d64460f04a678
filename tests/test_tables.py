"""Tables of local state: whole or not there, sorted, checked, and carried along by every copy of the file."""

from __future__ import annotations

import threading
from pathlib import Path

import branchmem as bm
import lmdb
import pytest
from branchmem.errors import StoreDamaged
from branchmem.log import Log, Reader, Writer
from branchmem.log.tables import TABLES
from logs import in_child


def put(log: Log, name: str, **items: str) -> None:
    def work(writer: Writer) -> None:
        for key, value in items.items():
            writer.table(name).put(key.encode(), value.encode())

    log.write(work, tables=[name])


def read(log: Log, name: str, prefix: str = "") -> dict[str, str]:
    def work(reader: Reader) -> dict[str, str]:
        return {key.decode(): value.decode() for key, value in reader.table(name).items(prefix.encode())}

    return log.read(work, tables=[name])


def last(log: Log, name: str, prefix: str) -> tuple[bytes, bytes] | None:
    return log.read(lambda reader: reader.table(name).last(prefix.encode()), tables=[name])


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_empty_until_something_was_put_there(path: Path, name: str) -> None:
    with Log.open(path) as log:
        assert read(log, name) == {}
        assert last(log, name, "a") is None
        assert log.read(lambda reader: reader.table(name).get(b"a"), tables=[name]) is None
        put(log, name, a="1")
        assert read(log, name) == {"a": "1"}
    with Log.open(path, readonly=True) as log:
        assert read(log, name) == {"a": "1"}


def test_keys_come_sorted_and_by_prefix(path: Path) -> None:
    with Log.open(path) as log:
        put(log, "refs", b="1", a="2", ab="3", ac="4", B="5")

        assert list(read(log, "refs").items()) == [("B", "5"), ("a", "2"), ("ab", "3"), ("ac", "4"), ("b", "1")]
        assert read(log, "refs", "a") == {"a": "2", "ab": "3", "ac": "4"}
        assert last(log, "refs", "a") == (b"ac", b"4")
        assert last(log, "refs", "b") == (b"b", b"1")
        assert last(log, "refs", "c") is None
        assert last(log, "refs", "A") is None


def test_a_key_that_is_deleted_is_gone(path: Path) -> None:
    with Log.open(path) as log:
        put(log, "refs", a="1", b="2")

        def work(writer: Writer) -> tuple[bool, bool]:
            return writer.table("refs").delete(b"a"), writer.table("refs").delete(b"c")

        assert log.write(work, tables=["refs"]) == (True, False)
        assert read(log, "refs") == {"b": "2"}


def test_an_exception_undoes_what_was_put(path: Path) -> None:
    def work(writer: Writer) -> None:
        writer.table("refs").put(b"a", b"2")
        raise ValueError

    with Log.open(path) as log:
        put(log, "refs", a="1")
        with pytest.raises(ValueError, match=r"^$"):
            log.write(work, tables=["refs"])
        assert read(log, "refs") == {"a": "1"}


def test_a_table_that_another_process_made_is_seen(path: Path) -> None:
    def make() -> None:
        with Log.open(path) as log:
            put(log, "pins", a="1")

    with Log.open(path) as log:
        assert read(log, "pins") == {}
        assert in_child(make) == "None"
        assert read(log, "pins") == {"a": "1"}
        put(log, "pins", b="2")
        assert read(log, "pins") == {"a": "1", "b": "2"}


def test_who_looked_at_a_table_still_learns_of_the_next_commit(path: Path) -> None:
    def append() -> None:
        with bm.open(path) as store:
            store.append([bm.Message("u", None)])

    with bm.open(path) as store:
        store.transact(lambda writer: ((), writer.table("refs").get(b"a")), tables=["refs"])
        store.transact(lambda writer: ((), writer.table("refs").delete(b"a")), tables=["refs"])
        assert in_child(append) == "None"
        assert store.seq == 1


def test_events_and_tables_are_written_together_or_not_at_all(path: Path) -> None:
    def plan(writer: Writer) -> tuple[list[bm.Message], str]:
        writer.table("refs").put(b"main", b"u")
        return [bm.Message("u", None, text="one")], "out"

    with bm.open(path) as store:
        appended, out = store.transact(plan, tables=["refs"])
        assert (appended.added, appended.seq, out) == (1, 1, "out")

        def conflicting(writer: Writer) -> tuple[list[bm.Message], None]:
            writer.table("refs").put(b"main", b"v")
            return [bm.Message("v", None), bm.Message("u", None, text="two")], None

        with pytest.raises(bm.EventConflict):
            store.transact(conflicting, tables=["refs"])
        assert store.seq == 1
        assert store.snapshot(lambda reader: reader.table("refs").get(b"main"), tables=["refs"]) == b"u"


def test_a_plan_sees_what_other_processes_appended_and_may_ask_the_store(path: Path) -> None:
    def append() -> None:
        with bm.open(path) as store:
            store.append([bm.Message("u", None), bm.Memory("m", "text", sources=["u"])])

    with bm.open(path, auto_refresh=False) as store:
        assert in_child(append) == "None"
        _, seen = store.transact(lambda writer: ((), [m.text for m in store.at("u").memories()]), tables=[])
        assert seen == ["text"]


def test_a_table_that_another_thread_makes_while_this_one_reads_is_empty_to_it(path: Path) -> None:
    with Log.open(path) as log:

        def work(reader: Reader) -> object:
            other = threading.Thread(target=put, args=(log, "access"), kwargs={"a": "1"})
            other.start()
            other.join()
            table = reader.table("access")
            return table.get(b"a"), table.last(b"a"), list(table.items())

        assert log.read(work, tables=["access"]) == (None, None, [])
        assert read(log, "access") == {"a": "1"}


def test_work_inside_work_reads_no_table_unseen(path: Path) -> None:
    def make() -> None:
        with Log.open(path) as log:
            put(log, "pins", a="1")

    with Log.open(path) as log:
        assert log.read(lambda _: read(log, "pins")) == {}
        assert in_child(make) == "None"
        with pytest.raises(RuntimeError, match="given the table pins"):
            log.read(lambda _: read(log, "pins"))
        assert log.read(lambda _: read(log, "pins"), tables=["pins"]) == {"a": "1"}


def test_the_map_grows_under_a_large_plan(path: Path) -> None:
    big = "x" * (1 << 20)

    def plan(writer: Writer) -> tuple[list[bm.Message], None]:
        for at in range(20):
            writer.table("held").put(b"%d" % at, big.encode())
        return [bm.Message(f"u{at}", None, text=big) for at in range(20)], None

    with bm.open(path) as store:
        store.transact(plan, tables=["held"])
        count = store.snapshot(lambda reader: sum(1 for _ in reader.table("held").items()), tables=["held"])
        assert (store.seq, count) == (20, 20)


def test_copies_carry_the_tables_along(path: Path, tmp_path: Path) -> None:
    with bm.open(path) as store:
        store.append([bm.Message("u", None)])
        store.refs.create("main", "u")
        store.compact()
        assert dict(store.refs.items()) == {"main": "u"}
        copy = store.backup(tmp_path / "copy.bmem")
    with bm.open(copy, readonly=True, verify=True) as store:
        assert dict(store.refs.items()) == {"main": "u"}
        assert store.check().ok


def test_threads_that_look_and_write_at_once_do_not_wait_for_each_other(path: Path) -> None:
    with bm.open(path) as store:
        store.append([bm.Message("u", None)])
    for turn in range(20):
        with bm.open(path) as store:

            def work(at: int, store: bm.Store = store, turn: int = turn) -> None:
                store.refs.create(f"{turn}-{at}", "u")
                len(store.refs)

            threads = [threading.Thread(target=work, args=(at,)) for at in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(store.refs) == 6 * (turn + 1)


def test_many_threads_make_their_tables_at_once(path: Path) -> None:
    with Log.open(path) as log:
        threads = [threading.Thread(target=put, args=(log, name), kwargs={"a": name}) for name in TABLES * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [read(log, name) for name in TABLES] == [{"a": name} for name in TABLES]


@pytest.mark.parametrize("at", [0, 3, 4, 6])
def test_a_changed_byte_of_a_value_is_damage(path: Path, at: int) -> None:
    with Log.open(path) as log:
        put(log, "refs", main="u12")
    env = lmdb.Environment(str(path), subdir=False, max_dbs=32, lib_version=0)
    refs = env.open_db(b"refs", create=False)
    with env.begin(write=True) as txn:
        value = bytearray(txn.get(b"main", db=refs) or b"")
        value[at] ^= 1
        txn.put(b"main", bytes(value), db=refs)
    env.close()

    with Log.open(path) as log, pytest.raises(StoreDamaged, match="table refs"):
        read(log, "refs")


def test_a_damaged_key_is_not_taken_for_another(path: Path) -> None:
    with Log.open(path) as log:
        put(log, "refs", main="u12")
    env = lmdb.Environment(str(path), subdir=False, max_dbs=32, lib_version=0)
    refs = env.open_db(b"refs", create=False)
    with env.begin(write=True) as txn:
        txn.put(b"nain", txn.pop(b"main", db=refs) or b"", db=refs)
    env.close()

    with Log.open(path) as log, pytest.raises(StoreDamaged, match="table refs"):
        read(log, "refs")
