"""The command line: keys, and bundles that go from one store to another."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import branchmem as bm
import pytest
from branchmem.bundle import export_bundle, load_key
from commands import Ran, Run
from rich.cells import cell_len

pytest.importorskip("cryptography")
pytest.importorskip("zstandard")

HOME = "The user is moving to Chengdu"


@pytest.fixture(autouse=True)
def no_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRANCHMEM_KEY", raising=False)


@pytest.fixture
def sender(forked: Run) -> Run:
    """The conversation of the README with a ref `main`, and a key to sign with."""
    with bm.open("a.bmem") as store:
        store.refs.create("main", "u1")
    assert forked("key", "make", "key.pem").status == 0
    return forked


@pytest.fixture
def sent(sender: Run) -> Run:
    """The same, with a bundle of it all."""
    assert sender("bundle", "export", "a.bundle", "--key", "key.pem").status == 0
    return sender


@pytest.fixture
def trusted(sent: Run) -> Run:
    """The same, and a store b.bmem that trusts the key."""
    assert sent("key", "pin", public(sent), "alice", "--store", "b.bmem").status == 0
    return sent


def public(run: Run, path: str = "key.pem") -> str:
    return str(run("key", "show", path, "--json").json["public"])


def seen(run: Run, ref: str, store: str) -> set[str]:
    return {memory["text"] for memory in run("view", "--ref", ref, "--json", "--store", store).json["memories"]}


def empty(path: str) -> None:
    bm.open(path).close()


def one_line(ran: Ran, status: int = 1) -> str:
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1)
    return ran.err


# Keys


def test_a_new_key_is_its_owners_alone_and_only_its_public_half_is_printed(run: Run) -> None:
    made = run("key", "make", "key.pem")

    private = Path("key.pem").read_text()
    assert stat.S_IMODE(os.stat("key.pem").st_mode) == 0o600
    assert not any(line in made.out for line in private.splitlines())
    assert made.out == run("key", "show", "key.pem").out
    shown = run("key", "show", "key.pem", "--json").json
    assert made.out == f"key.pem\n  public key    {shown['public']}\n  fingerprint   {shown['fingerprint']}\n"


def test_the_key_of_the_environment_is_shown_without_a_path(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("key", "make", "key.pem")
    monkeypatch.setenv("BRANCHMEM_KEY", "key.pem")

    assert run("key", "show").out == run("key", "show", "key.pem").out


def test_a_key_is_never_overwritten(run: Run) -> None:
    run("key", "make", "key.pem")
    before = Path("key.pem").read_bytes()

    assert "key.pem" in one_line(run("key", "make", "key.pem"))
    assert Path("key.pem").read_bytes() == before


def test_keys_are_pinned_listed_and_unpinned(sender: Run) -> None:
    made = sender("key", "show", "key.pem", "--json").json

    pinned = sender("key", "pin", made["public"], "alice", "--json").json

    assert pinned == {"name": "alice", "public": made["public"], "fingerprint": made["fingerprint"]}
    assert sender("key", "--json").json == {"pins": [pinned]}
    assert sender("key").out == sender("key", "list").out
    assert sender("key").out.startswith("alice\n  public key    ed25519:")
    assert sender("key", "unpin", "alice").status == 0
    assert "branchmem key pin PUBLIC NAME" in sender("key").out
    assert "alice" in one_line(sender("key", "unpin", "alice"))


def test_pinning_makes_a_store_but_not_for_what_is_no_public_key(run: Run) -> None:
    run("key", "make", "key.pem")
    secret = Path("key.pem").read_text().splitlines()[1]

    refused = run("key", "pin", secret, "alice")

    assert secret not in one_line(refused)
    assert os.listdir() == ["key.pem"]
    assert run("key", "pin", public(run), "alice").status == 0
    assert run("key", "--json").json["pins"][0]["name"] == "alice"


# From a store to one that trusts it


def test_what_was_exported_joins_a_store_that_trusts_the_key(trusted: Run) -> None:
    done = trusted("bundle", "import", "a.bundle", "--store", "b.bmem", "--json").json

    assert (done["imported"], done["duplicates"], done["held"], done["refused"]) == (5, 0, 0, {})
    assert trusted("refs", "--json", "--store", "b.bmem").json["refs"] == {"main": "u1"}
    assert seen(trusted, "main", "b.bmem") == {HOME}
    again = trusted("bundle", "import", "a.bundle", "--store", "b.bmem", "--json").json
    assert (again["imported"], again["duplicates"]) == (0, 5)
    digests = {trusted("stats", "--json", "--store", path).json["digest"] for path in ("a.bmem", "b.bmem")}
    assert len(digests) == 1


@pytest.mark.parametrize("command", ["preview a.bundle", "import a.bundle --dry-run"])
def test_what_is_only_tried_says_the_same_and_changes_no_file(trusted: Run, command: str) -> None:
    before = Path("b.bmem").read_bytes()

    tried = trusted("bundle", *command.split(), "--store", "b.bmem")
    form = trusted("bundle", *command.split(), "--store", "b.bmem", "--json").json

    assert (tried.status, tried.err) == (0, "")
    assert tried.out.splitlines()[1:] == [
        "5 would be imported, 0 here already, 0 would be held, 0 refused",
        "refs: main created at u1",
        "0 conflicts, 0 resolved",
    ]
    assert Path("b.bmem").read_bytes() == before
    done = trusted("bundle", "import", "a.bundle", "--store", "b.bmem", "--json").json
    assert (form["dry_run"], done["dry_run"]) == (True, False)
    assert (form["imported"], form["held"]) == (done["imported"], done["held"]) == (5, 0)


def test_a_ref_of_a_bundle_can_have_another_name_here(trusted: Run) -> None:
    done = trusted("bundle", "import", "a.bundle", "--ref", "main=alice/main", "--store", "b.bmem")

    assert (done.status, done.err) == (0, "")
    assert trusted("refs", "--json", "--store", "b.bmem").json["refs"] == {"alice/main": "u1"}


@pytest.mark.parametrize("name", ["main=", "nowhere", "nowhere=here", "=here"])
def test_a_ref_that_a_bundle_does_not_have_or_nobody_can_is_refused(trusted: Run, name: str) -> None:
    one_line(trusted("bundle", "import", "a.bundle", "--ref", name, "--store", "b.bmem"))

    assert trusted("stats", "--json", "--store", "b.bmem").json["events"] == 0


def test_a_ref_of_a_bundle_arrives_under_one_name(trusted: Run) -> None:
    named = ("--ref", "main=mine", "--ref", "main")
    for store in ("b.bmem", "new.bmem"):
        refused = trusted("bundle", "import", "a.bundle", *named, "--store", store)
        assert (refused.status, refused.err.count("\n")) == (2, 1)

    assert trusted("stats", "--json", "--store", "b.bmem").json["events"] == 0
    assert not Path("new.bmem").exists()


def test_a_bundle_tells_what_is_new_since_an_earlier_one(trusted: Run) -> None:
    trusted("bundle", "import", "a.bundle", "--store", "b.bmem")
    with bm.open("a.bmem") as store:
        store.append([bm.Message("u2", "u1"), bm.Memory("tea", "The user drinks tea", sources=["u2"])])
        store.refs.move("main", "u2")

    exported = trusted("bundle", "export", "more.bundle", "--key", "key.pem", "--since", "a.bundle")
    assert (exported.status, exported.err) == (0, "")
    done = trusted("bundle", "import", "more.bundle", "--store", "b.bmem", "--json").json

    assert done["imported"] == 2
    assert seen(trusted, "main", "b.bmem") == {HOME, "The user drinks tea"}


def test_a_bundle_of_a_ref_holds_what_that_needs(sender: Run) -> None:
    assert sender("bundle", "export", "main.bundle", "--key", "key.pem", "--ref", "main").status == 0

    counts = sender("bundle", "inspect", "main.bundle", "--json").json["counts"]

    assert (counts["messages"], counts["memories"]) == (2, 1)


def both_went_on(run: Run) -> None:
    """The stores have gone on apart, and say different things of one key."""
    run("bundle", "import", "a.bundle", "--store", "b.bmem")
    for path, city in (("a.bmem", "Hangzhou"), ("b.bmem", "Shanghai")):
        with bm.open(path) as store:
            store.append([bm.Message(city, "u1"), bm.Memory(f"in {city}", city, sources=[city], key="city")])
            store.refs.move("main", city)
    assert run("bundle", "export", "more.bundle", "--key", "key.pem").status == 0


def test_a_conflict_with_a_bundle_is_shown_and_nothing_of_it_is_written(trusted: Run) -> None:
    both_went_on(trusted)
    before = trusted("stats", "--json", "--store", "b.bmem").json

    refused = trusted("bundle", "import", "more.bundle", "--store", "b.bmem")

    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert refused.out.startswith("conflict 1 about city\n")
    assert "Shanghai" in refused.out
    assert "Hangzhou" in refused.out
    after = trusted("stats", "--json", "--store", "b.bmem").json
    assert (after["digest"], after["events"]) == (before["digest"], before["events"])
    form = trusted("bundle", "import", "more.bundle", "--store", "b.bmem", "--json")
    assert (form.status, len(form.json["conflicts"])) == (1, 1)


@pytest.mark.parametrize("command", ["preview more.bundle", "import more.bundle --dry-run"])
def test_what_is_only_tried_tells_the_conflict_that_would_be_refused(trusted: Run, command: str) -> None:
    both_went_on(trusted)

    tried = trusted("bundle", *command.split(), "--store", "b.bmem")
    form = trusted("bundle", *command.split(), "--store", "b.bmem", "--json")

    assert (tried.status, form.status, tried.err.count("\n")) == (1, 1, 1)
    assert tried.out.splitlines()[2].startswith("refs: main conflict at ")
    assert "conflict 1 about city\n" in tried.out
    assert [ref["how"] for ref in form.json["refs"]] == ["conflict"]
    assert len(form.json["conflicts"]) == 1


@pytest.mark.parametrize(
    ("strategy", "left"),
    [("local", {"Shanghai"}), ("remote", {"Hangzhou"}), ("both", {"Shanghai", "Hangzhou"})],
)
def test_a_strategy_decides_a_conflict_with_a_bundle(trusted: Run, strategy: str, left: set[str]) -> None:
    both_went_on(trusted)

    done = trusted("bundle", "import", "more.bundle", "--store", "b.bmem", "--strategy", strategy)

    assert (done.status, done.err) == (0, "")
    assert seen(trusted, "main", "b.bmem") == {HOME, *left}


# Strangers


def test_a_bundle_of_a_stranger_is_held_apart_until_something_of_it_is_adopted(sent: Run) -> None:
    with bm.open("b.bmem") as store:
        store.append([bm.Message("mine", None)])
        store.refs.create("mine", "mine")

    done = sent("bundle", "import", "a.bundle", "--store", "b.bmem", "--json").json

    assert (done["imported"], done["held"]) == (0, 5)
    assert sent("stats", "--json", "--store", "b.bmem").json["events"] == 1
    (held,) = sent("bundle", "held", "--json", "--store", "b.bmem").json["held"]
    listed = sent("bundle", "held", "…" + held["id"][-6:], "--store", "b.bmem")
    assert HOME in listed.out
    words = ("adopt", "…ome", "--held", "…" + held["id"][-6:], "--into", "mine", "--store", "b.bmem")
    assert sent(*words, "--dry-run").out.startswith("mine would stand at ")
    adopted = sent(*words)
    assert (adopted.status, adopted.err) == (0, "")
    assert seen(sent, "mine", "b.bmem") == {HOME}


def test_what_is_held_can_be_dropped(sent: Run) -> None:
    empty("b.bmem")
    sent("bundle", "import", "a.bundle", "--store", "b.bmem")
    (held,) = sent("bundle", "held", "--json", "--store", "b.bmem").json["held"]

    assert sent("bundle", "drop", held["id"], "--store", "b.bmem").out == f"5 events of {held['id']} are dropped\n"

    assert sent("bundle", "held", "--json", "--store", "b.bmem").json == {"held": []}
    assert one_line(sent("bundle", "drop", held["id"], "--store", "b.bmem"))


# Bundles by themselves, and what is refused


def test_inspecting_needs_no_store_and_says_whose_a_bundle_is(sent: Run) -> None:
    fingerprint = sent("key", "show", "key.pem", "--json").json["fingerprint"]
    os.rename("a.bmem", "elsewhere")

    said, form = sent("bundle", "inspect", "a.bundle"), sent("bundle", "inspect", "a.bundle", "--json").json

    assert said.out.splitlines()[0] == "a.bundle is whole"
    assert fingerprint in said.out
    assert "for           everybody" in said.out
    assert HOME not in said.out
    assert (form["fingerprint"], form["refs"], form["counts"]["memories"]) == (fingerprint, {"main": "u1"}, 2)


@pytest.mark.parametrize("command", ["inspect", "preview", "import"])
def test_a_damaged_bundle_is_refused_in_one_line(trusted: Run, command: str) -> None:
    damaged = bytearray(Path("a.bundle").read_bytes())
    damaged[40] ^= 1
    Path("a.bundle").write_bytes(damaged)

    words = [] if command == "inspect" else ["--store", "b.bmem"]

    assert "a.bundle: " in one_line(trusted("bundle", command, "a.bundle", *words))


def test_a_bundle_for_one_key_is_for_no_other(trusted: Run) -> None:
    trusted("key", "make", "bob.pem")
    trusted("key", "make", "eve.pem")
    trusted("key", "pin", public(trusted, "bob.pem"), "bob")
    words = ("bundle", "export", "for-bob.bundle", "--key", "key.pem", "--for", "bob", "--days", "2")
    assert trusted(*words).status == 0

    one_line(trusted("bundle", "import", "for-bob.bundle", "--store", "b.bmem"))
    one_line(trusted("bundle", "import", "for-bob.bundle", "--store", "b.bmem", "--key", "eve.pem"))
    done = trusted("bundle", "import", "for-bob.bundle", "--store", "b.bmem", "--key", "bob.pem")

    assert (done.status, done.err) == (0, "")
    assert trusted("bundle", "inspect", "for-bob.bundle", "--json").json["expires"] is not None


def test_a_bundle_that_has_expired_is_inspected_and_not_imported(
    trusted: Run,
) -> None:
    with bm.open("a.bmem") as store:
        key = load_key("key.pem")
        now = datetime(2001, 1, 1, tzinfo=UTC)
        export_bundle(store, "old.bundle", key=key, expires=now + timedelta(days=1), now=lambda: now)

    assert "expires       2001-01-02 00:00:00Z, so it is refused\n" in trusted("bundle", "inspect", "old.bundle").out
    assert "expired" in one_line(trusted("bundle", "import", "old.bundle", "--store", "b.bmem"))


def test_without_what_bundles_need_it_says_what_to_install(sent: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)

    for command in ("key make new.pem", "bundle export x --key key.pem", "bundle import a.bundle"):
        assert "pip install 'branchmem[bundles]'" in one_line(sent(*command.split()))
    assert sent("refs").status == 0
    assert not Path("new.pem").exists()


def test_an_export_overwrites_nothing(sent: Run) -> None:
    before = Path("a.bundle").read_bytes()

    one_line(sent("bundle", "export", "a.bundle", "--key", "key.pem"))

    assert Path("a.bundle").read_bytes() == before


@pytest.mark.parametrize(
    ("command", "status"),
    [
        *(("bundle nonsense", 2), ("bundle export x", 2), ("bundle export x --key missing.pem", 1)),
        *(("bundle export x --key key.pem --days 0", 2), ("bundle export x --key key.pem --ref nowhere", 1)),
        *(("bundle import", 2), ("bundle import missing", 1), ("bundle import a.bundle --strategy ours", 2)),
        *(("bundle inspect missing", 1), ("bundle held nope", 1), ("bundle held …nope", 2), ("bundle drop nope", 1)),
        *(("key make", 2), ("key show missing.pem", 1), ("key pin x", 2), ("key nonsense", 2)),
    ],
)
def test_what_is_wrong_is_one_line(sent: Run, command: str, status: int) -> None:
    one_line(sent(*command.split()), status)


@pytest.mark.parametrize(
    "command",
    ["bundle export x --key key.pem", "bundle preview a.bundle", "bundle held", "bundle drop x", "key list"],
)
def test_commands_on_bundles_make_no_store(sent: Run, command: str) -> None:
    os.rename("a.bmem", "elsewhere")
    before = sorted(os.listdir())

    assert "there is no store here" in one_line(sent(*command.split()))

    assert sorted(os.listdir()) == before


def test_a_bundle_that_is_refused_leaves_no_empty_store(sent: Run) -> None:
    Path("bad.bundle").write_bytes(b"branchmem bundle" * 40)

    one_line(sent("bundle", "import", "bad.bundle", "--store", "new.bmem"))

    assert not Path("new.bmem").exists()
    assert sent("bundle", "import", "a.bundle", "--store", "new.bmem", "--json").json["held"] == 5


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_nothing_out_of_a_bundle_acts_on_the_terminal_and_lines_fit(sender: Run, form: list[str]) -> None:
    hostile = "\x1b]0;owned\x07\x9b1m\u202egnp\u2028 end" * 20
    with bm.open("a.bmem") as store:
        store.append([bm.Message(hostile[:60], None, text=hostile)])
        store.append([bm.Memory(hostile[:61], hostile, sources=[hostile[:60]], kind=hostile[:20])])
    sender("bundle", "export", "b.bundle", "--key", "key.pem")
    empty("b.bmem")
    commands: list[list[str]] = [["bundle", "inspect", "b.bundle"], ["bundle", "import", "b.bundle"]]
    commands += [["bundle", "held"], ["bundle", "held", held_id(sender)]]
    for words in commands:
        ran = sender(*words, *form, *([] if "inspect" in words else ["--store", "b.bmem"]))

        printed = (ran.out + ran.err).replace("\n", "")
        assert (ran.status, [letter for letter in printed if not letter.isprintable()]) == (0, []), words
        assert form or [line for line in ran.out.splitlines() if cell_len(line) > 80] == [], words


def held_id(run: Run) -> str:
    run("bundle", "import", "b.bundle", "--store", "b.bmem")
    (held,) = run("bundle", "held", "--json", "--store", "b.bmem").json["held"]
    return str(held["id"])


def test_writing_and_taking_in_a_bundle_show_a_bar_on_a_terminal(sender: Run) -> None:
    for words, bar in (
        (("bundle", "export", "x.bundle", "--key", "key.pem"), b"exporting"),
        (("bundle", "import", "x.bundle", "--dry-run"), b"importing"),
    ):
        main, terminal = pty.openpty()
        command = [sys.executable, "-m", "branchmem.cli", *words, "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, timeout=60, check=True)
        os.close(terminal)
        shown = os.read(main, 100_000)
        os.close(main)

        assert isinstance(json.loads(done.stdout), dict)
        assert bar in shown
