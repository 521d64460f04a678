"""SillyTavern chats: a `.jsonl` file each, or a folder of them, in which branches repeat what they began with.

A message continues the line before it.  Every swipe of a line is a message: they
are siblings, and what follows hangs below the one that was chosen.  Nothing in the
file names a message, so that its id is a hash of its path: of role and text of all
that was said up to it.  What two files say alike from the top on is one path,
whether they were imported together or not; where they differ, the conversation
forks.  So chats that begin with the same greeting are one conversation, and a
message that was edited in place is a new sibling.

    a line                                    becomes
    `chat_metadata`, or both names, no text   nothing: the header
    `mes`, `swipes`                           a message a swipe; `mes` is the chosen one, whatever `swipe_id` says
    any other object                          counted

Who wrote it (`is_user`) gives the role; narrators and comments are `system`.
Messages hidden from the model (`is_system`) keep their text and are marked
`hidden`; that may change from file to file, and so may times: the earliest copy
tells them.  Times without an offset are taken for UTC.

A conversation stands at the end of its chat, not of the branches of it: those have
a `main_chat`.  Of several chats that begin alike the last in the folder counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from branchmem.importers import json_lines
from branchmem.importers.files import Files
from branchmem.importers.line_source import LineSource, named
from branchmem.importers.records import Content, Leaf, Record, Report, Source, event_id

TOOL: Final = "sillytavern"
EXPECTED: Final = "SillyTavern chats, lines of JSON that each have a `mes`, in a .jsonl file or a folder of them"

_NAMES: Final = ("user_name", "character_name")
_TOLD: Final = ("is_user", "is_system", "send_date", "swipes", "swipe_id")
_SYSTEM: Final = ("narrator", "comment", "system")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# 2023-4-21 @20h 02m 47s 124ms, with or without the spaces and the last part
_WITH_UNITS: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})\s*@\s*(\d{1,2})h\s*(\d{1,2})m\s*(\d{1,2})s(?:\s*(\d{1,3})ms)?", re.ASCII
)
# April 26, 2024 6:06am
_IN_WORDS: Final = re.compile(
    r"([a-z]{3,9})\.?\s+(\d{1,2}),?\s+(\d{4}),?\s+(\d{1,2}):(\d{2})(?::(\d{2}))?\s*([ap])\.?m\.?",
    re.ASCII | re.IGNORECASE,
)


def looks_like(lines: Sequence[bytes]) -> bool:
    """Whether a header or a message of a chat is among the first lines."""
    return any(_is_header(form) or _is_told(form) for form in json_lines.objects(lines))


def _is_header(form: dict[str, Any]) -> bool:
    named_both = all(name in form for name in _NAMES)
    return "mes" not in form and "swipes" not in form and ("chat_metadata" in form or named_both)


def _is_told(form: dict[str, Any]) -> bool:
    return isinstance(form.get("mes"), str) and not form.keys().isdisjoint(_TOLD)


def sources(files: Files, report: Report) -> Iterator[Source]:
    """All chats as one source, those that are no branches first."""
    branches = dict.fromkeys(number for number in range(len(files)) if _is_branch(files, number))
    mains = [number for number in range(len(files)) if number not in branches]
    yield _Chats(files.only([*mains, *branches]), len(mains), report)


def _is_branch(files: Files, number: int) -> bool:
    """Whether the first object of a file names the chat that this is a branch of."""
    for _, line in files.lines(number):
        for form in json_lines.objects([line]):
            metadata = form.get("chat_metadata")
            return isinstance(metadata, dict) and named(metadata.get("main_chat")) is not None
    return False


class _Chats(LineSource):
    """Chats, so many of them, and behind them their branches."""

    def __init__(self, files: Files, mains: int, report: Report) -> None:
        super().__init__(files, report, EXPECTED)
        self._mains = mains

    def records_of(self, number: int) -> Iterator[Record]:
        above: str | None = None
        conversation = ""
        for line, form in self.forms(number):
            if _is_header(form):
                continue
            said, chosen, known = _said(form)
            if not said:
                self.report.unknown_types += 1
                continue
            self.report.unknown_types += not known
            if above is None:
                conversation = event_id(TOOL, f"~{_hash(None, said[0])[:16]}")
            ids = [event_id(TOOL, _hash(above, each)) for each in said]
            for position, content in enumerate(said):
                yield Record(
                    conversation=conversation,
                    id=ids[position],
                    parent=above,
                    role=content.role,
                    text=content.text,
                    created=content.created,
                    meta=content.meta,
                    place=self.place(line, position),
                    copied=True,
                )
            above = ids[chosen]
        if above is not None and (number < self._mains or conversation not in self.leaves):
            self.leaves[conversation] = Leaf(above, "last_line")

    def pieces(self, number: int, form: dict[str, Any]) -> Sequence[Content]:
        return _said(form)[0]


def _said(form: dict[str, Any]) -> tuple[list[Content], int, bool]:
    """What the swipes of a line say, which of them was chosen, and whether all of it could be read.

    Nothing where the line is no message.  A text that is in none of the swipes is one more.
    """
    text, swipes = form.get("mes"), form.get("swipes")
    texts = [each if isinstance(each, str) else "" for each in swipes] if isinstance(swipes, list) else []
    known = swipes is None or (isinstance(swipes, list) and all(isinstance(each, str) for each in swipes))
    swipe = form.get("swipe_id")
    chosen = swipe if type(swipe) is int and 0 <= swipe < len(texts) else None
    if not isinstance(text, str):
        if not texts or chosen is None:
            return [], 0, False
        known = False
    elif chosen is None or texts[chosen] != text:
        if text not in texts:
            texts.append(text)
        chosen = texts.index(text)
    extra = form.get("extra")
    kind = extra.get("type") if isinstance(extra, dict) else None
    role = "user" if form.get("is_user") is True else "assistant"
    if kind in _SYSTEM and role != "user":
        role = "system"
    meta = {"hidden": True} if form.get("is_system") is True else {}
    known = known and isinstance(form.get("is_user"), bool)
    dates = _dates(form, chosen, len(texts))
    return [Content(role, each, date, meta) for each, date in zip(texts, dates, strict=True)], chosen, known


def _dates(form: dict[str, Any], chosen: int, count: int) -> list[datetime | None]:
    """When each swipe was written; the line itself tells it of the chosen one, where its own entry does not."""
    infos = form.get("swipe_info")
    infos = infos if isinstance(infos, list) else []
    dates = [time(each.get("send_date")) if isinstance(each, dict) else None for each in infos[:count]]
    dates += [None] * (count - len(dates))
    dates[chosen] = dates[chosen] or time(form.get("send_date"))
    return dates


def time(value: object) -> datetime | None:
    """A time in any of the spellings that versions of SillyTavern wrote; None for whatever is none."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        if not isinstance(value, str) or (value.isascii() and value.isdigit()):
            return _EPOCH + timedelta(milliseconds=float(value))
        spelled = value.strip()
        if found := _WITH_UNITS.fullmatch(spelled):
            year, month, day, hour, minute, second, milliseconds = (int(part or 0) for part in found.groups())
            return datetime(year, month, day, hour, minute, second, milliseconds * 1000, tzinfo=UTC)
        if found := _IN_WORDS.fullmatch(spelled):
            word, *rest, half = found.groups()
            day, year, hour, minute, second = (int(part or 0) for part in rest)
            month, hour = _MONTHS.index(word[:3].lower()) + 1, hour % 12 + (12 if half in "pP" else 0)
            return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        iso = datetime.fromisoformat(spelled)
        return iso.replace(tzinfo=UTC) if iso.utcoffset() is None else iso
    except (ValueError, OverflowError):
        return None


def _hash(above: str | None, content: Content) -> str:
    """What stands for a path: all before it, and what is said at its end."""
    return hashlib.sha256(json.dumps([above, content.role, content.text]).encode()).hexdigest()[:32]
