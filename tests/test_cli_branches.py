"""The command line: refs and their moves, what two branches have each, what one takes over from another."""

from __future__ import annotations

import os
from pathlib import Path

import branchmem as bm
import pytest
from commands import Run
from rich.cells import cell_len

LONG = "project-1a2b3c4d/feature/" + "long-name-" * 20


@pytest.fixture
def named(forked: Run) -> Run:
    """The conversation of the README, with a ref at each of its branches."""
    with bm.open("a.bmem") as store:
        store.refs.create("main", "u1")
        store.refs.create("other", "u1-edit")
    return forked


def heads(run: Run) -> dict[str, str]:
    found: dict[str, str] = run("refs", "--json").json["refs"]
    return found


# Refs


def test_refs_are_made_moved_deleted_and_brought_back(forked: Run) -> None:
    made = forked("refs", "create", "main", "…1", "--json").json
    assert (made["name"], made["number"], made["before"], made["after"]) == ("main", 1, None, "u1")

    assert forked("refs", "move", "main", "u1-edit").out == "main stands at u1-edit, before at u1\n"
    assert forked("refs", "delete", "main").out == "main is deleted; it stood at u1-edit\n"
    assert heads(forked) == {}
    assert forked("refs", "undo", "main").out == "main stands at u1-edit\n"
    assert forked("refs", "undo", "main", "2", "--json").json["after"] == "u1"
    assert heads(forked) == {"main": "u1"}
    assert forked("refs", "undo", "main", "1").out == "main is deleted; it stood at u1\n"
    assert forked("refs", "undo", "main", "1").out == "main was deleted before\n"


def test_refs_without_a_word_lists_them_and_takes_the_options_of_list(named: Run) -> None:
    assert named("refs").out == named("refs", "list").out
    assert named("refs").out == "main   u1          I'm moving to Chengdu\nother  u1-edit     I'm moving to Hangzhou\n"
    assert named("refs", "--store", "b.bmem").status == 1
    assert "create" in named("refs", "--help").out
    assert named("refs", "nonsense").status == 2


@pytest.mark.parametrize("group", ["bundle", "worktree"])
def test_a_group_that_lists_nothing_explains_itself(run: Run, group: str) -> None:
    explained = run(group)

    assert (explained.status, explained.err) == (0, "")
    assert explained.out == run(group, "--help").out


def test_without_refs_the_list_says_how_to_make_one(forked: Run) -> None:
    assert "branchmem refs create NAME MESSAGE" in forked("refs").out
    assert heads(forked) == {}


def test_an_expected_place_keeps_a_ref_from_being_moved_off_another(named: Run) -> None:
    refused = named("refs", "move", "main", "chat", "--expected", "u1-edit")

    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert heads(named)["main"] == "u1"
    assert named("refs", "move", "main", "chat", "--expected", "…1").status == 0


def test_a_move_writes_no_event(named: Run) -> None:
    before = named("stats", "--json").json

    named("switch", "main", "chat")
    named("fork", "try", "--from", "main")
    named("refs", "delete", "main")

    after = named("stats", "--json").json
    assert (after["events"], after["digest"]) == (before["events"], before["digest"])


def test_the_log_numbers_the_moves_of_a_ref_or_of_all_with_the_deleted_ones(named: Run) -> None:
    named("switch", "main", "chat")
    named("refs", "delete", "main")

    moves = named("log", "main", "--json").json["moves"]

    assert [(move["number"], move["before"], move["after"]) for move in moves] == [
        (1, None, "u1"),
        (2, "u1", "chat"),
        (3, "chat", None),
    ]
    assert {move["name"] for move in named("log", "--json").json["moves"]} == {"main", "other"}
    printed = named("log").out.splitlines()
    assert [line for line in printed if not line.startswith(" ")] == ["main", "other"]
    assert printed[3].split()[:5] == ["3", "delete", "chat", "→", "nothing"]


def test_a_fork_stands_where_its_origin_stands(named: Run) -> None:
    assert named("fork", "try", "--from", "main").out == "try stands at u1\n"
    assert heads(named)["try"] == "u1"


def test_switching_says_how_much_is_visible_there(named: Run) -> None:
    said = named("switch", "main", "…edit")

    assert said.out == "main stands at u1-edit\n0 of 2 memories are visible at u1-edit (seq 5)\n"
    assert named("switch", "main", "u1", "--json").json["visible"] == 1


