"""The command line: what its commands say."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import branchmem as bm
import pytest
from branchmem import importers
from branchmem import selftest as suite
from commands import KEYS, Run
from rich.cells import cell_len

EXPORT = Path(bm.__file__).parent / "demo_data" / "librechat_chatgpt-tree.json"
ROOT = json.loads(EXPORT.read_text())[0]["conversation_id"]


# Files in and out


def test_importing_again_adds_nothing(run: Run) -> None:
    first, again = (run("import", str(EXPORT), "--json").json for _ in range(2))

    assert (first["files"][0]["messages"], first["files"][0]["added"], first["seq"]) == (13, 13, 14)
    assert (again["files"][0]["added"], again["seq"]) == (0, 14)


def test_an_import_says_where_each_conversation_stands(run: Run) -> None:
    said = run("import", str(EXPORT)).out

    assert "13  messages" in said
    assert "…85e269b8 (declared)" in said


def test_deriving_again_adds_nothing(run: Run) -> None:
    run("import", str(EXPORT))

    first, again = (run("derive", "--every", "2", "--json").json for _ in range(2))

    assert first["notes"] == first["added"] == again["notes"] == 6
    assert again["added"] == 0


def test_what_was_exported_imports_as_the_same_state(run: Run) -> None:
    run("import", str(EXPORT))
    run("derive", "--every", "2")
    exported = run("export", "events.jsonl", "--json")

    run("import", "events.jsonl", "--store", "b.bmem")

    assert exported.json == {"file": "events.jsonl", "events": 20}
    assert run("stats", "--json").json["digest"] == run("stats", "--json", "--store", "b.bmem").json["digest"]
    assert run("export", "-").out == run("export").out == Path("events.jsonl").read_text()
    assert [bm.event_from_dict(form).id for form in run("export", "--json").json["events"]][:1] == ["chatgpt:" + ROOT]


# Views and trees


def test_a_view_shows_what_its_branch_said(forked: Run) -> None:
    here, there = forked("view", "u1", "--json").json, forked("view", "u1-edit", "--json").json

    assert [memory["id"] for memory in here["memories"]] == ["home"]
    assert (here["visible"], here["hidden"]) == (1, {"NO_SOURCES": 1})
    assert (there["visible"], there["hidden"]) == (0, {"NO_SOURCES": 1, "SIBLING": 1})


def test_a_view_takes_policy_kind_key_and_limit(forked: Run) -> None:
    def ids(*words: str) -> list[str]:
        return [memory["id"] for memory in forked("view", "u1", "--json", *words).json["memories"]]

    assert ids("--policy", "compat") == ["guess", "home"]
    assert ids("--policy", "compat", "--limit", "1") == ["guess"]
    assert ids("--policy", "compat", "--kind", "guess") == ["guess"]
    assert ids("--policy", "compat", "--key", "home_city") == ["home"]


def test_a_view_with_problems_is_shown_and_then_an_error(forked: Run) -> None:
    lost = forked("view", "u9", "--json")

    assert lost.status == 1
    assert (lost.json["problems"], lost.json["visible"]) == (["UNKNOWN_ANCHOR"], 0)
    assert lost.err.startswith("branchmem: the view cannot stand on u9 (UNKNOWN_ANCHOR)")
    nowhere = forked("view")
    assert (nowhere.status, nowhere.err) == (
        1,
        "branchmem: the view has no anchor (NO_ANCHOR): pass the id of an attached message\n",
    )
    assert forked("view", "--policy", "compat").status == 0


def test_explain_names_the_message_at_fault_and_where_the_branches_part(forked: Run) -> None:
    verdict = forked("explain", "home", "--at", "u1-edit", "--json").json

    assert (verdict["visible"], verdict["reasons"]) == (False, ["SIBLING"])
    assert (verdict["culprits"], verdict["parted"]) == ({"SIBLING": ["u1"]}, {"u1": "chat"})
    assert forked("explain", "home", "--at", "u1-edit").out == (
        "memory home is hidden here\n  - source u1 is on a sibling branch that parts from the path at chat\n"
    )
    assert forked("explain", "home", "--at", "u1").out.startswith("memory home is visible here\n")


def test_an_ellipsis_stands_for_the_only_id_that_ends_so(forked: Run) -> None:
    assert forked("view", "…-edit", "--json").json["anchors"] == ["u1-edit"]
    assert forked("explain", "...ome", "--at", "…edit", "--json").json["id"] == "home"

    several, none = forked("view", "…t"), forked("view", "…nowhere")

    assert (several.status, none.status) == (2, 2)
    assert "2 ids end so, chat and u1-edit among them" in several.err
    assert "no id ends so" in none.err


def test_an_id_without_an_ellipsis_is_never_taken_for_another(forked: Run) -> None:
    assert forked("view", "edit", "--json").json["problems"] == ["UNKNOWN_ANCHOR"]


def test_a_tree_goes_straight_down_its_longest_branch(forked: Run) -> None:
    drawn = forked("tree", "chat").out.splitlines()[1:]

    assert [line.split()[0] for line in drawn] == ["●", "├─○", "●"]
    assert [line.split()[-1] for line in drawn] == ["chat", "u1", "u1-edit"]
    assert max(map(cell_len, drawn)) <= 80
    form = forked("tree", "chat", "--json").json
    assert {message["id"]: message["children"] for message in form["messages"]}["chat"] == ["u1", "u1-edit"]


def test_trees_are_listed_and_what_is_detached_is_counted(forked: Run) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("lost", "nowhere"), bm.Message("x", "y"), bm.Message("y", "x")])

    listed = forked("trees", "--json").json

    assert listed["trees"] == [
        {"root": "chat", "messages": 3, "leaves": 2, "latest_leaf": "u1-edit", "begins": "I'm moving to Chengdu"}
    ]
    assert listed["detached"] == 3
    assert forked("trees").status == 0


@pytest.mark.parametrize("top", ["lost", "x"])
def test_what_is_detached_can_be_drawn(forked: Run, top: str) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("lost", "nowhere"), bm.Message("x", "y"), bm.Message("y", "x")])

    drawn = forked("tree", top)

    assert (drawn.status, drawn.err) == (0, "")
    assert drawn.out.splitlines()[1].split()[-1] == top


def test_a_long_chain_is_drawn_without_recursion(run: Run) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message(f"{n}", f"{n - 1}" if n else None) for n in range(3000)])

    assert len(run("tree", "0").out.splitlines()) == 3001


# The self-test and the demo


def test_the_self_test_prints_its_seed_and_repeats_by_it(run: Run) -> None:
    first = run("selftest", "--trees", "2", "--json")
    again = run("selftest", "--trees", "2", "--seed", str(first.json["seed"]), "--json")

    assert first.status == 0
    assert first.json == again.json
    assert (first.json["trees"], first.json["mismatches"]) == (2, 0)
    assert first.json["decisions"] > 0


def test_a_mismatch_of_the_self_test_is_shown_and_exits_with_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    case = suite.Case("flags", ["a"], [], None, {}, {}, [])
    monkeypatch.setattr(suite, "run", lambda *_: suite.Report(1, 10, 1, 7, cases=(case,)))

    shown = run("selftest")

    assert shown.status == 1
    assert "1 mismatches (seed 7)" in shown.out
    assert json.loads(shown.out.splitlines()[1])["question"] == "flags"


def test_a_full_self_test_counts_each_reason_and_exits_with_1_where_one_is_too_seldom(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {}

    def compare(trees: int, *_: object, **wanted: int) -> suite.Report:
        asked.update(wanted)
        return suite.Report(trees, 300_000, 0, 7, {"SIBLING": 9000, "ERASED": 3}, ("ERASED",))

    monkeypatch.setattr(suite, "run", compare)

    shown = run("selftest", "--full")

    assert asked == {"min_decisions": 300_000, "min_each_reason": 500}
    assert shown.status == 1
    assert shown.out == (
        "400 trees, 300,000 verdicts compared, 0 mismatches (seed 7)\n"
        "verdicts with each reason\n      9,000  SIBLING\n          3  ERASED\n"
        "fewer than asked for: ERASED\n"
    )


def test_the_demo_switches_back_to_the_same_memories_and_writes_nothing(run: Run) -> None:
    told = run("demo", "--json").json

    assert told["here"] == told["again"]
    assert told["seq_before"] == told["seq_after"]
    assert told["verdict"]["reasons"] == ["SIBLING"]
    assert told["verdict"]["id"] in [memory["id"] for memory in told["there"]["memories"]]
    assert told["verdict"]["id"] not in [memory["id"] for memory in told["here"]["memories"]]


def test_the_demo_fits_80_columns_and_needs_no_network(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", None)

    told = run("demo")

    assert told.status == 0
    assert [line for line in told.out.splitlines() if cell_len(line) > 80] == []
    assert "the same memories as before" in told.out
    assert os.listdir() == []


# Forms and names


@pytest.mark.parametrize("command", KEYS)
def test_json_is_one_document_with_stable_keys(forked: Run, command: str) -> None:
    ran = forked(*command.split(), "--json")

    assert (ran.status, ran.err) == (0, "")
    assert ran.json.keys() == KEYS[command]


def test_check_lists_what_is_missing_or_odd_and_damage_is_exit_status_1(
    forked: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message(f"lost{n}", "nowhere") for n in range(12)])
        store.append([bm.Message("x", "y"), bm.Message("y", "x"), bm.Memory("m", "text", sources=["gone"])])

    odd = forked("check")

    assert odd.status == 0
    assert "12 orphans, 1 circles of parents, 1 events with dangling references" in odd.out
    assert "  lost0 below nowhere\n" in odd.out
    assert "  and 2 more: --json lists them\n" in odd.out
    assert "  m from gone\n" in odd.out

    sound = bm.Store.check
    monkeypatch.setattr(bm.Store, "check", lambda store: replace(sound(store), damage=("seq 3: checksum",)))

    assert forked("check").status == forked("check", "--json").status == 1
    assert "damage\n  seq 3: checksum\n" in forked("check").out


def test_a_backup_is_a_store_with_the_same_digest(forked: Run) -> None:
    told = forked("backup", "copy.bmem", "--json")

    assert told.json == {
        "store": "a.bmem",
        "file": str(Path("copy.bmem").absolute()),
        "bytes": Path("copy.bmem").stat().st_size,
    }
    assert forked("stats", "--json", "--store", "copy.bmem").json["digest"] == forked("stats", "--json").json["digest"]
    assert forked("backup", "other.bmem").out.endswith("other.bmem\n")


def test_compacting_makes_the_file_smaller_and_changes_no_answer(forked: Run) -> None:
    with bm.open("a.bmem") as store:
        for number in range(20):
            store.append([bm.Message(f"m{number}", "chat", text="x" * 500)])
    before = forked("stats", "--json").json

    told = forked("compact", "--json").json

    after = forked("stats", "--json").json
    assert (told["bytes_before"], told["bytes_after"]) == (before["bytes"], after["bytes"])
    assert told["bytes_after"] < told["bytes_before"]
    assert {**before, "bytes": 0} == {**after, "bytes": 0}
    assert " bytes before, " in forked("compact").out


def test_help_is_there_for_every_command(run: Run) -> None:
    listed = run().out
    assert listed == run("--help").out == run("-h").out
    for command in (
        "import",
        "export",
        "trees",
        "tree",
        "view",
        "explain",
        "derive",
        "search",
        "recall",
        "why",
        "skills",
        "decay",
        "embed",
        "retract",
        "restore",
        "correct",
        "supersede",
        "erase",
        "check",
        "stats",
        "backup",
        "compact",
        "salvage",
        "log",
        "fork",
        "switch",
        "diff",
        "adopt",
        "merge",
        "selftest",
        "demo",
    ):
        assert command in listed
        asked = run(command, "--help")
        assert asked.status == 0
        assert "--json" in asked.out
    assert run("--version").out == f"branchmem {bm.__version__}\n"


@pytest.mark.parametrize(
    ("group", "commands"),
    [
        ("refs", "list create move delete undo unreachable"),
        ("worktree", "status diff merge delete"),
        ("bundle", "export preview import inspect held drop"),
        ("key", "list make show pin unpin"),
    ],
)
def test_help_is_there_for_every_command_of_a_group(run: Run, group: str, commands: str) -> None:
    assert group in run("--help").out
    for command in commands.split():
        assert command in run(group, "-h").out
        asked = run(group, command, "-h")
        assert asked.status == 0
        assert "--json" in asked.out
        assert "[[" not in asked.out


def test_an_archive_is_imported_as_its_file_is(run: Run, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.write(EXPORT, "deep/conversations.json")
        archive.writestr("user.json", "{}")

    (of_archive,) = run("import", str(tmp_path / "export.zip"), "--json").json["files"]

    (of_file,) = run("import", str(EXPORT), "--json", "--store", "b.bmem").json["files"]
    assert of_archive == {**of_file, "file": str(tmp_path / "export.zip"), "unknown_types": 1}


def test_the_password_of_a_url_is_never_said(run: Run) -> None:
    refused = run("import", "postgresql://ann:s3cret@127.0.0.1:1/threads")

    assert refused.status == 1
    assert "s3cret" not in refused.out + refused.err


def test_the_formats_are_those_of_the_importers(run: Run) -> None:
    assert ", ".join(importers.FORMATS) in " ".join(run("import", "-h").out.replace("│", " ").split())
    refused = run("import", str(EXPORT), "--format", "carrier-pigeon")
    assert refused.status == 2
    assert all(name in refused.err for name in importers.FORMATS)


def test_the_installed_command_is_this_one() -> None:
    command = shutil.which("branchmem", path=str(Path(sys.executable).parent))

    assert command
    assert subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.startswith(
        "branchmem"
    )
