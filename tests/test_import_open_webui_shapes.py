"""What an Open WebUI export may be and may hold: rows and chats, maps and lists, links, and what was said."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from branchmem.errors import ImportFailed
from branchmem.events import Message
from branchmem.importers import Leaf, Report
from exports import Log, chat, parents, said


def linked(messages: object, export: Any, current: object = None) -> tuple[dict[str, str], Report]:
    """The parents of a chat, ids without their prefix, and the report."""
    log = Log()
    report = log.take(export([chat(messages, current)]))
    del log["open-webui:c"]
    above = {id.removeprefix("open-webui:c:"): str(parent) for id, parent in parents(log).items()}
    return {id: parent.removeprefix("open-webui:c:") for id, parent in above.items()}, report


@pytest.mark.parametrize("format", ["auto", "open-webui"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda row: [row],
        lambda row: row,
        lambda row: {"conversations": [row]},
        lambda row: {"chat": {"id": "c", **row["chat"]}},
        lambda row: {"id": "c", **row["chat"]},
        lambda row: [{"title": "no messages here"}, {"id": "c", **row["chat"]}],
    ],
)
def test_rows_a_row_and_a_chat_without_its_row_are_the_same(wrap: Any, format: str, export: Any) -> None:
    log = Log()

    report = log.take(export(wrap(chat({"u": said(None, "hi")}, "u"))), format=format)

    assert list(log) == ["open-webui:c", "open-webui:c:u"]
    assert report.current == {"open-webui:c": Leaf("open-webui:c:u", "declared")}


def test_a_conversation_takes_the_id_of_the_row_then_that_of_the_chat(export: Any) -> None:
    def root(row: object, inner: object) -> str:
        log = Log()
        log.take(export([{"id": row, "chat": {"id": inner, "history": {"messages": {"u": said(None, "hi")}}}}]))
        return next(iter(log))

    assert root("r", "c") == "open-webui:r"
    assert root("", "c") == "open-webui:c"
    assert root(None, 5).startswith("open-webui:~")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([], "entry 0"),
        ([{"id": "c", "chat": {}}], "entry 0"),
        ([{"id": "c", "chat": {"history": {"messages": {}}, "messages": []}}], "entry 0"),
        ([{"id": "c", "chat": {"history": {"messages": []}, "messages": [None, "x"]}}], "entry 0"),
        ([{"id": "c", "messages": [{"role": "user", "content": "hi"}]}], "entry 0"),
        ({"history": {"messages": {}}}, "the top level"),
        (["mapping"], "entry 0"),
    ],
)
@pytest.mark.parametrize("format", ["auto", "open-webui"])
def test_another_shape_is_refused(value: object, place: str, format: str, export: Any) -> None:
    path = export(value)
    log = Log()

    with pytest.raises(ImportFailed) as refused:
        log.take(path, format=format)

    assert (refused.value.path, refused.value.place) == (str(path), place)
    assert "an Open WebUI export" in refused.value.expected
    assert not log


def test_auto_goes_by_the_keys_of_the_first_entry_that_has_messages(export: Any) -> None:
    webui, chatgpt = chat({"u": said(None, "hi")}), {"id": "g", "mapping": {"m": {"parent": None}}}

    assert list(Log().take(export([{"id": 1}, webui, chatgpt])).current) == ["open-webui:c"]
    assert list(Log().take(export([{"id": 1}, chatgpt, webui])).current) == ["chatgpt:g"]
    for other in ("chatgpt", "events", "claude-code"):
        with pytest.raises(ImportFailed):
            Log().take(export([webui]), format=other)


def test_an_entry_without_messages_is_counted(export: Any) -> None:
    report = Log().take(export([None, {"id": "empty", "chat": {}}, chat({"u": said(None, "hi")})]))

    assert (report.messages, report.unknown_types) == (1, 2)


# Links


def test_siblings_stand_in_the_order_of_the_child_list(export: Any) -> None:
    messages = {"u": said(None, "q", childrenIds=["b", "ghost", "a"])}
    messages |= {"z": said("u", "late"), "a": said("u", "2nd"), "b": said("u", "1st")}

    above, report = linked(messages, export)

    assert list(above) == ["u", "b", "a", "z"]
    assert report.unknown_types == 0


def test_a_child_list_gives_a_parent_only_to_a_message_that_has_no_parent_key_and_says_so(export: Any) -> None:
    lacking = {"role": "user", "content": "x"}
    messages = {"r": said(None, "q", childrenIds=["x", "other", "y"]), "other": said(None, "o", childrenIds=["y"])}

    above, report = linked({**messages, "x": lacking, "y": lacking}, export, "x")

    assert above == {"r": "open-webui:c", "x": "r", "other": "open-webui:c", "y": "?:y"}
    assert (report.unknown_types, report.dangling) == (2, 1)
    assert report.current == {"open-webui:c": Leaf(None, "none")}


def test_a_leaf_is_declared_only_where_one_can_stand(export: Any) -> None:
    messages = {"u": said(None, "hi"), "no parent": {"role": "user", "content": "x"}, "no role": {"parentId": "u"}}

    assert linked(messages, export, "u")[1].current["open-webui:c"] == Leaf("open-webui:c:u", "declared")
    for nowhere in ("no parent", "no role", "gone", "", 5, None, ["u"]):
        assert linked(messages, export, nowhere)[1].current["open-webui:c"] == Leaf(None, "none"), nowhere


def test_a_dangling_parent_a_circle_and_a_self_parent_are_kept_and_counted(export: Any) -> None:
    messages = {"r": said(None, "q"), "lost": said("gone", "hi"), "x": said("y", "x"), "y": said("x", "y")}

    above, report = linked({**messages, "s": said("s", "self")}, export, "lost")

    assert above == {"r": "open-webui:c", "lost": "gone", "y": "x", "x": "y", "s": "s"}
    assert (report.messages, report.dangling, report.cycles) == (5, 1, 2)


def test_children_may_stand_before_their_parents_however_deep(export: Any) -> None:
    n = 20_000
    messages = {f"m{i}": said(f"m{i - 1}" if i else None, "turn") for i in reversed(range(n))}

    above, report = linked(messages, export, f"m{n - 1}")

    assert (report.messages, report.leaves, report.dangling) == (n, 1, 0)
    assert next(iter(above)) == "m0"


# Chats from before there was a map


def test_a_list_is_one_path_and_the_user_stands_at_its_end(export: Any) -> None:
    listed = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}, None, {"content": "?"}]
    log = Log()

    report = log.take(export([{"id": "c", "chat": {"messages": listed}}]))

    above = {"open-webui:c": None, "open-webui:c:0": "open-webui:c"}
    assert parents(log) == above | {"open-webui:c:1": "open-webui:c:0", "open-webui:c:3": "open-webui:c:1"}
    assert report.unknown_types == 2  # what is no message, and the message without a role
    assert report.current == {"open-webui:c": Leaf(None, "none")}
    again = log.take(export([{"id": "c", "chat": {"messages": listed[:2]}}]))
    assert (again.added, again.current["open-webui:c"]) == (0, Leaf("open-webui:c:1", "last_line"))


def test_a_list_keeps_the_ids_and_parents_that_it_gives(export: Any) -> None:
    listed = [{"id": "u", **said(None, "q")}, {"id": "a", **said("u", "1st")}, {"id": "b", **said("u", "2nd")}]
    log = Log()

    log.take(export([{"id": "c", "chat": {"history": {"messages": {}, "currentId": None}, "messages": listed}}]))

    assert list(parents(log).values())[1:] == ["open-webui:c", "open-webui:c:u", "open-webui:c:u"]


def test_a_number_in_a_list_names_a_message_and_never_a_position(export: Any) -> None:
    listed = [{"id": 1, **said(None, "q")}, {"id": 0, **said(1, "below 1")}, {"id": 2, **said(0, "below 0")}]
    log = Log()

    log.take(export([{"id": "c", "chat": {"messages": listed}}]))

    assert parents(log) == {
        "open-webui:c": None,
        "open-webui:c:1": "open-webui:c",
        "open-webui:c:0": "open-webui:c:1",
        "open-webui:c:2": "open-webui:c:0",
    }


# What was said

THOUGHT = '<details type="reasoning" done="true">\n<summary>Thought</summary>\n> hm\n</details>'
CALLED = '<DETAILS  type="tool_calls" arguments="&quot;&gt;&quot;"><summary>Tool</summary>x</DETAILS>'


@pytest.mark.parametrize(
    ("role", "message", "text", "known"),
    [
        ("user", {"content": "hi"}, "hi", True),
        ("user", {"content": f"what is {THOUGHT}?"}, f"what is {THOUGHT}?", True),
        ("assistant", {"content": "  as it is\n"}, "  as it is\n", True),
        ("assistant", {"content": f"{THOUGHT}\n255"}, "255", True),
        ("assistant", {"content": f"first\n{CALLED}\n{THOUGHT}\nthen"}, "first\nthen", True),
        ("assistant", {"content": '<details type="code_interpreter">print()</details>1'}, "1", True),
        ("assistant", {"content": '<details type="reasoning">never ended'}, "", True),
        ("assistant", {"content": "<details><summary>More</summary>said</details>"}, None, True),
        ("assistant", {"content": ""}, "", True),
        ("assistant", {}, "", True),
        ("assistant", {"content": None}, "", True),
        ("user", {"content": ["one", {"type": "text", "text": "two"}, {"type": "image_url"}]}, "one\ntwo", True),
        ("assistant", {"content": {"text": "x"}}, "", False),
        ("assistant", {"content": 5}, "", False),
        (
            "assistant",
            {
                "content": THOUGHT,
                "output": [
                    {"type": "reasoning", "content": [{"type": "output_text", "text": "hm"}]},
                    {"type": "message", "content": [{"type": "output_text", "text": "said"}]},
                    None,
                    {"type": "message", "content": "again"},
                ],
            },
            "said\nagain",
            True,
        ),
        ("assistant", {"content": "edited", "output": [{"type": "message", "content": "before"}]}, "edited", True),
    ],
)
def test_the_text_of_a_message(role: str, message: dict[str, Any], text: str | None, known: bool, export: Any) -> None:
    log = Log()

    report = log.take(export([chat({"m": {"parentId": None, "role": role, **message}})]))

    said = message["content"] if text is None else text
    assert log["open-webui:c:m"] == Message("open-webui:c:m", "open-webui:c", role=role, text=said)
    assert report.unknown_types == (not known)


def test_a_megabyte_of_blocks_that_never_end_is_read_once(export: Any) -> None:
    content = '<details type="reasoning" ' * 40_000
    log = Log()

    log.take(export([chat({"m": said(None, "x" + content, "assistant")})]))

    assert log.message("open-webui:c:m").text == "x"


@pytest.mark.parametrize(
    "junk",
    [
        None,
        5,
        "text",
        [],
        {"parentId": ["u"], "role": "user"},
        {"parentId": "u"},
        {"parentId": "u", "role": ""},
        {"parentId": "u", "role": 5},
        {"parentId": "u", "role": "user", "childrenIds": "x"},
        {"parentId": "u", "role": "user", "childrenIds": [None, ["u"]]},
    ],
)
def test_a_message_that_is_not_quite_readable_is_kept_and_counted_once(junk: object, export: Any) -> None:
    above, report = linked({"u": said(None, "hi"), "junk": junk, "below": said("junk", "there")}, export)

    assert (report.messages, report.unknown_types) == (3, 1)
    assert above["below"] == "junk"


@pytest.mark.parametrize(
    ("seconds", "created"),
    [
        (1_700_000_000, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (None, None),
        (True, None),
        ("1700000000", None),
        (1_744_577_557_127_000, None),
    ],
)
def test_seconds_become_a_time_or_none(seconds: object, created: datetime | None, export: Any) -> None:
    log = Log()

    log.take(export([chat({"m": said(None, "hi", timestamp=seconds)})]))

    assert log.message("open-webui:c:m").created == created
