"""Whether a path fits a pattern, as .gitignore reads patterns; no file system is asked.

`*` and `?` stay within a part of the path, `**` as a part of its own stands for any number of parts, `[abc]` and
`[!abc]` for a character, `{yml,yaml}` for one of several texts.  A pattern without a slash fits the name of the file
at any depth; one that begins with a slash, or has one inside, begins where the path begins; one that ends with a slash
fits all below that folder.  A backslash is a slash, in paths and in patterns.  Case counts.  Paths are given relative
to the project: of an absolute one the root is left out, and so is `./` at the front of any.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final

MAX_CHARS: Final = 256
#: How many patterns one may be short for.
MAX_ALTERNATIVES: Final = 64

#: What fits a part of a path; None for any number of parts.
_Parts = tuple[re.Pattern[str] | None, ...]


def fits(path: str, glob: str) -> bool:
    """Whether a path fits a pattern.

    Raises: ValueError for a pattern that is too long, or short for too many.
    Cost: parts of the path times parts of the pattern.
    """
    parts = _split(path)
    return any(_matches(parts, alternative) for alternative in compiled(glob))


@lru_cache(maxsize=1024)
def compiled(glob: str) -> tuple[_Parts, ...]:
    """The patterns that one is short for, taken apart.  Raises: ValueError."""
    if len(glob) > MAX_CHARS:
        raise ValueError(f"has more than {MAX_CHARS} characters")
    if glob.startswith("!"):
        raise ValueError("would take a pattern back: name what fits, and nothing else")
    alternatives = list(islice(_unbraced(glob.replace("\\", "/")), MAX_ALTERNATIVES + 1))
    if len(alternatives) > MAX_ALTERNATIVES:
        raise ValueError(f"is short for more than {MAX_ALTERNATIVES} patterns: write several")
    return tuple(map(_compile, alternatives))


def _compile(glob: str) -> _Parts:
    anchored = "/" in glob.rstrip("/")
    names = [name for name in glob.split("/") if name not in ("", ".")]
    if not names:
        raise ValueError("names no file")
    if not anchored:
        names.insert(0, "**")
    if names[-1] == "**":
        names.append("*")
    if glob.endswith("/"):
        names += ["**", "*"]
    return tuple(None if name == "**" else _compile_name(name) for name in names)


def _compile_name(name: str) -> re.Pattern[str]:
    # Stars in a row are one; fnmatch knows `[!`, as shells do, and not `[^`.
    plain = re.sub(r"\*+", "*", unicodedata.normalize("NFC", name)).replace("[^", "[!")
    return re.compile(fnmatch.translate(plain))


def _unbraced(glob: str) -> Iterator[str]:
    """The texts that braces make, in order; a brace without its partner is itself."""
    start, end, depth = 0, 0, 0
    commas: list[int] = []
    for at, char in enumerate(glob):
        if char == "{":
            if not depth:
                start = at
            depth += 1
        elif char == "}" and depth:
            depth -= 1
            if not depth:
                end = at
                break
        elif char == "," and depth == 1:
            commas.append(at)
    if not end:
        yield glob
        return
    bounds = [start, *commas, end]
    for rest in _unbraced(glob[end + 1 :]):
        for left, right in pairwise(bounds):
            for inner in _unbraced(glob[left + 1 : right]):
                yield glob[:start] + inner + rest


def _split(path: str) -> list[str]:
    plain = unicodedata.normalize("NFC", path.replace("\\", "/"))
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    return parts[1:] if re.fullmatch("[A-Za-z]:", parts[0] if parts else "") else parts


def _matches(parts: list[str], pattern: _Parts) -> bool:
    """Whether the parts fit, all of them: which lengths of the path the pattern reaches, part of it by part."""
    reached = [True] + [False] * len(parts)
    for wanted in pattern:
        if wanted is None:
            first = reached.index(True) if True in reached else len(reached)
            reached = [at >= first for at in range(len(reached))]
        else:
            reached = [False] + [
                so_far and bool(wanted.match(part)) for so_far, part in zip(reached, parts, strict=False)
            ]
    return reached[-1]
