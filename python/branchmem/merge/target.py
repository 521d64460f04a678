"""What a branch knows already: what is visible at its head, what that replaces, what it took over before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeVar

from branchmem import Reason, Verdict
from branchmem.merge.world import Said, World

K = TypeVar("K")

#: What would hide an adopting memory as it hides the original: to adopt washes nothing off.
_STAYS: Final = Reason.ERASED | Reason.MISSING_UPSTREAM | Reason.UPSTREAM_CYCLE | Reason.RETRACTED


class Target:
    """The branch that something is taken over to.

    Cost: what is visible at its head, with the versions that this replaced, and its path.
    """

    def __init__(self, world: World, head: str) -> None:
        self._world = world
        self._view = world.at(head)
        self.head = head
        self.live = frozenset(self._view.ids())
        self._verdicts: dict[str, Verdict] = {}
        self._texts: dict[tuple[str, str | None], dict[str, list[str]]] = {}

    @cached_property
    def copies(self) -> dict[str, list[str]]:
        """For each memory: those visible here that are it, or a mere copy of it."""
        return _index((id, self._world.copied(id)) for id in sorted(self.live))

    @cached_property
    def reaching(self) -> dict[str, list[str]]:
        """For each memory: those visible here that supersede it over any number of steps."""
        return _index((id, self._world.reach(id)) for id in sorted(self.live))

    @cached_property
    def by_key(self) -> dict[str, list[str]]:
        """For each key: what is visible here about it."""
        keyed = ((id, self._world.fields(id).get("key")) for id in sorted(self.live))
        return _index((id, [key]) for id, key in keyed if key is not None)

    @cached_property
    def adoptions(self) -> dict[str, list[str]]:
        """For each memory: those on this path that adopt it, directly or over others, visible or not."""
        path = self._world.path(self.head)
        on_path = frozenset(path)
        found = []
        for id in self._world.from_messages(path):
            if self._world.adopts(id) is not None:
                sources = self._world.effective_sources(id)
                if sources is not None and sources <= on_path:
                    found.append(id)
        return _index((id, self._world.lineage(id)[1:]) for id in sorted(found))

    @cached_property
    def _silenced(self) -> dict[str, list[str]]:
        """For each key: what was taken over here and a retraction of that key hides, as it would hide another copy."""
        adopted = {id for ids in self.adoptions.values() for id in ids}
        found = []
        for id in sorted(adopted - self.live):
            key = self._world.fields(id).get("key")
            by = self._verdict(id).culprits.get(Reason.RETRACTED, ()) if key is not None else ()
            if any(self._world.takes_back(retraction, str(key), self.head) for retraction in by):
                found.append((id, [str(key)]))
        return _index(found)

    def silenced(self, id: str) -> str | None:
        """What says the same as a memory, was taken over here, and is hidden here as another copy would be."""
        here = self._silenced.get(self._world.fields(id).get("key", ""), ())
        return next((other for other in here if self._world.said(other) == self._world.said(id)), None)

    def saying(self, said: Said) -> list[str]:
        """What is visible here and says the same.  Cost: reads what has its kind and key, once."""
        about = said[:2]
        if about not in self._texts:
            self._texts[about] = _index((id, [self._world.said(id).text]) for id in self._alike.get(about, ()))
        return self._texts[about].get(said.text, [])

    @cached_property
    def _alike(self) -> dict[tuple[str, str | None], list[str]]:
        fields = ((id, self._world.fields(id)) for id in sorted(self.live))
        return _index((id, [(found.get("kind", "fact"), found.get("key"))]) for id, found in fields)

    def keeps_out(self, id: str) -> str | None:
        """What would hide a copy of this memory here as it hides the memory itself; None where nothing would."""
        verdict = self._verdict(id)
        stays = verdict.reasons & _STAYS
        return str(replace(verdict, reasons=stays, superseded_upstream=())) if stays else None

    def knows(self, id: str) -> bool:
        """Whether what a memory says is known here: visible but for what replaces it, or taken over; not taken back."""
        if not self._verdict(id).reasons & ~Reason.SUPERSEDED:
            return True
        copies, said = self.adoptions.get(id, ()), self._world.said(id)
        return self.keeps_out(id) is None and any(self._world.said(copy) == said for copy in copies)

    def in_place_of(self, id: str) -> frozenset[str]:
        """What is live here in place of a memory, be it visible or not; copies of it aside."""
        by = self._verdict(id).culprits.get(Reason.SUPERSEDED, ())
        return frozenset(other for other in by if id not in self._world.lineage(other))

    def _verdict(self, id: str) -> Verdict:
        if id not in self._verdicts:
            self._verdicts[id] = self._view.explain(id)
        return self._verdicts[id]


def _index(entries: Iterable[tuple[str, Iterable[K]]]) -> dict[K, list[str]]:
    index: dict[K, list[str]] = {}
    for id, keys in entries:
        for key in keys:
            index.setdefault(key, []).append(id)
    return index
