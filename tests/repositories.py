"""Real git repositories for tests, which no configuration of the machine reaches."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_IDENTITY = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str, may_fail: bool = False) -> str:
    """What git prints when it is run in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true"}
    ran = subprocess.run(
        ("git", *_IDENTITY, *words), cwd=folder, env=kept | alone, capture_output=True, text=True, check=False
    )
    assert may_fail or ran.returncode == 0, f"git {' '.join(words)}: {ran.stderr}"
    return ran.stdout.strip()


@dataclass
class Repository:
    """A working tree and its branches."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, *options: str) -> Repository:
        """A repository whose first branch is main, without a commit."""
        folder.mkdir(parents=True, exist_ok=True)
        git(folder, "init", "--quiet", "--initial-branch=main", *options)
        return cls(folder)

    def git(self, *words: str) -> str:
        return git(self.folder, *words)

    def commit(self, subject: str) -> str:
        """Commit a change to a file of its own, and return the commit."""
        (self.folder / f"{subject}.txt").write_text(subject, "utf-8")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", subject)
        return self.git("rev-parse", "HEAD")

    def branch(self, name: str) -> None:
        """Make a branch from where this stands, and switch to it."""
        self.git("switch", "--quiet", "--create", name)

    def switch(self, name: str) -> None:
        self.git("switch", "--quiet", name)

    def detach(self, commit: str = "HEAD") -> None:
        self.git("switch", "--quiet", "--detach", commit)

    def linked(self, folder: Path, name: str) -> Repository:
        """A linked worktree on a new branch."""
        self.git("worktree", "add", "--quiet", "-b", name, str(folder))
        return Repository(folder)
