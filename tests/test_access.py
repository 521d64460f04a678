"""Last uses: local state that only goes forward in time, read by whoever follows it, and never an event."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.canonical import microseconds
from branchmem.errors import InvalidTime
from branchmem.log import Reader, Writer
from branchmem.recall import access
from logs import in_child

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def kept(path: Path) -> Iterator[bm.Store]:
    """A store with a message and the memories a, b and c."""
    with bm.open(path) as store:
        store.append([bm.Message("u1", None, role="user", text="hello")])
        store.append([bm.Memory(id, f"fact {id}", sources=["u1"]) for id in "abc"])
        yield store


def newer(store: bm.Store, number: int) -> tuple[int, dict[str, int]]:
    """What came since a number; each memory once."""
    newest, uses = store.snapshot(lambda reader: access.newer(reader, number), tables=access.TABLES)
    assert len(dict(uses)) == len(uses)
    return newest, dict(uses)


def test_a_use_is_noted_for_memories_and_for_ids(kept: bm.Store) -> None:
    assert kept.used(["a", kept.at("u1")["b"]], at=NOON) == 2

    assert kept.last_used([*"abc"]) == access.last_used(kept, [*"abc"]) == {"a": NOON, "b": NOON}


def test_what_is_no_memory_was_never_used(kept: bm.Store) -> None:
    kept.used(["a"], at=NOON)
    odd: list[Any] = ["a", "u1", "\ud800", 5, None]

    assert kept.last_used(odd) == {"a": NOON}


@pytest.mark.parametrize("one", ["a", "abc", b"a", "nothing"])
def test_a_list_of_memories_is_needed(kept: bm.Store, one: Any) -> None:
    for ask in (kept.used, kept.last_used):
        with pytest.raises(TypeError, match="a list of memories is needed"):
            ask(one)
    with pytest.raises(TypeError, match="a list of memories is needed"):
        kept.last_used(kept.at("u1")["b"])  # type: ignore[arg-type]
    kept.used([kept.at("u1")["b"]], at=NOON)
    assert kept.last_used([kept.at("u1")["b"]]) == {"b": NOON}


def test_without_a_time_a_use_is_now(kept: bm.Store) -> None:
    before = datetime.now(UTC)

    kept.used(["a"])

    assert before <= access.last_used(kept, ["a"])["a"] <= datetime.now(UTC)


def test_the_later_use_wins_in_whatever_order_they_come(kept: bm.Store) -> None:
    assert kept.used(["a"], at=NOON) == 1
    assert kept.used(["a", "b"], at=NOON - HOUR) == 1
    assert kept.used(["a"], at=NOON) == 0
    assert access.last_used(kept, [*"ab"]) == {"a": NOON, "b": NOON - HOUR}

    assert kept.used(["a", "b"], at=(NOON + HOUR).astimezone(timezone(9 * HOUR))) == 2

    assert access.last_used(kept, [*"ab"]) == {"a": NOON + HOUR, "b": NOON + HOUR}


def test_a_memory_that_is_named_twice_is_used_once(kept: bm.Store) -> None:
    assert kept.used(["a", "a"], at=NOON) == 1


@pytest.mark.parametrize("unknown", ["nobody", "u1", ""])
def test_what_is_no_memory_is_refused_and_nothing_is_noted(kept: bm.Store, unknown: str) -> None:
    with pytest.raises(bm.UnknownEvent) as refused:
        kept.used(["a", unknown], at=NOON)

    assert refused.value.id == unknown
    assert access.last_used(kept, ["a"]) == {}


def test_a_time_without_offset_is_refused(kept: bm.Store) -> None:
    with pytest.raises(InvalidTime, match=r"at=.* offset"):
        kept.used(["a"], at=NOON.replace(tzinfo=None))
    with pytest.raises(InvalidTime, match="at='today': it is a datetime"):
        kept.used(["a"], at="today")  # type: ignore[arg-type]


def test_a_single_memory_in_place_of_a_list_is_refused(kept: bm.Store) -> None:
    with pytest.raises(TypeError, match=r"\['a'\]"):
        kept.used("a")


def test_uses_are_no_events(kept: bm.Store) -> None:
    before = kept.digest(), kept.seq, list(kept.at("u1"))

    kept.used(["a", "b", "c"], at=NOON)

    assert (kept.digest(), kept.seq, list(kept.at("u1"))) == before


def test_two_entries_a_memory_however_often_it_is_used(kept: bm.Store) -> None:
    for hours in range(20):
        kept.used(["a", "b"], at=NOON + hours * HOUR)

    keys = kept.snapshot(lambda reader: [key for key, _ in reader.table("access").items()], tables=access.TABLES)

    assert sorted(key[:1] for key in keys) == [b"i", b"i", b"n", b"n"]


def test_who_follows_is_told_what_came_since(kept: bm.Store) -> None:
    assert newer(kept, 0) == (0, {})
    kept.used(["a", "b"], at=NOON)
    newest, uses = newer(kept, 0)
    assert uses.keys() == {"a", "b"}
    assert newer(kept, newest) == (newest, {})

    kept.used(["b"], at=NOON + HOUR)

    latest, uses = newer(kept, newest)
    assert uses.keys() == {"b"}
    assert newer(kept, latest) == (latest, {})


def test_the_only_memory_used_again_is_news(kept: bm.Store) -> None:
    kept.used(["a"], at=NOON)
    newest, _ = newer(kept, 0)

    kept.used(["a"], at=NOON + HOUR)

    assert newer(kept, newest)[1].keys() == {"a"}


@pytest.mark.parametrize("seed", range(5))
def test_followers_end_with_the_same_however_far_they_lag_behind(kept: bm.Store, seed: int) -> None:
    chance = random.Random(seed)
    expected: dict[str, datetime] = {}
    followers = [(0, dict[str, int]()) for _ in range(3)]

    for _ in range(40):
        ids = chance.sample("abc", chance.randint(1, 3))
        at = NOON + chance.randint(0, 50) * HOUR
        count = kept.used(ids, at=at)
        later = {id for id in ids if id not in expected or expected[id] < at}
        expected.update(dict.fromkeys(later, at))
        assert count == len(later), f"seed {seed}"
        lagging = chance.randrange(3)
        number, known = followers[lagging]
        number, uses = newer(kept, number)
        followers[lagging] = number, known | uses

    for number, known in followers:
        assert known | newer(kept, number)[1] == newer(kept, 0)[1], f"seed {seed}"
    assert access.last_used(kept, [*"abc"]) == expected, f"seed {seed}"


def test_uses_of_another_process_are_seen(kept: bm.Store, path: Path) -> None:
    def work() -> int:
        with bm.open(path) as store:
            return store.used(["b", "c"], at=NOON)

    kept.used(["a", "b"], at=NOON - HOUR)
    newest, _ = newer(kept, 0)

    assert in_child(work) == "2"
    assert newer(kept, newest)[1].keys() == {"b", "c"}
    assert access.last_used(kept, [*"abc"]) == {"a": NOON - HOUR, "b": NOON, "c": NOON}


def test_a_use_is_seen_although_a_search_looked_at_an_older_state_after_it(kept: bm.Store) -> None:
    kept.append([bm.Memory("old", "fact old", sources=["u1"], created=NOON - 1000 * HOUR)])
    kept.used(["a"], at=NOON)

    def faded(reader: Reader | None = None) -> int:
        if reader is not None:
            other = threading.Thread(target=kept.used, args=(["old"],), kwargs={"at": NOON})
            other.start()
            other.join()
        return kept.at("u1").search("fact", now=NOON).faded

    assert faded() == 1
    assert kept.snapshot(faded, tables=access.TABLES) == 1
    assert faded() == 0


def test_a_use_is_seen_although_a_transaction_that_failed_had_noted_another(kept: bm.Store) -> None:
    kept.append([bm.Memory("old", "fact old", sources=["u1"], created=NOON - 1000 * HOUR)])

    def plan(writer: Writer) -> tuple[list[bm.Memory], None]:
        access.mark(writer, ["a"], microseconds(NOON))
        assert kept.at("u1").search("fact", now=NOON).faded == 1
        raise OSError("failed")

    with pytest.raises(OSError, match="failed"):
        kept.transact(plan, tables=access.TABLES)
    kept.used(["old"], at=NOON)
    assert kept.at("u1").search("fact", now=NOON).faded == 0


def test_threads_that_use_at_one_time_lose_nothing(kept: bm.Store) -> None:
    def work(name: int) -> None:
        for hours in range(10):
            kept.used(["abc"[(name + hours) % 3]], at=NOON + (10 * hours + name) * HOUR)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    last = {"abc"[(name + hours) % 3]: NOON + (10 * hours + name) * HOUR for hours in range(10) for name in range(3)}
    assert access.last_used(kept, [*"abc"]) == last


def test_a_transaction_that_fails_notes_nothing(kept: bm.Store) -> None:
    def plan(writer: Writer) -> tuple[tuple[()], int]:
        assert access.mark(writer, ["a"], 1) == 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        kept.transact(plan, tables=access.TABLES)

    assert newer(kept, 0) == (0, {})


def test_a_store_that_is_read_only_tells_and_takes_no_uses(kept: bm.Store, path: Path) -> None:
    kept.used(["a"], at=NOON)
    kept.close()

    with bm.open(path, readonly=True) as store:
        assert access.last_used(store, [*"ab"]) == {"a": NOON}
        with pytest.raises(bm.StoreReadOnly):
            store.used(["b"], at=NOON)
        assert access.last_used(store, [*"ab"]) == {"a": NOON}


def test_a_store_that_was_never_used_can_be_read(kept: bm.Store, path: Path) -> None:
    kept.close()

    with bm.open(path, readonly=True) as store:
        assert newer(store, 0) == (0, {})
        assert newer(store, 7) == (0, {})


def test_uses_go_along_when_a_store_is_compacted_or_copied(kept: bm.Store, tmp_path: Path) -> None:
    kept.used(["a"], at=NOON)
    newest, _ = newer(kept, 0)

    kept.compact()
    kept.used(["b"], at=NOON)
    copy = kept.backup(tmp_path / "copy.bmem")

    assert newer(kept, newest)[1].keys() == {"b"}
    with bm.open(copy) as store:
        assert access.last_used(store, [*"ab"]) == {"a": NOON, "b": NOON}


def test_a_damaged_use_is_damage(kept: bm.Store) -> None:
    kept.used(["a"], at=NOON)

    def spoil(writer: Writer) -> tuple[tuple[()], None]:
        table = writer.table("access")
        writer._txn.put(b"ia", b"????" + (table.get(b"ia") or b""), db=table._handle)
        return (), None

    kept.transact(spoil, tables=access.TABLES)

    def read(reader: Reader) -> object:
        return access.newer(reader, 0)

    with pytest.raises(bm.StoreDamaged, match="access"):
        kept.snapshot(read, tables=access.TABLES)
