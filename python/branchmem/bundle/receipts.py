"""What became of a bundle: ids and counts, in four lines.

A receipt holds no content but that of conflicts, which somebody must decide: both sides are visible
where they were found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from branchmem.bundle.file import BundleFile
from branchmem.bundle.manifest import Manifest
from branchmem.merge import Conflict, Resolved

#: So many names stand in a line; a receipt holds them all.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Exported:
    """A bundle that was written."""

    path: str
    manifest: Manifest

    @property
    def id(self) -> str:
        """The id of the bundle."""
        return self.manifest.id

    @property
    def events(self) -> int:
        """How many events travel."""
        return self.manifest.counts.events

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {"path": self.path, **self.manifest.to_dict()}

    def __str__(self) -> str:
        manifest, counts = self.manifest, self.manifest.counts
        after = "" if manifest.base is None else f", going on from bundle {manifest.base.id}"
        erased = f", {counts.erased:,} of them without content" if counts.erased else ""
        undoing = counts.retractions + counts.restorations + counts.erasures
        whom = manifest.recipient or "everybody"
        until = "" if manifest.expires is None else f", until {_second(manifest.expires)}"
        return "\n".join(
            (
                f"bundle {manifest.id} at {self.path}: "
                f"of log {manifest.origin}, made {_second(manifest.created)}{after}",
                f"events: {_counted(counts.messages, 'message', 'messages')}, "
                f"{_counted(counts.memories, 'memory', 'memories')}{erased}, "
                f"{undoing:,} that take back, restore or erase",
                f"refs: {_listed(f'{name} at {head}' for name, head in manifest.refs.items())}",
                f"signed by {manifest.fingerprint}, for {whom}{until}",
            )
        )


@dataclass(frozen=True, slots=True)
class Arrived:
    """What became of a ref that a bundle brought."""

    #: Its name here.
    name: str
    #: Where it stood here; None where there was none.
    before: str | None
    #: Where it stands now, or would.
    after: str
    #: Where it stands in the bundle.
    theirs: str
    #: created, unchanged, fast-forward, merged, or conflict, where a merge would be refused.
    how: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {slot: getattr(self, slot) for slot in self.__slots__}

    def __str__(self) -> str:
        return f"{self.name} {self.how}" + ("" if self.before == self.after else f" to {self.after}")


@dataclass(frozen=True, slots=True)
class Imported:
    """What importing a bundle did, or would do."""

    path: str
    bundle: str
    #: The public key that signed it, and its fingerprint.
    issuer: str
    fingerprint: str
    #: The name under which that key is pinned here; None: nothing of the bundle joins the log.
    pinned: str | None
    #: The log that it came from, and which of that log's bundles it is: numbers rise.
    origin: str
    number: int
    created: datetime
    dry_run: bool
    #: Events that joined the log.
    imported: int = 0
    #: Events that were here already.
    duplicates: int = 0
    #: Messages and memories that are held outside of the log.
    held: int = 0
    #: Events that are neither taken in nor held, by why.
    refused: Mapping[str, int] = field(default_factory=dict)
    refs: tuple[Arrived, ...] = ()
    #: Memories that a merge took over, each with the memory that adopts it here.
    adopted: Mapping[str, str] = field(default_factory=dict)
    #: All conflicts that merges met, and those that the strategy decided.
    conflicts: tuple[Conflict, ...] = ()
    resolved: tuple[Resolved, ...] = ()

    @classmethod
    def of(cls, bundle: BundleFile, pinned: str | None, *, dry_run: bool) -> Imported:
        """What can be said before anything is done."""
        manifest = bundle.manifest
        return cls(
            path=bundle.path,
            bundle=manifest.id,
            issuer=manifest.issuer,
            fingerprint=manifest.fingerprint,
            pinned=pinned,
            origin=manifest.origin,
            number=manifest.number,
            created=manifest.created,
            dry_run=dry_run,
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "path": self.path,
            "bundle": self.bundle,
            "issuer": self.issuer,
            "fingerprint": self.fingerprint,
            "pinned": self.pinned,
            "origin": self.origin,
            "number": self.number,
            "created": self.created.isoformat(timespec="microseconds"),
            "dry_run": self.dry_run,
            "imported": self.imported,
            "duplicates": self.duplicates,
            "held": self.held,
            "refused": dict(self.refused),
            "refs": [ref.to_dict() for ref in self.refs],
            "adopted": dict(self.adopted),
            "conflicts": [_conflict(conflict) for conflict in self.conflicts],
            "resolved": [
                {"memory": one.memory, "winner": one.winner, "losers": list(one.losers)} for one in self.resolved
            ],
        }

    def __str__(self) -> str:
        whose = f"{self.pinned}, {self.fingerprint}" if self.pinned else f"{self.fingerprint}, which is not pinned"
        verb = "would be imported" if self.dry_run else "imported"
        holds = "would be held" if self.dry_run else "held"
        refused = _listed(f"{count:,} {why}" for why, count in self.refused.items() if count)
        return "\n".join(
            (
                f"bundle {self.bundle}: of log {self.origin}, made {_second(self.created)}, signed by {whose}",
                f"events: {self.imported:,} {verb}, {self.duplicates:,} here already, "
                f"{self.held:,} {holds} outside of the log; refused: {refused}",
                f"refs: {_listed(map(str, self.refs))}; {_counted(len(self.adopted), 'memory', 'memories')} adopted",
                f"{_counted(len(self.conflicts), 'conflict', 'conflicts')}, {len(self.resolved):,} resolved",
            )
        )


def _conflict(conflict: Conflict) -> dict[str, Any]:
    sides = {"base": conflict.base, "ours": conflict.ours, "theirs": conflict.theirs}
    return {"about": conflict.about, **{name: None if one is None else one.to_dict() for name, one in sides.items()}}


def _second(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="seconds")


def _listed(said: Iterable[str]) -> str:
    every = list(said)
    more = len(every) - _NAMED
    return (", ".join(every[:_NAMED]) or "none") + (f" and {more:,} more" if more > 0 else "")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
