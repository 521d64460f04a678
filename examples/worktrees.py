"""One agent a git branch: fork, work apart, merge, delete; what it knows follows the branch.

    python examples/worktrees.py

Makes a git repository in a temporary folder; needs git.  Each step says what it shows, and asserts it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import branchmem as bm
from branchmem.errors import MergeConflict
from branchmem.worktree import Worktree


def git(folder: Path, *words: str) -> None:
    """Run git in a folder, as nobody in particular."""
    identity = ("-c", "user.name=Example", "-c", "user.email=example@example.org")
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(("git", *identity, *words), cwd=folder, env=own | alone, check=True, capture_output=True)


def work(worktree: Worktree, asked: str, *learned: tuple[str, str, str | None]) -> None:
    """A turn of an agent: it is asked something, answers, and remembers (kind, text, key)."""
    session = worktree.session()
    session.say("user", asked)
    with session.step() as step:
        step.write("Done.")
        for kind, text, key in learned:
            step.remember(text, kind=kind, key=key)


def knows(worktree: Worktree) -> list[str]:
    """What an agent in this folder may remember."""
    return sorted(memory.text for memory in worktree.session().view().memories())


def tell(what: str, worktree: Worktree) -> None:
    """Print what is known in a folder."""
    print(f"\n{what}\n  {worktree.place.name} knows:", *knows(worktree), sep="\n    ")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, bm.open(Path(folder) / "agent.bmem") as store:
        shop = Path(folder) / "shop"
        shop.mkdir()
        git(shop, "init", "--quiet", "--initial-branch=main")
        git(shop, "commit", "--quiet", "--allow-empty", "--message=start")
        trunk = Worktree(store, shop)
        work(trunk, "Set the shop up.", ("project", "Orders are kept in PostgreSQL.", None))
        tell("A repository, and an agent that works on main.", trunk)

        for branch in ("redis", "memcached"):
            git(shop, "worktree", "add", "--quiet", "-b", branch, f"../{branch}")
        redis, memcached = Worktree(store, shop.parent / "redis"), Worktree(store, shop.parent / "memcached")
        work(
            redis,
            "Try Redis as a cache. And please be brief.",
            ("project", "The cache is Redis, on port 6379.", "cache"),
            ("user", "Wants brief answers.", "style"),
        )
        work(memcached, "Try Memcached as a cache.", ("project", "The cache is Memcached.", "cache"))
        tell("Two linked worktrees, an agent each. Neither sees what the other tries,", redis)
        tell("but what is about the user is known on every branch.", memcached)
        assert knows(redis) == [
            "Orders are kept in PostgreSQL.",
            "The cache is Redis, on port 6379.",
            "Wants brief answers.",
        ]
        assert knows(memcached) == ["Orders are kept in PostgreSQL.", "The cache is Memcached.", "Wants brief answers."]
        assert knows(trunk) == ["Orders are kept in PostgreSQL.", "Wants brief answers."]

        work(trunk, "What is left to do?", ("project", "Invoices are still missing.", None))
        merged = trunk.merge_branch("redis")
        tell(f"Redis wins and is merged: {len(merged.adopted)} memory is taken over.", trunk)
        assert knows(trunk) == [
            "Invoices are still missing.",
            "Orders are kept in PostgreSQL.",
            "The cache is Redis, on port 6379.",
            "Wants brief answers.",
        ]
        try:
            trunk.merge_branch("memcached")
        except MergeConflict as conflict:
            print(f"\nMerging the other one as well is refused: {len(conflict.conflicts)} conflict about the cache.")
        else:
            raise AssertionError("two caches, and no conflict")

        planned = trunk.delete_branch("memcached", dry_run=True)
        print(
            f"\nDeleting it would erase {len(planned.seen.messages)} messages and {len(planned.seen.memories)} memory."
        )
        assert list(store.log.find("Memcached"))
        for branch in ("memcached", "redis"):
            git(shop, "worktree", "remove", "--force", f"../{branch}")
            git(shop, "branch", "--quiet", "--delete", "--force", branch)
            trunk.delete_branch(branch)
        tell("Both branches are deleted. What was taken over stays, what only they saw is erased.", trunk)
        assert not list(store.log.find("Memcached"))
        assert "The cache is Redis, on port 6379." in knows(trunk)
        assert "Wants brief answers." in knows(trunk)


if __name__ == "__main__":
    main()
