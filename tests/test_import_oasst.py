"""OpenAssistant exports: trees, threads and single messages, exactly counted, in any order, and with bytes changed."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.events import Message
from branchmem.importers import BadLine, Leaf, deep_json
from changed_bytes import CHANGES, take_changed
from exports import Log, counted, parents, stored_in
from figures import Figure
from transcripts import written

SAMPLE = Path(__file__).parent / "samples" / "oasst" / "en_100_tree.jsonl"
SEED = 20260801


def said(id: str, parent: str | None = None, role: str = "prompter", **rest: Any) -> dict[str, Any]:
    """A message; one without a parent does not mention it."""
    form = {"message_id": id, "parent_id": parent, "text": f"text of {id}", "role": role, "lang": "en", **rest}
    return form if parent is not None else {key: value for key, value in form.items() if key != "parent_id"}


def tree(prompt: dict[str, Any]) -> dict[str, Any]:
    return {"message_tree_id": prompt["message_id"], "tree_state": "ready_for_export", "prompt": prompt}


def scattered(form: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a tree, one by one."""
    found, waiting = [], [form["prompt"]]
    while waiting:
        message = waiting.pop()
        waiting += message["replies"]
        found.append({key: value for key, value in message.items() if key != "replies"})
    return found


def took(tmp_path: Path, *lines: object) -> tuple[Log, dict[str, int]]:
    log = Log()
    return log, counted(log.take(written(tmp_path / "a.jsonl", lines)))


def test_a_hundred_trees() -> None:
    # Counted by a program of its own: 100 trees, 1,167 messages of which 260 have several replies and 626 have none.
    log = Log()

    report = log.take(SAMPLE)

    assert counted(report) == {
        "messages": 1167,
        "added": 1167,
        "conversations": 100,
        "forks": 260,
        "leaves": 626,
        "roots": 100,
    }
    assert len(report.current) == 100
    assert set(report.current.values()) == {Leaf(None, "none")}
    root, prompt, reply, *_ = log
    assert root == "oasst:tree:054e1df3-35e0-4bb8-a585-607dbdcd24e0"
    assert log[root] == Message(root, None, role="thread")
    assert log[prompt] == Message(
        "oasst:054e1df3-35e0-4bb8-a585-607dbdcd24e0",
        root,
        role="user",
        text="How can I find the best 401k plan for my needs?",
    )
    assert (log.message(reply).parent, log.message(reply).role) == (prompt, "assistant")


def test_imported_twice_it_adds_nothing() -> None:
    log = Log()
    first = log.take(SAMPLE)

    again = log.take(SAMPLE, format="oasst")

    assert again.added == 0
    assert again.counters() | {"added": first.added} == first.counters()


def test_a_store_takes_it_and_what_it_exports_is_the_same_log(store: Any, tmp_path: Path) -> None:
    importers.import_file(SAMPLE, append=store.append, stored=stored_in(store), erased=store.log.is_erased)
    exported = tmp_path / "events.jsonl"
    exported.write_bytes(b"".join(importers.dump(store.log.events())))

    with bm.open_temporary() as other:
        importers.import_file(exported, append=other.append, stored=stored_in(other), erased=other.log.is_erased)
        assert other.digest() == store.digest()


def test_the_same_messages_one_by_one_and_shuffled_are_the_same_trees(tmp_path: Path) -> None:
    whole, log = Log(), Log()
    whole.take(SAMPLE)
    rows = [row for line in SAMPLE.read_bytes().splitlines() for row in scattered(json.loads(line))]
    random.Random(SEED).shuffle(rows)

    report = log.take(written(tmp_path / "rows.jsonl", rows))

    assert log == whole
    assert counted(report)["conversations"] == 100
    assert log.take(SAMPLE).added == 0


