"""The nodes of a ChatGPT export: whose parent is known, what they say and when, and what is counted as odd."""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from branchmem.events import Message
from branchmem.importers import Leaf, Report
from exports import Log, conversation, node, parents
from figures import Figure


def linked(mapping: dict[str, object], export: Any, **rest: object) -> tuple[dict[str, object], Report]:
    """The parents of a conversation, ids without their prefix, and the report."""
    log = Log()
    report = log.take(export([conversation(mapping, **rest)]))
    del log["chatgpt:c"]
    short = {id.removeprefix("chatgpt:c:"): str(parent) for id, parent in parents(log).items()}
    return {id: parent.removeprefix("chatgpt:c:") for id, parent in short.items()}, report


def test_the_key_is_the_identity_whatever_the_id_says(export: Any) -> None:
    parents, report = linked({"r": node(id="other"), "u": node("r", "hi", id="another")}, export)

    assert parents == {"r": "chatgpt:c", "u": "r"}
    assert report.unknown_types == 0


def test_a_conversation_takes_conversation_id_then_id_then_a_hash_of_its_top_nodes(export: Any) -> None:
    def root(**rest: object) -> str:
        log = Log()
        log.take(export([{"mapping": {"u": node(None, "hi"), "a": node("u", "ho"), "b": node(None)}, **rest}]))
        return next(iter(log))

    assert root(conversation_id="x", id="y") == "chatgpt:x"
    assert root(conversation_id=None, id="y") == "chatgpt:y"
    assert root(conversation_id="", id="y") == "chatgpt:y"
    hashed = hashlib.sha256(b'[["b", "", ""], ["u", "user", "hi"]]').hexdigest()
    assert root(conversation_id=5, id=[], title="t") == f"chatgpt:~{hashed[:16]}"
    assert root(id="x" * 300) == "~" + hashlib.sha256(b"chatgpt:" + b"x" * 300).hexdigest()


def test_siblings_stand_in_the_order_of_the_child_list(export: Any) -> None:
    mapping: dict[str, object] = {"u": node(None, "hi", children=["b", "ghost", "a"])}
    mapping |= {"z": node("u", "late"), "a": node("u", "2nd"), "b": node("u", "1st")}

    assert list(linked(mapping, export)[0]) == ["u", "b", "a", "z"]


def test_a_child_list_gives_a_parent_only_to_a_node_that_has_no_parent_key(export: Any) -> None:
    lacking = {"message": None}
    mapping = {"r": node(children=["x", "other", "x2"]), "o": node("r", children=["other", "x2"]), "x": lacking}

    parents, report = linked({**mapping, "other": node("r"), "x2": lacking}, export)

    # x2 is listed twice: its parent cannot be known, and nothing may be shown below it.
    assert parents == {"r": "chatgpt:c", "x": "r", "other": "r", "o": "r", "x2": "?:x2"}
    assert (report.unknown_types, report.dangling) == (2, 1)


def test_a_root_without_a_parent_key_stays_one_though_a_child_lists_it(export: Any) -> None:
    parents, report = linked({"r": {"message": None, "children": ["r", "u"]}, "u": node("r", children=["r"])}, export)

    assert parents == {"r": "chatgpt:c", "u": "r"}
    assert (report.cycles, report.unknown_types) == (1, 1)


def test_a_dangling_parent_a_circle_and_a_self_parent_are_kept_and_counted(export: Any) -> None:
    mapping: dict[str, object] = {"r": node(), "lost": node("gone", "hi"), "x": node("y"), "y": node("x")}

    parents, report = linked({**mapping, "s": node("s")}, export, current_node="gone")

    assert parents == {"r": "chatgpt:c", "lost": "gone", "y": "x", "x": "y", "s": "s"}
    assert (report.dangling, report.cycles) == (1, 2)
    assert report.current == {"chatgpt:c": Leaf(None, "none")}


def test_a_leaf_is_declared_only_where_one_can_stand(export: Any) -> None:
    mapping = {"r": node(), "u": node("r", "hi"), "hole": {"message": {"content": "…"}}}

    assert linked(mapping, export, current_node="u")[1].current["chatgpt:c"] == Leaf("chatgpt:c:u", "declared")
    for nowhere in ("r", "hole", "x", 5, None):
        assert linked(mapping, export, current_node=nowhere)[1].current["chatgpt:c"] == Leaf(None, "none")


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
def test_a_node_that_is_not_quite_readable_is_kept_and_counted_once(junk: object, export: Any) -> None:
    parents, report = linked({"r": node(), "junk": junk, "u": node("r", "hi"), "below": node("junk", "there")}, export)

    assert (report.messages, report.unknown_types) == (4, 1)
    assert parents["below"] == "junk"
    unknown = not isinstance(junk, dict) or junk["parent"] != "r"
    assert report.dangling == unknown
    assert (parents["junk"] == "r") == (not unknown)


def test_a_number_names_the_parent_whose_key_it_is(export: Any) -> None:
    parents, report = linked({"5": node(), "u": node(5, "hi")}, export)

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
def test_the_text_of_each_content_type(content: object, text: str | None, known: bool, export: Any) -> None:
    message = {"author": {"role": "user"}, "content": content}
    log = Log()

    report = log.take(export([conversation({"m": {"parent": None, "message": message}})]))

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
def test_seconds_become_a_time_or_none(seconds: object, created: datetime | None, export: Any) -> None:
    mapping = {"m": node(None, "hi")}
    mapping["m"]["message"]["create_time"] = seconds  # type: ignore[index]
    log = Log()

    log.take(export([conversation(mapping)]))

    assert log.message("chatgpt:c:m").created == created


def test_lone_surrogates_and_texts_over_the_limit_are_counted(export: Any) -> None:
    log = Log()

    report = log.take(
        export([conversation({"k\ud800": node(None, "a\udfffb"), "m": node("k\ud800", "x" * 1_048_577)})])
    )

    assert log.message("chatgpt:c:k\ufffd").text == "a\ufffdb"
    assert log["chatgpt:c:m"] == Message("chatgpt:c:m", "chatgpt:c:k\ufffd", role="user")
    assert (report.replaced, report.too_long) == (2, 1)


@pytest.mark.soak
def test_a_conversation_of_any_depth(export: Any, figure: Figure) -> None:
    n = figure(20_000, 100_000)
    mapping = {f"m{i}": node(f"m{i - 1}" if i else None, "turn") for i in range(n)}
    log = Log()

    report = log.take(export([conversation(mapping, current_node=f"m{n - 1}")]))

    assert (report.messages, report.leaves, report.forks) == (n, 1, 0)
    assert report.current["chatgpt:c"].leaf == f"chatgpt:c:m{n - 1}"
