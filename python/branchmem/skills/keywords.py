"""Whether a keyword stands in a text: as whole words, in any case.

A word is a run of letters, marks and digits that are not Chinese, Japanese or Korean; in these languages nothing tells
where a word ends.  So `docker` stands in "用docker部署" and not in "dockerize", `部署` in "部署服务" and "重新部署".
White space of any kind and length is one space, full-width letters are letters (NFKC).
"""

from __future__ import annotations

import unicodedata

from branchmem.cjk import CHARACTER


def normal(text: str) -> str:
    """A text as it is compared."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def stands_in(keyword: str, text: str) -> bool:
    """Whether a keyword stands in a text, both as `normal` gives them.  O(text)."""
    starts, ends = _is_of_word(keyword[0]), _is_of_word(keyword[-1])
    at = text.find(keyword)
    while at >= 0:
        end = at + len(keyword)
        inside = (starts and at > 0 and _is_of_word(text[at - 1])) or (
            ends and end < len(text) and _is_of_word(text[end])
        )
        if not inside:
            return True
        at = text.find(keyword, at + 1)
    return False


def _is_of_word(char: str) -> bool:
    return unicodedata.category(char)[0] in "LMN" and not CHARACTER.match(char)
