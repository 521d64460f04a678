"""Compacted conversations: one history, and summaries that are memories of what they sum up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.events import LEGACY, Memory, Message
from exports import Log, counted, parents, stored_in
from transcripts import boundary, line, summary, written

CC = "claude-code"
ROOT = f"{CC}:s"


def ids(uuids: str) -> tuple[str, ...]:
    return tuple(sorted(f"{CC}:{uuid}" for uuid in uuids.split()))


def memories(log: Log) -> list[Memory]:
    return [event for event in log.values() if isinstance(event, Memory)]


def took(tmp_path: Path, *lines: object) -> Log:
    log = Log()
    log.take(written(tmp_path / "a.jsonl", lines))
    return log


def test_a_boundary_continues_what_it_compacts(tmp_path: Path) -> None:
    log = took(tmp_path, line("a", None), line("b", "a"), boundary("x", "b"), summary("y", "x"), line("c", "y"))

    assert parents(log)[f"{CC}:x"] == f"{CC}:b"
    (memory,) = memories(log)
    assert (memory.id, memory.text, memory.kind, memory.sources) == (f"{CC}:y:summary", "so far", "summary", ids("a b"))


def test_a_boundary_whose_history_is_gone_begins_anew_and_its_summary_is_no_memory(tmp_path: Path) -> None:
    log = took(tmp_path, boundary("x", "gone"), summary("y", "x"), line("c", "y"))

    assert parents(log)[f"{CC}:x"] == ROOT
    assert log.message(f"{CC}:x").meta == {"logicalParentUuid": "gone"}
    assert not memories(log)


def test_a_summary_on_a_chain_that_breaks_off_becomes_a_memory_once_the_rest_is_there(tmp_path: Path) -> None:
    rest = written(tmp_path / "rest.jsonl", [line("a", None), line("gone", "a")])
    lines = [line("b", "gone"), boundary("x", "b"), summary("y", "x"), line("c", "y"), boundary("z", "c")]
    session = written(tmp_path / "s.jsonl", [*lines, summary("y2", "z", "second")])
    log = Log()

    log.take(session)
    assert not memories(log)
    log.take(rest)
    assert (log.take(session).added, log.take(session).added) == (2, 0)

    first, second = memories(log)
    assert (first.id, first.sources) == (f"{CC}:y:summary", ids("a gone b"))
    assert (second.sources, second.derived_from) == (ids("y c"), (f"{CC}:y:summary",))


def test_a_summary_whose_first_source_begins_a_tree_of_unknown_beginning_is_no_memory(tmp_path: Path) -> None:
    log = Log({f"{CC}:old": Message(f"{CC}:old", LEGACY, text="from before")})

    log.take(written(tmp_path / "a.jsonl", [line("b", "old"), boundary("x", "b"), summary("y", "x")]))

    assert f"{CC}:y" in log
    assert not memories(log)


def test_a_boundary_below_its_own_continuation_is_cut(tmp_path: Path) -> None:
    # What was kept hangs below the summary, and the boundary names its end for the logical parent: what came before it
    # cannot be told.
    log = Log()

    report = log.take(
        written(tmp_path / "a.jsonl", [line("a", None), line("b", "y"), boundary("x", "b"), summary("y", "x")])
    )

    assert counted(report) == {
        "messages": 4,
        "added": 4,
        "conversations": 1,
        "cycles": 1,
        "leaves": 2,
        "roots": 2,
    }
    assert parents(log)[f"{CC}:x"] == ROOT
    assert not memories(log)


def test_a_second_summary_derives_from_the_first(tmp_path: Path) -> None:
    log = took(
        tmp_path,
        *(line("a", None), boundary("x", "a"), summary("y", "x", "first"), line("b", "y")),
        *(boundary("x2", "b"), line("att", "x2", role="attachment"), summary("y2", "att", "second")),
    )

    first, second = memories(log)
    assert (first.sources, first.derived_from) == (ids("a"), ())
    assert (second.sources, second.derived_from) == (ids("y b"), (f"{CC}:y:summary",))


def test_a_summary_that_comes_first_in_the_folder_still_follows_what_it_derives_from(tmp_path: Path) -> None:
    written(tmp_path / "1.jsonl", [boundary("x2", "b", sessionId="t"), summary("y2", "x2", "second", sessionId="t")])
    written(tmp_path / "2.jsonl", [line("a", None), boundary("x", "a"), summary("y", "x", "first"), line("b", "y")])
    log = Log()
    log.take(tmp_path)

    assert [memory.text for memory in memories(log)] == ["first", "second"]


@pytest.mark.parametrize(
    "lines",
    [
        [summary("y", None)],
        [line("a", None), boundary("x", None), summary("y", "x")],
        [line("a", "b"), line("b", "a"), boundary("x", "a"), summary("y", "x")],
        [line("a", None), boundary("x", "a"), summary("y", "x", "")],
        [line("a", None), boundary("x", "a"), summary("y", "x", "long" * (1 << 20))],
    ],
    ids=["of nothing", "of what nobody knows", "of a circle", "without a text", "too long"],
)
def test_a_summary_of_nothing_or_without_a_text_is_only_a_message(lines: list[object], tmp_path: Path) -> None:
    log = took(tmp_path, *lines)

    assert f"{CC}:y" in log
    assert not memories(log)


def test_more_sources_than_an_event_may_have_are_spread_over_parts(tmp_path: Path) -> None:
    count = 2 * 4096 + 1
    lines = [line(f"m{number}", f"m{number - 1}" if number else None) for number in range(count)]

    log = took(tmp_path, *lines, boundary("x", f"m{count - 1}"), summary("y", "x"))

    *parts, whole = memories(log)
    assert [len(part.sources) for part in parts] == [4096, 4096, 1]
    assert sorted(source for part in parts for source in part.sources) == sorted(f"{CC}:m{n}" for n in range(count))
    assert (whole.sources, whole.derived_from) == ((), tuple(sorted(part.id for part in parts)))
    assert {part.kind for part in parts} == {"summary-part"}


def test_a_summary_is_seen_where_all_that_it_sums_up_is_on_the_path(store: Any, tmp_path: Path) -> None:
    # a has b - x - y - c, which was compacted, and z, to which the user went back.
    lines = [line("a", None), line("b", "a"), boundary("x", "b"), summary("y", "x"), line("c", "y"), line("z", "a")]
    path = written(tmp_path / "a.jsonl", lines)

    importers.import_file(path, append=store.append, stored=stored_in(store), erased=store.log.is_erased)

    memory = f"{CC}:y:summary"
    assert memory in store.at(f"{CC}:c")
    assert memory not in store.at(f"{CC}:a")
    assert memory not in store.at(f"{CC}:z")
    assert store.at(f"{CC}:z").explain(memory).reasons == bm.Reason.SIBLING


def test_a_summary_imported_again_with_more_below_it_stays_the_same(tmp_path: Path) -> None:
    lines = [line("a", None), boundary("x", "a"), summary("y", "x")]
    log = took(tmp_path, *lines)

    report = log.take(written(tmp_path / "b.jsonl", [*lines, line("c", "y"), boundary("x2", "c"), summary("y2", "x2")]))

    assert (report.added, report.edited) == (4, 0)


def test_a_fork_repeats_a_summary(tmp_path: Path) -> None:
    lines = [line("a", None), boundary("x", "a"), summary("y", "x")]
    log = took(tmp_path, *lines)
    forked = [
        {**each, "sessionId": "t", "forkedFrom": {"sessionId": "s", "messageUuid": each["uuid"]}} for each in lines
    ]

    report = log.take(written(tmp_path / "b.jsonl", forked))

    assert (report.added, report.edited) == (0, 0)
