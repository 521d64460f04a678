"""Which skills a message calls up, and by what: what is said, a word that asks for it, a file that is worked on.

Four parts are found for each skill:

    semantic    its search score over the best one: BM25 of name, description, keywords and tags     0 to 1
    keyword     0.2 for each of its keywords that stands in the message, at most 0.5                 0 to 0.5
    glob        0.35 where a pattern of it fits one of the paths                                     0 or 0.35
    importance  as it says itself                                                                    0 to 1

`score` weighs them, each as a share of the most it can be, so that it lies in 0..1:

    0.55 semantic + 0.25 keyword / 0.5 + 0.15 glob / 0.35 + 0.05 importance

It orders what was activated.  What is activated is decided by the parts that speak for a skill, as they stand above:

1. Minimum: semantic + keyword + glob must reach 0.30.  So a file alone suffices, and two keywords do; one keyword needs
   some agreement of the message besides, and importance speaks for nothing.
2. A skill is dropped that is under 75 % of the best one in each of the three parts.  The parts in which it is not are
   what it was activated by: one of them, or, where there are several, `combined`.
3. At most 3, by score, then by name.

Neither limit is held against `score`: a file gives at most 0.20 of it, and one keyword 0.15, so that a skill whose file
is worked on would never be called up by that alone, and would lose to any other that shares a word with the message.  A
search has a best one whatever was asked, so English words that no skill is about, such as "the", "this" and "please",
are left out of the query, unless they are keywords; where nothing else was said, semantic is 0 for all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from branchmem._core import rank_texts
from branchmem.skills import globs, keywords
from branchmem.skills.skill import Skill

Part = Literal["semantic", "keyword", "glob"]
By = Literal["semantic", "keyword", "glob", "combined"]

KEYWORD_HIT: Final = 0.2
KEYWORD_MOST: Final = 0.5
GLOB_HIT: Final = 0.35
MINIMUM: Final = 0.30
SHARE: Final = 0.75
MOST: Final = 3

_WEIGHTS: Final = {"semantic": 0.55, "keyword": 0.25, "glob": 0.15, "importance": 0.05}
_WORD: Final = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)?")
#: What is said with any skill.
_IDLE: Final = """
    a about after all also am an and any are as at be been before but by can can't cannot could did didn't do
    does doesn't doing don't done for from get give had has have having he help her here him his how i i'd i'll
    i'm i've if in into is isn't it it's its just let let's like look may me might more most my need no not now
    of off ok on one only or other our out over please put see she should show so some something take tell than
    thank thanks that that's the their them then there these they thing things this those to too up us use used
    using very want was we we're were what what's when where which while who why will with without would you
    you're your
"""


@dataclass(frozen=True, slots=True)
class Activation:
    """A skill that was called up, and why."""

    skill: Skill
    #: What orders it, in 0..1; compare it within one call only.
    score: float
    semantic: float
    keyword: float
    glob: float
    #: The parts that it was activated by.
    parts: tuple[Part, ...]
    #: The keywords of it that stand in the message.
    keywords: tuple[str, ...]
    #: The paths that fit a pattern of it.
    paths: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the skill."""
        return self.skill.name

    @property
    def by(self) -> By:
        """What it was activated by: one part, or "combined"."""
        return self.parts[0] if len(self.parts) == 1 else "combined"

    def __str__(self) -> str:
        found = ", ".join((*self.keywords, *self.paths))
        return f"{self.name} by {self.by}{f' ({found})' if found else ''}, score {self.score:.2f}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "name": self.name,
            "memory": self.skill.memory,
            "by": self.by,
            "score": self.score,
            "semantic": self.semantic,
            "keyword": self.keyword,
            "glob": self.glob,
            "importance": self.skill.importance,
            "parts": list(self.parts),
            "keywords": list(self.keywords),
            "paths": list(self.paths),
            "tools_allowed": list(self.skill.tools_allowed),
        }


def activate(
    skills: Sequence[Skill], message: str, paths: Iterable[str | os.PathLike[str]] = (), *, most: int = MOST
) -> list[Activation]:
    """The skills that a message and paths call up by the rule above, best first.

    Raises: TypeError for a path where a list of paths belongs; ValueError for `most` below 0.
    """
    if isinstance(paths, (str, os.PathLike)):
        raise TypeError(f"paths is a list: write paths=[{str(paths)!r:.80}]")
    if most < 0:
        raise ValueError(f"most is a number of skills, 0 or more, not {most}")
    found = _weighed(skills, message, [os.fspath(path) for path in paths])
    best = {part: max((getattr(one, part) for one in found), default=0.0) for part in get_args(Part)}
    out = []
    for one in found:
        parts = tuple(part for part in get_args(Part) if 0 < getattr(one, part) >= SHARE * best[part])
        if parts and one.semantic + one.keyword + one.glob >= MINIMUM:
            out.append(replace(one, parts=parts))
    return sorted(out, key=lambda one: (-one.score, one.name))[:most]


def _weighed(skills: Sequence[Skill], message: str, paths: Sequence[str]) -> list[Activation]:
    """What speaks for each skill, its parts still to be judged."""
    text = keywords.normal(message)
    found = []
    for skill, semantic in zip(skills, _semantic(skills, message), strict=True):
        asked = {keywords.normal(keyword): keyword for keyword in reversed(skill.trigger_keywords)}
        hits = tuple(keyword for normal, keyword in reversed(asked.items()) if keywords.stands_in(normal, text))
        fitting = tuple(path for path in paths if any(globs.fits(path, glob) for glob in skill.glob_patterns))
        keyword, glob = min(KEYWORD_HIT * len(hits), KEYWORD_MOST), GLOB_HIT if fitting else 0.0
        shares = {
            "semantic": semantic,
            "keyword": keyword / KEYWORD_MOST,
            "glob": glob / GLOB_HIT,
            "importance": skill.importance,
        }
        score = sum(weight * shares[part] for part, weight in _WEIGHTS.items())
        found.append(Activation(skill, score, semantic, keyword, glob, (), hits, fitting))
    return found


def _semantic(skills: Sequence[Skill], message: str) -> list[float]:
    """The search score of each skill over the best one."""
    asked = {word for skill in skills for keyword in skill.trigger_keywords for word in keyword.lower().split()}
    idle = set(_IDLE.split()) - asked
    query = _WORD.sub(lambda word: " " if word[0].lower().replace("’", "'") in idle else word[0], message)
    texts = ["\n".join((one.name, one.description, *one.trigger_keywords, *one.tags)) for one in skills]
    scores = rank_texts(texts, query)
    best = max(scores, default=0.0)
    return [score / best if best > 0 else 0.0 for score in scores]
