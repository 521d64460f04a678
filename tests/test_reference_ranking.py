"""The plain ranker held to numbers worked out by hand, and its words to a list that is read aloud."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import branchmem as bm
import pytest
from branchmem import Memory, Message
from branchmem.events import Erasure
from branchmem.reference import Reference
from branchmem.reference.ranking import DECAY, Found, bm25, characters, cosine, effective, fits, is_faded, tokens
from branchmem.reference.view import ReferenceView

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TEA = ("a", "tea tea milk"), ("b", "milk"), ("c", "sugar sugar")


def shown(*memories: Memory, policy: bm.Policy = bm.STRICT) -> ReferenceView:
    """A view of memories that all stand at its anchor."""
    log = Reference()
    log.add([Message("u", None), *memories])
    return log.at("u", policy=policy)


def facts(*pairs: tuple[str, str], **fields: Any) -> list[Memory]:
    return [Memory(id, text, sources=["u"], **fields) for id, text in pairs]


def search(view: ReferenceView, query: str, k: int = 10, **options: Any) -> list[Found]:
    return view.search(query, k, now=NOW, **options)


def ids(found: Sequence[Found]) -> list[str]:
    return [hit.id for hit in found]


# Words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The tea, hot.", "the tea hot"),
        ("don't x-ray e.g. 3.14 a_b", "don t x ray e g 3 14 a b"),
        ("Straße ÉTÉ Σίσυφος", "straße été σίσυφος"),
        ("ﬁne Ｔｅａ ① x² ㎏", "fine tea 1 x2 kg"),
        ("e\u0301te\u0301", "été"),
        ("हिन्दी ไทย ١٢٣", "हिन्दी ไทย ١٢٣"),
        ("成都", "成都"),
        ("我住在成都。", "我住 住在 在成 成都"),
        ("我，你", "我 你"),
        ("买tea了", "买 tea 了"),
        ("人々のﾃｨｰ", "人々 々の のテ ティ ィー"),
        ("한국어 한", "한국 국어 한"),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"),
        ("ㄅㄆ 〇 𠮷野", "ㄅㄆ 〇 𠮷野"),
        ("⼈⼝", "人口"),
        ("soft\u00adware 1\ufe0f\u20e3 ✔\ufe0f 葛\U000e0100城", "software 1\u20e3 葛城"),
        ("い\u3099 \u0301 \ufe0f", "い"),
        ("。！? -- \u200b 🙂", ""),
        ("", ""),
    ],
)
def test_a_text_falls_into_words_and_cjk_bigrams(text: str, expected: str) -> None:
    assert tokens(text) == expected.split()


def test_a_text_is_found_by_each_character_of_its_longer_cjk_runs() -> None:
    assert characters("我住 tea 茶 成都") == ["我", "住", "成", "都"]


# BM25


def test_bm25_is_what_the_textbook_says() -> None:
    """Three texts of 3, 1 and 2 words: average 2.  "tea" is in one of them, "milk" in two."""
    tea, milk = math.log(8 / 3), math.log(1.6)
    assert bm25(dict(TEA), "tea") == {"a": pytest.approx(tea * 4.4 / 3.65)}
    assert bm25(dict(TEA), "milk") == {"a": pytest.approx(milk * 2.2 / 2.65), "b": pytest.approx(milk * 2.2 / 1.75)}
    assert bm25(dict(TEA), "Milk, tea!")["a"] == pytest.approx(1.5725612)
    assert bm25(dict(TEA), "milk milk MILK") == bm25(dict(TEA), "milk")
    assert bm25(dict(TEA), "coffee") == bm25(dict(TEA), "") == bm25({}, "tea") == {}


def test_one_cjk_character_is_found_wherever_it_stands_and_makes_no_text_longer() -> None:
    """Lengths are 1 for 茶, 3 for 我爱喝茶 (three bigrams), 1 for tea: average 5 / 3."""
    texts = {"a": "茶", "b": "我爱喝茶", "c": "tea"}
    idf = math.log(1 + 1.5 / 2.5)
    assert bm25(texts, "茶") == {
        "a": pytest.approx(idf * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 0.6))),
        "b": pytest.approx(idf * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 1.8))),
    }
    assert bm25(texts, "喝茶").keys() == {"b"}
    assert bm25(texts, "茶喝") == {}


def test_only_what_is_shown_and_has_content_counts() -> None:
    """Erased, hidden and unheard-of memories leave the numbers of the textbook."""
    log = Reference()
    log.add([Message("u", None), Message("v", "u"), *facts(*TEA), Memory("v1", "tea", sources=["v"])])
    log.add([*facts(("gone", "tea tea")), Erasure("e", ["gone"]), Memory("lost", "tea", sources=["missing"])])
    for policy in (bm.STRICT, bm.Policy(bm.Reason.ERASED)):
        (hit,) = search(log.at("u", policy=policy), "tea")
        assert hit.id == "a"
        assert hit.score == pytest.approx(math.log(8 / 3) * 4.4 / 3.65)


def test_what_is_erased_after_a_view_was_made_is_in_no_answer_of_it() -> None:
    log = Reference()
    log.add([Message("u", None), *facts(*TEA, ("d", "tea milk"))])
    view = log.at("u")
    log.add([Erasure("e", ["d"])])
    assert search(view, "tea") == search(log.at("u"), "tea") != []
    assert view.nearest([1.0], vectors={id: [1.0] for id in "abc"}) == [("a", 1.0), ("b", 1.0), ("c", 1.0)]


# Vectors


def test_cosines_take_no_notice_of_length() -> None:
    assert cosine([3.0, 4.0], [8.0, 6.0]) == pytest.approx(0.96)
    assert cosine([0.0, 2.0], [0.0, -5.0]) == -1.0
    assert cosine([0.0, 0.0], [1.0, 0.0]) == cosine([1.0, 0.0], [0.0, 0.0]) == 0.0


def test_nearest_gives_each_memory_by_itself_best_first_then_by_id() -> None:
    view = shown(*facts(("b", "same"), ("a", "same"), ("c", "other"), ("d", "none")))
    vectors = {"a": [1, 0], "b": [2, 0], "c": [3, 4], "d": [0, 0]}
    expected: list[Any] = [("a", 1.0), ("b", 1.0), ("c", pytest.approx(0.6)), ("d", 0.0)]
    assert view.nearest([5, 0], vectors=vectors) == expected
    assert view.nearest([5, 0], 2, vectors=vectors) == expected[:2]


def test_vectors_rank_all_that_is_shown() -> None:
    view = shown(*facts(*TEA))
    hits = search(view, "coffee", by="vector", vectors={"a": [1, 0], "b": [0, 1], "c": [-1, 0]}, vector=[1, 1])
    assert [(hit.id, hit.vector, hit.lexical) for hit in hits] == [
        (id, (place, hit.score), None) for place, (id, hit) in enumerate(zip("abc", hits, strict=True), 1)
    ]
    assert [hit.score for hit in hits] == pytest.approx([math.sqrt(0.5), math.sqrt(0.5), -math.sqrt(0.5)])


# Equal texts and fusion


def test_equal_texts_are_one_hit_that_stands_where_its_best_stands() -> None:
    view = shown(*facts(("d", "tea"), ("b", "tea"), ("c", "tea milk"), ("a", "Tea")))
    lexical = search(view, "tea milk")
    assert [(hit.ids, hit.id, hit.lexical and hit.lexical[0]) for hit in lexical] == [
        (["c"], "c", 1),
        (["a"], "a", 2),
        (["b", "d"], "b", 3),
    ]
    vectors = {"a": [0, 1], "b": [0, 1], "c": [1, 1], "d": [1, 0]}
    assert [(hit.ids, hit.id) for hit in search(view, "", by="vector", vectors=vectors, vector=[1, 0])] == [
        (["b", "d"], "d"),
        (["c"], "c"),
        (["a"], "a"),
    ]
    fused = search(view, "tea milk", vectors=vectors, vector=[1, 0])
    assert [(hit.ids, hit.id, hit.score) for hit in fused] == [
        (["c"], "c", 1 / 61 + 1 / 62),
        (["b", "d"], "b", 1 / 63 + 1 / 61),
        (["a"], "a", 1 / 62 + 1 / 63),
    ]


def test_each_ranker_nominates_its_best_hundred_and_ties_go_by_id() -> None:
    """Of 150 texts vectors know the last best; only the first has the word."""
    view = shown(*facts(*((f"m{number:03}", f"n{number}") for number in range(150))))
    vectors = {f"m{number:03}": [number, 150.0 - number] for number in range(150)}
    fused = search(view, "n0", 200, vectors=vectors, vector=[1, 0])
    assert len(fused) == 150
    assert fused[0] == Found(["m000"], "m000", 1 / 61 + 1 / 210, (1, fused[0].lexical[1]), (150, 0.0))  # type: ignore[index]
    fused = search(view, "n0", 10, vectors=vectors, vector=[1, 0])
    assert [(hit.id, hit.score) for hit in fused[:3]] == [("m000", 1 / 61), ("m149", 1 / 61), ("m148", 1 / 62)]
    assert (len(fused), fused[0].vector) == (10, None)
    assert len(search(view, "n0", 10, by="vector", vectors=vectors, vector=[1, 0])) == 10


# Filters and fading

BERLIN = timezone(timedelta(hours=1))
MEMORY = Memory(
    "m",
    "tea",
    kind="taste",
    key="drink",
    importance=0.5,
    created=NOW,
    meta={"n": 3, "f": 3.0, "yes": True, "s": "b", "list": [1, "x"], "deep": {"a": {"b": 2}}, "null": None},
)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, True),
        ({"kind": "taste", "key": "drink", "importance": 0.5}, True),
        ({"kind": "taste", "key": "food"}, False),
        ({"kind": {"$ne": "fact"}}, True),
        ({"key": {"$in": ["food", "drink"]}}, True),
        ({"key": {"$in": []}}, False),
        ({"key": {"$eq": None}}, False),
        ({"importance": {"$gt": 0, "$lt": 1}}, True),
        ({"importance": {"$gt": 0.5}}, False),
        ({"importance": {"$gte": 0.5, "$lte": 0.5}}, True),
        ({"created": NOW.astimezone(BERLIN)}, True),
        ({"created": {"$lt": NOW.astimezone(BERLIN) + timedelta(microseconds=1)}}, True),
        ({"created": {"$gt": NOW}}, False),
        ({"meta": {"n": 3.0, "f": 3}}, True),
        ({"meta": {"n": True}}, False),
        ({"meta": {"yes": True}}, True),
        ({"meta": {"yes": 1}}, False),
        ({"meta": {"yes": {"$gt": 0}}}, False),
        ({"meta": {"s": {"$gt": "a", "$lte": "b"}}}, True),
        ({"meta": {"s": {"$gt": 1}}}, False),
        ({"meta": {"n": {"$lt": "4"}}}, False),
        ({"meta": {"n": {"$in": [1, "3", 3.0]}}}, True),
        ({"meta": {"list": {"$eq": [1, "x"]}}}, True),
        ({"meta": {"list": {"$eq": [1.0, "x"]}}}, False),
        ({"meta": {"list": {"$in": [[1], [1, "x"]]}}}, True),
        ({"meta": {"list": {"$gt": 0}}}, False),
        ({"meta": {"deep": {"a": {"b": {"$gte": 2}}}}}, True),
        ({"meta": {"deep": {"a": {"$eq": {"b": 2}}}}}, True),
        ({"meta": {"deep": {"a": {"$eq": {"b": 3}}}}}, False),
        ({"meta": {"s": {"a": {"$eq": None}}}}, True),
        ({"meta": {"n": None}}, False),
        ({"meta": {"null": None, "absent": None}}, True),
        ({"meta": {"absent": {"$ne": None}}}, False),
        ({"meta": {"absent": {"$ne": 1}}}, True),
        ({"meta": {"absent": {"$lt": 1}}}, False),
        ({"meta": {"absent": {"$in": [1, None]}}}, True),
    ],
)
def test_conditions_say_what_they_say(conditions: Mapping[str, Any], expected: bool) -> None:
    assert fits(MEMORY, conditions) is expected


def test_numbers_are_compared_as_numbers_however_large() -> None:
    big = Memory("m", "", meta={"n": 2**53 + 1})
    assert fits(big, {"meta": {"n": {"$gt": float(2**53)}}})
    assert not fits(big, {"meta": {"n": float(2**53)}})


def test_conditions_leave_out_but_change_no_score() -> None:
    view = shown(*facts(("a", "tea tea milk")), *facts(("b", "milk"), ("c", "sugar sugar"), kind="taste"))
    everything, some = search(view, "milk"), search(view, "milk", kind="fact")
    assert (ids(everything), ids(some)) == (["b", "a"], ["a"])
    assert some[0].score == everything[1].score
    assert some[0].lexical == (1, some[0].score)


def test_importance_halves_with_every_half_life_since_the_last_use() -> None:
    week = timedelta(hours=168)
    made = Memory("m", "", importance=0.8, created=NOW - 2 * week)
    assert effective(made, None, NOW, DECAY) == 0.2
    assert effective(made, NOW - week, NOW, DECAY) == 0.4
    assert effective(made, NOW - 3 * week, NOW, DECAY) == 0.2
    assert effective(made, NOW + week, NOW, DECAY) == 0.8
    assert effective(made, None, NOW - 9 * week, DECAY) == 0.8
    assert effective(Memory("m", "", importance=0.8), None, NOW, DECAY) == 0.8
    assert effective(Memory("m", "", importance=0.8), NOW - week, NOW, DECAY) == 0.4
    assert effective(made, None, NOW, (168, 0.0, {"fact": (336, 0.0)})) == 0.4
    assert effective(made, None, NOW, (math.inf, 0.0, {})) == 0.8


def test_faded_is_what_lies_below_the_floor_of_its_kind() -> None:
    made = Memory("m", "", importance=0.5, created=NOW - timedelta(hours=168))
    assert not is_faded(made, None, NOW, (168, 0.25, {}))
    assert is_faded(made, None, NOW + timedelta(microseconds=1_000_000), (168, 0.25, {}))
    assert not is_faded(made, None, NOW, (168, 0.9, {"fact": (168, 0.25)}))
    profile = Memory("m", "", kind="profile", importance=0.0, created=NOW - timedelta(days=9_999))
    assert is_faded(profile, None, NOW, DECAY)
    assert not is_faded(profile, None, NOW, (168.0, 0.05, {"profile": (math.inf, 0.0)}))


def test_what_has_faded_is_left_out_until_it_is_used_and_changes_no_score() -> None:
    old = NOW - timedelta(days=60)
    view = shown(*facts(("a", "tea tea milk"), ("c", "sugar sugar")), *facts(("b", "milk"), created=old))
    assert ids(search(view, "milk")) == ["a"]
    assert view.faded(now=NOW) == ["b"]
    assert view.faded(now=NOW, kind="taste") == []
    assert ids(search(view, "milk", include_faded=True)) == ids(search(view, "milk", used={"b": NOW})) == ["b", "a"]
    assert ids(search(view, "milk", decay=(math.inf, 0.05, {}))) == ["b", "a"]
    assert search(view, "milk")[0].score == search(view, "milk", include_faded=True)[1].score
    assert ids(search(view, "", by="vector", vectors={id: [1] for id in "abc"}, vector=[1])) == ["a", "c"]


def test_a_faded_one_of_equal_texts_is_not_listed() -> None:
    view = shown(*facts(("b", "milk")), *facts(("a", "milk"), created=NOW - timedelta(days=60)))
    assert [hit.ids for hit in search(view, "milk")] == [["b"]]
    assert [hit.ids for hit in search(view, "milk", include_faded=True)] == [["a", "b"]]
