"""ChatGPT exports: exact counters for every sample, and an answer or ImportFailed for every kind of junk."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.events import Event, Message
from branchmem.importers import Leaf, Report

SAMPLES = Path(__file__).parent / "samples" / "chatgpt"
READABLE = sorted(path.name for path in SAMPLES.glob("*.json") if path.name != "owimp_invalid_unicode.json")
SEED = 20260301


class Log(dict[str, Event]):
    """A log in memory: it takes batches, and refuses what it has."""

    def append(self, events: Sequence[Event]) -> None:
        assert len(events) <= importers.BATCH
        for event in events:
            assert event.id not in self
            self[event.id] = event

    def take(self, path: Path, **rest: Any) -> Report:
        return importers.import_file(path, append=self.append, stored=self.get, **rest)

    def message(self, id: str) -> Message:
        event = self[id]
        assert isinstance(event, Message)
        return event

    def parents(self) -> dict[str, object]:
        return {id: event.parent for id, event in self.items() if isinstance(event, Message)}


def counted(report: Report) -> dict[str, int]:
    return {name: count for name, count in report.counters().items() if count}


def node(parent: object = None, text: object = None, role: str = "user", **rest: object) -> dict[str, object]:
    """A node with a text, or without a message."""
    if text is None:
        return {"parent": parent, "children": [], "message": None, **rest}
    content = {"content_type": "text", "parts": [text]}
    return {"parent": parent, "children": [], "message": {"author": {"role": role}, "content": content}, **rest}


def conversation(mapping: object, **rest: object) -> dict[str, object]:
    return {"id": "c", "mapping": mapping, **rest}


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Write a value as JSON, or bytes as they are, and return the path."""

    def write(value: object) -> Path:
        path = tmp_path / "conversations.json"
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        return path

    return write


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
    top = next(id for id, parent in log.parents().items() if parent == root)
    assert log[top] == Message(top, root)
    hidden = next(id for id, parent in log.parents().items() if parent == top)
    assert log[hidden] == Message(hidden, top, role="system")
    first = next(id for id, parent in log.parents().items() if parent == hidden)
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
    assert log.parents()[f"{one}:root"] == one
    assert log.parents()[f"{two}:root"] == two


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
def test_every_part_of_every_sample_and_then_the_whole_is_the_whole(name: str, file: Any) -> None:
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
        early = log.take(file(part))

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

    first = importers.import_file(SAMPLES / name, append=store.append, stored=stored)
    assert store.seq == first.added + first.conversations
    assert importers.import_file(SAMPLES / name, append=store.append, stored=stored).added == 0
    assert len(store.tree.roots()) == first.conversations
    assert sum(len(store.tree.leaves(root)) for root in store.tree.roots()) == first.leaves
    exported = tmp_path / "events.jsonl"
    exported.write_bytes(b"".join(importers.dump(store.log.events())))
    with bm.open_temporary() as other:
        report = importers.import_file(
            exported, append=other.append, stored=lambda id: other.log.get(id) if id in other.log else None
        )
        assert report.added == store.seq
        assert other.digest() == store.digest()


# Later exports


def test_a_prompt_edited_in_place_becomes_a_sibling_with_its_own_continuation(file: Any) -> None:
    old = {"r": node(), "u": node("r", "Chengdu"), "a": node("u", "nice", "assistant")}
    log = Log()
    log.take(file([conversation(old)]))
    new = {**old, "u": node("r", "Hangzhou"), "v": node("a", "thanks")}

    report = log.take(file([conversation(new, current_node="v")]))

    one, two = (id for id, parent in log.parents().items() if parent == "chatgpt:c:r")
    assert (one, log.message(one).text, log.message(two).text) == ("chatgpt:c:u", "Chengdu", "Hangzhou")
    assert len(two) == len(one) + 9
    answer = log.parents()["chatgpt:c:v"]
    assert log.parents()[str(answer)] == two
    assert report.current == {"chatgpt:c": Leaf("chatgpt:c:v", "declared")}
    assert (report.added, report.edited) == (3, 2)
    assert log.take(file([conversation(new)])).added == 0


