"""The command line: its verbs, how they are tried and asked about, and what they print."""

from __future__ import annotations

import io
import json
import sys
from itertools import pairwise
from pathlib import Path

import branchmem as bm
import pytest
from branchmem.events import Retraction
from commands import Run
from rich.cells import cell_len

SECRET = "Chengdu"
# Each verb with what it needs; ids of the conversation of the README.
VERBS = {
    "retract": ("retract", "home", "--at", "u1", "--scope", "branch", "--reason", SECRET, "--id", "r"),
    "restore": ("restore", "r0", "--at", "u1", "--scope", "tree", "--id", "s"),
    "correct": ("correct", "u1", "--at", "u1", "--text", SECRET, "--reason", SECRET, "--id", "r"),
    "supersede": ("supersede", "home", "--text", SECRET, "--source", "u1", "--key", "home_city", "--id", "home2"),
    "erase": ("erase", "u1", "--yes", "--id", "e"),
}


@pytest.fixture
def talked(forked: Run) -> Run:
    """The conversation of the README, with a retraction r0 of `guess`."""
    with bm.open("a.bmem") as store:
        store.retract(["guess"], at="u1", scope="tree", id="r0", reason="It was a joke")
    return forked


def visible(run: Run, anchor: str) -> list[str]:
    return [memory["id"] for memory in run("view", anchor, "--json").json["memories"]]


def test_retracting_and_restoring_say_what_they_hide_and_show(talked: Run) -> None:
    done = talked("retract", "home", "--at", "u1", "--scope", "branch", "--id", "r", "--json").json

    assert (done["hidden"], done["shown"], done["added"], done["dry_run"]) == (["home"], [], 1, False)
    assert done["events"] == [{"type": "retraction", "id": "r", "at": "u1", "scope": "branch", "memories": ["home"]}]
    assert visible(talked, "u1") == []

    back = talked("restore", "r", "--at", "u1", "--scope", "branch", "--json").json

    assert back["shown"] == ["home"]
    assert visible(talked, "u1") == ["home"]


def test_retract_takes_sources_keys_standing_and_revert(talked: Run) -> None:
    talked("supersede", "home", "--text", "Hangzhou", "--source", "u1", "--id", "home2")

    reverted = talked("retract", "home2", "--revert", "--at", "u1", "--scope", "tree", "--json").json
    (event,) = talked(
        *("retract", "--source", "u1", "--source", "u1-edit", "--key", "home_city", "--standing"),
        *("--at", "u1", "--scope", "everywhere", "--json"),
    ).json["events"]

    assert (reverted["hidden"], reverted["shown"]) == (["home2"], ["home"])
    assert (event["sources"], event["keys"], event["standing"]) == (["u1", "u1-edit"], ["home_city"], True)


def test_a_correction_comes_from_where_it_was_said_unless_a_source_is_named(talked: Run) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("u2", "u1")])

    done = talked(
        *("correct", "u1", "--at", "u2", "--text", "Hangzhou", "--memory-id", "home2", "--key", "home_city"),
        *("--kind", "profile", "--id", "r", "--json"),
    ).json

    assert [(event["type"], event["id"]) for event in done["events"]] == [("retraction", "r"), ("memory", "home2")]
    assert done["events"][0]["scope"] == "branch"
    assert (done["hidden"], done["shown"]) == (["home"], ["home2"])
    with bm.open("a.bmem") as store:
        expected = bm.Memory("home2", "Hangzhou", sources=["u2"], kind="profile", key="home_city")
        assert store.log.get("home2") == expected
    covered = talked("correct", "u1", "--at", "u2", "--text", "x", "--source", "u1", "--memory-id", "m", "--json").json
    assert list(covered["born_covered"]) == list(covered["born_hidden"]) == ["m"]
    hidden = talked("supersede", "home2", "--text", "x", "--source", "u2", "--source", "u3", "--id", "home3")
    assert hidden.out == (
        "wrote memory home3\n  at u2         nothing changes\n"
        "  born hidden   home3: source u3 is not a message of the log\n"
    )


