"""The verbs of a store about branches, sessions and what travels: each calls the room that owns it.

A branch is a named anchor, a merge is an explicit event, what travels is a set of events: nothing
here or there is a second rule of visibility.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, cast

from branchmem.changes import Changes
from branchmem.verdict import STRICT, Policy

if TYPE_CHECKING:
    from branchmem import Store, _core
    from branchmem.bundle import Exported, Held, Imported, Key, Pins
    from branchmem.merge import Difference, Merged, Strategy
    from branchmem.refs import Refs, Unreachable
    from branchmem.session import Session


class Branches(Changes):
    """Refs, sessions, merges and bundles of a store."""

    @property
    def refs(self) -> Refs:
        """The named anchors of this store, and the log of their moves."""
        from branchmem.refs import Refs

        return Refs(self._store)

    def at_ref(
        self,
        name: str,
        *more: str,
        policy: Policy = STRICT,
        min_seq: int | None = None,
        count: bool = True,
    ) -> _core.View:
        """The view at the message that a ref names; with `more` refs, at all of theirs, one a tree.

        Raises: UnknownRef; as `at`.
        """
        heads = self.refs.heads((name, *more))
        return self.at(heads, policy=policy, min_seq=min_seq, count=count)

    def unreachable(self) -> Unreachable:
        """The messages and memories that no ref leads to.  O(log)."""
        from branchmem.refs import unreachable

        return unreachable(self._store)

    def session(self, ref: str, *, beside: Iterable[str] = (), create: bool = True) -> Session:
        """A conversation at a ref, which is made with a root of its own if absent, unless not `create`.

        Its views stand on the heads of the refs `beside` as well, which lie in other trees.
        Raises: UnknownRef for one of `beside`, and for `ref` where it may not be made; AmbiguousAnchor where two of
        them lie in one tree; InvalidRef.
        """
        from branchmem.session import Session

        return Session.open(self._store, ref, beside=beside, create=create)

    def diff(self, a: str, b: str, *, beside: Sequence[str] = ()) -> Difference:
        """What two refs or messages have each for themselves: messages since the common ancestor, and memories.

        Both are seen from the refs `beside` as well, as a session with these sees.
        Raises: UnknownRef for what is neither a ref nor a message; AmbiguousName for what is a ref and another
        message; BadAnchor for a message that is not attached; AmbiguousAnchor where one of `beside` stands in the tree
        of one of them.
        Cost: both paths and both views.
        """
        from branchmem.merge import diff

        return diff(self._store, a, b, beside=beside)

    def adopt(self, memories: Iterable[str], *, into: str, held: str | None = None, dry_run: bool = False) -> Merged:
        """Take memories over on the branch of the ref `into`: one message there, and one adopting memory each.

        A copy replaces there what its original replaced, and the original.  What the branch shows already, took
        over before, or decided against is left out, and the receipt says why: doing it again does nothing.
        With `held`, the memories are those of the held bundle with this id.
        Raises: UnknownRef; UnknownEvent; InvalidEvent for what is no memory; BadAnchor.
        Cost: one commit, two views, the path at the ref, and what is taken over.
        """
        from branchmem.merge import adopt

        return adopt(self._store, memories, into=into, held=held, dry_run=dry_run)

    def merge(
        self,
        ref: str,
        *,
        into: str,
        beside: Sequence[str] = (),
        strategy: Strategy = "fail",
        dry_run: bool = False,
    ) -> Merged:
        """Bring what the branch of a ref or a message sees to the branch of the ref `into`: forward, or by adopting.

        `strategy` decides between two memories that would both be live there, say different things, and share a key
        or replace the same memory: fail (nothing is written), ours, theirs, newer (by `created`), or both (they
        stand side by side).  Retractions are not carried over.  To merge again does nothing.  Both are seen from the
        refs `beside` as well: what a session with these derived from a memory there is taken over, too.
        Raises: MergeConflict; UnknownRef; AmbiguousName; BadAnchor; AmbiguousAnchor where one of `beside` stands in
        the tree of one of them.
        Cost: one commit, three views, the path of the target, and what is taken over.
        """
        from branchmem.merge import merge

        return merge(self._store, ref, into=into, beside=beside, strategy=strategy, dry_run=dry_run)

    def export_bundle(
        self,
        path: str | os.PathLike[str],
        *,
        key: Key | str | os.PathLike[str],
        refs: Iterable[str] | None = None,
        since: str | os.PathLike[str] | None = None,
        recipient: str | None = None,
        expires: datetime | None = None,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> Exported:
        """Write all of the log with all refs, or what given refs need, to a new bundle at `path`, signed with `key`.

        Needed is what the views at these refs and above show, and what keeps hidden there what is hidden here.  Erased
        content does not travel; erasures do.  With `since`, an earlier bundle of this log by the same key, only
        what is not in it; who imports the new one must have imported that.  `recipient`, a public key or its
        fingerprint, is the only key that it can be imported with; nothing is encrypted.  From `expires` on it is
        refused.

        Raises: UnknownRef; StoreExists, StoreFull, BundleNotWritten about `path`; BundleRefused about `since`;
        InvalidKey; StoreReadOnly; ExtraMissing.
        Cost: reads the events that travel, and, unless `since` is given, once more for the digest; streams.
        """
        from branchmem.bundle import export_bundle

        return export_bundle(
            self._store, path, key=key, refs=refs, since=since, recipient=recipient, expires=expires, progress=progress
        )

    def preview_bundle(
        self, path: str | os.PathLike[str], *, key: Key | str | os.PathLike[str] | None = None
    ) -> Imported:
        """What importing the bundle would do; nothing is written.  Conflicts are listed, not raised.

        Raises: as `import_bundle`.
        """
        from branchmem.bundle import import_bundle

        return import_bundle(self._store, path, key=key, dry_run=True)

    def import_bundle(
        self,
        path: str | os.PathLike[str],
        *,
        key: Key | str | os.PathLike[str] | None = None,
        strategy: str = "fail",
        refs: Mapping[str, str] | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> Imported:
        """Take in a bundle, after all of it was checked; importing it again does nothing.

        From a key that is pinned, events join the log as they are, and refs come with them: those of `refs`, which maps
        names there to names here, or all under their own.  One that is behind moves on; one that went another way
        is merged with `strategy`: fail, local, remote, newer or both.  From any other key nothing joins the log and no
        view changes: see `held`.  `key` is one's own, for a bundle that is for it alone.

        Raises: BundleRefused, also for one that is older than what was imported; EventConflict for an id that has other
        content here; MergeConflict, unless a dry run.  Nothing was written then, except where others changed the store
        or the file after all had been checked: that is a BundleRefused whose `applied` says how much was taken in.
        UnknownRef, InvalidRef, BadAnchor.
        Cost: reads the bundle twice, a frame at a time, and appends.  Where a ref went two ways, replays the log; of
        a key that is not pinned, where anything was erased, reads it once or twice more.
        """
        from branchmem.bundle import import_bundle

        return import_bundle(
            self._store, path, key=key, strategy=strategy, refs=refs, dry_run=dry_run, progress=progress
        )

    @property
    def held(self) -> Held:
        """The bundles of issuers who are not pinned: outside of the log until something of them is adopted."""
        from branchmem.bundle import Held

        return Held(self._store)

    @property
    def pins(self) -> Pins:
        """The public keys whose bundles join the log of this store as they are."""
        from branchmem.bundle import Pins

        return Pins(self._store)

    @property
    def _store(self) -> Store:
        """The store that these are the verbs of."""
        return cast("Store", self)
