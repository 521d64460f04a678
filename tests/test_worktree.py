"""What branches exchange, and how the memory of one goes: nothing of another is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import branchmem as bm
import pytest
from branchmem.errors import BranchInUse, InvalidRef, MergeConflict, UnknownBranch
from branchmem.worktree import PROFILE, Worktree
from repositories import Repository

pytestmark = pytest.mark.usefixtures("git_alone")


@pytest.fixture
def store(path: Path) -> Iterator[bm.Store]:
    with bm.open(path) as opened:
        yield opened


@pytest.fixture
def worktree(store: bm.Store, shop: Repository) -> Worktree:
    """It stands on main, which knows "uses postgres"; feature, made from that, knows "tries redis"."""
    worktree = Worktree(store, shop.folder)
    learn(worktree, "uses postgres")
    shop.branch("feature")
    learn(worktree, "tries redis")
    shop.switch("main")
    return worktree


def learn(worktree: Worktree, text: str, key: str | None = None) -> bm.Memory:
    """Say something on the branch where a directory stands, and remember it there."""
    session = worktree.session()
    return session.remember(text, sources=[session.say("user", text)], kind="project", key=key)


def knows(worktree: Worktree, branch: str) -> list[str]:
    store = worktree.store
    return sorted(memory.text for memory in store.at_ref(worktree.ref_of(branch), PROFILE).memories())


def state(store: bm.Store) -> tuple[str, dict[str, str]]:
    return store.digest(), dict(store.refs)


def test_the_status_says_where_a_directory_stands(worktree: Worktree, shop: Repository) -> None:
    status = worktree.status()

    assert (status.ref, status.head) == (worktree.ref_of("main"), worktree.store.refs[worktree.ref_of("main")])
    assert (status.state, status.commit, status.start) == ("branch", shop.git("rev-parse", "HEAD"), None)
    assert (status.branches, status.gone) == (("feature", "main"), ())
    assert str(status) == f"{status.ref} (branch) stands at {status.head}"


def test_the_status_names_branches_that_git_has_no_more(worktree: Worktree, shop: Repository) -> None:
    shop.git("branch", "--delete", "--force", "feature")

    assert worktree.status().gone == ("feature",)
    assert str(worktree.status()).endswith("kept, though git has no such branch: feature")


def test_projects_in_one_store_do_not_see_each_other(worktree: Worktree, tmp_path: Path) -> None:
    other = Worktree(worktree.store, Repository.make(tmp_path / "other").folder)
    learn(other, "uses sqlite")

    assert knows(other, "main") == ["uses sqlite"]
    assert other.status().branches == ("main",)
    assert worktree.status().branches == ("feature", "main")
    assert knows(worktree, "main") == ["uses postgres"]


def test_two_branches_are_compared_by_their_names(worktree: Worktree, shop: Repository) -> None:
    learn(worktree, "port 8080")
    diff = worktree.diff_branch("feature")

    assert (len(diff.only_a), len(diff.only_b), len(diff.both)) == (1, 1, 1)
    assert worktree.diff_branch("feature", "main") == diff
    with pytest.raises(UnknownBranch, match=r"the branch gets one by worktree\.session\(\)"):
        worktree.diff_branch("nothing")


def test_a_merge_brings_a_branch_to_the_one_that_is_checked_out(worktree: Worktree) -> None:
    learn(worktree, "port 8080")
    before = state(worktree.store)
    planned = worktree.merge_branch("feature", dry_run=True)
    assert state(worktree.store) == before

    merged = worktree.merge_branch("feature")

    assert merged.adopted == planned.adopted
    assert knows(worktree, "main") == ["port 8080", "tries redis", "uses postgres"]
    assert knows(worktree, "feature") == ["tries redis", "uses postgres"]
    after = state(worktree.store)
    worktree.merge_branch("feature")
    assert state(worktree.store) == after


def test_what_a_branch_derived_from_what_is_about_the_user_is_compared_and_merged(
    worktree: Worktree, shop: Repository
) -> None:
    shop.switch("feature")
    session = worktree.session()
    user = session.remember("prefers tabs", kind="user")
    tabs = session.remember("indents with tabs", sources=[session.head], derived_from=[user], kind="project")
    shop.switch("main")
    worktree.session().say("user", "what is new?")

    assert worktree.diff_branch("feature").only_a[-1] == tabs.id
    merged = worktree.merge_branch("feature")

    assert (len(merged.adopted), merged.adopted[tabs.id] in merged.shown) == (2, True)
    assert knows(worktree, "main") == ["indents with tabs", "prefers tabs", "tries redis", "uses postgres"]
    assert not worktree.merge_branch("feature").adopted


def test_a_merge_into_a_branch_that_stood_still_moves_it(worktree: Worktree) -> None:
    assert worktree.merge_branch("feature").fast_forward
    assert knows(worktree, "main") == ["tries redis", "uses postgres"]


def test_a_merge_into_a_branch_without_memory_gives_it_one(worktree: Worktree, shop: Repository) -> None:
    shop.branch("next")
    with pytest.raises(UnknownBranch):
        worktree.merge_branch("feature", dry_run=True)
    worktree.merge_branch("feature")

    assert knows(worktree, "next") == ["tries redis", "uses postgres"]
    with pytest.raises(UnknownBranch):
        worktree.merge_branch("feature", into="later")


def test_branches_that_differ_about_a_key_are_in_conflict(worktree: Worktree, shop: Repository) -> None:
    learn(worktree, "port 8080", key="port")
    shop.switch("feature")
    learn(worktree, "port 9090", key="port")
    shop.switch("main")
    before = state(worktree.store)

    with pytest.raises(MergeConflict):
        worktree.merge_branch("feature")
    assert state(worktree.store) == before

    worktree.merge_branch("feature", strategy="theirs")
    assert knows(worktree, "main") == ["port 9090", "tries redis", "uses postgres"]


def test_deleting_a_branch_erases_what_only_it_saw(worktree: Worktree, shop: Repository, path: Path) -> None:
    feature = worktree.store.refs[worktree.ref_of("feature")]
    before = state(worktree.store)
    planned = worktree.delete_branch("feature", dry_run=True)
    assert (planned.dry_run, planned.seen.messages, planned.head) == (True, (feature,), feature)
    assert str(planned) == (
        f"would delete {worktree.ref_of('feature')}, which stood at {feature}; "
        "1 message and 1 memory would lose their content, in free pages until compact"
    )
    assert state(worktree.store) == before

    deleted = worktree.delete_branch("feature")

    assert deleted.seen == planned.seen
    assert (deleted.to_dict()["added"], len(deleted.erasures)) == (1, 1)
    assert worktree.ref_of("feature") not in worktree.store.refs
    assert knows(worktree, "main") == ["uses postgres"]
    assert list(worktree.store.log.find("tries redis")) == []
    worktree.store.compact()
    assert b"tries redis" not in path.read_bytes()
    assert b"uses postgres" in path.read_bytes()


def test_what_was_adopted_elsewhere_stays(worktree: Worktree) -> None:
    learn(worktree, "port 8080")
    merged = worktree.merge_branch("feature")

    deleted = worktree.delete_branch("feature")

    assert deleted.seen.adopted == tuple(merged.adopted.values())
    assert "taken over elsewhere, where it stays" in str(deleted)
    assert knows(worktree, "main") == ["port 8080", "tries redis", "uses postgres"]


def test_what_a_fast_forward_took_over_stays(worktree: Worktree) -> None:
    worktree.merge_branch("feature")

    assert worktree.delete_branch("feature").erasures == ()
    assert knows(worktree, "main") == ["tries redis", "uses postgres"]


def test_what_is_about_the_user_stays(worktree: Worktree, shop: Repository) -> None:
    shop.switch("feature")
    with worktree.session().step() as step:
        step.write("No meat then")
        step.remember("is vegan", kind="user")
        step.remember("greets first", kind="project")
    shop.switch("main")

    worktree.delete_branch("feature")

    assert knows(worktree, "main") == ["is vegan", "uses postgres"]
    assert worktree.store.log.is_erased(step.id)


def test_what_a_branch_of_the_branch_saw_stays(worktree: Worktree, shop: Repository) -> None:
    shop.switch("feature")
    shop.branch("deeper")
    learn(worktree, "tries valkey")
    shop.switch("feature")
    learn(worktree, "gives up redis")

    shop.switch("main")
    worktree.delete_branch("feature")

    assert knows(worktree, "deeper") == ["tries redis", "tries valkey", "uses postgres"]
    assert list(worktree.store.log.find("gives up redis")) == []


def test_attempts_that_were_rejected_go_with_their_branch(worktree: Worktree, shop: Repository) -> None:
    shop.switch("feature")
    session = worktree.session()
    session.say("user", "which cache?")
    with session.step() as rejected:
        rejected.write("none")
        rejected.remember("no cache", kind="project")
    session.regenerate()
    with session.step(on_cancel="keep") as cancelled:
        cancelled.write("half")
        cancelled.cancel()
    with session.step() as step:
        step.write("redis")
    shop.switch("main")

    deleted = worktree.delete_branch("feature")

    assert {rejected.id, cancelled.id, step.id} < set(deleted.seen.messages)
    assert list(worktree.store.log.find("no cache")) == []


def test_a_branch_made_again_after_its_memory_was_deleted_starts_anew(worktree: Worktree, shop: Repository) -> None:
    worktree.delete_branch("feature")
    shop.git("branch", "--delete", "--force", "feature")
    shop.branch("feature")

    worktree.session()

    assert knows(worktree, "feature") == ["uses postgres"]


def test_undoing_the_move_brings_no_content_back(worktree: Worktree) -> None:
    worktree.delete_branch("feature")
    worktree.store.refs.undo(worktree.ref_of("feature"))

    assert knows(worktree, "feature") == ["uses postgres"]


def test_what_a_renamed_branch_saw_under_its_old_name_goes_with_it(worktree: Worktree, shop: Repository) -> None:
    shop.switch("feature")
    session = worktree.session()
    base = session.head
    with session.step() as left:
        left.write("left behind")
    session.rewind(base)
    shop.git("branch", "--move", "better")
    learn(worktree, "tries valkey")
    shop.switch("main")
    shop.git("branch", "feature")
    shop.switch("feature")
    learn(worktree, "another feature")
    shop.switch("main")

    deleted = worktree.delete_branch("better")

    assert left.id in deleted.seen.messages
    assert [list(worktree.store.log.find(text)) for text in ("left behind", "tries valkey")] == [[], []]
    assert knows(worktree, "feature") == ["another feature", "uses postgres"]


def test_a_branch_that_is_checked_out_here_is_not_deleted(worktree: Worktree) -> None:
    before = state(worktree.store)

    with pytest.raises(BranchInUse, match="switch it to another branch"):
        worktree.delete_branch("main")
    with pytest.raises(InvalidRef):
        worktree.delete_branch("@{root}")
    with pytest.raises(UnknownBranch):
        worktree.delete_branch("nothing")

    assert state(worktree.store) == before


def test_the_last_branch_leaves_the_root_and_the_profile(worktree: Worktree, shop: Repository) -> None:
    shop.detach()
    worktree.delete_branch("feature")
    worktree.delete_branch("main")

    assert knows(worktree, "@{root}") == []
    assert len(worktree.store.refs) == 2
    shop.switch("main")
    assert worktree.session().view().ids() == []
    assert len(worktree.store.tree.roots()) == 2


def test_many_messages_are_erased_in_events_that_can_name_them(worktree: Worktree, shop: Repository) -> None:
    ref, store = worktree.ref_of("feature"), worktree.store
    at = store.refs[ref]
    store.append([bm.Message(f"long{n}", f"long{n - 1}" if n else at, text="x") for n in range(5_000)])
    store.refs.move(ref, "long4999")

    deleted = worktree.delete_branch("feature")

    assert (len(deleted.seen.messages), len(deleted.erasures), deleted.to_dict()["added"]) == (5_001, 2, 2)
    assert knows(worktree, "main") == ["uses postgres"]
