"""Values of LangGraph checkpoints: which are opened, what they say, and what is left closed."""

from __future__ import annotations

import json
import pickle
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgpack
import pytest
from branchmem import importers
from branchmem.errors import ExtraMissing, ImportFailed
from branchmem.events import Message
from branchmem.importers import langgraph_databases
from branchmem.importers.langgraph_values import Unreadable, said, unpacked
from checkpoints import TAKEN, checkpoint, database, message, packed
from exports import Log, counted, never


def told(entry: Any) -> tuple[str | None, str | None, bool]:
    """Role and text of an entry as it comes from a file."""
    found = said(unpacked("msgpack", msgpack.packb(entry)))
    return found.role, found.text, found.readable


def test_what_the_kinds_of_messages_say() -> None:
    assert told(message("a")) == ("user", "a", True)
    assert told(message("a", type="ai")) == ("assistant", "a", True)
    assert told(message("a", type="system")) == ("system", "a", True)
    assert told(message("a", type="tool", tool_call_id="c")) == ("tool", "a", True)
    assert told(packed("langchain_core.messages.ai", "AIMessageChunk", {"content": "a", "type": "AIMessageChunk"})) == (
        "assistant", "a", True,
    )  # fmt: skip
    assert told(packed("langchain_core.messages.chat", "ChatMessage", {"content": "a", "role": "critic"})) == (
        "critic", "a", True,
    )  # fmt: skip
    assert told({"role": "user", "content": "a"}) == ("user", "a", True)
    assert told({"type": "human", "content": "a"}) == ("user", "a", True)


def test_blocks_of_text_are_the_text_and_thinking_is_not() -> None:
    blocks = ["a", {"type": "thinking", "thinking": "x"}, {"type": "text", "text": "b"}, {"type": "image_url"}]

    assert told(message(blocks, type="ai")) == ("assistant", "a\nb", True)


def test_messages_in_the_json_of_older_releases() -> None:
    form = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"]}

    found = said(unpacked("json", json.dumps({**form, "kwargs": {"content": "a", "id": "1"}}).encode()))

    assert (found.role, found.text, found.id, found.readable) == ("user", "a", "1", True)


@pytest.mark.parametrize(
    "entry",
    [
        packed("os", "system", "touch x"),
        packed("os", "system", "touch x", code=0),
        packed("langchain_core.messages.human.evil", "Human", {"content": "a"}),
        packed("langchain_core.messages_evil", "HumanMessage", {"content": "a"}),
        packed("langchain_core.messages.human", "HumanMessage", "a"),
        msgpack.ExtType(5, b"\xc1"),
        msgpack.ExtType(5, b"\x91\x01"),
        msgpack.ExtType(99, b""),
        {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["touch x"]},
        {"type": "constructor", "id": []},
        "a",
        None,
    ],
)
def test_what_is_no_message_is_kept_without_text_and_counted_once(entry: Any, tmp_path: Path) -> None:
    assert told(entry) == (None, None, False)
    path = database(tmp_path / "x", ("1", None, [entry]), ("2", "1", [entry, message("a")]))
    log = Log()

    report = log.take(path)

    assert (report.messages, report.unknown_types) == (2, 1)
    assert [event.text for event in log.values() if isinstance(event, Message) and event.role == "user"] == ["a"]


@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("pickle", pickle.dumps({"channel_values": {}})),
        ("msgpack", b"\xc1"),
        ("msgpack", b"\xdd\xff\xff\xff\xff"),
        ("msgpack", b"\x81\x91\x01\x01"),
        ("msgpack", b"\xa2\xc3\x28"),
        ("msgpack", b"\x91" * 5000),
        ("json", b"[" * 100_000),
        ("json", b"{"),
        ("msgpack", "text"),
    ],
)
def test_what_holds_no_value_is_refused(type: str, data: Any) -> None:
    with pytest.raises(Unreadable):
        unpacked(type, data)


def test_a_checkpoint_that_cannot_be_read_is_counted_and_passed_over(tmp_path: Path) -> None:
    a, b, c = message("a", "1"), message("b", "2"), message("c", "3")
    broken: list[tuple[Any, ...]] = [
        ("1", None, [a]),
        ("2", "1", b"\xc1"),
        ("3", "2", [a, b]),
        ("4", "3", pickle.dumps([]), "t", "", {}, "pickle"),
    ]
    log = Log()

    report = log.take(database(tmp_path / "x", *broken, ("5", "4", [a, b, c])))

    assert counted(report) == {"messages": 3, "added": 3, "conversations": 1, "leaves": 1, "roots": 1, "bad_lines": 2}
    assert [line.why.partition(":")[0] for line in report.bad] == [
        "checkpoint 2 of thread t",
        "checkpoint 4 of thread t",
    ]


def test_a_thread_of_a_delta_channel_is_counted_and_left_out(tmp_path: Path) -> None:
    parts: tuple[Any, ...] = ("1", None, None, "d", "", {"counters_since_delta_snapshot": {"messages": [1, 2]}})
    path = database(tmp_path / "x", parts, ("2", "1", [message("a")], "d"), ("1", None, [message("b")], "t"))
    log = Log()

    report = log.take(path)

    assert (report.messages, report.unknown_types, report.bad_lines) == (1, 1, 1)
    assert set(report.current) == {"langgraph:t"}
    with pytest.raises(ImportFailed, match="kept by no DeltaChannel"):
        Log().take(database(tmp_path / "y", parts))


