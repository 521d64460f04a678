"""What is saved of a damaged store obeys its erasures, wherever they stand and whatever older pages still hold."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import branchmem as bm
import lmdb
import pytest
from branchmem.codec import Interner, encode_block
from branchmem.errors import Error
from branchmem.events import Erasure, Event, Restoration, Retraction
from branchmem.log import Reader
from branchmem.log.pages import metas
from branchmem.salvage import examine, salvage
from commands import Run
from damage import damaged
from figures import Figure

SEED = 20260407

#: One batch each, so one block each; the third is erased by the fourth, with all that came from it.
BATCHES: list[list[Event]] = [
    [bm.Message("chat", None, role="thread")],
    [bm.Message("u0", "chat", text="<u0>" * 9), bm.Memory("k0", "<k0>" * 9, sources=["u0"])],
    [bm.Message("u1", "u0", text="<u1>" * 9), bm.Memory("k1", "<k1>" * 2_000, sources=["u1"])],
    [Erasure("e", ["u1"])],
    [bm.Message("u2", "u1", text="<u2>" * 9), bm.Memory("k2", "<k2>" * 9, derived_from=["k0"])],
    [Retraction("r", "u2", scope="branch", memories=["k2"], reason="<r>")],
    [Restoration("s", "u2", scope="branch", retraction="r")],
]
SEQS = {event.id: seq for seq, event in enumerate(event for batch in BATCHES for event in batch)}
ERASED = {"u1", "k1"}


@pytest.fixture
def made(path: Path) -> Path:
    """The store; a reader that looked at it from the third batch on has kept all older pages."""
    looking, done = threading.Event(), threading.Event()
    with bm.open(path) as store:

        def look(reader: Reader) -> None:
            looking.set()
            done.wait()

        reader = threading.Thread(target=store._log.read, args=(look,))
        for number, batch in enumerate(BATCHES):
            store.append(batch)
            if number == 2:
                reader.start()
                looking.wait()
        done.set()
        reader.join()
    assert set(leaked(path)) == ERASED
    return path


def lose_block(path: Path, id: str) -> None:
    """Overwrite the block that begins with an event; older pages keep it."""
    with lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0) as env, env.begin(write=True) as txn:
        assert txn.put(SEQS[id].to_bytes(8, "big"), b"no block", db=env.open_db(b"skeletons", txn=txn))


def lose_body(path: Path, id: str) -> None:
    """Flip a bit of the record of a body, on all pages that hold it as it is now."""
    with (
        lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0, readonly=True, lock=False) as env,
        env.begin(db=env.open_db(b"bodies", create=False)) as txn,
    ):
        record = txn.get(SEQS[id].to_bytes(8, "big")) or b"none"
    whole = path.read_bytes()
    assert record in whole
    path.write_bytes(whole.replace(record, record[:-1] + bytes([record[-1] ^ 1])))


def saved(path: Path) -> dict[str, Event]:
    with bm.open(path, create=False, verify=True) as store:
        assert store.check().ok
        return {event.id: event for event in store.log.events()}


def known(*ids: str) -> Interner:
    """The ids of a log in order of first mention."""
    interner = Interner()
    for id in ids:
        interner.reference(id)
    return interner


def leaked(path: Path) -> list[str]:
    """Whose content is in a file that should not be."""
    return [id for id in ERASED if f"<{id}>".encode() in path.read_bytes()]


def test_a_sound_store_is_copied_with_its_erasures_first(made: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.bmem"

    report = salvage(made, new)

    assert (report.ok, report.events, report.messages, report.memories) == (True, 10, 4, 3)
    assert (report.erasures, report.retractions, report.restorations, report.erased) == (1, 1, 1, 2)
    assert str(report) == (
        "10 events copied (4 messages, 3 memories, 1 retractions, 1 restorations, 1 erasures): no event is lost"
    )
    assert list(saved(new)) == ["e", *(id for id in SEQS if id != "e")]
    with bm.open(made) as old, bm.open(new) as store:
        assert old.digest() == store.digest()
    assert leaked(made)
    assert not leaked(new)


def test_what_was_erased_needs_no_record_of_its_content(made: Path, tmp_path: Path) -> None:
    for id in ("u1", "k1"):
        lose_body(made, id)
    for beyond_gaps in (False, True):  # older pages still hold both
        new = tmp_path / f"new{beyond_gaps}.bmem"
        report = salvage(made, new, beyond_gaps=beyond_gaps)
        assert (report.events, report.bodiless, report.erased) == (10, {}, 2)
        assert saved(new)["k1"] == bm.Memory("k1", "", sources=["u1"])
        assert not leaked(new)


def test_an_erasure_behind_the_first_lost_block_is_obeyed(made: Path, tmp_path: Path) -> None:
    with bm.open(made) as store:
        store.append([Erasure("late", ["k0"])])
    lose_block(made, "u2")

    report = salvage(made, tmp_path / "new.bmem")

    copied = saved(tmp_path / "new.bmem")
    assert list(copied) == ["e", "late", "chat", "u0", "k0", "u1", "k1"]
    assert copied["k0"] == bm.Memory("k0", "", sources=["u0"])
    assert (report.lost, report.erasures, report.erased, report.bodiless) == (((6, 8),), 2, 3, {})
    assert report.behind + len(report.unnamed) == 2


def test_content_that_is_gone_without_a_proven_erasure_is_lost(made: Path, tmp_path: Path) -> None:
    lose_block(made, "e")

    report = salvage(made, tmp_path / "new.bmem")

    assert (report.lost, report.bodiless, report.erasures) == (((5, 6),), {"u1": 3, "k1": 4}, 0)
    assert list(saved(tmp_path / "new.bmem")) == ["chat", "u0", "k0"]
    # older pages hold both contents, and the block: with that comes the erasure
    report = salvage(made, tmp_path / "all.bmem", beyond_gaps=True)
    assert (report.loose, report.erased, report.bodiless) == (1, 2, {})
    assert not leaked(tmp_path / "all.bmem")


def test_content_that_is_gone_is_not_looked_for_on_older_pages(made: Path, tmp_path: Path) -> None:
    erasure = encode_block(5, [BATCHES[3][0].skeleton()], known("chat", "u0", "k0", "u1", "k1"))
    whole = made.read_bytes()
    assert erasure in whole
    made.write_bytes(whole.replace(erasure, erasure[:-1] + b"?"))

    report = salvage(made, tmp_path / "all.bmem", beyond_gaps=True)

    assert (report.lost, report.bodiless) == (((5, 6),), {"u1": 3, "k1": 4})
    assert not leaked(tmp_path / "all.bmem")


def test_an_erasure_whose_own_record_is_lost_brings_nothing_back(made: Path, tmp_path: Path) -> None:
    lose_body(made, "e")
    lose_body(made, "u1")
    for beyond_gaps in (False, True):
        new = tmp_path / f"new{beyond_gaps}.bmem"
        report = salvage(made, new, beyond_gaps=beyond_gaps)
        assert report.bodiless == {"e": 5, "u1": 3, "k1": 4}
        assert saved(new).keys().isdisjoint({"e", *ERASED})
        assert not leaked(new)


@pytest.mark.parametrize("lost", ["meta page", "main tree"])
def test_a_last_commit_that_cannot_be_found_is_said_to_be_missing_with_its_erasures(
    lost: str, made: Path, tmp_path: Path
) -> None:
    with bm.open(made) as store:
        store.append([Erasure("late", ["k0"])])
        erasures = store.erasures()
    with made.open("r+b") as file:
        _, (newest, _) = metas(file.fileno())
        page = newest.txnid % 2 if lost == "meta page" else newest.main_root
        file.seek(page * 4096)
        file.write(bytes(4096))

    report = salvage(made, tmp_path / "new.bmem")

    assert saved(tmp_path / "new.bmem")["k0"] == BATCHES[1][1]
    assert (report.ok, report.erasures) == (False, 1)
    assert [line for line in report.damage if line.endswith("what it erased be there again")]
    with bm.open(tmp_path / "new.bmem") as store:
        store.append(erasures)
        assert store.log.get("k0") == bm.Memory("k0", "", sources=["u0"])


def test_of_a_store_that_was_just_made_or_compacted_nothing_is_missing(made: Path, tmp_path: Path) -> None:
    with bm.open(made) as store:
        store.compact()
    bm.open(tmp_path / "empty.bmem").close()
    for path in (made, tmp_path / "empty.bmem"):
        assert (examine(path).ok, examine(path).damage) == (True, ())


@pytest.mark.soak
def test_no_damage_brings_erased_content_back(made: Path, tmp_path: Path, figure: Figure) -> None:
    whole, path = made.read_bytes(), tmp_path / "damaged.bmem"
    copies = 0
    for number in range(figure(150, 10_000)):
        chance = Random(f"{SEED} {number}")
        path.write_bytes(damaged(chance, whole))
        new, beyond_gaps = tmp_path / f"new{number}", chance.random() < 0.5
        try:
            report = salvage(path, new, beyond_gaps=beyond_gaps)
        except Error:
            continue
        copied, case = saved(new), f"seed {SEED}, file {number}"
        assert len(copied) == report.events, case
        if "e" in copied or not beyond_gaps:
            assert not leaked(new), case
            assert report.erased == len(ERASED & copied.keys()), case
        copies += 1
        for end in ("", "-lock", "-guard"):
            Path(f"{new}{end}").unlink()
    assert copies > 50


def test_what_is_no_store_says_that_nothing_is_known_to_be_lost(run: Run) -> None:
    Path("a.bmem").write_bytes(b"text " * 5000)

    assert str(examine("a.bmem")).endswith(": none is known to be lost")
    assert "none is known to be lost" in run("check").out