def test_the_same_messages_in_threads_are_the_same_trees(tmp_path: Path) -> None:
    prompt = said("p", replies=[said("a", "p", "assistant", replies=[said("q", "a", replies=[])]), said("b", "p")])
    whole, _ = took(tmp_path, tree(prompt))
    long = [said("p"), {**said("a", role="assistant")}, said("q")]

    log, count = took(
        tmp_path, {"thread_id": "q", "thread": long}, {"thread_id": "b", "thread": [said("p"), said("b")]}
    )

    assert log == whole
    assert count == {
        "messages": 4,
        "added": 4,
        "conversations": 1,
        "forks": 1,
        "leaves": 2,
        "roots": 1,
        "duplicates": 1,
    }


def test_a_message_below_one_of_another_file_belongs_to_its_tree(tmp_path: Path) -> None:
    written(tmp_path / "exports" / "1.jsonl", [said("q", "a"), said("r", "q", "assistant")])
    written(tmp_path / "exports" / "2.jsonl", [tree(said("p", replies=[said("a", "p", "assistant", replies=[])]))])
    log = Log()

    report = log.take(tmp_path / "exports")

    assert counted(report) == {"messages": 4, "added": 4, "conversations": 1, "leaves": 1, "roots": 1}
    assert list(report.current) == ["oasst:tree:p"]
    assert parents(log)["oasst:q"] == "oasst:a"


def test_a_deleted_message_keeps_its_place_and_is_marked(tmp_path: Path) -> None:
    answers = [said("q", "a", replies=[])]
    log, count = took(tmp_path, tree(said("p", replies=[said("a", "p", "assistant", deleted=True, replies=answers)])))

    assert count == {"messages": 3, "added": 3, "conversations": 1, "leaves": 1, "roots": 1}
    assert log.message("oasst:a").meta == {"deleted": True}
    assert parents(log)["oasst:q"] == "oasst:a"
    assert log.message("oasst:p").meta == {}


def test_what_changes_from_export_to_export_makes_no_other_message(tmp_path: Path) -> None:
    log, _ = took(tmp_path, said("p", review_count=1, rank=2, labels={"spam": {"value": 0.5, "count": 2}}))

    report = log.take(written(tmp_path / "b.jsonl", [said("p", review_count=3, rank=0, emojis={"+1": 2})]))

    assert counted(report) == {"messages": 1, "conversations": 1, "leaves": 1, "roots": 1}


def test_replies_come_by_rank_and_times_are_read(tmp_path: Path) -> None:
    date = "2023-02-05T14:23:50.983374+00:00"
    replies = [said("b", "p", rank=1), said("c", "p"), said("a", "p", rank=0, created_date=date)]

    log, _ = took(tmp_path, tree(said("p", created_date="yesterday", replies=replies)))

    assert list(log) == ["oasst:tree:p", "oasst:p", "oasst:a", "oasst:b", "oasst:c"]
    assert log.message("oasst:a").created == datetime(2023, 2, 5, 14, 23, 50, 983374, UTC)
    assert log.message("oasst:p").created is None


def test_a_message_whose_parent_is_nowhere_dangles_until_it_comes(tmp_path: Path) -> None:
    log, count = took(tmp_path, said("q", "gone"), said("r", "q"))

    assert count == {"messages": 2, "added": 2, "leaves": 1, "dangling": 1}
    with bm.open_temporary() as store:
        store.append([*log.values(), bm.Memory("m", "x", sources=["oasst:r"])])
        assert "m" not in store.at("oasst:r")

    report = log.take(written(tmp_path / "b.jsonl", [said("gone"), said("q", "gone")]))
    assert (report.added, report.dangling, parents(log)["oasst:q"]) == (1, 0, "oasst:gone")


def test_a_circle_stays_hidden(tmp_path: Path) -> None:
    _, count = took(tmp_path, said("a", "c"), said("b", "a"), said("c", "b"), said("d", "c"), said("e", "e"))

    assert count == {"messages": 5, "added": 5, "cycles": 2, "forks": 1, "leaves": 1}


