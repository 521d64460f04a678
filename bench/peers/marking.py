"""The peer of plain Python for what is taken back and replaced: candidates from the path, then sets and marks.

What a good engineer would write after reading the rule: retractions filed by where they are in effect, each
candidate looked up in what these name, verdicts of upstreams kept for one view, replaced versions marked by
following links from what is live.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.changed import ChangedWork, Lift, Taking
from bench.shapes import ROOT


class Marking:
    """A changed work filed by message, tree and key."""

    def __init__(self, changed: ChangedWork) -> None:
        work, tour = changed.work, changed.tour
        self._changed, self._tour, self._parents = changed, tour, work.parents
        self._hanging: list[list[int]] = [[] for _ in work.parents]
        self._sources: list[frozenset[int]] = []
        for memory, sources in enumerate(work.sources):
            ups = changed.derived.get(memory, ())
            self._sources.append(frozenset(sources).union(*(self._sources[up] for up in ups)))
            deepest = tour.deepest[memory]
            if deepest is not None:
                self._hanging[deepest].append(memory)
        self._at: dict[int, list[Taking]] = {}
        self._in_tree: dict[int, list[Taking]] = {}
        self._everywhere: list[Taking] = []
        for taking in changed.takings:
            match taking.scope:
                case "branch":
                    self._at.setdefault(taking.at, []).append(taking)
                case "tree":
                    self._in_tree.setdefault(tour.tree[taking.at], []).append(taking)
                case "everywhere":
                    self._everywhere.append(taking)

    def ordinals(self, message: int) -> list[int]:
        """The visible memories, in no order."""
        path = list(self._path(message))
        shown = [memory for at in path for memory in self._hanging[at]]
        if self._changed.takings:
            shown = self._left(shown, path)
        if self._changed.replaces:
            replaced = self._replaced(shown)
            shown = [memory for memory in shown if memory not in replaced]
        return shown

    def _path(self, message: int) -> Iterator[int]:
        while message != ROOT:
            yield message
            message = self._parents[message]

    def _left(self, shown: list[int], path: list[int]) -> list[int]:
        """What no retraction in effect covers."""
        on_path, tree = set(path), self._tour.tree[path[-1]]

        def is_in_effect(it: Taking | Lift) -> bool:
            return self._tour.tree[it.at] == tree if it.scope == "tree" else it.at in on_path

        memories: set[int] = set()
        sources: set[int] = set()
        keys: dict[str, list[Taking]] = {}
        filed = [self._everywhere, self._in_tree.get(tree, []), *(self._at.get(at, []) for at in path)]
        for taking in (taking for takings in filed for taking in takings):
            if any(map(is_in_effect, taking.lifts)):
                continue
            memories.update(taking.memories)
            sources.update(taking.sources)
            if taking.key is not None:
                keys.setdefault(taking.key, []).append(taking)
        derived, of_key = self._changed.derived, self._changed.keys
        known: dict[int, bool] = {}

        def is_covered(memory: int) -> bool:
            if memory not in known:
                known[memory] = (
                    memory in memories
                    or not sources.isdisjoint(self._sources[memory])
                    or any(not self._is_fresh(memory, taking) for taking in keys.get(of_key.get(memory, ""), ()))
                    or any(map(is_covered, derived.get(memory, ())))
                )
            return known[memory]

        return [memory for memory in shown if not is_covered(memory)]

    def _is_fresh(self, memory: int, taking: Taking) -> bool:
        """Whether all sources lie strictly below the place of a retraction by key."""
        start, size = self._tour.start, self._tour.size
        first = start[taking.at]
        last = first + size[taking.at]
        return not taking.standing and all(first < start[source] < last for source in self._sources[memory])

    def _replaced(self, live: list[int]) -> set[int]:
        """All that some live memory replaces, each link once."""
        replaces = self._changed.replaces
        marked: set[int] = set()
        following = list(live)
        while following:
            for old in replaces.get(following.pop(), ()):
                if old not in marked:
                    marked.add(old)
                    following.append(old)
        return marked
