"""The plain ranker: which of the memories that a view shows fit a query best.

Textbook BM25 over words and CJK bigrams, cosines, reciprocal rank fusion.  Every number is worked out from the
memories that are given, and these are what one view shows: nothing hidden can change a score.  The compiled search
must give the same ids and ranks, and the same scores to 1e-5; where they differ, this module is right.

Slow on purpose and short on purpose: nothing is indexed, nothing is kept.  Takes conditions that are well formed;
refusing others is the business of `recall`.

Sources: BM25, Robertson & Zaragoza, The Probabilistic Relevance Framework, 2009, with the idf that cannot be
negative; reciprocal rank fusion, Cormack, Clarke & Buettcher, SIGIR 2009.
"""

from __future__ import annotations

import math
import operator
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

from branchmem.canonical import meta, pack, thaw
from branchmem.events import Memory

K1: Final = 1.2
B: Final = 0.75
RRF_K: Final = 60
#: The blocks of Han, Hiragana, Katakana, Hangul and Bopomofo: first and last code point.
CJK: Final = (
    (0x1100, 0x11FF),
    (0x2E80, 0x2FDF),
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3038, 0x303C),
    (0x3041, 0x3096),
    (0x309D, 0x309F),
    (0x30A1, 0x30FA),
    (0x30FC, 0x30FF),
    (0x3105, 0x312F),
    (0x3131, 0x318E),
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7FF),
    (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F),
    (0x20000, 0x323AF),
)

_IGNORED: Final = dict.fromkeys([0x00AD, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])

_ORDER: Final = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}

Vector = Sequence[float]
#: Half-life in hours and floor; the same by kind, where it is another.
Decay = tuple[float, float, Mapping[str, tuple[float, float]]]
DECAY: Final[Decay] = (168.0, 0.05, {})


class Found(NamedTuple):
    """One text that fits, and the memories that say it: `ids`, sorted, and the best of them.

    `lexical` and `vector` are rank, from 1, and score in the lists that nominated it.
    """

    ids: list[str]
    id: str
    score: float
    lexical: tuple[int, float] | None
    vector: tuple[int, float] | None


def runs(text: str) -> Iterator[tuple[str, str]]:
    """The runs of "word" and of "cjk" characters of a text, in lower case, in the order in which they stand.

    Soft hyphens and variation selectors are not there; marks alone are no word.
    """
    normal = unicodedata.normalize("NFKC", text).translate(_IGNORED).lower()
    for sort, characters in groupby(normal, _sort):
        run = "".join(characters)
        if sort and any(unicodedata.category(character)[0] != "M" for character in run):
            yield sort, run


@cache
def _sort(character: str) -> str:
    if any(first <= ord(character) <= last for first, last in CJK):
        return "cjk"
    return "word" if unicodedata.category(character)[0] in "LMN" else ""


def tokens(text: str) -> list[str]:
    """What a query asks for, and a text's length counts: words, CJK bigrams, CJK characters that stand alone."""
    found = []
    for name, run in runs(text):
        found += [run] if name == "word" or len(run) == 1 else [a + b for a, b in pairwise(run)]
    return found


def characters(text: str) -> list[str]:
    """What a text is found by as well: each character of its longer CJK runs."""
    return [character for name, run in runs(text) if name == "cjk" and len(run) > 1 for character in run]


