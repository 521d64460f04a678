"""Codex rollouts: rollbacks, forks and agents that copy their beginning, compaction, old files, and changed bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.events import Memory
from branchmem.importers import Leaf
from changed_bytes import CHANGES, take_changed
from exports import Log, counted, parents, stored_in
from figures import Figure
from transcripts import written

SAMPLES = Path(__file__).parent / "samples" / "codex"
NAMES = sorted(path.name for path in SAMPLES.glob("*.jsonl"))
ROLLED_BACK = SAMPLES / "constructed_parent_rollback.jsonl"
FORK = SAMPLES / "constructed_fork_copied_prefix.jsonl"
SPAWNS = SAMPLES / "ccl_rollout-2222_parent.jsonl"
AGENT = SAMPLES / "ccl_rollout-3333_subagent_copied_history.jsonl"
SEED = 20260803


def line(kind: str, payload: dict[str, Any], minute: int = 0) -> dict[str, Any]:
    return {"timestamp": f"2026-06-01T10:{minute:02}:00.000Z", "type": kind, "payload": payload}


def meta(id: str, **rest: Any) -> dict[str, Any]:
    return line("session_meta", {"id": id, "timestamp": "2026-06-01T10:00:00.000Z", "cwd": "/tmp/p", **rest})


def agent_of(parent: str, call: str | None = None) -> dict[str, Any]:
    return {"subagent": {"thread_spawn": {"parent_thread_id": parent, "spawn_call_id": call}}}


def message(role: str, text: str, minute: int = 0) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return line("response_item", {"type": "message", "role": role, "content": content}, minute)


def user(text: str, minute: int = 0) -> dict[str, Any]:
    return message("user", text, minute)


def answer(text: str, minute: int = 0) -> dict[str, Any]:
    return message("assistant", text, minute)


def item(kind: str, **rest: Any) -> dict[str, Any]:
    return line("response_item", {"type": kind, **rest})


def told(kind: str, **rest: Any) -> dict[str, Any]:
    return line("event_msg", {"type": kind, **rest})


def rolled_back(turns: object) -> dict[str, Any]:
    return told("thread_rolled_back", num_turns=turns)


def texts(log: Log) -> dict[str | None, str | None]:
    """By the text of each message, or its role where it has none, that of its parent."""

    def shown(id: object) -> str | None:
        event = log.message(str(id))
        return event.text or event.role

    return {shown(id): shown(log.message(id).parent) for id in messages(log) if log.message(id).parent in log}


def messages(log: Log) -> list[str]:
    return [id for id, event in log.items() if not isinstance(event, Memory)]


def memories(log: Log) -> list[Memory]:
    return [event for event in log.values() if isinstance(event, Memory)]


def id_of(log: Log, text: str) -> str:
    return next(id for id in messages(log) if log.message(id).text == text)


def took(tmp_path: Path, *lines: object) -> tuple[Log, dict[str, int]]:
    log = Log()
    return log, counted(log.take(written(tmp_path / "a.jsonl", lines)))


# The samples, counted by hand


def test_turns_that_were_rolled_back_stay_as_a_branch() -> None:
    # A turn, a second one that is rolled back, and a third: 6 messages, and "tabs it is" is followed by two of them.
    log = Log()

    report = log.take(ROLLED_BACK)

    assert counted(report) == {"messages": 6, "added": 6, "conversations": 1, "forks": 1, "leaves": 2, "roots": 1}
    assert texts(log) == {
        "use tabs": "thread",
        "tabs it is": "use tabs",
        "now add tests": "tabs it is",
        "added": "now add tests",
        "add docs instead": "tabs it is",
        "docs added": "add docs instead",
    }
    assert report.current == {"codex:p-1": Leaf(id_of(log, "docs added"), "last_line")}


def test_a_fork_without_its_parent() -> None:
    # 5 messages and a compacted history, which is one, too, and a memory of the 4 before it.
    log = Log()

    report = log.take(FORK)

    assert counted(report) == {"messages": 6, "added": 7, "conversations": 1, "leaves": 1, "roots": 1}
    assert report.current == {"codex:p-1": Leaf(id_of(log, "go on"), "last_line")}
    (memory,) = memories(log)
    assert (memory.text, memory.kind, memory.derived_from) == ("summary: spaces", "summary", ())
    said = ("use tabs", "tabs it is", "use spaces", "spaces it is")
    assert set(memory.sources or ()) == {id_of(log, text) for text in said}


def test_the_thread_that_starts_an_agent() -> None:
    # The prompt stands in an event only; the call and what it returned are items. 3 messages, one below the other.
    log = Log()

    report = log.take(SPAWNS)

    assert counted(report) == {"messages": 3, "added": 3, "conversations": 1, "leaves": 1, "roots": 1}
    assert [log.message(id).role for id in log] == ["thread", "user", "assistant", "tool"]
    assert [log.message(id).text for id in log][1:] == ["Spawn a synthetic researcher.", "", ""]
    root, *_, last = log
    assert report.current == {root: Leaf(last, "last_line")}


def test_an_agent_alone() -> None:
    # 2 messages that it copied, and 2 of its own. Nobody stands where an agent does.
    log = Log()

    report = log.take(AGENT)

    assert counted(report) == {"messages": 4, "added": 4, "conversations": 1, "leaves": 1, "roots": 1}
    root = "codex:22222222-2222-4222-8222-222222222222"
    assert report.current == {root: Leaf(None, "none")}
    assert log.message(id_of(log, "Inspect fixtures.")).meta == {
        "isSidechain": True,
        "agentId": "33333333-3333-4333-8333-333333333333",
        "toolUseID": "call-spawn-001",
    }


def test_all_of_them_in_a_folder() -> None:
    # 3 + 4 and 6 + 6 messages, of which an agent and a fork copied 2 each. Below the call stand what it returned and
    # what the agent did, below "tabs it is" 3 turns: 2 forks.
    log = Log()

    report = log.take(SAMPLES)

    assert counted(report) == {
        "messages": 15,
        "added": 16,
        "conversations": 2,
        "forks": 2,
        "leaves": 5,
        "roots": 2,
        "duplicates": 4,
    }
    assert texts(log)["use spaces"] == "tabs it is"
    assert texts(log)["Inspect fixtures."] == "assistant"
    stands = {root: log.message(str(leaf.leaf)) for root, leaf in report.current.items()}
    assert stands["codex:p-1"].text == "docs added"
    assert stands["codex:22222222-2222-4222-8222-222222222222"].role == "tool"


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]])
def test_one_by_one_in_either_order_they_are_the_same_messages_as_together(names: list[str]) -> None:
    log, together = Log(), Log()
    together.take(SAMPLES)

    edited = [log.take(SAMPLES / name).edited for name in names]

    assert not any(edited)
    assert parents(log) == parents(together)
    assert [memory.to_dict() for memory in memories(log)] == [memory.to_dict() for memory in memories(together)]
    assert log.take(SAMPLES).added == 0


@pytest.mark.parametrize("name", [*NAMES, ""])
def test_imported_twice_it_adds_nothing(name: str, store: Any) -> None:
    log = Log()
    first = log.take(SAMPLES / name)

    again = log.take(SAMPLES / name, format="codex")

    assert again.added == 0
    assert again.counters() | {"added": first.added} == first.counters()
    assert again.current == first.current
    path = SAMPLES / name
    importers.import_file(path, append=store.append, stored=stored_in(store), erased=store.log.is_erased)
    assert store.seq == len(log)


# Rollbacks


def test_a_memory_of_a_turn_that_was_rolled_back_is_unknown_afterwards() -> None:
    log = Log()
    log.take(ROLLED_BACK)

    with bm.open_temporary() as store:
        store.append([*log.values(), bm.Memory("m", "has tests", sources=[id_of(log, "added")])])

        assert "m" in store.at(id_of(log, "added"))
        assert "m" not in store.at(id_of(log, "docs added"))


def test_several_turns_are_rolled_back_at_once_and_one_after_the_other(tmp_path: Path) -> None:
    turns = [part for n in "123" for part in (user(f"u{n}"), answer(f"a{n}"))]

    at_once, _ = took(tmp_path, meta("t"), *turns, rolled_back(2), user("then"))
    in_turn, _ = took(tmp_path, meta("t"), *turns, rolled_back(1), rolled_back(1), user("then"))
    nothing, _ = took(tmp_path, meta("t"), *turns, rolled_back(0), user("then"))
    all_of_it, _ = took(tmp_path, meta("t"), message("developer", "be brief"), *turns, rolled_back(9), user("then"))

    assert texts(at_once)["then"] == "a1"
    assert at_once == in_turn
    assert texts(nothing)["then"] == "a3"
    assert texts(all_of_it)["then"] == "be brief"


def test_context_that_was_given_for_a_turn_is_rolled_back_with_it(tmp_path: Path) -> None:
    context = user("<environment_context>cwd</environment_context>")

    log, count = took(
        tmp_path, meta("t"), context, user("u1"), answer("a1"), context, user("u2"), rolled_back(1), user("u3")
    )

    assert texts(log)["u3"] == "a1"
    assert texts(log)["u1"] == "user"
    assert count["messages"] == 6
    assert sum(log.message(id).text is None for id in log) == 3


def test_a_turn_that_was_aborted_is_what_the_next_one_continues(tmp_path: Path) -> None:
    log, count = took(tmp_path, user("u1"), answer("half"), told("turn_aborted", reason="interrupted"), user("u2"))

    assert texts(log)["u2"] == "half"
    assert "unknown_types" not in count


@pytest.mark.parametrize("turns", [None, "1", -1, True, 1.0])
def test_what_follows_a_rollback_that_cannot_be_read_stays_hidden(turns: object, tmp_path: Path) -> None:
    log, count = took(tmp_path, meta("t"), user("u1"), rolled_back(turns), user("u2"), answer("a2"))

    assert (count["dangling"], count["unknown_types"], count["messages"]) == (1, 1, 3)
    with bm.open_temporary() as store:
        store.append([*log.values(), bm.Memory("m", "x", sources=[id_of(log, "a2")])])
        assert "m" not in store.at(id_of(log, "a2"))


def test_the_same_turn_said_again_is_the_same_message_with_other_answers(tmp_path: Path) -> None:
    log, count = took(tmp_path, user("u"), answer("a"), rolled_back(1), user("u", 5), answer("b"))

    assert count == {
        "messages": 3,
        "added": 3,
        "conversations": 1,
        "forks": 1,
        "leaves": 2,
        "roots": 1,
        "duplicates": 1,
    }
    assert texts(log) == {"u": "thread", "a": "u", "b": "u"}


# What is said twice


@pytest.mark.parametrize("first", [True, False])
def test_events_that_repeat_items_are_no_messages(first: bool, tmp_path: Path) -> None:
    pairs = [[told("user_message", message="hi"), user("hi")], [told("agent_message", message="yes"), answer("yes")]]
    lines = [each for pair in pairs for each in (pair if first else pair[::-1])]

    log, count = took(tmp_path, meta("t"), *lines)

    assert count == {"messages": 2, "added": 2, "conversations": 1, "leaves": 1, "roots": 1}
    assert texts(log) == {"hi": "thread", "yes": "hi"}


def test_an_event_and_an_item_that_say_the_same_are_the_same_message(tmp_path: Path) -> None:
    log, _ = took(tmp_path, meta("t"), told("user_message", message="hi"))

    report = log.take(written(tmp_path / "b.jsonl", [meta("t"), user("hi"), answer("yes")]))

    assert (report.added, report.edited) == (1, 0)


def test_context_in_an_item_does_not_silence_the_events(tmp_path: Path) -> None:
    context = user("<environment_context>cwd</environment_context>")

    log, _ = took(tmp_path, meta("t"), context, told("user_message", message="hi"))

    assert texts(log)["hi"] == "user"


# Forks and agents


def files_in(tmp_path: Path, **lines: list[Any]) -> tuple[Log, importers.Report]:
    for name, each in lines.items():
        written(tmp_path / "rollouts" / f"{name}.jsonl", each)
    log = Log()
    return log, log.take(tmp_path / "rollouts")


def test_a_fork_is_cut_by_what_was_said_not_by_time(tmp_path: Path) -> None:
    history = [("u1", 1), ("u2", 2), ("u3", 3)]
    parent = [meta("p"), *(user(text, minute) for text, minute in history)]
    fork = [meta("f", forked_from_id="p"), meta("p"), *(user(text, 30) for text, _ in history), user("own", 1)]

    log, report = files_in(tmp_path, a_fork=fork, b_parent=parent)

    assert (report.messages, report.duplicates, report.conversations, report.edited) == (4, 3, 1, 0)
    assert texts(log)["own"] == "u3"
    assert log.message(id_of(log, "u1")).created == datetime(2026, 6, 1, 10, 1, tzinfo=UTC)
    assert report.current == {"codex:p": Leaf(id_of(log, "u3"), "last_line")}


def test_a_fork_of_a_fork_belongs_to_the_first_thread(tmp_path: Path) -> None:
    first = [meta("p"), user("u1"), user("u2")]
    second = [meta("f", forked_from_id="p"), meta("p"), user("u1"), user("u3")]
    third = [meta("g", forked_from_id="f"), *second, user("u4")]

    log, report = files_in(tmp_path, a=third, b=second, c=first)

    assert (report.messages, report.duplicates, report.conversations) == (4, 3, 1)
    assert (texts(log)["u4"], texts(log)["u3"]) == ("u3", "u1")
    alone = Log()
    for name in "acb":
        alone.take(tmp_path / "rollouts" / f"{name}.jsonl")
    assert parents(alone) == parents(log)


def test_an_agent_may_leave_out_what_tools_did_from_what_it_copies(tmp_path: Path) -> None:
    call = [item("reasoning", summary=[]), item("function_call", call_id="c", name="ls", arguments="{}")]
    output = item("function_call_output", call_id="c", output="done")
    parent = [meta("p"), user("u1"), *call, output, answer("a1"), user("u2"), answer("a2")]
    agent = [meta("x", source=agent_of("p", "c")), user("u1"), answer("a1"), user("u2"), user("task"), answer("found")]

    log, report = files_in(tmp_path, a_agent=agent, b_parent=parent)

    assert (report.messages, report.duplicates, report.forks) == (9, 3, 1)
    assert (texts(log)["task"], texts(log)["found"]) == ("u2", "task")
    assert report.current == {"codex:p": Leaf(id_of(log, "a2"), "last_line")}
    marked = {log.message(id).text for id in log if log.message(id).meta}
    assert marked == {"task", "found"}


def test_an_agent_that_copied_nothing_is_a_tree_below_the_same_root(tmp_path: Path) -> None:
    parent = [meta("p"), user("u1"), answer("a1")]

    log, report = files_in(tmp_path, p=parent, x=[meta("x", source=agent_of("p")), user("task"), answer("found")])

    assert (report.messages, report.roots, report.conversations, report.duplicates) == (4, 2, 1, 0)
    assert log.message(id_of(log, "task")).meta == {"isSidechain": True, "agentId": "x"}


def test_a_later_turn_of_the_parent_is_not_taken_for_the_beginning_of_a_fork(tmp_path: Path) -> None:
    parent = [meta("p"), user("u1"), user("u2"), user("go on")]

    log, report = files_in(tmp_path, f=[meta("f", forked_from_id="p"), user("u1"), user("go on")], p=parent)

    assert (report.messages, report.duplicates, report.forks) == (4, 1, 1)
    assert sorted(
        log.message(str(log.message(id).parent)).text or "" for id in log if log.message(id).text == "go on"
    ) == [
        "u1",
        "u2",
    ]


def test_threads_that_name_each_other_as_their_parent(tmp_path: Path) -> None:
    one = [meta("a", forked_from_id="b"), user("u1")]

    _, report = files_in(
        tmp_path, a=one, b=[meta("b", forked_from_id="a"), user("u2")], c=[meta("c", forked_from_id="c")]
    )

    assert (report.messages, report.dangling) == (2, 0)


def test_threads_that_begin_alike_are_conversations_of_their_own(tmp_path: Path) -> None:
    _, report = files_in(tmp_path, a=[meta("a"), user("fix it")], b=[meta("b"), user("fix it")])

    assert (report.messages, report.conversations, report.duplicates) == (2, 2, 0)


# Compaction


def compacted(text: str, *history: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return line("compacted", {"message": text, "replacement_history": [each["payload"] for each in history], **rest})


def test_a_second_summary_derives_from_the_first(tmp_path: Path) -> None:
    kept = user("u1")
    lines = [
        user("u1"),
        answer("a1"),
        compacted("s", kept, user("first")),
        user("u2"),
        compacted("s", kept, user("second")),
    ]

    log, _ = took(tmp_path, meta("t"), *lines)

    first, second = memories(log)
    assert (first.text, second.text) == ("first", "second")
    assert set(first.sources or ()) == {id_of(log, "u1"), id_of(log, "a1")}
    assert set(second.sources or ()) == {id_of(log, "first"), id_of(log, "u2")}
    assert second.derived_from == (first.id,)


def test_a_summary_of_turns_that_are_rolled_back_later_is_unknown_afterwards(tmp_path: Path) -> None:
    log, _ = took(tmp_path, user("u1"), user("u2"), compacted("", user("both")), user("u3"), rolled_back(2), user("u4"))

    with bm.open_temporary() as store:
        store.append(log.values())
        (memory,) = memories(log)
        assert memory.id in store.at(id_of(log, "u3"))
        assert memory.id not in store.at(id_of(log, "u4"))


@pytest.mark.parametrize(
    ("payload", "summary"),
    [
        ({"message": "old"}, "old"),
        ({"message": "old", "replacement_history": []}, "old"),
        ({"message": "", "replacement_history": [user("u1")["payload"], {"type": "compaction"}]}, None),
        ({"message": 7}, None),
    ],
)
def test_what_the_summary_of_a_compacted_history_is(
    payload: dict[str, Any], summary: str | None, tmp_path: Path
) -> None:
    log, count = took(tmp_path, user("u1"), line("compacted", payload), user("u2"))

    assert [memory.text for memory in memories(log)] == ([] if summary is None else [summary])
    assert count["messages"] == 3


# Lines


def test_an_old_file_without_envelopes(tmp_path: Path) -> None:
    head = {"id": "t", "timestamp": "2025-06-01T10:00:00.000Z", "instructions": None}
    wrapped = [meta("t"), user("hi"), item("reasoning", summary=[]), answer("yes")]
    log, count = took(tmp_path, head, *(each["payload"] for each in wrapped[1:]), {"record_type": "state"})

    assert count == {"messages": 3, "added": 3, "conversations": 1, "leaves": 1, "roots": 1}
    assert log.take(written(tmp_path / "b.jsonl", wrapped)).added == 0


def test_what_nobody_said_has_no_text(tmp_path: Path) -> None:
    image = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}
    odd = {"type": "message", "role": "user", "content": [{"type": "hologram"}, {"type": "input_text", "text": "x"}]}
    lines = [line("response_item", image), line("response_item", odd), item("unheard_of"), item("web_search_call")]

    log, count = took(tmp_path, meta("t"), *lines)

    assert (count["messages"], count["unknown_types"]) == (4, 2)
    assert [log.message(id).text for id in log] == [None, "", "x", "", ""]


def test_lines_that_are_no_items_are_counted_and_passed_over(tmp_path: Path) -> None:
    deep = '{"type":"response_item","payload":' + '{"x":' * 300 + "1" + "}" * 301
    lines = [
        meta("t"),
        user("u1"),
        b"{broken",
        b"\0\0\0",
        b"[1]",
        deep.encode(),
        {"type": "novelty", "payload": {}},
        user("u2"),
    ]

    log, count = took(tmp_path, *lines)

    assert (count["messages"], count["bad_lines"], count["unknown_types"]) == (2, 4, 1)
    assert texts(log)["u2"] == "u1"


def test_a_file_without_items_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    log = Log()

    with pytest.raises(ImportFailed, match="Codex"):
        log.take(written(tmp_path / "a.jsonl", [meta("t"), told("token_count")]))

    assert not log


def test_a_file_without_a_thread_is_a_conversation_that_grows(tmp_path: Path) -> None:
    log, _ = took(tmp_path, user("u1"))

    report = log.take(written(tmp_path / "b.jsonl", [user("u1"), answer("a1")]))

    assert (report.added, report.conversations) == (1, 1)


@pytest.mark.soak
def test_a_deep_thread(figure: Figure, tmp_path: Path) -> None:
    deep = figure(3_000, 100_000)
    parent = [meta("p"), *(answer("again") for _ in range(deep))]
    fork = [meta("f", forked_from_id="p"), *parent, user("own"), compacted("all of it")]

    _, report = files_in(tmp_path, f=fork, p=parent)

    parts = 0 if deep <= 4096 else -(-(deep + 1) // 4096)
    assert (report.messages, report.added, report.duplicates) == (deep + 2, deep + 3 + parts, deep)
    assert (report.forks, report.leaves) == (0, 1)


@pytest.mark.parametrize("name", NAMES)
def test_three_hundred_changed_bytes_give_an_answer_or_a_typed_error(name: str, tmp_path: Path) -> None:
    assert take_changed((SAMPLES / name).read_bytes(), tmp_path / name, SEED) > CHANGES // 2


def test_the_beginning_of_a_file_and_then_the_whole_is_the_whole(tmp_path: Path) -> None:
    whole, log = Log(), Log()
    whole.take(FORK)
    lines = FORK.read_bytes().splitlines(keepends=True)
    path = tmp_path / "a.jsonl"

    for count in range(3, len(lines)):
        path.write_bytes(b"".join(lines[:count]) + lines[count][:40])
        log.take(path)
    log.take(FORK)

    assert log == whole