def test_titles_and_ratings_change_nothing(file: Any) -> None:
    log = Log()
    mapping = {"r": node(), "u": node("r", "hi")}
    log.take(file([conversation(mapping, title="one")]))
    mapping["u"]["message"] |= {"weight": 0, "metadata": {"rating": "good"}, "update_time": 5}  # type: ignore[operator]

    report = log.take(file([conversation(mapping, title="two", update_time=9)]))

    assert (report.added, report.edited) == (0, 0)


def test_a_conversation_in_two_entries_is_one(file: Any) -> None:
    old = {"r": node(), "u": node("r", "hi")}
    log = Log()

    report = log.take(file([conversation(old), conversation({**old, "v": node("u", "ho")}, current_node="v")]))

    assert counted(report) == {
        "messages": 3,
        "added": 3,
        "conversations": 1,
        "leaves": 1,
        "roots": 1,
        "duplicates": 2,
    }
    assert report.current == {"chatgpt:c": Leaf("chatgpt:c:v", "declared")}


def test_a_key_that_stands_twice_in_a_mapping_is_two_copies(file: Any) -> None:
    once, other = (json.dumps(node("r", text)) for text in ("once", "other"))
    data = f'{{"id": "c", "mapping": {{"r": {json.dumps(node())}, "u": {once}, "u": {other}, "u": {once}}}}}'
    log = Log()

    report = log.take(file(data.encode()))

    assert (report.messages, report.duplicates, report.edited, report.forks) == (3, 1, 1, 1)


# Shapes


@pytest.mark.parametrize("wrap", [lambda one: [one], lambda one: one, lambda one: {"conversations": [one]}])
def test_one_conversation_a_list_and_an_object_with_conversations_are_the_same(wrap: Any, file: Any) -> None:
    log = Log()

    log.take(file(wrap(conversation({"r": node()}))))

    assert list(log) == ["chatgpt:c", "chatgpt:c:r"]


def test_a_byte_order_mark_is_no_content(file: Any) -> None:
    assert Log().take(file(b"\xef\xbb\xbf" + json.dumps([conversation({"r": node()})]).encode())).messages == 1


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "byte 0"),
        (b" \n", "byte 0"),
        (b"Hello, this is a chat.", "byte 0"),
        (b'[{"mapping": {', "byte 14"),
        ('["é", '.encode(), "byte 7"),
        (b"\xef\xbb\xbf[}", "byte 4"),
        (b'["\xff"]', "byte 2"),
        (json.dumps([]).encode("utf-16"), "byte 0"),
        (b"PK\x03\x04rest of an archive", "byte 0"),
        (b"[" * 100_000, "byte 0"),
        (b"[" + b"1" * 5000 + b"]", "byte 0"),
        (b"null", "the top level"),
        (b'"text"', "the top level"),
        (b'{"conversations": {}}', "the top level"),
        (b"{}", "the top level"),
        (b"[]", "entry 0"),
        (b"[null, 5, []]", "entry 0"),
        (b'[{"id": "c", "mapping": {}}]', "entry 0"),
        (b'{"id": "c", "mapping": []}', "entry 0"),
    ],
)
def test_another_shape_is_refused_with_the_file_the_place_and_what_was_expected(
    data: bytes, place: str, file: Any
) -> None:
    path = file(data)

    with pytest.raises(ImportFailed) as refused:
        Log().take(path)

    assert (refused.value.path, refused.value.place) == (str(path), place)
    assert "a ChatGPT export" in refused.value.expected


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing.json"):
        with pytest.raises(ImportFailed, match="a file that can be read"):
            Log().take(path)


