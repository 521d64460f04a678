"""What the tests of search share: words of many scripts, toy embedders, and one way to ask engine and reference."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from random import Random
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import branchmem as bm
import numpy as np
from branchmem.reference import Reference
from branchmem.reference.ranking import DECAY, Decay, cosine, tokens
from branchmem.reference.view import ReferenceView
from numpy.typing import NDArray

NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOTHING: Final[Mapping[str, datetime]] = MappingProxyType({})


#: A conversation with two branches below `u1`.
FORK: Final = (
    bm.Message("chat", None),
    bm.Message("u1", "chat"),
    bm.Message("left", "u1"),
    bm.Message("right", "u1"),
)


def said(id: str, text: str, at: str = "u1", **fields: Any) -> bm.Memory:
    """A memory of something that was said in it."""
    return bm.Memory(id, text, sources=[at], **fields)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ENGLISH: Final = _words(
    "the user likes tea green black coffee Chengdu moved to In 2024 a dog Dog's loves rain python 3.11"
)
CHINESE: Final = _words(
    "我 你 住在 成都 杭州 喜欢 喝茶 茶 的 过敏 花生 每天 早上 跑步 女儿 叫 小雨 在 公司 上班 ， 。 2024年 ３月"
)
JAPANESE: Final = _words("私は 毎朝 コーヒー ｺｰﾋｰ を 飲む 東京 に 住む 犬 が 好き 。 ー 々 ティー")
KOREAN: Final = _words("나는 서울에 산다 커피를 마신다 개 차 좋아한다 매일 아침")
ODD: Final = (
    *_words("ﬁsh Straße İSTANBUL ΣΊΣΥΦΟΣ σίσυφος Ｔｅａ ① x² ㍿ ㌔ ㎏ e\u0301te é हिन्दी ไทย ١٢٣ مرحبا"),
    *_words("𠮷野 〇 ⼈⼝ ⺀ ㄅㄆㄇ か\u3099 あ\u3099 ﾊﾟ \u1112\u1161\u11ab 葛\U000e0100城 ❤\ufe0f 👩\u200d💻 \u0301"),
    *_words("a\x00b C++ don't _x_ \u200b \ufeff Ǆ ǆ ſ K Å ẞ ŉ ΐ 𝒯ℯ𝒶 Ⅷ ½ 〜 ・ ゝ ヿ ㆍ ꥠ \ud7b0"),
)
#: What is put between words of a script, and the words.
SCRIPTS: Final = ((" ", ENGLISH), ("", CHINESE), ("", JAPANESE), (" ", KOREAN), (" ", ODD), ("", ODD))


def written(random: Random, most: int = 8) -> str:
    """A text of some words of one script, or of several."""
    if random.random() < 0.15:
        words = [random.choice(random.choice(SCRIPTS)[1]) for _ in range(random.randint(0, most))]
        return random.choice((" ", "", "-")).join(words)
    between, known = random.choice(SCRIPTS)
    words = [random.choice(known) for _ in range(random.randint(1, most))]
    return between.join(words)


Ranker = Literal["lexical", "vector"]


class Toy:
    """Embeds a text as the sum of vectors that its tokens hash to; a text without any as zero.

    `signs` keeps of each number its sign alone: with 4ⁿ dimensions all cosines are exact in float32, and many are
    equal.
    """

    def __init__(self, name: str, dim: int, *, signs: bool) -> None:
        self.name = name
        self.dim = dim
        self.signs = signs
        self.texts = 0

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        self.texts += len(texts)
        return np.array([self.row(text) for text in texts], np.float32).reshape(len(texts), self.dim)

    def row(self, text: str) -> list[float]:
        found = sorted(set(tokens(text)))
        numbers = [math.fsum(column) for column in zip(*(_hashed(token, self.dim) for token in found), strict=True)]
        if self.signs:
            numbers = [1.0 if number > 0 else -1.0 for number in numbers]
        return [float(number) for number in np.array(numbers or [0.0] * self.dim, np.float32)]


@cache
def _hashed(token: str, dim: int) -> list[float]:
    random = Random(hashlib.blake2b(token.encode(), key=b"toy").digest())
    return [random.gauss(0, 1) for _ in range(dim)]


SIGNS: Final = Toy("signs", 64, signs=True)
FLOATS: Final = Toy("floats", 33, signs=False)


class Line(NamedTuple):
    """A hit as numbers: rank and score by words, and by vectors."""

    ids: tuple[str, ...]
    id: str
    score: float
    lexical: tuple[int, float] | None
    vector: tuple[int, float] | None


class Asked(NamedTuple):
    """One search, in terms that the reference knows, too."""

    query: str
    k: int = 10
    by: Ranker | None = None
    embedder: Toy | None = None
    include_faded: bool = False
    decay: Decay = DECAY
    now: datetime = NOW
    conditions: Mapping[str, Any] = MappingProxyType({})


def of_engine(view: Any, asked: Asked) -> tuple[list[Line], int]:
    """What a view of a store answers, and how many it left out as faded."""
    query, k, by, embedder, include_faded, decay, now, conditions = asked
    hours, floor, kinds = decay
    settings = bm.Decay(hours, floor, {kind: bm.Decay(*pace) for kind, pace in kinds.items()})
    options = {"include_faded": include_faded, "decay": settings, "now": now}
    hits = view.search(query, k, by=by, embedder=embedder, **options, **conditions)

    def of(hit: Any, ranker: str) -> tuple[int, float] | None:
        assert hit.ranks.keys() == hit.scores.keys()
        return (hit.ranks[ranker], hit.scores[ranker]) if ranker in hit.ranks else None

    return [Line(hit.ids, hit.id, hit.score, of(hit, "lexical"), of(hit, "vector")) for hit in hits], hits.faded


def of_reference(
    log: Reference, view: ReferenceView, asked: Asked, used: Mapping[str, datetime] = NOTHING
) -> tuple[list[Line], int]:
    """What the reference answers, and how many it left out as faded."""
    query, k, by, embedder, include_faded, decay, now, conditions = asked
    found = view.search(
        query,
        k,
        by=by,
        vectors=rows(log, embedder) if embedder else None,
        vector=row(embedder, query) if embedder else None,
        include_faded=include_faded,
        decay=decay,
        now=now,
        used=used,
        **conditions,
    )
    faded = [] if include_faded else view.faded(now=now, decay=decay, used=used, **conditions)
    return [Line(tuple(hit.ids), *hit[1:]) for hit in found], len(faded)


def rows(log: Reference, embedder: Toy) -> dict[str, Sequence[float]]:
    """The vectors of all memories of a log."""
    return {memory.id: row(embedder, memory.text) for memory in log.log.events(type="memory")}  # type: ignore[attr-defined]


@cache
def row(embedder: Toy, text: str) -> Sequence[float]:
    """The vector of a text."""
    return embedder.row(text)


def is_close_call(log: Reference, asked: Asked) -> bool:
    """Whether float32 may put two different cosines in another order than float64 does."""
    if asked.embedder is None or asked.by == "lexical" or asked.embedder.signs:
        return False
    different = {tuple(vector) for vector in rows(log, asked.embedder).values()}
    cosines = sorted(cosine(vector, row(asked.embedder, asked.query)) for vector in different)
    return any(higher - lower < 1e-6 for lower, higher in pairwise(cosines))


def differences(ours: list[Line], right: list[Line]) -> list[str]:
    """What is not the same: ids, ranks, or a score by more than 1e-5."""
    found = [f"{len(ours)} hits, not {len(right)}"] if len(ours) != len(right) else []
    for place, (one, other) in enumerate(zip(ours, right, strict=False)):
        same = one.ids == other.ids and one.id == other.id and _is_near(one.score, other.score)
        for ranked in zip(one[3:], other[3:], strict=True):
            same &= _is_same(*ranked)
        if not same:
            found.append(f"{place}: {one}, not {other}")
    return found


def _is_same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(one[0] == other[0] and _is_near(one[1], other[1]))


def _is_near(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-5
