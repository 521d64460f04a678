"""A file that is not what it should be: nothing damaged is read, and what is damaged is named."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import lmdb
import pytest
from branchmem.codec import encode_body
from branchmem.errors import (
    FormatTooNew,
    StoreDamaged,
)
from branchmem.events import Message
from branchmem.log import Log, Reader
from logs import Follower, contents, in_child, messages, verdict


@pytest.fixture
def sound(path: Path) -> list[Message]:
    """A log with many pages, and its events."""
    events = messages("a", 40, 300) + messages("b", 3, 20_000)
    with Log.open(path) as log:
        follower = Follower(log)
        for start in range(0, len(events), 3):
            follower.append(*events[start : start + 3])
    return events


def put_raw(path: Path, database: bytes, key: bytes, value: bytes | None) -> None:
    """Change one record behind the back of the log; None deletes it."""
    with lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0) as env:
        db = env.open_db(database)
        with env.begin(write=True, db=db) as txn:
            if value is None:
                txn.delete(key)
            else:
                txn.put(key, value)


# Files cut off, overwritten and changed


def test_a_file_cut_off_anywhere_is_damaged(path: Path, sound: list[Message]) -> None:
    whole = path.read_bytes()
    copy = path.with_name("copy.bmem")
    lengths = {*range(0, len(whole), 3001), *range(0, len(whole), 4096), 1, 16, 151, 152, 153, 8191, len(whole) - 1}

    def judge() -> str:
        verdicts = set()
        for length in sorted(lengths):
            copy.write_bytes(whole[:length])
            verdicts.add(verdict(copy, sound))
            assert copy.read_bytes() == whole[:length]
        return " ".join(sorted(verdicts))

    assert in_child(judge) == "StoreDamaged"
    copy.write_bytes(whole)
    assert verdict(copy, sound) == "right"


def scribble(path: Path, chance: random.Random) -> int:
    """Put and delete in a database of no meaning, and tell how many pages the file then lacks at its end."""
    with lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0, map_size=1 << 26, sync=False) as env:
        scratch = env.open_db(b"scratch")
        for _ in range(8):
            with env.begin(write=True, db=scratch) as txn:
                for _ in range(chance.randint(1, 200)):
                    name = f"{chance.randint(0, 300)}".encode()
                    txn.delete(name)
                    if chance.random() < 0.5:
                        txn.put(name, bytes(chance.choice((10, 100, 5000, 30000))))
            lacking = int(env.info()["last_pgno"]) + 1 - path.stat().st_size // 4096
            if lacking:
                break
    return lacking


def test_a_file_without_its_last_pages_is_sound_where_these_are_free(path: Path, sound: list[Message]) -> None:
    """LMDB does not write a page that the transaction which took it gave up again."""
    whole, lacking = path.read_bytes(), 0
    for seed in range(200):
        path.write_bytes(whole)
        lacking = scribble(path, random.Random(seed))
        if lacking:
            break
    assert lacking > 0
    whole = path.read_bytes()
    assert verdict(path, sound) == verdict(path, sound, verify=True) == "right"

    path.write_bytes(whole[:-4096])
    assert verdict(path, sound) == "StoreDamaged"
    with pytest.raises(StoreDamaged, match="cut off"):
        Log.open(path, verify=True)


def test_flipped_meta_pages_never_give_wrong_records(path: Path, sound: list[Message]) -> None:
    whole = path.read_bytes()
    copy = path.with_name("copy.bmem")
    print("seed", 11)
    chance = random.Random(11)

    def judge() -> str:
        verdicts: dict[str, int] = {}
        for place_ in [*range(152), *range(4096, 4096 + 152)]:
            flipped = bytearray(whole)
            flipped[place_] ^= chance.randint(1, 255)
            copy.write_bytes(flipped)
            said = verdict(copy, sound)
            verdicts[said] = verdicts.get(said, 0) + 1
        return str(sorted(verdicts))

    assert in_child(judge) == "['StoreDamaged', 'right']"


def test_zeroed_and_foreign_pages_are_found_by_verify(path: Path, sound: list[Message]) -> None:
    whole = path.read_bytes()
    copy = path.with_name("copy.bmem")

    def judge() -> str:
        verdicts = set()
        for page in range(2, len(whole) // 4096):
            for filler in (b"\0", b"\xff"):
                copy.write_bytes(whole[: page * 4096] + filler * 4096 + whole[page * 4096 + 4096 :])
                verdicts.add(verdict(copy, sound, verify=True))
        return " ".join(sorted(verdicts - {"right"}))

    assert in_child(judge) == "StoreDamaged"
    assert verdict(path, sound, verify=True) == "right"


# Files of another kind or format


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"hello", "too few"),
        (b"not a store at all\n" * 1000, "no LMDB file"),
        (b"\0" * 20_000, "no LMDB file"),
    ],
    ids=["empty", "short", "text", "zeros"],
)
def test_a_file_of_another_kind_is_damaged_and_left_alone(path: Path, content: bytes, why: str) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match=why) as caught:
        Log.open(path)
    assert caught.value.path == str(path)
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_lmdb_file_of_another_program_is_no_store(path: Path) -> None:
    put_raw(path, b"inventory", b"tea", b"2 kg")
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match="no branchmem store"):
        Log.open(path)
    put_raw(path, b"meta", b"magic", b"other")
    with pytest.raises(StoreDamaged, match="no branchmem store"):
        Log.open(path, readonly=True)
    assert before != path.read_bytes()
    lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0).close()


def test_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    Log.open(path).close()
    put_raw(path, b"meta", b"format", (2).to_bytes(4, "little"))
    before = path.read_bytes()
    with pytest.raises(FormatTooNew, match="format is 2, this version reads up to 1"):
        Log.open(path)
    assert path.read_bytes() == before
    put_raw(path, b"meta", b"format", (0).to_bytes(4, "little"))
    with pytest.raises(StoreDamaged, match="format marker says 0"):
        Log.open(path)
    put_raw(path, b"meta", b"log_id", b"short")
    with pytest.raises(StoreDamaged, match="marker is overwritten"):
        Log.open(path)


def test_a_file_of_the_next_engine_is_refused(path: Path) -> None:
    with lmdb.open(str(path), subdir=False, lib_version=1) as env, env.begin(write=True) as txn:
        txn.put(b"k", b"v")
    with pytest.raises(StoreDamaged, match="no LMDB file"):
        Log.open(path)


# Damaged records


def test_a_damaged_body_fails_alone(path: Path, sound: list[Message]) -> None:
    record = bytearray(encode_body(2, sound[1].body()))
    record[-1] ^= 1
    put_raw(path, b"bodies", (2).to_bytes(8, "big"), bytes(record))
    put_raw(path, b"bodies", (3).to_bytes(8, "big"), encode_body(4, sound[3].body()))
    put_raw(path, b"bodies", (4).to_bytes(8, "big"), None)
    with Log.open(path) as log:
        for seq, why in ((2, "checksum"), (3, "checksum"), (4, "missing")):
            with pytest.raises(StoreDamaged, match=why) as caught:
                log.read(partial(Reader.body, seq=seq))
            assert caught.value.seq == seq
        assert log.read(lambda reader: list(reader.bodies([1, 5]))) == [sound[0].body(), sound[4].body()]


def test_a_key_that_is_no_seq_is_damage(path: Path) -> None:
    Log.open(path).close()
    put_raw(path, b"skeletons", b"\0\0\0\0\0\0\0\1more", b"")
    with Log.open(path) as log, pytest.raises(StoreDamaged, match="a block has the key"):
        contents(log)


def test_a_store_without_one_of_its_databases_is_damaged(path: Path) -> None:
    put_raw(path, b"meta", b"magic", b"branchmem")
    put_raw(path, b"meta", b"format", (1).to_bytes(4, "little"))
    put_raw(path, b"meta", b"log_id", bytes(16))
    with pytest.raises(StoreDamaged, match="a database of it is missing"):
        Log.open(path)
