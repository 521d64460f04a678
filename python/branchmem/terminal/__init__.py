"""How answers look on a terminal: safe texts, short ids, trees drawn down the page, JSON.

Texts and ids come out of files that others wrote, so nothing but printable
characters of them reaches the terminal, and nothing is read as markup.  Lines
are made one at a time for a width in cells; what a line says was decided
elsewhere.

Beside the lines of each kind of answer: `lines` knows what every line is made of, `output` how it
is printed.
"""

from __future__ import annotations

from branchmem.terminal.answers import (
    below,
    leaf_lines,
    memory_lines,
    message,
    tree_lines,
    tree_rows,
    verdict_lines,
    view_line,
)
from branchmem.terminal.benchmark import bench_lines
from branchmem.terminal.branches import (
    conflict_lines,
    difference_lines,
    merged_lines,
    move_lines,
    move_rows,
    ref_rows,
    stands_lines,
    unreachable_lines,
)
from branchmem.terminal.bundles import held_rows, imported_lines, key_lines, manifest_lines
from branchmem.terminal.changes import change_lines
from branchmem.terminal.lines import ELLIPSIS, count_lines, heading, plain, short
from branchmem.terminal.output import agreed, escaped, progress, say, say_json, show, width
from branchmem.terminal.recall import decay_lines, hit_lines, prompt_lines, recalled_lines, why_lines
from branchmem.terminal.reports import check_lines, salvage_lines
from branchmem.terminal.skills import activated_lines, library_lines, problem_lines
from branchmem.terminal.worktrees import deleted_lines, status_lines

__all__ = [
    "ELLIPSIS",
    "activated_lines",
    "agreed",
    "below",
    "bench_lines",
    "change_lines",
    "check_lines",
    "conflict_lines",
    "count_lines",
    "decay_lines",
    "deleted_lines",
    "difference_lines",
    "escaped",
    "heading",
    "held_rows",
    "hit_lines",
    "imported_lines",
    "key_lines",
    "leaf_lines",
    "library_lines",
    "manifest_lines",
    "memory_lines",
    "merged_lines",
    "message",
    "move_lines",
    "move_rows",
    "plain",
    "problem_lines",
    "progress",
    "prompt_lines",
    "recalled_lines",
    "ref_rows",
    "salvage_lines",
    "say",
    "say_json",
    "short",
    "show",
    "stands_lines",
    "status_lines",
    "tree_lines",
    "tree_rows",
    "unreachable_lines",
    "verdict_lines",
    "view_line",
    "why_lines",
    "width",
]