def test_erasing_says_what_goes_and_what_stays(talked: Run) -> None:
    done = talked("erase", "u1", "gone", "--yes", "--at", "u1", "--json").json

    assert (done["messages"], done["derived"], done["absent"]) == (["u1"], ["home"], ["gone"])
    assert (done["hidden"], done["bodies"], done["keys"]) == (["home"], 2, ["home_city"])
    assert done["remains"] == "in free pages until compact"
    assert SECRET not in talked("export").out
    assert "(erased)" in talked("tree", "chat").out


def test_without_cascade_only_what_is_named_is_erased(talked: Run) -> None:
    assert talked("erase", "u1", "--no-cascade", "--yes", "--json").json["derived"] == []
    assert visible(talked, "u1") == ["home"]


# Trying


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_says_the_same_and_changes_no_file(talked: Run, verb: str) -> None:
    memory_id = ("--memory-id", "home2") if verb == "correct" else ()
    before = Path("a.bmem").read_bytes()

    tried = talked(*VERBS[verb], *memory_id, "--dry-run", "--json")

    assert (tried.status, tried.err) == (0, "")
    assert Path("a.bmem").read_bytes() == before
    done = talked(*VERBS[verb], *memory_id, "--json").json
    assert tried.json["elsewhere"]["leaves"] in (1, 2)
    changed = {"dry_run": True, "added": 0, "elsewhere": tried.json["elsewhere"]}
    assert tried.json == {**done, **changed}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("tried", [True, False])
def test_verbs_print_ids_and_counts_in_80_columns_and_never_a_text(talked: Run, verb: str, tried: bool) -> None:
    ran = talked(*VERBS[verb], *(["--dry-run"] if tried else []))

    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("would write " if tried else "wrote ")
    assert SECRET not in ran.out
    assert [line for line in ran.out.splitlines() if cell_len(line) > 80] == []


def test_what_is_there_already_is_said_of_a_dry_run_too(talked: Run) -> None:
    again = ("retract", "home", "--at", "u1", "--scope", "tree", "--id", "again")
    talked(*again)

    for words in (again, (*again, "--dry-run")):
        assert talked(*words).out.startswith("there already: retraction again at u1")
        assert talked(*words, "--json").json["known"]


def test_what_a_verb_prints(talked: Run) -> None:
    assert talked("retract", "home", "--at", "u1", "--scope", "tree", "--id", "r", "--dry-run").out == (
        "would write retraction r at u1, scope tree\n"
        "  at u1         hides home\n"
        "  elsewhere     nothing changes at 1 leaf\n"
    )
    assert talked("retract", "home", "--at", "u1-edit", "--scope", "tree", "--id", "r", "--dry-run").out == (
        "would write retraction r at u1-edit, scope tree\n"
        "  at u1-edit    nothing changes\n"
        "  elsewhere     1 of 1 leaf changes\n"
        "                hides home at 1\n"
    )
    assert talked("correct", "u1", "--at", "u1", "--text", "x", "--memory-id", "m", "--id", "r").out == (
        "wrote retraction r at u1, scope branch\nwrote memory m\n  at u1         hides home\n  born covered  m, by r\n"
    )
    assert talked("erase", "u1", "gone", "--yes", "--id", "e").out == (
        "wrote erasure e\n"
        "  messages      u1\n"
        "  derived       home, m\n"
        "  not here yet  gone\n"
        "  contents      3, in free pages until compact\n"
        "  still there   4 ids; keys home_city\n"
    )
    assert talked("erase", "u1", "--yes", "--id", "e2").out.splitlines()[2:4] == [
        "  gone before   u1",
        "  contents      0, in free pages until compact",
    ]


# Asking before it is for good


