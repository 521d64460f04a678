"""How much memory a program takes at its peak, measured from inside, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Anonymous memory alone: pages of a mapped file are the system's to take back.
_MEASURED = """
import json, re, sys, threading
peak, done = 0, threading.Event()
def watch():
    global peak
    while True:
        with open("/proc/self/status") as status:
            peak = max(peak, int(re.search(r"RssAnon:\\s+(\\d+)", status.read())[1]) * 1024)
        if done.wait(0.01):
            return
watcher = threading.Thread(target=watch)
watcher.start()
try:
    answer = {}
    exec(sys.argv[1], {"answer": answer, "given": json.loads(sys.argv[2])})
finally:
    done.set()
    watcher.join()
print(json.dumps({"peak": peak, **answer}))
"""


def peak_memory(program: str, **given: object) -> dict[str, Any]:
    """Run a program that finds `given` and fills `answer`, and return that with its `peak` in bytes.

    The peak is looked for every 10 ms, so what is held for less may be missed.
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is measured where there is /proc")
    words = [sys.executable, "-c", _MEASURED, program, json.dumps(given, default=str)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer
