"""Open WebUI exports: exact counters for every sample, and what a later export adds."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from branchmem import importers
from branchmem.events import Message
from branchmem.importers import Leaf
from exports import OPEN_WEBUI, Log, chat, counted, parents, said, stored_in

NAMES = sorted(path.name for path in OPEN_WEBUI.glob("*.json"))

# The samples, counted by hand


def test_librechat_export() -> None:
    # Three rows, each a prompt and its answer: 6 messages, no forks, one leaf and one root a row.
    log = Log()

    report = log.take(OPEN_WEBUI / "librechat_openwebui-export.json")

    assert counted(report) == {"messages": 6, "added": 6, "conversations": 3, "leaves": 3, "roots": 3}
    assert report.current == {
        "open-webui:reasoning-chat": Leaf("open-webui:reasoning-chat:ra2", "declared"),
        "open-webui:tool-chat": Leaf("open-webui:tool-chat:ta2", "declared"),
        "open-webui:simple-chat": Leaf("open-webui:simple-chat:sa2", "declared"),
    }
    assert len(log) == 9
    assert log["open-webui:tool-chat"] == Message("open-webui:tool-chat", None, role="thread")
    assert log["open-webui:simple-chat:sa1"] == Message(
        "open-webui:simple-chat:sa1",
        "open-webui:simple-chat",
        role="user",
        text="Hello",
        created=datetime(2023, 11, 14, 22, 46, 40, tzinfo=UTC),
    )
    # Neither thinking nor the call of a tool is part of what was said.
    assert log.message("open-webui:reasoning-chat:ra2").text == "255"
    assert log.message("open-webui:tool-chat:ta2").text == "The weather in Paris is 18C with rain."


def test_owimp_webui_json() -> None:
    # A chat without its row, whose id is empty: a prompt and its answer. The list beside the map repeats them, and
    # counts for nothing.
    log = Log()

    report = log.take(OPEN_WEBUI / "owimp_webui-json.json")

    assert counted(report) == {"messages": 2, "added": 2, "conversations": 1, "leaves": 1, "roots": 1}
    prompt = "what was the ruling in the US called where you can''t diagnose a politician using psychiatry?"
    top = [["5ae90291-abf9-453f-9f7d-78f3753af40c", "user", prompt]]
    root = "open-webui:~" + hashlib.sha256(json.dumps(top).encode()).hexdigest()[:16]
    assert report.current == {root: Leaf(f"{root}:a9436447-add3-4bd8-a25f-6ce54b73903c", "declared")}
    assert parents(log) == {
        root: None,
        f"{root}:5ae90291-abf9-453f-9f7d-78f3753af40c": root,
        f"{root}:a9436447-add3-4bd8-a25f-6ce54b73903c": f"{root}:5ae90291-abf9-453f-9f7d-78f3753af40c",
    }


def test_a_placeholder_is_no_leaf_though_it_looks_like_one() -> None:
    # u1 has a1 and a2, u2 below a1, a3 below u2; `orphan` has neither role nor parent, nobody lists it: a root.
    # 6 messages; 1 fork (u1); leaves a2, a3, orphan; roots u1, orphan. The ghost among a3's children is nothing,
    # and so are the empty lists. The orphan is not quite readable, and currentId points at it.
    log = Log()

    report = log.take(OPEN_WEBUI / "constructed_missing_downlinks_orphan_current.json")

    assert counted(report) == {
        "messages": 6,
        "added": 6,
        "conversations": 1,
        "forks": 1,
        "leaves": 3,
        "roots": 2,
        "unknown_types": 1,
    }
    root = "open-webui:broken"
    assert report.current == {root: Leaf(None, "none")}
    above = {id.removeprefix(f"{root}:"): str(parent).removeprefix(f"{root}:") for id, parent in parents(log).items()}
    assert above == {root: "None", "u1": root, "a1": "u1", "a2": "u1", "u2": "a1", "a3": "u2", "orphan": root}


def test_the_newest_valid_leaf_is_taken_where_the_caller_asks() -> None:
    path = OPEN_WEBUI / "constructed_missing_downlinks_orphan_current.json"

    report = Log().take(path, leaf="heuristic")

    assert report.current == {"open-webui:broken": Leaf("open-webui:broken:a3", "heuristic")}


@pytest.mark.parametrize("format", ["auto", "open-webui"])
@pytest.mark.parametrize("name", NAMES)
def test_every_sample_imported_twice_adds_nothing(name: str, format: str) -> None:
    log = Log()
    first = log.take(OPEN_WEBUI / name, format=format)

    again = log.take(OPEN_WEBUI / name, format=format)

    assert again.added == 0
    assert again.counters() | {"added": first.added} == first.counters()
    assert again.current == first.current


@pytest.mark.parametrize("name", NAMES)
def test_a_store_takes_every_sample(name: str, store: Any) -> None:
    first = importers.import_file(
        OPEN_WEBUI / name, append=store.append, stored=stored_in(store), erased=store.log.is_erased
    )

    assert store.seq == first.added + first.conversations
    assert (
        importers.import_file(
            OPEN_WEBUI / name, append=store.append, stored=stored_in(store), erased=store.log.is_erased
        ).added
        == 0
    )
    assert len(store.tree.roots()) == first.conversations
    assert sum(len(store.tree.leaves(root)) for root in store.tree.roots()) == first.leaves


# Later exports


def test_a_longer_chat_adds_what_is_new(export: Any) -> None:
    log = Log()
    old = {"u": said(None, "hi"), "a": said("u", "ho", "assistant")}
    log.take(export([chat(old, "a")]))

    report = log.take(export([chat({**old, "u2": said("a", "more")}, "u2")]))

    assert (report.messages, report.added, report.edited) == (3, 1, 0)
    assert report.current == {"open-webui:c": Leaf("open-webui:c:u2", "declared")}


def test_an_answer_edited_in_place_becomes_a_sibling_with_its_own_continuation(export: Any) -> None:
    log = Log()
    old = {"u": said(None, "hi"), "a": said("u", "ho", "assistant")}
    log.take(export([chat(old, "a")]))

    report = log.take(export([chat({**old, "a": said("u", "hum", "assistant"), "u2": said("a", "more")}, "u2")]))

    one, two = (id for id, parent in parents(log).items() if parent == "open-webui:c:u")
    assert (one, log.message(one).text, log.message(two).text) == ("open-webui:c:a", "ho", "hum")
    assert parents(log)["open-webui:c:u2"] == two
    assert (report.added, report.edited) == (2, 1)


def test_titles_ratings_models_and_files_change_nothing(export: Any) -> None:
    log = Log()
    log.take(export([chat({"u": said(None, "hi")}, "u")]))
    more: dict[str, Any] = {"annotation": {"rating": 1}, "models": ["m"], "files": [{"type": "image"}], "done": True}

    report = log.take(export([chat({"u": said(None, "hi", **more)}, "u", title="two", updated_at=9)]))

    assert (report.added, report.edited) == (0, 0)
