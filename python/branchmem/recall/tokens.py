"""How many tokens a text takes, where nobody says which model will read it.

An estimate on the safe side for common tokenizers: a character of Chinese, Japanese or Korean is a token, of
everything else four characters are.  Who knows the model passes its own count to `recall`.
"""

from __future__ import annotations

from typing import Final

from branchmem.cjk import CHARACTER

_CHARS_A_TOKEN: Final = 4


def estimate(text: str) -> int:
    """About how many tokens a text takes.  O(length)."""
    wide = len(CHARACTER.findall(text))
    return wide - (wide - len(text)) // _CHARS_A_TOKEN