def bm25(texts: Mapping[str, str], query: str) -> dict[str, float]:
    """The score of each text that has something of the query; the statistics are those of these texts."""
    lengths = {id: len(tokens(text)) for id, text in texts.items()}
    counts = {id: Counter(tokens(text) + characters(text)) for id, text in texts.items()}
    average = sum(lengths.values()) / max(len(texts), 1)
    scores: dict[str, float] = {}
    for token in dict.fromkeys(tokens(query)):
        having = [id for id in texts if token in counts[id]]
        idf = math.log(1 + (len(texts) - len(having) + 0.5) / (len(having) + 0.5))
        for id in having:
            tf = counts[id][token]
            norm = K1 * (1 - B + B * lengths[id] / average)
            scores[id] = scores.get(id, 0.0) + idf * tf * (K1 + 1) / (tf + norm)
    return scores


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of two vectors; 0 where one of them is zero."""
    lengths = math.sqrt(_dot(one, one)) * math.sqrt(_dot(other, other))
    return _dot(one, other) / lengths if lengths else 0.0


def _dot(one: Vector, other: Vector) -> float:
    return math.fsum(float(a) * float(b) for a, b in zip(one, other, strict=True))


def best(scores: Mapping[str, float], texts: Mapping[str, str]) -> dict[str, tuple[str, float]]:
    """Each distinct text with the memory that says it best, and its score: best first, then by id."""
    found: dict[str, tuple[str, float]] = {}
    for id in sorted(scores, key=lambda id: (-scores[id], id)):
        found.setdefault(texts[id], (id, scores[id]))
    return found


def rank(lists: Mapping[str, Mapping[str, float]], texts: Mapping[str, str], k: int) -> list[Found]:
    """The best `k` distinct texts by one list of scores, "lexical" or "vector", or by both, fused.

    Each of two lists nominates its best max(100, 10 k).
    """
    nominated = {name: list(best(scores, texts).items())[: max(100, 10 * k)] for name, scores in lists.items()}
    places: dict[str, dict[str, tuple[int, float]]] = {}
    chosen: dict[str, str] = {}
    for name in sorted(nominated):  # "lexical" first: it chooses the id
        for place, (text, (id, score)) in enumerate(nominated[name], 1):
            chosen.setdefault(text, id)
            places.setdefault(text, {})[name] = place, score
    found = []
    for text, by in places.items():
        fused = sum(1 / (RRF_K + place) for place, _ in by.values())
        score = fused if len(lists) > 1 else next(iter(by.values()))[1]
        ids = sorted(id for id in texts if texts[id] == text)
        found.append(Found(ids, chosen[text], score, by.get("lexical"), by.get("vector")))
    return sorted(found, key=lambda hit: (-hit.score, hit.id))[:k]


def effective(memory: Memory, used: datetime | None, now: datetime, decay: Decay) -> float:
    """The importance of a memory, halved by each half-life since it was made or, if later, last used."""
    half_life_hours = _settings(memory, decay)[0]
    last = max((time for time in (memory.created, used) if time is not None), default=now)
    hours = max(now - last, timedelta()) / timedelta(hours=1)
    return float(memory.importance * 2 ** -(hours / half_life_hours))


def is_faded(memory: Memory, used: datetime | None, now: datetime, decay: Decay) -> bool:
    """Whether its effective importance lies below the floor of its kind."""
    return effective(memory, used, now, decay) < _settings(memory, decay)[1]


def _settings(memory: Memory, decay: Decay) -> tuple[float, float]:
    half_life_hours, floor, kinds = decay
    return kinds.get(memory.kind, (half_life_hours, floor))


def fits(memory: Memory, conditions: Mapping[str, Any]) -> bool:
    """Whether a memory meets all conditions on its fields; None is no condition."""
    return all(
        condition is None or _meets(getattr(memory, field), condition) for field, condition in conditions.items()
    )


def _meets(value: Any, condition: Any) -> bool:
    """A condition is a mapping of operators, a mapping of what stands within meta, or a value to be equal to."""
    if not isinstance(condition, Mapping):
        return _is_equal(value, condition)
    if all(name.startswith("$") for name in condition):
        return all(_compare(value, name, operand) for name, operand in condition.items())
    inside = value if isinstance(value, Mapping) else {}
    return all(_meets(inside.get(name), within) for name, within in condition.items())


def _compare(value: Any, name: str, operand: Any) -> bool:
    if name == "$in":
        return any(_is_equal(value, one) for one in operand)
    if name in ("$eq", "$ne"):
        return _is_equal(value, operand) == (name == "$eq")
    return _is_comparable(value, operand) and bool(_ORDER[name](value, operand))


def _is_comparable(value: Any, operand: Any) -> bool:
    """Whether both are numbers, both strings or both times; a bool is no number."""
    if isinstance(value, bool) or isinstance(operand, bool):
        return False
    return any(isinstance(value, sort) and isinstance(operand, sort) for sort in ((int, float), str, datetime))


def _is_equal(value: Any, operand: Any) -> bool:
    """Numbers by value, times as instants, all else by its canonical bytes; what is absent equals None."""
    if _is_comparable(value, operand):
        return bool(value == operand)
    if isinstance(value, datetime) or isinstance(operand, datetime):
        return False
    return _canonical(value) == _canonical(operand)


def _canonical(value: Any) -> bytes:
    return pack([thaw(meta({"": value}))])
