"""The official conformance suite, those of its server scenarios that need none of its own fixtures.

    npx -y -p node@22 -p @modelcontextprotocol/conformance@latest -c 'conformance server --url … --scenario …'

Skipped where npx is not there, or cannot fetch the suite.
"""

from __future__ import annotations

import shutil
import subprocess

import branchmem as bm
import pytest
from conformant import bearing
from serving_http import TOKEN, served

SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)


def suite(commands: str, *, timeout: float) -> subprocess.CompletedProcess[str]:
    """What a shell says to commands in which `conformance` is the suite."""
    words = ["npx", "-y", "-p", "node@22", "-p", "@modelcontextprotocol/conformance@latest", "-c", commands]
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture(scope="module")
def conformance() -> str:
    """The version of the suite."""
    if shutil.which("npx") is None:
        pytest.skip("npx is not installed")
    try:
        fetched = suite("conformance --version", timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip("npx cannot fetch the suite in two minutes")
    if fetched.returncode:
        pytest.skip(f"npx cannot fetch the suite: {fetched.stderr[-200:]}")
    return fetched.stdout.strip()


def test_the_server_passes_what_the_suite_asks_of_any_server(conformance: str) -> None:
    with bm.open_temporary() as store:
        store.session("main")
        with served(store, ref="main", around=lambda app: bearing(TOKEN, app)) as server:
            each = (
                f"conformance server --url {server.url} --scenario {name} && echo passed {name}" for name in SCENARIOS
            )
            ran = suite("; ".join(each), timeout=120)

    passed = [line.removeprefix("passed ") for line in ran.stdout.splitlines() if line.startswith("passed ")]
    assert tuple(passed) == SCENARIOS, f"suite {conformance}: {ran.stdout[-4000:]}"
    assert "WARNING" not in ran.stdout
