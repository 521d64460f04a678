"""What the linker asks of a source, and what else a source may say: turns, meta, memories of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import pytest
from branchmem.errors import ImportFailed
from branchmem.events import LEGACY, Event, Memory, Message
from branchmem.importers.linker import link
from branchmem.importers.records import Content, Linked, Record, Report
from exports import Log, never
from sources import Given, any_record, imported, record, version


def test_what_the_log_has_is_not_read_again() -> None:
    log: dict[str, Event] = {}
    file = [record("a", None), record("b", "a"), record("b2", "a")]
    imported(log, *file[:2])
    source = Given(file, {})

    events = list(link(source, stored=log.get, erased=never, report=Report()))

    assert [event.id for event in events] == ["b2"]
    assert source.places == [2]


def test_a_copy_is_read_as_often_however_many_say_something_else() -> None:
    source = Given([record("a", None, f"text {i}", copied=True) for i in range(50)], {})
    report = Report()

    events = list(link(source, stored=Log().get, erased=never, report=report))

    assert (len(events), report.messages, report.edited, report.duplicates) == (51, 50, 49, 0)
    assert len(source.places) < 3 * 50


def test_the_log_is_asked_when_all_records_have_been_read() -> None:
    class Broken(Given):
        def records(self) -> Iterator[Record]:
            yield from super().records()
            raise ImportFailed(self.path, "byte 9", "more")

    def stored(id: str) -> Event | None:
        raise AssertionError(f"asked for {id}")

    with pytest.raises(ImportFailed):
        next(link(Broken([record("a", None)], {}), stored=stored, erased=never, report=Report()))


def test_a_source_that_says_otherwise_the_second_time_is_refused() -> None:
    class Changing(Given):
        def content(self, place: int) -> Content:
            return super().content(place)._replace(text="meanwhile")

    with pytest.raises(ImportFailed) as refused:
        list(link(Changing([record("a", None)], {}), stored=lambda id: None, erased=never, report=Report()))

    assert (refused.value.path, refused.value.place) == ("a file", "the content of a")


@pytest.mark.parametrize("seed", range(50))
def test_it_is_the_same_whether_the_log_takes_events_at_once_or_at_the_end(seed: int) -> None:
    logs: list[dict[str, Event]] = [{}, {}]
    for at_once, log in enumerate(logs):
        chance = random.Random(seed)
        for _ in range(3):
            file = [any_record(chance) for _ in range(chance.randrange(1, 12))]
            report = imported(log, *file, leaf="heuristic", at_once=bool(at_once))
            log[f"report {len(log)}"] = Memory("report", str(report.to_dict()))

    assert list(logs[0].items()) == list(logs[1].items()), f"seed {seed}"


# Turns, meta, memories


def test_no_fork_is_counted_within_a_turn_or_between_two_turns_more_than_once() -> None:
    def forks(*records: Record) -> int:
        return imported({}, *records).forks

    u = record("u", None)
    blocks = [record("t1", "u", turn="t"), record("t2", "t1", turn="t"), record("t3", "t1", turn="t")]
    assert forks(u, *blocks) == 0  # t1 has two children in its own turn
    assert forks(u, *blocks, record("r1", "t2", turn="r"), record("r2", "t3", turn="r")) == 0
    assert forks(u, *blocks, record("r1", "t2", turn="r"), record("r2", "t3", turn="s")) == 1
    assert forks(u, *blocks, record("r1", "t2"), record("r2", "t3")) == 1
    assert forks(u, *blocks, record("x", "u", turn="t")) == 0  # the same turn again, below the same message
    assert forks(u, *blocks, record("x", "u", turn="x")) == 1
    assert forks(u, *blocks, record("x", "u", turn="t", conversation="d")) == 1


def test_meta_is_content() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None, meta={"agent": "x"}))

    report = imported(log, record("a", None, meta={"agent": "y"}), record("b", "a", meta={"bad": float("nan")}))

    assert (report.edited, report.unknown_types) == (1, 1)
    assert log["a"] == Message("a", "c", role="user", text="text of a", meta={"agent": "x"})
    assert log["b"] == Message("b", version("a", log), role="user", text="text of b")


def test_memories_come_after_the_messages_and_know_their_names() -> None:
    log: dict[str, Event] = {"mine": Memory("mine", "no message"), "old": Message("old", LEGACY)}
    imported(log, record("a", None))

    def summaries(linked: Linked) -> Iterator[Memory]:
        assert linked.name("nothing") is None
        source = linked.name("a")
        assert source is not None
        above = [linked.above(source), linked.above("c"), linked.above("nothing")]
        assert [linked.is_root(id) for id in ("c", source, "nothing", "mine", "old")] == [
            True,
            False,
            False,
            False,
            False,
        ]
        yield Memory("sum", str(above), sources=[source])

    report = imported(log, record("a", None, "edited"), record("b", "a"), summaries=summaries)

    assert list(log)[2:] == ["c", "a", version("a", log), "b", "sum"]
    assert log["sum"] == Memory("sum", "['c', None, None]", sources=[version("a", log)])
    assert (report.messages, report.added) == (2, 3)
    assert imported(log, record("a", None, "edited"), record("b", "a"), summaries=summaries).added == 0


def test_a_memory_whose_id_is_taken_is_a_version_and_what_derives_from_it_follows() -> None:
    log: dict[str, Event] = {}

    def summaries(text: str) -> Callable[[Linked], Iterable[Memory]]:
        return lambda linked: [
            Memory("part", text, sources=["a"]),
            Memory("sum", "all", derived_from=["part"]),
            Memory("a", "an id of a message", sources=["a"]),
        ]

    first = imported(log, record("a", None), summaries=summaries("one"))
    second = imported(log, record("a", None), summaries=summaries("two"))

    assert (first.added, first.edited) == (4, 1)
    assert (second.added, second.edited) == (2, 3)
    part, whole = version("part", log), version("sum", log)
    assert log[whole] == Memory(whole, "all", derived_from=[part])
    assert imported(log, record("a", None), summaries=summaries("two")).added == 0
