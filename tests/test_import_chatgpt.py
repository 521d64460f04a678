"""ChatGPT exports: exact counters for every sample, and what a later export adds."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.events import Event, Message
from branchmem.importers import Leaf
from exports import READABLE, SAMPLES, SEED, Log, conversation, counted, node, parents

# The samples, counted by hand


def test_librechat_tree() -> None:
    # 13 nodes in one conversation: a null root (2nd key), a hidden system node, 11 turns.
    # Forks: bda8a275 has the prompts aaa24023 and aaa236a3; aaa20127 has the answers d0d2a7df and f63b8e17.
    # Leaves: ada93f81 (end of the first prompt's branch), d0d2a7df, f63b8e17.
    log = Log()

    report = log.take(SAMPLES / "librechat_chatgpt-tree.json")

    assert counted(report) == {
        "messages": 13,
        "added": 13,
        "conversations": 1,
        "forks": 2,
        "leaves": 3,
        "roots": 1,
    }
    root = "chatgpt:d5dc5307-6807-41a0-8b04-4acee626eeb7"
    assert report.current == {root: Leaf(f"{root}:f63b8e17-aa5c-4ca6-a1bf-d4d285e269b8", "declared")}
    assert next(iter(log.values())) == Message(root, None, role="thread")
    assert len(log) == 14
    top = next(id for id, parent in parents(log).items() if parent == root)
    assert log[top] == Message(top, root)
    hidden = next(id for id, parent in parents(log).items() if parent == top)
    assert log[hidden] == Message(hidden, top, role="system")
    first = next(id for id, parent in parents(log).items() if parent == hidden)
    assert log.message(first).text == "hi there"
    assert log.message(first).created == datetime(2024, 5, 1, 17, 37, 11, 150442, tzinfo=UTC)


def test_librechat_export() -> None:
    # Two conversations in a line: 17 nodes (null root, hidden system, 15 turns with browsing) and 6 (null root,
    # hidden system, 4 turns). No forks, so one leaf each.
    log = Log()

    report = log.take(SAMPLES / "librechat_chatgpt-export.json")

    assert counted(report) == {"messages": 23, "added": 23, "conversations": 2, "leaves": 2, "roots": 2}
    first, second = "chatgpt:d6523d1e-7ec3-474f-a363-0e9dffdb3d93", "chatgpt:7c5ab593-dbab-43bd-862d-2c3c1eeebf6a"
    assert report.current == {
        first: Leaf(f"{first}:88a0cf9f-e860-4b34-8e7e-65f8346f4862", "declared"),
        second: Leaf(f"{second}:73a2fe12-36bd-4cc2-8460-8108d16cc42d", "declared"),
    }
    texts = {id.rpartition(":")[2][:8]: log.message(id).text or "" for id in log}
    assert texts["412dd50f"].startswith('search("Volks')  # code
    assert texts["374bbcc8"].startswith("# 【0†Volkswagen")  # tether_browsing_display
    assert texts["b87c7f57"]  # tether_quote


def test_mitkury() -> None:
    # msg-1 (system) - msg-2 - msg-3, which has msg-4 and msg-5; msg-6 below msg-4. One fork, leaves msg-5 and msg-6.
    log = Log()

    report = log.take(SAMPLES / "mitkury_example-conversation.json")

    assert counted(report) == {
        "messages": 6,
        "added": 6,
        "conversations": 1,
        "forks": 1,
        "leaves": 2,
        "roots": 1,
    }
    assert report.current == {"chatgpt:conv-123": Leaf("chatgpt:conv-123:msg-6", "declared")}
    assert log["chatgpt:conv-123:msg-1"] == Message(
        "chatgpt:conv-123:msg-1", "chatgpt:conv-123", role="system", text="", created=datetime(2024, 1, 1, tzinfo=UTC)
    )


def test_contextcarry() -> None:
    # 3 nodes in a line, and 4 of which msg-a has two answers: 1 fork, 1 + 2 leaves. Both conversations call their
    # root "root", and give it no `parent` key: it stays a root. No current_node anywhere.
    log = Log()

    report = log.take(SAMPLES / "contextcarry_conversations.json")

    assert counted(report) == {
        "messages": 7,
        "added": 7,
        "conversations": 2,
        "forks": 1,
        "leaves": 3,
        "roots": 2,
    }
    one, two = "chatgpt:conv-chatgpt-1", "chatgpt:conv-chatgpt-2"
    assert report.current == {one: Leaf(None, "none"), two: Leaf(None, "none")}
    assert parents(log)[f"{one}:root"] == one
    assert parents(log)[f"{two}:root"] == two


def test_contextcarry_with_the_newest_leaves() -> None:
    report = Log().take(SAMPLES / "contextcarry_conversations.json", leaf="heuristic")

    assert list(report.current.values()) == [
        Leaf("chatgpt:conv-chatgpt-1:msg-2", "heuristic"),
        Leaf("chatgpt:conv-chatgpt-2:msg-b-branch2", "heuristic"),
    ]


def test_chatlore() -> None:
    # root, sys, u1, a1, a2, u2, t1, c1, x1, a3: 10 nodes, u1 has a1 and a2, leaves a1 and a3;
    # b0, b1, b2: 3 nodes, one leaf; an entry without a mapping; z0 alone, root and leaf at once, in no conversation
    # that has an id. 14 messages, 1 fork, 2 + 1 + 1 leaves, 3 roots.
    log = Log()

    report = log.take(SAMPLES / "chatlore_conversations.json")

    assert counted(report) == {
        "messages": 14,
        "added": 14,
        "conversations": 3,
        "forks": 1,
        "leaves": 4,
        "roots": 3,
        "unknown_types": 1,
    }
    one, two = "chatgpt:11111111-aaaa-4bbb-8ccc-000000000001", "chatgpt:22222222-aaaa-4bbb-8ccc-000000000002"
    nameless = "chatgpt:~" + hashlib.sha256(b'[["z0", "", ""]]').hexdigest()[:16]
    assert report.current == {
        one: Leaf(f"{one}:a3", "declared"),
        two: Leaf(f"{two}:b2", "declared"),
        nameless: Leaf(None, "none"),
    }
    said = {id.removeprefix(f"{one}:"): (log.message(id).role, log.message(id).text) for id in log if id > one}
    assert said["sys"] == ("system", None)  # hidden
    assert said["u2"] == ("user", "Here is the plan output. Can you write the statement?")  # beside an image
    assert said["t1"] == ("assistant", "")  # thoughts
    assert said["c1"] == ("assistant", "CREATE INDEX idx_orders_customer ON orders (customer_id, created_at);")
    assert said["x1"] == ("tool", "CREATE INDEX")


@pytest.mark.parametrize("format", ["auto", "chatgpt"])
def test_a_file_in_which_no_entry_has_a_mapping_is_refused(format: str) -> None:
    path = SAMPLES / "owimp_invalid_unicode.json"
    log = Log()

    with pytest.raises(ImportFailed) as refused:
        log.take(path, format=format)

    assert refused.value.path == str(path)
    assert refused.value.place == "entry 0"
    assert "`mapping`" in refused.value.expected
    assert "'chat_messages'" in refused.value.expected
    assert not log


@pytest.mark.parametrize("name", READABLE)
def test_every_sample_imported_twice_adds_nothing(name: str) -> None:
    log = Log()
    first = log.take(SAMPLES / name)

    again = log.take(SAMPLES / name)

    assert again.added == 0
    assert again.counters() | {"added": first.added} == first.counters()
    assert again.current == first.current


@pytest.mark.parametrize("name", READABLE)
def test_every_part_of_every_sample_and_then_the_whole_is_the_whole(name: str, export: Any) -> None:
    whole = Log()
    whole.take(SAMPLES / name)
    entries = json.loads((SAMPLES / name).read_bytes())
    chance = random.Random(SEED)
    for _ in range(20):
        part = copy.deepcopy(entries)
        for entry in part:
            mapping = entry.get("mapping", {})
            inner = {node.get("parent") for node in mapping.values()}
            for key in [key for key in mapping if key not in inner and chance.random() < 0.7][: len(mapping) - 1]:
                del mapping[key]
        log = Log()
        early = log.take(export(part))

        later = log.take(SAMPLES / name)

        assert later.added == len(whole) - later.conversations - early.added
        assert log == whole


@pytest.mark.parametrize("name", READABLE)
def test_a_store_takes_every_sample_in_any_order_and_what_it_exports_is_the_same_log(
    name: str, store: Any, tmp_path: Path
) -> None:
    def stored(id: str) -> Event | None:
        event: Event | None = store.log.get(id) if id in store.log else None
        return event

    first = importers.import_file(SAMPLES / name, append=store.append, stored=stored, erased=store.log.is_erased)
    assert store.seq == first.added + first.conversations
    assert (
        importers.import_file(SAMPLES / name, append=store.append, stored=stored, erased=store.log.is_erased).added == 0
    )
    assert len(store.tree.roots()) == first.conversations
    assert sum(len(store.tree.leaves(root)) for root in store.tree.roots()) == first.leaves
    exported = tmp_path / "events.jsonl"
    exported.write_bytes(b"".join(importers.dump(store.log.events())))
    with bm.open_temporary() as other:
        report = importers.import_file(
            exported,
            append=other.append,
            stored=lambda id: other.log.get(id) if id in other.log else None,
            erased=other.log.is_erased,
        )
        assert report.added == store.seq
        assert other.digest() == store.digest()


# Later exports


def test_a_prompt_edited_in_place_becomes_a_sibling_with_its_own_continuation(export: Any) -> None:
    old = {"r": node(), "u": node("r", "Chengdu"), "a": node("u", "nice", "assistant")}
    log = Log()
    log.take(export([conversation(old)]))
    new = {**old, "u": node("r", "Hangzhou"), "v": node("a", "thanks")}

    report = log.take(export([conversation(new, current_node="v")]))

    one, two = (id for id, parent in parents(log).items() if parent == "chatgpt:c:r")
    assert (one, log.message(one).text, log.message(two).text) == ("chatgpt:c:u", "Chengdu", "Hangzhou")
    assert len(two) == len(one) + 9
    answer = parents(log)["chatgpt:c:v"]
    assert parents(log)[str(answer)] == two
    assert report.current == {"chatgpt:c": Leaf("chatgpt:c:v", "declared")}
    assert (report.added, report.edited) == (3, 2)
    assert log.take(export([conversation(new)])).added == 0


def test_titles_and_ratings_change_nothing(export: Any) -> None:
    log = Log()
    mapping = {"r": node(), "u": node("r", "hi")}
    log.take(export([conversation(mapping, title="one")]))
    mapping["u"]["message"] |= {"weight": 0, "metadata": {"rating": "good"}, "update_time": 5}  # type: ignore[operator]

    report = log.take(export([conversation(mapping, title="two", update_time=9)]))

    assert (report.added, report.edited) == (0, 0)


def test_a_conversation_in_two_entries_is_one(export: Any) -> None:
    old = {"r": node(), "u": node("r", "hi")}
    log = Log()

    report = log.take(export([conversation(old), conversation({**old, "v": node("u", "ho")}, current_node="v")]))

    assert counted(report) == {
        "messages": 3,
        "added": 3,
        "conversations": 1,
        "leaves": 1,
        "roots": 1,
        "duplicates": 2,
    }
    assert report.current == {"chatgpt:c": Leaf("chatgpt:c:v", "declared")}


def test_a_key_that_stands_twice_in_a_mapping_is_two_copies(export: Any) -> None:
    once, other = (json.dumps(node("r", text)) for text in ("once", "other"))
    data = f'{{"id": "c", "mapping": {{"r": {json.dumps(node())}, "u": {once}, "u": {other}, "u": {once}}}}}'
    log = Log()

    report = log.take(export(data.encode()))

    assert (report.messages, report.duplicates, report.edited, report.forks) == (3, 1, 1, 1)
