"""JSON nested deeper than the parser of the standard library goes: read without recursion.

It reads what that parser reads, ten times slower, so that it is asked only where
that one gave up.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

#: Deeper than this nothing is read: what is open costs some 100 bytes a level.
DEEPEST: Final = 1 << 20

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_FLAT: Final = json.JSONDecoder()


def loads(text: str) -> Any:
    """The value that a text spells.  Raises: ValueError, which names the character at fault.  O(size)."""
    value, end = decoded(text, _skipped(text, 0))
    end = _skipped(text, end)
    if end < len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value


def decoded(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at a character, and where it ends.  Raises: JSONDecodeError; ValueError.  O(its size)."""
    opened: list[Any] = []
    keys: list[str] = []
    while True:
        value: Any
        first = text[at : at + 1]
        if first in ("{", "["):
            value = {} if first == "{" else []
            at = _skipped(text, at + 1)
            if text[at : at + 1] != _closing(value):
                opened.append(value)
                if len(opened) > DEEPEST:
                    raise ValueError("nested too deeply")
                if first == "{":
                    at = _key(text, at, keys)
                continue
            at += 1
        else:
            value, at = _FLAT.raw_decode(text, at)
        while opened:
            above = opened[-1]
            at = _skipped(text, at)
            if isinstance(above, list):
                above.append(value)
            else:
                above[keys.pop()] = value
            follows = text[at : at + 1]
            if follows == ",":
                at = _skipped(text, at + 1)
                if isinstance(above, dict):
                    at = _key(text, at, keys)
                break
            if follows != _closing(above):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            value = opened.pop()
            at += 1
        else:
            return value, at


def _key(text: str, at: int, keys: list[str]) -> int:
    """Read a key and its colon, and return where its value begins."""
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    key, at = _FLAT.raw_decode(text, at)
    at = _skipped(text, at)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    keys.append(key)
    return _skipped(text, at + 1)


def _closing(container: Any) -> str:
    return "}" if isinstance(container, dict) else "]"


def _skipped(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()
