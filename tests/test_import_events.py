"""Our own events as lines of JSON: written and read back the same, bad lines skipped, content never rewritten."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from branchmem import importers
from branchmem.errors import EventConflict, ImportFailed, StoreMissing
from branchmem.events import LEGACY, Event, Memory, Message
from branchmem.importers import BadLine
from exports import SEED, Log, counted, never

EVENTS: list[Event] = [
    Message("chat", None, role="thread"),
    Message("u1", "chat", role="user", text='I\'m moving to Chengdu.\n\u2028\x00 "quoted" 成都'),
    Message("u1-edit", "chat", role="user", created=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    Message("old", LEGACY, meta={"tags": ["a", None], "n": 1.0, "m": 1 << 63, "deep": {"x": {}}}),
    Memory("home", "The user is moving", sources=["u1"], key="home_city", importance=0.25),
    Memory(
        "sum",
        "",
        derived_from=["home"],
        kind="summary",
        created=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    ),
    Message("lost", "gone"),
]


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Write lines, each ended by a line break, and return the path."""

    def write(*lines: bytes) -> Path:
        path = tmp_path / "events.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return write


def lines(events: Iterable[Event]) -> list[bytes]:
    return [line.removesuffix(b"\n") for line in importers.dump(events)]


def test_what_is_written_is_read_back_the_same_in_the_same_order(file: Any) -> None:
    log = Log()

    report = log.take(file(*lines(EVENTS)))

    assert list(log.values()) == EVENTS
    assert lines(log.values()) == lines(EVENTS)
    # 5 messages; chat and old begin trees, chat has two children; all but chat are leaves; lost has no parent here.
    assert counted(report) == {
        "messages": 5,
        "added": 7,
        "conversations": 2,
        "forks": 1,
        "leaves": 4,
        "roots": 2,
        "dangling": 1,
    }


def test_one_event_is_one_line_of_readable_json() -> None:
    (line,) = importers.dump([Message("u1", "chat", role="user", text="成都\n")])

    assert line == '{"type":"message","id":"u1","parent":"chat","role":"user","text":"成都\\n"}\n'.encode()


def test_importing_twice_adds_nothing_and_a_longer_file_what_is_new(file: Any) -> None:
    log = Log()
    log.take(file(*lines(EVENTS[:3])))

    assert log.take(file(*lines(EVENTS[:3]))).added == 0
    assert log.take(file(*lines(EVENTS))).added == 4
    assert list(log.values()) == EVENTS


def test_an_event_given_twice_in_a_file_is_one(file: Any) -> None:
    log = Log()

    report = log.take(file(*lines([EVENTS[0], EVENTS[1], EVENTS[0]])))

    assert (report.messages, report.added, report.duplicates) == (2, 2, 1)


def test_other_content_under_a_known_id_is_a_conflict_and_nothing_is_written(file: Any) -> None:
    log = Log({"u1": EVENTS[1]})
    changed = Message("u1", "chat", role="user", text="otherwise")

    with pytest.raises(EventConflict) as refused:
        log.take(file(*lines([EVENTS[0], changed])))

    assert (refused.value.id, refused.value.field, refused.value.given) == ("u1", "text", "otherwise")
    assert list(log) == ["u1"]
    with pytest.raises(EventConflict) as refused:
        Log().take(file(*lines([changed, Message("u1", None, role="user", text="otherwise")])))
    assert (refused.value.field, refused.value.stored, refused.value.given) == ("parent", "chat", None)


def test_bad_lines_are_skipped_and_counted_with_the_byte_at_which_they_begin(file: Any) -> None:
    good = lines(EVENTS[:2])
    bad = [
        b'{"type":"message","id":"u9","par',
        b"\x00\x00\x00",
        b'{"type":"mess{"type":"message","id":"x","parent":null}',
        b"[1, 2]",
        b'{"type":"message","id":"","parent":null}',
        b'{"type":"message","id":"x","parent":null,"colour":"red"}',
        b'{"type":"message","id":"x","parent":null,"text":"\\ud800"}',
        b'{"type":"message","id":"x","parent":null,"text":"\xff"}',
        b'{"type":"memory","id":"x","text":"t","importance":NaN}',
        b'{"id":"x"}',
        b'{"a":' * 100_000,
    ]
    log = Log()

    report = log.take(file(good[0], *bad, b"", b" \r", good[1]))

    assert list(log.values()) == EVENTS[:2]
    assert (report.bad_lines, report.unknown_types) == (len(bad), 0)
    first = len(good[0]) + 1
    assert report.bad[0].offset == first
    assert report.bad[1] == BadLine(first + len(bad[0]) + 1, report.bad[1].why)
    assert "colour" in report.bad[5].why
    assert report.to_dict()["bad"][3] == {"offset": report.bad[3].offset, "why": "not a JSON object"}


