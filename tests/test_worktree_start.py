"""A new branch knows what the branch it was made from knew at that commit, and nothing of its siblings."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import branchmem as bm
import pytest
from branchmem.worktree import Worktree
from repositories import Repository

pytestmark = pytest.mark.usefixtures("git_alone")


@pytest.fixture
def store() -> Iterator[bm.Store]:
    with bm.open_temporary() as opened:
        yield opened


def learn(store: bm.Store, repository: Repository, text: str) -> None:
    """Say something on the branch where a repository stands, and remember it there."""
    session = Worktree(store, repository.folder).session()
    message = session.say("user", text)
    session.remember(text, sources=[message.id], kind="project")


def knows(store: bm.Store, repository: Repository) -> list[str]:
    """What is known on the branch where a repository stands."""
    return sorted(memory.text for memory in Worktree(store, repository.folder).session().view().memories())


def test_a_branch_starts_with_what_its_origin_knew(store: bm.Store, shop: Repository) -> None:
    learn(store, shop, "uses postgres")
    shop.branch("feature")

    assert knows(store, shop) == ["uses postgres"]


def test_a_reference_that_is_no_branch_starts_where_its_commit_was_known(store: bm.Store, shop: Repository) -> None:
    learn(store, shop, "uses postgres")
    shop.git("update-ref", "refs/review/main", "HEAD")
    shop.git("symbolic-ref", "HEAD", "refs/review/main")

    assert knows(store, shop) == ["uses postgres"]
    learn(store, shop, "to be reviewed")
    shop.git("symbolic-ref", "HEAD", "refs/heads/main")
    assert knows(store, shop) == ["uses postgres"]


def test_two_branches_from_one_commit_do_not_see_each_other(store: bm.Store, shop: Repository, tmp_path: Path) -> None:
    learn(store, shop, "uses postgres")
    left, right = shop.linked(tmp_path / "left", "left"), shop.linked(tmp_path / "right", "right")
    learn(store, left, "tries redis")
    learn(store, right, "tries kafka")

    assert knows(store, left) == ["tries redis", "uses postgres"]
    assert knows(store, right) == ["tries kafka", "uses postgres"]
    assert knows(store, shop) == ["uses postgres"]


def test_a_branch_may_start_before_its_origin_went_on(store: bm.Store, shop: Repository) -> None:
    learn(store, shop, "at one")
    shop.git("branch", "feature")
    shop.commit("two")
    learn(store, shop, "at two")
    shop.switch("feature")

    assert knows(store, shop) == ["at one"]


def test_a_branch_that_went_on_first_starts_where_it_parted(store: bm.Store, shop: Repository) -> None:
    learn(store, shop, "at one")
    shop.branch("feature")
    shop.commit("two")
    shop.commit("three")

    assert knows(store, shop) == ["at one"]


def test_a_branch_of_a_branch_starts_on_that(store: bm.Store, shop: Repository) -> None:
    learn(store, shop, "on main")
    shop.branch("feature")
    shop.commit("two")
    learn(store, shop, "on feature")
    shop.branch("deeper")
    shop.commit("three")
    learn(store, shop, "on deeper")
    shop.switch("main")
    shop.commit("four")
    learn(store, shop, "on main later")
    shop.switch("deeper")
    shop.branch("deepest")

    assert knows(store, shop) == ["on deeper", "on feature", "on main"]


def test_where_several_are_as_near_the_log_of_git_tells(store: bm.Store, shop: Repository) -> None:
    learn(store, shop, "on main")
    shop.branch("feature")
    learn(store, shop, "on feature")
    shop.branch("of-feature")
    assert knows(store, shop) == ["on feature", "on main"]

    shop.switch("main")
    learn(store, shop, "on main later")
    shop.branch("of-main")

    assert knows(store, shop) == ["on main", "on main later"]


def test_where_nothing_tells_it_starts_from_what_all_share(store: bm.Store, shop: Repository, tmp_path: Path) -> None:
    learn(store, shop, "on main")
    feature = shop.linked(tmp_path / "feature", "feature")
    learn(store, feature, "on feature")
    learn(store, shop, "on main later")
    other = shop.linked(tmp_path / "other", "other")  # git notes that it was made from HEAD, not from whose
    start = Worktree(store, other.folder).status().start

    assert start is not None
    assert start.branches == ("feature", "main")
    assert knows(store, other) == ["on main"]


def test_what_was_merged_is_known_on_a_branch_made_afterwards(store: bm.Store, shop: Repository) -> None:
    learn(store, shop, "on main")
    shop.branch("feature")
    shop.commit("two")
    learn(store, shop, "on feature")
    shop.switch("main")
    learn(store, shop, "on main later")
    shop.git("merge", "--quiet", "--no-ff", "--no-edit", "feature")
    Worktree(store, shop.folder).merge_branch("feature")
    shop.branch("next")

    assert knows(store, shop) == ["on feature", "on main", "on main later"]


def test_an_old_commit_knows_what_was_known_then(store: bm.Store, shop: Repository) -> None:
    one = shop.git("rev-parse", "HEAD")
    learn(store, shop, "at one")
    shop.commit("two")
    learn(store, shop, "at two")
    shop.detach(one)

    assert Worktree(store, shop.folder).ref.endswith(f"/@{{{one}}}")
    assert knows(store, shop) == ["at one"]
    learn(store, shop, "detached")
    shop.switch("main")
    assert knows(store, shop) == ["at one", "at two"]


def test_a_branch_made_of_a_detached_head_starts_there(store: bm.Store, shop: Repository) -> None:
    learn(store, shop, "on main")
    shop.detach()
    learn(store, shop, "detached")
    shop.commit("two")
    assert knows(store, shop) == ["detached", "on main"]

    learn(store, shop, "detached further")
    shop.branch("kept")

    assert knows(store, shop) == ["detached", "detached further", "on main"]


def test_what_was_said_before_the_first_commit_is_known_after_it(store: bm.Store, tmp_path: Path) -> None:
    new = Repository.make(tmp_path / "new")
    learn(store, new, "before anything")
    new.commit("one")
    new.git("branch", "feature")
    new.commit("two")
    learn(store, new, "at two")

    assert knows(store, new) == ["at two", "before anything"]
    new.switch("feature")
    assert knows(store, new) == ["before anything"]


def test_a_branch_without_a_past_starts_with_nothing(store: bm.Store, shop: Repository) -> None:
    learn(store, shop, "on main")
    shop.git("switch", "--quiet", "--orphan", "pages")
    assert knows(store, shop) == []

    shop.commit("first page")
    learn(store, shop, "on pages")

    assert knows(store, shop) == ["on pages"]
    assert store.diff(*[ref for ref in store.refs if ref.endswith(("/main", "/pages"))]).ancestor is not None


def test_a_renamed_branch_takes_its_memory_along(store: bm.Store, shop: Repository) -> None:
    shop.branch("feature")
    learn(store, shop, "on feature")
    before = Worktree(store, shop.folder).ref
    head = store.refs[before]
    shop.git("branch", "--move", "between")
    shop.git("branch", "--move", "better")
    worktree = Worktree(store, shop.folder)
    start = worktree.status().start

    assert start is not None
    assert (start.renamed, start.branches) == (True, ("feature",))
    assert knows(store, shop) == ["on feature"]
    assert store.refs[worktree.ref] == head
    assert before not in store.refs
    assert store.refs.log(before)[-1].why == f"rename to {worktree.ref}"


def test_a_name_that_is_used_again_keeps_its_memory(store: bm.Store, shop: Repository) -> None:
    shop.branch("feature")
    learn(store, shop, "on feature")
    feature = store.refs[Worktree(store, shop.folder).ref]
    shop.git("branch", "copy")
    shop.git("branch", "--move", "better")
    shop.git("branch", "feature")  # before the memory of the renamed one was asked for

    assert knows(store, shop) == ["on feature"]
    assert Worktree(store, shop.folder).status().gone == ()
    shop.switch("feature")
    assert store.refs[Worktree(store, shop.folder).ref] == feature


def test_a_branch_made_again_goes_on_with_the_memory_of_its_name(store: bm.Store, shop: Repository) -> None:
    shop.branch("feature")
    learn(store, shop, "the first time")
    shop.switch("main")
    shop.git("branch", "--delete", "--force", "feature")

    assert Worktree(store, shop.folder).status().gone == ("feature",)
    shop.branch("feature")
    assert knows(store, shop) == ["the first time"]


def test_a_moved_repository_is_another_project_unless_named(store: bm.Store, shop: Repository, tmp_path: Path) -> None:
    learn(store, shop, "unnamed")
    named = Worktree(store, shop.folder, project="shop").session()
    named.remember("named", sources=[named.say("user", "named").id])
    moved = Repository(shop.folder.rename(tmp_path / "moved"))

    assert knows(store, moved) == []
    view = Worktree(store, moved.folder, project="shop").session().view()
    assert [memory.text for memory in view.memories()] == ["named"]


def test_a_start_writes_nothing_until_a_session_is_taken(store: bm.Store, shop: Repository) -> None:
    learn(store, shop, "on main")
    shop.branch("feature")
    digest, refs = store.digest(), dict(store.refs)

    status = Worktree(store, shop.folder).status()

    assert (status.head, status.start.to_dict() if status.start else None) == (
        None,
        {
            "message": refs[status.ref.replace("feature", "main")],
            "branches": ["main"],
            "base": shop.git("rev-parse", "HEAD"),
            "renamed": False,
        },
    )
    assert "is new and starts from" in str(status)
    assert (store.digest(), dict(store.refs)) == (digest, refs)


@pytest.mark.parametrize("seed", range(6))
def test_no_branch_knows_at_its_start_what_was_said_at_a_commit_that_it_lacks(
    store: bm.Store, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    shop = Repository.make(tmp_path / "shop")
    above: dict[str, set[str]] = {}  # each commit, with those that it has
    at: dict[str, str] = {}  # branches
    here, said = "main", 0

    def commit() -> None:
        made = shop.commit(f"c{len(above)}")
        above[made] = {made} | above.get(at.get(here, ""), set())
        at[here] = made

    commit()
    for _ in range(18):
        act = chance.choice(("commit", "branch", "switch", "learn", "learn"))
        if act == "commit":
            commit()
        elif act == "switch":
            here = chance.choice(sorted(at))
            shop.switch(here)
        elif act == "branch":
            here, base = f"b{len(at)}", chance.choice(sorted(above))
            shop.git("switch", "--quiet", "--create", here, base)
            at[here] = base
        is_new = Worktree(store, shop.folder).status().head is None
        known = knows(store, shop)
        if is_new:
            strange = [text for text in known if text.split()[0] not in above[at[here]]]
            assert strange == [], f"seed {seed}: {here} at {at[here]}"
        if act == "learn":
            said += 1
            learn(store, shop, f"{at[here]} {said}")
            assert f"{at[here]} {said}" in knows(store, shop), f"seed {seed}"
