"""A store: a log and its engine, told and asked from anywhere."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem.events import Erasure, Restoration, Retraction
from chats import MOVING as CHAT
from logs import in_child


def test_a_store_opens_with_the_same_answers_and_the_same_digest(path: Path) -> None:
    with bm.open(path) as store:
        store.append(CHAT)
        digest, ids = store.digest(), list(store.memory_ids)
    with bm.open(path, readonly=True, verify=True) as store:
        assert (store.digest(), list(store.memory_ids), store.seq) == (digest, ids, 4)
        assert "home" in store.at("u1")
        assert "home" not in store.at("u1-edit")
        assert list(store.log.events()) == CHAT


def test_the_digest_depends_on_the_events_alone() -> None:
    with bm.open_temporary() as one, bm.open_temporary() as other:
        one.append(CHAT)
        for event in reversed(CHAT):
            other.append([event, event])
        assert one.digest() == other.digest()
        other.append([bm.Message("more", "u1")])
        assert one.digest() != other.digest()


def test_appending_again_is_a_no_op() -> None:
    with bm.open_temporary() as store:
        assert store.append([*CHAT, CHAT[0]]) == bm.Appended(4, 1, 4)
        assert store.append(CHAT) == bm.Appended(0, 4, 4)
        assert store.append([]) == bm.Appended(0, 0, 4)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (bm.Message("u1", "chat", role="user", text="else"), "text"),
        (bm.Message("u1", None, role="user", text="I'm moving to Chengdu"), "parent"),
        (bm.Message("u1", bm.LEGACY, role="user", text="I'm moving to Chengdu"), "parent"),
        (bm.Memory("u1", "I'm moving to Chengdu"), "type"),
        (bm.Memory("home", "The user is moving to Chengdu", sources=["u1"], key="city"), "key"),
        (bm.Memory("home", "The user is moving to Chengdu", sources=["u1"], importance=0.5), "importance"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_content_for_an_id_is_refused_with_its_whole_batch(event: bm.Message | bm.Memory, field: str) -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        with pytest.raises(bm.EventConflict, match=r"id of its own") as raised:
            store.append([bm.Message("new", "u1"), event])
        assert (raised.value.id, raised.value.field) == (event.id, field)
        assert "new" not in store.log
        with pytest.raises(bm.EventConflict):
            store.append([bm.Message("v", None, text="a"), bm.Message("v", None, text="b")])
        assert store.seq == 4


def test_every_type_of_event_is_appended_and_read_back(path: Path) -> None:
    events = [
        *CHAT,
        bm.Memory("newer", "in Hangzhou", sources=["u1-edit"], supersedes=["home"], adopts="home", key="city"),
        Retraction("r", "u1", scope="tree", memories=["home"], keys=["city"], standing=True, reason="wrong"),
        Restoration("back", "u1-edit", scope="branch", retraction="r"),
        Erasure("e", ["never"], cascade=False),
    ]
    with bm.open(path) as store:
        assert store.append(events) == bm.Appended(8, 0, 8)
        assert store.append(reversed(events)) == bm.Appended(0, 8, 8)
        digest = store.digest()
    with bm.open(path) as store:
        assert list(store.log.events()) == events
        assert list(store.log.events(type="retraction")) == [events[5]]
        assert store.digest() == digest
        assert store.check().ok


def test_what_is_no_event_is_refused() -> None:
    with bm.open_temporary() as store, pytest.raises(bm.InvalidEvent, match=r"no event"):
        store.append([CHAT[0], {"type": "message"}])  # type: ignore[list-item]


def test_one_event_is_not_a_list_of_events() -> None:
    with bm.open_temporary() as store, pytest.raises(TypeError, match=r"write \[Message\(id='chat'"):
        store.append(CHAT[0])  # type: ignore[arg-type]


def test_another_store_on_the_file_is_seen_at_once(path: Path) -> None:
    with bm.open(path) as one, bm.open(path) as other, bm.open(path, auto_refresh=False) as still:
        one.append(CHAT)
        assert "home" in other.at("u1")
        assert other.tree.path("u1") == ["chat", "u1"]
        assert list(other.memory_ids) == ["home"]
        assert still.at("u1").problems is bm.Reason.UNKNOWN_ANCHOR
        assert still.refresh() == 4
        assert "home" in still.at("u1")


def _append_many(path: str, name: str) -> None:
    with bm.open(path) as store:
        for at in range(40):
            store.append(
                [bm.Message(f"{name}{at}", "chat"), bm.Memory(f"m{name}{at}", "text", sources=[f"{name}{at}"])]
            )


def test_processes_share_a_store(path: Path) -> None:
    with bm.open(path) as store:
        store.append(CHAT)
        context = multiprocessing.get_context("spawn")
        writers = [context.Process(target=_append_many, args=(str(path), name)) for name in "abc"]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [writer.exitcode for writer in writers] == [0, 0, 0]
        assert store.seq == 4 + 3 * 80
        assert all(f"m{name}{at}" in store.at(f"{name}{at}") for name in "abc" for at in range(40))
        with bm.open(path) as again:
            assert again.digest() == store.digest()


def test_threads_share_a_store() -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        failed: list[BaseException] = []

        def work(name: str) -> None:
            try:
                for at in range(60):
                    store.append(
                        [bm.Message(f"{name}{at}", "u1"), bm.Memory(f"m{name}{at}", "", sources=[f"{name}{at}"])]
                    )
                    view = store.at(f"{name}{at}")
                    assert sorted(view.ids()) == sorted(["home", f"m{name}{at}"])
                    assert [memory.id for memory in view.memories()] == ["home", f"m{name}{at}"]
                    assert store.at(None, policy=bm.COMPAT).ids()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert store.seq == 4 + 4 * 120


def test_min_seq_waits_for_nobody(path: Path) -> None:
    with bm.open(path) as store, bm.open(path, auto_refresh=False) as reader:
        store.append(CHAT)
        assert "home" in reader.at("u1", min_seq=4)
        with pytest.raises(bm.StoreBehind, match="seq 4, not yet at 5") as raised:
            reader.at("u1", min_seq=5)
        assert (raised.value.seq, raised.value.min_seq) == (4, 5)


def test_a_view_keeps_its_set_after_later_appends_and_after_close() -> None:
    store = bm.open_temporary()
    store.append([bm.Message("late", "gone"), *CHAT, bm.Memory("m", "", sources=["late"])])
    view = store.at("u1")
    store.append([bm.Memory("after", "", sources=["u1"]), bm.Message("gone", "u1")])
    assert view.ids() == ["home"]
    assert "after" not in view
    assert view.seq == 6
    store.close()
    assert view.ids() == ["home"]
    assert "home" in view
    with pytest.raises(bm.StoreClosed):
        view["home"]
    with pytest.raises(bm.StoreClosed):
        store.at("u1")
    store.close()


def test_a_fork_refuses_to_work_in_the_child(path: Path) -> None:
    with bm.open(path) as store:
        store.append(CHAT)
        view = store.at("u1")

        def child() -> int:
            refused = 0
            for use in (lambda: store.at("u1"), lambda: store.append(CHAT), lambda: "home" in view, lambda: store.seq):
                try:
                    use()
                except bm.StoreForked:
                    refused += 1
            with bm.open(path) as own:
                return refused + ("home" in own.at("u1"))

        assert in_child(child) == "5"
        assert "home" in view
        store.append([bm.Message("more", "u1")])


def test_a_child_leaves_a_temporary_store_to_its_parent() -> None:
    with bm.open_temporary() as store:
        log = store.log
        assert in_child(store.close) == "None"
        assert "StoreForked" in in_child(lambda: len(log))
        store.append(CHAT)
        assert os.path.exists(store.path)


def test_the_log_is_read_whatever_any_view_shows() -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        assert store.log.get("home") == CHAT[2]
        assert [event.id for event in store.log.find("Chengdu")] == ["u1", "home"]
        assert [event.id for event in store.log.events(1, 3)] == ["u1", "home"]
        assert [event.id for event in store.log.events(type="memory")] == ["home"]
        assert ("home" in store.log, "none" in store.log, len(store.log)) == (True, False, 4)
        with pytest.raises(bm.UnknownEvent, match="no event none"):
            store.log.get("none")
        assert "\ud800" not in store.log
        with pytest.raises(bm.UnknownEvent):
            store.log.get("\ud800")
        with pytest.raises(ValueError, match="type must be one of message, memory"):
            store.log.events(type="messages")


def test_an_engine_without_a_file_keeps_no_content() -> None:
    engine = bm.Engine()
    engine.add(CHAT)
    assert engine.add([bm.Message("u1", "chat", text="another body is not compared")]).duplicates == 1
    with pytest.raises(bm.EventConflict) as raised:
        engine.add([bm.Message("u1", None)])
    assert raised.value.field == "parent"
    for read in (lambda: engine.at("u1")["home"], lambda: engine.at("u1").memories()):
        with pytest.raises(TypeError, match="keeps no content"):
            read()


def test_a_temporary_store_is_gone_when_closed() -> None:
    store = bm.open_temporary()
    assert os.path.exists(store.path)
    store.close()
    assert not os.path.exists(os.path.dirname(store.path))


def test_a_store_that_is_not_there_is_not_made_by_reading(path: Path) -> None:
    for how in ({"create": False}, {"readonly": True}):
        with pytest.raises(bm.StoreMissing):
            bm.open(path, **how)
    assert not path.exists()


def test_a_string_is_no_list_of_ids() -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        for ask in (store.bitmaps, store.memory_ordinals, store.message_ordinals):
            with pytest.raises(TypeError, match=r"write \['u1'\]"):
                ask("u1")


def test_check_looks_at_what_the_store_holds_and_hides_nothing_that_came_after(path: Path) -> None:
    with bm.open(path) as writer, bm.open(path, auto_refresh=False) as store:
        writer.append(CHAT[:2])
        store.refresh()
        writer.append(CHAT[2:])
        report = store.check()
        assert (report.ok, report.events) == (True, 2)
        assert store.refresh() == 2
        assert "home" in store.at("u1")


def test_what_another_thread_appends_meanwhile_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        digest, read = store.digest(), store._log.read

        def late(work: Any) -> Any:
            def after_an_append(reader: Any) -> Any:
                appending = threading.Thread(target=store.append, args=([bm.Message("late", "chat")],))
                appending.start()
                appending.join()
                return work(reader)

            return read(after_an_append)

        monkeypatch.setattr(store._log, "read", late)
        assert store.digest() == digest
        monkeypatch.undo()
        assert store.log.get("late") == bm.Message("late", "chat")
        assert store.digest() != digest


def test_check_says_what_hides_memories() -> None:
    with bm.open_temporary() as store:
        store.append(
            [
                bm.Message("p1", None, role="user"),
                bm.Message("p2", None, role="user"),
                bm.Message("orphan", "gone"),
                bm.Message("x", "y"),
                bm.Message("y", "x"),
                bm.Message("a", "p1"),
                bm.Message("b", "p1"),
                bm.Memory("fork", "", sources=["a", "b"]),
                bm.Memory("dangling", "", sources=["nope"], derived_from=["nomem"]),
                bm.Memory("fine", "", sources=["a", "p2"]),
            ]
        )
        report = store.check()
        assert report.ok
        assert report.orphans == {"orphan": "gone"}
        assert [set(circle) for circle in report.circles] == [{"x", "y"}]
        assert report.dangling == {"dangling": ("nope", "nomem")}
        assert report.prompts == ("p1", "p2")
        assert report.unshowable == {
            "fork": bm.Reason.SIBLING,
            "dangling": bm.Reason.MISSING_SOURCE | bm.Reason.MISSING_UPSTREAM,
        }
        assert "1 orphans" in str(report)
        assert report.to_dict()["unshowable"]["fork"] == ("SIBLING",)


def test_check_says_what_the_log_does_not_have_and_where_places_are_unknown() -> None:
    with bm.open_temporary() as store:
        store.append(
            [
                *CHAT,
                bm.Message("old", bm.LEGACY),
                bm.Memory("taken", "", sources=["u1"], adopts="gone", supersedes=["u1", "home"]),
                bm.Memory("one", "", sources=["u1"], supersedes=["other"]),
                bm.Memory("other", "", sources=["u1"], supersedes=["one"]),
                bm.Memory("withdrawn", "", sources=["u1"]),
                Retraction("r", "nowhere", scope="tree", memories=["home", "misspelt"], sources=["u9"]),
                Retraction("for all", "nowhere", scope="everywhere", memories=["withdrawn"]),
                Restoration("s", "old", scope="branch", retraction="home"),
                Erasure("e", ["u1-edit", "later", "r"], cascade=False),
            ]
        )
        report = store.check()

        assert report.ok
        assert (report.retractions, report.restorations, report.erasures, report.erased) == (2, 1, 1, 1)
        assert report.dangling == {
            "taken": ("gone", "u1"),
            "r": ("nowhere", "u9", "misspelt"),
            "for all": ("nowhere",),
            "s": ("home",),
            "e": ("later", "r"),
        }
        assert report.unplaced == ("r", "s")
        assert report.supersession_circles == (("one", "other"),)
        assert report.unshowable["withdrawn"] == bm.Reason.RETRACTED
        assert "5 events with dangling references, 2 retractions and restorations without a place" in str(report)
        assert "2 retractions, 1 restorations, 1 erasures, 1 of them erased)" in str(report)
        assert report.to_dict()["supersession_circles"] == (("one", "other"),)


def test_a_store_written_by_the_first_version_opens_for_good(path: Path) -> None:
    """The golden file was written on x86-64, with pages of 4 KiB."""
    path.write_bytes((Path(__file__).parent / "golden" / "store-1.bmem").read_bytes())
    with bm.open(path, verify=True) as store:
        assert store.digest() == "666510cea2401756cbc9a5bff3e238a08b1b3223c7d4c14b3fc4a33e33095210"
        assert store.check().ok
        assert store.at("u1").memories() == [
            bm.Memory("home", "The user is moving to Chengdu", sources=["u1"], key="home_city", importance=0.5)
        ]
        assert store.at("u1-edit").explain("trip").reasons == (
            bm.Reason.MISSING_UPSTREAM | bm.Reason.DETACHED_SOURCE | bm.Reason.SIBLING
        )
        store.append([bm.Message("nowhere", "u1")])
        assert len(store.log) == 8


def test_a_batch_is_seen_whole_or_not_at_all() -> None:
    """A reader in another thread meets the log before the batch or after it, never in between."""
    with bm.open_temporary() as store:
        store.append(CHAT)
        met: set[int] = set()
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                met.add(store.at("u1", count=False).seq)
                stop.wait(0.0002)

        reader = threading.Thread(target=read)
        reader.start()
        store.append([bm.Message(f"x{at}", "u1") for at in range(60_000)])
        stop.set()
        reader.join()
        assert met <= {4, 60_004}


def test_what_was_committed_is_seen_although_taking_it_in_was_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    with bm.open_temporary() as store:
        store.append(CHAT)
        engine = store._engine

        class Interrupted:
            def __getattr__(self, name: str) -> object:
                return getattr(engine, name)

            def fold(self, blocks: list[object]) -> None:
                if blocks:
                    raise KeyboardInterrupt

        monkeypatch.setattr(store, "_engine", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            store.append([bm.Message("more", "u1")])
        monkeypatch.undo()
        assert not store.at("more").problems
