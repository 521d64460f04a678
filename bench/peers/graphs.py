"""The peers of graph libraries: networkx and rustworkx, as one would use them.

Messages are nodes, each with an edge up to its parent, which both search more
quickly than edges down.  A memory is visible where the path covers its sources.
Both keep the graph right as messages arrive; neither has an index to go stale.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

import networkx as nx  # type: ignore[import-untyped]
import rustworkx as rx

from bench.shapes import ROOT, Work

NAMES: Final = ("networkx", "rustworkx")


class Graph:
    """Paths and reachability by a library, the subset tests in Python."""

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        above, reaches = _LIBRARIES[name](work)
        self._above: Callable[[int], set[int]] = above
        self._reaches: Callable[[int, int], bool] = reaches
        self._listed = work.sources
        self._frozen = [frozenset(sources) for sources in work.sources]
        self._places = {id: memory for memory, id in enumerate(work.memory_ids)}

    def ordinals(self, message: int) -> list[int]:
        """The memories whose set of sources the path covers."""
        path = self._above(message) | {message}
        return [memory for memory, sources in enumerate(self._frozen) if sources <= path]

    def ordinals_from_the_path(self, message: int) -> list[int]:
        """The same from the path's side, over tuples of sources."""
        covers = (self._above(message) | {message}).issuperset
        return [memory for memory, sources in enumerate(self._listed) if covers(sources)]

    def decide(self, message: int, memories: Sequence[str]) -> list[bool]:
        """One decision a memory: a way up from the message to each of its sources."""
        return [self._all_reached(message, self._listed[self._places[memory]]) for memory in memories]

    def _all_reached(self, message: int, sources: Collection[int]) -> bool:
        reaches = self._reaches
        return all(reaches(message, source) for source in sources)


def _edges(work: Work) -> Iterator[tuple[int, int]]:
    return ((message, parent) for message, parent in enumerate(work.parents) if parent != ROOT)


def _networkx(work: Work) -> tuple[Callable[[int], set[int]], Callable[[int, int], bool]]:
    graph: Any = nx.DiGraph()
    graph.add_nodes_from(range(len(work.parents)))
    graph.add_edges_from(_edges(work))
    return lambda message: nx.descendants(graph, message), lambda below, above: nx.has_path(graph, below, above)


def _rustworkx(work: Work) -> tuple[Callable[[int], set[int]], Callable[[int, int], bool]]:
    graph: Any = rx.PyDiGraph()
    graph.add_nodes_from(range(len(work.parents)))
    graph.add_edges_from_no_data(list(_edges(work)))
    return lambda message: rx.descendants(graph, message), lambda below, above: rx.has_path(graph, below, above)


_LIBRARIES: Final = {"networkx": _networkx, "rustworkx": _rustworkx}