def test_an_unknown_format_or_leaf_is_a_mistake_of_the_caller(file: Any) -> None:
    with pytest.raises(ValueError, match="chatgpt, events"):
        Log().take(file([]), format="claude")
    with pytest.raises(ValueError, match="declared or heuristic"):
        Log().take(file([]), leaf="newest")


# Nodes


def linked(mapping: dict[str, object], file: Any, **rest: object) -> tuple[dict[str, object], Report]:
    """The parents of a conversation, ids without their prefix, and the report."""
    log = Log()
    report = log.take(file([conversation(mapping, **rest)]))
    del log["chatgpt:c"]
    short = {id.removeprefix("chatgpt:c:"): str(parent) for id, parent in log.parents().items()}
    return {id: parent.removeprefix("chatgpt:c:") for id, parent in short.items()}, report


def test_the_key_is_the_identity_whatever_the_id_says(file: Any) -> None:
    parents, report = linked({"r": node(id="other"), "u": node("r", "hi", id="another")}, file)

    assert parents == {"r": "chatgpt:c", "u": "r"}
    assert report.unknown_types == 0


def test_a_conversation_takes_conversation_id_then_id_then_a_hash_of_its_top_nodes(file: Any) -> None:
    def root(**rest: object) -> str:
        log = Log()
        log.take(file([{"mapping": {"u": node(None, "hi"), "a": node("u", "ho"), "b": node(None)}, **rest}]))
        return next(iter(log))

    assert root(conversation_id="x", id="y") == "chatgpt:x"
    assert root(conversation_id=None, id="y") == "chatgpt:y"
    assert root(conversation_id="", id="y") == "chatgpt:y"
    hashed = hashlib.sha256(b'[["b", "", ""], ["u", "user", "hi"]]').hexdigest()
    assert root(conversation_id=5, id=[], title="t") == f"chatgpt:~{hashed[:16]}"
    assert root(id="x" * 300) == "~" + hashlib.sha256(b"chatgpt:" + b"x" * 300).hexdigest()


def test_siblings_stand_in_the_order_of_the_child_list(file: Any) -> None:
    mapping: dict[str, object] = {"u": node(None, "hi", children=["b", "ghost", "a"])}
    mapping |= {"z": node("u", "late"), "a": node("u", "2nd"), "b": node("u", "1st")}

    assert list(linked(mapping, file)[0]) == ["u", "b", "a", "z"]


def test_a_child_list_gives_a_parent_only_to_a_node_that_has_no_parent_key(file: Any) -> None:
    lacking = {"message": None}
    mapping = {"r": node(children=["x", "other", "x2"]), "o": node("r", children=["other", "x2"]), "x": lacking}

    parents, report = linked({**mapping, "other": node("r"), "x2": lacking}, file)

    # x2 is listed twice: its parent cannot be known, and nothing may be shown below it.
    assert parents == {"r": "chatgpt:c", "x": "r", "other": "r", "o": "r", "x2": "?:x2"}
    assert (report.unknown_types, report.dangling) == (2, 1)


def test_a_root_without_a_parent_key_stays_one_though_a_child_lists_it(file: Any) -> None:
    parents, report = linked({"r": {"message": None, "children": ["r", "u"]}, "u": node("r", children=["r"])}, file)

    assert parents == {"r": "chatgpt:c", "u": "r"}
    assert (report.cycles, report.unknown_types) == (1, 1)


def test_a_dangling_parent_a_circle_and_a_self_parent_are_kept_and_counted(file: Any) -> None:
    mapping: dict[str, object] = {"r": node(), "lost": node("gone", "hi"), "x": node("y"), "y": node("x")}

    parents, report = linked({**mapping, "s": node("s")}, file, current_node="gone")

    assert parents == {"r": "chatgpt:c", "lost": "gone", "y": "x", "x": "y", "s": "s"}
    assert (report.dangling, report.cycles) == (1, 2)
    assert report.current == {"chatgpt:c": Leaf(None, "none")}