def test_an_erasure_that_nobody_can_be_asked_about_is_wrong_usage(talked: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))

    refused = talked("erase", "u1")

    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "--dry-run" in refused.err
    assert "--yes" in refused.err
    assert visible(talked, "u1") == ["home"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("said", ["n\n", "\n", "", "y\xe9s\n"])
def test_who_does_not_say_yes_erases_nothing(talked: Run, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(said))

    kept = talked("erase", "u1", "--json")

    assert (kept.status, kept.out) == (1, "")
    assert "would write erasure" in kept.err
    assert "derived       home" in kept.err
    assert kept.err.endswith("branchmem: nothing was erased\n")
    assert visible(talked, "u1") == ["home"]


@pytest.mark.parametrize(("ended", "status"), [(EOFError, 1), (KeyboardInterrupt, 130)])
def test_who_leaves_the_question_open_erases_nothing_and_goes_on_in_a_new_line(
    talked: Run, monkeypatch: pytest.MonkeyPatch, ended: type[BaseException], status: int
) -> None:
    class Left(Terminal):
        def readline(self, *_: object) -> str:  # type: ignore[override]
            if ended is EOFError:  # as files say it
                return ""
            raise ended

    monkeypatch.setattr(sys, "stdin", Left())

    kept = talked("erase", "u1")

    assert (kept.status, kept.out) == (status, "")
    assert "Erase for good? [y/N] \n" in kept.err
    assert visible(talked, "u1") == ["home"]


def test_who_says_yes_has_been_shown_what_goes(talked: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))

    done = talked("erase", "u1", "--id", "e", "--json")

    assert done.status == 0
    assert "would write erasure e" in done.err
    assert done.json["derived"] == ["home"]
    assert visible(talked, "u1") == []


# Reasons


def test_explain_names_the_retraction_and_its_place_and_its_reason_only_when_asked(talked: Run) -> None:
    plain, asked = talked("explain", "guess", "--at", "u1"), talked("explain", "guess", "--at", "u1", "--reasons")

    assert "  - retraction r0 (scope tree, at u1) is in effect here\n" in plain.out
    assert "joke" not in plain.out
    assert asked.out == plain.out + "  - why r0: It was a joke\n"
    form = talked("explain", "guess", "--at", "u1", "--json").json
    assert form["retractions"] == {"r0": {"at": "u1", "scope": "tree", "lifted": []}}
    assert "joke" not in json.dumps(form)
    assert talked("explain", "guess", "--at", "u1", "--reasons", "--json").json["retraction_reasons"] == {
        "r0": "It was a joke"
    }


def test_explain_names_what_lifts_a_retraction_elsewhere_what_replaces_and_what_is_superseded_upstream(
    talked: Run,
) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("u2", "u1"), bm.Memory("trip", "A flight", sources=["u1"], derived_from=["home"])])
    talked("restore", "r0", "--at", "u2", "--scope", "branch", "--id", "s0")
    talked("supersede", "home", "--text", "Hangzhou", "--source", "u2", "--id", "home2")

    assert (
        "  - restoration s0 (scope branch, at u2) lifts it elsewhere\n" in talked("explain", "guess", "--at", "u1").out
    )
    assert "  - memory home2 replaces it here\n" in talked("explain", "home", "--at", "u2").out
    warned = talked("explain", "trip", "--at", "u2")
    assert warned.out.startswith("memory trip is visible here\n")
    assert "  - warning: upstream memory home is superseded here\n" in warned.out
    form = talked("explain", "trip", "--at", "u2", "--json").json
    assert (form["visible"], form["superseded_upstream"]) == (True, ["home"])


def test_an_id_that_reads_like_a_sentence_stays_inside_its_own(talked: Run) -> None:
    odd = "u1; it is shown"
    with bm.open("a.bmem") as store:
        store.append([bm.Message("lies below the anchor", "u1"), bm.Message("x; y", "u1")])
        store.append([bm.Memory("is in effect here", "", sources=["lies below the anchor", "x; y"])])
        store.append([Retraction(odd, "u1", scope="tree", memories=["is in effect here"])])

    assert talked("explain", "is in effect here", "--at", "u1").out == (
        "memory …ect here is hidden here\n"
        "  - source …e anchor lies below the anchor\n"
        "  - source x; y lies below the anchor\n"
        "  - retraction …is shown (scope tree, at u1) is in effect here\n"
    )


