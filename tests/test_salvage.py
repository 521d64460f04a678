"""What is saved of a damaged store: what is proven, never a guess, and never silently."""

from __future__ import annotations

from pathlib import Path
from random import Random

import branchmem as bm
import lmdb
import pytest
from branchmem.canonical import pack
from branchmem.codec import Interner, encode_block, encode_body
from branchmem.errors import Error, FormatTooNew, StoreDamaged, StoreExists, StoreLocked, StoreMissing
from branchmem.events import Event
from branchmem.log import place
from branchmem.salvage import examine, salvage
from commands import Run
from damage import PAGE, damaged, originals
from figures import Figure

SEED = 20260403


def conversation(number: int) -> list[Event]:
    """Five events; the first hangs below the conversation before, the memory names an id of it too."""
    last = f"c{number - 1}.2" if number else None
    root = bm.Message(f"c{number}", last, text="root")
    turns = [
        bm.Message(f"c{number}.{turn}", f"c{number}.{turn - 1}" if turn else root.id, text="turn") for turn in range(3)
    ]
    return [root, *turns, bm.Memory(f"k{number}", "memory", sources=[turns[-1].id, *([last] if last else [])])]


@pytest.fixture
def sound(path: Path) -> list[Event]:
    """A store of ten batches of five, and its events."""
    with bm.open(path) as store:
        for number in range(10):
            store.append(conversation(number))
        return list(store.log.events())


def change(path: Path, database: bytes, seq: int) -> None:
    """Flip a bit of one record, wherever the file holds it."""
    with lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0) as env, env.begin() as txn:
        record = txn.get(seq.to_bytes(8, "big"), db=env.open_db(database, txn=txn)) or b""
    whole = path.read_bytes()
    assert record in whole
    path.write_bytes(whole.replace(record, record[:-1] + bytes([record[-1] ^ 1])))


def saved(path: Path) -> list[Event]:
    with bm.open(path, create=False, verify=True) as store:
        assert store.check().ok
        return list(store.log.events())


# What is proven


def test_a_sound_store_is_copied_whole(path: Path, sound: list[Event], tmp_path: Path) -> None:
    new = tmp_path / "new.bmem"
    before = path.read_bytes()

    report = salvage(path, new)

    assert report.ok
    assert (report.messages, report.memories, report.lost, report.first_bad_seq) == (40, 10, (), None)
    assert examine(path).ok
    assert saved(new) == sound
    with bm.open(path) as old, bm.open(new) as store:
        assert old.digest() == store.digest()
        assert old._log.log_id != store._log.log_id
    assert path.read_bytes() == before


def test_an_event_without_its_body_is_left_out_and_what_hangs_below_is_hidden(
    path: Path, sound: list[Event], tmp_path: Path
) -> None:
    change(path, b"bodies", 22)
    assert examine(path).bodiless == {"c4.1": 22}

    report = salvage(path, tmp_path / "new.bmem")

    assert (report.events, report.lost, report.unnamed, report.behind) == (49, (), (), 0)
    assert (report.ok, report.first_bad_seq) == (False, 22)
    assert saved(tmp_path / "new.bmem") == sound[:22] + sound[23:]
    with bm.open(tmp_path / "new.bmem") as store:
        assert "k4" not in store.at("c4.2")
        assert "k3" in store.at("c3.2")
        store.append([sound[22]])  # the application still has it
        assert "k4" in store.at("c4.2")


def test_the_copy_ends_before_a_lost_block(path: Path, sound: list[Event], tmp_path: Path) -> None:
    change(path, b"skeletons", 20)
    with pytest.raises(StoreDamaged) as caught:
        bm.open(path)
    assert caught.value.seq == 20

    report = salvage(path, tmp_path / "new.bmem")

    assert (report.events, report.lost, report.first_bad_seq) == (20, ((20, 25),), 20)
    assert report.behind + len(report.unnamed) == 25
    assert saved(tmp_path / "new.bmem") == sound[:20]


