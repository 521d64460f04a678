"""The official conformance suite, those of its server scenarios that need none of its own fixtures.

    npx -y -p node@22 -p @modelcontextprotocol/conformance@0.1.16 -c 'conformance server --url …'

All scenarios run, in one process; those that want the suite's fixtures fail, and are not looked at.  Skipped where npx
is not there, or cannot fetch the suite.
"""

from __future__ import annotations

import re
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


def test_the_server_passes_what_the_suite_asks_of_any_server() -> None:
    if shutil.which("npx") is None:
        pytest.skip("npx is not installed")
    with bm.open_temporary() as store:
        store.session("main")
        with served(store, ref="main", around=lambda app: bearing(TOKEN, app)) as server:
            asked = f"conformance --version && conformance server --url {server.url}"
            words = ["npx", "-y", "-p", "node@22", "-p", "@modelcontextprotocol/conformance@0.1.16", "-c", asked]
            try:
                ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
            except subprocess.TimeoutExpired:
                pytest.skip("npx cannot fetch the suite in two minutes")
    if "SUMMARY" not in ran.stdout:
        pytest.skip(f"npx cannot fetch the suite: {ran.stderr[-200:]}")

    passed = re.findall(r"^✓ (\S+): \d+ passed, 0 failed$", ran.stdout, re.MULTILINE)
    assert set(SCENARIOS) <= set(passed), ran.stdout[-4000:]
