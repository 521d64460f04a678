"""The examples run as they stand, and what they say is what they assert."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
#: What an example is about, in words that it prints.
SAYS = {
    "agent": ("scripted endpoint", "writes nothing. Chengdu again", "adopted by the lead"),
    "handover": ("held", "fast-forward", "adopted on the planner's branch", "nothing twice"),
    "langgraph_leak": ("LangGraph's own store", "BranchStore", "The trip goes to Hangzhou."),
    "lifecycle": ("1 below the floor", "docker by combined", "docker by glob", "is on a sibling branch"),
    "worktrees": ("Neither sees what the other tries", "1 conflict about the cache", "what only they saw is erased"),
}
#: What an example needs that is an extra of branchmem.
NEEDS = {
    "handover": ("cryptography", "bundles"),
    "langgraph_leak": ("langgraph", "langgraph"),
    "lifecycle": ("yaml", "skills"),
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SAYS.keys()


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_runs_from_a_folder_of_its_own(name: str, tmp_path: Path) -> None:
    package, extra = NEEDS.get(name, ("branchmem", ""))
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs branchmem[{extra}]")
    optimised = {name: value for name, value in os.environ.items() if name != "PYTHONOPTIMIZE"}

    ran = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"],
        cwd=tmp_path,
        env=optimised,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert [words for words in SAYS[name] if words not in ran.stdout] == []
    assert list(tmp_path.iterdir()) == []