def test_switching_to_what_is_not_attached_is_refused(named: Run) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("lost", "nowhere")])

    refused = named("switch", "main", "lost")

    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert heads(named)["main"] == "u1"


def test_what_no_ref_leads_to_is_listed(named: Run) -> None:
    named("refs", "delete", "main")

    assert named("refs", "unreachable", "--json").json == {"messages": ["u1"], "memories": ["home", "guess"]}
    assert named("refs", "unreachable").out.splitlines()[1:] == ["messages", "  u1", "memories", "  home", "  guess"]


def test_views_and_explanations_stand_where_a_ref_does(named: Run) -> None:
    assert named("view", "--ref", "main").out == named("view", "u1").out
    assert named("explain", "home", "--ref", "other").out == named("explain", "home", "--at", "u1-edit").out
    refused = named("view", "u1", "--ref", "other")
    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert "lie in one tree" in refused.err


# What every command keeps to

READING = ["refs", "refs list", "refs unreachable", "log", "log main"]
CHANGING = [
    *("refs create new u1", "refs move main chat", "refs delete main", "refs undo main"),
    *("fork new --from main", "switch main chat"),
]


@pytest.mark.parametrize("command", READING + CHANGING)
def test_no_command_on_branches_makes_a_store(run: Run, command: str) -> None:
    refused = run(*command.split())

    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "there is no store here" in refused.err
    assert os.listdir() == []


@pytest.mark.parametrize("command", READING)
def test_reading_refs_changes_no_file(named: Run, command: str) -> None:
    before = Path("a.bmem").read_bytes()

    assert named(*command.split()).status == 0

    assert Path("a.bmem").read_bytes() == before


@pytest.mark.parametrize("command", READING + CHANGING)
@pytest.mark.parametrize("name", ["main", LONG])
def test_lines_about_refs_fit_80_columns(named: Run, command: str, name: str) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("根" * 40, "u1", role="user", text="很" * 100)])
        store.refs.create(LONG, "根" * 40)

    printed = named(*(name if word == "main" else word for word in command.split()))

    assert (printed.status, printed.err) == (0, "")
    assert [line for line in printed.out.splitlines() if cell_len(line) > 80] == []


@pytest.mark.parametrize("command", READING + CHANGING)
def test_each_command_on_refs_has_json(named: Run, command: str) -> None:
    assert isinstance(named(*command.split(), "--json").json, dict)


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("refs create main u1", 1, "ref 'main' is there already, at u1"),
        ("refs create new nope", 1, "no message nope in the log"),
        ("refs create new home", 1, "no message home in the log"),
        ("refs move new u1", 1, "there is no ref 'new'"),
        ("refs delete new", 1, "there is no ref 'new'"),
        ("refs undo main 9", 1, "move 9"),
        ("refs undo main 0", 2, "NUMBER"),
        ("refs create new", 2, "MESSAGE"),
        ("refs create new …nope", 2, "no id ends so"),
        ("log new", 1, "there is no ref 'new'"),
        ("fork new", 2, "--from"),
        ("fork new --from u1", 1, "there is no ref 'u1'"),
        ("fork main --from other", 1, "is there already"),
        ("switch main", 2, "MESSAGE"),
        ("switch main nope", 1, "no message nope"),
    ],
)
def test_what_is_refused_is_one_line_and_nothing_moves(named: Run, command: str, status: int, said: str) -> None:
    before = named("log", "--json").json

    refused = named(*command.split())

    assert (refused.status, refused.out, refused.err.count("\n")) == (status, "", 1)
    assert said in refused.err
    assert named("log", "--json").json == before


def test_a_name_that_would_act_on_the_terminal_is_refused_without_acting_on_it(named: Run) -> None:
    refused = named("refs", "create", "\x1b[31mred", "u1")

    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert refused.err[:-1].isprintable()


# What two branches have, and what one takes over


@pytest.fixture
def rivals(named: Run) -> Run:
    """Both branches remember a home city, and one of them something else."""
    with bm.open("a.bmem") as store:
        store.append(
            [
                bm.Memory("home-edit", "The user is moving to Hangzhou", sources=["u1-edit"], key="home_city"),
                bm.Memory("tea", "The user drinks tea", sources=["u1-edit"]),
            ]
        )
    return named


def seen(run: Run, ref: str) -> set[str]:
    return {memory["text"] for memory in run("view", "--ref", ref, "--json").json["memories"]}


