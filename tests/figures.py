"""How tests speak of figures: one for every run, one for a release, and those worth quoting."""

from __future__ import annotations

from collections.abc import Callable

#: `figure(ci, release)`: the first in every run, the second with --soak.
Figure = Callable[[int, int], int]
#: Print a line of figures at the end of the run.
Quote = Callable[[str], None]
