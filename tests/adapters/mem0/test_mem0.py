"""Mem0 on branches: what was remembered on one is seen there, and nowhere else; none is lost, none is doubled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import branchmem as bm
import pytest
from branchmem.adapters.mem0 import BranchMem
from branchmem.errors.mem0 import NotCovered, SourceElsewhere
from scripted import USER, Model, said, seen, texts

FACTS = {
    "I like tea": ["likes tea"],
    "I like coffee": ["likes coffee"],
    "Tea it is": ["was offered tea"],
    "Green or black?": ["was asked which tea"],
    "I live in Chengdu": ["lives in Chengdu"],
}


@pytest.fixture
def session(store: bm.Store, model: Model) -> bm.Session:
    model.facts.update(FACTS)
    return store.session("chat")


def turn(session: bm.Session, mem: BranchMem, *messages: str) -> Any:
    """What an application does: the messages are said, then Mem0 is given them."""
    for message in said(*messages):
        session.say(message["role"], message["content"])
    return mem.at(session.head).add(said(*messages), **USER)


def regenerated(session: bm.Session, mem: BranchMem, answer: str) -> Any:
    session.regenerate()
    session.say("assistant", answer)
    return mem.at(session.head).add(said("I like tea", answer), **USER)


def test_an_edit_sees_nothing_of_what_it_replaced(session: bm.Session, mem: BranchMem) -> None:
    turn(session, mem, "I live in Chengdu", "Noted")
    asked = session.say("user", "I like tea")
    session.say("assistant", "Tea it is")
    mem.at(session.head).add(said("I like tea", "Tea it is"), **USER)
    old = session.head

    session.edit(asked, "I like coffee")
    mem.at(session.head).add(said("I like coffee"), **USER)

    assert seen(mem.at(session.head)) == ["likes coffee", "lives in Chengdu"]
    assert seen(mem.at(old)) == ["likes tea", "lives in Chengdu", "was offered tea"]


def test_a_regenerated_answer_sees_nothing_of_the_rejected_one(session: bm.Session, mem: BranchMem) -> None:
    turn(session, mem, "I like tea", "Tea it is")

    regenerated(session, mem, "Green or black?")

    assert seen(mem.at(session.head)) == ["likes tea", "was asked which tea"]


def test_forks_see_nothing_of_each_other_and_switching_back_brings_all_back(
    session: bm.Session, mem: BranchMem, store: bm.Store
) -> None:
    turn(session, mem, "I live in Chengdu", "Noted")
    fork = session.fork("other")
    turn(session, mem, "I like tea", "Fine")
    turn(fork, mem, "I like coffee", "Fine")
    left, right = session.head, fork.head

    seq = store.seq
    assert seen(mem.at(right)) == ["likes coffee", "lives in Chengdu"]
    session.switch(right)
    session.switch(left)
    assert seen(mem.at(session.head)) == ["likes tea", "lives in Chengdu"]
    assert store.seq == seq


def test_a_turn_that_is_tried_again_is_remembered_once(session: bm.Session, mem: BranchMem) -> None:
    first = turn(session, mem, "I like tea", "Tea it is")

    again = mem.at(session.head).add(said("I like tea", "Tea it is"), **USER)
    raw = [mem.at(session.head).add("I like tea", infer=False, **USER) for _ in range(2)]

    assert len(first["results"]) == 2
    assert again["results"] == []  # Mem0 found both itself, as it does with one conversation
    assert raw[0]["results"][0]["id"] == raw[1]["results"][0]["id"]
    assert seen(mem.at(session.head)) == ["I like tea", "likes tea", "was offered tea"]
    assert len(mem.memory.vector_store.list(top_k=100)[0]) == 3


def test_the_same_fact_is_remembered_on_each_branch_that_states_it(session: bm.Session, mem: BranchMem) -> None:
    root = session.head
    turn(session, mem, "I like tea", "Fine")
    session.rewind(root)

    added = turn(session, mem, "I like tea", "All right")

    assert texts(added) == seen(mem.at(session.head)) == ["likes tea"]


def test_branches_that_run_at_one_time_keep_apart(session: bm.Session, mem: BranchMem, model: Model) -> None:
    forks = [session.fork(f"fork {n}") for n in range(8)]
    model.facts.update({f"I like number {n}!": [f"likes number {n}"] for n in range(8)})

    def talk(n: int) -> list[str]:
        for _ in range(3):
            turn(forks[n], mem, f"I like number {n}!", "Fine")
        return seen(mem.at(forks[n].head))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(talk, range(8)))

    assert found == [[f"likes number {n}"] for n in range(8)]


def test_threads_that_remember_and_change_one_thing_leave_one(session: bm.Session, mem: BranchMem) -> None:
    session.say("user", "I like tea")
    here = mem.at(session.head)
    with ThreadPoolExecutor(4) as pool:
        added = list(pool.map(lambda _: here.add("I like tea", infer=False, **USER), range(4)))
        (id,) = {one["id"] for answer in added for one in answer["results"]}
        list(pool.map(lambda n: here.update(id, f"likes tea {n}"), range(4)))

    (left,) = here.get_all(filters=USER)["results"]
    assert here.get(id)["id"] == left["id"]


def test_mem0_shows_its_model_this_branch_alone(session: bm.Session, mem: BranchMem, model: Model) -> None:
    root = session.head
    turn(session, mem, "I like coffee", "Noted it down")
    session.rewind(root)
    turn(session, mem, "I like tea", "Tea it is")

    turn(session, mem, "I live in Chengdu", "A fine city")

    earlier, _, known = model.prompts[-1].partition("## Recently Extracted Memories")
    assert "coffee" not in model.prompts[-1]
    assert "Noted" not in model.prompts[-1]
    assert earlier.count("user: I like tea\nassistant: Tea it is\n") == 1
    assert "Chengdu" not in earlier
    assert "likes tea" in known.partition("## New Messages")[0]


def test_a_search_finds_as_many_as_are_visible_however_many_are_not(session: bm.Session, mem: BranchMem) -> None:
    root = session.head
    session.say("user", "other")
    elsewhere = mem.at(session.head)
    elsewhere.add([{"role": "user", "content": f"likes tea {n}"} for n in range(50)], infer=False, **USER)
    session.rewind(root)
    session.say("user", "here")
    here = mem.at(session.head)
    here.add([{"role": "user", "content": f"walks to work along road {n}"} for n in range(7)], infer=False, **USER)

    found = here.search("likes tea", filters=USER, top_k=5, threshold=0.0)["results"]

    assert len(found) == 5
    assert all("walks" in one["memory"] for one in found)
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    assert len(here.get_all(filters=USER, top_k=6)["results"]) == 6
    assert len(here.get_all(filters=USER)["results"]) == 7
    assert here.get_all(filters={"user_id": "bob"})["results"] == []
    assert len(elsewhere.search("likes tea", filters=USER, top_k=50)["results"]) == 50


def test_a_memory_is_a_memory_of_the_store(session: bm.Session, mem: BranchMem, store: bm.Store) -> None:
    (one,) = turn(session, mem, "I live in Chengdu", "Noted")["results"]
    here, memory = session.head, store.at(session.head)[one["id"]]
    assert (memory.text, set(memory.sources)) == ("lives in Chengdu", set(store.tree.path(here)[1:]))

    session.rewind(store.tree.path(here)[0])
    session.say("user", "elsewhere")
    assert "sibling" in str(store.at(session.head).explain(one["id"]))
    assert mem.at(session.head).get(one["id"]) is None
    with pytest.raises(ValueError, match="not found"):
        mem.at(session.head).delete(one["id"])
    with pytest.raises(ValueError, match="not found"):
        mem.at(session.head).update(one["id"], "lives elsewhere")

    store.retract(sources=[store.tree.path(here)[1]], at=here, scope="everywhere")
    assert seen(mem.at(here)) == []


def test_metadata_comes_back_as_it_was_given(session: bm.Session, mem: BranchMem) -> None:
    session.say("user", "I like tea")
    here = mem.at(session.head)
    (one,) = here.add("I like tea", metadata={"topic": "drinks"}, infer=False, **USER)["results"]

    for found in (here.get(one["id"]), here.get_all(filters=USER)["results"][0]):
        assert found["metadata"] == {"topic": "drinks"}
    assert texts(here.search("tea", filters={**USER, "topic": {"eq": "drinks"}})) == ["I like tea"]
    assert texts(here.search("tea", filters={**USER, "topic": {"eq": "food"}})) == []


def test_sources_may_be_narrower_and_lie_on_the_path(session: bm.Session, mem: BranchMem, store: bm.Store) -> None:
    root = session.head
    sibling = session.say("user", "something else")
    session.rewind(root)
    user = session.say("user", "I like tea")
    session.say("assistant", "Tea it is")

    (one, _) = mem.at(session.head, sources=[user]).add(said("I like tea", "Tea it is"), **USER)["results"]

    assert store.at(user.id)[one["id"]].sources == (user.id,)
    with pytest.raises(SourceElsewhere, match=sibling.id):
        mem.at(session.head, sources=[sibling])
    with pytest.raises(TypeError, match="sources="):
        mem.at(session.head, sources=user.id)
    with pytest.raises(bm.BadAnchor):
        mem.at("nowhere")


def test_what_an_answer_repeats_goes_with_what_it_was_written_with(
    session: bm.Session, mem: BranchMem, store: bm.Store
) -> None:
    (home,) = turn(session, mem, "I live in Chengdu", "Noted")["results"]
    session.say("user", "I like tea")
    session.say("assistant", "Tea it is", meta={"recalled": [home["id"]]})
    mem.at(session.head).add(said("I like tea", "Tea it is"), **USER)
    assert seen(mem.at(session.head)) == ["likes tea", "lives in Chengdu", "was offered tea"]

    mem.at(session.head).delete(home["id"])

    assert seen(mem.at(session.head)) == []
    turn(session, mem, "I like coffee", "Fine")
    assert seen(mem.at(session.head)) == ["likes coffee"]


def test_what_an_answer_was_written_with_is_never_guessed(session: bm.Session, mem: BranchMem) -> None:
    session.say("user", "I like tea")
    session.say("assistant", "Tea it is", meta={"recalled": ["elsewhere"]})
    mem.at(session.head).add(said("I like tea", "Tea it is"), **USER)
    unknown = mem.at(session.head).get_all(filters=USER)["results"]
    session.regenerate()
    unread = session.say("assistant", "Tea it is", meta={"recalled": "everything"}).id

    assert unknown == []
    with pytest.raises(bm.InvalidEvent, match=f"receipt of {unread}.*sources"):
        mem.at(session.head).add(said("I like tea", "Tea it is"), **USER)


def test_where_nobody_knows_what_an_answer_was_written_with_nothing_is_remembered_but_all_is_read_and_deleted(
    session: bm.Session, mem: BranchMem, store: bm.Store
) -> None:
    session.say("user", "I like tea")
    (tea,) = mem.at(session.head).add("likes tea", infer=False, **USER)["results"]
    above = session.head
    unread = session.say("assistant", "Tea it is", meta={"recalled": "everything"}).id
    session.rewind(above)
    erased = session.say("assistant", "Tea it is", meta={"recalled": [tea["id"]]}).id
    store.erase([erased])

    for head, why in ((unread, "receipt"), (erased, "erased")):
        at = mem.at(head)
        with pytest.raises(bm.InvalidEvent, match=f"{why}.*name other messages as sources"):
            at.add("tea", infer=False, **USER)
        with pytest.raises(bm.InvalidEvent, match=f"{why}.*name other messages as sources"):
            at.update(tea["id"], "milk")
        assert seen(at) == ["likes tea"]
        at.delete(tea["id"])
        assert seen(at) == []
    assert len(store.memory_ids) == 1


def test_an_update_from_an_answer_goes_with_what_that_was_written_with_but_for_what_it_replaces(
    session: bm.Session, mem: BranchMem, store: bm.Store
) -> None:
    (home,) = turn(session, mem, "I live in Chengdu", "Noted")["results"]
    (milk,) = mem.at(session.head).add("likes milk", infer=False, **USER)["results"]
    session.say("assistant", "Chengdu has good milk", meta={"recalled": [home["id"], milk["id"]]})
    new = mem.at(session.head).update(milk["id"], "likes the milk of Chengdu")["id"]
    assert store.log.get(new).to_dict()["derived_from"] == [home["id"]]
    assert seen(mem.at(session.head)) == ["likes the milk of Chengdu", "lives in Chengdu"]

    mem.at(session.head).delete(home["id"])

    assert seen(mem.at(session.head)) == ["likes milk"]


def test_no_memory_passes_by_the_views(session: bm.Session, mem: BranchMem) -> None:
    here = mem.at(session.head)
    with pytest.raises(AttributeError):
        _ = here.vector_store.client
    with pytest.raises(AttributeError):
        _ = here.db.connection
    with pytest.raises(NotCovered, match="a Session of Mem0"):
        BranchMem(session, mem.store)
    with pytest.raises(NotCovered, match="bound"):
        BranchMem(here, mem.store)
    with here:
        pass
    assert mem.memory.db is not None  # it is open still: it belongs to the Mem0 that was given
