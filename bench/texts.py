"""What is remembered and what is asked for: texts whose words are as unevenly frequent as those of a language.

English texts are 8 to 20 made-up words, Chinese ones 5 to 12 made-up words without a space between.
The word of rank r comes with a weight of 1 / (r + 2.7) (Mandelbrot, 1953).
Everything follows from its seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from bench import shapes

VOCABULARY: Final = 30_000
WORDS: Final = (8, 20)
CHINESE_VOCABULARY: Final = 8_000
CHINESE_WORDS: Final = (5, 12)
CHARACTERS: Final = 2_500
OFFSET: Final = 2.7
#: Ranks of words: what nearly every text has, what some have, what few have.
BANDS: Final = ((0, 100), (100, 3_000), (3_000, VOCABULARY))
STRETCH: Final = (3, 5)  # characters of a Chinese text that a query repeats: trigrams need three

_SYLLABLES: Final = tuple(consonant + vowel for vowel in "aeiou" for consonant in "bcdfghjklmnprstvwxyz")


def word(rank: int) -> str:
    """The word of this rank: one syllable for the hundred most frequent ones, two for the next ten thousand."""
    syllables = []
    rest = rank + 1
    while rest:
        rest, syllable = divmod(rest - 1, len(_SYLLABLES))
        syllables.append(_SYLLABLES[syllable])
    return "".join(syllables)


def english(count: int, *, name: str = "english") -> list[str]:
    """So many texts."""
    return _texts(count, _vocabulary(), WORDS, " ", name)


def english_queries(count: int) -> list[str]:
    """One to four words, each from one of the three bands, all alike."""
    rng = random.Random(f"{shapes.SEED} queries")
    return [" ".join(word(rng.randrange(*rng.choice(BANDS))) for _ in range(1 + number % 4)) for number in range(count)]


def chinese(count: int) -> list[str]:
    """So many texts, each one run of characters."""
    rng = random.Random(f"{shapes.SEED} characters")
    characters = [chr(0x4E00 + 8 * place) for place in range(CHARACTERS)]
    weights = np.cumsum(1 / (np.arange(CHARACTERS) + OFFSET)).tolist()
    sizes = rng.choices((1, 2, 3), (2, 6, 1), k=CHINESE_VOCABULARY)
    words = ["".join(rng.choices(characters, cum_weights=weights, k=size)) for size in sizes]
    return _texts(count, words, CHINESE_WORDS, "", "chinese")


def chinese_queries(texts: Sequence[str], count: int) -> list[str]:
    """One or two stretches of a few characters, each out of some text."""
    rng = random.Random(f"{shapes.SEED} chinese queries")

    def stretch() -> str:
        text = rng.choice(texts)
        size = min(len(text), rng.randint(*STRETCH))
        start = rng.randrange(len(text) - size + 1)
        return text[start : start + size]

    return [" ".join(stretch() for _ in range(1 + number % 2)) for number in range(count)]


def chinese_bigrams(text: str) -> list[str]:
    """The bigrams of each run of characters, or its only character: what a query asks for, and a text is as long as."""
    return [token for run in text.split() for token in ([run[at : at + 2] for at in range(len(run) - 1)] or [run])]


def chinese_tokens(text: str) -> list[str]:
    """All that a text is found by: its bigrams, and each character of a longer run."""
    return chinese_bigrams(text) + [character for run in text.split() if len(run) > 1 for character in run]


@cache
def _vocabulary() -> list[str]:
    return [word(rank) for rank in range(VOCABULARY)]


def _texts(count: int, words: Sequence[str], sizes: tuple[int, int], between: str, name: str) -> list[str]:
    generator = np.random.default_rng([shapes.SEED, *name.encode()])
    weights = 1 / (np.arange(len(words)) + OFFSET)
    lengths = generator.integers(sizes[0], sizes[1] + 1, size=count)
    chosen = generator.choice(len(words), size=int(lengths.sum()), p=weights / weights.sum())
    drawn = [words[rank] for rank in chosen.tolist()]
    ends = np.cumsum(lengths).tolist()
    return [between.join(drawn[end - size : end]) for end, size in zip(ends, lengths.tolist(), strict=True)]
