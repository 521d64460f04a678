"""What was found, in lines: hits with their scores, what a prompt holds, who said something, what fades.

Texts are printed here, since somebody asked for them.  `prompt_lines` leaves their spaces as they are, for whoever
pipes them on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

import branchmem as bm
from branchmem.terminal.answers import ROLE_CELLS, memory_lines
from branchmem.terminal.lines import (
    ELLIPSIS,
    ID_CELLS,
    LEAST_TEXT_CELLS,
    SHOWN,
    cell,
    counted,
    hanging,
    plain,
    printable,
    rows,
    short,
    some,
    wrapped,
)

if TYPE_CHECKING:
    from branchmem.recall import Hit, Hits
    from branchmem.recall.context import Recalled
    from branchmem.recall.decay import Report
    from branchmem.recall.why import Answer, Found, Why

#: Where the text beside an id begins.
_MARGIN: Final = ID_CELLS + 4


def hit_lines(hits: Hits, anchors: Sequence[str], *, width: int) -> Iterator[Text]:
    """How many hits there are and what ranked them; then each, best first, with its scores and its sources."""
    found = (counted(len(hits), "hit", "hits"), "bold")
    how = hits.note or " and ".join(hits.rankers)
    yield from hanging(Text.assemble(found, _where(anchors), (f" ({plain(how)})", "dim")), width)
    for hit in hits:
        yield from memory_lines([hit.memory], width=width)
        yield from _beside(f"{_scores(hit, fused=len(hits.rankers) > 1)}; {_origin(hit)}", width)
    if hits.faded:
        faded = counted(hits.faded, "memory", "memories")
        yield from hanging(Text(f"{faded} left out as faded (--include-faded)", "dim"), width)


def _scores(hit: Hit, *, fused: bool) -> str:
    """Rank and score that each ranker gave it, and before them, where they were fused, what that makes."""
    places = ", ".join(f"{ranker} {rank} ({hit.scores[ranker]:.3f})" for ranker, rank in hit.ranks.items())
    return f"{hit.score:.4f}: {places}" if fused else places


def _origin(hit: Hit) -> str:
    """What a hit comes from, and who says the same."""
    memory = hit.memory
    origin = some(map(short, memory.sources or memory.derived_from)) or "no source"
    same = [short(id) for id in hit.ids if id != hit.id]
    return f"from {origin}" + (f"; the same: {some(same)}" if same else "")


def prompt_lines(found: Recalled) -> Iterator[str]:
    """The text for a prompt as it is, but for what a terminal would act upon; nothing where it is empty."""
    return map(printable, found.text.splitlines())


def recalled_lines(found: Recalled, anchors: Sequence[str], *, width: int) -> Iterator[Text]:
    """What a prompt holds and how full it is, what activated each skill, and what was left out."""
    skills = f"{counted(len(found.skills), 'skill', 'skills')} and " if found.skills else ""
    memories = counted(len(found.memories), "memory", "memories")
    note = f" ({plain(found.note)})" if found.note else ""
    size = f": {found.tokens:,} of {found.budget:,} tokens"
    yield from hanging(Text.assemble((skills + memories, "bold"), _where(anchors), size, (note, "dim")), width)
    yield from rows(_recalled_rows(found), width)


def _recalled_rows(found: Recalled) -> Iterator[tuple[str, str]]:
    if found.skills:
        yield "skills", some(f"{plain(each.skill.name)} ({each.by})" for each in found.skills)
    if found.memories:
        yield "memories", some(short(hit.id) for hit in found.memories)
    if left_out := [*map(plain, found.skills_left_out), *map(short, found.left_out)]:
        yield "did not fit", some(left_out)
    if found.faded:
        yield "faded", f"{counted(found.faded, 'memory', 'memories')} (--include-faded)"


def why_lines(found: Why, *, width: int) -> Iterator[Text]:
    """Where a text comes from and where it went: memories with their verdicts, messages, answers; the first of each."""
    sought = Text.assemble(f"“{plain(found.text)}”", _where(found.anchors))
    if not (found.memories or found.messages or found.answers):
        yield from hanging(sought.append(": nothing says so"), width)
        return
    yield from hanging(sought, width)
    yield from _group(
        counted(len(found.memories), "memory says so", "memories say so"),
        (_found_lines(each, width) for each in found.memories),
    )
    yield from _group(
        counted(len(found.messages), "message on the path says so", "messages on the path say so"),
        (_message_lines(each, found.text, width) for each in found.messages),
    )
    yield from _group(
        counted(len(found.answers), "answer was written with such a memory", "answers were written with such a memory"),
        (_answer_lines(each, found, width) for each in found.answers),
    )


def _found_lines(found: Found, width: int) -> Iterator[Text]:
    memory, verdict = found
    yield from memory_lines([memory], width=width)
    state = "visible" if verdict.visible else "hidden"
    yield from _beside(f"{state}: {some(verdict.sentences(short), '; ')}", width)


def _message_lines(message: bm.Message, sought: str, width: int) -> Iterator[Text]:
    """A message on one line, from a little before the place where it says what is sought."""
    from branchmem.recall.why import place_of

    text = plain(message.text or "(no text)")
    room = max(width - _MARGIN - ROLE_CELLS - 2, LEAST_TEXT_CELLS)
    at = place_of(text, plain(sought))
    if cell_len(text) > room and at > room // 2:
        text = ELLIPSIS + text[at - room // 4 :]
    yield Text.assemble(
        "  ",
        (cell(short(message.id), ID_CELLS), "cyan"),
        "  ",
        (cell(plain(message.role or ""), ROLE_CELLS), "bold"),
        "  ",
        cell(text, room).rstrip(),
    )


def _answer_lines(answer: Answer, found: Why, width: int) -> Iterator[Text]:
    yield from _message_lines(answer.message, found.text, width)
    where = f"{'on' if answer.on_path else 'off'} the path, " if found.anchors else ""
    yield from _beside(f"{where}with {some(map(short, answer.memories))}", width)


def decay_lines(found: Report, store: bm.Store, *, counts_alone: bool, width: int) -> Iterator[Text]:
    """How many memories were looked at, fade, and have faded; unless counts are enough, the first of those, too."""
    yield Text(plain(found), "bold")
    if not counts_alone:
        for title, ids in (("fading", found.fading_ids), ("below the floor: no search finds them", found.faded_ids)):
            yield from _group(title, (memory_lines(_memories(store, [id]), width=width) for id in ids))


def _memories(store: bm.Store, ids: Iterable[str]) -> Iterator[bm.Memory]:
    """Memories of the log, which somebody asked to see whatever a view shows."""
    for id in ids:
        found = store.log.get(id)
        assert isinstance(found, bm.Memory)
        yield found


def _group(title: str, found: Iterable[Iterator[Text]]) -> Iterator[Text]:
    """A title and the lines of the first of what was found; nothing where nothing was."""
    each = iter(found)
    for number, lines in enumerate(islice(each, SHOWN)):
        if not number:
            yield Text(title, "dim")
        yield from lines
    more = sum(1 for _ in each)
    if more:
        yield Text(f"  and {more:,} more: --json lists them", "dim")


def _where(anchors: Sequence[str]) -> Text:
    """Where somebody stands; nothing where nowhere."""
    return Text.assemble(" at ", (some(map(short, anchors)), "cyan")) if anchors else Text()


def _beside(text: str, width: int) -> Iterator[Text]:
    """A dim text where texts of memories stand, wrapped to the width."""
    for line in wrapped(Text(text, "dim"), Console(width=width), width - _MARGIN):
        yield Text(" " * _MARGIN).append_text(line)
