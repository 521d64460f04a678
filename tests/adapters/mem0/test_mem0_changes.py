"""Updates are new versions and deletes are retractions, both on the branch where they are made."""

from __future__ import annotations

from typing import Any

import branchmem as bm
import pytest
from branchmem.adapters.mem0 import BranchMem
from branchmem.adapters.mem0.place import AtMessages
from scripted import USER, Model, said, seen


class Forked:
    """A memory above, and two branches below it."""

    def __init__(self, store: bm.Store, mem: BranchMem) -> None:
        self.mem = mem
        self.session = store.session("chat")
        self.session.say("user", "I like tea")
        (one,) = mem.at(self.session.head).add("likes tea", infer=False, **USER)["results"]
        self.id: str = one["id"]
        self.above = self.session.head
        self.left = self.session.say("user", "left").id
        self.session.rewind(self.above)
        self.right = self.session.say("user", "right").id

    def at(self, anchor: str) -> Any:
        return self.mem.at(anchor)


@pytest.fixture
def forked(store: bm.Store, mem: BranchMem) -> Forked:
    return Forked(store, mem)


def test_an_update_replaces_on_its_branch_only(forked: Forked, store: bm.Store) -> None:
    new = forked.at(forked.left).update(forked.id, "likes green tea")["id"]

    assert seen(forked.at(forked.left)) == ["likes green tea"]
    assert seen(forked.at(forked.right)) == seen(forked.at(forked.above)) == ["likes tea"]
    memory = store.at(forked.left)[new]
    assert memory.supersedes == (forked.id,)
    assert set(memory.sources) == {forked.above, forked.left}


def test_an_id_stands_for_its_newest_version_here(forked: Forked) -> None:
    left = forked.at(forked.left)
    second = left.update(forked.id, "likes green tea")["id"]
    third = left.update(forked.id, text="likes white tea", metadata={"sure": True})["id"]

    assert left.get(forked.id) == left.get(second) == left.get(third)
    assert left.get(forked.id)["memory"] == "likes white tea"
    assert left.get(third)["id"] == third
    assert left.get(third)["metadata"]["sure"] is True
    assert forked.at(forked.right).get(forked.id)["memory"] == "likes tea"
    assert forked.at(forked.right).get(third) is None
    assert seen(left) == ["likes white tea"]


def test_a_history_is_that_of_the_path(forked: Forked) -> None:
    left = forked.at(forked.left)
    left.update(forked.id, "likes green tea")
    left.delete(forked.id)

    told = [(one["event"], one["old_memory"], one["new_memory"]) for one in left.history(forked.id)]
    assert told == [
        ("ADD", None, "likes tea"),
        ("UPDATE", "likes tea", "likes green tea"),
        ("DELETE", "likes green tea", None),
    ]
    assert [one["is_deleted"] for one in left.history(forked.id)] == [False, False, True]
    assert [one["event"] for one in forked.at(forked.right).history(forked.id)] == ["ADD"]
    assert left.history("nothing") == []


def test_a_delete_takes_all_versions_back_on_its_branch_only(forked: Forked) -> None:
    left = forked.at(forked.left)
    left.update(forked.id, "likes green tea")

    left.delete(forked.id)

    assert seen(left) == []
    assert left.get(forked.id) is None
    assert seen(forked.at(forked.right)) == ["likes tea"]
    with pytest.raises(ValueError, match="not found"):
        left.delete(forked.id)
    left.add("likes tea", infer=False, **USER)
    assert seen(left) == ["likes tea"]  # stated again


@pytest.mark.parametrize("verb", ["delete_all", "reset"])
def test_all_is_taken_back_on_one_branch_only(forked: Forked, verb: str) -> None:
    left, right = forked.at(forked.left), forked.at(forked.right)
    left.add([{"role": "user", "content": f"likes tea {n}"} for n in range(3)], infer=False, **USER)
    right.add("likes coffee", infer=False, **USER)
    forked.at(forked.left).add("likes milk", infer=False, user_id="bob")

    left.delete_all(**USER) if verb == "delete_all" else left.reset()

    assert seen(left) == []
    assert len(left.get_all(filters={"user_id": "bob"})["results"]) == (verb == "delete_all")
    assert seen(right) == ["likes coffee", "likes tea"]
    right.add("likes water", infer=False, **USER)
    assert seen(right) == ["likes coffee", "likes tea", "likes water"]


def test_what_was_changed_on_one_branch_is_not_said_on_the_other(forked: Forked, model: Model) -> None:
    model.facts["I said tea"] = ["likes tea"]
    forked.at(forked.left).update(forked.id, "likes green tea")

    assert forked.at(forked.right).add(said("I said tea"), **USER)["results"] == []  # known there
    assert len(forked.at(forked.left).add(said("I said tea"), **USER)["results"]) == 1
    assert "green" in model.prompts[-1]
    assert "green" not in model.prompts[-2]


