"""Which characters are written without spaces between words: Chinese, Japanese and Korean.

The blocks are those of the search: nothing but a dictionary tells where a word ends in these languages.
"""

from __future__ import annotations

import re
from typing import Final

#: The blocks of Han, Hiragana, Katakana, Hangul and Bopomofo: first and last code point.
BLOCKS: Final = (
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

CHARACTER: Final = re.compile("[{}]".format("".join(f"{chr(first)}-{chr(last)}" for first, last in BLOCKS)))