def test_a_list_that_is_kept_elsewhere_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    elsewhere = msgpack.packb({"ts": TAKEN, "channel_values": {}, "channel_versions": {"messages": "3"}})
    log = Log()

    report = log.take(database(tmp_path / "x", ("1", None, [message("a", "1")]), ("2", "1", elsewhere)))

    assert (report.messages, report.vanished, report.bad_lines) == (1, 0, 1)


def test_a_snapshot_of_a_list_is_a_list(tmp_path: Path) -> None:
    snapshot = msgpack.ExtType(7, msgpack.packb([message("a", "1")]))

    assert Log().take(database(tmp_path / "x", ("1", None, checkpoint(snapshot)))).messages == 1


# Postgres


class Server:
    """What psycopg shows of a server that keeps two checkpoints of a thread."""

    def __init__(self) -> None:
        one, two = message("a", "1"), message("b", "2", "ai")
        self.lists = {"1": [one], "2": [one, two]}
        self.read_only = False
        self.closed = False

    def cursor(self, name: str) -> Any:
        @contextmanager
        def opened() -> Iterator[Any]:
            rows = [("t", "", "2", "1", "{}"), ("t", "", "1", None, "{}")]
            yield _Rows(rows)

        return opened()

    def execute(self, query: str, asked: dict[str, str]) -> Any:
        blob = msgpack.packb(self.lists[asked["id"]])
        return SimpleNamespace(fetchone=lambda: (TAKEN, "3", "msgpack", memoryview(blob), None))

    def close(self) -> None:
        self.closed = True


class _Rows(list[Any]):
    def execute(self, query: str) -> None:
        assert query.startswith("select")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    psycopg: Any = ModuleType("psycopg")
    psycopg.Error = type("Error", (Exception,), {})
    psycopg.ProgrammingError = type("ProgrammingError", (psycopg.Error,), {})
    psycopg.IsolationLevel = SimpleNamespace(REPEATABLE_READ=3)

    def connect(url: str) -> Server:
        if "nowhere" in url:
            raise psycopg.Error("cannot be reached\nsecond line")
        if "%zz" in url:
            raise psycopg.ProgrammingError(f"a bad token in {url}")
        return found

    psycopg.connect = connect
    monkeypatch.setitem(sys.modules, "psycopg", psycopg)
    return found


def imported(url: str, log: Log) -> importers.Report:
    return importers.import_file(url, append=log.append, stored=log.get, erased=never)


def test_a_server_of_postgres_gives_the_events_that_a_file_gives(server: Server, tmp_path: Path) -> None:
    log, other = Log(), Log()

    report = imported("postgresql://reader:secret@db/chats", log)

    other.take(database(tmp_path / "x", *((id, None if id == "1" else "1", said) for id, said in server.lists.items())))
    assert (report.messages, report.leaves) == (2, 1)
    assert dict(log) == dict(other)
    assert (server.read_only, server.closed) == (True, True)


def test_no_error_shows_a_password(server: Server) -> None:
    with pytest.raises(ImportFailed, match="cannot be reached") as refused:
        imported("postgresql://reader:secret@nowhere/chats?password=secret", Log())

    assert refused.value.path == "postgresql://reader@nowhere/chats"
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:%zzsecret@db/chats", "postgresql://u@db/chats"),
        ("postgresql://u:p/secret@db/chats", "postgresql://…"),
        ("postgresql://u:p?secret@db/chats", "postgresql://…"),
        ("postgresql://u:p#secret@db/chats", "postgresql://…"),
        ("postgresql://u:p@secret@db/chats", "postgresql://…"),
        ("postgresql://u:secret", "postgresql://…"),
        ("postgresql://u:secret@[::1/chats", "postgresql://…"),
        ("postgresql://db/chats?password=p@secret", "postgresql://…"),
        ("postgresql+psycopg://u:secret@db/chats", "postgresql+psycopg://u@db/chats"),
        ("POSTGRESQL://u:secret@db/chats", "POSTGRESQL://u@db/chats"),
        ("mysql:/u:secret@db/chats", "mysql:/u@db/chats"),
    ],
)
def test_a_password_that_was_not_spelled_as_urls_want_is_not_shown(server: Server, url: str, shown: str) -> None:
    with pytest.raises(ImportFailed) as refused:
        imported(url, Log())

    assert refused.value.path == shown
    assert "secret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/chats",
        "postgresql://db-1:5432,db-2:5433/chats",
        "postgresql://[::1]:5432/chats",
        "postgresql:///chats",
        "postgresql://u@%2Fvar%2Frun/chats",
    ],
)
def test_a_url_without_a_password_is_shown_as_it_is(url: str) -> None:
    assert langgraph_databases.shown(f"{url}?connect_timeout=10") == langgraph_databases.shown(url) == url


def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(ExtraMissing, match=r"branchmem\[postgres\]"):
        imported("postgres://db/chats", Log())


@pytest.mark.parametrize("url", ["postgresql://[", "postgresql://u:p@[", "postgres://:x@/"])
def test_a_url_that_is_none_is_shown_without_what_it_may_hide(url: str) -> None:
    assert "p@" not in langgraph_databases.shown(url)
