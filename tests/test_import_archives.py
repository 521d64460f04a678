"""Zip archives and folders of exports: the same answers as file by file, and what a stranger may have put into one."""

from __future__ import annotations

import json
import random
import sqlite3
import struct
import zipfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.importers import archives
from exports import OPEN_WEBUI, SAMPLES, SEED, Log, conversation, counted, never, node

ALL = Path(__file__).parent / "samples"
TREE = SAMPLES / "librechat_chatgpt-tree.json"
CLAUDE = ALL / "claude_ai" / "chatlore_conversations.json"
OTHERS = {"user.json": {"id": "user-1", "email": "a@example.org"}, "message_feedback.json": []}


def zipped(path: Path, members: Mapping[str, bytes | object], **rest: Any) -> Path:
    """A zip archive of these members, what is no bytes as JSON."""
    with zipfile.ZipFile(path, "w", rest.pop("compression", zipfile.ZIP_DEFLATED)) as archive:
        for name, value in members.items():
            archive.writestr(name, value if isinstance(value, bytes) else json.dumps(value))
    return path


def laid_out(folder: Path, members: Mapping[str, bytes | object]) -> Path:
    """A folder of these files."""
    for name, value in members.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return folder


def one_file(path: Path) -> tuple[dict[str, int], Log]:
    log = Log()
    return counted(log.take(path)), log


# The same as file by file


@pytest.mark.parametrize("sample", [TREE, CLAUDE, OPEN_WEBUI / "owimp_webui-json.json"], ids=lambda path: path.stem)
def test_an_archive_holds_what_its_file_holds(sample: Path, tmp_path: Path) -> None:
    expected, whole = one_file(sample)
    members = {f"export/{sample.name}": sample.read_bytes(), "chat.html": b"<html>", "picture.png": b"\x89PNG"}

    for path in (zipped(tmp_path / "export.zip", members), laid_out(tmp_path / "export", members)):
        count, log = one_file(path)
        assert (count, dict(log)) == (expected, dict(whole))
        assert log.take(path).added == 0


def test_a_format_of_lines_may_lie_in_an_archive(tmp_path: Path) -> None:
    folder = ALL / "claude_code"
    files = {path.name: path.read_bytes() for path in folder.glob("constructed_fork*.jsonl")}

    of_folder = one_file(laid_out(tmp_path / "sessions", files))
    of_archive = one_file(zipped(tmp_path / "sessions.zip", files))

    assert of_folder == of_archive


def test_a_database_may_lie_in_an_archive(tmp_path: Path) -> None:
    sample = ALL / "langgraph" / "branching_checkpoints.sqlite"

    assert one_file(zipped(tmp_path / "a.zip", {"deep/a.sqlite": sample.read_bytes()})) == one_file(sample)


def test_shards_are_one_export_and_what_stands_beside_them_is_counted(tmp_path: Path) -> None:
    shards = {
        f"conversations-{i:03}.json": [{**conversation({"r": node(None, f"{i}")}), "id": f"c{i}"}] for i in range(12)
    }
    members = {"export_manifest.json": {"shards": [*shards]}, **OTHERS, **shards}

    for path in (zipped(tmp_path / "export.zip", members), laid_out(tmp_path / "export", members)):
        count, log = one_file(path)
        assert count == {
            "messages": 12,
            "added": 12,
            "conversations": 12,
            "leaves": 12,
            "roots": 12,
            "unknown_types": 3,
        }
        assert [id for id in log if id.count(":") == 1] == [f"chatgpt:c{i}" for i in range(12)]
        assert Log().take(path, format="chatgpt").messages == 12


def test_a_conversation_in_two_shards_is_one(tmp_path: Path) -> None:
    first = [conversation({"r": node(None, "hi"), "a": node("r", "one")}, current_node="a")]
    second = [conversation({"r": node(None, "hi"), "b": node("r", "two")}, current_node="b")]

    log = Log()
    report = log.take(laid_out(tmp_path / "export", {"a.json": first, "b.json": second}))

    assert counted(report) == {
        "messages": 3,
        "added": 3,
        "conversations": 1,
        "forks": 1,
        "leaves": 2,
        "roots": 1,
        "duplicates": 1,
    }
    assert report.current["chatgpt:c"].leaf == "chatgpt:c:b"