def test_a_difference_lists_what_each_side_alone_remembers(rivals: Run) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Memory("hello", "A greeting", sources=["chat"])])

    printed = rivals("diff", "main", "other")

    assert printed.out == (
        "main and other part at chat\n"
        "1 memory at both\n"
        "\nmain, 1 message on: 1 memory of its own\n"
        "  home        fact home_city  The user is moving to Chengdu\n"
        "\nother, 1 message on: 2 memories of its own\n"
        "  home-edit   fact home_city  The user is moving to Hangzhou\n"
        "  tea         fact     The user drinks tea\n"
    )
    form = rivals("diff", "main", "…edit", "--json").json
    assert (form["ancestor"], form["only_a"], form["both"]) == ("chat", ["home"], ["hello"])
    assert form["only_b"] == ["home-edit", "tea"]


def test_what_derives_from_a_ref_beside_is_compared_and_merged_where_it_is_named(rivals: Run) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("me", None), bm.Memory("tabs", "Prefers tabs", sources=["me"])])
        store.refs.create("profile", "me")
        store.append([bm.Memory("cups", "Brews tea with tabs", sources=["u1-edit"], derived_from=["tabs"])])

    assert rivals("diff", "main", "other", "--json").json["only_b"] == ["home-edit", "tea"]
    seen_beside = rivals("diff", "main", "other", "--beside", "profile", "--json").json
    assert seen_beside["only_b"] == ["home-edit", "tea", "cups"]
    merging = "merge", "other", "--into", "main", "--strategy", "both", "--json"
    assert "cups" not in rivals(*merging, "--dry-run").json["adopted"]
    assert "cups" in rivals(*merging, "--beside", "profile").json["adopted"]

    refused = rivals("diff", "main", "other", "--beside", "nowhere")
    assert (refused.status, "nowhere" in refused.err) == (1, True)
    refused = rivals("merge", "other", "--into", "main", "--beside", "main")
    assert (refused.status, "Traceback" in refused.err) == (1, False)


def test_adopting_takes_over_once_and_says_what_is_left_out(rivals: Run) -> None:
    tried = rivals("adopt", "tea", "home-edit", "--into", "main", "--dry-run", "--json").json
    done = rivals("adopt", "tea", "home-edit", "--into", "main", "--json").json

    assert set(done["adopted"]) == set(tried["adopted"]) == {"tea", "home-edit"}
    assert (tried["dry_run"], done["dry_run"]) == (True, False)
    assert "The user drinks tea" in seen(rivals, "main")
    again = rivals("adopt", "…ea", "--into", "main")
    assert again.out.splitlines()[0].startswith("main stays at ")
    assert "leaves out    tea: " in again.out


def test_a_merge_that_only_moves_the_ref_is_a_fast_forward(named: Run) -> None:
    named("refs", "create", "base", "chat")

    assert named("merge", "main", "--into", "base", "--dry-run").out.startswith(
        "base would stand at u1, before at chat, fast forward\n"
    )
    assert heads(named)["base"] == "chat"
    assert named("merge", "main", "--into", "base", "--json").json["fast_forward"] is True
    assert heads(named)["base"] == "u1"
    assert named("merge", "main", "--into", "base").out.startswith("base stays at u1: there is nothing to take over\n")


@pytest.mark.parametrize("tried", [(), ("--dry-run",)])
def test_a_conflict_is_shown_with_all_sides_and_refused_and_nothing_is_written(
    rivals: Run, tried: tuple[str, ...]
) -> None:
    before = rivals("stats", "--json").json["digest"], heads(rivals)

    refused = rivals("merge", "other", "--into", "main", *tried)

    assert refused.out == (
        "conflict 1 about home_city\n"
        "  base          none\n"
        "  ours          home  fact home_city\n"
        "                The user is moving to Chengdu\n"
        "  theirs        home-edit  fact home_city\n"
        "                The user is moving to Hangzhou\n"
    )
    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert refused.err.startswith("branchmem: 1 conflict on 'main'")
    assert "nothing was written" in refused.err
    form = rivals("merge", "other", "--into", "main", *tried, "--json")
    assert form.status == 1
    assert [(each["ours"]["id"], each["theirs"]["id"]) for each in form.json["conflicts"]] == [("home", "home-edit")]
    assert (rivals("stats", "--json").json["digest"], heads(rivals)) == before


