"""Claude Code transcripts: exact counters for every sample, twice, in a store, and with bytes changed."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.events import Memory, Message
from branchmem.importers import BadLine, Leaf
from exports import Log, counted, parents
from transcripts import NAMES, SAMPLES

SEED = 20260303
CC = "claude-code"

# The samples, counted by hand


def test_a_session_with_inlined_agents() -> None:
    # 438 lines; the first is a summary, whose leaf is the last message of the other sample. The other 437 have a
    # uuid, each its own. 6 have no parent: the prompt, and 5 agents (lines 16, 38, 125, 229 and 295). Each of the
    # other 431 continues a line that none of them shares, so there are 6 lines of messages: no forks, 6 ends.
    # The last line hangs in the main one. 262 lines are pieces of 170 answers.
    log = Log()

    report = log.take(SAMPLES / "viewer_fe5e1c67-53e7-4862-81ae-d0e013e3270b.jsonl")

    assert counted(report) == {"messages": 437, "added": 437, "conversations": 1, "leaves": 6, "roots": 6}
    root = f"{CC}:fe5e1c67-53e7-4862-81ae-d0e013e3270b"
    assert report.current == {root: Leaf(f"{CC}:5ac34508-f923-4ac5-8efa-749838e99760", "last_line")}
    assert next(iter(log.values())) == Message(root, None, role="thread")
    above = parents(log)
    assert max(_depth(id, above) for id in above) == 135
    agents = [id for id in log if log.message(id).meta.get("isSidechain")]
    assert len(agents) == 405
    assert sum(above[id] == root for id in agents) == 5
    first = log.message(f"{CC}:62e0bdc0-a1e4-4d5c-8509-3b9d0d57cc67")
    assert (first.role, (first.text or "")[:39]) == ("user", "<command-message>orchestrator is runnin")
    assert first.created == datetime(2025, 9, 3, 0, 52, 31, 217000, tzinfo=UTC)


def _depth(id: str, above: dict[str, object]) -> int:
    depth = 0
    at: object = id
    while isinstance(at := above.get(str(at)), str):
        depth += 1
    return depth


def test_a_linear_session() -> None:
    # 29 lines in a line, the first without a parent: 12 calls of tools and their results, 3 answers with text. The
    # second line is hidden: it holds its place without a text.
    log = Log()

    report = log.take(SAMPLES / "viewer_1af7fc5e-8455-4414-9ccd-011d40f70b2a.jsonl")

    assert counted(report) == {"messages": 29, "added": 29, "conversations": 1, "leaves": 1, "roots": 1}
    root = f"{CC}:1af7fc5e-8455-4414-9ccd-011d40f70b2a"
    assert report.current == {root: Leaf(f"{CC}:549b3502-6e30-4fa5-869f-c998df26c3f0", "last_line")}
    texts = [log.message(id).text for id in log if id != root]
    assert (texts[0] or "").startswith("<command-message>init")
    assert texts[1] is None
    assert sum(text == "" for text in texts) == 24


def test_a_rewind_and_a_compaction() -> None:
    # u1 - a1, which has b1u - b1a and b2u - b2a - b2u2 - b2a2; cb hangs below that by its logical parent, then
    # cs - p1u - p1a. 12 messages, 1 fork (a1), leaves b1a and p1a. The summary cs is a memory besides.
    log = Log()

    report = log.take(SAMPLES / "ccl_dag_compact_after_rewind.jsonl")

    assert counted(report) == {"messages": 12, "added": 13, "conversations": 1, "forks": 1, "leaves": 2, "roots": 1}
    assert report.current == {f"{CC}:s1": Leaf(f"{CC}:p1a", "last_line")}
    assert log.message(f"{CC}:cb").parent == f"{CC}:b2a2"
    assert log.message(f"{CC}:cb").meta == {"logicalParentUuid": "b2a2"}
    said = log.message(f"{CC}:cs")
    assert [event for event in log.values() if isinstance(event, Memory)] == [
        Memory(
            f"{CC}:cs:summary",
            said.text or "",
            sources=[f"{CC}:{uuid}" for uuid in ("u1", "a1", "b2u", "b2a", "b2u2", "b2a2")],
            kind="summary",
            created=said.created,
        )
    ]


def test_edge_cases() -> None:
    # 18 lines. 3 are no objects (13, 15, 16), `silly` is of no type, the last is a summary. 13 have a uuid: 001 to
    # 011, where 011 and 010 stand twice with other content, and assistant_004 of another session, whose parent is
    # nowhere: nothing hangs under the root of that session. 14 = 11 + 2 + 1 messages; all without parent but the last:
    # 13 roots, no forks, 14 leaves.
    # Not quite readable are `silly`, the first 010 (no `content`) and the second (a string among the blocks).
    # The last message is the second 010.
    log = Log()

    report = log.take(SAMPLES / "ccl_edge_cases.jsonl")

    assert counted(report) == {
        "messages": 14,
        "added": 14,
        "conversations": 1,
        "leaves": 14,
        "roots": 13,
        "dangling": 1,
        "edited": 2,
        "bad_lines": 3,
        "unknown_types": 3,
    }
    assert report.bad == [BadLine(offset, "not a JSON object") for offset in (8268, 8302, 8305)]
    other = next(id for id in log if id.startswith(f"{CC}:edge_010~"))
    assert report.current == {
        f"{CC}:edge_cases": Leaf(other, "last_line"),
        f"{CC}:todowrite_session": Leaf(f"{CC}:assistant_004", "last_line"),
    }
    assert (log.message(f"{CC}:edge_011").text, log.message(other).text) == ("error", "wow error")
    assert log.message(f"{CC}:assistant_004").parent == f"{CC}:assistant_003"
    assert f"{CC}:todowrite_session" not in log


def test_corruptions() -> None:
    # c0 has x1 - x2 (the child stands first), h and z1: 1 fork. d1 dangles. h stands again below c1, which is below
    # h: a circle; s1 is its own parent: another. NULs and the glued line, in which g1 is lost, are bad; the summary
    # names a leaf that is nowhere. Of z2 there is only a beginning: nothing yet.
    # 9 messages: c0 x2 x1 d1 h c1 h~ s1 z1; leaves x2, h, z1, d1; 1 root.
    log = Log()

    report = log.take(SAMPLES / "constructed_corruptions.jsonl")

    assert counted(report) == {
        "messages": 9,
        "added": 9,
        "conversations": 1,
        "forks": 1,
        "leaves": 4,
        "roots": 1,
        "dangling": 1,
        "cycles": 2,
        "edited": 1,
        "bad_lines": 2,
    }
    assert [line.offset for line in report.bad] == [2068, 2133]
    assert report.current == {f"{CC}:sess-A": Leaf(f"{CC}:z1", "last_line")}


def test_a_fork_and_what_it_was_forked_from() -> None:
    # u1 - a1, which has u2 - a2 and u3 - a3: 6 messages, 1 fork, 2 leaves. The fork repeats them twice, the second
    # time without parents, and adds u4 below a3: 7 messages, 6 duplicates. It belongs to the session it came from.
    parent, fork = Log(), Log()

    assert counted(parent.take(SAMPLES / "constructed_fork_parent.jsonl")) == {
        "messages": 6,
        "added": 6,
        "conversations": 1,
        "forks": 1,
        "leaves": 2,
        "roots": 1,
    }
    report = fork.take(SAMPLES / "constructed_fork_child_duplicated.jsonl")

    assert counted(report) == {
        "messages": 7,
        "added": 7,
        "conversations": 1,
        "forks": 1,
        "leaves": 2,
        "roots": 1,
        "duplicates": 6,
    }
    assert report.current == {f"{CC}:sess-A": Leaf(f"{CC}:u4", "last_line")}
    assert {id: event for id, event in fork.items() if id != f"{CC}:u4"} == parent
    assert fork.message(f"{CC}:u4").parent == f"{CC}:a3"


@pytest.mark.parametrize(("first", "second"), [("parent", "child_duplicated"), ("child_duplicated", "parent")])
def test_a_fork_and_its_origin_in_either_order_are_one_history(first: str, second: str) -> None:
    log, alone = Log(), Log()
    alone.take(SAMPLES / "constructed_fork_child_duplicated.jsonl")

    log.take(SAMPLES / f"constructed_fork_{first}.jsonl")
    report = log.take(SAMPLES / f"constructed_fork_{second}.jsonl")

    assert log == alone
    assert (report.edited, report.conversations) == (0, 1)


def test_lines_without_any_uuid_are_a_chain() -> None:
    # Two lines and a third that is cut, in none of them a uuid: 2 messages, each below the one before, and so marked.
    log = Log()

    report = log.take(SAMPLES / "agentsview_truncated.jsonl")

    assert counted(report) == {
        "messages": 2,
        "added": 2,
        "conversations": 1,
        "leaves": 1,
        "roots": 1,
        "bad_lines": 1,
        "unknown_types": 2,
    }
    assert [line.offset for line in report.bad] == [309]
    root, first, second = log
    assert parents(log) == {root: None, first: root, second: first}
    assert report.current == {root: Leaf(second, "last_line")}
    assert [(log.message(id).role, log.message(id).text) for id in (first, second)] == [
        ("user", "hello"),
        ("assistant", "Hi there"),
    ]
    assert all(log.message(id).meta == {"assumed_linear": True} for id in (first, second))


# All of them


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_imported_twice_adds_nothing(name: str) -> None:
    log = Log()
    first = log.take(SAMPLES / name)

    again = log.take(SAMPLES / name, format="claude-code")

    assert again.added == 0
    assert again.counters() | {"added": first.added} == first.counters()
    assert again.current == first.current


# In the corruptions an id comes back with another parent: what was imported below the first stays below it.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "constructed_corruptions.jsonl"])
def test_every_beginning_of_every_sample_and_then_the_whole_is_the_whole(name: str, tmp_path: Path) -> None:
    whole = Log()
    whole.take(SAMPLES / name)
    data = (SAMPLES / name).read_bytes()
    chance = random.Random(SEED)
    part = tmp_path / name
    for _ in range(4):
        log = Log()
        size = chance.randrange(1000 if len(data) > 1000 else 200, len(data))
        part.write_bytes(data[:size])
        log.take(part)

        log.take(SAMPLES / name)

        assert log.keys() == whole.keys(), f"seed {SEED}, {size} bytes"
        assert log == whole, f"seed {SEED}, {size} bytes"


@pytest.mark.parametrize("name", NAMES)
def test_a_store_takes_every_sample_and_what_it_exports_is_the_same_log(name: str, store: Any, tmp_path: Path) -> None:
    first = importers.import_file(
        SAMPLES / name, append=store.append, stored=_stored_in(store), erased=store.log.is_erased
    )
    assert store.seq == first.added + first.conversations
    assert (
        importers.import_file(
            SAMPLES / name, append=store.append, stored=_stored_in(store), erased=store.log.is_erased
        ).added
        == 0
    )
    exported = tmp_path / "events.jsonl"
    exported.write_bytes(b"".join(importers.dump(store.log.events())))
    with bm.open_temporary() as other:
        importers.import_file(exported, append=other.append, stored=_stored_in(other), erased=other.log.is_erased)
        assert other.digest() == store.digest()


def _stored_in(store: Any) -> Any:
    return lambda id: store.log.get(id) if id in store.log else None


def test_all_samples_as_a_folder_are_all_their_messages() -> None:
    alone = Log()
    for name in NAMES:
        Log.update(alone, {id: event for id, event in _taken(SAMPLES / name).items() if id not in alone})
    together = _taken(SAMPLES)

    # s1 is a session in one of them and a message in another, and a1, u1 are messages in several: real ids never are.
    assert {id for id in together if "~" not in id} >= {id for id in alone if "~" not in id}


def _taken(path: Path) -> Log:
    log = Log()
    log.take(path)
    return log


@pytest.mark.parametrize("name", NAMES)
def test_three_hundred_changed_bytes_give_an_answer_or_a_typed_error(name: str, tmp_path: Path) -> None:
    whole = (SAMPLES / name).read_bytes()
    chance = random.Random(SEED)
    changed = tmp_path / name
    for _ in range(300):
        data = bytearray(whole)
        at = chance.randrange(len(data))
        data[at] = chance.randrange(256)
        changed.write_bytes(data)
        log = Log()
        try:
            report = log.take(changed)
        except bm.Error:
            assert not log, f"seed {SEED}, byte {at} is {data[at]}"
            continue
        except Exception as error:
            raise AssertionError(f"seed {SEED}, byte {at} is {data[at]}") from error
        assert len(log) == report.added + report.conversations, f"seed {SEED}, byte {at} is {data[at]}"
