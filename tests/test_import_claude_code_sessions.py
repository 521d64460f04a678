"""Sessions of Claude Code that hang together: folders, agents, forks, and where a conversation stands."""

from __future__ import annotations

import copy
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from branchmem.errors import ImportFailed
from branchmem.importers import Leaf, claude_code
from branchmem.importers.files import opened
from branchmem.importers.records import Report
from exports import Log, counted, parents
from transcripts import answer, boundary, call, line, returned, text, written

CC = "claude-code"
ROOT = f"{CC}:s"
SEED = 20260304


def stands_at(path: Path) -> dict[str, str | None]:
    """Each conversation and the message at which it stands, without the name of the tool."""
    return {
        root.removeprefix(f"{CC}:"): leaf.leaf and leaf.leaf.removeprefix(f"{CC}:")
        for root, leaf in Log().take(path).current.items()
    }


# Folders


def agent(uuid: str, parent: str | None, **rest: Any) -> dict[str, Any]:
    return line(uuid, parent, isSidechain=True, agentId="x1", **rest)


def project(folder: Path) -> Path:
    """A session whose call of a tool started an agent, which has a file of its own; two more files as found there."""
    written(
        folder / "s.jsonl",
        [
            line("u", None, "do it"),
            answer("a", "u", "m", call("t")),
            line("r", "a", [returned("t")], toolUseResult={"agentId": "x1", "status": "completed"}),
            answer("b", "r", "n", text("done")),
        ],
    )
    written(folder / "s" / "subagents" / "deep" / "agent-x1.jsonl", [agent("1", None), agent("2", "1")])
    written(folder / "s" / "subagents" / "agent-x1.meta.json", [{"agentType": "explore"}])
    written(folder / "notes.md", [b"# not read"])
    return folder


def test_a_folder_holds_sessions_and_their_agents(tmp_path: Path) -> None:
    log = Log()

    report = log.take(project(tmp_path))

    assert counted(report) == {"messages": 6, "added": 6, "conversations": 1, "leaves": 2, "roots": 2}
    assert list(log) == [ROOT, *(f"{CC}:{uuid}" for uuid in "uarb12")]
    assert parents(log)[f"{CC}:1"] == ROOT
    assert report.current == {ROOT: Leaf(f"{CC}:b", "last_line")}


def test_an_agent_and_the_call_that_started_it_name_each_other(tmp_path: Path) -> None:
    log = Log()
    log.take(project(tmp_path))

    assert log.message(f"{CC}:r").meta == {"agentId": "x1", "toolUseID": "t"}
    assert log.message(f"{CC}:1").meta == log.message(f"{CC}:2").meta == {"isSidechain": True, "agentId": "x1"}


def test_the_order_of_a_folder_is_that_of_names_whatever_the_disk_says(tmp_path: Path) -> None:
    names = ["b.jsonl", "a.jsonl", "agent-a.jsonl", "a/subagents/z.jsonl", "c/d.jsonl"]
    for name in random.Random(SEED).sample(names, len(names)):
        written(tmp_path / name, [line(name, None)])

    with opened(str(tmp_path)) as files:
        read = [record.id for source in claude_code.sources(files, Report()) for record in source.records()]

    order = ["a.jsonl", "b.jsonl", "c/d.jsonl", "a/subagents/z.jsonl", "agent-a.jsonl"]
    assert read == [f"{CC}:{name}" for name in order]


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    elsewhere = written(tmp_path / "elsewhere" / "e.jsonl", [line("e", None)])
    folder = project(tmp_path / "project")
    (folder / "link.jsonl").symlink_to(elsewhere)
    (folder / "more").symlink_to(elsewhere.parent, target_is_directory=True)
    (folder / "again").symlink_to(folder, target_is_directory=True)

    assert Log().take(folder).messages == 6


def test_a_file_of_a_folder_that_is_no_transcript_is_counted(tmp_path: Path) -> None:
    project(tmp_path)
    written(tmp_path / "other.jsonl", [{"role": "user", "content": "of another tool"}] * 5)
    written(tmp_path / "empty.jsonl", [])

    report = Log().take(tmp_path)

    assert (report.messages, report.unknown_types) == (6, 2)


@pytest.mark.parametrize("lines", [None, [], [{"type": "summary", "summary": "x", "leafUuid": "y"}]])
def test_a_folder_without_a_message_is_refused(lines: list[object] | None, tmp_path: Path) -> None:
    if lines is not None:
        written(tmp_path / "deep" / "a.jsonl", lines)

    with pytest.raises(ImportFailed) as refused:
        Log().take(tmp_path)

    assert refused.value.path == str(tmp_path)


