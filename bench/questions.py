"""The questions of the comparison, by the name of their goal.

Each takes a workbench, finds the answers of ours and of every peer equal, and
gives rows.  A further goal is a further function in `QUESTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench.decisions import p4
from bench.growth import p9
from bench.indexing import i
from bench.ingest import p8
from bench.masks import p1, p2, p3
from bench.nearest import v
from bench.opening import p7
from bench.retraction import r
from bench.rows import Row
from bench.search import l
from bench.structure import p5, p6
from bench.supersession import s
from bench.threads import t2
from bench.travel import b
from bench.workbench import Workbench

#: In the order of the goals; what is taken back and replaced; what two threads gain; what travels; search.
QUESTIONS: Final[dict[str, Callable[[Workbench], list[Row]]]] = {
    "P1": p1,
    "P2": p2,
    "P3": p3,
    "P4": p4,
    "P5": p5,
    "P6": p6,
    "P7": p7,
    "P8": p8,
    "P9": p9,
    "R": r,
    "S": s,
    "T2": t2,
    "B": b,
    "V": v,
    "L": l,
    "I": i,
}