@pytest.mark.parametrize(
    ("strategy", "left"),
    [
        ("ours", {"The user is moving to Chengdu"}),
        ("theirs", {"The user is moving to Hangzhou"}),
        ("both", {"The user is moving to Chengdu", "The user is moving to Hangzhou"}),
    ],
)
def test_a_strategy_decides_a_conflict_and_merging_twice_changes_nothing(
    rivals: Run, strategy: str, left: set[str]
) -> None:
    command = ("merge", "other", "--into", "main", "--strategy", strategy)

    tried = rivals(*command, "--dry-run", "--json").json
    done = rivals(*command, "--json").json

    assert seen(rivals, "main") == {*left, "The user drinks tea"}
    assert (tried["after"], tried["adopted"]) == (done["after"], done["adopted"])
    assert heads(rivals)["main"] == done["after"]
    assert rivals(*command).out.splitlines()[0].endswith("there is nothing to take over")


def test_a_strategy_that_does_not_decide_is_refused_as_fail_is(rivals: Run) -> None:
    undated = rivals("merge", "other", "--into", "main", "--strategy", "newer")

    assert (undated.status, undated.err.count("\n")) == (1, 1)
    assert undated.out.startswith("conflict 1 about home_city\n")


@pytest.mark.parametrize("strategy", ["ours", "theirs", "both"])
def test_what_a_merge_prints_fits_80_columns(rivals: Run, strategy: str) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Memory(f"{n}" + "很" * 60, "x" * 300, sources=["u1-edit"]) for n in range(20)])
        store.append([bm.Memory(f"{name}-said", name, sources=[name], key="k" * 200) for name in ("u1", "u1-edit")])
        store.refs.create(LONG, "u1")

    for command in (f"diff {LONG} other", f"merge other --into {LONG} --strategy {strategy}"):
        printed = rivals(*command.split())

        assert (printed.status, printed.err) == (0, "")
        assert [line for line in printed.out.splitlines() if cell_len(line) > 80] == []


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("diff main nowhere", 1, "'nowhere'"),
        ("diff main", 2, "B"),
        ("adopt tea --into nowhere", 1, "there is no ref 'nowhere'"),
        ("adopt nope --into main", 1, "nope"),
        ("adopt u1 --into main", 1, "u1"),
        ("adopt tea", 2, "--into"),
        ("merge other --into u1", 1, "there is no ref 'u1'"),
        ("merge nowhere --into main", 1, "nowhere"),
        ("merge other", 2, "--into"),
        ("merge other --into main --strategy mine", 2, "mine"),
    ],
)
def test_what_cannot_be_taken_over_is_one_line_and_nothing_is_written(
    rivals: Run, command: str, status: int, said: str
) -> None:
    before = rivals("stats", "--json").json["digest"]

    refused = rivals(*command.split())

    assert (refused.status, refused.out, refused.err.count("\n")) == (status, "", 1)
    assert said in refused.err
    assert rivals("stats", "--json").json["digest"] == before


HOSTILE = "\x1b]0;owned\x07\x1b[31m[bold]red[/bold]\x9b1m\u202egnp\u2028 end"


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    "words",
    [
        ("refs",),
        ("refs", "unreachable"),
        ("log",),
        ("diff", "one", "two"),
        ("adopt", f"b{HOSTILE}", "--into", "one"),
        ("merge", "two", "--into", "one"),
        ("merge", "two", "--into", "one", "--strategy", "both"),
        ("merge", "two", "--into", "one", "--strategy", "theirs", "--dry-run"),
        ("switch", "one", f"2{HOSTILE}"),
        ("fork", "three", "--from", HOSTILE),
        ("diff", "one", HOSTILE),
    ],
    ids=" ".join,
)
def test_nothing_out_of_a_store_acts_on_the_terminal(run: Run, words: tuple[str, ...], form: tuple[str, ...]) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("top", None, text=HOSTILE)])
        for name, side in (("one", "1"), ("two", "2"), ("none", "3")):
            store.append([bm.Message(side + HOSTILE, "top", role=HOSTILE, text=HOSTILE)])
            store.refs.create(name, side + HOSTILE)
        store.refs.delete("none")
        for id, side in (("a", "1"), ("b", "2"), ("c", "3")):
            text = f"{id}{HOSTILE}\n{HOSTILE}"
            store.append([bm.Memory(id + HOSTILE, text, sources=[side + HOSTILE], kind=HOSTILE, key=HOSTILE)])

    ran = run(*words, *form)

    printed = (ran.out + ran.err).replace("\n", "")
    assert printed
    assert [letter for letter in printed if not letter.isprintable()] == []
    assert form or [line for line in ran.out.splitlines() if cell_len(line) > 80] == []