def test_a_bad_line_of_a_folder_is_told_with_its_file(tmp_path: Path) -> None:
    project(tmp_path)
    written(tmp_path / "s2.jsonl", [line("x", None), b"broken"])

    report = Log().take(tmp_path)

    assert report.bad_lines == 1
    assert report.bad[0].why.startswith("s2.jsonl: ")


def test_messages_belong_to_the_session_that_they_name_not_to_their_file(tmp_path: Path) -> None:
    log = Log()

    report = log.take(written(tmp_path / "s.jsonl", [line("a", None), line("b", None, sessionId="other")]))

    assert parents(log)[f"{CC}:b"] == f"{CC}:other"
    assert {root: leaf.leaf for root, leaf in report.current.items()} == {
        ROOT: f"{CC}:a",
        f"{CC}:other": f"{CC}:b",
    }


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [line("a", None, "one"), line("b", "a", "two")])
    with opened(str(path)) as files:
        source = next(claude_code.sources(files, Report()))
        places = [record.place for record in source.records()]
        path.write_bytes(b"{}\n" * 3)

        with pytest.raises(ImportFailed, match="when the import began"):
            source.content(places[1])


# Sessions that continue others


def test_a_session_that_continues_another_is_of_its_conversation(tmp_path: Path) -> None:
    written(tmp_path / "1.jsonl", [line("a", None), line("b", "a")])
    written(tmp_path / "2.jsonl", [line("a", None), line("b", "a"), line("c", "b", sessionId="resumed")])

    report = Log().take(tmp_path)

    assert (report.messages, report.conversations, report.duplicates) == (3, 1, 2)
    assert report.current == {ROOT: Leaf(f"{CC}:c", "last_line")}


def rewritten(lines: list[dict[str, Any]], session: str, origin: str) -> list[dict[str, Any]]:
    """What a fork makes of lines: uuids of its own, and where they came from."""
    own = {each["uuid"]: f"{session}-{each['uuid']}" for each in lines}
    forked = []
    for each in copy.deepcopy(lines):
        each["forkedFrom"] = {"sessionId": origin, "messageUuid": each["uuid"]}
        each["uuid"], each["sessionId"] = own[each["uuid"]], session
        for field in ("parentUuid", "logicalParentUuid"):
            if each.get(field) is not None:
                each[field] = own[each[field]]
        forked.append(each)
    return forked


@pytest.mark.parametrize("name", ["0.jsonl", "9.jsonl"])
def test_a_fork_with_uuids_of_its_own_repeats_the_messages_it_came_from(name: str, tmp_path: Path) -> None:
    origin = [line("a", None), line("b", "a"), boundary("c", "b"), line("d", "c")]
    written(tmp_path / "5.jsonl", origin)
    new = line("e", "fork-d", sessionId="fork")
    written(tmp_path / name, [*rewritten(origin, "fork", "s"), new])
    log = Log()

    report = log.take(tmp_path)

    assert (report.messages, report.duplicates, report.edited, report.forks) == (5, 4, 0, 0)
    assert parents(log)[f"{CC}:e"] == f"{CC}:d"
    assert report.current == {ROOT: Leaf(f"{CC}:e", "last_line")}


def test_a_fork_of_a_fork_repeats_the_first_messages(tmp_path: Path) -> None:
    origin = [line("a", None), line("b", "a")]
    once = rewritten(origin, "one", "s")
    written(tmp_path / "1.jsonl", origin)
    written(tmp_path / "2.jsonl", once)
    written(tmp_path / "3.jsonl", [*rewritten(once, "two", "one"), line("c", "two-one-b", sessionId="two")])
    log = Log()

    report = log.take(tmp_path)

    assert list(log) == [ROOT, f"{CC}:a", f"{CC}:b", f"{CC}:c"]
    assert (report.duplicates, report.conversations) == (4, 1)


ORIGIN = [
    line("a", None, "hi"),
    {"type": "progress", "uuid": "p", "parentUuid": "a", "sessionId": "s"},
    line("b", "p", "ho", role="assistant"),
    line("c", "b", "more"),
    line("d", "c", "and more", role="assistant"),
    line("e", "d", "and so on"),
]