def test_a_folder_may_hold_exports_of_several_tools_and_archives_of_them(tmp_path: Path) -> None:
    folder = laid_out(tmp_path / "all", {"chatgpt.json": TREE.read_bytes(), "deep/claude.json": CLAUDE.read_bytes()})
    zipped(folder / "more.zip", {"conversations.json": (OPEN_WEBUI / "owimp_webui-json.json").read_bytes()})
    (folder / "session.jsonl").write_bytes((ALL / "claude_code" / "constructed_fork_parent.jsonl").read_bytes())
    expected = [
        one_file(path)[0]
        for path in (
            TREE,
            CLAUDE,
            OPEN_WEBUI / "owimp_webui-json.json",
            ALL / "claude_code" / "constructed_fork_parent.jsonl",
        )
    ]

    count, log = one_file(folder)

    assert count["messages"] == sum(each["messages"] for each in expected)
    assert {id.partition(":")[0] for id in log} == {"chatgpt", "claude-ai", "open-webui", "claude-code"}
    assert one_file(folder)[0] == count
    assert Log().take(folder, format="claude-code").messages == expected[3]["messages"]


def test_our_own_events_may_lie_in_an_archive_alone(tmp_path: Path) -> None:
    lines = b"".join(importers.dump([bm.Message("a", None, text="hi"), bm.Memory("m", "tea", sources=["a"])]))

    assert one_file(zipped(tmp_path / "a.zip", {"events.jsonl": lines}))[1].keys() == {"a", "m"}
    with pytest.raises(ImportFailed, match="our own events in one file"):
        one_file(zipped(tmp_path / "b.zip", {"events.jsonl": lines, "more.json": TREE.read_bytes()}))


