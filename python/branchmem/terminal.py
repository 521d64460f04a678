"""How answers look on a terminal: safe texts, short ids, trees drawn down the page, JSON.

Texts and ids come out of files that others wrote, so nothing but printable
characters of them reaches the terminal, and nothing is read as markup.  Lines
are made one at a time for a width in cells; what a line says was decided
elsewhere.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

import branchmem as bm

if TYPE_CHECKING:
    from branchmem.check import Check
    from branchmem.salvage import Salvage

ELLIPSIS: Final = "…"
ID_CELLS: Final = 10
TAIL: Final = 8
ROLE_CELLS: Final = 9
LEAST_TEXT_CELLS: Final = 12
SHOWN: Final = 10
LABEL_CELLS: Final = 14
_NONE: Final[Mapping[str, str | None]] = MappingProxyType({})

# Controls but those that JSON escapes by itself, marks that turn the direction of a text, lone surrogates.
_ACTED_UPON: Final = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNPRINTABLE: Final = re.compile(f"[\x00-\x1f{_ACTED_UPON}]")
_UNESCAPED: Final = re.compile(f"[{_ACTED_UPON}]")


def width() -> int:
    """Cells of a line of the terminal; 80 where there is none."""
    return Console().width


def say(*lines: str | Text) -> None:
    """Print lines as they are: no markup, no wrapping."""
    show(lines)


def show(lines: Iterable[str | Text], *, out: TextIO | None = None) -> None:
    """Print lines as they are, each as it comes; to standard output unless told otherwise."""
    out = out or sys.stdout
    console = Console(file=out, highlight=False, markup=False, emoji=False)
    for line in lines:
        if console.color_system is None:
            out.write(f"{line}\n")
        else:
            console.print(line, soft_wrap=True)


def agreed(question: str) -> bool:
    """Ask on standard error; whether the answer on standard input is yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = ""
    try:
        answer = sys.stdin.readline()
    finally:
        if not answer.endswith("\n"):  # what is said next would stand on the line of the question
            print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")


def say_json(**document: Any) -> None:
    """Print the one JSON document of a command; ASCII where standard output has no more."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write(escaped(json.dumps(document, ensure_ascii=not utf8)) + "\n")


def escaped(text: str) -> str:
    """The same JSON, without characters that a terminal would act upon."""
    return _UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on standard error while that is a terminal: call it with how many are done, of how many."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def plain(text: object) -> str:
    """One line of printable characters: white space runs become a space, what is unprintable U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", " ".join(str(text).split()))


def short(id: str) -> str:
    """An id of up to ten characters as it is, of a longer one its end: `…86a6f880`."""
    return plain(id if len(id) <= ID_CELLS else ELLIPSIS + id[-TAIL:])


def below(store: bm.Store, top: str) -> list[str]:
    """`top` and every message below it, each parent before its children.  O(answer)."""
    reached = {top: None}
    waiting = [top]
    while waiting:
        children = [id for id in store.tree.children(waiting.pop()) if id not in reached]
        reached.update(dict.fromkeys(children))
        waiting.extend(children)
    return list(reached)


def message(store: bm.Store, id: str) -> bm.Message:
    """A message that the tree of the store knows."""
    found = store.log.get(id)
    assert isinstance(found, bm.Message)
    return found


def tree_lines(store: bm.Store, top: str, *, width: int, path: Collection[str] = ()) -> Iterator[Text]:
    """Draw the tree under `top`, one message a line; the messages of `path` stand out.

    A message continues straight down into the child on the path, or else into
    the one with most below it; its other children stand before that, one step
    to the right.  So a line is indented at most log2(messages) steps beside a path.
    """
    messages = below(store, top)
    here = set(messages)
    sizes = dict.fromkeys(messages, 1)
    for id in reversed(messages):
        parent = store.tree.parent(id)
        if isinstance(parent, str) and parent in here and id != top:
            sizes[parent] += sizes[id]
    waiting = [(top, "", "")]
    while waiting:
        id, joint, gutter = waiting.pop()
        here.discard(id)
        yield _message_line(store, id, joint, width, marked=id in path)
        children = [child for child in store.tree.children(id) if child in here]
        if children:
            straight = max(children, key=lambda child: (child in path, sizes[child]))
            waiting.append((straight, gutter, gutter))
            aside = [child for child in children if child != straight]
            waiting.extend((child, gutter + "├─", gutter + "│ ") for child in reversed(aside))


def _message_line(store: bm.Store, id: str, joint: str, width: int, *, marked: bool) -> Text:
    said = message(store, id)
    text = said.text or ("(erased)" if store.log.is_erased(id) else "(no text)")
    room = width - cell_len(joint) - 2 - ROLE_CELLS - 2 - 2 - ID_CELLS
    return Text.assemble(
        (joint, "dim"),
        ("● ", "bold green") if marked else ("○ ", "dim"),
        (_cell(plain(said.role or ""), ROLE_CELLS), "bold" if marked else ""),
        "  ",
        (_cell(plain(text), max(room, LEAST_TEXT_CELLS)), "" if marked and said.text else "dim"),
        "  ",
        (short(id), "cyan"),
    )


