"""Where a directory stands, as real repositories say it: always defined, never another branch."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from branchmem.errors import WorktreeUnknown
from branchmem.worktree.git import Origins, Place, ancestors, detached_at, known, look, origins
from repositories import Repository, git

pytestmark = pytest.mark.usefixtures("git_alone")


def said(place: Place) -> tuple[str, str]:
    return place.state, place.name


def test_a_branch_is_called_by_its_name(shop: Repository) -> None:
    place = look(shop.folder)

    assert said(place) == ("branch", "main")
    assert place.commit == shop.git("rev-parse", "HEAD")
    assert place.project.startswith("shop-")


@pytest.mark.parametrize("name", ["fix/login/form", "größe", "修复", "@main", "a#b", "-dash", "release-1.0"])
def test_slashes_and_any_script_stay_in_a_name(shop: Repository, name: str) -> None:
    shop.git("update-ref", f"refs/heads/{name}", "HEAD")
    shop.git("symbolic-ref", "HEAD", f"refs/heads/{name}")

    assert said(look(shop.folder)) == ("branch", name)


def test_a_subdirectory_stands_where_its_repository_stands(shop: Repository) -> None:
    below = shop.folder / "src" / "deep"
    below.mkdir(parents=True)

    assert (look(below).common, said(look(below))) == (look(shop.folder).common, ("branch", "main"))
    assert said(look(shop.folder / ".git" / "refs")) == ("branch", "main")


def test_a_link_to_a_directory_is_the_directory(shop: Repository, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(shop.folder)

    assert look(tmp_path / "link") == look(shop.folder)


def test_a_linked_worktree_stands_on_its_own_branch_of_the_same_project(shop: Repository, tmp_path: Path) -> None:
    linked = shop.linked(tmp_path / "elsewhere", "feature")

    assert said(look(linked.folder)) == ("branch", "feature")
    assert said(look(shop.folder)) == ("branch", "main")
    assert look(linked.folder).project == look(shop.folder).project


def test_a_detached_head_is_called_by_its_commit(shop: Repository) -> None:
    shop.detach()
    commit = shop.git("rev-parse", "HEAD")

    assert said(look(shop.folder)) == ("detached", f"@{{{commit}}}")


def test_commits_of_any_hash_are_known(tmp_path: Path) -> None:
    repository = Repository.make(tmp_path / "new", "--object-format=sha256")
    repository.commit("one")
    repository.detach()
    place = look(repository.folder)

    assert place.commit is not None
    assert (len(place.commit), detached_at(place.name)) == (64, place.commit)


def test_no_branch_can_bear_the_name_of_a_place_without_one(shop: Repository) -> None:
    commit = shop.git("rev-parse", "HEAD")

    for name in (f"@{{{commit}}}", "@{folder}", "@{root}"):
        git(shop.folder, "branch", name, may_fail=True)

    assert shop.git("branch", "--format=%(refname:short)") == "main"


def test_a_repository_without_commits_stands_on_the_branch_that_is_to_come(tmp_path: Path) -> None:
    place = look(Repository.make(tmp_path / "new").folder)

    assert (said(place), place.commit) == (("unborn", "main"), None)


def test_an_orphan_branch_has_no_commit(shop: Repository) -> None:
    shop.git("switch", "--quiet", "--orphan", "pages")

    assert (said(look(shop.folder)), look(shop.folder).commit) == (("unborn", "pages"), None)


def test_a_reference_that_is_no_branch_is_none(shop: Repository) -> None:
    shop.git("update-ref", "refs/review/main", "HEAD")
    shop.git("symbolic-ref", "HEAD", "refs/review/main")

    assert said(look(shop.folder)) == ("branch", "@{refs/review/main}")


def test_a_directory_without_git_is_a_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "other").mkdir()
    place = look(tmp_path / "notes")

    assert (said(place), place.common, place.commit) == (("folder", "@{folder}"), None, None)
    assert place.project.startswith("notes-")
    assert place.project != look(tmp_path / "other").project


def test_a_directory_without_git_needs_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert said(look(tmp_path)) == ("folder", "@{folder}")


def test_a_bare_repository_is_called_by_its_folder(shop: Repository, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", "shop", "central.git")
    linked = tmp_path / "linked"
    git(tmp_path / "central.git", "worktree", "add", "--quiet", "-b", "feature", str(linked))

    assert said(look(tmp_path / "central.git")) == ("branch", "main")
    assert look(tmp_path / "central.git").project.startswith("central-")
    assert said(look(linked)) == ("branch", "feature")
    assert look(linked).project == look(tmp_path / "central.git").project


def test_a_submodule_is_a_project_of_its_own(shop: Repository, tmp_path: Path) -> None:
    outer = Repository.make(tmp_path / "outer")
    outer.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(shop.folder), "part")
    outer.commit("with a part")
    outer.branch("feature")

    assert said(look(outer.folder / "part")) == ("branch", "main")
    assert look(outer.folder / "part").project.startswith("part-")
    assert said(look(outer.folder)) == ("branch", "feature")


def test_a_rebase_stays_on_the_branch_that_it_rewrites(shop: Repository) -> None:
    shop.branch("feature")
    shop.commit("same")
    shop.switch("main")
    (shop.folder / "same.txt").write_text("another", "utf-8")
    shop.git("add", "--all")
    shop.git("commit", "--quiet", "--message", "clash")
    shop.switch("feature")
    git(shop.folder, "rebase", "main", may_fail=True)

    assert shop.git("rev-parse", "--abbrev-ref", "HEAD") == "HEAD"  # git itself is on no branch now
    assert said(look(shop.folder)) == ("rebasing", "feature")
    assert look(shop.folder).commit == shop.git("rev-parse", "main")

    shop.git("rebase", "--abort")
    assert said(look(shop.folder)) == ("branch", "feature")


def test_a_rebase_of_no_branch_is_detached(shop: Repository) -> None:
    first = shop.git("rev-parse", "HEAD")
    shop.commit("same")
    shop.detach(first)
    (shop.folder / "same.txt").write_text("another", "utf-8")
    shop.git("add", "--all")
    shop.git("commit", "--quiet", "--message", "clash")
    git(shop.folder, "rebase", "main", may_fail=True)

    assert said(look(shop.folder)) == ("detached", f"@{{{shop.git('rev-parse', 'main')}}}")


def test_the_environment_names_no_other_repository(
    shop: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repository.make(tmp_path / "other")
    other.commit("one")
    other.branch("another")
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.folder))
    monkeypatch.setenv("GIT_COMMON_DIR", str(other.folder / ".git"))

    assert said(look(shop.folder)) == ("branch", "main")
    assert said(look(tmp_path)) == ("folder", "@{folder}")


def test_a_repository_and_no_git_is_refused(shop: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))

    with pytest.raises(WorktreeUnknown, match="no program git to ask: install it; no branch was guessed"):
        look(shop.folder)


def test_a_worktree_whose_repository_is_gone_is_refused(shop: Repository, tmp_path: Path) -> None:
    linked = shop.linked(tmp_path / "linked", "feature")
    shutil.rmtree(shop.folder)

    with pytest.raises(WorktreeUnknown, match="not a git repository") as refused:
        look(linked.folder)
    assert refused.value.directory == str(linked.folder)


def test_a_damaged_repository_is_refused(shop: Repository) -> None:
    (shop.folder / ".git" / "HEAD").write_bytes(b"")

    with pytest.raises(WorktreeUnknown, match="git rev-parse says"):
        look(shop.folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_repository_of_somebody_else_is_refused(shop: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    for path in (shop.folder, shop.folder / ".git"):
        os.chown(path, 12345, 12345)

    with pytest.raises(WorktreeUnknown, match="dubious ownership"):
        look(shop.folder)


def test_a_git_that_fails_is_refused_with_its_words(
    shop: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'fatal: detected dubious ownership' >&2\nexit 128\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    with pytest.raises(WorktreeUnknown, match=r"dubious ownership.*no branch was guessed"):
        look(shop.folder)


def test_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorktreeUnknown, match="there is no such directory"):
        look(tmp_path / "nothing")


def test_a_name_of_any_characters_makes_a_readable_project(tmp_path: Path) -> None:
    odd = tmp_path / "a b\n/ç:*" / ("x" * 200)
    odd.mkdir(parents=True)

    assert look(odd).project.startswith("x" * 32 + "-")
    assert look(odd.parent).project.startswith("ç-")


def test_only_commits_are_handed_to_git_as_commits(shop: Repository) -> None:
    one = shop.git("rev-parse", "HEAD")
    two = shop.commit("two")
    hostile = ("--all", f"^{one}", "HEAD", "", "main", f"{one}\n--all", "0" * 40, one[:12])

    assert known(str(shop.folder), (*hostile, one, two)) == {one, two}
    assert ancestors(str(shop.folder), one, (*hostile, one, two)) == {one}
    assert ancestors(str(shop.folder), two, (*hostile, one, two)) == {one, two}
    assert ancestors(str(shop.folder), two, hostile) == set()


def test_the_log_of_git_says_where_a_branch_was_made(shop: Repository, tmp_path: Path) -> None:
    shop.branch("made-here")
    shop.git("branch", "made-by-name", "main")
    shop.git("branch", "old", "main")
    shop.git("branch", "--move", "old", "newer")
    shop.git("branch", "--move", "newer", "newest")
    linked = shop.linked(tmp_path / "linked", "made-beside")
    shop.detach()
    shop.branch("made-detached")
    commit = shop.git("rev-parse", "HEAD")

    found = {"made-beside": origins(look(linked.folder))}
    for name in ("made-detached", "made-here", "made-by-name", "newest"):
        shop.switch(name)
        found[name] = origins(look(shop.folder))

    assert found == {
        "made-here": Origins(made_from=("main",)),
        "made-by-name": Origins(made_from=("main",)),
        "newest": Origins(renamed=("newer", "old"), made_from=("main",)),
        "made-beside": Origins(),  # it says HEAD, and not of which worktree
        "made-detached": Origins(made_from=(f"@{{{commit}}}",)),
    }


def test_an_earlier_branch_of_the_same_name_says_nothing_of_this_one(shop: Repository) -> None:
    shop.branch("again")
    shop.switch("main")
    shop.git("branch", "--quiet", "--delete", "again")
    log = shop.folder / ".git" / "logs" / "HEAD"
    earlier = re.sub(r"> (\d+) ", lambda found: f"> {int(found[1]) - 60} ", log.read_text("utf-8"))
    log.write_text(earlier, "utf-8")
    shop.branch("other")
    shop.branch("again")

    assert origins(look(shop.folder)) == Origins(made_from=("other",))


def test_the_log_of_git_says_where_a_detached_head_was(shop: Repository) -> None:
    one = shop.git("rev-parse", "HEAD")
    shop.detach()
    two = shop.commit("two")
    shop.commit("three")

    assert origins(look(shop.folder)) == Origins(made_from=(f"@{{{two}}}", f"@{{{one}}}", "main"))
