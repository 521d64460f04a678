"""The demonstration: one real conversation with branches, and what each of them may remember.

`play` imports the bundled conversation into the store that it is given, derives
notes, and asks at two leaves; `lines` tells it on a terminal.  Needs no network,
no key, no model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Final

from rich.text import Text

import branchmem as bm
from branchmem import terminal
from branchmem.derive import derive
from branchmem.importers import import_file

CONVERSATION: Final = "librechat_chatgpt-tree.json"
EVERY: Final = 2


@dataclass(frozen=True, slots=True)
class Story:
    """One store, asked three times: on a branch, on another, on the first again.

    `here` stands on the leaf that the export calls current, `there` on the leaf
    whose branch parts from it first, `again` where `here` does.  `verdict` says
    at `here` why the last memory of `there` is hidden.  `seq` is the position of
    the log before anything was asked.
    """

    root: str
    seq: int
    here: bm.View
    there: bm.View
    verdict: bm.Verdict
    again: bm.View


def play(store: bm.Store) -> Story:
    """Import into an empty store, derive a note for every two messages, and ask.  Well under a second."""
    with resources.as_file(resources.files("branchmem") / "demo_data" / CONVERSATION) as path:
        report = import_file(
            path,
            append=store.append,
            stored=lambda id: store.log.get(id) if id in store.log else None,
            erased=store.log.is_erased,
            format="chatgpt",
        )
    store.append(list(derive(store, every=EVERY)))
    ((root, current),) = report.current.items()
    assert current.leaf is not None
    leaf = current.leaf

    def shared(other: str) -> int:
        parting = store.tree.common_ancestor(leaf, other)
        return 0 if parting is None else len(store.tree.path(parting))

    other = min(store.tree.leaves(root), key=shared)
    seq = store.seq
    here, there = store.at(leaf), store.at(other)
    hidden = [memory.id for memory in there.memories() if memory.id not in here][-1]
    return Story(root, seq, here, there, here.explain(hidden), store.at(leaf))


def lines(store: bm.Store, story: Story, *, width: int) -> Iterator[Text]:
    """The story on a screen, from the tree to the switch back."""
    memories = len(store.memory_ids)
    yield terminal.heading("A real conversation with branches, as ChatGPT exported it")
    yield Text("● marks the path to the current leaf; …1234abcd is the id that ends so.\n", "dim")
    yield from terminal.tree_lines(store, story.root, width=width, path=set(store.tree.path(story.here.anchors[0])))
    yield terminal.heading("What may be remembered at the current leaf")
    yield terminal.view_line(story.here, memories)
    yield from terminal.memory_lines(story.here.memories(), width=width)
    yield terminal.heading("The same question on another branch")
    yield terminal.view_line(story.there, memories)
    yield from terminal.memory_lines(story.there.memories(), width=width)
    yield terminal.heading("Why the last of these is hidden at the current leaf")
    yield from terminal.verdict_lines(story.verdict, width=width)
    yield terminal.heading("Switching back")
    yield terminal.view_line(story.again, memories)
    same = "the same memories" if set(story.again) == set(story.here) else "OTHER MEMORIES"
    yield Text(f"{same} as before, and nothing was written: seq {story.seq} then, seq {store.seq} now")
    yield terminal.heading("Now with an export of your own")
    yield from (Text(f"  branchmem {call} --store my.bmem", "cyan") for call in ("import FILE", "derive", "trees"))
