"""Where the refs of a bundle would stand here, known before anything of the bundle is applied.

A ref that is not here is made, one that is behind moves on, one that is ahead stays.  One that went
another way is merged: what that would write is planned on an engine of its own, which holds the log
and the bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from branchmem import Engine, Memory, Store, _core
from branchmem.appending import id_bytes
from branchmem.bundle.file import BundleFile
from branchmem.codec import as_it_stays
from branchmem.errors import BundleRefused, UnknownRef
from branchmem.eventlog import skeleton_of
from branchmem.eventlog import skeletons as skeletons_of
from branchmem.events import Message, event_from_bytes
from branchmem.merge import Plan, Strategy, World, plan_merge
from branchmem.refs import TABLES, all_heads, valid_name

CREATED: Final = "created"
UNCHANGED: Final = "unchanged"
FAST_FORWARD: Final = "fast-forward"
DIVERGED: Final = "diverged"

_PAGE: Final = 10_000


class Way(NamedTuple):
    """A ref of a bundle, and where it would stand here."""

    name: str
    #: Where it stands here, None where it does not; and where in the bundle.
    ours: str | None
    theirs: str
    #: One of the four words above.
    how: str


def way_of(name: str, ours: str | None, theirs: str, is_above: Callable[[str, str], bool]) -> Way:
    """What becomes of a ref; `is_above` says whether a message stands at or above another."""
    if ours is None:
        how = CREATED
    elif ours == theirs or is_above(theirs, ours):
        how = UNCHANGED
    else:
        how = FAST_FORWARD if is_above(ours, theirs) else DIVERGED
    return Way(name, ours, theirs, how)


class Arriving:
    """The refs of a bundle, while its frames are being read."""

    def __init__(self, store: Store, bundle: BundleFile, names: Mapping[str, str] | None) -> None:
        """`names` maps refs of the bundle to refs here, and leaves out all others; None: all, under their own names.

        Raises: UnknownRef for a ref that the bundle does not have; InvalidRef; BundleRefused where two get one name.
        """
        self._store = store
        self._bundle = bundle
        self.heads = _renamed(bundle, names)
        ours = store.snapshot(all_heads, tables=TABLES) if self.heads else {}
        self._ours = {name: ours.get(name) for name in self.heads}
        engine = store._fresh()
        self._unmet = {head.encode() for head in self.heads.values() if not engine.is_message(head)}
        moving = any(ours and ours != self.heads[name] for name, ours in self._ours.items())
        # the messages of the bundle; only what stands on another message here asks where they stand
        self._tree = Engine()._engine if moving else None

    def meet(self, skeletons: Sequence[bytes]) -> None:
        """Take notice of the events of a frame."""
        if self._unmet:
            self._unmet.difference_update(id_bytes(one) for one in skeletons if one[1] == Message.code)
        if self._tree is not None:
            messages = [skeleton for skeleton in skeletons if skeleton[1] == Message.code]
            new, *_ = self._tree.plan(messages)
            self._tree.fold(self._tree.encode([messages[at] for at in new]))

    def ways(self) -> list[Way]:
        """What becomes of each ref, once all frames were met; asked once.

        Raises: BundleRefused where one stands at what is neither here nor in the bundle.
        Cost: their paths.
        """
        for name, head in self.heads.items():
            if head.encode() in self._unmet:
                raise BundleRefused(
                    self._bundle.path, f"its ref {name} stands at {head}, which is no message of it or here"
                )
        ways = [way_of(name, self._ours[name], head, self._is_above) for name, head in self.heads.items()]
        self._tree = None
        return ways

    def _is_above(self, message: str, below: str) -> bool:
        """Whether a message stands above another in the log with the bundle."""
        engines = [engine for engine in (self._tree, self._store._fresh()) if engine is not None]
        climbed = set[str]()
        at: str | None = below
        while at is not None and at not in climbed:
            knowing = [engine for engine in engines if engine.is_message(at)]
            if not knowing:
                return False
            path, at = max((engine.path(at) for engine in knowing), key=lambda found: len(found[0]))
            if message in path:
                return True
            climbed.update(path)
        return False


class Trial:
    """The log with the events of a bundle, in an engine made for the question.

    Cost: replays the log, some microseconds an event; holds about 150 bytes an event of the log and the bundle, and
    what the memories of the bundle say.
    """

    def __init__(self, store: Store, bundle: BundleFile) -> None:
        self._store = store
        self._world = Engine()
        # the content of memories that the log does not have, by the bytes of their ids
        self._bodies: dict[bytes, bytes] = {}
        engine, log = self._world._engine, store._fresh()
        for start in range(0, log.seq, _PAGE):
            engine.fold(engine.encode(list(skeletons_of(log, start, min(start + _PAGE, log.seq)))))
        for payload in bundle.frames():
            skeletons, bodies = _core.split_records(payload)
            new, *_ = engine.plan(skeletons)
            engine.fold(engine.encode([skeletons[at] for at in new]))
            for at in new:
                body = bodies[at]
                if body is not None and skeletons[at][1] == Memory.code:
                    self._bodies[id_bytes(skeletons[at])] = body

    def merge(self, way: Way, strategy: Strategy) -> Plan:
        """What merging a ref that went two ways would write; the next one is planned as if it had been written."""
        assert way.ours is not None
        planned = plan_merge(World(self._world, self._content), way.theirs, way.ours, strategy)
        self._world.add(planned.events)
        for event in planned.events:
            if isinstance(event, Memory):
                self._bodies[event.id.encode()] = event.body()
        return planned

    def _content(self, id: str) -> Memory:
        engine = self._world._engine
        skeleton, body = skeleton_of(engine, id)[1], self._bodies.get(id.encode())
        if engine.is_erased(id):
            event = as_it_stays(skeleton)
        else:
            event = self._store.log.get(id) if body is None else event_from_bytes(skeleton, body)
        assert isinstance(event, Memory), id
        return event


def _renamed(bundle: BundleFile, names: Mapping[str, str] | None) -> dict[str, str]:
    refs = bundle.manifest.refs
    if names is None:
        return dict(refs)
    heads: dict[str, str] = {}
    for theirs, ours in names.items():
        if theirs not in refs:
            raise UnknownRef(theirs, f"ref in {bundle.path}:")
        if valid_name(ours) in heads:
            raise BundleRefused(bundle.path, f"two of its refs were to become {ours!r:.80}: name them apart")
        heads[ours] = refs[theirs]
    return heads
