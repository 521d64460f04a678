"""Search and recall under a view: what may be seen is decided first, and only that is ranked.

A view is the only way in: what it hides is no candidate and no part of any statistic, so that no number of hidden
memories changes a score, an order or a text.  Ranking itself is compiled; the rule of visibility is the engine's.

search       one search: from its arguments to its hits
filters      conditions on the fields of a memory
hits         what a search found
index        what an open store holds in memory for its searches
vectors      the vectors of an embedder, in the file and in memory
approximate  neighbours through a graph, for stores of a million vectors
decay        how memories fade that nobody uses
access       when they were last used
conflicts    what a new memory contradicts
context      what belongs into a prompt
rendering    how the text of a memory stands among our lines
tokens       about how many tokens a text takes
why          who said it, who knew it, and which answers used it
"""

from __future__ import annotations

from branchmem.embedders import Embedder
from branchmem.recall.conflicts import Conflict, Remembered
from branchmem.recall.context import Recalled, recall
from branchmem.recall.decay import Decay
from branchmem.recall.hits import Hit, Hits
from branchmem.recall.search import nearest, search
from branchmem.recall.why import Why

__all__ = [
    "Conflict",
    "Decay",
    "Embedder",
    "Hit",
    "Hits",
    "Recalled",
    "Remembered",
    "Why",
    "nearest",
    "recall",
    "search",
]
