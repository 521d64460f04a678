"""What Mem0 wrote alone, and what a crash, a lost collection, a step or an erasure leave apart."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import Memory, Reason
from branchmem.adapters.mem0 import BranchMem
from branchmem.adapters.mem0.place import InStep
from branchmem.adapters.mem0.rows import everything
from branchmem.adapters.mem0.stores import vector_store
from scripted import USER, Model, config, said, seen, vector


def test_rows_that_mem0_wrote_alone_hang_under_a_root_of_their_own(mem: BranchMem, store: bm.Store) -> None:
    for text in ("likes tea", "lives in Chengdu"):
        mem.memory.add(text, infer=False, metadata={"topic": "life"}, **USER)
    mem.memory.add("likes coffee", infer=False, user_id="bob")
    session = store.session("chat")
    assert seen(mem.at(session.head)) == []

    first, again = mem.import_rows(USER), mem.import_rows(USER)

    assert (first.added, first.known, again.added, again.known) == (2, 0, 0, 2)
    assert seen(mem.at(session.head)) == []
    both = mem.at([session.head, mem.root])
    assert seen(both) == ["likes tea", "lives in Chengdu"]
    assert all(one["metadata"] == {"topic": "life"} for one in both.get_all(filters=USER)["results"])
    assert store.at([session.head, mem.root]).problems == Reason(0)

    mem.memory.add("likes milk", infer=False, **USER)
    both.add("likes water", infer=False, **USER)
    assert (mem.import_rows(USER).added, mem.import_rows(USER).added) == (1, 0)
    assert seen(mem.at(mem.root)) == ["likes milk", "likes tea", "lives in Chengdu"]
    assert seen(mem.at(session.head)) == ["likes water"]


def test_an_imported_memory_changes_on_one_branch_and_keeps_its_history(mem: BranchMem, store: bm.Store) -> None:
    (old,) = mem.memory.add("likes tea", infer=False, **USER)["results"]
    mem.memory.update(old["id"], "likes black tea")
    mem.import_rows(USER)
    session = store.session("chat")
    root, left = session.head, session.say("user", "left").id
    session.rewind(root)
    right = session.say("user", "right").id

    mem.at([left, mem.root]).update(old["id"], "likes green tea")
    mem.at([right, mem.root]).delete(old["id"])

    assert seen(mem.at([left, mem.root])) == ["likes green tea"]
    assert seen(mem.at([right, mem.root])) == []
    assert seen(mem.at([root, mem.root])) == ["likes black tea"]
    told = mem.at([left, mem.root]).history(old["id"])
    assert [one["new_memory"] for one in told] == ["likes tea", "likes black tea", "likes green tea"]
    # what plain Mem0 changes in place is served as the log has it
    mem.memory.update(old["id"], "likes nothing")
    assert seen(mem.at([root, mem.root])) == ["likes black tea"]
    assert mem.reconcile(USER).rebuilt == (old["id"],)
    assert mem.memory.get(old["id"])["memory"] == "likes black tea"
    mem.memory.update(old["id"], metadata={"topic": "drinks"})
    assert mem.at([root, mem.root]).get(old["id"])["metadata"] is None
    assert mem.at([root, mem.root]).get_all(filters=USER)["results"][0]["metadata"] is None
    assert mem.reconcile(USER).rebuilt == (old["id"],)
    assert mem.reconcile(USER).rebuilt == ()


class Killed(BaseException):
    """As if the process had ended here."""


def killed(*args: object, **more: object) -> None:
    raise Killed


def test_a_row_whose_memory_was_not_written_is_hidden_and_can_be_written_again(
    mem: BranchMem, store: bm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store.session("chat")
    session.say("user", "I like tea")
    with monkeypatch.context() as patched:
        patched.setattr(bm.Store, "transact", killed)
        with pytest.raises(Killed):
            mem.at(session.head).add("I like tea", infer=False, **USER)

    here = mem.at(session.head)
    assert len(mem.memory.vector_store.list(top_k=10)[0]) == 1
    assert seen(here) == []
    assert mem.import_rows(USER).added == 0  # it belongs to a branch, and to no other

    (one,) = here.add("I like tea", infer=False, **USER)["results"]
    assert seen(here) == ["I like tea"]
    (astray,) = mem.reconcile(USER).astray
    assert mem.discard_astray(USER) == (astray,)
    assert astray != one["id"]
    assert seen(here) == ["I like tea"]
    assert len(mem.memory.vector_store.list(top_k=10)[0]) == 1


def test_what_the_store_refuses_is_raised_and_not_passed_over(
    mem: BranchMem, store: bm.Store, monkeypatch: pytest.MonkeyPatch, model: Model
) -> None:
    model.facts["I like tea"] = ["likes tea"]
    session = store.session("chat")

    def full(*args: object, **more: object) -> None:
        raise bm.StoreFull(store.path)

    monkeypatch.setattr(bm.Store, "transact", full)
    with pytest.raises(bm.StoreFull):
        mem.at(session.head).add(said("I like tea"), **USER)


def test_a_process_that_is_killed_loses_nothing_that_it_was_told(model: Model, tmp_path: Path) -> None:
    from mem0 import Memory as Mem0

    model.facts.update({"I like tea": ["likes tea"], "I like coffee": ["likes coffee"]})
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from scripted import USER, config, said
import branchmem as bm
from branchmem.adapters.mem0 import BranchMem
from mem0 import Memory
store = bm.open({str(tmp_path / "alice.bmem")!r})
mem = BranchMem(Memory.from_config(config({model.url!r}, Path({str(tmp_path)!r}))), store)
session = store.session("chat")
session.say("user", "I like tea")
mem.at(session.head).add(said("I like tea"), **USER)
session.say("user", "I like coffee")
bm.Store.transact = lambda *args, **more: os._exit(9)
mem.at(session.head).add(said("I like coffee"), **USER)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9

    with bm.open(tmp_path / "alice.bmem") as store:
        mem = BranchMem(Mem0.from_config(config(model.url, tmp_path)), store)
        session = store.session("chat")
        assert seen(mem.at(session.head)) == ["likes tea"]
        mem.at(session.head).add(said("I like coffee"), **USER)
        mem.at(session.head).add(said("I like coffee"), **USER)
        assert seen(mem.at(session.head)) == ["likes coffee", "likes tea"]
        mem.memory.vector_store.client.close()


def test_a_memory_whose_row_is_lost_is_found_again(mem: BranchMem, store: bm.Store) -> None:
    session = store.session("chat")
    session.say("user", "hello")
    here = mem.at(session.head)
    (one,) = here.add("likes tea", metadata={"topic": "drinks"}, infer=False, **USER)["results"]
    store.append([Memory("by-hand", "not Mem0's", sources=[session.head])])
    before = here.get(one["id"])
    mem.memory.vector_store.reset()
    assert here.get(one["id"]) == before  # the log has it

    assert mem.reconcile(USER).rebuilt == (one["id"],)

    assert seen(here) == ["likes tea"]
    assert here.get(one["id"]) == before
    assert mem.reconcile(USER) == type(mem.reconcile(USER))((), (), ())


def test_what_was_erased_leaves_the_collections_too(mem: BranchMem, store: bm.Store) -> None:
    session = store.session("chat")
    session.say("user", "hello")
    here = mem.at(session.head)
    (one,) = here.add("likes tea", infer=False, **USER)["results"]
    entities = mem.memory.entity_store
    entities.insert([[0.1] * 64], [{"data": "Tea", "linked_memory_ids": [one["id"]], **USER}], [one["id"]])

    store.erase([one["id"]])
    assert seen(here) == []
    assert mem.reconcile(USER).removed == (one["id"],)

    assert mem.memory.vector_store.list(top_k=10)[0] == entities.list(top_k=10)[0] == []


def in_step(session: bm.Session, mem: BranchMem, *texts: str, then: Callable[[], None] = lambda: None) -> Any:
    with session.step() as step:
        here = mem.at(step)
        for text in texts:
            here.add(text, infer=False, **USER)
        step.write("done")
        then()
        return seen(here)


def test_a_step_remembers_with_its_message_or_not_at_all(mem: BranchMem, store: bm.Store) -> None:
    session = store.session("chat")
    base = session.say("user", "hello").id
    assert in_step(session, mem, "likes tea", "likes tea", "likes milk") == ["likes milk", "likes tea"]
    first = session.head
    assert seen(mem.at(first)) == ["likes milk", "likes tea"]
    assert seen(mem.at(base)) == []

    session.regenerate()
    with pytest.raises(Killed):
        in_step(session, mem, "likes coffee", then=killed)
    assert seen(mem.at(session.head)) == []
    assert in_step(session, mem, "likes water") == ["likes water"]
    assert seen(mem.at(session.head)) == ["likes water"]
    assert seen(mem.at(first)) == ["likes milk", "likes tea"]
    assert len(mem.discard_astray(USER)) == 1


def test_a_step_can_update_and_cannot_delete(mem: BranchMem, store: bm.Store) -> None:
    session = store.session("chat")
    above = session.say("user", "hello").id
    (one,) = mem.at(above).add("likes tea", infer=False, **USER)["results"]
    with session.step() as step:
        here = mem.at(step)
        second = here.update(one["id"], "likes green tea")["id"]
        assert here.update(one["id"], "likes white tea")["id"] != second
        assert seen(here) == ["likes white tea"]
        for wanted in (lambda: here.delete(one["id"]), lambda: here.delete_all(**USER), here.reset):
            with pytest.raises(bm.Error, match="delete them at its message"):
                wanted()
    assert seen(mem.at(session.head)) == ["likes white tea"]
    assert seen(mem.at(above)) == ["likes tea"]


def test_rows_in_this_process_are_searched_while_others_are_written(
    plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sys.getswitchinterval()
    rows = vector_store(plain)
    monkeypatch.setattr(plain.vector_store, "_bm25_encoder", False)

    def write(first: int) -> None:
        for n in range(first, first + 60):
            rows.insert(vectors=[vector(f"likes {n}")], payloads=[{"data": str(n), **USER}], ids=[n])

    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(4) as pool:
            written = [pool.submit(write, first) for first in (0, 100)]
            while not all(one.done() for one in written):
                rows.search(query="likes", vectors=vector("likes"), top_k=50, filters=USER)
            assert [one.result() for one in written] == [None, None]
    finally:
        sys.setswitchinterval(before)
    assert len(rows.list(top_k=1000)[0]) == 120


def test_a_step_keeps_each_scope_and_each_version_apart(mem: BranchMem, store: bm.Store) -> None:
    session = store.session("chat")
    with session.step() as step:
        here = mem.at(step)
        (one,) = here.add("likes tea", infer=False, **USER)["results"]
        (other,) = here.add("likes tea", infer=False, agent_id="a", **USER)["results"]
        assert other["id"] != one["id"]
        here.update(one["id"], metadata={"sure": True})
        for text in ("likes milk", "likes tea", "likes tea"):
            here.update(other["id"], text)
    here = mem.at(session.head)

    assert seen(here) == ["likes tea", "likes tea"]
    assert here.get(one["id"])["metadata"] == {"sure": True}
    assert len(here.get_all(filters={"agent_id": "a"})["results"]) == 1
    assert [told["new_memory"] for told in here.history(other["id"])] == ["likes tea", "likes milk", *["likes tea"] * 2]


def test_what_is_added_again_in_a_step_is_one_whatever_was_recalled_between(mem: BranchMem, store: bm.Store) -> None:
    session = store.session("chat")
    session.remember("likes green tea", sources=[session.head])
    with session.step() as step:
        here = mem.at(step)
        (one,) = here.add("likes tea", infer=False, **USER)["results"]
        step.recall("tea")
        (again,) = here.add("likes tea", infer=False, **USER)["results"]
    assert again["id"] == one["id"]
    assert seen(mem.at(session.head)) == ["likes tea"]


def test_threads_that_add_and_change_one_thing_in_a_step_leave_one(
    mem: BranchMem, store: bm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, all_there = InStep.name, threading.Barrier(4, timeout=60)

    def together(self: InStep, memories: Any) -> Any:
        all_there.wait()
        return name(self, memories)

    monkeypatch.setattr(InStep, "name", together)
    session = store.session("chat")
    with session.step() as step:
        here = mem.at(step)
        with ThreadPoolExecutor(4) as pool:
            added = list(pool.map(lambda _: here.add("likes tea", infer=False, **USER), range(4)))
            (id,) = {one["id"] for answer in added for one in answer["results"]}
            list(pool.map(lambda n: here.update(id, f"likes tea {n}"), range(4)))
    assert len(mem.at(session.head).get_all(filters=USER)["results"]) == 1


def test_a_step_remembers_nothing_that_it_was_told_had_failed(
    mem: BranchMem, store: bm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(**given: Any) -> None:
        raise ConnectionError("gone")

    session = store.session("chat")
    with session.step() as step:
        with monkeypatch.context() as patched:
            patched.setattr(mem.memory.vector_store, "insert", gone)
            with pytest.raises(ConnectionError):
                mem.at(step).add("likes tea", infer=False, **USER)
        assert step.memories == ()


def test_a_history_ends_with_what_is_served(mem: BranchMem) -> None:
    (one,) = mem.memory.add("likes tea", infer=False, **USER)["results"]
    mem.import_rows(USER)
    mem.memory.update(one["id"], "likes nothing")

    assert [told["new_memory"] for told in mem.at(mem.root).history(one["id"])] == ["likes tea"]


def test_no_link_is_lost_while_links_to_what_was_erased_are_removed(
    mem: BranchMem, store: bm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store.session("chat")
    here = mem.at(session.head)
    ids = [here.add(text, infer=False, **USER)["results"][0]["id"] for text in ("one", "two", "three")]
    entities = mem.memory.entity_store
    entities.insert([[0.1] * 64], [{"data": "Tea", "linked_memory_ids": ids[:2], **USER}], [ids[0]])
    store.erase(ids[:1])
    linking: list[threading.Thread] = []

    def late(*given: Any) -> Any:
        monkeypatch.undo()
        rows = everything(*given)
        link = {"vector_id": ids[0], "payload": {"linked_memory_ids": ids[1:]}}
        linking.append(threading.Thread(target=here.entity_store.update, kwargs=link))
        linking[0].start()
        linking[0].join(0.2)
        return rows

    monkeypatch.setattr("branchmem.adapters.mem0.upkeep.everything", late)
    mem.reconcile(USER)
    linking[0].join()

    assert entities.get(vector_id=ids[0]).payload["linked_memory_ids"] == ids[1:]
