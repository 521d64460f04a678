"""Lines of Claude Code transcripts, one kind at a time: what is a message, what it says, and what is broken."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from branchmem.errors import ImportFailed
from branchmem.importers import BadLine, Leaf, json_lines
from exports import Log, counted, parents
from transcripts import answer, boundary, call, line, returned, text, written

CC = "claude-code"
ROOT = f"{CC}:s"


def took(tmp_path: Path, *lines: object) -> tuple[Log, dict[str, int]]:
    """A log with a file of these lines, and what was counted."""
    log = Log()
    report = log.take(written(tmp_path / "a.jsonl", lines), format="claude-code")
    return log, counted(report)


# What is a message


@pytest.mark.parametrize("kind", ["user", "assistant", "system", "attachment", "progress"])
def test_every_line_with_a_uuid_is_a_message_in_the_chain(kind: str, tmp_path: Path) -> None:
    between = {"type": kind, "uuid": "b", "parentUuid": "a", "sessionId": "s", "message": {"content": []}}

    log, counters = took(tmp_path, line("a", None), between, line("c", "b"))

    assert parents(log) == {ROOT: None, f"{CC}:a": ROOT, f"{CC}:b": f"{CC}:a", f"{CC}:c": f"{CC}:b"}
    assert log.message(f"{CC}:b").role == kind
    assert "unknown_types" not in counters


def test_a_line_of_an_unknown_type_holds_its_place_and_is_counted(tmp_path: Path) -> None:
    log, counters = took(tmp_path, line("a", None), {**line("b", "a"), "type": "novelty"}, line("c", "b"))

    assert parents(log)[f"{CC}:c"] == f"{CC}:b"
    assert counters["unknown_types"] == 1


@pytest.mark.parametrize(
    "beside",
    [
        {"type": "summary", "summary": "a title", "leafUuid": "a"},
        {"type": "summary", "summary": "of another session", "leafUuid": "elsewhere"},
        {"type": "custom-title", "customTitle": "as a fork writes it", "uuid": "t", "sessionId": "s"},
        {"type": "last-prompt", "leafUuid": "a", "sessionId": "s"},
        {"type": "queue-operation", "operation": "enqueue", "content": "later", "sessionId": "s"},
        {"type": "file-history-snapshot", "messageId": "a", "snapshot": {}},
    ],
)
def test_titles_hints_and_snapshots_are_no_messages(beside: object, tmp_path: Path) -> None:
    log, counters = took(tmp_path, beside, line("a", None), beside, line("b", "a"), beside)

    assert list(log) == [ROOT, f"{CC}:a", f"{CC}:b"]
    assert counters == {"messages": 2, "added": 2, "conversations": 1, "leaves": 1, "roots": 1}


def test_a_uuid_of_any_length_is_one_and_a_long_id_is_a_hash(tmp_path: Path) -> None:
    long, session = "u" * 300, "s" * 300

    log, counters = took(tmp_path, line(long, None, sessionId=session), line("b", long, sessionId=session))

    root, first = ("~" + hashlib.sha256(f"{CC}:{each}".encode()).hexdigest() for each in (session, long))
    assert parents(log) == {root: None, first: root, f"{CC}:b": first}
    assert counters == {"messages": 2, "added": 2, "conversations": 1, "leaves": 1, "roots": 1}


@pytest.mark.parametrize("lost", [{"type": "user", "message": {"content": "x"}}, {"uuid": 5}, {"silly": 1}, {}])
def test_an_object_that_cannot_be_placed_is_counted(lost: object, tmp_path: Path) -> None:
    _, counters = took(tmp_path, line("a", None), lost)

    assert (counters["messages"], counters["unknown_types"]) == (1, 1)


def test_a_parent_that_cannot_be_read_is_nowhere(tmp_path: Path) -> None:
    log, counters = took(tmp_path, line("a", None), {**line("b", None), "parentUuid": 7}, line("c", "b"))

    assert parents(log)[f"{CC}:b"] == f"{CC}:?:b"
    assert parents(log)[f"{CC}:c"] == f"{CC}:b"
    assert (counters["dangling"], counters["unknown_types"]) == (1, 1)


def test_a_longer_file_without_uuids_continues_the_shorter_one(tmp_path: Path) -> None:
    bare = [{"type": "user", "message": {"content": str(number)}, "sessionId": "s"} for number in range(4)]
    log = Log()
    log.take(written(tmp_path / "a.jsonl", bare[:2]))

    report = log.take(written(tmp_path / "b.jsonl", bare))

    assert (report.added, report.messages, report.leaves) == (2, 4, 1)
    assert report.current == {ROOT: Leaf(list(log)[-1], "last_line")}


# What it says


@pytest.mark.parametrize(
    ("content", "said", "unknown"),
    [
        ("as it stands", "as it stands", 0),
        ([text("one"), text("two")], "one\ntwo", 0),
        ([{"type": "thinking", "thinking": "hm"}, text("aloud")], "aloud", 0),
        ([call("t")], "", 0),
        ([returned("t")], "", 0),
        ([{"type": "image", "source": {"data": "AAAA"}}, text("look")], "look", 0),
        ([{"type": "novelty", "text": "new"}], "new", 1),
        (["a string", text("a block")], "a string\na block", 1),
        ([{"type": "text", "text": 5}], "", 1),
        (None, "", 1),
        ([], "", 0),
    ],
)
def test_the_text_is_what_was_said(content: object, said: str, unknown: int, tmp_path: Path) -> None:
    log, counters = took(tmp_path, line("a", None, content))

    assert log.message(f"{CC}:a").text == said
    assert counters.get("unknown_types", 0) == unknown


def test_a_bare_string_is_a_message_and_a_system_line_says_its_content(tmp_path: Path) -> None:
    log, counters = took(tmp_path, line("a", None, message="bare"), {**boundary("b", None), "content": "compacted"})

    assert [log.message(f"{CC}:{id}").text for id in "ab"] == ["bare", "compacted"]
    assert "unknown_types" not in counters


def test_a_hidden_line_says_nothing(tmp_path: Path) -> None:
    log, _ = took(tmp_path, line("a", None, "expanded for the model", isMeta=True))

    assert log.message(f"{CC}:a").text is None


@pytest.mark.parametrize(
    ("timestamp", "created"),
    [
        ("2026-03-01T10:00:00.123Z", datetime(2026, 3, 1, 10, 0, 0, 123000, tzinfo=UTC)),
        ("2026-03-01T10:00:00", None),
        ("yesterday", None),
        (1740823200, None),
        (None, None),
    ],
)
def test_a_time_without_an_offset_is_none(timestamp: object, created: datetime | None, tmp_path: Path) -> None:
    log, counters = took(tmp_path, line("a", None, timestamp=timestamp))

    assert log.message(f"{CC}:a").created == created
    assert "unknown_types" not in counters


def test_token_counts_and_paths_change_nothing(tmp_path: Path) -> None:
    log = Log()
    log.take(written(tmp_path / "a.jsonl", [line("a", None, cwd="/one", usage={"input_tokens": 1})]))

    report = log.take(written(tmp_path / "b.jsonl", [line("a", None, cwd="/two", version="9", gitBranch="main")]))

    assert (report.added, report.edited) == (0, 0)


# Turns


def test_pieces_of_one_answer_and_what_its_tools_returned_are_no_fork(tmp_path: Path) -> None:
    # Two calls of one answer run at once: 2 hangs below 1, and so does what 1 returned.
    _, counters = took(
        tmp_path,
        line("u", None),
        answer("1", "u", "m", call("t1")),
        answer("2", "1", "m", call("t2")),
        line("r1", "1", [returned("t1")]),
        {"type": "progress", "uuid": "p", "parentUuid": "2", "sessionId": "s", "parentToolUseID": "t2"},
        line("r2", "2", [returned("t2")]),
        answer("3", "r2", "n", text("done")),
    )

    assert (counters["messages"], counters["leaves"]) == (7, 3)
    assert "forks" not in counters


def test_a_rewind_to_an_answer_is_a_fork(tmp_path: Path) -> None:
    _, counters = took(
        tmp_path,
        line("u", None),
        answer("1", "u", "m", text("well")),
        answer("2", "1", "m", text("then")),
        line("v", "2"),
        line("w", "1"),
    )

    assert counters["forks"] == 1


# What is broken


@pytest.mark.parametrize(
    "broken",
    [
        b"\0" * 64,
        b'{"type":"user","uuid":"t","parentUu' + json.dumps(line("g", "a")).encode(),
        b"not json",
        b"42",
        b"[1]",
        b'"massive error"',
        b"null",
        b'{"type":"user","uuid":"\xff"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=["nul", "glued", "word", "number", "list", "string", "null", "not utf-8", "deep list", "deep object"],
)
def test_a_broken_line_is_counted_at_its_byte_and_reading_goes_on(broken: bytes, tmp_path: Path) -> None:
    log = Log()
    first = line("a", None)

    report = log.take(written(tmp_path / "a.jsonl", [first, broken, line("b", "a")]))

    assert (report.messages, report.bad_lines) == (2, 1)
    assert report.bad[0].offset == len(json.dumps(first)) + 1
    assert report.bad[0].why


def test_an_end_that_cannot_be_read_is_read_when_it_is_whole(tmp_path: Path) -> None:
    data = written(tmp_path / "a.jsonl", [line("a", None), line("b", "a", "\u00e9")]).read_bytes()
    path = tmp_path / "b.jsonl"
    log = Log()
    for end in range(data.index(b"\n") + 1, len(data) - 1):
        path.write_bytes(data[:end])
        report = log.take(path)
        assert (report.messages, report.bad_lines) == (1, 0), end

    path.write_bytes(data[:-1])  # whole, but for its line break

    assert log.take(path).added == 1


def test_lines_end_at_line_breaks_and_nowhere_else(tmp_path: Path) -> None:
    said = "one\u2028two\u2029three\x85four\x0cfive"
    raw = json.dumps(line("a", None, said), ensure_ascii=False).encode()

    log, counters = took(tmp_path, b"\xef\xbb\xbf" + raw + b"\r", b"", b"  ", line("b", "a"))

    assert log.message(f"{CC}:a").text == said
    assert (counters["messages"], counters.get("bad_lines", 0)) == (2, 0)


def test_a_line_that_is_too_long_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "LONGEST_LINE", 1000)
    first = line("a", None)
    path = written(tmp_path / "a.jsonl", [first, line("b", "a", "x" * 5000), line("c", "a")])
    log = Log()

    report = log.take(path)

    assert list(log) == [ROOT, f"{CC}:a", f"{CC}:c"]
    assert report.bad == [BadLine(len(json.dumps(first)) + 1, "longer than 1000 bytes")]


def test_what_is_no_unicode_is_replaced_and_what_is_too_long_is_left_out(tmp_path: Path) -> None:
    log, counters = took(tmp_path, line("a\ud800", None, "\udfff"), line("b", "a\ud800", "x" * (2 << 20)))

    assert log.message(f"{CC}:a\ufffd").text == "\ufffd"
    assert log.message(f"{CC}:b").text is None
    assert log.message(f"{CC}:b").parent == f"{CC}:a\ufffd"
    assert counters["too_long"] == 1


@pytest.mark.parametrize(
    "lines",
    [
        [{"type": "summary", "summary": "x", "leafUuid": "y"}],
        [{"type": "user", "sessionId": "s", "message": "no object"}],
        [{"type": "user", "message": {"content": "hi"}}, {"type": "system", "toolUseResult": {"uuid": "x"}}],
        [b"\0\0\0"],
        [],
    ],
)
def test_a_file_without_a_message_is_refused(lines: list[object], tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", lines)
    log = Log()

    with pytest.raises(ImportFailed, match="uuid") as refused:
        log.take(path, format="claude-code")

    assert refused.value.path == str(path)
    assert not log
