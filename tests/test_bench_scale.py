"""A store of millions opens, answers as climbing does, and stays within its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from figures import Figure, Quote

from bench import scale
from bench.workbench import Unequal

TOP = Path(__file__).parents[1]


@pytest.mark.soak
def test_a_large_store_opens_answers_and_stays_within_its_memory(figure: Figure, quote: Quote, tmp_path: Path) -> None:
    messages, memories = figure(20_000, 10_000_000), figure(4_000, 2_000_000)
    limit = figure(500, 150)  # what a small store shares among few events is the process's own
    command = [sys.executable, "-m", "bench.scale", "--json", "--folder", str(tmp_path)]
    sizes = ["--messages", str(messages), "--memories", str(memories)]

    run = subprocess.run([*command, *sizes], cwd=TOP, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["events"] == messages + memories
    assert report["answers_found_equal"] == 5 * scale.CHECKED, f"seed {report['seed']}"
    quote(
        f"{messages:,} messages, {memories:,} memories: opened in {report['open_seconds']:.1f} s,"
        f" {report['bytes_an_event_opened']:.0f} bytes an event, {report['bytes_an_event_asked']:.0f} after broad"
        f" questions, {report['disk_gb']:.2f} GB; bitmap {report['bitmap_us']:.1f} µs, ordinals"
        f" {report['ordinals_us']:.1f} µs, in {report['in_us']:.2f} µs, append of one {report['append_one_us']:,.0f} µs"
    )
    assert max(report["bytes_an_event_opened"], report["bytes_an_event_asked"]) <= limit
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_differs_from_climbing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scale.write(tmp_path, 600, 120)
    assert scale.ask(tmp_path)["answers_found_equal"] > 0
    right = scale.Climbing.visible
    monkeypatch.setattr(scale.Climbing, "visible", lambda self, anchor: np.roll(right(self, anchor), 1))

    with pytest.raises(Unequal, match="differ from climbing"):
        scale.ask(tmp_path)