def test_a_type_that_no_event_has_is_counted(file: Any) -> None:
    report = Log().take(file(b'{"type":"session","id":"s"}', *lines(EVENTS[:1])))

    assert (report.unknown_types, report.bad_lines, report.added) == (1, 0, 1)


def test_only_the_first_bad_lines_are_shown(file: Any) -> None:
    report = Log().take(file(*lines(EVENTS[:1]), *[b"bad"] * 1000))

    assert (report.bad_lines, len(report.bad)) == (1000, 20)


def test_a_file_without_an_event_is_refused(file: Any) -> None:
    for content in ([], [b"nothing"], [b'{"type":"session","id":"s"}'], [b'[{"mapping": {"m": {}}}]']):
        with pytest.raises(ImportFailed) as refused:
            Log().take(file(*content), format="events")
        assert (refused.value.place, "branchmem events" in refused.value.expected) == ("byte 0", True)


def test_auto_finds_events_by_their_keys_behind_a_byte_order_mark_and_bad_lines(file: Any) -> None:
    (line,) = lines(EVENTS[:1])
    for content in ([line], [b"\xef\xbb\xbf" + line], [b"bad", b"", line]):
        assert Log().take(file(*content)).added == 1
    chatgpt = json.dumps({"id": "message", "type": "conversation", "mapping": {"m": {"parent": None}}})
    assert list(Log().take(file(chatgpt.encode())).current) == ["chatgpt:message"]


def test_circles_among_own_events_are_counted(file: Any) -> None:
    report = Log().take(file(*lines([Message("a", "b"), Message("b", "a"), Message("s", "s"), Message("r", None)])))

    assert (report.cycles, report.dangling, report.leaves) == (2, 0, 1)


def test_events_come_in_batches_of_ten_thousand(file: Any) -> None:
    sizes: list[int] = []
    heard: list[tuple[int, int | None]] = []
    path = file(*lines(Message(f"m{i}", None) for i in range(25_000)))

    importers.import_file(
        path,
        append=lambda events: sizes.append(len(events)),
        stored=Log().get,
        erased=never,
        progress=lambda done, total: heard.append((done, total)),
    )

    assert sizes == [10_000, 10_000, 5_000]
    assert heard == [(10_000, 25_000), (20_000, 25_000), (25_000, 25_000)]


def test_an_import_that_was_cut_off_is_completed_by_the_next(file: Any) -> None:
    path = file(*lines(Message(f"m{i}", f"m{i - 1}" if i else None) for i in range(12_000)))
    log = Log()

    def append_once(events: Sequence[Event]) -> None:
        if log:
            raise KeyboardInterrupt
        log.append(events)

    with pytest.raises(KeyboardInterrupt):
        importers.import_file(path, append=append_once, stored=log.get, erased=never)

    assert (len(log), log.take(path).added, len(log)) == (10_000, 2_000, 12_000)


@pytest.mark.parametrize("left", [0, 1])
def test_a_file_that_was_cut_after_it_was_checked_is_refused(left: int, file: Any) -> None:
    path = file(*lines(EVENTS[:2]))
    log = Log()

    with importers.read(path, stored=log.get, erased=never) as reading:
        path.write_bytes(b"".join(line + b"\n" for line in lines(EVENTS[:left])))
        with pytest.raises(ImportFailed, match="what stood there when it was read first"):
            deque(map(log.append, reading.batches(1)))

    assert [*log.values()] == EVENTS[:left]


def test_what_a_log_raises_is_no_fault_of_the_file(file: Any) -> None:
    def stored(id: str) -> Event | None:
        raise StoreMissing("a.bmem")

    with pytest.raises(StoreMissing):
        importers.import_file(file(*lines(EVENTS)), append=print, stored=stored, erased=never)


def test_a_thousand_changed_bytes_give_an_answer_or_a_typed_error(file: Any) -> None:
    whole = b"\n".join(lines(EVENTS))
    chance = random.Random(SEED)
    for _ in range(1000):
        data = bytearray(whole)
        data[chance.randrange(len(data))] = chance.randrange(256)
        log = Log()
        path = file(bytes(data))
        try:
            log.take(path)
        except (ImportFailed, EventConflict):
            assert not log
            continue
        assert log.take(path).added == 0
