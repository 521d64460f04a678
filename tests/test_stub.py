"""The stub of the compiled part says what the compiled part is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_stub_and_the_compiled_module_agree() -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "branchmem._core", "--concise"]

    checked = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout + checked.stderr
