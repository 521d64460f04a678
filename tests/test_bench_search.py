"""The rows of search stay alive: they find the answers equal, print every goal, and refuse what differs."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from branchmem.reference import Reference
from rich.console import Console

from bench import compare, shapes, texts
from bench.peers import fts
from bench.peers.bm25 import Bm25
from bench.peers.fts import QUERIES, Fts
from bench.tips import tips
from bench.workbench import Unequal, filled


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return compare.compare("tiny", ["V", "L", "I"])


def test_the_goals_of_search_are_held_at_every_share(report: dict[str, Any]) -> None:
    goals = Counter((row["name"], row["peer"], row["goal"]) for row in report["rows"] if row["goal"])

    assert goals == {
        ("V", "numpy gather + matmul + argpartition", 2): 8,  # four shares; one anchor, and many in turn
        ("V", "numpy full scan, masked", 1): 8,
        ("L", "SQLite FTS5, rowid filter", 5): 2,
        ("I", "store.append alone", 0.5): 4,
    }
    assert report["answers_found_equal"] > 1_000, f"seed {report['seed']}"
    assert {work["work"].partition("/")[0] for work in report["works"]} == {
        f"tips-{share}%" for share in (0.1, 1, 10, 50)
    }
    assert all(row["ours"] > 0 and row["theirs"] > 0 for row in report["rows"])


def test_the_goals_of_search_are_printed_as_a_table(report: dict[str, Any]) -> None:
    console = Console(file=io.StringIO(), width=200)
    compare.show(report, console)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()

    for told in ("≥ 2x", "≥ 1x", "≥ 5x", "≥ 0.5x", "% visible", "bytes", "numpy_threads"):
        assert told in printed
    for row in report["rows"]:
        assert row["peer"] in printed


def test_the_form_that_fts_answers_badly_is_told_from_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fts.QUERIES, "trap", QUERIES["IN, bm25"].replace("+rowid", "rowid"))
    with closing(Fts(texts.english(50))) as table:
        table.show(0, range(0, 50, 2))

        driven = {form: table.driven_by_words(form, 0) for form in fts.QUERIES}

    assert driven == {"IN, bm25": True, "EXISTS, bm25": True, "trap": False}


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5])
def test_every_tip_shows_its_share_and_no_other(share: float) -> None:
    log = tips(share, 2_000, each=2)
    written = texts.english(len(log.work.sources))

    assert log.seen == max(2, share * 1_000) * 2
    assert log.work == tips(share, 2_000, each=2).work, f"seed {shapes.SEED}"
    reference = Reference()
    reference.add(log.events(written))
    assert {len(reference.at(id)) for id in log.ids[:5]} == {log.seen}
    with closing(filled(log.events(written))) as store:
        assert log.description(store)["tips"] == len(log.tips) >= 2


def test_a_log_whose_tips_show_another_share_is_refused() -> None:
    log = tips(0.1, 200)
    some = [event for event in log.events(texts.english(200)) if event.id != log.work.memory_ids[0]]
    with closing(filled(iter(some))) as store, pytest.raises(Unequal, match="not every tip"):
        log.description(store)


def test_texts_are_the_same_for_the_same_seed_and_as_uneven_as_a_language() -> None:
    written = texts.english(3_000)

    assert written == texts.english(3_000)
    assert {len(text.split()) for text in written} == set(range(texts.WORDS[0], texts.WORDS[1] + 1))
    often = Counter(word for text in written for word in text.split())
    share = [sum(often[texts.word(rank)] for rank in range(*band)) / often.total() for band in texts.BANDS]
    assert share[0] > 0.3, f"{share}, seed {shapes.SEED}"
    assert min(share[1:]) > 0.15, f"{share}, seed {shapes.SEED}"
    assert len({texts.word(rank) for rank in range(texts.VOCABULARY)}) == texts.VOCABULARY
    assert {len(query.split()) for query in texts.english_queries(40)} == {1, 2, 3, 4}


def test_chinese_queries_repeat_what_some_text_says() -> None:
    written = texts.chinese(200)

    for query in texts.chinese_queries(written, 20):
        assert all(any(run in text for text in written) for run in query.split())
    assert texts.chinese_bigrams("成都人 茶") == ["成都", "都人", "茶"]
    assert texts.chinese_tokens("成都 茶") == ["成都", "茶", "成", "都"]


def test_the_textbook_of_the_comparison_knows_only_what_is_visible() -> None:
    said = ["tea in the rain", "tea tea", "coffee", "tea for all of us"]
    plain = Bm25(map(str.split, said), [len(text.split()) for text in said], ["d", "c", "b", "a"])
    seen = plain.seen(np.array([True, True, True, False]))

    best = plain.best(seen, ["tea", "us", "tea"], 10)

    # Of 3 texts of 7/3 words on average 2 have it: ln(1.6) · tf · 2.2 / (tf + 1.2 · (0.25 + 0.75 · length · 3/7))
    assert [ordinal for ordinal, _ in best] == [1, 0]
    assert [score for _, score in best] == pytest.approx([0.67331, 0.36372], abs=1e-5)
    assert plain.matching(seen, ["tea", "us"]) == {0, 1}