def test_a_leaf_is_declared_only_where_one_can_stand(file: Any) -> None:
    mapping = {"r": node(), "u": node("r", "hi"), "hole": {"message": {"content": "…"}}}

    assert linked(mapping, file, current_node="u")[1].current["chatgpt:c"] == Leaf("chatgpt:c:u", "declared")
    for nowhere in ("r", "hole", "x", 5, None):
        assert linked(mapping, file, current_node=nowhere)[1].current["chatgpt:c"] == Leaf(None, "none")


@pytest.mark.parametrize(
    "junk",
    [
        None,
        5,
        "text",
        [],
        {"parent": 5},
        {"parent": ["r"]},
        {"parent": "r", "children": {"r": 1}},
        {"parent": "r", "children": [None, 5, ["r"]]},
        {"parent": "r", "message": []},
        {"parent": "r", "message": {}},
        {"parent": "r", "message": {"author": "user", "content": {"content_type": "text"}}},
        {"parent": "r", "message": {"author": {"role": 5}, "content": {"content_type": "text"}}},
        {"parent": "r", "message": {"author": {"role": "user"}}},
        {"parent": "r", "message": {"author": {"role": "user"}, "content": "said"}},
        {"parent": "r", "message": {"author": {"role": "user"}, "content": {"content_type": [], "parts": []}}},
        {"parent": "r", "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": [5]}}},
        {"parent": "r", "message": {"author": {"role": "user"}, "content": {"content_type": "new", "text": "x"}}},
    ],
)
def test_a_node_that_is_not_quite_readable_is_kept_and_counted_once(junk: object, file: Any) -> None:
    parents, report = linked({"r": node(), "junk": junk, "u": node("r", "hi"), "below": node("junk", "there")}, file)

    assert (report.messages, report.unknown_types) == (4, 1)
    assert parents["below"] == "junk"
    unknown = not isinstance(junk, dict) or junk["parent"] != "r"
    assert report.dangling == unknown
    assert (parents["junk"] == "r") == (not unknown)


def test_a_number_names_the_parent_whose_key_it_is(file: Any) -> None:
    parents, report = linked({"5": node(), "u": node(5, "hi")}, file)

    assert (parents["u"], report.unknown_types, report.dangling) == ("5", 1, 0)


