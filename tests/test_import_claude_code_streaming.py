"""A transcript is never held whole: a gigabyte of it goes into a store in less than 300 MB."""

from __future__ import annotations

from pathlib import Path

import pytest
from figures import Figure, Quote
from peak_memory import peak_memory
from transcripts import COMPACTED_EVERY, long_session

SEED = 20260302
ALLOWED = 300_000_000

PROGRAM = """
import branchmem as bm
from branchmem import importers

with bm.open(given["store"]) as store:
    report = importers.import_file(
        given["file"],
        append=store.append,
        stored=lambda id: store.log.get(id) if id in store.log else None,
        erased=store.log.is_erased,
    )
    answer |= report.counters() | {"seq": store.seq, "leaf": [leaf.leaf_source for leaf in report.current.values()]}
"""


@pytest.mark.soak
def test_a_long_session_is_imported_in_little_memory(figure: Figure, quote: Quote, tmp_path: Path) -> None:
    size = figure(24, 1000) * 1_000_000
    file = tmp_path / "session.jsonl"
    messages = long_session(file, size, SEED)

    ran = peak_memory(PROGRAM, file=file, store=tmp_path / "a.bmem")

    assert ran["messages"] == messages, f"seed {SEED}"
    # behind each boundary a summary of about 10,000 messages, in 3 parts: 4 memories
    compacted = (messages - 2) // COMPACTED_EVERY
    assert ran["added"] == messages + 4 * compacted
    assert (ran["forks"], ran["leaves"], ran["bad_lines"]) == (0, 1, 0)
    assert ran["leaf"] == ["last_line"]
    assert ran["peak"] < ALLOWED
    quote(f"Claude Code: {file.stat().st_size / 1e6:.0f} MB, {messages} messages: {ran['peak'] / 1e6:.0f} MB of memory")
