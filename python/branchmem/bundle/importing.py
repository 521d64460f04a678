"""Take in a bundle: all of it is checked before the first event is applied.

Whose key is pinned is trusted: the events join the log as they are, and refs come with them.  Of
anybody else nothing joins it: messages and memories are held outside, where no view shows them, and
what would change views here is refused.  Importing a bundle again changes nothing; who is killed
half-way leaves valid events, or some held ones that are not yet listed, and importing again completes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from branchmem import Store, canonical
from branchmem.bundle.admission import admitted
from branchmem.bundle.file import BundleFile
from branchmem.bundle.holding import keep_apart
from branchmem.bundle.joining import join
from branchmem.bundle.keys import Key, load_key
from branchmem.bundle.pins import TABLES as PINS
from branchmem.bundle.receipts import Imported
from branchmem.merge import Strategy

#: What becomes of conflicts: which side wins, here and there.
STRATEGIES: Final[Mapping[str, Strategy]] = {
    "fail": "fail",
    "local": "ours",
    "remote": "theirs",
    "newer": "newer",
    "both": "both",
}

Progress = Callable[[int, int | None], object]


def import_bundle(
    store: Store,
    path: str | os.PathLike[str],
    *,
    key: Key | str | os.PathLike[str] | None = None,
    strategy: str = "fail",
    refs: Mapping[str, str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    now: Callable[[], datetime] = canonical.now,
) -> Imported:
    """Take in the bundle at `path`, or say what that would do.

    `key` is one's own, for a bundle that is for it alone.  `refs` maps refs of the bundle to refs here, and leaves
    out all others; without it all come, under their own names.  A ref that went another way here is merged with
    `strategy`, one of STRATEGIES.  `progress` is told of two rounds: checking, and taking in.

    Raises: BundleRefused, whatever is wrong with it, also where it is older than one that was imported, or goes on
    from one that was not; EventConflict for an id that has other content here; MergeConflict, unless a dry run;
    UnknownRef; InvalidRef; BadAnchor; InvalidKey.  Nothing was written then, except where others changed the store or
    the file after all had been checked: that is a BundleRefused whose `applied` says how much had been taken in.  The
    errors of a store, at any time: what was taken in by then stays, and importing again completes it.
    Cost: reads it twice, a frame at a time, and appends; where a ref went two ways, also as `Trial`.  Of an issuer
    who is not pinned, where anything was erased, once or twice more, as `erased_among`.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {strategy!r:.80}")
    if refs is not None and not isinstance(refs, Mapping):
        raise TypeError(f"refs maps refs of the bundle to refs here: write {{name: name}}, not {refs!r:.80}")
    own = key if key is None or isinstance(key, Key) else load_key(key)
    store.refresh()
    with BundleFile.open(path) as bundle:
        bundle.admit(now(), own)
        name = store.snapshot(lambda reader: admitted(reader, bundle), tables=PINS)
        said, rounds = Imported.of(bundle, name, dry_run=dry_run), Rounds(bundle, progress)
        if name is None:
            return keep_apart(store, bundle, said, rounds)
        return join(store, bundle, said, rounds, refs, STRATEGIES[strategy])


class Rounds:
    """Tells of both rounds through a bundle as of one: each event counts twice."""

    def __init__(self, bundle: BundleFile, progress: Progress | None) -> None:
        self._progress = progress
        self._events = bundle.manifest.counts.events

    def checked(self, done: int, total: int | None) -> None:
        """So many were checked."""
        if self._progress is not None:
            self._progress(done, 2 * self._events)

    def taken(self, done: int) -> None:
        """So many were taken in."""
        self.checked(self._events + done, None)