def test_check_cuts_long_lists_of_ids(talked: Run) -> None:
    with bm.open("a.bmem") as store:
        store.append([Retraction("r1", "u1", scope="tree", memories=[f"never{n}" for n in range(1000)])])
        store.append([bm.Message(f"c{n}", f"c{(n + 1) % 50}") for n in range(50)])
        store.append([bm.Memory(f"m{n}", "", sources=["u1"], supersedes=[f"m{(n + 1) % 50}"]) for n in range(50)])

    said = talked("check").out

    assert "and 990 more\n" in said
    assert said.count("and 40 more\n") == 2
    assert max(map(len, said.splitlines()[1:])) < 200


def test_check_lists_what_has_no_place_and_what_replaces_each_other(talked: Run) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("lost", "nowhere"), Retraction("r1", "lost", scope="tree", memories=["never"])])
        store.append([bm.Memory(id, "", sources=["u1"], supersedes=[other]) for id, other in ("ab", "ba")])

    said = talked("check").out

    assert "events that refer to what is not in the log\n  r1 from never\n" in said
    assert "retractions and restorations whose place cannot be judged\n  r1\n" in said
    assert "memories that replace each other\n  a ↔ b\n" in said


# Names and refusals


@pytest.mark.parametrize("verb", VERBS)
def test_an_empty_id_is_refused_and_none_made_up_instead(talked: Run, verb: str) -> None:
    refused = talked(*VERBS[verb][:-1], "", "--dry-run")

    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "id must be 1 to 256 bytes" in refused.err


@pytest.mark.parametrize("verb", [*VERBS, "derive", "salvage", "export"])
def test_help_breaks_lines_where_the_terminal_ends(run: Run, verb: str) -> None:
    said, *_ = run(verb, "--help").out.partition("╭")
    lines = [line.strip() for line in said.splitlines()]

    assert "[[" not in said
    for line, following in pairwise(lines):
        if line and following:
            assert len(f"{line} {following.split()[0]}") > 78, line


def test_an_ellipsis_stands_for_ids_of_what_is_changed(talked: Run) -> None:
    assert talked("restore", "…r1", "--at", "u1", "--scope", "tree", "--dry-run").status == 2
    assert talked("restore", "…0", "--at", "…1", "--scope", "tree", "--json").json["anchors"] == ["u1"]
    (event,) = talked("retract", "…ome", "--at", "...edit", "--scope", "tree", "--json").json["events"]
    assert (event["memories"], event["at"]) == (["home"], "u1-edit")


@pytest.mark.parametrize(
    "command",
    [
        *("retract home --at u1", "retract home --scope tree", "retract home --at u1 --scope here"),
        *("retract --at u1 --scope tree", "restore r0 --at u1", "restore --at u1 --scope tree"),
        *("correct u1 --at u1", "correct --at u1 --text x", "supersede home --text x"),
        *("supersede --text x --source u1", "erase", "erase --yes", "retract …no --at u1 --scope tree"),
    ],
)
def test_wrong_usage_of_a_verb_is_one_line_and_2(talked: Run, command: str) -> None:
    refused = talked(*command.split())

    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("retract hom --at u1 --scope tree", "no memory hom in the log"),
        ("retract u1 --at u1 --scope tree", "u1 is a message, not a memory: name it as a source"),
        ("restore home --at u1 --scope tree", "home is a memory, not a retraction"),
        ("correct u9 --at u1 --text x", "no message u9 in the log"),
        ("supersede home --text x --source u1 --id guess", "event guess is already there"),
        ("erase r0 --yes", "r0 is neither message nor memory"),
    ],
)
@pytest.mark.parametrize("tried", [True, False])
def test_what_a_verb_refuses_is_one_line_and_1_and_nothing_is_written(
    talked: Run, command: str, said: str, tried: bool
) -> None:
    before = talked("stats", "--json").json["digest"]

    refused = talked(*command.split(), *(["--dry-run"] if tried else []))

    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert said in refused.err
    assert talked("stats", "--json").json["digest"] == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_makes_no_store(run: Run, verb: str) -> None:
    refused = run(*VERBS[verb])

    assert (refused.status, refused.out) == (1, "")
    assert "there is no store here" in refused.err
    assert not Path("a.bmem").exists()
