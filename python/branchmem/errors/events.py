"""What an event, an anchor or a file of events cannot be, and what the log has instead."""

from __future__ import annotations

from collections.abc import Iterable

from branchmem.errors.base import Error, short


class InvalidEvent(Error, ValueError):
    """An event cannot be what it says: `why` names the rule, `value` is at fault."""

    def __init__(self, why: str, value: object = None) -> None:
        super().__init__(why, value)
        self.why = why
        self.value = value

    def explanation(self) -> str:
        return self.why


class InvalidEventType(InvalidEvent, TypeError):
    """A field holds a value of a type that it never takes."""


class EventConflict(Error):
    """One id, two contents: `field` differs between what is stored and what was given."""

    def __init__(self, id: str, field: str, stored: object = None, given: object = None) -> None:
        super().__init__(id, field, stored, given)
        self.id = id
        self.field = field
        self.stored = stored
        self.given = given

    def explanation(self) -> str:
        return (
            f"event {self.id} is already there with another {self.field} "
            f"({short(self.stored)}, not {short(self.given)}): events never change, "
            "so append the new content under an id of its own"
        )


class AmbiguousAnchor(Error, ValueError):
    """Two anchors of one view lie in one tree; `root` is the root of that tree."""

    def __init__(self, first: str, second: str, root: str) -> None:
        super().__init__(first, second, root)
        self.first = first
        self.second = second
        self.root = root

    def explanation(self) -> str:
        return (
            f"anchors {self.first} and {self.second} lie in one tree (root {self.root}): "
            "a view stands on one message a tree, so keep one of them"
        )


class UnknownEvent(Error, KeyError):
    """Nothing in the log bears this id, or what bears it is of another type."""

    def __init__(self, id: str, wanted: str = "event") -> None:
        super().__init__(id, wanted)
        self.id = id
        self.wanted = wanted

    def explanation(self) -> str:
        return f"no {self.wanted} {self.id} in the log: append it first, or check which store is open"


class MemoryHidden(Error, KeyError):
    """The memory is not visible in this view; `why` says what hides it."""

    def __init__(self, id: str, why: str) -> None:
        super().__init__(id, why)
        self.id = id
        self.why = why

    def explanation(self) -> str:
        return f"memory {self.id} is hidden here: {self.why}"


class BadAnchor(Error):
    """The view has problems; only `View.raise_for_problems` raises this."""

    def __init__(self, problems: str, anchors: Iterable[str] = ()) -> None:
        anchors = tuple(anchors)
        super().__init__(problems, anchors)
        self.problems = problems
        self.anchors = anchors

    def explanation(self) -> str:
        what = f"cannot stand on {', '.join(self.anchors)}" if self.anchors else "has no anchor"
        return f"the view {what} ({self.problems}): pass the id of an attached message"


class ImportFailed(Error):
    """A file cannot be read as what it was said to be: `place` in it, and what was `expected`."""

    def __init__(self, path: str, place: str, expected: str) -> None:
        super().__init__(path, place, expected)
        self.path = path
        self.place = place
        self.expected = expected

    def explanation(self) -> str:
        return f"{self.path}: at {self.place}: expected {self.expected}"