def tree_rows(trees: Iterable[Mapping[str, Any]], *, width: int) -> Iterator[Text]:
    """One tree a line: its root, how many messages and leaves it has, how it begins."""
    for tree in trees:
        size = f"{tree['messages']:>9,} messages  {tree['leaves']:>6,} leaves"
        room = width - ID_CELLS - cell_len(size) - 4
        yield Text.assemble(
            (_cell(short(tree["root"]), ID_CELLS), "cyan"),
            f"{size}  ",
            (_cell(plain(tree["begins"] or ""), max(room, LEAST_TEXT_CELLS)).rstrip(), "dim"),
        )


def memory_lines(memories: Iterable[bm.Memory], *, width: int) -> Iterator[Text]:
    """Each memory under the one before it: its id, kind and key, and beside them its text, wrapped."""
    console = Console(width=width)
    for memory in memories:
        label = plain(memory.kind if memory.key is None else f"{memory.kind} {memory.key}")
        head = Text.assemble("  ", (_cell(short(memory.id), ID_CELLS), "cyan"), "  ", (f"{label:<7}", "magenta"), "  ")
        margin = Text(" " * head.cell_len)
        room = max(width - head.cell_len, LEAST_TEXT_CELLS)
        for line in memory.text.splitlines() or [""]:
            for part in _wrapped(plain(line), console, room):
                yield head.append_text(part)
                head = margin.copy()


def heading(title: str) -> Text:
    """A title, with an empty line before it."""
    return Text.assemble("\n", (title, "bold yellow"))


def view_line(view: bm.View, memories: int) -> Text:
    """Where the view stands and how much of the store it shows."""
    anchors = ", ".join(map(short, view.anchors))
    where = (f"at {anchors}", "cyan") if anchors else "without an anchor"
    return Text.assemble((f"{len(view)} of {memories}", "bold"), " memories are visible ", where, f" (seq {view.seq})")


def count_lines(title: str, counts: Mapping[str, int]) -> Iterator[Text]:
    """A heading, and each number that is not nought with its name; nothing where all are."""
    counted = {name: count for name, count in counts.items() if count}
    if counted:
        yield Text(plain(title), "dim")
    for name, count in counted.items():
        yield Text.assemble(f"  {count:>9,}  ", plain(name))


def leaf_lines(leaves: Mapping[str, tuple[str | None, str]]) -> Iterator[Text]:
    """Where each conversation stands and who says so; the first of them."""
    stands = (f"{short(root)} at {short(leaf)} ({source})" for root, (leaf, source) in leaves.items() if leaf)
    yield from _first("current leaves", stands)


def check_lines(report: Check) -> Iterator[Text]:
    """The summary of a check, then the first of what it found, kind by kind."""
    yield Text(plain(report), "bold" if report.ok else "bold red")
    yield from _first("damage", report.damage)
    yield from _first("parent not in the log", (f"{short(id)} below {short(up)}" for id, up in report.orphans.items()))
    yield from _first("parents in a circle", (_some(map(short, circle), " → ") for circle in report.circles))
    dangling = (f"{short(id)} from {_some(map(short, ids))}" for id, ids in report.dangling.items())
    yield from _first("events that refer to what is not in the log", dangling)
    yield from _first("retractions and restorations whose place cannot be judged", map(short, report.unplaced))
    replacing = (_some(map(short, circle), " ↔ ") for circle in report.supersession_circles)
    yield from _first("memories that replace each other", replacing)
    yield from _first("roots that look like edits of one prompt", map(short, report.prompts))
    unshowable = (f"{short(id)} {', '.join(reasons.names())}" for id, reasons in report.unshowable.items())
    yield from _first("memories that no anchor can show", unshowable)


def salvage_lines(report: Salvage) -> Iterator[Text]:
    """The summary of a salvage, then the first of what is lost, kind by kind."""
    yield Text(plain(report), "bold" if report.ok else "bold red")
    yield from _first("what is wrong with the file", report.damage)
    yield from _first("lost blocks, by position", (f"{start} to {end - 1}" for start, end in report.lost))
    bodiless = (f"seq {seq}: {short(id)}" for id, seq in report.bodiless.items())
    yield from _first("events whose content is lost", bodiless)
    yield from _first("events that name an id of a lost block", (f"seq {seq}" for seq in report.unnamed))
    if report.loose:
        yield Text(f"{report.loose:,} of these events stood on pages that belong to no tree any more", "bold red")
    if report.lost and report.new:
        yield Text(
            "A lost block may have held retractions and erasures: what they hid may show in the new store.", "bold red"
        )


