"""What two branches have each for themselves, and what a merge did or would do: ids and counts.

Only conflicts hold memories with their content, of which nothing is erased or taken back at the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from branchmem import Appended
from branchmem.events import Event
from branchmem.merge.conflicts import Conflict
from branchmem.merge.plan import Resolved

#: So many ids are named in a sentence; a receipt holds them all.
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """What the branches of two messages have each for themselves, and what both show, as strict views."""

    a: str
    b: str
    #: The deepest message of both branches; None in two trees.
    ancestor: str | None
    #: The messages from below the ancestor to `a`, the uppermost first.
    messages_a: tuple[str, ...]
    messages_b: tuple[str, ...]
    #: The memories that are visible at `a` and not at `b`, in order of arrival.
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    #: The memories that are visible at both.
    both: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in _values(self)}

    def __str__(self) -> str:
        where = "in two trees" if self.ancestor is None else f"parting at {self.ancestor}"
        sides = (
            f"{id}: {_counted(messages, 'message')}, only here {_many(only)}"
            for id, messages, only in (
                (self.a, len(self.messages_a), self.only_a),
                (self.b, len(self.messages_b), self.only_b),
            )
        )
        return "; ".join((where, *sides, f"both show {_memories(len(self.both))}"))


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge or an adoption did, or would do."""

    #: The ref that something was brought to.
    into: str
    #: The message that a merge brought it from; None for an adoption.
    source: str | None
    #: Where the ref stood, and where it stands now.
    before: str
    after: str
    #: Whether the ref was merely moved, since the source stood below it.
    fast_forward: bool
    #: The new message; None where there was nothing to write.
    message: str | None
    #: Each memory that was taken over → the one at the message that adopts it.
    adopted: Mapping[str, str]
    #: Each that was not → why.
    skipped: Mapping[str, str]
    #: All conflicts that were met, each once: left open in a dry run with `fail`, standing side by side with `both`.
    conflicts: tuple[Conflict, ...]
    #: Conflicts that were decided, and decisions of the source that were taken over.
    resolved: tuple[Resolved, ...]
    #: Those of `conflicts` that the strategy leaves open: only a dry run says so instead of raising.
    undecided: tuple[Conflict, ...]
    #: Memories that the target still shows, though a retraction hides them at the source: a merge carries none over.
    taken_back: tuple[str, ...]
    #: Memories that were visible at the ref and are not any more, in order of arrival.
    hidden: tuple[str, ...]
    #: Memories that are visible there now and were not before; those that are new, too.
    shown: tuple[str, ...]
    #: New memories that are hidden at the ref from birth, each with what `explain` says; a dry run does not know.
    born_hidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: What was written, or would be: the message and its memories, and before them what was held.
    events: tuple[Event, ...] = field(default=(), repr=False)
    #: What the log made of them; None where nothing was written (`dry_run`).
    appended: Appended | None = None

    @property
    def dry_run(self) -> bool:
        """Whether nothing was written."""
        return self.appended is None

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form; content stands in it of conflicts alone."""
        form = {name: _plain(value) for name, value in _values(self) if name not in ("events", "appended")}
        return {"dry_run": self.dry_run, "added": 0 if self.appended is None else self.appended.added, **form}

    def __str__(self) -> str:
        parts = [self._outcome()]
        if self.adopted:
            parts.append(f"{'would adopt' if self.dry_run else 'adopted'} {_many(self.adopted)}")
        if self.skipped:
            parts.append(f"left {_many(self.skipped)}")
        if self.conflicts:
            parts.append(f"{_counted(len(self.conflicts), 'conflict')}: {self._how()}")
        elif self.resolved:
            parts.append(f"took over {_counted(len(self.resolved), 'decision')}")
        if self.taken_back:
            parts.append(f"still shows what is taken back at the source: {_listed(self.taken_back)}")
        moved = [f"{word} {_listed(ids)}" for word, ids in (("hides", self.hidden), ("shows", self.shown)) if ids]
        if moved:
            parts.append(", ".join(moved))
        parts += (f"{id} is born hidden: {_listed(why)}" for id, why in self.born_hidden.items())
        return "; ".join(parts)

    def _outcome(self) -> str:
        if self.undecided:
            return f"{self.into} would not be merged"
        if self.before == self.after:
            return f"{self.into} stays at {self.before}: nothing to take over"
        how = "forward " if self.fast_forward else ""
        moved = "would move" if self.dry_run else "moved"
        return f"{self.into} {moved} {how}from {self.before} to {self.after}"

    def _how(self) -> str:
        if self.undecided:
            return f"{len(self.undecided):,} undecided"
        return "decided" if self.resolved else "both stand"


def _values(receipt: Difference | Merged) -> list[tuple[str, Any]]:
    return [(slot.name, getattr(receipt, slot.name)) for slot in fields(receipt)]


def _plain(value: Any) -> Any:
    """A field of a receipt, JSON-ready."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value.to_dict() if isinstance(value, (Conflict, Resolved)) else value


def _many(ids: Iterable[str]) -> str:
    ids = tuple(ids)
    return _memories(len(ids)) + (f" ({_listed(ids)})" if ids else "")


def _memories(count: int) -> str:
    return f"{count:,} {'memory' if count == 1 else 'memories'}"


def _counted(count: int, one: str) -> str:
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def _listed(ids: Iterable[str]) -> str:
    ids = tuple(ids)
    more = len(ids) - _NAMED
    return ", ".join(ids[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
