"""Answers of a store in lines: trees drawn down the page, memories beside their ids, a verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

import branchmem as bm
from branchmem.terminal.lines import ID_CELLS, LEAST_TEXT_CELLS, bullet, cell, first, plain, short, wrapped

ROLE_CELLS: Final = 9
KIND_CELLS: Final = 7
_NONE: Final[Mapping[str, str | None]] = MappingProxyType({})


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
        (cell(plain(said.role or ""), ROLE_CELLS), "bold" if marked else ""),
        "  ",
        (cell(plain(text), max(room, LEAST_TEXT_CELLS)), "" if marked and said.text else "dim"),
        "  ",
        (short(id), "cyan"),
    )


def tree_rows(trees: Iterable[Mapping[str, Any]], *, width: int) -> Iterator[Text]:
    """One tree a line: its root, how many messages and leaves it has, how it begins."""
    for tree in trees:
        size = f"{tree['messages']:>9,} messages  {tree['leaves']:>6,} leaves"
        room = width - ID_CELLS - cell_len(size) - 4
        yield Text.assemble(
            (cell(short(tree["root"]), ID_CELLS), "cyan"),
            f"{size}  ",
            (cell(plain(tree["begins"] or ""), max(room, LEAST_TEXT_CELLS)).rstrip(), "dim"),
        )


def memory_lines(memories: Iterable[bm.Memory], *, width: int) -> Iterator[Text]:
    """Each memory under the one before it: its id, kind and key, and beside them its text, wrapped."""
    console = Console(width=width)
    most = max(width // 2, KIND_CELLS)
    for memory in memories:
        id, kind = cell(short(memory.id), ID_CELLS), label(memory)
        kind = cell(kind, min(max(cell_len(kind), KIND_CELLS), most))
        head = Text.assemble("  ", (id, "cyan"), "  ", (kind, "magenta"), "  ")
        margin = Text(" " * head.cell_len)
        room = width - head.cell_len
        for line in memory.text.splitlines() or [""]:
            for part in wrapped(plain(line), console, room):
                yield head.append_text(part)
                head = margin.copy()


def label(memory: bm.Memory) -> str:
    """The kind of a memory, and its key where it has one."""
    return plain(memory.kind if memory.key is None else f"{memory.kind} {memory.key}")


def view_line(view: bm.View, memories: int) -> Text:
    """Where the view stands and how much of the store it shows."""
    anchors = ", ".join(map(short, view.anchors))
    where = (f"at {anchors}", "cyan") if anchors else "without an anchor"
    return Text.assemble((f"{len(view)} of {memories}", "bold"), " memories are visible ", where, f" (seq {view.seq})")


def verdict_lines(verdict: bm.Verdict, *, width: int, given: Mapping[str, str | None] = _NONE) -> Iterator[Text]:
    """Visible or hidden, and what `Verdict.sentences` says with short ids, wrapped to the width.

    `given` are reasons of retractions, as those who made them gave them: they may repeat what was taken back.
    """
    mark = ("visible", "bold green") if verdict.visible else ("hidden", "bold red")
    yield Text.assemble("memory ", (short(verdict.id), "cyan"), " is ", mark, " here")
    for sentence in verdict.sentences(short):
        yield from bullet(sentence, width)
    for id, why in given.items():
        yield from bullet(f"why {short(id)}: {plain(why)}" if why else f"{short(id)} does not say why", width)


def leaf_lines(leaves: Mapping[str, tuple[str | None, str]]) -> Iterator[Text]:
    """Where each conversation stands and who says so; the first of them."""
    stands = (f"{short(root)} at {short(leaf)} ({source})" for root, (leaf, source) in leaves.items() if leaf)
    yield from first("current leaves", stands)
