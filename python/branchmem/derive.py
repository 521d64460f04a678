"""Derived memories without any model: they stand in for a model's summaries.

Every branch is cut into windows of n messages, counted from its root; each
window becomes one note, the leading sentence of each of its messages, with
exactly those messages as sources.  Branches share the windows of their common
path; the first window that reaches beyond a fork is each branch's own, so a note
never mixes branches.  Messages without text hold no place in a window, and a
window that is not full yet is no note yet.

The same messages give the same notes with the same ids, so that deriving again
adds only what new messages have filled.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from branchmem import Memory, Message
from branchmem.events import Event

KIND: Final = "summary"
# A window holds at most so many messages, so that its note stays within 1 MiB of text.
MOST_MESSAGES: Final = 1000
LONGEST_SENTENCE: Final = 240

# English marks end a sentence before a space, CJK ones wherever they stand; closing marks go with them.
_END: Final = re.compile(r"[.!?…]+[\"'”’)\]*_]*(?=\s)|[。！？｡．]+[”’」』）】]*")

_Window = tuple["_Window | None", str, str, int]


class _Log(Protocol):
    def get(self, id: str, /) -> Event: ...


class _Tree(Protocol):
    def roots(self) -> Iterable[str]: ...
    def children(self, id: str, /) -> Iterable[str]: ...


class Branching(Protocol):
    """What `derive` reads of a store."""

    @property
    def log(self) -> _Log: ...
    @property
    def tree(self) -> _Tree: ...


def derive(store: Branching, *, every: int = 4) -> Iterator[Memory]:
    """Yield a note for every `every` messages with text on each branch, parents first.

    Reads each attached message once and writes nothing: `store.append(derive(store))`.

    Raises: ValueError unless `every` is from 1 to 1000.
    Cost: O(messages + text of the notes), however deep or wide the trees.
    """
    if not 1 <= every <= MOST_MESSAGES:
        raise ValueError(f"every must be a number of messages from 1 to {MOST_MESSAGES}, not {every!r}")
    return _notes(store, every)


def _notes(store: Branching, every: int) -> Iterator[Memory]:
    # One entry a message to visit: its id and the messages of its window so far, newest first.
    waiting: list[tuple[str, _Window | None]] = []
    waiting.extend((root, None) for root in reversed(list(store.tree.roots())))
    while waiting:
        id, window = waiting.pop()
        message = store.log.get(id)
        sentence = leading_sentence(message.text) if isinstance(message, Message) and message.text else ""
        if sentence:
            window = (window, id, sentence, 1 if window is None else window[3] + 1)
            if window[3] == every:
                yield _note(window, every)
                window = None
        waiting.extend((child, window) for child in reversed(list(store.tree.children(id))))


def _note(window: _Window | None, every: int) -> Memory:
    sources: list[str] = []
    sentences: list[str] = []
    while window is not None:
        window, source, sentence, _ = window
        sources.append(source)
        sentences.append(sentence)
    sources.reverse()
    name = json.dumps(["leading sentences", every, sources])
    id = f"note:{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return Memory(id, "\n".join(reversed(sentences)), sources=sources, kind=KIND)


def leading_sentence(text: str) -> str:
    """The first sentence of the first line that is not blank, at most 240 characters; "" where all is blank.

    A sentence has a letter before its end, so that "1. Stir." is one.  Nothing
    is known of abbreviations: "Dr. No" ends after "Dr.".
    """
    line = next((line for line in text.lstrip()[: 4 * LONGEST_SENTENCE].splitlines() if line.strip()), "").strip()
    for end in _END.finditer(line):
        if any(letter.isalpha() for letter in line[: end.start()]):
            line = line[: end.end()]
            break
    if len(line) <= LONGEST_SENTENCE:
        return line
    cut = line[: LONGEST_SENTENCE - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[LONGEST_SENTENCE // 2 :] else cut) + "…"