@pytest.mark.parametrize(
    ("content", "text", "known"),
    [
        ({"content_type": "text", "parts": ["one", "", "two"]}, "one\ntwo", True),
        ({"content_type": "text", "parts": None}, "", True),
        ({"content_type": "multimodal_text", "parts": [{"asset_pointer": "x"}, "see"]}, "see", True),
        ({"content_type": "multimodal_text", "parts": [{"text": "said", "direction": "in"}]}, "said", True),
        ({"content_type": "code", "language": "c", "text": "int x;"}, "int x;", True),
        ({"content_type": "execution_output", "text": "ok"}, "ok", True),
        ({"content_type": "tether_quote", "title": "t", "text": "quoted"}, "quoted", True),
        ({"content_type": "tether_browsing_display", "result": "page", "summary": None}, "page", True),
        ({"content_type": "reasoning_recap", "content": "Thought for 5s"}, "Thought for 5s", True),
        ({"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "c"}]}, "", True),
        ({"content_type": "user_editable_context", "user_profile": "p", "parts": ["x"]}, None, True),
        ({"content_type": "system_error", "name": "n", "text": "failed"}, "failed", False),
        ({"content_type": "never_seen", "payload": {}}, "", False),
        ({"parts": ["untyped"]}, "untyped", False),
    ],
)
def test_the_text_of_each_content_type(content: object, text: str | None, known: bool, file: Any) -> None:
    message = {"author": {"role": "user"}, "content": content}
    log = Log()

    report = log.take(file([conversation({"m": {"parent": None, "message": message}})]))

    assert log["chatgpt:c:m"] == Message("chatgpt:c:m", "chatgpt:c", role="user", text=text)
    assert report.unknown_types == (not known)


@pytest.mark.parametrize(
    ("seconds", "created"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1714585031.148505, datetime(2024, 5, 1, 17, 37, 11, 148505, tzinfo=UTC)),
        (-1.5, datetime(1969, 12, 31, 23, 59, 58, 500000, tzinfo=UTC)),
        (None, None),
        (True, None),
        ("1714585031", None),
        (math.nan, None),
        (math.inf, None),
        (1e300, None),
        (10**400, None),
        (-(10**12), None),
    ],
)
def test_seconds_become_a_time_or_none(seconds: object, created: datetime | None, file: Any) -> None:
    mapping = {"m": node(None, "hi")}
    mapping["m"]["message"]["create_time"] = seconds  # type: ignore[index]
    log = Log()

    log.take(file([conversation(mapping)]))

    assert log.message("chatgpt:c:m").created == created


def test_lone_surrogates_and_texts_over_the_limit_are_counted(file: Any) -> None:
    log = Log()

    report = log.take(file([conversation({"k\ud800": node(None, "a\udfffb"), "m": node("k\ud800", "x" * 1_048_577)})]))

    assert log.message("chatgpt:c:k\ufffd").text == "a\ufffdb"
    assert log["chatgpt:c:m"] == Message("chatgpt:c:m", "chatgpt:c:k\ufffd", role="user")
    assert (report.replaced, report.too_long) == (2, 1)


def test_a_hundred_thousand_turns_deep(file: Any) -> None:
    n = 100_000
    mapping = {f"m{i}": node(f"m{i - 1}" if i else None, "turn") for i in range(n)}
    log = Log()

    report = log.take(file([conversation(mapping, current_node=f"m{n - 1}")]))

    assert (report.messages, report.leaves, report.forks) == (n, 1, 0)
    assert report.current["chatgpt:c"].leaf == f"chatgpt:c:m{n - 1}"


# Junk


def _taken_twice(path: Path, log: Log) -> None:
    """An answer that adds nothing the second time, or ImportFailed that writes nothing."""
    known = len(log)
    try:
        log.take(path, leaf="heuristic")
    except ImportFailed:
        assert len(log) == known
        return
    again = log.take(path, leaf="heuristic")
    assert again.added == 0


@pytest.mark.parametrize("name", [path.name for path in sorted(SAMPLES.glob("*.json"))])
def test_three_hundred_changed_bytes_give_an_answer_or_import_failed(name: str, file: Any) -> None:
    whole = (SAMPLES / name).read_bytes()
    chance = random.Random(SEED)
    before = Log()
    if name in READABLE:
        before.take(SAMPLES / name)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 2, 8])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        _taken_twice(file(bytes(data)), Log(before))


JUNK: list[object] = [None, True, 0, -1, 1.5, 10**30, "", "x", "\ud800", [], [None], {}, {"mapping": {"m": {}}}]


@pytest.mark.parametrize("name", READABLE)
def test_three_hundred_changed_values_give_an_answer_or_import_failed(name: str, file: Any) -> None:
    entries = json.loads((SAMPLES / name).read_bytes())
    chance = random.Random(SEED)
    before = Log()
    before.take(SAMPLES / name)
    for _ in range(300):
        changed = copy.deepcopy(entries)
        for _ in range(chance.choice([1, 2, 5])):
            _change(changed, chance)
        _taken_twice(file(changed), Log(before))


def _change(value: Any, chance: random.Random) -> None:
    """Put junk, or another part of the file, somewhere into a parsed file."""
    places = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        for key in part if isinstance(part, dict) else range(len(part)):
            places.append((part, key))
            if isinstance(part[key], (dict, list)):
                waiting.append(part[key])
    part, key = chance.choice(places)
    donor, other = chance.choice(places)
    part[key] = copy.deepcopy(chance.choice([*JUNK, donor[other]]))
