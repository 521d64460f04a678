"""Codex rollouts: the samples counted by hand, rollbacks, what is said twice, old files, and changed bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.importers import Leaf
from changed_bytes import CHANGES, take_changed
from codex_threads import (
    answer,
    compacted,
    files_in,
    id_of,
    item,
    line,
    memories,
    message,
    meta,
    rolled_back,
    texts,
    told,
    took,
    user,
)
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
