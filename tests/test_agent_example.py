"""The example of an agent asks the endpoint that the environment names, and the page about agents does what it says."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import branchmem as bm
import pytest
from clients import Client
from completions import whole
from serving import nothing_from_outside, serving

HERE = Path(__file__).parent.parent
EXAMPLE = HERE / "examples" / "agent.py"
PAGE = HERE / "docs" / "agent.md"


def answered(form: Any) -> bytes:
    text = '{"memories": []}' if "response_format" in form else "As you like."
    return json.dumps(whole(text)).encode()


def test_a_model_of_ones_own_is_asked_where_the_environment_says(tmp_path: Path) -> None:
    with serving(usual=answered) as server:
        named = {"AGENT_MODEL": "mine", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-none"}
        ran = subprocess.run(
            [sys.executable, "-W", "error", EXAMPLE],
            cwd=tmp_path,
            env={**os.environ, **named, "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Answered by mine.")
    assert {form["model"] for form in server.asked} == {"mine"}
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer sk-none"}
    assert len(server.asked) == 12


def test_the_page_about_agents_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_from_outside(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "openai", SimpleNamespace(OpenAI=lambda: Client("Go.")))
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    said: dict[str, Any] = {}
    with serving(usual=answered) as server, contextlib.redirect_stdout(io.StringIO()) as out:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), said)
    store = said["store"]
    with store:
        assert isinstance(store, bm.Store)
        assert len(blocks) == 5
        assert set(store.refs) == {"chat", "what-if", "support", "test", "chat/hotels", "chat/trains"}
    assert out.getvalue().endswith("As you like.\n")