def as_the_sdk_forks(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines `a` to `d` as `fork_session` of claude-agent-sdk-python copies them, and one that was said then.

    Lines of progress are left out, links go past them, and the last copy has the time of the fork.
    """
    kept = [each for each in lines if each["type"] != "progress" and each["uuid"] != "e"]
    kept = [each | {"parentUuid": "a"} if each["parentUuid"] == "p" else each for each in kept]
    kept[-1] = kept[-1] | {"timestamp": "2026-03-02T10:00:00.000Z"}
    return [*rewritten(kept, "fork", "s"), line("new", "fork-d", "elsewhere", sessionId="fork")]


@pytest.mark.parametrize("name", ["0.jsonl", "9.jsonl"])
def test_a_fork_that_links_past_progress_and_dates_its_last_line_anew_is_one_history(name: str, tmp_path: Path) -> None:
    written(tmp_path / "5.jsonl", ORIGIN)
    written(tmp_path / name, as_the_sdk_forks(ORIGIN))
    log = Log()

    report = log.take(tmp_path)

    assert (report.messages, report.duplicates, report.edited, report.forks) == (7, 4, 0, 1)
    above = {"a": "s", "p": "a", "b": "p", "c": "b", "d": "c", "e": "d", "new": "d"}
    assert parents(log) == {ROOT: None, **{f"{CC}:{id}": f"{CC}:{parent}" for id, parent in above.items()}}
    assert log.message(f"{CC}:d").created == log.message(f"{CC}:c").created
    assert log.take(tmp_path).added == 0


def test_a_fork_imported_after_what_it_was_forked_from_adds_what_was_said_since(tmp_path: Path) -> None:
    log, together = Log(), Log()
    log.take(written(tmp_path / "s.jsonl", ORIGIN))

    report = log.take(written(tmp_path / "t.jsonl", as_the_sdk_forks(ORIGIN)))

    together.take(tmp_path)
    assert log == together
    assert (report.messages, report.added, report.duplicates, report.edited, report.conversations) == (5, 1, 2, 0, 1)
    assert report.current == {ROOT: Leaf(f"{CC}:new", "last_line")}


def test_a_copy_that_says_otherwise_is_another_version(tmp_path: Path) -> None:
    forked = as_the_sdk_forks(ORIGIN)
    forked[-2]["message"]["content"] = "never said"
    written(tmp_path / "1.jsonl", ORIGIN)
    written(tmp_path / "2.jsonl", forked)
    log = Log()

    report = log.take(tmp_path)

    assert (report.messages, report.edited) == (8, 1)
    other = str(parents(log)[f"{CC}:new"])
    assert (other.startswith(f"{CC}:d~"), log.message(other).text) == (True, "never said")
    assert parents(log)[f"{CC}:e"] == other


def test_of_two_forks_without_their_origin_the_earlier_copy_is_the_message(tmp_path: Path) -> None:
    early, late = as_the_sdk_forks(ORIGIN), as_the_sdk_forks(ORIGIN)
    late[-2]["timestamp"], late[-1]["uuid"] = "2026-03-03T10:00:00.000Z", "newer"
    logs = [Log(), Log()]
    for names, log in zip((("1", "2"), ("2", "1")), logs, strict=True):
        folder = tmp_path / "".join(names)
        for name, lines in zip(names, (early, late), strict=True):
            written(folder / f"{name}.jsonl", lines)
        assert log.take(folder).duplicates == 4

    assert logs[0] == logs[1]
    assert logs[0].message(f"{CC}:d").created == datetime(2026, 3, 2, 10, tzinfo=UTC)
    assert {id for id, parent in parents(logs[0]).items() if parent == f"{CC}:d"} == {f"{CC}:new", f"{CC}:newer"}


def test_a_session_that_continues_one_in_the_log_has_no_root_of_its_own(tmp_path: Path) -> None:
    log = Log()
    log.take(written(tmp_path / "1.jsonl", [line("a", None), line("b", "a")]))

    report = log.take(written(tmp_path / "2.jsonl", [line("c", "b", sessionId="resumed")]))

    assert list(log) == [ROOT, *(f"{CC}:{uuid}" for uuid in "abc")]
    assert (report.messages, report.conversations, report.roots) == (1, 1, 0)
    assert report.current == {ROOT: Leaf(f"{CC}:c", "last_line")}


def test_a_fork_whose_lines_stand_upside_down_is_the_same(tmp_path: Path) -> None:
    forked = rewritten([line("a", None), line("b", "a")], "fork", "s")
    log = Log()

    log.take(written(tmp_path / "a.jsonl", [line("c", "fork-b"), *forked[::-1]]))

    assert parents(log) == {ROOT: None, f"{CC}:a": ROOT, f"{CC}:b": f"{CC}:a", f"{CC}:c": f"{CC}:b"}


def test_a_session_that_continues_a_fork_read_later_is_of_its_conversation(tmp_path: Path) -> None:
    written(tmp_path / "1.jsonl", [line("c", "fork-b", sessionId="s")])
    written(tmp_path / "2.jsonl", rewritten([line("a", None), line("b", "a")], "fork", "s"))
    log = Log()

    report = log.take(tmp_path)

    assert (report.dangling, parents(log)[f"{CC}:c"]) == (0, f"{CC}:b")


def test_forks_that_name_each_other_end(tmp_path: Path) -> None:
    one = {**line("a", None), "forkedFrom": {"sessionId": "t", "messageUuid": "b"}}
    two = {**line("b", None), "forkedFrom": {"sessionId": "s", "messageUuid": "a"}}

    assert Log().take(written(tmp_path / "a.jsonl", [one, two])).messages >= 1


# Where a conversation stands


@pytest.mark.parametrize(
    ("lines", "leaf"),
    [
        ([line("a", None), line("b", "a"), line("c", "a")], "c"),
        ([line("a", None), line("c", "a"), line("b", "a")], "b"),
        ([line("b", "a"), line("a", None)], "b"),
        ([line("a", None), line("b", "a", role="system")], "b"),
        ([line("a", None), line("b", "a"), line("c", "a"), line("d", "b", role="system")], "c"),
        ([line("a", None), line("b", "a"), line("c", "a", isMeta=True)], "b"),
        ([line("a", None), line("b", "a"), line("c", "a", teamName="t")], "b"),
        ([line("a", None, teamName="t"), line("b", "a", teamName="t")], "b"),
        ([line("a", None), line("x", None, isSidechain=True)], "a"),
        ([line("a", None), line("x", "a", isSidechain=True)], "a"),
        ([line("x", None, isSidechain=True)], None),
        ([line("a", None, role="system")], None),
        ([line("a", None), line("b", "a"), line("lost", "nowhere")], "b"),
        ([line("lost", "nowhere")], "lost"),
        ([line("a", None), line("x", "y"), line("y", "x")], "a"),
        ([line("a", None), line("b", "a"), line("c", "a"), line("b", "a")], "b"),
        ([line("a", "d"), boundary("c", "a"), line("d", "c"), line("e", "a")], "e"),
    ],
    ids=[
        "the last end",
        "the last end, not the last id",
        "a child before its parent",
        "an end that is no turn",
        "a late line below an earlier turn",
        "not a hidden one",
        "not a team's",
        "a team's where there is no other",
        "not an agent's",
        "an agent below does not continue",
        "an agent alone",
        "no turn at all",
        "not a dangling one",
        "a dangling one where there is no other",
        "not a circle",
        "a copy counts where it stands last",
        "a circle through a logical parent is open",
    ],
)
def test_a_conversation_stands_at_the_last_end_of_the_main_line(
    lines: list[object], leaf: str | None, tmp_path: Path
) -> None:
    assert stands_at(written(tmp_path / "a.jsonl", lines)) == {"s": leaf}


def test_what_a_later_file_repeats_is_no_news(tmp_path: Path) -> None:
    old = [line("a", None), line("b", "a"), line("c", "a")]
    written(tmp_path / "1.jsonl", [*old, line("d", "c", sessionId="resumed")])
    written(tmp_path / "2.jsonl", [old[0], old[2], old[1]])

    assert stands_at(tmp_path) == {"s": "d"}


def test_a_chain_of_forks_goes_by_the_first_of_them_in_whatever_order_it_is_met(tmp_path: Path) -> None:
    forks = [line(f"f{i}", None, "hi", forkedFrom={"sessionId": "s", "messageUuid": f"f{i - 1}"}) for i in range(1, 5)]
    end = line("end", "f4", "on")

    for lines in ([line("f0", None, "hi"), *forks, end], [end, *forks[::-1], line("f0", None, "hi")]):
        log = Log()
        report = log.take(written(tmp_path / "a.jsonl", lines))
        assert (report.messages, report.duplicates) == (2, 4)
        assert parents(log)[f"{CC}:end"] == f"{CC}:f0"