def test_behind_a_gap_ids_keep_their_meaning_and_what_names_a_lost_one_is_lost(
    path: Path, sound: list[Event], tmp_path: Path
) -> None:
    change(path, b"skeletons", 20)

    report = salvage(path, tmp_path / "new.bmem", beyond_gaps=True)

    # c5 hangs below c4.2, and k5 names it among its sources; c4.2 was spelled out in the lost block.
    assert report.unnamed == (25, 29)
    assert (report.events, report.lost, report.behind) == (43, ((20, 25),), 0)
    assert saved(tmp_path / "new.bmem") == [
        event for seq, event in enumerate(sound) if seq not in (*range(20, 25), 25, 29)
    ]
    assert "lost" in str(report)


def test_a_lost_end_is_told_by_the_bodies(path: Path, sound: list[Event], tmp_path: Path) -> None:
    change(path, b"skeletons", 45)

    report = salvage(path, tmp_path / "new.bmem", beyond_gaps=True)

    assert (report.events, report.lost) == (45, ((45, 50),))
    assert saved(tmp_path / "new.bmem") == sound[:45]


def test_pages_that_no_tree_leads_to_are_searched_only_on_demand(
    path: Path, sound: list[Event], tmp_path: Path
) -> None:
    whole = bytearray(path.read_bytes())
    whole[:PAGE], whole[PAGE : 2 * PAGE] = bytes(PAGE), bytes(PAGE)
    path.write_bytes(whole)
    with pytest.raises(StoreDamaged, match="no event in it is proven"):
        salvage(path, tmp_path / "new.bmem")
    assert not (tmp_path / "new.bmem").exists()

    report = salvage(path, tmp_path / "new.bmem", beyond_gaps=True)

    assert (report.events, report.loose) == (50, 50)
    assert any("meta pages" in why for why in report.damage)
    assert saved(tmp_path / "new.bmem") == sound


def test_a_block_that_an_older_page_still_holds_is_found_there_on_demand(
    path: Path, sound: list[Event], tmp_path: Path
) -> None:
    with lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0) as env, env.begin(write=True) as txn:
        txn.put((20).to_bytes(8, "big"), b"no block", db=env.open_db(b"skeletons", txn=txn))

    assert salvage(path, tmp_path / "some.bmem").events == 20
    report = salvage(path, tmp_path / "all.bmem", beyond_gaps=True)

    assert (report.events, report.loose, report.lost) == (50, 5, ())
    assert saved(tmp_path / "all.bmem") == sound


def test_a_file_that_is_cut_off_gives_what_is_left(path: Path, sound: list[Event], tmp_path: Path) -> None:
    pages = path.stat().st_size // PAGE
    most = 0
    for kept in range(2, pages):
        cut = tmp_path / "cut.bmem"
        cut.write_bytes(path.read_bytes()[: kept * PAGE])
        try:
            report = salvage(cut, tmp_path / f"new{kept}", beyond_gaps=True)
        except StoreDamaged:
            continue
        events = saved(tmp_path / f"new{kept}")
        assert [event for event in events if event not in sound] == []
        assert report.damage or report.ok
        most = max(most, len(events))
    assert most > 20


# Whatever happens, never a wrong event and never a traceback


@pytest.mark.soak
def test_nothing_that_never_was_is_saved(tmp_path: Path, figure: Figure) -> None:
    sound = originals(tmp_path)
    complete = unharmed = 0
    for number in range(figure(80, 5_000)):
        random = Random(f"{SEED} {number}")
        whole, events = random.choice(sound)
        path, new = tmp_path / "damaged.bmem", tmp_path / f"new{number}.bmem"
        path.write_bytes(damaged(random, whole))
        beyond_gaps = random.random() < 0.5
        try:
            report = salvage(path, new, beyond_gaps=beyond_gaps)
        except Error:
            continue
        copied = saved(new)
        left = iter(events)
        assert all(event in left for event in copied), (
            f"seed {SEED}, file {number}: not a part of the log, in its order"
        )
        assert len(copied) == report.events
        assert (copied == events) or not report.ok, f"seed {SEED}, file {number}: lost without a word"
        complete += copied == events
        unharmed += report.ok
        if not beyond_gaps and not report.bodiless and not report.unnamed:
            assert copied == events[: len(copied)]
        for end in ("", "-lock", "-guard"):
            Path(f"{new}{end}").unlink()
    assert complete > unharmed > 0


# What is refused


