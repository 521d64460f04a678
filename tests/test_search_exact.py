"""Engine and reference find the same ids, ranks and scores, whatever the log, its order of arrival and the question."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from itertools import combinations, product
from random import Random
from typing import Any

import branchmem as bm
import numpy as np
import pytest
from branchmem import _core, cjk
from branchmem.errors import AmbiguousAnchor, InvalidFilter
from branchmem.reference import Reference
from branchmem.reference.ranking import CJK, DECAY, bm25, fits
from branchmem.selftest.forests import arrivals, forest
from figures import Figure
from searched import KEYS, KINDS, NUMBERS, VALUES, conversations, moment, standing, told
from searching import (
    FLOATS,
    NOW,
    SCRIPTS,
    SIGNS,
    Asked,
    Line,
    Ranker,
    Toy,
    differences,
    is_close_call,
    of_engine,
    of_reference,
    row,
    rows,
    written,
)

pytestmark = pytest.mark.usefixtures("quiet")


# Questions


def questions(random: Random, texts: Sequence[str]) -> Iterator[Asked]:
    for _ in range(6):
        rankers: list[tuple[Ranker | None, Toy | None]] = [(None, None), ("lexical", SIGNS), (None, SIGNS)]
        by, embedder = random.choice([*rankers, (None, FLOATS), ("vector", SIGNS), ("vector", FLOATS)])
        yield Asked(
            written(random, 4) if random.random() < 0.3 else random.choice([*texts, "茶", "Tea", ""]),
            random.choice((1, 3, 10, 10, 500)),
            by,
            embedder,
            include_faded=random.random() < 0.6,
            decay=random.choice((DECAY, (24.0, 0.2, {}), (math.inf, 0.3, {"taste": (48.0, 0.5)}))),
            now=random.choice((NOW, NOW, moment(random))),
            conditions=conditions(random) if random.random() < 0.35 else {},
        )


def conditions(random: Random) -> dict[str, Any]:
    operand: dict[str, Any] = {
        "kind": lambda: random.choice(KINDS),
        "key": lambda: random.choice(KEYS[:2]),
        "created": lambda: moment(random),
        "importance": lambda: random.choice((0, 0.06, 0.5, 1, random.random())),
    }
    found = {field: condition(random, of, [of(), None]) for field, of in operand.items() if random.random() < 0.25}
    if random.random() < 0.5:
        found["meta"] = {"n": condition(random, lambda: random.choice((*NUMBERS, "a", "é")), VALUES)}
        if random.random() < 0.4:
            inside = {"a": condition(random, lambda: random.choice((1, "a")), VALUES)}
            found["meta"] |= {random.choice(("deep", "n", "s")): inside}
    return found


def condition(random: Random, ordered: Any, values: Sequence[Any]) -> Any:
    """A value, or one or two operators."""
    operators = {
        "$eq": lambda: random.choice(values),
        "$ne": lambda: random.choice(values),
        "$in": lambda: random.choices(values, k=random.randint(0, 3)),
        **dict.fromkeys(("$gt", "$gte", "$lt", "$lte"), ordered),
    }
    if random.random() < 0.3:
        return ordered()
    return {name: operators[name]() for name in random.sample(sorted(operators), random.choice((1, 1, 2)))}


# Both


@pytest.mark.soak
@pytest.mark.parametrize(("logs", "logs_in_ci", "least"), [(conversations, 12, 50), (forest, 30, 5)])
def test_engine_and_reference_find_the_same(logs: Any, logs_in_ci: int, least: int, figure: Figure) -> None:
    met: Counter[str] = Counter()
    for seed in range(figure(logs_in_ci, 2_000)):
        compare(logs, seed, met)
    for name in ("hits", "equal texts", "faded", "fused"):
        assert met[name] >= least, met
    assert met["older views"] > 5
    assert met["close calls"] < met["searches"] / 5, met


def compare(logs: Any, seed: int, met: Counter[str]) -> None:
    """One log, arriving in shuffled order in random batches, searched in the midst of it and at the end."""
    random = Random(f"{logs.__name__} {seed}")
    events = told(random, logs(random))
    batches = arrivals(random, events)
    cut = random.randint(0, len(batches))
    right, used = Reference(), dict[str, datetime]()
    with closing(bm.open_temporary()) as store:
        older = []
        for number, batch in enumerate(batches):
            store.append(batch)
            right.add(batch)
            if number == cut:
                known = list(right.memory_ids)
                for id in random.sample(known, len(known) // 4):
                    used[id] = moment(random)
                    store.used([id], at=used[id])
                older = [pair for _ in range(2) if (pair := views(store, right, *standing(random, events)))]
                ask(random, seed, right, older, used, met)
        ask(random, seed, right, older, used, met)
        met["older views"] += len(older)
        now = [pair for _ in range(6) if (pair := views(store, right, *standing(random, events)))]
        ask(random, seed, right, now, used, met)
        assert store.counters() == right.counters(), f"seed {seed}"


def views(store: bm.Store, right: Reference, anchors: list[str], policy: bm.Policy) -> tuple[Any, Any] | None:
    """The same view of both; None where two anchors lie in one tree."""
    try:
        theirs = right.at(anchors, policy=policy)
    except AmbiguousAnchor:
        return None
    return store.at(anchors, policy=policy), theirs


def ask(
    random: Random, seed: int, right: Reference, pairs: Sequence[tuple[Any, Any]], used: Any, met: Counter[str]
) -> None:
    for ours, theirs in pairs:
        shown = set(ours)
        assert shown == set(theirs), f"seed {seed}, {theirs.anchors} {theirs.policy}"
        memories = [event for event in right.log.events(type="memory") if isinstance(event, bm.Memory)]
        texts = [memory.text for memory in memories if memory.id in shown or not shown]
        near = row(SIGNS, random.choice(["tea", *texts]))
        found = ours.nearest(np.array(near, np.float32), 20, embedder=SIGNS)
        assert found == theirs.nearest(near, 20, vectors=rows(right, SIGNS)), f"seed {seed}, {theirs.anchors}"
        for asked in questions(random, texts):
            met["searches"] += 1
            if is_close_call(right, asked):
                met["close calls"] += 1
                continue
            lines, faded = of_engine(ours, asked)
            expected, expected_faded = of_reference(right, theirs, asked, used)
            wrong = differences(lines, expected)
            assert not wrong, f"seed {seed}, {theirs.anchors} {theirs.policy}, {asked}: {wrong}"
            assert faded == expected_faded, f"seed {seed}, {theirs.anchors} {theirs.policy}, {asked}"
            met["hits"] += len(lines)
            met["faded"] += faded
            met["fused"] += sum(line.lexical is not None and line.vector is not None for line in lines)
            met["equal texts"] += sum(len(line.ids) > 1 for line in lines)


@pytest.mark.parametrize("dim", [1, 3, 4, 16, 33, 64])
def test_equal_texts_with_vectors_of_their_own_stand_where_the_best_one_stands(dim: int) -> None:
    """No embedder gives two vectors to one text, unless it is a model with moods; ranking does not rely on it."""
    random = Random(f"moods {dim}")

    def vector() -> list[float]:
        """Of 4ⁿ dimensions one whose cosines are exact, and often equal."""
        if dim in (3, 33):
            return [random.gauss(0, 1) for _ in range(dim)]
        return random.choice(([0.0] * dim, *([random.choice((-1.0, 1.0)) for _ in range(dim)] for _ in range(9))))

    texts = [" ".join(random.choices("abcdefgh", k=random.randint(1, 6))) for _ in range(300)]
    memories = [bm.Memory(f"k{number:03}", text, sources=["u"]) for number, text in enumerate(texts + texts[:60])]
    random.shuffle(memories)
    vectors = {memory.id: vector() for memory in memories}
    right = Reference()
    with closing(bm.open_temporary()) as store:
        for log in (store, right):
            log.append([bm.Message("u", None), *memories])
        index = _core.SearchIndex(store._engine, bytes(32))
        index.add([memory.body() for memory in memories])
        given = _core.Vectors(store._engine, dim)
        given.put(list(vectors), np.array(list(vectors.values()), np.float32))
        for query, k in product(("a b", "h", "none", "", None), (1, 5, 12)):
            asked = vector()
            ours, _ = index.search(store.at("u"), query, k, vectors=given, vector=np.array(asked, np.float32))
            by: Ranker | None = "vector" if query is None else None
            theirs = right.at("u").search(query or "", k, by=by, vectors=vectors, vector=asked, now=NOW)
            lines = [Line(tuple(hit.ids), hit.id, hit.score, hit.lexical, hit.vector) for hit in ours]
            expected = [Line(tuple(hit.ids), *hit[1:]) for hit in theirs]
            assert not differences(lines, expected), f"{query} {k} {asked}"


def test_every_condition_on_every_value_fits_the_same() -> None:
    """Memories that say the same and have one value each: a search says which of them fit."""
    memories = [bm.Memory("none", "tea", sources=["u"])]
    memories += [bm.Memory(f"v{at}", "tea", sources=["u"], meta={"n": value}) for at, value in enumerate(VALUES)]
    with closing(bm.open_temporary()) as store:
        store.append([bm.Message("u", None), *memories])
        view = store.at("u")
        for name, operand in product(("$eq", "$ne", "$gt", "$gte", "$lt", "$lte"), VALUES):
            meta = {"n": {name: operand}}
            if name in ("$eq", "$ne") or (isinstance(operand, str | int | float) and not isinstance(operand, bool)):
                hits = view.search("tea", now=NOW, meta=meta)
                found = hits[0].ids if hits else ()
                assert set(found) == {memory.id for memory in memories if fits(memory, {"meta": meta})}, meta
            else:
                with pytest.raises(InvalidFilter):
                    view.search("tea", now=NOW, meta=meta)
        for operands in combinations(VALUES, 2):
            meta = {"n": {"$in": operands}}
            (hit,) = view.search("tea", now=NOW, meta=meta)
            assert set(hit.ids) == {memory.id for memory in memories if fits(memory, {"meta": meta})}, meta


@pytest.mark.soak
def test_any_text_falls_into_the_same_words(figure: Figure) -> None:
    """Strings of characters from all of Unicode, as far as this Python knows it."""
    random = Random(26)
    known = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    for number in range(figure(1_000, 100_000)):
        pool = known if number % 2 else random.choice([*SCRIPTS, *SCRIPTS[-2:]])[1]
        texts = ["".join(random.choices(pool, k=random.randint(0, 12))) for _ in range(4)]
        query = f"{''.join(random.sample(texts[0], len(texts[0]) // 2))} {texts[1]}"
        scores = bm25(dict(zip("abcd", texts, strict=True)), query)
        expected = [scores.get(id, 0.0) for id in "abcd"]
        assert _core.rank_texts(texts, query) == pytest.approx(expected), (texts, query)


def test_all_three_tables_hold_the_same_characters_of_chinese_japanese_and_korean() -> None:
    """A query of one such character finds it within a word; of any other only where it is the word."""
    assert cjk.BLOCKS == CJK

    listed = {chr(code) for first, last in CJK for code in range(first, last + 1)}
    known = (chr(code) for code in range(CJK[-1][1] + 0x100) if code < 0xD800 or code > 0xDFFF)
    plain = [char for char in known if char in listed or unicodedata.category(char) != "Cn"]
    plain = [char for char in plain if unicodedata.normalize("NFKC", char).lower() == char != "a"]
    found = set()
    for page in (plain[start : start + 50] for start in range(0, len(plain), 50)):
        scores = _core.rank_texts([f"a{char}a" for char in page], " ".join(page))
        found |= {char for char, score in zip(page, scores, strict=True) if score > 0}
    assert found == listed.intersection(plain)
