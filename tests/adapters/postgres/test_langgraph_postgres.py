"""Checkpoints in a real Postgres, written by LangGraph's own checkpointer: the same tree as in a file of SQLite."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.events import Event, Message
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of its own, behind a socket in a folder of its own; skipped where there is no Postgres."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("there is no server of Postgres here")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as folder:
        user: dict[str, Any] = {}
        if os.getuid() == 0:  # Postgres refuses to run as root
            shutil.chown(folder, "nobody")
            user = {"user": pwd.getpwnam("nobody").pw_uid}
        rest: dict[str, Any] = {"check": True, "capture_output": True, "cwd": folder, **user}
        subprocess.run(["initdb", "-D", f"{folder}/data", "-U", "reader", "-A", "trust", "--no-sync"], **rest)
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        subprocess.run(["pg_ctl", "-D", f"{folder}/data", "-o", options, "-l", f"{folder}/log", "-w", "start"], **rest)
        try:
            yield f"postgresql://reader@/postgres?host={folder}"
        finally:
            subprocess.run(["pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop"], **rest)


def talk(saver: Any) -> None:
    """A thread with an edit, an answer made again, and one removed."""
    said = iter(range(100))

    def bot(state: MessagesState) -> dict[str, Any]:
        number = next(said)
        return {"messages": [AIMessage(f"answer {number}", id=f"a{number}")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("bot", bot)
    graph.add_edge(START, "bot")
    graph.add_edge("bot", END)
    app = graph.compile(checkpointer=saver)
    thread = {"configurable": {"thread_id": "t"}}
    app.invoke({"messages": [HumanMessage("tea", id="u1")]}, thread)
    first = app.get_state(thread).config
    app.invoke({"messages": [HumanMessage("more", id="u2")]}, thread)
    edited = app.update_state(first, {"messages": [HumanMessage("coffee", id="u1")]})
    app.invoke({"messages": [HumanMessage("more", id="u3")]}, edited)
    app.update_state(thread, {"messages": [RemoveMessage(id="a2")]})
    app.invoke({"messages": [HumanMessage("again", id="u4")]}, thread)


def took(path: str, log: dict[str, Event]) -> importers.Report:
    return importers.import_file(
        path, append=lambda events: log.update({e.id: e for e in events}), stored=log.get, erased=lambda id: False
    )


def tree(log: dict[str, Event]) -> list[tuple[str, object, str | None]]:
    return sorted((e.id, e.parent, e.text) for e in log.values() if isinstance(e, Message))


def test_postgres_and_sqlite_give_the_same_tree_and_twice_adds_nothing(url: str, tmp_path: Path) -> None:
    with PostgresSaver.from_conn_string(url) as server:
        server.setup()
        talk(server)
    with SqliteSaver.from_conn_string(str(tmp_path / "x.sqlite")) as saver:
        talk(saver)
    log: dict[str, Event] = {}
    other: dict[str, Event] = {}

    first = took(url, log)
    again = took(url, log)

    counted = took(str(tmp_path / "x.sqlite"), other)
    assert first.counters() == counted.counters()
    assert (first.messages, first.edited, first.vanished, again.added) == (10, 1, 1, 0)
    assert tree(log) == tree(other)


def test_a_server_without_checkpoints_is_refused(url: str) -> None:
    with pytest.raises(ImportFailed):
        took(url.replace("/postgres?", "/template1?"), {})