def _first(title: str, found: Iterable[str]) -> Iterator[Text]:
    lines = iter(found)
    for number, line in enumerate(islice(lines, SHOWN)):
        if not number:
            yield Text(title, "dim")
        yield Text(f"  {plain(line)}")
    more = sum(1 for _ in lines)
    if more:
        yield Text(f"  and {more:,} more: --json lists them", "dim")


def verdict_lines(verdict: bm.Verdict, *, width: int, given: Mapping[str, str | None] = _NONE) -> Iterator[Text]:
    """Visible or hidden, and what `Verdict.sentences` says with short ids, wrapped to the width.

    `given` are reasons of retractions, as those who made them gave them: they may repeat what was taken back.
    """
    mark = ("visible", "bold green") if verdict.visible else ("hidden", "bold red")
    yield Text.assemble("memory ", (short(verdict.id), "cyan"), " is ", mark, " here")
    for sentence in verdict.sentences(short):
        yield from _bullet(sentence, width)
    for id, why in given.items():
        yield from _bullet(f"why {short(id)}: {plain(why)}" if why else f"{short(id)} does not say why", width)


def change_lines(receipt: bm.Change | bm.Erased, *, width: int) -> Iterator[Text]:
    """What a verb wrote or would write, and row by row what that changes; ids and counts, no content."""
    form = receipt.to_dict()
    verb = "would write" if form["dry_run"] else "wrote" if form["added"] else "there already:"
    for event in form["events"]:
        place = f" at {short(event['at'])}, scope {event['scope']}" if "at" in event else ""
        yield Text.assemble(f"{verb} {event['type']} ", (short(event["id"]), "cyan"), place)
    for label, text in _change_rows(receipt):
        for line in _wrapped(text, Console(width=width), max(width - LABEL_CELLS - 2, LEAST_TEXT_CELLS)):
            yield Text.assemble("  ", (_cell(label, LABEL_CELLS), "dim"), line)
            label = ""


def _change_rows(receipt: bm.Change | bm.Erased) -> Iterator[tuple[str, str]]:
    """Label and text of each row; a row that has nothing to say is left out."""
    if isinstance(receipt, bm.Erased):
        for label, ids in (
            ("messages", receipt.messages),
            ("memories", receipt.memories),
            ("derived", receipt.derived),
            ("gone before", receipt.already),
            ("not here yet", receipt.absent),
        ):
            if ids:
                yield label, _some(map(short, ids))
        yield "contents", f"{receipt.bodies:,}, {receipt.remains}"
        keys = f"; keys {_some(map(plain, receipt.keys))}" if receipt.keys else ""
        yield "still there", f"{len(receipt.ids):,} ids{keys}"
    if receipt.anchors:
        first, *others = receipt.anchors
        yield from _moved_rows(
            f"at {short(first)}" if not others else f"at {len(receipt.anchors)} anchors",
            {"hides": map(short, receipt.hidden), "shows": map(short, receipt.shown)},
        )
    if isinstance(receipt, bm.Change):
        for id, by in receipt.born_covered.items():
            yield "born covered", f"{short(id)}, by {_some(map(short, by))}"
        for id, why in receipt.born_hidden.items():
            if id not in receipt.born_covered:
                yield "born hidden", f"{short(id)}: {_some(map(plain, why))}"
        if receipt.unplaced:
            stands = "stands cannot be judged: a retraction then holds everywhere, a restoration nowhere"
            yield "no place", f"where {_some(map(short, receipt.unplaced))} {stands}"
    if receipt.elsewhere is not None:
        yield "elsewhere", receipt.elsewhere.summary()
        for verb, moved in (("hides", receipt.elsewhere.hidden), ("shows", receipt.elsewhere.shown)):
            if moved:
                yield "", f"{verb} {_some(f'{short(id)} at {leaves:,}' for id, leaves in moved.items())}"


def _moved_rows(label: str, moved: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    said = [f"{verb} {_some(listed)}" for verb, texts in moved.items() if (listed := list(texts))]
    for text in said or ["nothing changes"]:
        yield label, text
        label = ""


def _some(texts: Iterable[str], between: str = ", ") -> str:
    """The first of some texts, and how many more there are."""
    listed = list(texts)
    more = f" and {len(listed) - SHOWN:,} more" if len(listed) > SHOWN else ""
    return between.join(listed[:SHOWN]) + more


def _bullet(text: str, width: int) -> Iterator[Text]:
    for number, line in enumerate(_wrapped(text, Console(width=width), width - 4)):
        yield Text("    " if number else "  - ").append_text(line)


def _cell(text: str, cells: int) -> str:
    """`text` in exactly that many cells; what is cut off leaves an ellipsis."""
    return set_cell_size(text, cells) if cell_len(text) <= cells else set_cell_size(text, cells - 1) + ELLIPSIS


def _wrapped(text: str, console: Console, cells: int) -> list[Text]:
    """`text` in lines of at most that many cells, at least one."""
    lines = list(Text(text).wrap(console, cells)) or [Text()]
    for line in lines:
        line.rstrip()
    return lines
