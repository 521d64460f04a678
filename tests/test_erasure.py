"""Erasure in a store: what is written, compared and handed out, whoever reads and however batches come together."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import branchmem as bm
import lmdb
import pytest
from branchmem.codec import encode_body
from branchmem.errors import EventConflict, MemoryHidden, StoreDamaged
from branchmem.events import Erasure, Event, Retraction
from branchmem.log import Writer
from branchmem.reference import Reference
from branchmem.salvage import salvage
from chats import MOVING
from figures import Figure
from logs import in_child

SEED = 20260404

HOME = bm.Memory("home", "", sources=["u1"])
STAYS: dict[str, Event] = {"u1": bm.Message("u1", "chat"), "home": HOME}


@pytest.fixture
def told(path: Path) -> Iterator[bm.Store]:
    """A store with the conversation about moving."""
    with bm.open(path) as opened:
        opened.append(MOVING)
        yield opened


def put(path: Path, seq: int, body: bytes | None) -> None:
    """Overwrite the record of a body."""
    with lmdb.open(str(path), subdir=False, max_dbs=8, lib_version=0) as env, env.begin(write=True) as txn:
        txn.put(seq.to_bytes(8, "big"), encode_body(seq, body), db=env.open_db(b"bodies", txn=txn))


# What is written


def test_an_event_that_comes_with_its_erasure_is_never_written(path: Path) -> None:
    with bm.open(path) as store:
        store.append([*MOVING, Erasure("e", ["u1"])])
        store.append([bm.Memory("sum", "secret", derived_from=["home"]), bm.Memory("o", "other", sources=["u1-edit"])])

        held = path.read_bytes()
        assert [held.count(said) for said in (b"Chengdu", b"secret")] == [0, 0]
        assert [held.count(said) > 0 for said in (b"Hangzhou", b"other")] == [True, True]
        assert store.log.get("home") == STAYS["home"]


def test_what_arrives_after_its_erasure_is_stored_without_content(path: Path) -> None:
    with bm.open(path) as store:
        assert store.append([Erasure("e", ["u1"])]) == bm.Appended(1, 0, 1)
        assert not store.log.is_erased("u1")
        assert store.append(MOVING) == bm.Appended(4, 0, 5)

        assert b"Chengdu" not in path.read_bytes()
        assert {id: store.log.get(id) for id in STAYS} == STAYS
        assert [id for id in ("chat", "u1", "home", "u1-edit", "e", "no") if store.log.is_erased(id)] == ["u1", "home"]


def test_a_link_that_arrives_later_erases_what_was_there_before(path: Path) -> None:
    with bm.open(path) as store:
        store.append([*MOVING, bm.Memory("top", "of it all", derived_from=["middle"]), Erasure("e", ["u1"])])
        assert isinstance(store.log.get("top"), bm.Memory)
        assert not store.log.is_erased("top")

        store.append([bm.Memory("middle", "between", derived_from=["home"])])

        assert store.log.is_erased("top")
        assert [event.text for event in map(store.log.get, ("top", "middle"))] == ["", ""]  # type: ignore[attr-defined]
        store.compact()
        assert [path.read_bytes().count(said) for said in (b"of it all", b"between")] == [0, 0]


def test_a_batch_that_is_refused_erases_nothing(told: bm.Store) -> None:
    digest = told.digest()
    with pytest.raises(EventConflict):
        told.append([Erasure("e", ["home"]), bm.Message("u1-edit", "chat", text="else")])

    assert told.digest() == digest
    assert told.log.get("home") == MOVING[2]
    assert told.erasures() == []


def test_an_erasure_that_outgrows_the_map_is_whole(path: Path) -> None:
    with bm.open(path) as store:
        store.append(MOVING)
        store.append(bm.Memory(f"k{number}", "secret " * 60, sources=["u1"]) for number in range(20_000))
        before = store._log._file.map_bytes
        store.append([Erasure("e", ["u1"])])

        assert store._log._file.map_bytes > before
        assert store.check().erased == 20_002
        store.compact()
        assert b"secret" not in path.read_bytes()


def test_positions_ordinals_and_the_tree_stay(told: bm.Store, path: Path) -> None:
    told.append([Erasure("e", ["chat", "u1"])])
    digest = told.digest()

    assert [event.id for event in told.log.events()] == ["chat", "u1", "home", "u1-edit", "e"]
    assert list(told.log.events()) == [
        bm.Message("chat", None),
        STAYS["u1"],
        STAYS["home"],
        MOVING[3],
        told.erasures()[0],
    ]
    assert (told.tree.path("u1-edit"), list(told.memory_ids)) == (["chat", "u1-edit"], ["home"])
    told.compact()
    told.close()
    with bm.open(path, verify=True) as again:
        assert (again.digest(), again.seq, again.tree.path("u1")) == (digest, 5, ["chat", "u1"])
        assert again.check().ok
        assert again.check().erased == 3


def test_without_an_erasure_nothing_more_is_asked(told: bm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = told._engine

    class Unasked:
        def __getattr__(self, name: str) -> object:
            assert name != "is_erased"
            return getattr(engine, name)

    monkeypatch.setattr(told, "_engine", Unasked())
    told.append([*MOVING, bm.Message("u2", "u1")])
    assert list(told.log.events()) == [*MOVING, bm.Message("u2", "u1")]
    assert engine.erased_by([event.skeleton() for event in MOVING]) == ([], [])


def test_after_a_batch_that_wrote_nothing_others_are_still_noticed(told: bm.Store, path: Path) -> None:
    with bm.open(path) as other:
        for number in range(4):
            assert told.append(MOVING).added == 0
            other.append([bm.Message(f"m{number}", "u1")])
            assert f"m{number}" in told.log


# What is compared


def test_of_an_erased_id_only_what_stays_is_compared(told: bm.Store) -> None:
    told.append([Erasure("e", ["u1"])])
    digest = told.digest()

    same = [MOVING[1], bm.Message("u1", "chat", text="whatever"), STAYS["home"], replace(HOME, text="x")]
    assert told.append([*same, *MOVING]) == bm.Appended(0, 8, 5)
    assert told.digest() == digest
    for other, field in (
        (bm.Message("u1", None, text="I'm moving to Chengdu"), "parent"),
        (bm.Memory("u1", "I'm moving to Chengdu"), "type"),
        (bm.Memory("home", "said anew", sources=["u1-edit"]), "sources"),
    ):
        with pytest.raises(EventConflict) as raised:
            told.append([bm.Message("new", "chat"), other])
        assert raised.value.field == field
        assert "Chengdu" not in str(raised.value) + repr(raised.value)
        assert "new" not in told.log


def test_a_conflict_of_an_erased_id_shows_no_content_whenever_its_erasure_comes(told: bm.Store) -> None:
    told.append([Erasure("e", ["k", "u1"], cascade=False)])
    one, two = (bm.Memory("k", f"secret {source}", sources=[source]) for source in ("u1", "u1-edit"))
    moved = bm.Memory("home", "secret", sources=["chat"])
    erasure = Erasure("f", ["home"])
    batches: list[list[Event]] = [[one, two], [moved, erasure], [erasure, moved]]

    refused = [answer(told.append, batch) for batch in batches]
    refused += told._append_each([[erasure], [moved]])[1:]
    with pytest.raises(EventConflict) as raised:
        Reference().add([Erasure("e", ["k"]), one, two])
    assert refused[0] == raised.value.args == ("k", "sources", ["u1"], ["u1-edit"])
    assert refused[1:3] == [("home", "sources", ["u1"], ["chat"])] * 2
    assert "secret" not in repr(refused)


def test_two_contents_in_the_batch_of_their_erasure_are_no_conflict(told: bm.Store) -> None:
    events = [bm.Message("u2", "u1", text=said) for said in ("one", "two")]
    with pytest.raises(EventConflict):
        told.append(events)

    assert told.append([*events, Erasure("e", ["u2", "home"]), replace(HOME, text="x")]).added == 2
    assert told.log.get("u2") == bm.Message("u2", "u1")


def any_event(chance: Random) -> Event:
    """One of few ids, with one of few contents and links, so that many clash."""
    ids = "abcdef"
    match chance.randrange(6):
        case 0 | 1:
            return bm.Message(chance.choice("ab"), chance.choice([None, None, "b"]), text=chance.choice("xy"))
        case 2:
            return Erasure(chance.choice("EFG"), [chance.choice(ids)], cascade=chance.random() < 0.7)
        case 3:
            return Retraction("R", "a", scope="tree", memories=["c"], reason=chance.choice("xy"))
        case _:
            links: dict[str, Any] = {
                "sources": chance.choice([["a"], ["b"]]),
                "derived_from": chance.choice([[], [], ["c"], ["d"]]),
                "adopts": chance.choice([None, None, "e"]),
            }
            return bm.Memory(chance.choice("cdef"), chance.choice("xy"), **links)


def answer(append: Any, batch: list[Event]) -> object:
    try:
        return append(batch)
    except EventConflict as error:
        return error.args


@pytest.mark.soak
def test_batches_in_one_commit_get_what_a_serial_order_gives(figure: Figure) -> None:
    seen: Counter[str] = Counter()
    for turn in range(figure(40, 2_000)):
        chance = Random(f"{SEED} {turn}")
        reference = Reference()
        with bm.open_temporary() as serial, bm.open_temporary() as together:
            for _ in range(4):
                batches = [
                    [any_event(chance) for _ in range(chance.randint(1, 4))] for _ in range(chance.randint(1, 6))
                ]
                expected = [answer(serial.append, batch) for batch in batches]
                given = together._append_each(batches)

                case = f"seed {SEED}, turn {turn}: {batches}"
                for batch, one, found in zip(batches, given, expected, strict=True):
                    if len(batch) == 1 or isinstance(found, bm.Appended):
                        assert (one if isinstance(one, bm.Appended) else one.args) == found, case
                    # of several that are refused, either may be named
                    taken = isinstance(found, bm.Appended)
                    assert isinstance(one, bm.Appended) == taken, case
                    assert isinstance(answer(reference.append, batch), bm.Appended) == taken, case
                    seen["taken" if taken else "refused"] += 1
                assert together.digest() == serial.digest() == reference.digest(), case
            assert list(together.log.events()) == list(serial.log.events()) == list(reference.log.events())
            seen["erased"] += sum(map(together.log.is_erased, "abcdef"))
            for store in (serial, together):
                assert store.check().ok
    assert min(seen.values()) > 50


def test_asynchronous_callers_share_a_commit_and_its_erasures(told: bm.Store) -> None:
    import asyncio

    async def work() -> list[object]:
        batches: list[list[Event]] = [
            [bm.Message("u2", "u1", text="secret")],
            [Erasure("e", ["u2"])],
            [bm.Message("u2", "u1", text="other")],
            [bm.Message("u2", "chat")],
        ]
        return await asyncio.gather(*map(told.aappend, batches), return_exceptions=True)

    *first, last = asyncio.run(work())
    assert first == [bm.Appended(1, 0, 5), bm.Appended(1, 0, 6), bm.Appended(0, 1, 6)]
    assert isinstance(last, EventConflict)
    assert last.field == "parent"


# What is handed out


def test_content_erased_after_the_view_was_made_is_a_key_error_that_says_so(told: bm.Store) -> None:
    view = told.at("u1")
    assert view["home"] == MOVING[2]
    told.append([Erasure("e", ["u1"])])

    assert "home" in view
    for read in (lambda: view["home"], lambda: view.get("home"), view.memories):
        with pytest.raises(KeyError, match="erased after the view was made"):
            read()
    with pytest.raises(MemoryHidden, match="content of home has been erased"):
        told.at("u1")["home"]


def test_a_store_that_has_not_seen_the_erasure_hands_nothing_out(path: Path) -> None:
    with bm.open(path) as writer, bm.open(path, auto_refresh=False) as still:
        writer.append(MOVING)
        still.refresh()
        view, digest = still.at("u1"), still.digest()
        writer.append([bm.Message("u2", "u1")])
        assert still.digest() == digest
        writer.append([Erasure("e", ["u1"])])

        with pytest.raises(KeyError, match="erased after the view was made"):
            view["home"]
        assert still.log.get("u1") == STAYS["u1"]
        assert still.check().ok
        assert still.seq == 4
        assert still.digest() == writer.digest()  # the state that it stood on is no more
        assert still.seq == 6


def test_erasures_of_other_processes_are_obeyed_at_once(told: bm.Store, path: Path) -> None:
    def erase() -> object:
        with bm.open(path) as other:
            return other.append([Erasure("e", ["u1"])]).seq

    view = told.at("u1")
    assert in_child(erase) == "5"
    with pytest.raises(KeyError, match="erased"):
        view["home"]
    assert told.log.is_erased("home")
    assert list(told.log.find("Chengdu")) == []
    assert [event.id for event in told.log.find("Hangzhou")] == ["u1-edit"]


def test_what_another_thread_erases_meanwhile_is_no_damage_and_part_of_no_digest(
    told: bm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = told._log.read
    coming: list[Erasure] = []

    def late(work: Any) -> Any:
        def after_an_erasure(reader: Any) -> Any:
            while coming:
                erasing = threading.Thread(target=told.append, args=([coming.pop()],))
                erasing.start()
                erasing.join()
            return work(reader)

        return read(after_an_erasure)

    digests = [told.digest()]
    for ask, erasure in ((told.digest, Erasure("e", ["u1"])), (told.check, Erasure("f", ["u1-edit"]))):
        coming.append(erasure)
        monkeypatch.setattr(told._log, "read", late)
        answer = ask()
        monkeypatch.undo()
        assert answer == digests[-1] if isinstance(answer, str) else answer.ok
        digests.append(told.digest())
    reference = Reference()
    reference.add([*MOVING, *told.erasures()])
    assert (digests[-1], len(set(digests))) == (reference.digest(), 3)


def test_content_that_is_left_although_it_was_erased_is_not_handed_out(told: bm.Store, path: Path) -> None:
    told.append([Erasure("e", ["u1"])])
    told.close()
    put(path, 1, MOVING[1].body())

    with bm.open(path) as store:
        assert store.log.get("u1") == STAYS["u1"]
        assert list(store.log.find("Chengdu")) == []
        report = store.check()
        assert (report.ok, report.first_bad_seq) == (False, 1)
        assert report.damage == ("seq 1: its content is still there, though u1 was erased: salvage leaves it out",)
        digest = store.digest()
    assert salvage(path, path.with_name("new.bmem")).ok
    with bm.open(path.with_name("new.bmem")) as store:
        assert (store.check().ok, store.log.get("u1"), store.digest() == digest) == (True, STAYS["u1"], False)
    assert b"Chengdu" not in path.with_name("new.bmem").read_bytes()


def test_a_body_that_is_erased_though_no_event_says_so_is_damage(told: bm.Store, path: Path) -> None:
    told.append([Erasure("e", ["u1-edit"])])
    told.close()
    put(path, 1, None)

    with bm.open(path) as store:
        for read in (lambda: store.log.get("u1"), lambda: list(store.log.events()), store.digest):
            with pytest.raises(StoreDamaged, match="no event of the log says so") as raised:
                read()
            assert raised.value.seq == 1
        with pytest.raises(StoreDamaged):
            store.append([MOVING[1]])
        assert store.check().first_bad_seq == 1
        store.append([Erasure("f", ["u1"])])
        assert store.check().ok


def test_an_erasure_interrupted_before_its_commit_leaves_all_as_it_was(
    told: bm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = told.digest()

    def cut(self: Writer, seqs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(Writer, "erase", cut)
        with pytest.raises(KeyboardInterrupt):
            told.append([Erasure("e", ["u1"])])
    assert (told.digest(), told.log.get("u1"), "e" in told.log) == (digest, MOVING[1], False)
    assert told.append([Erasure("e", ["u1"])]).added == 1


# Replay


def test_erasures_are_listed_in_order_and_their_replay_is_a_no_op(told: bm.Store) -> None:
    erasures = [Erasure("f", ["u9"], cascade=False), Erasure("e", ["u1"])]
    assert told.erasures() == []
    told.append([erasures[0], bm.Message("u2", "u1")])
    told.append([erasures[1]])

    assert told.erasures() == erasures
    assert told.append(told.erasures()) == bm.Appended(0, 2, 7)


def test_a_backup_obeys_the_erasures_that_are_replayed_onto_it(told: bm.Store, tmp_path: Path) -> None:
    old = told.backup(tmp_path / "old.bmem")
    told.append([Erasure("e", ["u1"])])

    with bm.open(old) as restored:
        assert "home" in restored.at("u1")
        restored.append(told.erasures())
        assert restored.digest() == told.digest()
        assert {id: restored.log.get(id) for id in STAYS} == STAYS


def test_a_store_with_every_type_of_event_and_erased_contents_opens_for_good(path: Path) -> None:
    """The golden file was written on x86-64, with pages of 4 KiB."""
    path.write_bytes((Path(__file__).parent / "golden" / "store-2.bmem").read_bytes())
    with bm.open(path, verify=True) as store:
        assert store.digest() == "dbf8d3fd3c468b406d6a943f6069b9b6c48e924a942f26886c3bb9c1f71f6fbc"
        assert store.check().ok
        assert [event.id for event in store.log.events() if store.log.is_erased(event.id)] == [
            "u2",
            "card",
            "home2",
            "copy",
        ]
        assert store.log.get("card") == bm.Memory("card", "", sources=["u2"], kind="secret")
        assert store.erasures() == [Erasure("e", ["u2"]), Erasure("f", ["absent"], cascade=False)]
        assert list(store.at("u2")) == ["home"]
        assert list(store.at("u1")) == ["home"]
        assert [event.type for event in store.log.events(6, 9)] == ["retraction", "restoration", "memory"]
