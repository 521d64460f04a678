"""The picture of a run: leak against correct, one numbered point a method, with intervals; good is at the top left.

One panel a part.  Points often lie upon each other, so each has a number beside it that the legend repeats; the axes
show where points and numbers are, and intervals may run out of the picture.  The methods of branchmem, whose bench this
is, stand out in one colour.  Nothing in the SVG depends on machine or time; its ground is white on dark pages too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from branchmem.branchbench.measures import Figures, Row, figures
from branchmem.branchbench.table import PARTS
from branchmem.extra import extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which stay apart for colour-blind eyes; markers tell those apart that share one.
_OURS: Final = "#0072B2"
_COLOURS: Final = ("#D55E00", "#009E73", "#CC79A7", "#B38600", "#333333", "#7A4FBF")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_MARGIN: Final = 7  # percentage points around the outermost points, where numbers may stand
_LEAST: Final = 25  # percentage points that an axis spans at least
_PLACES: Final = [  # where a number may stand, in points from its marker: the nearest that is free is taken
    (distance * math.cos(math.radians(angle)), distance * math.sin(math.radians(angle)))
    for distance in (10, 14, 19, 25, 32, 40)
    for angle in (45, 0, 90, 315, 135, 270, 180, 225, 20, 70)
]
_APART: Final = (12.0, 10.0)  # width and height that a number of two digits takes, in points


@dataclass(frozen=True, slots=True)
class _Point:
    number: int
    method: str
    found: Figures

    @property
    def x(self) -> float:
        return 100 * self.found.leak.value

    @property
    def y(self) -> float:
        return 100 * self.found.correct.value

    @property
    def ours(self) -> bool:
        return self.method.startswith("branchmem")

    @property
    def colour(self) -> str:
        return _OURS if self.ours else _COLOURS[self.number % len(_COLOURS)]

    @property
    def marker(self) -> str:
        return _MARKERS[self.number % len(_MARKERS)]


def draw(rows: Sequence[Row], methods: Mapping[str, int], title: str, path: Path) -> None:
    """Write `path` with the suffixes .svg and .png.  A method without leak probes in a part has no point there.

    `methods` has the number of each, which decides its marker and colour, in the order of the legend.

    Raises: ExtraMissing where matplotlib is not installed.
    """
    with extra("matplotlib", wanted="plots", name="branchbench"):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    panels = {name: _points(rows, methods, part) for part, name in PARTS.items() if any(r.part == part for r in rows)}
    panels = panels or {"no probe was asked": []}
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rc("svg", hashsalt="branchbench")
        mpl.rc("font", size=9)
        mpl.rc("axes.spines", top=False, right=False)
        figure = Figure(figsize=(2.4 + 4.4 * len(panels), 4.6), layout="constrained", facecolor="white")
        axes = figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)[0]
        every = [point for points in panels.values() for point in points]
        axes[0].set_xlim(-_MARGIN, max([_LEAST, *(point.x for point in every)]) + _MARGIN)
        axes[0].set_ylim(min([100 - _LEAST, *(point.y for point in every)]) - _MARGIN, 100 + _MARGIN)
        for axis, (name, points) in zip(axes, panels.items(), strict=True):
            _panel(axis, name, points)
        axes[0].set_ylabel("correct answers, % of probes")
        drawn = [pair for axis in axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
        handles = {label: handle for handle, label in drawn}
        labels = [label for label in map(_label, methods.values(), methods) if label in handles]
        if labels:
            figure.legend([handles[label] for label in labels], labels, loc="outside right center", frameon=False)
        figure.suptitle(title)
        figure.draw_without_rendering()  # the places of the numbers depend on the layout, which is settled by this
        figure.set_layout_engine("none")
        for axis, points in zip(axes, panels.values(), strict=True):
            _number(axis, points, 72 / figure.dpi)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
        figure.savefig(path.with_suffix(".png"), dpi=150, metadata={"Software": None})


def _label(number: int, method: str) -> str:
    return f"{number}  {method}"


def _points(rows: Sequence[Row], methods: Mapping[str, int], part: str) -> list[_Point]:
    found = [
        _Point(number, method, figures([row for row in rows if row.part == part and row.method == method]))
        for method, number in methods.items()
    ]
    return [point for point in found if point.found.leak.of]


def _panel(axis: Axes, name: str, points: Sequence[_Point]) -> None:
    axis.set_title(name, fontweight="bold")
    axis.set_title("↖ better", loc="left", color="#666666", fontsize=9)
    axis.set_xlabel("answers that leak, % of leak probes")
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)
    if not points:
        axis.text(0.5, 0.5, "no leak probe was asked", transform=axis.transAxes, ha="center", color="#666666")
        return
    for point in points:
        ends = [100 * end for rate in (point.found.leak, point.found.correct) for end in rate.interval]
        spans = [[abs(end - at)] for end, at in zip(ends, (point.x, point.x, point.y, point.y), strict=True)]
        axis.errorbar(
            point.x,
            point.y,
            xerr=spans[:2],
            yerr=spans[2:],
            fmt="none",
            ecolor=point.colour,
            elinewidth=1.1 if point.ours else 0.6,
            alpha=0.45,
            zorder=2,
        )
        axis.plot(
            point.x,
            point.y,
            linestyle="none",
            marker=point.marker,
            color=point.colour,
            markersize=9 if point.ours else 6,
            markeredgecolor="black" if point.ours else "white",
            markeredgewidth=1.0 if point.ours else 0.6,
            zorder=3 if point.ours else 4,  # the smaller above the larger, so that none is hidden
            label=_label(point.number, point.method),
        )


def _number(axis: Axes, points: Sequence[_Point], scale: float) -> None:
    """A number beside each point, at the place where it covers least of points and other numbers; the nearest such.

    `scale` is the size of a pixel in points, in which all is measured here.
    """
    left, low, right, high = (scale * end for end in axis.bbox.extents)
    pixels = [axis.transData.transform((point.x, point.y)) for point in points]
    spots = [(scale * float(x), scale * float(y)) for x, y in pixels]
    taken = list(spots)
    for point, (x, y) in zip(points, spots, strict=True):
        around = [(x + dx, y + dy) for dx, dy in _PLACES]
        within = [(u, v) for u, v in around if left + 8 < u < right - 8 and low + 6 < v < high - 6]
        others = [spot for spot in taken if spot != (x, y)]
        room = [_room(place, others) for place in within]
        u, v = within[room.index(max(room))]
        taken.append((u, v))
        (at, height), (to, rise) = axis.transData.inverted().transform(
            [(u / scale, v / scale), ((x + u) / 2 / scale, (y + v) / 2 / scale)]
        )
        axis.plot([point.x, to], [point.y, rise], color=point.colour, linewidth=0.6, zorder=2)
        axis.text(
            at,
            height,
            str(point.number),
            ha="center",
            va="center",
            color=point.colour,
            fontsize=8.5,
            fontweight="bold" if point.ours else "normal",
            zorder=5,
        )


def _room(place: tuple[float, float], others: Sequence[tuple[float, float]]) -> float:
    """How far from the nearest of the others, 1 where it just does not touch; more room than that is worth nothing."""
    (x, y), (width, height) = place, _APART
    gaps = (max(abs(x - left) / width, abs(y - low) / height) for left, low in others)
    return min([1.0, *gaps])
