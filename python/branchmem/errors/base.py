"""What all refusals share: one line for people, printable whatever value is at fault."""

from __future__ import annotations

from collections.abc import Iterable


class Error(Exception):
    """Base of all errors of branchmem: catch it to catch them all."""

    def explanation(self) -> str:
        """One line for people: what was refused, and the way out."""
        return " ".join(str(arg) for arg in self.args)

    def __str__(self) -> str:
        """The explanation, printable whatever value is at fault: a lone surrogate is spelled out."""
        return self.explanation().encode(errors="backslashreplace").decode()


class UnknownName(Error, LookupError):
    """Nothing of its kind has this name; `names` are those that there are."""

    def __init__(self, name: str, names: Iterable[str]) -> None:
        names = tuple(names)
        super().__init__(name, names)
        self.name = name
        self.names = names


def short(value: object) -> str:
    """A value as it is named in a line: its beginning, where it is long."""
    try:
        shown = repr(value)
    except Exception:  # an int of more than 4,300 digits, or a repr of somebody's own
        shown = f"<{type(value).__name__}>"
    return shown if len(shown) <= 60 else shown[:57] + "..."