def test_a_link_that_contradicts_where_a_message_stands_wins_and_is_counted(tmp_path: Path) -> None:
    replies = [said("a", "p", replies=[said("b", "p")]), said("c", replies=[]), said("d", 7)]  # type: ignore[arg-type]

    log, count = took(tmp_path, tree(said("p", replies=replies)))

    assert (parents(log)["oasst:b"], parents(log)["oasst:c"]) == ("oasst:p", "oasst:p")
    assert (count["unknown_types"], count["dangling"]) == (2, 1)


def test_what_is_no_message_is_counted_and_what_hangs_below_it_stays_hidden(tmp_path: Path) -> None:
    nameless = {"text": "who", "role": "prompter", "replies": [said("b")]}
    odd = said("a", "p", "narrator", text=None)
    lines = [tree(said("p", replies=[None, nameless, odd])), {"message_tree_id": "x", "prompt": None}, b"[1]", b"{"]

    log, count = took(tmp_path, *lines)

    assert count == {
        "messages": 3,
        "added": 3,
        "conversations": 1,
        "leaves": 2,
        "roots": 1,
        "dangling": 1,
        "bad_lines": 2,
        "unknown_types": 4,
    }
    assert (log.message("oasst:a").role, log.message("oasst:a").text) == ("narrator", "")


def test_an_end_that_is_still_being_written_is_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [b"nonsense", said("p")])
    path.write_bytes(path.read_bytes() + b'{"message_id": "q", "par')
    log = Log()

    report = log.take(path)

    assert report.bad == [BadLine(0, "not a JSON object")]
    assert (report.messages, report.bad_lines) == (1, 1)


def test_a_file_without_messages_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    log = Log()

    with pytest.raises(ImportFailed, match="OpenAssistant"):
        log.take(written(tmp_path / "a.jsonl", [{"id": "x"}, b"{"]), format="oasst")

    assert not log


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["messages", "thread", "tree"])
def test_deep_conversations(kind: str, figure: Figure, tmp_path: Path) -> None:
    deep = figure(3_000, 100_000)
    path = tmp_path / "deep.jsonl"
    if kind == "messages":
        rows = [{"message_id": str(n), "parent_id": str(n - 1), "text": "x", "role": "prompter"} for n in range(deep)]
        del rows[0]["parent_id"]
        written(path, rows[::-1])
    elif kind == "thread":
        thread = [{"message_id": str(n), "text": "x", "role": "prompter"} for n in range(deep)]
        written(path, [{"thread_id": str(deep - 1), "thread": thread}])
    else:
        start = "".join(f'{{"message_id":"{n}","text":"x","role":"prompter","replies":[' for n in range(deep))
        written(path, [b'{"message_tree_id":"0","prompt":' + start.encode() + b"]}" * deep + b"}"])
    log = Log()

    assert counted(log.take(path)) == {
        "messages": deep,
        "added": deep,
        "conversations": 1,
        "leaves": 1,
        "roots": 1,
    }
    assert parents(log)[f"oasst:{deep - 1}"] == f"oasst:{deep - 2}"


def test_three_hundred_changed_bytes_give_an_answer_or_a_typed_error(tmp_path: Path) -> None:
    assert take_changed(SAMPLE.read_bytes(), tmp_path / "a.jsonl", SEED, is_long=True) > CHANGES // 2


@pytest.mark.parametrize(
    "text",
    ['{"a": [1, -2.5e3, "x\\u00e9", true, null, {}, []], "b": {"c": {"d": []}}}', "[[], [[]], {}]", ' "x" ', "3"],
)
def test_json_is_read_without_recursion_as_with_it(text: str) -> None:
    assert deep_json.loads(text) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    ["", "[", "[1", "[1,", "[1,]", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,}', "{1:2}", "[}", "[1 2]", "1 2", "x"],
)
def test_what_is_no_json_is_refused_without_recursion_too(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        deep_json.loads(text)


def test_json_nested_beyond_all_measure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep_json, "DEEPEST", 50)

    assert deep_json.loads("[" * 50 + "]" * 50) == json.loads("[" * 50 + "]" * 50)
    with pytest.raises(ValueError, match="nested too deeply"):
        deep_json.loads("[" * 52 + "]" * 52)
