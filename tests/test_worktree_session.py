"""The session of a branch: its commits, its switches, and what is about the user instead of the branch."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from threading import Thread

import branchmem as bm
import pytest
from branchmem.errors import (
    BranchSwitched,
    EventConflict,
    InvalidEvent,
    InvalidRef,
    NoStep,
    ProfileAstray,
    RefMoved,
    StepEnded,
    WorktreeUnknown,
)
from branchmem.events import Message, Retraction
from branchmem.worktree import PROFILE, Worktree
from repositories import Repository

pytestmark = pytest.mark.usefixtures("git_alone")


@pytest.fixture
def store() -> Iterator[bm.Store]:
    with bm.open_temporary() as opened:
        yield opened


@pytest.fixture
def worktree(store: bm.Store, shop: Repository) -> Worktree:
    return Worktree(store, shop.folder)


def message(store: bm.Store, id: str) -> Message:
    event = store.log.get(id)
    assert isinstance(event, Message)
    return event


def texts(store: bm.Store, *refs: str) -> list[str]:
    return sorted(memory.text for memory in store.at_ref(*refs).memories())


def test_what_is_said_bears_the_commit_that_is_checked_out(worktree: Worktree, shop: Repository) -> None:
    session, one = worktree.session(), shop.git("rev-parse", "HEAD")
    said = session.say("user", "hello", meta={"turn": 1})
    two = shop.commit("two")

    assert said.meta == {"turn": 1, "commit": one}
    assert session.say("user", "on").meta == {"commit": two}
    assert session.edit(said, "hello!").meta == {"commit": two}


def test_a_step_bears_the_commit_at_its_end(worktree: Worktree, shop: Repository) -> None:
    session = worktree.session()
    with session.step() as step:
        two = shop.commit("two")

    assert message(worktree.store, step.id).meta["commit"] == two


def test_a_directory_without_git_has_no_commits_to_note(store: bm.Store, tmp_path: Path) -> None:
    session = Worktree(store, tmp_path).session()

    assert session.ref.endswith("/@{folder}")
    assert session.say("user", "hello").meta == {}
    with session.step() as step:
        step.write("hello")
    assert message(store, step.id).meta == {}


def test_saying_it_again_with_its_id_is_a_no_op_at_another_commit(worktree: Worktree, shop: Repository) -> None:
    session = worktree.session()
    said = session.say("user", "hello", id="u1")
    shop.commit("two")

    assert session.say("user", "hello", id="u1") == said
    assert session.head == "u1"


def test_a_session_whose_directory_was_switched_writes_nothing(worktree: Worktree, shop: Repository) -> None:
    session, main = worktree.session(), worktree.ref
    shop.branch("feature")
    digest = worktree.store.digest()

    for act in (lambda: session.say("user", "x"), lambda: session.edit(session.head, "x"), session.step().__enter__):
        with pytest.raises(BranchSwitched, match=r"nothing was written; take a new worktree\.session\(\)") as refused:
            act()
        assert (refused.value.expected, refused.value.found) == (main, worktree.ref)

    assert worktree.store.digest() == digest
    shop.switch("main")
    assert session.say("user", "back").parent is not None


def test_a_session_whose_directory_became_another_repository_writes_nothing(store: bm.Store, shop: Repository) -> None:
    folder = shop.folder / "part"
    folder.mkdir()
    session = Worktree(store, folder).session()
    Repository.make(folder)

    with pytest.raises(BranchSwitched, match=r"stands on 'part-[0-9a-f]{8}/main' now, and this session on 'shop-"):
        session.say("user", "x")


def test_a_detached_head_that_goes_on_needs_a_new_session(worktree: Worktree, shop: Repository) -> None:
    shop.detach()
    session = worktree.session()
    session.say("user", "at one")
    shop.commit("two")

    with pytest.raises(BranchSwitched):
        session.say("user", "at two")
    assert worktree.session().head == session.head


def test_a_switch_during_a_step_loses_nothing(worktree: Worktree, shop: Repository) -> None:
    session, one = worktree.session(), shop.git("rev-parse", "HEAD")
    with session.step() as step:
        step.remember("learned", kind="project")
        shop.branch("feature")
        shop.commit("two")

    assert session.head == step.id
    assert message(worktree.store, step.id).meta["commit"] == one
    assert texts(worktree.store, session.ref) == ["learned"]


def test_a_git_that_fails_during_a_step_loses_nothing(worktree: Worktree, shop: Repository) -> None:
    session = worktree.session()
    with session.step() as step:
        step.write("done")
        (shop.folder / ".git" / "HEAD").write_bytes(b"")

    assert message(worktree.store, step.id).meta == {}
    with pytest.raises(WorktreeUnknown):
        session.say("user", "on")


def test_what_is_about_the_user_is_known_on_every_branch_of_every_project(
    store: bm.Store, shop: Repository, tmp_path: Path
) -> None:
    session = Worktree(store, shop.folder).session()
    said = session.say("user", "I am vegan; the port is 8080")
    name = session.remember("is vegan", kind="user", key="diet", sources=[said])
    session.remember("the port is 8080", kind="project", sources=[said])
    other = Worktree(store, Repository.make(tmp_path / "other").folder).session()
    shop.branch("feature")

    assert [memory.text for memory in other.view().memories()] == ["is vegan"]
    assert sorted(memory.text for memory in Worktree(store, shop.folder).session().view().memories()) == [
        "is vegan",
        "the port is 8080",
    ]
    (note,) = name.sources
    assert (message(store, note).role, message(store, note).meta) == ("note", {"from": (said.id,)})
    assert store.refs[PROFILE] == note


def test_a_fork_brings_what_is_about_the_user_to_the_profile_as_well(worktree: Worktree, shop: Repository) -> None:
    session = worktree.session()
    session.say("user", "try something")
    trial = session.fork("trial")
    with trial.step() as step:
        step.remember("tries redis", kind="project")
        step.remember("likes it short", kind="feedback")

    assert texts(worktree.store, session.ref, PROFILE) == ["likes it short"]
    assert texts(worktree.store, "trial", PROFILE) == ["likes it short", "tries redis"]
    assert message(worktree.store, step.id).meta == {"commit": shop.git("rev-parse", "HEAD")}
    shop.branch("feature")
    with pytest.raises(BranchSwitched, match=f"stands on '{worktree.ref}' now, and this session on 'trial'"):
        trial.say("user", "go on")


def test_a_profile_in_the_tree_of_a_project_is_refused_before_anything_is_written(
    store: bm.Store, worktree: Worktree, shop: Repository
) -> None:
    session = worktree.session()
    here = session.say("user", "x").id
    store.refs.move(PROFILE, here)
    shop.branch("feature")
    before = (store.digest(), dict(store.refs))

    for folder in ("main", "feature"):
        shop.switch(folder)
        with pytest.raises(ProfileAstray, match=r"'profile' stands at .*: what is about the user") as raised:
            worktree.session()
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert (store.digest(), dict(store.refs)) == before

    shop.switch("main")
    store.refs.delete(PROFILE)
    assert worktree.session().head == here
    assert worktree.session().remember("is vegan", kind="user").text in texts(store, worktree.ref, PROFILE)


def test_which_kinds_are_global_is_the_users_choice(store: bm.Store, shop: Repository) -> None:
    session = Worktree(store, shop.folder, global_kinds=["reference"]).session()
    said = session.say("user", "see the wiki")
    session.remember("likes tea", kind="user", sources=[said])
    session.remember("the wiki", kind="reference")

    assert texts(store, PROFILE) == ["the wiki"]
    with pytest.raises(NoStep):
        session.remember("nothing said it", kind="user")
    with pytest.raises(TypeError, match="list of kinds"):
        Worktree(store, shop.folder, global_kinds="user")


def test_a_global_memory_is_remembered_once(store: bm.Store, worktree: Worktree, shop: Repository) -> None:
    first = worktree.session().remember("likes tea", kind="user", key="drink")
    shop.branch("feature")
    session = worktree.session()

    assert session.remember("likes tea", kind="user", key="drink") == first
    with pytest.raises(EventConflict, match="key"):
        session.remember("likes tea", kind="user", key="taste")
    coffee = session.remember("likes coffee", kind="user", key="drink", supersedes=[first])
    again = session.remember("likes tea", kind="user", key="drink", supersedes=[coffee])

    assert again.id != first.id  # what was replaced and holds again is a new memory
    assert texts(store, PROFILE) == ["likes tea"]


def test_a_global_memory_cannot_derive_from_a_branch(worktree: Worktree) -> None:
    session = worktree.session()
    scoped = session.remember("uses postgres", kind="project", sources=[session.say("user", "postgres")])
    global_ = session.remember("knows SQL", kind="user")

    with pytest.raises(InvalidEvent, match=f"cannot derive from {scoped.id}"):
        session.remember("likes postgres", kind="user", derived_from=[scoped])
    derived = session.remember("can join tables", kind="user", derived_from=[global_])
    assert derived.id in worktree.store.at_ref(PROFILE)


def test_a_retraction_holds_for_global_memories_as_well(store: bm.Store, worktree: Worktree) -> None:
    session = worktree.session()
    memory = session.remember("is vegan", kind="user")
    store.append([Retraction("never", store.refs[PROFILE], scope="everywhere", memories=[memory.id])])

    assert memory.id not in session.view()


def test_a_step_that_ends_well_brings_what_it_learned_of_the_user(store: bm.Store, worktree: Worktree) -> None:
    session = worktree.session()
    with session.step() as step:
        name = step.remember("is vegan", kind="user")
        assert session.remember("is vegan", kind="user") == name
        port = session.remember("the port is 8080", kind="project")
        assert (step.noted, step.memories) == ((name,), (port,))
        assert texts(store, PROFILE) == []

    assert texts(store, PROFILE) == ["is vegan"]
    assert texts(store, session.ref) == ["the port is 8080"]
    assert message(store, name.sources[0]).meta == {"from": (step.id,)}


@pytest.mark.parametrize("on_cancel", ["drop", "keep"])
def test_a_step_that_fails_leaves_nothing_in_the_profile(
    store: bm.Store, worktree: Worktree, on_cancel: bm.session.OnCancel
) -> None:
    session = worktree.session()
    before = store.refs[PROFILE]
    with suppress(ZeroDivisionError), session.step(on_cancel=on_cancel) as step:
        step.remember("is vegan", kind="user")
        raise ZeroDivisionError
    assert step.cancelled
    with session.step(on_cancel=on_cancel) as step:
        step.remember("is called Bob", kind="user")
        step.cancel()

    assert store.refs[PROFILE] == before
    assert (step.id in store.log) == (on_cancel == "keep")


def test_a_step_may_build_on_what_it_has_just_learned_of_the_user(store: bm.Store, worktree: Worktree) -> None:
    session = worktree.session()
    known = session.remember("likes tea", kind="user")
    with session.step() as step:
        assert step.remember("likes tea", kind="user") == known
        scoped = step.remember("tea is out", kind="project")
        name = step.remember("is vegan", kind="user")
        with pytest.raises(InvalidEvent, match="cannot derive from"):
            step.remember("needs tea", kind="user", derived_from=[scoped])
        with pytest.raises(InvalidEvent, match="joins the profile only when this step has ended well"):
            step.remember("no meat in the fridge", kind="project", derived_from=[name])
        diet = step.remember("eats tofu", kind="user", derived_from=[name])
        step.remember("is vegan since May", kind="user", supersedes=[name])
        Worktree(store, worktree.directory).session().remember("wants replies", kind="feedback")
        other = Thread(target=session.remember, args=("is vegan",), kwargs={"kind": "user"})
        other.start()  # a thread of its own, and so not in the step
        other.join()

    assert texts(store, PROFILE) == ["eats tofu", "is vegan since May", "likes tea", "wants replies"]
    (upstream,) = store.at_ref(PROFILE)[diet.id].derived_from
    assert (upstream != name.id, upstream in store.memory_ids) == (True, True)


def test_a_step_that_is_over_or_cancelled_learns_nothing_more(store: bm.Store, worktree: Worktree) -> None:
    session = worktree.session()
    with session.step() as step:
        late = copy_context()
        step.cancel()
        with pytest.raises(StepEnded):
            session.remember("is vegan", kind="user")

    with pytest.raises(StepEnded):
        late.run(session.remember, "is called Bob", kind="user")
    assert texts(store, PROFILE) == []


def test_a_step_whose_ref_was_moved_keeps_what_it_learned_of_the_user(store: bm.Store, worktree: Worktree) -> None:
    session = worktree.session()
    step = session.step()
    step.__enter__()
    step.remember("is vegan", kind="user")
    other = Thread(target=session.say, args=("user", "meanwhile"))
    other.start()
    other.join()

    with pytest.raises(RefMoved):
        step.__exit__(None, None, None)
    assert texts(store, PROFILE) == ["is vegan"]


def test_a_step_loses_nothing_where_the_profile_came_to_know_the_same_under_another_key(
    store: bm.Store, worktree: Worktree
) -> None:
    session = worktree.session()
    with session.step() as step:
        step.write("Noted.")
        mine = step.remember("likes tea", kind="user", key="drink")
        theirs = session.fork("beside").remember("likes tea", kind="user", key="tea")

    assert (session.head, message(store, step.id).text) == (step.id, "Noted.")
    assert {memory.id for memory in store.at_ref(PROFILE).memories()} == {mine.id, theirs.id}
    assert session.remember("likes tea", kind="user", key="drink").id == mine.id
    assert session.remember("likes tea", kind="user", key="tea").id == theirs.id
    with pytest.raises(EventConflict):
        session.remember("likes tea", kind="user")


def test_a_step_refuses_to_name_a_commit_itself(worktree: Worktree) -> None:
    with pytest.raises(InvalidEvent, match="meta has commit"):
        worktree.session().step(meta={"commit": "abc"})


def test_notes_of_many_threads_stand_below_each_other(store: bm.Store, worktree: Worktree) -> None:
    session = worktree.session()
    threads = [Thread(target=session.remember, args=(f"fact {at}",), kwargs={"kind": "user"}) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert texts(store, PROFILE) == [f"fact {at}" for at in range(8)]


def test_a_session_works_in_an_event_loop(store: bm.Store, worktree: Worktree) -> None:
    async def work() -> str:
        session = worktree.session()
        await session.asay("user", "hello")
        async with session.step() as step:
            step.write("hello")
            await session.aremember("is vegan", kind="user")
            await session.aremember("greets", kind="project")
        return step.id

    id = asyncio.run(work())

    assert worktree.session().head == id
    assert sorted(memory.text for memory in worktree.session().view().memories()) == ["greets", "is vegan"]


def test_a_session_is_taken_once_and_found_again(store: bm.Store, worktree: Worktree) -> None:
    head = worktree.session().head
    refs, digest = dict(store.refs), store.digest()

    assert worktree.session().head == head
    assert (dict(store.refs), store.digest()) == (refs, digest)


def test_a_session_writes_through_a_project_of_its_own_name_only(store: bm.Store, shop: Repository) -> None:
    assert Worktree(store, shop.folder, project="shop").session().ref == "shop/main"
    for name in ("team/shop", "", " shop", "a\nb"):
        with pytest.raises(InvalidRef):
            Worktree(store, shop.folder, project=name)


def test_a_branch_whose_name_no_ref_can_bear_is_refused(store: bm.Store, shop: Repository) -> None:
    shop.branch("x" * 245)

    with pytest.raises(InvalidRef, match="256 bytes"):
        Worktree(store, shop.folder).session()
    assert dict(store.refs) == {}


def test_sessions_that_are_taken_at_once_make_one_root(shop: Repository, tmp_path: Path) -> None:
    others = [shop.linked(tmp_path / f"w{at}", f"w{at}") for at in range(4)]
    with bm.open(tmp_path / "a.bmem") as store:
        threads = [Thread(target=Worktree(store, one.folder).session) for one in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(store.tree.roots()) == 2  # of the project, and of the profile
        assert len(store.refs) == 6