def other_database(path: Path) -> bytes:
    """A database of SQLite with other tables."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table history (url)")
    whole = path.read_bytes()
    path.unlink()
    return whole


def test_a_database_of_something_else_beside_an_export_is_counted(tmp_path: Path) -> None:
    members = {"a.json": TREE.read_bytes(), "history.db": other_database(tmp_path / "a.db")}

    for path in (zipped(tmp_path / "a.zip", members), laid_out(tmp_path / "export", members)):
        assert one_file(path)[0] == {**one_file(TREE)[0], "unknown_types": 1}
    alone = laid_out(tmp_path / "alone", {"history.db": members["history.db"]})
    assert refused(alone).path == str(alone)


CHECKPOINTS = (ALL / "langgraph" / "branching_checkpoints.sqlite").read_bytes()


def checkpoints(folder: Path, **others: bytes) -> Path:
    """A folder with a database of checkpoints, and others."""
    return laid_out(folder, {"a.sqlite": CHECKPOINTS, **{f"{name}.sqlite": data for name, data in others.items()}})


def test_a_database_that_lies_there_twice_adds_once(tmp_path: Path) -> None:
    alone, twice = Log(), Log()

    assert twice.take(checkpoints(tmp_path / "b", b=CHECKPOINTS)).added == alone.take(checkpoints(tmp_path / "a")).added
    assert dict(twice) == dict(alone)


def test_checkpoints_without_messages_beside_others_are_counted(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    with closing(sqlite3.connect(empty)) as connection:
        names = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
        connection.execute(f"create table checkpoints ({names})")

    count = one_file(checkpoints(tmp_path / "both", b=empty.read_bytes()))[0]

    expected = one_file(checkpoints(tmp_path / "one"))[0]
    assert count == {**expected, "unknown_types": expected.get("unknown_types", 0) + 1}
    assert refused(empty).expected.endswith("that hold `messages`")


# What is refused, before anything is written


def test_a_damaged_database_is_found_before_another_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importers.Reading.batches, "__defaults__", (1,))

    half = CHECKPOINTS[: len(CHECKPOINTS) // 2]
    assert "not damaged" in refused(checkpoints(tmp_path / "both", b=half)).expected


def test_an_error_calls_a_member_by_its_archive_whatever_its_name(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"/etc/passwd.json": b"{"})

    assert refused(path).path == f"{path}//etc/passwd.json"


def refused(path: Path, **rest: Any) -> ImportFailed:
    log = Log()
    with pytest.raises(ImportFailed) as error:
        log.take(path, **rest)
    assert not log
    return error.value


@pytest.mark.parametrize(
    "name", ["../../evil.json", "/etc/evil.json", "a/../../evil.json", "C:\\evil.json", "a" * 5000 + ".json"]
)
def test_no_name_of_a_member_leads_anywhere(name: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    path = zipped(tmp_path / "deep" / "a.zip", {name: TREE.read_bytes()})
    before = set(tmp_path.rglob("*"))

    assert one_file(path)[0] == one_file(TREE)[0]

    assert set(tmp_path.rglob("*")) == before


def test_a_member_far_larger_than_its_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "ALWAYS_UNPACKED", 1 << 20)
    path = zipped(tmp_path / "bomb.zip", {"conversations.json": b" " * (8 << 20) + TREE.read_bytes()})

    error = refused(path)

    assert (error.path, error.place) == (str(path), "the member 'conversations.json'")
    assert "import the folder" in error.expected


def test_many_members_that_are_large_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "ALWAYS_UNPACKED", 1 << 20)
    path = zipped(tmp_path / "bomb.zip", {f"{i}.json": b" " * (1 << 19) for i in range(20)})

    assert "no more than" in refused(path).expected


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 3)

    error = refused(zipped(tmp_path / "a.zip", {f"{i}.json": TREE.read_bytes() for i in range(4)}))

    assert error.place == "the member '3.json'"


def marked_encrypted(path: Path) -> Path:
    """The archive with the flag for a password set on every member."""
    data = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data[at + flags] |= 1
            at = data.find(mark, at + 4)
    path.write_bytes(data)
    return path


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    error = refused(marked_encrypted(zipped(tmp_path / "a.zip", {"conversations.json": TREE.read_bytes()})))

    assert "no password" in error.expected


def test_a_method_that_is_not_known_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"conversations.json": TREE.read_bytes()})
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 8, 99)
    struct.pack_into("<H", data, data.find(b"PK\x01\x02") + 10, 99)
    path.write_bytes(data)

    assert refused(path).place == "the member 'conversations.json'"


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", TREE.read_bytes())
        archive.writestr("b.json", CLAUDE.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"b.json", b"a.json"))

    assert "one member of this name" in refused(path).expected


def test_an_archive_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"conversations.json": TREE.read_bytes()})
    path.write_bytes(path.read_bytes()[:-30])

    assert refused(path).place == "its list of members"


@pytest.mark.parametrize("members", [{}, {"chat.html": b"<html>"}, OTHERS])
def test_an_archive_or_folder_without_an_export_is_refused(members: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    for path in (zipped(tmp_path / "a.zip", members), laid_out(tmp_path / "export", members)):
        assert "a ChatGPT export" in refused(path).expected


def test_a_database_whose_changes_are_in_a_log_beside_it_is_refused_in_an_archive(tmp_path: Path) -> None:
    sample = (ALL / "langgraph" / "branching_checkpoints.sqlite").read_bytes()

    error = refused(zipped(tmp_path / "a.zip", {"a.sqlite": sample, "a.sqlite-wal": b"changes"}))

    assert error.place == "the member 'a.sqlite-wal'"
    assert Log().take(zipped(tmp_path / "b.zip", {"a.sqlite": sample, "a.sqlite-wal": b""})).messages > 0


def test_a_database_whose_journal_would_take_something_back_is_refused_in_an_archive(tmp_path: Path) -> None:
    sample = (ALL / "langgraph" / "branching_checkpoints.sqlite").read_bytes()

    error = refused(zipped(tmp_path / "a.zip", {"a.sqlite": sample, "a.sqlite-journal": b"what stood there"}))

    assert error.place == "the member 'a.sqlite-journal'"
    assert Log().take(zipped(tmp_path / "b.zip", {"a.sqlite": sample, "travel-journal": b"Chengdu"})).messages > 0


def test_what_macos_writes_beside_files_is_passed_over(tmp_path: Path) -> None:
    members: dict[str, bytes | object] = {"a/b.json": TREE.read_bytes()}
    beside = {"__MACOSX/a/._b.json": b"\x00\x05\x16\x07", "._c.zip": b"\x00\x05\x16\x07", "._d.db": b"x"}

    for path in (zipped(tmp_path / "a.zip", members | beside), laid_out(tmp_path / "export", members | beside)):
        assert one_file(path) == one_file(TREE)


def test_a_file_without_a_message_is_refused_before_those_of_other_tools_are_written(tmp_path: Path) -> None:
    summary = b'{"type":"summary","summary":"x","leafUuid":"y"}\n'

    for name in ("0.jsonl", "z.jsonl"):
        assert refused(laid_out(tmp_path / name, {"a.json": TREE.read_bytes(), name: summary})).place == "its lines"


def test_a_broken_shard_is_refused_with_its_name_and_byte(tmp_path: Path) -> None:
    members = {"a.json": TREE.read_bytes(), "deep/b.json": CLAUDE.read_bytes()[:-5]}

    for path in (zipped(tmp_path / "a.zip", members), laid_out(tmp_path / "export", members)):
        error = refused(path)
        assert error.path == str(path / "deep" / "b.json")
        assert error.place.startswith("byte ")


def test_what_was_unpacked_is_removed_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    path = zipped(tmp_path / "a.zip", {"a.json": TREE.read_bytes()})

    with importers.read(path, stored=Log().get, erased=never) as reading:
        assert [*(tmp_path / "temporary").iterdir()]
        assert sum(map(len, reading.batches())) > 0
    refused(zipped(tmp_path / "b.zip", {"a.json": b"[1, 2"}))

    assert not [*(tmp_path / "temporary").iterdir()]


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_every_method_of_compression_is_read(compression: int, tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"a.json": TREE.read_bytes()}, compression=compression)

    assert one_file(path) == one_file(TREE)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_with_changed_bytes_is_read_right_or_refused(compression: int, tmp_path: Path) -> None:
    small = json.dumps([conversation({"r": node(None, "hi"), "a": node("r", "ho")}, current_node="a")]).encode()
    path = zipped(tmp_path / "a.zip", {"deep/a.json": small, "b.txt": b"x"}, compression=compression)
    whole, expected = path.read_bytes(), one_file(path)[1]
    chance = random.Random(SEED)
    answers = 0
    for turn in range(300):
        data = bytearray(whole)
        at = chance.randrange(len(data))
        data[at] = chance.randrange(256)
        path.write_bytes(data)
        log = Log()
        try:
            log.take(path)
        except bm.Error:
            assert not log
            continue
        except Exception as error:
            raise AssertionError(f"seed {SEED}, turn {turn}: byte {at} is {data[at]}") from error
        # A checksum stands over every member: what was read was read right.
        assert dict(log) == dict(expected), f"seed {SEED}, turn {turn}: byte {at} is {data[at]}"
        answers += 1
    assert 20 < answers < 280


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    elsewhere = laid_out(tmp_path / "elsewhere", {"a.json": CLAUDE.read_bytes()})
    folder = laid_out(tmp_path / "export", {"a.json": TREE.read_bytes()})
    (folder / "b.json").symlink_to(elsewhere / "a.json")
    (folder / "more").symlink_to(elsewhere, target_is_directory=True)

    assert {id.partition(":")[0] for id in one_file(folder)[1]} == {"chatgpt"}