def test_an_adopted_memory_goes_on_being_one(forked: Forked, store: bm.Store) -> None:
    store.refs.create("right", forked.right)
    (one,) = forked.at(forked.left).add("lives in Chengdu", infer=False, **USER)["results"]
    store.adopt([one["id"]], into="right")
    assert forked.mem.reconcile(USER).rebuilt != ()
    here = forked.at(store.refs["right"])
    assert seen(here) == ["likes tea", "lives in Chengdu"]

    (copy,) = [found for found in here.get_all(filters=USER)["results"] if found["memory"] == "lives in Chengdu"]
    here.update(copy["id"], "lives in Hangzhou")
    assert seen(here) == ["likes tea", "lives in Hangzhou"]

    store.retract([one["id"]], at=forked.left, scope="tree")
    assert seen(here) == ["likes tea"]


def test_an_update_loses_to_a_delete_that_came_first(
    forked: Forked, store: bm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, transact = forked.at(forked.left), bm.Store.transact

    def late(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(bm.Store, "transact", transact)
        forked.at(forked.left).delete(forked.id)
        return transact(*args, **more)

    monkeypatch.setattr(bm.Store, "transact", late)
    with pytest.raises(bm.MemoryHidden, match=forked.id):
        left.update(forked.id, "likes green tea")

    assert seen(left) == []
    assert len(forked.mem.memory.vector_store.list(top_k=10)[0]) == 1  # nothing half-written


def test_what_succeeds_at_the_second_try_is_no_failure(
    forked: Forked, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.facts["both"] = ["likes milk", "likes water"]
    rows, tries = forked.mem.memory.vector_store, []
    insert = rows.insert

    def flaky(**given: Any) -> None:
        tries.append(given["ids"])
        if len(tries) == 1:
            raise ConnectionError("gone for a moment")
        insert(**given)

    monkeypatch.setattr(rows, "insert", flaky)
    added = forked.at(forked.left).add(said("both"), **USER)["results"]

    assert [len(ids) for ids in tries] == [2, 1, 1]  # Mem0 tries one by one
    assert len(added) == 2
    assert seen(forked.at(forked.left)) == ["likes milk", "likes tea", "likes water"]


@pytest.mark.parametrize("verb", ["delete_all", "reset"])
def test_what_has_no_row_is_taken_back_too(forked: Forked, verb: str) -> None:
    left = forked.at(forked.left)
    (other,) = left.add("likes milk", infer=False, user_id="bob", agent_id="a")["results"]
    forked.mem.memory.vector_store.reset()

    left.delete_all(user_id=" alice ") if verb == "delete_all" else left.reset()
    forked.mem.reconcile(USER)

    assert seen(left) == []
    assert (left.get(other["id"]) is None) == (verb == "reset")
    assert seen(forked.at(forked.right)) == ["likes tea"]


def test_a_history_is_in_order_whatever_the_clock_said(forked: Forked) -> None:
    left = forked.at(forked.left)
    later = {"created_at": "2999-01-01T00:00:00+00:00"}
    (one,) = left.add("likes milk", infer=False, metadata=later, **USER)["results"]
    left.update(one["id"], "likes water")
    left.delete(one["id"])

    told = [(one["event"], one["old_memory"], one["new_memory"]) for one in left.history(one["id"])]

    assert told == [
        ("ADD", None, "likes milk"),
        ("UPDATE", "likes milk", "likes water"),
        ("DELETE", "likes water", None),
    ]


def test_a_time_that_no_calendar_has_is_kept_as_metadata_alone(forked: Forked) -> None:
    first = {"created_at": "0001-01-01T00:00:00+05:00"}

    (one,) = forked.at(forked.left).add("likes milk", infer=False, metadata=first, **USER)["results"]

    assert forked.at(forked.left).get(one["id"])["created_at"] == first["created_at"]


def test_what_is_erased_while_it_is_asked_for_is_left_out(
    forked: Forked, store: bm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, view = forked.at(forked.left), AtMessages.view
    texts = ["likes milk", "likes water", "likes wine"]
    going = [here.add(text, infer=False, **USER)["results"][0]["id"] for text in texts]
    asked = iter(going)

    def late(self: AtMessages) -> Any:
        found = view(self)
        monkeypatch.setattr(AtMessages, "view", view)
        store.erase([next(asked)])
        return found

    monkeypatch.setattr(AtMessages, "view", late)
    listed = here.get_all(filters=USER)["results"]
    monkeypatch.setattr(AtMessages, "view", late)
    got = here.get(going[1])
    monkeypatch.setattr(AtMessages, "view", late)
    here.add("likes juice", infer=False, **USER)

    assert sorted(one["memory"] for one in listed) == ["likes tea", "likes water", "likes wine"]
    assert got is None
    assert seen(here) == ["likes juice", "likes tea"]