def test_nothing_is_overwritten_and_a_store_in_use_is_left_alone(
    path: Path, sound: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.02)
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(StoreExists):
        salvage(path, tmp_path / "taken")
    with pytest.raises(StoreExists):
        salvage(path, path)
    with bm.open(path), pytest.raises(StoreLocked):
        salvage(path, tmp_path / "new.bmem")
    with pytest.raises(StoreMissing):
        salvage(tmp_path / "nowhere", tmp_path / "new.bmem")
    assert (tmp_path / "taken").read_text() == "mine"
    assert not list(tmp_path.glob("new*"))


def test_a_newer_format_is_not_taken_apart(path: Path, sound: list[Event], tmp_path: Path) -> None:
    with lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0) as env, env.begin(write=True) as txn:
        txn.put(b"format", (2).to_bytes(4, "little"), db=env.open_db(b"meta", txn=txn))
    with pytest.raises(FormatTooNew):
        salvage(path, tmp_path / "new.bmem")


def test_content_with_fields_of_a_later_version_is_not_taken_apart(path: Path, tmp_path: Path) -> None:
    bm.open(path).close()
    with lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0) as env, env.begin(write=True) as txn:
        skeletons, bodies = (env.open_db(name, txn=txn) for name in (b"skeletons", b"bodies"))
        txn.put(bytes(8), encode_block(0, [bm.Message("u1", None).skeleton()], Interner()), db=skeletons)
        txn.put(bytes(8), encode_body(0, pack([99, "mood"])), db=bodies)
    with pytest.raises(FormatTooNew, match="99"):
        salvage(path, tmp_path / "new.bmem")


# On the command line


def test_a_store_that_does_not_open_is_checked_and_salvaged(run: Run, forked: Run) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("more", "u1", text="more")])
        store.append([bm.Message("last", "more", text="last")])
    change(Path("a.bmem"), b"skeletons", 5)

    checked = run("check", "--json")

    assert (checked.status, checked.err) == (1, "")
    assert (checked.json["first_bad_seq"], checked.json["lost"], checked.json["events"]) == (5, [[5, 6]], 5)
    assert "damaged at seq 5" in checked.json["refused"]
    said = run("check")
    assert (said.status, said.err) == (1, "")
    assert "lost blocks, by position\n  5 to 5\n" in said.out
    assert "branchmem salvage NEW" in said.out

    told = run("salvage", "new.bmem")
    assert (told.status, told.err) == (1, "")
    assert told.out.startswith("5 events copied (3 messages, 2 memories): 1 in lost blocks, ")
    assert "may have held retractions" in told.out
    assert run("view", "u1", "--store", "new.bmem", "--json").json["visible"] == 1
    refused = run("salvage", "new.bmem")
    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert run("salvage", "all.bmem", "--beyond-gaps", "--json").json["unnamed"] == [6]


def test_a_damaged_body_is_listed_by_check_and_left_out_by_salvage(forked: Run) -> None:
    change(Path("a.bmem"), b"bodies", 0)

    checked = forked("check", "--json")

    assert (checked.status, checked.json["first_bad_seq"]) == (1, 0)
    assert checked.json["damage"] == ["seq 0: the checksum of its body does not match"]
    assert forked("salvage", "new.bmem", "--json").json["bodiless"] == {"chat": 0}


def test_salvaging_a_sound_store_is_status_0(forked: Run) -> None:
    salvaged = forked("salvage", "new.bmem", "--json")

    assert (salvaged.status, salvaged.json["events"], salvaged.json["lost"]) == (0, 5, [])
    assert forked("stats", "--json").json["digest"] == forked("stats", "--json", "--store", "new.bmem").json["digest"]


def test_what_is_no_store_is_checked_without_a_traceback(run: Run) -> None:
    for content in (b"", b"not a store", b"text " * 5000, bytes(40_000)):
        Path("a.bmem").write_bytes(content)
        checked = run("check", "--json")
        assert (checked.status, checked.err, checked.json["events"]) == (1, "", 0)
        salvaged = run("salvage", "new.bmem", "--beyond-gaps")
        assert (salvaged.status, salvaged.out, salvaged.err.count("\n")) == (1, "", 1)
    assert [name.name for name in Path().iterdir()] == ["a.bmem"]
