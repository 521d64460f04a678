"""The best memories for a few words under a view, against SQLite's FTS5 with a filter on rows.

Asked at anchors that show one share of all memories.  Ids and scores are held against
BM25 in plain numpy with the statistics of what is visible; FTS5 scores with those of all rows, so of it only
the set of what matches is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

import branchmem as bm
from branchmem.recall import Hit, Hits

from bench import texts
from bench.peers.bm25 import Bm25
from bench.peers.fts import QUERIES, TRIGRAM, Fts, any_of
from bench.rows import Row
from bench.timing import Asker, race_each
from bench.tips import Tips, tips
from bench.workbench import Unequal, Workbench, filled

K: Final = 10
CLOSE: Final = 1e-5
SHARES: Final = (0.01, 0.1)
GOAL: Final = 5
ASKED: Final = 120  # questions
ANCHORS: Final = 20  # at which they are asked in turn
FTS: Final = "SQLite FTS5, rowid filter"
NUMPY: Final = "numpy postings, visible statistics"


def l(bench: Workbench) -> list[Row]:  # noqa: E743
    """The ten best for one to four words, at anchors that show a hundredth and a tenth; the same in Chinese."""
    rows = []
    for share in SHARES:
        rows += _english(bench, tips(share, bench.size.base))
    return rows + _chinese(bench, tips(SHARES[-1], bench.size.base))


def _english(bench: Workbench, log: Tips) -> list[Row]:
    """Words against FTS5: the median question with a goal, the mean one, and with the view made for each."""
    written = _distinct(texts.english(len(log.work.sources)))
    with ExitStack() as stack:
        store = stack.enter_context(closing(filled(log.events(written))))
        table = stack.enter_context(closing(Fts(written)))
        bench.describe(**log.description(store))
        words = _Words(store, log, written, texts.english_queries(min(ASKED, bench.size.rows)), str.split, str.split)
        words.check(bench)
        matches = [any_of(tokens) for tokens in words.asked]
        words.show(table)
        words.check_fts(bench, table, matches)
        figures = words.race(bench, {FTS: words.fts(table, matches), NUMPY: words.numpy()})
    return [
        figures.row("view.search(query), median", FTS, goal=GOAL),
        figures.row("view.search(query), median", NUMPY),
        figures.row("view.search(query), mean", FTS, of=fmean),
        figures.row("view.search(query), mean", NUMPY, of=fmean),
        figures.row("store.at(a).search(query), median", FTS, ours=_ANEW),
    ]


def _chinese(bench: Workbench, log: Tips) -> list[Row]:
    """Bigrams against FTS5 over bigrams that were split before, and over its own trigrams, which find less."""
    written = _distinct(texts.chinese(len(log.work.sources)))
    queries = texts.chinese_queries(written, min(ASKED, bench.size.rows))
    with ExitStack() as stack:
        store = stack.enter_context(closing(filled(log.events(written))))
        split = stack.enter_context(closing(Fts(" ".join(texts.chinese_tokens(text)) for text in written)))
        words = _Words(store, log, written, queries, texts.chinese_bigrams, texts.chinese_tokens)
        words.check(bench)
        matches = [any_of(tokens) for tokens in words.asked]
        words.show(split)
        words.check_fts(bench, split, matches)
        peers = {"SQLite FTS5, bigrams split before": words.fts(split, matches), NUMPY: words.numpy()}
        try:
            trigrams = stack.enter_context(closing(Fts(written, TRIGRAM)))
        except sqlite3.OperationalError as error:
            bench.leave_out(f"L, Chinese by trigrams: {error}")
        else:
            matches = [any_of(query.split()) for query in queries]
            words.show(trigrams)
            words.check_fts(bench, trigrams, matches, all_of_them=False)
            peers["SQLite FTS5, trigrams"] = words.fts(trigrams, matches)
        figures = words.race(bench, peers)
    return [figures.row("view.search(Chinese), median", peer) for peer in peers]


def _distinct(written: list[str]) -> list[str]:
    """These texts, no two alike, so that each is a hit of its own.  Raises: Unequal."""
    if len(set(written)) < len(written):
        raise Unequal("two texts are alike: another seed is needed")
    return written


def check_hits(
    bench: Workbench, what: str, hits: Sequence[Hit], best: Sequence[tuple[int, float]], ids: Sequence[str]
) -> None:
    """Hits are these ordinals, in this order, with these scores."""
    bench.check(what, [hit.id for hit in hits], [ids[ordinal] for ordinal, _ in best])
    far = [hit.id for hit, (_, score) in zip(hits, best, strict=True) if abs(hit.score - score) > CLOSE]
    bench.check(f"{what}, scores", far, [])


_OURS: Final = "ours"
_ANEW: Final = "ours, the view made for each question"


@dataclass(frozen=True)
class _Figures:
    """Microseconds for each question, by who answered, and who belongs to which peer."""

    log: Tips
    times: Mapping[str, list[float]]
    peers: Mapping[str, list[Asker]]

    def row(
        self,
        question: str,
        peer: str,
        *,
        of: Callable[[list[float]], float] = median,
        ours: str = _OURS,
        goal: float | None = None,
    ) -> Row:
        """One figure of all questions, against the peer's quickest variant by the same figure."""
        costs = {asker.name: of(self.times[asker.name]) for asker in self.peers[peer]}
        quickest = min(costs, key=costs.__getitem__)
        question = f"{question}, {self.log.share} visible"
        name = self.log.work.name
        return Row("L", question, name, peer, quickest, of(self.times[ours]), costs[quickest], goal)


