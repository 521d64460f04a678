"""Long texts with their middle left out, and how many tokens a text takes."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Final, SupportsIndex

from branchmem.errors.extract import InvalidExtraction
from branchmem.recall.tokens import estimate

Count = Callable[[str], int]

#: Of what is kept of a text, so much is its beginning.
_HEAD: Final = 2 / 3


def counter(tokens: Count | None) -> Count:
    """What counts the tokens of a text: the caller's own, which must answer in whole numbers, or an estimate.

    Raises: InvalidExtraction.
    """
    if tokens is None:
        return estimate
    if not callable(tokens):
        raise InvalidExtraction("tokens", tokens, "it counts the tokens of a text: pass a callable, str to int")
    return lambda text: whole("tokens", tokens(text))


def whole(name: str, value: object, least: int = 0) -> int:
    """A number of tokens, messages or turns.  Raises: InvalidExtraction."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or index(value) < least:
        raise InvalidExtraction(name, value, f"a whole number, {least} or more, is needed")
    return index(value)


def snipped(text: str, tokens: int, count: Count) -> str:
    """A text of more than so many tokens with its middle left out, and what is missing named; a shorter one as it is.

    Cost: a few counts of the text.
    """
    total = count(text)
    if total <= tokens:
        return text
    chars = max(1, len(text) * tokens // total)
    while True:
        head = max(1, round(chars * _HEAD))
        tail = min(chars - head, len(text) - head)
        begin, end = text[:head].rstrip(), text[len(text) - tail :].lstrip() if tail > 0 else ""
        kept = count(begin) + count(end)
        if kept <= tokens or chars == 1:
            break
        chars = max(1, min(chars - 1, chars * tokens // kept))
    short = f"{begin}\n[… {max(total - kept, 1)} tokens left out …]\n{end}".rstrip("\n")
    return short if count(short) < total else text