class _Words:
    """Texts in a log, questions at views that were made before, and who answers them."""

    def __init__(
        self,
        store: bm.Store,
        log: Tips,
        written: Sequence[str],
        queries: Sequence[str],
        asked: Callable[[str], list[str]],
        found_by: Callable[[str], list[str]],
    ) -> None:
        """`asked`: the tokens of a query, and those that a text is as long as; `found_by`: all tokens of a text."""
        self.asked = [asked(query) for query in queries]
        self._store, self._log, self._queries = store, log, queries
        self._ids = log.ids[:ANCHORS]
        self._views = [store.at(id) for id in self._ids]
        self._plain = Bm25(map(found_by, written), [len(asked(text)) for text in written], log.work.memory_ids)
        self._seen = [self._plain.seen(view.mask()) for view in self._views]

    def check(self, bench: Workbench) -> None:
        """Ids and scores of ours are those of the textbook."""
        for number, query in enumerate(self._queries):
            check_hits(bench, f"L {query}", self._ours(number), self._best(number), self._log.work.memory_ids)

    def show(self, table: Fts) -> None:
        """Tell FTS5 what each view shows."""
        for place, view in enumerate(self._views):
            table.show(place, view.ordinals().tolist())

    def check_fts(self, bench: Workbench, table: Fts, matches: Sequence[str], *, all_of_them: bool = True) -> None:
        """FTS5 finds the same visible rows, or some of them, and its plan goes from what matches to what is visible."""
        for form in QUERIES:
            bench.check(f"L FTS5, {form}: the plan", table.driven_by_words(form, 0), True)
            for number, match in enumerate(matches):
                found = table.matching(form, self._at(number), match)
                ours = self._plain.matching(self._seen[self._at(number)], self.asked[number])
                bench.check(f"L FTS5, {form}: {match}", ours if all_of_them else ours & found, found)

    def fts(self, table: Fts, matches: Sequence[str]) -> list[Asker]:
        """FTS5 with each form of the query."""

        def asker(form: str) -> Asker:
            return Asker(
                f"{table.tokenizer}, {form}",
                lambda number: table.best(form, self._at(number), matches[number], K),
                len(matches),
            )

        return [asker(form) for form in QUERIES]

    def numpy(self) -> list[Asker]:
        """The textbook."""
        return [Asker("numpy", self._best, len(self._queries))]

    def race(self, bench: Workbench, peers: Mapping[str, list[Asker]]) -> _Figures:
        """Ours and all of these."""
        count = len(self._queries)
        ours = [Asker(_OURS, self._ours, count), Asker(_ANEW, self._ours_anew, count)]
        askers = [*ours, *(asker for variants in peers.values() for asker in variants)]
        return _Figures(self._log, race_each(askers, rounds=min(5, bench.size.rounds)), peers)

    def _at(self, number: int) -> int:
        return number % len(self._views)

    def _ours(self, number: int) -> Hits:
        return self._views[self._at(number)].search(self._queries[number], K)

    def _ours_anew(self, number: int) -> Hits:
        return self._store.at(self._ids[self._at(number)]).search(self._queries[number], K)

    def _best(self, number: int) -> list[tuple[int, float]]:
        return self._plain.best(self._seen[self._at(number)], self.asked[number], K)
